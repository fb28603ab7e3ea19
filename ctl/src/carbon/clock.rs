//! The time that carbon commands act by: the wall clock, or a recorded trace played faster.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use super::input;

/// By which clock.
#[derive(Clone, clap::Args)]
pub struct Pace {
    /// Play a recorded trace from this moment on, instead of the wall clock
    #[arg(long, value_name = "TIME", value_parser = input::moment, requires = "trace")]
    from: Option<Timestamp>,
    /// How many times faster than the wall clock, with --from
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

    /// The same clock as if it had been started at another moment: after a restart it goes on from there.
    pub fn since(self, from: Timestamp) -> Self {
        Self {
            began: Instant::now(),
            from: self.from.map(|_| from),
            ..self
        }
    }
}
