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
use std::process::Command;

use tempfile::TempDir;

use crate::LITCTL;

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

fn litctl(folder: &Path, args: &[&str]) -> std::process::Output {
    let mut command = Command::new(LITCTL);
    command.current_dir(folder).arg("carbon").args(args);
    command.output().unwrap()
}
