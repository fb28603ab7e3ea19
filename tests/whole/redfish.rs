//! A stub of a BMC's Redfish service: documents at paths, and everything that BMCs do wrong. It
//! notes what it is asked.

#![allow(dead_code, reason = "each test has some of it")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// What the stub does with a request for a document.
#[derive(Debug, Clone, Default)]
pub enum Manner {
    /// Answers as it should.
    #[default]
    Well,
    /// Answers after so long.
    Late(Duration),
    /// Sends a byte now and then.
    Trickles,
    /// Sends this instead, with this status.
    Says(u16, String),
    /// Redirects to this address.
    Redirects(String),
    /// Ends the connection without an answer.
    HangsUp,
}

#[derive(Debug, Default)]
struct State {
    documents: BTreeMap<String, Value>,
    manner: Manner,
    /// Paths want a slash at their end.
    slashes: bool,
    password: Option<String>,
    /// Method, path, and whether a password came along.
    asked: Vec<(String, String, bool)>,
}

/// The stub. It ends with the test.
pub struct Redfish {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl Redfish {
    /// A stub with these documents.
    pub fn new(documents: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(&state, stream));
            }
        });
        let stub = Self { state, port };
        for (path, document) in documents.as_object().unwrap() {
            stub.put(path, document.clone());
        }
        stub
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn put(&self, path: &str, document: Value) {
        let mut state = self.state.lock().unwrap();
        state.documents.insert(path.to_owned(), document);
    }

    /// Changes one value: a JSON pointer into a document.
    pub fn set(&self, path: &str, pointer: &str, value: Value) {
        let mut state = self.state.lock().unwrap();
        let document = state.documents.get_mut(path).unwrap();
        *document.pointer_mut(pointer).unwrap() = value;
    }

    pub fn manner(&self, manner: Manner) {
        self.state.lock().unwrap().manner = manner;
    }

    pub fn wants_slashes(&self) {
        self.state.lock().unwrap().slashes = true;
    }

    pub fn wants_password(&self, base64: &str) {
        self.state.lock().unwrap().password = Some(format!("Basic {base64}"));
    }

    /// What was asked for so far.
    pub fn asked(&self) -> Vec<(String, String, bool)> {
        self.state.lock().unwrap().asked.clone()
    }
}

fn serve(state: &Mutex<State>, stream: TcpStream) {
    let mut writer = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(request)) = lines.next() {
        let mut words = request.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return;
        };
        let mut authorization = None;
        for header in lines.by_ref() {
            let Ok(header) = header else { return };
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("Authorization: ") {
                authorization = Some(value.to_owned());
            }
        }
        if answer(state, &mut writer, method, path, authorization).is_none() {
            return;
        }
    }
}

/// Answers a request; `None` ends the connection.
fn answer(
    state: &Mutex<State>,
    writer: &mut TcpStream,
    method: &str,
    path: &str,
    authorization: Option<String>,
) -> Option<()> {
    let (manner, document, slash, refused) = {
        let mut state = state.lock().unwrap();
        let asked = (method.to_owned(), path.to_owned(), authorization.is_some());
        state.asked.push(asked);
        let document = state.documents.get(path.trim_end_matches('/')).cloned();
        let slash = state.slashes && !path.ends_with('/');
        let refused = state.password.is_some() && state.password != authorization;
        (state.manner.clone(), document, slash, refused)
    };
    let found = || match &document {
        _ if refused => (401, json!({"error": {"code": "Base.1.0.NoValidSession"}})),
        Some(document) => (200, document.clone()),
        None => (
            404,
            json!({"error": {"code": "Base.1.0.ResourceMissingAtURI"}}),
        ),
    };
    let (status, body, location) = match manner.clone() {
        Manner::HangsUp => return None,
        Manner::Redirects(to) => (308, String::new(), Some(to)),
        Manner::Says(status, text) => (status, text, None),
        Manner::Well if slash => (308, String::new(), Some(format!("{path}/"))),
        Manner::Well | Manner::Late(_) | Manner::Trickles => {
            let (status, body) = found();
            (status, body.to_string(), None)
        }
    };
    if let Manner::Late(time) = manner {
        std::thread::sleep(time);
    }
    let location = location.map_or_else(String::new, |to| format!("Location: {to}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} Stub\r\nContent-Type: application/json\r\n{location}\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let all = head + &body;
    if matches!(manner, Manner::Trickles) {
        for byte in all.bytes() {
            writer.write_all(&[byte]).ok()?;
            std::thread::sleep(Duration::from_millis(100));
        }
        return Some(());
    }
    writer.write_all(all.as_bytes()).ok()
}

/// Dell's iDRAC: the whole node in one `PowerControl`, a limit, two power supplies.
pub fn idrac() -> Value {
    let power = "/redfish/v1/Chassis/System.Embedded.1/Power";
    let supply = |slot: u32| {
        json!({"MemberId": format!("PSU.Slot.{slot}"), "Name": format!("PS{slot} Status"),
            "LineInputVoltage": 232, "PowerInputWatts": 3100.0, "PowerCapacityWatts": 3000,
            "PowerSupplyType": "AC", "Redundancy": [], "RelatedItem": [],
            "Status": {"Health": "OK", "State": "Enabled"}})
    };
    json!({
        "/redfish/v1/Chassis": {"@odata.id": "/redfish/v1/Chassis", "Members@odata.count": 2,
            "Members": [{"@odata.id": "/redfish/v1/Chassis/Enclosure.Internal.0-1"},
                        {"@odata.id": "/redfish/v1/Chassis/System.Embedded.1"}]},
        power: {"@odata.id": power, "@odata.type": "#Power.v1_6_1.Power", "Id": "Power",
            "PowerControl": [{"@odata.id": format!("{power}#/PowerControl/0"),
                "MemberId": "PowerControl", "Name": "System Power Control",
                "PowerAllocatedWatts": 12_000, "PowerAvailableWatts": 0,
                "PowerCapacityWatts": 12_000, "PowerConsumedWatts": 6204,
                "PowerLimit": {"CorrectionInMs": 0, "LimitException": "HardPowerOff",
                    "LimitInWatts": 9500},
                "PowerMetrics": {"AverageConsumedWatts": 6100, "IntervalInMin": 60,
                    "MaxConsumedWatts": 8011, "MinConsumedWatts": 2042},
                "PowerRequestedWatts": 10_816, "RelatedItem": []}],
            "PowerSupplies": [supply(1), supply(2)], "Voltages": []},
        "/redfish/v1/Chassis/System.Embedded.1/Thermal": {"Fans": [], "Temperatures": [
            {"MemberId": "iDRAC.Embedded.1#CPU1Temp", "Name": "CPU1 Temp",
                "PhysicalContext": "CPU", "ReadingCelsius": 61},
            {"MemberId": "iDRAC.Embedded.1#SystemBoardInletTemp",
                "Name": "System Board Inlet Temp", "PhysicalContext": "SystemBoard",
                "ReadingCelsius": 24, "Status": {"Health": "OK", "State": "Enabled"}}]},
    })
}

/// HPE's iLO: no limit is `null`, paths want a slash, an empty bay.
pub fn ilo() -> Value {
    json!({
        "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/1/"}]},
        "/redfish/v1/Chassis/1/Power": {"@odata.type": "#Power.v1_3_0.Power",
            "PowerControl": [{"MemberId": "0", "PowerCapacityWatts": 12_800,
                "PowerConsumedWatts": 5466, "PowerLimit": {"LimitInWatts": null},
                "PowerMetrics": {"AverageConsumedWatts": 5400, "IntervalInMin": 20,
                    "MaxConsumedWatts": 7020, "MinConsumedWatts": 1466}}],
            "PowerSupplies": [
                {"MemberId": "0", "Name": "HpeServerPowerSupply", "LastPowerOutputWatts": 2733,
                    "LineInputVoltage": 229, "Status": {"Health": "OK", "State": "Enabled"},
                    "Oem": {"Hpe": {"BayNumber": 1, "PowerSupplyStatus": {"State": "Ok"}}}},
                {"MemberId": "1", "Name": "HpeServerPowerSupply",
                    "Status": {"State": "Absent"}}]},
        "/redfish/v1/Chassis/1/Thermal": {"Temperatures": [
            {"MemberId": "0", "Name": "01-Inlet Ambient", "PhysicalContext": "Intake",
                "ReadingCelsius": 21, "Status": {"Health": "OK", "State": "Enabled"}},
            {"MemberId": "1", "Name": "02-CPU 1", "PhysicalContext": "CPU",
                "ReadingCelsius": 40}]},
    })
}

/// A Supermicro board: numbers as texts, 0 for no limit, and only the supplies tell power.
pub fn supermicro() -> Value {
    let supply = |id: u32, watts: Value, state: &str| {
        json!({"MemberId": id.to_string(), "Name": format!("Power Supply Bay {id}"),
            "PowerInputWatts": watts, "LineInputVoltage": 220,
            "Status": {"Health": "OK", "State": state}})
    };
    json!({
        "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/1"}]},
        "/redfish/v1/Chassis/1/Power": {"PowerControl": [{"MemberId": "0",
                "Name": "System Power Control", "PowerConsumedWatts": 0,
                "PowerLimit": {"LimitInWatts": 0, "LimitException": "NoAction"}}],
            "PowerSupplies": [supply(1, json!("2510"), "Enabled"),
                supply(2, json!(2490), "Enabled"), supply(3, Value::Null, "Absent")]},
        "/redfish/v1/Chassis/1/Thermal": {"Temperatures": [
            {"MemberId": "9", "Name": "Inlet Temp", "ReadingCelsius": "26"}]},
    })
}

/// OpenBMC of today: several chassis, none with a `Power`.
pub fn openbmc() -> Value {
    let chassis = "/redfish/v1/Chassis/DGX";
    let supplies = format!("{chassis}/PowerSubsystem/PowerSupplies");
    let supply = |id: u32| {
        json!({"@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Id": format!("PSU{id}"),
            "Name": format!("PSU{id}"), "LineInputStatus": "Normal",
            "Status": {"Health": "OK", "State": "Enabled"}})
    };
    json!({
        "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/BMC_0"},
            {"@odata.id": chassis}]},
        format!("{chassis}/EnvironmentMetrics"): {
            "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
            "PowerWatts": {"DataSourceUri": format!("{chassis}/Sensors/power_PWR_0"),
                "Reading": 7012.5},
            "PowerLimitWatts": {"SetPoint": 10_200, "AllowableMin": 4000,
                "AllowableMax": 10_200, "ControlMode": "Automatic"}},
        supplies.clone(): {"Members": [{"@odata.id": format!("{supplies}/PSU0")},
            {"@odata.id": format!("{supplies}/PSU1")}]},
        format!("{supplies}/PSU0"): supply(0),
        format!("{supplies}/PSU1"): supply(1),
        format!("{chassis}/Sensors"): {"Members": [
            {"@odata.id": format!("{chassis}/Sensors/temperature_CPU_0")},
            {"@odata.id": format!("{chassis}/Sensors/temperature_TEMP_Inlet_0")},
            {"@odata.id": format!("{chassis}/Sensors/power_total_power")}]},
        format!("{chassis}/Sensors/power_PWR_0"): {"Reading": 7013.0, "ReadingUnits": "W"},
        format!("{chassis}/Sensors/power_total_power"): {"Reading": 7014.0, "ReadingUnits": "W"},
        format!("{chassis}/Sensors/temperature_TEMP_Inlet_0"): {"Reading": 27.25,
            "ReadingUnits": "Cel", "ReadingType": "Temperature"},
    })
}
