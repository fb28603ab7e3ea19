//! Harm: steering has made a job slower. It stops steering for the user of that job, in the same pod if the job was in
//! one ([`Tenant`]): iteration times are reported by his processes, and no user's reports move the caps of another's
//! GPUs.

use serde::{Deserialize, Serialize};

use crate::hooks::party::{self, Party, Told};
use crate::hooks::tenant::Tenant;

/// How many harms are kept. Beyond that the user, or the pod, that has most loses the oldest.
const KEPT: usize = 64;

/// Steering has made a job slower: no job of its user is steered until an administrator resumes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Harm {
    #[serde(flatten)]
    whose: Tenant,
    job: String,
    why: String,
}

/// No user's harm costs another his.
impl Told for Harm {
    fn parties(&self) -> Vec<Party> {
        self.whose.parties()
    }

    fn forget(&mut self, party: &Party) -> bool {
        self.whose.forget(party)
    }
}

/// Harms, the latest last, one for each user whose jobs steering has made slower.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Harms(Vec<Harm>);

impl Harms {
    /// Why no job of this tenant is steered, if steering has made one slower.
    pub fn to(&self, whose: &Tenant) -> Option<String> {
        let harm = self.0.iter().find(|harm| harm.whose == *whose)?;
        Some(format!(
            "steering made the job {} slower: no job of {whose} is steered until `litctl resume`",
            harm.job
        ))
    }

    /// Steering has made this job of this tenant slower.
    pub fn add(&mut self, whose: Tenant, job: &str, why: &str) {
        self.0.retain(|known| known.whose != whose);
        self.0.push(Harm {
            whose,
            job: job.to_owned(),
            why: why.to_owned(),
        });
        party::make_room(&mut self.0, KEPT);
    }

    /// An administrator resumes steering. Returns whether any harm was known.
    pub fn forgive(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }

    /// All harms in words, if any.
    pub fn in_words(&self) -> Option<String> {
        let each = self.0.iter();
        let told = each.map(|it| format!("{} of {}: {}", it.job, it.whose, it.why));
        told.reduce(|all, it| format!("{all}; {it}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same harms after they were kept on disk.
    fn kept(harms: &Harms) -> Harms {
        let bytes = serde_json::to_vec(harms).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn harm_to_one_users_job_is_that_users_alone_and_is_kept() {
        let mut harms = Harms::default();
        harms.add(500.into(), "one", "0.5 % slower");
        harms.add(502.into(), "two", "0.5 % slower");
        let mut harms = kept(&harms);
        for (uid, job) in [(500, "one"), (502, "two")] {
            let text = format!(
                "steering made the job {job} slower: no job of user {uid} is steered until `litctl resume`"
            );
            assert_eq!(harms.to(&uid.into()), Some(text));
        }
        assert_eq!(harms.to(&501.into()), None);
        let told = "one of user 500: 0.5 % slower; two of user 502: 0.5 % slower";
        assert_eq!(harms.in_words().as_deref(), Some(told));
        assert!(harms.forgive() && !harms.forgive());
        assert_eq!((harms.to(&500.into()), harms.in_words()), (None, None));
    }

    #[test]
    fn harm_in_one_pod_is_none_in_another_and_older_files_count_for_jobs_in_no_pod() {
        let pod = |number| Tenant::in_pod(0, number);
        let mut harms = Harms::default();
        harms.add(pod(1), "train", "slower");
        let harms = kept(&harms);
        let why = harms.to(&pod(1)).unwrap();
        assert!(why.contains("of user 0 in pod-00000001-"), "{why}");
        assert_eq!(harms.to(&pod(2)), None);
        assert_eq!(harms.to(&0.into()), None);
        let older = r#"[{"uid":0,"job":"train","why":"slower"}]"#;
        let mut harms: Harms = serde_json::from_str(older).unwrap();
        assert!(harms.to(&0.into()).is_some());
        assert_eq!(harms.to(&pod(1)), None);
        // Any number of pods does not push out users who are in none.
        for number in 0..1000 {
            harms.add(pod(number), "train", "slower");
        }
        assert!(harms.0.len() <= KEPT && harms.to(&0.into()).is_some());
        assert!(harms.to(&pod(999)).is_some());
        // Nor do any number of users keep a pod's own harm from being known.
        let mut harms = Harms::default();
        for uid in 0..64 {
            harms.add(uid.into(), "train", "slower");
        }
        harms.add(pod(0), "train", "slower");
        assert!(harms.to(&pod(0)).is_some());
    }

    #[test]
    fn a_pod_of_many_users_costs_another_pod_nothing() {
        let mut harms = Harms::default();
        harms.add(Tenant::in_pod(0, 2), "train", "slower");
        for uid in 0..200 {
            harms.add(Tenant::in_pod(uid, 1), "train", "slower");
            assert!(harms.to(&Tenant::in_pod(uid, 1)).is_some());
        }
        assert!(harms.0.len() <= KEPT && harms.to(&Tenant::in_pod(0, 2)).is_some());
    }
}
