//! The nodes of tables that have no column for them: named like their files.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf, absolute};

/// A name for each file: its own without `.csv` and `.gz`, or, where files in several folders have the same, with
/// as many folders before it as tell them apart.
pub fn of_files(paths: &[PathBuf]) -> Vec<String> {
    let parts = Vec::from_iter(paths.iter().map(|it| parts(it)));
    let name = |own: &[String]| {
        let same = || parts.iter().filter(|it| it.last() == own.last());
        // A file that is given twice counts once.
        let files = same().collect::<BTreeSet<_>>().len();
        let apart = |depth: &usize| {
            let names = same().map(|it| ending(it, *depth));
            names.collect::<BTreeSet<_>>().len() == files
        };
        let depth = (1..=own.len()).find(apart).unwrap_or(own.len());
        ending(own, depth).join("/")
    };
    parts.iter().map(|it| name(it)).collect()
}

/// The last few.
fn ending(parts: &[String], count: usize) -> &[String] {
    parts
        .get(parts.len().saturating_sub(count)..)
        .unwrap_or(parts)
}

/// The folders of a file and its name without endings.
fn parts(path: &Path) -> Vec<String> {
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    let parts = path.components().filter_map(|it| match it {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_owned()),
        _ => None,
    });
    let mut parts = Vec::from_iter(parts);
    if let Some(name) = parts.last_mut() {
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        *name = plain.strip_suffix(".csv").unwrap_or(plain).to_owned();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> Vec<String> {
        of_files(&Vec::from_iter(paths.iter().map(PathBuf::from)))
    }

    #[test]
    fn as_many_folders_as_tell_files_apart() {
        assert_eq!(of(&["/x/a.csv", "/y/b.csv.gz"]), ["a", "b"]);
        assert_eq!(
            of(&["/t/d1/smi.csv", "/t/d2/smi.csv.gz", "/t/d2/b.csv"]),
            ["d1/smi", "d2/smi", "b"]
        );
        assert_eq!(
            of(&["/t/1/r/smi.csv", "/t/2/r/smi.csv"]),
            ["1/r/smi", "2/r/smi"]
        );
        assert_eq!(of(&["/t/smi.csv", "/t/./smi.csv"]), ["smi", "smi"]);
        assert_eq!(of(&["/smi.csv", "/t/smi.csv"]), ["smi", "t/smi"]);
    }
}
