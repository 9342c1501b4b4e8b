//! The copy of the project that holds all mutants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::find;
use crate::mutant::{self, Mutant};
use crate::names::Names;
use crate::options::FOLDERS;

const SOURCES: &str = "mingle-core/src";

/// The mutants in a written file: the bytes of each, and its number.
pub type Places = Vec<(Range<usize>, usize)>;

/// The sources of mingle-core.
pub struct Sources {
    texts: BTreeMap<String, String>,
}

impl Sources {
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut texts = BTreeMap::new();
        for file in tracked(root)? {
            if let Some(name) = file.strip_prefix(SOURCES).and_then(|name| name.strip_prefix('/'))
                && is_rust(name)
            {
                texts.insert(name.to_owned(), fs::read_to_string(root.join(&file))?);
            }
        }
        Ok(Self { texts })
    }

    /// All mutants of the folders that are mutated.
    ///
    /// # Errors
    /// If a file is not Rust, with its name.
    pub fn mutants(&self) -> Result<Vec<Mutant>, String> {
        let mut names = Names::default();
        let mut for_tests = BTreeSet::new();
        for (file, text) in &self.texts {
            let parsed = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
            syn::visit::Visit::visit_file(&mut names, &parsed);
            let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            for item in &parsed.items {
                if let syn::Item::Mod(item) = item
                    && find::is_left_out(&item.attrs)
                {
                    for_tests.insert(format!("{folder}/{}.rs", item.ident));
                    for_tests.insert(format!("{folder}/{}/mod.rs", item.ident));
                    for_tests.insert(format!("{folder}/{}/", item.ident));
                }
            }
        }
        let mut found = Vec::new();
        for (file, text) in &self.texts {
            let is_wanted = FOLDERS.iter().any(|folder| file.starts_with(&format!("{folder}/")));
            let is_test =
                for_tests.iter().any(|name| file == name || name.ends_with('/') && file.starts_with(name));
            if is_wanted && !is_test {
                found.extend(find::mutants(file, text, &names).map_err(|error| format!("{file}: {error}"))?);
            }
        }
        mutant::number_equal_names(&mut found);
        Ok(found)
    }

    /// A file with mutants, and where each of them is in it.
    fn mutated(&self, file: &str, mutants: &BTreeMap<usize, Mutant>) -> (String, Places) {
        let text = &self.texts[file];
        let mut here: Vec<_> = mutants.iter().filter(|(_, mutant)| mutant.file == file).collect();
        // Mutants lie in one another like the code; the text of a mutated branch is the original.
        here.sort_by_key(|(number, mutant)| {
            (mutant.range.start, std::cmp::Reverse(mutant.range.end), **number)
        });
        let mut written = String::with_capacity(text.len() * 2);
        let mut places = Vec::new();
        let mut open: Vec<(usize, String, usize, usize)> = Vec::new();
        let mut at = 0;
        let mut close =
            |written: &mut String, at: &mut usize, (end, suffix, start, number): (_, String, _, _)| {
                written.push_str(&text[*at..end]);
                written.push_str(&suffix);
                *at = end;
                places.push((start..written.len(), number));
            };
        for (&number, mutant) in here {
            while open.last().is_some_and(|(end, ..)| *end <= mutant.range.start) {
                let last = open.pop().expect("one is open");
                close(&mut written, &mut at, last);
            }
            written.push_str(&text[at..mutant.range.start]);
            at = mutant.range.start;
            let (prefix, suffix) = mutant.wrap(number);
            let start = written.len();
            written.push_str(&prefix);
            open.push((mutant.range.end, suffix, start, number));
        }
        while let Some(last) = open.pop() {
            close(&mut written, &mut at, last);
        }
        written.push_str(&text[at..]);
        (written, places)
    }
}

/// The copy, in a folder of its own.
pub struct Tree {
    pub folder: PathBuf,
    /// For each file with mutants, by its path in the copy: where each mutant is.
    pub places: BTreeMap<String, Places>,
}

impl Tree {
    /// Copies the project without what the tests of mingle-core do not need.
    pub fn new(root: &Path, folder: PathBuf) -> io::Result<Self> {
        let mut kept = BTreeSet::new();
        for file in tracked(root)? {
            let is_other =
                ["fuzz/", "mingle-cli/", "mingle-bench/", "python/", "tests/mutants/", "tests/planted/"];
            if is_other.iter().any(|other| file.starts_with(other)) || !root.join(&file).is_file() {
                continue;
            }
            let bytes = match file.as_str() {
                "Cargo.toml" => alone(&fs::read_to_string(root.join(&file))?).into_bytes(),
                _ => fs::read(root.join(&file))?,
            };
            if !(file.starts_with(SOURCES) && is_rust(&file)) {
                write(&folder.join(&file), &bytes)?;
            }
            kept.insert(folder.join(file));
        }
        kept.insert(folder.join(SOURCES).join("mutant.rs"));
        remove_others(&folder, &kept)?;
        Ok(Self { folder, places: BTreeMap::new() })
    }

    /// Writes the sources with these mutants, by their numbers.
    pub fn write(&mut self, sources: &Sources, mutants: &BTreeMap<usize, Mutant>) -> io::Result<()> {
        self.places.clear();
        for file in sources.texts.keys() {
            let (mut written, places) = sources.mutated(file, mutants);
            if file == "lib.rs" {
                written.push_str("\npub(crate) mod mutant;\n");
            }
            let path = format!("{SOURCES}/{file}");
            write(&self.folder.join(&path), written.as_bytes())?;
            self.places.insert(path, places);
        }
        write(&self.folder.join(SOURCES).join("mutant.rs"), include_bytes!("switch.rs"))
    }
}

/// The manifest of a workspace of mingle-core alone, without lints: mutants may be odd.
fn alone(manifest: &str) -> String {
    let lines = manifest.lines().map(|line| match line {
        _ if line.starts_with("members =") => "members = [\"mingle-core\"]",
        _ if line.starts_with("default-members =") => "",
        "[workspace.lints.rust]" => {
            "[workspace.lints.rust]\narithmetic_overflow = \"allow\"\nunconditional_panic = \"allow\""
        }
        _ => line,
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn is_rust(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "rs")
}

/// The files of the project, new ones included.
fn tracked(root: &Path) -> io::Result<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_terminator('\0').map(str::to_owned).collect())
}

/// Writes a file if it would change: cargo builds again what is newer.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, bytes)
}

/// Removes files of an earlier copy.
fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) && path.file_name().is_none_or(|name| name != "Cargo.lock") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_with_all_its_mutants_is_still_rust() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let sources = Sources::read(&root).unwrap();
        let all = sources.mutants().unwrap();
        let mutants: BTreeMap<usize, Mutant> = all.into_iter().enumerate().collect();
        assert!(mutants.len() > 1000, "{} mutants", mutants.len());
        let mut count = 0;
        for file in sources.texts.keys() {
            let (text, places) = sources.mutated(file, &mutants);
            assert!(syn::parse_file(&text).is_ok(), "{file} with its mutants is no Rust:\n{text}");
            for (place, number) in &places {
                let switch = format!("crate::mutant::is({number})");
                assert!(
                    text[place.clone()].contains(&switch),
                    "mutant {number} is not where it is said to be"
                );
            }
            count += places.len();
        }
        assert_eq!(count, mutants.len());
    }
}
