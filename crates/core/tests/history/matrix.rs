//! The matrix of what can go wrong: what it goes wrong with, how, and while litd does what. A
//! history counts each cell that it meets; the run prints all counts, and fails at the gate's
//! number of histories if a cell that histories can meet was met by none.
//!
//! [`place`] is the one table that says where each cell is met. Cells that only a whole daemon can
//! meet are named by tests of whole daemons, which compare themselves with the same table
//! (`tests/whole/matrix.rs`).

use std::fmt::{self, Write};

use litd_core::Operation;

pub use cells::{CELLS, Cell, Manner, Phase, Subject, Where, place};

#[path = "../matrix/mod.rs"]
mod cells;

/// The possible faults of an operation.
pub const fn subjects(operation: Operation) -> &'static [Subject] {
    match operation {
        Operation::Read => &[Subject::Reading],
        Operation::Set(_) => &[Subject::Set],
        Operation::Identify => &[Subject::Identity, Subject::Range],
        Operation::Range => &[Subject::Range],
        Operation::Holders => &[Subject::Holders],
        Operation::Clocks(_) | Operation::HighestClock => &[Subject::Clocks],
        Operation::Release => &[],
    }
}

/// How often each cell was met: in how many histories.
#[derive(Debug, Clone)]
pub struct Met(Vec<u64>);

impl Default for Met {
    fn default() -> Self {
        Self(vec![0; CELLS])
    }
}

impl Met {
    pub fn mark(&mut self, cell: Cell) {
        if let Some(count) = self.0.get_mut(cell.index()) {
            *count = 1;
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += count;
        }
    }

    pub fn of(&self, cell: Cell) -> u64 {
        self.0.get(cell.index()).copied().unwrap_or_default()
    }

    /// Cells that histories can meet and none has, and those that can't be met and were.
    pub fn wrong(&self) -> Vec<String> {
        let all = Cell::all();
        let wrong = all.filter_map(|cell| match (place(cell), self.of(cell)) {
            (Where::Histories, 0) => Some(format!("{cell} was never met")),
            (Where::Impossible(why), count) if count > 0 => Some(format!(
                "{cell} is said to be impossible ({why}), and was met {count} times"
            )),
            _ => None,
        });
        wrong.collect()
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "how often each cell was met (W: by whole daemons, K: by kills, ~: by chance, -: impossible):"
        )?;
        for subject in Subject::ALL {
            write!(f, "{:14}", subject.name())?;
            for phase in Phase::ALL {
                write!(f, "{:>10}", phase.name())?;
            }
            writeln!(f)?;
            for manner in Manner::ALL {
                write!(f, "  {:12}", manner.name())?;
                for phase in Phase::ALL {
                    let cell = Cell {
                        subject,
                        manner,
                        phase,
                    };
                    let mut text = match (place(cell), self.of(cell)) {
                        (Where::Impossible(_), 0) => "-".to_owned(),
                        (Where::Whole, 0) => "W".to_owned(),
                        (Where::Kills, 0) => "K".to_owned(),
                        (Where::Chance(_), 0) => "~".to_owned(),
                        (_, count) => count.to_string(),
                    };
                    if matches!(place(cell), Where::Impossible(_)) && text != "-" {
                        text.write_char('!')?;
                    }
                    write!(f, "{text:>10}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[test]
fn every_cell_has_its_own_place() {
    let indices: std::collections::BTreeSet<usize> = Cell::all().map(Cell::index).collect();
    assert_eq!(indices.len(), CELLS);
    assert_eq!(indices.last(), Some(&(CELLS - 1)));
    let unsaid =
        Cell::all().filter(|&cell| matches!(place(cell), Where::Impossible(why) | Where::Chance(why) if why.len() < 20));
    assert_eq!(
        unsaid.map(|cell| cell.to_string()).collect::<Vec<_>>(),
        [""; 0]
    );
}
