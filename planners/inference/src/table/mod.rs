//! Measured tables, as they were published: kernels, collectives, layers and whole requests. The columns say
//! of which kind a table is; where they fit several kinds its file's name does, and otherwise it is refused.

mod columns;
mod kernels;
mod wholes;

use std::fmt;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use litd_units::{Millis, Watts};
use serde::Serialize;
use thiserror::Error;

use crate::gpu::Gpu;
use crate::kernel::{Kernel, Setting};
use columns::{Columns, Record};

pub use wholes::Request;

/// The kind of measurement in a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Matrix products: m, n, k.
    Gemm,
    /// Prefill attention.
    ContextAttention,
    /// Decode attention.
    GenerationAttention,
    /// Experts of a layer.
    Moe,
    /// All-reduce and other collectives; a column may name which.
    AllReduce,
    /// The operations of a layer other than attention, in Vidur's columns.
    Layer,
    /// Whole requests to an engine, in the ML.ENERGY leaderboard's columns.
    Request,
}

impl Kind {
    /// The kinds.
    pub const ALL: [Self; 7] = [
        Self::Gemm,
        Self::ContextAttention,
        Self::GenerationAttention,
        Self::Moe,
        Self::AllReduce,
        Self::Layer,
        Self::Request,
    ];

    /// The name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::ContextAttention => "context-attention",
            Self::GenerationAttention => "generation-attention",
            Self::Moe => "moe",
            Self::AllReduce => "all-reduce",
            Self::Layer => "layer",
            Self::Request => "request",
        }
    }

    /// The kind of this name, or by another name of it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = name.trim().to_lowercase().replace('_', "-");
        let by_name = Self::ALL.into_iter().find(|it| it.name() == plain);
        by_name.or(match plain.as_str() {
            "prefill-attention" | "attention-context" | "attn-context" => {
                Some(Self::ContextAttention)
            }
            "decode-attention" | "attention-generation" | "attn-generation" => {
                Some(Self::GenerationAttention)
            }
            "collective" | "collectives" | "nccl" | "allreduce" | "custom-allreduce"
            | "custom-all-reduce" | "all-gather" | "reduce-scatter" | "all-to-all" => {
                Some(Self::AllReduce)
            }
            "mlp" => Some(Self::Layer),
            _ => None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The subject of a row's measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// A kernel.
    Kernel(Kernel),
    /// Several kernels, one after the other.
    Layer(Vec<Kernel>),
    /// Requests to an engine in steady state.
    Request(Request),
}

/// A measured row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The line in the file, the head being line 1.
    pub line: u64,
    /// The subject that was measured.
    pub subject: Subject,
    /// The measured time. For requests: per output token.
    pub latency: Millis,
    /// The mean power, if it was measured. For requests: of all GPUs together.
    pub power: Option<Watts>,
    /// The power limit under which it was, if the table tells.
    pub limit: Option<Watts>,
    /// The multiprocessors that it was given, if the table tells.
    pub sms: Option<u32>,
    /// Rows of one group share a shape: they are held out together.
    pub group: String,
}

impl Row {
    /// Under which conditions it was measured.
    #[must_use]
    pub fn setting(&self) -> Setting {
        Setting {
            power_limit: self.limit,
            sms: self.sms,
            clock: None,
        }
    }
}

/// A measured table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The kind of all rows.
    pub kind: Kind,
    /// The rows, in the file's order.
    pub rows: Vec<Row>,
    /// Rows without a time, or of another GPU.
    pub skipped: usize,
}

/// Why a table can't be used.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TableError {
    #[error("can't be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("is Parquet, which is not read: convert it to CSV")]
    Parquet,
    #[error("has more than {} MiB: no measured table is so long", LONGEST >> 20)]
    TooLong,
    #[error("line {line}: {what}")]
    Line { line: u64, what: String },
    #[error("line {line}, column {column}: {what}")]
    Cell {
        line: u64,
        column: String,
        what: String,
    },
    #[error(
        "has columns of no known kind: {columns}; gemm needs m, n, k; attention batch_size, isl, num_heads, \
         num_key_value_heads, head_dim; moe num_tokens, hidden_size, inter_size, topk, num_experts; all-reduce num_gpus and \
         bytes or message_size, or num_workers and size; each latency_ms"
    )]
    Unknown { columns: String },
    #[error("may be {kinds} by its columns, and its file's name does not say which: give --kind")]
    Ambiguous { kinds: String },
    #[error(
        "is no table of kind {asked}: the column {column} is missing; its columns are those of {fitting}"
    )]
    Mismatch {
        asked: Kind,
        column: String,
        fitting: String,
    },
    #[error("has no row {0}")]
    Empty(String),
}

/// No table is longer when it is unpacked, bytes.
const LONGEST: u64 = 512 << 20;

/// Reads a table to its end: CSV, gzipped or not. `name` is its file's name, which says the kind where the
/// columns fit several; `kind` overrides it. Of requests only those on `gpu` are taken.
///
/// # Errors
/// It can't be read, is of no kind or of several, or a cell is not what its column says; the error tells
/// which line and column.
pub fn read(
    source: impl Read,
    name: &str,
    kind: Option<Kind>,
    gpu: &Gpu,
) -> Result<Table, TableError> {
    let text = text(source)?;
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_slice());
    let wrong = |error: &csv::Error| TableError::Line {
        line: error.position().map_or(1, csv::Position::line),
        what: "is no CSV in UTF-8".to_owned(),
    };
    let head = reader.headers().map_err(|error| wrong(&error))?.clone();
    let columns = Columns::new(&head);
    let kind = kind_of(&columns, name, kind)?;
    let mut table = Table {
        kind,
        rows: Vec::new(),
        skipped: 0,
    };
    for record in reader.records() {
        let record = record.map_err(|error| wrong(&error))?;
        let record = Record::new(&columns, &record)?;
        let row = match kind {
            Kind::Layer => wholes::layer(&record)?,
            Kind::Request => wholes::request(&record, gpu)?,
            _ => kernels::row(kind, &record)?,
        };
        match row {
            Some(row) => table.rows.push(row),
            None => table.skipped += 1,
        }
    }
    match table.rows.is_empty() {
        false => Ok(table),
        true if table.skipped == 0 => Err(TableError::Empty("below its head".to_owned())),
        true if kind == Kind::Request => Err(TableError::Empty(format!("of a {}", gpu.name))),
        true => Err(TableError::Empty("with a latency above zero".to_owned())),
    }
}

fn text(source: impl Read) -> Result<Vec<u8>, TableError> {
    let mut bytes = Vec::new();
    let whole = |from: &mut dyn Read, to: &mut Vec<u8>| -> Result<(), TableError> {
        let length = from.take(LONGEST + 1).read_to_end(to)?;
        match length as u64 > LONGEST {
            true => Err(TableError::TooLong),
            false => Ok(()),
        }
    };
    let mut source = source;
    whole(&mut source, &mut bytes)?;
    if bytes.starts_with(b"PAR1") {
        return Err(TableError::Parquet);
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        whole(&mut MultiGzDecoder::new(bytes.as_slice()), &mut unpacked)?;
        bytes = unpacked;
    }
    // Some programs write a mark of byte order before the head.
    if let Some(rest) = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]) {
        bytes = rest.to_vec();
    }
    Ok(bytes)
}

/// The kind by the columns, then by the file's name.
fn kind_of(columns: &Columns, name: &str, asked: Option<Kind>) -> Result<Kind, TableError> {
    let fits = |kind: &Kind| columns.missing(*kind).is_none();
    let fitting: Vec<Kind> = Kind::ALL.into_iter().filter(fits).collect();
    let list = |kinds: &[Kind]| {
        let names: Vec<&str> = kinds.iter().map(|it| it.name()).collect();
        match names.is_empty() {
            true => "no known kind".to_owned(),
            false => names.join(" or "),
        }
    };
    if let Some(asked) = asked {
        return match columns.missing(asked) {
            None => Ok(asked),
            Some(column) => Err(TableError::Mismatch {
                asked,
                column,
                fitting: list(&fitting),
            }),
        };
    }
    match fitting.as_slice() {
        [] => Err(TableError::Unknown {
            columns: columns.names(),
        }),
        [only] => Ok(*only),
        several => {
            let name = name.to_lowercase();
            let says = |kind: &&Kind| hints(**kind).iter().any(|it| name.contains(it));
            let said: Vec<&Kind> = several.iter().filter(says).collect();
            match said.as_slice() {
                [only] => Ok(**only),
                _ => Err(TableError::Ambiguous {
                    kinds: list(several),
                }),
            }
        }
    }
}

/// The parts of a file's name that hint at each kind.
fn hints(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Gemm => &["gemm", "matmul"],
        Kind::ContextAttention => &["context", "prefill", "ctx"],
        Kind::GenerationAttention => &["generation", "decode"],
        Kind::Moe => &["moe", "expert"],
        Kind::AllReduce => &["nccl", "rccl", "reduce", "collective"],
        Kind::Layer => &["mlp", "layer"],
        Kind::Request => &["mlenergy", "request"],
    }
}
