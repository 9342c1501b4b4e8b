//! The characters that are safe in every shell.

/// Whether a character is in the safe alphabet: `A-Z a-z 0-9 _ . , : = / @ % + -`.
///
/// No shell gives any of these a meaning within single quotes, nor as a file name pattern after an unquoted
/// `eval` has split the text. `~` is not safe: zsh with EXTENDED_GLOB reads it as a pattern.
pub(in crate::env) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ',' | ':' | '=' | '/' | '@' | '%' | '+' | '-')
}

/// Whether a text is a variable's name in every shell: letters, digits and `_`, without a digit first.
pub(in crate::env) fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a value is an IPv6 address in brackets, such as `[fd00::1]` or `[fd00::1]:29500`.
pub(in crate::env) fn is_bracketed(value: &str) -> bool {
    let parts = value.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    parts.is_some_and(|(address, rest)| address.chars().chain(rest.chars()).all(is_plain))
}
