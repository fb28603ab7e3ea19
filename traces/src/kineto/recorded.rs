//! Whole files, for the analysis of recorded traces. Only what the kernels need is held in memory, whatever the size of
//! the file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::collect::{Collected, Fault};
use crate::error::ReadError;
use crate::gather::{Choice, Found, Trace};
use crate::json::scan::{EVENT_LIMIT, ScanError, Scanner};
use crate::source::{Packing, Source};
use crate::text::printable;

/// Keys of which Kineto writes at least one.
const KEYS: [&str; 5] = [
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "traceName",
    "baseTimeNanoseconds",
];

/// How PyTorch is told to record kernels.
const ADVICE: &str = "with ProfilerActivity.CUDA among the activities of torch.profiler.profile";

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
    let choice = Choice {
        ranks: rank.as_slice(),
        ..Choice::default()
    };
    read_chosen(source, file, choice)
}

/// The same of a file of several GPUs of which the user chose some, or gave them ranks.
pub(crate) fn read_chosen(
    source: impl Read,
    file: &str,
    choice: Choice<'_>,
) -> Result<Trace, ReadError> {
    let source = Source::of(source).map_err(|cause| ReadError::Io {
        file: file.into(),
        cause,
    })?;
    read_source(source, file)?.trace(file, choice)
}

/// Reads a trace whose packing is known.
pub(crate) fn read_source(source: Source<impl Read>, file: &str) -> Result<Found, ReadError> {
    let packing = source.packing();
    let mut scanner = Scanner::new(source);
    let mut collected = Collected::default();
    let walked = scanner.walk(|event, part| collected.take(event, part));
    walked.map_err(|fault| explain(fault, file, packing, &scanner))?;
    let progress = &scanner.progress;
    let Collected {
        mut gathered,
        others,
        flows,
        host,
    } = collected;
    gathered.launches.extend(flows.launches());
    // Any tool may write a list of events; without kernels its keys tell that Kineto did, or what it records of a host.
    let told = progress.keys.iter().any(|key| KEYS.contains(&key.as_str()));
    let is_kineto = progress.has_events && (told || host || others.any());
    if gathered.is_empty() && !is_kineto {
        return Err(not_kineto(file, progress.has_events, &progress.keys));
    }
    gathered.simulated = progress.simulated;
    Ok(Found {
        other: others.in_words(),
        ..Found::new(gathered, progress.events, ADVICE)
    })
}

fn not_kineto(file: &str, has_events: bool, keys: &[String]) -> ReadError {
    let what = if keys.iter().any(|key| key == "rocprofiler-sdk-tool") {
        "it is rocprofv3's own JSON, which another reader takes (formats)".into()
    } else if keys.is_empty() || has_events {
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

fn explain<R: Read>(fault: Fault, file: &str, packing: Packing, scanner: &Scanner<R>) -> ReadError {
    let file = file.to_owned();
    let events = scanner.progress.events;
    let offset = scanner.offset();
    match fault {
        Fault::Content(fault) => ReadError::of(fault, &file),
        Fault::Scan(ScanError::TooLong) => ReadError::EventTooLong {
            file,
            offset,
            limit: EVENT_LIMIT,
        },
        Fault::Scan(ScanError::Source(cause)) => match (cause.kind(), packing.name()) {
            (io::ErrorKind::UnexpectedEof, Some(packing)) => ReadError::TruncatedPacking {
                file,
                packing,
                offset,
                events,
            },
            (io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput, Some(packing)) => {
                ReadError::CorruptPacking {
                    file,
                    packing,
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
