//! Drivers that hang while devices are looked for, each back end over its own stand-in: one device costs itself,
//! and is litd's again when it answers.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use litd_api::DeviceState;
use litd_rig::{Fault, Rig};
use litd_rig_sysfs::{Board, Cpus, MI250, MI300X, Mount, obstacle};
use litd_sim::Scenario;
use litd_units::Watts;

use crate::stand::{GPUS, LITD, Stand, wait_for};

const HUNG: usize = 3;

/// For ever, as far as a test is concerned.
const LONG: Duration = Duration::from_secs(3600);

/// A node behind one back end.
struct Node {
    stand: Stand,
    /// Whether a process with a call under way can end: it can't where the kernel holds the call.
    ends: bool,
    _mount: Option<Mount>,
}

fn rig() -> Rig {
    Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap()
}

fn simulated(config: &str) -> Node {
    Node {
        stand: Stand::on(rig(), config, false),
        ends: true,
        _mount: None,
    }
}

/// GPUs behind `libnvidia-ml`, on a bus that shows them.
fn nvml(config: &str) -> Node {
    let rig = rig();
    let (library, sys) = (
        rig.install_nvml().unwrap(),
        rig.install_nvidia_bus().unwrap(),
    );
    let config = format!(
        "{config}[hardware]\namd = \"off\"\ncpus = false\nnvml_library = \"{}\"\nsys = \"{}\"\n",
        library.display(),
        sys.display()
    );
    Node {
        stand: Stand::on(rig, &config, false),
        ends: true,
        _mount: None,
    }
}

/// GPUs behind files of amdgpu.
fn amdgpu(config: &str, model: &'static str) -> Option<Node> {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    let rig = rig();
    let board = Board {
        model,
        cpus: Cpus::None,
        ..Board::default()
    };
    let mount = Mount::start(rig.shared_hardware(), board).unwrap();
    let config = format!(
        "{config}[hardware]\nnvidia = \"off\"\ncpus = false\nsys = \"{}\"\ndev = \"{}\"\n",
        mount.sys().display(),
        mount.dev().display()
    );
    Some(Node {
        stand: Stand::on(rig, &config, false),
        ends: false,
        _mount: Some(mount),
    })
}

/// systemd gives `litd restore` 45 s and a start 60 s, on a machine that does nothing else.
fn within_systemds_patience(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(
            began.elapsed() < Duration::from_secs(45),
            "{what}: systemd ends it"
        );
        sleep(Duration::from_millis(20));
    }
}

fn restore(stand: &Stand) -> Child {
    let config = stand.rig.layout().config();
    let mut command = Command::new(Path::new(LITD));
    command.args(["restore", "--config"]).arg(config);
    command.spawn().unwrap()
}

/// What the others hold of the GPUs' budget.
fn others(stand: &Stand) -> Watts {
    let held = stand.held();
    let others = (0..GPUS).filter(|&gpu| gpu != HUNG);
    others.map(|gpu| held[gpu]).sum()
}

fn is_known(stand: &Stand) -> bool {
    stand.device(HUNG).cap.is_some()
}

/// After a crash a GPU hangs: the others are undone, a start keeps the budget with them, and the one that hung
/// joins when it answers.
fn one_that_hangs_costs_itself(node: Node) {
    const BUDGET: Watts = Watts(4400.0);
    let Node {
        mut stand,
        ends,
        _mount,
    } = node;
    stand.start();
    wait_for("a budget that is kept", || stand.sum() <= BUDGET);
    stand.kill();
    stand.rig.hardware().inject(HUNG, Fault::Block(LONG));
    let mut restoring = restore(&stand);
    within_systemds_patience("the others' caps", || {
        let (held, found) = (stand.held(), stand.rig.ledger().found());
        (0..GPUS).all(|gpu| gpu == HUNG || held[gpu] == found[gpu])
    });
    if !ends {
        stand.rig.hardware().heal(HUNG);
    }
    within_systemds_patience("the end", || restoring.try_wait().unwrap().is_some());
    stand.rig.hardware().inject(HUNG, Fault::Block(LONG));
    stand.start();
    // It may hold what was found at first, as the undo journal says.
    let most = stand.rig.ledger().found()[HUNG];
    within_systemds_patience("the budget, with what it could hold", || {
        others(&stand) + most <= BUDGET
    });
    assert!(!is_known(&stand), "{:?}", stand.device(HUNG));
    stand.rig.hardware().heal(HUNG);
    within_systemds_patience("it joins", || is_known(&stand));
    within_systemds_patience("the budget", || stand.sum() <= BUDGET);
    let joined = stand.device(HUNG);
    assert!(
        joined.serial.is_some() || joined.uuid.is_some(),
        "{joined:?}"
    );
    stand.kill();
}

const PATIENT: &str = "caps.answer_seconds = 600.0\ncaps.budget = 4400\n";

#[test]
fn one_simulated_gpu_that_hangs_costs_itself_in_restore_and_at_a_start() {
    one_that_hangs_costs_itself(simulated(PATIENT));
}

#[test]
fn one_nvidia_gpu_that_hangs_costs_itself_in_restore_and_at_a_start() {
    one_that_hangs_costs_itself(nvml(PATIENT));
}

#[test]
fn one_amd_gpu_that_hangs_costs_itself_in_restore_and_at_a_start() {
    if let Some(node) = amdgpu(PATIENT, MI300X) {
        one_that_hangs_costs_itself(node);
    }
}

#[test]
fn an_nvidia_driver_that_hangs_as_a_whole_has_gpus_that_join_when_it_answers() {
    let mut stand = nvml("caps.budget = 4400\n").stand;
    stand.rig.hardware().nvidia_mut().init_takes = LONG;
    stand.start();
    let devices = stand.status().devices;
    assert_eq!(devices.len(), GPUS, "{}", stand.said());
    assert!(devices.iter().all(|it| it.cap.is_none()), "{devices:?}");
    stand.rig.hardware().nvidia_mut().init_takes = Duration::ZERO;
    within_systemds_patience("the budget", || stand.sum() <= Watts(4400.0));
    stand.kill();
}

/// A driver that takes long to open its library while a GPU of its is lost.
#[test]
fn one_nvidia_gpu_that_is_lost_takes_no_other_from_litd() {
    let mut stand = nvml("caps.answer_seconds = 1.0\ncaps.budget = 4400\n").stand;
    stand.start();
    wait_for("a budget that is kept", || stand.sum() <= Watts(4400.0));
    stand.rig.hardware().inject(HUNG, Fault::Gone);
    stand.rig.hardware().nvidia_mut().init_takes = Duration::from_millis(2500);
    let began = Instant::now();
    wait_for("it is found lost", || {
        stand.not_ours() == [(HUNG, DeviceState::Faulty)]
    });
    while began.elapsed() < Duration::from_secs(20) {
        assert_eq!(
            stand.not_ours(),
            [(HUNG, DeviceState::Faulty)],
            "{}",
            stand.said()
        );
        sleep(Duration::from_millis(100));
    }
    stand.kill();
}

/// The kernel holds a call of a killed litd to a driver that hangs: that litd can't end, and its locks don't keep
/// others from giving the devices' caps back.
#[test]
fn a_killed_litd_that_can_t_end_is_in_nobodys_way() {
    let Some(node) = amdgpu(PATIENT, MI300X) else {
        return;
    };
    let Node {
        mut stand, _mount, ..
    } = node;
    stand.start();
    wait_for("a budget that is kept", || stand.sum() <= Watts(4400.0));
    stand.rig.hardware().inject(HUNG, Fault::Block(LONG));
    // Each GPU is read once a second.
    sleep(Duration::from_millis(2500));
    let mut daemon = stand.daemon.take().unwrap();
    daemon.killer().kill();
    let mut restoring = restore(&stand);
    within_systemds_patience("the others' caps", || {
        let (held, found) = (stand.held(), stand.rig.ledger().found());
        (0..GPUS).all(|gpu| gpu == HUNG || held[gpu] == found[gpu])
    });
    assert!(daemon.ended().is_none(), "nothing held it");
    // What it has asked for may still be done: whoever comes next knows of it.
    let (locks, pid) = (stand.rig.layout().locks(), daemon.pid());
    let is_noted = || {
        let names = fs::read_dir(&locks).unwrap().flatten();
        let mut names = names.map(|it| it.file_name().into_string().unwrap());
        names.any(|name| name == format!("{pid}.hanging"))
    };
    assert!(is_noted());
    stand.rig.hardware().heal(HUNG);
    within_systemds_patience("the end", || restoring.try_wait().unwrap().is_some());
    within_systemds_patience("its end", || daemon.ended().is_some());
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert!(!is_noted(), "{said}");
}

/// Of these models only the driver knows which GPUs have a cap.
#[test]
fn a_driver_that_hangs_does_not_hang_the_loop() {
    let Some(node) = amdgpu("caps.budget = 4400\n", MI250) else {
        return;
    };
    let Node {
        mut stand, _mount, ..
    } = node;
    stand.start();
    wait_for("a budget that is kept", || stand.sum() <= Watts(4400.0));
    stand.rig.hardware().inject(HUNG, Fault::Block(LONG));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        assert_eq!(stand.status().devices.len(), GPUS);
        sleep(Duration::from_millis(100));
    }
    stand.rig.hardware().heal(HUNG);
    stand.kill();
}
