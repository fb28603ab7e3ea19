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
mod labels;
mod scaled;

use litd_units::Grams;

use crate::error::Infeasible;
use crate::job::Problem;
use crate::plan::Plan;

use dual::{Begin, Dual, Rest, Span};
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
    /// Until it is proven, within half a minute or so.
    pub const EXACT: Self = Self {
        widths: &[64, 1024, 16_384, 262_144],
        labels: 600_000_000,
        cells: 8_000_000_000,
        gap: 0.0,
    };
    /// Until it is proven, within some seconds: for more than 168 hours.
    pub const LONG: Self = Self {
        widths: &[64, 1024, 16_384],
        labels: 20_000_000,
        cells: 2_000_000_000,
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
    let mut best = Best::new(&scaled);
    let mut open = ends(&scaled, &mut best);
    let mut budget = effort.labels;
    let mut cells = effort.cells;
    'searching: for &width in effort.widths {
        for at in 0..open.len() {
            if open[at].is_done(&best) {
                continue;
            }
            let rests = open[at].refine(&scaled, &mut best, &mut cells);
            if best.is_within(effort.gap, || proven(&open)) {
                break 'searching;
            }
            open[at].search(&scaled, &rests, width, &mut best, &mut budget);
            // Ends that were not looked at yet keep the bounds of free switches.
            if cells == 0 {
                break 'searching;
            }
        }
        if open.iter().all(|end| end.is_done(&best)) || budget == 0 {
            break;
        }
    }
    Ok(best.solution(problem, proven(&open)))
}

/// No plan has less carbon, in units, that is not yet known.
fn proven(ends: &[End]) -> f64 {
    let unproven = ends.iter().filter(|end| !end.is_searched);
    unproven.map(End::bound).fold(f64::INFINITY, f64::min)
}

/// The subproblem of the plans that complete at the end of one window.
struct End {
    /// The number of windows until then.
    at: usize,
    /// Where such plans may begin.
    begins: Vec<Begin>,
    /// No such plan has less carbon, in units, as far as a search has shown.
    proven: f64,
    /// The multipliers, once they are refined.
    dual: Option<Dual>,
    is_searched: bool,
}

impl End {
    /// No such plan has less carbon, in units.
    fn bound(&self) -> f64 {
        let begins = self.begins.iter().map(|it| it.bound);
        begins.fold(f64::INFINITY, f64::min).max(self.proven)
    }

    fn is_done(&self, best: &Best) -> bool {
        self.is_searched || best.beats(self.bound())
    }

    /// The least cost of the rest of a plan, at the best prices. The search for prices may raise the bounds and
    /// find better plans.
    fn refine(&mut self, scaled: &Scaled, best: &mut Best, cells: &mut u64) -> Vec<Rest> {
        let begins = &mut self.begins;
        begins.retain(|it| !best.beats(it.bound));
        let refine = || Dual::refine(scaled, self.at, begins, best, cells);
        let dual = self.dual.get_or_insert_with(refine);
        let span = Span {
            start: begins.first().map_or(0, |it| it.start),
            end: self.at,
        };
        let prices = dual.multipliers.iter();
        *cells = cells.saturating_sub(span.cells(scaled) * prices.len() as u64);
        let rests: Vec<Rest> = prices.map(|it| Rest::new(scaled, *it, span)).collect();
        let affordable = scaled.affordable[self.at].unwrap_or(0);
        for begin in begins {
            let bounds = rests
                .iter()
                .map(|it| it.bound(scaled, begin.start, affordable));
            begin.bound = bounds.fold(begin.bound, f64::max);
        }
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
        if self.is_done(best) {
            return;
        }
        let search = Search::new(scaled, rests, &self.begins, self.at, width);
        match search.run(best, budget) {
            Found::All => self.is_searched = true,
            Found::Dropped(bound) => self.proven = self.proven.max(bound),
        }
    }
}

/// All ends at which a plan may complete that is better than the best one, those with the least bound first.
fn ends(scaled: &Scaled, best: &mut Best) -> Vec<End> {
    let begins = dual::begins(scaled, best).into_iter().enumerate();
    let mut ends: Vec<End> = begins
        .filter(|(_, begins)| !begins.is_empty())
        .map(|(at, begins)| End {
            at,
            begins,
            proven: f64::NEG_INFINITY,
            dual: None,
            is_searched: false,
        })
        .collect();
    ends.sort_by(|a, b| a.bound().total_cmp(&b.bound()));
    ends
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

    /// Three configurations over two days whose intensities vary, with switches that are dear; so many hours of the fastest.
    fn problem(hours: f64) -> Problem {
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
        let (hour, deadline) = (Seconds(3600.0), Seconds::from_hours(48.0));
        let tokens = Tokens(50.0 * 3600.0 * hours);
        let start = Start::Within(0);
        let job = Job::new(&points, hour, tokens, deadline, Seconds(900.0), start).unwrap();
        let values = (0..48).map(|at| Intensity(200.0 + 90.0 * f64::from(at * at % 23) / 23.0));
        Problem::new(job, &values.collect::<Vec<_>>()).unwrap()
    }

    /// The work for bounds ends the search as well: what is left has the bounds that it had before.
    #[test]
    fn without_work_left_a_plan_has_a_bound_and_no_proof() {
        let mut open = 0;
        for number in 0..40 {
            let problem = problem(30.0 + 0.4 * f64::from(number));
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
