//! The long help of --format, which lists the library's formats.

use std::fmt::Write as _;

use mingle_core::env::Format;

pub(super) fn help() -> String {
    let mut text = "Format of the result [default: sh]\n".to_owned();
    list(&mut text, "For eval:", |format| format.shell().is_some());
    list(&mut text, "For other programs:", |format| format.shell().is_none());
    text + "\n'template' fills in {rank}, {world}, {master}, {addr}, {endpoints} and others, and the text between \
            {each node} and {end} for each node.\n\nIf no world forms, the formats for eval make eval fail, \
            'json' is an object with an \"error\", and the other formats print nothing."
}

fn list(text: &mut String, title: &str, is_in: impl Fn(Format) -> bool) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{title}");
    for format in Format::all().filter(|format| is_in(*format)) {
        let _ = writeln!(text, "  {:<10} {}", format.name(), format.about());
    }
}
