//! Measures one block: waits until caps have taken effect, counts iterations, and reads energy.

use litd_trial::{Arm, Block, Iterations};
use litd_units::{Joules, Nanos, Watts};

use crate::config::Trial;
use crate::core::seconds;

/// A block that has too few iterations after so many times its length will hardly get them.
const PATIENCE: f64 = 12.0;

/// Readings of one GPU in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Gauge {
    /// The energy counter.
    pub energy: Option<Joules>,
    /// The power.
    pub power: Option<Watts>,
    /// When it was read.
    pub at: Nanos,
    /// The cap that it holds; absent while it is being moved.
    pub held: Option<Watts>,
}

/// Sum and number of readings.
#[derive(Debug, Clone, Copy, Default)]
struct Mean(Watts, u32);

impl Mean {
    fn add(&mut self, power: Option<Watts>) {
        if let Some(power) = power.filter(|power| power.is_finite()) {
            self.0 += power;
            self.1 += 1;
        }
    }

    fn get(self) -> Option<Watts> {
        (self.1 > 0).then(|| self.0 / f64::from(self.1))
    }
}

/// The outcome of a round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// The block goes on.
    Goes,
    /// The block is measured.
    Done(Block),
    /// Too few iterations come.
    Starved,
}

/// A block that is being measured.
#[derive(Debug)]
pub(crate) struct Meter {
    arm: Arm,
    /// How long caps take to have their effect.
    settle: Nanos,
    /// When they have had it.
    settled_at: Nanos,
    /// Since when the block is measured.
    began: Option<Nanos>,
    iterations: Iterations,
    /// The iteration that was under way when it began, which belongs to this block only in part.
    torn: Option<u64>,
    held: Vec<Option<Watts>>,
    energy: Vec<Option<(Joules, Nanos)>>,
    power: Mean,
    node: Mean,
}

impl Meter {
    pub fn new(arm: Arm, now: Nanos, settle: Nanos) -> Self {
        Self {
            arm,
            settle,
            settled_at: now + settle,
            began: None,
            iterations: Iterations::default(),
            torn: None,
            held: Vec::new(),
            energy: Vec::new(),
            power: Mean::default(),
            node: Mean::default(),
        }
    }

    /// The arm that the block belongs to.
    pub fn arm(&self) -> Arm {
        self.arm
    }

    /// An event that this block must not contain has happened: the block begins anew.
    pub fn disturb(&mut self, now: Nanos) {
        *self = Self::new(self.arm, now, self.settle);
    }

    /// A rank tells of an iteration.
    pub fn tick(&mut self, iteration: u64, duration: Nanos, profiled: bool) {
        if self.began.is_none() {
            return;
        }
        let torn = *self.torn.get_or_insert(iteration);
        if iteration != torn {
            self.iterations.add(iteration, duration, profiled);
        }
    }

    /// A second has passed. `gauges` has one entry per device, GPUs first; `gpus` of them count.
    pub fn step(
        &mut self,
        now: Nanos,
        gauges: &[Gauge],
        gpus: usize,
        node: Option<Watts>,
        rules: &Trial,
    ) -> Step {
        let held: Vec<Option<Watts>> = gauges.iter().map(|gauge| gauge.held).collect();
        if held.contains(&None) || held != self.held {
            self.disturb(now);
            self.held = held;
            return Step::Goes;
        }
        let gauges = gauges.get(..gpus).unwrap_or(gauges);
        let Some(began) = self.began else {
            if now >= self.settled_at {
                self.began = Some(now);
                let energy = |gauge: &Gauge| Some((gauge.energy?, gauge.at));
                self.energy = gauges.iter().map(energy).collect();
            }
            return Step::Goes;
        };
        self.power.add(gauges.iter().map(|gauge| gauge.power).sum());
        self.node.add(node);
        let length = seconds(rules.block_seconds);
        let enough = self.iterations.count() >= rules.block_iterations.max(1);
        if now < began + length || !enough {
            let patience = seconds(rules.block_seconds * PATIENCE);
            return match now >= began + patience {
                true => Step::Starved,
                false => Step::Goes,
            };
        }
        match self.iterations.times() {
            None => Step::Starved,
            Some(times) => Step::Done(Block {
                arm: self.arm,
                times,
                power: self.counted(gauges).or_else(|| self.power.get()),
                node_power: self.node.get(),
            }),
        }
    }

    /// Mean power by the energy counters, if all GPUs have one and none was reset.
    fn counted(&self, gauges: &[Gauge]) -> Option<Watts> {
        let power = |(before, gauge): (&Option<(Joules, Nanos)>, &Gauge)| {
            let (energy, since) = (*before)?;
            let time = (gauge.at - since).as_secs_f64();
            let power = (gauge.energy?.0 - energy.0) / time;
            (time > 0.0 && power >= 0.0 && power.is_finite()).then_some(Watts(power))
        };
        self.energy.iter().zip(gauges).map(power).sum()
    }

    /// The block's progress, in words.
    pub fn progress(&self, now: Nanos, rules: &Trial) -> String {
        let Some(began) = self.began else {
            let left = (self.settled_at - now).as_secs_f64().max(0.0);
            return format!("settling, {left:.0} s left");
        };
        format!(
            "measured for {:.0} of {:.0} s, {} iterations",
            (now - began).as_secs_f64(),
            rules.block_seconds,
            self.iterations.count()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn rules() -> Trial {
        Trial {
            block_seconds: 10.0,
            block_iterations: 4,
            ..Trial::default()
        }
    }

    fn gauge(at: i64) -> Gauge {
        Gauge {
            // 500 W by the counter; the sensor says otherwise.
            energy: Some(Joules(500.0 * at as f64)),
            power: Some(Watts(480.0)),
            at: Nanos(at * SECOND),
            held: Some(Watts(700.0)),
        }
    }

    fn run(change: impl Fn(i64, &mut Gauge), iterations: bool) -> Option<(i64, Block)> {
        let mut meter = Meter::new(Arm::Found, Nanos(0), Nanos(5 * SECOND));
        for second in 1..400 {
            let mut gauge = gauge(second);
            change(second, &mut gauge);
            if iterations {
                meter.tick(second as u64, Nanos(SECOND), second % 4 == 0);
            }
            let now = Nanos(second * SECOND);
            match meter.step(now, &[gauge], 1, None, &rules()) {
                Step::Goes => {}
                Step::Done(block) => return Some((second, block)),
                Step::Starved => return None,
            }
        }
        None
    }

    #[test]
    fn a_block_begins_when_caps_have_settled() {
        let (end, block) = run(|_, _| {}, true).unwrap();
        // 1 s to see the caps, 5 s until they take effect, 10 s of block.
        assert_eq!(end, 16);
        assert_eq!(block.power, Some(Watts(500.0)));
        // The iteration under way at the beginning does not count, nor do profiled ones.
        assert_eq!((block.times.counted, block.times.profiled), (6, 3));
    }

    #[test]
    fn a_cap_that_moves_begins_it_anew() {
        let (end, _) = run(
            |second, gauge| {
                if second == 9 {
                    gauge.held = Some(Watts(690.0));
                }
            },
            true,
        )
        .unwrap();
        assert_eq!(end, 25);
    }

    #[test]
    fn without_a_counter_the_sensor_counts() {
        let (_, block) = run(|_, gauge| gauge.energy = None, true).unwrap();
        assert_eq!(block.power, Some(Watts(480.0)));
        // A counter that was reset tells nothing.
        let reset = |second: i64, gauge: &mut Gauge| {
            if second > 10 {
                gauge.energy = Some(Joules(0.0));
            }
        };
        assert_eq!(run(reset, true).unwrap().1.power, Some(Watts(480.0)));
    }

    #[test]
    fn a_job_that_stands_still_starves() {
        assert_eq!(run(|_, _| {}, false), None);
    }
}
