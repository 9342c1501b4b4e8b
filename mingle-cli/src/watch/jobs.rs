//! All jobs that are forming on the link and are not private.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mingle_core::tools::{Notice, Sighting};
use serde_json::{Value, json};

use super::{Scene, has_room, is_silent};
use crate::events::add_world;

/// The most jobs that are remembered: a stranger can advertise any number.
const MOST: usize = 1024;

/// The jobs by the beginnings of their tags, each with its leader and the time when it was heard last.
#[derive(Debug, Default)]
pub(super) struct Jobs(BTreeMap<[u8; 8], (Notice, SocketAddr, Duration)>);

impl Jobs {
    /// The jobs that are not silent, each with its tag.
    fn loud(&self, now: Duration) -> impl Iterator<Item = (String, &Notice, SocketAddr)> {
        let loud = self.0.iter().filter(move |(_, (.., last))| !is_silent(now, *last));
        loud.map(|(tag, (notice, from, _))| (format!("{:016x}", u64::from_be_bytes(*tag)), notice, *from))
    }
}

impl Scene for Jobs {
    fn see(&mut self, now: Duration, sighting: Sighting) {
        let Sighting::Job(notice, from) = sighting else { return };
        let tag = notice.tag();
        if has_room(&mut self.0, &tag, MOST, |(.., last)| is_silent(now, *last)) {
            self.0.insert(tag, (notice, from, now));
        }
    }

    fn lines(&self, now: Duration) -> Vec<String> {
        let line = |(tag, notice, from): (String, &Notice, SocketAddr)| match notice {
            Notice::Open { job, world, joined } => {
                format!("job {job}: {joined} of {world} nodes here, says {}", from.ip())
            }
            Notice::Sealed(_) => format!("job with a secret, {tag}: here, says {}", from.ip()),
        };
        let lines: Vec<String> = self.loud(now).map(line).collect();
        if lines.is_empty() { vec!["no job forms on this link".to_owned()] } else { lines }
    }

    fn document(&self, now: Duration) -> Value {
        let jobs = self.loud(now).map(|(tag, notice, address)| {
            let (job, world, joined) = match notice {
                Notice::Open { job, world, joined } => (Some(job.as_str()), Some(*world), Some(*joined)),
                Notice::Sealed(_) => (None, None, None),
            };
            let mut facts = json!({ "job": job, "joined": joined, "tag": tag, "address": address });
            add_world(&mut facts, world);
            facts
        });
        json!({ "jobs": jobs.collect::<Vec<_>>() })
    }

    fn silence(&self) -> Option<String> {
        self.0.is_empty().then(|| {
            "no job was heard: none is forming now, or multicast does not pass to this host; a private job is not listed, \
             so give its --job-id; see 'mingle doctor'"
                .to_owned()
        })
    }
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
        assert_eq!(jobs.lines(seconds(0)), ["no job forms on this link"]);
        assert!(jobs.silence().is_some());
        for notice in notices() {
            jobs.see(seconds(1), Sighting::Job(Notice::decode(&notice).unwrap(), from));
        }
        assert_eq!(
            jobs.lines(seconds(2)),
            [
                "job with a secret, 1f2e3d4c5b6a7988: here, says 10.0.0.1",
                "job foo: 3 of 2:4 nodes here, says 10.0.0.1"
            ]
        );
        let document = jobs.document(seconds(3));
        let listed = |job: &Value| ["job", "joined", "world", "world_min"].map(|field| job[field].clone());
        let [sealed, open] = &document["jobs"].as_array().unwrap()[..] else { panic!("{document}") };
        assert!(listed(sealed).iter().all(Value::is_null), "{sealed}");
        assert_eq!(listed(open), [json!("foo"), json!(3), json!(4), json!(2)]);
        assert!(jobs.silence().is_none());
        assert_eq!(jobs.lines(seconds(9)), ["no job forms on this link"]);
    }
}
