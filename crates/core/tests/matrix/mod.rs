//! Faults by subject, manner and phase, and where each is tested: one table for histories, kills and tests of
//! whole daemons.

use std::fmt;

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$one:meta])* $kind:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$one])* $kind,)* }

        impl $name {
            pub const ALL: [Self; [$($text,)*].len()] = [$(Self::$kind,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $text,)* }
            }
        }
    };
}

kinds! {
    /// The subject of a fault.
    Subject {
        /// The device's identity.
        Identity "identity",
        /// The range of its cap.
        Range "range",
        /// Its readings, above all the cap.
        Reading "reading",
        /// Its holders.
        Holders "holders",
        /// A cap that is written: the look before, the write, the look after.
        Set "set",
        /// Clocks that are locked or freed.
        Clocks "clocks",
        /// The undo journal.
        Journal "journal",
        /// The lock that keeps a second daemon away.
        Lock "lock",
        /// The configuration.
        Configuration "configuration",
    }
}

kinds! {
    /// How it does.
    Manner {
        /// An error is returned.
        Error "error",
        /// The answer comes late.
        Slow "slow",
        /// The answer is impossible.
        Nonsense "nonsense",
        /// The subject is missing.
        Gone "gone",
        /// The answer is another device's, daemon's or node's.
        Anothers "another's",
        /// The subject has changed.
        Changed "changed",
    }
}

kinds! {
    /// While litd does what.
    Phase {
        /// litd starts, with nothing to undo.
        Discovery "discovery",
        /// litd starts, with a predecessor's caps to undo.
        Recovery "recovery",
        /// litd moves no cap except to enforce a budget.
        Observe "observe",
        /// litd moves caps.
        Steer "steer",
        /// litd has just reloaded its configuration.
        Reload "reload",
        /// litd releases a device.
        Drain "drain",
        /// litd was told to stop.
        Stop "stop",
        /// `litd restore` runs instead of a daemon.
        Restore "restore",
    }
}

/// Where a cell is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In simulated histories of the core.
    Histories,
    /// Where daemons are killed.
    Kills,
    /// In a test of a whole daemon that names the cell.
    Whole,
    /// By histories, too seldom for a run to count on it, and why.
    Chance(&'static str),
    /// Nowhere, and why.
    Impossible(&'static str),
}

/// A combination of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub subject: Subject,
    pub manner: Manner,
    pub phase: Phase,
}

/// So many there are.
pub const CELLS: usize = Subject::ALL.len() * Manner::ALL.len() * Phase::ALL.len();

impl Cell {
    pub fn all() -> impl Iterator<Item = Self> {
        Subject::ALL.into_iter().flat_map(|subject| {
            Manner::ALL.into_iter().flat_map(move |manner| {
                Phase::ALL.into_iter().map(move |phase| Self {
                    subject,
                    manner,
                    phase,
                })
            })
        })
    }

    pub const fn index(self) -> usize {
        let row = self.subject as usize * Manner::ALL.len() + self.manner as usize;
        row * Phase::ALL.len() + self.phase as usize
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            subject,
            manner,
            phase,
        } = self;
        write!(
            f,
            "{} x {} x {}",
            subject.name(),
            manner.name(),
            phase.name()
        )
    }
}

/// Where a cell is met; the one table of them all.
pub fn place(cell: Cell) -> Where {
    let Cell {
        subject,
        manner,
        phase,
    } = cell;
    let starts = matches!(phase, Phase::Discovery | Phase::Recovery | Phase::Restore);
    match subject {
        Subject::Identity => identity(manner, phase, starts),
        Subject::Range | Subject::Reading if phase == Phase::Discovery => found(manner),
        Subject::Range if (manner, phase) == (Manner::Changed, Phase::Drain) => Where::Chance(
            "a driver is asked for the range of what is let go of only if that is reset meanwhile",
        ),
        Subject::Range | Subject::Reading => Where::Histories,
        Subject::Holders => holders(phase),
        Subject::Set => set(manner, phase),
        Subject::Clocks => clocks(manner, phase),
        Subject::Journal => journal(manner, phase, starts),
        Subject::Lock => lock(manner, phase, starts),
        Subject::Configuration if phase == Phase::Stop && manner != Manner::Slow => Where::Chance(
            "litd has mostly stopped, within milliseconds, before anybody reloads its configuration",
        ),
        Subject::Configuration => configuration(manner, starts),
    }
}

const NOTHING_KNOWN: &str =
    "what devices tell first is compared with nothing: nothing was known before";

fn found(manner: Manner) -> Where {
    match manner {
        Manner::Changed => Where::Impossible(NOTHING_KNOWN),
        _ => Where::Histories,
    }
}

fn identity(manner: Manner, phase: Phase, starts: bool) -> Where {
    const BUS: &str = "at the start the address comes from the bus: a driver's word makes no other \
                       device of one that is listed, and of two with one address the core gets one";
    const LATE: &str = "a device that is listed late is not listed at the start: identity x gone";
    // Of a device with an entry in the journal that can't be judged the driver is asked again.
    let asked_again = matches!(phase, Phase::Recovery | Phase::Restore);
    match manner {
        Manner::Nonsense | Manner::Anothers if starts && !asked_again => Where::Impossible(BUS),
        Manner::Slow if starts && !asked_again => Where::Impossible(LATE),
        _ => Where::Histories,
    }
}

fn holders(phase: Phase) -> Where {
    const NOBODY: &str = "`litd restore` has no socket: nobody connects, and nobody is asked for";
    const BEFORE: &str = "no hook is let in before the devices are known; then it is another phase";
    match phase {
        Phase::Restore => Where::Impossible(NOBODY),
        Phase::Discovery => Where::Impossible(BEFORE),
        _ => Where::Histories,
    }
}

fn set(manner: Manner, phase: Phase) -> Where {
    const READS: &str = "discovery only reads";
    const ONE: &str = "a back end writes to the file or the handle of one address; what turns up at \
                       another device is there a foreign hand: set x changed";
    match (manner, phase) {
        (_, Phase::Discovery) => Where::Impossible(READS),
        (Manner::Anothers, _) => Where::Impossible(ONE),
        _ => Where::Histories,
    }
}

fn clocks(manner: Manner, phase: Phase) -> Where {
    const NO_LOCKS: &str =
        "nothing is locked, and so nothing freed, by a litd that has just started";
    const ONE: &str =
        "a back end locks the clocks of one address, and no driver tells what they are";
    match (manner, phase) {
        (_, Phase::Discovery) => Where::Impossible(NO_LOCKS),
        (Manner::Anothers, _) => Where::Impossible(ONE),
        (Manner::Slow, Phase::Recovery) => Where::Chance(
            "a predecessor's clocks are freed once its writes have landed, when recovery is mostly over",
        ),
        (Manner::Slow, Phase::Restore) => Where::Chance(
            "few are killed with clocks locked and restored, and what is slow then is their caps as well",
        ),
        _ => Where::Histories,
    }
}

fn journal(manner: Manner, phase: Phase, starts: bool) -> Where {
    const ONCE: &str = "the journal is read once, at the start: what is done to its file afterwards \
                        shows at the next start, which is another phase";
    const SLOW: &str = "the core waits for its disk: while it does nothing else happens to it, and the \
                        watchdog of the whole daemon counts";
    const NONE: &str = "without a journal nothing is known to be undone: it is a discovery";
    match (manner, phase) {
        (Manner::Slow, _) => Where::Impossible(SLOW),
        (Manner::Error, _) => Where::Histories,
        (_, _) if !starts => Where::Impossible(ONCE),
        (Manner::Gone, Phase::Recovery) => Where::Impossible(NONE),
        (Manner::Anothers, Phase::Discovery) => Where::Impossible(NONE),
        _ => Where::Histories,
    }
}

fn lock(manner: Manner, phase: Phase, starts: bool) -> Where {
    const HELD: &str = "it is taken once, at the start, and held by an open file until litd ends: \
                        nobody asks for it in between";
    const NO_WAIT: &str = "whoever asks for it is answered at once: it is had or it is not";
    match manner {
        _ if !starts => Where::Impossible(HELD),
        Manner::Slow => Where::Impossible(NO_WAIT),
        // The answer of a dead daemon.
        Manner::Anothers if matches!(phase, Phase::Recovery) => Where::Kills,
        _ => Where::Whole,
    }
}

fn configuration(manner: Manner, starts: bool) -> Where {
    const READ: &str = "the file is read before litd says that it starts or reloads: how long that takes \
                        is nobody's wait but its own";
    match manner {
        Manner::Slow => Where::Impossible(READ),
        Manner::Changed => Where::Histories,
        _ if starts => Where::Whole,
        _ => Where::Histories,
    }
}
