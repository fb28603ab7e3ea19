//! Protocol buffers' wire format, read field by field without copying.

use std::io::{self, Read};

use crate::window::Window;

/// The longest message that is held in memory at once, in bytes.
pub(super) const MESSAGE_LIMIT: u64 = 64 << 20;

/// A field's value; a fixed-width number counts as its bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number; 0 for anything else.
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }

    /// The bytes; none for anything else.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Number(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }

    pub(super) fn text(self) -> std::borrow::Cow<'a, str> {
        // The check alone is faster than the one that may replace.
        let text = std::str::from_utf8(self.bytes());
        text.map_or_else(|_| String::from_utf8_lossy(self.bytes()), Into::into)
    }
}

/// The bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The fields of a message, each with its number. Ends at the first that is broken.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(&'a [u8]);

/// The fields of a message.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields(message)
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = take(&mut self.0);
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Malformed))
    }
}

#[inline(always)]
fn take<'a>(rest: &mut &'a [u8]) -> Option<(u32, Value<'a>)> {
    let (number, wire) = key(rest)?;
    let value = match wire {
        0 => Value::Number(varint(rest)?),
        1 => {
            let (bits, behind) = rest.split_first_chunk::<8>()?;
            *rest = behind;
            Value::Number(u64::from_le_bytes(*bits))
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (bytes, behind) = rest.split_at_checked(length)?;
            *rest = behind;
            Value::Bytes(bytes)
        }
        5 => {
            let (bits, behind) = rest.split_first_chunk::<4>()?;
            *rest = behind;
            Value::Number(u32::from_le_bytes(*bits).into())
        }
        // Groups, which nobody writes, and what is no field.
        _ => return None,
    };
    Some((number, value))
}

/// A field's number, which is not 0, and how it is written.
#[inline]
fn key(rest: &mut &[u8]) -> Option<(u32, u32)> {
    let key = u32::try_from(varint(rest)?).ok()?;
    (key >= 8).then_some((key >> 3, key & 7))
}

/// A number of seven bits per byte. Most have one byte, and so have most keys.
#[inline]
pub(super) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let (&first, behind) = rest.split_first()?;
    if first < 0x80 {
        *rest = behind;
        return Some(first.into());
    }
    long_varint(rest)
}

fn long_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (at, &byte) in rest.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            // The tenth has room for one bit.
            *rest = rest.get(at + 1..)?;
            return (at < 9 || byte < 2).then_some(number);
        }
    }
    None
}

/// What a field of a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Number(u64),
    /// So many bytes, which are still to be taken or passed over.
    Bytes(u64),
}

/// Why a stream of messages ends early.
#[derive(Debug)]
pub(super) enum StreamError {
    Source(io::Error),
    /// The bytes stop in the middle of something.
    Cut,
    Malformed,
    /// One message exceeds [`MESSAGE_LIMIT`].
    TooLong,
}

impl From<Malformed> for StreamError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// A message of any length, of which little is held.
pub(super) struct Stream<R>(Window<R>);

impl<R: Read> Stream<R> {
    pub(super) fn new(source: R) -> Self {
        Self(Window::new(source))
    }

    /// The offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// The next field before the offset `until`; `None` there, or at the end of the stream.
    pub(super) fn next(&mut self, until: u64) -> Result<Option<(u32, Next)>, StreamError> {
        if self.offset() >= until {
            return Ok(None);
        }
        // A key and a number take at most 15 bytes.
        self.fill(20)?;
        let window = self.0.rest();
        if window.is_empty() {
            return Ok(None);
        }
        let mut rest = window;
        let field = head(&mut rest).ok_or(match self.0.ended && window.len() < 20 {
            true => StreamError::Cut,
            false => StreamError::Malformed,
        })?;
        let taken = window.len() - rest.len();
        self.0.at += taken;
        match field.1 {
            Next::Bytes(length) if length > until.saturating_sub(self.offset()) => {
                Err(StreamError::Malformed)
            }
            _ => Ok(Some(field)),
        }
    }

    /// Takes so many bytes at once.
    pub(super) fn take(&mut self, length: u64) -> Result<&[u8], StreamError> {
        if length > MESSAGE_LIMIT {
            return Err(StreamError::TooLong);
        }
        let length = length as usize;
        self.fill(length)?;
        if self.0.rest().len() < length {
            return Err(StreamError::Cut);
        }
        let at = self.0.at;
        self.0.at += length;
        Ok(self.0.bytes().get(at..at + length).unwrap_or_default())
    }

    /// Passes over so many bytes.
    pub(super) fn skip(&mut self, mut length: u64) -> Result<(), StreamError> {
        while length > 0 {
            self.fill(1)?;
            let held = self.0.rest().len();
            if held == 0 {
                return Err(StreamError::Cut);
            }
            let step = usize::try_from(length).map_or(held, |length| length.min(held));
            self.0.at += step;
            length -= step as u64;
        }
        Ok(())
    }

    /// Holds so many bytes, or all that there are.
    fn fill(&mut self, wanted: usize) -> Result<(), StreamError> {
        while self.0.rest().len() < wanted && !self.0.ended {
            let keep = self.0.at;
            self.0.refill(keep).map_err(StreamError::Source)?;
        }
        Ok(())
    }
}

/// A key, and a number or a length.
fn head(rest: &mut &[u8]) -> Option<(u32, Next)> {
    let (number, wire) = key(rest)?;
    let next = match wire {
        0 => Next::Number(varint(rest)?),
        1 => Next::Bytes(8),
        2 => Next::Bytes(varint(rest)?),
        5 => Next::Bytes(4),
        _ => return None,
    };
    Some((number, next))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::{decode_varint, encode_varint};

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_as_others_read_them(number in any::<u64>(), bits in 0..64_u32, junk in any::<[u8; 12]>()) {
            let mut bytes = Vec::new();
            encode_varint(number >> bits, &mut bytes);
            bytes.push(7);
            let mut rest = &bytes[..];
            prop_assert_eq!(varint(&mut rest), Some(number >> bits));
            prop_assert_eq!(rest, &[7][..]);
            let (mut ours, mut theirs) = (&junk[..], &junk[..]);
            let (read, expected) = (varint(&mut ours), decode_varint(&mut theirs).ok());
            prop_assert_eq!(read, expected);
            if read.is_some() {
                prop_assert_eq!(ours, theirs);
            }
        }
    }
}
