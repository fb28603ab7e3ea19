//! `litlab plan`: Perseus on measurements that are made up.

use std::path::Path;
use std::process::{Command, Output};

use crate::LITLAB;

fn plan(folder: &Path, args: &[&str]) -> Output {
    Command::new(LITLAB)
        .arg("plan")
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Planned times are whole units: what that costs is said, and less with a smaller unit.
#[test]
fn what_rounding_does_to_the_fastest_plan_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let longer = |unit: &str| {
        let args = "frontier --synthetic 1 --stages 4 --schedule 1f1b --microbatches 8 --unit";
        let mut args: Vec<&str> = args.split(' ').collect();
        args.push(unit);
        let output = plan(folder.path(), &args);
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, said) = text.split_once("It takes ")?;
        assert!(
            said.contains(&format!("whole units of {unit} ms")),
            "{said}"
        );
        said.split(' ').next()?.parse::<f64>().ok()
    };
    let (coarse, fine) = (longer("10").unwrap(), longer("0.5").unwrap_or(0.0));
    assert!(coarse > 1.0 && fine < coarse / 4.0, "{coarse} {fine}");
}

#[test]
fn made_up_measurements_say_so() {
    let folder = tempfile::tempdir().unwrap();
    for schedule in ["1f1b", "gpipe", "interleaved"] {
        let args = [
            "frontier",
            "--synthetic",
            "1",
            "--stages",
            "2",
            "--microbatches",
            "4",
        ];
        let output = plan(
            folder.path(),
            &[&args[..], &["--schedule", schedule]].concat(),
        );
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.starts_with(b"SIMULATED"), "{output:?}");
    }
}

#[test]
fn so_many_stages_are_refused() {
    let args = "plan frontier --synthetic 1 --schedule 1f1b --microbatches 3 --stages 65536";
    let output = crate::output(&Vec::from_iter(args.split(' ')));
    let said = String::from_utf8(output.stderr).unwrap();
    let wanted =
        "how many stages are to be made up (times --chunks where they are interleaved), 1 to 4096";
    assert!(!output.status.success() && said.contains(wanted), "{said}");
}
