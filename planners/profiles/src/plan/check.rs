//! Finds mistakes in a plan.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use litd_units::Hertz;
use serde::Serialize;

use super::totals;
use super::{
    Contract, Format, Instruction, LONGEST_MESSAGE, Partition, PlanError, Stage, escaped, shown,
};

/// The instructions that engines run and litd's schedules have, with what they are. An engine's own names
/// are told to [`Check::new`].
pub const INSTRUCTIONS: [(&str, &str); 4] = [
    ("forward", "a microbatch's forward"),
    ("recompute", "its forward once more, for the backward"),
    ("backward", "its backward"),
    ("weight", "the weights' part of its backward"),
];

/// No GPU runs as fast.
const MAX_MEGAHERTZ: f64 = 10_000.0;
/// No GPU has as many multiprocessors.
const MAX_SMS: u32 = 1024;
/// A block of CUDA has at most so many threads, in whole warps.
const MAX_THREADS: u32 = 1024;
const WARP: u32 = 32;
/// How far numbers that say the same may be apart: power from energy by time, totals from sums.
pub(super) const TOLERANCE: f64 = 0.01;
/// More than so many problems are counted only.
const MAX_PROBLEMS: usize = 20;

/// A plan's summary and mistakes: the output of `litctl plan check`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The format; `None` (JSON's null) where it can't be told.
    pub kind: Option<Format>,
    /// How many stages there are.
    pub stages: usize,
    /// How many instructions all stages have together.
    pub instructions: usize,
    /// How many microbatches there are.
    pub microbatches: usize,
    /// The clocks that it locks, each once, lowest first.
    pub clocks_mhz: Vec<u32>,
    /// How many instructions have each partition planned.
    pub partitions: BTreeMap<String, usize>,
    /// Whether nothing is wrong.
    pub ok: bool,
    /// The mistakes, with their places.
    pub problems: Vec<String>,
}

/// An instruction that an engine runs on a GPU, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// The work.
    pub instruction: String,
    /// Of which microbatch.
    pub microbatch: u32,
    /// Of which chunk of layers.
    pub chunk: u32,
}

impl Check {
    /// Reads a plan and checks it. `engine` has the names of instructions that the engine runs besides
    /// [`INSTRUCTIONS`].
    #[must_use]
    pub fn of(text: &str, engine: &[String]) -> (Self, Option<Contract>) {
        match Contract::read(text) {
            Ok((format, contract)) => (Self::new(format, &contract, engine), Some(contract)),
            Err(error) => {
                let kind = error.format();
                let refused = Self::refused(&error);
                (Self { kind, ..refused }, None)
            }
        }
    }

    /// The result for text that is no plan, or can't be read.
    #[must_use]
    pub fn refused(why: &dyn std::fmt::Display) -> Self {
        Self {
            kind: None,
            stages: 0,
            instructions: 0,
            microbatches: 0,
            clocks_mhz: Vec::new(),
            partitions: BTreeMap::new(),
            ok: false,
            problems: vec![why.to_string()],
        }
    }

    /// Checks a plan.
    #[must_use]
    pub fn new(format: Format, contract: &Contract, engine: &[String]) -> Self {
        let all = || contract.instructions().map(|(_, instruction)| instruction);
        let clocks: BTreeSet<u32> = all()
            .filter_map(|own| Some(megahertz(own.clock?).round() as u32))
            .collect();
        let mut partitions = BTreeMap::new();
        for partition in all().flat_map(|own| &own.partitions) {
            *partitions.entry(partition.name.clone()).or_default() += 1;
        }
        let microbatches: BTreeSet<u32> = all().map(|own| own.microbatch).collect();
        let problems = contract.problems(engine);
        Self {
            kind: Some(format),
            stages: contract.stages.len(),
            instructions: all().count(),
            microbatches: microbatches.len(),
            clocks_mhz: clocks.into_iter().collect(),
            partitions,
            ok: problems.is_empty(),
            problems,
        }
    }

    /// Adds what another look has found.
    pub fn add(&mut self, problems: impl IntoIterator<Item = String>) {
        self.problems.extend(problems);
        self.ok = self.problems.is_empty();
    }
}

fn megahertz(clock: Hertz) -> f64 {
    clock.0 / 1e6
}

/// Problems, of which only the first are kept.
#[derive(Default)]
struct Problems {
    kept: Vec<String>,
    more: usize,
}

impl Problems {
    fn add(&mut self, problem: String) {
        let problem = escaped(&problem, LONGEST_MESSAGE);
        match self.kept.len() < MAX_PROBLEMS {
            true => self.kept.push(problem),
            false => self.more += 1,
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.kept.push(format!("and {} more", self.more));
        }
        self.kept
    }
}

impl Contract {
    /// Mistakes of the plan by itself: missing stages, instructions that no engine runs or that are in the wrong
    /// order, impossible clocks and expectations.
    #[must_use]
    pub fn problems(&self, engine: &[String]) -> Vec<String> {
        let mut problems = Problems::default();
        if self.stages.is_empty() {
            problems.add("the plan has no stage".into());
        }
        for (wanted, stage) in (0..).zip(&self.stages) {
            if stage.stage != wanted {
                problems.add(format!(
                    "stages[{wanted}] is stage {}, where stage {wanted} is wanted: a plan has every \
                     stage once, from 0 on",
                    stage.stage
                ));
            }
            check_stage(stage, engine, &mut problems);
        }
        self.check_microbatches(&mut problems);
        self.check_expectations(&mut problems);
        problems.finish()
    }

    /// Where the plan is not what an engine runs, whose GPUs do these steps.
    ///
    /// # Errors
    /// At the first difference, with its place.
    pub fn fits(&self, engine: &[Vec<Step>]) -> Result<(), PlanError> {
        if self.stages.len() != engine.len() {
            return Err(PlanError::new(format!(
                "the plan has {} stages, and the engine runs {}",
                self.stages.len(),
                engine.len()
            )));
        }
        for (stage, steps) in self.stages.iter().zip(engine) {
            let place = |number: usize| format!("stage {}, instruction {number}", stage.stage);
            for (number, (own, step)) in stage.instructions.iter().zip(steps).enumerate() {
                if own.step() != *step {
                    return Err(PlanError::new(format!(
                        "{}: {}, where the engine runs {}",
                        place(number),
                        own.label(),
                        Instruction::from(step.clone()).label()
                    )));
                }
            }
            let (own, engine) = (stage.instructions.len(), steps.len());
            if own != engine {
                return Err(PlanError::new(format!(
                    "{}: the plan has {own} instructions, and the engine runs {engine}",
                    place(own.min(engine))
                )));
            }
        }
        Ok(())
    }

    /// Takes the numbers of microbatches and chunks from what an engine runs: a Python literal has none, and
    /// what was read from one counts each instruction in turn.
    pub fn number_as(&mut self, engine: &[Vec<Step>]) {
        for (stage, steps) in self.stages.iter_mut().zip(engine) {
            for (own, step) in stage.instructions.iter_mut().zip(steps) {
                (own.microbatch, own.chunk) = (step.microbatch, step.chunk);
            }
        }
    }

    /// Every stage works on the same microbatches.
    fn check_microbatches(&self, problems: &mut Problems) {
        let of = |stage: &Stage| {
            let own = stage.instructions.iter();
            own.map(|own| (own.microbatch, own.chunk))
                .collect::<BTreeSet<_>>()
        };
        let Some(first) = self.stages.first().map(of) else {
            return;
        };
        for stage in &self.stages[1..] {
            let own = of(stage);
            if let Some((microbatch, _)) = own.symmetric_difference(&first).next() {
                let (with, without) = match own.len() > first.len() {
                    true => (stage.stage, self.stages[0].stage),
                    false => (self.stages[0].stage, stage.stage),
                };
                problems.add(format!(
                    "stage {without}: nothing is planned for microbatch {microbatch}, which stage {with} \
                     works on"
                ));
            }
        }
        let mut present = BTreeSet::new();
        present.extend(first.iter().map(|(microbatch, _)| *microbatch));
        if let Some((wanted, _)) = (0..).zip(&present).find(|(wanted, own)| wanted != *own) {
            problems.add(format!("microbatch {wanted} is missing"));
        }
    }

    fn check_expectations(&self, problems: &mut Problems) {
        let totals = &self.totals;
        let origin = self.frontier.iter();
        let times = origin.clone().flat_map(|it| {
            [
                it.unit,
                it.time,
                it.shortest,
                it.longest,
                it.cheapest,
                it.full_clock,
            ]
        });
        let points = origin.clone().flat_map(|it| &it.points);
        let numbers = [totals.time.map(|it| it.0), totals.until.map(|it| it.0)];
        let numbers = numbers.into_iter().flatten();
        let numbers = numbers.chain(self.blocking.map(|it| it.0));
        let numbers = numbers.chain(totals.energy.map(|it| it.0));
        let numbers = numbers.chain(times.map(|it| it.0));
        let mut numbers = numbers.chain(points.flat_map(|(time, energy)| [time.0, energy.0]));
        if numbers.any(|number| !(number.is_finite() && number >= 0.0)) {
            problems.add("a total, or a number of the frontier, is negative".into());
        }
        for it in origin {
            if !(it.shortest <= it.time && it.time <= it.longest) {
                problems.add(
                    "frontier: its point is not between its shortest and its longest time".into(),
                );
            }
        }
        totals::contradictions(self).for_each(|it| problems.add(it));
    }
}

fn check_stage(stage: &Stage, engine: &[String], problems: &mut Problems) {
    let number = stage.stage;
    if stage.instructions.is_empty() {
        problems.add(format!("stage {number}: nothing is planned for it"));
    }
    let mut done: HashSet<(&str, u32, u32)> = HashSet::new();
    for (at, own) in stage.instructions.iter().enumerate() {
        let mut add = |what: String| {
            problems.add(format!(
                "stage {number}, instruction {at} ({}): {what}",
                own.label()
            ));
        };
        let name = own.instruction.as_str();
        let is_known = INSTRUCTIONS.iter().any(|(known, _)| *known == name);
        if !is_known && !engine.iter().any(|known| known == name) {
            add(format!("no engine runs \"{}\"", shown(name)));
        }
        let has = |what: &str| done.contains(&(what, own.microbatch, own.chunk));
        if has(name) {
            add("it is planned twice".into());
        }
        match name {
            "recompute" | "backward" if !has("forward") => {
                add("it comes before its forward".into())
            }
            "weight" if !has("backward") => add("it comes before its backward".into()),
            "recompute" if has("backward") => add("it comes after its backward".into()),
            _ => {}
        }
        done.insert((name, own.microbatch, own.chunk));
        own.faults().for_each(&mut add);
        let names: BTreeSet<&str> = own.partitions.iter().map(|it| it.name.as_str()).collect();
        if names.len() < own.partitions.len() {
            add("a partition is planned twice".into());
        }
    }
    let forwards = done.iter().filter(|(name, ..)| *name == "forward");
    for (_, microbatch, chunk) in forwards.collect::<BTreeSet<_>>() {
        if !done.contains(&("backward", *microbatch, *chunk)) {
            problems.add(format!(
                "stage {number}: microbatch {microbatch} has a forward and no backward"
            ));
        }
    }
}

impl Instruction {
    /// The engine's instruction.
    #[must_use]
    pub fn step(&self) -> Step {
        Step {
            instruction: self.instruction.clone(),
            microbatch: self.microbatch,
            chunk: self.chunk,
        }
    }

    /// Impossible values of this instruction alone.
    fn faults(&self) -> impl Iterator<Item = String> {
        let clock = self.clock.map(megahertz);
        let clock =
            clock.filter(|clock| !((1.0..=MAX_MEGAHERTZ).contains(clock) && clock.fract() == 0.0));
        let clock = clock.map(|clock| {
            format!("its clock is {clock} MHz, no whole number from 1 to {MAX_MEGAHERTZ}")
        });
        let numbers = [
            ("time_ms", self.time.map(|it| it.0)),
            ("energy_j", self.energy.map(|it| it.0)),
            ("power_w", self.power.map(|it| it.0)),
            ("slack_ms", self.slack.map(|it| it.0)),
        ];
        let negative = numbers
            .into_iter()
            .filter(|(_, number)| number.is_some_and(|it| !(it.is_finite() && it >= 0.0)))
            .map(|(name, _)| format!("its {name} is negative"));
        let contradiction = self.contradiction();
        let partitions = self.partitions.iter().filter_map(Partition::fault);
        clock
            .into_iter()
            .chain(negative)
            .chain(contradiction)
            .chain(partitions)
    }

    fn contradiction(&self) -> Option<String> {
        let (time, energy, power) = (self.time?.0 * 1e-3, self.energy?.0, self.power?.0);
        let off = (power * time - energy).abs() > TOLERANCE * energy.abs();
        off.then(|| format!("{energy} J in {time} s are not {power} W"))
    }
}

impl From<Step> for Instruction {
    fn from(step: Step) -> Self {
        let Step {
            instruction,
            microbatch,
            chunk,
        } = step;
        Self {
            instruction,
            microbatch,
            chunk,
            ..Self::default()
        }
    }
}

impl Partition {
    fn fault(&self) -> Option<String> {
        let Self {
            name,
            launch,
            end,
            sms,
            threads,
        } = self;
        let what = if !is_slot(launch) {
            format!(
                "\"{}\" is no place to launch it, such as norm_0",
                shown(launch)
            )
        } else if let Some(end) = end.as_ref().filter(|end| !is_slot(end)) {
            format!("\"{}\" is no place to end it, such as attn_0", shown(end))
        } else if !(1..=MAX_SMS).contains(sms) {
            format!("{sms} SMs, not 1 to {MAX_SMS}")
        } else if !(1..=MAX_THREADS).contains(threads) || threads % WARP != 0 {
            format!(
                "blocks of {threads} threads, not {WARP} to {MAX_THREADS} in whole warps of {WARP}"
            )
        } else if name.is_empty() {
            "it has no name".into()
        } else {
            return None;
        };
        Some(format!("partition {}: {what}", shown(name)))
    }
}

/// Whether it names a kernel of a layer: a word, and which of its kind.
fn is_slot(text: &str) -> bool {
    let Some((word, number)) = text.rsplit_once('_') else {
        return false;
    };
    let is_word = word.starts_with(|letter: char| letter.is_ascii_lowercase())
        && word
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    let is_number =
        !number.is_empty() && number.len() <= 6 && number.bytes().all(|it| it.is_ascii_digit());
    is_word && is_number
}
