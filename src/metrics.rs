//! The daemon's numbers for Prometheus, in base units, from one table of families.
//!
//! Everything comes from [`Status`]: what `litctl status` says and what is counted here is the
//! same. Series are bounded by the devices and jobs that are there now. A number that is not known
//! has no series.
//!
//! A job's name is in the label `training_job`: Prometheus itself writes `job` (and would rename
//! ours) on everything that it scrapes.
//!
//! `litd_device_info` has each device's labels under the names that dcgm-exporter (`UUID`,
//! `pci_bus_id`, `Hostname`) and AMD's device-metrics-exporter (`serial_number`, `hostname`) give
//! them: queries that join are in docs/records.md.

mod text;

use litd_api::{
    DeviceRole, DeviceState, DeviceStatus, JobState, JobStatus, Limiter, Mode, NodePeaks,
    NodePower, Status,
};
use litd_units::Millis;

pub use text::Format;
use text::{Family, Kind, Label, Samples};

/// The numbers in Prometheus text 0.0.4.
#[must_use]
pub fn prometheus(status: &Status) -> String {
    Format::Prometheus.encode(FAMILIES, status)
}

/// The numbers in `OpenMetrics` 1.0: the same series with the same labels.
#[must_use]
pub fn openmetrics(status: &Status) -> String {
    Format::OpenMetrics.encode(FAMILIES, status)
}

impl Format {
    /// The numbers in this format.
    #[must_use]
    pub fn text(self, status: &Status) -> String {
        match self {
            Self::Prometheus => prometheus(status),
            Self::OpenMetrics => openmetrics(status),
        }
    }
}

/// A family of one kind; the columns are name, unit, help, and how its numbers come about.
const fn family(
    kind: Kind,
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    samples: fn(&Status, &mut Samples<'_>),
) -> Family {
    Family {
        name,
        kind,
        unit,
        help,
        samples,
    }
}

#[rustfmt::skip]
const FAMILIES: &[Family] = &[
    family(Kind::Info, "litd_build_info", "", "What program this is.",
        |s, out| out.count(&[("version", &s.build.version)], 1)),
    family(Kind::Info, "litd_configuration_info", "", "The configuration in force, by a hash of all its values, defaults included.",
        |s, out| out.count(&[("hash", &s.build.configuration)], 1)),
    family(Kind::Gauge, "litd_uptime_seconds", "seconds", "Time since the daemon started.",
        |s, out| out.gauge(&[], s.uptime_seconds)),
    family(Kind::Gauge, "litd_simulated", "", "1 if the hardware is a simulation: no other number is of a real node then.",
        |s, out| out.flag(&[], s.simulated)),

    family(Kind::Gauge, "litd_mode", "", "1 for the mode in force, 0 for the others (label mode): in observe litd moves caps only to keep a budget, to restore them, or for an override; in off it has closed all devices.",
        |s, out| one_of(out, &[], "mode", MODES, s.node.mode)),
    family(Kind::Gauge, "litd_yielded", "", "1 while litd only observes the node because somebody else has set caps repeatedly; `litctl resume` ends that.",
        |s, out| out.flag(&[], s.node.yielded)),
    family(Kind::Gauge, "litd_unmanaged_gpus", "", "GPUs on the bus that litd does not manage: they came up after it had looked for devices, or their driver could not be used.",
        |s, out| out.gauge(&[], Some(s.node.unmanaged.len() as f64))),
    family(Kind::Gauge, "litd_lease_remaining_seconds", "seconds", "How long a fleet controller's lease lasts; absent without one.",
        |s, out| out.gauge(&[], s.node.lease.as_ref().map(|lease| lease.remaining_seconds))),
    family(Kind::Gauge, "litd_policy", "", "1, with the policy's name.",
        |s, out| out.count(&[("policy", &s.node.policy)], 1)),
    family(Kind::Gauge, "litd_gpus_budget_watts", "watts", "The budget: the most that all GPU caps may add up to.",
        |s, out| out.gauge(&[], s.gpus.budget.0)),
    family(Kind::Gauge, "litd_gpus_lent_watts", "watts", "Watts that CPU sockets lend: GPU caps may add up to this much more than the budget.",
        |s, out| out.gauge(&[], s.gpus.lent.0)),
    family(Kind::Gauge, "litd_gpus_caps_watts", "watts", "The sum of all GPU caps.",
        |s, out| out.gauge(&[], s.gpus.caps.0)),
    family(Kind::Gauge, "litd_gpus_power_watts", "watts", "Power of all GPUs; absent if any GPU's is not known.",
        |s, out| out.gauge(&[], s.gpus.power.map(|w| w.0))),

    family(Kind::Gauge, "litd_harm", "", "1 if a user's jobs are not steered because steering made one of them slower, until litctl resume.",
        |s, out| out.flag(&[], s.node.harm.is_some())),

    family(Kind::Gauge, "litd_node_power_watts", "watts", "Power of the whole node, as its BMC reports it.",
        |s, out| measured(s, out, |m| m.power.map(|w| w.0))),
    family(Kind::Gauge, "litd_node_bmc_limit_watts", "watts", "The BMC's limit of the node's power.",
        |s, out| measured(s, out, |m| m.bmc_limit.map(|w| w.0))),
    family(Kind::Gauge, "litd_node_budget_watts", "watts", "The node's budget: the lower one of node.budget and the BMC's limit.",
        |s, out| measured(s, out, |m| m.budget.map(|w| w.0))),
    family(Kind::Gauge, "litd_node_reserve_watts", "watts", "Power that litd subtracts for parts other than GPUs and CPUs: the 99.9th percentile of the readings, or node.reserve if that is more; before it is measured, a lower bound.",
        |s, out| measured(s, out, |m| m.reserve.map(|w| w.0))),
    family(Kind::Gauge, "litd_node_inlet_celsius", "celsius", "Inlet temperature.",
        |s, out| measured(s, out, |m| m.inlet.map(|c| c.0))),
    family(Kind::Gauge, "litd_node_supplies_failed", "", "Power supplies that are there and have failed.",
        |s, out| measured(s, out, |m| m.failed.map(f64::from))),
    family(Kind::Gauge, "litd_node_short_of_power", "", "1 if a power supply has failed or the BMC's limit is reached: litd raises no cap of a job that it steers.",
        |s, out| measured(s, out, |m| Some(f64::from(u8::from(m.alarm.is_some()))))),
    family(Kind::Gauge, "litd_node_peak_watts", "watts", "99.9th percentile of the node's power, by whether a job was steered.",
        |s, out| for (when, peaks) in peaks(s) { out.gauge(&[("steered", when)], peaks.peak.map(|w| w.0)); }),
    family(Kind::Gauge, "litd_node_ramp_watts_per_second", "", "99.9th percentile of the change of the node's power, per second, by whether a job was steered.",
        |s, out| for (when, peaks) in peaks(s) { out.gauge(&[("steered", when)], peaks.ramp_watts_per_second); }),

    family(Kind::Info, "litd_device_info", "", "A device, its model and the back end that serves it.",
        |s, out| for d in &s.devices {
            let [device, address, kind] = device_labels(d);
            let bus = pci_bus_id(d);
            out.count(&[device, address, kind, ("model", &d.model), ("backend", &d.backend),
                ("UUID", d.uuid.as_deref().unwrap_or_default()), ("pci_bus_id", &bus),
                ("serial_number", d.serial.as_deref().unwrap_or_default()),
                ("Hostname", &s.hostname), ("hostname", &s.hostname)], 1);
        }),
    family(Kind::Gauge, "litd_device_job", "", "1, with the job that uses the device; absent if none does.",
        |s, out| for d in &s.devices {
            let [device, address, kind] = device_labels(d);
            if let Some(job) = &d.job {
                out.count(&[device, address, kind, ("training_job", job)], 1);
            }
        }),
    family(Kind::Gauge, "litd_device_cap_watts", "watts", "The cap that the device holds, as read last.",
        |s, out| devices(s, out, |d| d.cap.map(|w| w.0))),
    family(Kind::Gauge, "litd_device_limit_in_force_watts", "watts", "The limit in force, where the driver reports it.",
        |s, out| devices(s, out, |d| d.in_force.map(|w| w.0))),
    family(Kind::Gauge, "litd_device_found_cap_watts", "watts", "The cap found: litd restores it at its stop, unless caps.on_exit says hold.",
        |s, out| devices(s, out, |d| d.found.map(|w| w.0))),
    family(Kind::Gauge, "litd_device_floor_watts", "watts", "The lowest cap that litd would set.",
        |s, out| devices(s, out, |d| Some(d.floor.0))),
    family(Kind::Gauge, "litd_device_ceiling_watts", "watts", "The highest cap that litd would set.",
        |s, out| devices(s, out, |d| Some(d.ceiling.0))),
    family(Kind::Gauge, "litd_device_power_watts", "watts", "Power drawn.",
        |s, out| devices(s, out, |d| d.power.map(|w| w.0))),
    family(Kind::Counter, "litd_device_energy_joules_total", "joules", "The device's energy counter.",
        |s, out| devices(s, out, |d| d.energy.map(|j| j.0))),
    family(Kind::Gauge, "litd_device_temperature_celsius", "celsius", "Temperature.",
        |s, out| devices(s, out, |d| d.temperature.map(|c| c.0))),
    family(Kind::Gauge, "litd_device_clock_hertz", "hertz", "Clock.",
        |s, out| devices(s, out, |d| d.clock.map(|h| h.0))),
    family(Kind::Gauge, "litd_device_locked_clock_hertz", "hertz", "The clock to which the device is locked now, as a job's plan asks; absent if the driver chooses the clock.",
        |s, out| devices(s, out, |d| d.plan?.locked.map(|h| h.0))),
    family(Kind::Gauge, "litd_device_plan_needs_watts", "watts", "The cap that the planned clocks need, as measured; absent while that is not known.",
        |s, out| devices(s, out, |d| d.plan?.needs.map(|w| w.0))),
    family(Kind::Gauge, "litd_device_plan_degree_ratio", "ratio", "By which factor the device is slower than its plan although litd can do no more; 1: it keeps up.",
        |s, out| devices(s, out, |d| d.plan.map(|plan| plan.degree))),
    family(Kind::Gauge, "litd_device_power_limited", "", "1 if power limits the clock; absent if the driver does not report that.",
        |s, out| devices(s, out, |d| d.power_limited.map(|on| f64::from(u8::from(on))))),
    family(Kind::Gauge, "litd_device_limiter", "", "1 for the GPU's present limiter, 0 for the others (label limiter); more power helps only if that is power.",
        |s, out| for d in s.devices.iter().filter(|d| !d.name.starts_with("cpu")) {
            one_of(out, &device_labels(d), "limiter", LIMITERS, d.limiter);
        }),
    family(Kind::Gauge, "litd_device_throttled", "", "1 if heat or hardware throttles the device.",
        |s, out| devices(s, out, |d| Some(f64::from(u8::from(d.throttled))))),
    family(Kind::Gauge, "litd_device_ailing", "", "1 if the device needs inspection: its cap was above the median of its job's GPUs by more than ailing.above for ailing.hours of steering.",
        |s, out| devices(s, out, |d| Some(f64::from(u8::from(d.ailing_since.is_some()))))),
    family(Kind::Gauge, "litd_device_needs_more_seconds", "seconds", "Time of steering for which the device's cap was above the median of its job's GPUs by more than ailing.above.",
        |s, out| devices(s, out, |d| Some(d.needs_more_seconds))),
    family(Kind::Gauge, "litd_device_lead_seconds", "seconds", "Lead value of the last sample: by how much the device's kernels were ahead of the last GPU's.",
        |s, out| devices(s, out, |d| d.lead.map(seconds))),
    family(Kind::Gauge, "litd_device_lead_per_kernel_seconds", "seconds", "By how much the device started a kernel of the last sample before the last GPU did, on average.",
        |s, out| devices(s, out, |d| d.lead_per_kernel.map(seconds))),
    family(Kind::Gauge, "litd_device_busy_ratio", "ratio", "Share of the last sampled iteration in which kernels ran.",
        |s, out| devices(s, out, |d| d.busy)),
    family(Kind::Gauge, "litd_device_role", "", "1 for the device's role in its job (label role).",
        |s, out| for d in &s.devices { one_of(out, &device_labels(d), "role", ROLES, d.role); }),
    family(Kind::Gauge, "litd_device_state", "", "1 for the device's state (label state): litd steers the device only in the state litd; of a faulty device it only restores the cap, or lowers it for a budget.",
        |s, out| for d in &s.devices { one_of(out, &device_labels(d), "state", DEVICE_STATES, d.state); }),

    family(Kind::Gauge, "litd_job_state", "", "1 for the state of the job's loop (label state).",
        |s, out| for j in &s.jobs { one_of(out, &[job_label(j)], "state", JOB_STATES, j.state); }),
    family(Kind::Gauge, "litd_job_ranks", "", "Ranks of the job on this node, by whether they are connected.",
        |s, out| for j in &s.jobs {
            for (text, connected) in [("true", true), ("false", false)] {
                let ranks = j.ranks.iter().filter(|rank| rank.connected == connected).count();
                out.count(&[job_label(j), ("connected", text)], ranks as u64);
            }
        }),
    family(Kind::Gauge, "litd_job_budget_watts", "watts", "The job's share of the budget.",
        |s, out| jobs(s, out, |j| Some(j.budget.0))),
    family(Kind::Histogram, "litd_job_iteration_seconds", "seconds", "How long iterations took.",
        |s, out| for j in &s.jobs {
            out.histogram(&[job_label(j)], &j.iteration_histogram, j.iteration_seconds_sum);
        }),
    family(Kind::Gauge, "litd_job_iteration_mean_seconds", "seconds", "Mean time of the newest iterations.",
        |s, out| jobs(s, out, |j| j.iteration_time.map(seconds))),
    family(Kind::Gauge, "litd_job_throughput_iterations_per_second", "", "Iterations per second, of the newest iterations.",
        |s, out| jobs(s, out, |j| j.throughput)),
    family(Kind::Counter, "litd_job_adjustments_total", "", "How often caps were moved for the job.",
        |s, out| for j in &s.jobs { out.count(&[job_label(j)], u64::from(j.adjustments)); }),
    family(Kind::Counter, "litd_job_samples_total", "", "Samples, by whether they counted.",
        |s, out| for j in &s.jobs {
            out.count(&[job_label(j), ("result", "good")], j.samples);
            out.count(&[job_label(j), ("result", "bad")], j.bad_samples);
        }),
    family(Kind::Gauge, "litd_job_sampling_overhead_ratio", "", "Share of the job's time that profiling iterations takes; absent before enough were profiled.",
        |s, out| jobs(s, out, |j| j.sampling_overhead)),
    family(Kind::Gauge, "litd_job_sampling_period_iterations", "", "Every how many iterations one is profiled; 0 if none is.",
        |s, out| for j in &s.jobs { out.count(&[job_label(j)], j.sampling_period); }),

    family(Kind::Counter, "litd_cap_writes_total", "", "Cap writes that were confirmed.",
        |s, out| out.count(&[], s.totals.writes)),
    family(Kind::Counter, "litd_adjustments_total", "", "Adjustments over all jobs, also those that ended.",
        |s, out| out.count(&[], s.totals.adjustments)),
    family(Kind::Counter, "litd_frames_total", "", "Frames received from hooks.",
        |s, out| out.count(&[], s.totals.frames)),
    family(Kind::Counter, "litd_ticks_total", "", "Iteration ticks received from hooks.",
        |s, out| out.count(&[], s.totals.ticks)),
    family(Kind::Counter, "litd_errors_total", "", "Errors by kind and back end.",
        |s, out| for c in &s.totals.errors {
            out.count(&[("kind", &c.kind), ("backend", &c.backend)], c.count);
        }),
    family(Kind::Counter, "litd_refused_total", "", "Refused peers and frames, by reason.",
        |s, out| for c in &s.totals.refused { out.count(&[("reason", &c.kind)], c.count); }),
];

const MODES: &[(Mode, &str)] = &[
    (Mode::Off, "off"),
    (Mode::Observe, "observe"),
    (Mode::Steer, "on"),
];

const ROLES: &[(DeviceRole, &str)] = &[
    (DeviceRole::Idle, "idle"),
    (DeviceRole::Straggler, "straggler"),
    (DeviceRole::Leader, "leader"),
    (DeviceRole::Member, "member"),
    (DeviceRole::Host, "host"),
];

const LIMITERS: &[(Limiter, &str)] = &[
    (Limiter::Power, "power"),
    (Limiter::Enforced, "lower_limit"),
    (Limiter::Heat, "heat"),
    (Limiter::Memory, "memory"),
    (Limiter::Regulator, "regulator"),
    (Limiter::PowerBrake, "power_brake"),
    (Limiter::Hardware, "hardware"),
    (Limiter::None, "none"),
    (Limiter::Unknown, "unknown"),
];

const DEVICE_STATES: &[(DeviceState, &str)] = &[
    (DeviceState::Ours, "litd"),
    (DeviceState::Foreign, "foreign"),
    (DeviceState::Released, "released"),
    (DeviceState::Closed, "closed"),
    (DeviceState::Faulty, "faulty"),
];

const JOB_STATES: &[(JobState, &str)] = &[
    (JobState::Gathering, "gathering"),
    (JobState::Observe, "observe"),
    (JobState::WarmUp, "warm-up"),
    (JobState::Adjusting, "adjusting"),
    (JobState::Converged, "converged"),
    (JobState::Drift, "drift"),
    (JobState::Rollback, "rollback"),
    (JobState::Stale, "stale"),
    (JobState::Suspended, "suspended"),
];

fn measured(status: &Status, out: &mut Samples<'_>, value: fn(&NodePower) -> Option<f64>) {
    if let Some(measured) = &status.node.power {
        out.gauge(&[], value(measured));
    }
}

fn peaks(status: &Status) -> impl Iterator<Item = (&'static str, NodePeaks)> {
    let measured = status.node.power.iter();
    measured.flat_map(|it| [("false", it.unsteered), ("true", it.steered)])
}

fn seconds(time: Millis) -> f64 {
    time.0 / 1e3
}

fn device_labels(device: &DeviceStatus) -> [Label<'_>; 3] {
    let kind = if device.name.starts_with("cpu") {
        "cpu"
    } else {
        "gpu"
    };
    [
        ("device", &device.name),
        ("address", &device.address),
        ("kind", kind),
    ]
}

/// A GPU's address as NVML writes it: eight digits of domain, in capitals.
fn pci_bus_id(device: &DeviceStatus) -> String {
    let bus = device.address.split_once(':');
    let bus = bus.filter(|(domain, _)| domain.len() == 4);
    bus.map_or_else(String::new, |(domain, rest)| {
        format!("0000{domain}:{rest}").to_ascii_uppercase()
    })
}

fn job_label(job: &JobStatus) -> Label<'_> {
    ("training_job", &job.name)
}

fn devices(status: &Status, out: &mut Samples<'_>, value: fn(&DeviceStatus) -> Option<f64>) {
    for device in &status.devices {
        out.gauge(&device_labels(device), value(device));
    }
}

fn jobs(status: &Status, out: &mut Samples<'_>, value: fn(&JobStatus) -> Option<f64>) {
    for job in &status.jobs {
        out.gauge(&[job_label(job)], value(job));
    }
}

/// A series for each possible value, 1 for the present one. (`OpenMetrics` has a type for this, but its label has
/// another name than 0.0.4 would use, and queries must not depend on the format.)
fn one_of<T: PartialEq>(
    out: &mut Samples<'_>,
    labels: &[Label<'_>],
    key: &str,
    all: &[(T, &str)],
    now: T,
) {
    let mut labels = labels.to_vec();
    for (it, name) in all {
        labels.push((key, name));
        out.flag(&labels, *it == now);
        labels.pop();
    }
}
