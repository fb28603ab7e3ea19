//! The committed bindings are what bindgen makes of vendors' headers.
//!
//! `LITD_REGENERATE=1 cargo test -p litd-bindings` writes them anew.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::{env, fs, panic};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A vendor's header, and what is bound of it.
struct Header {
    /// The header, and Debian's package of it.
    path: PathBuf,
    package: &'static str,
    /// The bindings' file, and the name of its type.
    bindings: &'static str,
    library: &'static str,
    functions: &'static [&'static str],
    /// Types that no function names.
    types: &'static [&'static str],
    /// Types that are taken as the number that their bits are.
    numbers: &'static [&'static str],
    /// The version, which the first line of the bindings names.
    version: fn(&Header) -> String,
}

/// As it is installed here. Scalars and strings only: rsmi_frequencies_t and rsmi_gpu_metrics_t differ between releases
/// of the library that call themselves by the same name.
fn rocm_smi() -> Header {
    Header {
        path: "/usr/include/rocm_smi/rocm_smi.h".into(),
        package: "librocm-smi-dev",
        bindings: "src/rocm_smi/ffi.rs",
        library: "RocmSmi",
        functions: &ROCM_SMI,
        types: &["rsmi_init_flags_t", "rsmi_temperature_type_t"],
        numbers: &[],
        version: installed,
    }
}

/// As the gate has unpacked it. Of structures, those alone whose beginning the major versions have in common that
/// [`litd_bindings::amd_smi`] takes.
fn amd_smi() -> Header {
    Header {
        path: Path::new(HERE).join("../target/tools/amd-sid/usr/include/amd_smi/amdsmi.h"),
        package: "libamd-smi-dev",
        bindings: "src/amd_smi/ffi.rs",
        library: "AmdSmi",
        functions: &AMD_SMI,
        types: &["amdsmi_init_flags_t"],
        // Bit fields, whose bindings are long.
        numbers: &["amdsmi_bdf_t"],
        version: defined,
    }
}

const ROCM_SMI: [&str; 15] = [
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

const AMD_SMI: [&str; 14] = [
    "amdsmi_init",
    "amdsmi_shut_down",
    "amdsmi_get_lib_version",
    "amdsmi_get_socket_handles",
    "amdsmi_get_processor_handles",
    "amdsmi_get_gpu_device_bdf",
    "amdsmi_get_gpu_asic_info",
    "amdsmi_get_gpu_board_info",
    "amdsmi_get_gpu_driver_info",
    "amdsmi_get_power_cap_info",
    "amdsmi_set_power_cap",
    "amdsmi_get_power_info",
    "amdsmi_get_energy_count",
    "amdsmi_get_temp_metric",
];

fn generate(header: &Header, version: &str) -> String {
    let file = header.path.file_name().unwrap().to_string_lossy();
    let package = header.package;
    let note = format!("// Made from {file} of {package} {version} by tests/generated.rs.");
    let builder = bindgen::Builder::default()
        .header(header.path.to_str().unwrap())
        .disable_header_comment()
        .raw_line(note)
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap())
        .rust_edition(bindgen::RustEdition::Edition2024)
        .wrap_unsafe_ops(true)
        .dynamic_library_name(header.library)
        .dynamic_link_require_all(false)
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .prepend_enum_name(false)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate_comments(false)
        .layout_tests(false);
    let each = |builder, names: &[&'static str], allow: fn(bindgen::Builder, &str) -> _| {
        names
            .iter()
            .fold(builder, |builder, name| allow(builder, name))
    };
    let builder = each(builder, header.functions, |it, name| {
        it.allowlist_function(name)
    });
    let builder = each(builder, header.types, |it, name| it.allowlist_type(name));
    let builder = each(builder, header.numbers, |it, name| {
        // With what is declared in it.
        it.blocklist_type(format!("{name}.*"))
            .raw_line(format!("pub type {name} = u64;"))
    });
    builder.generate().unwrap().to_string()
}

/// Whether there is the header, and what is wanted to read it; having said what is missing.
fn is_there(header: &Header) -> bool {
    if !header.path.exists() {
        eprintln!("SKIPPED: no {} ({})", header.path.display(), header.package);
        return false;
    }
    // Headers of the library are in another package than the library.
    let usable = panic::catch_unwind(|| {
        let builder = bindgen::Builder::default();
        builder
            .header_contents("probe.h", "#include <stddef.h>")
            .generate()
    });
    let is_usable = matches!(usable, Ok(Ok(_)));
    if !is_usable {
        eprintln!("SKIPPED: libclang or its headers are not installed (libclang-dev)");
    }
    is_usable
}

/// The version of the installed package.
fn installed(header: &Header) -> String {
    let query = ["--show", "--showformat=${Version}", header.package];
    let answer = std::process::Command::new("dpkg-query")
        .args(query)
        .output();
    let version = answer.ok().filter(|answer| answer.status.success());
    let version = version.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned());
    version.unwrap_or_else(|| "unknown".into())
}

/// The version that AMD SMI's header defines.
fn defined(header: &Header) -> String {
    let text = fs::read_to_string(&header.path).unwrap();
    let part = |part: &str| {
        let words = text.lines().map(|line| line.split_whitespace());
        let name = format!("AMDSMI_LIB_VERSION_{part}");
        let mut values = words.filter_map(|mut words| {
            (words.next() == Some("#define") && words.next() == Some(&name)).then(|| words.next())
        });
        values.next().flatten().unwrap().to_owned()
    };
    ["MAJOR", "MINOR", "RELEASE"].map(part).join(".")
}

#[test]
fn the_committed_bindings_are_those_of_the_installed_header() {
    is_as_committed(&rocm_smi());
}

#[test]
fn the_committed_bindings_are_those_of_the_unpacked_header() {
    is_as_committed(&amd_smi());
}

fn is_as_committed(header: &Header) {
    if !is_there(header) {
        return;
    }
    let version = (header.version)(header);
    let made = generate(header, &version);
    let bindings = header.bindings;
    let file = Path::new(HERE).join(bindings);
    if env::var_os("LITD_REGENERATE").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap();
    if committed.lines().next() == made.lines().next() {
        assert_eq!(made, committed, "regenerate {bindings}");
        return;
    }
    // Another release may have more and call arguments otherwise; types and codes are the same.
    for name in header.functions {
        assert_eq!(
            signature(&made, name),
            signature(&committed, name),
            "{name}, {version}"
        );
    }
    let codes = committed.lines().filter(|line| line.contains("pub const"));
    for code in codes.filter(|line| !line.contains("_LAST:")) {
        assert!(
            made.contains(code),
            "{} {version} lacks: {code}",
            header.package
        );
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
