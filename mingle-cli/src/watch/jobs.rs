//! All jobs that are forming on the link and are not private.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::tools::Notice;
use serde_json::{Value, json};

use super::{Scene, columns, has_room, is_silent};
use crate::events::add_fewest;
use crate::events::clock::milliseconds;
use crate::progress::duration;

/// The most jobs that are remembered: a stranger can advertise any number.
const MOST: usize = 1024;

/// The jobs, by the beginnings of their tags.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: BTreeMap<[u8; 8], Listed>,
}

#[derive(Debug)]
struct Listed {
    notice: Notice,
    from: SocketAddr,
    first: Duration,
    last: Duration,
    /// The last line about it.
    last_line: String,
}

impl Listed {
    fn name(&self) -> String {
        match &self.notice {
            Notice::Open { job, .. } => job.to_string(),
            Notice::Sealed(tag) => format!("with a secret, {}", hex(*tag)),
        }
    }

    fn count(&self) -> String {
        match &self.notice {
            Notice::Open { joined, world, .. } => format!("{joined} of {world}"),
            Notice::Sealed(_) => "-".to_owned(),
        }
    }
}

impl Jobs {
    fn loud(&self, now: Duration) -> impl Iterator<Item = (&[u8; 8], &Listed)> {
        self.jobs.iter().filter(move |(_, listed)| !is_silent(now, listed.last))
    }
}

impl Scene for Jobs {
    fn hear(&mut self, now: Duration, from: SocketAddr, datagram: &[u8]) {
        let Some(notice) = Notice::decode(datagram) else { return };
        let tag = match &notice {
            Notice::Open { job, .. } => job.tag().beginning(),
            Notice::Sealed(tag) => *tag,
        };
        if !has_room(&mut self.jobs, &tag, MOST, |listed| is_silent(now, listed.last)) {
            return;
        }
        let new = || Listed { notice: notice.clone(), from, first: now, last: now, last_line: String::new() };
        let listed = self.jobs.entry(tag).or_insert_with(new);
        (listed.from, listed.last) = (from, now);
        listed.notice = notice;
    }

    fn news(&mut self, now: Duration) -> Vec<String> {
        let mut news = Vec::new();
        for listed in self.jobs.values_mut() {
            let what = match &listed.notice {
                _ if is_silent(now, listed.last) => {
                    "silent: its world has formed, or its leader is gone".to_owned()
                }
                Notice::Open { .. } => format!("{} nodes here, says {}", listed.count(), listed.from.ip()),
                Notice::Sealed(_) => format!("here, says {}", listed.from.ip()),
            };
            if what != listed.last_line {
                news.push(format!("job {}: {what}", listed.name()));
                listed.last_line = what;
            }
        }
        news
    }

    fn table(&self, now: Duration) -> String {
        let mut cells = vec![["job", "joined", "leader", "first heard"].map(str::to_owned).to_vec()];
        for (_, listed) in self.loud(now) {
            let ago = format!("{} ago", duration(now.saturating_sub(listed.first)));
            cells.push(vec![listed.name(), listed.count(), listed.from.to_string(), ago]);
        }
        if cells.len() > 1 { columns(&cells) } else { "no job on this link so far\n".to_owned() }
    }

    fn document(&self, now: Duration) -> Value {
        let entry = |(tag, listed): (&[u8; 8], &Listed)| {
            let (job, world, joined) = match &listed.notice {
                Notice::Open { job, world, joined } => (Some(job.as_str()), Some(*world), Some(*joined)),
                Notice::Sealed(_) => (None, None, None),
            };
            let mut facts = json!({
                "job": job,
                "tag": hex(*tag),
                "world": world.map(|world| world.max().get()),
                "joined": joined,
                "address": listed.from.ip(),
                "port": listed.from.port(),
                "first_ms_ago": milliseconds(now.saturating_sub(listed.first)),
            });
            add_fewest(&mut facts, world);
            facts
        };
        json!({ "jobs": self.loud(now).map(entry).collect::<Vec<_>>() })
    }

    fn has_heard(&self) -> bool {
        !self.jobs.is_empty()
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
        for notice in notices() {
            jobs.hear(seconds(1), from, &notice);
        }
        jobs.hear(seconds(1), from, b"MNGL and so on, which is not a notice");
        assert_eq!(
            jobs.news(seconds(2)),
            [
                "job with a secret, 1f2e3d4c5b6a7988: here, says 10.0.0.1",
                "job foo: 3 of 2:4 nodes here, says 10.0.0.1"
            ]
        );
        assert_eq!(jobs.news(seconds(2)), [""; 0]);
        let table = jobs.table(seconds(3));
        assert!(
            table.contains("foo") && table.contains("3 of 2:4") && table.contains("2.0 s ago"),
            "{table}"
        );
        assert_eq!(jobs.document(seconds(3))["jobs"].as_array().unwrap().len(), 2);
        assert_eq!(jobs.news(seconds(9)).len(), 2, "both have fallen silent");
        assert_eq!(jobs.table(seconds(9)), "no job on this link so far\n");
    }
}
