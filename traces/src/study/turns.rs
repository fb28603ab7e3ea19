//! Whether nobody in particular is waited for: ranks come last in turn, or no host is fast enough for its GPU.

use litd_diagnosis::{Cause, Limits, SURE, Verdict};

use super::cause::named;
use crate::collectives::{GroupWaits, Lag};

/// What a rank that comes late again and again is to blame for, at least, unless it is later on average by more than
/// chance explains.
const MOST: f64 = 0.5;
/// Kernels that are slower by so many of their standard errors are no chance.
const NO_CHANCE: f64 = 10.0;
/// From this share of the time on that all queues are empty, hosts are what everybody waits for.
pub(super) const ALL_WAIT: f64 = 0.1;
/// A queue that is empty for longer than the others by less than this part of what they are costs little of its own.
const OWN: f64 = 0.25;

/// Why nobody in particular is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nobody {
    /// Ranks are late in turn.
    InTurn,
    /// All hosts are late.
    Hosts,
}

impl Nobody {
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::InTurn => Cause::Healthy,
            Self::Hosts => Cause::HostBound,
        }
    }

    /// The reasons, in words and numbers.
    /// All queues are empty for this share of the time recorded.
    pub(super) fn evidence(self, late: &[u32], empty: f64) -> Vec<String> {
        let least = 100.0 * empty;
        match self {
            Self::InTurn => vec![format!(
                "the last rank changes from one collective and iteration to the next; that {} is last most often may be chance",
                named(late)
            )],
            Self::Hosts => vec![format!(
                "all queues are empty, with no collective to wait for, for about {least:.1} % of the time recorded or more: no host is fast enough for its GPU; that {} comes last is little of that, or chance",
                named(late)
            )],
        }
    }
}

/// Whether the ranks at these places are late by chance, or for what all are.
pub(super) fn nobody(
    waits: Option<&GroupWaits>,
    verdict: &Verdict,
    late: &[usize],
) -> Option<Nobody> {
    let waits = waits?;
    let lags = &waits.lags;
    let last = verdict.last?;
    let own = lags.get(last)?;
    if is_slow(verdict) {
        return None;
    }
    let accounts_for_it = accounts(waits, last);
    let again = |lag: &Lag| accounts_for_it && again(lag);
    let blame = late.iter().filter_map(|&gpu| lags.get(gpu));
    // In each iteration one rank waits least: that it is one of several says little.
    let net = match late {
        [one] if accounts(waits, *one) => lags.get(*one).map_or(0.0, |lag| lag.net),
        _ => 0.0,
    };
    let blame = blame.map(|lag| lag.blame).sum::<f64>().max(net);
    let idle = verdict.apart.idle;
    let common = verdict.idle - idle;
    if verdict.cause == Cause::HostBound && common >= ALL_WAIT {
        // What all hosts are late by is told first; what one of them is later by decides for what it is worth. Where its
        // queue is empty no longer than the others' something else makes it late, if that is no chance.
        let all = match idle > Limits::OF_TRACES.idle {
            true => idle < OWN * common || blame < MOST && !again(own),
            false => blame < MOST && !again(own),
        };
        return all.then_some(Nobody::Hosts);
    }
    if again(own) {
        return None;
    }
    // Several that are late for one reason are so in all iterations, and not one in each.
    let named = || late.iter().filter_map(|&gpu| lags.get(gpu));
    let steady = named().filter(|&lag| again(lag)).count();
    if late.len() > 1 && own.by_iterations.is_some() && 2 * steady < late.len() {
        return Some(Nobody::InTurn);
    }
    // So much of the blame falls to so many of all ranks by chance.
    let chance = late.len() as f64 / lags.len().max(1) as f64;
    let most = match late.len() {
        0 | 1 => MOST,
        _ => chance + MOST * (1.0 - chance),
    };
    (blame < most).then_some(Nobody::InTurn)
}

/// The same of the rank that would be last by the collectives that find their ranks in step alone, where enough iterations
/// tell.
pub(super) fn nobody_in_step(
    waits: Option<&GroupWaits>,
    verdict: &Verdict,
    other: usize,
) -> Option<Nobody> {
    waits?.lags.get(other)?.by_iterations?;
    let verdict = Verdict {
        last: Some(other),
        ..verdict.clone()
    };
    nobody(waits, &verdict, &[other])
}

/// Whether all queues are empty for much of the time, and that of the last rank hardly longer.
pub(super) fn all_alike(verdict: &Verdict) -> bool {
    let own = verdict.apart.idle;
    let common = verdict.idle - own;
    common >= ALL_WAIT && own < OWN * common
}

/// Whether the kernels of the last rank are slower, beyond chance.
pub(super) fn is_slow(verdict: &Verdict) -> bool {
    let by_pace = matches!(verdict.cause, Cause::SlowClock | Cause::DataDependent);
    let apart = &verdict.apart;
    let pace = apart.slower_compute.zip(apart.uncertainty);
    by_pace && pace.is_some_and(|(slower, error)| slower > NO_CHANCE * error)
}

/// Whether what a rank is late by in collectives of its group accounts for why it is named. Where it also waits for other
/// groups, it may be named because these waits are not known, as where a recording has lost kernels.
fn accounts(waits: &GroupWaits, rank: usize) -> bool {
    /// At least this part of what it waits less than the rank that waits most.
    const PART: f64 = 0.25;
    let crosses = waits.mean.is_none();
    let told = || {
        let own = *waits.names.get(rank)?;
        let most = waits.names.iter().copied().max()?;
        let later = waits.lags.get(rank)?.later;
        Some(later.0 as f64 >= PART * (most - own).0 as f64)
    };
    !crosses || told().unwrap_or(false)
}

/// Whether a rank comes late again and again, by more than the one of several that chance makes the last: over few
/// iterations that takes more. Where iterations tell, a rank may be late to one collective of many in each.
fn again(own: &Lag) -> bool {
    let more = |iterations: usize| 33.0 / (iterations as f64 - 1.0).powi(2);
    match own.by_iterations {
        Some((errors, iterations)) => errors >= SURE + more(iterations),
        None => own.by_collectives >= SURE,
    }
}

#[cfg(test)]
mod tests {
    use litd_diagnosis::Marks;
    use litd_units::Nanos;

    use super::*;

    /// What is said of a rank to which this is due, where hosts keep its queue empty for so long, and the others'.
    fn told(own: Lag, [idle, others]: [f64; 2]) -> Option<Nobody> {
        let waits = GroupWaits {
            mean: Some(Vec::new()),
            lags: vec![own, Lag::default()],
            ..GroupWaits::default()
        };
        let verdict = Verdict {
            cause: Cause::HostBound,
            last: Some(0),
            ahead: vec![1],
            spread: 1.0,
            apart: Marks {
                idle: idle - others,
                ..Marks::default()
            },
            idle,
            clock_below: None,
            seen: vec![Cause::HostBound],
        };
        nobody(Some(&waits), &verdict, &[0])
    }

    #[test]
    fn who_is_last_by_chance_is_not_waited_for() {
        let lag = |blame, by_collectives, iterations| Lag {
            blame,
            net: 0.0,
            later: Nanos::ZERO,
            by_collectives,
            by_iterations: Some(iterations),
        };
        // Last in few collectives, and no later than chance makes one of several.
        let chance = lag(0.2, 2.0, (1.0, 6));
        assert_eq!(told(chance, [0.05, 0.0]), Some(Nobody::InTurn));
        assert_eq!(told(chance, [0.25, 0.2]), Some(Nobody::Hosts));
        // Each host lags until the next synchronisation, so that collectives between follow each other.
        assert_eq!(
            told(lag(0.3, 15.0, (3.2, 6)), [0.35, 0.2]),
            Some(Nobody::Hosts)
        );
        // The same rank in all iterations.
        assert_eq!(told(lag(0.3, 15.0, (50.0, 6)), [0.35, 0.2]), None);
        // Once, but for all that is waited.
        assert_eq!(told(lag(0.95, 1.0, (1.0, 6)), [0.05, 0.0]), None);
        assert_eq!(told(lag(0.95, 1.0, (1.0, 6)), [0.6, 0.3]), None);
        // What all hosts are late by is told first, whoever comes last.
        for own in [lag(0.95, 1.0, (1.0, 6)), lag(0.95, 15.0, (50.0, 6))] {
            assert_eq!(told(own, [0.32, 0.3]), Some(Nobody::Hosts));
        }
        // Of all hosts it is hardly the latest.
        assert_eq!(
            told(lag(0.6, 10.0, (3.0, 3)), [0.45, 0.44]),
            Some(Nobody::Hosts)
        );
    }
}
