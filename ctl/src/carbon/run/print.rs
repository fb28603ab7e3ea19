//! The run as a Slurm batch script or as a Kubernetes Job.

use std::error::Error;
use std::fmt::Write as _;

use litd_units::Seconds;
use serde_json::{Value, json};

use super::LATE;

/// Under whom the run is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Under {
    /// A batch script for sbatch
    Slurm,
    /// The manifest of a Job for kubectl apply
    Kubernetes,
}

/// Further values for a scheduler.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Under a scheduler")]
pub struct Print {
    /// Print a script or manifest with which a scheduler executes this command, and start nothing
    #[arg(long, value_enum, value_name = "WHERE")]
    pub print: Option<Under>,
    /// The job's name in the scheduler
    #[arg(long, value_name = "NAME", default_value = "litd-carbon", value_parser = name, requires = "print")]
    name: String,
    /// Slurm: the nodes that the job's GPUs are on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "print")]
    nodes: u32,
    /// Slurm: the CPU cores per GPU, for data loaders and launchers [default: the cluster's, which
    /// may be one core for the whole job]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "print")]
    cpus_per_gpu: Option<u32>,
    /// Slurm: the time limit, after which the job is queued again [default: the partition's]
    #[arg(long, value_name = "HOURS", value_parser = super::input::hours, requires = "print")]
    time_limit_hours: Option<Seconds>,
    /// Kubernetes: an image with litctl and the job's program
    #[arg(
        long,
        value_name = "IMAGE",
        required_if_eq("print", "kubernetes"),
        requires = "print"
    )]
    image: Option<String>,
    /// Kubernetes: the claim of a persistent volume with the profile, --state and the checkpoints;
    /// relative paths begin there
    #[arg(long, value_name = "CLAIM", required_if_eq("print", "kubernetes"), value_parser = name, requires = "print")]
    claim: Option<String>,
    /// Kubernetes: the name of the nodes' GPU resource
    #[arg(
        long,
        value_name = "RESOURCE",
        default_value = "nvidia.com/gpu",
        requires = "print"
    )]
    gpu_resource: String,
    /// Kubernetes: a Secret that has the token, under the provider's name as key
    #[arg(long, value_name = "SECRET", value_parser = name, requires = "print")]
    secret: Option<String>,
}

/// The options above, all of which have a value.
const OWN: [&str; 9] = [
    "--print",
    "--name",
    "--nodes",
    "--cpus-per-gpu",
    "--time-limit-hours",
    "--image",
    "--claim",
    "--gpu-resource",
    "--secret",
];
/// After the checkpoint's grace, for SIGTERM and for what litctl itself has to write.
const MORE: u64 = 60;

fn name(text: &str) -> Result<String, &'static str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_name = text.chars().all(plain) && edge(text.chars().next()) && edge(text.chars().last());
    match is_name && text.len() <= 63 {
        true => Ok(text.to_owned()),
        false => Err("must be at most 63 of a to z, 0 to 9 and -, as names in Kubernetes are"),
    }
}

/// The script for a run of so many GPUs that grants its checkpoints so much time. `words` are
/// litctl's own, its name first.
pub fn script(
    print: &Print,
    under: Under,
    gpus: u32,
    grace: Seconds,
    words: &[String],
) -> Result<String, Box<dyn Error>> {
    let words = without_own(words);
    let seconds = grace.0.ceil().min(1e6) as u64 + MORE;
    match under {
        Under::Slurm => slurm(print, gpus, seconds, &words),
        Under::Kubernetes => kubernetes(print, gpus, seconds, &words),
    }
}

/// The same command without the options of printing.
fn without_own(words: &[String]) -> Vec<String> {
    let mut rest = words.iter();
    let mut kept = vec!["litctl".to_owned()];
    rest.next();
    while let Some(word) = rest.next() {
        if word == "--" {
            kept.push(word.clone());
            kept.extend(rest.cloned());
            break;
        }
        let (option, has_value) = match word.split_once('=') {
            Some((option, _)) => (option, true),
            None => (word.as_str(), false),
        };
        if !OWN.contains(&option) {
            kept.push(word.clone());
        } else if !has_value {
            rest.next();
        }
    }
    kept
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn slurm(
    print: &Print,
    gpus: u32,
    seconds: u64,
    words: &[String],
) -> Result<String, Box<dyn Error>> {
    let nodes = print.nodes;
    if !gpus.is_multiple_of(nodes) {
        return Err(format!(
            "--nodes: {gpus} GPUs are not the same number on each of {nodes} nodes"
        )
        .into());
    }
    let mut job = words.iter().skip_while(|word| *word != "--").skip(1);
    if nodes > 1 && job.next().is_none_or(|first| first != "srun") {
        return Err("--nodes: the job must begin with srun to run on all of them".into());
    }
    let mut text = format!(
        "#!/bin/bash\n\
         # Made by litctl carbon run --print slurm. Submit it with sbatch, where the relative paths below begin.\n\
         #SBATCH --job-name={}\n\
         #SBATCH --nodes={nodes}\n\
         #SBATCH --ntasks-per-node=1\n\
         #SBATCH --gpus-per-node={}\n\
         #SBATCH --requeue\n\
         #SBATCH --open-mode=append\n\
         #SBATCH --output=%x-%j.log\n\
         # The script hears so long before the time limit that a checkpoint can be written.\n\
         #SBATCH --signal=B:TERM@{seconds}\n",
        print.name,
        gpus / nodes
    );
    if let Some(cores) = print.cpus_per_gpu {
        let _ = writeln!(text, "#SBATCH --cpus-per-gpu={cores}");
    }
    if let Some(limit) = print.time_limit_hours {
        // Whole minutes, as sbatch counts.
        let _ = writeln!(text, "#SBATCH --time={}", (limit.0 / 60.0).ceil());
    }
    let command: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    text += &format!(
        "set -u\n\n\
         {} &\n\
         runner=$!\n\
         told=0\n\
         # Before the time limit and before it is preempted: training writes a checkpoint, and litctl ends.\n\
         trap 'told=1; kill -TERM \"$runner\" 2>/dev/null' TERM\n\
         status=143\n\
         # The signal ends a wait early.\n\
         while [ \"$status\" -eq 143 ] && kill -0 \"$runner\" 2>/dev/null; do\n\
         \x20 wait \"$runner\"\n\
         \x20 status=$?\n\
         done\n\
         # What is left goes on in another allocation. After {LATE} nothing is left: the job is done, too late.\n\
         if [ \"$told\" -eq 1 ] && [ \"$status\" -ne 0 ] && [ \"$status\" -ne {LATE} ]; then\n\
         \x20 scontrol requeue \"$SLURM_JOB_ID\"\n\
         fi\n\
         exit \"$status\"\n",
        command.join(" ")
    );
    Ok(text)
}

/// Where the volume is in the container.
const WORK: &str = "/work";
const SECRET: &str = "/run/litd-carbon";

fn kubernetes(
    print: &Print,
    gpus: u32,
    seconds: u64,
    words: &[String],
) -> Result<String, Box<dyn Error>> {
    if print.nodes > 1 {
        return Err("--nodes: a Kubernetes Job has its GPUs on one node; a job on several nodes needs an operator \
                    whose launcher runs `litctl carbon run`".into());
    }
    let mut mounts = vec![
        json!({"name": "work", "mountPath": WORK}),
        json!({"name": "shm", "mountPath": "/dev/shm"}),
    ];
    let mut volumes = vec![
        json!({"name": "work", "persistentVolumeClaim": {"claimName": print.claim}}),
        // Data loaders and gloo talk through it; the usual 64 MiB are too few.
        json!({"name": "shm", "emptyDir": {"medium": "Memory"}}),
    ];
    let mut environment = Vec::new();
    if let Some(secret) = &print.secret {
        mounts.push(json!({"name": "secret", "mountPath": SECRET, "readOnly": true}));
        volumes.push(json!({"name": "secret", "secret": {"secretName": secret}}));
        environment.push(json!({"name": "CREDENTIALS_DIRECTORY", "value": SECRET}));
    }
    let container = json!({
        "name": "training",
        "image": print.image,
        "workingDir": WORK,
        "command": words,
        "env": environment,
        "resources": {"limits": {&print.gpu_resource: gpus}},
        "volumeMounts": mounts,
    });
    let job: Value = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": print.name},
        "spec": {
            // litctl restarts the job itself; this is for lost nodes.
            "backoffLimit": 20,
            // Two jobs must not write the same checkpoints: a new pod starts once the last one has ended.
            "podReplacementPolicy": "Failed",
            "template": {"spec": {
                "restartPolicy": "OnFailure",
                // SIGTERM asks training for a checkpoint.
                "terminationGracePeriodSeconds": seconds,
                "containers": [container],
                "volumes": volumes,
            }},
        },
    });
    Ok(serde_json::to_string_pretty(&job)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_same_without_what_prints_it() {
        let words = [
            "/usr/bin/litctl",
            "carbon",
            "run",
            "--print=slurm",
            "--nodes",
            "2",
            "--tokens",
            "8e9",
            "--",
            "srun",
            "--nodes",
            "2",
        ];
        let kept = without_own(&words.map(str::to_owned));
        assert_eq!(
            kept,
            [
                "litctl", "carbon", "run", "--tokens", "8e9", "--", "srun", "--nodes", "2"
            ]
        );
    }

    #[test]
    fn words_are_read_back_as_they_were() {
        for (word, expected) in [
            ("--tp", "--tp"),
            ("{tp}", "'{tp}'"),
            ("", "''"),
            ("it's $HOME", r"'it'\''s $HOME'"),
            ("a;b", "'a;b'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
