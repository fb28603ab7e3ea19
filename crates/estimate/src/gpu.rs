//! Statistics of one GPU.

use litd_api::Limiter;

use crate::channel::{Channel, Mean};
use crate::sample::Sample;

/// A fleet has so many GPUs at most: a column that counts rows is no GPU's name.
pub const MOST_GPUS: usize = 200_000;

/// The limiters, in the order in which they are counted and shown.
pub(crate) const LIMITERS: [Limiter; 9] = [
    Limiter::Power,
    Limiter::Enforced,
    Limiter::Heat,
    Limiter::Memory,
    Limiter::Regulator,
    Limiter::PowerBrake,
    Limiter::Hardware,
    Limiter::None,
    Limiter::Unknown,
];

/// Statistics of one GPU's samples: about three kilobytes, however many samples there are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gpu {
    pub(crate) samples: u32,
    /// By [`LIMITERS`].
    pub(crate) limited: [u32; LIMITERS.len()],
    /// Of how many that is known from the draw only.
    pub(crate) by_draw: u32,
    /// In how many power may limit it.
    pub(crate) may_be_limited: u32,
    pub(crate) power: Mean,
    /// The highest of the caps that it had, and the highest that it could have.
    pub(crate) cap: Option<f64>,
    pub(crate) highest_cap: Option<f64>,
    /// Clocks while power limits it.
    pub(crate) clock: Option<Box<Channel>>,
    /// Whether a clock was read at all.
    pub(crate) has_clock: bool,
    /// Times per unit of work.
    pub(crate) pace: Option<Box<Channel>>,
    /// When the sample before was taken, and what it said.
    last: Option<(i64, u64)>,
}

/// How a sample stands to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Next,
    /// The same values at the same moment as before: not counted again.
    Repeated,
    Earlier,
}

impl Gpu {
    pub(crate) fn add(&mut self, sample: &Sample) -> Order {
        let order = self.order(sample);
        if order == Order::Repeated {
            return order;
        }
        self.samples = self.samples.saturating_add(1);
        let limiter = sample.limited_by();
        if let Some(at) = LIMITERS.iter().position(|it| *it == limiter) {
            self.limited[at] = self.limited[at].saturating_add(1);
        }
        self.by_draw = self
            .by_draw
            .saturating_add(u32::from(sample.is_judged_by_draw()));
        let may = u32::from(sample.may_be_power_limited());
        self.may_be_limited = self.may_be_limited.saturating_add(may);
        if let Some(power) = sample.power {
            self.power.add(power.0);
        }
        let most = |held: &mut Option<f64>, value: f64| {
            *held = Some(held.map_or(value, |it| it.max(value)));
        };
        if let Some(cap) = sample.cap {
            most(&mut self.cap, cap.0);
        }
        if let Some(highest) = sample.highest_cap {
            most(&mut self.highest_cap, highest.0);
        }
        self.has_clock |= sample.clock.is_some();
        if let (Some(clock), Limiter::Power) = (sample.clock, limiter) {
            let megahertz = clock.0 / 1e6;
            keep(&mut self.clock, sample, megahertz, -megahertz.ln());
        }
        if let Some(pace) = sample.pace {
            keep(&mut self.pace, sample, pace, pace.ln());
        }
        order
    }

    fn order(&mut self, sample: &Sample) -> Order {
        let Some(time) = sample.time else {
            return Order::Next;
        };
        let this = (time, sample.fingerprint());
        match self.last.replace(this) {
            Some(last) if last == this => Order::Repeated,
            Some((before, _)) if before > time => Order::Earlier,
            _ => Order::Next,
        }
    }

    /// In which share of the samples whose limiter is known power limits it at most; `None` if that is not
    /// known, or if it is known by the draw only and that is below the cap, where bursts may meet it.
    pub(crate) fn limited_at_most(&self) -> Option<f64> {
        let share = self.share(Limiter::Power)?;
        let known = self.samples - self.count(Limiter::Unknown);
        let most = f64::from(self.may_be_limited) / f64::from(known.max(1));
        match self.by_draw == 0 || share > 0.0 || self.may_be_limited == 0 {
            true => Some(most.min(1.0)),
            false => None,
        }
    }

    fn count(&self, wanted: Limiter) -> u32 {
        let pairs = LIMITERS.iter().zip(&self.limited);
        pairs.filter(|it| *it.0 == wanted).map(|it| *it.1).sum()
    }

    /// In how many of the samples whose limiter is known it is this one.
    pub(crate) fn share(&self, limiter: Limiter) -> Option<f64> {
        let known = self.limited.iter().sum::<u32>() - self.count(Limiter::Unknown);
        (known > 0).then(|| f64::from(self.count(limiter)) / f64::from(known))
    }
}

fn keep(channel: &mut Option<Box<Channel>>, sample: &Sample, value: f64, log_pace: f64) {
    let channel = channel.get_or_insert_default();
    channel.values.add(value);
    if let Some(time) = sample.time {
        channel.log_pace.add(time, log_pace);
    }
    if let Some(temperature) = sample.temperature {
        channel.temperature.add(temperature.0);
    }
    if let Some(power) = sample.power {
        channel.power.add(power.0);
    }
}
