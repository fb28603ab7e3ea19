//! The made-up `/sys` as any program sees it: files, error numbers, and what happens to the plant.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use litd_rig::{Fault, Hardware, SharedHardware, gpu_address, lock};
use litd_rig_sysfs::{Board, Cpus, Metrics, Mount, obstacle, with_sys_covered};
use litd_sim::Scenario;
use litd_units::{Joules, Watts};
use nix::errno::Errno;

/// A mounted node, or none where that can't be.
struct Stand {
    mount: Mount,
    hardware: SharedHardware,
}

fn stand(board: Board) -> Option<Stand> {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    let hardware = Hardware::new(&Scenario::builtin("default").unwrap(), 1);
    let hardware = hardware.unwrap().shared();
    let mount = Mount::start(hardware.clone(), board).unwrap();
    Some(Stand { mount, hardware })
}

impl Stand {
    fn hardware(&self) -> MutexGuard<'_, Hardware> {
        lock(&self.hardware)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.mount.sys().join(path)
    }

    fn read(&self, path: &str) -> String {
        let path = self.at(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Writes as a shell does.
    fn write(&self, path: &str, text: &str) -> Result<(), Errno> {
        fs::write(self.at(path), text).map_err(|error| errno(&error))
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap())
}

const CAP: &str = "class/drm/card1/device/hwmon/hwmon1/power1_cap";
const LIMIT: &str = "class/powercap/intel-rapl:0/constraint_0_power_limit_uw";

#[test]
fn eight_gpus_stand_where_the_driver_puts_them() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    for gpu in 0..8 {
        let card = format!("class/drm/card{}/device", gpu + 1);
        let target = fs::canonicalize(stand.at(&card)).unwrap();
        assert_eq!(target.file_name().unwrap(), gpu_address(gpu).as_str());
        let hwmon = format!("{card}/hwmon/hwmon{}", gpu + 1);
        assert_eq!(stand.read(&format!("{hwmon}/name")), "amdgpu\n");
        assert_eq!(stand.read(&format!("{hwmon}/power1_cap")), "700000000\n");
        assert_eq!(
            stand.read(&format!("{hwmon}/power1_cap_max")),
            "750000000\n"
        );
        let class = format!("class/hwmon/hwmon{}/device/unique_id", gpu + 1);
        assert_eq!(stand.read(&class).trim().len(), 16);
        assert!(!stand.at(&format!("{hwmon}/power1_average")).exists());
    }
    // The management controller's screen has no hwmon.
    assert_eq!(stand.read("class/drm/card0/device/vendor"), "0x1a03\n");
    assert!(!stand.at("class/drm/card0/device/hwmon").exists());
    let nodes = fs::read_dir(stand.at("class/kfd/kfd/topology/nodes")).unwrap();
    assert_eq!(nodes.count(), 10);
}

#[test]
fn a_cap_changes_clock_heat_and_power_and_stands_in_the_ledger() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    let sensor = |name: &str| -> f64 {
        let path = format!("class/drm/card1/device/hwmon/hwmon1/{name}");
        stand.read(&path).trim().parse().unwrap()
    };
    let all = || ["power1_input", "freq1_input", "temp2_input"].map(sensor);
    stand.hardware().settle();
    stand.hardware().run_iteration();
    let before = all();
    stand.write(CAP, "500000000\n").unwrap();
    stand.hardware().settle();
    stand.hardware().run_iteration();
    let after = all();
    assert!(
        before
            .iter()
            .zip(after)
            .all(|(before, after)| after < *before)
    );
    assert_eq!((before[0], after[0]), (7e8, 5e8));
    let entries = stand.hardware().ledger().entries();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].device, entries[0].after), (0, Watts(500.0)));
}

#[test]
fn power1_cap_takes_and_refuses_what_the_driver_does() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    let cases = [
        ("650999999", Ok("650000000\n")), // whole watts
        ("600000000\n", Ok("600000000\n")),
        ("0", Ok("600000000\n")), // keep
        ("751000000", Err(Errno::EINVAL)),
        ("299000000", Err(Errno::EINVAL)),
        ("-1", Err(Errno::EINVAL)),
        ("many", Err(Errno::EINVAL)),
        ("5000000000", Err(Errno::ERANGE)),
    ];
    for (text, expected) in cases {
        let result = stand.write(CAP, text).map(|()| stand.read(CAP));
        assert_eq!(result, expected.map(str::to_owned), "{text}");
    }
    assert_eq!(stand.read(CAP), "600000000\n");
    // Every number that the driver had to decide about.
    let accepted: Vec<bool> = {
        let entries = stand.hardware().ledger().entries();
        entries.iter().map(|entry| entry.accepted).collect()
    };
    assert_eq!(accepted, [true, true, true, false, false]);
}

#[test]
fn faults_have_the_drivers_error_numbers() {
    let Some(stand) = stand(Board {
        cpus: Cpus::Powercap,
        ..Board::default()
    }) else {
        return;
    };
    let cases = [
        (CAP, 0, Fault::Refuse, Errno::EIO),
        (CAP, 0, Fault::NoPermission, Errno::EACCES),
        (CAP, 0, Fault::InReset, Errno::EPERM),
        (CAP, 0, Fault::Locked, Errno::EINVAL),
        (CAP, 0, Fault::Gone, Errno::ENOENT),
        (LIMIT, 8, Fault::Locked, Errno::ENODATA),
        (LIMIT, 8, Fault::NoPermission, Errno::EACCES),
        (LIMIT, 8, Fault::Gone, Errno::ENOENT),
    ];
    for (file, device, fault, expected) in cases {
        // A kept descriptor hears of it, too.
        let gone = matches!(fault, Fault::Gone);
        let kept = gone.then(|| File::options().write(true).open(stand.at(file)).unwrap());
        stand.hardware().inject(device, fault);
        assert_eq!(stand.write(file, "350000000"), Err(expected), "{fault:?}");
        if let Some(kept) = kept {
            let error = kept.write_at(b"350000000", 0).unwrap_err();
            assert_eq!(errno(&error), Errno::ENODEV);
        }
        stand.hardware().heal(device);
    }
    let gpu = stand.hardware().ledger().held()[0];
    assert_eq!(gpu, Watts(700.0));
}

#[test]
fn a_lie_and_a_cache_are_told_apart_by_power_alone() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    stand.hardware().inject(0, Fault::Lie);
    stand.write(CAP, "500000000").unwrap();
    assert_eq!(stand.read(CAP), "700000000\n");
    stand.hardware().inject(0, Fault::Cached);
    stand.write(CAP, "500000000").unwrap();
    assert_eq!(stand.read(CAP), "500000000\n");
    stand.hardware().run_iteration();
    let power = CAP.replace("power1_cap", "power1_input");
    assert_eq!(stand.read(&power), "700000000\n");
}

#[test]
fn a_device_that_comes_back_has_another_hwmon_and_old_descriptors_are_dead() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    let kept = File::open(stand.at(CAP)).unwrap();
    stand.hardware().inject(0, Fault::Gone);
    assert!(!stand.at("class/drm/card1").exists());
    assert!(stand.at("class/drm/card2").exists());
    stand.hardware().heal(0);
    assert!(!stand.at(CAP).exists());
    let again = CAP.replace("hwmon1/", "hwmon33/");
    assert_eq!(stand.read(&again), "700000000\n");
    let error = kept.read_at(&mut [0; 16], 0).unwrap_err();
    assert_eq!(errno(&error), Errno::ENODEV);
}

#[test]
fn a_slow_device_holds_up_nobody_else() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    let slow = Fault::Slow(Duration::from_secs(600));
    stand.hardware().inject(0, slow);
    let waiting = std::thread::spawn({
        let path = stand.at(CAP);
        move || fs::write(path, "500000000")
    });
    let other = CAP.replace("card1", "card2").replace("hwmon1", "hwmon2");
    stand.write(&other, "650000000").unwrap();
    assert_eq!(stand.read(&other), "650000000\n");
    assert_eq!(stand.hardware().ledger().held()[0], Watts(700.0));
    stand.hardware().heal(0);
    waiting.join().unwrap().unwrap();
    assert_eq!(stand.hardware().ledger().held()[0], Watts(500.0));
}

#[test]
fn permissions_are_those_of_the_files_and_can_be_changed() {
    let Some(stand) = stand(Board {
        cpus: Cpus::Powercap,
        ..Board::default()
    }) else {
        return;
    };
    let nobody = |command: &str, file: &str| {
        let status = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "sh",
                "-c",
                command,
                "sh",
            ])
            .arg(stand.at(file))
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .status();
        status.unwrap().success()
    };
    const ENERGY: &str = "class/powercap/intel-rapl:0/energy_uj";
    assert!(nobody("cat $1", CAP));
    assert!(!nobody("cat $1", ENERGY));
    assert!(!nobody("echo 650000000 > $1", CAP));
    let everybody = fs::Permissions::from_mode(0o666);
    fs::set_permissions(stand.at(CAP), everybody).unwrap();
    assert!(nobody("echo 650000000 > $1", CAP));
    assert_eq!(stand.read(CAP), "650000000\n");
}

#[test]
fn sockets_have_both_limits_and_an_energy_counter_that_wraps() {
    let Some(stand) = stand(Board {
        cpus: Cpus::Powercap,
        // Three joules below the end of the counter.
        energy: Joules(262_140.0),
        ..Board::default()
    }) else {
        return;
    };
    const ZONE: &str = "class/powercap/intel-rapl:0";
    assert_eq!(stand.read(&format!("{ZONE}/name")), "package-0\n");
    assert_eq!(
        stand.read(&format!("{ZONE}/constraint_0_name")),
        "long_term\n"
    );
    stand.write(LIMIT, "250300000").unwrap();
    assert_eq!(stand.read(LIMIT), "250250000\n", "eighths of a watt");
    let short = LIMIT.replace("constraint_0", "constraint_1");
    stand.write(&short, "300000000").unwrap();
    assert_eq!(stand.read(&short), "300000000\n");
    // A value out of range is clamped, as the firmware does.
    stand.write(LIMIT, "900000000").unwrap();
    assert_eq!(stand.read(LIMIT), "400000000\n");

    let energy = || -> u64 {
        stand
            .read(&format!("{ZONE}/energy_uj"))
            .trim()
            .parse()
            .unwrap()
    };
    assert_eq!(energy(), 262_140_000_000);
    stand.hardware().run_iteration();
    assert!(energy() < 262_140_000_000, "{}", energy());
}

#[test]
fn an_epyc_socket_has_a_hwmon_and_energy_alone_in_powercap() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    let hwmon = "class/hwmon/hwmon9";
    assert_eq!(stand.read(&format!("{hwmon}/name")), "amd_hsmp_hwmon\n");
    assert_eq!(
        stand.read(&format!("{hwmon}/power1_cap_max")),
        "400000000\n"
    );
    let cap = format!("{hwmon}/power1_cap");
    stand.write(&cap, "250123456").unwrap();
    assert_eq!(stand.read(&cap), "250123000\n");
    assert!(stand.at("class/powercap/intel-rapl:0/energy_uj").exists());
    assert!(!stand.at(LIMIT).exists());
    assert!(!stand.mount.dev().join("hsmp").exists());
}

#[test]
fn partitions_share_a_pci_address_and_processes_are_listed_with_their_gpus() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    stand.hardware().set_holders(2, vec![4711]);
    let process = "class/kfd/kfd/proc/4711";
    assert_eq!(stand.read(&format!("{process}/queues/2/gpuid")), "1002\n");
    assert_eq!(stand.read(&format!("{process}/vram_1003")), "0\n");
    stand.hardware().identity_mut(3).unwrap().sharing = litd_power::Sharing::Partitioned;
    let address = |card: usize| fs::canonicalize(stand.at(&format!("class/drm/card{card}/device")));
    assert_eq!(address(4).unwrap(), address(67).unwrap());
    let partition = "class/drm/card4/device/current_compute_partition";
    assert_eq!(stand.read(partition), "CPX\n");
}

#[test]
fn the_older_metrics_come_with_an_average() {
    let Some(stand) = stand(Board {
        metrics: Metrics::V1_3,
        ..Board::default()
    }) else {
        return;
    };
    let table = fs::read(stand.at("class/drm/card1/device/gpu_metrics")).unwrap();
    assert_eq!(table[..4], [120, 0, 1, 3]);
    assert!(
        stand
            .at(&CAP.replace("power1_cap", "power1_average"))
            .exists()
    );
}

#[test]
fn sys_itself_can_be_covered_for_a_process() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    let inside = with_sys_covered(&stand.mount.sys(), || {
        let output = Command::new("cat")
            .arg(Path::new("/sys").join(CAP))
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    });
    assert_eq!(inside.unwrap(), "700000000\n");
    assert!(!Path::new("/sys").join("class/drm/card8").exists());
}

/// The stand-in as a process of its own.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    sys: PathBuf,
}

impl Process {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_litd-rig-sysfs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let (sys, _) = line.strip_prefix("sys=").unwrap().split_once(' ').unwrap();
        let sys = sys.into();
        Self {
            child,
            input,
            output,
            sys,
        }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(path.to_str().unwrap())
}

#[test]
fn a_process_of_its_own_takes_commands_and_unmounts_even_when_it_is_killed() {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let mut process = Process::start();
    let cap = process.sys.join(CAP);
    fs::write(&cap, "650000000").unwrap();
    let held = process.ask("held");
    assert!(held.starts_with("650 700 "), "{held}");
    assert_eq!(process.ask("inject 0 refuse"), "ok");
    assert_eq!(
        errno(&fs::write(&cap, "600000000").unwrap_err()),
        Errno::EIO
    );
    assert_eq!(process.ask("heal 0"), "ok");
    assert_eq!(process.ask("writes"), "2");
    assert!(process.ask("explode").starts_with("error: "));

    let mount = process.sys.parent().unwrap().to_owned();
    assert!(is_mounted(&mount));
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_mounted(&mount) || mount.exists() {
        assert!(Instant::now() < deadline, "{} is left", mount.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mount_is_gone_when_it_is_dropped_even_if_files_are_open() {
    let Some(stand) = stand(Board::default()) else {
        return;
    };
    let open = File::open(stand.at(CAP)).unwrap();
    let directory = stand.mount.sys().parent().unwrap().to_owned();
    drop(stand);
    assert!(!is_mounted(&directory) && !directory.exists());
    drop(open);
}
