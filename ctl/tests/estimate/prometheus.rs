//! The same fleet behind a Prometheus: a real one where it is installed, and a stand-in that refuses, hides and
//! limits as servers do.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::made::{self, GPUS, NODES, Row, START, STEP, STEPS};
use crate::{estimate, litctl, mistake};

const LAST: u64 = START + (STEPS - 1) * STEP;

/// litctl's words for the whole of the made-up history.
fn words(address: &str, more: &[&str]) -> Vec<String> {
    let until = LAST.to_string();
    let url = format!("http://{address}");
    let fixed = [
        "--prometheus",
        &url,
        "--until",
        &until,
        "--last",
        "70m",
        "--step",
        "30s",
    ];
    fixed
        .iter()
        .chain(more)
        .map(|it| (*it).to_owned())
        .collect()
}

fn from_csv() -> Value {
    let folder = tempfile::tempdir().unwrap();
    estimate(&[
        "--csv",
        &made::write(folder.path(), "fleet.csv", &made::csv(Row::all())),
    ])
}

fn same(one: &Value, other: &Value) {
    assert_eq!(one["nodes"].as_array().unwrap().len(), NODES as usize);
    for (a, b) in one["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .zip(other["nodes"].as_array().unwrap())
    {
        assert_eq!(a, b);
    }
    assert_eq!(one["fleet"], other["fleet"]);
}

/// A server that is ended with the test.
struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn have(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|it| it.status.success());
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

/// A real Prometheus with the made-up history, which promtool writes as if it had been scraped.
fn started(folder: &Path) -> Server {
    let history = made::write(folder, "history.txt", &made::openmetrics());
    let data = folder.join("data");
    let written = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics", &history])
        .arg(&data)
        .output()
        .unwrap();
    assert!(written.status.success(), "{written:?}");
    let config = made::write(folder, "prometheus.yml", "global: {}\n");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let process = Command::new("prometheus")
        .arg(format!("--config.file={config}"))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg("--storage.tsdb.retention.time=100y")
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server { process, address };
    let start = Instant::now();
    loop {
        let probe = litctl(&words(&server.address, &[]));
        if probe.status.success() {
            return server;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{probe:?}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_real_prometheus_says_the_same_as_tables() {
    if !(have("prometheus") && have("promtool")) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = started(folder.path());
    let report = estimate(&words(&server.address, &[]));
    same(&report, &from_csv());
    let some = estimate(&words(
        &server.address,
        &["--match", "Hostname=~\"node0[12]\""],
    ));
    assert_eq!(some["fleet"]["nodes"], 2);
    let said = mistake(&words(&server.address, &["--match", "Hostname=\"other\""]));
    assert!(said.contains("no metric of dcgm-exporter"), "{said}");
    let said = mistake(&words(&server.address, &["--match", "Hostname=="]));
    assert!(said.contains("400"), "{said}");
}

/// The stand-in's faults and limits.
#[derive(Clone, Copy, Default)]
struct Moods {
    /// The stand-in is away for the first so many requests.
    away: u32,
    /// The stand-in answers with so many points of a series at most.
    points: u64,
    /// The stand-in wants a token.
    token: bool,
    /// Reasons are told by counters of time, of so much a second.
    counters: Option<f64>,
    /// The exporter whose metrics it has.
    exporter: Exporter,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Exporter {
    #[default]
    Dcgm,
    Amd,
    Litd,
}

impl Moods {
    fn names(self) -> &'static [&'static str] {
        match (self.exporter, self.counters) {
            (Exporter::Dcgm, None) => &[
                "DCGM_FI_DEV_POWER_USAGE",
                "DCGM_FI_DEV_SM_CLOCK",
                "DCGM_FI_DEV_GPU_TEMP",
                "DCGM_FI_DEV_POWER_MGMT_LIMIT",
                "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
            ],
            (Exporter::Dcgm, Some(_)) => &[
                "DCGM_FI_DEV_POWER_USAGE",
                "DCGM_FI_DEV_SM_CLOCK",
                "DCGM_FI_DEV_GPU_TEMP",
                "DCGM_FI_DEV_POWER_MGMT_LIMIT",
                "DCGM_FI_DEV_POWER_VIOLATION",
            ],
            (Exporter::Amd, _) => &[
                "gpu_package_power",
                "gpu_clock",
                "gpu_junction_temperature",
                "gpu_violation_ppt_residency_percentage",
            ],
            (Exporter::Litd, _) => &[
                "litd_device_power_watts",
                "litd_device_clock_hertz",
                "litd_device_temperature_celsius",
                "litd_device_cap_watts",
                "litd_device_limiter",
                "litd_simulated",
            ],
        }
    }

    fn labels(self, row: Row) -> String {
        let (host, uuid) = (row.host(), row.uuid());
        match self.exporter {
            Exporter::Dcgm => format!(r#""Hostname":"{host}","UUID":"{uuid}","instance":"x:9400""#),
            Exporter::Amd => {
                format!(
                    r#""hostname":"{host}","serial_number":"{uuid}","gpu_id":"0","instance":"x:5000""#
                )
            }
            Exporter::Litd => format!(r#""instance":"{host}","device":"{uuid}","kind":"gpu""#),
        }
    }
}

/// The labels by which the series of one GPU differ.
fn variants(name: &str) -> &'static [&'static str] {
    match name {
        "gpu_clock" => &[r#","clock_index":"0""#, r#","clock_index":"1""#],
        "litd_device_limiter" => &[r#","limiter":"power""#, r#","limiter":"none""#],
        _ => &[""],
    }
}

/// The value of a GPU's series at a moment.
fn told(name: &str, variant: usize, row: Row, second: f64) -> Option<String> {
    let limited = row.is_limited();
    Some(match name {
        "DCGM_FI_DEV_POWER_USAGE" | "gpu_package_power" | "litd_device_power_watts" => {
            format!("{:.3}", row.power())
        }
        "DCGM_FI_DEV_SM_CLOCK" => row.clock().to_string(),
        // Two dies, whose mean is the clock.
        "gpu_clock" => (row.clock() + 2 * variant as u64 - 1).to_string(),
        "litd_device_clock_hertz" => (row.clock() * 1_000_000).to_string(),
        "DCGM_FI_DEV_GPU_TEMP" | "gpu_junction_temperature" | "litd_device_temperature_celsius" => {
            row.temperature().to_string()
        }
        "DCGM_FI_DEV_POWER_MGMT_LIMIT" | "litd_device_cap_watts" => row.cap().to_string(),
        "DCGM_FI_DEV_POWER_VIOLATION" => (if limited { second } else { 0.0 }).to_string(),
        "gpu_violation_ppt_residency_percentage" => (if limited { 80 } else { 0 }).to_string(),
        // The query asks for those that are 1.
        "litd_device_limiter" => (limited == (variant == 0)).then(|| "1".to_owned())?,
        _ => row.reasons().to_string(),
    })
}

/// A stand-in for a Prometheus. How often it was asked.
fn stand_in(moods: Moods) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let number = count.fetch_add(1, Ordering::SeqCst);
            // A client that is gone needs no answer.
            let _ = answer(stream, moods, number);
        }
    });
    (address, asked)
}

fn answer(mut stream: TcpStream, moods: Moods, number: u32) -> std::io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    let path = lines.next().transpose()?.unwrap_or_default();
    let mut token = String::new();
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((key, value)) if key.eq_ignore_ascii_case("authorization") => token = value.into(),
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    let path = path.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match () {
        () if number < moods.away => ("503 Service Unavailable", "starting".to_owned()),
        () if moods.token && token != "Bearer secret" => {
            ("401 Unauthorized", "who are you?".to_owned())
        }
        () => answered(path, moods),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn plain(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        let digits = [rest.clone().next(), rest.clone().nth(1)];
        match (byte, digits) {
            (b'%', [Some(a), Some(b)]) => {
                let digit = |it: u8| char::from(it).to_digit(16).unwrap_or(0) as u8;
                bytes.push(16 * digit(a) + digit(b));
                rest.nth(1);
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn answered(path: &str, moods: Moods) -> (&'static str, String) {
    let (place, query) = path.split_once('?').unwrap_or((path, ""));
    let pairs = query.split('&').filter_map(|it| it.split_once('='));
    let given = BTreeMap::from_iter(pairs.map(|it| (plain(it.0), plain(it.1))));
    if place.ends_with("/label/__name__/values") {
        let names = moods.names();
        return (
            "200 OK",
            format!(
                "{{\"status\":\"success\",\"data\":{}}}",
                serde_json::json!(names)
            ),
        );
    }
    let number = |key: &str| {
        given
            .get(key)
            .and_then(|it| it.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let (start, end, step) = (number("start"), number("end"), number("step").max(1));
    if moods.points > 0 && (end - start) / step >= moods.points {
        let error = "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"exceeded maximum resolution\"}";
        return ("400 Bad Request", error.to_owned());
    }
    let query = given.get("query").cloned().unwrap_or_default();
    let second = moods.counters.unwrap_or(0.0);
    let one = match () {
        () if query.starts_with("max(max_over_time(rate(") => Some(second),
        () if query.starts_with("max(litd_simulated") => Some(1.0),
        () => None,
    };
    if let Some(value) = one {
        return matrix(&format!(
            r#"{{"metric":{{}},"values":[[{end},"{value}"]]}}"#
        ));
    }
    let name = query
        .trim_start_matches("rate(")
        .split('{')
        .next()
        .unwrap_or_default();
    let mut result = Vec::new();
    for at in 0..NODES * GPUS {
        let row = |step| Row {
            node: at / GPUS,
            gpu: at % GPUS,
            step,
        };
        for (variant, label) in variants(name).iter().enumerate() {
            let rows = (0..STEPS).map(row);
            let rows =
                rows.filter(|row| (start..=end).contains(&row.time()) && row.time() % step == 0);
            let values = rows.filter_map(|row| {
                Some(format!(
                    r#"[{},"{}"]"#,
                    row.time(),
                    told(name, variant, row, second)?
                ))
            });
            let values = Vec::from_iter(values).join(",");
            let labels = moods.labels(row(0));
            result.push(format!(
                r#"{{"metric":{{{labels}{label}}},"values":[{values}]}}"#
            ));
        }
    }
    matrix(&result.join(","))
}

fn matrix(result: &str) -> (&'static str, String) {
    let body =
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#);
    ("200 OK", body)
}

/// AMD's exporter has no cap, a clock for each die and shares of time; litd has hertz and a label for the limiter.
#[test]
fn other_exporters_say_the_same() {
    let expected = from_csv();
    let (address, _) = stand_in(Moods {
        exporter: Exporter::Amd,
        ..Moods::default()
    });
    same(&estimate(&words(&address, &["--cap-w", "700"])), &expected);
    let (address, _) = stand_in(Moods {
        exporter: Exporter::Litd,
        ..Moods::default()
    });
    let report = estimate(&words(&address, &[]));
    same(&report, &expected);
    assert_eq!(report["simulated"], true);
    let text = String::from_utf8(litctl(&words(&address, &[])).stdout).unwrap();
    assert!(text.starts_with("SIMULATED"), "{text}");
}

#[test]
fn ranges_are_read_in_pieces_that_the_server_takes() {
    let (address, asked) = stand_in(Moods {
        away: 2,
        points: 7,
        token: true,
        ..Moods::default()
    });
    let folder = tempfile::tempdir().unwrap();
    let token = made::write(folder.path(), "token", "secret\n");
    let report = estimate(&words(&address, &["--token-file", &token]));
    same(&report, &from_csv());
    // 141 steps, at most 7 of them at once, five metrics each.
    assert!(asked.load(Ordering::SeqCst) >= 5 * 141 / 7, "{asked:?}");
}

/// Where there are counters of time instead of reasons, their unit is found out.
#[test]
fn counters_of_time_are_limiters_too() {
    for second in [1e6, 1e9] {
        let (address, _) = stand_in(Moods {
            counters: Some(second),
            ..Moods::default()
        });
        same(&estimate(&words(&address, &[])), &from_csv());
    }
    let (address, _) = stand_in(Moods {
        counters: Some(1e5),
        ..Moods::default()
    });
    let report = estimate(&words(&address, &[]));
    let damage = report["input"]["damage"][0]["what"].as_str().unwrap();
    assert!(
        damage.contains("DCGM_FI_DEV_POWER_VIOLATION grows too little"),
        "{damage}"
    );
}

#[test]
fn a_server_that_refuses_is_not_asked_without_end() {
    let (address, asked) = stand_in(Moods {
        token: true,
        ..Moods::default()
    });
    let said = mistake(&words(&address, &[]));
    assert!(said.contains("401 Unauthorized: who are you?"), "{said}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let (address, asked) = stand_in(Moods {
        away: 1_000,
        ..Moods::default()
    });
    let said = mistake(&words(&address, &[]));
    assert!(said.contains("503 Service Unavailable: starting"), "{said}");
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let said = mistake(&words(&free.to_string(), &[]));
    assert!(said.contains("refused"), "{said}");
}
