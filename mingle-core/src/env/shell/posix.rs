//! Statements for POSIX shells, written for `eval "$(mingle ...)"` and for `eval $(mingle ...)`.
//!
//! The unquoted form splits the text into words at white space, expands words that look like file name
//! patterns, and joins the words with spaces. So every statement ends in `;`, every value is in single quotes
//! (zsh would expand a bare `=eth0`), and the text holds nothing that a shell could expand. This is true in
//! bash, dash, busybox sh, zsh and ksh, with `set -e` and without.
//!
//! In the unquoted form, two kinds of values need more than quotes: `[fd00::1]:29500` would be a pattern, and
//! the line ends of a list of hosts would become spaces. The shell writes both itself, by `printf` in
//! `$(...)`.

use super::alphabet::is_plain;
use crate::env::Variables;

pub(super) fn exports(variables: &Variables) -> String {
    let removals = variables.unset().iter().map(|name| format!("unset {name};\n"));
    let exports = variables.set().iter().map(|(name, value)| {
        if value.chars().all(is_plain) {
            return format!("export {name}='{value}';\n");
        }
        let format = value.replace('%', "%%").replace('[', "\\133").replace('\n', "\\n");
        format!("export {name}=\"$(printf '{format}')\";\n")
    });
    // Removals come first, because the status of the last statement is the status of `eval`.
    removals.chain(exports).collect()
}

/// Whether a value is a list of lines that `printf` writes as it is, and `$(...)` keeps: the end of the last
/// line would be removed, and what begins with - could be an option.
pub(super) fn is_list(value: &str) -> bool {
    let is_plain = value.chars().all(|c| is_plain(c) || c == '\n');
    is_plain && !value.starts_with('-') && !value.ends_with('\n')
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Shell, is_name, tests};
    use super::*;
    use crate::env::tests::{formed, variables};

    /// Whether a line is exactly one of the statements that this file writes.
    pub(in super::super) fn is_safe(line: &str) -> bool {
        let Some(statement) = line.strip_suffix(";\n") else { return false };
        let Some((name, value)) = statement.strip_prefix("export ").and_then(|rest| rest.split_once('='))
        else {
            return statement.strip_prefix("unset ").is_some_and(is_name);
        };
        let within = |begin, end| value.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end));
        let format = within("\"$(printf '", "')\"").filter(|format: &&str| !format.starts_with('-'));
        let plain = format.map(|format| format.replace("\\133", "").replace("\\n", "").replace(']', ""));
        let plain = plain.or_else(|| within("'", "'").map(str::to_owned));
        is_name(name) && plain.is_some_and(|plain| plain.chars().all(is_plain))
    }

    fn exports(variables: &Variables) -> String {
        tests::exports(Shell::Posix, variables)
    }

    #[test]
    fn a_world_of_four_is_printed_word_for_word() {
        let expected = "\
export MASTER_ADDR='10.0.0.1';
export MASTER_PORT='29503';
export RANK='2';
export WORLD_SIZE='4';
export NODE_RANK='2';
export PET_NNODES='4';
export PET_NODE_RANK='2';
export PET_MASTER_ADDR='10.0.0.1';
export PET_MASTER_PORT='29503';
export MINGLE_JOB_ID='my%20job';
export MINGLE_ROSTER_DIGEST='abababababababababababababababab';
export MINGLE_RANK_OFFSET='16';
export MINGLE_TOTAL_SLOTS='32';
export PET_NPROC_PER_NODE='8';
export NCCL_SOCKET_IFNAME='=eth0';
export NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME='=eth0';
export GLOO_SOCKET_IFNAME='eth0';
export TORCHCOMM_GLOO_INTERFACE='eth0';
export TP_SOCKET_IFNAME='eth0';
export NCCL_RAS_ADDR='localhost:28375';
export MINGLE_SET='PET_NPROC_PER_NODE:24fab59a,NCCL_SOCKET_IFNAME:2c357982,\
NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME:2c357982,GLOO_SOCKET_IFNAME:c3e607cf,TORCHCOMM_GLOO_INTERFACE:c3e607cf,\
TP_SOCKET_IFNAME:c3e607cf,NCCL_RAS_ADDR:96d7df56';
";
        assert_eq!(exports(&variables("my job", Some("eth0"), &[])), expected);
    }

    #[test]
    fn an_ipv6_master_address_has_no_brackets_and_no_scope() {
        let (job, formed) = ("foo".parse().unwrap(), formed("[fd00::1%7]:29500"));
        assert!(
            exports(&Variables::new(crate::env::Facts::new(&job, &formed), |_| None))
                .contains("export MASTER_ADDR='fd00::1';")
        );
    }

    #[test]
    fn brackets_and_lines_are_written_by_printf() {
        let first = |value: &str| {
            let mut variables = variables("foo", None, &[]);
            variables.replace_first(value.to_owned());
            let script = Shell::Posix.exports(&variables).ok()?;
            script.lines().next().map(|line| line.replace("export MASTER_ADDR=", ""))
        };
        assert_eq!(first("[fe80::1%eth0]:1").unwrap(), r#""$(printf '\133fe80::1%%eth0]:1')";"#);
        assert_eq!(first("10.0.0.1\n10.0.0.2").unwrap(), r#""$(printf '10.0.0.1\n10.0.0.2')";"#);
        assert_eq!(["a\n", "\n", "-a\nb", "a\r\nb"].map(first), [const { None }; 4]);
    }

    #[test]
    fn the_longest_result_fits_one_atomic_write_to_a_pipe() {
        // A write of up to PIPE_BUF (4096) bytes is atomic (pipe(7)), so a shell never sees half of a result.
        let stale = [("NCCL_SOCKET_IFNAME", "=eth0"), ("MINGLE_SET", "NCCL_SOCKET_IFNAME:2c357982")];
        let text = exports(&variables(&" ".repeat(128), Some("interface-of-15"), &stale));
        assert!(text.len() < 4096, "{}", text.len());
    }
}
