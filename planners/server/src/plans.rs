//! Schedules from plans, made when they are first wanted.

use std::collections::BTreeMap;

use litd_planner::{Job, Pipeline, Plan};
use litd_profiles::plan::Contract;
use litd_units::Millis;

use crate::drift::Expected;
use crate::protocol::{FrequencySchedule, RankInfo};

/// A pipeline's frontier, and the time that degrees are relative to.
#[derive(Debug)]
pub struct Plans {
    job: Job,
    full_speed: Millis,
}

impl Plans {
    /// Finds the frontier.
    #[must_use]
    pub fn new(pipeline: Pipeline) -> Self {
        let job = pipeline.characterise(|_, _| {});
        let full_speed = job.full_speed(None).realised;
        Self { job, full_speed }
    }

    /// How many iteration times there are plans for.
    #[must_use]
    pub fn points(&self) -> usize {
        self.job.frontier().len()
    }

    /// The plan while the latest pipeline is `degree` times as long as this one at full clock.
    fn plan(&self, degree: f64) -> Plan {
        let straggler = (degree > 1.0).then_some(self.full_speed * degree);
        self.job.lookup(straggler)
    }

    /// The plan of a pipeline beside others that are `degree` times as long, for whoever runs it.
    #[must_use]
    pub fn contract(&self, degree: f64) -> Contract {
        self.job.contract(&self.plan(degree))
    }

    /// Expected time and energy of a GPU of the row for each instruction, on average.
    #[must_use]
    pub fn expected(&self, gpu: u32, degree: f64) -> Expected {
        let contract = self.contract(degree);
        let own = contract.stages.get(gpu as usize);
        let mut sums: BTreeMap<String, (f64, f64, f64)> = BTreeMap::new();
        for it in own.iter().flat_map(|stage| &stage.instructions) {
            let sum = sums.entry(it.instruction.clone()).or_default();
            sum.0 += it.time.map_or(0.0, |it| it.0 * 1e-3);
            sum.1 += it.energy.map_or(0.0, |it| it.0);
            sum.2 += 1.0;
        }
        let mean = |(name, (time, energy, count))| (name, (time / count, energy / count));
        sums.into_iter().map(mean).collect()
    }

    /// A rank's clocks for one iteration, beside other ranks whose iterations are `degree` times as long.
    #[must_use]
    pub fn schedule(&self, rank: &RankInfo, degree: f64) -> FrequencySchedule {
        let plan = self.plan(degree);
        let graph = self.job.problem().graph();
        let moments = plan.moments(graph);
        let lanes = self.job.lanes(&moments);
        let own = lanes
            .get(rank.pp_rank as usize)
            .cloned()
            .unwrap_or_default();
        let clock = |op: usize| {
            plan.operations[op]
                .clock
                .map_or(0, |clock| (clock.0 / 1e6).round() as u32)
        };
        let entry = |op| {
            (
                graph.kind(op).instruction.clone(),
                possible(clock(op), rank),
            )
        };
        FrequencySchedule {
            rank: rank.rank,
            frequencies: own.into_iter().map(entry).collect(),
        }
    }
}

/// The slowest clock that the GPU has and that is no slower; its fastest where all are. A rank
/// that names no clocks gets the plan's.
fn possible(clock: u32, rank: &RankInfo) -> u32 {
    let clocks = &rank.available_frequencies;
    if clock == 0 || clocks.is_empty() {
        return clock;
    }
    let enough = clocks.iter().copied().filter(|&other| other >= clock);
    enough
        .min()
        .or(clocks.iter().copied().max())
        .unwrap_or(clock)
}
