//! The text of an answer, made fit for a terminal.

use hyper::StatusCode;
use litd_api::Problem;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ControlError;

/// Reads an answer, or why there is none.
pub fn read<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, ControlError> {
    let document = serde_json::from_slice(body).map(plain);
    if !status.is_success() {
        return Err(refusal(status, document.ok()));
    }
    let document: Value =
        document.map_err(|error| ControlError::Answer(format!("it is not JSON: {error}")))?;
    let theirs = document.pointer("/build/version").and_then(Value::as_str);
    let theirs = theirs.map_or_else(|| "another version".into(), |version| version.to_owned());
    T::deserialize(document).map_err(|error| {
        // The error may quote what it was given, and that is plain by now.
        ControlError::Answer(format!(
            "{error}; this program ({}) and litd ({theirs}) seem to differ in version: install both \
             from one release",
            env!("CARGO_PKG_VERSION")
        ))
    })
}

fn refusal(status: StatusCode, document: Option<Value>) -> ControlError {
    let problem = document.and_then(|document| serde_json::from_value::<Problem>(document).ok());
    let Some(Problem { error }) = problem else {
        return ControlError::Answer(format!("{status}, without a reason"));
    };
    ControlError::Refused(match status {
        StatusCode::FORBIDDEN => format!(
            "{error} (root and members of litd's admin group may change what litd does: try sudo)"
        ),
        _ => error,
    })
}

/// The document with the replacement character for what a terminal would not show as a letter:
/// names come from jobs, and no job may move a cursor, forge a line or turn its direction.
fn plain(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(letters(&text)),
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (letters(&name), plain(value)))
            .collect(),
        other => other,
    }
}

fn letters(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn visible(letter: char) -> char {
    let turns_direction = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_line = matches!(letter, '\u{2028}' | '\u{2029}');
    if letter.is_control() || turns_direction || ends_line {
        char::REPLACEMENT_CHARACTER
    } else {
        letter
    }
}

#[cfg(test)]
mod tests {
    use litd_api::Done;

    use super::*;

    fn done(status: u16, body: &str) -> Result<Done, ControlError> {
        read(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        let said = done(200, r#"{"message": "a\u001b[2J\u009bb\nc\u202ed\u007f é"}"#);
        let replaced = "a\u{fffd}[2J\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd} é";
        assert_eq!(said.unwrap().message, replaced);
        let refused = done(400, r#"{"error": "x\u001b]0;y"}"#).unwrap_err();
        assert_eq!(refused.to_string(), "x\u{fffd}]0;y");
    }

    #[test]
    fn strange_answers_are_errors() {
        let cases = [
            (200, "", "not JSON"),
            (200, "{", "not JSON"),
            (200, "[1]", "version"),
            (200, "{}", "message"),
            (500, "<html>", "500 Internal Server Error"),
            (404, r#"{"error": 7}"#, "404 Not Found"),
        ];
        for (status, body, said) in cases {
            let error = done(status, body).unwrap_err();
            assert!(!error.is_refusal(), "{body}: {error}");
            assert!(error.to_string().contains(said), "{body}: {error}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(done(200, &deep).is_err());
    }
}
