//! One job that arrives at one moment, under each policy (section 5.1).

use std::error::Error;
use std::fmt;

use jiff::Timestamp;
use litd_carbon::replay::{Accounting, Replay, Setting, replay};
use litd_carbon::solve::{Effort, solve};
use litd_carbon::{Job, Plan, Problem, Profile, Skill, Start, policy, slack_deadline};
use litd_units::{Prices, Seconds, Tokens};

use super::zone::Zone;

const HOUR: Seconds = Seconds(3600.0);

/// The policy that chooses configurations, in the order in which tables show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Static,
    Greedy,
    /// Over forecasts as they were issued.
    MpcAsIssued,
    /// Over forecasts corrected by how much of the earlier ones came true.
    Mpc,
    Fixed,
    ShiftStatic,
    Shift,
}

impl Policy {
    pub const ALL: [Self; 7] = [
        Self::Static,
        Self::Greedy,
        Self::MpcAsIssued,
        Self::Mpc,
        Self::Fixed,
        Self::ShiftStatic,
        Self::Shift,
    ];

    /// What the policy knows of the signal.
    pub fn knows(self) -> &'static str {
        match self {
            Self::Greedy => "this hour",
            Self::MpcAsIssued => "forecasts",
            Self::Mpc => "forecasts and their past",
            Self::Static | Self::Fixed | Self::ShiftStatic | Self::Shift => "oracle: the future",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Static => "static",
            Self::Greedy => "greedy",
            Self::MpcAsIssued => "mpc-as-issued",
            Self::Mpc => "mpc",
            Self::Fixed => "fixed",
            Self::ShiftStatic => "shift-static",
            Self::Shift => "shift",
        })
    }
}

/// A job without its arrival.
#[derive(Clone, Copy)]
pub struct Workload<'a> {
    pub profile: &'a Profile,
    pub tokens: Tokens,
    pub deadline: Seconds,
    pub prices: Prices,
}

impl<'a> Workload<'a> {
    /// With the deadline of the 25 % rule.
    pub fn new(profile: &'a Profile, tokens: Tokens, prices: Prices) -> Self {
        Self {
            profile,
            tokens,
            deadline: slack_deadline(profile.points(), tokens, 0.25),
            prices,
        }
    }

    /// With its arrival, and the intensities from then on.
    pub fn problem(&self, zone: &Zone, arrival: Timestamp, start: Start) -> Fallible<Problem> {
        let switch = self.profile.planned_switch(None);
        let points = self.profile.points();
        let job = Job::new(points, HOUR, self.tokens, self.deadline, switch, start)?;
        let windows = zone.intensity.windows(arrival, HOUR, job.windows());
        let windows = windows.map_err(|error| format!("{}: {error}", zone.name))?;
        Ok(Problem::new(job, &windows)?)
    }
}

type Fallible<T> = Result<T, Box<dyn Error>>;

/// What one policy did in one episode.
#[derive(Clone)]
pub struct Done {
    pub policy: Policy,
    pub plan: Plan,
    /// As the plan counts.
    pub planned: Replay,
    /// As it would run: switches draw power and move the clock, the last window stops when all is trained.
    pub played: Replay,
}

/// One episode.
pub struct Episode {
    pub arrival: Timestamp,
    pub done: Vec<Done>,
}

impl Episode {
    /// Every policy on one job; model-predictive control where there are forecasts.
    pub fn run(workload: &Workload, zone: &Zone, arrival: Timestamp) -> Fallible<Self> {
        let now = workload.problem(zone, arrival, Start::Within(0))?;
        let any = workload.problem(zone, arrival, Start::Within(usize::MAX))?;
        let effort = Effort::LONG;
        let mut done = Vec::new();
        for policy in Policy::ALL {
            let problem = match policy {
                Policy::ShiftStatic | Policy::Shift => &any,
                _ => &now,
            };
            let plan = match policy {
                Policy::Static | Policy::ShiftStatic => policy::best_static(problem)?.plan,
                Policy::Fixed | Policy::Shift => solve(problem, effort)?.plan,
                Policy::Greedy => {
                    let count = problem.intensities().len();
                    let before = zone.intensity.day_before(arrival, HOUR);
                    let begun = zone.intensity.begun(arrival, HOUR, count);
                    policy::greedy(problem, &before, &begun)?
                }
                Policy::MpcAsIssued | Policy::Mpc => {
                    let as_issued = Skill::default();
                    let skill = match policy {
                        Policy::Mpc => &zone.skill,
                        _ => &as_issued,
                    };
                    match control(problem, zone, skill, arrival)? {
                        Some(plan) => plan,
                        None => continue,
                    }
                }
            };
            plan.check(problem)?;
            let [planned, played] = play(workload, zone, arrival, problem, &plan)?;
            done.push(Done {
                policy,
                plan,
                planned,
                played,
            });
        }
        Ok(Self { arrival, done })
    }

    /// What a policy did.
    pub fn of(&self, policy: Policy) -> Option<&Done> {
        self.done.iter().find(|done| done.policy == policy)
    }
}

/// Model-predictive control over forecasts, corrected by what is known of them or as issued.
fn control(
    problem: &Problem,
    zone: &Zone,
    skill: &Skill,
    arrival: Timestamp,
) -> Fallible<Option<Plan>> {
    let Some(forecasts) = &zone.forecasts else {
        return Ok(None);
    };
    let look = |now, count| skill.outlook(&zone.intensity, forecasts, now, HOUR, count);
    Ok(Some(policy::mpc(problem.job(), arrival, look)?))
}

/// As planned, and as it would run.
fn play(
    workload: &Workload,
    zone: &Zone,
    arrival: Timestamp,
    problem: &Problem,
    plan: &Plan,
) -> Fallible<[Replay; 2]> {
    let points = problem.job().points();
    let mean = points.iter().map(|it| it.power).sum::<litd_units::Watts>() / points.len() as f64;
    let setting = |accounting| Setting {
        start: arrival,
        intensity: &zone.intensity,
        marginal: zone.marginal.as_ref(),
        energy_prices: zone.prices.as_ref(),
        prices: workload.prices,
        gpus: workload.profile.gpus(),
        accounting,
    };
    let planned = replay(problem, plan, &setting(Accounting::Plan))?;
    // A switch writes and reads a checkpoint: less work than training, but the GPUs are up.
    let switch_power = mean * 0.5;
    let played = replay(
        problem,
        plan,
        &setting(Accounting::Physical { switch_power }),
    )?;
    Ok([planned, played])
}
