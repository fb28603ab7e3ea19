//! Which operator of a framework launched the kernels of each name.

use std::collections::HashMap;
use std::sync::Arc;

use super::kept::Kept;
use crate::timeline::NameId;

/// The operators of one file, and the kernels that name them.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    /// The number that the profiler gave each call of an operator, with the operator's name.
    calls: Vec<(u32, Arc<str>)>,
    /// The names of kernels, with the number of the call that launched one.
    launched: Vec<(NameId, u32)>,
}

impl Operators {
    /// Takes the call of an operator. One that can't be kept is left out: kernels count all the same.
    pub(crate) fn called(&mut self, kept: &mut Kept, number: u32, name: &str) {
        if let Ok(Some(name)) = kept.text(Some(name), "the name of an operator") {
            self.calls.push((number, name));
        }
    }

    /// Takes a kernel that the call of this number launched.
    pub(crate) fn launched(&mut self, kernel: NameId, number: u32) {
        self.launched.push((kernel, number));
    }

    /// The operator that launched most kernels of each name; of several the first by name.
    pub(super) fn of_kernels(mut self) -> HashMap<NameId, Arc<str>> {
        self.calls.sort_unstable();
        let mut counts = HashMap::<(NameId, &Arc<str>), usize>::new();
        for &(kernel, number) in &self.launched {
            let first = self.calls.partition_point(|call| call.0 < number);
            let call = self.calls.get(first).filter(|call| call.0 == number);
            if let Some((_, operator)) = call {
                *counts.entry((kernel, operator)).or_default() += 1;
            }
        }
        let mut most = HashMap::<NameId, (usize, &Arc<str>)>::new();
        for ((kernel, operator), count) in counts {
            let known = most.entry(kernel).or_insert((count, operator));
            if (count, &known.1) > (known.0, &operator) {
                *known = (count, operator);
            }
        }
        let own =
            |(kernel, (_, operator)): (NameId, (usize, &Arc<str>))| (kernel, operator.clone());
        most.into_iter().map(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_that_launched_most_is_told() {
        let mut operators = Operators::default();
        let mut kept = Kept::default();
        for (number, name) in [(3, "aten::mm"), (1, "aten::add"), (2, "aten::mm")] {
            operators.called(&mut kept, number, name);
        }
        for (kernel, number) in [(0, 1), (0, 2), (0, 3), (1, 3), (1, 1), (2, 9)] {
            operators.launched(NameId(kernel), number);
        }
        let told = operators.of_kernels();
        let of = |kernel| told.get(&NameId(kernel)).map(|name| &**name);
        assert_eq!(of(0), Some("aten::mm"));
        assert_eq!(of(1), Some("aten::add"));
        assert_eq!(of(2), None);
    }
}
