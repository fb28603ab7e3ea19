//! A node of NVIDIA GPUs: nothing is simulated on this side of `libnvidia-ml.so.1`.

use litd_api::{Command, DeviceState, JobState};
use litd_rig::{Fault, Job, JobSpec, Rig};
use litd_sim::Scenario;
use litd_units::Watts;

use crate::stand::{GPUS, SOON, Stand, quick, wait_for};

/// A node whose GPUs are found through NVML, and where nothing else is looked for.
fn node(config: &str) -> Stand {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let library = rig.install_nvml().unwrap();
    let config = format!(
        "{config}\n[hardware]\namd = \"off\"\ncpus = false\nnvml_library = \"{}\"\n",
        library.display()
    );
    let mut stand = Stand::on(rig, &config, true);
    stand.start();
    stand
}

fn steering() -> (Stand, Job) {
    let mut stand = node(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    (stand, job)
}

#[test]
fn eight_gpus_are_found_levelled_and_given_back() {
    let mut stand = node(&quick("gpu-realloc"));
    let devices = stand.status().devices;
    assert_eq!(devices.len(), GPUS);
    for device in &devices {
        assert_eq!(device.backend, "nvml");
    }
    let length = |stand: &Stand| stand.rig.hardware().plant().last().length;
    let mut job = stand.train();
    stand.play(&mut job, 3);
    let before = length(&stand);
    stand.play_until(&mut job, "levelled", |stand| {
        stand.job_status("train").state == JobState::Converged
    });
    let after = length(&stand);
    assert!(after < before, "{after:.1} after {before:.1}");
    assert!(stand.sum() <= Watts(5600.0), "{}", stand.sum());
    assert_ne!(stand.held(), stand.rig.ledger().found());
    let rig = stand.rig.shared_hardware();
    stand.stop();
    wait_for("closed", || rig.lock().unwrap().nvidia().clients() == 0);
}

#[test]
fn a_node_that_is_let_go_of_stays_closed_while_its_job_runs() {
    let (mut stand, mut job) = steering();
    let clients = |stand: &Stand| stand.rig.hardware().nvidia().clients();
    assert_eq!(clients(&stand), 1);
    stand.command(&Command::Release { device: None });
    stand.pass(2.0);
    for _ in 0..40 {
        assert_eq!(clients(&stand), 0);
        stand.play(&mut job, 1);
    }
    assert!(stand.is_back(), "{:?}", stand.held());
    // Nor for whoever comes new.
    job.end();
    let mut early = stand.rig.attach(JobSpec::new("train", 0..GPUS)).unwrap();
    assert!(early.welcome(SOON).is_err());
    stand.pass(1.0);
    assert_eq!(clients(&stand), 0);
    drop(early);
    stand.resume();
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    assert_eq!(clients(&stand), 1);
    stand.stop();
}

#[test]
fn one_gpu_that_is_let_go_of_can_be_reset_while_others_are_read() {
    const RESET: usize = 3;
    let (mut stand, mut job) = steering();
    let device = Some(stand.device(RESET).address);
    stand.command(&Command::Release { device });
    stand.pass(2.0);
    let open = |stand: &Stand| {
        let gpus = stand.rig.hardware().nvidia().gpus.clone();
        gpus.iter().map(|gpu| gpu.clients).collect::<Vec<_>>()
    };
    // The node hears of closed connections a moment later.
    wait_for("all but one are open", || {
        open(&stand) == [1, 1, 1, 0, 1, 1, 1, 1]
    });
    stand.play(&mut job, 10);
    assert_eq!(open(&stand)[RESET], 0);
    stand.stop();
}

#[test]
fn a_gpu_that_falls_off_the_bus_costs_itself_and_comes_back() {
    const LOST: usize = 4;
    let (mut stand, mut job) = steering();
    stand.rig.hardware().inject(LOST, Fault::Gone);
    stand.play_until(&mut job, "fault", |stand| !stand.not_ours().is_empty());
    assert_eq!(stand.not_ours(), [(LOST, DeviceState::Faulty)]);
    assert!(stand.counted("gone") >= 3);
    stand.pass(3.0);
    stand.assert_rules();
    stand.rig.hardware().heal(LOST);
    stand.pass(40.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.resume();
    stand.play_into_steering(&mut job);
    assert_eq!(stand.not_ours(), []);
    stand.stop();
}

#[test]
fn a_limit_that_somebody_else_enforces_is_told() {
    const LIMITED: usize = 4;
    let (mut stand, mut job) = steering();
    let enforced = Watts(400.0);
    stand
        .rig
        .hardware()
        .inject(LIMITED, Fault::Enforced(enforced));
    stand.play_until(&mut job, "lower limit", |stand| {
        stand.device(LIMITED).in_force == Some(enforced)
    });
    stand.play(&mut job, 20);
    stand.assert_rules();
    stand.rig.hardware().heal(LIMITED);
    stand.stop();
}
