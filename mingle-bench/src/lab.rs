//! Networks in namespaces. Each host is a thread of this process that has left the network namespace of the others;
//! what it starts runs there from its first instruction, so that no helper such as nsenter is measured along with it.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

/// Hosts on one bridge, with the addresses 10.77.0.10 and so on.
#[derive(Debug)]
pub struct Lab {
    switch: Host,
    hosts: Vec<Host>,
}

/// A thread in a network namespace of its own, which does what it is asked to, one thing after the other.
#[derive(Debug)]
struct Host {
    tasks: Option<Sender<Task>>,
    path: String,
    thread: Option<JoinHandle<()>>,
}

type Task = Box<dyn FnOnce() + Send>;

impl Host {
    fn new() -> Self {
        let (tasks, queue): (Sender<Task>, Receiver<Task>) = channel();
        let (tell, told) = channel();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let id = gettid();
            tell.send(format!("/proc/{}/task/{id}/ns/net", std::process::id())).expect("the maker waits");
            for task in queue {
                task();
            }
        });
        let path = told.recv().expect("a host that has started");
        Self { tasks: Some(tasks), path, thread: Some(thread) }
    }

    /// Starts `task` on this host, and gives the way to its result.
    fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (tell, told) = channel();
        let task = Box::new(move || {
            let _ = tell.send(task());
        });
        self.tasks.as_ref().expect("a host that lives").send(task).expect("a host that lives");
        told
    }

    fn shell(&self, script: String) {
        self.run(move || shell(&script)).recv().expect("a host that lives");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Lab {
    /// So many hosts on a bridge that loses nothing.
    ///
    /// # Panics
    /// Where the kernel does not allow it.
    pub fn new(hosts: usize) -> Self {
        let switch = Host::new();
        switch.shell(
            "ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             ip link set br0 up"
                .to_owned(),
        );
        let lab = Self { switch, hosts: (0..hosts).map(|_| Host::new()).collect() };
        for (number, host) in lab.hosts.iter().enumerate() {
            lab.switch.shell(format!(
                "ip link add p{number} type veth peer name eth0 netns {}\n\
                 ip link set p{number} addrgenmode none master br0 up",
                host.path
            ));
            host.shell(format!(
                "ip link set lo up\n\
                 ip link set eth0 addrgenmode none up\n\
                 ip addr add {}/24 brd + dev eth0\n\
                 ip route add default via 10.77.0.1",
                address(number)
            ));
        }
        lab
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Does something on a host, beside what others do, and gives the way to its result.
    pub fn on<T: Send + 'static>(
        &self,
        host: usize,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<T> {
        self.hosts[host].run(task)
    }

    /// From now on the bridge loses so many of 100 packets, for each receiver by itself. ARP always passes.
    pub fn lose(&self, percent: u32) {
        self.switch.shell(format!(
            "nft -f - <<'END'\n\
             add table bridge lab\ndelete table bridge lab\n\
             table bridge lab {{\nchain forward {{\ntype filter hook forward priority 0;\n\
             ether type ip numgen random mod 100 < {percent} drop\n}}\n}}\nEND"
        ));
    }
}

/// The address of a host; a higher one has a higher one.
///
/// # Panics
/// Where there are more hosts than addresses.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 10)) + u32::try_from(host).expect("few hosts"))
}

fn shell(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).stdin(Stdio::null()).output().expect("a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}
