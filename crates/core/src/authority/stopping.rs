//! The end of litd: since when it stops, by when it has to be over, and whether the shell was told that it is.

use litd_units::Nanos;

/// How long restoring caps may take when the daemon stops.
const STOP: Nanos = Nanos(15_000_000_000);

/// Whether litd is about to end. Nothing takes a stop back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stopping {
    /// Litd goes on.
    #[default]
    No,
    /// Caps are being restored since then: readings must be younger before a cap is.
    Since(Nanos),
    /// The shell was told that the stop that began then is over.
    Over(Nanos),
}

impl Stopping {
    /// Litd begins to stop. Returns whether it did not before.
    pub fn begins(&mut self, now: Nanos) -> bool {
        let begins = *self == Self::No;
        if begins {
            *self = Self::Since(now);
        }
        begins
    }

    /// The stop is over. A litd that goes on can't be over.
    pub fn ends(&mut self) {
        if let Self::Since(since) = *self {
            *self = Self::Over(since);
        }
    }

    /// Since when litd stops; `None` while it goes on.
    pub fn since(self) -> Option<Nanos> {
        match self {
            Self::No => None,
            Self::Since(since) | Self::Over(since) => Some(since),
        }
    }

    /// When the daemon ends, whatever is left to do.
    pub fn until(self) -> Option<Nanos> {
        self.since().map(|since| since + STOP)
    }

    /// Whether litd stops and the shell was not told yet that it is over.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Since(_))
    }

    /// Whether the shell was told that the stop is over.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Over(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_begins_once_and_ends_once() {
        let mut stopping = Stopping::default();
        stopping.ends();
        assert_eq!((stopping.since(), stopping.until()), (None, None));
        assert!(!stopping.is_under_way() && !stopping.is_over());
        assert!(stopping.begins(Nanos(5)));
        assert!(!stopping.begins(Nanos(9)));
        assert_eq!(stopping.since(), Some(Nanos(5)));
        assert!(stopping.is_under_way());
        stopping.ends();
        assert!(!stopping.begins(Nanos(10)));
        assert!(stopping.is_over() && !stopping.is_under_way());
        assert_eq!(stopping.until(), Some(Nanos(5) + STOP));
    }
}
