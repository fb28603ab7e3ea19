//! CPU sockets in plain files, as powercap shows them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use litd::audit::AuditFiles;
use litd::state::FileStore;
use litd_core::journal::Journal;
use litd_power::{Search, powercap};
use litd_rig::{Daemon, Layout, default_config};
use litd_units::Watts;
use tempfile::TempDir;

use crate::control::ask;
use crate::stand::{LITD, wait_for};

const LONG: &str = "constraint_0_power_limit_uw";
const SHORT: &str = "constraint_1_power_limit_uw";

/// A node with one CPU socket.
struct Node {
    root: TempDir,
    config: String,
}

impl Node {
    /// Its long-term limit is 350 W.
    fn new(short: f64) -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["dev", "proc"] {
            fs::create_dir_all(root.path().join(name)).unwrap();
        }
        let cpuinfo = root.path().join("proc/cpuinfo");
        fs::write(cpuinfo, "vendor_id\t: GenuineIntel\n").unwrap();
        let at = root.path().display();
        let extra = format!(
            "mode = \"observe\"\n[hardware]\nsys = \"{at}/sys\"\ndev = \"{at}/dev\"\nproc = \"{at}/proc\"\n\
             nvml_library = \"{at}/no.so\"\n"
        );
        let config = default_config(root.path(), &extra);
        let node = Self { root, config };
        let short = format!("{:.0}", short * 1e6);
        fs::create_dir_all(node.zone()).unwrap();
        for (name, text) in [
            ("name", "package-0"),
            ("enabled", "1"),
            ("energy_uj", "1000000000"),
            ("max_energy_range_uj", "262143328850"),
            ("constraint_0_name", "long_term"),
            (LONG, "350000000"),
            ("constraint_0_max_power_uw", "350000000"),
            ("constraint_1_name", "short_term"),
            (SHORT, &short),
            ("constraint_1_max_power_uw", "700000000"),
        ] {
            fs::write(node.zone().join(name), format!("{text}\n")).unwrap();
        }
        node
    }

    fn zone(&self) -> PathBuf {
        self.root.path().join("sys/class/powercap/intel-rapl:0")
    }

    fn layout(&self) -> Layout {
        Layout::new(self.root.path())
    }

    /// The long-term and the short-term limit, in watts.
    fn limits(&self) -> (f64, f64) {
        let watts = |name: &str| {
            let text = fs::read_to_string(self.zone().join(name)).unwrap();
            // A plain file keeps what a shorter value does not overwrite.
            let line = text.lines().next().unwrap_or_default();
            line.parse::<f64>().unwrap() / 1e6
        };
        (watts(LONG), watts(SHORT))
    }

    fn start(&self) -> Daemon {
        Daemon::spawn(Path::new(LITD), self.root.path(), &self.config, None).unwrap()
    }

    /// `litd restore`: its exit code, and what it says.
    fn restore(&self) -> (Option<i32>, String) {
        fs::write(self.layout().config(), &self.config).unwrap();
        let restored = Command::new(LITD)
            .args(["restore", "--config"])
            .arg(self.layout().config())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&restored.stderr).into_owned();
        (restored.status.code(), said)
    }

    /// With both limits back nothing is kept for anybody.
    fn keeps_nothing(&self) -> bool {
        !self.layout().locks().join("cpu0.short-term").exists()
    }

    /// A litd has set the socket to these caps by hand, one after the other, and was killed.
    fn overridden(&self, caps: &[f64]) {
        let locks = self.layout().locks();
        fs::create_dir_all(&locks).unwrap();
        let mut found = self.discover(locks);
        for &cap in caps {
            found.domains[0].set_cap(Watts(cap)).unwrap();
            assert_eq!(self.limits().0, cap);
        }
    }

    fn discover(&self, locks: PathBuf) -> litd_power::Inventory {
        powercap::discover(&Search {
            sys: self.root.path().join("sys"),
            proc: self.root.path().join("proc"),
            kept: Some(locks),
            ..Search::default()
        })
    }

    /// A litd has lowered the socket for a loop, and was killed.
    fn crash(&self, cap: Watts) {
        let (state, locks) = (self.layout().state(), self.layout().locks());
        for directory in [&state, &locks] {
            fs::create_dir_all(directory).unwrap();
        }
        let audit = AuditFiles::new(&state.join("audit"), "", 1 << 20, 2);
        let mut store = FileStore::new(&state, audit);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let (mut journal, _) = Journal::open(&mut store, boot.trim()).unwrap();
        journal
            .begin(&mut store, "cpu0", None, Watts(350.0))
            .unwrap();
        journal.intend(&mut store, &[("cpu0", cap)]).unwrap();
        self.discover(locks).domains[0].set_cap(cap).unwrap();
        // As the register has it.
        let short = (self.limits().1 * 8.0).floor() * 125_000.0;
        fs::write(self.zone().join(SHORT), format!("{short:.0}\n")).unwrap();
    }
}

/// litd was killed between the two writes of an override, which no journal names.
#[test]
fn a_short_term_limit_of_an_override_goes_back_by_restore() {
    let node = Node::new(900.0);
    node.overridden(&[200.0]);
    fs::write(node.zone().join(LONG), "350000000\n").unwrap();
    assert!(node.limits().1 < 900.0);
    let (code, said) = node.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(node.limits(), (350.0, 900.0));
    assert!(node.keeps_nothing());
}

/// litd was killed between the two writes of an override that raises both limits.
#[test]
fn the_short_term_limit_of_an_override_is_raised_by_restore() {
    let node = Node::new(900.0);
    node.overridden(&[200.0]);
    let before = fs::read(node.zone().join(SHORT)).unwrap();
    node.overridden(&[300.0]);
    let (_, whole) = node.limits();
    fs::write(node.zone().join(SHORT), before).unwrap();
    assert!(node.limits().1 < whole);
    let (code, said) = node.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(node.limits(), (300.0, whole));
}

/// Whoever only looks restores nothing, and leaves the record to those who do.
#[test]
fn commands_that_only_read_write_no_limit() {
    let node = Node::new(900.0);
    node.overridden(&[200.0]);
    fs::write(node.zone().join(LONG), "350000000\n").unwrap();
    let before = node.limits();
    let config = node.config.clone() + "[caps]\nbudget = 4000.0\n";
    fs::write(node.layout().config(), config).unwrap();
    for arguments in [&["--check-config"][..], &["qualify", "--dry-run"]] {
        let read = Command::new(LITD)
            .args(arguments)
            .arg("--config")
            .arg(node.layout().config())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&read.stderr);
        assert_eq!(node.limits(), before, "{arguments:?}: {said}");
        assert!(!node.keeps_nothing(), "{arguments:?}: {said}");
    }
    assert_eq!(node.restore().0, Some(0));
    assert_eq!(node.limits(), (350.0, 900.0));
}

/// A socket that can't be read keeps litd's short-term limit, which no journal names.
#[test]
fn a_short_term_limit_that_stays_lowered_is_told_of() {
    let node = Node::new(900.0);
    node.overridden(&[200.0]);
    fs::write(node.zone().join(LONG), "no number\n").unwrap();
    let (code, said) = node.restore();
    assert_ne!(code, Some(0), "{said}");
    assert!(
        said.contains("the short-term limit of cpu0 is not restored"),
        "{said}"
    );
    fs::write(node.zone().join(LONG), "350000000\n").unwrap();
    let (code, said) = node.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(node.limits(), (350.0, 900.0));
}

#[test]
fn the_short_term_limit_that_was_found_is_known_after_a_crash() {
    let node = Node::new(900.0);
    let set = |watts: f64| {
        let body = format!("{{\"command\":\"set_cap\",\"device\":\"cpu0\",\"watts\":{watts}}}");
        let control = node.layout().control();
        // A daemon that has just started has yet to read the socket a second time.
        wait_for("a cap by hand", || {
            ask(&control, "POST", "/v1/command", &body).unwrap().0 == 200
        });
    };
    let daemon = node.start();
    set(200.0);
    let (long, short) = node.limits();
    assert_eq!((long, short.round()), (200.0, 514.0));
    daemon.kill();
    let daemon = node.start();
    set(350.0);
    assert_eq!(node.limits(), (350.0, 900.0));
    daemon.terminate().unwrap();
    assert_eq!(node.limits(), (350.0, 900.0));
    assert!(node.keeps_nothing());
}

#[test]
fn both_limits_of_a_cpu_socket_go_back_exactly_after_a_crash() {
    for (short, lowered, by_restore) in [
        (420.0, 173.0, true),
        (420.0, 173.0, false),
        (900.0, 200.0, true),
        (300.0, 260.0, false),
    ] {
        let node = Node::new(short);
        node.crash(Watts(lowered));
        assert_eq!(node.limits().0, lowered);
        assert!(!node.keeps_nothing());
        if by_restore {
            let (code, said) = node.restore();
            assert_eq!(code, Some(0), "{said}");
        } else {
            let daemon = node.start();
            wait_for("the cap back", || node.limits().0 == 350.0);
            daemon.terminate().unwrap();
        }
        assert_eq!(node.limits(), (350.0, short));
        assert!(node.keeps_nothing());
    }
}
