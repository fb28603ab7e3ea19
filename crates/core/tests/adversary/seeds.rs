//! Fuzzing: one seed is a history.

use std::panic::catch_unwind;

/// So many histories of each kind, unless `LITD_ADVERSARY_SEEDS` names another number.
const SEEDS: u64 = 1000;

/// A history's log, and why it is bad.
pub type Outcome = (Vec<String>, Result<(), String>);

/// An error where something is not as it should be.
pub fn ensure(good: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    match good {
        true => Ok(()),
        false => Err(why()),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub fn none_is_bad(history: fn(u64) -> Outcome) {
    if let Some(seed) = number("LITD_SEED") {
        let (log, outcome) = history(seed);
        for line in log {
            println!("{line}");
        }
        assert_eq!(outcome, Ok(()), "seed {seed} is bad");
        return;
    }
    let first = number("LITD_FIRST_SEED").unwrap_or(0);
    let seeds = number("LITD_ADVERSARY_SEEDS").unwrap_or(SEEDS);
    let bad = (first..first + seeds).filter_map(|seed| {
        let outcome = catch_unwind(|| history(seed).1);
        let why =
            outcome.unwrap_or_else(|_| Err("the core panics, or does not come to rest".to_owned()));
        Some(format!("LITD_SEED={seed}: {}", why.err()?))
    });
    let bad: Vec<_> = bad.collect();
    assert!(
        bad.is_empty(),
        "{} of {seeds} seeds are bad:\n{}",
        bad.len(),
        bad.join("\n")
    );
}
