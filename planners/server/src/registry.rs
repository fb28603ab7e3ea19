//! The jobs that the server knows: a state without I/O or a clock.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use litd_planner::Pipeline;

use crate::drift::Off;
use crate::journal::Change;
use crate::model::{Model, Row, StageProfile};
use crate::protocol::{JobInfo, ProfilingResult, RankInfo, Straggler};

/// More than anybody trains at once; a client that registers in a loop ends here.
const MAX_JOBS: usize = 1000;
/// Clients do not report a job's end. A job that was silent for a week is removed if a new one needs its place.
const SILENT: f64 = 7.0 * 24.0 * 3600.0;
/// A job without a rank after so long is none: whoever registers jobs in a loop keeps others out no longer.
const EMPTY: f64 = 3600.0;
const MAX_WORLD: u32 = 1 << 20;
const MAX_METADATA: usize = 200;
const MAX_CLOCKS: usize = 1000;
/// Of all ranks of all jobs: 64 MiB of memory. Ten thousand GPUs with 250 clocks each have a sixth of it.
const MAX_CLOCKS_IN_ALL: usize = 1 << 24;

/// All jobs, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Registry {
    jobs: BTreeMap<String, Job>,
    /// How many stages the pipelines have that this server plans.
    #[serde(skip)]
    stages: u32,
    /// The clocks that all ranks have named.
    #[serde(skip)]
    clocks: usize,
    /// Changes since the last call of [`Registry::take_changes`].
    #[serde(skip)]
    changes: Vec<Change>,
}

/// A job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    info: JobInfo,
    ranks: BTreeMap<u32, RankInfo>,
    /// The ranks that have asked for their schedule.
    asked: BTreeSet<u32>,
    #[serde(flatten)]
    late: Late,
    /// The job's own schedule and profile, if it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<Model>,
    /// When somebody asked for it or told about it last, in Unix seconds.
    #[serde(default)]
    heard: f64,
}

/// The stragglers of a job, and how often they or the job's plans changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// How late each GPU makes its pipeline, where it does.
    degrees: BTreeMap<u32, f64>,
    /// Stragglers from a later time on, in Unix seconds.
    pending: Vec<(f64, Straggler)>,
    /// Counts changes of plans, from 1.
    version: u64,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// The inputs of a rank's schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct RankPlan {
    /// The plan's, from 1.
    pub version: u64,
    /// How late the latest of the other pipelines is.
    pub degree: f64,
    /// The rank.
    pub rank: RankInfo,
}

fn unknown(id: &str) -> Refusal {
    Refusal(format!("there is no job {id:?}"))
}

fn refuse<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(what.into()))
}

impl Job {
    /// How many clocks its ranks have named.
    fn clocks(&self) -> usize {
        let ranks = self.ranks.values();
        ranks.map(|rank| rank.available_frequencies.len()).sum()
    }

    /// For how long after it was heard last it keeps its place.
    fn patience(&self) -> f64 {
        match self.ranks.is_empty() {
            true => EMPTY,
            false => SILENT,
        }
    }
}

impl Registry {
    /// The same jobs at a server that plans pipelines of so many stages.
    #[must_use]
    pub fn serving(self, stages: u32) -> Self {
        let clocks = self.jobs.values().map(Job::clocks).sum();
        Self {
            stages,
            clocks,
            ..self
        }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Notes that all jobs' plans are other ones now. Which jobs can have none.
    pub fn replan(&mut self) -> Vec<String> {
        let mut without = Vec::new();
        let planned_here = |(_, job): &(&String, &mut Job)| job.model.is_none();
        for (id, job) in self.jobs.iter_mut().filter(planned_here) {
            job.late.version += 1;
            if job.info.pp_degree != self.stages {
                without.push(id.clone());
            }
        }
        without
    }

    /// Takes a job in; `name` makes its name from the time.
    ///
    /// # Errors
    /// If its degrees contradict each other or the plans, or there are too many jobs.
    pub fn register_job(
        &mut self,
        mut info: JobInfo,
        now: f64,
        name: impl Fn(u64) -> String,
    ) -> Result<String, Refusal> {
        let degrees = [info.pp_degree, info.dp_degree, info.tp_degree];
        let product = degrees
            .iter()
            .try_fold(1_u32, |product, &degree| product.checked_mul(degree));
        if !info.job_id.is_empty() {
            return refuse("job_id must be empty: the server chooses it");
        }
        if product != Some(info.world_size) || info.world_size == 0 || info.world_size > MAX_WORLD {
            return refuse(format!(
                "world_size {} must be pp_degree x dp_degree x tp_degree = {} x {} x {}, and at most {MAX_WORLD}",
                info.world_size, info.pp_degree, info.dp_degree, info.tp_degree
            ));
        }
        let model = info.pipeline.take();
        let model = model
            .map(|shape| Model::new(shape, info.pp_degree))
            .transpose();
        let model = model.map_err(|why| Refusal(format!("pipeline: {why}")))?;
        if model.is_none() && info.pp_degree != self.stages {
            return refuse(format!(
                "pp_degree {} is not the profile's {} stages",
                info.pp_degree, self.stages
            ));
        }
        let metadata = info.job_metadata.as_deref().unwrap_or_default();
        if metadata.len() > MAX_METADATA
            || metadata
                .chars()
                .any(|c| c.is_control() || "/?#%".contains(c))
        {
            return refuse(format!(
                "job_metadata must be at most {MAX_METADATA} bytes of text without / ? # %"
            ));
        }
        if self.jobs.len() >= MAX_JOBS {
            self.forget_one(now)?;
        }
        let suffix = format!(
            "+dp{}+pp{}+tp{}+Perseus{}{metadata}",
            info.dp_degree,
            info.pp_degree,
            info.tp_degree,
            if metadata.is_empty() { "" } else { "+" }
        );
        // Two jobs of one second: the later one is named after the next.
        let mut names = (0..=MAX_JOBS as u64).map(|later| name(later) + &suffix);
        let id = names.find(|id| !self.jobs.contains_key(id));
        let id = id.ok_or_else(|| {
            Refusal(
                "too many jobs were registered in one second: register this one again later".into(),
            )
        })?;
        let job = Job {
            info,
            ranks: BTreeMap::new(),
            asked: BTreeSet::new(),
            late: Late {
                degrees: BTreeMap::new(),
                pending: Vec::new(),
                version: 1,
            },
            model,
            heard: now,
        };
        self.changes.push(Change::Job {
            id: id.clone(),
            job: Box::new(job.clone()),
        });
        self.jobs.insert(id.clone(), job);
        Ok(id)
    }

    /// Forgets the job that has been silent the longest, of those that were so for long enough.
    fn forget_one(&mut self, now: f64) -> Result<(), Refusal> {
        let jobs = self.jobs.iter();
        let silent = jobs.filter(|(_, job)| now - job.heard > job.patience());
        match silent.min_by(|(_, one), (_, other)| one.heard.total_cmp(&other.heard)) {
            Some((id, job)) => {
                self.clocks -= job.clocks();
                let id = id.clone();
                self.jobs.remove(&id);
                self.changes.push(Change::Gone { id });
                Ok(())
            }
            None => refuse(format!(
                "there are {MAX_JOBS} jobs already, and none has been silent for a week, or for an hour without a rank"
            )),
        }
    }

    /// A job whose pipelines are those that are planned.
    fn planned(&self, id: &str) -> Result<&Job, Refusal> {
        let job = self.jobs.get(id).ok_or_else(|| unknown(id))?;
        match job.info.pp_degree {
            stages if job.model.is_none() && stages != self.stages => refuse(format!(
                "the job's pipelines have {stages} stages, and this server's profile has {} now: \
                 register the job again",
                self.stages
            )),
            _ => Ok(job),
        }
    }

    fn job(&mut self, id: &str, now: f64) -> Result<&mut Job, Refusal> {
        let job = self.jobs.get_mut(id).ok_or_else(|| unknown(id))?;
        job.heard = now;
        Ok(job)
    }

    /// Takes a rank in. One that says the same again is taken again: clients restart.
    ///
    /// # Errors
    /// If it is outside the job, another rank has its place, or there is no room for its clocks.
    pub fn register_rank(&mut self, id: &str, rank: RankInfo, now: f64) -> Result<(), Refusal> {
        let all = self.clocks;
        let job = self.job(id, now)?;
        let JobInfo {
            pp_degree,
            dp_degree,
            tp_degree,
            world_size,
            ..
        } = job.info;
        let places = [
            ("rank", rank.rank, world_size),
            ("pp_rank", rank.pp_rank, pp_degree),
            ("dp_rank", rank.dp_rank, dp_degree),
            ("tp_rank", rank.tp_rank, tp_degree),
        ];
        if let Some((name, value, end)) = places.into_iter().find(|(_, value, end)| value >= end) {
            return refuse(format!("{name} {value} must be below {end}"));
        }
        if rank.available_frequencies.len() > MAX_CLOCKS {
            return refuse(format!("more than {MAX_CLOCKS} available_frequencies"));
        }
        let place = |rank: &RankInfo| (rank.pp_rank, rank.dp_rank, rank.tp_rank);
        let mut others = job.ranks.values().filter(|other| other.rank != rank.rank);
        if let Some(other) = others.find(|other| place(other) == place(&rank)) {
            return refuse(format!("rank {} has this place already", other.rank));
        }
        match job.ranks.get(&rank.rank) {
            Some(known) if place(known) != place(&rank) => {
                refuse(format!("rank {} is registered at another place", rank.rank))
            }
            Some(known) if *known == rank => Ok(()),
            known => {
                let before = known.map_or(0, |known| known.available_frequencies.len());
                let clocks = all - before + rank.available_frequencies.len();
                if clocks > MAX_CLOCKS_IN_ALL {
                    return refuse(format!(
                        "the ranks of all jobs have named {all} available_frequencies, and {MAX_CLOCKS_IN_ALL} is the \
                         most that is kept: name only those that are to be planned with"
                    ));
                }
                job.ranks.insert(rank.rank, rank.clone());
                self.clocks = clocks;
                let id = id.to_owned();
                self.changes.push(Change::Rank { id, rank });
                Ok(())
            }
        }
    }

    /// Notes that a rank asks for its schedule. Whether it had not before.
    ///
    /// # Errors
    /// If the job or the rank is unknown.
    pub fn ask(&mut self, id: &str, rank: u32, now: f64) -> Result<bool, Refusal> {
        let job = self.job(id, now)?;
        if !job.ranks.contains_key(&rank) {
            return refuse(format!("rank {rank} has not registered"));
        }
        let is_new = job.asked.insert(rank);
        if is_new {
            let id = id.to_owned();
            self.changes.push(Change::Asked { id, rank });
        }
        Ok(is_new)
    }

    /// The inputs of a rank's schedule, once all ranks have registered and asked.
    ///
    /// # Errors
    /// If the job or the rank is unknown, or the job's pipelines are not those that are planned.
    pub fn plan(&self, id: &str, rank: u32) -> Result<Option<RankPlan>, Refusal> {
        let job = self.planned(id)?;
        let Some(info) = job.ranks.get(&rank) else {
            return refuse(format!("rank {rank} has not registered"));
        };
        let is_ready = job.asked.len() == job.info.world_size as usize;
        Ok(is_ready.then(|| RankPlan {
            version: job.late.version,
            degree: job.degree_beside(info.dp_rank),
            rank: info.clone(),
        }))
    }

    /// The inputs of the plan of a whole pipeline: its version, and how late the latest of the other pipelines is.
    /// Ranks need not have registered.
    ///
    /// # Errors
    /// If the job or the pipeline is unknown, or the job's pipelines are not those that are planned.
    pub fn pipeline(&self, id: &str, pipeline: u32) -> Result<(u64, f64), Refusal> {
        let job = self.planned(id)?;
        match job.info.dp_degree {
            count if pipeline >= count => {
                refuse(format!("pipeline {pipeline} must be below {count}"))
            }
            _ => Ok((job.late.version, job.degree_beside(pipeline))),
        }
    }

    /// Whether a job has a model of its own.
    #[must_use]
    pub fn has_model(&self, id: &str) -> bool {
        self.jobs.get(id).is_some_and(|job| job.model.is_some())
    }

    /// Takes in what was measured of a stage. The pipeline to characterise, once all stages were measured.
    ///
    /// # Errors
    /// If the job is unknown or has no schedule of its own, or the numbers make no sense together.
    pub fn set_profile(
        &mut self,
        id: &str,
        profile: StageProfile,
        now: f64,
    ) -> Result<Option<Pipeline>, Refusal> {
        let job = self.job(id, now)?;
        let gpus = job.info.pp_degree;
        let Some(model) = &job.model else {
            return refuse(
                "the job was registered without a pipeline of its own: it has the server's profile",
            );
        };
        let stages = model.stages(gpus);
        if profile.stage >= stages {
            return refuse(format!("stage {} must be below {stages}", profile.stage));
        }
        profile.check().map_err(Refusal)?;
        let mut model = model.clone();
        model.stages.insert(profile.stage, profile.rows.clone());
        let pipeline = model.pipeline(gpus).map_err(Refusal)?;
        job.model = Some(model);
        let id = id.to_owned();
        self.changes.push(Change::Profile { id, profile });
        Ok(pipeline)
    }

    /// Makes what was measured of a GPU's stages fit what training shows now.
    ///
    /// # Errors
    /// As [`Self::set_profile`].
    pub fn correct(
        &mut self,
        id: &str,
        gpu: u32,
        off: &BTreeMap<String, Off>,
        now: f64,
    ) -> Result<Option<Pipeline>, Refusal> {
        let job = self.job(id, now)?;
        let gpus = job.info.pp_degree.max(1);
        let stages = job.model.iter().flat_map(|it| it.stages.clone());
        let own: Vec<(u32, Vec<Row>)> = stages.filter(|(stage, _)| stage % gpus == gpu).collect();
        let mut pipeline = None;
        for (stage, mut rows) in own {
            for (name, _, time, energy) in &mut rows {
                if let Some(off) = off.get(name) {
                    *time *= off.time;
                    *energy *= off.energy;
                }
            }
            pipeline = self.set_profile(id, StageProfile { stage, rows }, now)?;
        }
        Ok(pipeline)
    }

    /// All ranks at a rank's stage, itself included, in all pipelines; with its place and its lateness.
    #[must_use]
    pub fn peers(&self, id: &str, rank: u32) -> Option<(RankPlan, Vec<u32>)> {
        let job = self.jobs.get(id)?;
        let own = job.ranks.get(&rank)?;
        let same = job.ranks.values().filter(|it| it.pp_rank == own.pp_rank);
        let plan = RankPlan {
            version: job.late.version,
            degree: job.degree_beside(own.dp_rank),
            rank: own.clone(),
        };
        let count = job.info.dp_degree * job.info.tp_degree;
        let ranks: Vec<u32> = same.map(|it| it.rank).collect();
        (ranks.len() == count as usize).then_some((plan, ranks))
    }

    /// Notes that a job has new plans.
    pub fn new_plans(&mut self, id: &str) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.late.version += 1;
            let (id, late) = (id.to_owned(), job.late.clone());
            self.changes.push(Change::Late { id, late });
        }
    }

    /// The pipelines of jobs with models of their own, which are to be characterised after a start.
    #[must_use]
    pub fn models(&self) -> Vec<(String, Pipeline)> {
        let own = self.jobs.iter().filter_map(|(id, job)| {
            let pipeline = job.model.as_ref()?.pipeline(job.info.pp_degree).ok()??;
            Some((id.clone(), pipeline))
        });
        own.collect()
    }

    /// Checks that a result is of a rank of the job.
    ///
    /// # Errors
    /// If it is not, or has numbers that can't be.
    pub fn check_result(
        &mut self,
        id: &str,
        result: &ProfilingResult,
        now: f64,
    ) -> Result<(), Refusal> {
        if !self.job(id, now)?.ranks.contains_key(&result.rank) {
            return refuse(format!("rank {} has not registered", result.rank));
        }
        let breakdowns = [&result.time_breakdown, &result.energy_breakdown];
        let inner = breakdowns
            .into_iter()
            .flat_map(|breakdown| breakdown.values().flatten().flatten());
        let mut all = inner.chain(&result.iter_time).chain(&result.iter_energy);
        match all.find(|number| !(number.is_finite() && **number >= 0.0)) {
            Some(number) => refuse(format!("{number} is no time or energy")),
            None => Ok(()),
        }
    }

    /// Notes that a GPU will be late, or no longer; when, in Unix seconds.
    ///
    /// # Errors
    /// If the GPU is none of the job's, or a number can't be.
    pub fn set_straggler(
        &mut self,
        id: &str,
        straggler: Straggler,
        now: f64,
    ) -> Result<f64, Refusal> {
        let job = self.job(id, now)?;
        let Straggler {
            id: rank,
            delay,
            degree,
        } = straggler;
        if !job.ranks.contains_key(&rank) {
            return refuse(format!("rank {rank} has not registered"));
        }
        if !(degree.is_finite() && (1.0..=1000.0).contains(&degree)) {
            return refuse(format!(
                "degree {degree} must be from 1 (as fast as the others) to 1000"
            ));
        }
        if !(delay.is_finite() && (0.0..=1e7).contains(&delay)) {
            return refuse(format!("delay {delay} must be from 0 to 10000000 seconds"));
        }
        // A later message about the same GPU replaces an earlier one.
        job.late.pending.retain(|(_, other)| other.id != rank);
        job.late.pending.push((now + delay, straggler));
        let late = job.late.clone();
        let id = id.to_owned();
        self.changes.push(Change::Late { id, late });
        Ok(now + delay)
    }

    /// Lets what was announced come true. Whether a plan has changed.
    pub fn apply_due(&mut self, now: f64) -> bool {
        let mut changed = false;
        for (id, job) in &mut self.jobs {
            let late = &mut job.late;
            let due: Vec<_> = late
                .pending
                .extract_if(.., |(when, _)| *when <= now)
                .collect();
            if due.is_empty() {
                continue;
            }
            let before = late.degrees.clone();
            for (_, straggler) in due {
                if straggler.degree > 1.0 {
                    late.degrees.insert(straggler.id, straggler.degree);
                } else {
                    late.degrees.remove(&straggler.id);
                }
            }
            if late.degrees != before {
                late.version += 1;
                changed = true;
            }
            let (id, late) = (id.clone(), late.clone());
            self.changes.push(Change::Late { id, late });
        }
        changed
    }

    /// Changes since the last call, for the journal.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Makes a change of the journal again.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Job { id, job } => {
                self.jobs.insert(id, *job);
            }
            Change::Gone { id } => {
                self.jobs.remove(&id);
            }
            Change::Rank { id, rank } => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.ranks.insert(rank.rank, rank);
                }
            }
            Change::Asked { id, rank } => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.asked.insert(rank);
                }
            }
            Change::Profile { id, profile } => {
                let job = self.jobs.get_mut(&id);
                if let Some(model) = job.and_then(|job| job.model.as_mut()) {
                    model.stages.insert(profile.stage, profile.rows);
                }
            }
            Change::Late { id, late } => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.late = late;
                }
            }
        }
    }

    /// Takes all jobs as heard of: the journal does not tell when each was.
    pub fn hear_all(&mut self, now: f64) {
        for job in self.jobs.values_mut() {
            job.heard = now;
        }
    }

    /// When the next announcement comes true.
    #[must_use]
    pub fn next_due(&self) -> Option<f64> {
        let all = self.jobs.values().flat_map(|job| &job.late.pending);
        all.map(|(when, _)| *when).min_by(f64::total_cmp)
    }
}

impl Job {
    /// How late the latest of the other pipelines is: what this one need not be faster than.
    fn degree_beside(&self, pipeline: u32) -> f64 {
        let others = self.late.degrees.iter().filter(|(rank, _)| {
            self.ranks
                .get(rank)
                .is_some_and(|rank| rank.dp_rank != pipeline)
        });
        others.map(|(_, degree)| *degree).fold(1.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 24.0 * 3600.0;

    fn register(registry: &mut Registry, now: f64) -> Result<String, Refusal> {
        let info = JobInfo {
            job_id: String::new(),
            pp_degree: 2,
            dp_degree: 1,
            tp_degree: 1,
            world_size: 2,
            job_metadata: None,
            pipeline: None,
        };
        registry.register_job(info, now, |later| format!("{now:09}-{later:04}"))
    }

    #[test]
    fn a_job_of_which_nothing_is_heard_makes_room() {
        let mut registry = Registry::default().serving(2);
        let ids: Vec<_> = (0..MAX_JOBS)
            .map(|_| register(&mut registry, 0.0).ok())
            .collect();
        let rank = |rank| RankInfo {
            rank,
            dp_rank: 0,
            pp_rank: rank,
            tp_rank: 0,
            available_frequencies: Vec::new(),
        };
        for id in ids.iter().flatten() {
            assert_eq!(registry.register_rank(id, rank(0), 0.0), Ok(()));
        }
        let oldest = ids[0].clone().unwrap_or_default();
        let told = registry.register_rank(&oldest, rank(0), 6.0 * DAY);
        assert_eq!(told, Ok(()));
        let refused = register(&mut registry, 6.0 * DAY);
        assert!(refused.is_err_and(|why| why.0.contains("1000 jobs already")));
        assert!(register(&mut registry, 8.0 * DAY).is_ok());
        assert_eq!(registry.jobs.len(), MAX_JOBS);
        assert_eq!(registry.ask(&oldest, 0, 8.0 * DAY), Ok(true));
        assert_eq!(registry.plan(&oldest, 0), Ok(None));
        let next = ids[1].clone().unwrap_or_default();
        assert!(registry.ask(&next, 0, 8.0 * DAY).is_err());
    }

    #[test]
    fn a_job_without_a_rank_keeps_its_place_for_an_hour() {
        let mut registry = Registry::default().serving(2);
        for _ in 0..MAX_JOBS {
            assert!(register(&mut registry, 0.0).is_ok());
        }
        assert!(register(&mut registry, 0.9 * EMPTY).is_err());
        assert!(register(&mut registry, 1.1 * EMPTY).is_ok());
    }

    /// One job may have a million ranks, and each may name a thousand clocks.
    #[test]
    fn clocks_are_kept_up_to_a_bound_of_all_jobs() {
        let mut registry = Registry::default().serving(2);
        let id = register(&mut registry, 0.0).unwrap_or_default();
        registry.clocks = MAX_CLOCKS_IN_ALL - 5;
        let rank = |rank, clocks| RankInfo {
            rank,
            dp_rank: 0,
            pp_rank: rank,
            tp_rank: 0,
            available_frequencies: vec![1000; clocks],
        };
        assert_eq!(registry.register_rank(&id, rank(0, 5), 0.0), Ok(()));
        let refused = registry.register_rank(&id, rank(1, 1), 0.0);
        assert!(refused.is_err_and(|why| why.0.contains("name only those")));
        // Who names fewer makes room.
        assert_eq!(registry.register_rank(&id, rank(0, 4), 0.0), Ok(()));
        assert_eq!(registry.register_rank(&id, rank(1, 1), 0.0), Ok(()));
        assert_eq!(registry.serving(2).clocks, 5);
    }
}
