//! Python literals: lists, tuples, strings, numbers, `None` and booleans. They are parsed, never evaluated:
//! names, calls, operators and everything else that a Python file may hold is refused.

use std::iter::Peekable;
use std::str::Chars;

use super::{PlanError, Position};

/// Deeper nesting than this is no plan: its formats have three levels.
const MAX_DEPTH: usize = 16;
/// More values than these are no plan: 128 stages with 1024 microbatches have a third of it.
const MAX_VALUES: usize = 1 << 22;
/// A longer string is no name and no token.
const MAX_STRING: usize = 4096;

/// A literal, and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value {
    pub at: Position,
    pub what: What,
}

/// The kinds of literals. A list and a tuple mean the same.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    None,
    Bool(bool),
    Number(f64),
    Text(String),
    Sequence(Vec<Value>),
}

impl What {
    /// The kind's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Sequence(_) => "a list or tuple",
        }
    }
}

/// A file that holds one literal and comments.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Literal {
    pub value: Value,
    /// The text of each comment, without `#` and the white space around.
    pub comments: Vec<String>,
}

/// Parses a file that holds one literal.
///
/// # Errors
/// If it holds something else, or is nested too deeply; with the line and the column.
pub(super) fn parse(text: &str) -> Result<Literal, PlanError> {
    let mut parser = Parser::new(text);
    let value = parser.value(0)?;
    parser.skip_space();
    if let Some(other) = parser.peek() {
        return Err(parser.error(format!(
            "{other:?} after the plan's end: the file must hold one literal and nothing else"
        )));
    }
    Ok(Literal {
        value,
        comments: parser.comments,
    })
}

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    at: Position,
    values: usize,
    comments: Vec<String>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self {
            rest: text.chars().peekable(),
            at: Position { line: 1, column: 1 },
            values: 0,
            comments: Vec::new(),
        }
    }

    fn error(&self, what: impl Into<String>) -> PlanError {
        PlanError::at(self.at, what)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        match next {
            '\n' => {
                self.at.line += 1;
                self.at.column = 1;
            }
            _ => self.at.column += 1,
        }
        Some(next)
    }

    /// Skips white space, comments (which it keeps) and lines continued with a backslash.
    fn skip_space(&mut self) {
        while let Some(next) = self.peek() {
            match next {
                '#' => {
                    let mut comment = String::new();
                    while let Some(letter) = self.peek().filter(|letter| *letter != '\n') {
                        comment.push(letter);
                        self.next();
                    }
                    self.comments
                        .push(comment.trim_start_matches('#').trim().to_owned());
                }
                '\\' => {
                    let mut ahead = self.rest.clone();
                    ahead.next();
                    ahead.next_if_eq(&'\r');
                    if ahead.next() != Some('\n') {
                        return;
                    }
                    self.next();
                }
                ' ' | '\t' | '\r' | '\n' | '\u{c}' => {
                    self.next();
                }
                _ => return,
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, PlanError> {
        self.skip_space();
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error(format!("more than {MAX_VALUES} values are no plan")));
        }
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested more than {MAX_DEPTH} deep")));
        }
        let at = self.at;
        let what = match self.peek() {
            None => {
                return Err(self.error("the file ends where a value is expected"));
            }
            Some('[') => self.sequence(']', depth)?.0,
            Some('(') => {
                let (mut items, has_comma) = self.sequence(')', depth)?;
                // Brackets around a value without a comma are no tuple.
                if items.len() == 1
                    && !has_comma
                    && let Some(only) = items.pop()
                {
                    return Ok(only);
                }
                items
            }
            Some('\'' | '"') => return self.text(at),
            Some('0'..='9' | '+' | '-' | '.') => return self.number(at),
            Some('A'..='Z' | 'a'..='z' | '_') => return self.word(at),
            Some(other) => return Err(self.error(format!("{other:?} where a value is expected"))),
        };
        let what = What::Sequence(what);
        Ok(Value { at, what })
    }

    /// The items between brackets, and whether a comma stands after the last one.
    fn sequence(&mut self, end: char, depth: usize) -> Result<(Vec<Value>, bool), PlanError> {
        let began = self.at;
        self.next();
        let mut items = Vec::new();
        let mut has_comma = false;
        loop {
            self.skip_space();
            match self.peek() {
                None => {
                    return Err(self.error(format!(
                        "the file ends, but the bracket of {began} is still open"
                    )));
                }
                Some(next) if next == end => {
                    self.next();
                    return Ok((items, has_comma));
                }
                Some(',') if !items.is_empty() && !has_comma => {
                    self.next();
                    has_comma = true;
                }
                Some(next) if !items.is_empty() && !has_comma => {
                    return Err(
                        self.error(format!("{next:?} where a comma or {end:?} is expected"))
                    );
                }
                Some(_) => {
                    items.push(self.value(depth + 1)?);
                    has_comma = false;
                }
            }
        }
    }

    fn text(&mut self, at: Position) -> Result<Value, PlanError> {
        let quote = self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => {
                    return Err(PlanError::at(at, "the string has no end on its line"));
                }
                letter if letter == quote => break,
                Some('\\') => text.push(self.escaped()?),
                Some(letter) => text.push(letter),
            }
            if text.len() > MAX_STRING {
                return Err(PlanError::at(
                    at,
                    "the string is too long for a name or token",
                ));
            }
        }
        let what = What::Text(text);
        Ok(Value { at, what })
    }

    fn escaped(&mut self) -> Result<char, PlanError> {
        let letter = match self.next() {
            Some(letter @ ('\\' | '\'' | '"')) => letter,
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(kind @ ('x' | 'u')) => {
                let mut code = 0;
                for _ in 0..if kind == 'x' { 2 } else { 4 } {
                    let digit = self.next().and_then(|digit| digit.to_digit(16));
                    let digit =
                        digit.ok_or_else(|| self.error("a hexadecimal digit is missing"))?;
                    code = 16 * code + digit;
                }
                let letter = char::from_u32(code);
                letter.ok_or_else(|| self.error("the escape stands for no character"))?
            }
            _ => return Err(self.error("an escape that plans don't need")),
        };
        Ok(letter)
    }

    fn number(&mut self, at: Position) -> Result<Value, PlanError> {
        let mut text = String::new();
        while let Some(letter) = self.peek() {
            let is_sign =
                matches!(letter, '+' | '-') && (text.is_empty() || text.ends_with(['e', 'E']));
            if !(letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_') || is_sign) {
                break;
            }
            text.push(letter);
            self.next();
        }
        // An underscore may stand between two digits, and nowhere else.
        let mut letters = text.chars().collect::<Vec<_>>();
        let between = |at: usize| {
            let digit = |at: Option<usize>| {
                at.and_then(|at| letters.get(at))
                    .is_some_and(char::is_ascii_digit)
            };
            letters[at] != '_' || (digit(at.checked_sub(1)) && digit(Some(at + 1)))
        };
        let is_plain = (0..letters.len()).all(between);
        letters.retain(|letter| *letter != '_');
        let digits: String = letters.into_iter().collect();
        let decimal = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
        let number = digits.parse::<f64>().ok();
        let number =
            number.filter(|number| number.is_finite() && is_plain && digits.chars().all(decimal));
        match number {
            Some(number) => Ok(Value {
                at,
                what: What::Number(number),
            }),
            None => Err(PlanError::at(at, format!("{text:?} is no number"))),
        }
    }

    fn word(&mut self, at: Position) -> Result<Value, PlanError> {
        let mut word = String::new();
        while let Some(letter) = self.peek() {
            if !(letter.is_ascii_alphanumeric() || letter == '_') || word.len() > MAX_STRING {
                break;
            }
            word.push(letter);
            self.next();
        }
        let what = match word.as_str() {
            "None" => What::None,
            "True" => What::Bool(true),
            "False" => What::Bool(false),
            _ => {
                return Err(PlanError::at(
                    at,
                    format!("{word:?} is no literal: a plan is read, and never run"),
                ));
            }
        };
        Ok(Value { at, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        fn show(value: &Value) -> String {
            match &value.what {
                What::None => "-".into(),
                What::Bool(bool) => bool.to_string(),
                What::Number(number) => number.to_string(),
                What::Text(text) => format!("{text:?}"),
                What::Sequence(items) => {
                    format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" "))
                }
            }
        }
        match parse(text) {
            Ok(literal) => show(&literal.value),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn literals_are_read_however_they_are_written() {
        for (text, wanted) in [
            ("[]", "[]"),
            ("()", "[]"),
            ("(1)", "1"),
            ("(1,)", "[1]"),
            ("((('a')))", "\"a\""),
            (
                "[('forward', 1_410), [\"b\", -2.5e+1,],]",
                "[[\"forward\" 1410] [\"b\" -25]]",
            ),
            (
                "\u{feff}\r\n# one\r\n[ # two\n 1 \\\r\n, None, True,\n]\n\n",
                "[1 - true]",
            ),
            ("['it\\'s', 'a\\x41\\u00e9']", "[\"it's\" \"aAé\"]"),
            ("[.5, 5., 0, 00]", "[0.5 5 0 0]"),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
        }
        let literal = parse("[] # first\n## second \n").unwrap();
        assert_eq!(literal.comments, ["first", "second"]);
    }

    #[test]
    fn what_is_no_literal_is_refused_with_its_place() {
        for (text, wanted) in [
            ("", "line 1, column 1: the file ends where a value"),
            (
                "[1, 2",
                "line 1, column 6: the file ends, but the bracket of line 1, column 1",
            ),
            ("[1\n, 2)", "line 2, column 4: ')' where a comma or ']'"),
            ("[1 2]", "column 4: '2' where a comma"),
            ("[,]", "column 2: ',' where a value"),
            ("[1,,]", "column 4: ',' where a value"),
            ("['a' 'b']", "column 6: '\\'' where a comma"),
            ("[1] [2]", "column 5: '[' after the plan's end"),
            ("plan = []", "\"plan\" is no literal"),
            (
                "[__import__('os').system('true')]",
                "\"__import__\" is no literal",
            ),
            ("[1 + 1]", "'+' where a comma"),
            ("[x for x in (1,)]", "\"x\" is no literal"),
            ("[1e999]", "\"1e999\" is no number"),
            ("[nan]", "\"nan\" is no literal"),
            ("[0x10]", "\"0x10\" is no number"),
            ("[1__0]", "\"1__0\" is no number"),
            ("[-]", "\"-\" is no number"),
            ("['a\nb']", "line 1, column 2: the string has no end"),
            ("['\\N{DASH}']", "an escape that plans don't need"),
            ("{'a': 1}", "'{' where a value"),
            ("[b'a']", "\"b\" is no literal"),
        ] {
            assert!(shown(text).contains(wanted), "{text}: {}", shown(text));
        }
        let deep = "[".repeat(100_000);
        assert!(shown(&deep).contains("column 18: nested more than 16 deep"));
        let long = format!("['{}']", "a".repeat(10_000));
        assert!(shown(&long).contains("too long"));
    }
}
