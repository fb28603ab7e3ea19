//! `litctl carbon run --print`: what Slurm and Kubernetes are given is complete, and does what the command does.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::run::{JOB, Stand, options};
use super::{carbon, is_there, printed, refused, said, terminate, wait_for};
use crate::LITCTL;

/// The script printed with these options.
fn script_for(stand: &Stand, more: &str, job: &[&str]) -> String {
    printed(&stand.command(more, job).output().unwrap())
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

/// Slurm takes a batch script.
fn submit(folder: &Path, path: &str, batch: &Path) -> Child {
    let mut command = Command::new("sbatch");
    command.current_dir(folder).env("PATH", path);
    command.stdin(File::open(batch).unwrap());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_batch_script_trains_and_goes_on_in_another_allocation() {
    let stand = Stand::new("");
    let place = stand.path("");
    fs::write(stand.path("it's a job.sh"), JOB).unwrap();
    let more = "--grace 20 --print slurm --time-limit-hours=24 --name gpt-2 --cpus-per-gpu 6";
    let batch = script_for(&stand, more, &["sh", "it's a job.sh"]);
    for line in [
        "#!/bin/bash",
        "#SBATCH --job-name=gpt-2",
        "#SBATCH --nodes=1",
        "#SBATCH --gpus-per-node=2",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:TERM@80",
        "#SBATCH --time=1440",
        "#SBATCH --cpus-per-gpu=6",
    ] {
        assert!(batch.lines().any(|it| it == line), "{line}: {batch}");
    }
    assert!(
        !batch.contains("--print slurm --") && !stand.path("state").exists(),
        "{batch}"
    );
    let path = slurm(&place);
    let script = stand.path("printed");
    fs::write(&script, &batch).unwrap();
    let mut check = Command::new("bash");
    assert!(check.arg("-n").arg(&script).status().unwrap().success());
    // The time limit comes near.
    let running = submit(&place, &path, &script);
    wait_for(&stand.path("tokens"));
    terminate(&running);
    let said_then = refused(&running.wait_with_output().unwrap());
    assert_eq!(stand.read("told"), "requeue 42\n", "{said_then}");
    assert!(
        !is_there(&stand.read("pid")),
        "the job outlived its allocation"
    );
    // Queued again, it goes on, ends well, and asks for no more.
    said(&submit(&place, &path, &script).wait_with_output().unwrap());
    assert_eq!(stand.tokens(), 60_000);
    assert_eq!(stand.read("told"), "requeue 42\n");
    stand.was_never_run_twice();
}

#[test]
fn what_does_not_fit_a_scheduler_is_refused() {
    let stand = Stand::new(JOB);
    let refused = |more: &str, job| refused(&stand.command(more, &[job, "x"]).output().unwrap());
    let said = refused("--print slurm --nodes 3", "srun");
    assert!(
        said.contains("2 GPUs are not the same number on each of 3 nodes"),
        "{said}"
    );
    let said = refused("--print slurm --nodes 2", "torchrun");
    assert!(said.contains("must begin with srun"), "{said}");
    let said = refused("--print kubernetes --claim work", "x");
    assert!(said.contains("--image"), "{said}");
    let kubernetes = "--print kubernetes --claim work --image i";
    let said = refused(&format!("{kubernetes} --nodes 2"), "x");
    assert!(said.contains("on one node"), "{said}");
    let said = refused(&format!("{kubernetes} --name Not_A_Name"), "x");
    assert!(said.contains("at most 63 of a to z"), "{said}");
    let said = refused("--nodes 2", "x");
    assert!(said.contains("--print"), "{said}");
}

/// The verdict of kubernetes-validate on a manifest; `None` if the program is absent.
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
    let stand = Stand::new(JOB);
    let place = stand.path("");
    let own = "--print kubernetes --image registry.example/train:1 --claim work --secret signals";
    let script = script_for(&stand, &format!("--grace 20 {own}"), &["sh", "job.sh"]);
    let manifest: Value = serde_json::from_str(&script).unwrap();
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
    let expected = format!("litctl carbon run {} -- sh job.sh", options("--grace 20"));
    assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>());
    match validated(&place, &manifest) {
        Some(good) => {
            assert!(good, "{manifest}");
            let mut wrong = manifest.clone();
            wrong["spec"]["template"]["spec"]["restartPolice"] = "OnFailure".into();
            assert_eq!(
                validated(&place, &wrong),
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
    let mut kubelet = Command::new(LITCTL);
    said(
        &kubelet
            .current_dir(&place)
            .args(&words[1..])
            .output()
            .unwrap(),
    );
    assert_eq!(stand.tokens(), 60_000);
}

/// A name that no script can have is refused in words.
#[test]
fn words_that_are_not_utf_8_are_refused() {
    let stand = Stand::new("");
    let name = OsStr::from_bytes(b"pro\xfffile.csv");
    fs::copy(stand.path("profile.csv"), stand.path("").join(name)).unwrap();
    let mut command = carbon(&stand.path(""), "run --tokens 6e4 --deadline-hours 7");
    command.args("--progress tokens --state state --trace trace.csv --print slurm".split(' '));
    command.arg("--profile").arg(name).args(["--", "sh"]);
    let said = refused(&command.output().unwrap());
    assert!(said.contains("is not UTF-8"), "{said}");
}
