//! The status for people.

use std::fmt::{self, Write};

use anstyle::{AnsiColor, Style};
use litd_api::{
    Counter, DeviceRole, DeviceState, DeviceStatus, JobStatus, Limiter, Mode, NodePower,
    PlanStatus, Status,
};
use litd_units::Watts;

use crate::output::{WIDTH, count, wrap};
use crate::show::{self, HEAD, SIMULATED, WARNING, or_dash};

const TABLE: &str = "device     cap   power   temp     clock       lead busy %  role       state";
const STRAGGLER: Style = AnsiColor::Yellow.on_default().bold();
const INDENT: &str = "  ";

/// The whole page; colours are removed on the way to what is no terminal.
#[must_use]
pub fn render(status: &Status) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = page(&mut out, status);
    out
}

fn page(out: &mut String, status: &Status) -> fmt::Result {
    if status.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: no number below is of a real node"
        )?;
    }
    node(out, status)?;
    devices(out, &status.devices)?;
    for job in &status.jobs {
        writeln!(out)?;
        paragraph(out, &job.name, &job_lines(job, &status.devices))?;
    }
    if status.jobs.is_empty() {
        writeln!(out, "\nNo job is connected.")?;
    }
    counters(out, "errors", &status.totals.errors)?;
    counters(out, "refused", &status.totals.refused)
}

fn node(out: &mut String, status: &Status) -> fmt::Result {
    let (node, gpus) = (&status.node, &status.gpus);
    let mode = match node.mode {
        Mode::Off => "off (all devices are closed)",
        Mode::Observe => {
            "observe (litd moves caps only to keep a budget, to restore them, or for an override)"
        }
        // Never what a node does.
        Mode::Canary => "canary",
        Mode::Steer => "on",
    };
    let version = format!("litd {}", status.build.version);
    let mut lines = vec![
        format!(
            "mode {mode}, policy {}, up {}",
            node.policy,
            show::span(status.uptime_seconds)
        ),
        format!(
            "caps {:.0} of a budget of {}, power {}",
            gpus.caps,
            gpus.allowance(),
            watts(gpus.power)
        ),
        node.summary.clone(),
    ];
    lines.extend(node.mode_reason.clone());
    lines.extend(node.lease.as_ref().map(litd_api::LeaseStatus::in_words));
    lines.extend(node.power.as_ref().map(node_power));
    paragraph(out, &version, &lines)
}

/// The node's power, and the part left to the GPUs.
fn node_power(told: &NodePower) -> String {
    let source = told.source.as_deref().unwrap_or("its BMC");
    let mut text = match told.power {
        Some(power) => format!("the node draws {power:.0} ({source})"),
        None => format!("the node's power is not known from {source}"),
    };
    if let Some(budget) = told.budget {
        text.push_str(&format!(" of {budget:.0}"));
    }
    if told.budget.is_some() {
        let subtracts = match (told.reserve, told.reserve_unknown) {
            (Some(reserve), false) => format!("{reserve:.0}"),
            (Some(reserve), true) => format!("{reserve:.0} (at least: not measured yet)"),
            (None, _) => "0 W (not measured yet; node.reserve would set it)".to_owned(),
        };
        let leaves = match told.left_to_gpus {
            Some(left) => format!("leaves {left:.0} to the GPUs"),
            None => "does not know yet what that leaves to the GPUs".to_owned(),
        };
        text.push_str(&format!(
            "; litd subtracts {subtracts} for parts other than GPUs and CPUs, and {leaves}"
        ));
    }
    if let Some(inlet) = told.inlet {
        text.push_str(&format!("; inlet {inlet:.0}"));
    }
    if let Some(alarm) = &told.alarm {
        text.push_str(&format!(
            "; short of power, so no steered job's cap rises: {alarm}"
        ));
    }
    text
}

fn devices(out: &mut String, devices: &[DeviceStatus]) -> fmt::Result {
    if devices.is_empty() {
        return writeln!(out, "\nlitd has found no device.");
    }
    writeln!(out, "\n{HEAD}{TABLE}{HEAD:#}")?;
    for device in devices {
        let style = match (device.state, device.role) {
            (DeviceState::Ours, DeviceRole::Straggler) => STRAGGLER,
            (DeviceState::Ours, _) => Style::new(),
            _ => WARNING,
        };
        writeln!(out, "{style}{}{style:#}", row(device).trim_end())?;
    }
    for device in devices {
        for remark in remarks(device) {
            let remark = format!("{}: {remark}", device.name);
            for line in wrap(&remark, WIDTH) {
                writeln!(out, "{WARNING}{line}{WARNING:#}")?;
            }
        }
    }
    for remark in below_found(devices) {
        for line in wrap(&remark, WIDTH) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Why devices without a job hold less than what was found, in one line for all that have the same reason.
fn below_found(devices: &[DeviceStatus]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for device in devices {
        let is_below = device
            .cap
            .zip(device.found)
            .is_some_and(|(cap, found)| cap < found);
        if !is_below || device.job.is_some() || device.why.is_empty() {
            continue;
        }
        match reasons.iter_mut().find(|(why, _)| *why == device.why) {
            Some((_, names)) => names.push(&device.name),
            None => reasons.push((&device.why, vec![&device.name])),
        }
    }
    let line = |(why, names): (&str, Vec<&str>)| {
        let hold = if names.len() == 1 { "holds" } else { "hold" };
        format!("{} {hold} less than the cap found: {why}", names.join(", "))
    };
    reasons.into_iter().map(line).collect()
}

fn row(device: &DeviceStatus) -> String {
    format!(
        "{:6} {:>7} {:>7} {:>6} {:>9} {:>10} {:>6}  {:9}  {}",
        device.name,
        watts(device.cap),
        watts(device.power),
        or_dash(device.temperature, |temperature| format!(
            "{temperature:.0}"
        )),
        or_dash(device.clock, show::mhz),
        or_dash(device.lead_per_kernel, |lead| show::time(lead.to_nanos())),
        show::percent(device.busy),
        device.role.name(),
        device.state.name(),
    )
}

/// Remarks on a device for which the table has no column.
fn remarks(device: &DeviceStatus) -> Vec<String> {
    let resume = format!("`litctl resume {}` takes it back", device.name);
    let state = match device.state {
        DeviceState::Ours => None,
        DeviceState::Foreign => Some(format!(
            "somebody else changed its cap, so litd leaves it alone; {resume}"
        )),
        DeviceState::Released => Some(format!("released: closed and left alone; {resume}")),
        // The first lines say why litd is off, and until when.
        DeviceState::Closed => None,
        DeviceState::Faulty => Some(format!(
            "faulty: it refused a cap, did not keep it, or did not answer (`litctl events` has which), so litd leaves \
             it alone; mend it, then {resume}. A GPU that had only stopped answering is taken back by itself after \
             it has answered for a minute or more"
        )),
    };
    let opted_out = device
        .opted_out
        .then(|| "its job opted out: it is not steered until the job ends".to_owned());
    let in_force = device
        .in_force
        .zip(device.cap)
        .filter(|(in_force, cap)| in_force < cap)
        .map(|(in_force, cap)| format!("{in_force:.0} is in force, less than its cap of {cap:.0}"));
    let throttled = throttled(device).map(|what| format!("{what}: it gets no more power"));
    let ailing = device
        .ailing_since
        .map(|_| "inspect this hardware: its cap was above the median of its job's GPUs for many hours (`litctl events`)".into());
    let plan = device.plan.as_ref().map(planned);
    [state, opted_out, in_force, throttled, ailing, plan]
        .into_iter()
        .flatten()
        .collect()
}

/// The limiter of a device besides power.
fn throttled(device: &DeviceStatus) -> Option<&'static str> {
    Some(match device.limiter {
        Limiter::Heat => "heat throttles it",
        Limiter::Memory => "the heat of its memory throttles it",
        Limiter::Regulator => "its voltage regulators throttle it",
        Limiter::PowerBrake => "the power brake is pulled",
        _ if device.throttled => "hardware throttles it",
        _ => return None,
    })
}

/// The plan that a GPU follows.
fn planned(plan: &PlanStatus) -> String {
    let locked = match plan.locked {
        Some(clock) => format!("a plan has its clock locked to {}", show::mhz(clock)),
        None => "a plan sets its clock".to_owned(),
    };
    let needs = match plan.needs {
        Some(cap) => format!("which needs a cap of {cap:.0}"),
        None => "its cap is not lowered until it is known what that needs".to_owned(),
    };
    let late = match plan.degree > 1.0 {
        true => format!("; it can't hold that: {:.2} times as slow", plan.degree),
        false => String::new(),
    };
    format!("{locked}, {needs}{late}")
}

fn job_lines(job: &JobStatus, devices: &[DeviceStatus]) -> Vec<String> {
    let connected = job.ranks.iter().filter(|rank| rank.connected).count();
    let names: Vec<&str> = devices
        .iter()
        .filter(|device| device.job.as_deref() == Some(&job.name))
        .map(|device| device.name.as_str())
        .collect();
    let trial = job.trial.clone().into_iter();
    let lines = [
        format!("{}: {}", job.state.name(), job.why),
        format!(
            "iteration {}, {} per second, {}",
            or_dash(job.iteration_time, |time| show::time(time.to_nanos())),
            or_dash(job.throughput, |rate| format!("{rate:.2}")),
            profiled(job.sampling_period, job.sampling_overhead)
        ),
        format!(
            "{}, {} bad; {}; budget {:.0}",
            count(job.samples, "sample"),
            job.bad_samples,
            count(job.adjustments, "adjustment"),
            job.budget
        ),
        format!(
            "uid {}, {} of {} connected; {}",
            job.uid,
            connected,
            count(job.ranks.len(), "rank"),
            names.join(" ")
        ),
    ];
    lines.into_iter().chain(trial).collect()
}

/// How often an iteration is profiled, and what that takes, in words.
pub fn profiled(period: u64, overhead: Option<f64>) -> String {
    let often = match period {
        0 => return "none is profiled".into(),
        1 => "each is profiled".into(),
        period => format!("1 in {period} is profiled"),
    };
    match overhead {
        Some(share) => format!("{often} ({:.2} % of the time)", 100.0 * share),
        None => often,
    }
}

fn counters(out: &mut String, what: &str, counters: &[Counter]) -> fmt::Result {
    let happened: Vec<String> = counters
        .iter()
        .filter(|counter| counter.count > 0)
        .map(|counter| match counter.backend.as_str() {
            "" => format!("{} {}", counter.count, counter.kind),
            backend => format!("{} {} ({backend})", counter.count, counter.kind),
        })
        .collect();
    if happened.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    paragraph(out, what, &[happened.join(", ")])
}

/// A name, and below it lines that wrap.
fn paragraph(out: &mut String, name: &str, lines: &[String]) -> fmt::Result {
    writeln!(out, "{HEAD}{name}{HEAD:#}")?;
    for line in lines
        .iter()
        .flat_map(|line| wrap(line, WIDTH - INDENT.len()))
    {
        writeln!(out, "{INDENT}{line}")?;
    }
    Ok(())
}

fn watts(power: Option<Watts>) -> String {
    or_dash(power, |power| format!("{power:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn periods_are_words() {
        let words = [
            profiled(0, Some(0.0)),
            profiled(1, None),
            profiled(160, Some(0.006)),
        ];
        let expected = [
            "none is profiled",
            "each is profiled",
            "1 in 160 is profiled (0.60 % of the time)",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn what_the_node_draws_is_told_with_what_that_leaves() {
        let mut told = NodePower::default();
        assert_eq!(
            node_power(&told),
            "the node's power is not known from its BMC"
        );
        told.source = Some("redfish".to_owned());
        (told.power, told.budget) = (Some(Watts(7123.4)), Some(Watts(8000.0)));
        told.reserve_unknown = true;
        let unknown = "the node draws 7123 W (redfish) of 8000 W; litd subtracts 0 W (not measured \
                       yet; node.reserve would set it) for parts other than GPUs and CPUs, and does \
                       not know yet what that leaves to the GPUs";
        assert_eq!(node_power(&told), unknown);
        (told.reserve, told.left_to_gpus) = (Some(Watts(1500.0)), Some(Watts(5900.0)));
        let least = "litd subtracts 1500 W (at least: not measured yet) for parts";
        assert!(node_power(&told).contains(least));
        told.reserve_unknown = false;
        told.alarm = Some("power supply PS2: Critical".to_owned());
        let known = "the node draws 7123 W (redfish) of 8000 W; litd subtracts 1500 W for parts \
                     other than GPUs and CPUs, and leaves 5900 W to the GPUs; short of power, so no \
                     steered job's cap rises: power supply PS2: Critical";
        assert_eq!(node_power(&told), known);
    }

    #[test]
    fn who_is_left_alone_is_told_with_the_way_back() {
        let mut device = samples::status().devices.remove(0);
        assert_eq!(remarks(&device), Vec::<String>::new());
        for state in [
            DeviceState::Foreign,
            DeviceState::Released,
            DeviceState::Faulty,
        ] {
            device.state = state;
            let remarks = remarks(&device).join("");
            assert!(remarks.contains("`litctl resume gpu0`"), "{remarks}");
        }
        // litd is off, and refuses to resume a device.
        device.state = DeviceState::Closed;
        assert_eq!(remarks(&device), Vec::<String>::new());
        device.state = DeviceState::Ours;
        (device.cap, device.in_force) = (Some(Watts(700.0)), Some(Watts(650.0)));
        (device.throttled, device.limiter) = (true, Limiter::Memory);
        assert_eq!(
            remarks(&device),
            [
                "650 W is in force, less than its cap of 700 W",
                "the heat of its memory throttles it: it gets no more power"
            ]
        );
    }
}
