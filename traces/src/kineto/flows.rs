//! Launches as rocmProfileData's converter tells them: an arrow (a flow) begins within a call of the
//! host, and ends where a GPU starts what that call launched. No number joins the two otherwise.

use std::collections::HashMap;

use crate::gather::{Launch, Thread};

/// So many calls that began before an arrow are looked at: calls lie within each other seldom.
const NESTED: usize = 16;

/// A place and a time: an end of an arrow, or the start of something.
type Spot = (Thread, i64);

/// What arrows, calls and kernels there are.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// Each call's start, and its end.
    calls: Vec<(Spot, i64)>,
    /// Where each arrow begins and ends, by its number.
    from: HashMap<u64, Spot>,
    to: Vec<(u64, Spot)>,
    /// Kernels, each with the number that is given to it.
    kernels: Vec<(Spot, u64)>,
}

impl Flows {
    /// Takes a call of the host that may launch something.
    pub(super) fn call(&mut self, start: Spot, end: i64) {
        self.calls.push((start, end));
    }

    /// Takes one end of an arrow.
    pub(super) fn arrow(&mut self, number: u64, begins: bool, spot: Spot) {
        match begins {
            true => {
                self.from.insert(number, spot);
            }
            false => self.to.push((number, spot)),
        }
    }

    /// Takes a kernel; the number that it has in common with its launch from now on.
    pub(super) fn kernel(&mut self, spot: Spot) -> u64 {
        let number = self.kernels.len() as u64;
        self.kernels.push((spot, number));
        number
    }

    /// The launches of the kernels at which arrows end.
    pub(super) fn launches(mut self) -> Vec<Launch> {
        self.calls.sort_unstable();
        self.kernels.sort_unstable();
        self.to
            .sort_unstable_by_key(|&(number, spot)| (spot, number));
        let mut launches = Vec::new();
        // Several kernels may start at once: each arrow is of the next one.
        let mut rest = self.kernels.iter().peekable();
        for &(number, spot) in &self.to {
            while rest.next_if(|kernel| kernel.0 < spot).is_some() {}
            let Some(&(_, correlation)) = rest.next_if(|kernel| kernel.0 == spot) else {
                continue;
            };
            let call = self.from.get(&number).and_then(|&from| self.call_at(from));
            launches.extend(call.map(|at| Launch {
                rank: None,
                correlation,
                at,
                until: at,
            }));
        }
        launches
    }

    /// When the call began that was running there and then.
    fn call_at(&self, (thread, at): Spot) -> Option<i64> {
        let end = self.calls.partition_point(|call| call.0 <= (thread, at));
        let before = self.calls.get(..end)?.iter().rev().take(NESTED);
        let mut running = before.filter(|call| call.0.0 == thread && call.1 >= at);
        running.next().map(|call| call.0.1)
    }
}
