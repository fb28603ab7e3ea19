//! Reader of Kineto traces: the Chrome-trace JSON of PyTorch's profiler, plain or gzip.
//!
//! Only what the kernels need is held in memory, whatever the size of the file.

mod collect;
mod event;
mod kept;
mod number;
mod ranks;
mod scan;

use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::error::ReadError;
use crate::text::printable;
use crate::timeline::Timeline;
use collect::{Collected, Fault};
use scan::{EVENT_LIMIT, ScanError, Scanner};

/// What one file holds.
#[derive(Debug, Clone)]
pub struct Trace {
    /// A timeline per rank, in the order of the ranks.
    pub timelines: Vec<Timeline>,
    /// Whether the ranks are the file's own (or were given); if not, there is one timeline and
    /// its rank 0 is a guess.
    pub rank_known: bool,
    /// What the user should know, such as what was left out and why.
    pub notes: Vec<String>,
}

/// Reads the file at `path`. `rank` is the rank that the user gave it, if he did.
///
/// # Errors
/// Tells what is wrong with the file; see [`ReadError`].
pub fn read_file(path: &Path, rank: Option<u32>) -> Result<Trace, ReadError> {
    let file = path.display().to_string();
    match File::open(path) {
        Ok(source) => read(source, &file, rank),
        Err(cause) => Err(ReadError::Io { file, cause }),
    }
}

/// Reads a trace from any source. `file` names it in messages, and may tell its rank.
///
/// # Errors
/// Tells what is wrong with the trace; see [`ReadError`].
pub fn read(source: impl Read, file: &str, rank: Option<u32>) -> Result<Trace, ReadError> {
    let source = Source::of(source).map_err(|cause| ReadError::Io {
        file: file.into(),
        cause,
    })?;
    let gzip = matches!(source, Source::Gzip(_));
    let mut scanner = Scanner::new(source);
    let mut collected = Collected::default();
    let walked = scanner.walk(|event, part| collected.take(event, part));
    let events = scanner.progress.events;
    let result = walked.and_then(|()| {
        if collected.kernels.is_empty() {
            return Ok(None);
        }
        collected.simulated = scanner.progress.simulated;
        ranks::timelines(collected, file, rank).map(Some)
    });
    match result {
        Ok(Some(trace)) => Ok(trace),
        // Any tool may write a bare list of events; only kernels would tell that Kineto did.
        Ok(None) if scanner.progress.has_events && !scanner.progress.keys.is_empty() => {
            Err(ReadError::NoKernels {
                file: file.into(),
                events,
            })
        }
        Ok(None) => Err(not_kineto(file, &scanner.progress.keys)),
        Err(fault) => Err(explain(fault, file, gzip, &scanner)),
    }
}

/// A source whose first bytes were looked at.
type Peeked<R> = Chain<Cursor<Vec<u8>>, R>;

/// The document, whether it was compressed or not.
enum Source<R: Read> {
    Plain(Peeked<R>),
    // Several members one after the other are one document.
    Gzip(Box<MultiGzDecoder<BufReader<Peeked<R>>>>),
}

impl<R: Read> Source<R> {
    fn of(mut source: R) -> io::Result<Self> {
        let mut magic = Vec::new();
        source.by_ref().take(2).read_to_end(&mut magic)?;
        let gzip = magic == [0x1F, 0x8B];
        let source = Cursor::new(magic).chain(source);
        Ok(if gzip {
            let buffered = BufReader::with_capacity(64 << 10, source);
            Self::Gzip(Box::new(MultiGzDecoder::new(buffered)))
        } else {
            Self::Plain(source)
        })
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(into),
            Self::Gzip(source) => source.read(into),
        }
    }
}

fn not_kineto(file: &str, keys: &[String]) -> ReadError {
    let what = if keys.iter().any(|key| key == "rocprofiler-sdk-tool") {
        "it is rocprofv3's own JSON; record with PyTorch's profiler instead".into()
    } else if keys.is_empty() {
        "it holds no GPU kernel, and nothing tells that Kineto wrote it".into()
    } else {
        let keys = printable(&keys.join(", "));
        format!("it has no list of events (traceEvents); its first keys are {keys}")
    };
    ReadError::NotKineto {
        file: file.into(),
        what,
    }
}

fn explain<R: Read>(fault: Fault, file: &str, gzip: bool, scanner: &Scanner<R>) -> ReadError {
    let file = file.to_owned();
    let events = scanner.progress.events;
    let offset = scanner.offset();
    match fault {
        Fault::Kernel { event, name, what } => ReadError::BadKernel {
            file,
            what,
            event,
            kernel: name,
        },
        Fault::Value { event, what } => ReadError::BadEvent { file, what, event },
        Fault::Scan(ScanError::TooLong) => ReadError::EventTooLong {
            file,
            offset,
            limit: EVENT_LIMIT,
        },
        Fault::Scan(ScanError::Source(cause)) => match cause.kind() {
            io::ErrorKind::UnexpectedEof if gzip => ReadError::TruncatedGzip {
                file,
                offset,
                events,
            },
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput if gzip => {
                ReadError::CorruptGzip {
                    file,
                    offset,
                    cause,
                }
            }
            _ => ReadError::Io { file, cause },
        },
        Fault::Scan(ScanError::Unexpected(None)) if scanner.is_empty() => ReadError::Empty { file },
        Fault::Scan(ScanError::Unexpected(None) | ScanError::Cut) => ReadError::CutJson {
            file,
            offset: scanner.length(),
            events,
        },
        Fault::Scan(ScanError::Unexpected(Some(byte))) => ReadError::NotJson {
            file,
            offset,
            what: format!("'{}'", byte.escape_ascii()),
        },
    }
}
