//! The report for people.

use std::fmt;

use super::{Device, Ends, Pair, Report, Tally, Verdict};

/// Most names and pairs in the text; JSON has all that was kept.
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
            f.write_str("\nwarnings of NCCL's:\n")?;
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
            Verdict::RdmaWithGpudirect => write!(f, "RDMA with GPUDirect: {uniform}"),
            Verdict::RdmaWithoutGpudirect => {
                write!(f, "RDMA without GPUDirect: {uniform}: all data goes through the host's memory")
            }
            Verdict::Sockets => write!(f, "sockets: {uniform}: RDMA is not used"),
            Verdict::OtherNetwork => write!(f, "another network: {uniform}"),
            Verdict::Mixed => {
                write!(f, "mixed: {} of {all} ends of network channels ({ways})", Words(self.network_ends))
            }
            Verdict::OneNode => f.write_str("one node: no channel goes through a network"),
            Verdict::NoChannel => f.write_str("no channels: the log does not tell how data goes"),
        }
    }

    fn devices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Device { network, index, name, ends }) in self.devices.iter().enumerate() {
            if i == 0 {
                f.write_str("\nends of channels at each device:\n")?;
            }
            let name = name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
            writeln!(f, "  {network}/{index}{name}: {}", Words(*ends))?;
        }
        Ok(())
    }

    fn pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Pair { from, to, ends }) in self.other_pairs.iter().take(SHOWN).enumerate() {
            if i == 0 {
                f.write_str("\nranks whose channels go another way than most:\n")?;
            }
            writeln!(f, "  {from} -> {to}: {}", Words(*ends))?;
        }
        more(f, self.other_pairs.len().saturating_sub(SHOWN), 0)
    }
}

/// `8 RDMA with GPUDirect, 2 sockets`.
struct Words(Ends);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["RDMA with GPUDirect", "RDMA without GPUDirect", "sockets", "another network"];
        let counts = self.0.all();
        let some = counts.iter().zip(names).filter(|(count, _)| **count > 0);
        let words: Vec<_> = some.map(|(count, name)| format!("{count} {name}")).collect();
        f.write_str(&words.join(", "))
    }
}

/// `network: IB (16), Socket (1)`; how often is told only where there are several.
fn fact<T: Ord + fmt::Display>(name: &str, tally: &Tally<T>) -> String {
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
        (names, others) => writeln!(f, "  and {names} more, and {others} lines of yet others"),
    }
}
