//! Reads a template.

use super::names;
use super::{InvalidTemplate, Piece, Template};

#[derive(Default)]
struct Parser {
    pieces: Vec<Piece>,
    names: Vec<String>,
    block: Option<Block>,
}

/// A block whose end has not come yet.
#[derive(Clone, Copy)]
struct Block {
    /// Where it begins in the text.
    begin: usize,
    others: bool,
    /// How many pieces are before it.
    first: usize,
    /// How many pieces are before what stands between two nodes.
    between: Option<usize>,
}

pub(super) fn parse(text: &str, is_lenient: bool) -> Result<Template, InvalidTemplate> {
    let mut parser = Parser::default();
    let mut at = 0;
    while let Some(brace) = text[at..].find(['{', '}']).map(|found| at + found) {
        let rest = &text[brace..];
        if !is_lenient && (rest.starts_with("{{") || rest.starts_with("}}")) {
            parser.text(&text[at..=brace]);
            at = brace + 2;
            continue;
        }
        let tag = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(tag, _)| tag);
        // In a word of a command `${host}` is a shell's variable.
        let is_shells = is_lenient && text[..brace].ends_with('$');
        let tag = tag.filter(|tag| !is_shells && !tag.contains(['{', '\n'])).unwrap_or_default();
        let end = brace + tag.len() + 2;
        let alone = alone(text, brace, end).filter(|_| BLOCK_TAGS.contains(&tag));
        let (before, next) = alone.unwrap_or((brace, end));
        parser.text(&text[at..before]);
        match parser.tag(tag, brace) {
            Ok(()) => at = next,
            Err(_) if is_lenient => {
                parser.text(&text[before..=brace]);
                at = brace + 1;
            }
            Err(what) => return Err(InvalidTemplate::at(&text[..brace], what)),
        }
    }
    parser.text(&text[at..]);
    match parser.block {
        Some(block) => {
            let what = "this block has no {end}; write {end} behind the text for each node";
            Err(InvalidTemplate::at(&text[..block.begin], what.to_owned()))
        }
        None => Ok(Template { pieces: parser.pieces, names: parser.names }),
    }
}

const BLOCK_TAGS: [&str; 4] = ["each node", "each other", "between", "end"];

impl Parser {
    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.pieces.push(Piece::Text(text.to_owned()));
        }
    }

    /// Takes what stands between two braces, or says why that is not possible there.
    fn tag(&mut self, tag: &str, begin: usize) -> Result<(), String> {
        let first = self.pieces.len();
        match (tag, &mut self.block) {
            ("", _) => {
                return Err("no placeholder begins or ends here; write {{ and }} for braces".to_owned());
            }
            ("each node" | "each other", block @ None) => {
                *block = Some(Block { begin, others: tag == "each other", first, between: None });
            }
            ("between", Some(Block { between: between @ None, .. })) => *between = Some(first),
            ("end", Some(Block { others, first, between, .. })) => {
                let mut body = self.pieces.split_off(*first);
                let between = between.map_or_else(Vec::new, |at| body.split_off(at - *first));
                self.pieces.push(Piece::Each { others: *others, body, between });
                self.block = None;
            }
            (tag, block) => {
                if !names::is_known(tag, block.is_some()) {
                    return Err(format!("{{{tag}}} means nothing here; there are {}", names::list()));
                }
                self.names.push(tag.to_owned());
                self.pieces.push(Piece::Value(tag.to_owned()));
            }
        }
        Ok(())
    }
}

/// Where the text goes on before and behind a tag that has its line for itself.
fn alone(text: &str, begin: usize, end: usize) -> Option<(usize, usize)> {
    let line_begin = text[..begin].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text.get(end..)?.find('\n').map_or(text.len(), |at| end + at + 1);
    let is_alone = text[line_begin..begin].trim().is_empty() && text[end..line_end].trim().is_empty();
    is_alone.then_some((line_begin, line_end))
}
