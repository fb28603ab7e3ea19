//! Whose rings are read next. They are read one job after the other, and one whose iterations have many collectives takes
//! longer than the time until it is due again: of the owners with a job that is due it is the turn of the one whose rings
//! were read the longest ago, and of his jobs the same. Without I/O and without a clock.

use std::collections::BTreeMap;

/// When the rings of each owner, and of each job, were read last, in readings.
#[derive(Debug)]
pub(super) struct Turns<O, J> {
    readings: u64,
    owners: BTreeMap<O, u64>,
    jobs: BTreeMap<(O, J), u64>,
}

impl<O, J> Default for Turns<O, J> {
    fn default() -> Self {
        Self {
            readings: 0,
            owners: BTreeMap::new(),
            jobs: BTreeMap::new(),
        }
    }
}

impl<O: Clone + Ord, J: Clone + Ord> Turns<O, J> {
    /// These are all jobs now, by their owners. Newcomers come last: otherwise whoever goes and comes again would be
    /// first each time.
    pub fn keep<'a>(&mut self, jobs: impl Iterator<Item = (&'a O, &'a J)>)
    where
        O: 'a,
        J: 'a,
    {
        let (mut owners, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for (owner, job) in jobs {
            let key = (owner.clone(), job.clone());
            let since = self.owners.get(owner).copied().unwrap_or(self.readings);
            owners.insert(owner.clone(), since);
            let since = self.jobs.get(&key).copied().unwrap_or(self.readings);
            kept.insert(key, since);
        }
        (self.owners, self.jobs) = (owners, kept);
    }

    /// Jobs that are due, the one whose turn it is first.
    pub fn in_turn(&self, mut due: Vec<(O, J)>) -> Vec<(O, J)> {
        due.sort_by_key(|key| (self.owners.get(&key.0), self.jobs.get(key)));
        due
    }

    /// A job's rings are read.
    pub fn reads(&mut self, owner: &O, job: &J) {
        self.readings += 1;
        self.owners.insert(owner.clone(), self.readings);
        let key = (owner.clone(), job.clone());
        self.jobs.insert(key, self.readings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is read in so many turns, where all are always due.
    fn read(jobs: &[(u32, u32)], turns: usize) -> Vec<u32> {
        let mut all = Turns::default();
        let next = |_| {
            all.keep(jobs.iter().map(|(owner, job)| (owner, job)));
            let (owner, job) = all.in_turn(jobs.to_vec())[0];
            all.reads(&owner, &job);
            owner * 10 + job
        };
        (0..turns).map(next).collect()
    }

    #[test]
    fn owners_take_turns_however_many_jobs_each_has() {
        let read = read(&[(1, 1), (1, 2), (1, 3), (2, 1)], 8);
        assert_eq!(read, [11, 21, 12, 21, 13, 21, 11, 21]);
    }

    #[test]
    fn whoever_goes_and_comes_again_is_not_first_each_time() {
        let mut all = Turns::default();
        let mut others = 0;
        for turn in 0..10 {
            let jobs = [(1, turn), (2, 0)];
            all.keep(jobs.iter().map(|(owner, job)| (owner, job)));
            let (owner, job) = all.in_turn(jobs.to_vec())[0];
            all.reads(&owner, &job);
            others += i32::from(owner == 2);
        }
        assert_eq!(others, 5);
    }
}
