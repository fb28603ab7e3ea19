//! A job without a hook, sampled by traces on demand: processes that ask as PyTorch's client does, on a simulated node
//! whose iterations are written into the files that they are asked for. SIMULATED.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use litd_api::{Command, EventKind, JobState, JobStatus};
use litd_sim::kineto::{Marks, write_marked};
use litd_traces::Timeline;
use litd_units::{Nanos, Watts};

use super::client::rank;
use super::{BUDGET, Cost, Namespace, ON, alone, job, steering};
use crate::stand::{GPUS, SOON, Stand};

/// A node, and the processes of a job on it.
pub struct Node {
    pub stand: Stand,
    pub children: Vec<Child>,
    /// The configurations that processes were told, by their ranks.
    pub told: Receiver<(usize, String)>,
    /// Where processes are told to connect as hooks.
    hooks: tempfile::TempDir,
    _namespace: Namespace,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

impl Node {
    /// `None`, and a sentence on why, where no namespace can be made.
    fn new(policy: &str) -> Option<Self> {
        let namespace = alone()?;
        let (out, told) = channel();
        let mut node = Self::with(policy, "", "trains", told, namespace);
        for (number, child) in node.children.iter_mut().enumerate() {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let out = out.clone();
            thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    let told = line.split_once('<').and_then(|(_, it)| it.split_once('>'));
                    if let Some((told, _)) = told
                        && out.send((number, told.to_owned())).is_err()
                    {
                        return;
                    }
                }
            });
        }
        Some(node)
    }

    /// The same, whose processes do that and are told in some other way.
    pub fn with(
        policy: &str,
        config: &str,
        errand: &str,
        told: Receiver<(usize, String)>,
        namespace: Namespace,
    ) -> Self {
        let sampled = "attach.kineto_samples = true\nattach.kineto_every_seconds = 30.0\n";
        let stand = Stand::clocked(&format!(
            "{}{ON}{sampled}{config}attach.traces = \"{}\"\n",
            steering(policy),
            std::env::temp_dir().display()
        ));
        let hooks = tempfile::tempdir().unwrap();
        let process = |it| rank(errand, it, GPUS, hooks.path());
        let children: Vec<Child> = (0..GPUS).map(process).collect();
        for (number, child) in children.iter().enumerate() {
            stand.rig.hardware().set_holders(number, vec![child.id()]);
        }
        Self {
            stand,
            children,
            told,
            hooks,
            _namespace: namespace,
        }
    }

    fn end(&mut self) {
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    /// Lets time pass until all processes are told to record, and returns the files that they are to write.
    pub fn told(&mut self) -> Vec<PathBuf> {
        let mut files = vec![None; GPUS];
        let deadline = Instant::now() + 2 * SOON;
        while files.iter().any(Option::is_none) {
            assert!(
                Instant::now() < deadline,
                "{:?}\n{}",
                self.stand.traceable(),
                self.stand.said()
            );
            self.stand.pass(1.0);
            while let Ok((number, told)) = self.told.recv_timeout(Duration::from_millis(50)) {
                let file = told
                    .split(';')
                    .find_map(|it| it.strip_prefix("ACTIVITIES_LOG_FILE="));
                let stem = file.unwrap().strip_suffix(".json").unwrap();
                files[number] = Some(format!("{stem}_{}.json", self.children[number].id()).into());
            }
        }
        files.into_iter().flatten().collect()
    }

    /// What each rank's profiler records now.
    fn recorded(&mut self) -> Vec<Timeline> {
        let mut recorded: Vec<Timeline> = Vec::new();
        for _ in 0..4 {
            self.stand.rig.hardware().run_iteration();
            self.stand.iteration_passes();
            let timelines = self.stand.rig.hardware().plant().timelines();
            match recorded.is_empty() {
                true => recorded = timelines,
                false => {
                    for (all, next) in recorded.iter_mut().zip(timelines) {
                        all.kernels.extend(next.kernels);
                        all.iterations.extend(next.iterations);
                    }
                }
            }
        }
        // By the node's clock, within what litd allows: here the iterations took no time.
        let kernels = || recorded.iter().flat_map(|it| &it.kernels);
        let (first, last) = (
            kernels().map(|it| it.start).min(),
            kernels().map(|it| it.end).max(),
        );
        let by = wall() - Nanos((first.unwrap().0 + last.unwrap().0) / 2);
        for timeline in &mut recorded {
            timeline.sort();
            timeline.shift(by);
        }
        recorded
    }

    /// Waits, in real time, until something is so.
    pub fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !done(self) {
            let told = || {
                (
                    self.stand.traceable().sampled,
                    self.stand.events(EventKind::Job),
                )
            };
            assert!(
                Instant::now() < deadline,
                "{what}: {:#?}\n{}",
                told(),
                self.stand.said()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The same while time passes on the node.
    pub fn pass_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..100 {
            if done(self) {
                return;
            }
            self.stand.pass(0.5);
            thread::sleep(Duration::from_millis(20));
        }
        self.wait(what, done);
    }

    /// One trace of all ranks, which gives a sample.
    pub fn sample(&mut self, marks: Marks) {
        let before = self.samples();
        let files = self.told();
        for (file, timeline) in files.iter().zip(self.recorded()) {
            write(file, &timeline, marks);
        }
        self.wait("a sample", |node| node.samples() > before);
        self.stand.finish();
        let left = files.iter().filter(|file| file.exists()).count();
        assert_eq!(left, 0, "files are removed");
    }

    /// The job is traced until it has converged. Returns what the node cost before, and how many traces that took.
    fn converges(&mut self) -> (Cost, u32) {
        self.sample(Marks::Optimizer);
        let (before, mut rounds) = (Cost::of(&self.stand), 1);
        while job(&self.stand).unwrap().state != JobState::Converged {
            assert!(rounds < 30, "{:#?}", job(&self.stand));
            self.sample(Marks::Optimizer);
            rounds += 1;
        }
        (before, rounds)
    }

    /// Samples and traces that gave none, as far as litd has told.
    fn samples(&self) -> u64 {
        let told = self.stand.traceable().sampled.into_iter().next();
        let text = told.map_or_else(String::new, |it| it.text);
        let number = text
            .split_once(" samples so far")
            .map(|(number, _)| number.parse());
        number.and_then(Result::ok).unwrap_or(0)
    }

    pub fn has_said(&self, part: &str) -> bool {
        self.stand.has_event(EventKind::Fault, part)
    }
}

fn wall() -> Nanos {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Nanos(now.as_nanos().try_into().unwrap())
}

/// As Kineto writes: under another name first.
fn write(file: &Path, timeline: &Timeline, marks: Marks) {
    let mut text = Vec::new();
    write_marked(timeline, marks, &mut text).unwrap();
    let first = file.with_extension("tmp");
    fs::write(&first, text).unwrap();
    fs::rename(&first, file).unwrap();
}

/// SIMULATED: a job whose script knows nothing of litd is balanced.
#[test]
fn a_job_without_a_hook_is_balanced_by_its_own_traces() {
    let Some(mut node) = Node::new("gpu-realloc") else {
        return;
    };
    let (before, rounds) = node.converges();
    println!("SIMULATED: {rounds} traces");
    assert!(node.stand.moved() >= 3, "{:?}", node.stand.held());
    Cost::of(&node.stand).is_as_low_as_by_hooks(before, "gpu-realloc");
    let converged = job(&node.stand).unwrap();
    let measured = converged.measured.unwrap();
    assert!(
        measured.starts_with("Kineto on demand, every 30 s; "),
        "{measured}"
    );
    assert_eq!(converged.ranks.len(), GPUS);
    node.stand.assert_rules();
    // Its end gives all caps back.
    node.stand.rig.ledger().permit_found();
    node.end();
    node.pass_until("its end", |node| job(&node.stand).is_none());
    node.stand.pass(2.0);
    assert!(node.stand.is_back(), "{:?}", node.stand.held());
}

/// SIMULATED: the other aim.
#[test]
fn a_job_without_a_hook_saves_power_by_its_own_traces() {
    let Some(mut node) = Node::new("gpu-red") else {
        return;
    };
    node.stand.rig.ledger().set_budget(BUDGET);
    let (before, rounds) = node.converges();
    println!("SIMULATED: {rounds} traces");
    Cost::of(&node.stand).is_as_low_as_by_hooks(before, "gpu-red");
    node.stand.assert_rules();
}

/// Inference steps no optimizer: iterations are what comes again.
#[test]
fn iterations_without_marks_are_found_by_their_kernels() {
    let Some(mut node) = Node::new("observe") else {
        return;
    };
    for _ in 0..3 {
        node.sample(Marks::Nothing);
    }
    let job = job(&node.stand).unwrap();
    let (told, length) = (job.iteration_time.unwrap(), node.stand.length());
    assert!((told.0 / length.0 - 1.0).abs() < 0.05, "{told} of {length}");
    assert!(job.samples >= 1, "{job:#?}");
    assert_eq!(node.stand.moved(), 0);
}

/// What was recorded while caps moved is of neither the old caps nor the new ones.
#[test]
fn a_trace_during_which_a_cap_was_set_is_no_sample() {
    let Some(mut node) = Node::new("observe") else {
        return;
    };
    node.sample(Marks::Optimizer);
    let (samples, before) = (node.samples(), job(&node.stand).unwrap());
    let files = node.told();
    let watts = Watts(690.0);
    let device = "gpu3".to_owned();
    node.stand.rig.ledger().permit_found();
    node.stand.command(&Command::SetCap { device, watts });
    for (file, timeline) in files.iter().zip(node.recorded()) {
        write(file, &timeline, Marks::Optimizer);
    }
    // The iterations' times are told all the same.
    let iteration = |job: &JobStatus| job.ranks[0].iteration;
    node.wait("its iterations", |node| {
        job(&node.stand).is_some_and(|it| iteration(&it) > iteration(&before))
    });
    node.stand.finish();
    assert_eq!(
        (node.samples(), job(&node.stand).unwrap().samples),
        (samples, before.samples)
    );
}

/// Each is one error, and nothing is steered by it.
#[test]
fn what_is_no_trace_steers_nothing() {
    let Some(mut node) = Node::new("gpu-realloc") else {
        return;
    };
    let files = node.told();
    let recorded = node.recorded();
    for (file, timeline) in files.iter().zip(&recorded) {
        write(file, timeline, Marks::Optimizer);
        if file == &files[3] {
            fs::write(file, "{\"traceEvents\": [garbage").unwrap();
        }
    }
    node.wait("an error", |node| {
        node.has_said("no sample by Kineto on demand: process")
    });
    assert!(
        node.has_said("has written what is no trace: it "),
        "{}",
        node.stand.said()
    );

    // A clock that is an hour off.
    let files = node.told();
    for (number, (file, mut timeline)) in files.iter().zip(node.recorded()).enumerate() {
        if number == 5 {
            timeline.shift(Nanos(3_600_000_000_000));
        }
        write(file, &timeline, Marks::Optimizer);
    }
    node.wait("an error", |node| {
        node.has_said("differs from this node's: by it kernels ran 3")
    });

    // A process that ends instead of writing.
    node.told();
    let mut gone = node.children.remove(2);
    gone.kill().unwrap();
    gone.wait().unwrap();
    node.pass_until("its end", |node| job(&node.stand).is_none());
    assert_eq!(node.stand.moved(), 0);
    let count = node.stand.events(EventKind::Fault).into_iter();
    let count = count
        .filter(|it| it.contains("no sample by Kineto on demand"))
        .count();
    assert!(count <= 3, "one error each: {count}");
}

/// Two ways at once for one rank count once, and the hook's is the better one.
#[test]
fn a_hook_takes_the_place_of_traces() {
    let Some(mut node) = Node::new("observe") else {
        return;
    };
    node.sample(Marks::Optimizer);
    assert_eq!(job(&node.stand).unwrap().ranks.len(), GPUS);
    let socket = node.stand.rig.layout().ingest();
    let hook = node.hooks.path().join(node.children[0].id().to_string());
    fs::write(hook, socket.to_str().unwrap()).unwrap();
    node.wait("the traces' end", |node| job(&node.stand).is_none());
    node.wait("a word on it", |node| {
        let sampled = node.stand.traceable().sampled.into_iter().next();
        sampled.is_some_and(|it| it.text.contains("the hook, which shows more"))
    });
}
