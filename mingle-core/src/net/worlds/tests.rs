//! Sessions of this process on the loopback interface.

use std::future::poll_fn;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Poll;

use super::*;
use crate::model::World as Size;

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

fn fails(session: &mut Session, code: u8) {
    session.fail(End::Exited(code));
    session.stopped();
}

#[tokio::test]
async fn the_settings_of_a_session_hold_for_its_life() {
    let mut set = restarts("settings", 1, 2);
    (set.gone_after, set.grows, set.rank) = (Duration::from_secs(9), true, Some(Rank(0)));
    set.attributes.metadata.insert("rack", "7").unwrap();
    let mut session = set.session();
    for generation in 0..3 {
        let assignment = formed(&mut session).await;
        assert_eq!(session.generation(), generation);
        let own = &assignment.formed.roster.as_ref().unwrap().members()[0].metadata;
        assert_eq!(own.get("rack"), Some("7"));
        assert_eq!(own.get("restarts").map(str::to_owned), (generation > 0).then(|| generation.to_string()));
        let State::Runs(running) = &session.state else { panic!("it runs") };
        assert_eq!(running.limits(), (Duration::from_secs(9), Some(Duration::ZERO), Some(0)));
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
        let State::Runs(running) = &session.state else { panic!("it runs") };
        assert_eq!(running.restarts_left, Some(1), "as observers are told");
        fails(&mut session, 1);
    }
    formed(&mut session).await;
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
async fn a_node_at_fault_twice_in_a_row_gives_its_seat_to_a_spare() {
    let [mut first, mut second] = two(restarts("fault", 2, 9)).await;
    let mut spare = restarts("fault", 2, 9).session();
    for turn in 0..2 {
        // A spare that the leader has told of is a spare for both.
        while first.world.waiting == 0 || second.world.waiting == 0 {
            any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
        }
        assert_eq!((first.generation(), second.generation()), (turn, turn));
        fails(&mut second, 17);
        first.stopped();
        while turn == 0 && (first.generation() == 0 || second.generation() == 0) {
            any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
        }
    }
    let mut ends = settle(&mut [&mut first, &mut second, &mut spare]).await;
    let error = ends.remove(1).unwrap();
    assert!(error.to_string().ends_with("twice in a row: this node gives up its seat"), "{error}");
    assert_eq!((first.generation(), spare.generation()), (2, 2));
    assert_eq!(spare.world.own.unwrap().0, Rank(1));
}

#[tokio::test]
async fn a_node_at_fault_again_keeps_its_seat_if_another_was_between() {
    let [mut first, mut second] = two(restarts("turns", 2, 9)).await;
    let mut spare = restarts("turns", 2, 9).session();
    for (turn, is_second) in (0..).zip([true, false, true]) {
        while first.world.waiting == 0 || second.world.waiting == 0 {
            any(&mut [&mut first, &mut second, &mut spare]).await.1.unwrap();
        }
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
async fn a_node_that_the_world_needs_keeps_its_seat_however_often_it_is_at_fault() {
    let mut set = restarts("needed", 3, 9);
    (set.world, set.last_call) = ("2:3".parse().unwrap(), Duration::from_millis(50));
    let [mut first, mut second] = two(set).await;
    for _ in 0..3 {
        fails(&mut second, 17);
        first.stopped();
        assert!(settle(&mut [&mut first, &mut second]).await.iter().all(Option::is_none));
    }
    assert_eq!((first.world.nodes, first.generation()), (2, 3));
}

/// Drives all for so long, and until the last waits for a seat.
async fn wait(sessions: &mut [&mut Session], time: Duration) {
    let begun = clock();
    while begun.elapsed() < time || sessions[0].world.waiting == 0 {
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
    while waits.world.own.is_none() {
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
async fn a_growth_is_followed_by_a_pause_before_the_next_one() {
    let mut session = Rendezvous { grows: true, ..job("grows", 1) }.session();
    formed(&mut session).await;
    session.world.over = Some(Over { rank: None, peer: None, end: End::Grows });
    fails(&mut session, 1);
    formed(&mut session).await;
    let State::Runs(running) = &session.state else { panic!("it runs") };
    assert!(running.limits().1 > Some(Duration::from_secs(250)), "{:?}", running.limits());
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

#[test]
fn a_program_without_a_runtime_joins_as_well() {
    let assignment = job("blocking", 1).join_blocking().unwrap();
    assert!(assignment.variables().set().contains(&("RANK".into(), "0".to_owned())));
}
