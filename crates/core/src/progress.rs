//! How far something has come that every one of some devices has a part in, in one sentence.

/// How far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// How far.
    pub stage: Stage,
    /// What was done, and why the rest was not, in words.
    pub said: String,
}

/// How far all devices have come together: the least far of them counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing is left for litd to do.
    Done,
    /// A device holds another cap than the one found, and nobody is at work on that any more.
    Owed,
    /// Something is still on its way: a cap, clocks or a handle.
    Pending,
}

/// What keeps one device from being done.
pub(crate) enum Remains {
    Nothing,
    /// Something that litd does not change.
    Others(String),
    /// A cap that has not gone back, and does not for now.
    Owed(String),
    /// Something that is on its way.
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
    /// From the names of devices and what remains of each; `done` is said of those of which
    /// nothing does.
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
