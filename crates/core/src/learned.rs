//! Learned caps (in the code: [`Distribution`]): how those of a converged job were spread over its GPUs, kept as a
//! starting point for the next run of the same job on the same GPUs (Figure 12 of the Lit Silicon paper): differences
//! between GPUs come from silicon and cooling, and outlive a job.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;

use litd_policies::Policy;
use litd_units::Watts;
use serde::{Deserialize, Serialize};

use crate::hooks::party::{self, Party, Told};
use crate::hooks::profilers::{ProfilerGood, ProfilerOff, Profilers};
use crate::hooks::tenant::Tenant;
use crate::store::Store;

/// The version written. Since version 2 each distribution names the pod that it was learned in: a litd that knows only
/// version 1 would take a pod's for every other pod's.
const VERSION: u64 = 2;

/// The version before, which is read, too: its distributions are those of the node's own users.
const USERS_ONLY: u64 = 1;

/// How many distributions are kept. Beyond that the user, or the pod, that has most loses the oldest.
const KEPT: usize = 64;

/// After 7 days a distribution is only a hint: cooling has changed since. One that did harm is not used for so long.
const FRESH_SECONDS: f64 = 7.0 * 24.0 * 3600.0;

/// Shares add up to 1, as nearly as a file's decimals do.
const TOTAL_TOLERANCE: f64 = 1e-6;

/// The conditions under which a distribution was learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Serial numbers of the job's GPUs, or their addresses where there are none, in the job's
    /// order.
    pub gpus: Vec<String>,
    /// The user or the pod whose job it was: jobs of one tenant don't affect another's.
    #[serde(flatten)]
    pub tenant: Tenant,
    /// Name and version of the driver.
    pub driver: String,
    /// A fingerprint of what the job computes.
    pub workload: u64,
}

impl Key {
    /// Whether every GPU has a name of its own, so that a share can be given back to it.
    fn is_distinct(&self) -> bool {
        let names: BTreeSet<&str> = self.gpus.iter().map(String::as_str).collect();
        names.len() == self.gpus.len() && !names.is_empty() && !names.contains("")
    }
}

/// How a job's power was spread over its GPUs when it had converged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The conditions under which it was learned.
    #[serde(flatten)]
    pub key: Key,
    /// Each GPU's part of the sum of the caps, in the key's order.
    pub shares: Vec<f64>,
    /// The sum of the caps, in watts.
    pub budget: Watts,
    /// The policy that found it.
    pub policy: Policy,
    /// When, in seconds since 1970.
    pub unix_seconds: f64,
    /// When a job that started from it was rolled back, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlearned: Option<f64>,
}

/// Nobody's jobs cost another his.
impl Told for Distribution {
    fn parties(&self) -> Vec<Party> {
        self.key.tenant.parties()
    }

    fn forget(&mut self, _party: &Party) -> bool {
        true
    }
}

impl Distribution {
    fn is_valid(&self) -> bool {
        let positive = |number: f64| number > 0.0 && number.is_finite();
        let total: f64 = self.shares.iter().sum();
        self.key.is_distinct()
            && self.shares.len() == self.key.gpus.len()
            && self.shares.iter().all(|&share| positive(share))
            && (total - 1.0).abs() < TOTAL_TOLERANCE
            && positive(self.budget.0)
            && self.unix_seconds.is_finite()
            && self.unlearned.is_none_or(f64::is_finite)
    }

    /// The shares in the order of `gpus`; `None` unless those are the same GPUs.
    fn shares_of(&self, gpus: &[String]) -> Option<Vec<f64>> {
        let share = |gpu: &String| {
            let index = self.key.gpus.iter().position(|known| known == gpu)?;
            self.shares.get(index).copied()
        };
        if gpus.len() != self.shares.len() {
            return None;
        }
        gpus.iter().map(share).collect()
    }

    /// In how many respects the conditions differ.
    fn mismatches(&self, key: &Key, policy: Policy) -> usize {
        [
            self.key.gpus != key.gpus,
            self.key.workload != key.workload,
            self.key.driver != key.driver,
            self.policy != policy,
        ]
        .into_iter()
        .filter(|&differs| differs)
        .count()
    }

    /// Whether a job that started from it was rolled back within 7 days. Without a clock nobody knows that they
    /// are over.
    fn is_unlearned(&self, now: f64) -> bool {
        let since = self.unlearned.map(|at| (now - at).abs());
        since.is_some_and(|since| since.is_nan() || since < FRESH_SECONDS)
    }

    fn is_of(&self, key: &Key, policy: Policy) -> bool {
        self.key == *key && self.policy == policy
    }

    /// A distribution from the future, after the clock was set back, is as doubtful as an old one.
    fn is_fresh(&self, now: f64) -> bool {
        (now - self.unix_seconds).abs() < FRESH_SECONDS
    }
}

/// How far a hint can be relied upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confidence {
    /// The same conditions: start at these shares.
    Full,
    /// The same GPUs, but other conditions or an old distribution: go half of the way.
    Half,
}

/// A starting point.
#[derive(Debug, Clone, PartialEq)]
pub struct Hint {
    /// Each GPU's part of the budget, in the order of the key that was asked for.
    pub shares: Vec<f64>,
    /// How far it can be relied upon.
    pub confidence: Confidence,
    /// The sum of the caps when they were learned.
    pub learned_budget: Watts,
    /// What it was learned on, and under which policy.
    pub from: (Key, Policy),
}

impl Hint {
    /// Caps that add up to `budget`. The envelope projects them onto the limits.
    #[must_use]
    pub fn caps(&self, budget: Watts) -> Vec<Watts> {
        self.shares.iter().map(|&share| budget * share).collect()
    }
}

/// The distributions learned on this node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Learned {
    /// All distributions, the latest last.
    distributions: Vec<Distribution>,
    /// Results of profilers on this node.
    pub(crate) profilers: Profilers,
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "litd-learned")]
    version: u64,
    distributions: &'a [Distribution],
    profilers_off: &'a [ProfilerOff],
    profilers_good: &'a [ProfilerGood],
}

#[derive(Deserialize)]
struct Read {
    #[serde(rename = "litd-learned")]
    version: u64,
    // Parsed one by one: a damaged entry must not cost the others.
    #[serde(default)]
    distributions: Vec<serde_json::Value>,
    #[serde(default)]
    profilers_off: Vec<serde_json::Value>,
    #[serde(default)]
    profilers_good: Vec<serde_json::Value>,
}

impl Learned {
    /// Reads what [`Learned::save`] wrote. Unusable entries are left out, and the second value says in words
    /// which: a lost hint costs a few adjustments, nothing else.
    #[must_use]
    pub fn load(bytes: &[u8]) -> (Self, Option<String>) {
        if bytes.is_empty() {
            return (Self::default(), None);
        }
        let nothing = |why: String| {
            let note = format!("their file can't be read, and litd learns anew: {why}");
            (Self::default(), Some(note))
        };
        let read: Read = match serde_json::from_slice(bytes) {
            Ok(read) => read,
            Err(error) => return nothing(error.to_string()),
        };
        if ![USERS_ONLY, VERSION].contains(&read.version) {
            return nothing(format!(
                "it is of version {}, and this litd knows versions {USERS_ONLY} and {VERSION} only",
                read.version
            ));
        }
        let all = read.distributions.len();
        let mut lost = 0;
        let off = read.profilers_off.into_iter();
        let off = off.filter_map(|value| serde_json::from_value::<ProfilerOff>(value).ok());
        let good = read.profilers_good.into_iter();
        let good = good.filter_map(|value| serde_json::from_value::<ProfilerGood>(value).ok());
        let mut learned = Self {
            profilers: Profilers::with(off.collect(), good.collect()),
            ..Self::default()
        };
        for value in read.distributions {
            match serde_json::from_value::<Distribution>(value) {
                Ok(distribution) if distribution.is_valid() => learned.keep(distribution),
                _ => lost += 1,
            }
        }
        let note =
            (lost > 0).then(|| format!("{lost} of {all} entries are unusable and were left out"));
        (learned, note)
    }

    /// Puts everything on disk.
    ///
    /// # Errors
    /// The disk; what was there before is still there.
    pub fn save(&self, store: &mut impl Store) -> io::Result<()> {
        let written = Written {
            version: VERSION,
            distributions: &self.distributions,
            profilers_off: self.profilers.off(),
            profilers_good: self.profilers.good(),
        };
        let mut bytes = serde_json::to_vec_pretty(&written)?;
        bytes.push(b'\n');
        store.replace_learned(&bytes)
    }

    /// Learns that a job has converged at `caps` (in the order of the key's GPUs) under `policy`,
    /// at `now` in seconds since 1970. It takes the place of what was learned on the same key
    /// under the same policy.
    ///
    /// Returns whether there was something to learn: not from caps that are not one positive
    /// number for each GPU, nor from GPUs that can't be told apart.
    pub fn remember(&mut self, key: Key, caps: &[Watts], policy: Policy, now: f64) -> bool {
        let budget: Watts = caps.iter().copied().sum();
        let distribution = Distribution {
            key,
            shares: caps.iter().map(|&cap| cap / budget).collect(),
            budget,
            policy,
            unix_seconds: now,
            unlearned: None,
        };
        let valid = distribution.is_valid();
        if valid {
            self.keep(distribution);
        }
        valid
    }

    fn keep(&mut self, mut new: Distribution) {
        let mut all = self.distributions.iter();
        if let Some(known) = all.find(|it| it.is_of(&new.key, new.policy)) {
            // What has done harm is not good again because it is learned again.
            new.unlearned = new.unlearned.or(known.unlearned);
        }
        self.distributions
            .retain(|known| !known.is_of(&new.key, new.policy));
        self.distributions.push(new);
        party::make_room(&mut self.distributions, KEPT);
    }

    /// A job that started from this distribution was rolled back: for 7 days no job starts from it, also where it is
    /// learned again. Returns whether there is such a distribution.
    pub fn unlearn(&mut self, key: &Key, policy: Policy, now: f64) -> bool {
        let mut all = self.distributions.iter_mut();
        let known = all.find(|it| it.is_of(key, policy));
        let unlearned = known.map(|it| it.unlearned = Some(now));
        unlearned.is_some()
    }

    /// The best starting point for a job, at `now` in seconds since 1970: the distribution of
    /// the same GPUs that was learned on the likest job, the latest of several. Shares follow
    /// their GPUs if the job has them in another order. `None` if nothing was learned on exactly
    /// these GPUs.
    #[must_use]
    pub fn recall(&self, key: &Key, policy: Policy, now: f64) -> Option<Hint> {
        if !key.is_distinct() {
            return None;
        }
        let (_, best, shares) = self
            .distributions
            .iter()
            .enumerate()
            .filter(|(_, known)| known.key.tenant == key.tenant && !known.is_unlearned(now))
            .filter_map(|(index, known)| Some((index, known, known.shares_of(&key.gpus)?)))
            .min_by_key(|(index, known, _)| {
                let stale = !known.is_fresh(now);
                (known.mismatches(key, policy), stale, Reverse(*index))
            })?;
        let exact = best.mismatches(key, policy) == 0 && best.is_fresh(now);
        Some(Hint {
            shares,
            confidence: if exact {
                Confidence::Full
            } else {
                Confidence::Half
            },
            learned_budget: best.budget,
            from: (best.key.clone(), best.policy),
        })
    }

    /// The distributions, the latest last.
    #[must_use]
    pub fn distributions(&self) -> &[Distribution] {
        &self.distributions
    }

    /// Profilers that are not used on this node any more, the latest last.
    #[must_use]
    pub fn profilers_off(&self) -> &[ProfilerOff] {
        self.profilers.off()
    }

    /// Forgets everything in memory; the file still has it until the next [`Learned::save`].
    pub fn forget(&mut self) {
        self.profilers = Profilers::default();
        self.distributions.clear();
    }
}
