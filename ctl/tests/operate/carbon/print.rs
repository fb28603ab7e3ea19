//! `litctl carbon run --print`: what Slurm and Kubernetes are given is complete, and does what the command does.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::folder;
use super::run::JOB;
use crate::LITCTL;

/// A run of a job that takes a second or two.
const RUN: &str = "--profile profile.csv --tokens 60000 --deadline-hours 7 --progress tokens --state state --trace trace.csv \
    --forecast forecast.csv --from 2030-01-01T00:00:00Z --speed 7200 --grace 20";

fn printed(folder: &Path, more: &[&str], job: &[&str]) -> Output {
    let mut command = Command::new(LITCTL);
    command
        .current_dir(folder)
        .args(["carbon", "run"])
        .args(RUN.split_whitespace());
    command.args(more).arg("--").args(job).output().unwrap()
}

fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A stand-in of Slurm: sbatch runs the script that it is given at once, scontrol writes down what it is told.
fn slurm(folder: &Path) -> String {
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(LITCTL, bin.join("litctl")).unwrap();
    script(
        &bin.join("sbatch"),
        "#!/bin/sh\ncat > batch\nSLURM_JOB_ID=42 exec bash batch\n",
    );
    script(
        &bin.join("scontrol"),
        &format!("#!/bin/sh\necho \"$@\" >> {}/told\n", folder.display()),
    );
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_batch_script_trains_and_goes_on_in_another_allocation() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("it's a job.sh"), JOB).unwrap();
    let more = [
        "--print",
        "slurm",
        "--time-limit-hours=24",
        "--name",
        "gpt-2",
    ];
    let batch = text(&printed(place, &more, &["sh", "it's a job.sh"]));
    for line in [
        "#!/bin/bash",
        "#SBATCH --job-name=gpt-2",
        "#SBATCH --nodes=1",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:TERM@80",
        "#SBATCH --time=1440",
    ] {
        assert!(batch.lines().any(|it| it == line), "{line}: {batch}");
    }
    assert!(
        !batch.contains("--print slurm --") && !place.join("state").exists(),
        "{batch}"
    );
    let path = slurm(place);
    let submit = || {
        let mut command = Command::new("sbatch");
        command
            .current_dir(place)
            .env("PATH", &path)
            .stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(batch.as_bytes())
            .unwrap();
        child
    };
    let checked = {
        fs::write(place.join("batch"), &batch).unwrap();
        Command::new("bash")
            .args(["-n", "batch"])
            .current_dir(place)
            .status()
    };
    assert!(checked.unwrap().success());
    // The time limit comes near.
    let running = submit();
    let until = Instant::now() + Duration::from_secs(60);
    while !place.join("tokens").exists() {
        assert!(Instant::now() < until, "the job trains nothing");
        thread::sleep(Duration::from_millis(20));
    }
    let told = Command::new("kill")
        .args(["-TERM", &running.id().to_string()])
        .status();
    assert!(told.unwrap().success());
    let stopped = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(2), "{said}");
    assert_eq!(
        fs::read_to_string(place.join("told")).unwrap(),
        "requeue 42\n",
        "{said}"
    );
    let pid = fs::read_to_string(place.join("pid")).unwrap();
    assert!(
        !Path::new("/proc").join(pid.trim()).join("cwd").exists(),
        "the job outlived its allocation"
    );
    // Queued again, it goes on, ends well, and asks for no more.
    let done = submit().wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(
        fs::read_to_string(place.join("tokens")).unwrap().trim(),
        "60000"
    );
    assert_eq!(
        fs::read_to_string(place.join("told")).unwrap(),
        "requeue 42\n"
    );
    let log = fs::read_to_string(place.join("log")).unwrap();
    assert!(!log.contains("not alone"), "{log}");
}

#[test]
fn what_does_not_fit_a_scheduler_is_refused() {
    let folder = folder();
    let refused = |more: &[&str], job: &[&str]| {
        let output = printed(folder.path(), more, job);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["--print", "slurm", "--nodes", "3"], &["srun", "x"]);
    assert!(
        said.contains("2 GPUs are not the same number on each of 3 nodes"),
        "{said}"
    );
    let said = refused(&["--print", "slurm", "--nodes", "2"], &["torchrun", "x"]);
    assert!(said.contains("must begin with srun"), "{said}");
    let said = refused(&["--print", "kubernetes", "--claim", "work"], &["x"]);
    assert!(said.contains("--image"), "{said}");
    let kubernetes = ["--print", "kubernetes", "--claim", "work", "--image", "i"];
    let said = refused(&[&kubernetes[..], &["--nodes", "2"]].concat(), &["x"]);
    assert!(said.contains("on one node"), "{said}");
    let said = refused(
        &[&kubernetes[..], &["--name", "Not_A_Name"]].concat(),
        &["x"],
    );
    assert!(said.contains("at most 63 of a to z"), "{said}");
    let said = refused(&["--nodes", "2"], &["x"]);
    assert!(said.contains("--print"), "{said}");
}

/// What kubernetes-validate says of a manifest; nothing where it is absent.
fn validated(folder: &Path, manifest: &Value) -> Option<bool> {
    fs::write(folder.join("job.yaml"), manifest.to_string()).unwrap();
    let mut command = Command::new("kubernetes-validate");
    let run = command
        .current_dir(folder)
        .args(["--strict", "job.yaml"])
        .output();
    run.ok().map(|output| output.status.success())
}

#[test]
fn a_manifest_is_a_job_that_the_api_takes_and_whose_command_trains() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    let more = [
        "--print",
        "kubernetes",
        "--image",
        "registry.example/train:1",
        "--claim",
        "work",
        "--secret",
        "signals",
    ];
    let manifest: Value =
        serde_json::from_str(&text(&printed(place, &more, &["sh", "job.sh"]))).unwrap();
    let pod = &manifest["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        (&manifest["kind"], &pod["restartPolicy"]),
        (&"Job".into(), &"OnFailure".into())
    );
    assert_eq!(
        container["resources"]["limits"]["nvidia.com/gpu"], 2,
        "{manifest}"
    );
    assert_eq!(pod["terminationGracePeriodSeconds"], 80);
    assert_eq!(container["env"][0]["name"], "CREDENTIALS_DIRECTORY");
    let words: Vec<&str> = container["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    let expected = format!("litctl carbon run {RUN} -- sh job.sh");
    assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>());
    match validated(place, &manifest) {
        Some(good) => {
            assert!(good, "{manifest}");
            let mut wrong = manifest.clone();
            wrong["spec"]["template"]["spec"]["restartPolice"] = "OnFailure".into();
            assert_eq!(
                validated(place, &wrong),
                Some(false),
                "the check sees nothing"
            );
        }
        None => {
            // Past the capture of a test's output, so that it is seen.
            let note = b"SKIPPED: the schema of a Job: kubernetes-validate is absent\n";
            std::io::stderr().write_all(note).unwrap();
        }
    }
    // A stand-in of the kubelet: the command in the volume's folder.
    let done = Command::new(LITCTL)
        .current_dir(place)
        .args(&words[1..])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(
        fs::read_to_string(place.join("tokens")).unwrap().trim(),
        "60000"
    );
}
