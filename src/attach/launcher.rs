//! The rank that a launcher has given a process, by the process's environment.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// How much of a process's environment is read, in bytes.
const LONGEST_ENVIRONMENT: u64 = 1 << 20;

/// The longest name of a job that is taken from it, in bytes.
const LONGEST_JOB: usize = 200;

/// Variables of one launcher: of the rank, of the rank among those on this node, and of how many of each there are.
struct Launcher {
    rank: &'static str,
    local_rank: &'static str,
    world_size: &'static str,
    local_world_size: &'static str,
}

/// torchrun, Open MPI, MPICH, MVAPICH, srun; as the hook knows them.
const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        rank: "RANK",
        local_rank: "LOCAL_RANK",
        world_size: "WORLD_SIZE",
        local_world_size: "LOCAL_WORLD_SIZE",
    },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        world_size: "OMPI_COMM_WORLD_SIZE",
        local_world_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Launcher {
        rank: "PMI_RANK",
        local_rank: "MPI_LOCALRANKID",
        world_size: "PMI_SIZE",
        local_world_size: "MPI_LOCALNRANKS",
    },
    Launcher {
        rank: "MV2_COMM_WORLD_RANK",
        local_rank: "MV2_COMM_WORLD_LOCAL_RANK",
        world_size: "MV2_COMM_WORLD_SIZE",
        local_world_size: "MV2_COMM_WORLD_LOCAL_SIZE",
    },
    Launcher {
        rank: "SLURM_PROCID",
        local_rank: "SLURM_LOCALID",
        world_size: "SLURM_NTASKS",
        // Slurm tells no such number by itself; the hook reads it from SLURM_TASKS_PER_NODE.
        local_world_size: "SLURM_NTASKS_PER_NODE",
    },
];

/// Where a process is in its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The rank among all ranks of the job.
    pub rank: u32,
    /// The rank among those on this node.
    pub local_rank: u32,
    /// Ranks of the job.
    pub world_size: u32,
    /// Those on this node.
    pub local_world_size: u32,
    /// The job's name, as the hook would say it.
    pub job: String,
}

/// Where these processes are in their jobs.
pub(super) fn places(proc: &Path, pids: &[u32]) -> Vec<Option<Place>> {
    let place = |&pid: &u32| Environment::of(proc, pid)?.place();
    pids.iter().map(place).collect()
}

/// A process's environment.
#[derive(Debug)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Reads it; procfs may keep the caller waiting while the process maps memory.
    #[must_use]
    pub fn of(proc: &Path, pid: u32) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = File::open(proc.join(pid.to_string()).join("environ")).ok()?;
        file.take(LONGEST_ENVIRONMENT)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(Self(bytes))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut variables = self.0.split(|&byte| byte == 0);
        let of_it =
            |it: &&[u8]| it.starts_with(name.as_bytes()) && it.get(name.len()) == Some(&b'=');
        let value = variables.find(of_it)?.get(name.len() + 1..)?;
        std::str::from_utf8(value).ok().filter(|it| !it.is_empty())
    }

    /// Whether its PyTorch asks a daemon for configurations of traces: any value of the variable has it ask, even none.
    #[must_use]
    pub fn asks_for_traces(&self) -> bool {
        let mut variables = self.0.split(|&byte| byte == 0);
        variables.any(|it| it.starts_with(b"KINETO_USE_DAEMON="))
    }

    /// The number by which dynolog keeps the process: `SLURM_JOB_ID`, or 0.
    #[must_use]
    pub fn slurm_job(&self) -> i32 {
        let job = self.get("SLURM_JOB_ID").and_then(|it| it.parse().ok());
        job.unwrap_or(0)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.parse().ok()
    }

    /// The rank.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        LAUNCHERS.iter().find_map(|it| self.number(it.rank))
    }

    /// Where the process is in its job; `None` if no launcher tells all of it.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let place = LAUNCHERS.iter().find_map(|launcher| {
            Some(Place {
                rank: self.number(launcher.rank)?,
                local_rank: self.number(launcher.local_rank)?,
                world_size: self.number(launcher.world_size)?,
                local_world_size: self.number(launcher.local_world_size)?,
                job: self.job(),
            })
        })?;
        let fits = place.rank < place.world_size
            && place.local_rank < place.local_world_size
            && place.local_world_size <= place.world_size;
        fits.then_some(place)
    }

    /// The job's name, as the hook makes it.
    fn job(&self) -> String {
        if let Some(given) = self.get("LITD_JOB") {
            return tidy(given);
        }
        let mut parts = Vec::new();
        if let Some(job) = self.get("SLURM_JOB_ID") {
            let step = self.get("SLURM_STEP_ID");
            let step = step.map_or_else(String::new, |step| format!(".{step}"));
            parts.push(format!("slurm-{job}{step}"));
        }
        match self.get("TORCHELASTIC_RUN_ID").filter(|&run| run != "none") {
            Some(run) => parts.push(run.to_owned()),
            None => parts.extend(self.get("MASTER_PORT").map(|port| {
                let address = self.get("MASTER_ADDR").unwrap_or("localhost");
                format!("{address}:{port}")
            })),
        }
        match parts.is_empty() {
            true => "no name".to_owned(),
            false => tidy(&parts.join("/")),
        }
    }
}

fn tidy(name: &str) -> String {
    let plain = |sign: char| if sign.is_control() { '?' } else { sign };
    let mut tidy = String::new();
    for sign in name.chars().map(plain) {
        if tidy.len() + sign.len_utf8() > LONGEST_JOB {
            break;
        }
        tidy.push(sign);
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[&str]) -> Environment {
        Environment(variables.join("\0").into_bytes())
    }

    #[test]
    fn a_launchers_variables_tell_the_place() {
        let torchrun = environment(&[
            "XRANK=9",
            "LOCAL_RANK=1",
            "RANK=5",
            "WORLD_SIZE=8",
            "LOCAL_WORLD_SIZE=4",
            "MASTER_ADDR=10.0.0.1",
            "MASTER_PORT=29500",
            "TORCHELASTIC_RUN_ID=none",
        ]);
        let place = torchrun.place().unwrap();
        assert_eq!((place.rank, place.local_rank), (5, 1));
        assert_eq!((place.world_size, place.local_world_size), (8, 4));
        assert_eq!(place.job, "10.0.0.1:29500");
        let srun = environment(&["SLURM_PROCID=3", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"]);
        assert_eq!((srun.rank(), srun.place()), (Some(3), None));
        assert_eq!(srun.job(), "slurm-77.0");
    }

    #[test]
    fn whoever_asks_a_daemon_is_told_by_the_variable_alone() {
        assert!(environment(&["A=1", "KINETO_USE_DAEMON="]).asks_for_traces());
        assert!(!environment(&["A=KINETO_USE_DAEMON=1"]).asks_for_traces());
        assert_eq!(environment(&["SLURM_JOB_ID=77"]).slurm_job(), 77);
        for none in ["SLURM_JOB_ID=7x", "SLURM_JOB_ID=99999999999", "A=1"] {
            assert_eq!(environment(&[none]).slurm_job(), 0);
        }
    }

    #[test]
    fn what_can_not_be_is_no_place() {
        for odd in [
            [
                "RANK=8",
                "LOCAL_RANK=0",
                "WORLD_SIZE=8",
                "LOCAL_WORLD_SIZE=8",
            ],
            [
                "RANK=0",
                "LOCAL_RANK=8",
                "WORLD_SIZE=8",
                "LOCAL_WORLD_SIZE=8",
            ],
            [
                "RANK=0",
                "LOCAL_RANK=0",
                "WORLD_SIZE=8",
                "LOCAL_WORLD_SIZE=9",
            ],
            [
                "RANK=-1",
                "LOCAL_RANK=0",
                "WORLD_SIZE=8",
                "LOCAL_WORLD_SIZE=8",
            ],
            [
                "RANK=",
                "LOCAL_RANK=0",
                "WORLD_SIZE=8",
                "LOCAL_WORLD_SIZE=8",
            ],
        ] {
            assert_eq!(environment(&odd).place(), None, "{odd:?}");
        }
    }

    #[test]
    fn a_name_has_no_control_characters_and_an_end() {
        let long = format!("LITD_JOB=a\nb{}", "\u{fc}".repeat(500));
        let job = environment(&[&long]).job();
        assert!(job.starts_with("a?b") && job.len() <= LONGEST_JOB);
    }
}
