//! The greedy online policy (section 4.3).

use litd_units::{Grams, Intensity, Seconds, Tokens, TokensPerSecond};

use crate::error::Infeasible;
use crate::job::{Job, NO_TOKENS, Problem, Start};
use crate::plan::Plan;

/// The trailing mean is over so long.
const TRAILING: Seconds = Seconds(86_400.0);

/// Decides window by window with the intensities until then: those before the job (the last ones are the
/// newest), those of the windows that are over, and the value that held as the window began (`begun`, by window).
/// What a window becomes by its end is not known yet: signals may be finer than windows, and jobs begin at odd
/// times. A configuration is taken if what it saves now exceeds what catching up
/// later costs: the tokens that the fastest one would have trained more, and the switch, at the fastest
/// one's power and the mean intensity of the last day. No configuration is taken from which the fastest one
/// can't meet the deadline any more. The job begins at once.
///
/// # Errors
/// No plan meets the deadline.
pub fn greedy(
    problem: &Problem,
    before: &[Intensity],
    begun: &[Intensity],
) -> Result<Plan, Infeasible> {
    let job = problem.job();
    job.check()?;
    let mut plan = Plan {
        start: 0,
        choices: Vec::new(),
    };
    let mut over = before.to_vec();
    let mut left = job.tokens();
    while left > job.tokens() * NO_TOKENS {
        let window = plan.end();
        let (Some(&now), Some(&whole)) = (begun.get(window), problem.intensities().get(window))
        else {
            break;
        };
        let decision = Decision {
            job,
            end: window + 1,
            switches: plan.switches(job.start()),
            running: plan.choices.last().copied().or(match job.start() {
                Start::Running(now) => Some(now),
                Start::Within(_) => None,
            }),
            left,
            now,
            usual: trailing_mean(job, &over).unwrap_or(now),
        };
        let choice = decision.choose();
        over.push(whole);
        left -= job.points()[choice].rate * job.window();
        plan.choices.push(choice);
    }
    Ok(plan)
}

/// What is known as a window begins.
struct Decision<'a> {
    job: &'a Job,
    /// The number of windows until this one is over.
    end: usize,
    /// The switches until now.
    switches: usize,
    running: Option<usize>,
    left: Tokens,
    now: Intensity,
    usual: Intensity,
}

impl Decision<'_> {
    /// The configuration of the window.
    fn choose(&self) -> usize {
        // The paper's policy starts from the strategy of the highest throughput.
        let running = self.running.unwrap_or(self.job.fastest());
        let possible = (0..self.job.points().len()).filter(|&own| self.can_take(own));
        let cheapest = possible.min_by(|&a, &b| {
            // Of equals the one that runs.
            let stays = |own| own != running;
            let carbon = self.cost(a, running).0.total_cmp(&self.cost(b, running).0);
            carbon.then(stays(a).cmp(&stays(b)))
        });
        cheapest.unwrap_or(self.job.fastest())
    }

    fn cost(&self, own: usize, running: usize) -> Grams {
        let job = self.job;
        let (point, best) = (&job.points()[own], &job.points()[job.fastest()]);
        let useful = |rate: TokensPerSecond| (rate * job.window()).min(self.left);
        let lost = useful(best.rate) - useful(point.rate);
        let switch = match own == running {
            true => Seconds::ZERO,
            false => job.switch(),
        };
        let later = lost / best.rate + switch;
        point.power * job.window() * self.now + best.power * later * self.usual
    }

    /// Whether the fastest configuration, or the same one, would still meet the deadline after a window of this
    /// one.
    fn can_take(&self, own: usize) -> bool {
        let job = self.job;
        let left = self.left - job.points()[own].rate * job.window();
        let left = if left > job.tokens() * NO_TOKENS {
            left
        } else {
            Tokens::ZERO
        };
        let is_switch = self.running.is_some_and(|running| running != own);
        let meets = |finisher: usize| {
            let windows = job.windows_for(left, finisher);
            let another = windows > 0 && finisher != own;
            let affordable = job.switches_within(self.end.saturating_add(windows));
            let switches = self.switches + usize::from(is_switch) + usize::from(another);
            affordable.is_some_and(|it| switches <= it)
        };
        meets(job.fastest()) || meets(own)
    }
}

/// The mean of the windows of the last day that are over. The value that holds now says nothing about what is usual.
fn trailing_mean(job: &Job, over: &[Intensity]) -> Option<Intensity> {
    let windows = (TRAILING / job.window()).ceil().max(1.0) as usize;
    let last = &over[over.len().saturating_sub(windows)..];
    let sum = last.iter().copied().sum::<Intensity>();
    (!last.is_empty()).then(|| sum / last.len() as f64)
}
