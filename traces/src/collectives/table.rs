//! The collectives of one rank by what they carry, with the bandwidth that NCCL's tests would tell.

use std::collections::HashMap;

use litd_diagnosis::median;
use litd_units::Nanos;
use serde::Serialize;

use super::{Entry, Matched, communication, waits};
use crate::time::mean;
use crate::timeline::{Collective, Kernel, Timeline};

/// Collectives of one kind and size.
#[derive(Debug, Clone, Serialize)]
pub struct CollectiveRow {
    /// What they do.
    pub kind: &'static str,
    /// The greater of what a rank sends and receives in one; null where the trace does not tell.
    pub bytes: Option<u64>,
    /// How many ranks take part; null where the trace does not tell.
    pub ranks: Option<u32>,
    /// How many there are.
    pub count: usize,
    /// How long their kernels took together, in nanoseconds.
    pub total_ns: Nanos,
    /// On average.
    pub mean_ns: Nanos,
    /// The shortest.
    pub min_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
    /// How long this rank waited in them; null if none is matched.
    pub wait_ns: Option<Nanos>,
    /// From the first rank's start to the last one's, on average; null if none is matched.
    pub skew_ns: Option<Nanos>,
    /// Bytes per second, as NCCL's tests count them; the median. Null where size or ranks are not
    /// told.
    pub bus_bandwidth: Option<f64>,
}

/// What a kernel's collective shows on all ranks.
#[derive(Debug, Clone, Copy)]
struct Shared {
    wait: Nanos,
    shortest: Nanos,
    apart: Nanos,
}

impl Shared {
    /// Of the kernels of one collective, each with its place.
    fn of(row: &[Entry]) -> impl Iterator<Item = (&Entry, Self)> {
        let starts = || row.iter().map(|entry| entry.start);
        let apart = starts().max().unwrap_or_default() - starts().min().unwrap_or_default();
        let shortest = row.iter().map(|entry| entry.end - entry.start).min();
        let shortest = shortest.unwrap_or_default();
        let shared = move |wait| Self {
            wait,
            shortest,
            apart,
        };
        row.iter().zip(waits::in_one(row).map(shared))
    }
}

/// Kinds of collectives, by a part of their names without `_`; the first that fits.
const KINDS: [(&str, &str); 14] = [
    ("reducescatter", "reducescatter"),
    ("allreduce", "allreduce"),
    // vLLM's own all-reduce.
    ("crossdevicereduce", "allreduce"),
    ("allgather", "allgather"),
    ("alltoall", "alltoall"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("sendrecv", "sendrecv"),
    ("send", "send"),
    ("recv", "recv"),
    ("coalesced", "coalesced"),
    ("barrier", "barrier"),
];

/// What a collective of this name does, whether it ends on all ranks at once or not (that tells
/// [`ends_together`](crate::skew::ends_together)); `unknown` of other names.
pub(crate) fn kind_of(name: &str) -> &'static str {
    let name = name.to_ascii_lowercase().replace('_', "");
    let kind = KINDS.iter().find(|(part, _)| name.contains(part));
    kind.map_or("unknown", |(_, kind)| kind)
}

/// Whether a kernel's name is of transfers between two ranks.
pub(crate) fn is_transfer(name: &str) -> bool {
    ["sendrecv", "send", "recv"].contains(&kind_of(name))
}

/// Whether no rank leaves kernels of this name before all ranks that take part have come. Whoever broadcasts, or sends
/// something to be reduced, may.
pub(crate) fn keeps_all(name: &str) -> bool {
    let all = ["allreduce", "allgather", "reducescatter", "alltoall"];
    is_transfer(name) || all.contains(&kind_of(name))
}

/// The size of an element of this type, in bytes.
fn size_of(dtype: &str) -> Option<u64> {
    let name = dtype.to_ascii_lowercase();
    Some(match name.as_str() {
        "double" | "float64" | "long" | "int64" | "complexfloat" => 8,
        "float" | "float32" | "int" | "int32" => 4,
        "half" | "float16" | "bfloat16" | "short" | "int16" => 2,
        "byte" | "char" | "bool" | "int8" | "uint8" => 1,
        _ if name.starts_with("float8") => 1,
        _ => return None,
    })
}

/// How many bytes cross each rank's link for each byte of a collective, as NCCL's tests count; none
/// where that depends on how many ranks take part and the trace does not tell.
fn factor(kind: &str, ranks: Option<u32>) -> Option<f64> {
    let others = || {
        let ranks = f64::from(ranks?.max(1));
        Some((ranks - 1.0) / ranks)
    };
    match kind {
        "allreduce" => Some(2.0 * others()?),
        "allgather" | "reducescatter" | "alltoall" | "gather" | "scatter" => others(),
        "broadcast" | "reduce" | "sendrecv" | "send" | "recv" => Some(1.0),
        _ => None,
    }
}

/// What tells rows apart.
type Key = (&'static str, Option<u64>, Option<u32>);

fn key_of(kind: &'static str, told: Option<&Collective>) -> Key {
    let elements = told.and_then(|told| Some(told.in_elements?.max(told.out_elements?)));
    let size = told.and_then(|told| size_of(told.dtype.as_deref()?));
    let bytes = elements.and_then(|elements| elements.checked_mul(size?));
    let ranks = match kind {
        "send" | "recv" => Some(2),
        _ => told.and_then(|told| told.group_size),
    };
    (kind, bytes, ranks)
}

/// The kinds of collectives by the names that came so far: there are millions of kernels, and few names.
#[derive(Default)]
pub(crate) struct Kinds<'a>(HashMap<&'a str, &'static str>);

impl<'a> Kinds<'a> {
    /// What tells the row of a communication kernel.
    fn key_of(&mut self, timeline: &'a Timeline, kernel: &Kernel) -> Key {
        let told = timeline.collective_of(kernel);
        let name = told.and_then(|told| told.name.as_deref());
        let name = name.unwrap_or_else(|| timeline.name_of(kernel));
        let kind = *self.0.entry(name).or_insert_with(|| kind_of(name));
        key_of(kind, told)
    }

    /// What a communication kernel does, and how many bytes it carries, where the trace tells.
    pub(crate) fn carries(
        &mut self,
        timeline: &'a Timeline,
        kernel: &Kernel,
    ) -> (&'static str, Option<u64>) {
        let (kind, bytes, _) = self.key_of(timeline, kernel);
        // The two ends of a transfer are one thing.
        match kind {
            "send" | "recv" => ("sendrecv", bytes),
            kind => (kind, bytes),
        }
    }
}

/// What is added up for a row.
#[derive(Default)]
struct Sum {
    count: usize,
    total: Nanos,
    least: Option<Nanos>,
    most: Nanos,
    matched: usize,
    wait: Nanos,
    apart: Nanos,
    bandwidths: Vec<f64>,
}

impl Sum {
    fn add(&mut self, kernel: &Kernel, shared: Option<Shared>, (kind, bytes, ranks): Key) {
        let duration = kernel.duration();
        self.count += 1;
        self.total += duration;
        self.least = Some(self.least.map_or(duration, |least| least.min(duration)));
        self.most = self.most.max(duration);
        if let Some(shared) = shared {
            self.matched += 1;
            self.wait += shared.wait;
            self.apart += shared.apart;
        }
        let time = shared.map_or(duration, |shared| shared.shortest);
        let factor = factor(kind, ranks);
        if let (Some(bytes), Some(factor), true) = (bytes, factor, time > Nanos::ZERO) {
            self.bandwidths
                .push(bytes as f64 * factor * 1e9 / time.0 as f64);
        }
    }

    fn row(self, (kind, bytes, ranks): Key) -> CollectiveRow {
        CollectiveRow {
            kind,
            bytes,
            ranks,
            count: self.count,
            total_ns: self.total,
            mean_ns: mean(self.total, self.count),
            min_ns: self.least.unwrap_or_default(),
            max_ns: self.most,
            wait_ns: (self.matched > 0).then_some(self.wait),
            skew_ns: (self.matched > 0).then(|| mean(self.apart, self.matched)),
            bus_bandwidth: median(self.bandwidths),
        }
    }
}

/// What is added up for a rank.
struct Sums<'a> {
    timeline: &'a Timeline,
    kinds: Kinds<'a>,
    sums: HashMap<Key, Sum>,
    /// Whether each kernel was added.
    added: Vec<bool>,
}

impl<'a> Sums<'a> {
    fn of(timeline: &'a Timeline) -> Self {
        Self {
            timeline,
            kinds: Kinds::default(),
            sums: HashMap::new(),
            added: vec![false; timeline.kernels.len()],
        }
    }

    fn add(&mut self, at: usize, shared: Option<Shared>) {
        let timeline = self.timeline;
        let kernel = timeline.kernels.get(at).zip(self.added.get_mut(at));
        let Some((kernel, added)) = kernel.filter(|(_, added)| !**added) else {
            return;
        };
        *added = true;
        let key = self.kinds.key_of(timeline, kernel);
        self.sums.entry(key).or_default().add(kernel, shared, key);
    }

    /// With the kernels that are part of no matched collective; most time first.
    fn rows(mut self) -> Vec<CollectiveRow> {
        for (at, _) in communication(self.timeline) {
            self.add(at as usize, None);
        }
        let sums = self.sums.into_iter();
        let mut rows = Vec::from_iter(sums.map(|(key, sum)| sum.row(key)));
        rows.sort_by_key(|row| {
            (
                std::cmp::Reverse(row.total_ns),
                row.kind,
                row.bytes,
                row.ranks,
            )
        });
        rows
    }
}

/// The collectives of each rank, most time first.
pub(crate) fn tables(timelines: &[Timeline], matched: &Matched<'_>) -> Vec<Vec<CollectiveRow>> {
    let mut all = Vec::from_iter(timelines.iter().map(Sums::of));
    matched.each(|row| {
        for (entry, shared) in Shared::of(row) {
            if let Some(sums) = all.get_mut(entry.rank) {
                sums.add(entry.kernel, Some(shared));
            }
        }
    });
    all.into_iter().map(Sums::rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_need_the_number_of_ranks_only_where_they_depend_on_it() {
        assert_eq!(factor("allreduce", Some(4)), Some(1.5));
        assert_eq!(factor("allgather", Some(4)), Some(0.75));
        assert_eq!(factor("allreduce", None), None);
        assert_eq!(factor("reduce", None), Some(1.0));
        assert_eq!(factor("barrier", Some(4)), None);
    }
}
