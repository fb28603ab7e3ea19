//! A whole node for tests and the demo: directory, hardware, ledger, clock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use litd_sim::{PlantError, Scenario};
use litd_units::Nanos;
use tempfile::TempDir;
use thiserror::Error;

use crate::clock::{Clock, ClockError, Frames};
use crate::daemon::{self, Daemon, DaemonError, Layout};
use crate::hardware::{Hardware, SharedHardware, gpu_address};
use crate::job::{Job, JobError, JobSpec};
use crate::ledger::Ledger;
use crate::lock;
use crate::node::Node;
use crate::nvidia::{install_nvidia_bus, install_nvml};

/// Why a rig can't be set up.
#[derive(Debug, Error)]
pub enum RigError {
    /// The scenario makes no sense.
    #[error(transparent)]
    Plant(#[from] PlantError),
    /// The temporary directory, or a socket in it.
    #[error("setting up the rig: {0}")]
    System(#[from] io::Error),
}

/// A simulated node with its sockets in a temporary directory, which goes with it.
#[derive(Debug)]
pub struct Rig {
    hardware: SharedHardware,
    ledger: Ledger,
    node: Option<Node>,
    clock: Clock,
    frames: Frames,
    now: Nanos,
    layout: Layout,
    /// Last, so that it is removed after all that lies in it.
    _directory: TempDir,
}

impl Rig {
    /// Switches a node on and serves it; no daemon runs yet.
    ///
    /// # Errors
    /// The scenario makes no sense, or the system gives no directory, socket or thread.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, RigError> {
        let directory = tempfile::Builder::new().prefix("litd-rig-").tempdir()?;
        let layout = Layout::new(directory.path());
        let hardware = Hardware::new(scenario, seed)?;
        let ledger = hardware.ledger();
        let hardware = hardware.shared();
        Ok(Self {
            node: Some(Node::start(&layout.hardware(), hardware.clone())?),
            clock: Clock::start(&layout.clock())?,
            frames: Frames::default(),
            now: Nanos::ZERO,
            hardware,
            ledger,
            layout,
            _directory: directory,
        })
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The hardware, for this thread alone while the guard lives. The node waits meanwhile.
    pub fn hardware(&self) -> MutexGuard<'_, Hardware> {
        lock(&self.hardware)
    }

    /// The hardware, to share.
    #[must_use]
    pub fn shared_hardware(&self) -> SharedHardware {
        self.hardware.clone()
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Puts a `libnvidia-ml.so.1` beside the sockets whose GPUs are those of this node.
    ///
    /// # Errors
    /// The library has not been built, or can't be copied.
    pub fn install_nvml(&self) -> io::Result<PathBuf> {
        install_nvml(&self.layout.directory, &self.layout.hardware())
    }

    /// A `/sys` in which the PCI bus shows this node's GPUs as NVIDIA's.
    ///
    /// # Errors
    /// It can't be made.
    pub fn install_nvidia_bus(&self) -> io::Result<PathBuf> {
        let gpus = self.hardware().plant().gpu_count();
        install_nvidia_bus(&self.layout.directory, (0..gpus).map(gpu_address))
    }

    /// Unloads all drivers: connections break, and nobody answers. The hardware keeps its caps.
    pub fn unload(&mut self) {
        self.node = None;
    }

    /// Loads the drivers again.
    ///
    /// # Errors
    /// The socket can't be made.
    pub fn load(&mut self) -> io::Result<()> {
        self.node = None;
        self.node = Some(Node::start(&self.layout.hardware(), self.hardware.clone())?);
        Ok(())
    }

    /// A configuration for this node; see [`daemon::default_config`].
    #[must_use]
    pub fn config(&self, extra: &str) -> String {
        daemon::default_config(&self.layout.directory, extra)
    }

    /// Starts litd on this node under the system's clock and waits until it is ready.
    ///
    /// # Errors
    /// It does not get ready.
    pub fn spawn(&self, program: &Path, config: &str) -> Result<Daemon, DaemonError> {
        self.frames.reset();
        Daemon::spawn(program, &self.layout.directory, config, None)
    }

    /// Starts litd on this node under the rig's clock, tells it the time, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// It does not connect to the clock, or does not get ready.
    pub fn spawn_clocked(&mut self, program: &Path, config: &str) -> Result<Daemon, DaemonError> {
        let mut daemon = self.launch_clocked(program, config)?;
        self.make_ready(&mut daemon)?;
        Ok(daemon)
    }

    /// The first half of [`Rig::spawn_clocked`]: starts litd, and returns at once.
    ///
    /// # Errors
    /// It can't be started.
    pub fn launch_clocked(&mut self, program: &Path, config: &str) -> Result<Daemon, DaemonError> {
        self.frames.reset();
        self.clock.forget()?;
        let socket = self.layout.clock();
        Daemon::launch(program, &self.layout.directory, config, Some(&socket))
    }

    /// The second half: tells a daemon the time, and waits until it is ready.
    ///
    /// # Errors
    /// It does not connect to the clock, or does not get ready.
    pub fn make_ready(&mut self, daemon: &mut Daemon) -> Result<(), DaemonError> {
        let clock = &mut self.clock;
        daemon.wait_for("connected to the clock", || {
            // An error of the socket comes back from the advance below.
            clock.is_connected().unwrap_or(true)
        })?;
        self.clock.advance(self.now, 0)?;
        daemon.become_ready()
    }

    /// Connects a job; its frames are counted for [`Rig::advance`].
    ///
    /// # Errors
    /// A rank can't connect, or is not answered.
    pub fn attach(&self, spec: JobSpec) -> Result<Job, JobError> {
        self.attach_through(&self.layout.ingest(), spec)
    }

    /// The same through another socket, at which a process passes on what is said to the ingest socket: the ranks
    /// are that process's then.
    ///
    /// # Errors
    /// A rank can't connect, or is not answered.
    pub fn attach_through(&self, socket: &Path, spec: JobSpec) -> Result<Job, JobError> {
        let hardware = self.hardware.clone();
        Job::attach(socket, spec, hardware, self.frames.clone())
    }

    /// The rig's time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// How many frames the present daemon was sent.
    #[must_use]
    pub fn frames(&self) -> Frames {
        self.frames.clone()
    }

    /// Lets `time` pass for daemon and ledger, and waits until the daemon has done everything
    /// that follows from that and from the frames sent. Zero lets it finish what it has.
    ///
    /// What the daemon does then is done at the new time, so a step must not be longer than what
    /// a deadline of the ledger leaves.
    ///
    /// # Errors
    /// The daemon is not there, or not done in time.
    pub fn advance(&mut self, time: Nanos) -> Result<(), ClockError> {
        self.now += time;
        self.ledger.set_time(self.now);
        self.clock.advance(self.now, self.frames.count())
    }

    /// Like [`Rig::advance`], but the daemon lives through nothing of it: the node was asleep.
    ///
    /// # Errors
    /// As [`Rig::advance`].
    pub fn jump(&mut self, time: Nanos) -> Result<(), ClockError> {
        self.now += time;
        self.ledger.set_time(self.now);
        self.clock.jump(self.now, self.frames.count())
    }
}
