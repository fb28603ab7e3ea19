//! rocprofv3's CSV of kernels (`*_kernel_trace.csv`) or of memory copies
//! (`*_memory_copy_trace.csv`). Columns are found by their names; their order has changed
//! between versions.

use std::io::{BufRead, BufReader, Read};

use super::{Found, csv};
use crate::error::ReadError;
use crate::gather::{Gathered, KernelText};
use crate::timeline::KernelClass;

/// Whether rocprofv3 wrote a text that begins like this.
pub(super) fn wrote(text: &[u8]) -> bool {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let has = |word: &[u8]| memchr::memmem::find(line, word).is_some();
    has(b"Start_Timestamp") && has(b"End_Timestamp") && (has(b"Kernel_Name") || has(b"Direction"))
}

/// Where the columns are.
struct Columns {
    name: usize,
    is_copy: bool,
    agent: Option<usize>,
    queue: Option<usize>,
    stream: Option<usize>,
    start: usize,
    end: usize,
}

impl Columns {
    fn of(header: &[String]) -> Option<Self> {
        let find = |name: &str| header.iter().position(|column| column.trim() == name);
        let (name, is_copy) = match find("Kernel_Name") {
            Some(at) => (at, false),
            None => (find("Direction")?, true),
        };
        let agent = find("Agent_Id").or_else(|| find("Destination_Agent_Id"));
        Some(Self {
            name,
            is_copy,
            agent,
            queue: find("Queue_Id"),
            stream: find("Stream_Id"),
            start: find("Start_Timestamp")?,
            end: find("End_Timestamp")?,
        })
    }
}

pub(super) fn read(source: impl Read, file: &str) -> Result<Found, ReadError> {
    let mut source = BufReader::new(source);
    // Some writers on Windows begin with a byte order mark.
    if source
        .fill_buf()
        .is_ok_and(|head| head.starts_with(&[0xEF, 0xBB, 0xBF]))
    {
        source.consume(3);
    }
    let io = |cause| ReadError::Io {
        file: file.into(),
        cause,
    };
    let damaged = |line: u64, what: String| ReadError::BadEvent {
        file: file.into(),
        what,
        event: line,
    };
    let mut record = Vec::new();
    csv::record(&mut source, &mut record).map_err(io)?;
    let columns = Columns::of(&record)
        .ok_or_else(|| damaged(1, "the header lacks a column of a kernel trace".into()))?;
    let mut gathered = Gathered::default();
    let mut line = 1;
    while csv::record(&mut source, &mut record).map_err(io)? {
        line += 1;
        let field = |at: usize| record.get(at).map_or("", |field| field.trim());
        if record.len() == 1 && field(0).is_empty() {
            continue;
        }
        let time = |at: usize| {
            let time = field(at).parse::<i64>();
            time.map_err(|_| damaged(line, format!("{:?} is no time in nanoseconds", field(at))))
        };
        let of = |at: Option<usize>| at.map_or("", field);
        let agent = of(columns.agent);
        let agent = agent.trim_start_matches(|c: char| !c.is_ascii_digit());
        let kernel = KernelText {
            name: field(columns.name),
            class: columns.is_copy.then_some(KernelClass::Copy),
            stream: &stream_label(of(columns.stream), of(columns.queue)),
            device: agent,
            start: time(columns.start)?,
            end: time(columns.end)?,
        };
        let taken = gathered.kernel(line, &kernel);
        taken.map_err(|fault| ReadError::of(fault, file))?;
    }
    Ok(Found {
        gathered,
        events: line - 1,
        notes: Vec::new(),
    })
}

/// rocprofv3 knows HIP's streams where it traced HIP, and has 0 for all where it did not; the
/// queue has to do then.
pub(super) fn stream_label(stream: &str, queue: &str) -> String {
    match stream {
        "" | "0" if !queue.is_empty() => format!("queue {queue}"),
        stream => stream.to_owned(),
    }
}
