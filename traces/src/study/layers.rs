//! Which layer a kernel belongs to: as names tell, or else by what repeats. A model runs the same
//! kernels layer after layer, so that a sequence of names which comes at least three times in a
//! row is taken for a stack of layers, one per repetition.

use std::collections::{HashMap, HashSet};
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
/// Comparisons of names that one search may take.
const WORK: usize = 40_000_000;

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
        let stacks = known.entry(names).or_insert_with_key(|names| {
            let mut stacks = Vec::new();
            find(names, 0, &mut stacks);
            stacks.sort_by_key(|stack| stack.first);
            stacks
        });
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

impl Stack {
    fn covered(&self) -> usize {
        self.period * self.repeats
    }
}

/// Finds the stack that covers most, and those before and behind it.
fn find(names: &[usize], offset: usize, stacks: &mut Vec<Stack>) {
    let Some(stack) = largest(names) else { return };
    let end = stack.first + stack.covered();
    find(&names[..stack.first], offset, stacks);
    stacks.push(Stack {
        first: offset + stack.first,
        ..stack
    });
    find(&names[end..], offset + end, stacks);
}

/// The stack that covers most; of several the one of the shortest layers.
fn largest(names: &[usize]) -> Option<Stack> {
    let longest = (names.len() / REPEATS).min(LONGEST);
    let longest = longest.min(WORK / names.len().max(1));
    let mut best = None::<Stack>;
    for period in SHORTEST..=longest {
        let mut run = 0;
        for at in 0..names.len() - period {
            run = if names[at] == names[at + period] {
                run + 1
            } else {
                0
            };
            let stack = Stack {
                first: at + 1 - run,
                period,
                repeats: run / period + 1,
            };
            let more = best.is_none_or(|best| stack.covered() > best.covered());
            if run % period == 0 && stack.repeats >= REPEATS && more {
                let one = &names[stack.first..stack.first + period];
                if HashSet::<&usize>::from_iter(one).len() >= NAMES {
                    best = Some(stack);
                }
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, usize, usize)> {
        let names = Vec::from_iter(text.bytes().map(usize::from));
        let mut stacks = Vec::new();
        find(&names, 0, &mut stacks);
        stacks.sort_by_key(|stack| stack.first);
        let plain = |stack: &Stack| (stack.first, stack.period, stack.repeats);
        stacks.iter().map(plain).collect()
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
    }
}
