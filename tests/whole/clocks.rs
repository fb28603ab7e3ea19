//! Clocks that a job's ranks ask for: set on their own GPUs, in the journal first, and free in the
//! end, however that comes.

use std::fs;
use std::path::PathBuf;

use litd_api::{Command, EventKind};
use litd_rig::{Fault, JobSpec, Rig};
use litd_rig_sysfs::{Board, Mount, obstacle};
use litd_sim::Scenario;

use crate::stand::{GPUS, SOON, Stand, quick, wait_for};

/// A node whose GPUs are found through NVML.
fn nvidia() -> Stand {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let library = rig.install_nvml().unwrap();
    let config = format!(
        "{}\n[hardware]\namd = \"off\"\ncpus = false\nnvml_library = \"{}\"\n",
        quick("observe"),
        library.display()
    );
    let mut stand = Stand::on(rig, &config, true);
    stand.start();
    stand
}

/// A node of MI300X, found through amdgpu's files.
fn amd() -> Option<(Stand, Mount)> {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let mount = Mount::start(rig.shared_hardware(), Board::default()).unwrap();
    let config = format!("{}{}", quick("observe"), mount.config());
    let mut stand = Stand::on(rig, &config, true);
    stand.start();
    Some((stand, mount))
}

/// The performance level of a GPU of [`amd`].
fn level(mount: &Mount, stand: &Stand, gpu: usize) -> PathBuf {
    let device = mount.sys().join("bus/pci/devices");
    let device = device.join(stand.device(gpu).address);
    device.join("power_dpm_force_performance_level")
}

/// What all GPUs' clocks are locked to, in MHz.
pub fn locked(stand: &Stand) -> Vec<Option<u32>> {
    let hardware = stand.rig.hardware();
    let gpus = hardware.nvidia().gpus.iter();
    gpus.map(|gpu| gpu.clocks.map(|(_, highest)| highest))
        .collect()
}

/// The devices that the journal says may be locked.
pub fn journaled(stand: &Stand) -> Vec<String> {
    let path = stand.rig.layout().state().join("journal");
    let bytes = fs::read(path).unwrap_or_default();
    let recovered = litd_core::journal::read(&bytes).unwrap();
    let clocks = recovered.map_or_else(Vec::new, |it| it.clocks);
    clocks.into_iter().map(|it| it.address).collect()
}

#[test]
fn a_plans_clocks_are_locked_through_nvml_and_freed_when_the_job_ends() {
    let mut stand = nvidia();
    let mut job = stand.train();
    assert!(job.set_clock(2, Some(1200)) && job.set_clock(5, Some(900)));
    stand.pass(1.0);
    let mut expected = vec![None; GPUS];
    (expected[2], expected[5]) = (Some(1200), Some(900));
    assert_eq!(locked(&stand), expected);
    assert_eq!(journaled(&stand).len(), 2);
    // Of many wishes the last counts.
    for clock in 600..900 {
        assert!(job.set_clock(2, Some(clock)));
    }
    stand.pass(1.0);
    assert_eq!(locked(&stand)[2], Some(899));
    assert!(job.set_clock(2, None));
    stand.pass(1.0);
    assert_eq!(locked(&stand)[2], None);
    // It may be locked again soon, and the disk is not asked each time.
    assert_eq!(journaled(&stand).len(), 2);
    stand.pass(3.0);
    assert_eq!(journaled(&stand).len(), 1);
    job.end();
    stand.pass(1.0);
    assert_eq!(locked(&stand), [None; GPUS]);
    assert_eq!(journaled(&stand), [""; 0]);
    stand.stop();
}

#[test]
fn what_a_killed_daemon_had_locked_the_next_one_frees() {
    frees_after_a_kill(nvidia());
}

#[test]
fn what_a_killed_daemon_had_locked_of_amds_the_next_one_frees() {
    let Some((stand, mount)) = amd() else { return };
    let level = level(&mount, &stand, 0);
    frees_after_a_kill(stand);
    assert_eq!(fs::read_to_string(level).unwrap(), "auto\n");
}

#[test]
fn a_level_that_another_program_has_set_stays_and_no_clock_is_locked() {
    let Some((mut stand, mount)) = amd() else {
        return;
    };
    let (foreign, free) = (level(&mount, &stand, 2), level(&mount, &stand, 5));
    fs::write(&foreign, "manual\n").unwrap();
    let mut job = stand.train();
    assert!(job.set_clock(2, Some(1200)) && job.set_clock(5, Some(900)));
    stand.pass(3.0);
    let mut expected = vec![None; GPUS];
    expected[5] = Some(900);
    assert_eq!(locked(&stand), expected, "{}", stand.said());
    assert_eq!(journaled(&stand).len(), 1);
    assert!(stand.said().contains("another program"), "{}", stand.said());
    job.end();
    stand.pass(4.0);
    assert_eq!(locked(&stand), [None; GPUS]);
    assert_eq!(fs::read_to_string(free).unwrap(), "auto\n");
    assert_eq!(fs::read_to_string(foreign).unwrap(), "manual\n");
    stand.stop();
}

fn frees_after_a_kill(mut stand: Stand) {
    let mut job = stand.train();
    assert!(job.set_clock(0, Some(1005)));
    stand.pass(1.0);
    assert_eq!(locked(&stand)[0], Some(1005));
    stand.daemon.take().unwrap().kill();
    assert_eq!(locked(&stand)[0], Some(1005));
    drop(job);
    stand.start();
    stand.pass(4.0);
    assert_eq!(locked(&stand), [None; GPUS], "{}", stand.said());
    assert_eq!(journaled(&stand), [""; 0]);
    stand.stop();
}

#[test]
fn stopping_restoring_and_a_dying_rank_free_clocks() {
    let mut stand = Stand::clocked(&quick("observe"));
    let mut job = stand.train();
    for rank in 0..GPUS {
        assert!(job.set_clock(rank, Some(1000)));
    }
    stand.pass(1.0);
    assert_eq!(locked(&stand), [Some(1000); GPUS]);
    let device = Some(stand.device(6).address);
    stand.command(&Command::Release { device });
    stand.pass(1.0);
    assert_eq!(locked(&stand)[6], None);
    job.crash(3);
    stand.pass(20.0);
    assert_eq!(locked(&stand)[3], None);
    assert_eq!(locked(&stand)[4], Some(1000));
    let hardware = stand.rig.shared_hardware();
    stand.stop();
    let hardware = hardware.lock().unwrap();
    assert!(
        hardware
            .nvidia()
            .gpus
            .iter()
            .all(|gpu| gpu.clocks.is_none())
    );
}

/// The GPU whose driver calls a lock failed that it does later.
const LATE: usize = 2;

/// A job has asked for a clock, its driver has called that failed, and the job is over.
fn with_a_lock_to_come(stand: &mut Stand, passes: impl Fn(&mut Stand)) {
    let mut job = stand.train();
    stand.rig.hardware().inject(LATE, Fault::Postpone);
    assert!(job.set_clock(LATE, Some(1200)));
    passes(stand);
    assert!(stand.said().contains("clocks"), "{}", stand.said());
    stand.rig.hardware().heal(LATE);
    job.end();
    passes(stand);
    assert_eq!(locked(stand), [None; GPUS]);
    assert_eq!(journaled(stand).len(), 1);
}

fn lock_lands(stand: &Stand) {
    stand.rig.hardware().land(LATE).unwrap();
    assert_eq!(locked(stand)[LATE], Some(1200));
}

#[test]
fn a_lock_that_lands_late_is_freed() {
    let mut stand = Stand::clocked(&quick("observe"));
    with_a_lock_to_come(&mut stand, |stand| stand.pass(0.6));
    stand.pass(20.0);
    lock_lands(&stand);
    stand.pass(15.0);
    assert_eq!(locked(&stand), [None; GPUS], "{}", stand.said());
    assert_eq!(journaled(&stand), [""; 0]);
    stand.stop();
}

#[test]
fn a_lock_that_has_landed_is_freed_at_a_stop() {
    let mut stand = Stand::clocked(&quick("observe"));
    with_a_lock_to_come(&mut stand, |stand| stand.pass(0.6));
    lock_lands(&stand);
    let hardware = stand.rig.shared_hardware();
    stand.finish();
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    let hardware = hardware.lock().unwrap();
    assert_eq!(hardware.nvidia().gpus[LATE].clocks, None);
}

#[test]
fn a_lock_that_lands_after_litd_restore_is_freed_by_the_next_one() {
    for stops in [true, false] {
        let mut stand = Stand::real(&quick("observe"));
        stand.wait_for_found();
        with_a_lock_to_come(&mut stand, |_| {
            std::thread::sleep(std::time::Duration::from_millis(600));
        });
        match stops {
            true => assert_eq!(stand.terminate(), Some(0), "{}", stand.said()),
            false => stand.kill(),
        }
        for _ in 0..2 {
            let (code, said) = stand.restore();
            assert_eq!(code, Some(3), "{said}");
            assert!(said.contains("are unlocked; "), "{said}");
            assert_eq!(locked(&stand), [None; GPUS]);
            assert_eq!(journaled(&stand).len(), 1);
        }
        lock_lands(&stand);
        let (code, said) = stand.restore();
        assert_eq!(code, Some(3), "{said}");
        assert_eq!(locked(&stand), [None; GPUS]);
    }
}

#[test]
fn a_locked_clock_does_not_wait_for_a_dead_process_to_come_back() {
    let mut stand = Stand::clocked(&(quick("observe") + "jobs.reconnect_seconds = 600\n"));
    let mut job = stand.train();
    for rank in [3, 4] {
        assert!(job.set_clock(rank, Some(1000)));
    }
    stand.pass(1.0);
    // Both connections break; only one process is still there.
    stand.rig.hardware().set_holders(3, Vec::new());
    job.crash(3);
    job.crash(4);
    stand.pass(3.0);
    assert_eq!(locked(&stand)[3], None);
    assert_eq!(locked(&stand)[4], Some(1000));
    stand.stop();
}

#[test]
fn nobody_sets_another_processes_gpu_and_nobody_sets_any_under_observation() {
    let mut stand = Stand::clocked(&quick("observe"));
    stand.rig.hardware().set_holders(7, vec![1]);
    let mut thief = stand.rig.attach(JobSpec::new("thief", [7])).unwrap();
    thief.set_clock(0, Some(210));
    assert!(thief.welcome(SOON).is_err());
    thief.set_clock(0, Some(210));
    stand.pass(1.0);
    assert_eq!(locked(&stand), [None; GPUS]);
    let mut job = stand.job("train", 0..4);
    stand.reload("mode = \"observe\"\n");
    wait_for("observing", || {
        stand.finish();
        stand.has_event(EventKind::Daemon, "configuration read anew")
    });
    assert!(job.set_clock(0, Some(600)));
    wait_for("refusal", || {
        stand.finish();
        stand.counted("clocks_observed") == 1
    });
    assert_eq!(locked(&stand), [None; GPUS]);
    stand.stop();
}

#[test]
fn a_driver_that_refuses_is_told_of_and_a_stop_does_not_wait_for_what_was_never_locked() {
    let mut stand = Stand::clocked(&quick("observe"));
    let mut job = stand.train();
    stand.rig.hardware().inject(1, Fault::NoPermission);
    assert!(job.set_clock(1, Some(1000)));
    stand.pass(6.0);
    assert_eq!(locked(&stand)[1], None);
    assert!(stand.counted("permission") >= 1);
    stand.rig.hardware().heal(1);
    wait_for("freed", || {
        stand.finish();
        stand.pass(1.0);
        journaled(&stand).is_empty()
    });
    stand.stop();
}
