//! A walk over a message's bytes that counts what is in it and takes no memory. prost would make
//! 8 bytes of every byte of a packed column and 24 of every empty string; here what is too much
//! is refused before memory is taken for it.

use crate::error::WireError;
use crate::limits::{Limits, within};

/// The measure by which a field is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Elements of a column of numbers, packed or not.
    Elements,
    /// How often a text or message occurs.
    Occurrences,
    /// Bytes of a text or message, over all its occurrences.
    Bytes,
}

/// How much of a field there may be. One field may have several.
#[derive(Debug)]
pub(crate) struct Bound {
    /// The field's number in `ingest.proto`.
    pub field: u32,
    /// How an error calls it.
    pub what: &'static str,
    /// The measure.
    pub measure: Measure,
    /// How much there may be.
    pub limit: usize,
}

impl Bound {
    /// For a text, which a message has once.
    pub(crate) fn text(field: u32, what: &'static str, limits: &Limits) -> Self {
        Self {
            field,
            what,
            measure: Measure::Bytes,
            limit: limits.text_bytes,
        }
    }
}

/// Refuses a message in which there is more of a field than `bounds` allow.
pub(crate) fn check<const N: usize>(message: &[u8], bounds: &[Bound; N]) -> Result<(), WireError> {
    let mut found = [0_usize; N];
    for field in Fields(message) {
        let (number, value) = field?;
        for (bound, found) in bounds.iter().zip(&mut found) {
            if bound.field == number {
                *found = found.saturating_add(value.measured(bound.measure));
            }
        }
    }
    for (bound, found) in bounds.iter().zip(found) {
        within(bound.what, found, bound.limit)?;
    }
    Ok(())
}

/// The one member of a oneof (fields 1 to `last`) that a frame carries: its number and bytes;
/// `None` if it is of a kind that is not known here. protobuf would merge several: a frame has
/// one.
pub(crate) fn member(frame: &[u8], last: u32) -> Result<Option<(u32, &[u8])>, WireError> {
    let mut member = None;
    for field in Fields(frame) {
        let (number, value) = field?;
        if number > last {
            continue;
        }
        let Value::Bytes(bytes) = value else {
            return Err(WireError::Malformed("a number where a message belongs"));
        };
        if member.replace((number, bytes)).is_some() {
            return Err(WireError::Malformed("more than one message in a frame"));
        }
    }
    Ok(member)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed,
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn measured(self, measure: Measure) -> usize {
        match (measure, self) {
            (Measure::Elements, Value::Bytes(bytes)) => varints(bytes),
            (Measure::Elements, Value::Varint(_)) => 1,
            (Measure::Occurrences, Value::Bytes(_)) => 1,
            (Measure::Bytes, Value::Bytes(bytes)) => bytes.len(),
            // prost refuses these wire types there.
            _ => 0,
        }
    }
}

/// How many numbers a packed column has: a varint ends with its first byte below 128.
pub(crate) fn varints(packed: &[u8]) -> usize {
    packed.iter().filter(|&&byte| byte < 0x80).count()
}

/// The fields of a message, in order: number and value. Ends with the first error.
pub(crate) struct Fields<'a>(pub &'a [u8]);

const CUT: WireError = WireError::Malformed("it ends within a field");

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Value<'a>), WireError> {
        const KEY: WireError = WireError::Malformed("a field has an impossible number");
        let key = u32::try_from(self.varint()?).map_err(|_| KEY)?;
        let number = key >> 3;
        if number == 0 {
            return Err(KEY);
        }
        let value = match key & 7 {
            0 => self.varint().map(Value::Varint)?,
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| CUT)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            // Groups would nest; this protocol promises to have none.
            _ => return Err(WireError::Malformed("a field has a wire type out of use")),
        };
        Ok((number, value))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let (value, length) = varint(self.0)?;
        self.0 = &self.0[length..];
        Ok(value)
    }
}

/// The number at the head of `bytes`, and how many bytes it takes.
#[inline]
pub(crate) fn varint(bytes: &[u8]) -> Result<(u64, usize), WireError> {
    match bytes.first_chunk().map(|chunk| u64::from_le_bytes(*chunk)) {
        Some(word) if word & 0x80 == 0 => Ok((word & 0x7f, 1)),
        Some(word) if word & ENDS != ENDS => Ok(short_varint(word)),
        _ => long_varint(bytes),
    }
}

/// The bits that tell whether a number goes on after a byte.
const ENDS: u64 = 0x8080_8080_8080_8080;

/// The number that ends within the word, and how many bytes it takes. Columns have tens of
/// thousands of such numbers, and all bytes of one are taken at once.
#[inline]
fn short_varint(word: u64) -> (u64, usize) {
    let length = (!word & ENDS).trailing_zeros() / 8 + 1;
    let sevens = word & !ENDS & (u64::MAX >> (64 - 8 * length));
    // Seven bits of each byte move together: two, four, eight groups at a time.
    let pairs = (sevens & 0x007f_007f_007f_007f) | ((sevens & 0x7f00_7f00_7f00_7f00) >> 1);
    let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
    let eight = (fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4);
    (eight, length as usize)
}

/// A number of any length, and at the end of the bytes.
fn long_varint(bytes: &[u8]) -> Result<(u64, usize), WireError> {
    const LONG: WireError = WireError::Malformed("a number has more than 64 bits");
    let mut value = 0;
    for (k, &byte) in bytes.iter().enumerate() {
        let low = u64::from(byte & 0x7f);
        // The tenth byte holds the 64th bit alone.
        if k == 9 && byte > 1 {
            return Err(LONG);
        }
        value |= low << (7 * k);
        if byte < 0x80 {
            return Ok((value, k + 1));
        }
    }
    Err(CUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_type_is_walked() {
        let bytes = [
            0x08, 0x96, 0x01, // 1: varint 150
            0x11, 1, 2, 3, 4, 5, 6, 7, 8, // 2: 64 bits
            0x1a, 2, b'o', b'k', // 3: bytes
            0x25, 1, 2, 3, 4, // 4: 32 bits
        ];
        let fields: Result<Vec<_>, _> = Fields(&bytes).collect();
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Fixed),
            (3, Value::Bytes(b"ok")),
            (4, Value::Fixed),
        ];
        assert_eq!(fields.unwrap(), expected);
    }

    #[test]
    fn what_is_no_field_is_refused() {
        let malformed: [&[u8]; 6] = [
            &[0x08],                                                       // nothing follows
            &[0x0b, 0x0c],                                                 // a group
            &[0x00, 0x00],                                                 // number 0
            &[0x1a, 5, b'x'],                                              // ends early
            &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],          // 65 bits
            &[0x1a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, b'x'], // 2^64 - 1 bytes
        ];
        for bytes in malformed {
            let last = Fields(bytes).last();
            assert!(
                matches!(last, Some(Err(WireError::Malformed(_)))),
                "{bytes:?}"
            );
        }
        let largest = [8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(Fields(&largest).varint(), Ok(8));
        assert_eq!(Fields(&largest[1..]).varint(), Ok(u64::MAX));
    }

    #[test]
    fn numbers_are_the_same_in_whatever_follows_them() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for bits in (0..=64).cycle().take(65 * 50) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .rotate_left(17)
                | 1;
            let number = random.checked_shr(64 - bits).unwrap_or(0);
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(number, &mut bytes);
            let length = bytes.len();
            assert_eq!(varint(&bytes), Ok((number, length)));
            bytes.extend((random ^ number).to_be_bytes());
            bytes.push(0xff);
            assert_eq!(varint(&bytes), Ok((number, length)), "{bytes:x?}");
        }
    }

    #[test]
    fn split_and_unpacked_columns_add_up() {
        // Field 4: two packed of [1, 300], then one unpacked.
        let message = [0x22, 3, 1, 0xac, 2, 0x22, 3, 1, 0xac, 2, 0x20, 7];
        let bound = |limit| {
            [Bound {
                field: 4,
                what: "elements",
                measure: Measure::Elements,
                limit,
            }]
        };
        assert_eq!(check(&message, &bound(5)), Ok(()));
        assert_eq!(
            check(&message, &bound(4)),
            Err(WireError::Limit {
                what: "elements",
                found: 5,
                limit: 4
            })
        );
    }
}
