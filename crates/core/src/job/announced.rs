//! What schedulers announce of jobs: which have begun, with which GPUs, which have opted out, and which have ended.
//!
//! Announcements may come twice, late, in the wrong order, or never. The jobs that have begun outlive litd.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use litd_api::AnnouncedJob;
use litd_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::hooks::cgroup::Home;

/// How many jobs are remembered, more than ever share a node. The oldest of those that did not opt out are
/// forgotten first.
const MOST: usize = 64;

/// A job without processes on its GPUs for longer than this has ended: before its first process it hardly waits so
/// long.
const BEGINS: Nanos = Nanos(600_000_000_000);

/// Two looks at a GPU's processes that are further apart say nothing of the time between them. A look comes every
/// ten seconds while the GPU is shared, and a driver may miss one.
const WATCHED: Nanos = Nanos(30_000_000_000);

/// For so long after its end a job's ranks are not let in: its processes may outlive its end.
const ENDED_FOR: Nanos = Nanos(60_000_000_000);

/// How many ended jobs are remembered.
const MOST_ENDED: usize = 256;

/// A job that has begun, as its scheduler says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Begun {
    /// Seconds since 1970.
    since: f64,
    /// A number that is higher than that of every job begun before: the wall clock may be set back between two.
    /// Earlier versions of litd have written none; then `since` decides.
    #[serde(default)]
    turn: u64,
    /// Whether its GPUs are left alone: neither caps nor clocks are changed.
    #[serde(default)]
    opt_out: bool,
    /// Addresses of its GPUs, as far as the scheduler has told.
    #[serde(default)]
    gpus: BTreeSet<String>,
}

impl Begun {
    /// The order in which two jobs have begun.
    fn order(&self, other: &Self) -> Ordering {
        let turns = self.turn.cmp(&other.turn);
        turns.then(self.since.total_cmp(&other.since))
    }
}

/// A job that has opted out and has no processes on a GPU that another job uses.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Missed {
    /// Since when no look has found any of its processes.
    since: Nanos,
    /// The last look.
    looked: Nanos,
}

impl Missed {
    fn first(now: Nanos) -> Self {
        let (since, looked) = (now, now);
        Self { since, looked }
    }

    /// A further look has found none.
    fn again(&mut self, now: Nanos) {
        *self = match now <= self.looked + WATCHED {
            true => Self {
                looked: now,
                ..*self
            },
            false => Self::first(now),
        };
    }

    /// Whether no process was found for so long that the job must have ended.
    fn is_gone(self, now: Nanos) -> bool {
        now >= self.since + BEGINS
    }
}

/// A job that has ended, as its scheduler says.
#[derive(Debug, Clone, PartialEq)]
struct Ended {
    at: Nanos,
    devices: BTreeSet<usize>,
}

/// All announcements that still matter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Announced {
    /// Jobs that have begun, by the scheduler's name for them.
    begun: BTreeMap<String, Begun>,
    /// Jobs that have ended of late.
    #[serde(skip)]
    ended: BTreeMap<String, Ended>,
    /// Jobs that have opted out and have no processes on a GPU that another job uses.
    #[serde(skip)]
    missed: BTreeMap<(usize, String), Missed>,
}

impl Announced {
    /// A job begins on GPUs of these addresses, `since` so many seconds since 1970. A job announced twice is still one
    /// job, and stays opted out if either announcement says so. Returns whether it has opted out.
    ///
    /// # Errors
    /// Too many jobs have opted out, in words.
    pub fn begins(
        &mut self,
        id: &str,
        addresses: Vec<String>,
        opt_out: bool,
        since: f64,
    ) -> Result<bool, String> {
        self.free_of_others(id, &addresses);
        // A job that begins again may have no processes yet.
        self.forget_missed(id);
        self.ended.remove(id);
        if !self.begun.contains_key(id) {
            self.make_room()?;
        }
        let turns = self.begun.values().map(|it| it.turn);
        let turn = turns.max().map_or(1, |latest| latest.saturating_add(1));
        let begun = self.begun.entry(id.to_owned()).or_insert_with(|| Begun {
            since,
            turn,
            ..Begun::default()
        });
        begun.opt_out |= opt_out;
        begun.gpus.extend(addresses);
        Ok(begun.opt_out)
    }

    /// A scheduler has given a GPU to a job, so an earlier job on it has ended, although its end was not
    /// announced. If the earlier job has opted out the two may share the GPU: then their processes decide
    /// ([`Self::looked_at`]).
    fn free_of_others(&mut self, id: &str, addresses: &[String]) {
        self.begun.retain(|other, it| {
            let had = it.gpus.len();
            if other != id && !it.opt_out {
                it.gpus.retain(|gpu| !addresses.contains(gpu));
            }
            it.gpus.len() == had || !it.gpus.is_empty()
        });
    }

    fn make_room(&mut self) -> Result<(), String> {
        while self.begun.len() >= MOST {
            let spare = self.begun.iter().filter(|(_, it)| !it.opt_out);
            let oldest = spare.min_by(|(_, one), (_, other)| one.order(other));
            let Some(id) = oldest.map(|(id, _)| id.clone()) else {
                return Err(format!(
                    "{MOST} jobs have opted out and have not ended: `litctl job end` those that \
                     are gone"
                ));
            };
            self.begun.remove(&id);
        }
        Ok(())
    }

    fn forget_missed(&mut self, id: &str) {
        self.missed.retain(|(_, of), _| of != id);
    }

    /// A driver has told the processes that use a GPU, which belong to these jobs (`None`: one can't be attributed). A
    /// job that has opted out and has had none there for [`BEGINS`], while a job that has begun since has, has ended
    /// without an announcement. Returns the jobs that have no longer that GPU for this.
    pub fn looked_at(
        &mut self,
        device: usize,
        address: &str,
        homes: Option<&[Home]>,
        now: Nanos,
    ) -> Vec<String> {
        let missing = homes.map_or_else(BTreeSet::new, |homes| self.missing_from(address, homes));
        self.missed
            .retain(|(of, id), _| *of != device || missing.contains(id));
        let mut gone = Vec::new();
        for id in missing {
            let missed = self.missed.entry((device, id.clone()));
            let missed = missed.and_modify(|it| it.again(now));
            if missed.or_insert_with(|| Missed::first(now)).is_gone(now) {
                self.missed.remove(&(device, id.clone()));
                gone.push(id);
            }
        }
        self.begun.retain(|id, it| {
            let is_gone = gone.contains(id);
            !(is_gone && it.gpus.remove(address) && it.gpus.is_empty())
        });
        gone
    }

    /// Jobs that have opted out and have no processes on this GPU, while a job that has begun since has.
    fn missing_from(&self, address: &str, homes: &[Home]) -> BTreeSet<String> {
        let is_here = |id: &str| homes.iter().any(|home| home.belongs_to(id));
        let named = self.begun.iter();
        let named = named.filter(|(_, it)| it.gpus.contains(address));
        let present = named.clone().filter(|(id, _)| is_here(id));
        let latest = present
            .map(|(_, it)| it)
            .max_by(|one, other| one.order(other));
        let missing = |(id, it): &(&String, &Begun)| {
            let is_earlier = latest.is_some_and(|latest| it.order(latest).is_lt());
            it.opt_out && is_earlier && !is_here(id)
        };
        named.filter(missing).map(|(id, _)| id.clone()).collect()
    }

    /// A job has ended. Returns the addresses of its GPUs if it had begun.
    pub fn ends(&mut self, id: &str) -> Option<BTreeSet<String>> {
        self.forget_missed(id);
        self.begun.remove(id).map(|begun| begun.gpus)
    }

    /// For a while these were the devices of a job that has ended. Returns whether an earlier one was forgotten for
    /// that: more jobs have ended within a minute than are remembered.
    pub fn keep_ended(&mut self, id: &str, devices: BTreeSet<usize>, now: Nanos) -> bool {
        self.ended.insert(id.to_owned(), Ended { at: now, devices });
        if self.ended.len() <= MOST_ENDED {
            return false;
        }
        let oldest = self.ended.iter().min_by_key(|(_, it)| it.at);
        let oldest = oldest.map(|(id, _)| id.clone());
        oldest.is_some_and(|oldest| self.ended.remove(&oldest).is_some())
    }

    /// Forgets jobs that ended long ago.
    pub fn forget_ended(&mut self, now: Nanos) {
        self.ended.retain(|_, it| now < it.at + ENDED_FOR);
    }

    /// The job of a process that its scheduler has ended of late and not begun again.
    pub fn has_ended(&self, home: &Home) -> Option<&str> {
        let mut ended = self.ended.keys();
        ended.find(|id| home.belongs_to(id)).map(String::as_str)
    }

    /// The jobs that have opted out.
    fn spared(&self) -> impl Iterator<Item = (&String, &Begun)> {
        self.begun.iter().filter(|(_, it)| it.opt_out)
    }

    /// The names of jobs that have opted out.
    pub fn opted_out(&self) -> impl Iterator<Item = &str> {
        self.spared().map(|(id, _)| id.as_str())
    }

    /// Whether the job of a process has opted out.
    pub fn has_opted_out(&self, home: &Home) -> bool {
        self.spared().any(|(id, _)| home.belongs_to(id))
    }

    /// Addresses of the GPUs of jobs that have opted out.
    pub fn spared_gpus(&self) -> impl Iterator<Item = &str> {
        let gpus = self.spared().flat_map(|(_, it)| &it.gpus);
        gpus.map(String::as_str)
    }

    /// Addresses of GPUs that a scheduler has given both to a job that has opted out and to another.
    pub fn shared_with_spared(&self) -> impl Iterator<Item = &str> {
        let count = |gpu: &str| {
            let having = self.begun.values().filter(|it| it.gpus.contains(gpu));
            having.count()
        };
        self.spared_gpus().filter(move |gpu| count(gpu) > 1)
    }

    /// The GPUs whose caps found a job waits for: those of a job that has opted out, by address, and the devices of
    /// one that has ended of late.
    pub fn to_be_restored(&self, id: &str) -> (Vec<&str>, &BTreeSet<usize>) {
        static NONE: BTreeSet<usize> = BTreeSet::new();
        let begun = self.begun.get(id).filter(|it| it.opt_out);
        let spared = begun.iter().flat_map(|it| &it.gpus).map(String::as_str);
        let ended = self.ended.get(id).map_or(&NONE, |it| &it.devices);
        (spared.collect(), ended)
    }

    /// The jobs that have begun, for status.
    pub fn status(&self) -> Vec<AnnouncedJob> {
        let job = |(id, it): (&String, &Begun)| AnnouncedJob {
            id: id.clone(),
            since: it.since,
            opt_out: it.opt_out,
            gpus: it.gpus.iter().cloned().collect(),
        };
        self.begun.iter().map(job).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    /// The home of a process of this Slurm job.
    fn of(job: u32) -> Home {
        Home::of(&format!(
            "0::/system.slice/slurmstepd.scope/job_{job}/step_0\n"
        ))
        .unwrap()
    }

    fn begins(announced: &mut Announced, id: &str, gpus: &[&str], opt_out: bool) -> bool {
        let gpus = gpus.iter().map(|&gpu| gpu.to_owned()).collect();
        announced.begins(id, gpus, opt_out, 0.0).unwrap()
    }

    fn begun(announced: &Announced) -> Vec<String> {
        announced.status().into_iter().map(|job| job.id).collect()
    }

    #[test]
    fn a_job_announced_twice_is_one_and_stays_opted_out() {
        let mut announced = Announced::default();
        assert!(begins(&mut announced, "slurm-1", &["a"], true));
        assert!(begins(&mut announced, "slurm-1", &["b"], false));
        let told = announced.status();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].opt_out, &told[0].gpus[..]),
            (true, &["a".to_owned(), "b".to_owned()][..])
        );
        assert!(announced.has_opted_out(&of(1)) && !announced.has_opted_out(&of(2)));
        assert_eq!(announced.spared_gpus().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_gpu_given_to_another_job_has_ended_the_one_before_unless_that_has_opted_out() {
        let mut announced = Announced::default();
        begins(&mut announced, "slurm-1", &["a"], false);
        begins(&mut announced, "slurm-2", &["a", "b"], true);
        assert_eq!(begun(&announced), ["slurm-2"]);
        begins(&mut announced, "slurm-3", &["a"], false);
        assert_eq!(begun(&announced), ["slurm-2", "slurm-3"]);
        assert_eq!(announced.shared_with_spared().collect::<Vec<_>>(), ["a"]);
    }

    /// Two jobs on one GPU, of which the first has opted out.
    fn two() -> Announced {
        let mut announced = Announced::default();
        begins(&mut announced, "slurm-1", &["a"], true);
        begins(&mut announced, "slurm-2", &["a"], false);
        announced
    }

    /// Looks at the GPU every ten seconds, from one second to another. Returns what has gone, and when.
    fn looks(
        announced: &mut Announced,
        homes: Option<&[Home]>,
        seconds: [i64; 2],
    ) -> Vec<(i64, String)> {
        let mut all = Vec::new();
        for second in (seconds[0]..=seconds[1]).step_by(10) {
            let gone = announced.looked_at(0, "a", homes, at(second));
            all.extend(gone.into_iter().map(|id| (second, id)));
        }
        all
    }

    #[test]
    fn a_job_that_opted_out_and_has_no_process_for_ten_minutes_has_ended_unheard() {
        let mut announced = two();
        let gone = looks(&mut announced, Some(&[of(2)]), [0, 700]);
        assert_eq!(gone, [(600, "slurm-1".to_owned())]);
        assert_eq!(begun(&announced), ["slurm-2"]);
        // As long as it has a process it goes on, and so does one beside processes that can't be attributed.
        for homes in [Some(&[of(1), of(2)][..]), None, Some(&[])] {
            let mut announced = two();
            assert!(
                looks(&mut announced, homes, [0, 700]).is_empty(),
                "{homes:?}"
            );
        }
    }

    #[test]
    fn looks_that_are_too_far_apart_say_nothing_of_the_time_between() {
        let mut announced = two();
        assert!(looks(&mut announced, Some(&[of(2)]), [0, 590]).is_empty());
        assert!(looks(&mut announced, Some(&[of(2)]), [630, 1220]).is_empty());
        let gone = looks(&mut announced, Some(&[of(2)]), [1230, 1230]);
        assert_eq!(gone.len(), 1);
    }

    #[test]
    fn only_a_job_that_has_begun_later_shows_that_one_has_ended() {
        let mut announced = Announced::default();
        begins(&mut announced, "slurm-2", &["a"], true);
        begins(&mut announced, "slurm-1", &["a"], true);
        assert!(looks(&mut announced, Some(&[of(2)]), [0, 700]).is_empty());
    }

    #[test]
    fn a_job_that_has_ended_is_known_for_a_minute_or_until_it_begins_again() {
        let mut announced = two();
        assert_eq!(
            announced.ends("slurm-1"),
            Some(BTreeSet::from(["a".to_owned()]))
        );
        assert_eq!(announced.ends("slurm-1"), None);
        announced.keep_ended("slurm-1", BTreeSet::from([0]), at(0));
        announced.forget_ended(at(59));
        assert_eq!(announced.has_ended(&of(1)), Some("slurm-1"));
        assert_eq!(
            announced.to_be_restored("slurm-1"),
            (vec![], &BTreeSet::from([0]))
        );
        announced.forget_ended(at(60));
        assert_eq!(announced.has_ended(&of(1)), None);
        announced.keep_ended("slurm-1", BTreeSet::new(), at(60));
        begins(&mut announced, "slurm-1", &["a"], true);
        assert_eq!(announced.has_ended(&of(1)), None);
        assert_eq!(
            announced.to_be_restored("slurm-1"),
            (vec!["a"], &BTreeSet::new())
        );
    }

    #[test]
    fn of_too_many_jobs_the_oldest_are_forgotten_first_and_never_one_that_opted_out() {
        let mut announced = Announced::default();
        begins(&mut announced, "spared", &["x"], true);
        for job in 0..2 * MOST {
            begins(&mut announced, &format!("job-{job}"), &[], false);
        }
        let left = begun(&announced);
        assert_eq!(left.len(), MOST);
        assert!(left.contains(&"spared".to_owned()) && left.contains(&"job-127".to_owned()));
        for job in 0..MOST - 1 {
            begins(&mut announced, &format!("spared-{job}"), &[], true);
        }
        let refused = announced.begins("one-more", Vec::new(), false, 0.0);
        assert!(refused.unwrap_err().contains("litctl job end"));
    }

    #[test]
    fn of_too_many_ended_jobs_the_oldest_is_forgotten() {
        let mut announced = Announced::default();
        for job in 0..MOST_ENDED {
            assert!(!announced.keep_ended(
                &format!("slurm-{job}"),
                BTreeSet::new(),
                at(job as i64)
            ));
        }
        assert!(announced.keep_ended("slurm-999", BTreeSet::new(), at(999)));
        assert_eq!(announced.has_ended(&of(0)), None);
        assert!(announced.has_ended(&of(1)).is_some() && announced.has_ended(&of(999)).is_some());
    }

    #[test]
    fn jobs_that_have_begun_outlive_litd_and_ended_ones_do_not() {
        let mut announced = two();
        announced.keep_ended("slurm-9", BTreeSet::new(), at(0));
        let kept = serde_json::to_string(&announced).unwrap();
        let read: Announced = serde_json::from_str(&kept).unwrap();
        assert_eq!(begun(&read), ["slurm-1", "slurm-2"]);
        assert_eq!(read.has_ended(&of(9)), None);
        // Earlier versions have written less.
        let older = r#"{"slurm-1": {"since": 5.0}}"#;
        assert_eq!(begun(&serde_json::from_str(older).unwrap()), ["slurm-1"]);
    }
}
