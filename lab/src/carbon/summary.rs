//! Episodes in numbers: means, paired intervals, tables.

use std::fmt::Write as _;

use litd_carbon::{Interval, paired};

use super::episode::{Done, Episode, Policy};

/// All episodes of one workload in one zone.
pub struct Group {
    pub setup: String,
    pub zone: String,
    /// Billions of tokens.
    pub billions: f64,
    pub episodes: Vec<Episode>,
    /// Arrivals that could not be played, because something is not known that they need.
    pub left_out: usize,
}

impl Group {
    /// Every episode's results of two policies.
    fn pairs(&self, own: Policy, other: Policy) -> Vec<(&Done, &Done)> {
        let pairs = self.episodes.iter();
        pairs
            .filter_map(|it| Some((it.of(own)?, it.of(other)?)))
            .collect()
    }

    /// By how many per cent a policy emits less than another one, episode by episode.
    pub fn saving(&self, own: Policy, other: Policy) -> Option<Interval> {
        let pairs = self.pairs(own, other).into_iter();
        let shares =
            pairs.map(|(own, other)| 100.0 * (1.0 - own.planned.carbon / other.planned.carbon));
        paired(&shares.collect::<Vec<_>>())
    }

    /// The same as it would run.
    pub fn played_saving(&self, own: Policy, other: Policy) -> Option<Interval> {
        let pairs = self.pairs(own, other).into_iter();
        let shares =
            pairs.map(|(own, other)| 100.0 * (1.0 - own.played.carbon / other.played.carbon));
        paired(&shares.collect::<Vec<_>>())
    }

    /// What a tonne of avoided emissions costs, over all episodes; nothing where none is avoided.
    pub fn per_tonne(&self, own: Policy) -> Option<f64> {
        let pairs = self.pairs(own, Policy::Static);
        let avoided = |(own, other): &(&Done, &Done)| other.played.carbon.0 - own.played.carbon.0;
        let more = |(own, other): &(&Done, &Done)| own.played.money - other.played.money;
        let grams: f64 = pairs.iter().map(avoided).sum();
        let all: f64 = pairs.iter().map(|(_, other)| other.played.carbon.0).sum();
        (grams > all * 1e-4).then(|| pairs.iter().map(more).sum::<f64>() / grams * 1e6)
    }

    pub fn mean(&self, policy: Policy, value: impl Fn(&Done) -> f64) -> f64 {
        let values = self.episodes.iter().filter_map(|it| it.of(policy));
        let (mut sum, mut count) = (0.0, 0.0);
        for done in values {
            sum += value(done);
            count += 1.0;
        }
        sum / f64::max(count, 1.0)
    }

    /// How many episodes miss their deadline or their tokens.
    pub fn missed(&self, policy: Policy) -> usize {
        let all = self.episodes.iter().filter_map(|it| it.of(policy));
        let missed = all.filter(|it| {
            let both = [&it.planned, &it.played];
            both.iter().any(|it| !it.meets_deadline || !it.is_complete)
        });
        missed.count()
    }

    pub fn policies(&self) -> impl Iterator<Item = Policy> + '_ {
        let has = |policy: &Policy| self.episodes.iter().any(|it| it.of(*policy).is_some());
        Policy::ALL.into_iter().filter(has)
    }
}

/// A table of all policies.
pub fn table(group: &Group) -> String {
    let mut text = String::from(
        "| policy | knows | kg CO2e | saved % (95 %) | as run % | kWh | run h | wait h | reshards | missed | cost per t |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for policy in group.policies() {
        let saving = group.saving(policy, Policy::Static);
        let played = group.played_saving(policy, Policy::Static);
        let cost = group.per_tonne(policy);
        let _ = writeln!(
            text,
            "| {policy} | {} | {:.3} | {} | {} | {:.2} | {:.2} | {:.2} | {:.1} | {} | {} |",
            policy.knows(),
            group.mean(policy, |it| it.planned.carbon.0) / 1e3,
            saving.map_or_else(|| "-".into(), |it| interval(&it)),
            played.map_or_else(|| "-".into(), |it| format!("{:.2}", it.mean)),
            group.mean(policy, |it| it.planned.energy.kilowatt_hours()),
            group.mean(policy, |it| it.played.wall.hours()),
            group.mean(policy, |it| it.played.wait.hours()),
            group.mean(policy, |it| it.planned.reshards as f64),
            group.missed(policy),
            cost.map_or_else(|| "-".into(), |it| format!("{it:.0}")),
        );
    }
    text
}

/// A mean and its interval.
pub fn interval(interval: &Interval) -> String {
    let Interval { mean, low, high } = interval;
    format!("{mean:.2} ({low:.2} to {high:.2})")
}

/// Every episode under every policy.
pub fn csv(groups: &[Group]) -> String {
    let mut text = String::from(
        "# SIMULATED episodes on recorded traces\n\
         setup,zone,tokens_billion,arrival_utc,policy,carbon_g,carbon_as_run_g,marginal_g,energy_kwh,wall_h,wait_h,\
         delay_h,reshards,tokens,meets_deadline,money\n",
    );
    for group in groups {
        for episode in &group.episodes {
            for done in &episode.done {
                let (planned, played) = (&done.planned, &done.played);
                let marginal = played
                    .marginal
                    .map_or_else(String::new, |it| it.0.to_string());
                let _ = writeln!(
                    text,
                    "{},{},{},{},{},{},{},{marginal},{},{},{},{},{},{},{},{}",
                    group.setup.replace(',', ";"),
                    group.zone,
                    group.billions,
                    episode.arrival,
                    done.policy,
                    planned.carbon.0,
                    played.carbon.0,
                    planned.energy.kilowatt_hours(),
                    played.wall.hours(),
                    played.wait.hours(),
                    played.delay.hours(),
                    planned.reshards,
                    played.tokens.0,
                    planned.meets_deadline && played.meets_deadline,
                    played.money
                );
            }
        }
    }
    text
}
