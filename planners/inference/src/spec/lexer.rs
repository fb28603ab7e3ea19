//! Words of the paper's lists, each with its place.

use super::{Place, SpecError};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name, dots included: `llm_model.EQS`.
    Name(String),
    /// The text between quotes.
    Text(String),
    Number(f64),
    /// A sign of `=[](),+-*/`.
    Sign(char),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word {
    pub token: Token,
    /// Of its first character; of a text: of the first between the quotes.
    pub place: Place,
    /// Whether a line ended between the last word and this one.
    pub first: bool,
}

/// The words of a text. `#` begins a comment; so does a number that counts lines as listings in print have.
pub(super) fn words(source: &str) -> Result<Vec<Word>, SpecError> {
    let mut words = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let letters: Vec<char> = line.chars().collect();
        let mut at = line_number(&letters);
        let mut first = true;
        while let Some(&letter) = letters.get(at) {
            let place = |at: usize| Place {
                line: number + 1,
                column: at + 1,
            };
            let begin = at;
            let token = match letter {
                '#' => break,
                _ if letter.is_whitespace() => {
                    at += 1;
                    continue;
                }
                '"' | '\'' => {
                    let rest = letters.get(at + 1..).unwrap_or_default();
                    let Some(length) = rest.iter().position(|it| *it == letter) else {
                        let what = "a text begins here and does not end on this line";
                        return Err(SpecError::at(source, place(at), what));
                    };
                    at += length + 2;
                    words.push(Word {
                        token: Token::Text(rest[..length].iter().collect()),
                        place: place(begin + 1),
                        first,
                    });
                    first = false;
                    continue;
                }
                '=' | '[' | ']' | '(' | ')' | ',' | '+' | '-' | '*' | '/' => {
                    at += 1;
                    Token::Sign(letter)
                }
                _ if letter.is_ascii_alphabetic() || letter == '_' => {
                    let part = |it: &char| it.is_ascii_alphanumeric() || "_.".contains(*it);
                    at += letters[at..].iter().take_while(|it| part(it)).count();
                    Token::Name(letters[begin..at].iter().collect())
                }
                _ if letter.is_ascii_digit() => {
                    let part = |it: &char| it.is_ascii_digit() || *it == '.';
                    at += letters[at..].iter().take_while(|it| part(it)).count();
                    let digits: String = letters[begin..at].iter().collect();
                    let number = digits.parse();
                    Token::Number(number.map_err(|_| {
                        SpecError::at(source, place(begin), format!("{digits:?} is no number"))
                    })?)
                }
                _ => {
                    let what = format!("{letter:?} has no meaning here");
                    return Err(SpecError::at(source, place(at), what));
                }
            };
            words.push(Word {
                token,
                place: place(begin),
                first,
            });
            first = false;
        }
    }
    Ok(words)
}

/// Where a line begins after the number that printed listings have before it.
fn line_number(letters: &[char]) -> usize {
    let blank = letters.iter().take_while(|it| it.is_whitespace()).count();
    let digits = letters[blank..]
        .iter()
        .take_while(|it| it.is_ascii_digit())
        .count();
    let after = letters.get(blank + digits..).unwrap_or_default();
    let name = after.iter().find(|it| !it.is_whitespace());
    let spaced = after.first().is_some_and(|it| it.is_whitespace());
    match digits > 0 && spaced && name.is_some_and(|it| it.is_ascii_alphabetic() || *it == ']') {
        true => blank + digits,
        false => 0,
    }
}
