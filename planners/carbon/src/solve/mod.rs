//! The optimum of section 4.2, with a proof.
//!
//! The problem falls into one for each window `e` at whose end the job completes: the switches that are
//! affordable there are a number, M(e) = (D - e * dt) / K rounded down. For each `e` there is a lower bound
//! from relaxing the token budget and the number of switches (`dual`). Where that bound does not beat the
//! best plan known, a label-setting dynamic programme searches the rest (`labels`): stage = window,
//! state = configuration, label = (carbon, tokens, switches). Labels that another one dominates are dropped,
//! and those whose bound does not beat the best plan. The search begins narrow, which finds good plans, and
//! becomes wider until it drops nothing for want of room: then the best plan is the optimum. Where even the
//! widest search has to drop labels, the least of their bounds is what is proven.
//!
//! Carbon and tokens are counted in integers of 2^-50 of what can be, so that sums in different order are
//! equal and comparisons exact.

mod dual;
mod free;
mod labels;
mod scaled;

use litd_units::Grams;

use crate::error::Infeasible;
use crate::job::Problem;
use crate::plan::Plan;

use dual::{Dual, Multipliers, Rest, Span, floors};
use free::{Begin, Prices, offer_static};
use labels::{Found, Search};
use scaled::Scaled;

/// How much work the search may do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Labels for each window, in the searches one after the other.
    widths: &'static [usize],
    /// Labels that may be made in all.
    labels: u64,
    /// Windows times configurations that may be gone through for bounds: the work that grows with the square of
    /// the number of windows.
    cells: u64,
    /// A plan that is proven so near the optimum is good enough, as a share.
    gap: f64,
}

impl Effort {
    /// Until it is proven, or these labels or cells are used up (no clock ends it): where all configurations need
    /// nearly the same energy for a token and the signal hardly varies, the search may end without a proof.
    pub const EXACT: Self = Self {
        widths: &[64, 1024, 16_384, 262_144],
        labels: 60_000_000,
        cells: 2_000_000_000,
        gap: 0.0,
    };
    /// The same with fewer labels and cells: for more than 168 hours.
    pub const LONG: Self = Self {
        widths: &[16, 128, 1024, 16_384],
        labels: 20_000_000,
        cells: 1_100_000_000,
        gap: 0.0,
    };
    /// A good plan soon: for decisions that are made anew every window.
    pub const QUICK: Self = Self {
        widths: &[48, 512],
        labels: 2_000_000,
        cells: 200_000_000,
        gap: 1e-3,
    };

    /// Settings for a problem of so many hours.
    #[must_use]
    pub fn for_hours(hours: f64) -> Self {
        match hours <= 168.0 {
            true => Self::EXACT,
            false => Self::LONG,
        }
    }
}

/// A plan and what is proven of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The best plan found.
    pub plan: Plan,
    /// The plan's emissions.
    pub carbon: Grams,
    /// No plan emits less.
    pub bound: Grams,
    /// Whether the plan is proven best, to a relative 1e-9.
    pub optimal: bool,
}

impl Solution {
    /// By which share of the bound the plan may be above the optimum.
    #[must_use]
    pub fn gap(&self) -> f64 {
        match self.bound > Grams::ZERO {
            true => (self.carbon - self.bound) / self.bound,
            false if self.optimal => 0.0,
            false => f64::INFINITY,
        }
    }
}

/// The relative difference up to which a plan counts as proven best.
const PROVEN: f64 = 1e-9;

/// Finds the plan that emits least.
///
/// # Errors
/// No plan meets the deadline.
pub fn solve(problem: &Problem, effort: Effort) -> Result<Solution, Infeasible> {
    problem.job().check()?;
    let scaled = Scaled::new(problem);
    let mut solver = Solver::new(&scaled, effort);
    solver.survey();
    for &width in effort.widths {
        while let Some(at) = solver.next(width) {
            solver.search(at, width);
        }
        if solver.effort.labels == 0 {
            break;
        }
    }
    let proven = solver.proven();
    Ok(solver.best.solution(problem, proven))
}

/// The ends at which a plan may complete that is better than the best one, and what may still be done.
struct Solver<'a> {
    scaled: &'a Scaled,
    free: Prices,
    best: Best,
    ends: Vec<End>,
    /// The best prices of the end that was looked at closely last.
    prices: Option<Multipliers>,
    effort: Effort,
}

impl<'a> Solver<'a> {
    fn new(scaled: &'a Scaled, effort: Effort) -> Self {
        let mut best = Best::new(scaled);
        offer_static(scaled, &mut best);
        let free = Prices::new(scaled);
        let floors = free.floors(scaled).into_iter().enumerate();
        let possible = floors.filter(|(at, floor)| {
            floor.is_finite() && scaled.affordable[*at].is_some() && !best.beats(*floor)
        });
        let ends = possible.map(|(at, bound)| End {
            at,
            bound,
            width: 0,
            is_searched: false,
            close: None,
        });
        Self {
            ends: ends.collect(),
            scaled,
            free,
            best,
            prices: None,
            effort,
        }
    }

    /// No plan has less carbon, in units, that is not yet known.
    fn proven(&self) -> f64 {
        let unproven = self.ends.iter().filter(|end| !end.is_searched);
        unproven.map(|end| end.bound).fold(f64::INFINITY, f64::min)
    }

    /// Whether the best plan will do, or nothing more may be done.
    fn is_over(&self) -> bool {
        let Effort { gap, cells, .. } = self.effort;
        cells == 0 || self.best.is_within(gap, || self.proven())
    }

    /// Looks at some ends closely from the last to the first: how many switches are affordable differs most
    /// between them, and so do the prices.
    fn survey(&mut self) {
        const SOME: usize = 8;
        let count = self.ends.len();
        let some = SOME.min(count);
        for number in (0..some).rev() {
            let at = count * (2 * number + 1) / (2 * some);
            if !self.is_over() && !self.ends[at].is_done(&self.best) {
                self.close_up(at);
            }
        }
    }

    /// Of the ends that were not searched so widely, the one with the least bound.
    fn next(&self, width: usize) -> Option<usize> {
        if self.is_over() {
            return None;
        }
        let open = self.ends.iter().enumerate();
        let open = open.filter(|(_, end)| end.width < width && !end.is_done(&self.best));
        let least = open.min_by(|a, b| a.1.bound.total_cmp(&b.1.bound));
        least.map(|(at, _)| at)
    }

    /// Finds the best prices for one end, and what they tell of all ends.
    fn close_up(&mut self, at: usize) {
        let Self { scaled, .. } = *self;
        let end = self.ends[at].at;
        let begins = self.free.begins(scaled, end, &self.best);
        if begins.is_empty() {
            self.ends[at].bound = f64::INFINITY;
            return;
        }
        let (best, cells) = (&mut self.best, &mut self.effort.cells);
        let dual = Dual::refine(scaled, end, &begins, self.prices, best, cells);
        let all = Span {
            start: 0,
            end: scaled.windows,
        };
        *cells = cells.saturating_sub(all.cells(scaled));
        let prices = dual.multipliers[0];
        self.prices = Some(prices);
        let floors = floors(scaled, prices);
        for other in &mut self.ends {
            other.bound = other.bound.max(floors[other.at]);
        }
        self.ends[at].close = Some(Close { begins, dual });
    }

    /// Searches for plans that complete at one end, if there may be better ones.
    fn search(&mut self, at: usize, width: usize) {
        if self.ends[at].close.is_none() {
            self.close_up(at);
        }
        let end = &mut self.ends[at];
        let rests = end.rests(self.scaled, &self.best, &mut self.effort.cells);
        if self.best.is_within(self.effort.gap, || self.proven()) {
            return;
        }
        let (best, labels) = (&mut self.best, &mut self.effort.labels);
        self.ends[at].search(self.scaled, &rests, width, best, labels);
    }
}

/// The subproblem of the plans that complete at the end of one window.
struct End {
    /// The number of windows until then.
    at: usize,
    /// No such plan has less carbon, in units.
    bound: f64,
    /// How wide it was searched.
    width: usize,
    is_searched: bool,
    /// What is known since it was looked at closely.
    close: Option<Close>,
}

struct Close {
    /// Where such plans may begin.
    begins: Vec<Begin>,
    dual: Dual,
}

impl End {
    fn is_done(&self, best: &Best) -> bool {
        self.is_searched || best.beats(self.bound)
    }

    /// The least cost of the rest of a plan, at the best prices, which may raise the bound.
    fn rests(&mut self, scaled: &Scaled, best: &Best, cells: &mut u64) -> Vec<Rest> {
        let Some(Close { begins, dual }) = &mut self.close else {
            return Vec::new();
        };
        begins.retain(|it| !best.beats(it.bound));
        let span = Span {
            start: begins.first().map_or(self.at, |it| it.start),
            end: self.at,
        };
        let prices = dual.multipliers.iter();
        *cells = cells.saturating_sub(span.cells(scaled) * prices.len() as u64);
        let rests: Vec<Rest> = prices.map(|it| Rest::new(scaled, *it, span)).collect();
        let affordable = scaled.affordable[self.at].unwrap_or(0);
        let mut least = f64::INFINITY;
        for begin in begins {
            let bounds = rests
                .iter()
                .map(|it| it.bound(scaled, begin.start, affordable));
            begin.bound = bounds.fold(begin.bound, f64::max);
            least = least.min(begin.bound);
        }
        self.bound = self.bound.max(least);
        rests
    }

    fn search(
        &mut self,
        scaled: &Scaled,
        rests: &[Rest],
        width: usize,
        best: &mut Best,
        budget: &mut u64,
    ) {
        self.width = width;
        let Some(Close { begins, .. }) = self.close.as_ref().filter(|_| !self.is_done(best)) else {
            return;
        };
        let search = Search::new(scaled, rests, begins, self.at, width);
        match search.run(best, budget) {
            Found::All => {
                self.is_searched = true;
                self.close = None;
            }
            Found::Dropped(bound) => self.bound = self.bound.max(bound),
        }
    }
}

/// The best plan so far.
struct Best {
    /// The plan's carbon in units; before there is a plan, more than any has.
    units: i64,
    plan: Option<Plan>,
    /// The possible error of floats.
    hair: f64,
    grams_per_unit: f64,
}

impl Best {
    fn new(scaled: &Scaled) -> Self {
        Self {
            units: i64::MAX,
            plan: None,
            hair: scaled.hair,
            grams_per_unit: scaled.grams_per_unit,
        }
    }

    /// Whether nothing with this bound can be better.
    fn beats(&self, bound: f64) -> bool {
        self.plan.is_some() && bound >= self.units as f64 - self.hair
    }

    /// Whether the best plan is so near to what is proven.
    fn is_within(&self, gap: f64, proven: impl FnOnce() -> f64) -> bool {
        gap > 0.0 && self.plan.is_some() && self.units as f64 <= proven() * (1.0 + gap)
    }

    /// Takes a plan that obeys all rules, if it is better.
    fn offer(&mut self, units: i64, plan: impl FnOnce() -> Plan) {
        if units < self.units {
            self.units = units;
            self.plan = Some(plan());
        }
    }

    fn solution(self, problem: &Problem, bound: f64) -> Solution {
        let plan = self.plan.unwrap_or_else(|| fastest(problem));
        let carbon = plan.carbon(problem);
        // The possible error of floats is subtracted from the bound.
        let bound = Grams((bound - self.hair) * self.grams_per_unit).max(Grams::ZERO);
        let optimal = bound >= carbon * (1.0 - PROVEN);
        Solution {
            bound: match optimal {
                true => carbon,
                false => bound,
            },
            plan,
            carbon,
            optimal,
        }
    }
}

/// The plan of a feasible problem that needs no search.
fn fastest(problem: &Problem) -> Plan {
    let job = problem.job();
    let fastest = job.fastest();
    Plan {
        start: 0,
        choices: vec![fastest; job.windows_for(job.tokens(), fastest)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Configuration, Job, Point, Start};
    use litd_units::{Intensity, Seconds, Tokens, TokensPerSecond, Watts};

    /// Three configurations over two days whose intensities vary, with switches that are dear; so many hours of the
    /// fastest, in so many windows an hour.
    fn problem(hours: f64, windows: u32, start: Start) -> Problem {
        let points = [(900.0, 30.0), (1100.0, 41.0), (1500.0, 50.0)];
        let points = points
            .into_iter()
            .zip(1..)
            .map(|((power, rate), pp)| Point {
                configuration: Configuration { tp: 1, pp, dp: 1 },
                power: Watts(power),
                rate: TokensPerSecond(rate),
            });
        let points: Vec<_> = points.collect();
        let window = Seconds(3600.0 / f64::from(windows));
        let deadline = Seconds::from_hours(48.0);
        let tokens = Tokens(50.0 * 3600.0 * hours);
        let job = Job::new(&points, window, tokens, deadline, Seconds(900.0), start).unwrap();
        let hours = (0..48 * windows).map(|at| at / windows);
        let values = hours.map(|at| Intensity(200.0 + 90.0 * f64::from(at * at % 23) / 23.0));
        Problem::new(job, &values.collect::<Vec<_>>()).unwrap()
    }

    /// Fine windows have so many ends that most of them are not looked at closely. What some of them tell has to do
    /// for all: the plan is hardly worse than that of hours, which is possible too, and the bound near.
    #[test]
    fn a_search_that_ends_early_in_fine_windows_is_near_the_optimum() {
        for hours in [30.0, 39.0, 41.0, 43.0] {
            for start in [Start::Within(0), Start::Within(usize::MAX)] {
                let coarse = solve(&problem(hours, 1, start), Effort::EXACT).unwrap();
                let problem = problem(hours, 12, start);
                let little = Effort {
                    cells: 1_000_000,
                    ..Effort::LONG
                };
                let found = solve(&problem, little).unwrap();
                found.plan.check(&problem).unwrap();
                let over = found.carbon / coarse.carbon - 1.0;
                assert!(over <= 0.0, "{hours} h, {start:?}: {over}");
                assert!(found.gap() < 5e-3, "{hours} h, {start:?}: {found:?}");
            }
        }
    }

    /// The work for bounds ends the search as well: what is left has the bounds that it had before.
    #[test]
    fn without_work_left_a_plan_has_a_bound_and_no_proof() {
        let mut open = 0;
        for number in 0..40 {
            let problem = problem(30.0 + 0.4 * f64::from(number), 1, Start::Within(0));
            let exact = solve(&problem, Effort::EXACT).unwrap();
            let little = Effort {
                cells: 1,
                ..Effort::EXACT
            };
            let found = solve(&problem, little).unwrap();
            found.plan.check(&problem).unwrap();
            assert!(exact.optimal && exact.carbon <= found.carbon, "{number}");
            assert!(found.bound <= exact.carbon, "{number}: {found:?}");
            open += usize::from(!found.optimal);
        }
        assert!(
            open > 0,
            "each is proven at its first end: nothing was tried"
        );
    }
}
