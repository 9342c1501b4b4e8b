//! The paths between hosts that form no world, for `mingle doctor`: the proof of a round without the round.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::paths::PathProofs;
use super::target::PathTarget;
use crate::model::{Fault, NodeId};
use crate::proto::config::Config;
use crate::proto::output::{DialId, Output, PathNews};
use crate::proto::shared::Shared;
use crate::proto::timer::{Time, Timer};
use crate::wire::Partner;

/// The paths from one host to the others.
#[derive(Debug, Clone)]
pub(crate) struct Survey {
    shared: Shared,
    /// None before the first partner, and after the time for proofs.
    paths: Option<PathProofs>,
    verdicts: BTreeMap<NodeId, Result<(), Fault>>,
    is_over: bool,
}

impl Survey {
    /// `config` gives the ID, the job and the size of the world; `seed` is random.
    pub(crate) fn new(config: Config, seed: u64, now: Time) -> Self {
        let shared = Shared::new(config, seed, now);
        Self { shared, paths: None, verdicts: BTreeMap::new(), is_over: false }
    }

    /// Answers the paths of the others to this host.
    pub(crate) fn target(&self) -> PathTarget {
        PathTarget::new(&self.shared)
    }

    /// Proves the path to another host. The first begins the time for all of them.
    pub(crate) fn add(&mut self, now: Time, id: NodeId, to: SocketAddr) {
        self.shared.now = now;
        if self.is_over {
            return;
        }
        let others = self.shared.most().saturating_sub(1);
        let paths = self.paths.get_or_insert_with(|| {
            self.shared.set_after(Timer::ProofFailed, super::PATIENCE);
            PathProofs::new(others, now)
        });
        // The caller knows by itself whether the host's own port answers.
        paths.add(&[Partner { id, rank: 0, path: to, own_port: to.port() }], &mut self.shared);
    }

    /// Whether the path to this host is proved, or how it fails; nothing as long as that is open.
    pub(crate) fn verdict(&self, id: NodeId) -> Option<Result<(), Fault>> {
        self.verdicts.get(&id).copied()
    }

    pub(crate) fn hear(&mut self, now: Time, dial: DialId, news: &PathNews) {
        self.shared.now = now;
        if let Some(paths) = &mut self.paths {
            paths.hear(dial, news, &mut self.shared);
            self.verdicts.extend(paths.proved().map(|id| (id, Ok(()))));
        }
    }

    pub(crate) fn closed(&mut self, dial: DialId) {
        if let Some(paths) = &mut self.paths {
            paths.closed(dial);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.shared.now = now;
        while let Some(timer) = self.shared.timers.expire(now) {
            match (timer, &mut self.paths) {
                (Timer::ProofFailed, paths) => {
                    self.is_over = true;
                    self.shared.timers.stop(Timer::Dial);
                    let Some(paths) = paths.take() else { continue };
                    self.verdicts.extend(paths.unproved().map(|path| (path.partner, Err(path.fault))));
                    paths.stop(&mut self.shared);
                }
                (_, Some(paths)) => paths.advance(&mut self.shared),
                (_, None) => {}
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.shared.timers.next()
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.shared.next_output()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::JobId;
    use crate::proto::output::PathDial;

    fn survey(world: u32) -> Survey {
        let tag = "foo".parse::<JobId>().unwrap().tag();
        let config = Config::plain(tag, world, 1, SocketAddr::from(([10, 0, 0, 1], 29500)));
        Survey::new(config, 7, Time::ZERO)
    }

    fn id(number: u8) -> NodeId {
        NodeId([number; 16])
    }

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 41_000))
    }

    /// The dials that are open, by where they lead.
    fn dials(survey: &mut Survey, open: &mut BTreeMap<DialId, SocketAddr>) {
        while let Some(output) = survey.poll_output() {
            match output {
                Output::DialPath(PathDial { dial, to, .. }) => {
                    open.insert(dial, to);
                }
                Output::HangUp(dial) => {
                    open.remove(&dial);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn each_path_is_proved_or_its_fault_named_after_the_time_of_a_round_and_nothing_stays_open() {
        let (mut survey, mut open) = (survey(4), BTreeMap::new());
        for number in 2..=4 {
            survey.add(Time::ZERO, id(number), at(number));
        }
        dials(&mut survey, &mut open);
        assert_eq!(open.len(), 3, "all at once");
        let (&proof, _) = open.iter().find(|(_, to)| **to == at(2)).unwrap();
        survey.hear(Time::ZERO, proof, &PathNews::Arrived);
        assert_eq!(survey.verdict(id(2)), Some(Ok(())));
        while let Some(now) = survey.poll_timeout() {
            assert_eq!(survey.verdict(id(3)), None, "{now:?}");
            survey.handle_timeout(now);
            dials(&mut survey, &mut open);
            let connected: Vec<DialId> =
                open.iter().filter(|(_, to)| **to == at(4)).map(|(dial, _)| *dial).collect();
            for dial in connected {
                survey.hear(now, dial, &PathNews::Opened { packet: 1500 });
            }
            assert!(now <= Duration::from_secs(5), "{now:?}");
        }
        assert_eq!(survey.verdict(id(3)), Some(Err(Fault::Silent)));
        assert_eq!(survey.verdict(id(4)), Some(Err(Fault::Unanswered)));
        assert!(open.is_empty(), "{open:?}");
        survey.add(Duration::from_secs(6), id(5), at(5));
        assert_eq!((survey.poll_output(), survey.verdict(id(5))), (None, None), "too late");
    }

    #[test]
    fn no_more_hosts_are_dialled_than_the_world_has() {
        let (mut survey, mut open) = (survey(3), BTreeMap::new());
        for number in 2..100 {
            survey.add(Time::ZERO, id(number), at(number));
        }
        dials(&mut survey, &mut open);
        assert_eq!(open.len(), 2);
    }
}
