//! Lead values: Algorithm 1 of the Lit Silicon paper.

use std::iter::Sum;
use std::ops::Sub;

pub use litd_units::Aggregation;

/// The straggler wave: `waves[g][k]` is by how much GPU `g` started matched kernel `k` before
/// the GPU that started it last (Algorithm 1, line 4). `starts[g][k]` in any unit of time; all
/// rows have one length.
#[must_use]
pub fn straggler_wave<T>(starts: &[Vec<T>]) -> Vec<Vec<T>>
where
    T: Copy + PartialOrd + Sub<Output = T>,
{
    let mut wave = starts.to_vec();
    for k in 0..starts.iter().map(Vec::len).min().unwrap_or(0) {
        let mut latest = starts[0][k];
        for row in &starts[1..] {
            if row[k] > latest {
                latest = row[k];
            }
        }
        for row in &mut wave {
            row[k] = latest - row[k];
        }
    }
    wave
}

/// One lead value from a GPU's per-kernel leads (Algorithm 1, line 6); `None` without kernels.
#[must_use]
pub fn aggregate<T>(leads: &[T], aggregation: Aggregation) -> Option<T>
where
    T: Copy + PartialOrd + Sum,
{
    let last = *leads.last()?;
    Some(match aggregation {
        Aggregation::Sum => leads.iter().copied().sum(),
        Aggregation::Max => leads
            .iter()
            .copied()
            .fold(leads[0], |most, lead| if lead > most { lead } else { most }),
        Aggregation::Last => last,
    })
}
