//! Places for connections when more connect than are served at a time. A new connection is accepted at once; a
//! connection that has not asked anything yet, or only in part, or does not read its answer, gives way to it: first a
//! connection of the client that has the most of them. So nobody can keep others from being answered by holding
//! connections open, however many.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::rc::Rc;

use tokio::sync::oneshot;

/// Connections of one listener, oldest first.
#[derive(Debug)]
pub struct Seats<C> {
    most: usize,
    taken: Rc<RefCell<Taken<C>>>,
}

#[derive(Debug)]
struct Taken<C> {
    last: u64,
    seats: VecDeque<Seat<C>>,
}

#[derive(Debug)]
struct Seat<C> {
    number: u64,
    client: C,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The request has not come, or not all of it: the connection may be told to leave.
    Silent(oneshot::Sender<()>),
    /// The whole request has come: the connection stays until there is an answer.
    Asking(oneshot::Sender<()>),
    /// The answer is waiting to be read: the connection may be told to leave where no other is silent.
    Answered(oneshot::Sender<()>),
}

/// A connection's seat, which is free again when this is dropped.
#[derive(Debug)]
pub struct Taking<C> {
    number: u64,
    taken: Rc<RefCell<Taken<C>>>,
}

/// How serving a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Completely.
    Served,
    /// The connection had to leave for a newcomer.
    Left,
}

/// Tells a connection that it has to leave.
#[derive(Debug)]
pub struct Leave(oneshot::Receiver<()>);

impl<C: Clone + Ord> Seats<C> {
    /// Seats for so many; clients that come first have as many again.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            taken: Rc::new(RefCell::new(Taken {
                last: 0,
                seats: VecDeque::new(),
            })),
        }
    }

    /// A seat for a newcomer, if anybody silent can leave or there is one. One client's requests under way have
    /// half of all at most, and less where others ask, too, unless the client `comes_first`.
    pub fn take(&self, client: C, comes_first: bool) -> Option<(Taking<C>, Leave)> {
        let mut taken = self.taken.borrow_mut();
        let most = if comes_first {
            2 * self.most
        } else {
            self.most
        };
        let asking = taken.seats.iter().filter(|seat| seat.is_asking());
        let (own, others): (Vec<&C>, Vec<&C>) = asking
            .map(|seat| &seat.client)
            .partition(|&it| *it == client);
        let others: BTreeSet<&C> = others.into_iter().collect();
        // A share is left for a client that has not come yet.
        let share = (self.most / (others.len() + 2)).max(1);
        if !comes_first && own.len() >= share {
            return None;
        }
        if taken.seats.len() >= most && !taken.make_room() {
            return None;
        }
        taken.last += 1;
        let number = taken.last;
        let (cut, leave) = oneshot::channel();
        taken.seats.push_back(Seat {
            number,
            client,
            state: State::Silent(cut),
        });
        let taken = self.taken.clone();
        Some((Taking { number, taken }, Leave(leave)))
    }
}

impl<C> Seat<C> {
    fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent(_))
    }

    fn is_answered(&self) -> bool {
        matches!(self.state, State::Answered(_))
    }
}

impl<C: Clone + Ord> Taken<C> {
    /// Sends away a connection that has asked for nothing, or else one that has been answered.
    fn make_room(&mut self) -> bool {
        self.send_away(Seat::is_silent) || self.send_away(Seat::is_answered)
    }

    /// Sends away the oldest of these connections of the client that has most of them.
    fn send_away(&mut self, may_go: fn(&Seat<C>) -> bool) -> bool {
        let mut idle: BTreeMap<&C, usize> = BTreeMap::new();
        for seat in self.seats.iter().filter(|seat| may_go(seat)) {
            *idle.entry(&seat.client).or_default() += 1;
        }
        let most = idle.into_iter().max_by_key(|&(_, count)| count);
        let Some(client) = most.map(|(client, _)| client.clone()) else {
            return false;
        };
        let leaves = |seat: &Seat<C>| seat.client == client && may_go(seat);
        let Some(place) = self.seats.iter().position(leaves) else {
            return false;
        };
        if let Some(seat) = self.seats.remove(place) {
            let (State::Silent(cut) | State::Asking(cut) | State::Answered(cut)) = seat.state;
            // The connection may have ended by itself meanwhile.
            let _ = cut.send(());
        }
        true
    }
}

impl<C> Taking<C> {
    /// The whole request is here.
    pub fn asks(&self) {
        self.becomes(State::Asking);
    }

    /// The answer is ready for it to read.
    pub fn is_answered(&self) {
        self.becomes(State::Answered);
    }

    fn becomes(&self, state: fn(oneshot::Sender<()>) -> State) {
        let mut taken = self.taken.borrow_mut();
        let own = taken.seats.iter().position(|it| it.number == self.number);
        if let Some(place) = own
            && let Some(mut seat) = taken.seats.remove(place)
        {
            let (State::Silent(cut) | State::Asking(cut) | State::Answered(cut)) = seat.state;
            seat.state = state(cut);
            taken.seats.insert(place, seat);
        }
    }
}

impl<C> Drop for Taking<C> {
    fn drop(&mut self) {
        let mut taken = self.taken.borrow_mut();
        taken.seats.retain(|seat| seat.number != self.number);
    }
}

impl Leave {
    /// Serves until that is done, or the connection has to leave.
    pub async fn or(self, serving: impl Future<Output = ()>) -> Ended {
        let told = async {
            // A connection whose seat is free again is not told to leave any more.
            if self.0.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = serving => Ended::Served,
            () = told => Ended::Left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;
    const ROOT: u32 = 0;

    fn is_cut(leave: &mut Leave) -> bool {
        leave.0.try_recv().is_ok()
    }

    #[test]
    fn whoever_says_nothing_gives_way_and_first_who_has_most() {
        let seats = Seats::new(4);
        let mut alices: Vec<_> = (0..3).map(|_| seats.take(ALICE, false).unwrap()).collect();
        let mut bob = seats.take(BOB, false).unwrap();
        for gone in 0..10 {
            let newcomer = seats.take(BOB, false).unwrap();
            newcomer.0.asks();
            let cut: Vec<bool> = alices.iter_mut().map(|it| is_cut(&mut it.1)).collect();
            // The oldest of the three, once; then the turn is one of the others', or bob's.
            assert_eq!(cut.iter().filter(|&&it| it).count(), usize::from(gone == 0));
            drop(newcomer);
        }
        assert!(!is_cut(&mut bob.1));
    }

    #[test]
    fn whoever_does_not_read_its_answer_gives_way() {
        let seats = Seats::new(4);
        let mut alices: Vec<_> = (0..2).map(|_| seats.take(ALICE, false).unwrap()).collect();
        alices.iter().for_each(|it| it.0.asks());
        assert!(seats.take(ALICE, false).is_none());
        alices.iter().for_each(|it| it.0.is_answered());
        let mut silent: Vec<_> = (0..2).map(|_| seats.take(ALICE, false).unwrap()).collect();
        let bob = seats.take(BOB, false).unwrap();
        bob.0.is_answered();
        // Silent ones go first.
        assert!(is_cut(&mut silent[0].1) && alices.iter_mut().all(|it| !is_cut(&mut it.1)));
        silent[1].0.is_answered();
        let mut carol = seats.take(1002, false).unwrap();
        assert!(is_cut(&mut alices[0].1) && !is_cut(&mut alices[1].1));
        assert!(!is_cut(&mut carol.1) && !is_cut(&mut silent[1].1));
    }

    #[test]
    fn the_more_ask_the_less_one_of_them_has() {
        let seats = Seats::new(12);
        let ask = |client: u32| {
            let mut asking = Vec::new();
            while let Some((seat, _)) = seats.take(client, false) {
                seat.asks();
                asking.push(seat);
            }
            asking
        };
        let (alices, bobs) = (ask(ALICE), ask(BOB));
        let carols = ask(1002);
        assert_eq!((alices.len(), bobs.len(), carols.len()), (6, 4, 2));
    }

    #[test]
    fn requests_under_way_are_not_cut_and_have_half_of_the_seats() {
        let seats = Seats::new(4);
        let mut asking: Vec<_> = (0..2).map(|_| seats.take(ALICE, false).unwrap()).collect();
        asking.iter().for_each(|it| it.0.asks());
        assert!(seats.take(ALICE, false).is_none());
        let more: Vec<_> = (0..2).map(|_| seats.take(BOB, false).unwrap()).collect();
        more.iter().for_each(|it| it.0.asks());
        assert!(seats.take(1002, false).is_none());
        // Root is served all the same.
        let roots: Vec<_> = (0..4).map(|_| seats.take(ROOT, true).unwrap()).collect();
        roots.iter().for_each(|it| it.0.asks());
        assert!(seats.take(ROOT, true).is_none());
        assert!(asking.iter_mut().all(|it| !is_cut(&mut it.1)));
        drop(roots);
        assert!(seats.take(ROOT, true).is_some());
    }
}
