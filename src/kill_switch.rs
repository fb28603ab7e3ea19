//! Kill switches: files that turn litd off while they exist.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use litd_files as files;

/// How much of a file is read for the reason.
const LONGEST: u64 = 200;

/// Why litd has to be off, if any of the files exists.
#[must_use]
pub fn thrown(files: &[PathBuf]) -> Option<String> {
    files.iter().find_map(|file| {
        let shown = file.display();
        match fs::metadata(file) {
            Ok(it) => {
                let text = match it.is_file() {
                    true => first_line(file),
                    false => String::new(),
                };
                Some(match text.is_empty() {
                    true => format!("{shown} is there"),
                    false => format!("{shown} is there: {text}"),
                })
            }
            // A dangling link counts, too.
            Err(_) if fs::symlink_metadata(file).is_ok() => Some(format!("{shown} is there")),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                None
            }
            // The file may exist.
            Err(error) => Some(format!("{shown} can't be looked for: {error}")),
        }
    })
}

fn first_line(file: &Path) -> String {
    // A file that can't be read counts all the same.
    let text = files::head(file, LONGEST).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default().trim();
    line.chars().filter(|it| !it.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_enough_and_its_first_line_is_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["a", "b/c", "d"].map(|name| directory.path().join(name));
        assert_eq!(thrown(&files), None);
        fs::write(&files[2], "maintenance of\x1b[1m row 7\nmore\n").unwrap();
        let why = format!("{} is there: maintenance of[1m row 7", files[2].display());
        assert_eq!(thrown(&files), Some(why));
        fs::write(&files[0], "").unwrap();
        let why = format!("{} is there", files[0].display());
        assert_eq!(thrown(&files), Some(why));
        // Any kind of file.
        fs::remove_file(&files[0]).unwrap();
        fs::create_dir(&files[0]).unwrap();
        assert!(thrown(&files).unwrap().starts_with(&why_of(&files[0])));
        std::os::unix::fs::symlink("loop", directory.path().join("loop")).unwrap();
        assert!(thrown(&[directory.path().join("loop")]).is_some());
        std::os::unix::fs::symlink("nowhere", directory.path().join("link")).unwrap();
        assert!(thrown(&[directory.path().join("link")]).is_some());
    }

    fn why_of(file: &Path) -> String {
        format!("{} is there", file.display())
    }
}
