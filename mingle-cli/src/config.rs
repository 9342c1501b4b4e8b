//! What `mingle` shall do: the second step, in which text from arguments and environment is judged.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mingle_core::env::Setting;
use mingle_core::env::fabric::Extent;
use mingle_core::net::{DISCOVERY_PORT, Filter, Seed};
use mingle_core::{Builder, InvalidId, JobId, Rank, RankBy, Rendezvous, Secret, World, env};

use crate::args::LowArgs;
use crate::exit::Stop;
use crate::fabric::Wanted;
use crate::intent::Format;

/// The longest file that is taken for a secret, in bytes.
const LONGEST_SECRET: u64 = 4096;
/// The longest time that `--timeout` takes, one year: a clock cannot count much further.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Everything that was asked for, and valid.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) job: JobId,
    pub(crate) world: World,
    rank: Option<Rank>,
    secret: Option<Secret>,
    /// What is wrong, but not wrong enough to stop.
    pub(crate) warnings: Vec<String>,
    interfaces: Vec<Filter>,
    master_port: Option<u16>,
    rank_by: Option<RankBy>,
    discovery_port: Option<u16>,
    group: Option<Ipv4Addr>,
    seeds: Vec<Seed>,
    seed_dir: Option<PathBuf>,
    broadcast: bool,
    ipv6: bool,
    ttl: Option<u8>,
    timeout: Option<Timeout>,
    pub(crate) fabric: Wanted,
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    pub(crate) verbose: u8,
}

impl Config {
    /// Judges the arguments, and where one is missing its variable in `environment`.
    pub(crate) fn new(low: LowArgs, environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, Stop> {
        let reader = Reader(environment);
        let fabric = reader.fabric(&low)?;
        let job = reader.given(low.job_id, "job-id")?;
        let world = reader.given(low.world, "world")?;
        let (Some(job), Some(world)) = (&job, &world) else {
            return Err(missing(job.is_none(), world.is_none()));
        };
        let job = job.parse(if job.is_variable { job_variable } else { job_argument })?;
        let world = world.parse(world_size)?;

        let (secret, warnings) = reader.secret(low.secret_file)?;
        let config = Self {
            fabric,
            secret,
            warnings,
            rank: reader.read(low.rank, "rank", |text| rank(text, world))?,
            interfaces: reader.interfaces(low.interface)?,
            master_port: reader.read(low.master_port, "master-port", port)?,
            rank_by: reader.read(low.rank_by, "rank-by", rank_by)?,
            discovery_port: reader.read(low.discovery_port, "discovery-port", port)?,
            group: reader.read(low.group, "group", group)?,
            seeds: reader.seeds(low.seed)?,
            seed_dir: reader.read(low.seed_dir, "seed-dir", |text| Ok::<_, String>(PathBuf::from(text)))?,
            broadcast: reader.flag(low.broadcast, "broadcast")?,
            ipv6: reader.flag(low.ipv6, "ipv6")?,
            ttl: reader.read(low.ttl, "ttl", ttl)?,
            timeout: reader.read(low.timeout, "timeout", timeout)?,
            format: reader.read(low.format, "format", format)?.unwrap_or(Format::Sh),
            quiet: reader.flag(low.quiet, "quiet")?,
            verbose: match low.verbose {
                0 => reader.read(None, "verbose", verbose)?.unwrap_or(0),
                count => count,
            },
            job,
            world,
        };
        let discovery_port = config.discovery_port.unwrap_or(DISCOVERY_PORT);
        if config.master_port == Some(discovery_port) {
            return Err(Stop::Usage(format!(
                "--master-port and --discovery-port are both {discovery_port}; a node needs two ports, so \
                 change one"
            )));
        }
        Ok(config)
    }

    /// The rendezvous as it is described here.
    pub(crate) fn rendezvous(&self) -> Builder {
        let mut builder = Rendezvous::builder(self.job.clone(), self.world)
            .rank(self.rank)
            .secret(self.secret.clone())
            .interfaces(self.interfaces.clone())
            .master_port(self.master_port)
            .group(self.group)
            .seeds(self.seeds.clone())
            .seed_dir(self.seed_dir.clone())
            .broadcast(self.broadcast)
            .prefer_ipv6(self.ipv6)
            .settings(Setting::hash(&self.fabric.settings))
            // Only JSON shows the roster: a shell's variables need no transfer of it.
            .roster(self.format == Format::Json);
        if let Some(order) = self.rank_by {
            builder = builder.rank_by(order);
        }
        if let Some(port) = self.discovery_port {
            builder = builder.discovery_port(port);
        }
        if let Some(ttl) = self.ttl {
            builder = builder.ttl(ttl);
        }
        if let Some(Timeout(limit)) = self.timeout {
            builder = builder.timeout(limit);
        }
        builder
    }
}

/// A flag of a subcommand, or else its variable.
pub(crate) fn flag_or_variable(argument: bool, option: &'static str) -> Result<bool, Stop> {
    Reader(|name: &str| std::env::var_os(name)).flag(argument, option)
}

/// What the doctor looks at: the part of a [`Config`] that says where a node is on the network.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) job: JobId,
    pub(crate) world: World,
    pub(crate) interfaces: Vec<Filter>,
    pub(crate) master_port: Option<u16>,
    pub(crate) group: SocketAddrV4,
    pub(crate) ttl: u8,
    pub(crate) seeds: Vec<Seed>,
    pub(crate) seed_dir: Option<PathBuf>,
    pub(crate) broadcast: bool,
    pub(crate) ipv6: bool,
}

impl Config {
    /// How long to wait, where that was said; none means for ever.
    pub(crate) fn limit(&self, default: Duration) -> Option<Duration> {
        self.timeout.map_or(Some(default), |Timeout(limit)| limit)
    }

    pub(crate) fn network(&self) -> Network {
        let group = self.group.unwrap_or_else(|| self.job.group_v4());
        Network {
            job: self.job.clone(),
            world: self.world,
            interfaces: self.interfaces.clone(),
            master_port: self.master_port,
            group: SocketAddrV4::new(group, self.discovery_port.unwrap_or(DISCOVERY_PORT)),
            ttl: self.ttl.unwrap_or(1),
            seeds: self.seeds.clone(),
            seed_dir: self.seed_dir.clone(),
            broadcast: self.broadcast,
            ipv6: self.ipv6,
        }
    }
}

/// Where values come from: an argument, or else its variable.
struct Reader<F>(F);

impl<F: Fn(&str) -> Option<OsString>> Reader<F> {
    /// The value, if there is one. An empty variable counts as not set: that is how a template or a
    /// `docker run -e NAME=` leaves one out.
    fn given(&self, argument: Option<String>, option: &'static str) -> Result<Option<Given>, Stop> {
        if let Some(text) = argument {
            return Ok(Some(Given { option, text, is_variable: false }));
        }
        let Some(value) = (self.0)(&variable(option)).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.into_string() {
            Ok(text) => Ok(Some(Given { option, text, is_variable: true })),
            Err(raw) => Err(Stop::Usage(format!("{}={}: not UTF-8", variable(option), raw.display()))),
        }
    }

    /// The value as `parse` reads it, if there is one.
    fn read<T, E: fmt::Display>(
        &self,
        argument: Option<String>,
        option: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Stop> {
        self.given(argument, option)?.map(|given| given.parse(parse)).transpose()
    }

    fn flag(&self, argument: bool, option: &'static str) -> Result<bool, Stop> {
        Ok(argument || self.read(None, option, flag)?.unwrap_or(false))
    }

    fn fabric(&self, low: &LowArgs) -> Result<Wanted, Stop> {
        let mut extent = Extent::default();
        extent.gid_index = !self.flag(low.no_gid_pin, "no-gid-pin")?;
        extent.tune_sockets = self.flag(low.tune_sockets, "tune-sockets")?;
        let wanted = Wanted {
            no_rdma: self.flag(low.no_rdma, "no-rdma")?,
            required: self.flag(low.require_rdma, "require-rdma")?,
            extent,
            settings: settings(&low.set)?,
            root: (self.0)("MINGLE_SYSFS_ROOT").filter(|value| !value.is_empty()).map(PathBuf::from),
        };
        if wanted.no_rdma && wanted.required {
            return Err(Stop::Usage(
                "--require-rdma and --no-rdma (or MINGLE_REQUIRE_RDMA and MINGLE_NO_RDMA) exclude each other; \
                 give one"
                    .to_owned(),
            ));
        }
        Ok(wanted)
    }

    /// The secret of `--secret-file`, or else of MINGLE_SECRET, and what is to be said about it.
    fn secret(&self, argument: Option<String>) -> Result<(Option<Secret>, Vec<String>), Stop> {
        if let Some(file) = self.given(argument, "secret-file")? {
            return file
                .parse(|path| secret_of(Path::new(path)).map(|(secret, warning)| (Some(secret), warning)));
        }
        // Not through `given`: an error there would show the value.
        let Some(value) = (self.0)("MINGLE_SECRET").filter(|value| !value.is_empty()) else {
            return Ok((None, Vec::new()));
        };
        let secret = Secret::new(value.as_encoded_bytes());
        let secret = secret.map_err(|error| Stop::Usage(format!("MINGLE_SECRET: {error}")))?;
        Ok((Some(secret), Vec::new()))
    }

    /// All `--seed` arguments, or else what MINGLE_SEED lists.
    fn seeds(&self, arguments: Vec<String>) -> Result<Vec<Seed>, Stop> {
        let all = self.all(arguments, "seed")?;
        let lists = all.iter().map(|given| given.parse(Seed::list)).collect::<Result<Vec<_>, Stop>>()?;
        Ok(lists.concat())
    }

    /// An option that can be given several times, or else its variable.
    fn all(&self, arguments: Vec<String>, option: &'static str) -> Result<Vec<Given>, Stop> {
        let mut all: Vec<Given> =
            arguments.into_iter().map(|text| Given { option, text, is_variable: false }).collect();
        if all.is_empty() {
            all.extend(self.given(None, option)?);
        }
        Ok(all)
    }

    /// All `--interface` arguments, or else what MINGLE_INTERFACE lists. Each may hold several, with commas.
    fn interfaces(&self, arguments: Vec<String>) -> Result<Vec<Filter>, Stop> {
        let all = self.all(arguments, "interface")?;
        let parts = all.iter().flat_map(|given| given.text.split(',').map(move |part| (given, part)));
        parts.map(|(given, part)| given.parse(|_| part.trim().parse())).collect()
    }
}

/// A value as it was given, and where.
struct Given {
    option: &'static str,
    text: String,
    is_variable: bool,
}

impl Given {
    fn parse<T, E: fmt::Display>(&self, read: impl FnOnce(&str) -> Result<T, E>) -> Result<T, Stop> {
        read(&self.text).map_err(|reason| Stop::Usage(format!("{self}: {reason}")))
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_variable {
            write!(f, "{}={}", variable(self.option), self.text)
        } else if self.text.is_empty() {
            // As from --job-id "$JOB", where JOB is not set.
            write!(f, "--{} ''", self.option)
        } else {
            write!(f, "--{} {}", self.option, self.text)
        }
    }
}

/// `MINGLE_MASTER_PORT` for `master-port`.
fn variable(option: &str) -> String {
    format!("MINGLE_{}", option.to_ascii_uppercase().replace('-', "_"))
}

/// The secret in a file, and a warning where others can read it too.
fn secret_of(path: &Path) -> Result<(Secret, Vec<String>), String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.len() > LONGEST_SECRET {
        return Err(format!("has {} bytes, which is no secret", metadata.len()));
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let secret = Secret::new(&bytes).map_err(|error| error.to_string())?;
    let mode = metadata.permissions().mode();
    let warning = (mode & 0o004 != 0).then(|| {
        let path = path.display();
        format!("every user of this host can read the secret in {path}; chmod 600 {path}")
    });
    Ok((secret, warning.into_iter().collect()))
}

/// The variables of `--set`; of one name the last counts.
fn settings(texts: &[String]) -> Result<Vec<Setting>, Stop> {
    let mut settings: Vec<Setting> = Vec::new();
    for text in texts {
        let setting: Setting =
            text.parse().map_err(|reason| Stop::Usage(format!("--set {text}: {reason}")))?;
        settings.retain(|other| other.name() != setting.name());
        settings.push(setting);
    }
    Ok(settings)
}

fn missing(job: bool, world: bool) -> Stop {
    let mut parts = Vec::new();
    if job {
        parts.push("--job-id is missing: give all nodes of one job the same name, such as --job-id foo");
    }
    if world {
        parts.push("--world is missing: say how many nodes there are, such as --world 4");
    }
    let variables = match (job, world) {
        (true, true) => "MINGLE_JOB_ID and MINGLE_WORLD",
        (true, false) => "MINGLE_JOB_ID",
        (false, _) => "MINGLE_WORLD",
    };
    Stop::Usage(format!("{} (or set {variables}); see mingle --help", parts.join("; ")))
}

fn job_argument(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|e: InvalidId| format!("{e}; give all nodes the same name, such as --job-id foo"))
}

fn job_variable(text: &str) -> Result<JobId, String> {
    env::job_from_env(text).map_err(|e| e.to_string())
}

fn world_size(text: &str) -> Result<World, String> {
    text.parse().map_err(|e: InvalidId| format!("{e}; give the number of nodes, such as --world 4"))
}

fn rank(text: &str, world: World) -> Result<Rank, String> {
    let number = text.parse().map_err(|_| InvalidId::Number(text.to_owned()));
    number
        .and_then(|number| world.rank(number))
        .map_err(|e| format!("{e}; give each node its own, or leave --rank away to have one assigned"))
}

fn port(text: &str) -> Result<u16, &'static str> {
    match text.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err("a port is a number from 1 to 65535, such as 29400"),
    }
}

fn rank_by(text: &str) -> Result<RankBy, &'static str> {
    match text {
        "address" => Ok(RankBy::Address),
        "host" => Ok(RankBy::Host),
        _ => Err("ranks go by 'address' or by 'host'"),
    }
}

fn group(text: &str) -> Result<Ipv4Addr, &'static str> {
    match text.parse::<Ipv4Addr>() {
        Ok(group) if group.is_multicast() => Ok(group),
        _ => Err("a group is an IPv4 multicast address, 224.0.0.0 to 239.255.255.255, such as 239.192.0.1"),
    }
}

fn ttl(text: &str) -> Result<u8, &'static str> {
    match text.parse() {
        Ok(ttl @ 1..) => Ok(ttl),
        _ => Err("a TTL is a number from 1 (this link only) to 255"),
    }
}

fn format(text: &str) -> Result<Format, &'static str> {
    Format::named(text).ok_or("the format is 'sh' or 'json'")
}

fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("give 1 for yes or 0 for no"),
    }
}

fn verbose(text: &str) -> Result<u8, &'static str> {
    text.parse().map_err(|_| "give 0, 1 for debug or 2 for trace")
}

/// The limit that was asked for; none means for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timeout(Option<Duration>);

/// `500ms`, `2s`, `10m`, `1h`, or seconds. One number with one unit: what `sleep` takes, and small enough
/// to need no crate.
fn timeout(text: &str) -> Result<Timeout, &'static str> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let number = number.parse::<u64>().ok().filter(|_| unit > 0);
    let number = number.ok_or("give a time such as 500ms, 90s, 10m or 1h, or 0 to wait for ever")?;
    match number.checked_mul(unit).map(Duration::from_millis) {
        Some(Duration::ZERO) => Ok(Timeout(None)),
        Some(limit) if limit <= LONGEST => Ok(Timeout(Some(limit))),
        _ => Err("longer than a year; give 0 to wait for ever"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn config(line: &[&str], environment: &[(&str, &str)]) -> Result<Config, String> {
        let low = LowArgs::try_parse_from([&["mingle"], line].concat()).map_err(|e| e.to_string())?;
        let lookup =
            |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        Config::new(low, lookup).map_err(|stop| stop.to_string())
    }

    const GOOD: [&str; 4] = ["-j", "foo", "-w", "4"];

    #[test]
    fn the_shortest_line_leaves_everything_to_the_defaults() {
        let config = config(&GOOD, &[]).unwrap();
        assert_eq!((config.job.as_str(), config.world.get()), ("foo", 4));
        assert_eq!((config.rank, config.timeout, config.format), (None, None, Format::Sh));
        assert!(config.interfaces.is_empty() && !config.quiet && config.verbose == 0);
    }

    #[test]
    fn every_option_has_its_variable_and_an_argument_wins() {
        let environment = [
            ("MINGLE_JOB_ID", "my%20job"),
            ("MINGLE_WORLD", "8"),
            ("MINGLE_RANK", "7"),
            ("MINGLE_INTERFACE", "eth*,^docker0, fd00::/8"),
            ("MINGLE_MASTER_PORT", "29400"),
            ("MINGLE_RANK_BY", "host"),
            ("MINGLE_DISCOVERY_PORT", "29498"),
            ("MINGLE_GROUP", "239.192.7.7"),
            ("MINGLE_TTL", "4"),
            ("MINGLE_SEED", "gpu[1-2],login:29500"),
            ("MINGLE_SEED_DIR", "/shared/seeds"),
            ("MINGLE_BROADCAST", "1"),
            ("MINGLE_IPV6", "on"),
            ("MINGLE_TIMEOUT", "0"),
            ("MINGLE_FORMAT", "json"),
            ("MINGLE_QUIET", "1"),
            ("MINGLE_REQUIRE_RDMA", "yes"),
            ("MINGLE_NO_GID_PIN", "1"),
            ("MINGLE_TUNE_SOCKETS", "true"),
            ("MINGLE_VERBOSE", "2"),
        ];
        let all = config(&[], &environment).unwrap();
        assert_eq!((all.job.as_str(), all.world.get(), all.rank.map(Rank::get)), ("my job", 8, Some(7)));
        assert_eq!((all.master_port, all.discovery_port, all.ttl), (Some(29400), Some(29498), Some(4)));
        assert_eq!((all.rank_by, all.group), (Some(RankBy::Host), Some(Ipv4Addr::new(239, 192, 7, 7))));
        assert_eq!((all.timeout, all.format), (Some(Timeout(None)), Format::Json));
        assert_eq!((all.interfaces.len(), all.quiet, all.verbose), (3, true, 2));
        let shown: Vec<String> = all.interfaces.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["eth*", "^docker0", "fd00::/8"]);

        assert_eq!(
            (all.seeds.len(), all.seed_dir, all.broadcast, all.ipv6),
            (3, Some("/shared/seeds".into()), true, true)
        );
        let fabric = &all.fabric;
        assert_eq!((fabric.required, fabric.no_rdma, fabric.extent.gid_index), (true, false, false));
        assert!(fabric.extent.tune_sockets);

        let line = ["-j", "a%20b", "-w", "2", "-r0", "-i", "lo", "-p1", "--rank-by=address", "--ttl=1", "-v"];
        let some = config(&line, &environment).unwrap();
        assert_eq!((some.job.as_str(), some.world.get(), some.rank.map(Rank::get)), ("a%20b", 2, Some(0)));
        assert_eq!((some.interfaces.len(), some.master_port, some.verbose), (1, Some(1), 1));
        assert_eq!((some.rank_by, some.ttl), (Some(RankBy::Address), Some(1)));
    }

    #[test]
    fn of_one_setting_the_last_counts_and_the_wrong_ones_are_named() {
        let line = [&GOOD[..], &["--set", "NCCL_IB_SL=1", "--set", "A=b", "--set=NCCL_IB_SL=2"]].concat();
        let set = config(&line, &[]).unwrap().fabric.settings;
        assert_eq!(set.iter().map(ToString::to_string).collect::<Vec<_>>(), ["A=b", "NCCL_IB_SL=2"]);
        for (wrong, reason) in [
            ("RANK=1", "--set RANK=1: RANK is what mingle finds out"),
            ("A", "--set A: write NAME=VALUE"),
            ("A=$(x)", "--set A=$(x): '$' in the value"),
        ] {
            let error = config(&[&GOOD[..], &["--set", wrong]].concat(), &[]).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn rdma_cannot_be_required_and_left_alone() {
        let both = [&GOOD[..], &["--require-rdma", "--no-rdma"]].concat();
        assert!(config(&both, &[]).unwrap_err().contains("cannot be used with"));
        let mixed = config(&[&GOOD[..], &["--no-rdma"]].concat(), &[("MINGLE_REQUIRE_RDMA", "1")]);
        assert!(mixed.unwrap_err().contains("exclude each other"));
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let names =
            ["RANK", "INTERFACE", "MASTER_PORT", "RANK_BY", "GROUP", "TTL", "TIMEOUT", "FORMAT", "QUIET"];
        let names: Vec<String> = names.iter().map(|name| format!("MINGLE_{name}")).collect();
        let environment: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert!(config(&GOOD, &environment).is_ok());
    }

    #[test]
    fn the_job_id_that_was_printed_means_the_same_job() {
        let job: JobId = "50% of it's $HOME".parse().unwrap();
        let printed = env::job_to_env(&job);
        assert_eq!(config(&["-w", "4"], &[("MINGLE_JOB_ID", &printed)]).unwrap().job, job);
    }

    #[test]
    fn a_wrong_argument_is_named_with_its_cure() {
        let year = "8761h";
        for (wrong, named, cure) in [
            (["--job-id", ""], "--job-id ''", "such as --job-id foo"),
            (["--job-id", "a\nb"], "--job-id", "printable"),
            (["--world", "0"], "--world 0", "1 to 1000000"),
            (["--world", "-1"], "--world -1", "such as --world 4"),
            (["--world", "four"], "--world four", "such as --world 4"),
            (["--rank", "4"], "--rank 4", "0 to 3"),
            (["--rank", "-1"], "--rank -1", "leave --rank away"),
            (["--master-port", "0"], "--master-port 0", "1 to 65535"),
            (["--master-port", "65536"], "--master-port 65536", "1 to 65535"),
            (["--master-port", "29499"], "--master-port", "change one"),
            (["--discovery-port", "udp"], "--discovery-port udp", "1 to 65535"),
            (["--rank-by", "name"], "--rank-by name", "'host'"),
            (["--group", "10.0.0.1"], "--group 10.0.0.1", "224.0.0.0 to 239.255.255.255"),
            (["--group", "ff15::1"], "--group ff15::1", "IPv4"),
            (["--ttl", "0"], "--ttl 0", "from 1"),
            (["--ttl", "256"], "--ttl 256", "255"),
            (["--timeout", "soon"], "--timeout soon", "10m"),
            (["--timeout", "-5"], "--timeout -5", "10m"),
            (["--timeout", "5d"], "--timeout 5d", "1h"),
            (["--timeout", ""], "--timeout", "10m"),
            (["--timeout", year], "--timeout", "0 to wait for ever"),
            (["--timeout", "99999999999999999999s"], "--timeout", "10m"),
            (["--format", "yaml"], "--format yaml", "'json'"),
            (["--interface", "10.0.0.0/33"], "--interface 10.0.0.0/33", "10.1.0.0/16"),
            (["--interface", "eth0,"], "--interface eth0,", "1 to 15 characters"),
            (["--interface", "eth[01]"], "--interface eth[01]", "write eth*"),
            (["--interface", "!docker0"], "--interface !docker0", "write ^docker0"),
            (["--interface", "fe80::1"], "--interface fe80::1", "the interface's name"),
        ] {
            let message = config(&[&GOOD[..], &wrong].concat(), &[]).expect_err(wrong[1]);
            assert!(message.contains(named) && message.contains(cure), "{wrong:?}: {message}");
        }
    }

    #[test]
    fn a_wrong_variable_is_named_with_its_cure() {
        for (name, value, cure) in [
            ("MINGLE_JOB_ID", "50%", "%25"),
            ("MINGLE_JOB_ID", "%0a", "printable"),
            ("MINGLE_WORLD", "0", "1 to 1000000"),
            ("MINGLE_RANK", "9", "0 to 3"),
            ("MINGLE_TTL", "x", "255"),
            ("MINGLE_QUIET", "maybe", "1 for yes"),
            ("MINGLE_VERBOSE", "true", "1 for debug"),
            ("MINGLE_INTERFACE", "1.2.3.4/x", "10.1.0.0/16"),
            ("MINGLE_FORMAT", "xml", "'sh'"),
        ] {
            let mut environment = vec![(name, value)];
            environment.extend([("MINGLE_JOB_ID", "foo"), ("MINGLE_WORLD", "4")]);
            let message = config(&[], &environment).expect_err(value);
            assert!(message.starts_with(&format!("{name}={value}: ")), "{message}");
            assert!(message.contains(cure), "{message}");
        }
    }

    #[test]
    fn what_must_be_given_is_asked_for() {
        let both = config(&[], &[]).unwrap_err();
        for wanted in ["--job-id foo", "--world 4", "MINGLE_JOB_ID and MINGLE_WORLD", "mingle --help"] {
            assert!(both.contains(wanted), "{both}");
        }
        let world = config(&["-j", "foo"], &[]).unwrap_err();
        assert!(world.contains("--world is missing") && !world.contains("job-id"), "{world}");
        let job = config(&["-w", "4"], &[("MINGLE_JOB_ID", "")]).unwrap_err();
        assert!(job.contains("--job-id is missing") && !job.contains("--world"), "{job}");
    }

    #[test]
    fn a_time_is_a_number_with_a_unit() {
        for (text, seconds) in
            [("90", 90.0), ("500ms", 0.5), ("2s", 2.0), ("10m", 600.0), ("8760h", 31_536_000.0)]
        {
            let limit = timeout(text).unwrap().0.unwrap();
            assert!((limit.as_secs_f64() - seconds).abs() < f64::EPSILON, "{text}");
        }
        for text in ["0", "0ms", "00h"] {
            assert_eq!(timeout(text), Ok(Timeout(None)), "{text}");
        }
        for text in ["", "s", "1.5h", "1 h", "+1s", "1H", "1h30m", "١s"] {
            assert!(timeout(text).is_err(), "{text}");
        }
    }
}
