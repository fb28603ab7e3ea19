//! What all benchmarks say and understand.

use std::fs;

/// Whether the command line asks for a part, or for none.
pub fn wanted(part: &str) -> bool {
    // cargo adds `--bench`.
    let mut asked = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .peekable();
    asked.peek().is_none() || asked.any(|word| word == part)
}

/// The machine's load over 1, 5 and 15 minutes.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The value below which so many per cent lie.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
