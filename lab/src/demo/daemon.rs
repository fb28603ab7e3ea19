//! The loop in the daemon: a real litd, a process of its own, behind its real sockets, with the
//! simulated node as its hardware and a simulated clock.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use litd_api::{DeviceRole, DeviceStatus, JobState, JobStatus, Status};
use litd_policies::{Config, Policy, State};
use litd_rig::{Daemon, Job, JobSpec, Rig};
use litd_sim::Scenario;
use litd_units::{Kelvins, Millis, Nanos, Watts};

use super::run::{Period, Watched};
use litd_client::Client;

/// The job's name on the simulated node.
pub const JOB: &str = "demo";

/// How long the daemon may take to welcome the job's hooks, of real time.
pub const WELCOME: Duration = Duration::from_secs(10);

/// Longer than an iteration takes.
const STARTS: Nanos = Nanos(5_000_000_000);

/// What a job says for itself when its policy has nothing to work with.
const WATCHED_ONLY: &str = "observed only: ";

/// A simulated node, a job on it, and the daemon that steers it. The order is that of ending.
pub struct OverSockets {
    client: Client,
    job: Job,
    _daemon: Daemon,
    rig: Rig,
    nothing: Option<String>,
    status: Status,
}

/// The daemon that this program is, too: called litd, it is one.
pub fn program() -> Result<PathBuf, Box<dyn Error>> {
    Ok(std::env::current_exe()?)
}

impl OverSockets {
    pub fn new(
        policy: Policy,
        scenario: &Scenario,
        seed: u64,
        job: JobSpec,
        config: &Config,
    ) -> Result<Self, Box<dyn Error>> {
        let mut rig = Rig::new(scenario, seed)?;
        let text = rig.config(&settings(policy, scenario, config)?);
        let daemon = rig.spawn_clocked(&program()?, &text)?;
        let client = Client::new(&rig.layout().control())?;
        let mut job = rig.attach(job)?;
        job.welcome(WELCOME)?;
        // The caps of the start are written; heat follows at once. The first iteration begins when
        // that is past.
        rig.advance(Nanos(0))?;
        rig.hardware().settle();
        rig.advance(STARTS)?;
        let status = client.status()?;
        let why = job_of(&status)?.why.clone();
        Ok(Self {
            nothing: why.strip_prefix(WATCHED_ONLY).map(str::to_owned),
            client,
            job,
            _daemon: daemon,
            rig,
            status,
        })
    }
}

/// The daemon's configuration: the same knobs as in this process, and the budget that the
/// policy's start caps add up to.
pub fn settings(
    policy: Policy,
    scenario: &Scenario,
    config: &Config,
) -> Result<String, Box<dyn Error>> {
    let mut law = config.clone();
    law.mitigation.initial_cap = scenario.caps.initial;
    let start = match policy {
        Policy::GpuRed => scenario.caps.tdp,
        _ => scenario.caps.initial,
    };
    let mut settings = litd_core::Config {
        mode: match policy {
            Policy::Observe => litd_api::Mode::Observe,
            _ => litd_api::Mode::Steer,
        },
        policy,
        law,
        ..litd_core::Config::default()
    };
    // The scenario's own limits rule.
    settings.caps.gpu_floor = Watts(1.0);
    settings.caps.cpu_floor = Watts(1.0);
    settings.caps.gpu_ceiling = Some(scenario.caps.tdp);
    settings.caps.budget = Some(start * scenario.gpus.len() as f64);
    // The node begins where it has settled.
    settings.sampling.steady_temperature = Kelvins(100.0);
    // Heat follows at once there.
    settings.settle.seconds = Some(0.0);
    settings.settle.iterations = 0;
    // The demo looks at every period, whatever the loop would need.
    settings.sampling.converged_period = u64::from(config.calibration.sampling_period.max(1));
    Ok(toml::to_string(&settings)?)
}

fn job_of(status: &Status) -> Result<&JobStatus, Box<dyn Error>> {
    let job = status.jobs.iter().find(|job| job.name == JOB);
    job.ok_or_else(|| "the daemon has lost the demo's job".into())
}

impl Watched for OverSockets {
    fn period(&mut self, iterations: u32) -> Result<Period, Box<dyn Error>> {
        let (mut time, mut power) = (Millis::ZERO, Watts::ZERO);
        for _ in 0..iterations {
            self.job.run_iteration();
            let hardware = self.rig.hardware();
            time += hardware.plant().last().length;
            power += hardware.plant().gpu_power();
        }
        let before = self.rig.ledger().len();
        self.rig.advance(time.to_nanos())?;
        let applied = self.rig.ledger().len() > before;
        self.status = self.client.status()?;
        let job = job_of(&self.status)?;
        let hardware = self.rig.hardware();
        let lead = |device: &DeviceStatus| device.lead.unwrap_or(Millis::ZERO);
        let gpus = hardware.plant().gpu_count();
        let kernels = |device: &DeviceStatus| {
            let mean = device.lead_per_kernel.filter(|&mean| mean > Millis::ZERO)?;
            Some(device.lead? / mean)
        };
        let is_straggler = |device: &DeviceStatus| device.role == DeviceRole::Straggler;
        let kernels = self.status.devices.iter().find_map(kernels);
        Ok(Period {
            state: state(job.state)?,
            applied,
            is_level: !self.status.devices.iter().any(is_straggler),
            why: job.why.clone(),
            leads: self.status.devices.iter().take(gpus).map(lead).collect(),
            kernels: kernels.unwrap_or(1.0),
            iteration: hardware.plant().iterations(),
            gpus: hardware.plant().gpus().collect(),
            power: power / f64::from(iterations),
            iteration_time: time / f64::from(iterations),
        })
    }

    fn nothing(&self) -> Option<&str> {
        self.nothing.as_deref()
    }

    fn adjustments(&self) -> u32 {
        job_of(&self.status).map_or(0, |job| job.adjustments)
    }

    fn caps(&self) -> Vec<Watts> {
        let hardware = self.rig.hardware();
        hardware.plant().gpus().map(|gpu| gpu.cap).collect()
    }
}

fn state(state: JobState) -> Result<State, Box<dyn Error>> {
    Ok(match state {
        JobState::Observe => State::Observe,
        JobState::WarmUp => State::WarmUp,
        JobState::Adjusting => State::Adjusting,
        JobState::Converged => State::Converged,
        JobState::Drift => State::Drift,
        JobState::Rollback => State::Rollback,
        JobState::Gathering | JobState::Stale | JobState::Suspended => {
            return Err(
                format!("the daemon does not steer the demo's job: {}", state.name()).into(),
            );
        }
    })
}

/// Whether this program was called as the daemon.
pub fn is_called_litd(name: Option<&Path>) -> bool {
    name.and_then(Path::file_name)
        .is_some_and(|name| name == "litd")
}
