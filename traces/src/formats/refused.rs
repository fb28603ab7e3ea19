//! What is to be said of a file of no format that is read.

use super::Head;
use super::tables::has_line;
use crate::error::ReadError;

/// Files of profilers' own, by the ends of their names: what they are, and what to make of them.
const OWN: [(&str, &str, &str); 5] = [
    (
        ".nsys-rep",
        "a report of Nsight Systems in its own format",
        "convert it: nsys export --type sqlite -o OUT.sqlite FILE",
    ),
    (
        ".qdrep",
        "a report of Nsight Systems in its own format",
        "convert it: nsys export --type sqlite -o OUT.sqlite FILE",
    ),
    (
        ".qdstrm",
        "a recording of Nsight Systems that was not finished",
        "let nsys import it (QdstrmImporter), then nsys export --type sqlite",
    ),
    (
        ".ncu-rep",
        "a report of Nsight Compute, which runs kernels one by one",
        "record the job with nsys profile --trace=cuda, then nsys export --type sqlite",
    ),
    (
        ".otf2",
        "OTF2",
        "let rocprofv3 write its default (rocpd) or --output-format pftrace",
    ),
];

/// Tables without the times of single kernels, by columns that they have: what they are, and which
/// have them.
const TABLES: [(&[&[u8]], &str, &str); 6] = [
    (
        &[b"Start (", b"Duration (", b"Strm"],
        "a trace of Nsight Systems whose times are not in nanoseconds",
        "nsys stats --report cuda_gpu_trace --format csv --timeunit nsec has them",
    ),
    (
        &[b"Start (", b"Duration (", b"Name"],
        "a table of Nsight Systems that is not of GPUs",
        "nsys stats --report cuda_gpu_trace --format csv writes that",
    ),
    (
        &[b"Total Time", b"Instances"],
        "a summary of Nsight Systems without the times of single kernels",
        "nsys stats --report cuda_gpu_trace --format csv has them",
    ),
    (
        &[b"TotalDurationNs", b"Calls"],
        "a summary without the times of single kernels",
        "give rocprofv3's *_kernel_trace.csv, or rocprof's results.csv, that lies beside it",
    ),
    (
        &[b"Function", b"Start_Timestamp"],
        "rocprofv3's record of the host's calls",
        "give the *_kernel_trace.csv beside it; rocprofv3 --kernel-trace writes it",
    ),
    (
        &[b"KernelName", b"queue-id"],
        "rocprof's counters without the times of kernels",
        "record with rocprof --timestamp on",
    ),
];

/// Archives, by the bytes that they have at a place.
const ARCHIVES: [(usize, &[u8], &str); 2] = [
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
];

/// What is wrong with a file that begins so.
pub(super) fn explain(head: &[u8], file: &str) -> ReadError {
    // Windows' shells write what they redirect so.
    let wide = head.starts_with(&[0xFF, 0xFE]) || head.starts_with(&[0xFE, 0xFF]);
    if wide {
        return ReadError::Utf16 { file: file.into() };
    }
    if crate::source::is_packed(head) {
        return ReadError::PackedTwice { file: file.into() };
    }
    let name = file.to_ascii_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let own = OWN.iter().find(|(end, ..)| name.ends_with(end));
    let own = own.map(|&(_, what, advice)| (what, advice.replace("FILE", file)));
    let head = Head::of(head);
    let has = |at: usize, word: &[u8]| {
        let rest = head.bytes.get(at..);
        rest.is_some_and(|rest| rest.starts_with(word))
    };
    let archive = ARCHIVES.iter().find(|&&(at, word, _)| has(at, word));
    let archive = archive.map(|&(.., what)| (what, "unpack it and give what comes out".to_owned()));
    let table = TABLES.iter().find(|(words, ..)| has_line(head.text, words));
    let table = table.map(|&(_, what, advice)| (what, advice.to_owned()));
    match own.or(archive).or(table) {
        Some((what, advice)) => ReadError::Foreign {
            file: file.into(),
            what,
            advice,
        },
        None => ReadError::UnknownFormat { file: file.into() },
    }
}
