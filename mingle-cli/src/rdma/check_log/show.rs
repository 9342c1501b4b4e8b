//! The report as text.

use std::fmt;

use super::{Counts, Device, Ends, LogVerdict, Pair, Report};

/// The most names and pairs in the text. JSON has all that were kept.
const SHOWN: usize = 16;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verdict(f)?;
        let facts = [
            fact("NCCL", &self.versions),
            fact("network", &self.networks),
            fact("plugin", &self.plugins),
            fact("HCAs", &self.hcas),
            fact("GID index", &self.gid_indices),
            fact("settings", &self.settings),
            fact("within nodes", &self.within_nodes),
        ];
        let facts = facts.concat();
        f.write_str("\n")?;
        if !facts.is_empty() {
            write!(f, "\n{facts}")?;
        }
        self.devices(f)?;
        self.pairs(f)?;
        if !self.warnings.is_empty() {
            f.write_str("\nwarnings from NCCL:\n")?;
            for (text, count) in self.warnings.counts.iter().take(SHOWN) {
                writeln!(f, "  {count} x {text}")?;
            }
            more(f, self.warnings.counts.len().saturating_sub(SHOWN), self.warnings.others)?;
        }
        if !self.causes.is_empty() {
            f.write_str("\nwhy, and what to do:\n")?;
            for cause in &self.causes {
                writeln!(f, "* {}\n  {}", cause.cause, cause.cure)?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.network_ends.sum();
        let ways: Vec<_> = self.ways.names().map(String::as_str).collect();
        let ways = ways.join(", ");
        let uniform = format!("{all} of {all} ends of network channels ({ways})");
        match self.verdict {
            LogVerdict::RdmaWithGpudirect => write!(f, "RDMA with GPUDirect: {uniform}"),
            LogVerdict::RdmaWithoutGpudirect => {
                write!(f, "RDMA without GPUDirect: {uniform}: all data goes through the host's memory")
            }
            LogVerdict::Sockets => write!(f, "sockets: {uniform}: RDMA is not used"),
            LogVerdict::OtherNetwork => write!(f, "another network: {uniform}"),
            LogVerdict::Mixed => {
                write!(
                    f,
                    "mixed: {} of {all} ends of network channels ({ways})",
                    EndCounts(self.network_ends)
                )
            }
            LogVerdict::OneNode => f.write_str("one node: no channel uses a network"),
            LogVerdict::NoChannel => f.write_str("no channels: the log does not show how data is sent"),
        }
    }

    fn devices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Device { network, index, name, ends }) in self.devices.iter().enumerate() {
            if i == 0 {
                f.write_str("\nends of channels at each device:\n")?;
            }
            let name = name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
            writeln!(f, "  {network}/{index}{name}: {}", EndCounts(*ends))?;
        }
        Ok(())
    }

    fn pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Pair { from, to, ends }) in self.other_pairs.iter().take(SHOWN).enumerate() {
            if i == 0 {
                f.write_str("\nranks whose channels use another network than most:\n")?;
            }
            writeln!(f, "  {from} -> {to}: {}", EndCounts(*ends))?;
        }
        more(f, self.other_pairs.len().saturating_sub(SHOWN), 0)
    }
}

/// `8 RDMA with GPUDirect, 2 sockets`.
struct EndCounts(Ends);

impl fmt::Display for EndCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["RDMA with GPUDirect", "RDMA without GPUDirect", "sockets", "another network"];
        let counts = self.0.all();
        let some = counts.iter().zip(names).filter(|(count, _)| **count > 0);
        let texts: Vec<_> = some.map(|(count, name)| format!("{count} {name}")).collect();
        f.write_str(&texts.join(", "))
    }
}

/// A line such as `network: IB (16), Socket (1)`. A single name has no count.
fn fact<T: Ord + fmt::Display>(name: &str, tally: &Counts<T>) -> String {
    let text = |(name, count): (&T, &u64)| match tally.counts.len() {
        1 => name.to_string(),
        _ => format!("{name} ({count})"),
    };
    if tally.is_empty() {
        return String::new();
    }
    let texts: Vec<_> = tally.counts.iter().map(text).take(SHOWN).collect();
    let more = match tally.counts.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{name}: {}{more}\n", texts.join(", "))
}

fn more(f: &mut fmt::Formatter<'_>, names: usize, others: u64) -> fmt::Result {
    match (names, others) {
        (0, 0) => Ok(()),
        (names, 0) => writeln!(f, "  and {names} more"),
        (names, others) => writeln!(f, "  and {names} more, and {others} lines with other names"),
    }
}
