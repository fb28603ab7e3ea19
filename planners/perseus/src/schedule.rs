//! The graphs of the pipeline schedules that people use (section 4.4).

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use thiserror::Error;

use crate::graph::{Graph, GraphError, MAX_OPERATIONS, Node};
use litd_profiles::{Kind, MAX_STAGES, plan};

/// In which order stages work on microbatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// "One forward, one backward" (PipeDream's, synchronous): instructions forward, backward.
    OneForwardOneBackward,
    /// All forwards, then all backwards, the last microbatch first.
    GPipe,
    /// Megatron's: each GPU has so many chunks of layers. Chunk c of GPU g is stage
    /// `c * stages + g` of the profile.
    Interleaved {
        /// How many chunks each GPU has.
        chunks: u32,
    },
    /// 1F1B in which the forward is computed again before each backward, ahead of the gradient's
    /// arrival: forward, recompute, backward. The last stage needs no recomputation.
    EarlyRecomputation,
    /// ZB-H1 of zero bubble: the backward computes only what the stage before waits for; the
    /// weights' gradients follow later and fill bubbles: forward, backward, weight.
    ZeroBubble,
}

/// Why there is no such schedule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ScheduleError {
    #[error("a pipeline has at least 1 stage and 1 microbatch, and at most {MAX_SIDE} of each")]
    Size,
    #[error(
        "interleaving wants 1 to {MAX_SIDE} chunks, and microbatches in multiples of the {stages} stages, not {microbatches}"
    )]
    Interleaving { stages: u32, microbatches: u32 },
    #[error("{0:?} is no schedule")]
    Unknown(String),
    #[error("chunks of layers are for the schedule interleaved, not for {0}")]
    Chunks(String),
    #[error("the profile's {stages} stages are no multiple of {chunks} chunks per GPU")]
    Uneven { stages: u32, chunks: u32 },
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Operations whose time no clock changes (section 4.4), with what they are. A built-in schedule has those of
/// which the profile has a row for the stage. Loading and synchronising keep the GPU; a transfer follows upon the
/// one before it on its link, beside the GPU's computations. None has a clock, so that none is in a plan.
pub const CONSTANT: [(&str, &str); 4] = [
    ("load", "a microbatch's data, before its forward"),
    (
        "send-forward",
        "a microbatch's activations, to the next stage",
    ),
    (
        "send-backward",
        "a microbatch's gradients, to the stage before",
    ),
    (
        "synchronize",
        "the stage's gradients, with the other pipelines, after the last backward",
    ),
];

/// Whether an operation of this name takes the same time at any clock.
#[must_use]
pub fn is_constant(instruction: &str) -> bool {
    CONSTANT.iter().any(|(name, _)| *name == instruction)
}

const MAX_SIDE: u32 = MAX_STAGES;

/// An instruction on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    what: What,
    /// The stage in the profile's sense: with interleaving, there are several on a GPU.
    stage: u32,
    microbatch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Forward,
    Recompute,
    Backward,
    Weight,
    Load,
    SendForward,
    SendBackward,
    Synchronize,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Forward => "forward",
            What::Recompute => "recompute",
            What::Backward => "backward",
            What::Weight => "weight",
            What::Load => "load",
            What::SendForward => "send-forward",
            What::SendBackward => "send-backward",
            What::Synchronize => "synchronize",
        }
    }
}

impl Schedule {
    /// The usual name of each schedule, and its description.
    pub const NAMES: [(&'static str, &'static str); 5] = [
        ("1f1b", "One forward, one backward"),
        ("gpipe", "All forwards, then all backwards"),
        ("interleaved", "Megatron's interleaved 1F1B"),
        (
            "early-recomputation",
            "1F1B with the recomputation ahead of the gradients' arrival",
        ),
        ("zero-bubble", "ZB-H1: weights' gradients fill the bubbles"),
    ];

    /// The schedule of this name. Interleaved GPUs have two chunks unless `chunks` says otherwise.
    ///
    /// # Errors
    /// If there is none, or it has no chunks.
    pub fn named(name: &str, chunks: Option<u32>) -> Result<Self, ScheduleError> {
        let schedule = match name {
            "1f1b" => Self::OneForwardOneBackward,
            "gpipe" => Self::GPipe,
            "interleaved" => Self::Interleaved {
                chunks: chunks.unwrap_or(2),
            },
            "early-recomputation" => Self::EarlyRecomputation,
            "zero-bubble" => Self::ZeroBubble,
            _ => return Err(ScheduleError::Unknown(name.to_owned())),
        };
        match (schedule, chunks) {
            (Self::Interleaved { .. }, _) | (_, None) => Ok(schedule),
            _ => Err(ScheduleError::Chunks(name.to_owned())),
        }
    }

    /// How many chunks of layers, which are stages of the profile, each GPU has.
    #[must_use]
    pub fn chunks(self) -> u32 {
        match self {
            Self::Interleaved { chunks } => chunks,
            _ => 1,
        }
    }

    /// How many GPUs stand in a row where the profile has so many stages.
    ///
    /// # Errors
    /// If that is no whole number.
    pub fn gpus(self, stages: u32) -> Result<u32, ScheduleError> {
        let chunks = self.chunks();
        match stages.checked_rem(chunks) {
            Some(0) => Ok(stages / chunks),
            _ => Err(ScheduleError::Uneven { stages, chunks }),
        }
    }

    /// The graph of one iteration on so many GPUs in a row.
    ///
    /// # Errors
    /// If there is no stage or microbatch, too many, or they don't fit the schedule.
    pub fn graph(self, stages: u32, microbatches: u32) -> Result<Graph, ScheduleError> {
        self.graph_with(stages, microbatches, |_| false)
    }

    /// The same with the constant-time operations (section 4.4, [`CONSTANT`]) that a profile has.
    ///
    /// # Errors
    /// As [`Self::graph`].
    pub fn graph_with(
        self,
        stages: u32,
        microbatches: u32,
        has: impl Fn(&Kind) -> bool,
    ) -> Result<Graph, ScheduleError> {
        let has = |what: What, stage: u32| {
            has(&Kind {
                stage,
                instruction: what.name().into(),
            })
        };
        let mut lanes = self.lanes(stages, microbatches)?;
        for lane in &mut lanes {
            add_constants(lane, &has);
        }
        let operations = lanes.iter().map(Vec::len).sum::<usize>();
        if 2 * operations > MAX_OPERATIONS {
            return Err(GraphError::TooMany(operations).into());
        }
        Ok(join(&lanes, stages * self.chunks(), has)?)
    }

    /// The instructions of each GPU in a row in an iteration, in its order: a plan must have all of them.
    ///
    /// # Errors
    /// As [`Self::graph`].
    pub fn steps(
        self,
        stages: u32,
        microbatches: u32,
    ) -> Result<Vec<Vec<plan::Step>>, ScheduleError> {
        let step = |step: &Step| plan::Step {
            instruction: step.what.name().into(),
            microbatch: step.microbatch,
            chunk: step.stage / stages,
        };
        let lanes = self.lanes(stages, microbatches)?;
        Ok(lanes
            .iter()
            .map(|it| it.iter().map(step).collect())
            .collect())
    }

    fn lanes(self, stages: u32, microbatches: u32) -> Result<Vec<Vec<Step>>, ScheduleError> {
        let possible = 1..=MAX_SIDE;
        if !(possible.contains(&stages) && possible.contains(&microbatches)) {
            return Err(ScheduleError::Size);
        }
        let chunks = self.chunks();
        let fits = possible.contains(&chunks) && microbatches.is_multiple_of(stages);
        if matches!(self, Schedule::Interleaved { .. }) && !fits {
            return Err(ScheduleError::Interleaving {
                stages,
                microbatches,
            });
        }
        let operations = u64::from(stages) * u64::from(microbatches) * u64::from(chunks) * 3;
        if operations > MAX_OPERATIONS as u64 {
            return Err(GraphError::TooMany(operations as usize).into());
        }
        let lanes = (0..stages).map(|gpu| self.lane(gpu, stages, microbatches));
        Ok(lanes.collect())
    }

    /// The instructions of a GPU, in order.
    fn lane(self, gpu: u32, stages: u32, microbatches: u32) -> Vec<Step> {
        let step = |what| {
            move |microbatch| Step {
                what,
                stage: gpu,
                microbatch,
            }
        };
        let (forward, backward) = (step(What::Forward), step(What::Backward));
        let ahead = (stages - 1 - gpu).min(microbatches);
        let mut lane = Vec::new();
        match self {
            Schedule::OneForwardOneBackward => {
                alternate(&mut lane, ahead, microbatches, forward, |lane, n| {
                    lane.push(backward(n));
                });
            }
            Schedule::GPipe => {
                lane.extend((0..microbatches).map(forward));
                lane.extend((0..microbatches).rev().map(backward));
            }
            Schedule::Interleaved { chunks } => {
                return interleaved(gpu, stages, microbatches, chunks);
            }
            Schedule::EarlyRecomputation => {
                let recompute = step(What::Recompute);
                alternate(&mut lane, ahead, microbatches, forward, |lane, n| {
                    if gpu + 1 < stages {
                        lane.push(recompute(n));
                    }
                    lane.push(backward(n));
                });
            }
            Schedule::ZeroBubble => {
                let weight = step(What::Weight);
                // Later stages put off more: their bubbles are at the end.
                let late = gpu.min(microbatches);
                alternate(&mut lane, ahead, microbatches, forward, |lane, n| {
                    lane.push(backward(n));
                    if n >= late {
                        lane.push(weight(n - late));
                    }
                });
                lane.extend((microbatches - late..microbatches).map(weight));
            }
        }
        lane
    }
}

/// So many forwards ahead; then one for each backward, as long as there are some.
fn alternate(
    lane: &mut Vec<Step>,
    ahead: u32,
    microbatches: u32,
    forward: impl Fn(u32) -> Step,
    mut backward: impl FnMut(&mut Vec<Step>, u32),
) {
    lane.extend((0..ahead).map(&forward));
    for microbatch in 0..microbatches {
        if ahead + microbatch < microbatches {
            lane.push(forward(ahead + microbatch));
        }
        backward(lane, microbatch);
    }
}

/// Megatron's interleaved 1F1B: microbatches go through each chunk in groups of as many as there
/// are stages.
fn interleaved(gpu: u32, stages: u32, microbatches: u32, chunks: u32) -> Vec<Step> {
    let total = microbatches * chunks;
    let group = stages * chunks;
    let step = |what: What, number: u32| {
        let (round, within) = (number / group, number % group);
        let chunk = match what {
            What::Forward => within / stages,
            _ => chunks - 1 - within / stages,
        };
        Step {
            what,
            stage: chunk * stages + gpu,
            microbatch: round * stages + within % stages,
        }
    };
    let ahead = match chunks {
        1 => stages - 1 - gpu,
        _ => (stages - 1 - gpu) * 2 + (chunks - 1) * stages,
    };
    let mut lane = Vec::new();
    alternate(
        &mut lane,
        ahead.min(total),
        total,
        |number| step(What::Forward, number),
        |lane, number| lane.push(step(What::Backward, number)),
    );
    lane
}

/// Adds a GPU's instructions of constant time: it loads before each forward, and synchronises each of its stages
/// after everything.
fn add_constants(lane: &mut Vec<Step>, has: &impl Fn(What, u32) -> bool) {
    let stages: BTreeSet<u32> = lane.iter().map(|step| step.stage).collect();
    if stages.iter().any(|stage| has(What::Load, *stage)) {
        let with_load = std::mem::take(lane).into_iter().flat_map(|step| {
            let loads = step.what == What::Forward && has(What::Load, step.stage);
            let what = What::Load;
            let load = loads.then_some(Step { what, ..step });
            load.into_iter().chain([step])
        });
        *lane = with_load.collect();
    }
    let synchronized = stages
        .into_iter()
        .filter(|stage| has(What::Synchronize, *stage));
    lane.extend(synchronized.map(|stage| Step {
        what: What::Synchronize,
        stage,
        microbatch: 0,
    }));
}

/// Each GPU does one after the other; activations go to the next stage, gradients to the one
/// before, over links that take their time where the profile has them.
fn join(
    lanes: &[Vec<Step>],
    stages: u32,
    has: impl Fn(What, u32) -> bool,
) -> Result<Graph, GraphError> {
    let all = lanes.iter().flatten();
    let number: HashMap<Step, u64> = all.clone().copied().zip(2..).collect();
    let node = |step: &Step, id: u64| Node {
        id,
        kind: Kind {
            stage: step.stage,
            instruction: step.what.name().into(),
        },
        microbatch: step.microbatch,
    };
    let mut nodes: Vec<Node> = all.zip(2..).map(|(step, id)| node(step, id)).collect();
    let mut edges = Vec::new();
    for lane in lanes {
        let pairs = lane.windows(2);
        edges.extend(pairs.map(|pair| (number[&pair[0]], number[&pair[1]])));
    }
    // The transfer that a link has made last.
    let mut links: HashMap<(What, u32), u64> = HashMap::new();
    for step in lanes.iter().flatten() {
        let (stage, what) = match step.what {
            What::Forward if step.stage + 1 < stages => (step.stage + 1, What::SendForward),
            What::Backward if step.stage > 0 => (step.stage - 1, What::SendBackward),
            _ => continue,
        };
        let mut from = number[step];
        if has(what, step.stage) {
            let id = nodes.len() as u64 + 2;
            nodes.push(node(&Step { what, ..*step }, id));
            edges.push((from, id));
            let before = links.insert((what, step.stage), id);
            edges.extend(before.map(|before| (before, id)));
            from = id;
        }
        edges.push((from, number[&Step { stage, ..*step }]));
    }
    Graph::new(&nodes, &edges)
}
