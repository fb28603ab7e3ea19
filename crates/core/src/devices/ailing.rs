//! GPUs that need a higher cap than the others of their job for hours. Steering makes up for a part that fails,
//! and must not hide it: such GPUs are listed for repair, and the list outlives restarts.

use std::collections::BTreeMap;

use litd_api::EventKind;
use litd_units::{Nanos, Watts};
use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::devices::Unit;
use crate::job::Job;
use crate::record::Note;
use crate::rounds::TELEMETRY;
use crate::store::Store;

/// With fewer GPUs than this the median says nothing.
const FEWEST: usize = 3;

/// For so many seconds of steering a GPU must not have been above the others before its time above them is
/// forgotten.
const CALM: f64 = 600.0;

/// A round takes no longer than this. A longer gap is a pause of the daemon, and does not count.
const LONGEST: f64 = 5.0;

/// How long one GPU has needed more than the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Need {
    /// Seconds of steering in which it needed more than the others.
    pub seconds: f64,
    /// Seconds of steering since it last did.
    #[serde(default)]
    calm: f64,
    /// Since when a person should look at it, in seconds since 1970.
    #[serde(default)]
    pub since: Option<f64>,
}

/// What is to be reported of a GPU, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// A person should look at it.
    Opens,
    /// It has needed no more than the others for as long.
    Closes,
}

/// How long each GPU has needed more than the others, by serial number, or address where there is none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Needs {
    gpus: BTreeMap<String, Need>,
    /// When caps were compared last.
    #[serde(skip)]
    looked: Nanos,
}

impl Needs {
    /// How long this GPU has needed more than the others.
    pub fn of(&self, unit: &Unit) -> Need {
        self.gpus.get(part(unit)).copied().unwrap_or_default()
    }

    /// Takes over what another litd knows of GPUs that this one knows nothing of.
    pub fn adopt(&mut self, theirs: Self) {
        for (part, need) in theirs.gpus {
            self.gpus.entry(part).or_insert(need);
        }
    }

    /// Forgets GPUs that have needed nothing.
    pub fn tidy(&mut self) {
        self.gpus
            .retain(|_, need| need.seconds > 0.0 || need.since.is_some());
    }

    /// Caps are compared now. Returns how many seconds that stands for.
    fn passes(&mut self, now: Nanos) -> f64 {
        let passed = (now - self.looked).as_secs_f64();
        self.looked = now;
        match passed > LONGEST {
            true => TELEMETRY.as_secs_f64(),
            false => passed,
        }
    }

    /// A GPU needs more than the others, or does not, for some seconds more; after `patience` seconds a person should
    /// look at it. `unix` is the wall clock's time. Returns whether it enters or leaves the list of GPUs to repair.
    fn needs(
        &mut self,
        name: &str,
        above: bool,
        seconds: f64,
        patience: f64,
        unix: f64,
    ) -> Option<News> {
        if !above && !self.gpus.contains_key(name) {
            return None;
        }
        let need = self.gpus.entry(name.to_owned()).or_default();
        if above {
            need.seconds += seconds;
            need.calm = 0.0;
        } else {
            need.calm += seconds;
        }
        let opens = need.since.is_none() && need.seconds >= patience;
        let well = need.calm >= CALM.min(patience);
        // A GPU leaves the repair list after as long (24 h by default) of normal demand as it took to enter it.
        let closes = need.since.is_some() && need.calm >= patience;
        if well && need.since.is_none() {
            need.seconds = 0.0;
        }
        if opens {
            need.since = Some(unix);
            return Some(News::Opens);
        }
        closes.then(|| {
            *need = Need::default();
            News::Closes
        })
    }
}

fn part(unit: &Unit) -> &str {
    let identity = &unit.device.identity;
    identity.serial.as_deref().unwrap_or(&identity.address)
}

/// The middle cap; of an even number the lower one of the two in the middle.
fn median(mut caps: Vec<Watts>) -> Option<Watts> {
    caps.sort_by(|one, other| one.0.total_cmp(&other.0));
    caps.get(caps.len().checked_sub(1)? / 2).copied()
}

impl<S: Store> Core<S> {
    /// Once a second: which GPUs hold more than the others of their job.
    pub(crate) fn check_needs(&mut self) {
        let passed = self.condition.needs.passes(self.now());
        let share = 1.0 + self.config.ailing.above;
        let mut seen = Vec::new();
        for job in self.jobs.values().filter(|job| job.is_steered()) {
            let held: Vec<(usize, Watts)> = self.caps_of(job);
            let middle = median(held.iter().map(|&(_, cap)| cap).collect());
            let Some(middle) = middle.filter(|_| held.len() >= FEWEST) else {
                continue;
            };
            let above = |&(device, cap): &(usize, Watts)| (device, cap > middle * share);
            seen.extend(held.iter().map(above));
        }
        let mut changed = false;
        for (device, above) in seen {
            changed |= self.needs(device, above, passed);
        }
        if changed || self.condition.is_due(self.now()) {
            self.save_condition();
        }
    }

    fn caps_of(&self, job: &Job) -> Vec<(usize, Watts)> {
        let held = |device: usize| Some((device, self.writer.account().held(device)?));
        job.gpus().filter_map(held).collect()
    }

    /// A GPU needs more than the others, or does not, for some seconds more. Returns whether it enters or leaves
    /// the list of GPUs to repair.
    fn needs(&mut self, device: usize, above: bool, seconds: f64) -> bool {
        let (unix, hours) = (self.out.unix_seconds(), self.config.ailing.hours);
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        let needs = &mut self.condition.needs;
        let Some(news) = needs.needs(part(unit), above, seconds, hours * 3600.0, unix) else {
            return false;
        };
        let share = self.config.ailing.above * 100.0;
        let note = match news {
            News::Opens => Note::warning(
                EventKind::Fault,
                format!(
                    "inspect this hardware (cooling, seating, supply, silicon): its cap was more than {share:.0} % \
                     above the median of its job's GPUs for {hours} h of steering"
                ),
            ),
            News::Closes => {
                let text = format!(
                    "needs no inspection any more: its cap was near the others' for {hours} h of steering"
                );
                Note::info(EventKind::Fault, text)
            }
        };
        let note = note.device(unit.address());
        self.note(note);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: f64 = 3600.0;

    /// So many seconds above the others, or not, in rounds of a second. Returns the news, and after how many.
    fn seconds(needs: &mut Needs, above: bool, count: usize) -> Vec<(usize, News)> {
        let rounds = 1..=count;
        let news = rounds.map(|second| (second, needs.needs("part", above, 1.0, PATIENCE, 5.0)));
        news.filter_map(|(second, news)| Some((second, news?)))
            .collect()
    }

    #[test]
    fn a_gpu_is_listed_once_it_has_needed_more_for_long_enough_and_until_it_has_not_for_as_long() {
        let mut needs = Needs::default();
        assert!(seconds(&mut needs, false, 10).is_empty());
        // Calm spells that are short do not count.
        assert!(seconds(&mut needs, true, 3000).is_empty());
        assert!(seconds(&mut needs, false, 500).is_empty());
        assert_eq!(seconds(&mut needs, true, 700), [(600, News::Opens)]);
        assert!(seconds(&mut needs, false, 3000).is_empty());
        assert!(seconds(&mut needs, true, 1).is_empty());
        assert_eq!(seconds(&mut needs, false, 3600), [(3600, News::Closes)]);
        assert_eq!(needs.gpus["part"], Need::default());
    }

    #[test]
    fn ten_calm_minutes_make_up_for_what_was_needed_before() {
        let mut needs = Needs::default();
        seconds(&mut needs, true, 3000);
        seconds(&mut needs, false, 600);
        assert_eq!(needs.gpus["part"].seconds, 0.0);
        needs.tidy();
        assert!(needs.gpus.is_empty());
        assert!(seconds(&mut needs, true, 3599).is_empty());
    }

    #[test]
    fn a_pause_of_the_daemon_counts_as_one_round() {
        let mut needs = Needs::default();
        let at = |seconds: i64| Nanos(seconds * 1_000_000_000);
        needs.passes(at(0));
        assert_eq!(needs.passes(at(2)), 2.0);
        assert_eq!(needs.passes(at(3600)), 1.0);
    }

    #[test]
    fn what_another_litd_knows_is_taken_over_where_nothing_is_known() {
        let (mut own, mut theirs) = (Needs::default(), Needs::default());
        seconds(&mut own, true, 5);
        seconds(&mut theirs, true, 100);
        theirs.needs("another", true, 7.0, PATIENCE, 5.0);
        own.adopt(theirs);
        assert_eq!(
            (own.gpus["part"].seconds, own.gpus["another"].seconds),
            (5.0, 7.0)
        );
    }

    #[test]
    fn of_an_even_number_of_caps_the_lower_one_in_the_middle_is_the_median() {
        let of = |caps: &[f64]| median(caps.iter().copied().map(Watts).collect());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[500.0, 700.0, 600.0]), Some(Watts(600.0)));
        assert_eq!(of(&[700.0, 500.0]), Some(Watts(500.0)));
    }
}
