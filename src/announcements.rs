//! Announcements of schedulers that litd was not there to hear: `litctl job` leaves them as notes in a folder beside
//! the control socket, and litd reads them once it runs.
//!
//! A job has one note, with its latest beginning, its end, or both in their order. The folder is root's alone: a note
//! can do no more than the command in it, which root may give. It lies below the runtime directory, which a boot
//! empties; a note that another boot has left is removed unread.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use litd_api::Command;
use litd_files as files;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::state;

/// The folder's name.
const FOLDER: &str = "announced";

/// A note is being written under a name that begins so. No job's does.
const UNFINISHED: &str = ".new-";

/// How many notes are kept: of more the oldest is removed. Each is for a job that has begun or ended while litd was
/// away.
const MOST: usize = 256;

/// The longest note, in bytes: two commands, each with a job's name and its GPUs.
const LONGEST: u64 = 64 << 10;

/// Litctl tries so often to lock a folder that another process has locked, so far apart. Litd itself tries once, and
/// again a second later.
const TRIES: u32 = 10;
const APART: Duration = Duration::from_millis(50);

/// What a job's scheduler has said of it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    /// The boot in which it was said.
    boot: String,
    /// A beginning, an end, or an end and a new beginning.
    said: Vec<Command>,
}

/// The folder beside this control socket.
#[must_use]
pub fn folder(socket: &Path) -> PathBuf {
    socket.with_file_name(FOLDER)
}

/// Leaves a note for a litd that can't be reached.
///
/// # Errors
/// This is no command of a scheduler's, its job has no name that a file may have, or the system refuses; in words.
pub fn leave(folder: &Path, command: &Command) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let name = name_of(command)
        .ok_or("only a job with a name of letters, digits, '-', '_' and '.' has a note")?;
    let boot = state::boot_id().map_err(|error| error.to_string())?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let _alone = lock(folder, TRIES).map_err(failed)?;
    let path = folder.join(name);
    let known = read(&path).ok().filter(|note| note.boot == boot);
    let mut said = known.unwrap_or_default().said;
    match command {
        // With its end all that was said before is over.
        Command::EndJob { .. } => said.clear(),
        _ => said.retain(|it| matches!(it, Command::EndJob { .. })),
    }
    said.push(command.clone());
    make_room(folder, &path).map_err(failed)?;
    write(folder, &path, &Note { boot, said }).map_err(failed)
}

/// Reads all notes, in the order in which they were left, removes them, and hands their commands on. One that can't be
/// removed is not handed on: that would be done over and over. Returns what was wrong with any, in words.
pub fn hand_on(folder: &Path, mut to: impl FnMut(Command)) -> Vec<String> {
    let failed = |error: io::Error| {
        let folder = folder.display();
        vec![format!(
            "{folder}: what schedulers announced while litd was away can't be read: {error}"
        )]
    };
    let notes = match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => return failed(error),
        Ok(_) => match all(folder) {
            Ok(notes) if notes.is_empty() => return Vec::new(),
            Ok(_) => lock(folder, 1).and_then(|alone| Ok((alone, all(folder)?))),
            Err(error) => Err(error),
        },
    };
    let (_alone, notes) = match notes {
        Ok(notes) => notes,
        // Litctl is just writing one: all are read a second later.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Vec::new(),
        Err(error) => return failed(error),
    };
    let boot = state::boot_id().unwrap_or_default();
    let mut wrong = Vec::new();
    for path in notes {
        let note = read(&path);
        if let Err(error) = fs::remove_file(&path) {
            wrong.push(format!(
                "{}: this note of a scheduler's can't be removed, and so is not carried out: {error}",
                path.display()
            ));
            continue;
        }
        match note {
            Ok(note) if note.boot == boot => {
                let own = |it: &Command| name_of(it).is_some_and(|name| path.ends_with(name));
                note.said.into_iter().filter(own).for_each(&mut to);
            }
            Ok(_) => {}
            Err(error) => wrong.push(format!(
                "{}: this note of a scheduler's could not be read and was removed: {error}",
                path.display()
            )),
        }
    }
    wrong
}

/// The file's name of the job that a scheduler's command is about.
fn name_of(command: &Command) -> Option<&str> {
    let (Command::BeginJob { job, .. } | Command::EndJob { job, .. }) = command else {
        return None;
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let good = job.len() <= 128 && job.bytes().all(fits) && !job.starts_with('.');
    (good && !job.is_empty()).then_some(job)
}

/// Locks the folder, if it is nobody's but root's or this process's.
fn lock(folder: &Path, tries: u32) -> io::Result<Flock<File>> {
    let there = fs::symlink_metadata(folder)?;
    if !there.is_dir() || files::is_others(there.uid()) || there.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others may write there, or it is no directory: remove it",
        ));
    }
    let mut directory = File::open(folder)?;
    for attempt in 1..=tries {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((open, _)) => directory = open,
        }
        if attempt < tries {
            sleep(APART);
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// All notes, the oldest first.
fn all(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut notes: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)?.take(2 * MOST) {
        let entry = entry?;
        let there = entry.metadata()?;
        let name = entry.file_name();
        let is_note =
            there.is_file() && !name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes());
        if is_note {
            notes.push((there.modified()?, entry.path()));
        }
    }
    notes.sort();
    Ok(notes.into_iter().map(|(_, path)| path).collect())
}

fn read(path: &Path) -> io::Result<Note> {
    Ok(serde_json::from_slice(&files::read_own(path, LONGEST)?)?)
}

/// Removes the oldest notes until there is room for one at `path`.
fn make_room(folder: &Path, path: &Path) -> io::Result<()> {
    let notes = all(folder)?;
    let others: Vec<&PathBuf> = notes.iter().filter(|it| *it != path).collect();
    let excess = (others.len() + 1).saturating_sub(MOST);
    others
        .into_iter()
        .take(excess)
        .try_for_each(fs::remove_file)
}

fn write(folder: &Path, path: &Path, note: &Note) -> io::Result<()> {
    let unfinished = folder.join(format!("{UNFINISHED}{}", std::process::id()));
    files::replace_private(path, &unfinished, &serde_json::to_vec(note)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn begin(job: &str, opt_out: bool) -> Command {
        Command::BeginJob {
            job: job.to_owned(),
            gpus: vec!["0".to_owned()],
            opt_out,
        }
    }

    fn end(job: &str) -> Command {
        Command::EndJob {
            job: job.to_owned(),
            gpus: Vec::new(),
        }
    }

    fn told(folder: &Path) -> (Vec<Command>, Vec<String>) {
        let mut all = Vec::new();
        let wrong = hand_on(folder, |command| all.push(command));
        (all, wrong)
    }

    #[test]
    fn what_was_said_last_of_a_job_is_handed_on_once_and_in_order() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(&place.path().join("control.sock"));
        assert_eq!(told(&folder), (Vec::new(), Vec::new()));
        for command in [
            begin("slurm-1", true),
            end("slurm-1"),
            begin("slurm-1", false),
        ] {
            leave(&folder, &command).unwrap();
        }
        sleep(Duration::from_millis(20));
        leave(&folder, &begin("slurm-2", true)).unwrap();
        let mode = fs::metadata(&folder).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        let all = vec![
            end("slurm-1"),
            begin("slurm-1", false),
            begin("slurm-2", true),
        ];
        assert_eq!(told(&folder), (all, Vec::new()));
        assert_eq!(told(&folder), (Vec::new(), Vec::new()));
    }

    #[test]
    fn nobody_else_leaves_notes_and_none_is_another_job_s_or_of_another_boot() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(&place.path().join("control.sock"));
        leave(&folder, &end("slurm-1")).unwrap();
        let path = folder.join("slurm-1");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(folder.join("slurm-2"), &text).unwrap();
        let boot = state::boot_id().unwrap();
        fs::write(folder.join("slurm-3"), text.replace(&boot, "another")).unwrap();
        fs::write(folder.join("slurm-4"), "nonsense").unwrap();
        let (all, wrong) = told(&folder);
        assert_eq!(all, [end("slurm-1")]);
        assert!(
            wrong.len() == 1 && wrong[0].contains("slurm-4"),
            "{wrong:?}"
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        leave(&folder, &end("slurm-1")).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let (all, wrong) = told(&folder);
        assert!(
            all.is_empty() && wrong[0].contains("others may write there"),
            "{wrong:?}"
        );
        assert!(leave(&folder, &end("slurm-1")).is_err());
        for odd in ["", "../x", ".new-1", "a/b"] {
            assert!(leave(&folder, &end(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn of_too_many_notes_the_oldest_goes() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(&place.path().join("control.sock"));
        leave(&folder, &end("first")).unwrap();
        sleep(Duration::from_millis(20));
        for job in 0..MOST {
            leave(&folder, &end(&format!("slurm-{job}"))).unwrap();
        }
        let (all, _) = told(&folder);
        assert_eq!(all.len(), MOST);
        assert!(!all.contains(&end("first")));
    }
}
