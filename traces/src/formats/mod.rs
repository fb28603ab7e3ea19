//! Every format that is read, told apart by what stands in the file, never by its name.

mod csv;
pub mod nccl_summary;
mod perfetto;
mod proto;
mod rocprof_csv;
mod rocprof_json;
mod sqlite;
mod xplane;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::ReadError;
use crate::gather::{Gathered, Trace};
use crate::kineto;
use crate::source::{HEAD, Packing, Source};

pub use perfetto::write_perfetto;

/// What wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// PyTorch's profiler, or another writer of Chrome's trace events: JSON.
    Kineto,
    /// rocprofv3 and rocprof-sys, and whatever else writes Perfetto's protobuf.
    Perfetto,
    /// rocprofv3's JSON.
    RocprofJson,
    /// rocprofv3's CSV of kernels or of memory copies.
    RocprofCsv,
    /// An SQLite file: rocprofv3's rocpd, rocmProfileData's .rpd, or Nsight Systems' export.
    Sqlite,
    /// XLA's profiler (JAX, TensorFlow): xplane.pb.
    Xplane,
}

impl Format {
    /// The format of a file that begins with these bytes (64 KiB or the whole file).
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        if head.starts_with(b"SQLite format 3\0") {
            return Some(Self::Sqlite);
        }
        let text = head.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(head);
        let text = text.trim_ascii_start();
        match text.first()? {
            b'{' if rocprof_json::wrote(text) => Some(Self::RocprofJson),
            b'{' | b'[' => Some(Self::Kineto),
            _ if rocprof_csv::wrote(text) => Some(Self::RocprofCsv),
            _ if xplane::wrote(head) => Some(Self::Xplane),
            _ if perfetto::wrote(head) => Some(Self::Perfetto),
            _ => None,
        }
    }
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

/// How a source begins once it is unpacked, for [`Format::of`]: 64 KiB, or all of it.
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
    read_ranks(source, path, file, rank.as_slice())
}

/// The same of a file of several GPUs to which the user gave ranks: as many, in the order of the
/// numbers of their devices. Of none the file tells.
///
/// # Errors
/// As of [`read`], and where the file holds more GPUs or fewer.
pub fn read_ranks(
    source: impl Read,
    path: Option<&Path>,
    file: &str,
    ranks: &[u32],
) -> Result<Trace, ReadError> {
    let io = |cause| ReadError::Io {
        file: file.into(),
        cause,
    };
    let mut source = Source::of(source).map_err(io)?;
    let packing = source.packing();
    let head = source.head();
    let Some(format) = Format::of(head) else {
        // An empty file, or one whose compression is damaged, is told of by whoever reads on.
        return if head.len() < HEAD && head.trim_ascii().is_empty() {
            kineto::read_source(source, file, ranks)
        } else {
            Err(unknown(head, file))
        };
    };
    let for_viewers = xplane::is_for_viewers(head);
    let found = match format {
        Format::Kineto => {
            let trace = kineto::read_source(source, file, ranks);
            return trace.map_err(|error| match error {
                ReadError::NoKernels { file, .. } if for_viewers => ReadError::NotKineto {
                    file,
                    what: "it is made for viewers of traces, with no word of what is a kernel; give the .xplane.pb beside it".into(),
                },
                error => error,
            });
        }
        Format::Perfetto => perfetto::read(source, file),
        Format::RocprofJson => rocprof_json::read(source, file),
        Format::RocprofCsv => rocprof_csv::read(source, file),
        Format::Xplane => xplane::read(source, file),
        Format::Sqlite => sqlite::read(source, path.filter(|_| packing == Packing::None), file),
    };
    found
        .map_err(|error| of_packing(error, packing))?
        .trace(file, ranks)
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

/// What is to be said of a file of no known format.
fn unknown(head: &[u8], file: &str) -> ReadError {
    let file = file.into();
    // Windows' shells write what they redirect so.
    let wide = head.starts_with(&[0xFF, 0xFE]) || head.starts_with(&[0xFE, 0xFF]);
    match () {
        () if wide => ReadError::Utf16 { file },
        () if crate::source::is_packed(head) => ReadError::PackedTwice { file },
        () => ReadError::UnknownFormat { file },
    }
}

/// What a reader has found.
struct Found {
    gathered: Gathered,
    /// How many records were read, kernels or not.
    events: u64,
    notes: Vec<String>,
}

impl Found {
    fn trace(self, file: &str, ranks: &[u32]) -> Result<Trace, ReadError> {
        if self.gathered.is_empty() {
            return Err(ReadError::NoKernels {
                file: file.into(),
                events: self.events,
            });
        }
        let trace = self.gathered.into_trace(file, ranks);
        let mut trace = trace.map_err(|fault| ReadError::of(fault, file))?;
        trace.notes.extend(self.notes);
        Ok(trace)
    }
}
