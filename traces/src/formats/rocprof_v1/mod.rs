//! rocprof, the profiler before rocprofv3: JSON for viewers, an SQLite file, CSV (in `tables/`).
//! What they hold: ROCm/rocprofiler, `bin/tblextr.py`, `bin/sqlitedb.py`.

pub(super) mod database;
pub(super) mod json;

/// How rocprof is told to record kernels.
pub(super) const ADVICE: &str = "with rocprof --hip-trace, or --timestamp on";

/// A kernel's name without what tells its descriptor.
pub(super) fn kernel_name(name: &str) -> &str {
    let name = name.trim_matches('"');
    name.strip_suffix(" [clone .kd]")
        .or_else(|| name.strip_suffix(".kd"))
        .unwrap_or(name)
}

/// Whether it is no kernel but a packet that makes a queue wait.
fn is_barrier(name: &str) -> bool {
    name == "<barrier packet>"
}
