//! What hosts that run the doctor at once tell each other: by multicast who they are, and over the port of
//! rank 0 what each has found. Nothing here is authentic, and it can change nothing but a report.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use mingle_core::HostName;
use mingle_core::proto::{BrokenPath, JobTag};
use mingle_core::tools::{from_bytes, to_bytes};
use serde::{Deserialize, Serialize};

use super::route::Blocked;

/// The largest world that the doctor compares.
pub(super) const LARGEST: u32 = 32;
/// The most addresses of hosts that are remembered as heard; a stranger can make up any number.
pub(super) const HEARD: usize = 256;
/// The most ports for RDMA of a host that are told of, and the most networks of each.
pub(super) const RAILS: usize = 32;
/// The most broken paths from a host to each other host that are told.
pub(super) const WAYS: usize = 8;
/// Magic and version of the doctor's own datagrams, which a rendezvous ignores.
const HEAD: [u8; 8] = *b"MNGD\x07\0\0\0";

/// A datagram to all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The number of this run of the doctor.
    pub(super) id: u32,
    pub(super) host: HostName,
    /// The port for RDMA that has sent this; none where the host has sent it by all its interfaces.
    pub(super) port: Option<String>,
}

/// A host whose multicast was heard, with the address from which its hello has come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Heard {
    pub(super) id: u32,
    pub(super) host: HostName,
    pub(super) address: IpAddr,
}

impl Heard {
    /// The host as the report names it.
    pub(super) fn name(&self) -> String {
        format!("{} ({})", self.host, self.address)
    }
}

/// A path that could not be proved, and the rank to which it leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BrokenWay {
    pub(super) to: u32,
    pub(super) path: BrokenPath,
    /// Why packets do not leave the host as they should.
    pub(super) blocked: Option<Blocked>,
}

/// A port for RDMA over Ethernet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rail {
    /// Its network interface.
    pub(super) by: String,
    /// The networks of its addresses.
    pub(super) networks: Vec<String>,
    /// Whether the interface is up and has a link.
    pub(super) up: bool,
    /// The ports that it hears, each with the rank of its host: of its own host, the port itself as well.
    pub(super) heard: BTreeSet<(u32, String)>,
}

/// What a host has found. Other hosts have ranks here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// None of a host that neither sends multicast nor listens to it.
    pub(super) heard: Option<BTreeSet<Heard>>,
    pub(super) broken: Vec<BrokenWay>,
    /// The rates at which the transfers of other hosts have arrived, in kbit/s.
    pub(super) rates: BTreeMap<u32, u32>,
    /// Its ports for RDMA over Ethernet.
    pub(super) rails: Vec<Rail>,
}

impl Record {
    /// Whether a host may say this. Names of interfaces go to a terminal and into commands to copy.
    pub(super) fn is_sane(&self) -> bool {
        let hosts = LARGEST as usize;
        let is_sane = |rail: &Rail| {
            let is_short = rail.heard.len() <= hosts * RAILS && rail.networks.len() <= RAILS;
            let are_names = is_name(&rail.by) && rail.heard.iter().all(|(_, port)| is_name(port));
            is_short && are_names && rail.networks.iter().all(|network| is_net(network))
        };
        let are_few = self.heard.as_ref().is_none_or(|heard| heard.len() <= HEARD + hosts)
            && self.broken.len() <= hosts * WAYS
            && self.rates.len() <= hosts
            && self.rails.len() <= RAILS;
        are_few && self.rails.iter().all(is_sane)
    }
}

/// The hello with its head.
pub(super) fn encode(tag: JobTag, hello: &Hello) -> Vec<u8> {
    [&HEAD[..], &tag.0, &to_bytes(hello)].concat()
}

/// The hello, if a host of this job may send it.
pub(super) fn decode(tag: JobTag, bytes: &[u8]) -> Option<Hello> {
    let body = bytes.strip_prefix(&HEAD)?.strip_prefix(&tag.0)?;
    from_bytes(body).filter(|hello: &Hello| hello.port.as_deref().is_none_or(is_name))
}

/// The name of an interface for a command in a report, which is copied into a shell.
pub(super) fn for_shell(name: &str) -> &str {
    if is_name(name) { name } else { "NAME" }
}

/// Whether a name of an interface means nothing else to a shell.
pub(super) fn is_name(name: &str) -> bool {
    name.len() < 16 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte))
}

fn is_net(text: &str) -> bool {
    text.len() < 50 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use mingle_core::JobId;

    use super::*;

    fn tag() -> JobTag {
        "foo".parse::<JobId>().unwrap().tag()
    }

    #[test]
    fn a_datagram_that_no_host_sends_is_dropped() {
        let hello = Hello { id: 7, host: HostName::new("node7"), port: None };
        let bytes = encode(tag(), &hello);
        let of_port = |port: &str| Hello { port: Some(port.to_owned()), ..hello.clone() };
        assert_eq!(decode(tag(), &encode(tag(), &of_port("enp1s0"))), Some(of_port("enp1s0")));
        assert_eq!(decode(tag(), &encode(tag(), &of_port("$(reboot)"))), None);
        assert_eq!(decode(tag(), &bytes), Some(hello));
        assert_eq!(decode(JobTag([0; 16]), &bytes), None);
        assert!((0..bytes.len()).all(|cut| decode(tag(), &bytes[..cut]).is_none()));
        // A host's name is cleaned.
        let at = bytes.windows(5).position(|part| part == b"node7").unwrap();
        let hostile = [&bytes[..at], b"$(re)", &bytes[at + 5..]].concat();
        assert_eq!(decode(tag(), &hostile).unwrap().host.as_str(), "__re_");
    }

    #[test]
    fn ports_for_rdma_are_taken_as_they_are_or_not_at_all() {
        let good = Rail {
            by: "enp1s0f0np0".to_owned(),
            networks: vec!["10.0.0.0/24".to_owned(), "fd00::/64".to_owned()],
            up: true,
            heard: (0..32).map(|port| (7, format!("enp{port}"))).collect(),
        };
        let are_taken = |rails: Vec<Rail>| Record { rails, ..Record::default() }.is_sane();
        assert!(are_taken(vec![good.clone(); RAILS]));
        for bad in [
            Rail { by: "x;reboot".to_owned(), ..good.clone() },
            Rail { networks: vec!["\u{1b}[2J".to_owned()], ..good.clone() },
            Rail { networks: vec![String::new(); RAILS + 1], ..good.clone() },
            Rail { heard: [(7, "`x`".to_owned())].into(), ..good.clone() },
            Rail { heard: (0..1025).map(|id| (id, String::new())).collect(), ..good.clone() },
        ] {
            assert!(!are_taken(vec![good.clone(), bad]));
        }
        assert!(!are_taken(vec![good; RAILS + 1]));
    }
}
