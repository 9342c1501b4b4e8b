//! The arguments of the program.

use crate::mutant::{self, Mutant};

const USAGE: &str = "\
usage: mingle-mutants [--seed N] [--only TEXT] [--quick] [--again] [FOLDER[,FOLDER]...[:COUNT]]...

FOLDER   of mingle-core/src: proto, wire, env, rdma; all four where none is given
COUNT    how many mutants are drawn from these folders; all where it is not given
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

/// Folders from which mutants are drawn together.
struct Group {
    folders: Vec<String>,
    count: usize,
}

impl Group {
    fn parse(text: &str) -> Option<Self> {
        let (folders, count) = match text.split_once(':') {
            Some((folders, count)) => (folders, count.parse().ok()?),
            None => (text, usize::MAX),
        };
        let folders: Vec<String> = folders.split(',').map(str::to_owned).collect();
        folders.iter().all(|folder| FOLDERS.contains(&folder.as_str())).then_some(Self { folders, count })
    }

    fn has(&self, name: &str) -> bool {
        self.folders
            .iter()
            .any(|folder| name.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/')))
    }
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
                group.folders.join(" and "),
                self.seed
            );
            chosen.extend(drawn);
        }
        if !self.only.is_empty() {
            chosen.retain(|mutant| self.only.iter().any(|text| mutant.key().contains(text.as_str())));
        }
        chosen
    }

    pub fn is_in_folders(&self, name: &str) -> bool {
        self.groups.iter().any(|group| group.has(name))
    }
}
