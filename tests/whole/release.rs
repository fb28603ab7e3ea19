//! Devices that litd is told to let go of.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use litd_api::{Command, DeviceState, EventKind, JobState, Mode};
use litd_proto::RefusalCode;
use litd_rig::{Fault, JobSpec, RankState, Rig};
use litd_sim::Scenario;
use litd_units::Watts;

use crate::stand::{GPUS, SOON, Stand, quick, quick_with_switch, wait_for};

/// An administrator is answered within so long.
const ANSWERED: Duration = Duration::from_secs(5);

fn release(device: Option<String>) -> Command {
    Command::Release { device }
}

/// A node of NVIDIA GPUs, with what sysfs shows of them.
fn node(config: &str) -> (Stand, PathBuf) {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let library = rig.install_nvml().unwrap();
    let sys = rig.layout().directory.join("sys");
    let config = format!(
        "{config}\n[hardware]\namd = \"off\"\ncpus = false\nnvml_library = \"{}\"\nsys = \"{}\"\n",
        library.display(),
        sys.display()
    );
    let mut stand = Stand::on(rig, &config, true);
    stand.start();
    let driver = sys.join("bus/pci/drivers/nvidia");
    fs::create_dir_all(&driver).unwrap();
    for device in stand.status().devices {
        bind(&sys, &driver, &device.address);
    }
    (stand, sys)
}

fn bind(sys: &Path, driver: &Path, address: &str) {
    let device = sys.join("bus/pci/devices").join(address);
    fs::create_dir_all(&device).unwrap();
    symlink(driver, device.join("driver")).unwrap();
}

/// Whether the daemon has a file open or mapped whose name contains this.
fn has_open(stand: &Stand, part: &str) -> bool {
    let proc = PathBuf::from(format!("/proc/{}", stand.daemon().pid()));
    let files = fs::read_dir(proc.join("fd")).unwrap().flatten();
    let open = |path: PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().contains(part)
    };
    let maps = fs::read_to_string(proc.join("maps")).unwrap();
    files.map(|file| file.path()).any(open) || maps.contains(part)
}

#[test]
fn let_go_of_all_while_a_job_runs_nothing_of_the_driver_is_open() {
    let (mut stand, _) = node(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    assert!(has_open(&stand, "libnvidia-ml"));
    let (code, said) = stand.try_command(&release(None));
    assert_eq!(code, 200, "{said}");
    assert!(
        said.contains("gpu7: caps are restored and no handle is open"),
        "{said}"
    );
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.journaled(), [""; 0]);
    let clients = |stand: &Stand| stand.rig.hardware().nvidia().clients();
    wait_for("closed", || clients(&stand) == 0);
    assert!(!has_open(&stand, "libnvidia-ml"));
    // Nor is it while the job goes on.
    stand.play(&mut job, 20);
    assert_eq!(clients(&stand), 0);
    assert!(!has_open(&stand, "libnvidia-ml"));
    stand.resume();
    stand.play_into_steering(&mut job);
    stand.stop();
}

/// A job that is steered is not measured anew because somebody resumes what was never stopped.
#[test]
fn resuming_what_is_steered_disturbs_nobody() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let events = stand.events(EventKind::State).len();
    let (code, said) = stand.try_command(&Command::Resume { device: None });
    assert_eq!(code, 200, "{said}");
    assert!(said.contains("nothing was stopped"), "{said}");
    stand.pass(3.0);
    let now = stand.events(EventKind::State);
    assert_eq!(now.len(), events, "{now:?}");
    stand.stop();
}

#[test]
fn no_hello_opens_what_was_let_go_of() {
    const LET_GO: usize = 2;
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    stand.command(&release(Some("gpu2".to_owned())));
    let closed = stand.rig.hardware().releases(LET_GO);
    assert!(closed > 0);
    let mut late = stand.rig.attach(JobSpec::new("late", [LET_GO])).unwrap();
    assert!(late.welcome(SOON).is_err());
    let Some(RankState::Refused(refusal)) = late.state(0) else {
        panic!("{:?}", late.state(0));
    };
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert_eq!(
        refusal.reason,
        "litd has released gpu2 until `litctl resume gpu2`"
    );
    stand.pass(3.0);
    // What is opened again is closed again.
    assert_eq!(stand.rig.hardware().releases(LET_GO), closed);
    stand.resume();
    late.connect(0).unwrap();
    late.welcome(SOON).unwrap();
    stand.stop();
}

#[test]
fn the_others_of_the_job_keep_their_caps() {
    const LET_GO: usize = 2;
    // Below its budget, whichever of them gets its cap back.
    let config = quick("gpu-red") + "caps.budget = 6000\n";
    let mut stand = Stand::clocked(&config);
    stand.rig.ledger().set_budget(Watts(6000.0));
    let mut job = stand.train();
    stand.play_until(&mut job, "leaders to be lowered", |stand| {
        stand.held()[LET_GO] < Watts(695.0)
    });
    let mut before = stand.held();
    assert_ne!(before[LET_GO], stand.rig.ledger().found()[LET_GO]);
    stand.command(&release(Some("gpu2".to_owned())));
    before[LET_GO] = stand.rig.ledger().found()[LET_GO];
    assert_eq!(stand.held(), before);
    stand.play(&mut job, 20);
    assert_eq!(stand.held(), before);
    assert_eq!(stand.not_ours(), [(LET_GO, DeviceState::Released)]);
    let status = stand.job_status("train");
    assert_eq!(status.state, JobState::Suspended);
    assert!(status.why.contains("gpu2"), "{}", status.why);
    // They go back when the job ends.
    job.end();
    wait_for("the end", || stand.status().jobs.is_empty());
    stand.finish();
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn what_is_on_its_way_up_is_not_kept_low() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play(&mut job, 2);
    stand
        .rig
        .ledger()
        .lower_budget(Watts(4000.0), Duration::from_secs(2));
    let budget = |watts| Command::SetBudget { watts };
    stand.command(&budget(Some(Watts(4000.0))));
    stand.play_into_steering(&mut job);
    stand.rig.ledger().set_budget(Watts(5600.0));
    stand.command(&budget(None));
    stand.command(&release(Some("gpu2".to_owned())));
    stand.play(&mut job, 20);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn one_that_hangs_is_said_to_hang_within_five_seconds() {
    const HUNG: usize = 4;
    let stand = Stand::real("");
    stand
        .rig
        .hardware()
        .inject(HUNG, Fault::Slow(Duration::from_secs(9)));
    std::thread::sleep(Duration::from_millis(1500));
    let asked = Instant::now();
    let (code, said) = stand.try_command(&release(None));
    assert!(asked.elapsed() < ANSWERED, "{:?}", asked.elapsed());
    assert_eq!(code, 409, "{said}");
    assert!(
        said.contains("gpu4: its driver has not answered for"),
        "{said}"
    );
    assert!(said.contains("gpu3, gpu5"), "{said}");
    // Once it answers it is closed.
    stand.rig.hardware().heal(HUNG);
    wait_for("closed", || stand.try_command(&release(None)).0 == 200);
    stand.stop();
}

#[test]
fn one_that_refuses_its_cap_is_closed_all_the_same() {
    const REFUSES: usize = 2;
    let mut stand = Stand::bare(&quick("gpu-red"), false);
    stand.start();
    let mut job = stand.train();
    let found = stand.rig.ledger().found();
    wait_for("steering", || {
        stand.play(&mut job, 1);
        stand.held()[REFUSES] < found[REFUSES]
    });
    stand.rig.hardware().inject(REFUSES, Fault::Refuse);
    let (code, said) = stand.try_command(&release(Some("gpu2".to_owned())));
    // A script that goes by the exit status is not to believe that it is back.
    assert_eq!(code, 409, "{said}");
    assert!(said.contains("gpu2: is closed, but it holds"), "{said}");
    let address = stand.device(REFUSES).address;
    assert!(stand.journaled().contains(&address));
    stand.rig.hardware().heal(REFUSES);
    // It is given back in the end.
    stand.stop_after_failed_writes();
}

#[test]
fn a_gpu_is_taken_back_when_it_returns_and_by_no_look_at_it() {
    const RESET: usize = 3;
    let (mut stand, sys) = node(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let address = stand.device(RESET).address;
    stand.command(&release(Some(address.clone())));
    let clients = |stand: &Stand| stand.rig.hardware().nvidia().gpus[RESET].clients;
    wait_for("closed", || clients(&stand) == 0);
    stand.pass(3.0);
    // Its driver is loaded anew.
    let driver = sys.join("bus/pci/devices").join(&address).join("driver");
    fs::remove_file(&driver).unwrap();
    stand.pass(2.0);
    assert_eq!(stand.not_ours(), [(RESET, DeviceState::Released)]);
    assert_eq!(clients(&stand), 0);
    symlink(sys.join("bus/pci/drivers/nvidia"), &driver).unwrap();
    stand.pass(2.0);
    assert_eq!(stand.not_ours(), []);
    stand.play_into_steering(&mut job);
    stand.stop();
}

/// While all GPUs are with their users the budget can't be kept. That is no reason not to do less.
#[test]
fn a_reload_that_leaves_the_budget_as_it_is_counts_while_gpus_are_released() {
    // More than what was found, and less than what GPUs take that are reset.
    const BUDGET: &str = "caps.budget = 5700\n";
    let mut stand = Stand::clocked(&(quick("gpu-realloc") + BUDGET));
    stand.command(&release(None));
    stand.pass(3.0);
    stand.reload(&(quick("gpu-realloc").replace("\"on\"", "\"observe\"") + BUDGET));
    stand.pass(1.0);
    let said = stand.said();
    assert!(said.contains("configuration read anew"), "{said}");
    assert_eq!(stand.status().node.mode, Mode::Observe);
    // A lower one is another matter.
    stand.reload(&(quick("gpu-realloc") + "caps.budget = 5690\n"));
    stand.pass(1.0);
    let said = stand.said();
    assert!(said.contains("stays as it was: caps.budget"), "{said}");
    stand.stop();
}

/// Nor are floors raised above it, which would hold once they are litd's again: by their file, or by hand.
#[test]
fn a_reload_that_raises_floors_above_a_budget_is_refused_while_gpus_are_released() {
    const FLOOR: &str = "caps.gpu_floor = 705\n";
    let by_hand = Command::SetBudget {
        watts: Some(Watts(5600.0)),
    };
    for (file, command) in [("caps.budget = 5600\n", None), ("", Some(&by_hand))] {
        let mut stand = Stand::clocked(&(quick("gpu-realloc") + file));
        if let Some(command) = command {
            stand.command(command);
        }
        stand.command(&release(None));
        stand.pass(3.0);
        stand.reload(&(quick("gpu-realloc") + file + FLOOR));
        stand.pass(1.0);
        let refused = "the GPUs' floors add up to 5640 W";
        assert!(
            stand.has_event(EventKind::Daemon, refused),
            "{:?}",
            stand.events(EventKind::Daemon)
        );
        stand.resume();
        stand.pass(3.0);
        assert!(stand.sum() <= Watts(5600.0), "{:?}", stand.held());
        stand.stop();
    }
}

#[test]
fn a_gpu_is_taken_back_after_the_time_that_is_configured() {
    let mut stand = Stand::clocked("release.resume_after_seconds = 30\n");
    stand.command(&release(Some("gpu1".to_owned())));
    stand.pass(28.0);
    assert_eq!(stand.not_ours(), [(1, DeviceState::Released)]);
    stand.pass(4.0);
    assert_eq!(stand.not_ours(), []);
    stand.stop();
}

#[test]
fn no_budget_is_accepted_for_which_released_gpus_leave_no_room() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    for gpu in 0..4 {
        stand.command(&release(Some(format!("gpu{gpu}"))));
    }
    // Four keep their 700 W, the others can go down to 300 W.
    let budget = |watts| Command::SetBudget {
        watts: Some(Watts(watts)),
    };
    let (code, said) = stand.try_command(&budget(2600.0));
    assert_eq!(code, 409, "{said}");
    assert!(
        said.contains("caps of 2800 W that litd may not lower, add up to 4000 W"),
        "{said}"
    );
    for (key, rest) in [
        ("caps.budget", ""),
        ("caps.safe_budget", "caps.on_exit = \"hold\"\n"),
    ] {
        stand.reload(&(quick("gpu-realloc") + &format!("{key} = 2600\n{rest}")));
        let why = format!(
            "{key}: this budget can't be kept while gpu0, gpu1, gpu2, gpu3 keep what they hold"
        );
        wait_for("the refusal", || {
            stand.finish();
            stand.has_event(EventKind::Daemon, &why)
        });
    }
    stand.command(&budget(4000.0));
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(4000.0), "{:?}", stand.held());
    stand.resume();
    stand.pass(3.0);
    stand.command(&budget(2600.0));
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(2600.0), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn a_kill_switch_does_not_keep_a_drained_gpu_open() {
    const REFUSES: usize = 2;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("off");
    let mut stand = Stand::clocked(&quick_with_switch("gpu-realloc", &file));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.rig.hardware().inject(REFUSES, Fault::Refuse);
    stand.try_command(&release(Some("gpu2".to_owned())));
    stand.pass(3.0);
    // Once more, because nothing holds the others' caps any longer; then it is left alone again.
    fs::write(&file, "").unwrap();
    stand.pass(3.0);
    let tried = stand.rig.ledger().len();
    stand.pass(12.0);
    assert_eq!(stand.rig.ledger().len(), tried, "{}", stand.said());
    stand.rig.hardware().heal(REFUSES);
    fs::remove_file(&file).unwrap();
    stand.stop_after_failed_writes();
}

#[test]
fn what_was_let_go_of_stays_so_when_litd_is_killed_or_stopped() {
    for is_killed in [true, false] {
        let mut stand = Stand::bare(&quick("observe"), false);
        // As the GPUs of one board do.
        for gpu in 0..GPUS {
            let mut hardware = stand.rig.hardware();
            hardware.identity_mut(gpu).unwrap().serial = Some("one board".to_owned());
        }
        stand.start();
        stand.wait_for_found();
        let (code, said) = stand.try_command(&release(Some("gpu2".to_owned())));
        assert_eq!(code, 200, "{said}");
        match is_killed {
            true => stand.kill(),
            false => assert_eq!(stand.terminate(), Some(0), "{}", stand.said()),
        }
        stand.start();
        stand.wait_for_found();
        // A budget that takes from all that litd has.
        stand.command(&Command::SetBudget {
            watts: Some(Watts(4000.0)),
        });
        wait_for("the budget", || stand.sum() <= Watts(4000.0));
        assert_eq!(stand.not_ours(), [(2, DeviceState::Released)]);
        assert_eq!(stand.held()[2], stand.rig.ledger().found()[2]);
        stand.command(&Command::Resume {
            device: Some("gpu2".to_owned()),
        });
        wait_for("it is litd's", || stand.not_ours().is_empty());
        stand.kill();
        stand.start();
        stand.wait_for_found();
        assert_eq!(stand.not_ours(), []);
        stand.rig.ledger().permit_found();
        assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
        // The write that lowers the GPU that was resumed may have been under way at the kill.
        stand.assert_clean_but_for_late(&stand.said());
    }
}
