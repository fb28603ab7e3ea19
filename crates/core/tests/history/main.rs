//! A deterministic simulation of the daemon: one seed is a whole history. Clock, hardware, disk,
//! sockets and administrators are made up from it, faults included, and a ledger that the
//! stand-in hardware keeps is checked after every single change.
//!
//! ```text
//! LITD_HISTORIES=100000 cargo test -p litd-core --test history     so many histories
//! LITD_SEED=4711        cargo test -p litd-core --test history     one, with all that happens
//! LITD_DIGEST=FILE      cargo test -p litd-core --test history     what the daemon did, as numbers
//! ```

mod aim;
mod audit;
mod by_hand;
mod clocks;
mod digest;
mod discovery;
mod disk;
mod fault;
mod hardware;
mod hooks;
mod inject;
mod inside;
mod jobs;
mod ledger;
mod let_go;
mod matrix;
mod node;
mod operations;
mod provoke;
mod ranks;
mod reload;
mod rng;
mod rollout;
mod setup;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use digest::Digests;
use fault::Fault;
use ledger::{Excused, LOOKED_AT};
use matrix::Met;
use world::{Outcome, World};

/// Without LITD_HISTORIES: the fewest from which sums over them are checked, some 20 s on one core. The gate runs more.
const HISTORIES: u64 = 2000;

/// From so many histories on a cell of the matrix that histories can meet must have been met. With
/// fewer it is only printed: which cells 2,000 histories meet is a matter of chance.
const ENOUGH: u64 = 10_000;

/// Outcomes of trials.
const TRIED: [&str; 3] = [
    "a trial measured both arms",
    "a hold-out compared",
    "harm was declared",
];

/// In so many of 100 histories the rule of rest has to be looked at for each of [`LOOKED_AT`].
const RESTED: [u64; 3] = [25, 12, 3];

/// How many lines of a broken history are printed.
const LAST_LINES: usize = 80;

/// Sums over many histories.
#[derive(Debug, Default)]
struct Tally {
    histories: u64,
    faults: Vec<u64>,
    /// Histories without faults in which a loop could steer, and those that did.
    steerable: u64,
    sampled: u64,
    adjusted: u64,
    converged: u64,
    adjustments: u64,
    writes: u64,
    /// Histories with a trial of both arms, with a hold-out's comparison, with harm.
    tried: [u64; 3],
    /// Histories in which the rule of rest was looked at.
    rested: [u64; 3],
    excused: Excused,
    met: Met,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.histories += 1;
        self.faults.resize(Fault::ALL.len(), 0);
        for (count, &fault) in self.faults.iter_mut().zip(Fault::ALL) {
            *count += u64::from(outcome.seen.has(fault));
        }
        if outcome.steerable {
            self.steerable += 1;
            self.sampled += u64::from(outcome.sampled);
            self.adjusted += u64::from(outcome.adjustments > 0);
            self.converged += u64::from(outcome.converged);
        }
        self.met.add(&outcome.met);
        self.adjustments += outcome.adjustments;
        self.writes += outcome.writes;
        for (count, &was) in self.tried.iter_mut().zip(&outcome.tried) {
            *count += u64::from(was);
        }
        for (count, &was) in self.rested.iter_mut().zip(&outcome.rested) {
            *count += u64::from(was);
        }
        self.excused.add(&outcome.excused);
    }

    fn print(&self) {
        let share = |count: u64, of: u64| count as f64 * 100.0 / of.max(1) as f64;
        println!(
            "{:>9} histories, {} writes, {} adjustments",
            self.histories, self.writes, self.adjustments
        );
        for (&count, fault) in self.faults.iter().zip(Fault::ALL) {
            println!(
                "{count:>9} {:6.2} %  {}",
                share(count, self.histories),
                fault.text()
            );
        }
        for (&count, what) in self.tried.iter().zip(TRIED) {
            println!("{count:>9} {:6.2} %  {what}", share(count, self.histories));
        }
        for (&count, what) in self.rested.iter().zip(LOOKED_AT) {
            println!("{count:>9} {:6.2} %  {what}", share(count, self.histories));
        }
        let [devices, nodes] = self.excused.shares().map(|share| share * 100.0);
        println!(
            "{devices:6.2} % of the devices' time is excused; an earlier limit counts for {nodes:.2} % of the nodes'"
        );
        let of = self.steerable;
        println!("without a fault and with something to steer: {of}");
        for (count, what) in [
            (self.sampled, "had samples that counted"),
            (self.adjusted, "adjusted"),
            (self.converged, "converged"),
        ] {
            println!("{count:>9} {:6.2} %  {what}", share(count, of));
        }
        print!("{}", self.met);
    }

    /// Rules about all histories together: without them the test would test nothing.
    fn check(&self) {
        let text = self.excused.too_much().unwrap_or_default();
        assert!(text.is_empty(), "all histories together: {text}");
        for (&count, fault) in self.faults.iter().zip(Fault::ALL) {
            let enough = count * 100 >= self.histories;
            assert!(enough, "too rare to be tested: {}", fault.text());
        }
        for ((&count, what), least) in self.rested.iter().zip(LOOKED_AT).zip(RESTED) {
            let enough = count * 100 >= self.histories * least;
            assert!(enough, "too rare to be tested: {what}");
        }
        if self.histories >= ENOUGH {
            let wrong = self.met.wrong();
            assert!(wrong.is_empty(), "cells of the matrix: {wrong:#?}");
        }
        // Harm takes eight blocks that nothing disturbs: three to six of 10,000 histories have it, and
        // whether 2,000 have any is a matter of chance.
        let harm = (self.histories >= ENOUGH).then_some(ENOUGH);
        let least = [Some(200), Some(200), harm];
        for ((&count, what), least) in self.tried.iter().zip(TRIED).zip(least) {
            let enough = least.is_none_or(|least| count * least >= self.histories);
            assert!(enough, "too rare to be tested: {what}");
        }
        assert!(
            self.sampled * 10 >= self.steerable * 8,
            "few histories have samples"
        );
        assert!(
            self.adjusted * 10 >= self.steerable * 4,
            "few histories adjust"
        );
        assert!(
            self.converged * 10 >= self.steerable * 2,
            "few histories converge"
        );
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn replay(seed: u64, lines: usize) -> String {
    let outcome = World::new(seed, true).run();
    let skip = outcome.trace.len().saturating_sub(lines);
    let mut text: String = outcome
        .trace
        .iter()
        .skip(skip)
        .map(|line| format!("{line}\n"))
        .collect();
    if let Some(broken) = outcome.broken {
        text.push_str(&format!("seed {seed}: {broken}\n"));
    }
    text
}

#[test]
fn no_history_breaks_a_rule() {
    if let Some(seed) = number("LITD_SEED") {
        let text = replay(seed, usize::MAX);
        println!("{text}");
        assert!(!text.contains("BROKEN"), "seed {seed} breaks a rule");
        return;
    }
    let histories = number("LITD_HISTORIES").unwrap_or(HISTORIES);
    let first = number("LITD_FIRST_SEED").unwrap_or(0);
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let (tally, broken) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    let digests = Mutex::new(Digests::new());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + histories {
                return;
            }
            let outcome = World::new(seed, false).run();
            if let Some(text) = &outcome.broken {
                broken.lock().unwrap().push((seed, text.clone()));
                let most = number("LITD_KEEP_GOING").unwrap_or(1) as usize;
                stop.store(broken.lock().unwrap().len() >= most, Ordering::Relaxed);
            }
            digests.lock().unwrap().insert(seed, outcome.digest);
            tally.lock().unwrap().add(&outcome);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    let (tally, mut broken) = (tally.into_inner().unwrap(), broken.into_inner().unwrap());
    broken.sort();
    tally.print();
    if let Some(path) = std::env::var_os("LITD_DIGEST") {
        digest::write(&digests.into_inner().unwrap(), path.as_ref()).unwrap();
    }
    if let Some((seed, _)) = broken.first() {
        println!("\n{}", replay(*seed, LAST_LINES));
        for (seed, text) in &broken {
            println!("LITD_SEED={seed}: {text}");
        }
        panic!(
            "{} of {} histories broke a rule",
            broken.len(),
            tally.histories
        );
    }
    if tally.histories >= HISTORIES {
        tally.check();
    }
}

/// Histories beyond the usual ones, each of which broke a rule once.
const BROKE_ONCE: [u64; 17] = [
    4602, 6199, 7889, 13107, 13495, 13821, 14791, 16672, 19574, 22019, 26760, 100_241, 201_132,
    201_558, 303_569, 304_332, 305_465,
];

#[test]
fn what_broke_a_rule_once_breaks_none_any_more() {
    for seed in BROKE_ONCE {
        let outcome = World::new(seed, false).run();
        assert_eq!(outcome.broken, None, "LITD_SEED={seed}");
    }
}

#[test]
fn a_seed_is_a_history() {
    for seed in 0..20 {
        assert_eq!(replay(seed, usize::MAX), replay(seed, usize::MAX));
    }
}
