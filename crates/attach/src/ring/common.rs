//! The communicator by which the ranks of a job are compared.

use std::collections::{BTreeMap, BTreeSet};

use super::Record;

/// The reason why ranks can't be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoCommon {
    /// No rank has told of anything: the job waits, or has hung.
    #[error("its ranks have run no collectives of late")]
    Silent,
    /// The ranks use several communicators, none of which has all of them in it.
    #[error("no communicator has all its ranks on this node in it")]
    Apart,
}

/// The ranks that one process says it is in a communicator.
#[derive(Debug, Default)]
struct Said {
    /// By which ranks, and of how many.
    ranks: BTreeSet<(u32, u32)>,
    records: usize,
}

/// The communicator that each of these processes is one rank of, another one each; of several the one of which is told
/// most.
///
/// # Errors
/// There is none; see [`NoCommon`].
pub fn common(told: &[Vec<Record>]) -> Result<u64, NoCommon> {
    if told.iter().all(Vec::is_empty) {
        return Err(NoCommon::Silent);
    }
    // Of each communicator: its ranks, whether it can be the one, and of how many collectives the process tells that
    // tells least.
    let mut of = BTreeMap::<u64, (BTreeSet<(u32, u32)>, bool, usize)>::new();
    for records in told {
        let mut said = BTreeMap::<u64, Said>::new();
        for record in records {
            let said = said.entry(record.communicator).or_default();
            said.ranks.insert((record.rank, record.ranks));
            said.records += 1;
        }
        for (communicator, said) in said {
            let (ranks, fits, least) =
                of.entry(communicator)
                    .or_insert((BTreeSet::new(), true, usize::MAX));
            let one = said.ranks.first().filter(|_| said.ranks.len() == 1);
            *fits &= one.is_some_and(|&(rank, of)| rank < of && ranks.insert((rank, of)));
            *least = said.records.min(*least);
        }
    }
    let whole = of.into_iter().filter(|(_, (ranks, fits, _))| {
        let sizes: BTreeSet<u32> = ranks.iter().map(|it| it.1).collect();
        *fits && sizes.len() == 1 && ranks.len() == told.len()
    });
    let most = whole.max_by_key(|(_, (_, _, least))| *least);
    most.map(|it| it.0).ok_or(NoCommon::Apart)
}
