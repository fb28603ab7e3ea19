//! The ranks of a job on this node: which there are to be, which have come, and which are connected.

use std::collections::BTreeMap;

use litd_proto::Hello;
use litd_units::Nanos;

use crate::event::{Peer, SessionId};

/// Whether a rank's hook is connected.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Presence {
    Connected(SessionId),
    /// Since then it is not.
    Away(Nanos),
}

/// A rank of a job.
#[derive(Debug, Clone)]
pub(crate) struct Rank {
    device: usize,
    peer: Peer,
    presence: Presence,
    iteration: u64,
}

impl Rank {
    /// The rank's GPU, by position in the inventory.
    pub fn device(&self) -> usize {
        self.device
    }

    /// The rank's process; 0 once that has ended.
    pub fn pid(&self) -> u32 {
        self.peer.pid
    }

    /// The session of the rank's hook, while it is connected.
    pub fn session(&self) -> Option<SessionId> {
        match self.presence {
            Presence::Connected(session) => Some(session),
            Presence::Away(_) => None,
        }
    }

    /// The last iteration that the rank has reported.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Its process has ended, or speaks for its GPU no longer: a successor counts as another process, whatever its id.
    fn ends(&mut self) {
        // No process has the id 0.
        self.peer.pid = 0;
    }

    /// Whether its hook has not come back in time.
    fn is_lost(&self, patience: Nanos, now: Nanos) -> bool {
        matches!(self.presence, Presence::Away(since) if now >= since + patience)
    }
}

/// Why a rank can't have a place in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Other ranks have said that so many of them run here, and this one says otherwise.
    Disagrees(u32),
    /// Its number or its GPU is another rank's.
    Taken,
    /// All of the job's ranks, so many, are here.
    Full(u32),
}

/// How a rank has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrival {
    /// The session that the rank had so far.
    pub replaced: Option<SessionId>,
    /// Whether it is another process than before, which may have gone back to a checkpoint.
    pub has_restarted: bool,
}

/// The ranks of a job on this node.
#[derive(Debug)]
pub(crate) struct Roster {
    /// The job that this one is a group of, if that job's ranks do unequal work.
    part_of: Option<String>,
    /// Ranks of the whole job on this node, as its hooks say.
    here: u32,
    /// The job's own ranks on this node: all of them, or those of its group once all ranks of the job have come.
    expected: u32,
    /// Ranks on all nodes, as the first hook said.
    world_size: u32,
    /// Those that have come and not left.
    ranks: BTreeMap<u32, Rank>,
}

impl Roster {
    /// The ranks that a job's first one, whose word counts for all, says there are to be.
    pub fn new(hello: &Hello) -> Self {
        Self {
            part_of: None,
            here: hello.local_world_size,
            expected: hello.local_world_size,
            world_size: hello.world_size,
            ranks: BTreeMap::new(),
        }
    }

    /// How many have come.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Those that have come, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Rank)> {
        self.ranks.iter().map(|(&number, rank)| (number, rank))
    }

    /// The rank with this number.
    pub fn get(&self, number: u32) -> Option<&Rank> {
        self.ranks.get(&number)
    }

    /// The rank that computes on this GPU.
    pub fn on(&self, device: usize) -> Option<&Rank> {
        self.ranks.values().find(|rank| rank.device == device)
    }

    /// Where a rank stands among those that have come.
    pub fn position(&self, number: u32) -> Option<usize> {
        self.ranks.keys().position(|&known| known == number)
    }

    /// The ranks' GPUs, in their order.
    pub fn gpus(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranks.values().map(Rank::device)
    }

    /// The sessions of those that are connected.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.ranks.values().filter_map(Rank::session)
    }

    /// The latest iteration that any rank has reported.
    pub fn iteration(&self) -> u64 {
        self.ranks.values().map(Rank::iteration).max().unwrap_or(0)
    }

    /// Whether all of the job's ranks on this node are connected.
    pub fn is_whole(&self) -> bool {
        self.expected as usize == self.sessions().count()
    }

    /// The job that this one is a group of, if it is one.
    pub fn part_of(&self) -> Option<&str> {
        self.part_of.as_deref()
    }

    /// Whether no GPU of this node does the same work as the job's only one.
    pub fn is_alone(&self) -> bool {
        self.part_of.is_some() && self.expected == 1
    }

    /// Ranks of the whole job on this node.
    pub fn here(&self) -> usize {
        self.here as usize
    }

    /// Whether the job also runs on other nodes.
    pub fn leave_the_node(&self) -> bool {
        self.world_size > self.here
    }

    /// Whether there is a place for a rank, which is one per number and GPU.
    ///
    /// # Errors
    /// Why there is none.
    pub fn has_place(&self, hello: &Hello, device: usize) -> Result<(), NoPlace> {
        if self.here != hello.local_world_size {
            return Err(NoPlace::Disagrees(self.here));
        }
        let elsewhere =
            |(&number, known): (&u32, &Rank)| (number == hello.rank) != (known.device == device);
        if self.ranks.iter().any(elsewhere) {
            return Err(NoPlace::Taken);
        }
        if self.ranks.len() >= self.expected as usize && !self.ranks.contains_key(&hello.rank) {
            return Err(NoPlace::Full(self.expected));
        }
        Ok(())
    }

    /// A rank has come, or has come back.
    pub fn arrives(
        &mut self,
        number: u32,
        device: usize,
        peer: Peer,
        session: SessionId,
    ) -> Arrival {
        let presence = Presence::Connected(session);
        let Some(rank) = self.ranks.get_mut(&number) else {
            let iteration = 0;
            let rank = Rank {
                device,
                peer,
                presence,
                iteration,
            };
            self.ranks.insert(number, rank);
            return Arrival {
                replaced: None,
                has_restarted: false,
            };
        };
        let replaced = rank.session();
        let has_restarted = rank.peer.pid != peer.pid;
        (rank.peer, rank.presence) = (peer, presence);
        if has_restarted {
            rank.iteration = 0;
        }
        Arrival {
            replaced,
            has_restarted,
        }
    }

    /// The job is a group of that one, or a whole one.
    pub fn becomes_part_of(&mut self, whole: Option<&str>) {
        self.part_of = whole.map(str::to_owned);
    }

    /// All ranks of the whole job have come: no more are expected of this group.
    pub fn completes(&mut self) {
        self.expected = self.ranks.len() as u32;
    }

    /// A rank's connection has ended. Returns whether it was the rank's.
    pub fn disconnects(&mut self, number: u32, session: SessionId, now: Nanos) -> bool {
        let is_its = self.get(number).and_then(Rank::session) == Some(session);
        if is_its {
            self.goes_away(number, now);
        }
        is_its
    }

    /// A rank's hook is not connected any more, and may come back. Returns whether there is such a rank.
    pub fn goes_away(&mut self, number: u32, now: Nanos) -> bool {
        let rank = self.ranks.get_mut(&number);
        rank.map(|rank| rank.presence = Presence::Away(now))
            .is_some()
    }

    /// A rank has said goodbye. Returns the GPU that it had.
    pub fn leaves(&mut self, number: u32) -> Option<usize> {
        self.ranks.remove(&number).map(|rank| rank.device)
    }

    /// Whether a rank has not come back in time.
    pub fn has_lost(&self, patience: Nanos, now: Nanos) -> bool {
        self.ranks.values().any(|rank| rank.is_lost(patience, now))
    }

    /// Removes ranks that have not come back in time. Returns the GPUs that they had.
    pub fn lose(&mut self, patience: Nanos, now: Nanos) -> Vec<usize> {
        let gone = self
            .ranks
            .extract_if(.., |_, rank| rank.is_lost(patience, now));
        gone.map(|(_, rank)| rank.device).collect()
    }

    /// A rank's process has ended: its requests end with it.
    pub fn process_ends(&mut self, number: u32) {
        if let Some(rank) = self.ranks.get_mut(&number) {
            rank.ends();
        }
    }

    /// The rank on a GPU speaks for it no longer if its process does not use the GPU. Requests of the process end with
    /// it, also while its connection may come back. Returns the session that it has then.
    pub fn evict(&mut self, device: usize, uses: impl Fn(Peer) -> bool) -> Option<SessionId> {
        let mut ranks = self.ranks.values_mut();
        let gone = ranks.find(|rank| rank.device == device && !uses(rank.peer))?;
        gone.ends();
        gone.session()
    }

    /// A rank has told of this iteration.
    pub fn tells(&mut self, number: u32, iteration: u64) {
        if let Some(rank) = self.ranks.get_mut(&number) {
            rank.iteration = rank.iteration.max(iteration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Nanos = Nanos(30);

    fn hello(rank: u32, here: u32) -> Hello {
        Hello {
            job: "train".to_owned(),
            rank,
            local_world_size: here,
            local_rank: rank,
            world_size: 8,
            protocol: 1,
            gpu: "0000:05:00.0".to_owned(),
            framework: String::new(),
            versions: BTreeMap::new(),
            group: String::new(),
        }
    }

    fn peer(pid: u32) -> Peer {
        Peer { pid, uid: 500 }
    }

    /// A rank on the GPU of its number, as the process 10 and its number, in the session of that number.
    fn arrives(roster: &mut Roster, number: u32) -> Arrival {
        let session = SessionId(u64::from(number));
        roster.arrives(number, number as usize, peer(10 + number), session)
    }

    fn two() -> Roster {
        let mut roster = Roster::new(&hello(0, 2));
        arrives(&mut roster, 0);
        arrives(&mut roster, 1);
        roster
    }

    #[test]
    fn a_job_is_whole_once_all_of_its_ranks_are_connected() {
        let mut roster = Roster::new(&hello(0, 2));
        assert!(roster.is_empty() && !roster.is_whole() && roster.leave_the_node());
        arrives(&mut roster, 0);
        assert!(!roster.is_whole());
        arrives(&mut roster, 1);
        assert!(roster.is_whole());
        roster.goes_away(1, Nanos(0));
        assert!(!roster.is_whole());
        assert_eq!(roster.gpus().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(roster.sessions().collect::<Vec<_>>(), [SessionId(0)]);
    }

    #[test]
    fn a_rank_has_a_place_only_with_its_own_number_and_gpu_among_those_expected() {
        let mut roster = Roster::new(&hello(0, 2));
        arrives(&mut roster, 0);
        assert_eq!(
            roster.has_place(&hello(1, 3), 1),
            Err(NoPlace::Disagrees(2))
        );
        assert_eq!(roster.has_place(&hello(1, 2), 0), Err(NoPlace::Taken));
        assert_eq!(roster.has_place(&hello(0, 2), 1), Err(NoPlace::Taken));
        assert_eq!(roster.has_place(&hello(0, 2), 0), Ok(()));
        assert_eq!(roster.has_place(&hello(1, 2), 1), Ok(()));
        arrives(&mut roster, 1);
        assert_eq!(roster.has_place(&hello(2, 2), 2), Err(NoPlace::Full(2)));
        assert_eq!(roster.has_place(&hello(1, 2), 1), Ok(()));
    }

    #[test]
    fn a_rank_that_comes_back_is_there_and_counts_on_if_it_is_the_same_process() {
        let mut roster = two();
        roster.tells(0, 7);
        roster.tells(0, 5);
        roster.goes_away(0, Nanos(0));
        let (replaced, has_restarted) = (None, false);
        assert_eq!(
            arrives(&mut roster, 0),
            Arrival {
                replaced,
                has_restarted
            }
        );
        assert_eq!((roster.iteration(), roster.is_whole()), (7, true));
        assert!(!roster.has_lost(PATIENCE, Nanos(99)));
        // Another process begins anew, and takes the session's place.
        let arrival = roster.arrives(0, 0, peer(99), SessionId(9));
        assert_eq!(
            arrival,
            Arrival {
                replaced: Some(SessionId(0)),
                has_restarted: true
            }
        );
        assert_eq!(
            roster.get(0).map(|rank| (rank.pid(), rank.iteration())),
            Some((99, 0))
        );
    }

    #[test]
    fn a_process_that_has_ended_has_no_successor_of_the_same_id() {
        let mut roster = two();
        roster.process_ends(0);
        assert_eq!(roster.get(0).map(Rank::pid), Some(0));
        assert!(arrives(&mut roster, 0).has_restarted);
    }

    #[test]
    fn only_the_ranks_own_connection_can_end_it() {
        let mut roster = two();
        assert!(!roster.disconnects(0, SessionId(1), Nanos(5)));
        assert!(!roster.disconnects(7, SessionId(0), Nanos(5)));
        assert!(roster.disconnects(0, SessionId(0), Nanos(5)));
        assert!(!roster.disconnects(0, SessionId(0), Nanos(6)));
        assert!(!roster.goes_away(7, Nanos(6)));
    }

    #[test]
    fn a_rank_that_does_not_come_back_in_time_is_lost_with_its_gpu() {
        let mut roster = two();
        roster.goes_away(1, Nanos(5));
        assert!(!roster.has_lost(PATIENCE, Nanos(34)));
        assert!(roster.lose(PATIENCE, Nanos(34)).is_empty());
        assert!(roster.has_lost(PATIENCE, Nanos(35)));
        assert_eq!(roster.lose(PATIENCE, Nanos(35)), [1]);
        assert_eq!((roster.len(), roster.position(1)), (1, None));
        assert_eq!((roster.leaves(0), roster.leaves(0)), (Some(0), None));
    }

    #[test]
    fn a_rank_whose_process_does_not_use_its_gpu_speaks_for_it_no_longer() {
        let mut roster = two();
        assert_eq!(roster.evict(1, |peer| peer.pid == 11), None);
        assert_eq!(roster.evict(1, |_| false), Some(SessionId(1)));
        assert_eq!(roster.on(1).map(Rank::pid), Some(0));
        assert_eq!(roster.on(0).map(Rank::pid), Some(10));
        // One that is not connected is not to be disconnected.
        roster.goes_away(0, Nanos(5));
        assert_eq!(roster.evict(0, |_| false), None);
        assert_eq!(roster.on(0).map(Rank::pid), Some(0));
    }

    #[test]
    fn a_group_is_complete_with_the_ranks_that_have_come() {
        let mut roster = Roster::new(&hello(0, 2));
        arrives(&mut roster, 0);
        assert!(!roster.is_alone());
        roster.becomes_part_of(Some("train"));
        assert!(!roster.is_alone() && !roster.is_whole());
        roster.completes();
        assert!(roster.is_alone() && roster.is_whole());
        assert_eq!((roster.part_of(), roster.here()), (Some("train"), 2));
    }
}
