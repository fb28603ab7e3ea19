//! Eight bytes of text that are looked at at once, for what is found a few bytes on.

/// Every byte's lowest bit, and its highest.
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;
/// What makes a bracket a brace.
const BRACE: u64 = LOW * 0x20;

/// Eight bytes of text, the first of them lowest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word(u64);

/// The first eight bytes of a text.
pub(super) fn first(bytes: &[u8]) -> Option<Word> {
    let chunk = bytes.first_chunk()?;
    Some(Word(u64::from_le_bytes(*chunk)))
}

/// How many bytes from the first on are known not to be what is looked for.
pub(super) fn skip(bytes: &[u8], find: impl Fn(Word) -> Option<usize>) -> usize {
    let mut at = 0;
    while let Some(word) = bytes.get(at..).and_then(first) {
        match find(word) {
            Some(found) => return at + found,
            None => at += size_of::<Word>(),
        }
    }
    at
}

impl Word {
    /// The place of the first quotation mark, bracket or brace.
    pub(super) fn nesting(self) -> Option<usize> {
        let braces = Self(self.0 | BRACE);
        place(self.is(b'"') | braces.is(b'{') | braces.is(b'}'))
    }

    /// The place of the first quotation mark or backslash.
    pub(super) fn in_string(self) -> Option<usize> {
        place(self.is(b'"') | self.is(b'\\'))
    }

    /// Has the highest bit of each byte set that is this one. Only bytes behind the first that is may be set wrongly.
    fn is(self, byte: u8) -> u64 {
        let zero = self.0 ^ (LOW * u64::from(byte));
        zero.wrapping_sub(LOW) & !zero & HIGH
    }
}

/// The place of the lowest byte that is set.
fn place(set: u64) -> Option<usize> {
    (set != 0).then(|| set.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_told_from_every_other_at_every_place() {
        // Neighbours of what is looked for, and bytes from the ends of their range.
        let others = *b"!#z|~\x00\x01\x02\x7F\x80\xFF";
        let checked = |text: [u8; 8]| {
            let word = first(&text).unwrap();
            let expected = |marks: &[u8]| text.iter().position(|byte| marks.contains(byte));
            assert_eq!(word.nesting(), expected(b"\"[]{}"), "{text:?}");
            assert_eq!(word.in_string(), expected(b"\"\\"), "{text:?}");
        };
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                for before in others {
                    for behind in others.into_iter().chain(*b"\"[]{}\\") {
                        let mut text = [before; 8];
                        text[at..].fill(behind);
                        text[at] = byte;
                        checked(text);
                    }
                }
            }
        }
    }

    #[test]
    fn text_is_skipped_up_to_what_is_looked_for_or_up_to_its_last_few_bytes() {
        let nesting = |text: &str| skip(text.as_bytes(), Word::nesting);
        assert_eq!(nesting("0,1,2,3,4,5,6,7,8] , 9 ,"), 17);
        assert_eq!(nesting("0,1,2,3,4,5,"), 8);
        assert_eq!(nesting("]"), 0);
    }
}
