//! Every format that is read, told apart by what stands in the file, never by its name. A format is
//! a module and a line in `READERS`.

pub mod nccl_summary;
mod perfetto;
mod proto;
mod refused;
mod rocprof_json;
mod rocprof_v1;
mod sqlite;
mod tables;
mod xplane;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::ReadError;
use crate::gather::{Choice, Found, Trace};
use crate::json::scan::{EVENT_LIMIT, ScanError, Scanner};
use crate::kineto;
use crate::source::{HEAD, Packing, Source};

pub use perfetto::write_perfetto;

/// What writes and reads a format. Files of it begin in a way that no earlier reader takes.
struct Reader {
    /// The format, as the documentation calls it.
    name: &'static str,
    /// Whether a file that begins so is one.
    sniff: fn(&Head<'_>) -> bool,
    /// Reads the rest of it.
    read: fn(Input<'_>) -> Result<Found, ReadError>,
}

/// All formats, in the order in which they are tried.
#[rustfmt::skip]
const READERS: [Reader; 10] = [
    Reader { name: "SQLite", sniff: sqlite::wrote, read: sqlite::read },
    Reader { name: "rocprofv3's JSON", sniff: rocprof_json::wrote, read: rocprof_json::read },
    Reader { name: "rocprof's JSON", sniff: rocprof_v1::json::wrote, read: rocprof_v1::json::read },
    Reader { name: "XLA's JSON for viewers", sniff: xplane::is_for_viewers, read: xplane::read_for_viewers },
    Reader { name: "Kineto's JSON", sniff: is_json, read: |input| kineto::read_source(input.source, input.file) },
    Reader { name: "rocprofv3's CSV", sniff: tables::rocprofv3::wrote, read: tables::rocprofv3::read },
    Reader { name: "rocprof's CSV", sniff: tables::rocprof_v1::wrote, read: tables::rocprof_v1::read },
    Reader { name: "nsys stats' CSV", sniff: tables::nsys::wrote, read: tables::nsys::read },
    Reader { name: "xplane.pb", sniff: xplane::wrote, read: xplane::read },
    Reader { name: "Perfetto", sniff: perfetto::wrote, read: perfetto::read },
];

/// How a file begins.
struct Head<'a> {
    /// The first 64 KiB, or all.
    bytes: &'a [u8],
    /// The same without a byte order mark and without blanks before the first character.
    text: &'a [u8],
}

impl<'a> Head<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let text = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
        let text = text.trim_ascii_start();
        Self { bytes, text }
    }

    fn has(&self, word: &[u8]) -> bool {
        memchr::memmem::find(self.bytes, word).is_some()
    }
}

fn is_json(head: &Head<'_>) -> bool {
    matches!(head.text.first(), Some(b'{' | b'['))
}

/// A file that is to be read.
struct Input<'a> {
    source: Source<Box<dyn Read + 'a>>,
    /// Where it lies, if it is there as it is read.
    path: Option<&'a Path>,
    /// What it is called in messages.
    file: &'a str,
}

/// What the format is called of a file that begins with these bytes (64 KiB or the whole file).
#[must_use]
pub fn format_of(head: &[u8]) -> Option<&'static str> {
    Some(reader_of(head)?.name)
}

fn reader_of(head: &[u8]) -> Option<&'static Reader> {
    let head = Head::of(head);
    READERS.iter().find(|reader| (reader.sniff)(&head))
}

/// Reads the file at `path`, whatever its format, plain or compressed with gzip or zstd. `rank`
/// is the rank that the user gave it, if he did.
///
/// # Errors
/// Tells what is wrong with the file; see [`ReadError`].
pub fn read_file(path: &Path, rank: Option<u32>) -> Result<Trace, ReadError> {
    let file = path.display().to_string();
    match File::open(path) {
        Ok(source) => read(source, Some(path), &file, rank),
        Err(cause) => Err(ReadError::Io { file, cause }),
    }
}

/// How a source begins once it is unpacked, for [`format_of`]: 64 KiB, or all of it.
///
/// # Errors
/// The source can't be read.
pub fn head(source: impl Read) -> std::io::Result<Vec<u8>> {
    Ok(Source::of(source)?.head().to_vec())
}

/// Reads a trace of any format from any source. `path` is the file that the source reads, if it
/// reads one (SQLite needs it; without it the source is copied to a temporary file), `file`
/// names it in messages and may tell its rank.
///
/// # Errors
/// Tells what is wrong with the trace; see [`ReadError`].
pub fn read(
    source: impl Read,
    path: Option<&Path>,
    file: &str,
    rank: Option<u32>,
) -> Result<Trace, ReadError> {
    let choice = Choice {
        ranks: rank.as_slice(),
        ..Choice::default()
    };
    read_chosen(source, path, file, choice)
}

/// The same of a file of several GPUs of which the user chose some, or gave them ranks: as many, in
/// the order of the numbers of their devices.
///
/// # Errors
/// As of [`read`], and where the file holds more GPUs than ranks were given, or fewer, or none of
/// those chosen.
pub fn read_chosen<'a>(
    source: impl Read + 'a,
    path: Option<&'a Path>,
    file: &'a str,
    choice: Choice<'_>,
) -> Result<Trace, ReadError> {
    let io = |cause| ReadError::Io {
        file: file.into(),
        cause,
    };
    let source: Box<dyn Read + 'a> = Box::new(source);
    let mut source = Source::of(source).map_err(io)?;
    let packing = source.packing();
    let head = source.head();
    let read = match reader_of(head) {
        Some(reader) => reader.read,
        // An empty file, or one whose compression is damaged, is told of by whoever reads on.
        None if head.len() < HEAD && head.trim_ascii().is_empty() => {
            |input: Input<'_>| kineto::read_source(input.source, input.file)
        }
        None => return Err(refused::explain(head, file)),
    };
    let input = Input {
        source,
        path: path.filter(|_| packing == Packing::None),
        file,
    };
    let found = read(input).map_err(|error| of_packing(error, packing))?;
    found.trace(file, choice)
}

/// What is wrong with JSON after so many events.
fn json_error<R: Read>(
    error: ScanError,
    scanner: &Scanner<R>,
    file: &str,
    events: u64,
) -> ReadError {
    let file = file.to_owned();
    let offset = scanner.offset();
    match error {
        ScanError::Source(cause) => ReadError::Io { file, cause },
        ScanError::Cut | ScanError::Unexpected(None) => ReadError::CutJson {
            file,
            offset,
            events,
        },
        ScanError::Unexpected(Some(byte)) => ReadError::NotJson {
            file,
            offset,
            what: format!("'{}'", byte.escape_ascii()),
        },
        ScanError::TooLong => ReadError::EventTooLong {
            file,
            offset,
            limit: EVENT_LIMIT,
        },
    }
}

/// Tells of compressed data what the operating system would not.
fn of_packing(error: ReadError, packing: Packing) -> ReadError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match (error, packing.name()) {
        (ReadError::Io { file, cause }, Some(packing))
            if matches!(cause.kind(), InvalidData | InvalidInput | UnexpectedEof) =>
        {
            ReadError::BadPacking {
                file,
                packing,
                cause,
            }
        }
        (error, _) => error,
    }
}
