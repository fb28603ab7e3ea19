//! The message that a hook sends of one iteration, from what a profiler recorded of it.

use std::collections::HashMap;

use litd_proto::{Class, Kernels};
use litd_traces::{KernelClass, Timeline};
use litd_units::Nanos;

/// A timeline as a hook sends it. Names that `known` lacks are added there and sent along.
#[must_use]
pub fn sample_of(
    timeline: &Timeline,
    known: &mut HashMap<String, u32>,
    iteration: u64,
    duration: Nanos,
) -> Kernels {
    let mut new_names = Vec::new();
    let mut message = Kernels {
        iteration,
        duration,
        // Profilers show them.
        shows_collectives: true,
        ..Kernels::default()
    };
    for kernel in &timeline.kernels {
        let name = timeline.name_of(kernel);
        let id = match known.get(name) {
            Some(&id) => id,
            None => {
                let id = number(known.len());
                known.insert(name.to_owned(), id);
                new_names.push(name.to_owned());
                id
            }
        };
        message.name.push(id);
        message.stream.push(kernel.stream.0.into());
        message.class.push(match kernel.class {
            KernelClass::Computation => Class::Computation,
            KernelClass::Communication | KernelClass::Fused => Class::Communication,
            KernelClass::Copy => Class::Copy,
        });
        message.start.push(kernel.start);
        message.duration_of.push(kernel.duration());
    }
    message.new_names = new_names;
    message
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
