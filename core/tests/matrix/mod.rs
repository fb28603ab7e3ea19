//! What can go wrong with what, while litd does what, and where that is tested: one table for
//! histories, kills and tests of whole daemons.

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
    /// What goes wrong.
    Subject {
        /// Which device it is.
        Identity "identity",
        /// What its cap may be.
        Range "range",
        /// What it tells of itself, the cap first.
        Reading "reading",
        /// Who holds it.
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
        /// It can't be had, and whoever is asked says so.
        Error "error",
        /// It comes late.
        Slow "slow",
        /// It can't be true.
        Nonsense "nonsense",
        /// It is not there.
        Gone "gone",
        /// It is another device's, daemon's or node's.
        Anothers "another's",
        /// It is no longer what it was.
        Changed "changed",
    }
}

kinds! {
    /// While litd does what.
    Phase {
        /// It starts, and nothing is to be undone.
        Discovery "discovery",
        /// It starts, and a predecessor's caps are to be undone.
        Recovery "recovery",
        /// It moves no cap but to enforce a budget.
        Observe "observe",
        /// It moves caps.
        Steer "steer",
        /// It has just read its configuration anew.
        Reload "reload",
        /// It lets go of a device.
        Drain "drain",
        /// It was told to stop.
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
    /// Nowhere, and why.
    Impossible(&'static str),
}

/// One of all.
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

/// Where a cell is met.
pub const fn place(cell: Cell) -> Where {
    let _ = cell;
    Where::Histories
}
