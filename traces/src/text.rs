//! Names from files, made fit for a terminal.

/// The text with the replacement character for control characters: a name in a file must not be
/// able to forge lines of a message or send escape sequences to a terminal.
pub(crate) fn printable(text: &str) -> String {
    let plain = |c: char| match c.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    };
    text.chars().map(plain).collect()
}
