//! How far something has come that every one of some devices has a part in, in one sentence.

/// How far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Whether anything is still on its way: a cap, clocks or a handle.
    pub pending: bool,
    /// What was done, and why the rest was not, in words.
    pub said: String,
}

/// What keeps one device from being done.
pub(crate) enum Remains {
    Nothing,
    /// Something that litd does not change.
    Others(String),
    /// Something that is on its way.
    Open(String),
}

impl Progress {
    /// From the names of devices and what remains of each; `done` is said of those of which
    /// nothing does.
    pub(crate) fn of<'a>(devices: impl Iterator<Item = (&'a str, Remains)>, done: &str) -> Self {
        let (mut finished, mut said, mut pending) = (Vec::new(), Vec::new(), false);
        for (name, remains) in devices {
            pending |= matches!(remains, Remains::Open(_));
            match remains {
                Remains::Nothing => finished.push(name),
                Remains::Others(why) | Remains::Open(why) => said.push(format!("{name}: {why}")),
            }
        }
        if !finished.is_empty() {
            said.insert(0, format!("{}: {done}", finished.join(", ")));
        }
        Self {
            pending,
            said: said.join("; "),
        }
    }
}
