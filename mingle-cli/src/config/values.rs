//! Parses each value, or says what is wrong with it.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use mingle_core::env::{Format, InvalidFormat, Template};
use mingle_core::error::InvalidId;
use mingle_core::tools::host_name;
use mingle_core::{JobId, Network, Paths, Rank, World, WorldSize, env};

use crate::exit::Stop;
use crate::fabric::Use;
use crate::host::beginning;
use crate::scheduler;

/// The longest `--timeout`, one year. A sleep of this length also stands for "for ever", since clocks cannot
/// count much further.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The default time of `--max-restarts`: longer than a job takes to load its data and fail again.
pub(crate) const FORGET_RESTARTS: Duration = Duration::from_secs(3600);

pub(crate) fn job_argument(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|e: InvalidId| format!("{e}; give all nodes the same name, such as --job-id foo"))
}

pub(crate) fn job_variable(text: &str) -> Result<JobId, String> {
    env::job_from_env(text).map_err(|e| e.to_string())
}

pub(crate) fn world_size(text: &str) -> Result<WorldSize, String> {
    text.parse().map_err(|e: InvalidId| {
        format!("{e}; give the number of nodes, such as --world 4, or the fewest and the most, such as --world 3:4")
    })
}

/// A given rank, which needs a world of a fixed size.
pub(crate) fn rank(text: &str, world: WorldSize) -> Result<Rank, String> {
    if world.is_range() {
        return Err(format!(
            "a world of {world} may have fewer nodes than ranks that are given; give one size, such as --world {}, \
             or leave --rank away",
            world.max()
        ));
    }
    let world = world.max();
    if text == "hostname" {
        return rank_of_host(host_name().as_str(), world);
    }
    let number = text.parse().map_err(|_| InvalidId::Number(text.to_owned()));
    number.and_then(|number| world.rank(number)).map_err(|e| {
        format!("{e}; give each node a rank of its own, or leave --rank away to have one assigned")
    })
}

pub(crate) fn rank_of_host(host: &str, world: World) -> Result<Rank, String> {
    world.rank(scheduler::ordinal(host)?).map_err(|error| {
        format!("{error}, and this host is called {host:?}; a StatefulSet counts its pods from 0, so check --world")
    })
}

/// A number in this range, or what is wrong.
fn within<T: FromStr + PartialOrd>(
    range: RangeInclusive<T>,
    text: &str,
    wrong: &'static str,
) -> Result<T, &'static str> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or(wrong)
}

pub(crate) fn slots_number(text: &str) -> Result<u32, &'static str> {
    within(1..=65535, text, "a node runs 1 to 65535 workers, usually one for each GPU, such as 8")
}

/// A number of workers; none for as many as there are slots.
pub(crate) fn workers(text: &str) -> Result<Option<u32>, &'static str> {
    match text {
        "auto" => Ok(None),
        _ => slots_number(text).map(Some).map_err(|_| "give 1 to 65535, usually one for each GPU, or 'auto'"),
    }
}

/// The most ports that a node holds for its job.
pub(crate) const MOST_PORTS: usize = 64;

pub(crate) fn port_count(text: &str) -> Result<usize, &'static str> {
    within(0..=MOST_PORTS, text, "a node holds up to 64 ports for its job, such as 2")
}

pub(crate) fn port(text: &str) -> Result<u16, &'static str> {
    within(1..=u16::MAX, text, "a port is a number from 1 to 65535, such as 29400")
}

/// Refuses a range of sizes of which two worlds could form at once. If somebody `stays` to answer latecomers,
/// that takes a network that splits, which a user can allow.
pub(crate) fn check_split(world: WorldSize, stays: bool) -> Result<(), Stop> {
    if !world.splits() {
        return Ok(());
    }
    let (reason, or) = if stays {
        ("each half of a network that splits would go on as a world of its own", ", or --allow-split")
    } else {
        ("nobody stays to tell latecomers that the job runs, and they would form a second world", "")
    };
    Err(Stop::Usage(format!(
        "--world {world} (or MINGLE_WORLD): {reason}; give more than half of {max} as the fewest nodes, such as \
         --world {least}:{max}{or}",
        max = world.max(),
        least = world.max().get() / 2 + 1,
    )))
}

/// Without multicast there must be another way to find the others, and no broadcast either.
pub(crate) fn check_without_multicast(network: &Network, world: WorldSize) -> Result<(), Stop> {
    let has_seeds = !network.seeds.is_empty() || network.seed_dir.is_some();
    let problem = if network.multicast {
        return Ok(());
    } else if network.broadcast {
        "--broadcast (or MINGLE_BROADCAST) sends to all as well; leave one of them out"
    } else if !has_seeds && world.max().get() > 1 {
        "there is no other way to find the nodes; give --seed or --seed-dir"
    } else {
        return Ok(());
    };
    Err(Stop::Usage(format!("--multicast off (or MINGLE_MULTICAST): {problem}")))
}

pub(crate) fn paths(text: &str) -> Result<Paths, &'static str> {
    match text {
        "auto" => Ok(Paths::Auto),
        "all" => Ok(Paths::All),
        "ring" => Ok(Paths::Ring),
        "master" => Ok(Paths::Master),
        _ => Err("the paths are 'auto', 'all', 'ring' or 'master'"),
    }
}

pub(crate) fn rdma(text: &str) -> Result<Use, &'static str> {
    match text {
        "auto" => Ok(Use::Auto),
        "require" => Ok(Use::Require),
        "off" => Ok(Use::Off),
        _ => Err("give 'auto', 'require' or 'off'"),
    }
}

pub(crate) fn group(text: &str) -> Result<Ipv4Addr, &'static str> {
    match text.parse::<Ipv4Addr>() {
        Ok(group) if group.is_multicast() => Ok(group),
        _ => Err("a group is an IPv4 multicast address, 224.0.0.0 to 239.255.255.255, such as 239.192.0.1"),
    }
}

pub(crate) fn ttl(text: &str) -> Result<u8, &'static str> {
    within(1..=u8::MAX, text, "a TTL is a number from 1 (this link only) to 255")
}

/// The option's value begins with this where a file of the user's is the format.
pub(crate) const TEMPLATE: &str = "template=";
/// The largest template, in bytes.
const LONGEST_TEMPLATE: u64 = 64 << 10;

/// A format, and the text of `template=FILE`.
pub(crate) fn format(text: &str) -> Result<(Format, Option<Template>), String> {
    if let Some(file) = text.strip_prefix(TEMPLATE) {
        return Ok((Format::TEMPLATE, Some(template(file)?)));
    }
    let format = text.parse().map_err(|error: InvalidFormat| error.to_string())?;
    if format == Format::TEMPLATE {
        return Err("give the file as well, such as template=peers.tmpl".to_owned());
    }
    Ok((format, None))
}

fn template(file: &str) -> Result<Template, String> {
    let text = beginning(file, LONGEST_TEMPLATE + 1).map_err(|error| format!("{file}: {error}"))?;
    if text.len() as u64 > LONGEST_TEMPLATE {
        return Err(format!("{file} has more than 64 KiB, which is too much for a template"));
    }
    Template::strict(&text).map_err(|error| format!("{file}:{error}"))
}

/// Refuses a placeholder, in this place, for a port that the node does not hold.
pub(crate) fn check_ports(template: &Template, held: usize, place: &str) -> Result<(), Stop> {
    let unheld = |number: &usize| template.has(&format!("port{number}"));
    match (held + 1..=MOST_PORTS).rfind(unheld) {
        Some(number) => Err(Stop::Usage(format!(
            "{{port{number}}} in {place}: this node holds {held} ports for the job; give --ports {number}"
        ))),
        None => Ok(()),
    }
}

pub(crate) fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("give 1 for yes or 0 for no"),
    }
}

/// `3`, or `3/30m`: a number of restarts, and the time after which they do not count.
pub(crate) fn restarts(text: &str) -> Result<(u32, Duration), &'static str> {
    let (number, time) = text.split_once('/').map_or((text, None), |(number, time)| (number, Some(time)));
    let number = number.parse().map_err(|_| "give the number of restarts, such as 3, or 3/30m")?;
    let time = time.map_or(Ok(Some(FORGET_RESTARTS)), timeout);
    let time = time.map_err(|_| "give a time such as 30m behind the /, or 0 to count all restarts")?;
    Ok((number, time.unwrap_or(LONGEST)))
}

pub(crate) fn verbose(text: &str) -> Result<u8, &'static str> {
    text.parse().map_err(|_| "give 0, 1 for debug or 2 for trace")
}

/// `500ms`, `2s`, `1.5m`, `1h`, or seconds: one number with one unit, as `sleep` takes it. None means for
/// ever.
pub(crate) fn timeout(text: &str) -> Result<Option<Duration>, &'static str> {
    const WRONG: &str = "give a time such as 500ms, 1.5s, 10m or 1h, or 0 for none";
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(WRONG),
    };
    let seconds = number.parse::<f64>().map_err(|_| WRONG)? * unit;
    match Duration::try_from_secs_f64(seconds) {
        Ok(_) if seconds == 0.0 => Ok(None),
        Ok(limit) if limit < Duration::from_millis(1) => Err("shorter than a millisecond; give 0 for none"),
        Ok(limit) if limit <= LONGEST => Ok(Some(limit)),
        _ => Err("longer than a year; give 0 for none"),
    }
}
