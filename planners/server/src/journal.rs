//! Changes of jobs, each a line in a file that is only appended to: registering a rank costs a line, and not
//! every job on disk again.

use serde::{Deserialize, Serialize};

use crate::model::StageProfile;
use crate::protocol::RankInfo;
use crate::registry::{Job, Late};

/// A change. Each holds the state afterwards, so that a change that is applied twice does no harm.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A job is new, or all of it is.
    Job {
        /// The job's name.
        id: String,
        /// The whole job.
        job: Box<Job>,
    },
    /// A rank has registered.
    Rank {
        /// The job's name.
        id: String,
        /// The rank.
        rank: RankInfo,
    },
    /// A rank has asked for its schedule.
    Asked {
        /// The job's name.
        id: String,
        /// The rank.
        rank: u32,
    },
    /// The stragglers of a job, now and later.
    Late {
        /// The job's name.
        id: String,
        /// All stragglers, with the version of plans.
        late: Late,
    },
    /// A stage of the job's own profile was measured.
    Profile {
        /// The job's name.
        id: String,
        /// The measurements.
        profile: StageProfile,
    },
    /// The job is forgotten.
    Gone {
        /// The job's name.
        id: String,
    },
}

/// The changes as lines of JSON.
///
/// # Errors
/// If a number can't be written.
pub fn lines(changes: &[Change]) -> serde_json::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for change in changes {
        serde_json::to_writer(&mut lines, change)?;
        lines.push(b'\n');
    }
    Ok(lines)
}
