//! Whose job records next. Jobs record one at a time, and a job that is not sampled for `jobs.stale_seconds` is not
//! steered: processes that write late must not keep the jobs of others from being sampled for so long. Without I/O and
//! without a clock.

use std::collections::BTreeMap;

use litd_attach::Owner;
use litd_units::Nanos;

/// How long a process may take to fetch a wish, and to write what it has recorded.
const PATIENCE: Nanos = Nanos(45_000_000_000);

/// An errand that has not ended so long after its time hangs.
pub(super) const HANGS: Nanos = Nanos(10_000_000_000);

/// The time that each job of others is left to record in before it becomes stale.
const SPARE: Nanos = Nanos(5_000_000_000);

/// A process learns of a wish within 5 s: less than this would be for nothing.
const LEAST: Nanos = Nanos(10_000_000_000);

/// A job whose trace is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Due {
    pub job: u64,
    pub owner: Owner,
    pub since: Nanos,
    /// How long its processes may wait, besides [`PATIENCE`], for the iteration with which they begin.
    pub waits: Nanos,
}

/// The owners' shares of the time in which traces are recorded.
#[derive(Debug)]
pub(super) struct Turns {
    every: Nanos,
    stale: Nanos,
    owners: BTreeMap<Owner, Share>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Share {
    jobs: i64,
    /// How long the owner's jobs have recorded. Where they have not for a while, nothing is saved by that.
    used: Nanos,
}

impl Turns {
    /// A trace of each job is due every so often, and a job without a sample for so long is stale.
    pub fn new(every: Nanos, stale: Nanos) -> Self {
        Self {
            every,
            stale,
            owners: BTreeMap::new(),
        }
    }

    /// How often a trace of each job is due.
    pub fn every(&self) -> Nanos {
        self.every
    }

    /// These are the owners of all jobs that are sampled now, each as often as he has jobs. Newcomers come last:
    /// otherwise whoever goes and comes again would be first each time.
    pub fn keep(&mut self, owners: impl IntoIterator<Item = Owner>) {
        let most = self.owners.values().map(|it| it.used).max();
        let used = most.unwrap_or_default();
        for share in self.owners.values_mut() {
            share.jobs = 0;
        }
        for owner in owners {
            let share = self.owners.entry(owner);
            share.or_insert(Share { jobs: 0, used }).jobs += 1;
        }
        self.owners.retain(|_, share| share.jobs > 0);
    }

    /// The job that is to record now, and how long that may take. Of the owners with a trace that is due it is the one
    /// whose jobs have recorded least, and of his jobs the one that has waited longest.
    pub fn next(&mut self, due: &[Due]) -> Option<(u64, Nanos)> {
        let used = |it: &Due| self.owners.get(&it.owner).map(|share| share.used);
        let next = due.iter().min_by_key(|it| (used(it), it.since))?;
        let reached = used(next).unwrap_or_default();
        for share in self.owners.values_mut() {
            share.used = reached.max(share.used);
        }
        Some((next.job, self.most(next)))
    }

    /// How long a job may record: so short a time that no job of somebody else becomes stale, be its trace due right
    /// after the beginning, or be it the last of all owners' first ones.
    fn most(&self, due: &Due) -> Nanos {
        let wanted = PATIENCE + due.waits;
        let others = self.owners.iter().filter(|(owner, _)| **owner != due.owner);
        let (count, jobs) =
            others.fold((0, 0), |(count, jobs), (_, it)| (count + 1, jobs + it.jobs));
        if count == 0 {
            return wanted;
        }
        let left = self.stale.0 - SPARE.0.saturating_mul(jobs);
        let most = (left - self.every.0).min(left / count) - HANGS.0;
        wanted.min(Nanos(most.max(LEAST.0)))
    }

    /// An owner's job has recorded for so long.
    pub fn end(&mut self, owner: &Owner, took: Nanos) {
        if let Some(share) = self.owners.get_mut(owner) {
            share.used += took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Nanos = Nanos(60_000_000_000);
    const STALE: Nanos = Nanos(120_000_000_000);
    const SECOND: Nanos = Nanos(1_000_000_000);

    /// A job, and how its processes record.
    #[derive(Clone, Copy)]
    struct Job {
        owner: u32,
        /// A trace is due so long after the last one.
        every: i64,
        /// How long a recording takes, and how long its iterations let it wait.
        takes: i64,
        waits: i64,
    }

    /// The longest time without a sample in each job, over two hours.
    fn longest(jobs: &[Job]) -> Vec<i64> {
        let mut turns = Turns::new(EVERY, STALE);
        let owner = |it: &Job| Owner::User(it.owner);
        let mut due: Vec<i64> = vec![0; jobs.len()];
        let (mut last, mut longest) = (due.clone(), due.clone());
        let mut now = 0;
        while now < 7200 {
            turns.keep(jobs.iter().map(owner));
            let ready: Vec<Due> = (0..jobs.len())
                .filter(|&it| due[it] <= now)
                .map(|it| Due {
                    job: it as u64,
                    owner: owner(&jobs[it]),
                    since: Nanos(due[it] * SECOND.0),
                    waits: Nanos(jobs[it].waits * SECOND.0),
                })
                .collect();
            let Some((next, most)) = turns.next(&ready) else {
                now += 1;
                continue;
            };
            let it = next as usize;
            let is_sample = jobs[it].takes * SECOND.0 <= most.0;
            // At worst what it writes can't be read.
            let took = match is_sample {
                true => jobs[it].takes,
                false => (most + HANGS).0 / SECOND.0,
            };
            now += took;
            let nanos = |seconds: i64| Nanos(seconds * SECOND.0);
            turns.end(&owner(&jobs[it]), nanos(took));
            due[it] = now + jobs[it].every;
            if is_sample {
                longest[it] = longest[it].max(now - last[it]);
                last[it] = now;
            }
        }
        for (longest, last) in longest.iter_mut().zip(last) {
            *longest = (*longest).max(7200 - last);
        }
        longest
    }

    fn job(owner: u32, takes: i64, waits: i64) -> Job {
        Job {
            owner,
            every: 60,
            takes,
            waits,
        }
    }

    #[test]
    fn whoever_writes_late_makes_no_job_of_others_stale() {
        let prompt = |owner| job(owner, 5, 0);
        // As late as may be: with short iterations, and with ones that let a recording wait.
        for late in [job(1, 25, 0), job(1, 45, 0), job(1, 500, 60)] {
            for (others, own) in [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 3)] {
                let mut jobs = vec![late; others];
                jobs.extend(vec![prompt(2); own]);
                // Jobs of many owners, too.
                for owners in [1, others] {
                    for (it, job) in jobs.iter_mut().take(others).enumerate() {
                        job.owner = 10 + (it % owners) as u32;
                    }
                    let longest = longest(&jobs);
                    let own = &longest[others..];
                    assert!(own.iter().all(|&it| it < 120), "{others} {longest:?}");
                }
            }
        }
    }

    #[test]
    fn a_job_that_takes_long_gets_its_turns_beside_prompt_ones() {
        for prompt in 1..=3 {
            let mut jobs = vec![job(1, 35, 0)];
            jobs.extend(vec![job(2, 5, 0); prompt]);
            let longest = longest(&jobs);
            assert!(longest.iter().all(|&it| it < 120), "{longest:?}");
        }
    }

    #[test]
    fn the_only_owner_has_all_the_time() {
        let mut turns = Turns::new(EVERY, STALE);
        let one = Owner::Pod("a".to_owned());
        turns.keep([one.clone(), one.clone()]);
        let waits = Nanos(300 * SECOND.0);
        let due = Due {
            job: 2,
            owner: one,
            since: Nanos::ZERO,
            waits,
        };
        assert_eq!(turns.next(&[due]), Some((2, PATIENCE + waits)));
    }

    #[test]
    fn who_comes_again_is_last() {
        let mut turns = Turns::new(EVERY, STALE);
        let [one, two] = [Owner::User(1), Owner::User(2)];
        let due = |job: u64, owner: &Owner, since: i64| Due {
            job,
            owner: owner.clone(),
            since: Nanos(since),
            waits: Nanos::ZERO,
        };
        turns.keep([one.clone(), two.clone()]);
        turns.end(&two, SECOND);
        turns.end(&one, Nanos(5 * SECOND.0));
        turns.keep([two.clone()]);
        turns.keep([one.clone(), two.clone()]);
        let both = [due(1, &one, 0), due(2, &two, 1)];
        let next = turns.next(&both).map(|(job, _)| job);
        // As long as the other has used, and longer: then the one that has waited longer.
        assert_eq!(next, Some(1));
        turns.end(&one, SECOND);
        let next = turns.next(&both).map(|(job, _)| job);
        assert_eq!(next, Some(2));
    }
}
