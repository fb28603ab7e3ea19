//! The dashboard and the alert rules, against a real Prometheus that scrapes what litd would say.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::sample;
use crate::tools::have;
use litd::metrics::Format;
use litd_api::{Counter, DeviceState, JobState, Status};
use litd_units::Watts;
use serde_json::Value;

/// How long a real Prometheus may take to start or to have seen enough.
const PATIENCE: Duration = Duration::from_secs(60);

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(path)
}

fn read(path: &str) -> String {
    let path = deploy(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/litd.json")).expect("the dashboard is JSON")
}

/// A litd as far as Prometheus can tell: answers every request on a loopback port with the
/// status that it has at the n-th, in the format that is asked for or in this one.
fn serve(only: Option<Format>, status_at: impl Fn(u64) -> Status + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let address = listener
        .local_addr()
        .expect("it has an address")
        .to_string();
    thread::spawn(move || {
        for (n, stream) in (1..).zip(listener.incoming()) {
            // Prometheus hangs up when it is stopped: nothing to report.
            let _ = stream.and_then(|stream| answer(stream, only, &status_at(n)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, only: Option<Format>, status: &Status) -> std::io::Result<()> {
    let mut accept = String::new();
    for line in BufReader::new(&stream).lines() {
        let line = line?;
        match line.split_once(':') {
            Some((key, value)) if key.eq_ignore_ascii_case("accept") => accept = value.into(),
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    let format = only.unwrap_or_else(|| Format::accepted(&accept));
    let (kind, body) = (format.content_type(), format.text(status));
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// All is well, and things happen: every counter grows.
fn healthy(n: u64) -> Status {
    let mut status = sample::status();
    status.simulated = false;
    status.uptime_seconds += n as f64;
    status.totals.frames += 8 * n;
    status.totals.ticks += 10 * n;
    status.totals.writes += n;
    status.totals.adjustments += n;
    for device in &mut status.devices {
        device.energy = device.energy.map(|joules| joules * (1.0 + n as f64 / 1e3));
    }
    let job = &mut status.jobs[0];
    job.samples += n;
    job.adjustments += 1 + n as u32;
    for (bound, count) in &mut job.iteration_histogram {
        *count += if *bound == Some(0.1) { 0 } else { n };
    }
    job.iteration_seconds_sum += 0.4 * n as f64;
    status
}

/// Everything that there is an alert for, except a daemon that is down or stands still.
fn troubled(n: u64) -> Status {
    let mut status = sample::status();
    // It starts anew all the time.
    status.uptime_seconds = (n % 2) as f64;
    status.gpus.caps = status.gpus.budget + Watts(10.0);
    status.gpus.power = Some(status.gpus.budget * 1.2);
    let counter = |kind: &str, backend: &str| Counter {
        kind: kind.into(),
        backend: backend.into(),
        count: 5 * n,
    };
    status.totals.errors = vec![counter("permission", "sim"), counter("journal", "")];
    status.totals.refused = vec![counter("not_a_holder", "")];
    let states = [
        DeviceState::Faulty,
        DeviceState::Foreign,
        DeviceState::Released,
    ];
    for (device, state) in status.devices.iter_mut().zip(states) {
        device.state = state;
    }
    status.devices[0].power = None;
    status.devices[0].throttled = true;
    status.devices[0].ailing_since = Some(1.7e9);
    status.node.yielded = true;
    status.node.unmanaged = vec!["0000:85:00.0".to_owned()];
    status.devices[1].power = status.devices[1].cap.map(|cap| cap * 1.5);
    status.devices[1].in_force = status.devices[1].cap.map(|cap| cap + Watts(50.0));
    let states = [JobState::Suspended, JobState::Rollback, JobState::Stale];
    let job = status.jobs[0].clone();
    status.jobs = states
        .into_iter()
        .map(|state| {
            let mut job = job.clone();
            job.name = format!("{state:?}");
            job.bad_samples += 2 * n;
            job.state = state;
            job
        })
        .collect();
    status
}

/// litd is off, and GPUs hold more than it is to leave.
fn off_above_budget(n: u64) -> Status {
    let mut status = healthy(n);
    status.node.mode = litd_api::Mode::Off;
    status.gpus.caps = status.gpus.budget + Watts(10.0);
    status
}

/// It answers, and nothing moves.
fn frozen(_: u64) -> Status {
    healthy(0)
}

/// A Prometheus of our own, ended with the test.
struct Prometheus {
    process: Child,
    address: String,
    directory: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// With the shipped configuration and rules; only the targets and the pace are the test's.
    fn start(targets: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = read("prometheus/scrape.yml");
        for (ours, tests) in [
            (
                "[\"127.0.0.1:9816\"]".to_owned(),
                format!("[\"{}\"]", targets.join("\", \"")),
            ),
            (
                "scrape_interval: 5s".to_owned(),
                "scrape_interval: 500ms\n  scrape_timeout: 500ms".to_owned(),
            ),
        ] {
            assert_eq!(config.matches(&ours).count(), 1, "{ours}");
            config = config.replace(&ours, &tests);
        }
        let path = directory.path().join("scrape.yml");
        std::fs::write(&path, config).expect("the configuration is written");
        let rules = directory.path().join("rules.yml");
        std::fs::write(rules, read("prometheus/rules.yml")).expect("the rules are written");
        let free = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = free.local_addr().expect("it has an address").to_string();
        drop(free);
        let log = std::fs::File::create(directory.path().join("log")).expect("a log");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("Prometheus starts");
        let prometheus = Self {
            process,
            address,
            directory,
        };
        until("Prometheus is ready", || match prometheus.get("/-/ready") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}\n{}", prometheus.log())),
        });
        prometheus
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Status and body. HTTP/1.0, so that the body comes in one piece.
    fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.address
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        Ok((status.unwrap_or(0), body.to_owned()))
    }

    fn json(&self, path: &str) -> Value {
        let (_, body) = self.get(path).expect("Prometheus answers");
        let answer: Value = serde_json::from_str(&body).expect("it answers in JSON");
        assert_eq!(answer["status"], "success", "{path}: {body}");
        answer["data"].clone()
    }

    /// The label sets of the series that an expression has now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let escaped: String = expression
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        let data = self.json(&format!("/api/v1/query?query={escaped}"));
        let series = data["result"].as_array().expect("a list of series");
        series.iter().map(|it| it["metric"].clone()).collect()
    }

    /// The unit that a target names with a family, which only OpenMetrics can.
    fn unit(&self, family: &str, instance: &str) -> String {
        let data = self.json(&format!("/api/v1/targets/metadata?metric={family}"));
        let of = |it: &&Value| it["target"]["instance"] == *instance;
        let family = data.as_array().expect("a list").iter().find(of);
        let unit = family.and_then(|it| it["unit"].as_str());
        unit.expect("the target has the family").to_owned()
    }

    /// The instances that an expression has series of.
    fn instances(&self, expression: &str) -> Vec<String> {
        let mut instances: Vec<String> = self
            .query(expression)
            .iter()
            .map(|labels| labels["instance"].as_str().unwrap_or_default().to_owned())
            .collect();
        instances.sort_unstable();
        instances.dedup();
        instances
    }
}

/// Tries until it works; then goes on.
fn until(what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    while let Err(problem) = attempt() {
        assert!(start.elapsed() < PATIENCE, "{what}: {problem}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// All that a dashboard says under `key`, at any depth.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(values) => values.iter().for_each(|it| texts(it, key, found)),
        Value::Object(map) => {
            found.extend(map.get(key).and_then(Value::as_str));
            map.values().for_each(|it| texts(it, key, found));
        }
        _ => {}
    }
}

/// What Grafana makes of an expression when everything is selected.
fn filled_in(expression: &str) -> String {
    let mut filled = expression.to_owned();
    for (variable, value) in [
        ("$instance", ".*"),
        ("$device", ".*"),
        ("$training_job", ".*"),
        ("$__rate_interval", "1m"),
        ("$__interval", "1m"),
    ] {
        filled = filled.replace(variable, value);
    }
    assert!(!filled.contains('$'), "unknown variable: {filled}");
    filled
}

#[test]
fn promtool_takes_rules_and_configuration() {
    if !have(&["promtool"]) {
        return;
    }
    for (what, path) in [
        ("rules", "prometheus/rules.yml"),
        ("config", "prometheus/scrape.yml"),
    ] {
        let mut promtool = Command::new("promtool");
        let output = promtool
            .args(["check", what, "--lint-fatal"])
            .arg(deploy(path))
            .output()
            .expect("promtool runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{path}: {said}");
    }
}

#[test]
fn the_owners_alerts_see_what_they_are_made_for() {
    const FILES: [&str; 2] = ["prometheus/tests.yml", "prometheus/tests-of-days.yml"];
    if !have(&["promtool"]) {
        return;
    }
    let tests = FILES.map(read).concat();
    let rules = read("prometheus/rules.yml");
    let (_, owners) = rules.split_once("name: litd-owners").expect("a group");
    for alert in owners
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        assert!(tests.contains(alert), "{alert} has no test");
    }
    let output = Command::new("promtool")
        .args(["test", "rules"])
        .args(FILES.map(deploy))
        .output()
        .expect("promtool runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

#[test]
fn every_expression_has_series_in_a_real_prometheus() {
    if !have(&["prometheus"]) {
        return;
    }
    // Prometheus asks for OpenMetrics; the other target has 0.0.4 only.
    let well = serve(None, healthy);
    let plain = serve(Some(Format::Prometheus), healthy);
    let prometheus = Prometheus::start(&[well.clone(), plain.clone()]);
    let board = dashboard();
    let mut expressions = Vec::new();
    texts(&board, "expr", &mut expressions);
    assert!(expressions.len() > 30, "{expressions:?}");
    for expression in expressions {
        let filled = filled_in(expression);
        until(expression, || match prometheus.instances(&filled) {
            instances if instances.contains(&well) && instances.contains(&plain) => Ok(()),
            instances => Err(format!("series of {instances:?} only")),
        });
    }
    assert_eq!(prometheus.unit("litd_uptime_seconds", &well), "seconds");
    assert_eq!(prometheus.unit("litd_uptime_seconds", &plain), "");
    let mut variables = Vec::new();
    texts(&board["templating"], "definition", &mut variables);
    assert_eq!(variables.len(), 3);
    for variable in variables {
        let (series, label) = variable
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|arguments| arguments.rsplit_once(", "))
            .unwrap_or_else(|| panic!("what is {variable}?"));
        let series = prometheus.query(&filled_in(series));
        assert!(!series.is_empty(), "{variable}");
        assert!(series.iter().all(|it| it[label].is_string()), "{variable}");
    }
}

#[test]
fn every_alert_sees_its_trouble_and_nothing_else() {
    if !have(&["prometheus"]) {
        return;
    }
    let (well, ill, still, off) = (
        serve(None, healthy),
        serve(None, troubled),
        serve(None, frozen),
        serve(None, off_above_budget),
    );
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        listener
            .local_addr()
            .expect("it has an address")
            .to_string()
    };
    let targets = [&well, &ill, &still, &off, &gone].map(Clone::clone);
    let prometheus = Prometheus::start(&targets);
    until(
        "the healthy one has been scraped a few times",
        || match prometheus.query(&format!("litd_uptime_seconds{{instance=\"{well}\"}} > 103")) {
            series if series.is_empty() => Err(prometheus.log()),
            _ => Ok(()),
        },
    );
    let rules = prometheus.json("/api/v1/rules");
    let rules = rules["groups"][0]["rules"]
        .as_array()
        .expect("rules")
        .clone();
    assert!(rules.len() >= 20);
    for rule in rules {
        let name = rule["name"].as_str().expect("a name");
        let expression = rule["query"].as_str().expect("an expression");
        let expected = match name {
            "LitdDown" => &gone,
            "LitdStale" => &still,
            "LitdLeftAboveBudget" => &off,
            _ => &ill,
        };
        until(name, || match prometheus.instances(expression) {
            instances if instances.contains(expected) => Ok(()),
            instances => Err(format!("{expression}: {instances:?}")),
        });
        assert_eq!(
            prometheus.instances(expression),
            [expected.as_str()],
            "{name}"
        );
        let notes = &rule["annotations"];
        assert!(notes["summary"].is_string() && notes["description"].is_string());
        assert!(rule["labels"]["severity"].is_string(), "{name}");
    }
}

#[test]
fn the_dashboard_is_one_that_grafana_imports() {
    let board = dashboard();
    assert_eq!(board["uid"], "litd");
    assert!(board["schemaVersion"].as_u64() >= Some(39));
    let panels = board["panels"].as_array().expect("panels");
    let mut ids: Vec<_> = panels.iter().map(|it| it["id"].as_u64()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "ids are of one panel each");
    let mut places: Vec<(u64, u64, u64, u64)> = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|it| panel["gridPos"][it].as_u64());
        let place = (x.expect("x"), y.expect("y"), w.expect("w"), h.expect("h"));
        assert!(place.0 + place.2 <= 24, "{title} is off the grid");
        for (ox, oy, ow, oh) in &places {
            let apart = place.0 >= ox + ow
                || *ox >= place.0 + place.2
                || place.1 >= oy + oh
                || *oy >= place.1 + place.3;
            assert!(apart, "{title} lies on another panel");
        }
        places.push(place);
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(panel["description"].is_string(), "{title}");
        }
    }
}
