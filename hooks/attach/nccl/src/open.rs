//! Collectives that were handed over and whose kernels have not all ended. NCCL's threads come here at once and out of
//! order; nobody waits.
//!
//! A collective has a ticket, and the slot that is its ticket modulo their number. Whoever changes a slot first pins
//! it, which works only as long as the slot is the ticket's; a new collective takes a slot that nobody has pinned, and
//! tells what is known of the old one. So a late event of an old collective never changes a new one's times.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use litd_attach::ring::{Function, Record};

use crate::communicators::Communicator;
use crate::ring::Ring;

/// Collectives that may be open at a time: a GPU's queue takes some 1,000 kernels, and a process may have several GPUs.
const SLOTS: usize = 4096;
/// Bits of a slot's state that count pins; those above are the ticket.
const PIN_BITS: u32 = 8;
/// Threads that may have pinned a slot at a time.
const MOST_PINS: u64 = (1 << PIN_BITS) - 1;
/// Slots that are tried for a new collective: a thread that was interrupted while it had pinned one keeps that one.
const TRIES: usize = 4;
/// Words of a set of channels: a channel's number has eight bits.
const CHANNEL_WORDS: usize = 4;

/// A collective as it was handed over.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    /// Its communicator.
    pub communicator: Communicator,
    /// Its function.
    pub function: Function,
    /// How many of this function the communicator ran before.
    pub sequence: u64,
    /// Its size; 0 if unknown.
    pub bytes: u64,
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub enqueued: u64,
    /// Channels that NCCL announces.
    pub channels: u8,
}

/// A set of channels. Of two threads that add the last two, at least one sees both, and the times that came with them:
/// hence the order among all its words.
#[derive(Default)]
struct Channels([AtomicU64; CHANNEL_WORDS]);

impl Channels {
    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Adds a channel; whether it is new.
    fn add(&self, channel: u8) -> bool {
        let bit = 1 << (channel % 64);
        let word = self.0.get(usize::from(channel / 64));
        word.is_some_and(|word| word.fetch_or(bit, SeqCst) & bit == 0)
    }

    /// How many there are; 255 stands for all 256.
    fn count(&self) -> u8 {
        let each = self.0.iter().map(|word| word.load(SeqCst).count_ones());
        u8::try_from(each.sum::<u32>()).unwrap_or(u8::MAX)
    }
}

/// A collective, or a place for one.
#[derive(Default)]
struct Slot {
    /// The ticket, and how many have pinned the slot.
    state: AtomicU64,
    /// Whether the collective is to be told of yet.
    untold: AtomicBool,
    hash: AtomicU64,
    ranks: AtomicU64,
    /// Nodes, function, interface and channels announced, from the highest bits down.
    what: AtomicU64,
    sequence: AtomicU64,
    bytes: AtomicU64,
    enqueued: AtomicU64,
    /// The first start and the last stop of its kernels.
    start: AtomicU64,
    stop: AtomicU64,
    started: Channels,
    stopped: Channels,
}

impl Slot {
    fn fill(&self, begun: &Begun) {
        let of = &begun.communicator;
        self.hash.store(of.hash, Relaxed);
        self.ranks
            .store(u64::from(of.rank) | u64::from(of.ranks) << 32, Relaxed);
        let [low, high] = of.nodes.to_le_bytes();
        let what = [
            begun.channels,
            of.interface,
            begun.function as u8,
            0,
            low,
            high,
            0,
            0,
        ];
        self.what.store(u64::from_le_bytes(what), Relaxed);
        self.sequence.store(begun.sequence, Relaxed);
        self.bytes.store(begun.bytes, Relaxed);
        self.enqueued.store(begun.enqueued, Relaxed);
        self.start.store(u64::MAX, Relaxed);
        self.stop.store(0, Relaxed);
        self.started.clear();
        self.stopped.clear();
        self.untold.store(true, Relaxed);
    }

    /// What is known of it.
    fn record(&self) -> Record {
        let ranks = self.ranks.load(Relaxed);
        let what = self.what.load(Relaxed).to_le_bytes();
        let [channels, interface, function, _, low, high, ..] = what;
        let (started, stopped) = (self.started.count(), self.stopped.count());
        Record {
            communicator: self.hash.load(Relaxed),
            rank: ranks as u32,
            ranks: (ranks >> 32) as u32,
            nodes: u16::from_le_bytes([low, high]),
            function: Function::of_code(function),
            sequence: self.sequence.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            enqueued: self.enqueued.load(Relaxed),
            start: (started > 0).then(|| self.start.load(Relaxed)),
            stop: (stopped > 0).then(|| self.stop.load(Relaxed)),
            channels,
            started,
            stopped,
            interface,
        }
    }

    /// Tells of it, unless that was done.
    fn tell(&self, ring: &Ring) {
        if self.untold.swap(false, Relaxed) {
            ring.write(&self.record());
        }
    }

    /// Pins it for whoever has this ticket.
    fn pin(&self, ticket: u64) -> Option<Pin<'_>> {
        let mut state = self.state.load(Relaxed);
        loop {
            let is_its = ticket > 0 && state >> PIN_BITS == ticket;
            if !is_its || state & MOST_PINS == MOST_PINS {
                return None;
            }
            match self
                .state
                .compare_exchange_weak(state, state + 1, AcqRel, Relaxed)
            {
                Ok(_) => return Some(Pin(self)),
                Err(now) => state = now,
            }
        }
    }
}

/// A slot that keeps its collective until this is dropped.
struct Pin<'a>(&'a Slot);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Release);
    }
}

/// The collectives that are open.
pub struct Open {
    last: AtomicU64,
    slots: Box<[Slot]>,
}

impl Open {
    /// None yet.
    pub fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
        }
    }

    fn slot(&self, ticket: u64) -> Option<&Slot> {
        self.slots.get((ticket % SLOTS as u64) as usize)
    }

    /// Takes a collective up; its ticket, from 1 up, or `None` if other threads are at each slot that was tried.
    pub fn begin(&self, begun: &Begun, ring: &Ring) -> Option<u64> {
        (0..TRIES).find_map(|_| self.try_begin(begun, ring))
    }

    fn try_begin(&self, begun: &Begun, ring: &Ring) -> Option<u64> {
        let ticket = self.last.fetch_add(1, Relaxed) + 1;
        let slot = self.slot(ticket)?;
        let state = slot.state.load(Relaxed);
        let is_older = state >> PIN_BITS < ticket && state & MOST_PINS == 0;
        let pinned = ticket << PIN_BITS | 1;
        let swap = |_: ()| {
            slot.state
                .compare_exchange(state, pinned, AcqRel, Relaxed)
                .ok()
        };
        is_older.then_some(()).and_then(swap)?;
        let pin = Pin(slot);
        slot.tell(ring);
        slot.fill(begun);
        drop(pin);
        Some(ticket)
    }

    /// Whether the collective of this ticket is still open, and its kernel has begun on a channel.
    pub fn kernel_begins(&self, ticket: u64, channel: u8, timer: u64) -> bool {
        let Some(pin) = self.slot(ticket).and_then(|slot| slot.pin(ticket)) else {
            return false;
        };
        pin.0.start.fetch_min(timer, Relaxed);
        pin.0.started.add(channel);
        true
    }

    /// The kernel of the collective with this ticket has ended on a channel. With the last channel it is told of.
    pub fn kernel_ends(&self, ticket: u64, channel: u8, timer: u64, ring: &Ring) {
        let Some(pin) = self.slot(ticket).and_then(|slot| slot.pin(ticket)) else {
            return;
        };
        let slot = pin.0;
        if !slot.untold.load(Acquire) {
            return;
        }
        slot.stop.fetch_max(timer, Relaxed);
        let [announced, ..] = slot.what.load(Relaxed).to_le_bytes();
        if slot.stopped.add(channel) && slot.stopped.count() == announced {
            slot.tell(ring);
        }
    }

    /// Tells what is known of the collectives of a communicator that has ended.
    pub fn tell_all(&self, of: &Communicator, ring: &Ring) {
        for slot in &self.slots {
            // Only slots that matter are pinned: other communicators go on.
            let is_its = |slot: &Slot| {
                let record = slot.record();
                slot.untold.load(Relaxed)
                    && (record.communicator, record.rank) == (of.hash, of.rank)
            };
            let ticket = slot.state.load(Acquire) >> PIN_BITS;
            if is_its(slot)
                && let Some(pin) = slot.pin(ticket)
                && is_its(pin.0)
            {
                pin.0.tell(ring);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn begun(sequence: u64, channels: u8) -> Begun {
        let communicator = Communicator {
            interface: 7,
            hash: 1,
            nodes: 1,
            ranks: 2,
            rank: 0,
        };
        Begun {
            communicator,
            function: Function::AllReduce,
            sequence,
            bytes: 8,
            enqueued: 9,
            channels,
        }
    }

    fn ring() -> (Ring, TempDir) {
        let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
        (
            Ring::within(directory.path().as_os_str()).unwrap(),
            directory,
        )
    }

    #[test]
    fn a_late_event_changes_no_other_collective() {
        let (ring, _directory) = ring();
        let open = Open::new();
        assert!(
            !open.kernel_begins(0, 4, 50),
            "the kernel of a transfer, whose parent has no handle"
        );
        let old = open.begin(&begun(0, 2), &ring).unwrap();
        assert!(open.kernel_begins(old, 3, 100));
        // Collectives whose kernels never come take its slot, and what is known of it is told.
        for sequence in 1..=SLOTS as u64 {
            assert!(open.begin(&begun(sequence, 2), &ring).is_some());
        }
        assert_eq!(ring.records().len(), 1);
        assert_eq!(
            (ring.records()[0].sequence, ring.records()[0].start),
            (0, Some(100))
        );
        assert!(!open.kernel_begins(old, 4, 50));
        open.kernel_ends(old, 3, 5000, &ring);
        let new = old + SLOTS as u64;
        for channel in [1, 2] {
            assert!(open.kernel_begins(new, channel, 700));
            open.kernel_ends(new, channel, 800 + u64::from(channel), &ring);
        }
        let told = ring.records()[1];
        assert_eq!((told.start, told.stop), (Some(700), Some(802)));
        assert!(told.is_whole() && !ring.records()[0].is_whole());
    }

    #[test]
    fn a_slot_that_a_thread_keeps_is_passed_over() {
        let (ring, _directory) = ring();
        let open = Open::new();
        let first = open.begin(&begun(0, 1), &ring).unwrap();
        let pins = [0, 1, 2].map(|at| open.slot(first + at).unwrap());
        let kept = pins[0].pin(first).unwrap();
        for sequence in 1..SLOTS as u64 {
            open.begin(&begun(sequence, 1), &ring).unwrap();
        }
        // The next ticket's slot is kept; the one behind it is not.
        assert_eq!(
            open.begin(&begun(5000, 1), &ring),
            Some(first + SLOTS as u64 + 1)
        );
        drop(kept);
        assert!(
            open.kernel_begins(first, 0, 1),
            "its collective is still open"
        );
    }

    #[test]
    fn what_announces_no_channels_is_told_of_when_its_communicator_ends() {
        let (ring, _directory) = ring();
        let open = Open::new();
        for channels in [0, 224] {
            let ticket = open
                .begin(&begun(channels.into(), channels), &ring)
                .unwrap();
            assert!(open.kernel_begins(ticket, 0, 10));
            open.kernel_ends(ticket, 0, 20, &ring);
        }
        assert_eq!(ring.records(), []);
        let other = Communicator {
            rank: 1,
            ..begun(0, 0).communicator
        };
        open.tell_all(&other, &ring);
        assert_eq!(ring.records(), []);
        open.tell_all(&begun(0, 0).communicator, &ring);
        assert_eq!(ring.records().len(), 2);
        assert!(ring.records().iter().all(Record::is_whole));
    }
}
