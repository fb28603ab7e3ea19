//! rocprofv3's CSV of kernels (`*_kernel_trace.csv`) or of memory copies
//! (`*_memory_copy_trace.csv`). Columns are found by their names; their order has changed
//! between versions.

use std::io::{BufRead, BufReader, Read};

use super::{Found, csv};
use crate::error::ReadError;
use crate::gather::{Fault, Gathered, KernelText, shortened};
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

    /// Takes the kernel of a line.
    fn take(&self, record: &[String], line: u64, gathered: &mut Gathered) -> Result<(), Fault> {
        let field = |at: usize| record.get(at).map_or("", |field| field.trim());
        let time = |at: usize| {
            field(at).parse::<i64>().map_err(|_| Fault::Value {
                event: line,
                what: format!(
                    "{:?} is no time in nanoseconds: the file is damaged; copy or record it again",
                    shortened(field(at))
                ),
            })
        };
        let of = |at: Option<usize>| at.map_or("", field);
        let agent = of(self.agent);
        let kernel = KernelText {
            name: field(self.name),
            class: self.is_copy.then_some(KernelClass::Copy),
            stream: &stream_label(of(self.stream), of(self.queue)),
            device: agent.trim_start_matches(|c: char| !c.is_ascii_digit()),
            start: time(self.start)?,
            end: time(self.end)?,
        };
        gathered.kernel(line, &kernel)
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
    let width = record.len();
    let mut gathered = Gathered::default();
    let mut notes = Vec::new();
    let mut line = 1;
    loop {
        let end = csv::record(&mut source, &mut record).map_err(io)?;
        if end == csv::Record::None {
            break;
        }
        line += 1;
        if record.len() == 1 && record.iter().all(|field| field.trim().is_empty()) {
            continue;
        }
        let taken = match record.len() >= width {
            true => columns.take(&record, line, &mut gathered),
            false => Err(Fault::Value {
                event: line,
                what: format!(
                    "the line has {} fields, and the header {width}: the file is damaged; copy or record it again",
                    record.len()
                ),
            }),
        };
        match taken {
            // A recording or a copy that was stopped ends anywhere.
            Err(_) if end == csv::Record::Open && !gathered.is_empty() => notes.push(format!(
                "{file}: is cut in the middle of line {line}; what stands before is used"
            )),
            taken => taken.map_err(|fault| ReadError::of(fault, file))?,
        }
    }
    Ok(Found {
        gathered,
        events: line - 1,
        notes,
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
