//! An attacker that writes with the real encoder: it keeps to the protocol but for one thing.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use mingle_core::proto::testing::{Forger, Frame, Scene, kind, name};
use mingle_core::proto::{Lineage, NodeId, TOKEN};
use mingle_core::{HostName, JobId, Member, Metadata, Roster, World};

use crate::lab::script;

const ME: NodeId = NodeId([0x66; 16]);
/// The victim of a forged address, and the port of everything here.
pub(crate) const VICTIM: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const PORT: u16 = 29777;
const WORLD: u32 = 3;

/// The attacker, and what others have sent to it.
struct Liar {
    how: String,
    forger: Forger,
    scene: Scene,
    group: SocketAddr,
    /// Receives datagrams to the group.
    ear: UdpSocket,
    mouth: UdpSocket,
    gate: TcpListener,
    /// The connections, and the dial of each node that has brought a token.
    leases: Vec<TcpStream>,
    dials: BTreeMap<NodeId, u32>,
    /// How many messages of each kind were addressed to the attacker.
    heard: BTreeMap<u8, u64>,
    bytes: usize,
    sent: u64,
}

/// Runs this attack for ever, and reports every 20 ms how often it has sent and what it has heard.
pub(crate) fn run(how: &str, job: &JobId, interface: Ipv4Addr) {
    // The address that is claimed in `aim` belongs to this node, which has sent nothing from it before.
    let own = if how.starts_with("aim") { VICTIM } else { interface };
    let at = SocketAddr::from((own, PORT));
    let ear = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 29499)).unwrap();
    ear.join_multicast_v4(&job.group_v4(), &interface).unwrap();
    ear.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    let mouth = UdpSocket::bind(at).unwrap();
    mouth.set_nonblocking(true).unwrap();
    let gate = TcpListener::bind(at).unwrap();
    gate.set_nonblocking(true).unwrap();
    let scene = Scene {
        nodes: vec![ME],
        endpoints: vec![at],
        world: WORLD,
        ranks: vec![1],
        rounds: vec![1],
        dials: vec![1],
        rosters: Vec::new(),
        recipient: own.into(),
    };
    let mut liar = Liar {
        how: how.to_owned(),
        forger: Forger::new(job.tag(), None),
        scene,
        group: (job.group_v4(), 29499).into(),
        ear,
        mouth,
        gate,
        leases: Vec::new(),
        dials: BTreeMap::new(),
        heard: BTreeMap::new(),
        bytes: 0,
        sent: 0,
    };
    let mut reported = Instant::now();
    liar.report();
    loop {
        liar.turn();
        if reported.elapsed() > Duration::from_millis(20) {
            reported = Instant::now();
            liar.report();
        }
    }
}

impl Liar {
    fn report(&self) {
        let heard: Vec<String> =
            self.heard.iter().map(|(kind, count)| format!("{}={count}", name(*kind))).collect();
        let (bytes, accepted) = (self.bytes, self.leases.len());
        let line = format!("hits {} bytes={bytes} connections={accepted} {} \n", self.sent, heard.join(" "));
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }

    fn turn(&mut self) {
        match self.how.as_str() {
            "running" | "aim Announce" | "aim Hint" => {}
            _ => self.say("Announce", Frame::ALL, self.group),
        }
        self.accept();
        for (kind, from, sender) in self.listen() {
            match (self.how.as_str(), kind) {
                ("running", _) => self.say("Running", sender, from),
                ("roster", "Want") => {
                    self.scene.rosters = vec![roster(&[0x66, 8, 9])];
                    self.say("Part", sender, from);
                }
                // One forged datagram in all, once a node is there to hear it.
                ("aim Announce", _) if self.sent == 0 => self.say("Announce", Frame::ALL, self.group),
                ("aim Hint", _) if self.sent == 0 => self.say("Hint", Frame::ALL, self.group),
                ("aim Announce" | "aim Hint", _) => {}
                _ => self.lead(sender, from),
            }
        }
    }

    fn say(&mut self, message: &str, recipient: NodeId, to: SocketAddr) {
        let frame = Frame { sender: ME, recipient, lineage: Lineage::default() };
        let datagram = self.forger.datagram(kind(message), frame, &self.scene, &[]).unwrap();
        assert!(self.forger.read(&datagram).is_ok(), "well formed");
        if self.mouth.send_to(&datagram, to).is_ok() {
            self.sent += 1;
        }
    }

    /// Everything that a leader says to a member, with the lie in Prepare.
    fn lead(&mut self, node: NodeId, to: SocketAddr) {
        let Some(&dial) = self.dials.get(&node) else { return };
        self.scene.dials = vec![dial];
        self.scene.recipient = to.ip();
        let honest = self.scene.clone();
        self.say("Welcome", node, to);
        match self.how.as_str() {
            "rank" => self.scene.ranks = vec![2],
            "master" => {
                self.scene.nodes = vec![node];
                self.scene.endpoints = vec![([8, 8, 8, 8], 53).into()];
            }
            "two masters" => self.scene.ranks = vec![0],
            "roster" => self.scene.rosters = vec![roster(&[0x66, 7, 9])],
            "nothing" => {}
            other => panic!("no attack {other}"),
        }
        self.say("Prepare", node, to);
        self.scene = honest;
        self.say("Commit", node, to);
    }

    fn accept(&mut self) {
        while let Ok((mut stream, _)) = self.gate.accept() {
            let mut bytes = [0; TOKEN];
            let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
            if stream.read_exact(&mut bytes).is_ok() {
                let dial = u32::from_le_bytes(bytes[56..60].try_into().unwrap());
                self.dials.insert(NodeId(bytes[24..40].try_into().unwrap()), dial);
            }
            self.leases.push(stream);
        }
    }

    /// The messages that have arrived from others: the kind of each, its source and its sender.
    fn listen(&mut self) -> Vec<(&'static str, SocketAddr, NodeId)> {
        let mut heard = Vec::new();
        let mut buffer = [0; 2048];
        for socket in [&self.ear, &self.mouth] {
            for _ in 0..32 {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { break };
                let Ok((kind, frame)) = self.forger.read(&buffer[..length]) else { continue };
                if frame.sender == ME {
                    continue;
                }
                if frame.recipient == ME {
                    *self.heard.entry(kind).or_default() += 1;
                    self.bytes += length;
                }
                heard.push((name(kind), from, frame.sender));
            }
        }
        heard
    }
}

/// A roster of nodes that are not those of the world.
fn roster(ids: &[u8]) -> Roster {
    let world = World::new(WORLD).unwrap();
    let members = (0..).zip(ids).map(|(rank, &id)| Member {
        rank: world.rank(rank).unwrap(),
        id: NodeId([id; 16]),
        host: HostName::new("stranger"),
        address: (script::address(usize::from(id % 4)), PORT).into(),
        slots: 1,
        metadata: Metadata::default(),
    });
    Roster::new(members.collect()).unwrap()
}
