//! CPU sockets in plain files, as powercap shows them.

use std::fs;
use std::path::Path;

use litd_rig::{Daemon, Layout, default_config};

use crate::control::ask;
use crate::stand::LITD;

const LONG: &str = "constraint_0_power_limit_uw";
const SHORT: &str = "constraint_1_power_limit_uw";

fn socket(zone: &Path) {
    fs::create_dir_all(zone).unwrap();
    for (name, text) in [
        ("name", "package-0"),
        ("enabled", "1"),
        ("energy_uj", "1000000000"),
        ("max_energy_range_uj", "262143328850"),
        ("constraint_0_name", "long_term"),
        (LONG, "350000000"),
        ("constraint_0_max_power_uw", "350000000"),
        ("constraint_1_name", "short_term"),
        (SHORT, "900000000"),
        ("constraint_1_max_power_uw", "700000000"),
    ] {
        fs::write(zone.join(name), format!("{text}\n")).unwrap();
    }
}

#[test]
fn the_short_term_limit_that_was_found_is_known_after_a_crash() {
    let root = tempfile::tempdir().unwrap();
    let zone = root.path().join("sys/class/powercap/intel-rapl:0");
    socket(&zone);
    for name in ["dev", "proc"] {
        fs::create_dir_all(root.path().join(name)).unwrap();
    }
    let cpuinfo = root.path().join("proc/cpuinfo");
    fs::write(cpuinfo, "vendor_id\t: GenuineIntel\n").unwrap();
    let watts = |name: &str| {
        let text = fs::read_to_string(zone.join(name)).unwrap();
        // A plain file keeps what a shorter value does not overwrite.
        let line = text.lines().next().unwrap_or_default();
        line.parse::<f64>().unwrap() / 1e6
    };
    let at = root.path().display();
    let extra = format!(
        "mode = \"observe\"\n[hardware]\nsys = \"{at}/sys\"\ndev = \"{at}/dev\"\nproc = \"{at}/proc\"\n\
         nvml_library = \"{at}/no.so\"\n"
    );
    let config = default_config(root.path(), &extra);
    let start = || Daemon::spawn(Path::new(LITD), root.path(), &config, None).unwrap();
    let layout = Layout::new(root.path());
    let set = |watts: f64| {
        let body = format!("{{\"command\":\"set_cap\",\"device\":\"cpu0\",\"watts\":{watts}}}");
        let answer = ask(&layout.control(), "POST", "/v1/command", &body).unwrap();
        assert_eq!(answer.0, 200, "{}", answer.1);
    };
    let daemon = start();
    set(200.0);
    assert_eq!((watts(LONG), watts(SHORT).round()), (200.0, 514.0));
    daemon.kill();
    let daemon = start();
    set(350.0);
    assert_eq!((watts(LONG), watts(SHORT)), (350.0, 900.0));
    daemon.terminate().unwrap();
    assert_eq!((watts(LONG), watts(SHORT)), (350.0, 900.0));
    // With both limits back nothing is kept for anybody.
    assert!(!layout.locks().join("cpu0.short-term").exists());
}
