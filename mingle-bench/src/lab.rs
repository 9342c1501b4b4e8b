//! Networks in namespaces. Each host is a thread of this process in its own network namespace. The processes
//! that it starts run there from their first instruction, so no helper such as nsenter is measured with them.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

/// Hosts on one bridge, with addresses from 10.77.0.10 on.
#[derive(Debug)]
pub struct Lab {
    switch: Host,
    hosts: Vec<Host>,
}

/// A thread in its own network namespace that runs tasks, one after the other.
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
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let id = gettid();
            sender.send(format!("/proc/{}/task/{id}/ns/net", std::process::id())).expect("the creator waits");
            for task in queue {
                task();
            }
        });
        let path = receiver.recv().expect("a running host");
        Self { tasks: Some(tasks), path, thread: Some(thread) }
    }

    /// Starts `task` on this host, and returns the receiver of its result.
    fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = channel();
        let task = Box::new(move || {
            let _ = sender.send(task());
        });
        self.tasks.as_ref().expect("a running host").send(task).expect("a running host");
        receiver
    }

    fn shell(&self, script: String) {
        self.run(move || shell(&script)).recv().expect("a running host");
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
    /// This many hosts on a bridge without loss.
    ///
    /// # Panics
    /// If the kernel does not allow it.
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
                 ip link set eth0 address {} addrgenmode none up\n\
                 ip addr add {}/24 brd + dev eth0\n\
                 ip route add default via 10.77.0.1",
                hardware_address(number),
                address(number)
            ));
        }
        lab.introduce();
        lab
    }

    /// Gives each host of a large network the hardware addresses of all others. The kernel has one table of
    /// 1,024 neighbours for all namespaces (`net.ipv4.neigh.default.gc_thresh3`), in which those of 64 hosts
    /// have no room; permanent ones do not count.
    fn introduce(&self) {
        if self.len() <= 16 {
            return;
        }
        let entry = |other| {
            let (ip, mac) = (address(other), hardware_address(other));
            format!("neigh replace {ip} lladdr {mac} nud permanent dev eth0\n")
        };
        let all: String = (0..self.len()).map(entry).collect();
        for host in &self.hosts {
            host.shell(format!("ip -batch - <<'END'\n{all}END"));
        }
    }

    /// The number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Runs a task on a host while other hosts run theirs, and returns the receiver of its result.
    pub fn on<T: Send + 'static>(
        &self,
        host: usize,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<T> {
        self.hosts[host].run(task)
    }

    /// Makes the bridge lose this percentage of packets, independently for each receiver. It never loses ARP.
    pub fn lose(&self, percent: u32) {
        self.switch.shell(format!(
            "nft -f - <<'END'\n\
             add table bridge lab\ndelete table bridge lab\n\
             table bridge lab {{\nchain forward {{\ntype filter hook forward priority 0;\n\
             ether type ip numgen random mod 100 < {percent} drop\n}}\n}}\nEND"
        ));
    }
}

/// The address of a host. Addresses rise with the number of the host.
///
/// # Panics
/// If there are more hosts than addresses.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 10)) + u32::try_from(host).expect("few hosts"))
}

fn hardware_address(host: usize) -> String {
    format!("02:00:00:00:00:{host:02x}")
}

fn shell(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).stdin(Stdio::null()).output().expect("a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}
