//! What sections III and VII say beyond their numbers, and whether the bare law on our node says it, too.

use litd_policies::Policy;
use litd_study::course::{Hand, Measures};
use litd_traces::study::pearson;

use super::items::caps;
use super::knobs::{DEFAULT, Lab, Ran};
use crate::reproduce::Trend;

pub(super) fn all(lab: &Lab) -> Vec<Trend> {
    let bare = Bare(lab);
    let mut trends = bare.use_cases();
    trends.extend(bare.nodes());
    trends.extend(bare.knobs());
    trends.extend(bare.caps());
    trends
}

/// The runs of the bare law.
struct Bare<'a>(&'a Lab);

fn percent(part: f64) -> f64 {
    part * 100.0
}

/// What a policy drew more after than before, a part.
fn drawn(it: &Measures) -> f64 {
    1.0 / (1.0 + it.saved) - 1.0
}

fn trend(table: &'static str, what: &str, is_ours: bool, numbers: String) -> Trend {
    Trend {
        table,
        what: what.into(),
        is_ours,
        numbers,
    }
}

impl Bare<'_> {
    fn ran(&self, policy: Policy, name: &str, value: &str) -> Option<&Ran> {
        self.0.one(policy, Hand::Bare, name, value)
    }

    fn measures(&self, policy: Policy, name: &str, value: &str) -> Option<Measures> {
        self.ran(policy, name, value).map(|it| it.measures)
    }

    /// Table III and Figure 9.
    fn use_cases(&self) -> Vec<Trend> {
        let of = |policy| self.measures(policy, DEFAULT, "");
        let (Some(red), Some(realloc), Some(slosh)) = (
            of(Policy::GpuRed),
            of(Policy::GpuRealloc),
            of(Policy::CpuSlosh),
        ) else {
            return Vec::new();
        };
        let (more, watts) = (
            slosh.faster - realloc.faster,
            drawn(&slosh) - drawn(&realloc),
        );
        vec![
            trend(
                "III",
                "gpu-red leaves throughput as it is",
                red.faster.abs() < 0.005,
                format!("{:+.2} %", percent(red.faster)),
            ),
            trend(
                "III",
                "gpu-realloc gains throughput without more power",
                realloc.faster > 0.0 && drawn(&realloc) < 0.005,
                format!(
                    "throughput {:+.2} %, power {:+.2} %",
                    percent(realloc.faster),
                    percent(drawn(&realloc))
                ),
            ),
            trend(
                "III",
                "throughput that cpu-slosh adds is less than the power that it adds, in per cent",
                more > 0.0 && more < watts,
                format!(
                    "beyond gpu-realloc throughput {:+.2} points, power {:+.2} points",
                    percent(more),
                    percent(watts)
                ),
            ),
            trend(
                "Figure 9b",
                "gpu-red: power falls as the mean clock does",
                (drawn(&red) / red.clock - 1.0).abs() < 0.2,
                format!(
                    "power {:+.2} %, clock {:+.2} %",
                    percent(drawn(&red)),
                    percent(red.clock)
                ),
            ),
            trend(
                "Figure 9b",
                "gpu-realloc: the mean clock falls",
                realloc.clock < 0.0,
                format!("{:+.2} %", percent(realloc.clock)),
            ),
        ]
    }

    /// Node 0 has fewer leaders.
    fn nodes(&self) -> Vec<Trend> {
        let pair = |policy, of: fn(&Measures) -> f64| {
            let one = self.measures(policy, DEFAULT, "").as_ref().map(of)?;
            let other = self.measures(policy, "node", "0").as_ref().map(of)?;
            Some((one, other))
        };
        let saves = pair(Policy::GpuRed, |it| it.saved);
        let gains = pair(Policy::GpuRealloc, |it| it.faster);
        let rows = [
            ("Figure 13", "gpu-red saves less on node 0", saves),
            ("Figure 14", "gpu-realloc gains less on node 0", gains),
        ];
        let row = |(figure, what, pair): (&'static str, &str, Option<(f64, f64)>)| {
            let (one, other) = pair?;
            let numbers = format!(
                "node 1 {:.2} %, node 0 {:.2} %",
                percent(one),
                percent(other)
            );
            Some(trend(figure, what, other < one, numbers))
        };
        rows.into_iter().filter_map(row).collect()
    }

    /// What knobs do, and don't.
    fn knobs(&self) -> Vec<Trend> {
        let mut trends = Vec::new();
        let (red, realloc, slosh) = (Policy::GpuRed, Policy::GpuRealloc, Policy::CpuSlosh);
        let five = self.measures(red, "max adjustment", "5 W");
        if let (Some(five), Some(usual)) = (five, self.measures(red, DEFAULT, "")) {
            trends.push(trend(
                "Figure 13",
                "gpu-red saves less with an adjustment of 5 W, as the experiment is too short",
                five.saved < usual.saved,
                format!(
                    "5 W {:.2} %, 15 W {:.2} %",
                    percent(five.saved),
                    percent(usual.saved)
                ),
            ));
        }
        let gains = |policy| -> Vec<(f64, f64)> {
            let caps = [("power cap", "500 W", 500.0), ("power cap", "550 W", 550.0)];
            let more = [("power cap", "600 W", 600.0), ("power cap", "650 W", 650.0)];
            let all = caps.into_iter().chain(more).chain([(DEFAULT, "", 700.0)]);
            all.filter_map(|(name, value, cap)| {
                Some((cap, self.measures(policy, name, value)?.faster))
            })
            .collect()
        };
        let listed = |all: &[(f64, f64)]| {
            let each: Vec<String> = all
                .iter()
                .map(|(cap, gain)| format!("{cap:.0} W {:.2} %", percent(*gain)))
                .collect();
            each.join(", ")
        };
        let least = |all: &[(f64, f64)]| all.iter().min_by(|a, b| a.1.total_cmp(&b.1)).copied();
        let most = |all: &[(f64, f64)]| all.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied();
        let of = gains(realloc);
        trends.push(trend(
            "Figure 14",
            "gpu-realloc gains least with a cap of 500 W",
            least(&of).is_some_and(|it| it.0 == 500.0),
            listed(&of),
        ));
        let of = gains(slosh);
        trends.push(trend(
            "Figure 15",
            "cpu-slosh gains most with a cap of 550 W",
            most(&of).is_some_and(|it| it.0 == 550.0),
            listed(&of),
        ));
        let budgets: Vec<f64> = [
            ("power budget", "10 W"),
            (DEFAULT, ""),
            ("power budget", "30 W"),
            ("power budget", "50 W"),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some(drawn(&self.measures(slosh, name, value)?)))
        .collect();
        if let [ten, twenty, thirty, fifty] = budgets[..] {
            let same = |it: f64| (it - twenty).abs() < 0.002;
            trends.push(trend(
                "Figure 15",
                "cpu-slosh draws no more beyond a budget of 20 W",
                ten < twenty && same(thirty) && same(fifty),
                format!(
                    "10, 20, 30, 50 W: power {:+.2}, {:+.2}, {:+.2}, {:+.2} %",
                    percent(ten),
                    percent(twenty),
                    percent(thirty),
                    percent(fifty)
                ),
            ));
        }
        trends
    }

    /// Figure 12.
    fn caps(&self) -> Vec<Trend> {
        let Some(first) = self.ran(Policy::GpuRealloc, DEFAULT, "") else {
            return Vec::new();
        };
        let swept = self.0.runs.iter().filter(|it| {
            it.hand == Hand::Bare && (it.knob.is_default() || it.knob.name == "power cap")
        });
        let correlations = swept.filter_map(|it| pearson(&caps(first), &caps(it)));
        let least = correlations.fold(1.0, f64::min);
        vec![trend(
            "Figure 12",
            "final caps are distributed alike whatever the use case and the caps at the start",
            least > 0.95,
            format!("correlation with gpu-realloc's at 700 W at least {least:.3}"),
        )]
    }
}
