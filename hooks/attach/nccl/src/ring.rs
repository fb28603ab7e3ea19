//! The writer's end of a ring: a file in shared memory that this process has mapped.
// Mapping memory has no safe interface.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr};
use std::fs::{self, File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use litd_attach::ring::{
    AT_BEGUN, AT_DROPPED, AT_MAGIC, AT_PID, BEGIN, BYTES, END, HEADER_WORDS, MAGIC, RECORD_WORDS,
    Record, SLOTS,
};
use nix::fcntl::{FallocateFlags, Flock, FlockArg, OFlag, fallocate};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::Uid;

/// The variable that names the directory for rings.
const DIRECTORY: &str = "LITD_NCCL_DIRECTORY";

/// A job's begin waits no longer for the removal of old rings: anybody can make any number of files.
const PATIENCE: Duration = Duration::from_secs(1);

/// Removes this user's rings whose processes have ended: a ring takes memory, and no other program removes it.
fn remove_old(directory: &Path) {
    let Ok(files) = fs::read_dir(directory) else {
        return;
    };
    let (own, began) = (Uid::effective().as_raw(), Instant::now());
    let files = files.take_while(|_| began.elapsed() < PATIENCE).flatten();
    for file in files {
        let (name, path) = (file.file_name(), file.path());
        if !name.as_encoded_bytes().starts_with(BEGIN.as_bytes())
            || path.extension() != Some(OsStr::new(END))
            // No link is followed for that.
            || file.metadata().map_or(true, |it| it.uid() != own)
        {
            continue;
        }
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).bits();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path);
        // A process that lives has its own locked.
        if file.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()) {
            drop(fs::remove_file(&path));
        }
    }
}

/// The writer's end of a ring.
pub struct Ring {
    words: &'static [AtomicU64],
    /// Its lock shows the reader that the process lives; the file stays in the directory when it has ended.
    _file: Flock<File>,
}

impl Ring {
    /// A new ring in the directory that the environment names, or why there is none.
    pub fn from_environment() -> Result<Self, &'static CStr> {
        let directory = std::env::var_os(DIRECTORY).filter(|it| !it.is_empty());
        let directory = directory.ok_or(c"LITD_NCCL_DIRECTORY is not set")?;
        Self::within(&directory)
    }

    /// A new ring in this directory, or why there is none. Rings of processes that have ended are removed.
    pub fn within(directory: &OsStr) -> Result<Self, &'static CStr> {
        let directory = Path::new(directory);
        remove_old(directory);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let moment = since.map_or(0, |it| it.as_nanos());
        let path = directory.join(format!("{BEGIN}{}-{moment}.new", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits())
            .open(&path);
        let file = file.map_err(|_| c"no file can be made in LITD_NCCL_DIRECTORY")?;
        // Its name says that it is a ring once it is one.
        let ring = Self::of(file).and_then(|ring| {
            let named = fs::rename(&path, path.with_extension(END));
            named.map(|()| ring).map_err(|_| c"a ring can't be renamed")
        });
        ring.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    fn of(file: File) -> Result<Self, &'static CStr> {
        // Elsewhere the kernel would write records to a disk, and have the job wait for it.
        let is_tmpfs = fstatfs(&file).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
        let file = is_tmpfs
            .then_some(file)
            .ok_or(c"LITD_NCCL_DIRECTORY is no tmpfs")?;
        // A page that can't be had later would end the job (SIGBUS).
        fallocate(&file, FallocateFlags::empty(), 0, BYTES as i64)
            .map_err(|_| c"the tmpfs of LITD_NCCL_DIRECTORY is full")?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| c"a ring can't be locked")?;
        let length = NonZeroUsize::new(BYTES).ok_or(c"a ring is empty")?;
        let how = (
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE,
        );
        // SAFETY: the kernel chooses an address that nothing is at.
        let mapped = unsafe { mmap(None, length, how.0, how.1, &*file, 0) };
        let mapped = mapped.map_err(|_| c"a ring can't be mapped")?;
        // SAFETY: so many bytes are mapped at a page's begin, never unmapped, and changed by atomics alone; any bits
        // are a word. (A process of the same user that shortens the file ends the job. So it can in other ways.)
        let words =
            unsafe { slice::from_raw_parts(mapped.as_ptr().cast::<AtomicU64>(), BYTES / 8) };
        let ring = Self { words, _file: file };
        ring.word(AT_PID)
            .store(u64::from(std::process::id()), Relaxed);
        ring.word(AT_MAGIC).store(MAGIC, Release);
        Ok(ring)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // `at` is one of the header's.
        &self.words[at % HEADER_WORDS]
    }

    /// For how many collectives there was no room.
    pub fn dropped(&self) -> &AtomicU64 {
        self.word(AT_DROPPED)
    }

    /// Adds a record, in place of the oldest. A reader tells by its check when all its words are there.
    pub fn write(&self, record: &Record) {
        let number = self.word(AT_BEGUN).fetch_add(1, Relaxed);
        let slot = (number % SLOTS as u64) as usize;
        let from = HEADER_WORDS + slot * RECORD_WORDS;
        let words = self
            .words
            .get(from..from + RECORD_WORDS)
            .unwrap_or_default();
        for (word, value) in words.iter().zip(record.words(number)) {
            word.store(value, Relaxed);
        }
    }

    /// The records that were written.
    #[cfg(test)]
    pub fn records(&self) -> Vec<Record> {
        let bytes: Vec<u8> = self
            .words
            .iter()
            .flat_map(|it| it.load(Relaxed).to_ne_bytes())
            .collect();
        let read = |at: u64, out: &mut [u8]| {
            let at = at as usize;
            out.copy_from_slice(&bytes[at..at + out.len()]);
            Ok(())
        };
        litd_attach::ring::Reader::default()
            .read(read)
            .unwrap()
            .records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_files_keep_no_old_ring_from_being_removed() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let ring = |name: &str| directory.path().join(format!("{BEGIN}{name}.{END}"));
        for name in ["1-1", "2-2"] {
            fs::write(ring(name), "").unwrap();
        }
        let lives = Flock::lock(File::open(ring("2-2")).unwrap(), FlockArg::LockExclusive).unwrap();
        // A tmpfs lists the newest first.
        for at in 0..10_001 {
            fs::write(directory.path().join(format!("x{at}")), "").unwrap();
        }
        remove_old(directory.path());
        assert!(!ring("1-1").exists());
        assert!(ring("2-2").exists(), "its process lives");
        drop(lives);
    }
}
