//! Examining devices on threads of their own. Facts that are known without asking a device's driver, above all its
//! address, are enough to list it; a thread with no other work asks the driver for the rest. A device that does
//! not answer in time is listed as well, and its driver is asked again until it answers: only users of this device
//! wait for it.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use litd_units::{Hertz, Watts};

use crate::discovery::{Inventory, Notice, Severity};
use crate::domain::{CapRange, ClockRange, Handles, Identity, PowerDomain, Reading};
use crate::error::PowerError;
use crate::holder::Holder;
use crate::worker::STACK;

/// The outcome of examining a device, with notices about it.
pub(crate) struct Look {
    pub outcome: Outcome,
    pub notices: Vec<Notice>,
}

/// The outcome.
pub(crate) enum Outcome {
    /// The device can be capped.
    Domain(Box<dyn PowerDomain>),
    /// The device exists, and has no cap of its own; the notices say why.
    NoCap,
    /// The driver does not know it.
    Unknown,
}

/// Asks a device's driver, for as long as that takes.
pub(crate) type Ask = Box<dyn FnMut() -> Look + Send>;

/// A device that exists, as far as can be told without its driver.
pub(crate) struct Candidate {
    /// The part of its identity that is known without its driver.
    pub identity: Identity,
    /// Asks its driver for the rest.
    pub ask: Ask,
}

/// The outcome of a thread's question, and how to ask again.
type Asked = (Ask, Look);

/// Examines all of them at the same time, and adds them in their order. A device that has not answered within
/// `patience` is added with the facts that are known, and its users wait for it.
pub(crate) fn look_at_all(candidates: Vec<Candidate>, patience: Duration, found: &mut Inventory) {
    let deadline = Instant::now() + patience;
    let begin = |Candidate { identity, ask }: Candidate| {
        let asked = begin(ask);
        (identity, asked)
    };
    let looks: Vec<_> = candidates.into_iter().map(begin).collect();
    for (identity, asked) in looks {
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => {
                let text =
                    format!("can't be looked at, because no thread can be started for it: {error}");
                let notice = Notice::new(Severity::Error, identity.address, text);
                found.notices.push(notice.remedy("restart litd"));
                continue;
            }
        };
        let look = match asked.recv_timeout(left) {
            Ok((_, look)) => look,
            Err(RecvTimeoutError::Timeout) => {
                found.notices.push(silent(&identity, patience));
                let state = State::Asked(asked);
                found.domains.push(Box::new(Late { identity, state }));
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let notice = Notice::new(Severity::Error, identity.address, PANICKED);
                found.notices.push(notice.remedy("restart litd"));
                continue;
            }
        };
        found.notices.extend(look.notices);
        match look.outcome {
            Outcome::Domain(domain) => found.domains.push(domain),
            Outcome::NoCap | Outcome::Unknown => {}
        }
    }
}

/// The notice about a device that does not answer.
pub(crate) fn silent(identity: &Identity, patience: Duration) -> Notice {
    let seconds = patience.as_secs_f64();
    let text = format!("its driver has not answered for {seconds:.1} s");
    Notice::new(Severity::Error, &identity.address, text).remedy(
        "it counts with the most that it could hold, and is asked until it answers; `journalctl -k` may say why",
    )
}

const PANICKED: &str = "the thread that asked its driver has ended";

fn begin(mut ask: Ask) -> io::Result<Receiver<Asked>> {
    let (done, asked) = mpsc::channel();
    thread::Builder::new()
        .name("litd-look".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let look = ask();
            // No one waits for the result of a search that was given up.
            let _ = done.send((ask, look));
        })?;
    Ok(asked)
}

/// Runs something that may hang on a thread of its own. `None` where it has not ended in time.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    act: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, outcome) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("litd-list".to_owned())
        .stack_size(STACK);
    thread.spawn(move || done.send(act())).ok()?;
    outcome.recv_timeout(patience).ok()
}

/// A device whose driver did not answer when devices were looked for.
struct Late {
    /// The identity: first as known without its driver, later as the driver tells.
    identity: Identity,
    state: State,
}

enum State {
    /// The driver has answered.
    Known(Box<dyn PowerDomain>),
    /// A thread is asking the driver.
    Asked(Receiver<Asked>),
    /// The device has no cap, by its driver's last answer; the driver is asked again at the next use.
    Asleep(Ask),
    /// The thread that asked has panicked.
    Ended,
}

impl Late {
    /// The device, once its driver has identified it.
    fn known(&mut self) -> Result<&mut dyn PowerDomain, PowerError> {
        if !matches!(self.state, State::Known(_)) {
            self.find_out()?;
        }
        match &mut self.state {
            State::Known(domain) => Ok(domain.as_mut()),
            _ => Err(PowerError::Gone {
                device: self.identity.address.clone(),
                cause: PANICKED.to_owned(),
            }),
        }
    }

    fn find_out(&mut self) -> Result<(), PowerError> {
        let asked = match std::mem::replace(&mut self.state, State::Ended) {
            State::Asked(asked) => asked.recv().ok(),
            State::Asleep(mut ask) => {
                let look = ask();
                Some((ask, look))
            }
            state @ (State::Known(_) | State::Ended) => {
                self.state = state;
                None
            }
        };
        let Some((ask, Look { outcome, notices })) = asked else {
            return Ok(());
        };
        let error = match outcome {
            Outcome::Domain(domain) => {
                self.identity = domain.identity().clone();
                self.state = State::Known(domain);
                return Ok(());
            }
            Outcome::NoCap => PowerError::Unsupported {
                device: self.identity.address.clone(),
                action: "capping it",
                cause: notices.first().map_or_else(
                    || "it has no cap of its own".to_owned(),
                    |it| it.text.clone(),
                ),
            },
            Outcome::Unknown => self.gone("its driver does not know it".to_owned()),
        };
        self.state = State::Asleep(ask);
        Err(error)
    }

    fn gone(&self, cause: String) -> PowerError {
        PowerError::Gone {
            device: self.identity.address.clone(),
            cause,
        }
    }
}

impl PowerDomain for Late {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn identify(&mut self) -> Result<Identity, PowerError> {
        let identity = self.known()?.identify()?;
        self.identity = identity.clone();
        Ok(identity)
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        self.known()?.range()
    }

    fn cap(&mut self) -> Result<Watts, PowerError> {
        self.known()?.cap()
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        self.known()?.set_cap(cap)
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        self.known()?.read()
    }

    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        self.known()?.holders()
    }

    fn highest_clock(&mut self) -> Result<Hertz, PowerError> {
        self.known()?.highest_clock()
    }

    fn lock_clocks(&mut self, range: ClockRange) -> Result<(), PowerError> {
        self.known()?.lock_clocks(range)
    }

    fn unlock_clocks(&mut self) -> Result<(), PowerError> {
        self.known()?.unlock_clocks()
    }

    /// A device that was never opened has no handles.
    fn release(&mut self) -> Handles {
        match &mut self.state {
            State::Known(domain) => domain.release(),
            State::Asked(_) | State::Asleep(_) | State::Ended => Handles::Closed,
        }
    }
}
