//! Input beside the traces: the user's classes, ranks, a summary of collectives.

use std::fs::{self, File};
use std::path::Path;

use litd_traces::folder::Source;
use litd_traces::formats::nccl_summary::{self, Waits};
use litd_traces::{Classes, Kernel, ReadError, Timeline, formats, printable};

/// The user's own classes of kernels.
pub fn classes(path: &Path) -> Result<Classes, String> {
    let named = path.display();
    let text = fs::read(path).map_err(|error| format!("{named}: {error}"))?;
    let text = String::from_utf8(text)
        .map_err(|_| format!("{named}: is no text (UTF-8), as a file of --classes is"))?;
    let row = "a row is [[kernel]] with name = \"part_of_the_name\" and class = \"computation\", \"communication\", \"fused\" or \"copy\"";
    let classes = toml::from_str::<Classes>(&text)
        .map_err(|error| format!("{named}: {}\n  {row}", error.to_string().trim_end()))?;
    match classes.is_empty() {
        true => Err(format!("{named}: has no row; {row}")),
        false => Ok(classes),
    }
}

/// The ranks of single-GPU files, where the user gave them; for files with several the reader has
/// them.
pub fn ranks(timelines: &[Timeline]) -> Option<String> {
    let alone = |one: &&Timeline| {
        let same = timelines.iter().filter(|other| other.source == one.source);
        same.count() == 1
    };
    let each = timelines.iter().filter(alone).map(|timeline| {
        let file = Path::new(&timeline.source).file_name();
        let file = file.map_or(timeline.source.as_str().into(), |name| {
            name.to_string_lossy()
        });
        format!("{} is rank {}", printable(&file), timeline.rank)
    });
    let each = Vec::from_iter(each);
    (!each.is_empty()).then(|| format!("as given, {}", each.join(", ")))
}

/// Refuses one recording under several names, which ranks that the user named would make ranks of their own: what it
/// would be compared with is itself.
pub fn distinct(timelines: &[Timeline]) -> Result<(), String> {
    let same = |one: &Timeline, other: &Timeline| {
        let (kernels, others) = (&one.kernels, &other.kernels);
        let alike = |(a, b): (&Kernel, &Kernel)| {
            a.start == b.start && a.end == b.end && one.names.get(a.name) == other.names.get(b.name)
        };
        kernels.len() == others.len() && kernels.iter().zip(others).all(alike)
    };
    for (at, one) in timelines.iter().enumerate() {
        let mut others = timelines.iter().skip(at + 1);
        let twin = others.find(|other| other.source != one.source && same(one, other));
        if let Some(twin) = twin {
            return Err(format!(
                "{} and {} hold the same recording: the same kernels at the same times; leave one out",
                printable(&one.source),
                printable(&twin.source)
            ));
        }
    }
    Ok(())
}

/// The summary of collectives that is the only file, or that a folder without traces has.
pub fn waits(files: &[Source]) -> Result<Option<Waits>, ReadError> {
    let is_trace = |file: &Source| {
        let head = File::open(&file.path).and_then(formats::head);
        head.is_ok_and(|head| formats::format_of(&head).is_some())
    };
    if files.len() > 1 && (files.iter().any(|file| !file.found) || files.iter().any(is_trace)) {
        return Ok(None);
    }
    for Source { path, .. } in files.iter().filter(|file| file.path.is_file()) {
        let name = path.display().to_string();
        // Errors are reported where the path is read as a trace.
        let Ok(file) = File::open(path) else { continue };
        if let Some(waits) = nccl_summary::read(file, &name)? {
            return Ok(Some(waits));
        }
    }
    Ok(None)
}
