//! rocprof's `results.csv` (the profiler before rocprofv3): a line per dispatch, with times where
//! it was told to take them. Columns: ROCm/rocprofiler, `bin/tblextr.py`.

use super::{Columns, End, has_line, place};
use crate::error::ReadError;
use crate::formats::rocprof_v1::{ADVICE, kernel_name};
use crate::formats::{Head, Input};
use crate::gather::Found;

/// Whether rocprof wrote a text that begins like this.
pub(in crate::formats) fn wrote(head: &Head<'_>) -> bool {
    has_line(head.text, &[b"KernelName", b"BeginNs", b"EndNs"])
}

fn columns(header: &[String]) -> Option<Columns> {
    let place = |name| place(header, name);
    Some(Columns {
        name: place("KernelName")?,
        start: place("BeginNs")?,
        end: End::At(place("EndNs")?),
        device: place("gpu-id"),
        sender: None,
        gpu: |gpu| gpu,
        queue: place("queue-id"),
        stream: None,
        kernel: |name| (None, kernel_name(name)),
    })
}

pub(in crate::formats) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    super::read(input, columns, ADVICE)
}
