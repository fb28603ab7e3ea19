//! How every file is opened that the daemon, or litctl on its behalf, reads or writes while it
//! runs: it must be a regular one. Opening a named pipe waits for whoever is at its other end, and
//! opening a device may act on it; here both are refused at once, and so is a file that is longer
//! than what belongs there.

mod beneath;

use std::fs::{self, File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::Uid;

pub use beneath::{Beneath, NotTaken};

/// No file of litd's own state is longer, in bytes: they have some kilobytes, and are rewritten
/// long before.
pub const LONGEST_STATE: u64 = 16 << 20;

/// No configuration is longer, in bytes, nor a lease.
pub const LONGEST_CONFIG: u64 = 1 << 20;

/// Opens a regular file.
///
/// # Errors
/// There is none, the system refuses, or what is there is of another kind. The error says which;
/// the caller has the name.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_if(fs::metadata(path), path, OFlag::empty(), options)
}

/// Opens a file that nobody but litd makes. A link is none: whoever has put it there says with it which
/// file is written to.
///
/// # Errors
/// As [`open`], or it is a link.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_if(fs::symlink_metadata(path), path, OFlag::O_NOFOLLOW, options)
}

fn open_if(
    there: io::Result<Metadata>,
    path: &Path,
    flags: OFlag,
    options: &mut OpenOptions,
) -> io::Result<File> {
    // Looked at first, because opening a device may do something.
    if let Ok(there) = there {
        check(&there)?;
    }
    // Another file may be there by now. Opened without waiting it does no harm.
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = options.custom_flags(flags.bits()).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file.
///
/// # Errors
/// It can't be opened ([`open`]) or read, or has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    whole(open(path, OpenOptions::new().read(true))?, most)
}

/// Reads a file that nobody but litd makes.
///
/// # Errors
/// It can't be opened ([`open_own`]) or read, or has more than `most` bytes.
pub fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    whole(open_own(path, OpenOptions::new().read(true))?, most)
}

fn whole(file: File, most: u64) -> io::Result<Vec<u8>> {
    let bytes = begin_of(file, most.saturating_add(1))?;
    match bytes.len() as u64 > most {
        true => Err(invalid(format!(
            "has more than {most} bytes; no such file is so long"
        ))),
        false => Ok(bytes),
    }
}

/// Reads a regular file of text.
///
/// # Errors
/// [`read`] fails, or it is not UTF-8.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| invalid(error.to_string()))
}

/// Reads the first bytes of a regular file.
///
/// # Errors
/// It can't be opened ([`open`]) or read.
pub fn head(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    begin_of(open(path, OpenOptions::new().read(true))?, most)
}

fn begin_of(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The metadata at an open file's path, if the file is still there: it may have been moved or removed since.
#[must_use]
pub fn still_at(file: &File, path: &Path) -> Option<Metadata> {
    let (ours, there) = (file.metadata().ok()?, fs::metadata(path).ok()?);
    ((ours.dev(), ours.ino()) == (there.dev(), there.ino())).then_some(there)
}

/// Makes a directory in which others find their sockets, whatever the process's umask is, and those that it
/// lies in. One that is there stays as it is.
///
/// # Errors
/// The system refuses.
pub fn make_open(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.exists() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make_open(parent)?;
    }
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| fs::set_permissions(directory, Permissions::from_mode(0o755))),
    }
}

/// Whether a user is neither root nor this process's: what is his he may have made, and may replace.
#[must_use]
pub fn is_others(uid: u32) -> bool {
    uid != 0 && uid != Uid::effective().as_raw()
}

/// Makes a file anew for reading and writing. What stands in its place, a link or a named pipe too, is taken away and
/// never opened.
///
/// # Errors
/// The system refuses, or what stands there can't be taken away.
pub fn make_anew(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options.read(true).write(true).create_new(true).open(path)
}

/// Replaces a file that only its owner may read: at any moment the old one or the new one is there. The new one is
/// made at `beside`, in the same directory, first. Nothing is synced: what a power cut takes away is made again.
///
/// # Errors
/// As [`make_anew`], or what the system says of writing or renaming it.
pub fn replace_private(path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
    make_anew(beside, OpenOptions::new().mode(0o600))?.write_all(bytes)?;
    fs::rename(beside, path)
}

/// Sees to it that in a directory of litd's nobody else makes, replaces or links files. Where others may, as in
/// what container engines mount, that right is taken away.
///
/// # Errors
/// It, or a directory above it, belongs to another user, or everybody may write to one above it; or it holds more than
/// files of litd's, or that right can't be taken away. The error names the directory.
pub fn keep_others_out(directory: &Path) -> io::Result<()> {
    let failed = |why: String| {
        let why = format!("{}: {why}", directory.display());
        io::Error::new(io::ErrorKind::PermissionDenied, why)
    };
    let there = fs::metadata(directory)?;
    let uid = there.uid();
    let real = directory.canonicalize()?;
    let above = real.ancestors().chain(directory.ancestors()).skip(1);
    for above in above.filter(|it| !it.as_os_str().is_empty()) {
        let it = fs::symlink_metadata(above)?;
        let uid = it.uid();
        // Where a directory is everybody's, its sticky bit keeps others from what is not theirs.
        let is_open = it.is_dir() && above != directory && it.mode() & 0o1002 == 0o0002;
        if is_open {
            return Err(failed(format!(
                "everybody may write to {}, and so put another directory or a link in its place: take that right \
                 away (chmod o-w), set the sticky bit (chmod +t), or name a directory elsewhere",
                above.display()
            )));
        }
        if is_others(uid) && (above != directory || it.is_symlink()) {
            return Err(failed(format!(
                "{} belongs to user {uid}, who can put another directory or a link in its place: name a directory \
                 below one of litd's user or of root",
                above.display()
            )));
        }
    }
    if is_others(uid) {
        return Err(failed(format!(
            "belongs to user {uid}, who can replace what litd writes there: give it to litd's user (chown), \
             and remove from it what is not litd's"
        )));
    }
    let mode = there.mode() & 0o7777;
    if mode & 0o022 == 0 {
        return Ok(());
    }
    // A directory of many (`/tmp`, `/var/log`) is not litd's to close.
    for entry in directory.read_dir()? {
        let entry = entry?.metadata()?;
        let is_shared = mode & 0o1000 != 0 && !entry.is_file();
        if is_shared || entry.uid() != Uid::effective().as_raw() {
            return Err(failed(
                "others can replace what litd writes there, and it holds more than litd's files: name a directory \
                 of litd's own"
                    .to_owned(),
            ));
        }
    }
    fs::set_permissions(directory, Permissions::from_mode(mode & !0o022)).map_err(|error| {
        failed(format!(
            "others can replace what litd writes there: let nobody but litd's user write to it (chmod \
             go-w): {error}"
        ))
    })
}

fn check(there: &Metadata) -> io::Result<()> {
    match other_kind(there.file_type()) {
        None => Ok(()),
        Some(kind) => Err(invalid(format!("is {kind}; it must be a regular file"))),
    }
}

fn other_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_symlink() => Some("a link"),
        kind if kind.is_fifo() => Some("a named pipe"),
        kind if kind.is_socket() => Some("a socket"),
        kind if kind.is_char_device() || kind.is_block_device() => Some("a device"),
        _ => Some("no file"),
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn whatever_is_no_regular_file_is_refused_at_once() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("pipe", at("link")).unwrap();
        let others = [
            (at("pipe"), "a named pipe"),
            (at("link"), "a named pipe"),
            (at("socket"), "a socket"),
            (at("directory"), "a directory"),
            ("/dev/zero".into(), "a device"),
        ];
        for (path, kind) in others {
            let expected = format!("is {kind}; it must be a regular file");
            for mut options in [
                OpenOptions::new().read(true).clone(),
                OpenOptions::new().append(true).create(true).clone(),
                OpenOptions::new().write(true).create(true).clone(),
            ] {
                let error = open(&path, &mut options).unwrap_err().to_string();
                assert_eq!(error, expected, "{}", path.display());
            }
            assert_eq!(head(&path, 10).unwrap_err().to_string(), expected);
            assert_eq!(text(&path, 10).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn what_is_litds_own_is_no_link_and_nobody_elses_to_replace() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        fs::write(&file, "theirs").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let dangling = place.path().join("dangling");
        std::os::unix::fs::symlink("none", &dangling).unwrap();
        for link in [&link, &dangling] {
            let error = read_own(link, 10).unwrap_err().to_string();
            assert_eq!(error, "is a link; it must be a regular file");
            open_own(link, OpenOptions::new().write(true).create(true)).unwrap_err();
        }
        assert!(!place.path().join("none").exists());
        assert_eq!(read_own(&file, 10).unwrap(), b"theirs");
        assert_eq!(read(&link, 10).unwrap(), b"theirs");
    }

    #[test]
    fn a_directory_of_litds_own_is_closed_to_others_and_one_of_many_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let open = || fs::set_permissions(place.path(), Permissions::from_mode(0o1777)).unwrap();
        let mode = || place.path().metadata().unwrap().mode() & 0o7777;
        fs::write(place.path().join("journal"), "").unwrap();
        open();
        keep_others_out(place.path()).unwrap();
        assert_eq!(mode(), 0o1755);
        open();
        fs::create_dir(place.path().join("systemd-private")).unwrap();
        let error = keep_others_out(place.path()).unwrap_err().to_string();
        assert!(error.contains("more than litd's files"), "{error}");
        assert_eq!(mode(), 0o1777);
    }

    /// As the scratch directory of a cluster may be.
    #[test]
    fn a_directory_below_one_that_is_everybodys_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let scratch = place.path().join("scratch");
        let directory = scratch.join("litd");
        fs::create_dir_all(&directory).unwrap();
        for (mode, is_safe) in [(0o777, false), (0o1777, true), (0o775, true)] {
            fs::set_permissions(&scratch, Permissions::from_mode(mode)).unwrap();
            let kept = keep_others_out(&directory);
            assert_eq!(kept.is_ok(), is_safe, "{mode:o}: {kept:?}");
            let said = kept.err().map(|it| it.to_string()).unwrap_or_default();
            assert!(is_safe || said.contains("chmod +t"), "{said}");
        }
    }

    #[test]
    fn a_directory_below_another_users_is_refused() {
        if !Uid::effective().is_root() {
            eprintln!("SKIPPED: only root can give a directory to another user");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let [theirs, ours, link] = ["theirs", "ours", "link"].map(|it| place.path().join(it));
        fs::create_dir_all(theirs.join("litd")).unwrap();
        fs::create_dir(&ours).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65_000), None).unwrap();
        std::os::unix::fs::symlink(&ours, theirs.join("link")).unwrap();
        for directory in [theirs.join("litd"), theirs.join("link")] {
            let error = keep_others_out(&directory).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65000"), "{error}");
        }
        // A link of litd's own leads where litd's user wants it to.
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        keep_others_out(&link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65_000), None).unwrap();
        assert!(keep_others_out(&link).is_err());
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_its_head_can_be_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        assert_eq!(read(&path, 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "12345").unwrap();
        assert_eq!(text(&path, 5).unwrap(), "12345");
        assert_eq!(head(&path, 4).unwrap(), b"1234");
        let error = read(&path, 4).unwrap_err().to_string();
        assert!(error.starts_with("has more than 4 bytes"), "{error}");
        fs::write(&path, b"\xff").unwrap();
        assert!(text(&path, 5).is_err());
    }
}
