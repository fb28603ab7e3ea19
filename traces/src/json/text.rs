//! Pieces of JSON text: an object's fields, strings, numbers.

use std::borrow::Cow;

use super::number;
use super::scan::ValueScan;

/// The text breaks JSON's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The keys (without quotes) and values of an object's text, one level deep.
pub(crate) fn fields(text: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), Malformed>> {
    let mut rest = text.get(1..).unwrap_or_default().trim_ascii_start();
    let mut broken = false;
    std::iter::from_fn(move || {
        if broken || rest.first() == Some(&b'}') {
            return None;
        }
        let field = take_field(&mut rest);
        broken = field.is_none();
        Some(field.ok_or(Malformed))
    })
}

/// The fields of an object up to the first that is broken; none of what is no object.
#[cfg(feature = "formats")]
pub(crate) fn members(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let text = match text.first() {
        Some(b'{') => text,
        _ => b"{}",
    };
    fields(text).map_while(Result::ok)
}

/// Takes `"key": value` and the comma behind it.
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let key = take_value(rest)?;
    let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    *rest = rest
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii_start();
    let value = take_value(rest)?;
    *rest = rest.trim_ascii_start();
    match rest.strip_prefix(b",") {
        Some(behind) => *rest = behind.trim_ascii_start(),
        None if rest.first() == Some(&b'}') => {}
        None => return None,
    }
    Some((key, value))
}

fn take_value<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = ValueScan::default()
        .feed(rest)
        .filter(|&length| length > 0)?;
    let (value, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(value)
}

/// A string's text, or a bare word: writers put numbers in quotes now and then.
pub(crate) fn unquoted(value: &[u8]) -> &[u8] {
    value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value)
}

/// A whole number; one with a fraction is none, as a rank of 1.5 is neither 1 nor 2.
pub(crate) fn number_of<T: TryFrom<i64>>(value: &[u8]) -> Option<T> {
    T::try_from(number::whole(unquoted(value))?).ok()
}

/// The numbers in a list, or in a string that holds a list.
pub(crate) fn ranks_of(value: &[u8]) -> Vec<u32> {
    unquoted(value)
        .split(|byte| b"[](), \t".contains(byte))
        .filter_map(number_of)
        .collect()
}

/// A string without its escapes; what is no Unicode becomes the replacement character.
pub(crate) fn decoded(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return String::from_utf8_lossy(raw);
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&escape, behind)) = rest.split_first() else {
            break;
        };
        rest = behind;
        let plain = match escape {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => take_unicode(&mut rest),
            other => {
                bytes.push(other);
                continue;
            }
        };
        bytes.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// The character behind `\u`, which may take two escapes.
fn take_unicode(rest: &mut &[u8]) -> char {
    let Some(first) = take_hex(rest) else {
        return char::REPLACEMENT_CHARACTER;
    };
    let mut code = first;
    if (0xD800..0xDC00).contains(&first) {
        let mut ahead = rest.strip_prefix(b"\\u").unwrap_or_default();
        if let Some(second) = take_hex(&mut ahead).filter(|low| (0xDC00..0xE000).contains(low)) {
            *rest = ahead;
            code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        }
    }
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn take_hex(rest: &mut &[u8]) -> Option<u32> {
    let (digits, behind) = rest.split_at_checked(4)?;
    let code = digits.iter().try_fold(0, |code, &digit| {
        Some(code * 16 + char::from(digit).to_digit(16)?)
    })?;
    *rest = behind;
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_lose_their_escapes() {
        assert_eq!(
            decoded(br#"a\"b\\\/\u00e9\ud83d\ude00\n"#),
            "a\"b\\/\u{e9}\u{1F600}\n"
        );
        assert_eq!(decoded(br"\ud83d!\u12"), "\u{FFFD}!\u{FFFD}12");
    }

    #[test]
    fn process_group_ranks_are_a_list_in_a_string() {
        assert_eq!(ranks_of(br#""[0, 1, 12]""#), [0, 1, 12]);
        assert_eq!(ranks_of(b"[3,4]"), [3, 4]);
        assert_eq!(ranks_of(b"[1.5, -7, 2, ...]"), [2]);
    }
}
