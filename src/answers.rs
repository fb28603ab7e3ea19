//! Bounds on the bytes of answers that wait for clients of the control and metrics sockets to read them. No client
//! can make the daemon keep more by asking for much and reading nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use hyper::StatusCode;
use hyper::body::Body as _;
use litd_core::{Room, Table};

use crate::hub::Shared;
use crate::server::{self, Answer};

/// Shorter answers always have room: all connections together can't have many of them.
const SHORT: usize = 4 * 1024;

/// As litctl expects it ([`litd_api::Problem`]).
const REFUSAL: &str =
    "{\"error\":\"too many long answers wait to be read: read those, or ask again later\"}\n";

/// A client: a user, or the metrics' clients together.
type Client = Option<u32>;

#[derive(Debug)]
struct Rooms {
    all: Room,
    /// Room of each client with waiting answers.
    clients: BTreeMap<Client, Room>,
}

/// The room for all answers, of which one client may have half.
#[derive(Debug, Clone)]
pub struct Answers(Rc<RefCell<Rooms>>);

impl Answers {
    /// The room of [`Table::Answers`].
    #[must_use]
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(Rooms {
            all: Room::new(Table::Answers.bytes()),
            clients: BTreeMap::new(),
        })))
    }

    /// A connection's part, which is free again when it is dropped.
    #[must_use]
    pub fn connection(&self, client: Client) -> Waiting {
        Waiting {
            rooms: self.0.clone(),
            client,
            bytes: RefCell::new(0),
        }
    }
}

/// Answers that one connection has not read yet.
#[derive(Debug)]
pub struct Waiting {
    rooms: Rc<RefCell<Rooms>>,
    client: Client,
    bytes: RefCell<usize>,
}

impl Waiting {
    /// The answer, if there is room for it; if there is none, one that says so.
    pub fn admit(&self, answer: Answer, hub: &Shared) -> Answer {
        let bytes = answer.body().size_hint().lower();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes <= SHORT || self.charge(bytes) {
            return answer;
        }
        hub.borrow_mut().unanswered(self.client, None);
        server::answer(StatusCode::SERVICE_UNAVAILABLE, "application/json", REFUSAL)
    }

    fn charge(&self, bytes: usize) -> bool {
        let mut rooms = self.rooms.borrow_mut();
        let Rooms { all, clients } = &mut *rooms;
        let own = clients
            .entry(self.client)
            .or_insert_with(|| Room::new(all.most() / 2));
        let fits = own.fits(bytes) && all.charge(bytes).is_ok();
        if fits && own.charge(bytes).is_ok() {
            *self.bytes.borrow_mut() += bytes;
        }
        if own.taken() == 0 {
            clients.remove(&self.client);
        }
        fits
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let bytes = self.bytes.take();
        let mut rooms = self.rooms.borrow_mut();
        rooms.all.release(bytes);
        if let Some(own) = rooms.clients.get_mut(&self.client) {
            own.release(bytes);
            if own.taken() == 0 {
                rooms.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_half_and_what_was_read_is_free_again() {
        let answers = Answers::new();
        let half = Table::Answers.bytes() / 2;
        let first = answers.connection(Some(1000));
        assert!(first.charge(half - 1));
        let second = answers.connection(Some(1000));
        assert!(!second.charge(2) && second.charge(1));
        // The other half is for others, and bounded as well.
        let third = answers.connection(None);
        assert!(third.charge(half) && !answers.connection(Some(0)).charge(1));
        drop(first);
        assert!(second.charge(half - 1) && !second.charge(1));
        drop((second, third));
        let rooms = answers.0.borrow();
        assert_eq!((rooms.all.taken(), rooms.clients.len()), (0, 0));
    }
}
