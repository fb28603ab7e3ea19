//! `litctl carbon profile`: power and throughput from the logs of a job.

use std::fs;

use super::{folder, litctl};

/// A CPU job that logs as Megatron-LM does: 2 ms an iteration with TP=1, 4 ms with TP=2.
const LOGGING: &str = r#"
time=$((LITD_TP * 20))
sleep 0.2
while [ ! -e "$LITD_CARBON_CHECKPOINT" ]; do
  echo " iteration 1/ 10 | elapsed time per iteration (ms): $time.0 | learning rate: 0.1 |"
  sleep 0.05
done
"#;

#[test]
fn a_profile_is_measured_from_the_logs_of_a_job() {
    let folder = folder();
    fs::write(folder.path().join("job.sh"), LOGGING).unwrap();
    let args = [
        "profile",
        "--gpus",
        "2",
        "--only",
        "1,2,1",
        "--only",
        "2,1,1",
        "--tokens-per-iteration",
        "1000",
        "--seconds",
        "0.5",
        "--warm-up",
        "0.3",
        "--power",
        "300",
        "--out",
        "measured.csv",
        "--",
        "sh",
        "job.sh",
    ];
    let output = litctl(folder.path(), &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("a switch takes 0."), "{text}");
    let csv = fs::read_to_string(folder.path().join("measured.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "tp,pp,dp,power_w,tokens_per_s,switch_s");
    assert!(rows[1].starts_with("1,2,1,300,50000,0."), "{csv}");
    assert!(rows[2].starts_with("2,1,1,300,25000,0."), "{csv}");
}
