//! Progress of an operation on several devices, in one sentence.

/// The progress of the whole operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The stage of the slowest device.
    pub stage: Stage,
    /// The parts that are done, and why the rest is not, in words.
    pub said: String,
}

/// The stage of all devices together: the slowest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// litd has nothing left to do.
    Done,
    /// A device holds another cap than the one found, and litd no longer tries to restore it.
    Owed,
    /// A cap, clocks or a handle are still under way.
    Pending,
}

/// The reason why one device is not done.
pub(crate) enum Remains {
    Nothing,
    /// A state that litd does not change.
    Others(String),
    /// A cap that is not restored, and will not be for now.
    Owed(String),
    /// An operation that is under way.
    Open(String),
}

impl Remains {
    fn stage(&self) -> Stage {
        match self {
            Self::Nothing | Self::Others(_) => Stage::Done,
            Self::Owed(_) => Stage::Owed,
            Self::Open(_) => Stage::Pending,
        }
    }
}

impl Progress {
    /// The progress, from devices' names and what remains of each; `done` is said of devices of which nothing
    /// remains.
    pub(crate) fn of<'a>(devices: impl Iterator<Item = (&'a str, Remains)>, done: &str) -> Self {
        let (mut finished, mut said, mut stage) = (Vec::new(), Vec::new(), Stage::Done);
        for (name, remains) in devices {
            stage = stage.max(remains.stage());
            match remains {
                Remains::Nothing => finished.push(name),
                Remains::Others(why) | Remains::Owed(why) | Remains::Open(why) => {
                    said.push(format!("{name}: {why}"));
                }
            }
        }
        if !finished.is_empty() {
            said.insert(0, format!("{}: {done}", finished.join(", ")));
        }
        Self {
            stage,
            said: said.join("; "),
        }
    }
}
