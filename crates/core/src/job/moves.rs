//! How often caps move for a user's jobs. Each write is a record in the audit log, whose files are bounded: a user
//! whose jobs come and go, or ask for other clocks all the time, would have everybody's records dropped within hours.
//! The records can't be left out, because undo after a crash goes by them. So beyond a number that no job needs a
//! user's jobs are only observed for a while, and their GPUs hold what they hold without litd's loops.

use std::collections::BTreeMap;

use litd_units::Nanos;

use crate::core::Core;
use crate::hooks::party::Party;
use crate::job::Job;
use crate::rate::Bucket;
use crate::store::Store;

/// The writes that a user's jobs may cause at once: a job on eight GPUs that is adjusted 250 times.
const BURST: f64 = 2000.0;

/// The further writes an hour.
const PER_HOUR: f64 = 600.0;

/// A user who has none left is steered again once he has so many: ten minutes later.
const RESUMES: f64 = 100.0;

/// How many parties are remembered. Beyond that whoever has used least is forgotten.
const KEPT: usize = 256;

/// The writes that a user or a pod has left.
#[derive(Debug)]
struct Allowance {
    bucket: Bucket,
    is_used_up: bool,
}

/// The allowances of all users and pods whose jobs have had caps moved of late.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    of: BTreeMap<Party, Allowance>,
}

impl Moves {
    /// A cap is moved for a job of this party.
    fn moved(&mut self, whose: Party, now: Nanos) {
        if !self.of.contains_key(&whose) && self.of.len() >= KEPT {
            let level = |it: &Allowance| it.bucket.level(now);
            let most = self
                .of
                .iter()
                .max_by(|one, other| level(one.1).total_cmp(&level(other.1)));
            if let Some(most) = most.map(|(party, _)| party.clone()) {
                self.of.remove(&most);
            }
        }
        let full = || Allowance {
            bucket: Bucket::with_burst(PER_HOUR / 3600.0, BURST, now),
            is_used_up: false,
        };
        let allowance = self.of.entry(whose).or_insert_with(full);
        allowance.bucket.owe(1.0, now);
    }

    /// Whether no caps move for this party's jobs now.
    fn is_used_up(&self, whose: &Party) -> bool {
        self.of.get(whose).is_some_and(|it| it.is_used_up)
    }

    /// Looks at what everybody has left. Returns whether that changes whose jobs are steered.
    pub fn look(&mut self, now: Nanos) -> bool {
        let mut has_changed = false;
        for allowance in self.of.values_mut() {
            let least = if allowance.is_used_up { RESUMES } else { 1.0 };
            let is_used_up = allowance.bucket.level(now) < least;
            has_changed |= std::mem::replace(&mut allowance.is_used_up, is_used_up) != is_used_up;
        }
        self.of.retain(|_, it| it.bucket.level(now) < BURST);
        has_changed
    }
}

impl<S: Store> Core<S> {
    /// A cap is about to be moved for this job.
    pub(crate) fn moves_for(&mut self, name: &str) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let whose = self.hooks.tenant_of(job).party();
        let now = self.now();
        self.jobs.moves_mut().moved(whose, now);
    }

    /// Whether no caps move for a job, because they have moved too often for its user's jobs.
    pub(crate) fn rests(&self, job: &Job) -> bool {
        let whose = self.hooks.tenant_of(job).party();
        self.jobs.moves().is_used_up(&whose)
    }

    /// The same in words.
    pub(crate) fn why_it_rests(&self, job: &Job) -> Option<String> {
        let whose = self.hooks.tenant_of(job);
        self.rests(job).then(|| {
            format!(
                "caps have moved {BURST:.0} times of late for jobs of {whose}: in the long run litd moves them \
                 {PER_HOUR:.0} times an hour for one user, so that the audit log keeps what others did"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9) as i64)
    }

    #[test]
    fn who_has_used_up_his_moves_rests_for_ten_minutes_and_nobody_else_does() {
        let (busy, other) = (Party::User(1000), Party::User(1001));
        let mut moves = Moves::default();
        moves.moved(other.clone(), Nanos(0));
        for _ in 0..BURST as u32 - 1 {
            moves.moved(busy.clone(), Nanos(0));
            assert!(!moves.look(Nanos(0)));
        }
        moves.moved(busy.clone(), Nanos(0));
        assert!(moves.look(Nanos(0)));
        assert!(moves.is_used_up(&busy) && !moves.is_used_up(&other));
        assert!(!moves.look(after(599.0)) && moves.is_used_up(&busy));
        assert!(moves.look(after(601.0)) && !moves.is_used_up(&busy));
        // A user who has all of them again is forgotten.
        moves.look(after(12.0 * 3600.0));
        assert!(moves.of.is_empty());
    }

    #[test]
    fn of_many_parties_those_are_remembered_that_have_used_most() {
        let mut moves = Moves::default();
        let busy = Party::User(1000);
        for _ in 0..BURST as u32 {
            moves.moved(busy.clone(), Nanos(0));
        }
        for number in 0..10 * KEPT {
            moves.moved(Party::Pod(number.to_string()), Nanos(0));
        }
        moves.look(Nanos(0));
        assert!(moves.of.len() == KEPT && moves.is_used_up(&busy));
    }
}
