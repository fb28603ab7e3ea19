//! What `nsys stats --report cuda_gpu_trace --format csv` prints, with or without what it says
//! before the table. Times are in nanoseconds unless it was told otherwise, and the columns say so.

use super::{Columns, End, has_line, place};
use crate::error::ReadError;
use crate::formats::sqlite::NSYS_ADVICE;
use crate::formats::{Head, Input};
use crate::gather::Found;
use crate::timeline::KernelClass;

/// Whether nsys wrote a text that begins like this.
pub(in crate::formats) fn wrote(head: &Head<'_>) -> bool {
    // Its table of the host's calls has no streams.
    has_line(
        head.text,
        &[b"Start (ns)", b"Duration (ns)", b"Strm", b"Name"],
    )
}

fn columns(header: &[String]) -> Option<Columns> {
    let place = |name| place(header, name);
    Some(Columns {
        name: place("Name")?,
        start: place("Start (ns)")?,
        end: End::After(place("Duration (ns)")?),
        device: place("Device"),
        sender: None,
        gpu: number_of_gpu,
        queue: None,
        stream: place("Strm"),
        kernel: |name| (is_copy(name).then_some(KernelClass::Copy), name),
    })
}

/// The number in `NVIDIA A100-SXM4-80GB (0)`.
fn number_of_gpu(device: &str) -> &str {
    let number = device.rsplit_once('(').map(|(_, number)| number);
    number.map_or(device, |number| number.trim_end_matches(')'))
}

fn is_copy(name: &str) -> bool {
    name.starts_with("[CUDA mem")
}

pub(in crate::formats) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    super::read(input, columns, NSYS_ADVICE)
}
