//! A whole node with the real daemon on it: simulated hardware and its ledger in this process,
//! litd in one of its own, jobs on its real sockets.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use litd_api::{
    Command, DeviceState, DeviceStatus, EventKind, JobStatus, Problem, Status, Traceable,
};
use litd_proto::{Hello, PROTOCOL};
use litd_rig::{Daemon, Job, JobError, JobSpec, Rig, gpu_address};
use litd_sim::Scenario;
use litd_units::{Millis, Nanos, Watts};

use crate::control;

/// The daemon.
pub const LITD: &str = env!("CARGO_BIN_EXE_litd");

/// Long enough for anything that does happen.
pub const SOON: Duration = Duration::from_secs(20);

/// All GPUs of the simulated node.
pub const GPUS: usize = 8;

/// And its CPU sockets.
pub const DEVICES: usize = 10;

/// What `litd restore` says of a device that a dead litd was writing.
const LATE: &str = "may still take effect";

/// The hello of a job's only rank on this node.
pub fn hello(job: &str, gpu: usize) -> Hello {
    Hello {
        protocol: PROTOCOL,
        job: job.to_owned(),
        rank: 0,
        local_rank: 0,
        world_size: 1,
        local_world_size: 1,
        gpu: gpu_address(gpu),
        framework: "none".to_owned(),
        versions: Default::default(),
        group: String::new(),
    }
}

/// Adjusts early and often.
pub fn quick(policy: &str) -> String {
    format!(
        "mode = \"on\"\npolicy = \"{policy}\"\nlaw.calibration.sampling_period = 1\n\
         law.calibration.warm_up = 3\nlaw.detection.window = 1\n"
    )
}

/// The same, with this file as the kill switch.
pub fn quick_with_switch(policy: &str, file: &Path) -> String {
    format!(
        "{}rollout.kill_switches = [\"{}\"]\n",
        quick(policy),
        file.display()
    )
}

pub fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as i64)
}

/// Waits, in real time, until something is so.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A node with a daemon.
pub struct Stand {
    pub daemon: Option<Daemon>,
    pub rig: Rig,
    config: String,
    clocked: bool,
}

impl Stand {
    /// A node without a daemon yet; see [`Stand::start`].
    pub fn bare(config: &str, clocked: bool) -> Self {
        let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
        Self::on(rig, config, clocked)
    }

    /// The same on a node that is there already.
    pub fn on(rig: Rig, config: &str, clocked: bool) -> Self {
        // A node that warms up is a node that drifts.
        rig.hardware().settle();
        Self {
            daemon: None,
            config: rig.config(config),
            rig,
            clocked,
        }
    }

    /// A node whose daemon has the rig's time.
    pub fn clocked(config: &str) -> Self {
        let mut stand = Self::bare(config, true);
        stand.start();
        stand
    }

    /// A node whose daemon has the kernel's time.
    pub fn real(config: &str) -> Self {
        let mut stand = Self::bare(config, false);
        stand.start();
        stand.wait_for_found();
        stand
    }

    /// A daemon is ready before it believes what it reads, and refuses to set a cap until then.
    pub fn wait_for_found(&self) {
        wait_for("the caps found", || {
            let found = self.status().devices.into_iter().map(|it| it.found);
            found.filter(Option::is_some).count() >= GPUS
        });
    }

    pub fn start(&mut self) {
        self.start_as(Path::new(LITD));
    }

    /// The same with another program that is litd in the end.
    pub fn start_as(&mut self, program: &Path) {
        let daemon = match self.clocked {
            true => self.rig.spawn_clocked(program, &self.config),
            false => self.rig.spawn(program, &self.config),
        };
        self.daemon = Some(daemon.unwrap());
    }

    /// Writes another configuration file and has the daemon read it.
    pub fn reload(&mut self, config: &str) {
        self.config = self.rig.config(config);
        self.daemon().reload(&self.config).unwrap();
    }

    pub fn config(&self) -> &str {
        &self.config
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// A job on these GPUs, welcomed.
    pub fn job(&self, name: &str, gpus: impl IntoIterator<Item = usize>) -> Job {
        let mut job = self.rig.attach(JobSpec::new(name, gpus)).unwrap();
        let deadline = Instant::now() + SOON;
        while let Err(error) = job.welcome(SOON) {
            // Where other tests' processes have much open litd may not have seen all of it yet: hooks come again, too.
            let JobError::NotWelcome { rank, state, .. } = &error else {
                panic!("{error}");
            };
            let is_early = format!("{state:?}").contains("litd looks on");
            assert!(is_early && Instant::now() < deadline, "{error:?}");
            thread::sleep(Duration::from_millis(100));
            job.connect(*rank).unwrap();
        }
        job
    }

    /// A job on all GPUs.
    pub fn train(&self) -> Job {
        self.job("train", 0..GPUS)
    }

    /// The node's next iterations, reported by `job` only.
    pub fn play(&mut self, job: &mut Job, iterations: usize) {
        for _ in 0..iterations {
            job.run_iteration();
            self.iteration_passes();
        }
    }

    /// The time of the last iteration passes.
    pub fn iteration_passes(&mut self) {
        if self.clocked {
            let time = self.rig.hardware().plant().last().length.to_nanos();
            self.advance(time);
        }
    }

    /// Plays until something is so.
    pub fn play_until(&mut self, job: &mut Job, what: &str, done: impl Fn(&Self) -> bool) -> usize {
        let mut iterations = 0;
        while !done(self) {
            assert!(
                iterations < 500,
                "{what}: not within {iterations} iterations; litd said:\n{}",
                self.said()
            );
            self.play(job, 1);
            iterations += 1;
        }
        iterations
    }

    /// Plays until a device was lowered and another raised.
    pub fn play_into_steering(&mut self, job: &mut Job) {
        let ledger = self.rig.ledger().clone();
        let found = ledger.found();
        self.play_until(job, "steering", |_| {
            ledger
                .held()
                .iter()
                .zip(&found)
                .filter(|(a, b)| a != b)
                .count()
                >= 3
        });
    }

    /// Time passes on the rig's clock, and nobody reports anything.
    pub fn pass(&mut self, time: f64) {
        let end = self.rig.now() + seconds(time);
        while self.rig.now() < end {
            let step = (end - self.rig.now()).min(seconds(0.5));
            self.advance(step);
        }
    }

    fn advance(&mut self, time: Nanos) {
        if let Err(error) = self.rig.advance(time) {
            panic!("{error}; litd said:\n{}", self.said());
        }
    }

    /// Lets the daemon finish what it has to do now.
    pub fn finish(&mut self) {
        self.advance(Nanos::ZERO);
    }

    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        control::ask(&self.rig.layout().control(), method, path, body).unwrap()
    }

    pub fn status(&self) -> Status {
        let (code, body) = self.ask("GET", "/v1/status", "");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub fn job_status(&self, name: &str) -> JobStatus {
        let jobs = self.status().jobs;
        let job = jobs.into_iter().find(|job| job.name == name);
        job.unwrap_or_else(|| panic!("no job {name}"))
    }

    pub fn device(&self, device: usize) -> DeviceStatus {
        self.status().devices[device].clone()
    }

    /// Commands what must be possible.
    pub fn command(&self, command: &Command) {
        let (code, answer) = self.try_command(command);
        assert_eq!(code, 200, "{command:?}: {answer}");
    }

    pub fn try_command(&self, command: &Command) -> (u16, String) {
        let body = serde_json::to_string(command).unwrap();
        let (code, answer) = self.ask("POST", "/v1/command", &body);
        match serde_json::from_str::<Problem>(&answer) {
            Ok(problem) => (code, problem.error),
            Err(_) => (code, answer),
        }
    }

    pub fn resume(&self) {
        self.command(&Command::Resume { device: None });
    }

    /// Texts of all events of a kind.
    pub fn events(&self, kind: EventKind) -> Vec<String> {
        let (_, body) = self.ask("GET", "/v1/events?after=0", "");
        let events: litd_api::Events = serde_json::from_str(&body).unwrap();
        let of_kind = events.events.into_iter().filter(|event| event.kind == kind);
        of_kind.map(|event| event.text).collect()
    }

    pub fn has_event(&self, kind: EventKind, part: &str) -> bool {
        self.events(kind).iter().any(|text| text.contains(part))
    }

    /// How often something was counted as an error, or as refused.
    pub fn counted(&self, kind: &str) -> u64 {
        let totals = self.status().totals;
        let counters = totals.errors.iter().chain(&totals.refused);
        let of_kind = counters.filter(|counter| counter.kind == kind);
        of_kind.map(|counter| counter.count).sum()
    }

    /// Devices whose caps litd may not move, by number.
    pub fn not_ours(&self) -> Vec<(usize, DeviceState)> {
        let devices = self.status().devices.into_iter().enumerate();
        let devices = devices.map(|(index, device)| (index, device.state));
        devices
            .filter(|(_, state)| *state != DeviceState::Ours)
            .collect()
    }

    /// What litd tells of jobs without a hook.
    pub fn traceable(&self) -> Traceable {
        let (_, body) = self.ask("GET", "/v1/trace", "");
        serde_json::from_str(&body).unwrap()
    }

    /// How long an iteration of the simulated node takes now.
    pub fn length(&self) -> Millis {
        self.rig.hardware().plant().last().length
    }

    /// How many devices hold another cap than the one found.
    pub fn moved(&self) -> usize {
        let (found, held) = (self.rig.ledger().found(), self.held());
        held.iter().zip(&found).filter(|(a, b)| a != b).count()
    }

    pub fn held(&self) -> Vec<Watts> {
        self.rig.ledger().held()
    }

    /// What all GPU caps add up to.
    pub fn sum(&self) -> Watts {
        self.held()[..GPUS].iter().copied().sum()
    }

    pub fn is_back(&self) -> bool {
        self.rig.ledger().restored()
    }

    /// Devices that the journal on the disk still names.
    pub fn journaled(&self) -> Vec<String> {
        let path = self.rig.layout().state().join("journal");
        let bytes = fs::read(path).unwrap_or_default();
        let recovered = litd_core::journal::read(&bytes).unwrap();
        let entries = recovered.map_or_else(Vec::new, |it| it.entries);
        entries.into_iter().map(|entry| entry.address).collect()
    }

    /// No rule was broken so far.
    pub fn assert_rules(&self) {
        let broken = self.rig.ledger().check();
        let shown: Vec<String> = broken.iter().take(5).map(ToString::to_string).collect();
        assert!(broken.is_empty(), "{shown:#?}\nlitd said:\n{}", self.said());
    }

    pub fn said(&self) -> String {
        fs::read_to_string(self.rig.layout().stderr()).unwrap_or_default()
    }

    /// Stops the daemon as systemd does. Answers with its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        let mut daemon = self.daemon.take().unwrap();
        daemon.ask_to_stop();
        // It waits for a device that hangs for 15 s itself, and on a busy machine for all else as well.
        let deadline = Instant::now() + 6 * SOON;
        // Under the rig's clock time passes for it until it is gone.
        while self.clocked && daemon.ended().is_none() {
            assert!(Instant::now() < deadline, "does not stop:\n{}", self.said());
            if self.rig.advance(seconds(0.2)).is_err() {
                break;
            }
        }
        daemon.terminate().unwrap().code()
    }

    /// `litd restore`, which is what systemd runs where there is no daemon: its exit code, and what
    /// it says.
    pub fn restore(&self) -> (Option<i32>, String) {
        let config = self.rig.layout().config();
        fs::write(&config, &self.config).unwrap();
        let restored = std::process::Command::new(LITD)
            .arg("restore")
            .arg("--config")
            .arg(config)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&restored.stderr).into_owned();
        (restored.status.code(), said)
    }

    /// `litd restore` after a kill at a moment when writes may have been under way. What it says then names their
    /// devices, and its exit code is 3 instead of 0.
    pub fn restore_after_kill(&self) -> String {
        let (code, said) = self.restore();
        let expected = if said.contains(LATE) { 3 } else { 0 };
        assert_eq!(code, Some(expected), "{said}");
        said
    }

    /// Another configuration file, for the next start.
    pub fn configure(&mut self, config: &str) {
        self.config = self.rig.config(config);
    }

    /// The daemon dies at once.
    pub fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    /// Stops the daemon and sees to it that nothing is left behind and nothing was ever wrong.
    pub fn stop(mut self) {
        self.rig.ledger().permit_found();
        let code = self.terminate();
        self.assert_clean();
        assert_eq!(code, Some(0), "{}", self.said());
    }

    /// The same half a minute or less after writes have failed: of the devices that they may still be done on litd says so,
    /// and the journal names them.
    pub fn stop_after_failed_writes(mut self) {
        self.rig.ledger().permit_found();
        let code = self.terminate();
        let said = self.said();
        let end = said.rfind("stopping: ").unwrap_or_default();
        self.assert_clean_but_for_late(&said[end..]);
        assert_eq!(code, Some(0), "{said}");
    }

    /// All caps are back, the journal is empty, no rule was broken.
    pub fn assert_clean(&self) {
        self.assert_back();
        assert_eq!(self.journaled(), [""; 0], "{}", self.said());
    }

    /// The same half a minute or less after a kill: what litd had asked for then and nobody has seen done may still be
    /// done, and until it can't the journal names its device. `said` names it as well.
    pub fn assert_clean_but_for_late(&self, said: &str) {
        self.assert_back();
        let line = said.lines().find(|line| line.contains(LATE));
        for address in self.journaled() {
            assert!(
                line.is_some_and(|it| it.contains(&address)),
                "{address}: {said}"
            );
        }
    }

    fn assert_back(&self) {
        self.assert_rules();
        let (held, found) = (self.held(), self.rig.ledger().found());
        assert!(self.is_back(), "{held:?}, not {found:?}:\n{}", self.said());
    }

    /// The daemon's proportional set size, in KiB.
    pub fn memory(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.daemon().pid());
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let number = line.unwrap().trim().trim_end_matches(" kB");
        number.parse().unwrap()
    }
}
