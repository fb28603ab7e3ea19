//! `litctl carbon profile`: power and throughput of each configuration, and what a switch costs, measured.

mod log;

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use litd_carbon::{Configuration, Point, Profile};
use litd_units::{Seconds, Tokens, TokensPerSecond, Watts};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::log::WarmUp;
use super::advise::configuration;
use super::input;
use super::run::job;
use crate::control::Socket;
use crate::{Outcome, caps, output};

/// Measure each configuration's power and throughput, and the mean time of a switch
///
/// Runs the command once for each configuration of --gpus GPUs. Its environment has LITD_TP,
/// LITD_PP and LITD_DP, and {tp}, {pp} and {dp} in the command are replaced. It must log as
/// Megatron-LM does ("elapsed time per iteration (ms): …"). A warm-up of 10 to 60 s ends once the
/// mean of the last ten iterations is within 2 % of the ten before; then --seconds are measured,
/// with the power that litd reads from the GPUs.
///
/// Each run but the last is asked for a checkpoint and ends. The time of a switch is from that
/// request to the end of the next run's first iteration, less one iteration. A configuration in
/// which the command ends by itself, or logs no iteration in time, is reported and left out: the
/// model does not fit, or can't be divided so. The command prints text alone: --json is refused.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The number of GPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    gpus: u32,
    /// Measure only this configuration, as TP,PP,DP; may be given more than once [default: all whose
    /// product is --gpus]
    #[arg(long, value_name = "TP,PP,DP", value_parser = configuration)]
    only: Vec<Configuration>,
    /// Tokens of one iteration: global batch size times sequence length
    #[arg(long, value_name = "N", value_parser = input::tokens)]
    tokens_per_iteration: Tokens,
    /// How many seconds each configuration is measured after its warm-up
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = input::seconds)]
    seconds: Seconds,
    /// The shortest warm-up, in seconds; more than 60 counts as 60
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = input::seconds)]
    warm_up: Seconds,
    /// How many seconds a configuration may take to its first iteration, and to end when asked to
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = input::seconds)]
    patience: Seconds,
    /// The job's power if litd does not run: a meter's reading, the same for all configurations
    #[arg(long, value_name = "WATTS", value_parser = caps::watts)]
    power: Option<Watts>,
    /// A folder for the requests of checkpoints; it is created if missing
    #[arg(long, value_name = "FOLDER", default_value = "carbon-profile")]
    state: PathBuf,
    /// Where the profile is written, as CSV
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    socket: Socket,
    /// The job
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const EXAMPLES: &str = "\
Example:
  litctl carbon profile --gpus 8 --tokens-per-iteration 16384 --out P.csv -- \\
      torchrun --nproc-per-node 8 pretrain_gpt.py \\
      --tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp}";

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Why a configuration can't train: its job has ended by itself, or has logged no iteration.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Infeasible(String);

/// The measurements of one run.
struct Measured {
    iteration: Seconds,
    power: Watts,
    /// From the last run's request to this one's first iteration.
    switch: Option<Seconds>,
}

pub fn run(args: &Args) -> Outcome {
    let wanted = match args.only.is_empty() {
        true => Configuration::all(args.gpus),
        false => args.only.clone(),
    };
    if let Some(wrong) = wanted.iter().find(|it| it.world_size() != Some(args.gpus)) {
        return Err(format!("--only: {wrong} does not use {} GPUs", args.gpus).into());
    }
    // A power that no profile may have is refused before the first launch, and not after an hour.
    let now = power(args)?;
    for configuration in &wanted {
        let point = Point {
            configuration: *configuration,
            power: now,
            rate: TokensPerSecond(1.0),
        };
        Profile::new(vec![point], None)?;
    }
    fs::create_dir_all(&args.state)
        .map_err(|error| format!("{}: {error}", args.state.display()))?;
    can_be_written(&args.out)?;
    let (mut points, mut switches) = (Vec::new(), Vec::new());
    let mut asked: Option<Instant> = None;
    let mut left_out = Vec::new();
    let mut measured_until_now = None;
    for (number, &configuration) in wanted.iter().enumerate() {
        output::note(&format!(
            "{configuration} ({} of {})",
            number + 1,
            wanted.len()
        ));
        let mut run = Running::start(args, configuration)?;
        let measured = run.measure(args, asked);
        let is_infeasible = measured
            .as_ref()
            .is_err_and(|error| error.is::<Infeasible>());
        // What comes after a job that failed begins without its checkpoint, and tells nothing of a switch.
        asked = (!is_infeasible).then(Instant::now);
        let ended = run.end(args);
        let measured = match measured {
            Err(error) if is_infeasible => {
                left_out.push(format!("{configuration} is left out: {error}"));
                output::note(&left_out[left_out.len() - 1]);
                continue;
            }
            measured => measured.map_err(|error| format!("{configuration}: {error}"))?,
        };
        if let Err(error) = ended {
            output::note(&format!("{configuration}: {error}: it was killed"));
            asked = None;
        }
        switches.extend(measured.switch.map(|it| it.0));
        points.push(Point {
            configuration,
            power: measured.power,
            rate: TokensPerSecond(args.tokens_per_iteration.0 / measured.iteration.0),
        });
        // What was measured is there whatever happens to the next one.
        let profile = profile(&points, &switches)?;
        fs::write(&args.out, profile.to_csv())
            .map_err(|error| format!("{}: {error}", args.out.display()))?;
        measured_until_now = Some(profile);
    }
    match measured_until_now {
        Some(profile) => output::text(&table(args, &profile)),
        None => Err(format!(
            "no configuration could be measured: {}",
            left_out.join("; ")
        )
        .into()),
    }
}

/// Whether a profile can be written there is tried before the first launch, and not after an hour.
fn can_be_written(path: &Path) -> Outcome {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let tried = fs::write(beside, "").and_then(|()| fs::remove_file(beside));
    tried.map_err(|error| format!("--out {}: {error}", path.display()))?;
    match path.is_dir() {
        true => Err(format!(
            "--out {}: it is a folder, and must be a file",
            path.display()
        )
        .into()),
        false => Ok(()),
    }
}

/// What was measured, with the mean of what switches took.
fn profile(points: &[Point], switches: &[f64]) -> Fallible<Profile> {
    let mean = switches.iter().sum::<f64>() / switches.len().max(1) as f64;
    let switch = (!switches.is_empty()).then_some(Seconds(mean));
    Ok(Profile::new(points.to_vec(), switch)?)
}

/// The profile with energy for each iteration and token (section 3).
fn table(args: &Args, profile: &Profile) -> String {
    let mut text = String::from("configuration        watts   tokens/s  J/iteration  mJ/token\n");
    for point in profile.points() {
        let iteration = args.tokens_per_iteration / point.rate;
        text += &format!(
            "{:<20} {:>5.0} {:>10.0} {:>12.1} {:>9.3}\n",
            point.configuration.to_string(),
            point.power.0,
            point.rate.0,
            (point.power * iteration).0,
            point.power.0 / point.rate.0 * 1e3
        );
    }
    text += &match profile.switch() {
        Some(switch) => format!("a switch takes {:.1} s\n", switch.0),
        None => "no switch was measured\n".to_owned(),
    };
    text
}

/// The job in one configuration.
struct Running {
    child: Child,
    lines: Receiver<String>,
    began: Instant,
}

impl Running {
    fn start(args: &Args, configuration: Configuration) -> Fallible<Self> {
        let due = job::request(&args.state);
        if due.exists() {
            fs::remove_file(&due).map_err(|error| format!("{}: {error}", due.display()))?;
        }
        let words = job::command(&args.command, configuration);
        let (program, rest) = words.split_first().ok_or("the command is missing")?;
        let mut command = Command::new(program);
        command.args(rest).stdout(Stdio::piped()).process_group(0);
        job::environment(&mut command, configuration, &due);
        let began = Instant::now();
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let stdout = child
            .stdout
            .take()
            .ok_or("the job has no standard output")?;
        let (sender, lines) = channel();
        // Ends with the job's output.
        thread::spawn(move || {
            let read = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
            // Jobs may write anything; what is looked for are numbers.
            read.take_while(|line| {
                let line = String::from_utf8_lossy(line).into_owned();
                sender.send(line).is_ok()
            })
            .count()
        });
        Ok(Self {
            child,
            lines,
            began,
        })
    }

    /// The next iteration's time; `None` at the end of the time.
    fn iteration(&self, until: Instant) -> Fallible<Option<Seconds>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(time) = log::iteration(&line) {
                        return Ok(Some(time));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    let what = "the job ended before it was measured; it must train on until it is told to end";
                    return Err(Infeasible(what.to_owned()).into());
                }
            }
        }
    }

    fn measure(&mut self, args: &Args, asked: Option<Instant>) -> Fallible<Measured> {
        let patience = self.began + Duration::from_secs_f64(args.patience.0.min(1e7));
        let first = self.iteration(patience)?.ok_or_else(|| {
            Infeasible(format!(
                "no line with \"elapsed time per iteration (ms)\" within {:.0} s",
                args.patience.0
            ))
        })?;
        let switch = asked.map(|asked| Seconds((asked.elapsed().as_secs_f64() - first.0).max(0.0)));
        let mut warm_up = WarmUp::new(Duration::from_secs_f64(args.warm_up.0.min(60.0)));
        let began = Instant::now();
        while !warm_up.is_over(began.elapsed()) {
            match self.iteration(patience)? {
                Some(time) => warm_up.push(time),
                None => break,
            }
        }
        let until = Instant::now() + Duration::from_secs_f64(args.seconds.0.min(1e7));
        let mut times = Vec::new();
        let mut powers = VecDeque::new();
        let mut read = Instant::now();
        while let Some(time) = self.iteration(until)? {
            times.push(time.0);
            if powers.is_empty() || read.elapsed() >= Duration::from_secs(1) {
                read = Instant::now();
                powers.push_back(power(args)?.0);
            }
        }
        if times.is_empty() {
            return Err(
                "no iteration was logged while it was measured: --seconds must be longer".into(),
            );
        }
        Ok(Measured {
            iteration: Seconds(times.iter().sum::<f64>() / times.len() as f64),
            power: Watts(powers.iter().sum::<f64>() / powers.len().max(1) as f64),
            switch,
        })
    }

    /// Asks for a checkpoint and waits for the end.
    fn end(&mut self, args: &Args) -> Fallible<()> {
        let due = job::request(&args.state);
        fs::write(&due, "").map_err(|error| format!("{}: {error}", due.display()))?;
        let until = Instant::now() + Duration::from_secs_f64(args.patience.0.min(1e7));
        while Instant::now() < until {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let group = i32::try_from(self.child.id()).map(|pid| Pid::from_raw(-pid))?;
        let _: Result<(), nix::Error> = kill(group, Signal::SIGKILL);
        self.child.wait()?;
        Err("the job did not end when it was asked for a checkpoint".into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let _: Result<(), nix::Error> = kill(Pid::from_raw(-pid), Signal::SIGKILL);
            let _: std::io::Result<std::process::ExitStatus> = self.child.wait();
        }
    }
}

/// The power of the node's GPUs now.
fn power(args: &Args) -> Fallible<Watts> {
    if let Some(power) = args.power {
        return Ok(power);
    }
    let status = args.socket.client()?.status()?;
    let gpus = status
        .devices
        .iter()
        .filter(|it| it.name.starts_with("gpu"));
    let powers: Vec<Watts> = gpus.filter_map(|it| it.power).collect();
    match powers.is_empty() {
        true => Err("litd reads no GPU's power here; give --power".into()),
        false => Ok(powers.into_iter().sum()),
    }
}
