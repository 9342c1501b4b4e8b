//! Stdout, which is for the result.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use mingle_core::Member;
use mingle_core::env::{Facts, Format, Variables};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::{Value, json};

use crate::exit::Stop;
use crate::intent::Intent;

/// The device /dev/null: its major number is 1, its minor number 3.
const NULL: u64 = 0x103;

/// The stdout of this process.
pub(crate) enum Stdout {}

impl Stdout {
    /// Prints the guard, where a shell will evaluate the result: if this process dies after it, `eval` fails.
    pub(crate) fn guard(format: Format) -> Result<(), Stop> {
        format.shell().map_or(Ok(()), |shell| Self::print(shell.guard()))
    }

    /// Checks that the result can arrive anywhere, before this node waits for others. Where a program starts
    /// with a closed stdout, Rust opens /dev/null in its place, for reading and writing; a shell's
    /// `>/dev/null` is open for writing alone, and means it.
    pub(crate) fn check() -> Result<(), Stop> {
        let file = Self::stream()?;
        let device = file.metadata().map_err(Stop::Stdout)?;
        let flags = fcntl(&file, FcntlArg::F_GETFL).map_err(|error| Stop::Stdout(error.into()))?;
        let mode = OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE;
        if device.file_type().is_char_device() && device.rdev() == NULL && mode == OFlag::O_RDWR {
            return Err(Stop::Usage(
                "stdout is closed, so the result would be lost; write '>/dev/null' to discard it, or give \
                 --output"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Stdout without a buffer, for output without an end.
    pub(crate) fn stream() -> Result<File, Stop> {
        io::stdout().as_fd().try_clone_to_owned().map(File::from).map_err(Stop::Stdout)
    }

    /// Whether this is the file or the pipe that stdout leads to. A terminal or /dev/null may be shared.
    pub(crate) fn is(file: &Metadata) -> bool {
        // A closed stdout cannot be the same file.
        let Ok(stdout) = Self::stream().and_then(|stdout| stdout.metadata().map_err(Stop::Stdout)) else {
            return false;
        };
        let is_exclusive = file.is_file() || file.file_type().is_fifo();
        is_exclusive && (file.dev(), file.ino()) == (stdout.dev(), stdout.ino())
    }

    /// Prints a document of JSON, in one line.
    pub(crate) fn json(document: &Value) -> Result<(), Stop> {
        Self::print(&json_text(document))
    }

    /// The only function that writes to stdout, except for output without an end; see [`Stdout::stream`].
    ///
    /// It writes once and without a buffer: a pipe takes 4 KiB as a whole or not at all, and an empty pipe
    /// takes 64 KiB without a pause in which the process could be killed. So only a list of thousands of
    /// nodes can leave half a script behind. It does not use [`io::Stdout`], which reports success for a
    /// descriptor that cannot be written to.
    pub(crate) fn print(text: &str) -> Result<(), Stop> {
        Self::stream()?.write_all(text.as_bytes()).map_err(Stop::Stdout)
    }

    /// Prints a script that makes `eval` fail, or a JSON object with the reason, or nothing for other
    /// formats.
    pub(crate) fn failed(intent: Intent, stop: &Stop) -> Result<(), Stop> {
        // The report is printed already, and a second document must not follow it.
        let is_reported = matches!(stop, Stop::Findings { .. });
        if is_reported || intent.is_command && intent.format.shell().is_some() {
            return Ok(());
        }
        Self::print(&failed(intent.format, stop))
    }
}

/// A formed world in a format, where `variables` are that format's.
pub(crate) fn formed_text(
    format: Format,
    facts: Facts<'_>,
    variables: &Variables,
    formed_ms: Option<u64>,
) -> Result<String, Stop> {
    let text = format.render(facts, variables)?;
    Ok(text.unwrap_or_else(|| json_text(&document(facts, variables, formed_ms))))
}

/// A formed world in JSON, as docs/reference.md describes it. Scripts rely on the names of its fields.
pub(crate) fn document(facts: Facts<'_>, variables: &Variables, formed_ms: Option<u64>) -> Value {
    let formed = facts.formed;
    let node = |node: &Member| {
        json!({
            "rank": node.rank.get(),
            // All 128 bits: NodeId's Display is a short form for people.
            "id": format!("{:032x}", u128::from_be_bytes(node.id.0)),
            "host": node.host.as_str(),
            "address": node.address.ip(),
            "port": node.address.port(),
            "slots": node.slots,
            "metadata": node.metadata,
        })
    };
    let warnings = formed.verdict.warnings().into_iter().map(|(text, _)| text);
    let roster = formed.roster.as_ref().map(|roster| roster.members().iter().map(node).collect::<Value>());
    json!({
        // As the user wrote it; that in `env` is percent-encoded.
        "job": facts.job.as_str(),
        "rank": formed.rank.get(),
        "world": formed.world.get(),
        "master": { "address": formed.master.ip(), "port": formed.master.port() },
        "local": formed.local,
        "interface": facts.interface,
        "digest": formed.digest.to_string(),
        "slots": formed.slots,
        "env": variables.set().iter().cloned().collect::<BTreeMap<_, _>>(),
        "unset": variables.unset(),
        "fabric": {
            "transport": formed.verdict.transport.to_string(),
            "warnings": warnings.collect::<Vec<_>>(),
        },
        "differences": formed.sameness.lines(),
        "timings": { "formed_ms": formed_ms },
        // Null if the rendezvous did not collect it.
        "roster": roster,
    })
}

fn failed(format: Format, stop: &Stop) -> String {
    match format.shell() {
        Some(shell) => shell.failure(stop.code()),
        None if format == Format::JSON => json_text(&json!({ "error": stop.document() })),
        None => String::new(),
    }
}

/// The document as a line of printable ASCII. JSON may hold C1 controls and marks that change the direction
/// of the text, which a terminal obeys. Outside its strings there is nothing to escape.
pub(crate) fn json_text(document: &Value) -> String {
    let mut text = String::new();
    for c in document.to_string().chars() {
        if c.is_ascii() && c != '\u{7f}' {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use mingle_core::env::Shell;
    use mingle_core::proto::{Digest, NodeId, Slots};
    use mingle_core::{Formed, HostName, JobId, Metadata, Roster, World};

    use super::*;
    use nix::sys::signal::Signal;

    /// Rank 1 of 2, with its roster.
    fn world_of_two() -> (JobId, Formed) {
        let world = World::new(2).unwrap();
        let member = |rank: u32, host: &str, address: &str| Member {
            rank: world.rank(rank).unwrap(),
            id: NodeId([0x1f; 16]),
            host: HostName::new(host),
            address: address.parse().unwrap(),
            slots: 8,
            metadata: Metadata::default(),
            session_port: 0,
        };
        let members = vec![member(0, "node-a", "10.0.0.1:29503"), member(1, "node-b", "10.0.0.2:29503")];
        let (rank, master, local) = (world.rank(1).unwrap(), members[0].address, members[1].address.ip());
        let mut formed = Formed::new(rank, world, master, local, Digest([0xab; 16]));
        formed.roster = Roster::new(members);
        formed.slots = Slots { own: 8, before: 8, total: 16 };
        ("it's 100%".parse().unwrap(), formed)
    }

    #[test]
    fn json_has_the_variables_the_facts_and_the_whole_roster() {
        let (job, formed) = world_of_two();
        let mut facts = Facts::new(&job, &formed);
        (facts.interface, facts.slots_given) = (Some("eth0"), true);
        let variables = Variables::new(facts, |_| None);
        let printed = formed_text(Format::JSON, facts, &variables, None).unwrap();
        assert_eq!(printed.find('\n'), Some(printed.len() - 1), "one line");
        let expected = json!({
            "job": "it's 100%",
            "rank": 1,
            "world": 2,
            "master": { "address": "10.0.0.1", "port": 29503 },
            "local": "10.0.0.2",
            "interface": "eth0",
            "digest": "abababababababababababababababab",
            "slots": { "own": 8, "before": 8, "total": 16 },
            "env": {
                "MASTER_ADDR": "10.0.0.1",
                "MASTER_PORT": "29503",
                "RANK": "1",
                "WORLD_SIZE": "2",
                "NODE_RANK": "1",
                "PET_NNODES": "2",
                "PET_NODE_RANK": "1",
                "PET_MASTER_ADDR": "10.0.0.1",
                "PET_MASTER_PORT": "29503",
                "MINGLE_JOB_ID": "it%27s%20100%25",
                "MINGLE_ROSTER_DIGEST": "abababababababababababababababab",
                "MINGLE_RANK_OFFSET": "8",
                "MINGLE_TOTAL_SLOTS": "16",
                "PET_NPROC_PER_NODE": "8",
                "NCCL_SOCKET_IFNAME": "=eth0",
                "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "=eth0",
                "GLOO_SOCKET_IFNAME": "eth0",
                "TORCHCOMM_GLOO_INTERFACE": "eth0",
                "TP_SOCKET_IFNAME": "eth0",
                "NCCL_RAS_ADDR": "localhost:28354",
                "MINGLE_SET": "PET_NPROC_PER_NODE:24fab59a,NCCL_SOCKET_IFNAME:2c357982,\
                    NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME:2c357982,GLOO_SOCKET_IFNAME:c3e607cf,\
                    TORCHCOMM_GLOO_INTERFACE:c3e607cf,TP_SOCKET_IFNAME:c3e607cf,NCCL_RAS_ADDR:c0c05e54",
            },
            "unset": [],
            "fabric": { "transport": "unasked", "warnings": [] },
            "differences": [],
            "timings": { "formed_ms": null },
            "roster": [
                {
                    "rank": 0, "id": "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f", "host": "node-a",
                    "address": "10.0.0.1", "port": 29503, "slots": 8, "metadata": {},
                },
                {
                    "rank": 1, "id": "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f", "host": "node-b",
                    "address": "10.0.0.2", "port": 29503, "slots": 8, "metadata": {},
                },
            ],
        });
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), expected);
    }

    #[test]
    fn a_failure_is_printed_in_the_form_of_the_result() {
        let stop = Stop::Usage("--job-id \"\u{1b}[31m\":\nno".to_owned());
        let json = r#"{"error":{"code":2,"kind":"usage","message":"--job-id \"\u001b[31m\":\nno"}}"#;
        for format in Format::all() {
            let expected = match format.shell() {
                Some(Shell::Posix) => "(exit 2);\n".to_owned(),
                Some(_) => "command sh -c 'exit 2';\n".to_owned(),
                None if format == Format::JSON => format!("{json}\n"),
                None => String::new(),
            };
            assert_eq!(failed(format, &stop), expected, "{format}");
        }
        assert_eq!(failed(Format::SH, &Stop::Signal(Signal::SIGTERM)), "(exit 143);\n");
    }
}
