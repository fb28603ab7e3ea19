//! Facts that procfs tells of a process without a hook.

use litd_attach::{Looked, Owner};
use litd_core::{Home, Owners};

use crate::process::{Process, Processes};

/// The user or the pod with whose processes a process is counted.
pub(super) fn owner_of(home: Option<&Home>, owners: &Owners, uid: u32) -> Owner {
    match home.filter(|home| home.is_pod()) {
        Some(pod) => Owner::Pod(pod.outermost().to_owned()),
        None => Owner::User(owners.owner(uid)),
    }
}

/// Facts about a process of a user's, unless another process may have its id.
pub(super) fn look(
    processes: &Processes,
    owners: &Owners,
    process: &Process,
    (pid, uid): (u32, u32),
) -> Option<Looked> {
    let own = processes.own_id(pid)?;
    // A process that lives now lived while procfs was read: the job is told only then.
    let home = processes.home(process, pid);
    let parent = processes.parent(pid)?;
    process.doubt().is_none().then_some(())?;
    Some(Looked {
        own,
        began: process.began()?,
        owner: owner_of(home.as_ref(), owners, uid),
        job: home.map(|home| home.as_str().to_owned()),
        parent,
    })
}
