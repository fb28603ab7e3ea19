//! The time that carbon commands act by: the wall clock, or a recorded trace played faster.

use std::fs;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::input;

/// By which clock.
#[derive(Clone, clap::Args)]
pub struct Pace {
    /// Take the time from a recorded trace, beginning at this moment, in place of the wall clock
    #[arg(long, value_name = "TIME", value_parser = input::moment, requires = "trace")]
    from: Option<Timestamp>,
    /// With --from: how many times as fast as the wall clock the trace is played
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = speed, requires = "from")]
    speed: f64,
}

fn speed(text: &str) -> Result<f64, &'static str> {
    let speed = text.parse().ok();
    speed
        .filter(|it| (1e-3..=1e6).contains(it))
        .ok_or("must be a number from 0.001 to 1000000")
}

/// A clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    from: Option<Timestamp>,
    speed: f64,
}

impl Pace {
    pub fn clock(&self) -> Clock {
        Clock {
            began: Instant::now(),
            from: self.from,
            speed: self.speed,
        }
    }
}

impl Clock {
    /// The moment by this clock.
    pub fn now(&self) -> Timestamp {
        let Some(from) = self.from else {
            return Timestamp::now();
        };
        let elapsed = self.began.elapsed().as_secs_f64() * self.speed;
        let elapsed = SignedDuration::try_from_secs_f64(elapsed).unwrap_or(SignedDuration::ZERO);
        from.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// Whether it is the wall clock, and no trace is played.
    pub fn is_wall(&self) -> bool {
        self.from.is_none()
    }

    /// How many times faster than the wall clock it goes.
    pub fn speed(&self) -> f64 {
        match self.from {
            Some(_) => self.speed,
            None => 1.0,
        }
    }

    /// The same clock as if it had been started at another moment: after a restart it goes on from there.
    pub fn since(self, from: Timestamp) -> Self {
        Self {
            began: Instant::now(),
            from: self.from.map(|_| from),
            ..self
        }
    }
}

/// Notices that somebody set the wall clock: it went on by another time than has passed.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    wall: Timestamp,
    passed: Duration,
}

/// Clocks that are slewed differ by less between two looks.
const STEP: SignedDuration = SignedDuration::from_secs(2);

/// How much time has passed since the machine started, the time in which it slept included.
pub fn passed() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

impl Steps {
    pub fn new(wall: Timestamp, passed: Duration) -> Self {
        Self { wall, passed }
    }

    /// By how much the clock was set since the last look.
    pub fn look(&mut self, wall: Timestamp, passed: Duration) -> Option<SignedDuration> {
        let went = wall.duration_since(self.wall);
        let really = passed.saturating_sub(self.passed);
        (self.wall, self.passed) = (wall, passed);
        let step = went.checked_sub(SignedDuration::try_from(really).ok()?)?;
        (step.abs() >= STEP).then_some(step)
    }
}

/// A moment by the wall clock and by the time since the machine started: across a restart of litctl it tells whether
/// somebody set the wall clock meanwhile. After a reboot nothing tells that, and the wall clock is believed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    wall: Timestamp,
    /// The machine's boot.
    boot: String,
    passed_s: f64,
}

impl Mark {
    /// Of now; none where the kernel does not tell which start it is.
    pub fn new(wall: Timestamp) -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self {
            wall,
            boot: boot.trim().to_owned(),
            passed_s: passed().as_secs_f64(),
        })
    }

    /// By how much the clock was set until then.
    pub fn step(&self, until: &Self) -> Option<SignedDuration> {
        let passed = Duration::try_from_secs_f64(self.passed_s).ok()?;
        let later = Duration::try_from_secs_f64(until.passed_s).ok()?;
        let mut steps = Steps::new(self.wall, passed);
        (self.boot == until.boot)
            .then(|| steps.look(until.wall, later))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_noticed_over_a_restart_and_not_over_a_reboot() {
        let mark = |wall: &str, boot: &str, passed_s: f64| Mark {
            wall: litd_carbon::moment(wall).unwrap(),
            boot: boot.to_owned(),
            passed_s,
        };
        let before = mark("2026-11-20T12:00:00Z", "a", 1000.0);
        let same = mark("2026-11-20T13:00:00Z", "a", 4600.0);
        assert_eq!(before.step(&same), None);
        let set = mark("2026-11-20T15:00:00Z", "a", 4600.0);
        assert_eq!(before.step(&set), Some(SignedDuration::from_hours(2)));
        let rebooted = mark("2026-11-20T15:00:00Z", "b", 30.0);
        assert_eq!(before.step(&rebooted), None);
        let now = Mark::new(before.wall).unwrap();
        assert_eq!(now.step(&now), None);
    }

    #[test]
    fn a_clock_that_is_set_is_noticed_and_one_that_is_slewed_is_not() {
        let begin = litd_carbon::moment("2026-11-20T12:00:00Z").unwrap();
        let at = |seconds: i64| begin + SignedDuration::from_secs(seconds);
        let mut steps = Steps::new(begin, Duration::from_secs(50));
        assert_eq!(steps.look(at(10), Duration::from_secs(60)), None);
        // Asleep for an hour, by both clocks.
        assert_eq!(steps.look(at(3610), Duration::from_secs(3660)), None);
        assert_eq!(steps.look(at(3611), Duration::from_secs(3661)), None);
        let day = SignedDuration::from_hours(24);
        let back = steps.look(at(3612) - day, Duration::from_secs(3662));
        assert_eq!(back, Some(-day));
        let forth = steps.look(at(3613), Duration::from_secs(3663));
        assert_eq!(forth, Some(day));
        assert_eq!(steps.look(at(3614), Duration::from_secs(3664)), None);
    }
}
