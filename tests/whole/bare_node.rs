//! A machine without a GPU, without powercap and without privileges: litd runs there, says that it
//! has nothing to do, and ends as it should.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

const LITD: &str = env!("CARGO_BIN_EXE_litd");

/// `nobody`, on every Linux.
const NOBODY: u32 = 65_534;

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(30);

struct Bare {
    directory: tempfile::TempDir,
}

impl Bare {
    /// A machine whose /sys, /dev and /proc are empty.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::set_permissions(at, fs::Permissions::from_mode(0o777)).unwrap();
        for name in ["sys", "dev", "proc"] {
            fs::create_dir(at.join(name)).unwrap();
        }
        let path = at.display();
        let config = format!(
            "[hardware]\nsys = \"{path}/sys\"\ndev = \"{path}/dev\"\nproc = \"{path}/proc\"\n\
             nvml_library = \"{path}/none.so\"\nrocm_smi_library = \"{path}/none.so\"\n\
             [state]\ndirectory = \"{path}/state\"\nlocks = \"{path}/devices\"\n[ingest]\nsocket = \"{path}/i\"\n\
             [control]\nsocket = \"{path}/c\"\nread_group = \"\"\nadmin_group = \"\"\n\
             [metrics]\nlisten = \"off\"\n"
        );
        fs::write(at.join("litd.toml"), config).unwrap();
        fs::set_permissions(at.join("litd.toml"), fs::Permissions::from_mode(0o644)).unwrap();
        // Where the project was built `nobody` may have no way in. A process of its own copies:
        // a program that this one holds open for writing, or a child that another test has just
        // forked, could not be run.
        let copied = Command::new("cp").arg(LITD).arg(at.join("litd")).status();
        assert!(copied.unwrap().success());
        Self { directory }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("litd"));
        command
            .arg("--config")
            .arg(self.path("litd.toml"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if Uid::effective().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

/// Ends the daemon as systemd would, and tells what it said.
fn stop(daemon: Child) -> Output {
    kill(
        Pid::from_raw(daemon.id().try_into().unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    daemon.wait_with_output().unwrap()
}

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < SOON, "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn litd_runs_where_there_is_nothing_to_cap_and_says_so() {
    let bare = Bare::new();
    let daemon = bare.command(&[]).spawn().unwrap();
    wait_for(&bare.path("c"));
    let output = stop(daemon);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("no device whose power can be capped"),
        "{said}"
    );
    assert!(said.contains("litctl doctor"), "{said}");
    assert!(said.contains("not root"), "{said}");
}

#[test]
fn restoring_there_is_nothing_to_do() {
    let bare = Bare::new();
    let output = bare.command(&["restore"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}
