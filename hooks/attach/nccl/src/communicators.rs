//! The process's communicators, by the contexts that NCCL hands back with each event.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// More communicators than a process has at a time; those beyond are not followed.
const MOST: usize = 1024;
/// Bits of a context that say the place; those above say for how many communicators it was used.
const PLACE_BITS: u32 = 16;

/// What NCCL says of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Communicator {
    /// The version of the interface, 4 to 7.
    pub interface: u8,
    /// Its hash, the same on all ranks.
    pub hash: u64,
    /// Its nodes; 65,535 stands for more.
    pub nodes: u16,
    /// Its ranks.
    pub ranks: u32,
    /// This rank.
    pub rank: u32,
}

/// A place for a communicator. The use's number is even while the place is free or being filled.
struct Place {
    used: AtomicU64,
    hash: AtomicU64,
    ranks: AtomicU64,
    rest: AtomicU64,
}

/// The process's communicators.
pub struct Communicators(Box<[Place]>);

impl Communicators {
    /// None yet.
    pub fn new() -> Self {
        let free = || Place {
            used: AtomicU64::new(0),
            hash: AtomicU64::new(0),
            ranks: AtomicU64::new(0),
            rest: AtomicU64::new(0),
        };
        Self((0..MOST).map(|_| free()).collect())
    }

    /// Takes one up; its context, which is never 0, or `None` if there is no place.
    pub fn enter(&self, communicator: Communicator) -> Option<usize> {
        // A place is free with an even number that is a multiple of 4, being filled with the next even number.
        let take = |place: &Place| {
            let used = place.used.load(Relaxed);
            let filling = used + 2;
            let is_free = used.is_multiple_of(4);
            let taken = is_free
                && place
                    .used
                    .compare_exchange(used, filling, AcqRel, Relaxed)
                    .is_ok();
            taken.then_some(filling + 1)
        };
        let mut places = self.0.iter().enumerate();
        let (at, place, used) = places.find_map(|(at, place)| Some((at, place, take(place)?)))?;
        place.hash.store(communicator.hash, Relaxed);
        let ranks = u64::from(communicator.rank) | u64::from(communicator.ranks) << 32;
        place.ranks.store(ranks, Relaxed);
        let rest = u64::from(communicator.nodes) << 8 | u64::from(communicator.interface);
        place.rest.store(rest, Relaxed);
        place.used.store(used, Release);
        Some((used as usize) << PLACE_BITS | at)
    }

    /// The communicator of this context, if it has not ended.
    pub fn get(&self, context: usize) -> Option<Communicator> {
        let place = self.place(context)?;
        let (ranks, rest) = (place.ranks.load(Relaxed), place.rest.load(Relaxed));
        Some(Communicator {
            interface: rest as u8,
            hash: place.hash.load(Relaxed),
            nodes: (rest >> 8) as u16,
            ranks: (ranks >> 32) as u32,
            rank: ranks as u32,
        })
    }

    /// Frees its place; what it was, if it had not ended before.
    pub fn leave(&self, context: usize) -> Option<Communicator> {
        let communicator = self.get(context)?;
        let place = self.place(context)?;
        let used = (context >> PLACE_BITS) as u64;
        let left = place.used.compare_exchange(used, used + 1, AcqRel, Relaxed);
        left.is_ok().then_some(communicator)
    }

    fn place(&self, context: usize) -> Option<&Place> {
        let place = self.0.get(context & ((1 << PLACE_BITS) - 1))?;
        let used = place.used.load(Acquire);
        (used % 4 == 3 && used == (context >> PLACE_BITS) as u64).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn communicator(rank: u32) -> Communicator {
        Communicator {
            interface: 7,
            hash: 0x1234_5678_9abc_def0 + u64::from(rank),
            nodes: 3,
            ranks: 9,
            rank,
        }
    }

    #[test]
    fn a_context_names_its_communicator_until_that_ends() {
        let all = Communicators::new();
        let contexts: Vec<_> = (0..9)
            .map(|it| all.enter(communicator(it)).unwrap())
            .collect();
        for (context, rank) in contexts.iter().zip(0..) {
            assert_eq!(all.get(*context), Some(communicator(rank)));
        }
        assert_eq!(all.leave(contexts[4]), Some(communicator(4)));
        assert_eq!(all.get(contexts[4]), None);
        assert_eq!(all.leave(contexts[4]), None);
        // Its place has another one now, which the old context does not name.
        let next = all.enter(communicator(77)).unwrap();
        assert_eq!(next & 0xffff, contexts[4] & 0xffff);
        assert_eq!(all.get(contexts[4]), None);
        assert_eq!(all.get(next), Some(communicator(77)));
        for context in [0, 1, 4, usize::MAX, contexts[0] ^ 1 << 40] {
            assert_eq!(all.get(context), None, "{context:x}");
        }
    }

    #[test]
    fn those_without_a_place_are_turned_away() {
        let all = Communicators::new();
        for rank in 0..MOST as u32 {
            assert!(all.enter(communicator(rank)).is_some());
        }
        assert_eq!(all.enter(communicator(0)), None);
    }
}
