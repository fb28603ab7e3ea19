//! Faults of a stand-in library, and of a program that is not litd.

use std::fs;
use std::path::Path;

use litd_power::{AmdBackEnd, Inventory, PowerError, Search, Sharing, rocm_smi};
use litd_units::{Celsius, Watts};

use super::node::{self, LITD};
use super::read;
use super::stand_in::{self, Library};

/// The library's two GPUs; the second of them has two partitions.
fn discover(library: &Library, program: &Path) -> Inventory {
    let found = rocm_smi::discover(&node::search(&library.path(), program));
    let addresses = found.domains.iter().map(|gpu| &*gpu.identity().address);
    let addresses: Vec<&str> = addresses.collect();
    assert_eq!(addresses, ["0000:05:00.0", "0000:26:00.0"], "{found:?}");
    found
}

#[test]
fn a_newer_library_tells_power_otherwise_and_has_partitions() {
    let library = Library::build();
    let mut found = discover(&library, Path::new(LITD));
    let gpu = &mut found.domains[1];
    assert_eq!(gpu.identity().model, "Instinct 1");
    assert_eq!(gpu.identity().sharing, Sharing::Whole);
    let reading = read(gpu).unwrap();
    assert_eq!(reading.power, Some(Watts(321.5)));
    // Neither a junction nor an energy that is a number.
    assert_eq!(reading.temperature, Some(Celsius(61.0)));
    assert_eq!(reading.slowdown, Some(Celsius(95.0)));
    assert_eq!(reading.energy, None);
    // No default is told: the highest.
    assert_eq!(gpu.range().unwrap().default, Watts(750.0));
}

/// What a fault of the first GPU costs: the error of its first call, none of the second GPU.
fn cost(fault: &str) -> (PowerError, Inventory, Library) {
    let library = Library::build();
    let mut found = discover(&library, Path::new(LITD));
    for gpu in &mut found.domains {
        read(gpu).unwrap();
    }
    library.fail(0, fault);
    let error = read(&mut found.domains[0]).unwrap_err();
    read(&mut found.domains[1]).unwrap();
    library.fail(0, "");
    (error, found, library)
}

#[test]
fn a_call_that_never_ends_is_a_timeout_and_the_next_one_is_answered() {
    let (error, mut found, _library) = cost("hang");
    assert!(matches!(error, PowerError::Timeout { .. }), "{error}");
    read(&mut found.domains[0]).unwrap();
}

#[test]
fn a_crash_is_one_error_that_names_the_signal() {
    let (error, mut found, _library) = cost("segfault");
    assert!(error.to_string().contains("SIGSEGV"), "{error}");
    read(&mut found.domains[0]).unwrap();
}

#[test]
fn an_exit_of_the_library_is_one_error_that_names_the_status() {
    let (error, mut found, _library) = cost("exit");
    assert!(error.to_string().contains("status 3"), "{error}");
    read(&mut found.domains[0]).unwrap();
}

#[test]
fn what_the_library_refuses_is_an_error_of_its_kind() {
    for (fault, kind, word) in [
        ("busy", "driver", "mutex"),
        ("permission", "permission", "root"),
        // Its folder in sysfs is not there either.
        ("unsupported", "gone", "not supported"),
    ] {
        let (error, mut found, _library) = cost(fault);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        read(&mut found.domains[0]).unwrap();
    }
}

#[test]
fn a_slow_call_and_a_library_that_talks_are_no_faults() {
    let library = Library::build();
    let mut found = discover(&library, Path::new(LITD));
    for fault in ["slow", "chatter"] {
        library.fail(0, fault);
        read(&mut found.domains[0]).unwrap();
    }
}

#[test]
fn a_library_that_keeps_crashing_is_not_started_again_at_once() {
    let library = Library::build();
    let mut found = discover(&library, Path::new(LITD));
    library.fail(0, "segfault");
    let mut errors = (0..3).map(|_| read(&mut found.domains[0]).unwrap_err().to_string());
    // The first crash waits for nothing, since one is as good as none.
    for _ in 0..2 {
        let error = errors.next().unwrap();
        assert!(!error.contains("started again in"), "{error}");
    }
    let error = errors.next().unwrap();
    assert!(error.contains("started again in"), "{error}");
    assert!(error.contains("SIGSEGV"), "{error}");
}

#[test]
fn a_gpu_that_is_back_is_used_at_once_however_long_it_was_gone() {
    let library = Library::build();
    let mut found = discover(&library, Path::new(LITD));
    library.fail(0, "unsupported");
    for _ in 0..4 {
        assert_eq!(read(&mut found.domains[0]).unwrap_err().kind(), "gone");
    }
    library.fail(0, "");
    read(&mut found.domains[0]).unwrap();
}

/// The error of a GPU whose process says `script`'s output instead, once it is started anew.
fn answered_by(script: &str) -> PowerError {
    let library = Library::build();
    let (program, switch) = library.program(script);
    let mut found = discover(&library, &program);
    fs::write(&switch, "").unwrap();
    let error = read(&mut found.domains[0]).unwrap_err();
    fs::remove_file(&switch).unwrap();
    read(&mut found.domains[0]).unwrap();
    error
}

const READY: &str = r#"echo '{"number":0,"body":"ready"}' >&0; read request"#;

#[test]
fn nonsense_is_one_error() {
    for (script, word) in [
        ("echo rubbish >&0; sleep 60", "rubbish"),
        (
            &*format!("{READY}; echo '{{\"number\":7,\"body\":{{\"cap\":1}}}}' >&0; sleep 60"),
            "answer 7 to question 1",
        ),
        (
            &*format!("{READY}; echo '{{\"number\":1,\"body\":{{\"cap\":1}}}}' >&0; sleep 60"),
            "another question",
        ),
        (
            &*format!("{READY}; head -c 100000 /dev/zero >&0; sleep 60"),
            "more than",
        ),
        ("exit 7", "status 7"),
    ] {
        let error = answered_by(script).to_string();
        assert!(error.contains(word), "{script}: {error}");
    }
}

#[test]
fn a_trickle_of_bytes_does_not_move_the_deadline() {
    let script = format!("{READY}; while printf x >&0; do sleep 0.2; done");
    let error = answered_by(&script);
    assert!(matches!(error, PowerError::Timeout { .. }), "{error}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let library = Library::build();
    let search = node::search(&library.path(), Path::new("/no/such/litd"));
    let found = rocm_smi::discover(&search);
    assert!(found.domains.is_empty());
    let text = found.notices[0].to_string();
    assert!(text.contains("/no/such/litd"), "{text}");
}

/// Structures of another version would be misread.
#[test]
fn an_amd_smi_of_an_unknown_version_is_refused_with_those_that_are_known() {
    let folder = tempfile::tempdir().unwrap();
    for (version, reason) in [
        (25, "version 25; litd knows 26 and 27"),
        (28, "version 28; litd knows 26 and 27"),
        // A known one: what this one lacks is missed next.
        (27, "no amdsmi_init"),
    ] {
        let search = Search {
            amd: AmdBackEnd::AmdSmi,
            amd_smi_library: stand_in::amd_smi_of(version, folder.path()),
            ..node::search(Path::new("none"), LITD.as_ref())
        };
        let found = rocm_smi::discover(&search);
        assert!(found.domains.is_empty(), "{version}");
        let text = found.notices[0].to_string();
        assert!(text.contains(reason), "{text}");
        assert!(text.contains("amd_smi_library"), "{text}");
        assert!(text.contains("libamd-smi27"), "{text}");
    }
}
