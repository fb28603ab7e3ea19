//! `litctl carbon` as a whole process. Every number here is made up.

mod advise;
mod faults;
mod follow;
mod live;
mod print;
mod profile;
mod run;
mod schedule;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::LITCTL;
use crate::lease::Following;

const PROFILE: &str = "tp,pp,dp,power_w,tokens_per_s\n1,1,2,1000,100\n2,1,1,450,60\n1,2,1,900,55\n";

/// Eight hours: dirty in the middle.
const INTENSITIES: [u32; 8] = [100, 100, 400, 400, 400, 100, 50, 50];

/// A folder with a profile, a trace and a forecast that is right.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let hour = |at: usize| format!("2030-01-01T{at:02}:00:00Z");
    let mut trace =
        "datetime_utc,zone,ci_direct_g_per_kwh,ci_lifecycle_g_per_kwh,estimated\n".to_owned();
    let mut forecast = "issued_utc,lead_h,forecast_g_per_kwh\n".to_owned();
    for (at, value) in INTENSITIES.iter().enumerate() {
        trace += &format!("{},MADE-UP,{value},{},False\n", hour(at), value + 30);
        forecast += &format!("{},{at},{value}\n", hour(0));
    }
    fs::write(folder.path().join("profile.csv"), PROFILE).unwrap();
    fs::write(folder.path().join("trace.csv"), trace).unwrap();
    fs::write(folder.path().join("forecast.csv"), forecast).unwrap();
    folder
}

/// `litctl carbon` in a folder. Options are as a shell without quotes would split them.
fn carbon(folder: &Path, options: &str) -> Command {
    let mut command = Command::new(LITCTL);
    command.current_dir(folder).arg("carbon");
    command.args(options.split_whitespace());
    command
}

/// `litctl carbon advise` for a job, and from where the signal comes.
fn advise(folder: &Path, tokens: &str, deadline: &str, signal: &str) -> Command {
    let job = format!("--profile profile.csv --tokens {tokens} --deadline {deadline}");
    carbon(folder, &format!("advise {job} {signal} --json"))
}

/// `litctl carbon follow` in a folder, with a daemon that litctl was told of: a budget between these two, told in
/// carbon.prom. It ends with the test.
fn follow(
    mut litctl: Command,
    folder: &Path,
    [lowest, highest]: [u32; 2],
    more: &str,
) -> Following {
    let bounds = format!("--lowest {lowest} --highest {highest} --clean 100 --dirty 400");
    let options = format!("carbon follow {bounds} --every 0.1 --metrics carbon.prom {more}");
    litctl.current_dir(folder).args(options.split_whitespace());
    litctl.stdout(Stdio::null()).stderr(Stdio::null());
    Following(litctl.spawn().unwrap())
}

/// The standard output of a command that must succeed.
fn printed(output: &Output) -> String {
    said(output);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The standard error of a command that must succeed.
fn said(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.status.success(), "{stderr}");
    stderr
}

/// The message of a command that must fail.
fn refused(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

fn wait_until(what: impl Fn() -> String, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{}", what());
        thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for(path: &Path) {
    wait_until(
        || format!("{} does not appear", path.display()),
        || path.exists(),
    );
}

/// Signals a process, which may have ended.
fn signal(name: &str, pid: &str) {
    let mut kill = Command::new("kill");
    kill.args(["-s", name, pid.trim()]).stderr(Stdio::null());
    kill.status().unwrap();
}

fn terminate(child: &Child) {
    signal("TERM", &child.id().to_string());
}

/// Whether a process is there that has not ended.
fn is_there(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).join("cwd").exists()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
