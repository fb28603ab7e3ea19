//! The limits on the node that its BMC and other sources tell.

use std::collections::BTreeMap;

use litd_units::{Nanos, Watts};

use crate::event::NodeReading;
use crate::node::STALE;

/// A limit of the BMC's comes into force only if the node draws at most this multiple of it.
const EXCEEDED: f64 = 1.2;

/// A limit that the node exceeds by more is in force all the same once it has been told for so long.
const INSISTED: Nanos = Nanos(60_000_000_000);

/// The most sources of limits.
const SOURCES: usize = 8;

/// A source that tells a limit which the node far exceeds.
#[derive(Debug)]
struct Insister {
    source: String,
    /// Since when each of its readings has had such a limit.
    since: Nanos,
    /// When its last reading came.
    heard: Nanos,
}

/// The limits on the node that its BMC and other sources tell. One reading may be wrong in either direction, so a
/// limit moves only as far as two successive readings of one source agree. No source lifts another's limit: the
/// least counts.
#[derive(Debug, Default)]
pub(super) struct BmcLimit {
    of: BTreeMap<String, Told>,
    /// A source that tells a limit which the node far exceeds.
    insists: Option<Insister>,
}

/// The limit of one source.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// The last value. For a node without a limit it is infinite.
    last: Watts,
    in_force: Watts,
}

impl Told {
    const NONE: Watts = Watts(f64::INFINITY);
    const NOTHING: Self = Self {
        last: Self::NONE,
        in_force: Self::NONE,
    };

    fn hear(&mut self, told: Watts) {
        let before = std::mem::replace(&mut self.last, told);
        self.in_force = self.in_force.max(before.min(told)).min(before.max(told));
    }
}

impl BmcLimit {
    /// Takes in a reading. A limit that the node far exceeds may be a mistake. It counts only from a source whose
    /// limit is in force already (then that one was lowered, and the node is to follow), or once it has been told
    /// for [`INSISTED`] (then it came in an emergency, or before litd was started).
    pub fn hear(&mut self, reading: &NodeReading, now: Nanos) {
        let source = &reading.source;
        let known = self
            .of
            .get(source)
            .is_some_and(|it| it.in_force < Told::NONE);
        let enforced = |cap: &Watts| reading.power.is_none_or(|power| power <= *cap * EXCEEDED);
        let exceeded = reading.cap.is_some_and(|cap| !enforced(&cap));
        let mine = |it: &Insister| it.source == *source;
        // A source that has fallen silent loses its turn, and would begin anew.
        let before = self.insists.take().filter(|it| now < it.heard + STALE);
        self.insists = match before {
            Some(it) if !mine(&it) => Some(it),
            // A short dip of the node's power does not end it.
            before if exceeded || before.is_some() && reading.cap.is_some() => Some(Insister {
                source: source.clone(),
                since: before.map_or(now, |it| it.since),
                heard: now,
            }),
            _ => None,
        };
        let mine = self.insists.as_ref().filter(|it| mine(it));
        let insisted = mine.is_some_and(|it| now >= it.since + INSISTED);
        let cap = reading.cap.filter(|cap| known || insisted || enforced(cap));
        let is_new = !self.of.contains_key(source);
        if is_new && (cap.is_none() || self.of.len() >= SOURCES) {
            return;
        }
        let told = self.of.entry(source.clone()).or_insert(Told::NOTHING);
        told.hear(cap.unwrap_or(Told::NONE));
        self.of
            .retain(|_, it| it.in_force < Told::NONE || it.last < Told::NONE);
    }

    /// The limits that were in force when an earlier litd of this boot ended: each counts until its source tells
    /// another one, twice in a row.
    pub fn recall(&mut self, limits: &BTreeMap<String, Watts>) {
        let each = limits.iter().take(SOURCES);
        self.of = each
            .map(|(source, &limit)| {
                let told = Told {
                    last: limit,
                    in_force: limit,
                };
                (source.clone(), told)
            })
            .collect();
    }

    /// The limits in force, by source.
    pub fn all_in_force(&self) -> BTreeMap<String, Watts> {
        let each = self.of.iter().filter(|(_, it)| it.in_force < Told::NONE);
        each.map(|(source, it)| (source.clone(), it.in_force))
            .collect()
    }

    /// The limit that counts, if there is one.
    pub fn in_force(&self) -> Option<Watts> {
        let each = self.of.values().map(|it| it.in_force);
        each.filter(|it| *it < Told::NONE).reduce(Watts::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: &str, power: f64, cap: Option<f64>) -> NodeReading {
        NodeReading {
            source: source.to_owned(),
            power: Some(Watts(power)),
            cap: cap.map(Watts),
            ..NodeReading::default()
        }
    }

    #[test]
    fn a_limit_that_the_node_far_exceeds_counts_once_it_has_been_told_for_a_minute() {
        let mut limit = BmcLimit::default();
        let mut hear = |second: i64, cap: Option<f64>| {
            limit.hear(&told("redfish", 7000.0, cap), Nanos(second * 1_000_000_000));
            limit.in_force()
        };
        for second in (0..60).step_by(5) {
            assert_eq!(hear(second, Some(5000.0)), None);
        }
        // A reading without it, and it begins anew.
        assert_eq!(hear(60, None), None);
        for second in (65..125).step_by(5) {
            assert_eq!(hear(second, Some(5000.0)), None);
        }
        hear(125, Some(5000.0));
        assert_eq!(hear(130, Some(5000.0)), Some(Watts(5000.0)));
    }

    #[test]
    fn a_limit_moves_only_as_far_as_two_readings_in_a_row_agree() {
        let mut limit = BmcLimit::default();
        let mut hear = |source: &str, power: f64, cap: Option<f64>| {
            limit.hear(&told(source, power, cap), Nanos(0));
            limit.in_force()
        };
        assert_eq!(hear("redfish", 5000.0, Some(6000.0)), None);
        assert_eq!(hear("redfish", 5000.0, Some(5500.0)), Some(Watts(6000.0)));
        assert_eq!(hear("redfish", 5000.0, Some(5500.0)), Some(Watts(5500.0)));
        // A source that knows of no limit does not lift another's.
        assert_eq!(hear("ipmi", 5000.0, None), Some(Watts(5500.0)));
        assert_eq!(hear("ipmi", 5000.0, None), Some(Watts(5500.0)));
        // A single wrong reading neither lifts nor raises the limit, nor does a single wrong power.
        assert_eq!(hear("redfish", 5000.0, None), Some(Watts(5500.0)));
        assert_eq!(hear("redfish", 5000.0, Some(5500.0)), Some(Watts(5500.0)));
        assert_eq!(hear("redfish", 5000.0, Some(9000.0)), Some(Watts(5500.0)));
        assert_eq!(hear("redfish", 5000.0, Some(5500.0)), Some(Watts(5500.0)));
        assert_eq!(hear("redfish", 50_000.0, Some(5500.0)), Some(Watts(5500.0)));
        assert_eq!(hear("redfish", 5000.0, Some(5500.0)), Some(Watts(5500.0)));
        // Two successive readings do.
        assert_eq!(hear("redfish", 5000.0, Some(7000.0)), Some(Watts(5500.0)));
        assert_eq!(hear("redfish", 5000.0, Some(6500.0)), Some(Watts(6500.0)));
        assert_eq!(hear("redfish", 5000.0, None), Some(Watts(6500.0)));
        assert_eq!(hear("redfish", 5000.0, None), None);
        // A limit that is lowered far below the node's power still counts.
        hear("redfish", 5000.0, Some(6500.0));
        assert_eq!(hear("redfish", 5000.0, Some(6000.0)), Some(Watts(6500.0)));
        assert_eq!(hear("redfish", 5000.0, Some(4000.0)), Some(Watts(6000.0)));
        assert_eq!(hear("redfish", 5000.0, Some(4000.0)), Some(Watts(4000.0)));
        assert_eq!(hear("ipmi", 5000.0, Some(400.0)), Some(Watts(4000.0)));
        // A source with a higher limit does not lift it, and its own limit is lifted by itself.
        hear("acpi", 5000.0, Some(9000.0));
        assert_eq!(hear("acpi", 5000.0, Some(9000.0)), Some(Watts(4000.0)));
        hear("redfish", 5000.0, None);
        assert_eq!(hear("redfish", 5000.0, None), Some(Watts(9000.0)));
        hear("acpi", 5000.0, None);
        assert_eq!(hear("acpi", 5000.0, None), None);
        // The node draws far more, and no limit was in force: this limits nothing.
        for _ in 0..3 {
            assert_eq!(hear("redfish", 5000.0, Some(1.0)), None);
        }
    }
}
