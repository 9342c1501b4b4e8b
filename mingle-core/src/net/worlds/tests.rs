//! Sessions of this process on the loopback interface.

use std::fs;
use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Poll;

use super::*;
use crate::model::{HostName, NodeId, Peer, Rank, User, World as Size};
use crate::net::discovery::seed_dir::tests::Folder;
use crate::net::namespace_tests::inside;
use crate::net::sockets::connections::longest;
use crate::proto::{RankRange, Warning};
use crate::wire::session::{HELLO, Hello, Hellos};
use crate::wire::{Codec, Frame, Header, Message, Running};

fn job(name: &str, world: u32) -> Rendezvous {
    let job = format!("{name}-{}", std::process::id());
    let mut job = Rendezvous::new(job.parse().unwrap(), Size::new(world).unwrap());
    job.network.interfaces = vec!["lo".parse().unwrap()];
    job
}

fn restarts(name: &str, world: u32, most: u32) -> Rendezvous {
    let mut job = job(name, world);
    job.restarts.most = Some(most);
    job
}

/// Waits for the next world.
async fn formed(session: &mut Session) -> Box<Assignment> {
    loop {
        match session.next().await.unwrap() {
            Happening::Formed(assignment) => return assignment,
            Happening::Running(change) => assert_ne!(change, Change::Finished),
            _ => {}
        }
    }
}

/// What happens next to any of these, and its index.
async fn any(sessions: &mut [&mut Session]) -> (usize, Result<Happening, Error>) {
    let mut all: Vec<_> = sessions.iter_mut().map(|session| Box::pin(session.next())).collect();
    let first = poll_fn(|context| {
        let mut polled = all.iter_mut().enumerate().map(|(at, next)| (at, next.as_mut().poll(context)));
        polled
            .find_map(|(at, poll)| if let Poll::Ready(done) = poll { Some((at, done)) } else { None })
            .map_or(Poll::Pending, Poll::Ready)
    });
    timeout(Duration::from_secs(30), first).await.expect("something happens")
}

/// Waits until each of these has formed, or has ended with an error. All are driven on meanwhile, as the node
/// that leads tells rank 0 first.
async fn settle(sessions: &mut [&mut Session]) -> Vec<Option<Error>> {
    let mut ends: Vec<Option<Option<Error>>> = sessions.iter().map(|_| None).collect();
    while ends.iter().any(Option::is_none) {
        let driven: Vec<usize> = (0..ends.len()).filter(|&at| !matches!(ends[at], Some(Some(_)))).collect();
        let mut some: Vec<&mut Session> = Vec::new();
        for (at, session) in sessions.iter_mut().enumerate() {
            if driven.contains(&at) {
                some.push(session);
            }
        }
        match any(&mut some).await {
            (at, Ok(Happening::Formed(_))) => ends[driven[at]] = Some(None),
            (_, Ok(_)) => {}
            (at, Err(error)) => ends[driven[at]] = Some(Some(error)),
        }
    }
    ends.into_iter().map(|end| end.unwrap()).collect()
}

/// This node's rank in its world, and its peer.
fn own(session: &Session) -> Over {
    session.running().unwrap().own(End::Left)
}

/// Whether this node knows of a node that waits for a seat.
fn has_spare(session: &Session) -> bool {
    session.running().is_some_and(|running| running.waiting > 0)
}

/// Drives two members and a node that waits for a seat, until both members know that it waits: a spare that
/// the leader has told of is a spare for both.
async fn meet([first, second, spare]: [&mut Session; 3]) {
    while !has_spare(first) || !has_spare(second) {
        any(&mut [&mut *first, &mut *second, &mut *spare]).await.1.unwrap();
    }
}

async fn two(job: Rendezvous) -> [Session; 2] {
    let (mut one, mut other) = (job.clone().session(), job.session());
    let (first, _) = tokio::join!(formed(&mut one), formed(&mut other));
    if first.formed.rank.get() == 0 { [one, other] } else { [other, one] }
}

/// A port that the kernel gives to no other test, and this to none twice.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(23_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Folder {
    /// The files that nodes have left here.
    fn files(&self) -> Vec<PathBuf> {
        let is_draft = |path: &Path| path.file_name().unwrap().as_encoded_bytes().starts_with(b".");
        let files = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| !is_draft(path)).collect()
    }
}

/// Drives both while nothing happens to them, until this is so.
async fn quiet_until(sessions: &mut [Session; 2], is_so: impl Fn() -> bool) {
    let begun = clock();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it takes too long");
        let [first, second] = sessions;
        let both = async {
            tokio::select! { a = first.next() => a, b = second.next() => b }
        };
        if let Ok(happening) = timeout(Duration::from_millis(20), both).await {
            panic!("{happening:?}");
        }
    }
}

fn fails(session: &mut Session, code: u8) {
    session.fail(End::Exited(code));
    session.stopped();
}

#[tokio::test]
async fn the_settings_of_a_session_hold_for_its_life() {
    let mut set = restarts("settings", 1, 2);
    (set.gone_after, set.grows, set.rank) = (Duration::from_secs(9), true, Some(Rank(0)));
    (set.stop_timeout, set.last_call) = (Duration::from_secs(8), Duration::from_secs(7));
    set.network.prefers_ipv6 = true;
    set.attributes.metadata.insert("rack", "7").unwrap();
    let mut session = set.session();
    for generation in 0..3 {
        let assignment = formed(&mut session).await;
        assert_eq!(session.generation(), generation);
        let own = &assignment.formed.roster.as_ref().unwrap().members()[0].metadata;
        let count = (generation > 0).then(|| generation.to_string());
        assert_eq!(own.get("rack"), Some("7"));
        assert_eq!(own.get("mingle.restarts").map(str::to_owned), count);
        let State::Runs(running) = &session.state else { panic!("it runs") };
        let config = running.config();
        let times = [config.gone_after, config.stop_timeout, config.last_call].map(|time| time.as_secs());
        assert_eq!((times, config.node.rank), ([9, 8, 7], Some(Rank(0))));
        assert!(config.prefers_ipv6 && config.grow_after.is_some());
        fails(&mut session, 1);
    }
    let error = settle(&mut [&mut session]).await.remove(0).unwrap();
    assert!(error.to_string().ends_with("failed: exit code 1; no restart is left of 2"), "{error}");
}

#[tokio::test]
async fn the_commands_of_all_nodes_restart_until_no_restart_is_left() {
    let [mut first, mut second] = two(restarts("restarts", 2, 1)).await;
    fails(&mut second, 3);
    let sentence = loop {
        let (at, happening) = any(&mut [&mut first, &mut second]).await;
        let happening = happening.unwrap();
        if at == 0 && matches!(happening, Happening::Running(Change::Over(_))) {
            break first.sentence(&happening).unwrap();
        }
    };
    assert!(sentence.ends_with(", failed: exit code 3; all commands restart, 1 of 1"), "{sentence}");
    assert_eq!(first.running().unwrap().generation(), 0, "a world keeps its number when it is over");
    first.stopped();
    settle(&mut [&mut first, &mut second]).await;
    assert_eq!((first.generation(), second.generation()), (1, 1));
    fails(&mut second, 4);
    first.stopped();
    let ends = settle(&mut [&mut first, &mut second]).await;
    for (error, own) in ends.into_iter().zip([false, true]) {
        let error = error.unwrap();
        assert!(error.to_string().ends_with(", failed: exit code 4; no restart is left of 1"), "{error}");
        let Error::Ended(ended) = error else { panic!("{error}") };
        assert_eq!((ended.over.rank, ended.over.end, ended.is_own), (Some(Rank(1)), End::Exited(4), own));
    }
}

#[tokio::test]
async fn commands_that_have_run_for_long_enough_have_their_restarts_anew() {
    let mut set = restarts("forgets", 1, 1);
    set.restarts.forget = Duration::from_millis(50);
    let mut session = set.session();
    for _ in 0..3 {
        formed(&mut session).await;
        // Nothing happens in it but that the restarts are forgotten.
        while session.world.forgets.is_some() {
            let _ = timeout(Duration::from_millis(60), session.next()).await;
        }
        assert_eq!(session.faults, 0);
        fails(&mut session, 1);
    }
    formed(&mut session).await;
}

#[tokio::test]
async fn a_node_that_has_lost_its_seat_brings_back_no_restarts_that_the_others_have_forgotten() {
    let set = Rendezvous { stop_timeout: Duration::from_millis(300), ..restarts("brings back", 2, 9) };
    let [mut first, mut second] = two(set.clone()).await;
    let mut spare = set.session();
    meet([&mut first, &mut second, &mut spare]).await;
    fails(&mut second, 17);
    first.stopped();
    while first.generation() == 0 || second.generation() == 0 {
        any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
    }
    // The command of the second node stops too late, and the spare gets its seat.
    fails(&mut first, 17);
    while first.generation() == 1 || spare.running().is_none() {
        any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
    }
    first.row.forget();
    spare.row.forget();
    second.stopped();
    while !has_spare(&first) {
        any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
    }
    drop(spare);
    while first.world.over.is_none() {
        any(&mut [&mut first, &mut second]).await.1.unwrap();
    }
    first.stopped();
    settle(&mut [&mut first, &mut second]).await;
    // The death of the spare has cost one of nine.
    assert_eq!([first.row.count, second.row.count], [1; 2]);
}

#[tokio::test]
async fn a_node_that_has_lost_its_seat_and_then_all_others_counts_as_those_with_whom_it_begins_anew() {
    let set = Rendezvous { stop_timeout: Duration::from_millis(300), ..restarts("begins anew", 2, 9) };
    let [mut first, mut second] = two(set.clone()).await;
    let mut spare = set.clone().session();
    meet([&mut first, &mut second, &mut spare]).await;
    // The command of the second node stops too late, and the spare gets its seat.
    fails(&mut first, 17);
    while first.generation() == 0 || spare.running().is_none() {
        any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
    }
    second.stopped();
    while !has_spare(&first) {
        any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
    }
    assert_eq!(second.row.count, 1);
    drop((first, spare));
    let mut third = set.session();
    while second.running().is_none() || third.running().is_none() {
        any(&mut [&mut second, &mut third]).await.1.unwrap();
    }
    assert_eq!((second.generation(), [second.row.count, third.row.count]), (0, [0; 2]));
}

#[tokio::test]
async fn a_pair_of_the_caller_is_not_taken_for_the_count_of_restarts() {
    let mut set = restarts("pair", 1, 2);
    set.attributes.metadata.insert("restarts", "2").unwrap();
    let mut session = set.session();
    formed(&mut session).await;
    fails(&mut session, 1);
    let formed = formed(&mut session).await.formed;
    assert_eq!(formed.roster.unwrap().members()[0].metadata.get("restarts"), Some("2"));
}

#[tokio::test]
async fn a_world_ends_well_when_all_commands_have() {
    let [mut first, mut second] = two(job("finishes", 2)).await;
    first.succeed();
    second.succeed();
    let changes = async |session: &mut Session| {
        let mut changes = Vec::new();
        while let Ok(happening) = session.next().await {
            changes.push(format!("{happening:?}"));
        }
        changes
    };
    let (one, other) = tokio::join!(changes(&mut first), changes(&mut second));
    assert_eq!((one, other), (vec!["Running(Finished)".to_owned()], vec!["Running(Finished)".to_owned()]));
}

#[tokio::test]
async fn a_leader_ends_as_soon_as_its_members_know_that_all_commands_have_succeeded() {
    let finished = async |session: &mut Session| {
        while !matches!(session.next().await.unwrap(), Happening::Running(Change::Finished)) {}
        clock()
    };
    let mut fastest = Duration::MAX;
    for turn in 0..5 {
        let [mut first, mut second] = two(job(&format!("last word {turn}"), 2)).await;
        first.succeed();
        second.succeed();
        let (leader, member) = tokio::join!(finished(&mut first), finished(&mut second));
        fastest = fastest.min(leader.saturating_duration_since(member));
    }
    // To find that a member is dead takes at least as long.
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
}

#[tokio::test]
async fn a_node_at_fault_twice_in_a_row_gives_its_seat_to_a_spare() {
    let [mut first, mut second] = two(restarts("fault", 2, 9)).await;
    let mut spare = restarts("fault", 2, 9).session();
    for turn in 0..2 {
        meet([&mut first, &mut second, &mut spare]).await;
        assert_eq!((first.generation(), second.generation()), (turn, turn));
        second.fail(if turn == 0 { End::Exited(17) } else { End::Killed(9) });
        second.stopped();
        first.stopped();
        while turn == 0 && (first.generation() == 0 || second.generation() == 0) {
            any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
        }
    }
    let mut ends = settle(&mut [&mut first, &mut second, &mut spare]).await;
    let error = ends.remove(1).unwrap();
    assert!(error.to_string().ends_with("twice in a row: this node gives up its seat"), "{error}");
    assert_eq!((first.generation(), spare.generation()), (2, 2));
    assert_eq!(own(&spare).rank, Some(Rank(1)));
}

#[tokio::test]
async fn a_node_at_fault_again_keeps_its_seat_if_another_was_between() {
    let [mut first, mut second] = two(restarts("turns", 2, 9)).await;
    let mut spare = restarts("turns", 2, 9).session();
    for (turn, is_second) in (0..).zip([true, false, true]) {
        meet([&mut first, &mut second, &mut spare]).await;
        let [failing, other] = if is_second { [&mut second, &mut first] } else { [&mut first, &mut second] };
        fails(failing, 17);
        other.stopped();
        while first.generation() == turn || second.generation() == turn {
            any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
        }
    }
    assert_eq!((first.generation(), second.generation()), (3, 3));
}

#[tokio::test]
async fn a_node_at_fault_twice_in_a_row_gives_up_its_seat_where_the_world_may_be_smaller() {
    let mut set = restarts("smaller", 3, 9);
    (set.world, set.last_call) = ("2:3".parse().unwrap(), Duration::from_secs(60));
    let (mut first, mut second, mut third) = (set.clone().session(), set.clone().session(), set.session());
    let _ = tokio::join!(formed(&mut first), formed(&mut second), formed(&mut third));
    for turn in 0..2 {
        assert_eq!([first.generation(), second.generation(), third.generation()], [turn; 3]);
        fails(&mut second, 17);
        first.stopped();
        third.stopped();
        if turn == 0 {
            settle(&mut [&mut first, &mut second, &mut third]).await;
        }
    }
    let mut ends = settle(&mut [&mut first, &mut second, &mut third]).await;
    let error = ends.remove(1).unwrap();
    assert!(error.to_string().ends_with("twice in a row: this node gives up its seat"), "{error}");
    assert_eq!((first.generation(), third.generation(), third.running().unwrap().nodes()), (2, 2, 2));
}

#[tokio::test]
async fn where_a_world_may_be_smaller_a_failure_may_still_turn_out_to_be_the_death_of_a_node() {
    for end in [End::Exited(1), End::Killed(6)] {
        let mut set = restarts("settles", 2, 9);
        (set.world, set.last_call) = ("1:2".parse().unwrap(), Duration::from_secs(60));
        let [mut first, mut second] = two(set).await;
        second.fail(end);
        while first.world.over.is_none() {
            any(&mut [&mut first, &mut second]).await.1.unwrap();
        }
        let over = clock();
        assert!(!first.world.is_notified, "{end:?}");
        while !first.world.is_notified {
            any(&mut [&mut first, &mut second]).await.1.unwrap();
        }
        assert!(over.elapsed() > Duration::from_millis(1500), "{end:?}: {:?}", over.elapsed());
    }
}

#[tokio::test]
async fn in_the_pause_before_a_restart_nodes_answer_a_newcomer() {
    let mut set = restarts("pause", 2, 9);
    set.restarts.delay = Duration::from_secs(60);
    let [mut first, mut second] = two(set.clone()).await;
    for turn in 0..2 {
        fails(&mut second, 17);
        first.stopped();
        if turn == 0 {
            settle(&mut [&mut first, &mut second]).await;
        }
    }
    // Nothing is reported of that.
    while first.world.resumes.is_none() || second.world.resumes.is_none() {
        let _ = timeout(Duration::from_millis(20), any(&mut [&mut first, &mut second])).await;
    }
    let mut spare = set.session();
    loop {
        let (at, happening) = any(&mut [&mut first, &mut second, &mut spare]).await;
        let happening = happening.unwrap();
        if at == 2 && matches!(happening, Happening::Meeting(Event::Warning(Warning::AlreadyRunning { .. })))
        {
            break;
        }
    }
    assert!(first.world.resumes.is_some() && second.world.resumes.is_some());
}

#[tokio::test]
async fn in_the_pause_before_a_restart_a_first_cause_is_told_that_is_found_late() {
    let mut set = restarts("late cause", 3, 9);
    set.restarts.delay = Duration::from_secs(60);
    let [mut first, mut second, mut third] = [set.clone(), set.clone(), set].map(Rendezvous::session);
    for turn in 0..2 {
        settle(&mut [&mut first, &mut second, &mut third]).await;
        fails(&mut second, 17);
        while [&first, &third].iter().any(|session| session.world.over.is_none()) {
            any(&mut [&mut first, &mut second, &mut third]).await.1.unwrap();
        }
        first.stopped();
        if turn == 0 {
            third.stopped();
        }
    }
    // It turns out that the third node was gone before.
    let gone = own(&third).rank;
    drop(third);
    let mut told = [false; 2];
    while told != [true; 2] {
        let (at, happening) = any(&mut [&mut first, &mut second]).await;
        if let Happening::Running(Change::Cause(over)) = happening.unwrap() {
            assert_eq!((over.rank, over.end), (gone, End::Gone));
            told[at] = true;
        }
    }
    assert!(first.world.resumes.is_some() && second.world.resumes.is_some());
}

#[tokio::test]
async fn a_leader_that_hears_of_another_world_of_its_job_says_so_once_and_its_command_runs_on() {
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let from = other.local_addr().unwrap();
    let mut set = restarts("beside", 2, 9);
    set.network.seeds = vec![from.to_string().parse().unwrap()];
    let mut codec = Codec::new(set.job.tag(), None);
    let [mut first, mut second] = two(set).await;
    let leader = own(&first).peer.unwrap().address;
    // Both have asked their seed.
    let mut buffer = [0; 1500];
    while let Ok((length, asks)) = other.recv_from(&mut buffer) {
        let (Header { sender, .. }, _) = codec.decode(&buffer[..length]).unwrap();
        for generation in (0..3).filter(|_| asks == leader) {
            let (addresses, host, user) =
                ([from].into_iter().collect(), HostName::new("other"), User::default());
            let running =
                Message::Running(Running { leader: NodeId([7; 16]), generation, addresses, host, user });
            let header = Header { sender: NodeId([7; 16]), recipient: sender };
            other.send_to(&codec.encode(header, &running), asks).unwrap();
        }
    }
    let (mut said, patience) = (Vec::new(), Duration::from_secs(1));
    while let Ok(happening) = timeout(patience, any(&mut [&mut first, &mut second])).await {
        said.push((happening.0, happening.1.unwrap()));
    }
    let [(0, warned @ Happening::Meeting(Event::Warning(warning)))] = &said[..] else { panic!("{said:?}") };
    assert_eq!(*warning, Warning::AnotherWorld { from });
    assert!(first.sentence(warned).unwrap().contains("this job has another world, says 127.0.0.1:"));
}

#[tokio::test]
async fn restarts_are_not_forgotten_while_the_command_of_a_world_that_is_over_stops() {
    let mut set = restarts("stops", 2, 9);
    set.restarts.forget = Duration::from_secs(1);
    let [mut first, mut second] = two(set).await;
    fails(&mut second, 3);
    first.stopped();
    settle(&mut [&mut first, &mut second]).await;
    second.fail(End::Exited(3));
    while first.world.over.is_none() {
        any(&mut [&mut first, &mut second]).await.1.unwrap();
    }
    // The commands of both stop for longer than that.
    while first.world.forgets.is_some() || second.world.forgets.is_some() {
        let _ = timeout(Duration::from_millis(60), any(&mut [&mut first, &mut second])).await;
    }
    for session in [&first, &second] {
        let outlook = session.outlook();
        assert!(matches!(outlook, Outlook::Restart { number: Some((2, 9)), .. }), "{outlook}");
    }
}

#[test]
fn what_a_node_knows_of_the_others_is_a_sentence() {
    let session = restarts("sentences", 2, 9).session();
    let said = |change| session.sentence(&Happening::Running(change)).unwrap();
    let peer = Peer { host: HostName::new("node-c"), address: "10.0.0.3:29503".parse().unwrap() };
    assert_eq!(
        said(Change::Suspected(Rank(2), peer.clone())),
        "warning: rank 2, node-c (10.0.0.3:29503), does not answer"
    );
    assert_eq!(said(Change::Back(Rank(2), peer)), "warning: rank 2, node-c (10.0.0.3:29503), answers again");
    let cut = "warning: most other nodes do not answer; this node may be cut off, and goes on";
    assert_eq!(said(Change::CutOff), cut);
    assert!(session.sentence(&Happening::Running(Change::Waiting(1))).is_none());
}

#[tokio::test]
async fn a_node_that_the_world_needs_keeps_its_seat_however_often_it_is_at_fault() {
    let mut set = restarts("needed", 3, 9);
    (set.world, set.last_call) = ("2:3".parse().unwrap(), Duration::from_millis(50));
    let [mut first, mut second] = two(set).await;
    for _ in 0..3 {
        fails(&mut second, 17);
        first.stopped();
        assert!(settle(&mut [&mut first, &mut second]).await.iter().all(Option::is_none));
    }
    assert_eq!((first.running().unwrap().nodes(), first.generation()), (2, 3));
}

#[tokio::test]
async fn a_node_that_may_stay_silent_for_ever_has_no_limit_in_the_sentence_about_it() {
    for (gone_after, limit) in
        [(FOREVER, ""), (Duration::from_secs(9), "; if that lasts for 9.0 s, it is gone")]
    {
        let set = Rendezvous { gone_after, ..job("silent", 3) };
        let mut all = [set.clone(), set.clone(), set].map(Rendezvous::session);
        settle(&mut all.iter_mut().collect::<Vec<_>>()).await;
        let peer = Peer { host: HostName::new("node-c"), address: "10.0.0.3:29503".parse().unwrap() };
        let said = all[0].sentence(&Happening::Running(Change::Suspected(Rank(2), peer)));
        let wanted = format!("warning: rank 2, node-c (10.0.0.3:29503), does not answer{limit}");
        assert_eq!(said, Some(wanted));
    }
}

#[tokio::test]
async fn a_command_that_a_signal_has_killed_has_failed_by_that_signal() {
    for (status, end) in [(9, End::Killed(9)), (3 << 8, End::Exited(3))] {
        let mut session = restarts("killed", 1, 0).session();
        formed(&mut session).await;
        session.ended(ExitStatus::from_raw(status));
        let error = settle(&mut [&mut session]).await.remove(0);
        let Some(Error::Ended(ended)) = error else { panic!("{error:?}") };
        assert_eq!(ended.over.end, end);
    }
}

#[tokio::test]
async fn a_node_whose_time_is_up_names_the_members_that_are_back_and_not_those_that_are_missing() {
    // A node that ends earlier has left, and the other one would not name it.
    let set = |seconds| {
        Rendezvous { timeout: Some(Duration::from_secs(seconds)), ..restarts("names", 3, 9) }.session()
    };
    let (mut first, mut second, mut third) = (set(5), set(60), set(60));
    settle(&mut [&mut first, &mut second, &mut third]).await;
    let [there, gone] = [&second, &third].map(|session| own(session).rank.unwrap().get());
    drop(third);
    while first.world.over.is_none() || second.world.over.is_none() {
        any(&mut [&mut first, &mut second]).await.1.unwrap();
    }
    first.stopped();
    second.stopped();
    let error = loop {
        if let (_, Err(error)) = any(&mut [&mut first, &mut second]).await {
            break error;
        }
    };
    let Error::Failed(Failure::Deadline(report)) = error else { panic!("{error}") };
    let named: Vec<Option<u32>> = report.heard.iter().map(|heard| heard.rank).collect();
    assert_eq!((report.joined, named), (2, vec![Some(there)]));
    assert_eq!(report.missing, [RankRange { first: gone, last: gone }]);
}

#[tokio::test]
async fn a_node_that_waits_no_longer_for_a_seat_is_told_of_as_well() {
    let [mut first, mut second] = two(job("waits no longer", 2)).await;
    let mut waits = job("waits no longer", 2).session();
    meet([&mut first, &mut second, &mut waits]).await;
    drop(waits);
    let mut told = [false; 2];
    while told != [true; 2] {
        let (at, happening) = any(&mut [&mut first, &mut second]).await;
        told[at] |= matches!(happening.unwrap(), Happening::Running(Change::Waiting(0)));
    }
}

#[tokio::test]
async fn a_node_that_waits_for_a_seat_ends_with_a_job_that_is_given_up() {
    let [mut first, mut second] = two(job("given up", 2)).await;
    let mut waits = job("given up", 2).session();
    meet([&mut first, &mut second, &mut waits]).await;
    let error = async {
        loop {
            if let Err(error) = waits.next().await {
                return error;
            }
        }
    };
    let both = async { tokio::join!(error, first.give_up(End::Exited(3))) };
    let (error, ()) = timeout(Duration::from_secs(30), both).await.unwrap();
    assert!(matches!(error, Error::Failed(Failure::JobFinished)), "{error}");
}

#[tokio::test]
async fn a_node_that_waits_for_a_seat_ends_with_a_job_that_has_no_restart_left() {
    let set = restarts("no restart", 2, 0);
    let set = Rendezvous { stays: true, ..set };
    let [mut first, mut second] = two(set.clone()).await;
    let mut waits = set.session();
    meet([&mut first, &mut second, &mut waits]).await;
    fails(&mut second, 3);
    first.stopped();
    let ends = settle(&mut [&mut first, &mut second, &mut waits]).await;
    let [Some(Error::Ended(_)), Some(Error::Ended(_)), Some(Error::Failed(Failure::JobFinished))] = &ends[..]
    else {
        panic!("{ends:?}")
    };
}

#[tokio::test]
async fn where_nothing_counts_restarts_a_failure_is_settled_at_once() {
    let mut set = job("settled", 2);
    (set.world, set.last_call) = ("1:2".parse().unwrap(), Duration::from_secs(60));
    let [mut first, mut second] = two(set).await;
    second.fail(End::Exited(1));
    while first.world.over.is_none() {
        any(&mut [&mut first, &mut second]).await.1.unwrap();
    }
    let over = clock();
    while !first.world.is_notified {
        any(&mut [&mut first, &mut second]).await.1.unwrap();
    }
    assert!(over.elapsed() < Duration::from_secs(1), "{:?}", over.elapsed());
}

/// Drives all for so long, and until the last waits for a seat.
async fn wait(sessions: &mut [&mut Session], time: Duration) {
    let begun = clock();
    while begun.elapsed() < time || !has_spare(sessions[0]) {
        if let Ok((_, happening)) = timeout(Duration::from_millis(100), any(sessions)).await {
            happening.unwrap();
        }
    }
}

#[tokio::test]
async fn a_node_that_has_waited_for_a_seat_and_is_left_alone_looks_for_others_as_long_as_at_its_start() {
    let [mut first, mut second] = two(restarts("left alone", 2, 9)).await;
    let time = Duration::from_secs(2);
    let mut waits = Rendezvous { timeout: Some(time), ..restarts("left alone", 2, 9) }.session();
    wait(&mut [&mut first, &mut second, &mut waits], time).await;
    drop((first, second));
    let left = clock();
    let error = loop {
        if let Err(error) = waits.next().await {
            break error;
        }
    };
    assert!(matches!(error, Error::Failed(Failure::Deadline(_))), "{error}");
    assert!(left.elapsed() >= time, "{:?}", left.elapsed());
    // Nobody is silent: it begins to look at once, and not after a wait for the leader.
    assert!(left.elapsed() < time + Duration::from_secs(7), "{:?}", left.elapsed());
}

#[tokio::test]
async fn a_node_that_has_waited_for_long_follows_the_heir_of_a_leader_that_dies_and_looks_for_nobody_else() {
    let [mut first, mut second] = two(restarts("heir", 2, 9)).await;
    let mut waits = restarts("heir", 2, 9).session();
    // Longer than a node that waits does without any leader.
    wait(&mut [&mut first, &mut second, &mut waits], Duration::from_millis(10_500)).await;
    drop(first);
    second.stopped();
    let mut looks = false;
    while waits.running().is_none() {
        let (at, happening) = any(&mut [&mut second, &mut waits]).await;
        looks |= at == 1 && matches!(happening.unwrap(), Happening::Meeting(Event::Leading));
    }
    assert!(!looks);
}

#[tokio::test]
async fn a_node_that_leaves_takes_its_farewell() {
    let [mut first, mut second] = two(restarts("leaves", 2, 0)).await;
    let heard = async {
        loop {
            if let Happening::Running(Change::Over(over)) = first.next().await.unwrap() {
                return over;
            }
        }
    };
    let (over, ()) = tokio::join!(heard, second.leave(End::Left));
    assert_eq!((over.rank, over.end), (Some(Rank(1)), End::Left));
}

#[tokio::test]
async fn a_command_that_fails_while_another_node_drains_costs_no_restart_in_a_world_of_a_fixed_size() {
    let [mut first, mut second] = two(restarts("drains", 2, 1)).await;
    first.drain();
    fails(&mut second, 3);
    while first.world.over.is_none() || second.world.over.is_none() {
        any(&mut [&mut first, &mut second]).await.1.unwrap();
    }
    for session in [&first, &second] {
        let over = session.world.over.as_ref().unwrap();
        assert_eq!((over.rank, over.end), (Some(Rank(0)), End::Left));
        let outlook = session.outlook();
        assert!(matches!(outlook, Outlook::Restart { number: None, .. }), "{outlook}");
    }
}

#[tokio::test]
async fn a_node_that_has_succeeded_and_then_fails_ends_the_world_with_its_code() {
    let [mut first, mut second] = two(restarts("regrets", 2, 0)).await;
    second.succeed();
    while timeout(Duration::from_millis(60), any(&mut [&mut first, &mut second])).await.is_ok() {}
    let heard = async {
        loop {
            if let Happening::Running(Change::Over(over)) = first.next().await.unwrap() {
                return over;
            }
        }
    };
    let (over, ()) = tokio::join!(heard, second.leave(End::Exited(3)));
    assert_eq!((over.rank, over.end), (Some(Rank(1)), End::Exited(3)));
}

#[tokio::test]
async fn a_node_leaves_within_6_seconds_although_its_leader_reads_nothing() {
    let [mut first, mut second] = two(restarts("unheard", 2, 0)).await;
    second.succeed();
    while timeout(Duration::from_millis(60), any(&mut [&mut first, &mut second])).await.is_ok() {}
    // From here on nothing drives the leader, as if its process were stopped.
    let begun = clock();
    second.leave(End::Exited(3)).await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_given_port_that_is_still_held_at_a_restart_ends_the_node() {
    let free = free_port();
    let mut job = job("given port", 1);
    job.network.master_port = Some(free);
    let mut session = job.session();
    formed(&mut session).await;
    let _held = TcpListener::bind(("127.0.0.1", free)).unwrap();
    fails(&mut session, 1);
    let error = settle(&mut [&mut session]).await.remove(0);
    assert!(matches!(error, Some(Error::PortTaken { .. })), "{error:?}");
}

#[tokio::test]
async fn a_node_whose_command_still_holds_its_given_port_answers_the_others() {
    let free = free_port();
    let mut given = job("holds", 2);
    given.network.master_port = Some(free);
    let (mut first, mut second) = (given.session(), job("holds", 2).session());
    let _ = tokio::join!(formed(&mut first), formed(&mut second));
    let _held = TcpListener::bind(("127.0.0.1", free)).unwrap();
    fails(&mut first, 1);
    let leaves = async {
        let begun = clock();
        while !second.world.is_notified {
            second.next().await.unwrap();
        }
        second.leave(End::Left).await;
        begun.elapsed()
    };
    tokio::select! {
        _ = formed(&mut first) => panic!("the port is held"),
        taken = leaves => assert!(taken < Duration::from_secs(4), "{taken:?}"),
    }
}

#[tokio::test]
async fn a_node_joins_again_after_an_unknown_outcome_as_often_as_it_may_restart() {
    let leader = Peer { host: HostName::new("other"), address: "10.0.0.1:29500".parse().unwrap() };
    let unknown = || Err(Error::Failed(Failure::OutcomeUnknown { leader: leader.clone() }));
    for most in [0, 2] {
        let mut session = restarts("doubts", 2, most).session();
        for _ in 0..most {
            session.joined(unknown());
            assert!(matches!(session.happenings.try_recv(), Ok(Happening::Unclear(_))));
            assert!(matches!(session.state, State::Meets(_)));
        }
        session.joined(unknown());
        let error = session.next().await.unwrap_err();
        assert!(matches!(error, Error::Failed(Failure::OutcomeUnknown { .. })), "{error}");
    }
}

#[tokio::test]
async fn while_a_world_runs_its_nodes_keep_their_files_in_the_shared_folder() {
    let folder = Folder::new("world-kept");
    let mut job = restarts("kept", 2, 1);
    job.network.seed_dir = Some(folder.0.clone());
    let mut both = two(job).await;
    // The first files that come back may be those that nodes write as their world begins.
    let mut removed = clock();
    while removed.elapsed() < Duration::from_secs(1) {
        removed = clock();
        folder.files().iter().for_each(|file| fs::remove_file(file).unwrap());
        quiet_until(&mut both, || folder.files().len() == 2).await;
    }
    drop(both);
    assert_eq!(folder.files(), [""; 0].map(PathBuf::from));
}

#[tokio::test]
async fn a_node_that_waits_for_another_after_a_restart_keeps_its_file_in_the_shared_folder() {
    let folder = Folder::new("world-again");
    let mut job = restarts("again", 2, 1);
    job.network.seed_dir = Some(folder.0.clone());
    let [mut first, second] = two(job).await;
    drop(second);
    while first.world.over.is_none() {
        any(&mut [&mut first]).await.1.unwrap();
    }
    first.stopped();
    while !matches!(first.state, State::Meets(_)) {
        any(&mut [&mut first]).await.1.unwrap();
    }
    let mut removed = clock();
    while removed.elapsed() < Duration::from_secs(1) {
        removed = clock();
        folder.files().iter().for_each(|file| fs::remove_file(file).unwrap());
        while folder.files().is_empty() {
            assert!(removed.elapsed() < Duration::from_secs(30), "it takes too long");
            let _ = timeout(Duration::from_millis(20), first.next()).await;
        }
    }
}

#[tokio::test]
async fn a_warning_reaches_the_caller_while_the_world_runs() {
    let folder = Folder::new("world-warns");
    let mut job = restarts("warns", 2, 1);
    job.network.seed_dir = Some(folder.0.clone());
    let [mut first, mut second] = two(job).await;
    while let Err(error) = fs::remove_dir_all(&folder.0) {
        // A node has written its file meanwhile.
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
    }
    let (at, happening) = any(&mut [&mut first, &mut second]).await;
    let happening = happening.unwrap();
    let is_meant = matches!(happening, Happening::Meeting(Event::Warning(Warning::SeedDirUnwritable { .. })));
    assert!(is_meant, "{happening:?}");
    let sentence = [first, second][at].sentence(&happening).unwrap();
    assert!(sentence.starts_with("warning: ") && sentence.contains("mingle-seeds-world-warns"), "{sentence}");
}

#[tokio::test]
async fn a_stranger_that_begins_a_frame_longer_than_any_of_a_member_loses_its_connection_at_once() {
    let folder = Folder::new("world-frames");
    let mut job = job("frames", 2);
    job.network.seed_dir = Some(folder.0.clone());
    let tag = job.job.tag();
    let mut session = job.session();
    while folder.files().is_empty() {
        let _ = timeout(Duration::from_millis(20), session.next()).await;
    }
    let file = folder.files().remove(0);
    let (_, id) = file.to_str().unwrap().rsplit_once('-').unwrap();
    let id = NodeId(u128::from_str_radix(id, 16).unwrap().to_be_bytes());
    let text = fs::read_to_string(&file).unwrap();
    let endpoint: SocketAddr = text.lines().nth(1).unwrap().parse().unwrap();
    // Opens a connection, and writes the beginning of a frame with a body of so many bytes.
    let begin = move |stranger: u8, body: usize| {
        let hellos = Hellos::new(tag, None);
        let header = Header { sender: NodeId([stranger; 16]), recipient: id };
        let asked = hellos.encode(Hello { header, session: 1, nonce: [stranger; 16] });
        let mut stream = TcpStream::connect(endpoint).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(&asked).unwrap();
        let mut answer = [0; HELLO];
        stream.read_exact(&mut answer).unwrap();
        let mut writer = hellos.ends(&asked, &answer, true).0;
        stream.write_all(&writer.encode(&Frame::acknowledgement(0))).unwrap();
        let frame = writer.encode(&Frame { number: 1, read: 0, body: vec![0; body].into() });
        stream.write_all(&frame[..64]).unwrap();
        stream
    };
    let strangers = std::thread::spawn(move || {
        let (allowed, mut too_long) = (begin(1, longest(false)), begin(2, longest(false) + 1));
        let ended = too_long.read(&mut [0; 4096]).map_err(|error| error.kind());
        allowed.set_nonblocking(true).unwrap();
        let open = loop {
            match (&allowed).read(&mut [0; 4096]) {
                // The node may have said something.
                Ok(1..) => {}
                other => break other.map_err(|error| error.kind()),
            }
        };
        (ended, open)
    });
    while !strangers.is_finished() {
        let _ = timeout(Duration::from_millis(20), session.next()).await;
    }
    let (ended, open) = strangers.join().unwrap();
    assert!(matches!(ended, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{ended:?}");
    assert_eq!(open, Err(io::ErrorKind::WouldBlock));
}

#[test]
fn a_program_without_a_runtime_joins_as_well_and_waits_for_no_name_server() {
    let name = "a_program_without_a_runtime_joins_as_well_and_waits_for_no_name_server";
    // Whatever its address, the name server is silent: beyond this link, or the socket below.
    let setup = "ip link add silent type veth peer name drops; ip link set drops up; ip link set silent up
        ip addr add 192.0.2.1/24 dev silent; ip route add default via 192.0.2.2
        ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:01 dev silent nud permanent";
    if !inside(module_path!(), name, setup) {
        return;
    }
    let _silent = UdpSocket::bind(("0.0.0.0", 53)).unwrap();
    let job = job("blocking", 2);
    let mut asks = job.clone();
    asks.network.seeds = vec!["name.example".parse().unwrap()];
    let begun = clock();
    let other = std::thread::spawn(|| job.join_blocking().unwrap());
    let both = [asks.join_blocking().unwrap(), other.join().unwrap()];
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(both.iter().map(|node| node.formed.rank.get()).sum::<u32>(), 1);
    assert!(both[0].variables().set().contains(&("WORLD_SIZE", "2".to_owned())));
}
