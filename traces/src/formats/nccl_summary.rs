//! A summary of collectives per rank, as AMD's TraceLens writes it (`nccl_summary_long.csv`):
//! durations without times. They tell who waits for whom: all ranks leave a collective together,
//! so the rank that spends least time in them is the one that arrives last.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use serde::Serialize;

use super::tables::record::{Record, record};
use crate::error::ReadError;
use crate::gather::few;
use crate::skew::ends_together;
use crate::source::Source;

/// No sum of durations is longer, in microseconds: thirty years.
const LONGEST: f64 = 1e15;
/// The most ranks in one summary.
const RANKS: usize = 1 << 16;

/// What a summary says of one rank.
#[derive(Debug, Clone, Serialize)]
pub struct RankWait {
    /// The rank.
    pub rank: u32,
    /// Time in synchronising collectives, in milliseconds.
    pub time_ms: f64,
    /// How many there were.
    pub count: u64,
    /// Time beyond that of the rank that has least, per collective, in milliseconds: by how much
    /// it arrives earlier.
    pub wait_ms: f64,
}

/// Who waits for whom.
#[derive(Debug, Clone, Serialize)]
pub struct Waits {
    /// The version of this format.
    pub schema: u32,
    /// The rank that arrives last; null on ties.
    pub straggler_rank: Option<u32>,
    /// The ranks, the one that waits most first.
    pub ranks: Vec<RankWait>,
}

impl Waits {
    /// What the two ranks wait that wait least, in milliseconds in each collective; of one rank that of it.
    #[must_use]
    pub fn least_two(&self) -> [f64; 2] {
        let mut last = self.ranks.iter().rev().map(|rank| rank.wait_ms);
        let least = last.next().unwrap_or(0.0);
        [least, last.next().unwrap_or(least)]
    }
}

/// Whether a file that begins like this is such a summary.
#[must_use]
pub fn wrote(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let has = |word: &[u8]| memchr::memmem::find(line, word).is_some();
    line.starts_with(b"rank,") && has(b"Collective name") && has(b"dur_sum")
}

/// Reads a summary; `None` if the source is something else.
///
/// # Errors
/// The source fails, or a number in it is none.
pub fn read(source: impl Read, file: &str) -> Result<Option<Waits>, ReadError> {
    let io = |cause| ReadError::Io {
        file: file.into(),
        cause,
    };
    let mut source = Source::of(source).map_err(io)?;
    if !wrote(source.head()) {
        return Ok(None);
    }
    let mut source = BufReader::new(source);
    let mut fields = Vec::new();
    record(&mut source, &mut fields).map_err(io)?;
    let column = |name: &str| fields.iter().position(|column| column == name);
    let columns = ["rank", "Collective name", "dur_sum", "operation_count"].map(column);
    let mut waits = BTreeMap::<u32, RankWait>::new();
    let mut line = 1;
    while record(&mut source, &mut fields).map_err(io)? != Record::None {
        line += 1;
        let field = |at: usize| columns[at].and_then(|at| fields.get(at)).map_or("", |f| f);
        let bad = |what: &str| ReadError::BadEvent {
            file: file.into(),
            what: format!("{what} is no number"),
            event: line,
        };
        if ends_together(field(1)).is_none() {
            continue;
        }
        let rank = field(0).parse().map_err(|_| bad("rank"))?;
        let micros = field(2).parse::<f64>().ok();
        let micros = micros.filter(|time| (0.0..LONGEST).contains(time));
        let micros = micros.ok_or_else(|| bad("dur_sum"))?;
        let count: u64 = field(3).parse().map_err(|_| bad("operation_count"))?;
        let of_rank = waits.entry(rank).or_insert(RankWait {
            rank,
            time_ms: 0.0,
            count: 0,
            wait_ms: 0.0,
        });
        of_rank.time_ms += micros / 1000.0;
        of_rank.count = of_rank.count.saturating_add(count);
        few(waits.len(), RANKS, "ranks").map_err(|what| ReadError::BadEvent {
            file: file.into(),
            what,
            event: line,
        })?;
    }
    if waits.is_empty() {
        return Err(ReadError::NoCollectives { file: file.into() });
    }
    Ok(Some(order(Vec::from_iter(waits.into_values()))))
}

fn order(mut ranks: Vec<RankWait>) -> Waits {
    ranks.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms));
    let least = ranks.last().map_or(0.0, |rank| rank.time_ms);
    for rank in &mut ranks {
        rank.wait_ms = (rank.time_ms - least) / rank.count.max(1) as f64;
    }
    let mut last = ranks.iter().rev();
    let straggler = last.next();
    let alone = last.next().is_some_and(|next| next.time_ms > least);
    Waits {
        schema: crate::analysis::SCHEMA,
        straggler_rank: straggler.filter(|_| alone).map(|rank| rank.rank),
        ranks,
    }
}
