//! Messages where NVML itself is missing, broken, or without a driver.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use litd_power::{Notice, Search, Severity, nvml};
use litd_rig::Rig;
use litd_rig_nvml::code;

use super::{gpus, search};
use crate::common::rig;

/// The only notice of a search that finds no GPU.
fn notice(search: &Search) -> Notice {
    let found = nvml::discover(search);
    assert!(found.domains.is_empty(), "{found:?}");
    let [notice] = &found.notices[..] else {
        panic!("{found:?}");
    };
    notice.clone()
}

#[test]
fn no_library_on_a_node_without_nvidia_gpus_is_nothing_to_worry_about() {
    let rig = rig();
    for library in ["libno-such-nvml.so.1", "/nowhere/libnvidia-ml.so.1"] {
        let notice = notice(&search(&rig, Path::new(library)));
        assert_eq!(notice.severity, Severity::Info, "{notice}");
        assert_eq!(notice.subject, library);
        assert_eq!(notice.remedy, None);
    }
}

#[test]
fn no_library_on_a_node_with_nvidia_gpus_is_an_error_that_names_them() {
    let rig = rig();
    let search = search(&rig, Path::new("libno-such-nvml.so.1"));
    for (address, vendor, class) in [
        ("0000:85:00.0", "0x10de", "0x030200"),
        ("0000:86:00.0", "0x10de", "0x040300"),
        ("0000:87:00.0", "0x1002", "0x030200"),
    ] {
        let device = search.sys.join("bus/pci/devices").join(address);
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(device.join("class"), format!("{class}\n")).unwrap();
    }
    let notice = notice(&search);
    assert_eq!(notice.severity, Severity::Error);
    assert_eq!(
        notice.text,
        "not installed, and NVIDIA GPUs are: 0000:85:00.0"
    );
    assert!(notice.remedy.is_some());
}

/// The back end's message if `nvmlInit` returns `code`.
fn refused(rig: &Rig, code: u32) -> String {
    rig.hardware().nvidia_mut().refuses = Some(code);
    let library = rig.install_nvml().unwrap();
    let notice = notice(&search(rig, &library));
    assert_eq!(notice.severity, Severity::Error);
    assert!(notice.remedy.is_some());
    notice.text
}

#[test]
fn a_driver_that_gives_no_session_is_an_error_with_a_remedy() {
    let rig = rig();
    let text = refused(&rig, code::DRIVER_NOT_LOADED);
    assert_eq!(text, "driver not loaded");
    let text = refused(&rig, code::LIB_RM_VERSION_MISMATCH);
    assert_eq!(
        text,
        "the library's version is not that of the loaded driver"
    );
    let text = refused(&rig, code::OPERATING_SYSTEM);
    assert_eq!(text, "the system or its cgroup denies the device");
    assert!(refused(&rig, code::NO_PERMISSION).contains("permission"));
    assert_eq!(refused(&rig, 12_345), "does not start: NVML error 12345");
    rig.hardware().nvidia_mut().refuses = None;
    assert_eq!(gpus(&rig).len(), 8);
}

#[test]
fn without_its_node_the_stand_in_has_no_driver() {
    let mut rig = rig();
    rig.unload();
    let library = rig.install_nvml().unwrap();
    assert_eq!(notice(&search(&rig, &library)).text, "driver not loaded");
}

#[test]
fn another_tool_that_sets_power_limits_is_named() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    let search = search(&rig, &library);
    let process = search.proc.join("4711");
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("comm"), "nv-hostengine\n").unwrap();
    let found = nvml::discover(&search);
    // Finding GPUs reads no process's name.
    assert_eq!(found.notices, []);
    let notices = litd_power::other_tools(&search.proc, ["nvml"; 8].into_iter());
    let [notice] = &notices[..] else {
        panic!("{notices:?}");
    };
    assert_eq!(notice.severity, Severity::Warning);
    assert_eq!(notice.subject, "nv-hostengine");
    assert_eq!(found.domains.len(), 8);
}

/// Has the C compiler make a library of `source`.
fn compile(directory: &Path, source: &str) -> Option<PathBuf> {
    compile_beside(directory, source, None)
}

/// The same, where the library needs another.
fn compile_beside(directory: &Path, source: &str, needs: Option<&Path>) -> Option<PathBuf> {
    let (text, library) = (directory.join("broken.c"), directory.join("broken.so"));
    fs::write(&text, source).unwrap();
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([library.as_os_str(), text.as_os_str()])
        .arg("-Wl,--no-as-needed")
        .args(needs)
        .status();
    match compiler {
        Ok(status) if status.success() => Some(library),
        _ => {
            eprintln!("SKIPPED: there is no C compiler `cc`");
            None
        }
    }
}

#[test]
fn a_library_that_hangs_when_it_is_loaded_costs_its_gpus_only() {
    let rig = rig();
    let hangs = "#include <unistd.h>\n\
                 __attribute__((constructor)) static void hang(void) { for (;;) pause(); }";
    let Some(library) = compile(&rig.layout().directory, hangs) else {
        return;
    };
    let patience = Duration::from_millis(300);
    let search = Search {
        sys: rig.install_nvidia_bus().unwrap(),
        ..search(&rig, &library)
    };
    let found = nvml::discover_within(&search, patience);
    let notice = &found.notices[0];
    assert_eq!(notice.severity, Severity::Error);
    assert_eq!(notice.text, "does not load within 0.3 s");
    // The bus shows them, so that they count in a budget.
    assert_eq!(found.domains.len(), 8);
    // The dynamic linker's lock is free: other libraries load.
    assert_eq!(gpus(&rig).len(), 8);
}

/// As from a cold disk or a network root at boot.
#[test]
fn gpus_join_once_a_library_that_loads_slowly_is_loaded() {
    let rig = rig();
    let directory = &rig.layout().directory;
    let (real, marker) = (rig.install_nvml().unwrap(), directory.join("slow"));
    fs::write(&marker, "").unwrap();
    let source = format!(
        "#include <unistd.h>\n\
         __attribute__((constructor)) static void wait_for_disk(void) {{\n\
             while (access({marker:?}, F_OK) == 0) usleep(10000);\n\
         }}",
    );
    let Some(library) = compile_beside(directory, &source, Some(&real)) else {
        return;
    };
    let search = Search {
        sys: rig.install_nvidia_bus().unwrap(),
        ..search(&rig, &library)
    };
    let mut found = nvml::discover_within(&search, Duration::from_millis(300));
    assert_eq!(found.notices[0].text, "does not load within 0.3 s");
    assert_eq!(found.domains.len(), 8);
    fs::remove_file(&marker).unwrap();
    for (gpu, domain) in found.domains.iter_mut().enumerate() {
        assert_eq!(domain.cap().unwrap(), rig.ledger().held()[gpu]);
        assert!(domain.range().unwrap().highest > domain.cap().unwrap() * 0.5);
    }
}

#[test]
fn a_library_that_crashes_when_it_is_loaded_crashes_a_process_of_its_own() {
    let rig = rig();
    let crashes = "#include <stdlib.h>\n\
                   __attribute__((constructor)) static void crash(void) { abort(); }";
    let Some(library) = compile(&rig.layout().directory, crashes) else {
        return;
    };
    let notice = notice(&search(&rig, &library));
    assert_eq!(notice.severity, Severity::Error);
    assert_eq!(notice.text, "crashes when it is loaded (signal 6)");
}

#[test]
fn what_is_no_nvml_is_an_error() {
    let rig = rig();
    let directory = &rig.layout().directory;
    let text = directory.join("text.so");
    fs::write(&text, "no library at all").unwrap();
    assert_eq!(notice(&search(&rig, &text)).severity, Severity::Error);
    let Some(library) = compile(directory, "int nothing;") else {
        return;
    };
    let notice = notice(&search(&rig, &library));
    assert_eq!(notice.severity, Severity::Error);
    assert!(notice.text.contains("nvmlInit"), "{notice}");
}

/// A file of this name below a directory.
fn find(directory: &Path, name: &OsStr) -> Option<PathBuf> {
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        let found = match path.is_dir() {
            true => find(&path, name),
            false => (path.file_name() == Some(name)).then_some(path),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// NVIDIA's own library, from Debian's package, which `.ci/run` unpacks.
#[test]
fn the_real_library_says_that_its_driver_is_not_loaded() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/libnvidia-ml1");
    if Path::new("/proc/driver/nvidia").exists() {
        eprintln!("SKIPPED: the driver is loaded");
        return;
    }
    let Some(library) = find(&tools, OsStr::new("libnvidia-ml.so.1")) else {
        eprintln!("SKIPPED: no libnvidia-ml.so.1 below {}", tools.display());
        return;
    };
    let notice = notice(&search(&rig(), &library));
    assert_eq!(notice.severity, Severity::Error);
    assert_eq!(notice.text, "driver not loaded");
    assert!(notice.remedy.unwrap().contains("modprobe nvidia"));
}

/// Reads only: never is anything set on hardware that a test happens to find.
#[test]
fn a_real_gpu_reads_sensibly() {
    if !Path::new("/proc/driver/nvidia").exists() {
        eprintln!("SKIPPED: there is no NVIDIA driver");
        return;
    }
    let found = nvml::discover(&Search::default());
    eprintln!("{found:#?}");
    for mut gpu in found.domains {
        let (range, reading) = (gpu.range().unwrap(), gpu.read().unwrap());
        eprintln!("{range:?} {reading:?} {:?}", gpu.holders());
        assert!(range.lowest <= reading.cap && reading.cap <= range.highest);
        assert!(range.lowest <= range.default && range.default <= range.highest);
        gpu.release();
        assert!(gpu.cap().unwrap().is_same_cap(reading.cap));
    }
}
