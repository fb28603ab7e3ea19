//! Tenants: whose reports count for whom. Anybody with a GPU can report anything of his own job, and the
//! consequences are for his own jobs: those of his user, and in pods and containers, where most processes are of
//! user 0 or of any user that their image names, those in the same pod.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hooks::Hooks;
use crate::hooks::cgroup::Home;
use crate::hooks::owners::Owners;
use crate::hooks::party::{Party, Told};
use crate::job::Job;

/// A user or a pod whose jobs are treated together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tenant {
    uid: u32,
    /// The outermost pod or container. Under Slurm users are the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
}

impl Tenant {
    /// The tenant of a process of this user, whose id is nobody's subordinate id, by its control group.
    #[must_use]
    pub fn of(uid: u32, home: Option<&Home>) -> Self {
        let pod = home.filter(|home| home.is_pod());
        let pod = pod.map(|home| home.outermost().to_owned());
        Self { uid, pod }
    }

    /// A user in the pod with this number, for tests.
    #[cfg(test)]
    pub(crate) fn in_pod(uid: u32, number: u32) -> Self {
        let pod = format!("0::/kubepods/pod{number:08x}-aaaa-4bbb-8ccc-0123456789ab\n");
        Self::of(uid, Home::of(&pod).as_ref())
    }

    /// The user, if it is one of the node's own and not of a pod.
    #[must_use]
    pub fn user(&self) -> Option<u32> {
        self.pod.is_none().then_some(self.uid)
    }

    /// Who is charged for the room that this tenant's entries take.
    pub(crate) fn party(&self) -> Party {
        match &self.pod {
            Some(pod) => Party::Pod(pod.clone()),
            None if Owners::is_somebody(self.uid) => Party::User(self.uid),
            None => Party::Unnamed(self.uid),
        }
    }
}

impl From<u32> for Tenant {
    /// A user of the node's own.
    fn from(uid: u32) -> Self {
        Self::of(uid, None)
    }
}

/// One of those who have told something.
impl Told for Tenant {
    fn parties(&self) -> Vec<Party> {
        vec![self.party()]
    }

    fn forget(&mut self, _party: &Party) -> bool {
        true
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.uid)?;
        match &self.pod {
            Some(pod) => write!(f, " in {pod}"),
            None => Ok(()),
        }
    }
}

impl Hooks {
    /// The tenant that owns a process.
    pub fn tenant(&self, uid: u32, home: Option<&Home>) -> Tenant {
        Tenant::of(self.owner(uid), home)
    }

    /// The tenant that owns a job.
    pub fn tenant_of(&self, job: &Job) -> Tenant {
        self.tenant(job.whose.uid, job.whose.home.as_ref())
    }
}
