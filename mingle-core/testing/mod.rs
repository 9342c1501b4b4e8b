//! For this project's tests and fuzz targets, behind the feature `testing` and without any promise: every
//! message and frame that a node or a stranger could write, drawn from any bytes, and the phase of a node.
//!
//! These files are no part of `src`. `wire`, `proto::node` and `proto::running` declare them as modules of
//! their own, because they put together what is private there.
//!
//! A new kind of message, or a new field, does not compile before it is drawn here: `messages!` calls
//! `Draw::draw` for each body, and no body is put together with a struct update.

mod join;
mod running;
mod traits;

use std::net::{IpAddr, SocketAddr};

use mingle_rdma::{RankSummary, Summary, Verdict};

use super::forming::{
    Answer, BROKEN, Broken, BrokenTo, Commit, Join, Part, Partner, Prepare, REFUSED, Refusal, Said, Trouble,
    UNREADY, Welcome,
};
use super::message::{Announce, Candidate, Count, Introduction, Message, NEWEST, RUNS, Running, Solicit};
use super::{Codec, Dropped, Header, read};
use crate::model::{
    BrokenPath, Digest, Endpoints, Fault, HostName, JobTag, Keys, Link, Metadata, Misfit, NodeId, Paths,
    Peer, Rank, Roster, Unfit, User, World, WorldSize,
};

/// The kinds of message: the number on the wire and the name.
pub const KINDS: &[(u8, &str)] =
    &[(1, "Announce"), (2, "Solicit"), (3, "Hint"), (4, "Running"), (5, "Query")];

/// The kinds of frames of a world that has not formed: the number on the wire and the name.
pub const SAID: &[(u8, &str)] =
    &[(0, "Join"), (1, "Part"), (2, "Welcome"), (3, "Roster"), (4, "Prepare"), (5, "Commit"), (6, "Refuse")];

/// What a frame says, as far as it binds anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// An acknowledgement alone, or something else.
    Other,
    /// The node asks for a seat.
    Join,
    /// The node is ready in the round of this number.
    Ready(u64),
    /// The leader has voided the rounds up to this number.
    Void(u64),
    /// The leader begins the round of this number.
    Prepare(u64),
    /// The world of the round of this number has formed.
    Commit(u64),
}

/// What a frame says.
pub fn seen(frame: &super::Frame) -> Seen {
    match Said::decode(&frame.body) {
        Some(Said::Join(_)) => Seen::Join,
        Some(Said::Part(Part { round, answer: Answer::Ready })) => Seen::Ready(round),
        Some(Said::Welcome(Welcome { void, .. })) => Seen::Void(void),
        Some(Said::Prepare(Prepare { round, .. })) => Seen::Prepare(round),
        Some(Said::Commit(Commit { round, .. })) => Seen::Commit(round),
        _ => Seen::Other,
    }
}

/// A frame as the log shows it.
pub fn describe(frame: &super::Frame) -> String {
    let said = Said::decode(&frame.body);
    let said = said.map_or_else(|| "nothing".to_owned(), |said| format!("{said:?}"));
    format!("{} (read {}): {said}", frame.number, frame.read)
}

/// The name of this kind of message.
pub fn name(kind: u8) -> &'static str {
    KINDS.iter().find(|(number, _)| *number == kind).map_or("?", |(_, name)| name)
}

/// The number of the kind of message that has this name.
///
/// # Panics
/// If no kind has it.
pub fn kind(name: &str) -> u8 {
    let found = KINDS.iter().find(|(_, other)| *other == name);
    found.unwrap_or_else(|| panic!("{name} is no kind of message")).0
}

/// The first digits of a digest of these bytes, which differ where the bytes do.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}

/// The phase of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It neither leads nor follows.
    Looking,
    /// It has heard that its world has formed without it.
    StandsAside,
    /// It leads, and has no member.
    Alone,
    /// It leads members, and seats are free.
    Collecting,
    /// It leads a round.
    Proving,
    /// It leads a world that has formed, and members do not know it yet.
    Committed,
    /// It leads, no world can form, and the members learn why.
    Refusing,
    /// It follows a candidate that has not named a connection yet.
    Joining,
    /// The same, while its own members wait.
    Yielding,
    /// It has joined.
    Joined,
    /// It is in a round of its leader, and not ready.
    Preparing,
    /// It is ready.
    Ready,
    /// The same, and its deadline has passed.
    Overdue,
    /// It has ended.
    Ended,
}

/// The values that the author of a message knows, and so the likely ones of its fields. Bytes of zero draw
/// the first of each.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The IDs of the nodes in play.
    pub nodes: Vec<NodeId>,
    /// Their endpoints.
    pub endpoints: Vec<SocketAddr>,
    /// The size of the world.
    pub world: u32,
    /// Ranks.
    pub ranks: Vec<u32>,
    /// Rounds of leaders.
    pub rounds: Vec<u64>,
    /// The address of the recipient, which Prepare names.
    pub recipient: IpAddr,
    /// Rosters, of which Prepare names the digest.
    pub rosters: Vec<Roster>,
}

/// Sender and recipient of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The sender.
    pub sender: NodeId,
    /// One node, [`Frame::ALL`] or [`Frame::ANYONE`].
    pub recipient: NodeId,
}

impl Frame {
    /// The recipient of a datagram to all nodes.
    pub const ALL: NodeId = NodeId::ALL;
    /// The recipient of a datagram to the node at an address, where its ID is not known.
    pub const ANYONE: NodeId = NodeId::ANYONE;
}

/// Writes and reads the datagrams of one job.
#[derive(Debug, Clone)]
pub struct Forger {
    tag: JobTag,
    keys: Option<Keys>,
    codec: Codec,
}

impl Forger {
    /// For the job with this tag; with its keys, or as one who has no secret.
    pub fn new(tag: JobTag, keys: Option<&Keys>) -> Self {
        Self { tag, keys: keys.cloned(), codec: Codec::new(tag, keys) }
    }

    /// A message of this kind whose fields are drawn from `fields`; nothing where there is no such kind.
    pub fn datagram(&mut self, kind: u8, frame: Frame, scene: &Scene, fields: &[u8]) -> Option<Vec<u8>> {
        let message = draw_message(kind, &mut Source { bytes: fields, scene })?;
        let Frame { sender, recipient } = frame;
        Some(self.codec.encode(Header { sender, recipient }, &message))
    }

    /// The frame of this number, which acknowledges all up to `read`, of this kind, whose fields are drawn
    /// from `fields`; nothing where there is no such kind.
    pub fn frame(kind: u8, number: u64, read: u64, scene: &Scene, fields: &[u8]) -> Option<super::Frame> {
        let body = draw_said(kind, &mut Source { bytes: fields, scene })?.encode();
        Some(super::Frame { number, read, body })
    }

    /// The kind and the frame of a datagram, which a node with these keys has not read before.
    ///
    /// # Errors
    /// Why a node drops it.
    pub fn read(&self, datagram: &[u8]) -> Result<(u8, Frame), String> {
        let read = Codec::new(self.tag, self.keys.as_ref()).decode(datagram);
        let (Header { sender, recipient }, message) =
            read.map_err(|dropped: Dropped| format!("{dropped:?}"))?;
        Ok((message.encode().0, Frame { sender, recipient }))
    }
}

/// A string of bytes from which fields are drawn. At its end all bytes are zero.
pub(super) struct Source<'a> {
    bytes: &'a [u8],
    scene: &'a Scene,
}

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn short(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// At most `most`.
    fn up_to(&mut self, most: usize) -> usize {
        usize::from(self.byte()) % (most + 1)
    }

    fn flag(&mut self) -> bool {
        self.byte().is_multiple_of(2)
    }

    /// One of the likely values, or now and then nothing, for any value.
    fn likely<T: Clone>(&mut self, known: &[T], others: &[T]) -> Option<T> {
        let byte = self.byte();
        let at = usize::from(byte) % (known.len() + others.len()).max(1);
        known.iter().chain(others).nth(at).filter(|_| byte < 0xf0).cloned()
    }

    fn id(&mut self) -> NodeId {
        // The encoder writes any ID, but nobody reads one of the two that stand for several nodes.
        let nodes = &self.scene.nodes;
        self.likely(nodes, &[]).unwrap_or_else(|| NodeId([self.byte().clamp(1, 0xfe); 16]))
    }

    fn endpoint(&mut self) -> SocketAddr {
        // An address that is no host's, or port 0, would make the datagram malformed.
        const OTHERS: [([u8; 4], u16); 3] =
            [([127, 0, 0, 1], 22), ([8, 8, 8, 8], 53), ([169, 254, 255, 255], u16::MAX)];
        let endpoints = &self.scene.endpoints;
        self.likely(endpoints, &OTHERS.map(SocketAddr::from)).unwrap_or_else(|| {
            let mut ip: [u8; 16] = std::array::from_fn(|_| self.byte());
            ip[0] = 0xfd;
            SocketAddr::new(IpAddr::from(ip), 29500)
        })
    }

    fn endpoints(&mut self) -> Endpoints {
        let first = self.endpoint();
        let more = (0..self.up_to(Endpoints::ADVERTISED - 1)).map(|_| self.endpoint());
        Endpoints::new(std::iter::once(first).chain(more).collect()).unwrap_or_else(|| first.into())
    }

    fn rank(&mut self) -> u32 {
        let world = self.scene.world;
        let ranks = &self.scene.ranks;
        let edges = [0, 1, world.saturating_sub(1), world, u32::MAX];
        self.likely(ranks, &edges).unwrap_or_else(|| self.short())
    }

    fn world(&mut self) -> u32 {
        let world = self.scene.world;
        self.likely(&[world; 8], &[0, 1, world.saturating_add(1), u32::MAX]).unwrap_or_else(|| self.short())
    }

    /// A size is one that can be asked for: any other makes a datagram malformed.
    fn size(&mut self) -> WorldSize {
        let one = self.world().clamp(1, World::MAX);
        let other = if self.byte().is_multiple_of(8) { self.world().clamp(1, World::MAX) } else { one };
        let size = WorldSize::try_from((one.min(other), one.max(other)));
        size.unwrap_or_else(|_| unreachable!("two sizes in order"))
    }

    fn count(&mut self) -> u32 {
        let world = self.scene.world;
        self.likely(&[u32::MAX, world, 1, 0], &[world.saturating_sub(1)]).unwrap_or_else(|| self.short())
    }

    fn slots(&mut self) -> u64 {
        let world = u64::from(self.scene.world);
        self.likely(&[world, 0], &[1, u64::from(u32::MAX), u64::MAX]).unwrap_or_else(|| self.number())
    }

    fn round(&mut self) -> u64 {
        let rounds = &self.scene.rounds;
        let next = rounds.first().map_or(1, |round| round.saturating_add(1));
        self.likely(rounds, &[0, next, u64::MAX]).unwrap_or_else(|| self.number())
    }

    fn roster(&mut self) -> Option<Roster> {
        let rosters = &self.scene.rosters;
        self.likely(rosters, &[])
    }

    fn host(&mut self) -> HostName {
        const NAMES: [&str; 4] = ["stranger", "host-1", "$(reboot)", "\u{1b}[2J\u{202e}"];
        let long = || "n".repeat(HostName::MAX);
        HostName::new(&self.likely(&NAMES.map(str::to_owned), &[]).unwrap_or_else(long))
    }

    /// Of bytes that are 0 an unknown one.
    fn user(&mut self) -> User {
        let name = (!self.flag()).then(|| self.host());
        User::new(name.as_ref().map(HostName::as_str), (!self.flag()).then(|| self.short()))
    }

    fn broken_path(&mut self) -> BrokenPath {
        BrokenPath {
            from: self.peer(),
            to: self.peer(),
            fault: self.fault(),
            answers: self.flag().then(|| self.endpoint().port()),
            to_master: self.flag(),
            mtus: (self.count(), self.count()),
        }
    }

    fn trouble(&mut self) -> Trouble {
        if self.flag() { Trouble::Broken(self.broken_path()) } else { Trouble::Misfit(self.misfit()) }
    }

    fn misfit(&mut self) -> Misfit {
        let reason = match self.byte() % 4 {
            0 => Unfit::World(self.size()),
            1 => Unfit::User(self.user()),
            2 => Unfit::Apart(self.peer()),
            _ => Unfit::Rank(Rank(self.rank())),
        };
        Misfit { host: self.host(), address: self.endpoint(), reason }
    }

    fn given(&mut self) -> Option<u32> {
        (!self.flag()).then(|| self.rank())
    }

    fn recipient(&mut self) -> IpAddr {
        let recipient = self.scene.recipient;
        self.likely(&[recipient; 3], &[[8, 8, 8, 8].into()]).unwrap_or_else(|| self.endpoint().ip())
    }

    fn paths(&mut self) -> Paths {
        let all = [Paths::Auto, Paths::Master, Paths::Ring, Paths::All];
        self.likely(&all, &[]).unwrap_or_default()
    }

    fn link(&mut self) -> Link {
        Link { address: self.endpoint().ip(), prefix: self.byte(), mtu: self.count() }
    }

    fn partner(&mut self) -> Partner {
        let (path, own_port) = (self.endpoint(), self.endpoint().port());
        Partner { id: self.id(), rank: self.rank(), path, own_port }
    }

    fn fault(&mut self) -> Fault {
        match self.byte() % 7 {
            0 => Fault::Silent,
            4 => Fault::Unreachable,
            5 => Fault::Local,
            1 => Fault::Refused,
            2 => Fault::NoRoute,
            3 => Fault::Unanswered,
            _ => Fault::Size { passes: self.count(), fails: self.count() },
        }
    }

    fn peer(&mut self) -> Peer {
        Peer { host: self.host(), address: self.endpoint() }
    }

    fn metadata(&mut self) -> Metadata {
        let mut metadata = Metadata::default();
        for key in 0..self.up_to(Metadata::PAIRS + 1) {
            // One pair too many, or too long, is left out.
            let _ = metadata.insert(&format!("k{key}"), &"v".repeat(self.up_to(40)));
        }
        metadata
    }

    fn summary(&mut self) -> Summary {
        let mut bytes = vec![self.byte() % 7];
        for _ in 0..3 {
            let is_there = !self.flag();
            bytes.push(u8::from(is_there));
            if is_there {
                bytes.extend((0..4).map(|_| self.byte() % 9));
                bytes.push(self.byte() % 251);
            }
        }
        let has_networks = !self.flag();
        bytes.push(u8::from(has_networks));
        if has_networks {
            // A few networks, so that hosts have some in common.
            bytes.extend((0..32).flat_map(|_| [self.byte() & 0x80, self.byte() % 9]));
        }
        bytes.extend([self.flag(), !self.flag()].map(u8::from));
        read(&bytes, super::config()).unwrap_or_default()
    }

    fn verdict(&mut self) -> Verdict {
        let rank = |from: &mut Self| RankSummary { address: from.endpoint().ip(), summary: from.summary() };
        let ranks: Vec<_> = (0..self.up_to(9)).map(|_| rank(self)).collect();
        Verdict::of(&ranks)
    }
}

/// A value of a message, drawn from bytes.
pub(super) trait Draw {
    fn draw(from: &mut Source<'_>) -> Self;
}

impl Draw for Candidate {
    fn draw(from: &mut Source<'_>) -> Self {
        Self {
            id: from.id(),
            explicit: from.flag(),
            members: from.count(),
            world: from.size(),
            host: from.host(),
            endpoints: from.endpoints(),
        }
    }
}

impl Draw for Announce {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { candidate: Candidate::draw(from), count: Count::draw(from), user: from.user() }
    }
}

impl Draw for Count {
    fn draw(from: &mut Source<'_>) -> Self {
        Self {
            joined: from.count(),
            newest: (0..from.up_to(NEWEST)).map(|_| from.host()).collect(),
            missing: (0..from.up_to(RUNS)).map(|_| (from.rank(), from.rank())).collect(),
        }
    }
}

impl Draw for Solicit {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { rank: from.given(), host: from.host() }
    }
}

impl Draw for Introduction {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { candidate: Candidate::draw(from), source: from.endpoint() }
    }
}

/// What a frame of this kind says.
fn draw_message(kind: u8, from: &mut Source<'_>) -> Option<Message> {
    let message = match kind {
        1 => Message::Announce(Announce::draw(from)),
        2 => Message::Solicit(Solicit::draw(from)),
        3 => Message::Hint(Introduction::draw(from)),
        4 => Message::Running(Running::draw(from)),
        5 => Message::Query,
        _ => return None,
    };
    Some(message)
}

fn draw_said(kind: u8, from: &mut Source<'_>) -> Option<Said> {
    let said = match kind {
        0 => Said::Join(Box::new(Join::draw(from))),
        1 => Said::Part(Part::draw(from)),
        2 => Said::Welcome(Welcome::draw(from)),
        3 => Said::Roster(from.round(), from.roster().unwrap_or_default()),
        4 => Said::Prepare(Prepare::draw(from)),
        5 => Said::Commit(Commit::draw(from)),
        6 => Said::Refuse(Refusal::draw(from)),
        _ => return None,
    };
    Some(said)
}

impl Draw for Part {
    fn draw(from: &mut Source<'_>) -> Self {
        let answer = if from.flag() { Answer::Ready } else { Answer::Broken(Broken::draw(from)) };
        Self { round: from.round(), answer }
    }
}

impl Draw for Welcome {
    fn draw(from: &mut Source<'_>) -> Self {
        Self { count: Count::draw(from), trouble: (!from.flag()).then(|| from.trouble()), void: from.round() }
    }
}

impl Draw for Refusal {
    fn draw(from: &mut Source<'_>) -> Self {
        match from.byte() % REFUSALS {
            0 => Self::RankTaken(from.peer()),
            1 => Self::WorldDiffers(from.size()),
            2 => Self::WorldFull,
            3 => Self::Closing,
            4 => Self::NoCommonFamily(from.peer(), from.peer()),
            5 => Self::NoRdma(from.verdict(), from.flag()),
            6 => Self::Unready((0..from.up_to(UNREADY)).map(|_| from.peer()).collect()),
            8 => Self::Differs(from.sameness()),
            9 => Self::UserDiffers(from.user(), from.count()),
            10 => Self::Redirect(Introduction::draw(from)),
            _ => Self::PathsBroken(
                (0..from.up_to(REFUSED)).map(|_| from.broken_path()).collect(),
                from.count(),
            ),
        }
    }
}

/// How many reasons of a refusal there are.
const REFUSALS: u8 = 11;

impl Draw for Prepare {
    fn draw(from: &mut Source<'_>) -> Self {
        let (round, rank) = (from.round(), from.rank());
        let world = from.world();
        let roster = from.roster();
        Self {
            round,
            world,
            rank,
            digest: roster.map_or_else(|| Digest([from.byte(); 16]), |roster| roster.digest()),
            slots_before: from.likely(&[u64::from(rank)], &[]).unwrap_or_else(|| from.slots()),
            slots_total: from.slots(),
            master: from.id(),
            master_at: from.endpoint(),
            address: from.recipient(),
            partners: (0..from.up_to(16)).map(|_| from.partner()).collect(),
        }
    }
}

impl Draw for Broken {
    fn draw(from: &mut Source<'_>) -> Self {
        let path = |from: &mut Source<'_>| BrokenTo {
            partner: from.id(),
            path: from.endpoint(),
            fault: from.fault(),
            own_port_answers: from.flag(),
        };
        let paths = (0..from.up_to(BROKEN)).map(|_| path(from)).collect();
        Self { paths, more: from.count() }
    }
}

impl Draw for Commit {
    fn draw(from: &mut Source<'_>) -> Self {
        let (verdict, sameness) = (from.verdict(), from.sameness());
        Self { round: from.round(), sameness, verdict, left_over: from.count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene {
            nodes: vec![NodeId([1; 16])],
            endpoints: vec![([10, 0, 0, 1], 29500).into()],
            world: 3,
            ranks: vec![1],
            rounds: vec![1],
            rosters: Vec::new(),
            recipient: [10, 0, 0, 2].into(),
        }
    }

    /// The place of a reason among those that are drawn. A new one does not compile before it is drawn.
    fn place(refusal: &Refusal) -> u8 {
        match refusal {
            Refusal::RankTaken(_) => 0,
            Refusal::WorldDiffers(_) => 1,
            Refusal::WorldFull => 2,
            Refusal::Closing => 3,
            Refusal::NoCommonFamily(..) => 4,
            Refusal::NoRdma(..) => 5,
            Refusal::Unready(_) => 6,
            Refusal::PathsBroken(..) => 7,
            Refusal::Differs(_) => 8,
            Refusal::UserDiffers(..) => 9,
            Refusal::Redirect(_) => 10,
        }
    }

    #[test]
    fn every_reason_of_a_refusal_is_drawn() {
        for number in 0..REFUSALS {
            let bytes = [number];
            let drawn = Refusal::draw(&mut Source { bytes: &bytes, scene: &scene() });
            assert_eq!(place(&drawn), number);
        }
    }

    #[test]
    fn a_message_of_any_bytes_passes_the_decoder_and_most_bytes_say_something_else() {
        let tag = "drawn".parse::<crate::model::JobId>().unwrap().tag();
        for (kind, name) in KINDS {
            let mut datagrams = std::collections::BTreeSet::new();
            for seed in 0..=255u8 {
                let byte = |at: u8| seed.wrapping_mul(at | 1).rotate_left(at.into());
                let fields: Vec<u8> = (0..80).map(byte).collect();
                let message = draw_message(*kind, &mut Source { bytes: &fields, scene: &scene() }).unwrap();
                let recipients = [NodeId([2; 16]), NodeId::ALL];
                let recipient = recipients.into_iter().find(|recipient| message.may_be_to(*recipient));
                let sender = NodeId([1; 16]);
                let frame = Frame { sender, recipient: recipient.unwrap() };
                let mut forger = Forger::new(tag, None);
                let datagram = forger.datagram(*kind, frame, &scene(), &fields).unwrap();
                assert_eq!(forger.read(&datagram), Ok((*kind, frame)), "{message:?}");
                datagrams.insert(datagram);
            }
            let empty = ["Running", "Query"];
            assert!(empty.contains(name) || datagrams.len() > 5, "{} of {name}", datagrams.len());
        }
    }

    #[test]
    fn a_frame_of_any_bytes_passes_the_decoder_and_has_its_name() {
        for (kind, name) in SAID {
            for seed in 0..=255u8 {
                let fields: Vec<u8> = (0..80u8).map(|at| seed.wrapping_mul(at | 1)).collect();
                let frame = Forger::frame(*kind, 1, 0, &scene(), &fields).unwrap();
                let said = Said::decode(&frame.body).unwrap();
                assert!(format!("{said:?}").starts_with(name), "{said:?}");
            }
        }
    }
}
