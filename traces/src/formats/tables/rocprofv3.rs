//! rocprofv3's CSV of kernels (`*_kernel_trace.csv`) or of memory copies
//! (`*_memory_copy_trace.csv`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Columns, End, has_line, place};
use crate::error::ReadError;
use crate::folder::copies_beside;
use crate::formats::{Head, Input};
use crate::gather::Found;
use crate::source::Source;
use crate::timeline::KernelClass;

/// How rocprofv3 is told to record kernels.
pub(in crate::formats) const ADVICE: &str = "with rocprofv3 --kernel-trace";

/// Numbers of calls below this one are told apart by their process.
const CALLS: u64 = 1 << 48;

/// The number that a call and what it put on a GPU have in common; each process of a file counts its
/// own, and 0 is none.
pub(in crate::formats) fn correlation(process: usize, number: u64) -> Option<u64> {
    let process = u64::try_from(process).ok()?.checked_mul(CALLS)?;
    (1..CALLS).contains(&number).then_some(process | number)
}

/// Whether rocprofv3 wrote a text that begins like this.
pub(in crate::formats) fn wrote(head: &Head<'_>) -> bool {
    let times: [&[u8]; 2] = [b"Start_Timestamp", b"End_Timestamp"];
    let with = |word| has_line(head.text, &[times[0], times[1], word]);
    with(b"Kernel_Name") || with(b"Direction")
}

fn columns(header: &[String]) -> Option<Columns> {
    let place = |name| place(header, name);
    let (name, is_copy) = match place("Kernel_Name") {
        Some(at) => (at, false),
        None => (place("Direction")?, true),
    };
    Some(Columns {
        name,
        start: place("Start_Timestamp")?,
        end: End::At(place("End_Timestamp")?),
        device: place("Agent_Id").or_else(|| place("Destination_Agent_Id")),
        sender: place("Source_Agent_Id"),
        gpu: |agent| agent.trim_start_matches(|c: char| !c.is_ascii_digit()),
        queue: place("Queue_Id"),
        stream: place("Stream_Id"),
        kernel: match is_copy {
            true => |name| (Some(KernelClass::Copy), name),
            false => |name| (None, name),
        },
    })
}

/// Whether a table can be read and has a line below its header.
fn has_rows(path: &Path) -> bool {
    /// More than a header has.
    const START: u64 = 1 << 16;
    // Opening what is no file may wait for ever.
    if !path.is_file() {
        return false;
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START).read_to_end(&mut start));
    let lines = start.split(|&byte| byte == b'\n');
    let lines = lines.filter(|line| !line.trim_ascii().is_empty());
    read.is_ok() && lines.count() > 1
}

/// With the copies that rocprofv3 has written beside it.
pub(in crate::formats) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    let copies = input.path.and_then(copies_beside);
    let mut found = super::read(input, columns, ADVICE)?;
    // A profiler that recorded none, or that was killed, leaves a file without rows.
    let copies = copies.filter(|path| !found.gathered.is_empty() && has_rows(path));
    if let Some(path) = copies {
        let file = path.display().to_string();
        let taken = read_copies(&path, &file).and_then(|copies| {
            let taken = found.gathered.absorb(&copies.gathered);
            taken.map_err(|fault| ReadError::of(fault, &file))?;
            found.notes.extend(copies.notes);
            found.events += copies.events;
            Ok(())
        });
        found.notes.push(match taken {
            Ok(()) => {
                format!("{file}: its copies count beside the kernels that were recorded with them")
            }
            Err(error) => left_out(&file, &error),
        });
    }
    Ok(found)
}

/// The copies by themselves: where one of them is damaged the kernels count without any.
fn read_copies(path: &Path, file: &str) -> Result<Found, ReadError> {
    let io = |cause| ReadError::Io {
        file: file.to_owned(),
        cause,
    };
    let source: Box<dyn Read> = Box::new(File::open(path).map_err(io)?);
    let input = Input {
        source: Source::of(source).map_err(io)?,
        path: None,
        file,
    };
    super::read(input, columns, ADVICE)
}

/// What a user is told of copies that can't be read.
fn left_out(file: &str, error: &ReadError) -> String {
    let why = match error {
        ReadError::BadEvent { what, event, .. } => format!("line {event}: {what}"),
        ReadError::BadKernel {
            what,
            event,
            kernel,
            ..
        } => format!("line {event}: {what} ({kernel})"),
        other => other.to_string(),
    };
    format!(
        "{file}: none of its copies count, and their time counts as idle, because one can't be read ({why})"
    )
}
