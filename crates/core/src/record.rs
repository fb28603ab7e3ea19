//! Events, kept for `litctl events` and handed to the log; and counters.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use litd_api::{Counter, Event, EventKind, Events};
use litd_units::Nanos;

use crate::hooks::party::Party;
use crate::room::{Room, Table};

/// How many events are kept, if they fit the room for them.
const KEPT: usize = 1000;

/// The bytes of an event besides its texts.
const BESIDES: usize = size_of::<Kept>() + 48;

/// The bytes that an event takes.
fn bytes_of(event: &Event) -> usize {
    let texts = [&event.job, &event.device].map(|text| text.as_ref().map_or(0, String::len));
    BESIDES + event.text.len() + texts.iter().sum::<usize>()
}

/// Who has caused an event, as to the room for events.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// Litd itself, a device or an administrator.
    Node,
    /// Clients whose users are not known; all of them share one room.
    Clients,
    /// The processes of a user or of a pod.
    Party(Party),
}

impl Cause {
    /// Whose part of the room it is: that of all parties that may be one user is one.
    fn part(&self) -> Part<'_> {
        match self {
            Self::Node => Part::Node,
            Self::Clients => Part::Clients,
            Self::Party(Party::Unnamed(_)) => Part::Unnamed,
            Self::Party(party) => Part::Of(party),
        }
    }
}

/// Whose part of the room for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Node,
    Clients,
    Of(&'a Party),
    Unnamed,
}

/// An event in the making.
#[derive(Debug, Clone)]
pub struct Note {
    kind: EventKind,
    warning: bool,
    job: Option<String>,
    device: Option<String>,
    /// Nothing: the owner of the job that it is about, or else the node.
    cause: Option<Cause>,
    text: String,
}

impl Note {
    /// An event that is worth knowing.
    pub fn info(kind: EventKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            warning: false,
            job: None,
            device: None,
            cause: None,
            text: text.into(),
        }
    }

    /// An event that a person should look at.
    pub fn warning(kind: EventKind, text: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::info(kind, text)
        }
    }

    /// The event is about this job.
    pub fn job(mut self, name: &str) -> Self {
        self.job = Some(name.to_owned());
        self
    }

    /// The processes of a user or of a pod have caused the event: this one's, if it is known.
    pub fn caused_by(mut self, party: Option<Party>) -> Self {
        self.cause = Some(party.map_or(Cause::Clients, Cause::Party));
        self
    }

    /// An administrator, or litd by its own judgement, has caused the event, although it is about a user's job: such
    /// events and the user's own must not push each other out.
    pub fn by_the_node(mut self) -> Self {
        self.cause = Some(Cause::Node);
        self
    }

    /// The job that the event is about, where it is not told who has caused it.
    pub fn job_of_unknown_owner(&self) -> Option<&str> {
        self.job.as_deref().filter(|_| self.cause.is_none())
    }

    /// The event is about this device.
    pub fn device(mut self, address: &str) -> Self {
        self.device = Some(address.to_owned());
        self
    }
}

/// An event, and who has caused it.
#[derive(Debug)]
struct Kept {
    event: Event,
    cause: Cause,
}

/// The events and the counters.
#[derive(Debug)]
pub struct Record {
    events: VecDeque<Kept>,
    room: Room,
    last: u64,
    /// A moment, and the wall-clock time that it was then, in seconds since 1970.
    clock: (Nanos, f64),
    errors: BTreeMap<(&'static str, String), u64>,
    refused: BTreeMap<&'static str, u64>,
}

impl Record {
    /// An empty record; `now` and `unix_seconds` are the same moment.
    pub fn new(now: Nanos, unix_seconds: f64) -> Self {
        Self {
            events: VecDeque::new(),
            room: Room::new(Table::Events.bytes()),
            last: 0,
            clock: (now, unix_seconds),
            errors: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// The wall clock reads `unix_seconds` at `now`. Earlier events keep their time.
    pub fn set_clock(&mut self, now: Nanos, unix_seconds: f64) {
        self.clock = (now, unix_seconds);
    }

    /// Seconds since 1970.
    pub fn unix_seconds(&self, now: Nanos) -> f64 {
        let (then, unix_seconds) = self.clock;
        unix_seconds + (now - then).as_secs_f64()
    }

    /// Keeps an event, and returns it as it is to be logged.
    pub fn add(&mut self, now: Nanos, note: Note) -> Event {
        self.last += 1;
        let cause = note.cause.unwrap_or(Cause::Node);
        let event = Event {
            seq: self.last,
            unix_seconds: self.unix_seconds(now),
            kind: note.kind,
            warning: note.warning,
            job: note.job,
            device: note.device,
            text: note.text,
        };
        let bytes = bytes_of(&event);
        if bytes > self.room.most() {
            // The event would cost all others their room: it is logged, and counts as lost.
            return event;
        }
        while self.events.len() >= KEPT || self.room.charge(bytes).is_err() {
            self.make_room();
        }
        self.events.push_back(Kept {
            event: event.clone(),
            cause,
        });
        event
    }

    /// Drops an event: the oldest that no user or pod caused; or, where users' and pods' events have more than half of
    /// the room, the oldest of whoever has most of it. So nobody's processes can push out what others did.
    fn make_room(&mut self) {
        let is_full = self.events.len() >= KEPT;
        let size = |kept: &Kept| if is_full { 1 } else { bytes_of(&kept.event) };
        let most = if is_full { KEPT } else { self.room.most() };
        let mut causes: BTreeMap<&Cause, usize> = BTreeMap::new();
        let mut parts: BTreeMap<Part<'_>, usize> = BTreeMap::new();
        let mut taken = 0;
        for kept in self.events.iter().filter(|it| it.cause != Cause::Node) {
            *causes.entry(&kept.cause).or_default() += size(kept);
            *parts.entry(kept.cause.part()).or_default() += size(kept);
            taken += size(kept);
        }
        // Of several events the first is the minimum; litd's own are in no part.
        let rank = |kept: &Kept| {
            let part = parts.get(&kept.cause.part()).copied();
            (Reverse(part), Reverse(causes.get(&kept.cause).copied()))
        };
        let oldest = match taken > most / 2 {
            true => (0..self.events.len()).min_by_key(|&at| self.events.get(at).map(rank)),
            false => self
                .events
                .iter()
                .position(|kept| kept.cause == Cause::Node),
        };
        let dropped = self.events.remove(oldest.unwrap_or(0));
        let bytes = dropped.map_or(0, |kept| bytes_of(&kept.event));
        self.room.release(bytes);
    }

    /// Counts an error of a back end, or of the daemon's own disk and law (`backend` empty).
    pub fn error(&mut self, kind: &'static str, backend: &str) {
        *self.errors.entry((kind, backend.to_owned())).or_default() += 1;
    }

    /// Counts a refusal.
    pub fn refuse(&mut self, reason: &'static str) {
        *self.refused.entry(reason).or_default() += 1;
    }

    /// The events after this one.
    pub fn after(&self, seq: u64) -> Events {
        let events = self.events.iter().map(|kept| &kept.event);
        let events: Vec<Event> = events.filter(|event| event.seq > seq).cloned().collect();
        Events {
            lost: self
                .last
                .saturating_sub(seq)
                .saturating_sub(events.len() as u64),
            events,
            last: self.last,
        }
    }

    /// Errors by kind and back end.
    pub fn errors(&self) -> Vec<Counter> {
        let counter = |((kind, backend), &count): (&(&str, String), &u64)| Counter {
            kind: (*kind).to_owned(),
            backend: backend.clone(),
            count,
        };
        self.errors.iter().map(counter).collect()
    }

    /// Refusals by reason.
    pub fn refusals(&self) -> Vec<Counter> {
        let counter = |(&reason, &count): (&&str, &u64)| Counter {
            kind: reason.to_owned(),
            backend: String::new(),
            count,
        };
        self.refused.iter().map(counter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_user(note: Note, uid: u32) -> Note {
        note.caused_by(Some(Party::User(uid)))
    }

    #[test]
    fn hooks_do_not_wash_away_what_others_did() {
        let mut record = Record::new(Nanos(0), 0.0);
        record.add(Nanos(0), Note::info(EventKind::Command, "budget"));
        for _ in 0..5 * KEPT {
            let note = Note::info(EventKind::Job, "attached");
            record.add(Nanos(0), of_user(note, 7));
        }
        let told = record.after(0);
        assert_eq!(told.events.len(), KEPT);
        assert_eq!(told.events[0].text, "budget");
        assert_eq!(told.lost, (5 * KEPT + 1 - KEPT) as u64);
        assert_eq!(record.after(told.last).lost, 0);
    }

    #[test]
    fn no_user_washes_away_what_another_did() {
        let mut record = Record::new(Nanos(0), 0.0);
        let add = |record: &mut Record, uid: u32, text: &str| {
            record.add(Nanos(0), of_user(Note::info(EventKind::Job, text), uid));
        };
        for _ in 0..3 {
            add(&mut record, 1, "adjusting");
        }
        for round in 0..5 * KEPT {
            add(&mut record, 2 + round as u32 % 2, "attached");
        }
        let told = record.after(0);
        let count = |text: &str| told.events.iter().filter(|it| it.text == text).count();
        assert_eq!((count("adjusting"), count("attached")), (3, KEPT - 3));
    }

    #[test]
    fn long_texts_of_hooks_neither_bloat_the_record_nor_wash_away_what_others_did() {
        let mut record = Record::new(Nanos(0), 0.0);
        for _ in 0..200 {
            record.add(Nanos(0), Note::info(EventKind::Command, "budget"));
        }
        let text = "x".repeat(8 * 1024);
        for _ in 0..KEPT {
            let note = Note::info(EventKind::Job, text.as_str());
            record.add(Nanos(0), of_user(note.job(&text), 7));
        }
        let told = record.after(0);
        let bytes: usize = told.events.iter().map(bytes_of).sum();
        let most = Table::Events.bytes();
        assert!((most / 2..=most).contains(&bytes), "{bytes} bytes");
        assert_eq!(record.room.taken(), bytes);
        assert_eq!(
            told.events.iter().filter(|it| it.text == "budget").count(),
            200
        );
        assert_eq!(told.lost + told.events.len() as u64, told.last);
        // An event that fits nowhere is not kept, and costs no other event its place.
        record.add(Nanos(0), Note::info(EventKind::Job, "x".repeat(most)));
        assert_eq!(record.after(told.last).lost, 1);
    }

    #[test]
    fn an_event_has_the_time_of_the_wall_clock_as_it_was_set_last() {
        let mut record = Record::new(Nanos(0), 100.0);
        let second = |count: i64| Nanos(count * 1_000_000_000);
        let add = |record: &mut Record, at: i64| {
            let note = Note::info(EventKind::Command, "budget");
            record.add(second(at), note).unix_seconds
        };
        assert_eq!(add(&mut record, 5), 105.0);
        record.set_clock(second(10), 7310.0);
        assert_eq!(add(&mut record, 12), 7312.0);
        record.set_clock(second(20), 50.0);
        assert_eq!(add(&mut record, 20), 50.0);
        let kept = record.after(0).events.into_iter();
        let kept: Vec<f64> = kept.map(|event| event.unix_seconds).collect();
        assert_eq!(kept, [105.0, 7312.0, 50.0]);
    }

    #[test]
    fn without_hooks_the_oldest_goes() {
        let mut record = Record::new(Nanos(0), 0.0);
        for _ in 0..KEPT + 5 {
            record.add(Nanos(0), Note::info(EventKind::Command, "budget"));
        }
        assert_eq!(record.after(0).events[0].seq, 6);
    }
}
