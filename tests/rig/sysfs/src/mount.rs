//! Mounting, and above all unmounting: a process that reads from a dead mount hangs or fails, so
//! none may be left behind, whatever happens to the process that made it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use fuser::{Config, Session, SessionACL};
use litd_power::Search;
use litd_recording::Recording;
use litd_rig::{Hardware, SharedHardware, lock};
use litd_sim::Scenario;
use nix::libc::O_CLOEXEC;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::board::Board;
use crate::filesystem::{Shared, Sysfs};
use crate::recorded::Recorded;

const FUSE: &str = "/dev/fuse";

/// The obstacle to mounting anything here, if there is one: for tests to skip.
#[must_use]
pub fn obstacle() -> Option<String> {
    if !geteuid().is_root() {
        return Some("a made-up /sys takes root".to_owned());
    }
    match open_fuse() {
        Ok(_) => None,
        Err(error) => Some(format!("a made-up /sys takes FUSE: {error}")),
    }
}

/// A made-up `/sys` and `/dev`, until it is dropped. If this process dies before, a guard
/// process unmounts them.
#[derive(Debug)]
pub struct Mount {
    shared: Arc<Shared>,
    guard: Guard,
    directory: TempDir,
}

impl Mount {
    /// Mounts `hardware` as the drivers of `board` show it, below a new temporary directory. The
    /// sockets' caps get their driver's resolution.
    ///
    /// # Errors
    /// See [`obstacle`]; the error names what could not be done.
    pub fn start(hardware: SharedHardware, board: Board) -> io::Result<Self> {
        {
            let mut hardware = lock(&hardware);
            for cpu in hardware.plant().gpu_count()..hardware.len() {
                if let Some(range) = hardware.range_mut(cpu) {
                    range.resolution = board.cpu_resolution();
                }
            }
        }
        Self::of(Shared::new(hardware, board))
    }

    /// Mounts a recorded node below a new temporary directory: `sys`, `dev` and `proc`. Each file reads as it was
    /// recorded until it is written; see the module `recorded` for what is refused.
    ///
    /// # Errors
    /// See [`obstacle`]; the error names what could not be done.
    pub fn recorded(recording: &Recording) -> io::Result<Self> {
        // Faults are injected into hardware, and a recording has none.
        let hardware = Scenario::builtin("default")
            .map_err(io::Error::other)
            .and_then(|scenario| Hardware::new(&scenario, 1).map_err(io::Error::other))?;
        Self::of(Shared::recorded(
            hardware.shared(),
            Recorded::new(recording),
        ))
    }

    fn of(shared: Shared) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("litd-sysfs-").tempdir()?;
        // Users other than root may look, as they may into the real one.
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), everybody)?;
        let guard = Guard::start(directory.path())?;
        let fuse = open_fuse()?;
        let options = format!(
            "fd={},rootmode=40755,user_id=0,group_id=0,allow_other,default_permissions",
            fuse.as_raw_fd()
        );
        mount(
            Some("litd-rig-sysfs"),
            directory.path(),
            Some("fuse"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
            Some(options.as_str()),
        )?;
        let shared = Arc::new(shared);
        let mount = Self {
            shared: shared.clone(),
            guard,
            directory,
        };
        let session = Session::from_fd(
            Sysfs(shared),
            fuse.into(),
            SessionACL::All,
            Config::default(),
        )?;
        // The thread ends when no process has a file of the mount open any more; it is not waited for.
        thread::Builder::new()
            .name("sysfs".to_owned())
            .spawn(move || session.run())?;
        Ok(mount)
    }

    /// The made-up `/sys`.
    #[must_use]
    pub fn sys(&self) -> PathBuf {
        self.directory.path().join("sys")
    }

    /// The made-up `/dev`.
    #[must_use]
    pub fn dev(&self) -> PathBuf {
        self.directory.path().join("dev")
    }

    /// The recorded `/proc`.
    #[must_use]
    pub fn proc(&self) -> PathBuf {
        self.directory.path().join("proc")
    }

    /// Where back ends look to find nothing but this.
    #[must_use]
    pub fn search(&self) -> Search {
        Search {
            sys: self.sys(),
            dev: self.dev(),
            ..Search::default()
        }
    }

    /// The section `[hardware]` of a configuration for the same.
    #[must_use]
    pub fn config(&self) -> String {
        let (sys, dev) = (self.sys(), self.dev());
        format!(
            "[hardware]\nsys = \"{}\"\ndev = \"{}\"\n",
            sys.display(),
            dev.display()
        )
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.shared.stop();
        // Detached at once; the rest goes when the last open file is closed.
        let _ = umount2(self.directory.path(), MntFlags::MNT_DETACH);
        self.guard.dismiss();
    }
}

fn open_fuse() -> io::Result<File> {
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(O_CLOEXEC)
        .open(FUSE);
    opened.map_err(|error| io::Error::new(error.kind(), format!("{FUSE}: {error}")))
}

/// A shell that waits until this process is done with a mount, or dead, and unmounts it in the
/// latter case. Interrupts from the terminal are not for it.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn start(directory: &Path) -> io::Result<Self> {
        const WAIT: &str = r#"read -r done || { umount -l "$1"; rmdir "$1"; }"#;
        let child = Command::new("sh")
            .args(["-c", WAIT, "sh"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }

    fn dismiss(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = stdin.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
