//! The unit of a GPU's clock.

use litd_units::Nanos;

use super::Record;

/// The time in which a GPU's clock counts on by one. The interface does not tell: NVIDIA's `globaltimer` counts
/// nanoseconds, AMD's `wall_clock64` (which RCCL gives in its place) periods of 100 MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// A nanosecond.
    Nanosecond,
    /// Ten nanoseconds.
    TenNanoseconds,
}

impl Tick {
    /// Less than this between two collectives tells nothing: a process hands over that much ahead of its GPU.
    const LEAST: u64 = 1_000_000_000;

    /// The unit by which these collectives of one rank lie as far apart on its GPU as on its host, within a factor of
    /// two; `None` if they are less than a second apart, or neither unit does it.
    #[must_use]
    pub fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Self> {
        let mut timed = records.filter_map(|it| Some((it.enqueued, it.start?)));
        let first = timed.next()?;
        let last = timed.last()?;
        let host = last.0.checked_sub(first.0)?;
        let device = last.1.checked_sub(first.1)?;
        if host < Self::LEAST {
            return None;
        }
        let within = |ticks: u64| (host / 2..=host.saturating_mul(2)).contains(&ticks);
        [Self::Nanosecond, Self::TenNanoseconds]
            .into_iter()
            .find(|unit| within(device.saturating_mul(unit.nanos())))
    }

    const fn nanos(self) -> u64 {
        match self {
            Self::Nanosecond => 1,
            Self::TenNanoseconds => 10,
        }
    }

    /// So many ticks; `None` if that is no time that litd can have.
    #[must_use]
    pub fn times(self, ticks: u64) -> Option<Nanos> {
        let nanos = ticks.checked_mul(self.nanos())?;
        i64::try_from(nanos).ok().map(Nanos)
    }
}
