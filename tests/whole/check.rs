//! `litd-check`, the program outside litd that finds caps which were left behind: on made-up nodes,
//! with a made-up `nvidia-smi`, and none of litd's programs.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The boot of the made-up node.
const BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// litd's process there, and when it started.
const PID: u32 = 4711;
const BORN: u64 = 90_210;

/// A made-up node: two AMD GPUs, two NVIDIA GPUs, one CPU socket by RAPL and one by HSMP. litd
/// found 750, 750, 700, 700, 350 and 400 W.
struct Node {
    root: TempDir,
}

/// A cap's file or line.
#[derive(Clone, Copy)]
enum Device {
    Amd(u32),
    Nvidia(u32),
    Rapl,
    Hsmp,
}

impl Node {
    /// All caps as they were found, litd alive, no job.
    fn new() -> Self {
        let node = Self {
            root: tempfile::tempdir().unwrap(),
        };
        node.put("proc/sys/kernel/random/boot_id", BOOT);
        for gpu in 0..2 {
            node.put(&format!("{}/name", Self::amd(gpu)), "amdgpu");
            node.set(Device::Amd(gpu), 750.0);
        }
        node.put("sys/class/powercap/intel-rapl:0/name", "package-0");
        node.put(
            "sys/class/powercap/intel-rapl:0/constraint_0_name",
            "long_term",
        );
        node.set(Device::Rapl, 350.0);
        node.put("sys/class/hwmon/hwmon0/name", "k10temp");
        node.put("sys/class/hwmon/hwmon1/name", "amd_hsmp_hwmon");
        node.put("sys/class/hwmon/hwmon2/name", "amd_hsmp_hwmon");
        node.set(Device::Hsmp, 400.0);
        for cpu in 0..4 {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            node.put(
                &format!("{topology}/physical_package_id"),
                &(cpu % 2).to_string(),
            );
        }
        node.put("smi/limit0", "700.00");
        node.put("smi/limit1", "700.00");
        node.put("smi/apps", "");
        node.smi("");
        node.baseline("");
        node.litd_is("(litd) S", BORN);
        node.up(5_000);
        node
    }

    fn amd(gpu: u32) -> String {
        format!(
            "sys/bus/pci/devices/0000:0{gpu}:00.0/hwmon/hwmon{}",
            gpu + 3
        )
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// NVIDIA's program, which begins with `first`.
    fn smi(&self, first: &str) {
        let smi = self.path("smi");
        let smi = smi.display();
        let script = format!(
            "#!/bin/sh\n{first}\ncase $1 in\n\
             --query-gpu=*) for gpu in 0 1; do echo \"00000000:8$gpu:00.0, $(cat {smi}/limit$gpu)\"; done ;;\n\
             --query-compute-apps=*) cat {smi}/apps ;;\n*) exit 6 ;;\nesac\n"
        );
        self.put("smi/nvidia-smi", "");
        let path = self.path("smi/nvidia-smi");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What litd published, with a line more.
    fn baseline(&self, more: &str) {
        let text = format!(
            "litd-baseline 1\nboot {BOOT}\npid {PID} {BORN}\n{more}\
             device gpu 0000:00:00.0 750000000\ndevice gpu 0000:01:00.0 750000000\n\
             device gpu 0000:80:00.0 700000000\ndevice gpu 0000:81:00.0 700000000\n\
             device cpu cpu0 350000000\ndevice cpu cpu1 400000000"
        );
        self.put("run/litd/baseline", &text);
    }

    /// What the kernel says of litd's process: name and state, and when it started.
    fn litd_is(&self, what: &str, born: u64) {
        let stat = format!("{PID} {what} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 {born} 0 0");
        self.put(&format!("proc/{PID}/stat"), &stat);
    }

    /// So many seconds have passed since the boot.
    fn up(&self, seconds: u64) {
        self.put("proc/uptime", &format!("{seconds}.37 {seconds}.00"));
    }

    fn litd_dies(&self) {
        fs::remove_dir_all(self.path(&format!("proc/{PID}"))).unwrap();
    }

    fn job_begins(&self) {
        self.put("sys/class/kfd/kfd/proc/900/pasid", "32770");
    }

    fn set(&self, device: Device, watts: f64) {
        let micro = format!("{:.0}", watts * 1e6);
        match device {
            Device::Amd(gpu) => self.put(&format!("{}/power1_cap", Self::amd(gpu)), &micro),
            Device::Nvidia(gpu) => self.put(&format!("smi/limit{gpu}"), &format!("{watts:.2}")),
            Device::Rapl => self.put(
                "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw",
                &micro,
            ),
            Device::Hsmp => self.put("sys/class/hwmon/hwmon2/power1_cap", &micro),
        }
    }

    /// Exit status and what was said.
    fn check_with(&self, args: &[&str]) -> (i32, String) {
        self.check_by(&mut Command::new("sh"), args)
    }

    fn check_by(&self, shell: &mut Command, args: &[&str]) -> (i32, String) {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/check/litd-check");
        let output = shell
            .arg(program)
            .arg("--root")
            .arg(self.root.path())
            .arg("--stamp")
            .arg(self.path("stamp"))
            .arg("--nvidia-smi")
            .arg(self.path("smi/nvidia-smi"))
            .args(args)
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors, "");
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        (output.status.code().unwrap(), said)
    }

    fn check(&self) -> (i32, String) {
        self.check_with(&["--grace", "0"])
    }

    fn assert_stranded(&self, what: &[&str]) {
        let (code, said) = self.check();
        assert_eq!(code, 1, "{said}");
        for what in what {
            assert!(said.contains(what), "{what}: {said}");
        }
    }

    fn assert_well(&self) -> String {
        let (code, said) = self.check();
        assert_eq!(code, 0, "{said}");
        said
    }
}

// ---- ten states in which caps are stranded

#[test]
fn stranded_1_litd_was_killed_and_a_gpu_is_low() {
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Amd(1), 690.0);
    node.assert_stranded(&["0000:01:00.0 690 W, not 750 W", "litd is dead", "1 cap(s)"]);
}

#[test]
fn stranded_2_a_gpu_holds_more_than_was_found_by_one_watt() {
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Amd(0), 751.0);
    node.assert_stranded(&["0000:00:00.0 751 W, not 750 W"]);
}

#[test]
fn stranded_3_an_nvidia_gpu_is_low_and_litd_is_dead() {
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Nvidia(1), 655.5);
    node.assert_stranded(&["0000:81:00.0 655 W, not 700 W"]);
}

#[test]
fn stranded_4_a_cpu_socket_has_not_got_its_watts_back() {
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Rapl, 260.0);
    node.assert_stranded(&["cpu0 260 W, not 350 W"]);
}

#[test]
fn stranded_4_nor_what_it_may_draw_for_moments() {
    let node = Node::new();
    node.litd_dies();
    let short = |watts: u64| {
        let zone = "sys/class/powercap/intel-rapl:0";
        node.put(&format!("{zone}/constraint_1_name"), "short_term");
        let file = format!("{zone}/constraint_1_power_limit_uw");
        node.put(&file, &format!("{watts}000000"));
    };
    short(240);
    node.assert_well();
    let kept = "run/litd/devices/cpu0.short-term";
    node.put(
        kept,
        "350000000 420000000 200000000 240000000 260000000 312000000",
    );
    node.assert_stranded(&["cpu0 short-term 240 W, not 420 W", "1 cap(s)"]);
    short(420);
    node.assert_well();
    // Somebody else's, and a file that says nothing.
    short(400);
    node.assert_well();
    short(312);
    node.assert_stranded(&["cpu0 short-term 312 W"]);
    node.put(kept, "350000000 420000000 200000000");
    node.assert_well();
}

/// The other zone of the socket has the limits that were found, and says nothing of the one that litd has changed.
#[test]
fn stranded_4_nor_in_the_zone_in_which_litd_has_changed_it() {
    let node = Node::new();
    node.litd_dies();
    let zone = "sys/class/powercap/intel-rapl-mmio:0";
    node.put(&format!("{zone}/name"), "package-0");
    node.put(&format!("{zone}/constraint_0_name"), "long_term");
    let file = format!("{zone}/constraint_0_power_limit_uw");
    node.put(&file, "260000000");
    node.assert_well();
    node.put(
        "run/litd/devices/cpu0.short-term",
        "350000000 - 260000000 - 350000000 - intel-rapl-mmio",
    );
    node.assert_stranded(&["cpu0 260 W, not 350 W"]);
}

#[test]
fn stranded_4_a_die_is_found_by_its_name() {
    let node = Node::new();
    node.litd_dies();
    node.put("sys/class/powercap/intel-rapl:1/name", "package-0-die-1");
    node.put(
        "sys/class/powercap/intel-rapl:1/constraint_0_name",
        "long_term",
    );
    let file = "sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw";
    node.put(file, "260000000");
    node.put(
        "run/litd/baseline",
        &format!("litd-baseline 1\nboot {BOOT}\npid {PID} {BORN}\ndevice cpu cpu0-die1 350000000"),
    );
    node.assert_stranded(&["cpu0-die1 260 W, not 350 W"]);
}

#[test]
fn stranded_5_nor_has_one_that_is_reached_through_hsmp() {
    // The second socket is the second of the kernel's folders.
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Hsmp, 320.0);
    node.assert_stranded(&["cpu1 320 W, not 400 W"]);
    // The first one's folder is missing, and the second one's says nothing of which it is.
    node.put("sys/class/hwmon/hwmon1/name", "k10temp");
    let (status, said) = node.check();
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("cpu1"), "{said}");
}

#[test]
fn stranded_6_the_job_is_over_and_litd_has_not_noticed() {
    let node = Node::new();
    node.set(Device::Amd(0), 700.0);
    node.set(Device::Nvidia(0), 690.0);
    node.assert_stranded(&["2 cap(s)", "no job runs", "0000:00:00.0", "0000:80:00.0"]);
}

#[test]
fn stranded_7_litd_hangs_under_a_running_job() {
    let node = Node::new();
    node.job_begins();
    node.set(Device::Amd(0), 700.0);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    let file = fs::File::options()
        .append(true)
        .open(node.path("run/litd/baseline"))
        .unwrap();
    file.set_modified(old).unwrap();
    node.assert_stranded(&["litd is dead", "0000:00:00.0"]);
}

#[test]
fn stranded_8_another_process_has_its_number() {
    let node = Node::new();
    node.job_begins();
    node.litd_is("(a ) b (c) S", BORN + 1);
    node.set(Device::Amd(0), 700.0);
    node.assert_stranded(&["litd is dead"]);
}

#[test]
fn stranded_9_litd_is_a_corpse_that_nobody_has_buried() {
    let node = Node::new();
    node.job_begins();
    node.litd_is("(litd) Z", BORN);
    node.set(Device::Nvidia(0), 690.0);
    node.assert_stranded(&["litd is dead", "0000:80:00.0"]);
}

/// The baseline is gone, and the journal in this state directory names a GPU that is low.
fn stranded_by_journal(node: &Node, state: &str) {
    let _ = fs::remove_dir_all(node.path(&format!("proc/{PID}")));
    let _ = fs::remove_file(node.path("run/litd/baseline"));
    node.put(
        &format!("{state}/journal"),
        "{\"litd-journal\":{\"version\":1,\"boot\":\"b\"}} 00000000\n\
         {\"device\":{\"address\":\"0000:00:00.0\",\"boot\":\"b\",\"found_microwatts\":750000000,\"ours_microwatts\":[741000000]}} 00000000\n\
         {\"device\":{\"address\":\"0000:01:00.0\",\"boot\":\"b\",\"found_microwatts\":750000000,\"ours_microwatts\":[741000000]}} 00000000\n\
         {\"intent\":{\"address\":\"0000:00:00.0\",\"microwatts\":741000000}} 00000000\n\
         {\"released\":{\"address\":\"0000:01:00.0\"}} 00000000",
    );
    node.set(Device::Amd(0), 741.0);
    node.set(Device::Amd(1), 745.0);
    node.assert_stranded(&["1 cap(s)", "0000:00:00.0 741 W", "from the undo journal"]);
}

#[test]
fn stranded_10_the_baseline_is_gone_and_the_journal_tells() {
    stranded_by_journal(&Node::new(), "var/lib/litd");
}

#[test]
fn stranded_11_the_same_and_the_state_directory_is_elsewhere() {
    let node = Node::new();
    let locks = node.path("run/litd/devices");
    fs::create_dir_all(&locks).unwrap();
    let link = locks.join("0000:00:00.0.journal");
    std::os::unix::fs::symlink("/data/litd", link).unwrap();
    stranded_by_journal(&node, "data/litd");
}

/// What tells its start apart is not its name, which any process may give itself.
#[test]
fn stranded_12_another_process_has_the_number_in_the_lock_and_litds_name() {
    let node = Node::new();
    stranded_by_journal(&node, "var/lib/litd");
    node.put("var/lib/litd/lock", &format!("{PID} {BORN}"));
    node.litd_is("(litd) S", BORN + 1);
    node.job_begins();
    node.assert_stranded(&["litd is dead", "0000:00:00.0 741 W"]);
}

// ---- and states in which all is well

#[test]
fn all_as_found_is_well_whether_litd_lives_or_not() {
    let node = Node::new();
    node.assert_well();
    node.litd_dies();
    node.assert_well();
    // A driver's rounding is no other cap.
    node.set(Device::Rapl, 349.95);
    node.assert_well();
}

#[test]
fn a_living_litd_may_move_caps_of_a_job() {
    for nvidia in [false, true] {
        let node = Node::new();
        match nvidia {
            true => node.put("smi/apps", "12345"),
            false => node.job_begins(),
        }
        node.set(Device::Amd(0), 700.0);
        node.assert_well();
        // Unless the caller knows better.
        assert_eq!(node.check_with(&["--grace", "0", "--idle"]).0, 1);
    }
}

#[test]
fn a_budget_keeps_devices_lower_while_litd_lives() {
    let node = Node::new();
    node.baseline("budget\n");
    node.set(Device::Amd(0), 700.0);
    // How low a budget wants it this program does not know.
    assert!(node.assert_well().contains("1 are below"));
    node.litd_dies();
    node.assert_stranded(&["0000:00:00.0"]);
}

#[test]
fn what_is_left_within_a_safe_budget_is_well_without_litd() {
    let node = Node::new();
    node.baseline("budget\nhold 2850000000\n");
    node.set(Device::Amd(0), 700.0);
    node.litd_dies();
    assert!(node.assert_well().contains("1 are below"));
    node.set(Device::Amd(0), 760.0);
    node.assert_stranded(&["0000:00:00.0"]);
    // Nobody has lowered the GPUs since litd was killed.
    node.set(Device::Amd(0), 750.0);
    node.assert_stranded(&["all GPUs together 2900 W, above the safe budget of 2850 W"]);
    // A litd that told no number.
    node.baseline("budget\nhold\n");
    node.assert_well();
}

#[test]
fn without_litd_there_is_nothing_to_be_stranded() {
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Amd(0), 700.0);
    // The node was started anew.
    node.put("proc/sys/kernel/random/boot_id", "other");
    node.assert_well();
    node.put("proc/sys/kernel/random/boot_id", BOOT);
    // Never ran, or gave everything back.
    fs::remove_file(node.path("run/litd/baseline")).unwrap();
    node.assert_well();
    node.put("var/lib/litd/journal", "");
    node.assert_well();
}

#[test]
fn what_can_not_be_told_is_neither_well_nor_stranded() {
    let node = Node::new();
    node.litd_dies();
    node.smi("echo 'Unable to determine the device handle'; exit 255");
    let (code, said) = node.check();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("0000:80:00.0 0000:81:00.0"), "{said}");
    // A stranded one is told all the same.
    node.set(Device::Amd(0), 700.0);
    node.assert_stranded(&["0000:00:00.0"]);
    node.put("run/litd/baseline", "litd-baseline 2");
    assert_eq!(node.check().0, 2);
}

/// Without a baseline the undo journal tells; where it should be and can't be read, nobody does.
#[test]
fn without_a_baseline_a_journal_that_can_not_be_read_is_unknown() {
    let node = Node::new();
    node.litd_dies();
    fs::remove_file(node.path("run/litd/baseline")).unwrap();
    let is_unknown = |(code, said): (i32, String)| {
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("/journal can't be read"), "{said}");
    };
    // Devices remember two state directories, of which one is not there, not mounted, or empty.
    let locks = node.path("run/litd/devices");
    fs::create_dir_all(&locks).unwrap();
    for (device, state) in [("0000:00:00.0", "/data/one"), ("0000:01:00.0", "/data/two")] {
        let link = locks.join(format!("{device}.journal"));
        std::os::unix::fs::symlink(state, link).unwrap();
    }
    node.put("data/two/journal", "");
    is_unknown(node.check());
    fs::create_dir_all(node.path("data/one")).unwrap();
    is_unknown(node.check());
    // The one that can be read tells what is stranded all the same, whichever comes last.
    for state in ["data/one", "data/two"] {
        node.set(Device::Amd(0), 750.0);
        stranded_by_journal(&node, state);
        fs::write(node.path(&format!("{state}/journal")), "").unwrap();
    }
    node.assert_well();
}

/// Who may not read the journal can't say that nothing was moved.
#[test]
fn without_a_baseline_whoever_may_not_read_the_journal_knows_nothing() {
    let node = Node::new();
    node.litd_dies();
    fs::remove_file(node.path("run/litd/baseline")).unwrap();
    node.put("var/lib/litd/journal", "");
    let allow = |path: &str, mode: u32| {
        fs::set_permissions(node.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o777);
    allow("var/lib/litd", 0o700);
    if fs::metadata(node.path("")).unwrap().uid() != 0 {
        return eprintln!("SKIPPED: only root can be another user");
    }
    let (code, said) = node.check_by(Command::new("sh").uid(61_001), &["--grace", "0"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("run this as root"), "{said}");
    node.assert_well();
}

/// Without a baseline nobody knows what it has found, nor whether its loop turns.
#[test]
fn a_litd_that_lives_and_tells_no_baseline_is_not_well() {
    let node = Node::new();
    fs::remove_file(node.path("run/litd/baseline")).unwrap();
    node.assert_well();
    node.put("var/lib/litd/lock", &format!("{PID} {BORN}"));
    let is_untold = || {
        let (code, said) = node.check();
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("run/litd/baseline, by which"), "{said}");
    };
    is_untold();
    node.put(
        "var/lib/litd/journal",
        "{\"device\":{\"address\":\"0000:00:00.0\",\"boot\":\"b\",\"found_microwatts\":750000000,\"ours_microwatts\":[]}} 0",
    );
    is_untold();
    node.job_begins();
    is_untold();
    // What is stranded is told all the same.
    node.set(Device::Amd(0), 741.0);
    assert_eq!(node.check_with(&["--grace", "0", "--idle"]).0, 1);
    node.litd_dies();
    node.assert_stranded(&["litd is dead"]);
}

#[test]
fn it_waits_for_a_daemon_that_is_being_started_again() {
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Amd(0), 700.0);
    let (code, said) = node.check_with(&["--grace", "100"]);
    assert!(code == 0 && said.starts_with("waiting: 1 cap(s)"), "{said}");
    node.up(5_099);
    assert_eq!(node.check_with(&["--grace", "100"]).0, 0);
    // It has lasted for too long.
    node.up(5_100);
    assert_eq!(node.check_with(&["--grace", "100"]).0, 1);
    // Once it is well it begins anew.
    node.set(Device::Amd(0), 750.0);
    assert_eq!(node.check_with(&["--grace", "100"]).0, 0);
    assert!(!node.path("stamp").exists());
}

/// A node that Slurm has drained stays so while nobody can tell whether its cap is right again.
#[test]
fn one_look_that_tells_nothing_brings_no_node_back() {
    let node = Node::new();
    node.put("state", "State=IDLE");
    let state = node.path("state");
    let state = state.display();
    for (name, text) in [
        ("logger", "exit 0".to_owned()),
        (
            "scontrol",
            format!(
                "case \"$*\" in\n\"show node\"*) cat {state} ;;\n\
                 *DRAIN*) echo \"State=DRAIN ${{4:-}} $*\" > {state} ;;\n\
                 *RESUME*) echo State=IDLE > {state} ;;\nesac"
            ),
        ),
    ] {
        node.put(&format!("bin/{name}"), &format!("#!/bin/sh\n{text}"));
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(node.path(&format!("bin/{name}")), executable).unwrap();
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = here.join("deploy/check/litd-check");
    let root = node.root.path().display().to_string();
    let asks = format!(
        "{} --root {root} --grace 100 --stamp {root}/stamp --nvidia-smi {root}/smi/nvidia-smi",
        program.display()
    );
    let script = fs::read_to_string(here.join("fleet/slurm/health-check")).unwrap();
    let install = |check: &str| {
        let script = script.replace("/usr/sbin/litd-check", check);
        node.put("health-check", &script);
    };
    install(&asks);
    let is_drained = |up: u64| {
        node.up(up);
        let path = format!("{root}/bin:{}", std::env::var("PATH").unwrap());
        let mut health_check = Command::new("sh");
        health_check
            .arg(node.path("health-check"))
            .env("PATH", path);
        assert!(health_check.status().unwrap().success());
        let state = fs::read_to_string(node.path("state")).unwrap();
        state.contains("Reason=litd")
    };
    node.litd_dies();
    node.set(Device::Amd(0), 700.0);
    assert!(!is_drained(5_000));
    assert!(is_drained(5_100));
    let cap = format!("{}/power1_cap", Node::amd(0));
    node.put(&cap, "");
    assert!(is_drained(5_160));
    node.set(Device::Amd(0), 700.0);
    assert!(is_drained(5_161));
    // Even where it begins to wait anew.
    fs::remove_file(node.path("stamp")).unwrap();
    assert!(is_drained(5_162));
    node.set(Device::Amd(0), 750.0);
    assert!(!is_drained(5_163));
    // litd-check is not installed, or does not get to its end.
    for check in [
        "/nowhere/litd-check",
        "/dev/null",
        "sh -c 'exit 12'",
        "sh -c 'kill -9 $$'",
    ] {
        install(check);
        assert!(!is_drained(5_200), "{check}");
    }
}

#[test]
fn a_stamp_that_can_not_be_is_waited_for_once_more_and_no_longer() {
    let node = Node::new();
    node.litd_dies();
    node.set(Device::Amd(0), 700.0);
    // From a time to come: of another boot, or by a wall clock that was set back since.
    node.put("stamp", "1764200000");
    assert_eq!(node.check_with(&["--grace", "100"]).0, 0);
    node.up(5_100);
    assert_eq!(node.check_with(&["--grace", "100"]).0, 1);
    // Where nothing tells how long the node has been up, nothing is waited for.
    fs::remove_file(node.path("proc/uptime")).unwrap();
    assert_eq!(node.check_with(&["--grace", "100"]).0, 1);
}

#[test]
fn it_is_posix_and_explains_itself() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/check/litd-check");
    let help = Command::new("sh").arg(&program).arg("--help").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("--grace") && !help.contains('#'), "{help}");
    let bad = Command::new("sh").arg(&program).arg("--nope").output();
    assert_eq!(bad.unwrap().status.code(), Some(2));
    let problem_detector =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/node-problem-detector/litd.json");
    let text = fs::read_to_string(problem_detector).unwrap();
    let plugin: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plugin["plugin"], "custom");
    assert_eq!(
        plugin["rules"][0]["condition"],
        plugin["conditions"][0]["type"]
    );
}
