//! Names from files, made fit for a terminal.

/// The text with the replacement character for control characters: a name in a file must not be
/// able to forge lines of a message, send escape sequences to a terminal or turn its direction.
#[must_use]
pub fn printable(text: &str) -> String {
    let plain = |c: char| match c {
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(plain).collect()
}
