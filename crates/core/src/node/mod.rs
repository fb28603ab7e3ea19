//! Power of the node as a whole, as its BMC tells: the reserve (the power of all parts other than GPUs and CPUs), peaks
//! and ramps before and while caps are steered, the watts left to the GPUs, and whether a power supply is short.
//!
//! The BMC's readings may be late, wrong or absent at any time, and nothing waits for them.

mod counted;
pub(crate) mod last_minute;
mod limit;
mod reserve;
pub(crate) mod rivals;
pub(crate) mod supply;

use std::collections::BTreeMap;

use litd_api::{EventKind, NodePeaks, NodePower};
use litd_policies::Policy;
use litd_units::{Celsius, Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::event::NodeReading;
use crate::journal::Entry;
use crate::node::counted::Counted;
use crate::node::last_minute::{Counter, Drawing};
use crate::node::limit::BmcLimit;
use crate::node::reserve::Reserve;
use crate::node::supply::{News, Supply};
use crate::plan::socket_part;
use crate::record::Note;
use crate::store::Store;

/// A reading that is older says nothing about now.
const STALE: Nanos = Nanos(30_000_000_000);

/// How long a node's budget may wait for its reserve to be measured before a warning is logged.
const UNBOUND: Nanos = Nanos(600_000_000_000);

/// How long figures for the node's power may be less than its devices draw before a warning is logged: where load has
/// just begun, a BMC's mean of a minute that comes a minute late is less for so long.
const CONTRADICTED: Nanos = Nanos(150_000_000_000);

/// The GPUs' budget follows the watts left to them at once when those shrink, and only after they have grown by
/// this much: each change makes loops plan anew.
const UP: Watts = Watts(200.0);

/// Peak and ramp of the node's power.
#[derive(Debug, Clone, Default)]
struct Swings {
    power: Counted,
    ramp: Counted,
}

impl Swings {
    fn peaks(&self) -> NodePeaks {
        NodePeaks {
            readings: self.power.count,
            peak: self.power.p999().map(Watts),
            ramp_watts_per_second: self.ramp.p999(),
        }
    }
}

/// State of the node's power.
#[derive(Debug, Default)]
pub(crate) struct Node {
    last: Option<(NodeReading, Nanos)>,
    reserve: Reserve,
    before: Swings,
    steered: Swings,
    /// The BMC's limit.
    limit: BmcLimit,
    /// The GPUs' part of the node's budget, or their floors where those are more.
    bound: Option<Watts>,
    /// What each CPU socket took of that when all of them were known last.
    parts: BTreeMap<usize, Watts>,
    /// By how much the floors exceed their part of the budget.
    short_by: Watts,
    /// Whether the node is short of power.
    pub supply: Supply,
    /// Since when a budget is set while the reserve is unknown, and whether that was logged.
    unbound: Option<(Nanos, bool)>,
    /// Since when every figure for the node's power is less than its devices draw, and whether that was logged.
    contradicted: Option<(Nanos, bool)>,
}

impl Node {
    /// The GPUs' part of the node's budget, if known.
    pub fn bound(&self) -> Option<Watts> {
        self.bound
    }
}

impl<S: Store> Core<S> {
    /// The BMC, or who reads it, has told something new.
    pub(crate) fn node_read(&mut self, reading: NodeReading) {
        // No source answered: earlier readings count until they are stale.
        if reading.source.is_empty() {
            return;
        }
        let mut reading = plausible(reading);
        let now = self.now();
        let (steering, may_draw) = (self.is_steering(), self.may_draw());
        let node = &mut self.node;
        node.limit.hear(&reading, now);
        if let Some(power) = reading.power {
            let heard = node.reserve.hears(power, may_draw, now);
            if heard.is_err() {
                // An impossible power is shown to nobody, and is no peak.
                reading.power = None;
            }
            self.judged_power(&reading.source, power, heard.err());
        }
        let node = &mut self.node;
        let swings = match steering {
            true => &mut node.steered,
            false => &mut node.before,
        };
        if let Some(power) = reading.power {
            swings.power.add(power.0);
            let last = node.last.as_ref();
            let last = last.and_then(|(last, at)| Some((last.power?, *at)));
            if let Some((before, at)) = last.filter(|&(_, at)| at < now && now < at + STALE) {
                let ramp = (power - before).abs().0 / (now - at).as_secs_f64();
                swings.ramp.add(ramp);
            }
        }
        if let Some(why) = reading.alarm.clone() {
            node.supply.alarms(why, now);
        }
        node.last = Some((reading, now));
        self.check_node();
    }

    /// A figure for the node's power has come; `drawn`: the devices alone draw more, namely so much. Warns once if all
    /// figures of a while are such.
    fn judged_power(&mut self, source: &str, power: Watts, drawn: Option<Watts>) {
        let now = self.now();
        let before = self.node.contradicted;
        let (since, told) = before.unwrap_or((now, false));
        let tells = !told && now >= since + CONTRADICTED;
        self.node.contradicted = drawn.map(|_| (since, told || tells));
        if let Some(drawn) = drawn.filter(|_| tells) {
            let text = format!(
                "the node's power is unknown: {source} reports {power:.0} for the whole node, and its GPUs and CPU \
                 sockets alone draw {drawn:.0}. Check which sensor litd-node-power reads, and whether its value still \
                 changes"
            );
            self.note(Note::warning(EventKind::Fault, text));
        }
    }

    /// The watts that the node's budget, or its BMC's limit, leaves to all GPUs together.
    pub fn left_by_node(&self) -> Option<Watts> {
        self.node.bound
    }

    fn is_steering(&self) -> bool {
        let steers = self.policy() != Policy::Observe;
        steers && self.jobs.values().any(|job| job.is_steered())
    }

    /// The most that GPUs and CPU sockets may draw, or may have drawn a minute ago: a BMC's figure may be that late. A
    /// device counts with the most of the cap that it may hold, the one found and, after a crash, those of its entry.
    fn may_draw(&self) -> Watts {
        let drawings = self.drawings();
        let each = drawings.keys().filter_map(|&device| {
            let unit = self.devices.get(device)?;
            let entry = self.writer.entry(unit.address()).map(Entry::most);
            let caps = [unit.found, entry].into_iter().flatten();
            Some(caps.fold(self.writer.account().counts(device), Watts::max))
        });
        each.sum()
    }

    /// What GPUs and CPU sockets draw. A socket that has never told its power stays out.
    fn drawings(&self) -> BTreeMap<usize, Drawing> {
        let drawing = |(device, unit): (usize, &Unit)| {
            let most = self.writer.account().counts(device);
            let has_told = unit.readings.last().is_some_and(|it| it.power.is_some());
            let told = self.fresh_reading(unit).and_then(|it| {
                let power = it.power.filter(|it| it.is_finite() && *it >= Watts::ZERO)?;
                let energy = it.energy.filter(|energy| energy.is_finite());
                let counter = energy.map(|energy| Counter {
                    energy,
                    asked: unit.readings.asked(),
                    answered: unit.readings.answered(),
                });
                Some(Drawing::Told {
                    power,
                    counter,
                    most,
                })
            });
            let counts = unit.is_gpu() || has_told;
            counts.then(|| (device, told.unwrap_or(Drawing::Silent { most })))
        };
        self.devices.iter().filter_map(drawing).collect()
    }

    /// Once a second, and at each reading of the BMC: updates limit, alarm and budget.
    pub(crate) fn check_node(&mut self) {
        let drawings = self.drawings();
        self.node.reserve.draws(&drawings, self.now());
        match self.node.supply.news(self.now()) {
            Some(News::Short(why)) => {
                let text = format!("the node is short of power, so litd raises no cap: {why}");
                self.note(Note::warning(EventKind::Fault, text));
            }
            Some(News::ShortNoMore) => {
                let text = "the node is no longer reported to be short of power";
                self.note(Note::info(EventKind::Fault, text));
            }
            None => {}
        }
        self.keep_reserve();
        self.keep_limits();
        self.bind();
        self.tell_unbound();
    }

    /// Warns once that the node's budget is not enforced, because the power of its other parts is unknown.
    fn tell_unbound(&mut self) {
        let unbound = self.node_limit().is_some() && self.lacks_reserve();
        let before = self.node.unbound.filter(|_| unbound);
        let (since, told) = before.unwrap_or((self.now(), false));
        let tells = unbound && !told && self.now() >= since + UNBOUND;
        self.node.unbound = unbound.then_some((since, told || tells));
        if tells {
            self.out.error("node_budget", "");
            let least = self.reserve().unwrap_or(Watts::ZERO);
            let text = format!(
                "the node may draw more than its budget: node.reserve is not set, and in {:.0} s litd could not \
                 measure what parts other than GPUs and CPUs draw. It counts {least:.0} for them, the least that \
                 readings have shown. Set node.reserve, or check that litd-node-power reports the node's power: \
                 litd then needs a minute of nearly steady power of all GPUs and CPU sockets, with none released",
                UNBOUND.as_secs_f64()
            );
            self.note(Note::warning(EventKind::Fault, text));
        }
    }

    /// The node's present power.
    pub(crate) fn node_power(&self) -> Option<Watts> {
        let (last, at) = self.node.last.as_ref()?;
        last.power.filter(|_| self.now() < *at + STALE)
    }

    /// Power of other parts than GPUs and CPUs: as configured, or as measured if that is more.
    fn reserve(&self) -> Option<Watts> {
        let each = [
            self.measured_reserve(),
            self.least_reserve(),
            self.config.node.reserve,
        ];
        each.into_iter().flatten().reduce(Watts::max)
    }

    /// What that power is at least, as readings have shown since the node has booted.
    fn least_reserve(&self) -> Option<Watts> {
        self.node.reserve.least()
    }

    /// That power as measured, by this litd or by one before it since the node has booted.
    fn measured_reserve(&self) -> Option<Watts> {
        self.node.reserve.measured().or(self.condition.reserve)
    }

    /// Keeps the measured power for the next start.
    fn keep_reserve(&mut self) {
        let measured = self.node.reserve.measured();
        if measured.is_some() && measured != self.condition.reserve {
            self.condition.reserve = measured;
            self.save_condition();
        }
    }

    /// Keeps the limits in force, and the power that is counted beside them, for the next start.
    fn keep_limits(&mut self) {
        if self.authority.is_stopping() {
            return;
        }
        let limits = self.node.limit.all_in_force();
        let least = self.node_limit().and_then(|_| self.least_reserve());
        if (&limits, least) != (&self.condition.limits, self.condition.least) {
            (self.condition.limits, self.condition.least) = (limits, least);
            self.save_condition();
        }
    }

    /// At a start: the limits that were in force when an earlier litd of this boot ended without being stopped.
    pub(crate) fn recall_limits(&mut self) {
        self.node.reserve.recall(self.condition.least);
        self.node.limit.recall(&self.condition.limits);
        for (source, limit) in self.condition.limits.clone() {
            let text = format!(
                "in force again, because litd ended without being stopped: the node's limit of {limit} that {source} \
                 reported, until {source} reports another one or litd is stopped"
            );
            self.note(Note::warning(EventKind::State, text));
        }
        if !self.condition.limits.is_empty() {
            self.bind();
        }
    }

    /// litd is stopped, and restores all caps: what sources told no longer counts. One that holds caps goes on with it
    /// at the next start.
    pub(crate) fn forget_limits(&mut self) {
        if !self.authority.holds(&self.config) {
            self.condition.limits.clear();
            self.condition.least = None;
        }
    }

    /// Whether that power is not configured, and readings have not shown it but for a lower bound at most.
    fn lacks_reserve(&self) -> bool {
        self.config.node.reserve.is_none() && self.measured_reserve().is_none()
    }

    /// The configured budget of the node may have changed; loops plan anew then.
    pub(crate) fn bind_anew(&mut self) {
        let left = self.left_to_gpus();
        self.node.bound = left.map(|left| left.max(self.floors()));
    }

    /// Works out the GPUs' part of the node's budget.
    pub(crate) fn bind(&mut self) {
        let waits = self.devices.cpus().any(|it| self.is_read_soon(it));
        if waits && self.node.bound.is_none() && self.is_looking_round() {
            return;
        }
        let (left, floors) = (self.left_to_gpus(), self.floors());
        self.tell_shortage(left.map(|left| left - self.taken_by_others()), floors);
        let mut bound = left.map(|left| left.max(floors));
        match waits {
            // Less is enforced at once, and more is given once all are known.
            true => {
                bound = bound
                    .zip(self.node.bound)
                    .map(|(new, old)| new.min(old))
                    .or(bound)
            }
            false => self.node.parts = self.parts_of_cpus().collect(),
        }
        let moved = match (self.node.bound, bound) {
            (Some(old), Some(new)) => new < old || new >= old + UP,
            (old, new) => old != new,
        };
        if !moved {
            return;
        }
        let before = self.gpu_budget();
        self.node.bound = bound;
        let after = self.gpu_budget();
        if before != after {
            let text = match bound {
                Some(bound) if bound <= after => {
                    format!("the node's budget leaves {bound:.0} to the GPUs")
                }
                _ => format!("the GPUs' budget is {after:.0} again"),
            };
            self.note(Note::info(EventKind::State, text));
            self.replan_all();
        }
    }

    /// The most that the node may draw: as configured, or the BMC's limit if that is less.
    fn node_limit(&self) -> Option<Watts> {
        let (configured, bmc) = (self.config.node.budget, self.node.limit.in_force());
        match (configured, bmc) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The node's limit less the power of all other parts.
    pub(crate) fn left_to_gpus(&self) -> Option<Watts> {
        let limit = self.node_limit()?;
        // Until the power of other parts is known it counts as zero.
        let reserve = self.reserve().unwrap_or(Watts::ZERO);
        Some(limit - reserve - self.left_to_cpus())
    }

    /// The sum of the CPU sockets' limits found, which is theirs.
    pub(crate) fn left_to_cpus(&self) -> Watts {
        self.parts_of_cpus().map(|(_, part)| part).sum()
    }

    /// The watts of each CPU socket. The limit of one that is read in a moment is known soon: until then it counts as
    /// before. One that can't be read counts with the most that it could hold.
    fn parts_of_cpus(&self) -> impl Iterator<Item = (usize, Watts)> {
        let is_bound = self.node.bound.is_some();
        self.devices.cpus().map(move |(device, unit)| {
            if is_bound && self.is_read_soon((device, unit)) {
                let before = self.node.parts.get(&device);
                return (device, before.copied().unwrap_or_default());
            }
            let counts = self.writer.account().counts(device);
            let most = self.writer.account().most_of(device);
            let part = socket_part(unit.by_hand.asked(), unit.back(), counts, most);
            (device, part)
        })
    }

    /// What CPU sockets hold by somebody else's hand beyond their part. The plan has the GPUs make room for that.
    fn taken_by_others(&self) -> Watts {
        let more = |(device, part): (usize, Watts)| {
            let unit = self.devices.get(device)?;
            let is_theirs = unit.standing.is_kept();
            is_theirs.then(|| (self.writer.account().counts(device) - part).max(Watts::ZERO))
        };
        self.parts_of_cpus().filter_map(more).sum()
    }

    /// Whether a CPU socket's limit was not read yet, and is to be.
    fn is_read_soon(&self, (device, unit): (usize, &Unit)) -> bool {
        !unit.was_read() && self.may_open(device) && !unit.is_beyond_judging()
    }

    /// The sum of the GPUs' floors, which the node's budget does not go below.
    fn floors(&self) -> Watts {
        let caps = &self.config.caps;
        self.devices.gpus().map(|(_, unit)| unit.floor(caps)).sum()
    }

    /// Says once that the node's budget can't be kept with the GPUs' caps, and once that it can again.
    fn tell_shortage(&mut self, left: Option<Watts>, floors: Watts) {
        let short = left.map_or(Watts::ZERO, |left| (floors - left).max(Watts::ZERO));
        let before = std::mem::replace(&mut self.node.short_by, short);
        match (before > Watts::ZERO, short > Watts::ZERO) {
            (false, true) => {
                let text = format!(
                    "the node's budget can't be kept: the GPUs' floors add up to {floors:.0}, \
                     {short:.0} more than it leaves them"
                );
                self.note(Note::warning(EventKind::Fault, text));
            }
            (true, false) => {
                let text = "the node's budget covers the GPUs' floors again";
                self.note(Note::info(EventKind::Fault, text));
            }
            _ => {}
        }
    }

    /// The node's power for status, once a reading has come.
    pub(crate) fn node_told(&self) -> Option<NodePower> {
        let last = self.node.last.as_ref();
        if last.is_none() && self.node_limit().is_none() {
            return None;
        }
        let fresh = last.filter(|(_, at)| self.now() < *at + STALE);
        let fresh = fresh.map(|(reading, _)| reading);
        Some(NodePower {
            source: fresh.map(|it| it.source.clone()),
            power: fresh.and_then(|it| it.power),
            bmc_limit: fresh.and_then(|it| it.cap),
            inlet: fresh.and_then(|it| it.inlet),
            supplies: fresh.and_then(|it| it.supplies),
            failed: fresh.and_then(|it| it.failed),
            alarm: self.node.supply.alarm(self.now()).map(str::to_owned),
            reserve: self.reserve(),
            reserve_unknown: self.lacks_reserve(),
            budget: self.node_limit(),
            left_to_gpus: self.node.bound,
            unsteered: self.node.before.peaks(),
            steered: self.node.steered.peaks(),
        })
    }
}

/// The reading without impossible values.
fn plausible(mut reading: NodeReading) -> NodeReading {
    let possible = |watts: &Watts| *watts > Watts::ZERO && *watts <= Watts(100_000.0);
    reading.power = reading.power.filter(possible);
    reading.cap = reading.cap.filter(possible);
    let inlet = |it: &Celsius| (-40.0..=120.0).contains(&it.0);
    reading.inlet = reading.inlet.filter(inlet);
    let there = reading.supplies;
    reading.failed = reading.failed.filter(|failed| Some(*failed) <= there);
    reading
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: &str, power: f64, cap: Option<f64>) -> NodeReading {
        plausible(NodeReading {
            source: source.to_owned(),
            power: Some(Watts(power)),
            cap: cap.map(Watts),
            ..NodeReading::default()
        })
    }

    #[test]
    fn what_cannot_be_is_not_there() {
        for wrong in [f64::NAN, -1.0, 0.0, 1e9, f64::INFINITY] {
            let reading = told("redfish", wrong, Some(wrong));
            assert_eq!((reading.power, reading.cap), (None, None), "{wrong}");
        }
        let reading = plausible(NodeReading {
            inlet: Some(Celsius(1e4)),
            supplies: Some(2),
            failed: Some(3),
            ..NodeReading::default()
        });
        assert_eq!((reading.inlet, reading.failed), (None, None));
    }
}
