//! Open MPI: `mpirun --hostfile FILE`.
//!
//! A line is a host and `slots=N`. Open MPI 4.1 reads IPv6 addresses there
//! (orte/util/hostfile/hostfile_lex.l) and then refuses them as names of nodes ("illegal character in the
//! following node name"), so in an IPv6 world the lines have host names, which Open MPI 5 accepts as well. If
//! two lines have the same host and both count slots, mpirun fails ("multiple definitions of the slot
//! count"), so nodes that share an address share a line.
//!
//! By default Open MPI uses every network of a host, whether or not it leads to the other hosts. The
//! variables name the network of the nodes: for the processes of the job (`btl_tcp`), and for the daemons
//! of mpirun, in version 4 (`oob_tcp`) and in version 5 (`prte`). mpirun passes them on to all hosts, where
//! interfaces may have other names, so a network is an IPv4 prefix. Open MPI ends if a variable ending in
//! `if_include` meets its `if_exclude`.
//!
//! `mpirun -x NAME` gives a variable of this host to all hosts (Open MPI's `mpirun(1)`).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use super::{Advice, Input, Launcher, Syntax, node_list};
use crate::model::Member;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "hostfile",
    about: "a hostfile of Open MPI",
    syntax: Syntax::Text(|input, _| node_list::lines_by_address_or_name(input)),
    needs_roster: true,
    exports: true,
    advises: &[
        Advice {
            name: "OMPI_MCA_btl_tcp_if_include",
            rival: Some("OMPI_MCA_btl_tcp_if_exclude"),
            value: network,
        },
        Advice {
            name: "OMPI_MCA_oob_tcp_if_include",
            rival: Some("OMPI_MCA_oob_tcp_if_exclude"),
            value: network,
        },
        Advice { name: "PRTE_MCA_prte_if_include", rival: Some("PRTE_MCA_prte_if_exclude"), value: network },
    ],
    ..Launcher::PLAIN
};

/// The longest prefix: Open MPI 4 takes every address for one of a /32
/// (opal/util/net.c, `opal_net_prefix2netmask`).
const LONGEST: u8 = 31;

/// The smallest IPv4 network that has the addresses of all nodes, such as `10.0.0.0/29`. None if it has the
/// loopback addresses as well, which every host would use then.
fn network(input: Input<'_>) -> Option<String> {
    let address =
        |member: &Member| if let IpAddr::V4(address) = member.address.ip() { Some(address) } else { None };
    let addresses = input.roster().ok()?.members().iter().map(address);
    let addresses: Vec<Ipv4Addr> = addresses.collect::<Option<_>>()?;
    let first = *addresses.first()?;
    let smallest = Ipv4Net::new(first, LONGEST).ok()?.trunc();
    let mut networks = std::iter::successors(Some(smallest), Ipv4Net::supernet);
    let network = networks.find(|network| addresses.iter().all(|address| network.contains(address)))?;
    let is_everywhere = network.contains(&Ipv4Addr::LOCALHOST) && !first.is_loopback();
    (!is_everywhere).then(|| network.to_string())
}
