//! Texts with placeholders, for launchers without a format of their own and for the words of a command.
//!
//! ```text
//! names    what a placeholder stands for
//! parse    the text, checked before a world forms
//! ```

mod names;
mod parse;

use super::shell::{is_bracketed, is_plain};
use super::{Facts, Format, Unfit, UnsafeStatement, launcher};
use crate::model::Member;

/// A text with placeholders such as `{rank}`, and with blocks for each node.
///
/// | placeholder | stands for |
/// | --- | --- |
/// | `{rank}`, `{host}`, `{addr}`, `{port}`, `{endpoint}`, `{slots}` | this node: rank, host name, address, the port that it held during the rendezvous, `ADDRESS:PORT`, number of workers |
/// | `{world}`, `{job}`, `{master}`, `{master_addr}`, `{master_port}` | the number of nodes; the job ID as in [`job_to_env`](super::job_to_env); the master as `ADDRESS:PORT`, and its parts |
/// | `{hosts}`, `{addrs}`, `{endpoints}` | the host names, addresses or endpoints of all nodes by rank, separated by commas |
/// | `{port1}`, `{port2}`, ... | the ports in [`Facts::ports`] |
/// | `{each node}` text `{end}` | the text for each node by rank, in which `{node.rank}`, `{node.host}`, `{node.addr}`, `{node.port}`, `{node.endpoint}` and `{node.slots}` stand for that node |
/// | `{each other}` text `{end}` | the same for each node but this node |
/// | `{between}` | in a block: begins the text that stands between two nodes |
///
/// `{{` and `}}` are braces. An IPv6 address has brackets in an endpoint, and none elsewhere. A line that has
/// nothing but `{each node}`, `{each other}`, `{between}` or `{end}` leaves no line behind.
///
/// The values have only the characters `A-Z a-z 0-9 _ . , : = / @ % + -` and the brackets of IPv6 addresses.
/// mingle refuses a host name that other hosts could take for another node.
///
/// ```
/// use mingle_core::env::{Facts, Format, Template};
/// # use mingle_core::proto::{Digest, NodeId};
/// # use mingle_core::{Formed, HostName, Member, Metadata, Roster, World};
/// # let (job, world) = ("foo".parse()?, World::new(2)?);
/// # let member = |rank: u32| Member {
/// #     rank: world.rank(rank).unwrap(), id: NodeId([0; 16]), host: HostName::new("node"), slots: 8,
/// #     address: ([10, 0, 0, 1 + rank as u8], 29503).into(), metadata: Metadata::default(), session_port: 0,
/// # };
/// # let (master, local) = (([10, 0, 0, 1], 29503).into(), [10, 0, 0, 2].into());
/// # let mut formed = Formed::new(world.rank(1)?, world, master, local, Digest([0; 16]));
/// # formed.roster = Roster::new(vec![member(0), member(1)]);
/// let template = Template::strict(b"me: {rank}; [{each node}{node.addr}{between}, {end}]\n")?;
/// let mut facts = Facts::new(&job, &formed);
/// facts.template = Some(&template);
/// # let facts = facts;
/// let variables = Format::TEMPLATE.variables(facts, |_| None)?;
/// let text = Format::TEMPLATE.render(facts, &variables)?;
/// assert_eq!(text.as_deref(), Some("me: 1; [10.0.0.1, 10.0.0.2]\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// The names of the placeholders in them.
    names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(String),
    Each { others: bool, body: Vec<Piece>, between: Vec<Piece> },
}

/// A text is not a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {what}")]
#[non_exhaustive]
pub struct InvalidTemplate {
    /// The line of the mistake, counted from 1.
    pub line: usize,
    /// The column of the mistake in characters, counted from 1.
    pub column: usize,
    what: String,
}

impl Template {
    /// The template in a file, where every brace must belong to a placeholder, a block, `{{` or `}}`.
    ///
    /// # Errors
    /// [`InvalidTemplate`], with the line and the column of the first mistake.
    pub fn strict(file: &[u8]) -> Result<Self, InvalidTemplate> {
        match str::from_utf8(file) {
            Ok(text) => parse::parse(text, false),
            Err(error) => {
                let valid = str::from_utf8(&file[..error.valid_up_to()]).unwrap_or_default();
                Err(InvalidTemplate::at(valid, "this is not UTF-8".to_owned()))
            }
        }
    }

    /// The template in a word of a command, where braces without a placeholder stay as they are. `{{` has no
    /// special meaning.
    ///
    /// # Errors
    /// [`InvalidTemplate`] if a block has no end.
    pub fn lenient(word: &str) -> Result<Self, InvalidTemplate> {
        parse::parse(word, true)
    }

    /// Whether the text has the placeholder of this name, such as `rank` or `port1`.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Whether the text lists all nodes, so that the rendezvous must collect the roster.
    pub fn needs_roster(&self) -> bool {
        let has_block = self.pieces.iter().any(|piece| matches!(piece, Piece::Each { .. }));
        has_block || self.names.iter().any(|name| names::is_of_roster(name))
    }

    /// The text for this world. For a name, a value that `given` returns replaces the value of the facts, and
    /// is not checked.
    ///
    /// # Errors
    /// [`Unfit`] if the facts lack the value of a placeholder, or if a value cannot be printed.
    pub fn fill(&self, facts: Facts<'_>, given: &dyn Fn(&str) -> Option<String>) -> Result<String, Unfit> {
        if self.has("hosts") || self.has("node.host") {
            launcher::check_names(roster(facts)?.iter().collect(), Format::TEMPLATE)?;
        }
        let mut text = String::new();
        render(&self.pieces, Scope { facts, node: None, given }, &mut text)?;
        Ok(text)
    }
}

impl InvalidTemplate {
    /// The mistake behind this part of the text.
    fn at(before: &str, what: String) -> Self {
        let line_begin = before.rfind('\n').map_or(0, |at| at + 1);
        let (line, column) = (before.matches('\n').count() + 1, before[line_begin..].chars().count() + 1);
        Self { line, column, what }
    }
}

/// Where the values come from.
#[derive(Clone, Copy)]
struct Scope<'a> {
    facts: Facts<'a>,
    /// The node of a block.
    node: Option<&'a Member>,
    given: &'a dyn Fn(&str) -> Option<String>,
}

fn roster(facts: Facts<'_>) -> Result<&[Member], Unfit> {
    let roster = facts.formed.roster.as_ref().ok_or(Unfit::NoRoster(Format::TEMPLATE))?;
    Ok(roster.members())
}

fn render(pieces: &[Piece], scope: Scope<'_>, text: &mut String) -> Result<(), Unfit> {
    for piece in pieces {
        match piece {
            Piece::Text(plain) => text.push_str(plain),
            Piece::Value(name) => match (scope.given)(name) {
                Some(value) => text.push_str(&value),
                None => text.push_str(&checked(names::value(name, scope.facts, scope.node)?)?),
            },
            Piece::Each { others, body, between } => {
                let nodes = roster(scope.facts)?.iter();
                let nodes = nodes.filter(|node| !others || node.rank != scope.facts.formed.rank);
                for (index, node) in nodes.enumerate() {
                    if index > 0 {
                        render(between, scope, text)?;
                    }
                    render(body, Scope { node: Some(node), ..scope }, text)?;
                }
            }
        }
    }
    Ok(())
}

/// The value, if each part of its list is as plain as what a shell gets.
fn checked(value: String) -> Result<String, Unfit> {
    let is_safe = |part: &str| part.chars().all(is_plain) || is_bracketed(part);
    if value.split(',').all(is_safe) { Ok(value) } else { Err(UnsafeStatement(value).into()) }
}

#[cfg(test)]
mod tests;
