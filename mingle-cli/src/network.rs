//! Where a command looks for other nodes: its options and their variables, read into one [`Network`].

use mingle_core::{Network, Seed};

use crate::args::{AirArgs, NetworkArgs};
use crate::config::{Reader, values};
use crate::exit::Stop;

impl NetworkArgs {
    /// The settings of a node: each option, or else its variable.
    pub(crate) fn read(self, reader: &Reader<'_>) -> Result<Network, Stop> {
        let mut network = self.air.read(reader)?;
        network.prefers_ipv6 = reader.flag(self.ipv6, "ipv6")?;
        network.master_port = reader.read(self.master_port, "master-port", values::port)?;
        network.seeds = reader.list(self.seed, "seed", |_| false, Seed::list)?.concat();
        network.seed_dir = reader.read(self.seed_dir, "seed-dir", str::parse)?;
        if network.master_port == Some(network.discovery_port) {
            return Err(Stop::Usage(format!(
                "--master-port is {}, which is the port of the multicast groups as well; a node needs two ports, so \
                 change one, such as by --multicast :29498",
                network.discovery_port
            )));
        }
        Ok(network)
    }
}

impl AirArgs {
    /// The settings of an observer. The variables of options that it lacks are not read.
    pub(crate) fn read(self, reader: &Reader<'_>) -> Result<Network, Stop> {
        let mut network = reader.read(self.multicast, "multicast", multicast)?.unwrap_or_default();
        network.interfaces =
            reader.list(self.interface, "interface", |_| true, |part| part.trim().parse())?;
        network.broadcast = reader.flag(self.broadcast, "broadcast")?;
        Ok(network)
    }
}

/// Reads `GROUP:PORT/TTL`, of which each part may be left out, or `off`.
fn multicast(text: &str) -> Result<Network, String> {
    const WRONG: &str = "write GROUP:PORT/TTL or a part of it, such as 239.1.2.3, :29498 or /4; or 'off'";
    let mut network = Network::default();
    if text == "off" {
        network.multicast = false;
        return Ok(network);
    }
    let (rest, ttl) = text.split_once('/').map_or((text, None), |(rest, ttl)| (rest, Some(ttl)));
    let (group, port) = rest.split_once(':').map_or((rest, None), |(group, port)| (group, Some(port)));
    if text.is_empty() {
        return Err(WRONG.to_owned());
    }
    let because = |reason: &str| format!("{reason}; {WRONG}");
    if !group.is_empty() {
        network.group = Some(values::group(group).map_err(because)?);
    }
    if let Some(port) = port {
        network.discovery_port = values::port(port).map_err(because)?;
    }
    if let Some(ttl) = ttl {
        network.ttl = values::ttl(ttl).map_err(because)?;
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_multicast_may_be_left_out_and_a_wrong_one_says_what_it_is() {
        let read = |text: &str| {
            let network = multicast(text)?;
            let group = network.group.map_or_else(String::new, |group| group.to_string());
            Ok::<_, String>((group, network.discovery_port, network.ttl, network.multicast))
        };
        for (text, group, port, ttl) in [
            ("239.1.2.3:29498/4", "239.1.2.3", 29498, 4),
            ("239.1.2.3", "239.1.2.3", 29499, 1),
            (":29498", "", 29498, 1),
            ("/4", "", 29499, 4),
            ("239.1.2.3/255", "239.1.2.3", 29499, 255),
            (":1/2", "", 1, 2),
        ] {
            assert_eq!(read(text), Ok((group.to_owned(), port, ttl, true)), "{text}");
        }
        assert_eq!(read("off"), Ok((String::new(), 29499, 1, false)));
        for (text, reason) in [
            ("", "write GROUP:PORT/TTL"),
            ("on", "224.0.0.0 to 239.255.255.255"),
            ("10.0.0.1", "224.0.0.0 to 239.255.255.255"),
            ("ff15::1", "IPv4"),
            (":0", "1 to 65535"),
            ("239.1.2.3:", "1 to 65535"),
            ("239.1.2.3:udp", "1 to 65535"),
            ("/0", "from 1"),
            ("/", "from 1"),
            ("239.1.2.3/256", "to 255"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason) && error.contains("'off'"), "{text}: {error}");
        }
    }
}
