//! Whether anything was heard of a job of late.

use litd_units::Nanos;

/// Whether anything was heard of a job of late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Hearing {
    /// Something was heard, last at that time.
    Fresh(Nanos),
    /// Nothing was heard for too long, and no frame has come since.
    Stale,
}

impl Hearing {
    /// A frame has come. Returns whether the job was stale.
    pub fn hears(&mut self, now: Nanos) -> bool {
        std::mem::replace(self, Self::Fresh(now)) == Self::Stale
    }

    /// A rank has come: the job has time for a frame. A stale job is stale until a frame comes.
    pub fn waits(&mut self, now: Nanos) {
        if let Self::Fresh(last) = self {
            *last = now;
        }
    }

    /// Whether the job becomes stale now, because nothing was heard for so long. It does once.
    pub fn grows_stale(&mut self, patience: Nanos, now: Nanos) -> bool {
        let grows = matches!(self, Self::Fresh(last) if now >= *last + patience);
        if grows {
            *self = Self::Stale;
        }
        grows
    }

    /// Whether nothing was heard for too long.
    pub fn is_stale(self) -> bool {
        self == Self::Stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Nanos = Nanos(30);

    #[test]
    fn a_job_grows_stale_once_and_until_a_frame_comes() {
        let mut hearing = Hearing::Fresh(Nanos(0));
        assert!(!hearing.grows_stale(PATIENCE, Nanos(29)));
        assert!(hearing.grows_stale(PATIENCE, Nanos(30)) && hearing.is_stale());
        assert!(!hearing.grows_stale(PATIENCE, Nanos(99)));
        // A rank that comes back is no frame.
        hearing.waits(Nanos(99));
        assert!(hearing.is_stale());
        assert!(hearing.hears(Nanos(100)) && !hearing.is_stale());
        assert!(!hearing.hears(Nanos(101)));
    }

    #[test]
    fn frames_and_ranks_that_come_give_it_time() {
        let mut hearing = Hearing::Fresh(Nanos(0));
        hearing.hears(Nanos(20));
        assert!(!hearing.grows_stale(PATIENCE, Nanos(49)));
        hearing.waits(Nanos(40));
        assert!(!hearing.grows_stale(PATIENCE, Nanos(69)));
        assert!(hearing.grows_stale(PATIENCE, Nanos(70)));
    }
}
