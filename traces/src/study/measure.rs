//! What tells who is late, and how far that may be chance.

use litd_units::Nanos;

use crate::analysis::least;
use crate::collectives::GroupWaits;
use crate::spans::ratio;

/// Leads below this share of an iteration hold nobody back.
const LEVEL: f64 = 0.004;

/// What tells who is late: whom the others wait for in collectives or, without any, who starts
/// kernels last.
pub(super) struct Measure {
    /// Of each rank: the least is the straggler's. Shares.
    pub(super) values: Vec<f64>,
    /// What tells whether anybody is late at all.
    pub(super) name: &'static str,
    /// How far the ranks are apart by that, and how far noise may drive them; shares.
    pub(super) spread: f64,
    pub(super) level: f64,
    /// What the last rank is late by in all, a share of the time.
    pub(super) late_by: f64,
}

impl Measure {
    /// Over iterations of this length together, so many of them, of which noise drives mean leads apart
    /// by this share.
    pub(super) fn of(
        waits: Option<&GroupWaits>,
        leads: &[f64],
        (length, iterations): (Nanos, usize),
        noise: f64,
    ) -> Self {
        let Some(waits) = waits else {
            return Self {
                values: leads.to_vec(),
                name: "leads",
                spread: spread(leads),
                level: LEVEL.max(noise),
                late_by: spread(leads),
            };
        };
        let shares = |times: &[Nanos]| {
            let shares = times.iter().map(|&time| ratio(time, length).unwrap_or(0.0));
            Vec::from_iter(shares)
        };
        // What nothing hides adds up to what ranks are apart at the end of an iteration, where leads are
        // twice their mean.
        let exposed = (spread(&shares(&waits.exposed)), LEVEL.max(2.0 * noise));
        // Where computation hides waits, ranks are as far apart at collectives as they lead.
        let arrivals = waits.mean.as_deref().map(|mean| {
            let apart = spread(&shares(mean)) * iterations as f64;
            (apart, LEVEL.max(noise))
        });
        let arrivals = arrivals.filter(|one| one.0 / one.1 > exposed.0 / exposed.1);
        // What others wait with nothing to compute counts each moment once. What computation hides does not: the same
        // lateness shows at each collective, and ranks carry it on until somebody waits, so there the greatest counts.
        let greatest = waits.without_one.iter().map(|rest| {
            let greatest = waits.names.iter().zip(rest).map(|(all, rest)| *all - *rest);
            spread(&shares(&Vec::from_iter(greatest)))
        });
        let late_by = greatest.fold(exposed.0, f64::max);
        let (name, (spread, level)) = match arrivals {
            Some(arrivals) => ("arrivals", arrivals),
            None => ("waits", exposed),
        };
        Self {
            values: shares(&waits.names),
            name,
            spread,
            level,
            late_by,
        }
    }

    /// From which spread of the values on somebody is late.
    pub(super) fn threshold(&self) -> f64 {
        match self.spread > 0.0 {
            true => spread(&self.values) * self.level / self.spread,
            false => self.level,
        }
    }

    /// The figure in words, for a node that is level or for one that nothing explains.
    pub(super) fn apart(&self, late: &str, explained: bool) -> [String; 2] {
        let (spread, level) = (100.0 * self.spread, 100.0 * self.level);
        let unexplained = match explained {
            true => "and neither its pace nor its queue nor its transfers explain that",
            false => {
                "and its pace, its queue, its transfers and what single kernels take explain less than half of that"
            }
        };
        match self.name {
            "leads" => [
                format!(
                    "the ranks are {spread:.2} % of an iteration apart on average, where noise makes up to {level:.2} %"
                ),
                format!(
                    "the rank furthest ahead leads {late} by {spread:.2} % of an iteration on average, {unexplained}"
                ),
            ],
            "waits" => [
                format!(
                    "what the ranks wait in collectives with nothing to compute differs by {spread:.2} % of an iteration, where noise makes up to {level:.2} %"
                ),
                format!(
                    "another rank waits in collectives with nothing to compute for {spread:.2} % of an iteration more than {late}, {unexplained}"
                ),
            ],
            _ => [
                format!(
                    "the ranks come to collectives {spread:.2} % of an iteration apart on average, where noise makes up to {level:.2} %"
                ),
                format!(
                    "another rank comes to collectives {spread:.2} % of an iteration before {late} on average, {unexplained}"
                ),
            ],
        }
    }
}

/// Whether one collective alone tells that this rank is late: without the one in which most is waited
/// another one would be, or, where its own marks don't set it apart either, nobody.
pub(super) fn hangs_on_one(
    (last, set_apart): (usize, bool),
    waits: Option<&GroupWaits>,
    measure: &Measure,
    length: Nanos,
) -> bool {
    let Some(rests) = waits.and_then(|waits| waits.without_one.as_ref()) else {
        return false;
    };
    // Ranks that are no further apart than noise makes them are told apart by their kernels.
    if measure.spread < measure.level {
        return false;
    }
    let enough = measure.threshold();
    let shares = rests.iter().map(|&time| ratio(time, length).unwrap_or(0.0));
    let shares = Vec::from_iter(shares);
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let own = shares.get(last).copied().unwrap_or(0.0);
    own - least >= enough || !set_apart && spread(&shares) < enough
}

/// The rank that would be waited for by the collectives that find their ranks in step alone, if that is
/// clearly another one.
pub(super) fn once_in_step(
    last: usize,
    waits: Option<&GroupWaits>,
    measure: &Measure,
    length: Nanos,
) -> Option<usize> {
    let waits = waits?.in_step.as_ref()?;
    let other = least(waits)?;
    let more = ratio(*waits.get(last)? - *waits.get(other)?, length)?;
    (more >= measure.threshold()).then_some(other)
}

/// By how much the greatest value exceeds the least.
pub(super) fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(0.0, f64::max);
    (most - values.iter().copied().fold(most, f64::min)).max(0.0)
}
