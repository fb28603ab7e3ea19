//! The daemon's numbers as Prometheus and OpenMetrics read them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::sample::status;
use crate::tools::have;
use litd::metrics::{Format, openmetrics, prometheus};
use litd_api::{DeviceRole, DeviceState, JobState, Mode, Status};
use litd_units::Watts;

/// What a program says about a text on its standard input, if it is content.
fn judged(program: &mut Command, text: &str) -> Result<(), String> {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(text.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    match output.status.success() && said.is_empty() {
        true => Ok(()),
        false => Err(said),
    }
}

fn lines_with<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    text.lines()
        .filter(|line| line.starts_with(start))
        .collect()
}

fn bare() -> Status {
    let mut status = status();
    status.devices.clear();
    status.jobs.clear();
    status.totals = litd_api::Totals::default();
    status.gpus.power = None;
    status
}

fn hostile() -> Status {
    let mut status = status();
    status.jobs[0].name = "a\"b\\c\nd\0e\rf{}=, # EOF é".to_owned();
    status.devices[0].job = Some(status.jobs[0].name.clone());
    status.devices[0].model = "\"\\\n".to_owned();
    status
}

#[test]
fn promtool_has_nothing_to_say() {
    if !have(&["promtool"]) {
        return;
    }
    for status in [status(), bare(), hostile()] {
        let text = prometheus(&status);
        let verdict = judged(Command::new("promtool").args(["check", "metrics"]), &text);
        assert_eq!(verdict, Ok(()), "{text}");
    }
    let verdict = judged(
        Command::new("promtool").args(["check", "metrics"]),
        "litd_x 1\nlitd_x 2\n",
    );
    assert!(verdict.is_err(), "promtool would not tell");
}

#[test]
fn the_reference_parser_takes_openmetrics() {
    const PARSE: &str = "import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
list(parse(sys.stdin.read()))";
    // Debian's package is for Debian's Python, which need not be the first.
    let parse = |python: &str, text: &str| judged(Command::new(python).args(["-c", PARSE]), text);
    let python = ["python3", "/usr/bin/python3"]
        .into_iter()
        .find(|python| have(&[python]) && parse(python, "# EOF\n").is_ok());
    let Some(python) = python else {
        eprintln!("SKIPPED: Python's prometheus_client is not installed");
        return;
    };
    for status in [status(), bare(), hostile()] {
        let text = openmetrics(&status);
        assert_eq!(parse(python, &text), Ok(()), "{text}");
        assert!(
            parse(python, &prometheus(&status)).is_err(),
            "takes anything"
        );
    }
}

#[test]
fn both_formats_have_the_same_series() {
    let series = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    let status = status();
    assert_eq!(series(&prometheus(&status)), series(&openmetrics(&status)));
    assert!(series(&prometheus(&status)).len() > 80);
}

#[test]
fn each_format_keeps_its_own_rules() {
    let (text, open) = (prometheus(&status()), openmetrics(&status()));
    assert!(text.contains("# TYPE litd_build_info gauge\nlitd_build_info{version=\"0.1.0\"} 1\n"));
    assert!(open.contains("# TYPE litd_build info\nlitd_build_info{version=\"0.1.0\"} 1\n"));
    assert!(text.contains("# TYPE litd_cap_writes_total counter\nlitd_cap_writes_total 8\n"));
    assert!(open.contains("# TYPE litd_cap_writes counter\nlitd_cap_writes_total 8\n"));
    assert!(open.contains("# UNIT litd_device_energy_joules joules\n"));
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    assert!(open.ends_with("\n# EOF\n"));
    assert_eq!(open.matches("# EOF").count(), 1);
}

#[test]
fn numbers_are_in_base_units() {
    let text = prometheus(&status());
    let gpu1 = "{device=\"gpu1\",address=\"0000:06:00.0\",kind=\"gpu\"}";
    for line in [
        format!("litd_device_cap_watts{gpu1} 651.0"),
        format!("litd_device_lead_seconds{gpu1} 0.0125"),
        format!("litd_device_clock_hertz{gpu1} 1755000000.0"),
        format!("litd_device_locked_clock_hertz{gpu1} 1410000000.0"),
        format!("litd_device_plan_needs_watts{gpu1} 512.5"),
        format!("litd_device_plan_degree_ratio{gpu1} 1.1"),
        "litd_job_iteration_mean_seconds{training_job=\"llama\"} 0.5125".to_owned(),
        "litd_job_samples_total{training_job=\"llama\",result=\"bad\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
}

#[test]
fn iteration_times_are_a_whole_histogram() {
    let whole = [
        "litd_job_iteration_seconds_bucket{training_job=\"llama\",le=\"0.1\"} 0",
        "litd_job_iteration_seconds_bucket{training_job=\"llama\",le=\"0.5\"} 30",
        "litd_job_iteration_seconds_bucket{training_job=\"llama\",le=\"1.0\"} 41",
        "litd_job_iteration_seconds_bucket{training_job=\"llama\",le=\"+Inf\"} 42",
        "litd_job_iteration_seconds_sum{training_job=\"llama\"} 24.75",
        "litd_job_iteration_seconds_count{training_job=\"llama\"} 42",
    ];
    let mut status = status();
    for text in [prometheus(&status), openmetrics(&status)] {
        assert_eq!(lines_with(&text, "litd_job_iteration_seconds"), whole);
    }
    // Also where the last bound is a number: a histogram without infinity can't be read.
    status.jobs[0].iteration_histogram.pop();
    assert!(prometheus(&status).contains(
        "le=\"1.0\"} 41\nlitd_job_iteration_seconds_bucket{training_job=\"llama\",le=\"+Inf\"} 41\n"
    ));
    status.jobs[0].iteration_histogram.clear();
    assert!(!prometheus(&status).contains("litd_job_iteration_seconds"));
}

#[test]
fn what_is_not_known_has_no_series() {
    let mut status = status();
    assert!(!prometheus(&status).contains("litd_device_power_watts{device=\"cpu0\""));
    status.devices[0].cap = Some(Watts(f64::NAN));
    status.devices[1].cap = None;
    status.gpus.power = None;
    let text = prometheus(&status);
    assert!(!text.contains("litd_device_cap_watts"), "not even a head");
    assert!(!text.contains("litd_gpus_power_watts"));
    assert!(!text.contains("NaN") && !text.contains("null"));
    assert_eq!(lines_with(&text, "litd_device_found_cap_watts").len(), 2);
}

#[test]
fn a_name_cannot_forge_a_line() {
    let mut calm = status();
    calm.devices[0].job = Some(calm.jobs[0].name.clone());
    let text = prometheus(&hostile());
    assert_eq!(text.lines().count(), prometheus(&calm).lines().count());
    let name = r#"a\"b\\c\nd"#.to_owned() + "\u{fffd}e\rf{}=, # EOF é";
    let line = format!("litd_job_sampling_period_iterations{{training_job=\"{name}\"}} 20");
    assert!(text.split('\n').any(|it| it == line), "{text}");
    assert_eq!(
        openmetrics(&hostile())
            .split('\n')
            .filter(|line| *line == "# EOF")
            .count(),
        1
    );
}

/// The series of a thing that is one of several, at 1: their values of the label.
fn at_one(text: &str, family: &str, label: &str) -> Vec<String> {
    lines_with(text, &format!("{family}{{"))
        .into_iter()
        .filter(|line| line.ends_with(" 1"))
        .filter_map(|line| line.split_once(&format!("{label}=\"")))
        .filter_map(|(_, rest)| rest.split_once('"'))
        .map(|(value, _)| value.to_owned())
        .collect()
}

/// What `litctl status` calls it.
fn name(it: impl serde::Serialize) -> String {
    let value = serde_json::to_value(it).expect("it is a name");
    value.as_str().expect("it is a name").to_owned()
}

#[test]
fn what_a_thing_is_has_one_series_at_one_under_the_name_that_status_has() {
    let mut status = status();
    status.devices.truncate(1);
    use DeviceRole::{Host, Idle, Leader, Member, Straggler};
    for role in [Idle, Straggler, Leader, Member, Host] {
        status.devices[0].role = role;
        let ones = at_one(&prometheus(&status), "litd_device_role", "role");
        assert_eq!(ones, [name(role)]);
    }
    use DeviceState::{Closed, Faulty, Foreign, Ours, Released};
    for state in [Ours, Foreign, Released, Closed, Faulty] {
        status.devices[0].state = state;
        let ones = at_one(&prometheus(&status), "litd_device_state", "state");
        assert_eq!(ones, [name(state)]);
    }
    for mode in [Mode::Off, Mode::Observe, Mode::Steer] {
        status.node.mode = mode;
        assert_eq!(
            at_one(&prometheus(&status), "litd_mode", "mode"),
            [name(mode)]
        );
    }
    use JobState::{
        Adjusting, Converged, Drift, Gathering, Observe, Rollback, Stale, Suspended, WarmUp,
    };
    for state in [
        Gathering, Observe, WarmUp, Adjusting, Converged, Drift, Rollback, Stale, Suspended,
    ] {
        status.jobs[0].state = state;
        let ones = at_one(&prometheus(&status), "litd_job_state", "state");
        assert_eq!(ones, [name(state)]);
    }
}

#[test]
fn openmetrics_only_where_it_is_asked_for() {
    let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    for accept in [
        prometheus_2,
        prometheus_3,
        "Application/OpenMetrics-Text; version=1.0.0; charset=utf-8",
    ] {
        assert_eq!(Format::accepted(accept), Format::OpenMetrics, "{accept}");
    }
    for accept in [
        "",
        "*/*",
        "text/plain",
        "text/html,application/xhtml+xml,*/*;q=0.8",
        "application/openmetrics-text;version=2.0.0",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=0.2,text/plain;q=0.9",
        "application/openmetrics-text;q=many",
        ";;,,=;q",
    ] {
        assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
    }
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let open = format.text(&status()).contains("# EOF");
        assert_eq!(format.content_type().contains("openmetrics"), open);
    }
}
