//! Standard output: colours on a terminal only, and no complaint when the reader of a pipe leaves.

use std::io::{self, ErrorKind, Write as _};

pub use litd_units::count;
use serde::Serialize;

use crate::Outcome;

/// The width that tables and paragraphs keep to, so that a plain terminal shows them whole.
pub const WIDTH: usize = 80;

/// Prints text; its colours are removed on the way to what is no terminal.
///
/// # Errors
/// It can't be written. That the reader of a pipe has left is none.
pub fn text(text: &str) -> Outcome {
    match write(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// The same, for who wants to know that the reader has left.
///
/// # Errors
/// It can't be written.
pub fn write(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints one JSON document.
///
/// # Errors
/// As [`text`].
pub fn json(document: &impl Serialize) -> Outcome {
    text(&(serde_json::to_string_pretty(document)? + "\n"))
}

/// The text in lines of at most so many characters; only a longer word exceeds that.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Tells the user something beside the output, in the name of a program. Where even that fails there is
/// nobody to tell.
pub fn note(program: &str, text: &str) {
    let _: io::Result<()> = writeln!(anstream::stderr(), "{program}: {text}");
}
