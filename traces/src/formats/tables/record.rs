//! Comma-separated values: quoted fields, doubled quotes, line ends within quotes.

use std::io::{self, BufRead};

/// The longest record, in bytes; kernel names reach 5,000.
const RECORD_LIMIT: usize = 1 << 20;

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::formats) enum Record {
    /// A record with the end of its line.
    Whole,
    /// A record behind which the file ends without one: it may be cut.
    Open,
    /// None: the file ends.
    None,
}

/// Reads the next record into `fields`.
pub(in crate::formats) fn record(
    source: &mut impl BufRead,
    fields: &mut Vec<String>,
) -> io::Result<Record> {
    let mut line = Vec::new();
    loop {
        let room = (RECORD_LIMIT - line.len()) as u64 + 1;
        let read = io::Read::take(&mut *source, room).read_until(b'\n', &mut line)?;
        if line.len() > RECORD_LIMIT {
            let what = format!("a record takes more than {RECORD_LIMIT} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let open = line.iter().filter(|&&byte| byte == b'"').count() % 2 == 1;
        if !open || read == 0 {
            break;
        }
    }
    if line.is_empty() {
        return Ok(Record::None);
    }
    fields.clear();
    fields.extend(split(&line));
    Ok(match line.ends_with(b"\n") {
        true => Record::Whole,
        false => Record::Open,
    })
}

fn split(line: &[u8]) -> Vec<String> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut fields = Vec::new();
    let mut field = Vec::new();
    let mut quoted = false;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                fields.push(String::from_utf8_lossy(&field).into_owned());
                field.clear();
            }
            other => field.push(other),
        }
    }
    fields.push(String::from_utf8_lossy(&field).into_owned());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_commas_and_line_ends_within_quotes_are_kept() {
        let text = b"a,\"b,\"\"c\"\"\",d\r\n\"two\nlines\",,\nlast";
        let mut source = &text[..];
        let mut fields = Vec::new();
        let mut all = Vec::new();
        let mut ends = Vec::new();
        loop {
            ends.push(record(&mut source, &mut fields).unwrap());
            match ends.last() {
                Some(Record::None) => break,
                _ => all.push(fields.clone()),
            }
        }
        let kinds = [Record::Whole, Record::Whole, Record::Open, Record::None];
        assert_eq!(ends, kinds);
        assert_eq!(
            all,
            [
                vec!["a", "b,\"c\"", "d"],
                vec!["two\nlines", "", ""],
                vec!["last"]
            ]
        );
    }
}
