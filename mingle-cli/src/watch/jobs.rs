//! All jobs that are forming on the link and are not private.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::tools::Notice;
use serde_json::{Value, json};

use super::{Picture, Scene, has_room, is_silent};
use crate::events::add_fewest;

/// The most jobs that are remembered: a stranger can advertise any number.
const MOST: usize = 1024;
/// A job that is silent is shown as such until then.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The jobs by the beginnings of their tags, each with its leader and the time when it was heard last.
#[derive(Debug, Default)]
pub(super) struct Jobs(BTreeMap<[u8; 8], (Notice, SocketAddr, Duration)>);

impl Scene for Jobs {
    fn hear(&mut self, now: Duration, from: SocketAddr, datagram: &[u8]) {
        let Some(notice) = Notice::decode(datagram) else { return };
        let tag = match &notice {
            Notice::Open { job, .. } => job.tag().beginning(),
            Notice::Sealed(tag) => *tag,
        };
        if has_room(&mut self.0, &tag, MOST, |(.., last)| is_silent(now, *last)) {
            self.0.insert(tag, (notice, from, now));
        }
    }

    fn state(&self, now: Duration) -> Picture {
        let mut parts = Vec::new();
        for (notice, from, last) in self.0.values().filter(|(.., last)| now < *last + FORGOTTEN) {
            let (name, count) = match notice {
                Notice::Open { job, world, joined } => {
                    (job.to_string(), format!("{joined} of {world} nodes here"))
                }
                Notice::Sealed(tag) => (format!("with a secret, {}", hex(*tag)), "here".to_owned()),
            };
            parts.push(if is_silent(now, *last) {
                format!("job {name}: silent: its world has formed, or its leader is gone")
            } else {
                format!("job {name}: {count}, says {}", from.ip())
            });
        }
        let head = if parts.is_empty() { vec!["no job on this link so far".to_owned()] } else { Vec::new() };
        Picture { head, parts }
    }

    fn document(&self, now: Duration) -> Value {
        let loud = self.0.iter().filter(|(_, (.., last))| !is_silent(now, *last));
        let jobs = loud.map(|(tag, (notice, from, _))| {
            let (job, world, joined) = match notice {
                Notice::Open { job, world, joined } => (Some(job.as_str()), Some(*world), Some(*joined)),
                Notice::Sealed(_) => (None, None, None),
            };
            let mut facts = json!({
                "job": job,
                "tag": hex(*tag),
                "world": world.map(|world| world.max().get()),
                "joined": joined,
                "address": from.ip(),
                "port": from.port(),
            });
            add_fewest(&mut facts, world);
            facts
        });
        json!({ "jobs": jobs.collect::<Vec<_>>() })
    }

    fn has_heard(&self) -> bool {
        !self.0.is_empty()
    }

    fn silence(&self) -> String {
        "no job was heard: none is forming now, or multicast does not pass to this host; a private job is not listed, so give \
         its --job-id; see 'mingle doctor'"
            .to_owned()
    }
}

fn hex(tag: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Job foo with 3 of 2:4, and the bytes of a notice with a secret.
    fn notices() -> [Vec<u8>; 2] {
        let job: mingle_core::JobId = "foo".parse().unwrap();
        let mut open = b"MNGJ\x02\x00\x03\x00".to_vec();
        open.extend_from_slice(&job.tag().beginning());
        open.extend_from_slice(b"\x02\0\0\0\x04\0\0\0\x03\0\0\0foo");
        let mut sealed = b"MNGJ\x02\x01\x00\x00\x1f\x2e\x3d\x4c\x5b\x6a\x79\x88".to_vec();
        sealed.extend_from_slice(&[0; 12]);
        [open, sealed]
    }

    #[test]
    fn jobs_are_listed_while_they_advertise_and_those_with_a_secret_without_a_name() {
        let mut jobs = Jobs::default();
        let seconds = Duration::from_secs;
        let from: SocketAddr = "10.0.0.1:29503".parse().unwrap();
        assert_eq!(jobs.state(seconds(0)).head, ["no job on this link so far"]);
        for notice in notices() {
            jobs.hear(seconds(1), from, &notice);
        }
        jobs.hear(seconds(1), from, b"MNGL and so on, which is not a notice");
        assert_eq!(
            jobs.state(seconds(2)).parts,
            [
                "job with a secret, 1f2e3d4c5b6a7988: here, says 10.0.0.1",
                "job foo: 3 of 2:4 nodes here, says 10.0.0.1"
            ]
        );
        assert_eq!(jobs.document(seconds(3))["jobs"].as_array().unwrap().len(), 2);
        assert!(jobs.state(seconds(9)).parts[1].starts_with("job foo: silent"));
        assert_eq!(jobs.state(seconds(62)).parts, [""; 0]);
    }
}
