//! The referee: every change of a cap, in order, and the rules checked on what the hardware
//! holds after each. It believes nothing that litd says.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use litd_units::{Nanos, Watts};

use crate::rules::{Allowance, Bounds, Microwatts, Sums, Violation, microwatts, watts};
use crate::{lock, rules};

/// The author of a change of a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The process at the other end of the node's socket.
    Litd,
    /// Another writer on the node, past litd.
    Foreign,
    /// The driver, by a reset of the device.
    Reset,
}

/// A request to change a cap, or a change without a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Counted from 1 over the whole node.
    pub sequence: u64,
    /// When, on the ledger's clock.
    pub at: Nanos,
    /// The device's number: GPUs first, then CPU sockets.
    pub device: usize,
    /// The author.
    pub author: Author,
    /// The cap asked for.
    pub asked: Watts,
    /// The cap held before.
    pub before: Watts,
    /// The cap held after; as before where the device refused, or lied.
    pub after: Watts,
    /// Whether the device reported success.
    pub accepted: bool,
}

/// A change as the hardware reports it.
pub(crate) struct Change<'a> {
    pub device: usize,
    pub author: Author,
    pub asked: Watts,
    pub accepted: bool,
    /// The caps of all devices afterwards.
    pub held: &'a [Watts],
}

/// The ledger of one node. Clones are the same ledger.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Mutex<Book>>);

/// Where a ledger's times come from.
#[derive(Debug)]
enum Time {
    /// The kernel's monotonic clock, since the ledger was opened.
    Own(Instant),
    /// Time is set through [`Ledger::set_time`].
    Driven(Nanos),
}

#[derive(Debug)]
struct Book {
    time: Time,
    gpus: usize,
    found: Vec<Watts>,
    held: Vec<Watts>,
    /// The author of each device's last change; `None`: the device has the cap that was found.
    author: Vec<Option<Author>>,
    bounds: Vec<Bounds>,
    budget: Microwatts,
    lowering: Option<Lowering>,
    found_permitted: bool,
    slosh: bool,
    /// The sum is above the budget by somebody else's doing, or was reported already: only what
    /// makes it worse is news.
    excused: bool,
    entries: Vec<Entry>,
    violations: Vec<Violation>,
}

/// A lower budget that does not count yet.
#[derive(Debug)]
struct Lowering {
    budget: Microwatts,
    due: Nanos,
}

impl Ledger {
    /// Opens a ledger over devices that hold `found`, the first `gpus` of which are GPUs. Caps
    /// may be anything within `bounds`; the budget is the sum of the GPU caps found.
    pub(crate) fn open(gpus: usize, found: Vec<Watts>, bounds: Vec<Bounds>) -> Self {
        let budget = Sums::of(gpus, &found).gpus;
        Self(Arc::new(Mutex::new(Book {
            time: Time::Own(Instant::now()),
            gpus,
            held: found.clone(),
            author: vec![None; found.len()],
            bounds,
            budget,
            lowering: None,
            found_permitted: false,
            slosh: false,
            excused: false,
            entries: Vec::new(),
            violations: Vec::new(),
            found,
        })))
    }

    /// Narrows what one device's cap may be, as the administrator did for litd. Judged from the
    /// next write on; the cap found at start may always be put back.
    pub fn limit(&self, device: usize, floor: Watts, ceiling: Watts) {
        if let Some(bounds) = lock(&self.0).bounds.get_mut(device) {
            *bounds = Bounds { floor, ceiling };
        }
    }

    /// Sets what all GPU caps may add up to, from now on. Where the caps held add up to more
    /// than that, they only may not add up to still more: see [`Ledger::lower_budget`].
    pub fn set_budget(&self, budget: Watts) {
        let mut book = lock(&self.0);
        book.judge_deadline();
        book.lowering = None;
        book.budget = microwatts(budget);
        book.excused = book.broken().is_some();
    }

    /// Lowers what all GPU caps may add up to; the old budget counts until `within` from now.
    /// Whatever is above the new one then is a violation, whether anything was written or not.
    pub fn lower_budget(&self, budget: Watts, within: Duration) {
        let mut book = lock(&self.0);
        book.judge_deadline();
        let within = i64::try_from(within.as_nanos()).unwrap_or(i64::MAX);
        book.lowering = Some(Lowering {
            budget: microwatts(budget),
            due: book.now() + Nanos(within),
        });
    }

    /// From now on the caps found at start may be put back even if they add up to more than the
    /// budget: to be said before litd is told to stop under a budget that is lower than they.
    pub fn permit_found(&self) {
        lock(&self.0).found_permitted = true;
    }

    /// From now on GPU caps may add up to more than the budget by as much as CPU sockets are
    /// below the limits found: the policy cpu-slosh.
    pub fn permit_slosh(&self) {
        lock(&self.0).slosh = true;
    }

    /// From now on the ledger's time is what is told here, and never goes back. Deadlines that
    /// have passed are judged.
    pub fn set_time(&self, now: Nanos) {
        let mut book = lock(&self.0);
        let before = match book.time {
            Time::Own(_) => Nanos(i64::MIN),
            Time::Driven(before) => before,
        };
        book.time = Time::Driven(now.max(before));
        book.judge_deadline();
    }

    /// The ledger's time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        lock(&self.0).now()
    }

    /// All violations so far, in order; empty is what a test wants.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        let mut book = lock(&self.0);
        book.judge_deadline();
        book.violations.clone()
    }

    /// The caps found at start.
    #[must_use]
    pub fn found(&self) -> Vec<Watts> {
        lock(&self.0).found.clone()
    }

    /// The caps held now.
    #[must_use]
    pub fn held(&self) -> Vec<Watts> {
        lock(&self.0).held.clone()
    }

    /// Whether every device holds what was found. One that somebody else changed last is left
    /// alone and does not count; one that was reset since may hold its driver's default, which
    /// is what a reset leaves.
    #[must_use]
    pub fn restored(&self) -> bool {
        let book = lock(&self.0);
        let devices = book.held.iter().zip(&book.found).zip(&book.author);
        devices.into_iter().all(|((held, found), author)| {
            matches!(author, Some(Author::Foreign | Author::Reset))
                || microwatts(*held) == microwatts(*found)
        })
    }

    /// The budget in force.
    #[must_use]
    pub fn budget(&self) -> Watts {
        let mut book = lock(&self.0);
        book.judge_deadline();
        watts(book.budget)
    }

    /// Every change so far, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        lock(&self.0).entries.clone()
    }

    /// How many changes there were so far, by whomever.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.0).entries.len()
    }

    /// Whether nobody has written anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn record(&self, change: &Change<'_>) {
        lock(&self.0).record(change);
    }
}

impl Book {
    fn now(&self) -> Nanos {
        match self.time {
            Time::Own(begin) => {
                Nanos(i64::try_from(begin.elapsed().as_nanos()).unwrap_or(i64::MAX))
            }
            Time::Driven(now) => now,
        }
    }

    fn allowance(&self) -> Allowance {
        let found = Sums::of(self.gpus, &self.found);
        Allowance {
            gpus: match self.found_permitted {
                true => self.budget.max(found.gpus),
                false => self.budget,
            },
            cpus: found.cpus,
            slosh: self.slosh,
        }
    }

    /// The rule about sums that is broken now.
    fn broken(&self) -> Option<rules::Rule> {
        Sums::of(self.gpus, &self.held).broken(self.allowance())
    }

    fn record(&mut self, change: &Change<'_>) {
        // Caps held until now are judged by the rules that counted until now.
        self.judge_deadline();
        let device = change.device;
        let (Some(&before), Some(&after)) = (self.held.get(device), change.held.get(device)) else {
            return;
        };
        let sequence = self.entries.len() as u64 + 1;
        self.entries.push(Entry {
            sequence,
            at: self.now(),
            device,
            author: change.author,
            asked: change.asked,
            before,
            after,
            accepted: change.accepted,
        });
        let sum_before = Sums::of(self.gpus, &self.held);
        self.held = change.held.to_vec();
        let changed = microwatts(before) != microwatts(after);
        if changed {
            self.author[device] = Some(change.author);
        }
        match change.author {
            Author::Litd => {
                if changed {
                    self.judge_range(device, after);
                }
                self.judge_sums(sum_before);
            }
            Author::Foreign | Author::Reset => self.excused = self.broken().is_some(),
        }
    }

    fn judge_range(&mut self, device: usize, after: Watts) {
        let put_back = microwatts(after) == microwatts(self.found[device]);
        let bounds = self.bounds[device];
        if !put_back && !bounds.allow(after) {
            self.report(rules::Rule::Range {
                device,
                held: after,
                bounds,
            });
        }
    }

    fn judge_sums(&mut self, before: Sums) {
        let sums = Sums::of(self.gpus, &self.held);
        let Some(rule) = self.broken() else {
            self.excused = false;
            return;
        };
        let worse = sums.gpus > before.gpus || sums.all() > before.all();
        if worse || !self.excused {
            self.report(rule);
        }
        self.excused = true;
    }

    /// Lets a lower budget count once its time has come.
    fn judge_deadline(&mut self) {
        let now = self.now();
        let Some(Lowering { budget, due }) = self.lowering else {
            return;
        };
        if now <= due {
            return;
        }
        self.budget = budget;
        self.lowering = None;
        if let Some(broken) = self.broken() {
            // A foreign cap is not for litd to lower.
            let theirs = self.author.contains(&Some(Author::Foreign));
            if !theirs {
                self.report(rules::Rule::Late {
                    due,
                    broken: Box::new(broken),
                });
            }
            self.excused = true;
        }
    }

    fn report(&mut self, rule: rules::Rule) {
        self.violations.push(Violation {
            sequence: self.entries.len() as u64,
            at: self.now(),
            last: self.entries.last().cloned(),
            held: self.held.clone(),
            rule,
        });
    }
}
