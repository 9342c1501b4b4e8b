//! The project's Markdown: blocks of code, code within a line, links and headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) struct Document {
    /// Below the root.
    pub(crate) path: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) spans: Vec<Span>,
    /// Destinations, with the line.
    pub(crate) links: Vec<(usize, String)>,
    /// The anchors of its headings.
    pub(crate) anchors: BTreeSet<String>,
}

/// A block of code.
pub(crate) struct Block {
    pub(crate) line: usize,
    /// The language of a fence; empty for an indented block.
    pub(crate) language: String,
    pub(crate) text: String,
}

/// Code within a line of text.
pub(crate) struct Span {
    pub(crate) line: usize,
    pub(crate) text: String,
    /// The anchor of the section that holds it.
    pub(crate) section: String,
    /// The column of the table that holds it, counted from 1; 0 outside of tables.
    pub(crate) column: usize,
}

/// All Markdown of the project, without files that were built or fetched.
pub(crate) fn documents() -> Vec<Document> {
    let (root, mut documents) = (root(), Vec::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).unwrap();
                documents.push(read(path.strip_prefix(&root).unwrap().to_str().unwrap(), &text));
            }
        }
    }
    documents.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(documents.len() >= 10, "not all documents were found");
    documents
}

fn read(path: &str, text: &str) -> Document {
    let (mut blocks, mut spans, mut links, mut anchors) = (vec![], vec![], vec![], BTreeMap::new());
    let (mut block, mut heading, mut cell, mut section) = (None, None, 0, String::new());
    for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = text[..place.start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                block = Some(Block { line, language, text: String::new() });
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(block.take()),
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let name = anchor(&heading.take().unwrap());
                section.clone_from(&name);
                *anchors.entry(name).or_insert(0) += 1;
            }
            Event::Start(Tag::TableHead | Tag::TableRow) | Event::End(TagEnd::Table) => cell = 0,
            Event::Start(Tag::TableCell) => cell += 1,
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push((line, dest_url.into_string()));
            }
            Event::Text(part) => {
                if let Some(block) = &mut block {
                    block.text.push_str(&part);
                } else if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::Code(code) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&code);
                }
                let section = section.clone();
                spans.push(Span { line, text: code.into_string(), section, column: cell });
            }
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    for (name, count) in anchors {
        names.extend((1..count).map(|again| format!("{name}-{again}")));
        names.insert(name);
    }
    Document { path: path.to_owned(), blocks, spans, links, anchors: names }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}
