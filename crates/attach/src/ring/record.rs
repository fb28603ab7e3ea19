//! One collective of one rank.

use super::RECORD_WORDS;

/// The function of NCCL's that a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    /// A function that this table lacks.
    Other,
    /// `ncclAllReduce`.
    AllReduce,
    /// `ncclAllGather`.
    AllGather,
    /// `ncclReduceScatter`.
    ReduceScatter,
    /// `ncclBroadcast`.
    Broadcast,
    /// `ncclReduce`.
    Reduce,
    /// `ncclAlltoAll`.
    AlltoAll,
    /// `ncclGather`.
    Gather,
    /// `ncclScatter`.
    Scatter,
}

impl Function {
    /// All of them, each in the place of its code.
    const ALL: [Self; 9] = [
        Self::Other,
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AlltoAll,
        Self::Gather,
        Self::Scatter,
    ];

    /// The function that NCCL calls so in its events.
    #[must_use]
    pub fn named(name: &[u8]) -> Self {
        let named = |it: &&Self| it.name().as_bytes() == name;
        Self::ALL.iter().find(named).copied().unwrap_or(Self::Other)
    }

    /// NCCL's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::AllReduce => "AllReduce",
            Self::AllGather => "AllGather",
            Self::ReduceScatter => "ReduceScatter",
            Self::Broadcast => "Broadcast",
            Self::Reduce => "Reduce",
            Self::AlltoAll => "AlltoAll",
            Self::Gather => "Gather",
            Self::Scatter => "Scatter",
        }
    }

    /// The function with this code, which is its place among them all.
    #[must_use]
    pub fn of_code(code: u8) -> Self {
        Self::ALL
            .get(usize::from(code))
            .copied()
            .unwrap_or(Self::Other)
    }
}

/// One collective of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The communicator's hash, the same on all its ranks.
    pub communicator: u64,
    /// The rank in the communicator.
    pub rank: u32,
    /// The communicator's ranks.
    pub ranks: u32,
    /// The nodes that they are on; 65,535 stands for more.
    pub nodes: u16,
    /// The function.
    pub function: Function,
    /// How many collectives of this function the communicator ran before, as NCCL counts.
    pub sequence: u64,
    /// NCCL's count times the size of an element; 0 if that is unknown.
    pub bytes: u64,
    /// When NCCL reported it, in nanoseconds of `CLOCK_MONOTONIC`.
    pub enqueued: u64,
    /// When the first of its channels began on the GPU, in ticks of that GPU's clock; `None` if no kernel was seen.
    pub start: Option<u64>,
    /// When the last of its channels ended.
    pub stop: Option<u64>,
    /// On how many channels NCCL said that it would run; NCCL and RCCL may be wrong about that.
    pub channels: u8,
    /// Channels that began.
    pub started: u8,
    /// Channels that ended.
    pub stopped: u8,
    /// The version of the profiler interface by which the library told of it, 4 to 7.
    pub interface: u8,
}

impl Record {
    /// Whether each channel that NCCL announced has begun and ended. Where NCCL announced none, or RCCL a number that
    /// it had not set, all that began have to have ended.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let ended = self.started > 0 && self.started == self.stopped;
        let announced =
            self.channels == self.stopped || !(1..=MOST_CHANNELS).contains(&self.channels);
        ended && announced && self.start <= self.stop
    }

    /// The words of the record with this number, the last of them a check over all others.
    #[must_use]
    pub fn words(&self, number: u64) -> [u64; RECORD_WORDS] {
        let what = [
            self.function as u8,
            self.interface,
            self.channels,
            self.started,
            self.stopped,
            0,
        ];
        let [low, high] = self.nodes.to_le_bytes();
        let [function, interface, channels, started, stopped, spare] = what;
        let mut words = [
            number,
            self.communicator,
            u64::from(self.rank) | u64::from(self.ranks) << 32,
            u64::from_le_bytes([
                function, interface, channels, started, stopped, spare, low, high,
            ]),
            self.sequence,
            self.bytes,
            self.enqueued,
            self.start.unwrap_or(0),
            self.stop.unwrap_or(0),
            0,
        ];
        words[RECORD_WORDS - 1] = check(&words);
        words
    }

    /// The record that these words are, if it is the one with this number.
    #[must_use]
    pub fn of_words(words: &[u64; RECORD_WORDS], number: u64) -> Option<Self> {
        let &[
            at,
            communicator,
            ranks,
            what,
            sequence,
            bytes,
            enqueued,
            start,
            stop,
            sum,
        ] = words;
        if at != number || sum != check(words) {
            return None;
        }
        let [
            function,
            interface,
            channels,
            started,
            stopped,
            _,
            low,
            high,
        ] = what.to_le_bytes();
        Some(Self {
            communicator,
            rank: ranks as u32,
            ranks: (ranks >> 32) as u32,
            nodes: u16::from_le_bytes([low, high]),
            function: Function::of_code(function),
            sequence,
            bytes,
            enqueued,
            start: (started > 0).then_some(start),
            stop: (stopped > 0).then_some(stop),
            channels,
            started,
            stopped,
            interface,
        })
    }
}

/// More channels than NCCL (64) and RCCL (128) have: what announces more was never set (in RCCL before April 2026).
const MOST_CHANNELS: u8 = 128;

/// A number that depends on each word but the last: words of two records do not add up to it but once in 2^64.
fn check(words: &[u64; RECORD_WORDS]) -> u64 {
    let [rest @ .., _] = words;
    rest.iter().fold(0x6c69_7464_4e43_434c, |sum: u64, word| {
        (sum.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}
