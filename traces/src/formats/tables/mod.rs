//! Tables of kernels as text: comma-separated values with a line of column names, whose order and
//! number change between versions. Each profiler's module says which columns are what.

pub(super) mod nsys;
pub(super) mod record;
pub(super) mod rocprof_v1;
pub(super) mod rocprofv3;

use std::io::{BufRead, BufReader};

use super::Input;
use crate::error::ReadError;
use crate::gather::{Fault, Found, Gathered, KernelText, shortened};
use crate::timeline::KernelClass;
use record::{Record, record};

/// So many lines may stand before the column names.
const PREAMBLE: usize = 50;

/// Where the columns of a table are, and what they mean.
struct Columns {
    name: usize,
    start: usize,
    end: End,
    /// The GPU's label, of what is in its column.
    device: Option<usize>,
    /// The same of what goes to the host, by the name.
    sender: Option<usize>,
    gpu: fn(&str) -> &str,
    queue: Option<usize>,
    stream: Option<usize>,
    /// The class and the name, of what is in the name's column.
    kernel: fn(&str) -> (Option<KernelClass>, &str),
}

/// How a table tells when a kernel ends.
enum End {
    At(usize),
    After(usize),
}

/// The place of a column.
fn place(header: &[String], name: &str) -> Option<usize> {
    header.iter().position(|column| column.trim() == name)
}

/// Whether the first lines of a text have one with all these words.
pub(super) fn has_line(head: &[u8], words: &[&[u8]]) -> bool {
    let mut lines = head.split(|&byte| byte == b'\n').take(PREAMBLE);
    lines.any(|line| {
        let has = |word: &&[u8]| memchr::memmem::find(line, word).is_some();
        words.iter().all(has)
    })
}

impl Columns {
    /// Takes the kernel of a line.
    fn take(&self, record: &[String], line: u64, gathered: &mut Gathered) -> Result<(), Fault> {
        let field = |at: usize| record.get(at).map_or("", |field| field.trim());
        let fault = |what: String| Fault::Value { event: line, what };
        let time = |at: usize| {
            field(at).parse::<i64>().map_err(|_| {
                fault(format!(
                    "{:?} is no time in nanoseconds: the file is damaged; copy or record it again",
                    shortened(field(at))
                ))
            })
        };
        let of = |at: Option<usize>| at.map_or("", field);
        let (class, name) = (self.kernel)(field(self.name));
        let to_host = || name.contains("DEVICE_TO_HOST");
        let device = self.sender.filter(|_| to_host()).or(self.device);
        let start = time(self.start)?;
        let end = match self.end {
            End::At(at) => time(at)?,
            End::After(length) => start
                .checked_add(time(length)?)
                .ok_or_else(|| fault("a kernel's end is not a time that fits".to_owned()))?,
        };
        let kernel = KernelText {
            name,
            class,
            stream: &stream_label(of(self.stream), of(self.queue)),
            device: (self.gpu)(of(device)),
            start,
            end,
        };
        gathered.kernel(line, &kernel)
    }
}

/// Reads a table whose columns `columns` knows once it has their names.
fn read(
    input: Input<'_>,
    columns: fn(&[String]) -> Option<Columns>,
    advice: &'static str,
) -> Result<Found, ReadError> {
    let mut found = Found::new(Gathered::default(), 0, advice);
    let file = input.file;
    let mut source = BufReader::new(input.source);
    let io = |cause| ReadError::Io {
        file: file.into(),
        cause,
    };
    // Some writers on Windows begin with a byte order mark.
    if source
        .fill_buf()
        .is_ok_and(|head| head.starts_with(&[0xEF, 0xBB, 0xBF]))
    {
        source.consume(3);
    }
    let mut fields = Vec::new();
    let mut line = 0;
    let columns = loop {
        let end = record(&mut source, &mut fields).map_err(io)?;
        line += 1;
        match columns(&fields) {
            Some(columns) => break columns,
            None if end == Record::None || line > PREAMBLE as u64 => {
                return Err(ReadError::BadEvent {
                    file: file.into(),
                    what: "the header lacks a column of a kernel trace".into(),
                    event: 1,
                });
            }
            None => {}
        }
    };
    let width = fields.len();
    let Found {
        gathered, notes, ..
    } = &mut found;
    let first = line;
    loop {
        let end = record(&mut source, &mut fields).map_err(io)?;
        if end == Record::None {
            break;
        }
        line += 1;
        if fields.len() == 1 && fields.iter().all(|field| field.trim().is_empty()) {
            continue;
        }
        let taken = match fields.len() >= width {
            true => columns.take(&fields, line, gathered),
            false => Err(Fault::Value {
                event: line,
                what: format!(
                    "the line has {} fields, and the header {width}: the file is damaged; copy or record it again",
                    fields.len()
                ),
            }),
        };
        match taken {
            // A recording or a copy that was stopped ends anywhere.
            Err(_) if end == Record::Open && !gathered.is_empty() => notes.push(format!(
                "{file}: is cut in the middle of line {line}; what stands before is used"
            )),
            taken => taken.map_err(|fault| ReadError::of(fault, file))?,
        }
    }
    found.events += line - first;
    Ok(found)
}

/// rocprofv3 knows HIP's streams where it traced HIP, and has 0 for all where it did not; the
/// queue has to do then.
pub(super) fn stream_label(stream: &str, queue: &str) -> String {
    match stream {
        "" | "0" if !queue.is_empty() => format!("queue {queue}"),
        stream => stream.to_owned(),
    }
}
