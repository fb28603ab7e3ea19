//! Files that `litctl analyze` writes beside its report: HTML, a trace for Perfetto, a table.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use litd_traces::Timeline;
use litd_traces::folder::Source;
use litd_traces::study::Study;

/// Refuses to write over a trace, or two files into one.
pub fn check(written: &[Option<&Path>], read: &[Source]) -> Result<(), String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let read = read.iter().map(|file| real(&file.path));
    let mut taken = HashSet::<PathBuf>::from_iter(read);
    for path in written.iter().flatten() {
        if !taken.insert(real(path)) {
            return Err(format!(
                "{}: is to be read, or written twice; name another file to write",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Writes a file, or complains with its name.
pub fn write(
    path: &Path,
    with: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), String> {
    let complain = |cause: io::Error| format!("{}: can't be written: {cause}", path.display());
    let mut out = BufWriter::new(File::create(path).map_err(complain)?);
    with(&mut out).and_then(|()| out.flush()).map_err(complain)
}

/// A row per matched kernel and rank.
pub fn csv(study: &Study<'_>, timelines: &[Timeline], out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "kernel,name,iteration,rank,start_ns,duration_ns,overlap_ratio,lead_ns"
    )?;
    for (number, kernel) in study.matched.iter().enumerate() {
        let name = kernel.name.replace('"', "\"\"");
        let iteration = kernel
            .iteration
            .map_or(String::new(), |number| number.to_string());
        for (at, timeline) in timelines.iter().enumerate() {
            writeln!(
                out,
                "{number},\"{name}\",{iteration},{},{},{},{},{}",
                timeline.rank,
                kernel.start[at].0,
                kernel.duration[at].0,
                kernel.overlap[at],
                kernel.lead[at].0
            )?;
        }
    }
    Ok(())
}
