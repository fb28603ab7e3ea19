//! What all benchmarks of the daemon say.

use std::fs;

/// The machine's load over 1, 5 and 15 minutes.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
