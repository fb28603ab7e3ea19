//! What schedulers announce of jobs: which have begun, with which GPUs, which have opted out, and which have ended.
//!
//! Announcements may come twice, late, in the wrong order, or never. The jobs that have begun outlive litd.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use litd_api::AnnouncedJob;
use litd_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::hooks::cgroup::Home;

/// How many jobs with GPUs are remembered, more than ever share a node. The oldest of those that did not opt out are
/// forgotten first.
const MOST: usize = 64;

/// The same for jobs without a GPU, whose places any user fills with jobs for processors alone. Of these the oldest
/// are forgotten also if they opted out, unless their processes are known here.
const MOST_WITHOUT: usize = 256;

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
    /// Addresses of GPUs that a later job has been given since. They are this job's again once a look finds its
    /// processes there: then the two share them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    yielded: BTreeSet<String>,
}

impl Begun {
    /// The order in which two jobs have begun.
    fn order(&self, other: &Self) -> Ordering {
        let turns = self.turn.cmp(&other.turn);
        turns.then(self.since.total_cmp(&other.since))
    }

    /// Addresses of GPUs that a scheduler has ever given to it.
    fn given(&self) -> impl Iterator<Item = &String> {
        self.gpus.iter().chain(&self.yielded)
    }

    fn was_given(&self, gpu: &str) -> bool {
        self.gpus.contains(gpu) || self.yielded.contains(gpu)
    }
}

/// A job has begun.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Beginning {
    /// Whether it has opted out.
    pub opted_out: bool,
    /// A job without a GPU that had opted out and was forgotten for this one.
    pub forgotten: Option<String>,
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
    /// Takes in the jobs that were announced to another litd, whose devices this one has by now.
    pub fn adopt(&mut self, theirs: Self) {
        self.begun.extend(theirs.begun);
    }

    /// Forgets the jobs none of whose GPUs count, by their addresses, and those of which no GPU is known, unless these
    /// are to stay.
    pub fn keep(&mut self, without_gpu: bool, counts: impl Fn(&str) -> bool) {
        self.begun.retain(|_, job| {
            let mut gpus = job.given().peekable();
            match gpus.peek() {
                Some(_) => gpus.any(|gpu| counts(gpu)),
                None => without_gpu,
            }
        });
    }

    /// A job begins on GPUs of these addresses, `since` so many seconds since 1970. A job announced twice is still one
    /// job, and stays opted out if either announcement says so. No job whose processes are known here (`is_here`) is
    /// forgotten for it if that opted out.
    ///
    /// # Errors
    /// Too many jobs have opted out, in words.
    pub fn begins(
        &mut self,
        id: &str,
        addresses: Vec<String>,
        opt_out: bool,
        since: f64,
        is_here: impl Fn(&str) -> bool,
    ) -> Result<Beginning, String> {
        self.free_of_others(id, &addresses);
        // A job that begins again may have no processes yet.
        self.forget_missed(id);
        self.ended.remove(id);
        let known = self.begun.get(id);
        let has_place = known.is_some_and(|it| addresses.is_empty() || !it.gpus.is_empty());
        let forgotten = match (has_place, addresses.is_empty()) {
            (true, _) => None,
            (false, true) => self.make_room_without(is_here)?,
            (false, false) => self.make_room().map(|()| None)?,
        };
        let turns = self.begun.values().map(|it| it.turn);
        let turn = turns.max().map_or(1, |latest| latest.saturating_add(1));
        let begun = self.begun.entry(id.to_owned()).or_insert_with(|| Begun {
            since,
            turn,
            ..Begun::default()
        });
        begun.opt_out |= opt_out;
        begun.yielded.retain(|gpu| !addresses.contains(gpu));
        begun.gpus.extend(addresses);
        Ok(Beginning {
            opted_out: begun.opt_out,
            forgotten,
        })
    }

    /// A scheduler has given a GPU to a job, so an earlier job on it has ended, although its end was not
    /// announced. If the earlier job has opted out the two may share the GPU: then the earlier job has it again once
    /// its processes are found there ([`Self::looked_at`]).
    fn free_of_others(&mut self, id: &str, addresses: &[String]) {
        self.begun.retain(|other, it| {
            let had = it.gpus.len();
            for gpu in addresses.iter().filter(|_| other != id) {
                if it.gpus.remove(gpu) && it.opt_out {
                    it.yielded.insert(gpu.clone());
                }
            }
            it.opt_out || it.gpus.len() == had || !it.gpus.is_empty()
        });
    }

    /// Makes room for a job with GPUs.
    fn make_room(&mut self) -> Result<(), String> {
        let with = |it: &Begun| !it.gpus.is_empty();
        while self.begun.values().filter(|it| with(it)).count() >= MOST {
            let Some(id) = self.oldest(|_, it| with(it) && !it.opt_out) else {
                return Err(format!(
                    "{MOST} jobs with GPUs have opted out and have not ended: `litctl job end` those that \
                     are gone"
                ));
            };
            self.begun.remove(&id);
        }
        Ok(())
    }

    /// Makes room for a job without a GPU. Returns the job that had opted out and is forgotten for that.
    fn make_room_without(
        &mut self,
        is_here: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, String> {
        let without = |it: &Begun| it.gpus.is_empty();
        if self.begun.values().filter(|it| without(it)).count() < MOST_WITHOUT {
            return Ok(None);
        }
        if let Some(id) = self.oldest(|_, it| without(it) && !it.opt_out) {
            self.begun.remove(&id);
            return Ok(None);
        }
        let Some(id) = self.oldest(|id, it| without(it) && !is_here(id)) else {
            return Err(format!(
                "{MOST_WITHOUT} jobs that name no GPU have opted out and have processes here: name its GPUs with \
                 --gpu"
            ));
        };
        self.forget_missed(&id);
        self.begun.remove(&id);
        Ok(Some(id))
    }

    fn oldest(&self, is_meant: impl Fn(&str, &Begun) -> bool) -> Option<String> {
        let meant = self.begun.iter().filter(|(id, it)| is_meant(id, it));
        let oldest = meant.min_by(|(_, one), (_, other)| one.order(other));
        oldest.map(|(id, _)| id.clone())
    }

    fn forget_missed(&mut self, id: &str) {
        self.missed.retain(|(_, of), _| of != id);
    }

    /// A driver has told the processes that use a GPU, which belong to these jobs (`None`: one can't be attributed). A
    /// job that has opted out and has some there has that GPU, whatever later job was given it. One that has had none
    /// there for [`BEGINS`], while a job that has begun since has, has ended without an announcement. Returns the jobs
    /// that have no longer that GPU for this.
    pub fn looked_at(
        &mut self,
        device: usize,
        address: &str,
        homes: Option<&[Home]>,
        now: Nanos,
    ) -> Vec<String> {
        for (id, it) in &mut self.begun {
            let mut homes = homes.unwrap_or_default().iter();
            if it.yielded.contains(address) && homes.any(|home| home.belongs_to(id)) {
                it.gpus.extend(it.yielded.take(address));
            }
        }
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
            let had = gone.contains(id) && (it.gpus.remove(address) || it.yielded.remove(address));
            !(had && it.given().next().is_none())
        });
        gone
    }

    /// Jobs that have opted out and have no processes on this GPU, while it was given to another job since or one that
    /// has begun since has.
    fn missing_from(&self, address: &str, homes: &[Home]) -> BTreeSet<String> {
        let is_here = |id: &str| homes.iter().any(|home| home.belongs_to(id));
        let named = self.begun.iter();
        let named = named.filter(|(_, it)| it.was_given(address));
        let present = named.clone().filter(|(id, _)| is_here(id));
        let latest = present
            .map(|(_, it)| it)
            .max_by(|one, other| one.order(other));
        let missing = |(id, it): &(&String, &Begun)| {
            let is_earlier = latest.is_some_and(|latest| it.order(latest).is_lt());
            let is_next = is_earlier || it.yielded.contains(address);
            it.opt_out && is_next && !is_here(id)
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

    /// Addresses of GPUs that a scheduler has given both to a job that has opted out and to another, at one time or
    /// one after the other.
    pub fn shared_with_spared(&self) -> impl Iterator<Item = &str> {
        let count = |gpu: &str| {
            let having = self.begun.values().filter(|it| it.was_given(gpu));
            having.count()
        };
        let yielded = self.spared().flat_map(|(_, it)| &it.yielded);
        let yielded = yielded.map(String::as_str);
        let shared = self.spared_gpus().filter(move |gpu| count(gpu) > 1);
        yielded.chain(shared)
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
        let begun = announced.begins(id, gpus, opt_out, 0.0, |_| false);
        begun.unwrap().opted_out
    }

    fn spared(announced: &Announced) -> Vec<&str> {
        announced.spared_gpus().collect()
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
    fn a_gpu_that_was_given_to_a_later_job_is_an_earlier_one_s_again_once_its_processes_are_there()
    {
        for later_opts_out in [false, true] {
            let mut announced = Announced::default();
            begins(&mut announced, "slurm-1", &["a", "b"], true);
            begins(&mut announced, "slurm-2", &["a"], later_opts_out);
            assert_eq!(spared(&announced).contains(&"a"), later_opts_out);
            assert!(spared(&announced).contains(&"b"));
            announced.ends("slurm-2");
            assert_eq!(spared(&announced), ["b"]);
            // Its own ranks are still not steered, wherever they are.
            assert!(announced.has_opted_out(&of(1)));
        }
        let mut announced = two();
        assert_eq!(spared(&announced), [""; 0]);
        announced.looked_at(0, "a", None, at(0));
        announced.looked_at(0, "a", Some(&[of(2)]), at(10));
        assert_eq!(spared(&announced), [""; 0]);
        announced.looked_at(0, "a", Some(&[of(1), of(2)]), at(20));
        assert_eq!(spared(&announced), ["a"]);
        let kept = serde_json::to_string(&two()).unwrap();
        let mut read: Announced = serde_json::from_str(&kept).unwrap();
        read.looked_at(0, "a", Some(&[of(1)]), at(20));
        assert_eq!(spared(&read), ["a"]);
    }

    #[test]
    fn a_job_that_opted_out_and_has_no_process_for_ten_minutes_has_ended_unheard() {
        let mut announced = two();
        let gone = looks(&mut announced, Some(&[of(2)]), [0, 700]);
        assert_eq!(gone, [(600, "slurm-1".to_owned())]);
        assert_eq!(begun(&announced), ["slurm-2"]);
        // As long as it has a process it goes on, and so does one beside processes that can't be attributed.
        for homes in [Some(&[of(1), of(2)][..]), None] {
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
        // A GPU that was given to another job is not the one's that ends.
        assert_eq!(two().ends("slurm-1"), Some(BTreeSet::new()));
        let mut announced = Announced::default();
        begins(&mut announced, "slurm-1", &["a"], true);
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
    fn of_too_many_jobs_the_oldest_are_forgotten_first_and_none_that_opted_out_with_a_gpu() {
        let mut announced = Announced::default();
        begins(&mut announced, "spared", &["x"], true);
        for job in 0..2 * MOST {
            let gpu = format!("gpu-{job}");
            begins(&mut announced, &format!("job-{job}"), &[&gpu], false);
        }
        let left = begun(&announced);
        assert_eq!(left.len(), MOST);
        assert!(left.contains(&"spared".to_owned()) && left.contains(&"job-127".to_owned()));
        for job in 0..MOST - 1 {
            let gpu = format!("spared-gpu-{job}");
            begins(&mut announced, &format!("spared-{job}"), &[&gpu], true);
        }
        let gpus = vec!["another".to_owned()];
        let refused = announced.begins("one-more", gpus, false, 0.0, |_| false);
        assert!(refused.unwrap_err().contains("litctl job end"));
    }

    /// Any user can have so many jobs for processors alone opt out as he likes.
    #[test]
    fn jobs_without_a_gpu_take_no_place_of_one_with_a_gpu_or_with_processes_here() {
        let mut announced = Announced::default();
        begins(&mut announced, "pod-here", &[], true);
        begins(&mut announced, "pod-away", &[], true);
        let mut forgotten = Vec::new();
        for job in 0..2 * MOST_WITHOUT {
            let id = format!("slurm-{job}");
            let is_here = |id: &str| id == "pod-here";
            let begun = announced.begins(&id, Vec::new(), true, 0.0, is_here);
            forgotten.extend(begun.unwrap().forgotten);
        }
        assert_eq!(begun(&announced).len(), MOST_WITHOUT);
        assert_eq!(forgotten.first().unwrap(), "pod-away");
        assert!(begun(&announced).contains(&"pod-here".to_owned()));
        for job in 0..MOST {
            let gpu = format!("gpu-{job}");
            assert!(begins(
                &mut announced,
                &format!("gpus-{job}"),
                &[&gpu],
                true
            ));
        }
        assert_eq!(spared(&announced).len(), MOST);
        let crowded = announced.begins("one-more", Vec::new(), true, 0.0, |_| true);
        assert!(crowded.unwrap_err().contains("--gpu"));
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
