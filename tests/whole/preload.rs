//! litd with a function of the C library that does something else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stand::LITD;

/// A program that is litd with what this C source defines, and with a file's path in an environment variable
/// for it to look at; none, where there is no C compiler.
pub fn litd_with(directory: &Path, source: &str, variable: &str, file: &Path) -> Option<PathBuf> {
    let (code, library) = (directory.join("preload.c"), directory.join("preload.so"));
    fs::write(&code, source).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &code])
        .arg("-ldl")
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: there is no C compiler");
        return None;
    }
    let program = directory.join("preloaded-litd");
    let (library, file) = (library.display(), file.display());
    let script = format!(
        "#!/bin/sh\nexport LD_PRELOAD='{library}' {variable}='{file}'\nexec '{LITD}' \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Some(program)
}
