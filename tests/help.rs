//! Help, completions and manual pages, and the suggestions for mistyped arguments.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::lab::{self, plain, skip};

/// How each shell checks a script without running it: the command before the script's file.
const SHELLS: [(&str, &[&str]); 4] = [
    ("bash", &["bash", "-n"]),
    ("zsh", &["zsh", "-n"]),
    ("fish", &["fish", "--no-execute"]),
    (
        "powershell",
        &[
            "pwsh",
            "-NoProfile",
            "-Command",
            "& { $null = [ScriptBlock]::Create((Get-Content -Raw $args[0])) }",
        ],
    ),
];

fn mingle(args: &[&str]) -> Output {
    plain(lab::MINGLE).args(args).output().unwrap()
}

/// The output of mingle, which must succeed and print nothing on stderr.
fn printed(args: &[&str]) -> String {
    let output = mingle(args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && err.is_empty(), "mingle {args:?}: {out}{err}");
    out
}

/// The subcommands, as the help lists them.
fn commands() -> Vec<String> {
    let help = printed(&["-h"]);
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<_> = lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() >= 5, "{help}");
    names
}

/// Compares the text with the file of this name, or with MINGLE_BLESS=1 writes the file.
fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/help").join(name);
    if std::env::var_os("MINGLE_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, expected, "{name}: MINGLE_BLESS=1 rewrites it");
}

/// Runs a program with a file of this text as its last argument; none where the program is not installed.
fn judge(command: &[&str], name: &str, text: &str) -> Option<Output> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::write(&path, text).unwrap();
    let output = plain(command[0]).args(&command[1..]).arg(&path).output();
    fs::remove_file(&path).unwrap();
    output.ok()
}

#[test]
fn the_help_matches_its_golden_files() {
    golden("mingle.short", &printed(&["-h"]));
    golden("mingle.long", &printed(&["--help"]));
    for command in commands() {
        let short = printed(&[&command, "-h"]);
        golden(&format!("{command}.short"), &short);
        let long = printed(&[&command, "--help"]);
        golden(&format!("{command}.long"), &long);
    }
}

#[test]
fn a_mistyped_argument_is_answered_with_a_suggestion() {
    for (args, code, suggestion) in [
        (&["--wrold", "4"][..], 2, "a similar argument exists: '--world'"),
        (&["--job-id", "a", "-w", "4", "--timeuot=1s"], 2, "a similar argument exists: '--timeout'"),
        (&["dcotor"], 2, "a similar subcommand exists: 'doctor'"),
        (&["completions", "bahs"], 2, "a similar value exists: 'bash'"),
        (&["man", "dotcor"], 2, "the commands are run, rdma, doctor"),
        (&["rdma", "--fromat", "json"], 2, "a similar argument exists: '--format'"),
    ] {
        let output = mingle(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(suggestion), "mingle {args:?}: no {suggestion:?} in\n{stderr}");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_failing_command_that_is_not_for_eval_prints_nothing_on_stdout() {
    for args in [&["completions"][..], &["completions", "bahs"], &["man", "dotcor"], &["man", "--bogus"]] {
        let output = mingle(args);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{args:?}");
    }
}

#[test]
fn each_shell_can_read_its_completions() {
    for (shell, reads) in SHELLS {
        let script = printed(&["completions", shell]);
        assert!(script.contains("seed-dir") && script.contains("doctor"), "{shell}: {script}");
        match judge(reads, shell, &script) {
            Some(output) => {
                assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
            }
            // Debian has no PowerShell, so its absence is never a failure.
            None if shell == "powershell" => {}
            None => skip(&format!("no {}", reads[0])),
        }
    }
}

/// The completions that two of the shells offer at the tab key.
#[test]
fn a_shell_completes_an_option() {
    let script = r#"source /dev/stdin; COMP_WORDS=(mingle --see); COMP_CWORD=1; _mingle mingle --see mingle
        echo "${COMPREPLY[*]}""#;
    assert_eq!(
        offered("bash", &["-c", script], &printed(&["completions", "bash"])),
        ["--seed", "--seed-dir"]
    );
    let script = "source; complete --do-complete='mingle --see'";
    if plain("fish").arg("--version").output().is_err() {
        return skip("no fish");
    }
    let offered = offered("fish", &["--no-config", "-c", script], &printed(&["completions", "fish"]));
    assert!(
        offered.contains(&"--seed".to_owned()) && offered.contains(&"--seed-dir".to_owned()),
        "{offered:?}"
    );
}

/// The words that a shell prints after it has read a script from stdin.
fn offered(shell: &str, args: &[&str], script: &str) -> Vec<String> {
    let text = String::from_utf8(feed(plain(shell).args(args), script).stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

fn feed(command: &mut Command, text: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn every_command_has_a_manual_page_that_groff_accepts() {
    let mut pages = vec![("mingle".to_owned(), printed(&["man"]))];
    pages.extend(commands().into_iter().map(|command| {
        let page = printed(&["man", &command]);
        (format!("mingle-{command}"), page)
    }));
    assert!(pages[0].1.contains("\n.SH \"EXIT CODES\"\n"), "{}", pages[0].1);
    for (name, page) in pages {
        let title = format!(".TH {} 1 ", name.to_uppercase());
        assert!(page.contains(&title), "no {title:?} in\n{page}");
        let formatter = ["groff", "-man", "-ww", "-z", "-Tutf8"];
        match judge(&formatter, &name, &page) {
            Some(output) => {
                assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
            }
            None => return skip("no groff"),
        }
    }
}
