//! A test rig's time, for whole daemons that run fast and the same each time.
//!
//! The rig listens on a unix socket and the daemon connects. Both speak lines:
//!
//! ```text
//! rig:    advance NOW_NS FRAMES     NOW_NS: the time from now on; it never goes back
//! rig:    jump NOW_NS FRAMES        the same, and nothing was lived through in between: the node
//!                                   was asleep
//! daemon: idle NOW_NS
//! ```
//!
//! `FRAMES` is how many frames all hooks (the rig's players) together have sent to the ingest socket so far. The
//! daemon waits, at the old time, until it has handled that many and no device has anything left
//! to do; then it steps from deadline to deadline up to `NOW_NS`; then it answers. All that it
//! sent to players is in their sockets by then.
//!
//! The daemon does not begin before the rig's first line: its time begins then, and one that is
//! started late does not step through all the time that it has not lived.
//!
//! A player that leaves shuts down its end for writing and reads up to the end: when that comes,
//! the daemon has handled its leaving. The rig's end of the connection closing stops the daemon.

use std::io;
use std::path::Path;
use std::time::Duration;

use litd_core::Event;
use litd_units::Nanos;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::hub::Shared;
use crate::logging;

/// Real time after which something that the rig announced will not come any more. A device may
/// be made to block for 30 s, and the rig's own patience is 60 s.
const PATIENCE: Duration = Duration::from_secs(50);

/// Deadlines at one and the same moment after which it is the daemon that does not get on.
const MOST_ROUNDS: u32 = 10_000;

/// A line of the rig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// The time from now on.
    pub now: Nanos,
    /// Frames that players have sent so far.
    pub frames: u64,
    /// Whether the deadlines in between are passed over.
    pub jump: bool,
}

impl Advance {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let jump = match words.next()? {
            "advance" => false,
            "jump" => true,
            _ => return None,
        };
        let advance = Self {
            now: Nanos(words.next()?.parse().ok()?),
            frames: words.next()?.parse().ok()?,
            jump,
        };
        words.next().is_none().then_some(advance)
    }
}

/// The connection to a rig.
#[derive(Debug)]
pub struct Rig {
    lines: Lines<BufReader<OwnedReadHalf>>,
    answers: OwnedWriteHalf,
}

impl Rig {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let (reading, answers) = UnixStream::connect(path).await?.into_split();
        Ok(Self {
            lines: BufReader::new(reading).lines(),
            answers,
        })
    }

    /// The rig's next line; `None` when it has hung up.
    ///
    /// # Errors
    /// The connection, or a line of another kind.
    pub async fn next(&mut self) -> io::Result<Option<Advance>> {
        let Some(line) = self.lines.next_line().await? else {
            return Ok(None);
        };
        match Advance::parse(&line) {
            Some(advance) => Ok(Some(advance)),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the rig's clock says {line:?}, not \"advance NOW_NS FRAMES\""),
            )),
        }
    }

    /// Does as the rig says, beginning with its first line, until it hangs up.
    ///
    /// # Errors
    /// The connection breaks, or what the rig announced does not happen.
    pub async fn follow(mut self, first: Advance, hub: Shared) -> io::Result<()> {
        let mut advance = first;
        loop {
            step(advance, &hub).await?;
            let line = format!("idle {}\n", advance.now.0);
            // Lines that were logged until now can be read by then.
            logging::flush();
            self.answers.write_all(line.as_bytes()).await?;
            match self.next().await? {
                Some(next) => advance = next,
                None => return Ok(()),
            }
        }
    }
}

async fn step(Advance { now, frames, jump }: Advance, hub: &Shared) -> io::Result<()> {
    quiet(frames, hub).await?;
    if jump {
        hub.borrow().clock().advance(now);
    }
    let mut rounds = 0;
    loop {
        let (due, clock) = {
            let hub = hub.borrow();
            (hub.deadline(), hub.clock().clone())
        };
        let last = due >= now;
        rounds = if due > clock.now() { 0 } else { rounds + 1 };
        if rounds > MOST_ROUNDS {
            return Err(stuck(format!("still wants to be told of {due}")));
        }
        clock.advance(due.min(now));
        hub.borrow_mut().handle(Event::Time);
        quiet(frames, hub).await?;
        if last {
            return Ok(());
        }
    }
}

/// Waits until so many frames have come and nothing is left to do at this moment.
async fn quiet(frames: u64, hub: &Shared) -> io::Result<()> {
    let progress = hub.borrow().progress();
    while !hub.borrow().is_quiet(frames) {
        if timeout(PATIENCE, progress.notified()).await.is_err() {
            let have = hub.borrow().frames();
            return Err(stuck(format!(
                "has received {have} of {frames} frames, or a device or a player does not answer"
            )));
        }
    }
    Ok(())
}

fn stuck(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the daemon {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rig_speaks_one_kind_of_line() {
        let advance = Advance {
            now: Nanos(1_000_000_000),
            frames: 17,
            jump: false,
        };
        assert_eq!(Advance::parse("advance 1000000000 17"), Some(advance));
        let jump = Advance {
            jump: true,
            ..advance
        };
        assert_eq!(Advance::parse("jump 1000000000 17"), Some(jump));
        for bad in [
            "",
            "advance",
            "advance 1",
            "advance 1 -1",
            "advance x 1",
            "advance 1 1 1",
            "retreat 1 1",
        ] {
            assert_eq!(Advance::parse(bad), None, "{bad}");
        }
    }
}
