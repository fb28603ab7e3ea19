//! Crowds: whose connections are counted together. Every job, Slurm's or a pod, has crowds of its own; a
//! tenant (`tenant`), whose reports count together, is a user in all jobs, or in one pod.

use crate::hooks::cgroup::Home;

/// Connections that are counted together, with the data left unread of them: those of a user, in one job. In pods
/// most processes are of user 0, and one tenant must not keep another out. Subordinate ids count as their owner's
/// ([`crate::Owners`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crowd {
    uid: u32,
    job: Option<String>,
}

impl Crowd {
    /// The crowd of a hook of this user, whose id is nobody's subordinate id, by its control group.
    #[must_use]
    pub fn of(uid: u32, home: Option<&Home>) -> Self {
        let job = home.map(|home| home.outermost().to_owned());
        Self { uid, job }
    }
}

impl From<u32> for Crowd {
    /// The crowd of a user outside any job.
    fn from(uid: u32) -> Self {
        Self::of(uid, None)
    }
}
