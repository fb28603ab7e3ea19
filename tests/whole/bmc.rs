//! `litd-node-power` against a stub of a BMC that answers as real ones do, and as they should not.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::redfish::{Manner, Redfish, idrac, ilo, openbmc, supermicro};
use crate::tools::have;
use serde_json::{Value, json};
use tempfile::TempDir;

const IDRAC: &str = "/redfish/v1/Chassis/System.Embedded.1/Power";
const CONSUMED: &str = "/PowerControl/0/PowerConsumedWatts";
const LIMIT: &str = "/PowerControl/0/PowerLimit/LimitInWatts";

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program and its configuration, of which IPMI and ACPI are not asked unless said.
struct Reader {
    place: TempDir,
    config: String,
}

impl Reader {
    fn of(config: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let config = format!("{config}\n[poll]\nseconds = 0.1\ntimeout_seconds = 2\n");
        Self { place, config }
    }

    fn redfish(url: &str, more: &str) -> Self {
        Self::of(&format!(
            "[redfish]\nurl = {url}\n{more}\n[ipmi]\nprogram =\n[acpi]\nsys ="
        ))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self) -> Command {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::write(self.path("conf"), &self.config).unwrap();
        let mut command = Command::new("python3");
        command
            .arg(program.join("deploy/node-power/litd-node-power"))
            .arg("--config")
            .arg(self.path("conf"))
            .arg("--output")
            .arg(self.path("reading.json"));
        command
    }

    fn reading(&self) -> Option<Value> {
        let text = fs::read(self.path("reading.json")).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    /// One reading.
    fn once(&self) -> Value {
        let output = self.command().arg("--once").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("Traceback"), "{said}");
        self.reading().unwrap()
    }

    /// What it says of a configuration that is none.
    fn refusal(&self) -> String {
        let output = self.command().arg("--once").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    }

    fn start(&self) -> Running {
        let stderr = fs::File::create(self.path("said")).unwrap();
        Running(self.command().stderr(stderr).spawn().unwrap())
    }

    /// Waits for a reading that is so.
    fn until(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(reading) = self.reading().filter(&so) {
                return reading;
            }
            assert!(Instant::now() < deadline, "{what}: {:?}", self.reading());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The values of a reading: power, cap, inlet, supplies, failed.
fn values(reading: &Value) -> [Value; 5] {
    [
        "power_watts",
        "cap_watts",
        "inlet_celsius",
        "supplies",
        "failed",
    ]
    .map(|key| reading[key].clone())
}

fn numbers<const N: usize>(values: [Option<f64>; N]) -> [Option<f64>; N] {
    values
}

fn told(reading: &Value) -> [Option<f64>; 5] {
    numbers(values(reading).map(|value| value.as_f64()))
}

fn only_gets(stub: &Redfish) {
    let asked = stub.asked();
    assert!(!asked.is_empty());
    let others: Vec<_> = asked
        .iter()
        .filter(|(method, ..)| method != "GET")
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn bmcs_of_four_makes_are_read_and_nothing_but_read() {
    if !have(&["python3"]) {
        return;
    }
    let each = [
        (
            "idrac",
            idrac(),
            [Some(6204.0), Some(9500.0), Some(24.0), Some(2.0), Some(0.0)],
        ),
        (
            "ilo",
            ilo(),
            [Some(5466.0), None, Some(21.0), Some(1.0), Some(0.0)],
        ),
        (
            "supermicro",
            supermicro(),
            [Some(5000.0), None, Some(26.0), Some(2.0), Some(0.0)],
        ),
        (
            "openbmc",
            openbmc(),
            [
                Some(7012.5),
                Some(10_200.0),
                Some(27.25),
                Some(2.0),
                Some(0.0),
            ],
        ),
    ];
    for (make, documents, expected) in each {
        let stub = Redfish::new(&documents);
        if make == "ilo" {
            stub.wants_slashes();
        }
        let reading = Reader::redfish(&stub.url(), "").once();
        assert_eq!(told(&reading), expected, "{make}: {reading}");
        assert_eq!(reading["source"], "redfish", "{make}");
        assert_eq!(reading["alarm"], Value::Null, "{make}");
        assert_eq!(reading["error"], Value::Null, "{make}");
        only_gets(&stub);
    }
}

#[test]
fn a_power_supply_that_fails_is_an_alarm_and_one_in_reserve_is_none() {
    if !have(&["python3"]) {
        return;
    }
    let stub = Redfish::new(&idrac());
    let reader = Reader::redfish(&stub.url(), "");
    for (status, alarm) in [
        (
            json!({"Health": "Critical", "State": "Enabled"}),
            json!("power supply PS2 Status: Critical"),
        ),
        (
            json!({"Health": "Warning", "State": "Enabled"}),
            json!("power supply PS2 Status: Warning"),
        ),
        (
            json!({"Health": null, "State": "UnavailableOffline"}),
            json!("power supply PS2 Status: UnavailableOffline"),
        ),
        (
            json!({"Health": "OK", "State": "StandbyOffline"}),
            Value::Null,
        ),
        (json!({"State": "Absent"}), Value::Null),
        (json!("OK"), Value::Null),
        (Value::Null, Value::Null),
    ] {
        stub.set(IDRAC, "/PowerSupplies/1/Status", status.clone());
        let reading = reader.once();
        assert_eq!(reading["alarm"], alarm, "{status}");
        assert_eq!(reading["failed"], i32::from(!alarm.is_null()), "{status}");
        assert_eq!(reading["power_watts"], 6204.0);
    }
    // Of the newer generation, without input.
    let stub = Redfish::new(&openbmc());
    let supply = "/redfish/v1/Chassis/DGX/PowerSubsystem/PowerSupplies/PSU1";
    stub.set(supply, "/LineInputStatus", json!("LossOfInput"));
    let reading = Reader::redfish(&stub.url(), "").once();
    assert_eq!(reading["alarm"], "power supply PSU1: LossOfInput");
}

#[test]
fn a_node_at_its_limit_is_short_of_power_and_a_limit_of_nothing_is_none() {
    if !have(&["python3"]) {
        return;
    }
    let stub = Redfish::new(&idrac());
    let reader = Reader::redfish(&stub.url(), "");
    stub.set(IDRAC, LIMIT, json!(6200));
    let reading = reader.once();
    assert_eq!(
        reading["alarm"],
        "the node draws 6204 W of the 6200 W that its BMC allows"
    );
    // Nobody enforces this.
    stub.set(IDRAC, LIMIT, json!(1));
    assert_eq!(reader.once()["alarm"], Value::Null);
    // A limit that is off.
    let stub = Redfish::new(&openbmc());
    let metrics = "/redfish/v1/Chassis/DGX/EnvironmentMetrics";
    stub.set(metrics, "/PowerLimitWatts/ControlMode", json!("Disabled"));
    let reading = Reader::redfish(&stub.url(), "").once();
    assert_eq!(told(&reading)[..2], [Some(7012.5), None]);
}

#[test]
fn power_is_found_where_the_bmc_has_it() {
    if !have(&["python3"]) {
        return;
    }
    let stub = Redfish::new(&openbmc());
    let metrics = "/redfish/v1/Chassis/DGX/EnvironmentMetrics";
    stub.set(metrics, "/PowerWatts/Reading", Value::Null);
    assert_eq!(
        Reader::redfish(&stub.url(), "").once()["power_watts"],
        7013.0
    );
    stub.set(metrics, "/PowerWatts", Value::Null);
    assert_eq!(
        Reader::redfish(&stub.url(), "").once()["power_watts"],
        7014.0
    );
    // A chassis that was named, and one that is not there.
    let reading = Reader::redfish(&stub.url(), "chassis = BMC_0").once();
    assert_eq!(reading["power_watts"], Value::Null);
    let error = Reader::redfish(&stub.url(), "chassis = Tray").once()["error"].clone();
    assert!(
        error.as_str().unwrap().contains("no chassis 'Tray'"),
        "{error}"
    );
}

/// A node and the tray of its GPUs are two chassis, or two entries of one. The node's figure is null once: that is no
/// reason to take the tray's, which is lower, for the node's from then on.
#[test]
fn the_power_of_a_part_is_never_taken_for_the_nodes() {
    if !have(&["python3"]) {
        return;
    }
    let tray = "/redfish/v1/Chassis/HGX_Chassis_0";
    let mut documents = idrac();
    documents[format!("{tray}/Power")] = json!({"PowerControl": [{"PowerConsumedWatts": 5650}]});
    let members = &mut documents["/redfish/v1/Chassis"]["Members"];
    members
        .as_array_mut()
        .unwrap()
        .push(json!({"@odata.id": tray}));
    let control = &mut documents[IDRAC]["PowerControl"];
    control
        .as_array_mut()
        .unwrap()
        .push(json!({"PowerConsumedWatts": 5651}));
    for supply in documents[IDRAC]["PowerSupplies"].as_array_mut().unwrap() {
        supply["PowerInputWatts"] = Value::Null;
    }
    for begins_with_null in [false, true] {
        let stub = Redfish::new(&documents);
        let reader = Reader::redfish(&stub.url(), "");
        let nodes = |it: &Value| it["power_watts"] == 6204.0;
        if begins_with_null {
            stub.set(IDRAC, CONSUMED, Value::Null);
        }
        let _running = reader.start();
        if !begins_with_null {
            reader.until("the node's power", nodes);
            stub.set(IDRAC, CONSUMED, Value::Null);
        }
        let unknown = reader.until("no power", |it| !nodes(it));
        assert_eq!(unknown["power_watts"], Value::Null, "{unknown}");
        stub.set(IDRAC, CONSUMED, json!(6204));
        let known = reader.until("a power", |it| !it["power_watts"].is_null());
        assert!(nodes(&known), "{known}");
    }
}

#[test]
fn what_cannot_be_a_power_is_none() {
    if !have(&["python3"]) {
        return;
    }
    let stub = Redfish::new(&idrac());
    let reader = Reader::redfish(&stub.url(), "");
    let huge = serde_json::from_str::<Value>("1e400").unwrap_or(json!(1e300));
    let wrong = [
        json!(-5),
        json!(0),
        json!(1e9),
        huge,
        json!("n/a"),
        json!("NaN"),
        json!("inf"),
        json!(true),
        json!([1, 2]),
        json!({"Reading": 3}),
        Value::Null,
        json!(u64::MAX),
    ];
    // Without it the supplies would do.
    for slot in 0..2 {
        stub.set(
            IDRAC,
            &format!("/PowerSupplies/{slot}/PowerInputWatts"),
            Value::Null,
        );
    }
    for value in wrong {
        stub.set(IDRAC, CONSUMED, value.clone());
        stub.set(IDRAC, LIMIT, value.clone());
        let reading = reader.once();
        assert_eq!(told(&reading)[..2], [None, None], "{value}");
        assert!(reading["error"].is_string(), "{value}: {reading}");
    }
    let texts = [
        "NaN",
        "{\"PowerControl\": NaN}",
        "{\"Members\": 7}",
        "[]",
        "null",
        "\"text\"",
        "",
        "<html><body>Login</body></html>",
        "{\"Members\": [1, {\"@odata.id\": 5}, null]}",
        "{\"Members\": [{\"@odata.id\": \"http://elsewhere/x\"}]}",
        "\u{0}\u{1}",
        "{\"PowerControl\": [{\"PowerConsumedWatts\": NaN}]}",
        "{\"PowerControl\": [{\"PowerConsumedWatts\": Infinity}]}",
    ];
    let deep = "[".repeat(200_000);
    for text in texts.into_iter().chain([deep.as_str()]) {
        stub.manner(Manner::Says(200, text.to_owned()));
        let reading = reader.once();
        assert_eq!(told(&reading), [None; 5], "{text:.40}");
        assert!(reading["error"].is_string(), "{text:.40}");
    }
    stub.manner(Manner::Says(200, "x".repeat(3 << 20)));
    let reading = reader.once();
    assert!(
        reading["error"].as_str().unwrap().contains("too long"),
        "{reading}"
    );
    only_gets(&stub);
}

#[test]
fn a_bmc_that_is_slow_silent_or_absent_costs_the_value_and_no_more() {
    if !have(&["python3"]) {
        return;
    }
    let stub = Redfish::new(&idrac());
    let reader = Reader::redfish(&stub.url(), "");
    for manner in [
        Manner::Late(Duration::from_secs(30)),
        Manner::Trickles,
        Manner::HangsUp,
        Manner::Says(500, "{}".to_owned()),
        Manner::Says(503, "<html>busy</html>".to_owned()),
    ] {
        stub.manner(manner.clone());
        let reading = reader.once();
        assert_eq!(told(&reading), [None; 5], "{manner:?}");
        assert!(reading["error"].is_string(), "{manner:?}: {reading}");
    }
    // Nobody listens there.
    let reading = Reader::redfish("http://127.0.0.1:1", "").once();
    assert!(
        reading["error"].as_str().unwrap().contains("refused"),
        "{reading}"
    );
    // One that recovers is read again.
    let running = reader.start();
    stub.manner(Manner::Trickles);
    reader.until("nothing", |it| {
        it["error"].is_string() && it["seq"].as_u64() > Some(1)
    });
    stub.manner(Manner::Well);
    let reading = reader.until("power", |it| it["power_watts"] == 6204.0);
    let later = reader.until("more", |it| it["seq"].as_u64() > reading["seq"].as_u64());
    assert_eq!(later["run"], reading["run"]);
    drop(running);
}

#[test]
fn user_and_password_go_to_the_bmc_and_to_nobody_else() {
    if !have(&["python3"]) {
        return;
    }
    let (stub, other) = (Redfish::new(&idrac()), Redfish::new(&idrac()));
    stub.wants_password("cmVhZGVyOnNlY3JldA==");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("bmc");
    fs::write(&file, "reader\nsecret\n").unwrap();
    let reader = Reader::redfish(&stub.url(), &format!("credentials = {}", file.display()));
    assert_eq!(reader.once()["power_watts"], 6204.0);
    // Redirected elsewhere: another port is another host.
    stub.manner(Manner::Redirects(format!(
        "{}/redfish/v1/Chassis/",
        other.url()
    )));
    assert!(reader.once()["error"].as_str().unwrap().contains("308"));
    assert_eq!(other.asked(), []);
    stub.manner(Manner::Well);
    // BMCs lock out who guesses: it does not ask again until the password is another.
    fs::write(&file, "reader\nwrong\n").unwrap();
    let running = reader.start();
    let refused = |it: &Value| {
        it["error"]
            .as_str()
            .is_some_and(|it| it.contains("refused"))
    };
    reader.until("refusal", refused);
    let asked = stub.asked().len();
    let seq = reader.reading().unwrap()["seq"].as_u64().unwrap();
    reader.until("more rounds", |it| it["seq"].as_u64() > Some(seq + 5));
    assert_eq!(stub.asked().len(), asked);
    let said = fs::read_to_string(reader.path("said")).unwrap();
    assert!(
        !said.contains("wrong") && !said.contains("secret"),
        "{said}"
    );
    fs::write(&file, "reader\nsecret\n").unwrap();
    reader.until("power", |it| it["power_watts"] == 6204.0);
    drop(running);
    // Where it would be read by others.
    let refusal = Reader::redfish("http://bmc.example", "").refusal();
    assert!(refusal.contains("https:// is wanted"), "{refusal}");
}

#[test]
fn a_certificate_that_is_not_known_is_not_trusted() {
    if !have(&["python3"]) || !have(&["openssl"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let name = |name: &str| place.path().join(name);
    for at in ["bmc", "other"] {
        let made = Command::new("openssl")
            .args([
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
            ])
            .arg("/CN=idrac-SVCTAG")
            .arg("-keyout")
            .arg(name(&format!("{at}.key")))
            .arg("-out")
            .arg(name(&format!("{at}.pem")))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    fs::write(name("documents"), idrac().to_string()).unwrap();
    let mut serving = Command::new("python3")
        .args(["-c", TLS])
        .current_dir(place.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    let stdout = serving.stdout.take().unwrap();
    let running = Running(serving);
    BufReader::new(stdout).read_line(&mut port).unwrap();
    let url = format!("https://127.0.0.1:{}", port.trim());
    let trusting = |file: &str| {
        let ca = format!("ca = {}", name(file).display());
        Reader::redfish(&url, &ca).once()
    };
    // It has a name of its own, as BMCs' have: that it is this certificate counts.
    assert_eq!(trusting("bmc.pem")["power_watts"], 6204.0);
    for reading in [trusting("other.pem"), Reader::redfish(&url, "").once()] {
        let error = reading["error"].as_str().unwrap();
        assert!(
            error.contains("redfish.ca is to be its certificate"),
            "{error}"
        );
    }
    let missing = Reader::redfish(&url, "ca = /nowhere.pem").refusal();
    assert!(missing.contains("/nowhere.pem"), "{missing}");
    drop(running);
}

/// Documents over TLS.
const TLS: &str = r#"
import http.server, json, ssl
documents = json.load(open("documents"))
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        found = documents.get(self.path)
        body = json.dumps(found or {}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("bmc.pem", "bmc.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A made-up `ipmitool`.
fn ipmitool(reader: &Reader, reading: &str, limit: &str) -> PathBuf {
    let program = reader.path("ipmitool");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n'dcmi power reading') {reading} ;;\n\
         'dcmi power get_limit') {limit} ;;\n*) exit 64 ;;\nesac\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

const READING: &str = "cat <<'EOF'

    Instantaneous power reading:                  6120 Watts
    Minimum during sampling period:               1804 Watts
    Maximum during sampling period:               7733 Watts
    Average power reading over sample period:     6020 Watts
    IPMI timestamp:                           Thu Oct  2 09:11:12 2025
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated

EOF
";

const ACTIVE: &str = "cat <<'EOF'

    Current Limit State: Power Limit Active
    Exception actions:   Hard Power Off & Log Event to SEL
    Power Limit:         8000   Watts
    Correction time:     1000 milliseconds
    Sampling period:     1 seconds

EOF
";

#[test]
fn ipmi_and_acpi_are_read_where_there_is_no_redfish() {
    if !have(&["python3"]) {
        return;
    }
    let mut reader = Reader::of("");
    let usual = std::mem::take(&mut reader.config);
    let program = ipmitool(&reader, READING, ACTIVE);
    let sys = reader.path("sys");
    reader.config = format!(
        "[ipmi]\nprogram = {}\n[acpi]\nsys = {}\n{usual}",
        program.display(),
        sys.display()
    );
    assert_eq!(told(&reader.once())[..2], [Some(6120.0), Some(8000.0)]);
    let inactive = ACTIVE.replace("Power Limit Active", "No Active Power Limit");
    ipmitool(&reader, READING, &inactive);
    assert_eq!(told(&reader.once())[..2], [Some(6120.0), None]);
    ipmitool(&reader, READING, "exit 1");
    assert_eq!(told(&reader.once())[..2], [Some(6120.0), None]);
    for broken in [
        "exit 1",
        "sleep 60",
        "echo Instantaneous power reading: many Watts",
        "printf '\\377\\376'",
        &READING.replace("activated", "deactivated"),
    ] {
        ipmitool(&reader, broken, ACTIVE);
        let reading = reader.once();
        assert_eq!(reading["power_watts"], Value::Null, "{broken}");
        assert!(
            reading["error"].as_str().unwrap().contains("ipmitool"),
            "{reading}"
        );
    }
    // The meter of ACPI then, among other sensors.
    for (name, text) in [
        ("hwmon0/name", "k10temp"),
        ("hwmon1/name", "power_meter"),
        ("hwmon1/power1_average", "5930000000"),
        ("hwmon1/power1_cap", "7000000000"),
    ] {
        let file = sys.join("class/hwmon").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    ipmitool(&reader, "exit 1", "exit 1");
    let reading = reader.once();
    assert_eq!(told(&reading)[..2], [Some(5930.0), Some(7000.0)]);
    assert_eq!(reading["source"], "acpi");
}

#[test]
fn one_reading_is_shown_to_who_asks_for_it() {
    let stub = Redfish::new(&idrac());
    let reader = Reader::redfish(&stub.url(), "");
    let mut command = reader.command();
    let program = command.get_args().next().unwrap().to_owned();
    command = Command::new("python3");
    command.arg(program).arg("--once").arg("--config");
    let output = command.arg(reader.path("conf")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let reading: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reading["power_watts"], 6204.0);
    assert_eq!(reader.reading(), None);
}

#[test]
fn a_configuration_that_is_none_is_refused_by_name() {
    for (config, part) in [
        ("[redfsh]\nurl = x", "unknown section [redfsh]"),
        ("[redfish]\nuri = x", "unknown key redfish.uri"),
        ("[redfish]\nurl = ftp://bmc", "https:// is wanted"),
        ("[redfish]\nurl = https://", "https:// is wanted"),
        ("text", "conf"),
    ] {
        let mut reader = Reader::of("");
        reader.config = config.to_owned();
        let refusal = reader.refusal();
        assert!(refusal.contains(part), "{config}: {refusal}");
    }
    for seconds in ["0", "-1", "NaN", "1e9", "often"] {
        let mut reader = Reader::of("");
        reader.config = format!("[poll]\nseconds = {seconds}\n");
        let refusal = reader.refusal();
        assert!(
            refusal.contains("poll.seconds is a number from 0.1 to 10"),
            "{refusal}"
        );
    }
}
