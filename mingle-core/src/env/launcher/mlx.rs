//! MLX's ring: a process reads its rank in MLX_RANK and the addresses of all in the file that MLX_HOSTFILE
//! names.
//!
//! The file is a JSON list with a list of `IP:PORT` for each rank, at which that rank accepts the connection
//! of its neighbour (mlx/distributed/ring/ring.cpp, `load_nodes` and `accept_connections`). MLX ends the
//! address at the first colon and opens sockets of IPv4 alone, so there are no IPv6 addresses. The ports are
//! those that the nodes held during the rendezvous.

use super::{Input, Launcher, Syntax, Unfit, endpoint};

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "mlx",
    about: "the hostfile of MLX's ring, and MLX_RANK",
    syntax: Syntax::Text(|input, _| Ok(ring(input)? + "\n")),
    needs_roster: true,
    own_ports: true,
    owns: &[("MLX_RANK", |input| Ok(input.facts.formed.rank.to_string()))],
    ..Launcher::PLAIN
};

fn ring(input: Input<'_>) -> Result<String, Unfit> {
    let members = input.roster()?.members();
    if let Some(bad) = members.iter().find(|member| member.address.is_ipv6()) {
        return Err(Unfit::Ipv6(bad.rank, bad.address.ip(), input.format));
    }
    // An endpoint has no character that JSON would escape.
    let ranks = members.iter().map(|member| format!("[\"{}\"]", endpoint(member.address)));
    Ok(format!("[{}]", ranks.collect::<Vec<_>>().join(",")))
}
