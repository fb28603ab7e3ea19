//! Finds the pieces of a Kineto document that matter (its events, the rank, the base of its
//! clock) in a stream of bytes, holding no more of it than one event.

use std::io::{self, Read};

use memchr::memchr2;

use super::word::{self, Word};
use crate::window::Window;

/// The longest event that is read.
pub(crate) const EVENT_LIMIT: usize = 16 << 20;

/// A piece of the document.
pub(crate) enum Part<'a> {
    /// An element of `traceEvents` (or of a bare array of events).
    Event(&'a [u8]),
    /// The value of `distributedInfo`.
    DistributedInfo(&'a [u8]),
    /// The value of `baseTimeNanoseconds`.
    BaseTime(&'a [u8]),
}

/// Why the document could not be walked to its end.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The source failed.
    Source(io::Error),
    /// The document ends too early.
    Cut,
    /// This is no JSON.
    Unexpected(Option<u8>),
    /// One value exceeds [`EVENT_LIMIT`].
    TooLong,
}

/// Where in the document the walk is, or where it ended.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Elements of `traceEvents` seen.
    pub(crate) events: u64,
    /// Whether there was a list of events at all.
    pub(crate) has_events: bool,
    /// Whether the document says that a simulator wrote it.
    pub(crate) simulated: bool,
    /// The first few keys of the document.
    pub(crate) keys: Vec<String>,
}

/// Follows one JSON value through pieces of text.
#[derive(Debug, Default)]
pub(crate) struct ValueScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    bare: bool,
}

impl ValueScan {
    /// Reads on in `bytes`; the count of bytes up to the value's end, or `None` if it goes on.
    /// Inside a value the text is not judged: what matters is where it ends, and words such as
    /// `NaN`, which some profilers write, are let pass.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.in_string {
                at = self.string(bytes, at)?;
                if self.depth == 0 {
                    return Some(at);
                }
            }
            let byte = match self.depth {
                0 => self.outside(bytes, &mut at)?,
                // Within a container commas and blanks end nothing.
                _ => {
                    at += word::skip(bytes.get(at..)?, Word::nesting);
                    let &byte = bytes.get(at)?;
                    at += 1;
                    byte
                }
            };
            match byte {
                b'"' if self.bare => return Some(at - 1),
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 1 => self.depth -= 1,
                b'}' | b']' if self.depth == 1 => return Some(at),
                // A comma inside a container, or the end of a bare word.
                _ if self.depth == 0 => return Some(at - 1),
                _ => {}
            }
        }
    }

    /// Passes what lies outside of containers and strings, up to and with the byte that may end the value.
    fn outside(&mut self, bytes: &[u8], at: &mut usize) -> Option<u8> {
        loop {
            let &byte = bytes.get(*at)?;
            *at += 1;
            let blank = byte.is_ascii_whitespace();
            if STRUCTURAL[usize::from(byte)] || (self.bare && blank) {
                return Some(byte);
            }
            self.bare |= !blank;
        }
    }

    /// The place behind the string's closing quote.
    fn string(&mut self, bytes: &[u8], mut at: usize) -> Option<usize> {
        if self.escaped && at < bytes.len() {
            self.escaped = false;
            at += 1;
        }
        loop {
            let rest = bytes.get(at..)?;
            // Most strings are keys of a few bytes, for which a search in long steps takes longer to begin than to end.
            let near = word::first(rest).and_then(Word::in_string);
            match near.or_else(|| memchr2(b'"', b'\\', rest)) {
                None => return None,
                Some(found) if rest.get(found) == Some(&b'"') => {
                    self.in_string = false;
                    return Some(at + found + 1);
                }
                Some(found) if at + found + 1 == bytes.len() => {
                    self.escaped = true;
                    return None;
                }
                Some(found) => at += found + 2,
            }
        }
    }
}

/// The bytes that can change where a value ends.
static STRUCTURAL: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"\"{}[],";
    let mut i = 0;
    while i < marks.len() {
        table[marks[i] as usize] = true;
        i += 1;
    }
    table
};

/// Takes a member of an object, whose value is the scanner's next.
#[cfg(feature = "formats")]
type TakeMember<'a, R> = &'a mut dyn FnMut(&mut Scanner<R>, &[u8]) -> Result<(), ScanError>;

/// A walk through the document.
pub(crate) struct Scanner<R> {
    window: Window<R>,
    pub(crate) progress: Progress,
}

impl<R: Read> Scanner<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            window: Window::new(source),
            progress: Progress::default(),
        }
    }

    /// The offset of the next byte in the document.
    pub(crate) fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// How many bytes of the document were read.
    pub(crate) fn length(&self) -> u64 {
        self.window.length()
    }

    /// Whether the document holds nothing but blanks.
    pub(crate) fn is_empty(&self) -> bool {
        self.progress.keys.is_empty()
            && !self.progress.has_events
            && self.window.at == self.window.bytes().len()
    }

    /// Walks the whole document and hands out its parts.
    pub(crate) fn walk<E: From<ScanError>>(
        &mut self,
        mut take: impl FnMut(u64, Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Some writers on Windows begin with a byte order mark.
        if self.peek()? == Some(0xEF) {
            for mark in [0xEF, 0xBB, 0xBF] {
                self.expect(mark)?;
            }
        }
        match self.peek()? {
            Some(b'[') => self.events(&mut take)?,
            Some(b'{') => self.document(&mut take)?,
            other => return Err(ScanError::Unexpected(other).into()),
        }
        match self.peek()? {
            None => Ok(()),
            other => Err(ScanError::Unexpected(other).into()),
        }
    }

    /// The keys of the document's object.
    fn document<E: From<ScanError>>(
        &mut self,
        take: &mut impl FnMut(u64, Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{')?;
        if self.peek()? == Some(b'}') {
            return Ok(self.expect(b'}')?);
        }
        loop {
            if self.peek()? != Some(b'"') {
                return Err(self.unexpected());
            }
            let key = self.value()?.to_vec();
            self.expect(b':')?;
            let first = self.peek()?;
            let known = key.get(1..key.len() - 1).unwrap_or_default();
            if self.progress.keys.len() < 4 {
                let shown = known.get(..known.len().min(40)).unwrap_or_default();
                self.progress
                    .keys
                    .push(String::from_utf8_lossy(shown).into_owned());
            }
            match known {
                b"traceEvents" if first == Some(b'[') => self.events(take)?,
                b"distributedInfo" => {
                    let events = self.progress.events;
                    take(events, Part::DistributedInfo(self.value()?))?;
                }
                b"baseTimeNanoseconds" => {
                    let events = self.progress.events;
                    take(events, Part::BaseTime(self.value()?))?;
                }
                b"simulated" if first == Some(b't') => {
                    self.progress.simulated = true;
                    self.skip()?;
                }
                _ => self.skip()?,
            }
            match self.peek()? {
                Some(b',') => self.expect(b',')?,
                Some(b'}') => return Ok(self.expect(b'}')?),
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// Hands out the members of the next value, an object, by their keys (without quotes). The
    /// callee takes or skips each value. What is no object is skipped.
    #[cfg(feature = "formats")]
    pub(crate) fn members(&mut self, take: TakeMember<'_, R>) -> Result<(), ScanError> {
        if self.peek()? != Some(b'{') {
            return self.skip();
        }
        self.listed(b'{', b'}', &mut |scanner| {
            if scanner.peek()? != Some(b'"') {
                return Err(scanner.unexpected());
            }
            let key = scanner.value()?.to_vec();
            scanner.expect(b':')?;
            take(scanner, key.get(1..key.len() - 1).unwrap_or_default())
        })
    }

    /// Hands out the elements of the next value, a list; what is no list is skipped.
    #[cfg(feature = "formats")]
    pub(crate) fn elements(
        &mut self,
        take: &mut dyn FnMut(&mut Self) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        if self.peek()? != Some(b'[') {
            return self.skip();
        }
        self.listed(b'[', b']', take)
    }

    /// What stands between two brackets, with commas between.
    #[cfg(feature = "formats")]
    fn listed(
        &mut self,
        open: u8,
        close: u8,
        take: &mut dyn FnMut(&mut Self) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        self.expect(open)?;
        if self.peek()? == Some(close) {
            return self.expect(close);
        }
        loop {
            take(self)?;
            match self.peek()? {
                Some(b',') => self.expect(b',')?,
                Some(byte) if byte == close => return self.expect(close),
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// The elements of the list of events.
    fn events<E: From<ScanError>>(
        &mut self,
        take: &mut impl FnMut(u64, Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[')?;
        self.progress.has_events = true;
        if self.peek()? == Some(b']') {
            return Ok(self.expect(b']')?);
        }
        loop {
            let number = self.progress.events + 1;
            take(number, Part::Event(self.value()?))?;
            self.progress.events = number;
            match self.peek()? {
                Some(b',') => self.expect(b',')?,
                Some(b']') => return Ok(self.expect(b']')?),
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// What to say of the next byte: that it is wrong, or that there is none.
    fn unexpected<E: From<ScanError>>(&self) -> E {
        match self.window.bytes().get(self.window.at) {
            Some(&byte) => ScanError::Unexpected(Some(byte)),
            None => ScanError::Cut,
        }
        .into()
    }

    /// The next byte that is no blank, which is not taken.
    fn peek(&mut self) -> Result<Option<u8>, ScanError> {
        loop {
            match self.window.bytes().get(self.window.at) {
                Some(byte) if byte.is_ascii_whitespace() => self.window.at += 1,
                Some(&byte) => return Ok(Some(byte)),
                None => {
                    if !self.refill(self.window.at)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), ScanError> {
        match self.peek()? {
            Some(byte) if byte == wanted => {
                self.window.at += 1;
                Ok(())
            }
            Some(byte) => Err(ScanError::Unexpected(Some(byte))),
            None => Err(ScanError::Cut),
        }
    }

    /// Takes the next value, whole.
    pub(crate) fn value(&mut self) -> Result<&[u8], ScanError> {
        let first = self.peek()?;
        let mut start = self.window.at;
        let mut scan = ValueScan::default();
        let mut seen = start;
        let end = loop {
            if let Some(length) = scan.feed(self.window.bytes().get(seen..).unwrap_or_default()) {
                break seen + length;
            }
            if self.window.bytes().len() - start > EVENT_LIMIT {
                return Err(ScanError::TooLong);
            }
            seen = self.window.bytes().len() - start;
            if !self.refill(start)? {
                return Err(ScanError::Cut);
            }
            start = 0;
        };
        if end == start {
            return Err(ScanError::Unexpected(first));
        }
        self.window.at = end;
        Ok(self.window.bytes().get(start..end).unwrap_or_default())
    }

    /// Passes over the next value without holding it.
    pub(crate) fn skip(&mut self) -> Result<(), ScanError> {
        let first = self.peek()?;
        let mut scan = ValueScan::default();
        let from = self.offset();
        loop {
            if let Some(length) = scan.feed(self.window.rest()) {
                self.window.at += length;
                if self.offset() == from {
                    return Err(ScanError::Unexpected(first));
                }
                return Ok(());
            }
            self.window.at = self.window.bytes().len();
            if !self.refill(self.window.at)? {
                return Err(ScanError::Cut);
            }
        }
    }

    /// Reads more, from this byte on; `false` at the end of the document.
    fn refill(&mut self, keep: usize) -> Result<bool, ScanError> {
        self.window.refill(keep).map_err(ScanError::Source)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends(text: &str) -> Option<usize> {
        ValueScan::default().feed(text.as_bytes())
    }

    #[test]
    fn a_value_ends_where_json_says() {
        assert_eq!(ends(r#"{"a":"}\"]"},"#), Some(12));
        assert_eq!(ends("[1,[2,{}]] "), Some(10));
        assert_eq!(ends("-Infinity}"), Some(9));
        assert_eq!(ends("12 ,"), Some(2));
        assert_eq!(ends(r#""\\" "#), Some(4));
        assert_eq!(ends(r#"{"a":"#), None);
    }

    #[test]
    fn a_value_in_pieces_ends_in_the_same_place() {
        let text = br#"{"a\"":["\\",{"b":NaN}],"c":"x\u0041"}"#;
        for cut in 1..text.len() {
            let (head, tail) = text.split_at(cut);
            let mut scan = ValueScan::default();
            assert_eq!(scan.feed(head), None, "cut at {cut}");
            assert_eq!(scan.feed(tail), Some(tail.len()), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn a_value_ends_in_the_same_place_whether_one_byte_is_looked_at_or_many(
            text in "[\\[{]?[\"{}\\[\\],:\\\\ \n0aé]{0,60}"
        ) {
            let mut scan = ValueScan::default();
            let mut pieces = text.as_bytes().chunks(1).enumerate();
            let end = pieces.find_map(|(at, piece)| Some(at + scan.feed(piece)?));
            prop_assert_eq!(ends(&text), end);
        }
    }
}
