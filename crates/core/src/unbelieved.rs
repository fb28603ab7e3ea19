//! What a device has told of its cap, and nobody believes yet.

use litd_units::{Nanos, Watts};

/// A cap that was read and that nobody believes yet.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    cap: Watts,
    /// Since when no reading of the device is believed; `None`: nothing was known of it before.
    since: Option<Nanos>,
    /// Whether readings have contradicted each other since then: nobody can judge what it holds.
    is_contradicted: bool,
}

/// What a reading that is unlike all that is known comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Heard {
    /// It is the first of its kind: the device is to be read again.
    Once,
    /// The reading before said the same: it is to be believed.
    Twice,
    /// The reading before said something else that was not believed either.
    Otherwise,
    /// The readings have contradicted each other before, and go on to: the last one said this.
    OtherwiseAgain(Watts),
}

/// Readings of a device that are not believed.
#[derive(Debug, Default)]
pub(crate) struct Unbelieved {
    /// A cap that was read once and is unlike what is known: nothing is written until it has been read again.
    suspect: Option<Suspect>,
    /// A cap that was read last and that its driver's range does not admit: one of the two is wrong.
    impossible: Option<Watts>,
}

impl Unbelieved {
    /// What it told before litd knew anything of it.
    pub fn first(suspect: Option<Watts>, impossible: Option<Watts>) -> Self {
        let suspect = suspect.map(|cap| Suspect {
            cap,
            since: None,
            is_contradicted: false,
        });
        Self {
            suspect,
            impossible,
        }
    }

    /// A cap was read that is not to be believed before it is read again.
    pub fn hears(&mut self, cap: Watts, now: Nanos) -> Heard {
        let before = self.suspect;
        let heard = match before {
            Some(before) if before.cap.is_same_cap(cap) => Heard::Twice,
            Some(before) if before.since.is_some() => match before.is_contradicted {
                true => Heard::OtherwiseAgain(before.cap),
                false => Heard::Otherwise,
            },
            _ => Heard::Once,
        };
        self.suspect = Some(Suspect {
            cap,
            since: before.and_then(|it| it.since).or(Some(now)),
            is_contradicted: heard == Heard::Otherwise
                || before.is_some_and(|it| it.is_contradicted),
        });
        heard
    }

    /// A cap was read; `impossible`, if its driver's range does not admit it.
    pub fn hears_beyond(&mut self, impossible: Option<Watts>) {
        self.impossible = impossible;
    }

    /// What was read last is believed.
    pub fn settle(&mut self) {
        *self = Self::default();
    }

    /// Whether it was read once to hold a cap that is unlike what is known.
    pub fn is_suspect(&self) -> bool {
        self.suspect.is_some()
    }

    /// Since when no reading of it is believed, where one was before.
    pub fn since(&self) -> Option<Nanos> {
        self.suspect?.since
    }

    /// Whether what is read of it contradicts itself: it may hold whatever it can hold.
    pub fn contradicts_itself(&self) -> bool {
        self.suspect.is_some_and(|it| it.is_contradicted)
    }

    /// The cap that was read last, if its driver's range does not admit it.
    pub fn impossible(&self) -> Option<Watts> {
        self.impossible
    }
}
