//! Answers of the first screen: short enough to be read in half a minute, whatever there is to say. What finds no room
//! follows below.

use serde::{Serialize, Serializer};

/// So many words are read in half a minute, with the figures in them.
const WORDS: usize = 100;
/// So many of these an answer keeps of its first sentence where all four are too long: verdict, how sure, next, cost.
const LEAST: [usize; 4] = [33, 18, 22, 16];
/// Labels of the answers.
const LABELS: [&str; 4] = ["verdict", "how sure", "next", "cost"];
/// The order in which answers get more room. The certainty is printed in full below anyway.
const ORDER: [usize; 4] = [0, 3, 2, 1];
const SURE: usize = 1;

/// An answer: a sentence that is always told, and others that follow where there is room.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    first: String,
    more: Vec<String>,
}

impl Answer {
    pub fn of(first: impl Into<String>) -> Self {
        Self {
            first: first.into(),
            more: Vec::new(),
        }
    }

    /// With another sentence, if there is one.
    pub fn and(mut self, sentence: impl Into<Option<String>>) -> Self {
        self.more.extend(sentence.into());
        self
    }

    pub fn with(mut self, sentences: impl IntoIterator<Item = String>) -> Self {
        self.more.extend(sentences);
        self
    }

    /// The same behind a sentence.
    pub fn behind(self, sentence: impl Into<String>) -> Self {
        Self::of(sentence).and(capital(&self.first)).with(self.more)
    }

    pub fn in_full(&self) -> String {
        let more = self.more.iter().map(|sentence| format!(" {sentence}"));
        self.first.clone() + &String::from_iter(more)
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.in_full())
    }
}

/// The part that fits the first screen.
pub struct Screen {
    /// The answers with what each answers.
    pub lines: [(&'static str, String); 4],
    /// Sentences that found no room.
    pub below: Vec<String>,
}

impl Screen {
    /// Of the answers in the order of [`LABELS`]; a screen that has some words already.
    pub fn of(answers: [&Answer; 4], taken: usize) -> Self {
        let room = WORDS.saturating_sub(taken);
        let labels = LABELS.iter().map(|label| words(label)).sum::<usize>();
        let mut below = Vec::new();
        let mut told = answers.map(|answer| answer.first.clone());
        let mut used = labels + told.iter().map(|first| words(first)).sum::<usize>();
        for at in ORDER.into_iter().rev() {
            let first = &mut told[at];
            if used > room && words(first) > LEAST[at] {
                below.push(format!("{}: {first}", LABELS[at]));
                used -= words(first);
                *first = cut(first, LEAST[at]);
                used += words(first);
            }
        }
        for at in ORDER {
            let (Some(answer), Some(told)) = (answers.get(at), told.get_mut(at)) else {
                continue;
            };
            let fits = answer.more.iter().take_while(|sentence| {
                let all = used + words(sentence);
                if all <= room {
                    used = all;
                }
                all <= room
            });
            let fits = fits.count();
            let (shown, rest) = answer.more.split_at(fits);
            shown.iter().for_each(|one| *told += &format!(" {one}"));
            if at != SURE && !rest.is_empty() {
                below.push(format!("{}: {}", LABELS[at], rest.join(" ")));
            }
        }
        let mut lines = LABELS.map(|label| (label, String::new()));
        for (line, told) in lines.iter_mut().zip(told) {
            line.1 = told;
        }
        Self { lines, below }
    }
}

/// How many words a text has, with one blank between each two.
pub(super) fn words(text: &str) -> usize {
    match text.trim() {
        "" => 0,
        text => text.matches(' ').count() + 1,
    }
}

/// The first words of a sentence, to the end of a clause where that leaves half of them.
fn cut(text: &str, most: usize) -> String {
    let first = Vec::from_iter(text.split_whitespace().take(most));
    let ends = |word: &&str| word.ends_with([',', ';', ':']);
    let clause = first.iter().rposition(ends).map(|last| last + 1);
    let kept = clause
        .filter(|kept| 2 * kept >= most)
        .unwrap_or(first.len());
    let first = first.get(..kept).unwrap_or_default().join(" ");
    format!("{}…", first.trim_end_matches([',', ';', ':']))
}

pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(words: usize) -> String {
        vec!["word"; words].join(" ")
    }

    #[test]
    fn a_screen_has_a_hundred_words_at_most_and_loses_none() {
        for lengths in [
            [10, 10, 10, 10],
            [30, 30, 30, 30],
            [200, 1, 300, 0],
            [90, 1, 1, 1],
        ] {
            for more in [0, 5, 40, 95] {
                for taken in [0, 6] {
                    let answers = lengths.map(|length| {
                        let other = (more > 0).then(|| sentence(more));
                        Answer::of(sentence(length)).and(other)
                    });
                    let [verdict, sure, next, cost] = &answers;
                    let screen = Screen::of([verdict, sure, next, cost], taken);
                    let lines = screen.lines.iter();
                    let shown = lines.map(|(label, told)| words(label) + words(told));
                    let shown = taken + shown.sum::<usize>();
                    assert!(shown <= 100, "{lengths:?} {more}: {shown}");
                    // How sure it is stands below in full.
                    for (at, answer) in answers.iter().enumerate().filter(|(at, _)| *at != SURE) {
                        let below = screen.below.iter().filter_map(|one| {
                            let (label, rest) = one.split_once(": ")?;
                            (label == LABELS[at]).then(|| words(rest))
                        });
                        let told = words(&screen.lines[at].1) + below.sum::<usize>();
                        assert!(told >= words(&answer.in_full()), "{lengths:?} {more} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_room_is_told_in_full() {
        let answers = [(); 4].map(|()| Answer::of("One.").and("Two.".to_owned()));
        let [verdict, sure, next, cost] = &answers;
        let screen = Screen::of([verdict, sure, next, cost], 0);
        assert!(screen.lines.iter().all(|(_, told)| told == "One. Two."));
        assert!(screen.below.is_empty());
    }
}
