//! `litctl carbon profile`: power and throughput from the logs of a job.

use std::fs;

use serde_json::Value;

use super::{carbon, folder, printed, read, refused, said};
use crate::lease::Node;

/// A CPU job that logs as Megatron-LM does, among what is no text: 20 ms an iteration with TP=1, 40 ms with TP=2.
const LOGGING: &str = r#"
time=$((LITD_TP * 20))
sleep 0.2
printf 'a bar of progress: \377\n'
while [ ! -e "$LITD_CARBON_CHECKPOINT" ]; do
  echo " iteration 1/ 10 | elapsed time per iteration (ms): $time.0 | learning rate: 0.1 |"
  sleep 0.05
done
"#;

/// The command that measures that job with these options.
fn profile(options: &str) -> String {
    format!("profile {options} --tokens-per-iteration 1000 --out measured.csv -- sh job.sh")
}

#[test]
fn a_profile_is_measured_from_the_logs_of_a_job() {
    let folder = folder();
    fs::write(folder.path().join("job.sh"), LOGGING).unwrap();
    let options = "--gpus 2 --only 1,2,1 --only 2,1,1 --seconds 0.5 --warm-up 0.3 --power 300";
    let mut profile = carbon(folder.path(), &profile(options));
    let text = printed(&profile.output().unwrap());
    assert!(text.contains("a switch takes 0."), "{text}");
    let csv = read(&folder.path().join("measured.csv"));
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "tp,pp,dp,power_w,tokens_per_s,switch_s");
    assert!(rows[1].starts_with("1,2,1,300,50000,0."), "{csv}");
    assert!(rows[2].starts_with("2,1,1,300,25000,0."), "{csv}");
}

/// A model does not fit everywhere: the others are measured all the same, and K is that of switches between them.
#[test]
fn a_configuration_that_does_not_train_is_told_and_left_out() {
    let folder = folder();
    let failing = format!("if [ $LITD_PP = 2 ]; then exit 1; fi\n{LOGGING}");
    fs::write(folder.path().join("job.sh"), &failing).unwrap();
    let options = "--gpus 2 --seconds 0.3 --warm-up 0.1 --power 300";
    let output = carbon(folder.path(), &profile(options)).output().unwrap();
    let told = said(&output);
    assert!(
        told.contains("TP=1 PP=2 DP=1 is left out: the job ended"),
        "{told}"
    );
    let csv = read(&folder.path().join("measured.csv"));
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 3, "{csv}");
    assert!(!csv.contains("1,2,1,"), "{csv}");

    fs::remove_file(folder.path().join("measured.csv")).unwrap();
    fs::write(folder.path().join("job.sh"), "exit 1\n").unwrap();
    let told = refused(&carbon(folder.path(), &profile(options)).output().unwrap());
    assert!(
        told.contains("no configuration could be measured"),
        "{told}"
    );
    assert!(!folder.path().join("measured.csv").exists());
}

/// A power that no profile may have is said before the first launch.
#[test]
fn a_power_that_can_not_be_is_refused_before_anything_is_launched() {
    let folder = folder();
    fs::write(folder.path().join("job.sh"), "touch launched\n").unwrap();
    let options = "--gpus 2 --only 1,2,1 --seconds 0.5 --warm-up 0.3 --power 1e16";
    let said = refused(&carbon(folder.path(), &profile(options)).output().unwrap());
    assert!(said.contains("power_w"), "{said}");
    assert!(!folder.path().join("launched").exists());
}

/// Nothing that was measured is lost: a place that can't be written to is refused before the first launch, and a job that
/// does not end when it is asked to costs the time of a switch alone.
#[test]
fn what_was_measured_is_kept() {
    let folder = folder();
    let deaf = LOGGING.replace(
        "! -e \"$LITD_CARBON_CHECKPOINT\"",
        "$LITD_TP = 1 -o ! -e \"$LITD_CARBON_CHECKPOINT\"",
    );
    assert_ne!(deaf, LOGGING);
    fs::write(
        folder.path().join("job.sh"),
        format!("touch launched\n{deaf}"),
    )
    .unwrap();
    let options =
        "--gpus 2 --only 1,2,1 --only 2,1,1 --seconds 0.3 --warm-up 0.2 --power 300 --patience 2";
    let nowhere = profile(options).replace("measured.csv", "nowhere/measured.csv");
    let told = refused(&carbon(folder.path(), &nowhere).output().unwrap());
    assert!(told.contains("--out nowhere/measured.csv"), "{told}");
    assert!(!folder.path().join("launched").exists());
    let output = carbon(folder.path(), &profile(options)).output().unwrap();
    let told = said(&output);
    assert!(told.contains("did not end when it was asked"), "{told}");
    let csv = read(&folder.path().join("measured.csv"));
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

/// Where litd runs, power is what it reads from the node's GPUs.
#[test]
fn power_is_what_litd_reads() {
    let mut node = Node::new();
    node.pass(2);
    let folder = folder();
    fs::write(folder.path().join("job.sh"), LOGGING).unwrap();
    let options = profile("--gpus 8 --only 1,1,8 --seconds 0.5 --warm-up 0.1");
    let mut profile = node.litctl();
    profile.current_dir(folder.path()).arg("carbon");
    printed(&profile.args(options.split_whitespace()).output().unwrap());
    let status = node.litctl().args(["status", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let devices = status["devices"].as_array().unwrap().iter();
    let gpus = devices.filter(|it| it["name"].as_str().unwrap().starts_with("gpu"));
    let watts: f64 = gpus.map(|it| it["power"].as_f64().unwrap()).sum();
    let csv = read(&folder.path().join("measured.csv"));
    let row: Vec<f64> = csv
        .lines()
        .nth(1)
        .unwrap()
        .split(',')
        .map(|it| it.parse().unwrap())
        .collect();
    // No time passes on the node meanwhile.
    assert!(
        watts > 500.0 && (row[3] - watts).abs() < 1.0,
        "{csv}: {watts}"
    );
    node.stop();
}
