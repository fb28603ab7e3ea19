//! Parts of a timeline: its iterations, as the trace marks them or as a kernel's name tells.

use std::collections::BTreeSet;

use crate::timeline::{Iteration, Kernel, NonMax, Timeline};

impl Timeline {
    /// The kernels of one iteration, as a timeline of their own (without kernels if there is no
    /// such iteration).
    #[must_use]
    pub fn iteration(&self, number: u32) -> Self {
        let mut cut = self.without_kernels();
        for (at, kernel) in self.kernels.iter().enumerate() {
            if kernel.iteration.map(NonMax::get) == Some(number) {
                cut.kernels.push(*kernel);
                cut.launches.extend(self.launches.get(at));
            }
        }
        let iterations = self
            .iterations
            .iter()
            .filter(|iteration| iteration.number == number);
        cut.iterations.extend(iterations);
        cut
    }

    /// The numbers of all iterations that have kernels, in order.
    #[must_use]
    pub fn iteration_numbers(&self) -> Vec<u32> {
        let numbers = self.kernels.iter().filter_map(|kernel| kernel.iteration);
        Vec::from_iter(BTreeSet::from_iter(numbers.map(NonMax::get)))
    }

    /// A timeline per iteration that has kernels, in the order of their numbers.
    #[must_use]
    pub fn pieces(&self) -> Vec<Self> {
        self.iteration_numbers()
            .into_iter()
            .map(|number| self.iteration(number))
            .collect()
    }

    /// The same timeline with iterations, numbered from 0, that each begin with the start of a
    /// kernel whose name contains `text`. Kernels before the first are left out: they belong to
    /// an iteration that the trace does not hold whole.
    #[must_use]
    pub fn marked_at(&self, text: &str) -> Self {
        let begins = Vec::from_iter(self.names.iter().map(|name| name.contains(text)));
        let mut marked = self.without_kernels();
        for (at, &kernel) in self.kernels.iter().enumerate() {
            if begins.get(kernel.name.0 as usize).copied().unwrap_or(false) {
                let number = u32::try_from(marked.iterations.len()).unwrap_or(u32::MAX);
                let (start, end) = (kernel.start, kernel.end);
                if let Some(before) = marked.iterations.last_mut() {
                    before.end = start;
                }
                marked.iterations.push(Iteration { number, start, end });
            }
            if let Some(iteration) = marked.iterations.last_mut() {
                iteration.end = iteration.end.max(kernel.end);
                let iteration = NonMax::new(iteration.number);
                marked.kernels.push(Kernel {
                    iteration,
                    ..kernel
                });
                marked.launches.extend(self.launches.get(at));
            }
        }
        marked
    }

    /// Leaves the kernels that are wanted, with their launches.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&Kernel) -> bool) {
        let kernels = self.kernels.iter();
        let mut kept = kernels.map(&wanted).collect::<Vec<_>>().into_iter();
        self.launches.retain(|_| kept.next().unwrap_or(true));
        self.kernels.retain(wanted);
    }

    fn without_kernels(&self) -> Self {
        Self {
            rank: self.rank,
            simulated: self.simulated,
            shares_clock: self.shares_clock,
            source: self.source.clone(),
            world_size: self.world_size,
            names: self.names.clone(),
            operators: self.operators.clone(),
            blocks: self.blocks.clone(),
            streams: self.streams.clone(),
            collectives: self.collectives.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use litd_units::Nanos;

    use super::*;
    use crate::KernelClass;

    fn timeline(names: &[&str]) -> Timeline {
        let mut timeline = Timeline::new(0, "test");
        let stream = timeline.stream("7");
        for (start, name) in (0..).map(|i| Nanos(10 * i)).zip(names) {
            let name = timeline.names.intern(name);
            timeline.kernels.push(Kernel {
                name,
                stream,
                class: KernelClass::Computation,
                start,
                end: start + Nanos(5),
                collective: None,
                iteration: None,
            });
        }
        timeline
    }

    #[test]
    fn a_cut_at_a_name_begins_an_iteration_at_each_start() {
        let marked = timeline(&["tail", "embed", "a", "b", "embed", "a"]).marked_at("emb");
        assert_eq!(marked.iteration_numbers(), [0, 1]);
        let pieces = marked.pieces();
        assert_eq!(pieces[0].kernels.len(), 3);
        assert_eq!(pieces[1].kernels.len(), 2);
        let spans = Vec::from_iter(marked.iterations.iter().map(|i| (i.start.0, i.end.0)));
        assert_eq!(spans, [(10, 40), (40, 55)]);
        assert_eq!(marked.iteration(7).kernels.len(), 0);
    }
}
