//! What the node draws as a whole, as its BMC tells: what that leaves to the GPUs, what is recorded
//! of it, and that nothing rises while a power supply is missing. A BMC that is slow, wrong or absent
//! changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use litd_api::{Command as Ask, EventKind, NodePower};
use litd_rig::{Author, Fault, Job};
use litd_units::Watts;
use serde_json::{Value, json};

use crate::redfish::{Manner, Redfish, idrac};
use crate::stand::{DEVICES, GPUS, Stand, quick, wait_for};

const IDRAC: &str = "/redfish/v1/Chassis/System.Embedded.1/Power";

/// The program that reads the BMC, which ends with the test.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The file that litd reads, written as that program does.
struct Bmc {
    path: PathBuf,
    readings: u64,
}

impl Bmc {
    fn of(stand: &Stand) -> Self {
        let path = stand.rig.layout().node_power();
        let mut bmc = Self { path, readings: 0 };
        // What is there when litd first looks may be of long ago.
        bmc.tell(&json!({"source": "redfish"}));
        bmc
    }

    fn tell(&mut self, what: &Value) {
        self.readings += 1;
        let mut reading = json!({"run": "1", "seq": self.readings});
        for (key, value) in what.as_object().unwrap() {
            reading[key] = value.clone();
        }
        let new = self.path.with_extension("new");
        fs::write(&new, reading.to_string()).unwrap();
        fs::rename(&new, &self.path).unwrap();
    }

    /// So many readings, of which litd misses none: it looks once a second.
    fn tells(&mut self, stand: &mut Stand, readings: u32, what: &Value) {
        for _ in 0..readings {
            self.tell(what);
            stand.pass(2.0);
        }
    }
}

fn power(watts: f64) -> Value {
    json!({"source": "redfish", "power_watts": watts})
}

fn measured(stand: &Stand) -> NodePower {
    stand.status().node.power.unwrap()
}

/// What all devices draw, as litd has it.
fn devices(stand: &Stand) -> f64 {
    let devices = stand.status().devices;
    devices.iter().map(|it| it.power.unwrap().0).sum()
}

fn rises(stand: &Stand, from: usize) -> usize {
    let entries = stand.rig.ledger().entries().into_iter().skip(from);
    let rise = |entry: &litd_rig::Entry| entry.author == Author::Litd && entry.after > entry.before;
    entries.filter(rise).count()
}

fn steering(config: &str) -> (Stand, Job, Bmc) {
    let mut stand = Stand::clocked(&format!("{}{config}", quick("gpu-realloc")));
    let mut bmc = Bmc::of(&stand);
    stand.pass(2.0);
    bmc.tell(&power(7000.0));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    (stand, job, bmc)
}

#[test]
fn what_is_not_gpu_is_measured_and_bounds_what_the_gpus_get() {
    let config = format!("{}node.budget = 6000.0\n", quick("gpu-realloc"));
    let mut stand = Stand::clocked(&config);
    let mut bmc = Bmc::of(&stand);
    stand.pass(3.0);
    let found = stand.sum();
    let rest = 600.0;
    let cpus: Watts = stand.held()[GPUS..DEVICES].iter().copied().sum();
    // Nobody knows yet what the rest of the node draws: nothing is the least.
    assert_eq!(
        (measured(&stand).reserve, measured(&stand).left_to_gpus),
        (None, Some(Watts(6000.0) - cpus))
    );
    // The first minute shows what the devices draw in one.
    for reading in 0..124 {
        // One that is wrong now and then takes nothing from the GPUs.
        let wrong = if reading % 9 == 4 { 3000.0 } else { 0.0 };
        let watts = devices(&stand) + rest + wrong;
        bmc.tells(&mut stand, 1, &power(watts));
    }
    let told = measured(&stand);
    let reserve = told.reserve.unwrap();
    assert!((600.0..=700.0).contains(&reserve.0), "{reserve}");
    let bound = told.left_to_gpus.unwrap();
    assert!(
        (bound + reserve + cpus - Watts(6000.0)).abs() < Watts(0.01),
        "{told:?}"
    );
    assert!(bound < found, "{bound}, {found}");
    stand.rig.ledger().set_budget(bound);
    stand.pass(3.0);
    assert!(stand.sum() <= bound, "{}", stand.sum());
    assert!(stand.has_event(EventKind::State, "the node's budget leaves"));
    assert_eq!(stand.status().gpus.budget, bound);
    stand.stop();
}

#[test]
fn a_configured_reserve_bounds_from_the_start_without_any_bmc() {
    let config = format!(
        "{}node.budget = 6500.0\nnode.reserve = 900.0\n",
        quick("gpu-red")
    );
    let mut stand = Stand::bare(&config, true);
    stand.start();
    stand.pass(5.0);
    let cpus: Watts = stand.held()[GPUS..DEVICES].iter().copied().sum();
    let bound = Watts(6500.0 - 900.0) - cpus;
    assert!(stand.sum() <= bound, "{}", stand.sum());
    let told = measured(&stand);
    assert_eq!(
        (told.source, told.power, told.left_to_gpus),
        (None, None, Some(bound))
    );
    // Another budget, at once and in both directions.
    let more = config.replace("6500", "6550");
    stand.reload(&more);
    stand.pass(3.0);
    assert_eq!(measured(&stand).left_to_gpus, Some(bound + Watts(50.0)));
    stand.stop();
}

#[test]
fn the_limit_of_the_bmc_bounds_as_a_budget_does() {
    let config = format!("{}node.reserve = 800.0\n", quick("gpu-red"));
    let mut stand = Stand::clocked(&config);
    let mut bmc = Bmc::of(&stand);
    stand.pass(2.0);
    let found = stand.held();
    let limited = |cap: Value| json!({"source": "redfish", "power_watts": 5000, "cap_watts": cap});
    bmc.tells(&mut stand, 3, &limited(json!(6400)));
    let cpus: Watts = found[GPUS..DEVICES].iter().copied().sum();
    let bound = Watts(6400.0 - 800.0) - cpus;
    assert_eq!(measured(&stand).left_to_gpus, Some(bound));
    assert_eq!(measured(&stand).budget, Some(Watts(6400.0)));
    assert!(stand.sum() <= bound, "{}", stand.sum());
    // Silence does not lift it.
    stand.pass(100.0);
    assert!(stand.sum() <= bound, "{}", stand.sum());
    assert_eq!(measured(&stand).bmc_limit, None);
    // Its end does.
    bmc.tells(&mut stand, 3, &limited(Value::Null));
    stand.pass(3.0);
    assert_eq!(stand.held(), found);
    // One that the node draws many times is none.
    bmc.tells(&mut stand, 5, &limited(json!(10)));
    assert_eq!(stand.held(), found);
    stand.stop();
}

#[test]
fn a_missing_power_supply_lets_nothing_rise_for_a_minute_after_it_was_told() {
    let (mut stand, mut job, mut bmc) = steering("");
    let alarm = json!({"source": "redfish", "power_watts": 7000, "supplies": 6, "failed": 1,
        "alarm": "power supply PS2: Critical"});
    bmc.tell(&alarm);
    stand.pass(1.5);
    assert!(stand.has_event(EventKind::Fault, "power supply PS2: Critical"));
    let before = stand.rig.ledger().len();
    for _ in 0..20 {
        bmc.tell(&alarm);
        stand.play(&mut job, 1);
    }
    // Nor for a budget, nor for a trial.
    stand.command(&Ask::SetBudget {
        watts: Some(Watts(5900.0)),
    });
    stand.play(&mut job, 5);
    assert_eq!(rises(&stand, before), 0);
    let why = stand.job_status("train").why;
    assert!(why.contains("short of power: power supply PS2"), "{why}");
    let trial = Ask::StartTrial {
        job: None,
        quads: Some(2),
        same: false,
        seed: None,
    };
    let (code, error) = stand.try_command(&trial);
    assert_eq!(code, 409, "{error}");
    assert!(error.contains("short of power"), "{error}");
    // A lower budget is followed.
    let lower = stand.sum() - Watts(200.0);
    stand.command(&Ask::SetBudget { watts: Some(lower) });
    stand.pass(3.0);
    assert!(stand.sum() <= lower, "{}", stand.sum());
    stand.command(&Ask::SetBudget { watts: None });
    // It is well again, and after a minute that is believed.
    let adjustments = stand.status().totals.adjustments;
    bmc.tells(&mut stand, 32, &power(7000.0));
    assert_eq!(measured(&stand).alarm, None);
    assert!(stand.has_event(EventKind::Fault, "no longer reported to be short of power"));
    stand.play_until(&mut job, "adjustment", |stand| {
        stand.status().totals.adjustments > adjustments
    });
    stand.stop();
}

#[test]
fn what_was_found_goes_back_whatever_is_missing() {
    let (mut stand, job, mut bmc) = steering("");
    bmc.tell(&json!({"source": "redfish", "alarm": "power supply PS2: Critical"}));
    stand.pass(1.5);
    assert!(!stand.is_back());
    drop(job);
    stand.pass(60.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn a_pulled_power_brake_lets_no_cap_rise_that_was_lowered() {
    let (mut stand, mut job, _bmc) = steering("");
    stand.rig.hardware().inject(3, Fault::PowerBrake);
    stand.pass(1.5);
    let before = stand.rig.ledger().len();
    stand.rig.ledger().set_budget(Watts(5900.0));
    stand.command(&Ask::SetBudget {
        watts: Some(Watts(5900.0)),
    });
    stand.play(&mut job, 20);
    assert_eq!(rises(&stand, before), 0);
    stand.rig.hardware().heal(3);
    stand.stop();
}

#[test]
fn peaks_and_ramps_are_told_apart_by_whether_a_job_is_steered() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut bmc = Bmc::of(&stand);
    stand.pass(2.0);
    for watts in [5000.0, 7900.0, 5000.0] {
        bmc.tells(&mut stand, 1, &power(watts));
    }
    let before = measured(&stand).unsteered;
    assert_eq!(before.readings, 3);
    assert_eq!(before.peak, Some(Watts(7900.0)));
    let ramp = before.ramp_watts_per_second.unwrap();
    assert!((1100.0..=2000.0).contains(&ramp), "{ramp}");
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    // What is of long ago is no step of a ramp.
    stand.pass(31.0);
    stand.play(&mut job, 1);
    for watts in [6000.0, 6300.0, 6100.0] {
        bmc.tells(&mut stand, 1, &power(watts));
    }
    let told = measured(&stand);
    assert_eq!(told.unsteered, before);
    assert_eq!(
        (told.steered.readings, told.steered.peak),
        (3, Some(Watts(6300.0)))
    );
    let ramp = told.steered.ramp_watts_per_second.unwrap();
    assert!((115.0..=205.0).contains(&ramp), "{ramp}");
    stand.stop();
}

#[test]
fn a_reading_that_is_old_wrong_or_no_reading_is_none() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut bmc = Bmc::of(&stand);
    stand.pass(2.0);
    bmc.tells(
        &mut stand,
        2,
        &json!({"source": "redfish", "power_watts": 7000,
        "inlet_celsius": 24.5, "supplies": 6, "failed": 0}),
    );
    let told = measured(&stand);
    assert_eq!(told.source.as_deref(), Some("redfish"));
    assert_eq!((told.power, told.supplies), (Some(Watts(7000.0)), Some(6)));
    stand.pass(31.0);
    let told = measured(&stand);
    assert_eq!((told.source, told.power, told.inlet), (None, None, None));
    // A program that hangs leaves its file as it is; one that died, too.
    for nonsense in [
        json!({"source": "redfish", "power_watts": -7}),
        json!({"source": "redfish", "power_watts": 1e30}),
        json!({"source": "redfish", "power_watts": "many"}),
        json!({"source": null, "error": "it takes too long"}),
        json!({"source": 7}),
        json!({"seq": "x"}),
    ] {
        bmc.tells(&mut stand, 1, &nonsense);
        let told = measured(&stand);
        assert_eq!(
            (told.power, told.bmc_limit, told.alarm),
            (None, None, None),
            "{nonsense}"
        );
    }
    for text in ["", "{", "\u{0}\u{0}", "[1e999]", "<html>"] {
        fs::write(&bmc.path, text).unwrap();
        stand.pass(1.0);
    }
    fs::remove_file(&bmc.path).unwrap();
    fs::create_dir(&bmc.path).unwrap();
    stand.pass(2.0);
    assert_eq!(measured(&stand).power, None);
    assert_eq!(measured(&stand).unsteered.readings, 2);
    stand.stop();
}

/// A BMC whose figure has stood still since the node was idle.
#[test]
fn a_figure_below_what_the_devices_alone_draw_is_none_and_is_told_of() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut bmc = Bmc::of(&stand);
    // The first minute shows what the devices draw in one.
    stand.pass(63.0);
    let right = power(devices(&stand) + 600.0);
    bmc.tells(&mut stand, 2, &right);
    assert!(measured(&stand).power.is_some());
    let frozen = power(devices(&stand) * 0.6);
    let wrong = "the node's power is unknown: redfish reports";
    for _ in 0..80 {
        bmc.tells(&mut stand, 1, &frozen);
        let told = measured(&stand);
        assert_eq!(
            (told.power, told.source.as_deref()),
            (None, Some("redfish"))
        );
    }
    assert!(stand.has_event(EventKind::Fault, wrong));
    assert_eq!(measured(&stand).unsteered.readings, 2);
    bmc.tells(&mut stand, 1, &right);
    assert!(measured(&stand).power.is_some());
    assert_eq!(measured(&stand).unsteered.readings, 3);
    stand.stop();
}

/// The whole way: a BMC, the program that reads it, litd.
#[test]
fn from_the_bmc_to_the_caps_with_a_bmc_that_fails_in_between() {
    let stub = Redfish::new(&idrac());
    let config = format!("{}node.reserve = 500.0\n", quick("gpu-realloc"));
    let mut stand = Stand::clocked(&config);
    let reader = {
        let directory = tempfile::tempdir().unwrap();
        let conf = directory.path().join("conf");
        let text = format!(
            "[redfish]\nurl = {}\n[ipmi]\nprogram =\n[acpi]\nsys =\n[poll]\nseconds = 0.1\n\
             timeout_seconds = 1\n",
            stub.url()
        );
        fs::write(&conf, text).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("python3");
        command
            .arg(program.join("deploy/node-power/litd-node-power"))
            .arg("--config")
            .arg(&conf)
            .arg("--output")
            .arg(stand.rig.layout().node_power());
        let child = command.spawn().unwrap();
        let path = stand.rig.layout().node_power();
        wait_for("a reading", || path.exists());
        Reader(child)
    };
    let file = stand.rig.layout().node_power();
    let told = |key: &str| {
        let text = fs::read(&file).unwrap_or_default();
        let value: Value = serde_json::from_slice(&text).unwrap_or_default();
        value[key].clone()
    };
    let look = |stand: &mut Stand| {
        // Two readings of the program for each of litd's.
        for _ in 0..2 {
            let seq = told("seq").as_u64().unwrap_or(0);
            wait_for("the next readings", || told("seq").as_u64() > Some(seq + 1));
            stand.pass(1.0);
        }
    };
    look(&mut stand);
    wait_for("power", || told("power_watts") == 6204.0);
    look(&mut stand);
    let now = measured(&stand);
    assert_eq!(now.power, Some(Watts(6204.0)));
    assert_eq!(now.bmc_limit, Some(Watts(9500.0)));
    assert_eq!((now.supplies, now.failed), (Some(2), Some(0)));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    // A supply fails, then the BMC itself.
    stub.set(IDRAC, "/PowerSupplies/0/Status/Health", json!("Critical"));
    wait_for("alarm", || told("alarm").is_string());
    look(&mut stand);
    let before = stand.rig.ledger().len();
    stand.play(&mut job, 10);
    assert_eq!(rises(&stand, before), 0);
    assert!(measured(&stand).alarm.unwrap().contains("PS1"));
    stub.manner(Manner::Trickles);
    wait_for("no reading", || told("error").is_string());
    stand.play(&mut job, 5);
    assert_eq!(rises(&stand, before), 0);
    // Nobody has heard of it for a minute: as without a BMC.
    stand.pass(61.0);
    assert_eq!(measured(&stand).alarm, None);
    stand.play_until(&mut job, "a rise", |stand| rises(stand, before) > 0);
    stub.manner(Manner::Well);
    assert!(stub.asked().iter().all(|(method, ..)| method == "GET"));
    drop(reader);
    stand.stop();
}

/// litd dies, and `litd-node-power` has stopped by then: the node's limit is still known at the next start, from the first
/// moment on.
#[test]
fn the_limit_of_the_bmc_counts_after_a_crash() {
    let config = format!("{}node.reserve = 800.0\n", quick("observe"));
    let mut stand = Stand::clocked(&config);
    let mut bmc = Bmc::of(&stand);
    stand.pass(2.0);
    let cpus: Watts = stand.held()[GPUS..DEVICES].iter().copied().sum();
    let limited = json!({"source": "redfish", "power_watts": 5000, "cap_watts": 6400});
    bmc.tells(&mut stand, 3, &limited);
    let bound = Watts(6400.0 - 800.0) - cpus;
    assert!(stand.sum() <= bound, "{}", stand.sum());
    let before = stand.held();
    stand.kill();
    let entries = stand.rig.ledger().len();
    stand.start();
    stand.pass(60.0);
    assert_eq!(stand.held(), before, "{}", stand.said());
    assert_eq!(rises(&stand, entries), 0);
    assert_eq!(measured(&stand).budget, Some(Watts(6400.0)));
    assert!(stand.sum() <= bound, "{}", stand.sum());
    stand.stop();
}

#[test]
fn a_limit_that_leaves_the_gpus_less_than_their_floors_is_told() {
    let config = format!("{}node.reserve = 800.0\n", quick("gpu-red"));
    let mut stand = Stand::clocked(&config);
    let mut bmc = Bmc::of(&stand);
    stand.pass(2.0);
    let cpus: Watts = stand.held()[GPUS..DEVICES].iter().copied().sum();
    let limited = |gpus: f64| json!({"source": "redfish", "power_watts": 3500, "cap_watts": gpus + 800.0 + cpus.0});
    bmc.tells(&mut stand, 4, &limited(2300.0));
    let short = "the GPUs' floors add up to 2400 W, 100 W more than it leaves them";
    assert!(stand.has_event(EventKind::Fault, short), "{}", stand.said());
    assert_eq!(stand.sum(), Watts(2400.0), "{:?}", stand.held());
    let again = "the node's budget covers the GPUs' floors again";
    assert!(!stand.has_event(EventKind::Fault, again));
    bmc.tells(&mut stand, 4, &limited(2500.0));
    assert!(stand.has_event(EventKind::Fault, again), "{}", stand.said());
    stand.stop();
}

/// `litd-node-power` does not run, or has nothing to tell.
#[test]
fn a_node_budget_that_nobody_measures_for_is_told_once() {
    let mut stand = Stand::clocked("node.budget = 4000\n");
    let told = |stand: &Stand| {
        let events = stand.events(EventKind::Fault);
        let unkept = |it: &&String| {
            it.contains("the node may draw more than its budget: node.reserve is not set")
        };
        events.iter().filter(unkept).count()
    };
    stand.pass(590.0);
    assert_eq!(told(&stand), 0);
    stand.pass(20.0);
    assert_eq!(told(&stand), 1);
    stand.pass(1200.0);
    assert_eq!(told(&stand), 1);
    stand.stop();
}
