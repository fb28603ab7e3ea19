//! What a purge leaves behind: the package's own script, run as dpkg does, on directories that are made up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use litd::audit::AuditFiles;
use litd::state::FileStore;
use litd_core::journal::{Journal, Lock};
use litd_units::Watts;
use tempfile::TempDir;

use crate::built::repository;

const GPU: &str = "0000:85:00.0";
const OTHER: &str = "0000:26:00.0";

/// Covers what the script writes to, lays a state directory there, and keeps what the script leaves of `/var/lib`.
const SCRIPT: &str = "\
set -e
for covered in /etc /run /var/lib; do mount -t tmpfs tmpfs \"$covered\"; done
mkdir -p /etc/litd /run/litd/devices
cp -a \"$1/litd\" /var/lib/litd
cp -a \"$1/run/.\" /run/litd
PATH=$1/programs:$PATH sh -e \"$2\" purge
cp -a /var/lib/. \"$1/left\"
[ ! -e /run/litd ] || cp -a /run/litd \"$1/left-run\"
";

/// How a mount namespace is made here: as root, or as root of a user namespace.
fn namespace() -> Option<&'static str> {
    let works = |flags: &&str| {
        let tried = Command::new("unshare")
            .args([flags, "sh", "-c", "mount -t tmpfs tmpfs /var/lib"])
            .output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let flags = ["-m", "-Urm"].into_iter().find(works);
    if flags.is_none() {
        eprintln!("SKIPPED: nothing can be mounted here (unshare -m)");
    }
    flags
}

/// A machine on which litd's package was removed.
struct Machine {
    directory: TempDir,
    namespace: &'static str,
}

/// What is left in `/var/lib` after the purge, by name, and what the script has said.
struct Left {
    files: Vec<(String, Vec<u8>)>,
    said: String,
}

impl Machine {
    fn new() -> Option<Self> {
        let namespace = namespace()?;
        let directory = tempfile::tempdir().unwrap();
        for name in ["litd", "run", "programs", "left"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        // The machine that runs the test has units of its own.
        let helper = directory.path().join("programs/deb-systemd-helper");
        fs::write(&helper, "#!/bin/sh\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&helper, mode).unwrap();
        Some(Self {
            directory,
            namespace,
        })
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("litd")
    }

    /// Litd has lowered the caps of two GPUs, and given back those of the ones that are named. The journal's contents.
    fn journal(&self, given_back: &[&str]) -> Vec<u8> {
        let audit = AuditFiles::new(&self.state().join("audit"), "", 1 << 20, 2);
        let mut store = FileStore::new(&self.state(), audit);
        let (mut journal, _) = Journal::open(&mut store, "boot").unwrap();
        for address in [GPU, OTHER] {
            journal
                .begin(&mut store, address, None, Watts(700.0))
                .unwrap();
            let write = [(address, Watts(600.0))];
            journal.intend(&mut store, &write).unwrap();
        }
        for address in given_back {
            journal.released(&mut store, address).unwrap();
        }
        fs::read(self.state().join("journal")).unwrap()
    }

    fn purge(&self) -> Left {
        let script = repository().join("deploy/debian/postrm");
        let output = Command::new("unshare")
            .args([self.namespace, "sh", "-c", SCRIPT, "sh"])
            .arg(self.directory.path())
            .arg(script)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let entries = fs::read_dir(self.directory.path().join("left")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut files: Vec<_> = paths
            .map(|path| (name(&path), fs::read(path).unwrap()))
            .collect();
        files.sort();
        Left { files, said }
    }
}

impl Left {
    /// The only files are these, whose names have the time of the purge in them.
    #[track_caller]
    fn assert(&self, expected: &[(&str, &[u8])]) {
        let names: Vec<&str> = self.files.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names.len(), expected.len(), "{names:?}: {}", self.said);
        for ((name, bytes), (end, contents)) in self.files.iter().zip(expected) {
            let time = name.strip_prefix("litd-journal.").unwrap();
            let time = time.strip_suffix(end).unwrap();
            assert!(time.bytes().all(|it| it.is_ascii_digit()), "{names:?}");
            assert_eq!(bytes, contents, "{name}");
            let path = format!("/var/lib/{name}");
            assert!(self.said.contains(&path), "{}", self.said);
        }
        assert_eq!(self.said.is_empty(), expected.is_empty(), "{}", self.said);
    }
}

#[test]
fn a_purge_keeps_a_journal_that_names_a_device() {
    for given_back in [&[][..], &[GPU], &[OTHER]] {
        let Some(machine) = Machine::new() else {
            return;
        };
        let journal = machine.journal(given_back);
        machine.purge().assert(&[("", &journal)]);
    }
}

/// The clocks of both GPUs were locked, and those of the ones that are named are free again. Their caps are back.
#[test]
fn a_purge_keeps_a_journal_that_names_locked_clocks_only() {
    for (freed, keeps) in [(&[][..], true), (&[GPU], true), (&[GPU, OTHER], false)] {
        let Some(machine) = Machine::new() else {
            return;
        };
        machine.journal(&[]);
        let audit = AuditFiles::new(&machine.state().join("audit"), "", 1 << 20, 2);
        let mut store = FileStore::new(&machine.state(), audit);
        let (mut journal, _) = Journal::open(&mut store, "boot").unwrap();
        for address in [GPU, OTHER] {
            journal.lock_clocks(&mut store, address).unwrap();
            journal
                .lock_became(&mut store, address, Lock::Done)
                .unwrap();
        }
        for address in [GPU, OTHER] {
            journal.released(&mut store, address).unwrap();
        }
        for address in freed {
            journal.freed_clocks(&mut store, address).unwrap();
        }
        let left = fs::read(machine.state().join("journal")).unwrap();
        let purged = machine.purge();
        match keeps {
            true => purged.assert(&[("", &left)]),
            false => purged.assert(&[]),
        }
        assert_eq!(purged.said.contains("clocks"), keeps, "{}", purged.said);
    }
}

#[test]
fn a_purge_leaves_nothing_where_all_caps_are_back() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine.journal(&[GPU, OTHER]);
    machine.purge().assert(&[]);
    // Nor where litd has never written one.
    let machine = Machine::new().unwrap();
    machine.purge().assert(&[]);
}

#[test]
fn a_purge_keeps_the_copy_of_a_damaged_journal() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let journal = machine.journal(&[GPU, OTHER]);
    fs::write(machine.state().join("journal.damaged"), "damaged").unwrap();
    machine
        .purge()
        .assert(&[("", &journal), (".damaged", b"damaged")]);
    // Somebody has removed the journal beside it.
    let machine = Machine::new().unwrap();
    fs::write(machine.state().join("journal.damaged"), "damaged").unwrap();
    machine.purge().assert(&[(".damaged", b"damaged")]);
}

/// The file is the only record of a limit that is not restored: it stays where it is, alone, and is told of.
#[test]
fn a_purge_keeps_the_record_of_a_short_term_limit() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let run = machine.directory.path().join("run");
    fs::create_dir_all(run.join("devices")).unwrap();
    fs::create_dir(run.join("announced")).unwrap();
    let record = "1 2 3 4 5 6 msr\n";
    for (name, text) in [
        ("devices/cpu0.short-term", record),
        ("devices/cpu0", ""),
        ("devices/.numbers", "cpu cpu0 0\n"),
        ("announced/slurm-1", "{}"),
        ("baseline", ""),
    ] {
        fs::write(run.join(name), text).unwrap();
    }
    let left = machine.purge();
    assert!(
        left.said
            .contains("CPU sockets may not be as they were found: cpu0."),
        "{}",
        left.said
    );
    assert!(left.files.is_empty(), "{:?}", left.files);
    let kept = machine.directory.path().join("left-run");
    let names = |of: &Path| -> Vec<String> {
        let entries = fs::read_dir(of).unwrap();
        entries
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(names(&kept), ["devices"]);
    assert_eq!(names(&kept.join("devices")), ["cpu0.short-term"]);
    let text = fs::read_to_string(kept.join("devices/cpu0.short-term"));
    assert_eq!(text.unwrap(), record);
    // Nothing is left of the directory otherwise.
    let machine = Machine::new().unwrap();
    machine.purge().assert(&[]);
    assert!(!machine.directory.path().join("left-run").exists());
}
