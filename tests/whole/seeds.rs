//! A test that runs with many seeds, several side by side, and names the one that fails.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The environment variables that say how many runs there are, and the seed of the first.
#[derive(Clone, Copy)]
pub struct Variables {
    pub runs: &'static str,
    pub seed: &'static str,
}

/// Runs with as many seeds as the variable says, or else the usual number of them. Returns how many there were.
pub fn each(variables: Variables, usual: usize, threads: usize, run: impl Fn(u64) + Sync) -> usize {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let runs = number(variables.runs).unwrap_or(usual);
    let first = number(variables.seed).unwrap_or(1) as u64;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return;
                    }
                    let seed = first + number as u64;
                    let named = Named { variables, seed };
                    run(seed);
                    std::mem::forget(named);
                }
            });
        }
    });
    runs
}

/// Names the run that fails.
struct Named {
    variables: Variables,
    seed: u64,
}

impl Drop for Named {
    fn drop(&mut self) {
        let Variables { runs, seed } = self.variables;
        eprintln!("to run it again: {runs}=1 {seed}={}", self.seed);
    }
}
