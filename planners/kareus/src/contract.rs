//! A plan as the contract that the engine which runs it gets.

use litd_profiles::plan::{Contract, Instruction, Partition, Stage, Totals};
use litd_units::Watts;

use crate::compose::{Choice, Execution};
use crate::iteration::{Iteration, Planned};
use crate::job::{BACKWARD, FORWARD, Job, Microbatch};

/// The threads of a communication's block: the artifact writes no other number.
const THREADS: u32 = 1024;

impl Iteration {
    /// A plan as a contract: what each GPU of the row does in which order, at which clock, and how the communication
    /// beside each partition runs. A microbatch without partitions is executed sequentially. A backward with
    /// recomputation has the forward's partitions as well, with names that begin with `recompute_`.
    #[must_use]
    pub fn contract(&self, job: &Job, planned: &Planned) -> Contract {
        let graph = self.pipeline().problem().graph();
        let choice = |&(place, it): &(usize, usize)| {
            let (microbatch, choices) = &self.microbatches()[place];
            (microbatch, &choices[it])
        };
        let chosen: Vec<_> = planned.operations.iter().map(choice).collect();
        let moments = graph.moments(|operation| chosen[operation].1.time);
        let lanes = self.pipeline().lanes(&moments);
        let stages = (0..).zip(lanes).map(|(stage, lane)| Stage {
            stage,
            instructions: lane
                .into_iter()
                .map(|it| {
                    let (microbatch, choice) = chosen[it];
                    let number = graph.operations()[it].microbatch;
                    instruction(job, microbatch, choice, number)
                })
                .collect(),
        });
        let mut contract = Contract::new(stages.collect());
        contract.planner = Some("kareus".into());
        contract.blocking = Some(self.pipeline().scale().blocking);
        contract.totals = Totals {
            time: Some(planned.time),
            energy: Some(planned.energy),
            ..Totals::default()
        };
        contract
    }
}

fn instruction(job: &Job, of: &Microbatch, choice: &Choice, microbatch: u32) -> Instruction {
    let candidates = match &choice.execution {
        Execution::Sequential => &[][..],
        Execution::Overlapped(candidates) => candidates,
    };
    let partitions = of.overlapped.iter().zip(candidates).map(|(&(at, _), it)| {
        let partition = &job.partitions[at];
        let launch = partition.computations.get(it.launch);
        Partition {
            name: within(of.instruction, &partition.name),
            launch: launch.map_or_else(String::new, |it| it.name.clone()),
            end: None,
            sms: it.sms,
            threads: THREADS,
        }
    });
    let power = Watts(choice.energy.0 / (choice.time.0 * 1e-3));
    Instruction {
        instruction: of.instruction.to_owned(),
        microbatch,
        clock: Some(choice.clock),
        partitions: partitions.collect(),
        time: Some(choice.time),
        energy: Some(choice.energy),
        power: Some(power).filter(|it| it.is_finite()),
        ..Instruction::default()
    }
}

/// A partition's name within an instruction: forward/mlp is the forward's mlp, and the backward's recompute_mlp.
fn within(instruction: &str, name: &str) -> String {
    match name.split_once('/') {
        Some((pass, name)) if pass == FORWARD && instruction == BACKWARD => {
            format!("recompute_{name}")
        }
        Some((_, name)) => name.to_owned(),
        None => name.to_owned(),
    }
}
