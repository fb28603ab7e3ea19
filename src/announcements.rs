//! Announcements of schedulers that litd was not there to hear: `litctl job` leaves them as notes in a folder beside
//! the control socket, and litd reads them once it runs.
//!
//! A job has one note, with its latest beginning, its end, or both in their order. The folder is root's alone: a note
//! can do no more than the command in it, which root may give. It lies below the runtime directory, which a boot
//! empties; a note that another boot has left is removed unread.

use std::collections::BTreeMap;
use std::ffi::OsStr;
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

use crate::lock_holders::Held;
use crate::state;

/// The folder's name.
const FOLDER: &str = "announced";

/// The name of the folder of devices' locks beside it.
const LOCKS: &str = "devices";

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
    // With its end all that was said before is over.
    if matches!(command, Command::EndJob { .. }) {
        said.clear();
    }
    let begun = said.pop_if(|it| matches!(it, Command::BeginJob { .. }));
    said.push(both(begun, command));
    make_room(folder, &path).map_err(failed)?;
    write(folder, &path, &Note { boot, said }).map_err(failed)
}

/// A job that was announced twice has the GPUs of both announcements, and is opted out if either says so, as where litd
/// hears them.
fn both(begun: Option<Command>, command: &Command) -> Command {
    let mut both = command.clone();
    if let Some(Command::BeginJob {
        gpus: before,
        opt_out: spared,
        ..
    }) = begun
        && let Command::BeginJob { gpus, opt_out, .. } = &mut both
    {
        *opt_out |= spared;
        let new = before.into_iter().filter(|it| !gpus.contains(it));
        let new: Vec<String> = new.collect();
        gpus.extend(new);
    }
    both
}

/// The notes as litd reads them.
#[derive(Debug)]
pub struct Notes {
    folder: PathBuf,
    /// What was wrong at the last look, in words.
    told: Vec<String>,
    /// Jobs of which litd was told directly while another process had locked the folder, and when: their notes from
    /// before that are outdated.
    outdated: BTreeMap<String, SystemTime>,
}

impl Notes {
    /// The notes for a litd with this control socket.
    #[must_use]
    pub fn of(socket: &Path) -> Self {
        Self {
            folder: folder(socket),
            told: Vec::new(),
            outdated: BTreeMap::new(),
        }
    }

    /// Reads and removes all notes. Returns their commands in order, and what is wrong with any that was not told
    /// already, in words.
    pub fn take(&mut self) -> (Vec<Command>, Vec<String>) {
        // If litctl is just writing one, all are read a second later.
        self.try_take().unwrap_or_default()
    }

    /// The same before litd carries out this command, which a scheduler has sent to it: what is in a note was said
    /// before. Where the notes can't be read now, those of the same job are outdated.
    pub fn take_before(&mut self, command: &Command) -> (Vec<Command>, Vec<String>) {
        let Some(name) = name_of(command) else {
            return (Vec::new(), Vec::new());
        };
        let asked = SystemTime::now();
        let Some((mut said, wrong)) = self.try_take() else {
            if self.outdated.len() < MOST || self.outdated.contains_key(name) {
                self.outdated.insert(name.to_owned(), asked);
            }
            return (Vec::new(), Vec::new());
        };
        // What was said before of a job that ends now has no effect any more.
        let is_end = matches!(command, Command::EndJob { .. });
        said.retain(|it| !is_end || name_of(it) != Some(name));
        (said, wrong)
    }

    /// `None`: another process has locked the folder.
    fn try_take(&mut self) -> Option<(Vec<Command>, Vec<String>)> {
        let mut said = Vec::new();
        let wrong = match take_all(&self.folder, &self.outdated, &mut said) {
            Ok(wrong) => {
                self.outdated.clear();
                wrong
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => vec![format!(
                "{}: the notes that schedulers left while litd did not run can't be read: {error}",
                self.folder.display()
            )],
        };
        let new = wrong.iter().filter(|it| !self.told.contains(it)).cloned();
        let new = new.collect();
        self.told = wrong;
        Some((said, new))
    }
}

/// The process that has locked devices whose locks are beside this control socket, while there is no socket. It may be
/// a litd that listens elsewhere, as one in a pod does, and looks for notes there.
#[must_use]
pub fn elsewhere(socket: &Path) -> Option<u32> {
    if fs::symlink_metadata(socket).is_ok() {
        return None;
    }
    let held = Held::now(Path::new("/proc"));
    let mut locks = fs::read_dir(socket.with_file_name(LOCKS)).ok()?.flatten();
    locks.find_map(|lock| held.pid_of(&lock.metadata().ok()?))
}

/// Reads all notes, in the order in which they were left, removes them, and adds their commands to `said`. One that
/// can't be removed is left out: that would be done over and over. Returns what was wrong with any, in words.
///
/// # Errors
/// The folder can't be read; `WouldBlock`: another process has locked it.
fn take_all(
    folder: &Path,
    outdated: &BTreeMap<String, SystemTime>,
    said: &mut Vec<Command>,
) -> io::Result<Vec<String>> {
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    if all(folder)?.is_empty() {
        return Ok(Vec::new());
    }
    let _alone = lock(folder, 1)?;
    let boot = state::boot_id().unwrap_or_default();
    let mut wrong = Vec::new();
    for (written, path) in all(folder)? {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_outdated = outdated.get(name).is_some_and(|&since| written <= since);
        let note = read(&path);
        if let Err(error) = fs::remove_file(&path) {
            wrong.push(format!(
                "{}: this note of a scheduler's can't be removed, and so is not carried out: {error}",
                path.display()
            ));
            continue;
        }
        match note {
            Ok(_) if is_outdated => {}
            Ok(note) if note.boot == boot => {
                let own = |it: &Command| name_of(it).is_some_and(|name| path.ends_with(name));
                said.extend(note.said.into_iter().filter(own));
            }
            Ok(_) => {}
            Err(error) => wrong.push(format!(
                "{}: this note of a scheduler's could not be read and was removed: {error}",
                path.display()
            )),
        }
    }
    Ok(wrong)
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

/// All notes and when they were written, the oldest first.
fn all(folder: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
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
    Ok(notes)
}

fn read(path: &Path) -> io::Result<Note> {
    Ok(serde_json::from_slice(&files::read_own(path, LONGEST)?)?)
}

/// Removes the oldest notes until there is room for one at `path`.
fn make_room(folder: &Path, path: &Path) -> io::Result<()> {
    let notes = all(folder)?;
    let notes = notes.iter().map(|(_, path)| path);
    let others: Vec<&PathBuf> = notes.filter(|it| *it != path).collect();
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

    fn notes_in(folder: &Path) -> Notes {
        Notes::of(&folder.with_file_name("control.sock"))
    }

    fn told(folder: &Path) -> (Vec<Command>, Vec<String>) {
        notes_in(folder).take()
    }

    #[test]
    fn what_litd_is_told_directly_comes_after_the_notes() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(&place.path().join("control.sock"));
        let mut notes = notes_in(&folder);
        let nothing = (Vec::new(), Vec::new());
        leave(&folder, &begin("slurm-1", true)).unwrap();
        leave(&folder, &begin("slurm-2", true)).unwrap();
        let others = (vec![begin("slurm-2", true)], Vec::new());
        assert_eq!(notes.take_before(&end("slurm-1")), others);
        assert_eq!(notes.take(), nothing);
        // The folder is locked just then.
        leave(&folder, &begin("slurm-1", true)).unwrap();
        leave(&folder, &begin("slurm-2", true)).unwrap();
        let locked = lock(&folder, 1).unwrap();
        assert_eq!(notes.take_before(&end("slurm-1")), nothing);
        assert_eq!(notes.take(), nothing);
        drop(locked);
        assert_eq!(notes.take(), others);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        // What is said of it later counts.
        leave(&folder, &begin("slurm-1", true)).unwrap();
        assert_eq!(notes.take().0, [begin("slurm-1", true)]);
        // It has begun again since its end was left in a note.
        leave(&folder, &end("slurm-1")).unwrap();
        let before = notes.take_before(&begin("slurm-1", false));
        assert_eq!(before, (vec![end("slurm-1")], Vec::new()));
    }

    #[test]
    fn a_job_that_is_announced_twice_stays_opted_out_and_keeps_its_gpus() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(&place.path().join("control.sock"));
        let begin = |gpus: &[&str], opt_out| Command::BeginJob {
            job: "slurm-1".to_owned(),
            gpus: gpus.iter().map(|&it| it.to_owned()).collect(),
            opt_out,
        };
        leave(&folder, &end("slurm-1")).unwrap();
        leave(&folder, &begin(&["0", "1"], true)).unwrap();
        leave(&folder, &begin(&["2", "0"], false)).unwrap();
        let both = begin(&["2", "0", "1"], true);
        assert_eq!(told(&folder).0, [end("slurm-1"), both]);
        // After its end only what came since counts.
        leave(&folder, &begin(&["0", "1"], true)).unwrap();
        leave(&folder, &end("slurm-1")).unwrap();
        leave(&folder, &begin(&["2"], false)).unwrap();
        assert_eq!(told(&folder).0, [end("slurm-1"), begin(&["2"], false)]);
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
