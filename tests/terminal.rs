//! `mingle run --max-restarts` and its command as one job of an interactive shell, on a real terminal.

use crate::lab::terminal::Terminal;
use crate::lab::{Lab, Options};

/// The line of a world of one node, with this command.
fn line(command: &str) -> String {
    format!("$mingle run -j tty -w 1 --max-restarts 1 -- {command}")
}

/// Reads a line from the terminal and shows it.
const READS: &str = "sh -c 'echo asks >&2; read -r x </dev/tty; echo \"got $x\"'";

/// The line of a command that writes its process ID and mingle's to files, and then does this.
fn that_writes_ids(then: &str) -> String {
    line(&format!("sh -c 'echo $$ >/run/command; echo $PPID >/run/parent; echo runs; {then}'"))
}

/// Defines the shell function `both`, which waits until both processes are in these states: `both TT`.
fn define_both(terminal: &mut Terminal) {
    terminal.line("state() { sed 's/.*) //; s/ .*//' /proc/$(cat /run/$1)/stat; }");
    terminal.line(
        "both() { until [ $(state command)$(state parent) = $1 ]; do sleep 0.05; done; echo \"both $1\"; }",
    );
}

/// Starts a command in the background that stops because it reads from the terminal.
fn start_stopped(terminal: &mut Terminal, line: &str) {
    terminal.line(line);
    terminal.expect("asks");
    terminal.line("until jobs | grep Stopped; do sleep 0.05; done; echo see''n");
    terminal.expect("seen");
}

fn started() -> Option<(Lab, Terminal)> {
    let lab = Options::nodes(1).start()?;
    let terminal = Terminal::start(&lab, 0);
    Some((lab, terminal))
}

#[test]
fn the_command_reads_from_the_terminal_wherever_stdin_and_stdout_lead() {
    let Some((_lab, mut terminal)) = started() else { return };
    for (more, shown) in [
        ("", "got it"),
        ("</dev/null", "got it"),
        ("| sed s/^/piped:/", "piped:got it"),
        ("</dev/null 2>&1 | cat | sed s/^/piped:/", "piped:got it"),
    ] {
        terminal.line(&format!("{} {more}; echo \"code $?\"", line(READS)));
        terminal.expect("asks");
        terminal.line("it");
        terminal.expect(shown);
        terminal.expect("code 0");
    }
}

#[test]
fn on_a_terminal_an_error_has_four_parts_and_in_a_log_one_line() {
    let Some((_lab, mut terminal)) = started() else { return };
    terminal.line("TERM=xterm $mingle -j tty -w 2 --timeout 200ms >/dev/null; echo \"code $?\"");
    terminal
        .expect("error: no world of 2 in time: nobody else was heard by multicast\r\n  do: if the others");
    terminal.expect("\r\n  more: docs/troubleshooting.md (code 3, deadline)\r\n");
    terminal.expect("code 3");
    terminal.line("TERM=xterm $mingle -j tty -w 2 --timeout 200ms 2>&1 >/dev/null | cat");
    terminal.expect("error: no world of 2 in time: nobody else was heard by multicast; if the others");
}

#[test]
fn a_command_in_the_background_stops_when_it_reads_and_fg_lets_it_read() {
    let Some((_lab, mut terminal)) = started() else { return };
    for more in ["", "</dev/null", "| cat"] {
        start_stopped(&mut terminal, &format!("{} {more} &", line(READS)));
        terminal.line("fg; echo \"code $?\"");
        terminal.expect("--max-restarts");
        terminal.line("it");
        terminal.expect("got it");
        terminal.expect("code 0");
    }
}

#[test]
fn ctrl_c_reaches_the_command_once_and_ends_mingle_with_130() {
    let Some((_lab, mut terminal)) = started() else { return };
    for more in ["", "</dev/null", "</dev/null | (trap '' INT; cat)"] {
        let script = "sh -c 'trap \"n=1\\$n\" INT; echo runs; until [ $n ]; do sleep 0.1; done; sleep 0.5; echo \"caught $n\"'";
        terminal.line(&format!("{} {more}; echo \"code ${{PIPESTATUS[0]}}\"", line(script)));
        terminal.expect("runs");
        terminal.keys("\x03");
        terminal.expect("caught 1\r\n");
        terminal.expect("code 130");
    }
}

#[test]
fn ctrl_z_stops_mingle_and_its_command_and_fg_continues_both() {
    let Some((_lab, mut terminal)) = started() else { return };
    define_both(&mut terminal);
    for more in ["", "</dev/null", "| cat"] {
        terminal.line(&format!("{} {more}", that_writes_ids("read -r x </dev/tty; echo \"got $x\"")));
        terminal.expect("runs");
        terminal.keys("\x1a");
        terminal.expect("Stopped");
        terminal.expect("--max-restarts");
        // On a busy machine the command may take a key before it has stopped; `read` ignores blanks.
        terminal.line("    both T''T");
        terminal.expect("both TT");
        terminal.line("fg");
        // The shell shows the line that it continues.
        terminal.expect("--max-restarts");
        terminal.line("it");
        terminal.expect("got it");
    }
}

#[test]
fn a_signal_to_mingle_reaches_what_its_command_has_started_as_well() {
    let Some((lab, mut terminal)) = started() else { return };
    // The inner shell has the process group of the outer one, which is mingle's too.
    let inner = "trap \"echo caught; exit\" USR1; echo runs; while :; do sleep 0.05; done";
    let outer = format!("trap true USR1; sh -c '{inner}'; echo \"both have ended\"");
    lab.shell(0, "sh", &format!("cat >/run/script <<'END'\n{outer}\nEND"));
    terminal.line(&format!("{} & pid=$!", line("sh /run/script")));
    terminal.expect("runs");
    terminal.line("kill -USR1 $pid");
    terminal.expect("caught");
    terminal.expect("both have ended");
}

#[test]
fn sigterm_ends_a_command_that_is_stopped() {
    let Some((_lab, mut terminal)) = started() else { return };
    start_stopped(&mut terminal, &format!("{} & pid=$!", line(READS)));
    terminal.line("kill $pid; kill -CONT $pid");
    // As long as bash takes the job for stopped, wait returns that.
    terminal.line("while wait $pid; code=$?; [ $code = 149 ]; do sleep 0.05; done; echo \"code $code\"");
    terminal.expect("code 143");
}

#[test]
fn ctrl_z_while_the_world_forms_stops_mingle_and_fg_goes_on() {
    let Some((_lab, mut terminal)) = started() else { return };
    terminal.line("$mingle run -j tty -w 2 --max-restarts 1 --timeout 60s -- true");
    terminal.expect("looking for");
    terminal.keys("\x1a");
    terminal.expect("Stopped");
    terminal.expect("--max-restarts");
    terminal.line("fg");
    terminal.expect("--max-restarts");
    // A second Ctrl-C may find the shell in the foreground, which then gives up the rest of its line.
    terminal.keys_until("\x03", "ended by SIGINT; this node has left the world");
    terminal.line("echo \"code $?\"");
    terminal.expect("code 130");
}
