//! The committed bindings are what bindgen makes of the installed header.
//!
//! `LITD_REGENERATE=1 cargo test -p litd-bindings` writes them anew.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::{env, fs, panic};

const HEADER: &str = "/usr/include/rocm_smi/rocm_smi.h";
/// Debian's package of the header, whose version the first line of the bindings names.
const PACKAGE: &str = "librocm-smi-dev";
const BINDINGS: &str = "src/rocm_smi/ffi.rs";

/// Scalars and strings only: rsmi_frequencies_t and rsmi_gpu_metrics_t differ between releases
/// of the library that call themselves by the same name.
const FUNCTIONS: [&str; 15] = [
    "rsmi_init",
    "rsmi_shut_down",
    "rsmi_num_monitor_devices",
    "rsmi_dev_pci_id_get",
    "rsmi_dev_unique_id_get",
    "rsmi_dev_serial_number_get",
    "rsmi_dev_name_get",
    "rsmi_dev_power_ave_get",
    "rsmi_dev_power_cap_get",
    "rsmi_dev_power_cap_default_get",
    "rsmi_dev_power_cap_range_get",
    "rsmi_dev_power_cap_set",
    "rsmi_dev_energy_count_get",
    "rsmi_dev_temp_metric_get",
    "rsmi_version_str_get",
];

/// Types that no function names.
const TYPES: [&str; 2] = ["rsmi_init_flags_t", "rsmi_temperature_type_t"];

fn generate(version: &str) -> String {
    let note = format!("// Made from rocm_smi.h of {PACKAGE} {version} by tests/generated.rs.");
    let builder = bindgen::Builder::default()
        .header(HEADER)
        .disable_header_comment()
        .raw_line(note)
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap())
        .rust_edition(bindgen::RustEdition::Edition2024)
        .wrap_unsafe_ops(true)
        .dynamic_library_name("RocmSmi")
        .dynamic_link_require_all(false)
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .prepend_enum_name(false)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate_comments(false)
        .layout_tests(false);
    let builder = FUNCTIONS
        .iter()
        .fold(builder, |builder, name| builder.allowlist_function(name));
    let builder = TYPES
        .iter()
        .fold(builder, |builder, name| builder.allowlist_type(name));
    builder.generate().unwrap().to_string()
}

/// The version of the installed header; `None`, having said why, if it can't be compared with.
fn installed() -> Option<String> {
    if !Path::new(HEADER).exists() {
        eprintln!("SKIPPED: no {HEADER} ({PACKAGE})");
        return None;
    }
    // Headers of the library are in another package than the library.
    let usable = panic::catch_unwind(|| {
        let builder = bindgen::Builder::default();
        builder
            .header_contents("probe.h", "#include <stddef.h>")
            .generate()
    });
    if !matches!(usable, Ok(Ok(_))) {
        eprintln!("SKIPPED: libclang or its headers are not installed (libclang-dev)");
        return None;
    }
    let query = ["--show", "--showformat=${Version}", PACKAGE];
    let answer = std::process::Command::new("dpkg-query")
        .args(query)
        .output();
    let version = answer.ok().filter(|answer| answer.status.success());
    let version = version.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned());
    Some(version.unwrap_or_else(|| "unknown".into()))
}

#[test]
fn the_committed_bindings_are_those_of_the_installed_header() {
    let Some(version) = installed() else { return };
    let made = generate(&version);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(BINDINGS);
    if env::var_os("LITD_REGENERATE").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap();
    if committed.lines().next() == made.lines().next() {
        assert_eq!(made, committed, "regenerate {BINDINGS}");
        return;
    }
    // Another release may have more and call arguments otherwise; types and codes are the same.
    for name in FUNCTIONS {
        assert_eq!(
            signature(&made, name),
            signature(&committed, name),
            "{name}, {version}"
        );
    }
    let codes = committed.lines().filter(|line| line.contains("pub const"));
    for code in codes.filter(|line| !line.contains("_LAST:")) {
        assert!(made.contains(code), "rocm_smi.h {version} lacks: {code}");
    }
}

/// The types of a function's arguments and result.
fn signature<'b>(bindings: &'b str, function: &str) -> Vec<&'b str> {
    let (_, rest) = bindings
        .split_once(&format!("pub {function}: Result<"))
        .unwrap_or_else(|| panic!("no {function}"));
    let (function, _) = rest.split_once("::libloading").unwrap();
    let words = function.split([' ', '(', ')', '\n']);
    words
        .filter(|word| !word.is_empty() && !word.ends_with(':'))
        .collect()
}
