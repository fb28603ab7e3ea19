//! The daemon's clock: monotonic time, which stops while the node sleeps, or a test rig's.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use litd_units::Nanos;
use nix::time::{ClockId, clock_gettime};

/// Wall-clock time at the rig's time 0: a rig's runs are the same at any hour.
const RIG_EPOCH: f64 = 1_750_000_000.0;

/// Where the daemon's time comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The kernel's `CLOCK_MONOTONIC`. It stops in suspend, as devices and jobs do, so that suspend makes nothing
    /// late.
    Kernel,
    /// A rig's, which stands still between its messages (`rig`).
    Rig(Rc<Cell<Nanos>>),
}

impl Clock {
    /// A rig's clock that shows `now`.
    #[must_use]
    pub fn rig(now: Nanos) -> Self {
        Self::Rig(Rc::new(Cell::new(now)))
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Nanos {
        match self {
            Self::Kernel => boot_time(),
            Self::Rig(now) => now.get(),
        }
    }

    /// Wall-clock time now, in seconds since 1970.
    #[must_use]
    pub fn unix_seconds(&self) -> f64 {
        match self {
            Self::Kernel => since_1970().as_secs_f64(),
            Self::Rig(now) => RIG_EPOCH + now.get().as_secs_f64(),
        }
    }

    /// Whether time passes by itself.
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self, Self::Kernel)
    }

    /// Sets a rig's clock; never back. The kernel's can't be set.
    pub fn advance(&self, to: Nanos) {
        if let Self::Rig(now) = self {
            now.set(now.get().max(to));
        }
    }
}

/// Now, by the kernel's wall clock.
#[must_use]
pub fn since_1970() -> Nanos {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |it| it.as_nanos());
    Nanos(i64::try_from(nanos).unwrap_or(i64::MAX / 2))
}

fn boot_time() -> Nanos {
    // Every kernel that has cgroup v2 has this clock; without it time would stand still, and the
    // watchdog would notice.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Nanos::ZERO, |time| {
        Nanos(
            time.tv_sec()
                .saturating_mul(1_000_000_000)
                .saturating_add(time.tv_nsec()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_clock_goes_on() {
        let clock = Clock::Kernel;
        let before = clock.now();
        assert!(before > Nanos::ZERO);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(clock.now() >= before + Nanos(2_000_000));
    }

    #[test]
    fn a_rigs_clock_is_set_and_never_goes_back() {
        let clock = Clock::rig(Nanos(5));
        clock.advance(Nanos(9));
        clock.advance(Nanos(7));
        assert_eq!(clock.now(), Nanos(9));
        assert!(clock.unix_seconds() >= RIG_EPOCH);
    }
}
