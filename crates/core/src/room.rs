//! Bounds on the bytes of tables that others fill: hooks, clients of the sockets, files.
//!
//! Each such table has one bound for the whole daemon. Tables that ranks fill are divided by the node's GPUs, and
//! a job has the parts of the GPUs that its ranks compute on: a GPU has one rank only, so no user can take another's
//! part, whatever he sends. docs/records.md lists all tables.

/// A table that others fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Frames that have come in part.
    Frames,
    /// Kernels of iterations that not all ranks have sent yet.
    Samples,
    /// Names of kernels.
    Names,
    /// Events that are kept for `litctl events`.
    Events,
    /// Answers that a client of a socket has not read yet.
    Answers,
    /// Data that the kernel keeps of closed connections until their peers read it.
    Unread,
}

const MIB: usize = 1 << 20;

impl Table {
    /// All tables.
    pub const ALL: [Self; 6] = [
        Self::Frames,
        Self::Samples,
        Self::Names,
        Self::Events,
        Self::Answers,
        Self::Unread,
    ];

    /// The most bytes that the table may take. The sum of all tables, and the rest of the daemon, stays below the
    /// unit's MemoryMax=.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Frames => 32 * MIB,
            Self::Samples => 24 * MIB,
            Self::Names => 8 * MIB,
            Self::Events => MIB,
            Self::Answers => 4 * MIB,
            Self::Unread => 3 * MIB,
        }
    }

    /// The part of each GPU, of so many.
    #[must_use]
    pub fn of_a_gpu(self, gpus: usize) -> usize {
        self.bytes() / gpus.max(1)
    }
}

/// There is no room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// The bytes that there is room for in all.
    pub most: usize,
}

/// Room for so many bytes, and how many of them are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    most: usize,
    taken: usize,
}

impl Room {
    /// Empty room for so many bytes.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, taken: 0 }
    }

    /// The bytes that there is room for in all.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// The bytes that are taken.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// Changes the room to so many bytes. Bytes that are taken beyond that stay taken.
    pub fn resize(&mut self, most: usize) {
        self.most = most;
    }

    /// Whether so many more would fit.
    #[must_use]
    pub const fn fits(&self, bytes: usize) -> bool {
        self.taken.saturating_add(bytes) <= self.most
    }

    /// Takes so many bytes, until [`Room::release`].
    ///
    /// # Errors
    /// They don't fit; nothing is taken then.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Full> {
        if !self.fits(bytes) {
            return Err(Full { most: self.most });
        }
        self.taken += bytes;
        Ok(())
    }

    /// Releases so many bytes.
    pub fn release(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon's memory without these tables: its own pages, the drivers' libraries and, for a moment, the
    /// handling of one frame.
    const BESIDES: usize = 56 * MIB;

    #[test]
    fn all_tables_together_fit_the_units_memory() {
        let unit = include_str!("../../../systemd/litd.service");
        let line = unit.lines().find_map(|it| it.strip_prefix("MemoryMax="));
        let mebibytes = line.unwrap().strip_suffix('M').unwrap();
        let most = mebibytes.parse::<usize>().unwrap() * MIB;
        let tables: usize = Table::ALL.iter().map(|table| table.bytes()).sum();
        assert!(tables + BESIDES <= most, "{tables} bytes of tables");
    }

    #[test]
    fn what_does_not_fit_is_not_taken() {
        let mut room = Room::new(10);
        assert_eq!(room.charge(7), Ok(()));
        assert_eq!(room.charge(4), Err(Full { most: 10 }));
        assert_eq!(room.charge(usize::MAX), Err(Full { most: 10 }));
        assert_eq!(room.charge(3), Ok(()));
        room.release(8);
        assert_eq!((room.taken(), room.fits(8), room.fits(9)), (2, true, false));
        room.resize(1);
        assert_eq!(room.charge(0), Err(Full { most: 1 }));
        room.release(usize::MAX);
        assert_eq!(room.charge(1), Ok(()));
    }
}
