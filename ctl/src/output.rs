//! Standard output: colours on a terminal only, and no complaint when the reader of a pipe leaves.

use std::io::{self, ErrorKind, Write as _};

use serde::Serialize;

use crate::Outcome;

/// Prints text; its colours are removed on the way to what is no terminal.
pub fn text(text: &str) -> Outcome {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Prints one JSON document.
pub fn json(document: &impl Serialize) -> Outcome {
    text(&(serde_json::to_string_pretty(document)? + "\n"))
}

/// Prints an error. Where even that fails there is nobody to tell.
pub fn error(error: &dyn std::error::Error) {
    let _: io::Result<()> = writeln!(anstream::stderr(), "litctl: {error}");
}
