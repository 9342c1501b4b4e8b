//! The arguments of the program.

use crate::mutant::{self, Mutant};

const USAGE: &str = "\
usage: mingle-mutants [--seed N] [--only TEXT] [--quick] [--again] [PATH[,PATH]...[:COUNT]]...

PATH     a folder or file of proto, wire, env or rdma in mingle-core/src; all four folders where none is given
COUNT    how many mutants are drawn from there; all where it is not given
--seed   decides which are drawn (14)
--only   of those drawn, the mutants whose name has this text; may be repeated
--quick  not the tests that take long
--again  tries the mutants in accepted.txt as well";

/// The folders of mingle-core/src that are mutated.
pub const FOLDERS: [&str; 4] = ["proto", "wire", "env", "rdma"];

pub struct Options {
    groups: Vec<Group>,
    pub seed: u64,
    only: Vec<String>,
    pub quick: bool,
    pub again: bool,
}

/// Folders and files from which mutants are drawn together.
struct Group {
    paths: Vec<String>,
    count: usize,
}

impl Group {
    fn parse(text: &str) -> Option<Self> {
        let (paths, count) = match text.split_once(':') {
            Some((paths, count)) => (paths, count.parse().ok()?),
            None => (text, usize::MAX),
        };
        let paths: Vec<String> = paths.split(',').map(|path| path.trim_end_matches('/').to_owned()).collect();
        let is_known = |path: &String| FOLDERS.iter().any(|folder| is_below(path, folder));
        paths.iter().all(is_known).then_some(Self { paths, count })
    }

    fn has(&self, file: &str) -> bool {
        self.paths.iter().any(|path| is_below(file, path))
    }
}

/// Whether this path is the other one or lies in it.
fn is_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Options {
    /// # Errors
    /// The usage of the program.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { groups: Vec::new(), seed: 14, only: Vec::new(), quick: false, again: false };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--seed" => options.seed = value()?.parse().map_err(|_| USAGE)?,
                "--only" => options.only.push(value()?),
                "--quick" => options.quick = true,
                "--again" => options.again = true,
                group => options.groups.push(Group::parse(group).ok_or(USAGE)?),
            }
        }
        if options.groups.is_empty() {
            options.groups.extend(Group::parse(&FOLDERS.join(",")));
        }
        Ok(options)
    }

    /// Draws from all mutants, and says how many.
    pub fn choose(&self, all: &[Mutant]) -> Vec<Mutant> {
        let mut chosen = Vec::new();
        for group in &self.groups {
            let here: Vec<Mutant> = all.iter().filter(|mutant| group.has(&mutant.file)).cloned().collect();
            let found = here.len();
            let drawn = mutant::draw(here, group.count, self.seed);
            println!(
                "{} of {found} mutants of {} drawn with seed {}",
                drawn.len(),
                group.paths.join(" and "),
                self.seed
            );
            chosen.extend(drawn);
        }
        if !self.only.is_empty() {
            chosen.retain(|mutant| self.only.iter().any(|text| mutant.key().contains(text.as_str())));
        }
        chosen
    }

    /// Whether the mutant of this name is in one of the groups.
    pub fn concerns(&self, name: &str) -> bool {
        let file = name.split(' ').next().unwrap_or_default();
        self.groups.iter().any(|group| group.has(file))
    }
}
