//! Which layer a kernel belongs to: as names tell, or else by what repeats. A model runs the same
//! kernels layer after layer, so that a sequence of names which comes at least three times in a
//! row is taken for a stack of layers, one per repetition.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::matrix::{Matrix, layer_of};

/// A layer has at least so many kernels ...
const SHORTEST: usize = 4;
/// ... with so many names ...
const NAMES: usize = 3;
/// ... and at most so many kernels.
const LONGEST: usize = 2048;
/// It comes so often in a row.
const REPEATS: usize = 3;
/// Comparisons of names that the search of one sequence may take.
const WORK: usize = 100_000_000;
/// How many kernels in a row are looked for again, to learn how far apart repetitions are.
const GRAMS: [usize; 2] = [4, 16];

/// Slots of the table that remembers where kernels in a row stood last: many times [`LONGEST`].
const SLOTS: usize = 1 << 16;

/// The layer of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layer {
    /// What comes before the layer's number in names, such as `f` and `b`; where names tell none,
    /// `stack 1`, `stack 2` ... in the order of time.
    pub pass: Arc<str>,
    /// Its number; counted from 0 in the order of time where names tell none.
    pub number: u32,
}

/// The layer of each kernel, where there is one.
pub(super) fn of(matrix: &Matrix<'_>) -> Vec<Option<Layer>> {
    let of_name = |name: &str| {
        let (number, _) = layer_of(name)?;
        let pass = name.split(&format!(".{number}.")).next();
        let pass = pass.unwrap_or_default().into();
        Some(Layer { pass, number })
    };
    let mut told = HashMap::new();
    let named = (0..matrix.kernels()).map(|k| {
        let name = matrix.name(k);
        told.entry(name).or_insert_with(|| of_name(name)).clone()
    });
    let named = Vec::from_iter(named);
    if named.iter().any(Option::is_some) {
        return named;
    }
    let mut layers = vec![None; matrix.kernels()];
    let mut ids = HashMap::new();
    let mut known = HashMap::<Vec<usize>, Vec<Stack>>::new();
    for kernels in matrix.iterations().values() {
        let names = kernels.iter().map(|&k| {
            let next = ids.len();
            *ids.entry(matrix.name(k as usize)).or_insert(next)
        });
        let names = Vec::from_iter(names);
        // Most iterations run the same.
        let stacks = known.entry(names).or_insert_with_key(|names| find(names));
        for (at, stack) in stacks.iter().enumerate() {
            let pass = Arc::<str>::from(format!("stack {}", at + 1));
            for number in 0..stack.repeats {
                let first = stack.first + number * stack.period;
                for &k in &kernels[first..first + stack.period] {
                    layers[k as usize] = Some(Layer {
                        pass: pass.clone(),
                        number: u32::try_from(number).unwrap_or(u32::MAX),
                    });
                }
            }
        }
    }
    layers
}

/// Repetitions of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stack {
    /// Where the first one begins.
    first: usize,
    /// How long each is.
    period: usize,
    /// How many there are.
    repeats: usize,
}

/// A part that repeats itself: what stands at one place stands at the next but `period`, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: usize,
    end: usize,
    period: usize,
}

impl Run {
    /// How many whole repetitions there are.
    fn repeats(self) -> usize {
        (self.end - self.first) / self.period
    }

    fn covered(self) -> usize {
        self.repeats() * self.period
    }

    /// What comes first: what covers more, then shorter layers, then the earlier.
    fn rank(self) -> (usize, Reverse<usize>, Reverse<usize>) {
        (self.covered(), Reverse(self.period), Reverse(self.first))
    }
}

impl Ord for Run {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Finds the stack that covers most, then the one that covers most of what it leaves, and so on;
/// in the order of time.
fn find(names: &[usize]) -> Vec<Stack> {
    let mut runs = BinaryHeap::new();
    for period in periods(names) {
        runs_of(names, period, &mut runs);
    }
    // What was found, by where it begins: where it ends, and what it is.
    let mut found = BTreeMap::<usize, (usize, Stack)>::new();
    while let Some(run) = runs.pop() {
        match free(run, &found) {
            Free::All => {
                let stack = Stack {
                    first: run.first,
                    period: run.period,
                    repeats: run.repeats(),
                };
                found.insert(run.first, (run.first + run.covered(), stack));
            }
            Free::Parts(parts) => {
                let enough = |part: &Run| part.repeats() >= REPEATS;
                runs.extend(parts.into_iter().filter(enough));
            }
        }
    }
    found.into_values().map(|(_, stack)| stack).collect()
}

/// What is left of a run beside what was found.
enum Free {
    All,
    Parts(Vec<Run>),
}

fn free(run: Run, found: &BTreeMap<usize, (usize, Stack)>) -> Free {
    let before = found.range(..run.first).next_back();
    let from = before.map_or(run.first, |(_, (end, _))| run.first.max(*end));
    let within = found.range(run.first..run.first + run.covered());
    let mut parts = Vec::new();
    let mut at = from;
    for (&first, &(end, _)) in within {
        parts.push((at, first));
        at = end;
    }
    if at == run.first {
        return Free::All;
    }
    parts.push((at, run.end));
    let parts = parts.into_iter().filter(|(first, end)| first < end);
    Free::Parts(
        parts
            .map(|(first, end)| Run { first, end, ..run })
            .collect(),
    )
}

/// The runs of a period that are long enough and have enough names.
fn runs_of(names: &[usize], period: usize, runs: &mut BinaryHeap<Run>) {
    let mut equal = 0;
    let pairs = names.iter().zip(names.iter().skip(period));
    for (at, same) in pairs.map(|(a, b)| a == b).chain([false]).enumerate() {
        if same {
            equal += 1;
            continue;
        }
        let run = Run {
            first: at - equal,
            end: at + period,
            period,
        };
        let enough = equal > 0 && run.repeats() >= REPEATS;
        let one = || names.iter().skip(run.first).take(period);
        if enough && HashSet::<&usize>::from_iter(one()).len() >= NAMES {
            runs.push(run);
        }
        equal = 0;
    }
}

/// The lengths that layers may have: how far apart the same kernels in a row come again, those
/// first that would cover most. As many as the work allows.
fn periods(names: &[usize]) -> Vec<usize> {
    let longest = (names.len() / REPEATS).min(LONGEST);
    let mut weights = vec![0_usize; longest + 1];
    for gram in GRAMS {
        // Where kernels in a row of this hash stood last. Another row may have taken their slot: then
        // one distance is missed, and memory does not grow with the sequence.
        let mut last = vec![usize::MAX; SLOTS];
        for (at, kernels) in names.windows(gram).enumerate() {
            let Some(slot) = last.get_mut(slot_of(kernels)) else {
                continue;
            };
            let before = std::mem::replace(slot, at);
            let Some(distance) = at.checked_sub(before) else {
                continue;
            };
            if names.get(before..before + gram) != Some(kernels) {
                continue;
            }
            // What comes again sooner than the shortest layer makes layers of several of it.
            let distance = distance * SHORTEST.div_ceil(distance);
            if let Some(weight) = weights.get_mut(distance) {
                *weight += distance;
            }
        }
    }
    let mut periods = Vec::from_iter((SHORTEST..=longest).filter(|&period| weights[period] > 0));
    periods.sort_by_key(|&period| (Reverse(weights[period]), period));
    periods.truncate(WORK / names.len().max(1));
    periods
}

fn slot_of(kernels: &[usize]) -> usize {
    let mut hasher = DefaultHasher::new();
    kernels.hash(&mut hasher);
    hasher.finish() as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, usize, usize)> {
        let names = Vec::from_iter(text.bytes().map(usize::from));
        let plain = |stack: Stack| (stack.first, stack.period, stack.repeats);
        find(&names).into_iter().map(plain).collect()
    }

    #[test]
    fn what_repeats_is_a_layer() {
        // An embedding, four layers forward, a loss, four layers backward, an optimiser.
        let text = "e1abcbdabcbdabcbdabcbdxyDCBAADCBAADCBAADCBAAooooooooooo";
        assert_eq!(found(text), [(2, 5, 4), (24, 5, 4)]);
        // Twice is chance, and one kernel over and over is no layer.
        assert_eq!(found("abcdeabcde"), []);
        assert_eq!(found("aaaaaaaaaaaaaaaaaaaaaaaa"), []);
        assert_eq!(found("abababababababababababab"), []);
        assert_eq!(found(""), []);
        // What is left of a part that a larger one has taken is looked at again.
        assert_eq!(
            found("abcdabcdabcdabcdXYZWXYZWXYZWXYZWXYZ"),
            [(0, 4, 4), (16, 4, 4)]
        );
    }

    #[test]
    fn many_stacks_are_all_found_whatever_lies_between() {
        // 300 stacks of five layers each, with a different number of kernels between.
        let (mut names, mut expected) = (Vec::new(), Vec::new());
        for stack in 0..300_usize {
            names.extend((0..stack % 17).map(|k| 1_000_000 + 100 * stack + k));
            expected.push((names.len(), 40, 5));
            let layer = (0..40).map(|k| 1_000 * (stack + 1) + k);
            names.extend(std::iter::repeat_n(layer, 5).flatten());
        }
        let found = find(&names);
        let found = found
            .iter()
            .map(|stack| (stack.first, stack.period, stack.repeats));
        assert_eq!(Vec::from_iter(found), expected);
    }
}
