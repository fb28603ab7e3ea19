//! Texts from strangers.

use crate::error::WireError;

/// The text with the replacement character for control characters: it must not be able to forge
/// lines of a log or send escape sequences to a terminal. No copy where there are none.
pub(crate) fn printable(text: String) -> String {
    match text.contains(char::is_control) {
        true => text.replace(char::is_control, "\u{fffd}"),
        false => text,
    }
}

/// A text that names something: must not be empty, and is refused rather than altered, because
/// two names must not become one.
pub(crate) fn naming(what: &'static str, text: String) -> Result<String, WireError> {
    if text.is_empty() {
        return Err(WireError::Empty(what));
    }
    match text.contains(char::is_control) {
        true => Err(WireError::Control(what)),
        false => Ok(text),
    }
}
