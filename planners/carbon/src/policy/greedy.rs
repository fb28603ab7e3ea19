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
    let mut seen = before.to_vec();
    let mut left = job.tokens();
    while left > job.tokens() * NO_TOKENS {
        let window = plan.end();
        let (Some(&now), Some(&whole)) = (begun.get(window), problem.intensities().get(window))
        else {
            break;
        };
        seen.push(now);
        let choice = choose(job, &plan, left, &seen);
        seen.pop();
        seen.push(whole);
        left -= job.points()[choice].rate * job.window();
        plan.choices.push(choice);
    }
    Ok(plan)
}

/// The configuration of the next window. `seen` ends with the value that holds as it begins.
fn choose(job: &Job, plan: &Plan, left: Tokens, seen: &[Intensity]) -> usize {
    let fastest = job.fastest();
    // The paper's policy starts from the strategy of the highest throughput.
    let running = match job.start() {
        Start::Running(now) => now,
        Start::Within(_) => fastest,
    };
    let running = plan.choices.last().copied().unwrap_or(running);
    let now = seen.last().copied().unwrap_or(Intensity::ZERO);
    let usual = trailing_mean(job, seen);
    let cost = |own: usize| -> Grams {
        let (point, best) = (&job.points()[own], &job.points()[fastest]);
        let useful = |rate: TokensPerSecond| (rate * job.window()).min(left);
        let lost = useful(best.rate) - useful(point.rate);
        let switch = match own == running {
            true => Seconds::ZERO,
            false => job.switch(),
        };
        let later = lost / best.rate + switch;
        point.power * job.window() * now + best.power * later * usual
    };
    let possible = (0..job.points().len()).filter(|&own| can_take(job, plan, left, own));
    let cheapest = possible.min_by(|&a, &b| {
        // Of equals the one that runs.
        let stays = |own| own != running;
        let carbon = cost(a).0.total_cmp(&cost(b).0);
        carbon.then(stays(a).cmp(&stays(b)))
    });
    cheapest.unwrap_or(fastest)
}

/// Whether the fastest configuration, or the same one, would still meet the deadline after a window of this one.
fn can_take(job: &Job, plan: &Plan, left: Tokens, own: usize) -> bool {
    let mut next = plan.clone();
    next.choices.push(own);
    let left = left - job.points()[own].rate * job.window();
    let left = if left > job.tokens() * NO_TOKENS {
        left
    } else {
        Tokens::ZERO
    };
    let meets = |finisher: usize| {
        let windows = job.windows_for(left, finisher);
        let switches = next.switches(job.start()) + usize::from(windows > 0 && finisher != own);
        let affordable = job.switches_within(next.end().saturating_add(windows));
        affordable.is_some_and(|it| switches <= it)
    };
    meets(job.fastest()) || meets(own)
}

fn trailing_mean(job: &Job, seen: &[Intensity]) -> Intensity {
    let windows = (TRAILING / job.window()).ceil().max(1.0) as usize;
    let last = &seen[seen.len().saturating_sub(windows)..];
    last.iter().copied().sum::<Intensity>() / last.len().max(1) as f64
}
