//! Standard output, and what litctl says beside it.

pub use litd_cli::output::{WIDTH, count, json, text, wrap, write};

/// Prints an error.
pub fn error(error: &dyn std::error::Error) {
    note(&error.to_string());
}

/// Tells the user something beside the output.
pub fn note(text: &str) {
    litd_cli::output::note("litctl", text);
}
