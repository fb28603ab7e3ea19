//! Ranks, as launchers tell them in the environments of processes.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::json::text::{decoded, members, unquoted};

/// The variables of a rank and of the number of ranks; the first that is set counts.
const VARIABLES: [[&str; 2]; 5] = [
    ["RANK", "WORLD_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"],
    ["SLURM_PROCID", "SLURM_NTASKS"],
];

/// The ranks of processes. They count only where each process tells its own.
pub(crate) struct Ranks<K> {
    told: HashMap<K, [Option<u32>; 2]>,
}

impl<K> Default for Ranks<K> {
    fn default() -> Self {
        Self {
            told: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq> Ranks<K> {
    /// Adds a process with its environment: a JSON object, or lines of `NAME=value`.
    pub(crate) fn add(&mut self, process: K, environment: &str) {
        self.told.insert(process, told(environment));
    }

    /// The rank of a process.
    pub(crate) fn of(&self, process: &K) -> Option<u32> {
        let rank = self.told.get(process)?[0]?;
        let ranks = self.told.values().map(|told| told[0]);
        let ranks = ranks.collect::<Option<BTreeSet<_>>>()?;
        (ranks.len() == self.told.len()).then_some(rank)
    }

    /// How many ranks there are, if all processes tell the same.
    pub(crate) fn world_size(&self) -> Option<u32> {
        let sizes = BTreeSet::from_iter(self.told.values().map(|told| told[1]));
        let [size] = <[_; 1]>::try_from(Vec::from_iter(sizes)).ok()?;
        size
    }
}

/// The rank and the number of ranks.
fn told(environment: &str) -> [Option<u32>; 2] {
    let value = |wanted: &str| -> Option<u32> {
        let text = environment.trim_start();
        if text.starts_with('{') {
            let mut members = members(text.as_bytes());
            let (_, value) = members.find(|(name, _)| *name == wanted.as_bytes())?;
            return decoded(unquoted(value)).trim().parse().ok();
        }
        let mut lines = environment.split(['\n', '\0', ';']);
        let value = lines.find_map(|line| line.trim().strip_prefix(wanted)?.strip_prefix('='))?;
        value.trim().trim_matches('"').parse().ok()
    };
    let found = VARIABLES.iter().find(|[rank, _]| value(rank).is_some());
    found.map_or([None; 2], |names| names.map(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_tell_ranks_in_their_own_words() {
        for (environment, expected) in [
            (
                r#"{"PATH":"/bin","RANK":"3","WORLD_SIZE":"8"}"#,
                [Some(3), Some(8)],
            ),
            (
                "A=b\nOMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=4",
                [Some(2), Some(4)],
            ),
            ("SLURM_PROCID=7", [Some(7), None]),
            ("RANK=first\nPMI_RANK=1", [Some(1), None]),
            ("LOCAL_RANK=1", [None, None]),
            ("", [None, None]),
            ("{", [None, None]),
        ] {
            assert_eq!(told(environment), expected, "{environment}");
        }
    }

    #[test]
    fn ranks_count_where_each_process_tells_its_own() {
        let ranks = |environments: [&str; 2]| {
            let mut ranks = Ranks::default();
            for (process, environment) in (0..).zip(environments) {
                ranks.add(process, environment);
            }
            [0, 1].map(|process| ranks.of(&process))
        };
        assert_eq!(ranks(["RANK=5", "RANK=4"]), [Some(5), Some(4)]);
        assert_eq!(ranks(["RANK=5", "RANK=5"]), [None, None]);
        assert_eq!(ranks(["RANK=5", ""]), [None, None]);
    }
}
