//! Stand-ins in C: a library with faults that the real one can't be made to show, and a process
//! that holds a GPU's mutex.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use tempfile::TempDir;

const LIBRARY: &str = include_str!("library.c");
const HOLDER: &str = include_str!("holder.c");

/// A stand-in library with three GPUs, and what each is to do.
pub struct Library {
    directory: TempDir,
}

impl Library {
    pub fn build() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let library = Self { directory };
        let path = library.directory.path().display();
        let define = format!("-DDIRECTORY=\"{path}\"");
        compile(LIBRARY, &library.path(), &["-shared", "-fPIC", &define]);
        library
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("librocm_smi64.so")
    }

    /// Has a GPU fail in a way that `library.c` knows; `""`: no more.
    pub fn fail(&self, gpu: usize, how: &str) {
        let file = self.directory.path().join(format!("fault{gpu}"));
        fs::write(file, how).unwrap();
    }

    /// The process that hangs in the library, once one does.
    pub fn hung(&self) -> Option<u32> {
        let text = fs::read_to_string(self.directory.path().join("hung")).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    }

    /// A program that does as litd does, or runs `instead` (of a shell's) where there is a file of
    /// that name.
    pub fn program(&self, instead: &str) -> (PathBuf, PathBuf) {
        let program = self.directory.path().join("program");
        let switch = self.directory.path().join("switch");
        let script = format!(
            "#!/bin/sh\nif [ -e {} ]; then\n{instead}\nfi\nexec {} \"$@\"\n",
            switch.display(),
            super::node::LITD
        );
        fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        (program, switch)
    }
}

/// A library that calls itself AMD SMI of this version, in the folder.
pub fn amd_smi_of(version: u32, folder: &Path) -> PathBuf {
    let path = folder.join("libamd_smi.so");
    let source = format!(
        "unsigned amdsmi_get_lib_version(unsigned *version) {{ *version = {version}; return 0; }}\n"
    );
    compile(&source, &path, &["-shared", "-fPIC"]);
    path
}

fn compile(source: &str, output: &Path, flags: &[&str]) {
    let file = output.with_extension("c");
    fs::write(&file, source).unwrap();
    let done = Command::new("cc")
        .args(["-Wall", "-Werror", "-O1", "-pthread"])
        .args(flags)
        .arg("-o")
        .args([output, &file])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

/// A process that holds a GPU's mutex until it is dropped.
pub struct Holder {
    process: Child,
    _input: ChildStdin,
}

impl Holder {
    /// Returns once it holds it.
    pub fn of(gpu: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("holder");
        compile(HOLDER, &program, &[]);
        let mut process = Command::new(program)
            .arg(format!("/dev/shm/rocm_smi_card{gpu}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        let input = process.stdin.take().unwrap();
        Self {
            process,
            _input: input,
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
