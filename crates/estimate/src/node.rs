//! The result from one node's samples.

use std::collections::BTreeMap;

use litd_api::Limiter;
use litd_trial::Estimate as Mean;
use litd_units::Prices;
use serde::Serialize;

use crate::bins::TimeBins;
use crate::bound::{self, Bound, SMALLEST_SLOPE};
use crate::channel::Channel;
use crate::compare::{Halves, correlation, halves, means, median};
use crate::gpu::{Gpu, LIMITERS};

/// GPUs that differ by a larger factor do not do the same work, or their columns have other units.
const MOST_APART: f64 = 10.0;

/// Intervals need so many bins of time at least.
const LEAST_BINS: usize = 4;

/// A cap that is below the highest by less than this share is the highest.
const SAME_CAP: f64 = 0.005;

/// A GPU with fewer samples than this share of the median GPU's of its node is not compared: a few stray
/// readings would decide the node's spread and bounds.
pub const LEAST_SAMPLES: f64 = 0.1;

/// Why bounds of throughput hold under a condition only.
pub const HIGHEST_CAP_UNKNOWN: &str = "no column has the highest cap (power.max_limit, --max-cap-w): gpu-realloc and \
                                       cpu-slosh count only if caps can rise above the one that was found; if caps \
                                       are at the highest already, only gpu-red can gain";

/// Lower and upper end of a 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range(pub f64, pub f64);

impl Range {
    /// So far on both sides, but not below zero.
    pub(crate) fn around(middle: f64, half: f64) -> Self {
        Self((middle - half).max(0.0), middle + half)
    }

    /// Of a share in per cent, which is not above 100.
    pub(crate) fn of_a_whole(self) -> Self {
        Self(self.0.min(100.0), self.1.min(100.0))
    }
}

/// A number for each policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PerPolicy {
    /// gpu-red.
    pub gpu_red: Option<f64>,
    /// gpu-realloc.
    pub gpu_realloc: Option<f64>,
    /// cpu-slosh.
    pub cpu_slosh: Option<f64>,
}

impl PerPolicy {
    /// The largest.
    #[must_use]
    pub fn largest(&self) -> Option<f64> {
        let all = [self.gpu_red, self.gpu_realloc, self.cpu_slosh];
        all.into_iter().flatten().reduce(f64::max)
    }
}

/// 95 % intervals: how far the numbers would lie apart if the same node was watched again for as long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Intervals {
    /// Of `spread_pct`.
    pub spread_pct: Option<Range>,
    /// Of `slowest_vs_median_pct`.
    pub slowest_vs_median_pct: Option<Range>,
    /// Of `bound.gpu_red_power_pct`.
    pub gpu_red_power_pct: Option<Range>,
    /// Of `bound.gpu_realloc_throughput_pct`.
    pub gpu_realloc_throughput_pct: Option<Range>,
    /// Of `bound.cpu_slosh_throughput_pct`.
    pub cpu_slosh_throughput_pct: Option<Range>,
    /// Of `value_per_node_hour`.
    pub value_per_node_hour: Option<Range>,
}

/// Why there is no bound where only the draw tells what limits a GPU.
const NOT_AT_CAP: &str = "the slowest GPU draws less than 93 % of its cap in all samples: power does not seem to \
                          limit it, but bursts between two samples are not seen; a column with the limiter would show \
                          it";

/// Why nothing is said about the halves of the time.
pub(crate) const NOT_IN_BOTH_HALVES: &str =
    "no GPU has samples in both halves of the time (--columns time=... names the column of times)";

/// A node. What the data can't tell is `None`, and `why` has the reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeEstimate {
    /// The node's name.
    pub node: String,
    /// How many GPUs it has.
    pub gpus: usize,
    /// How many samples of them counted.
    pub samples: u64,
    /// In which share of the samples whose limiter is known it was this one; those that occurred.
    pub limiter_share: Option<BTreeMap<&'static str, f64>>,
    /// By how much the slowest GPU is slower than the fastest: pace, or clock at the cap.
    pub spread_pct: Option<f64>,
    /// By how much it is slower than the median one.
    pub slowest_vs_median_pct: Option<f64>,
    /// Correlation of the GPUs' deviations between the halves of the time.
    pub persistence: Option<f64>,
    /// Whether the hottest GPU is the slowest.
    pub hottest_is_slowest: Option<bool>,
    /// Upper bounds.
    pub bound: Bound,
    /// The largest reduction of the node's power, W.
    pub watts: PerPolicy,
    /// The value of each bound, per hour.
    pub values: PerPolicy,
    /// The largest of them.
    pub value_per_node_hour: Option<f64>,
    /// GPUs to repair.
    pub repair: Option<Vec<String>>,
    /// 95 % intervals.
    pub intervals: Intervals,
    /// The basis of `spread_pct`: "pace", or "clock at the cap".
    pub basis: Option<&'static str>,
    /// The power that the bound of gpu-red saves if ln time falls by so much per ln power, in per cent.
    pub gpu_red_at_slopes: BTreeMap<&'static str, f64>,
    /// Why a value is not there, or is zero.
    pub why: BTreeMap<&'static str, String>,
}

/// The slopes for which gpu-red's saving is told: the least measured, that of most GPUs near the middle of
/// their range, that of the paper's equation 16 without idle power, the largest.
const SLOPES: [(&str, f64); 4] = [("0.2", 0.2), ("0.5", 0.5), ("1", 1.0), ("2.5", 2.5)];

/// Further results of a node, for the fleet.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Names of the GPUs that are compared, by how much (in logarithms) each is slower than the median, and
    /// the same in the halves of the time, if they are known.
    pub slower: Vec<(String, f64)>,
    pub halves: Vec<Halves>,
    /// Mean draw of all GPUs together, W.
    pub power: Option<f64>,
    pub by_draw: bool,
}

/// A node's GPUs that can be compared.
struct Speeds<'a> {
    names: Vec<&'a str>,
    gpus: Vec<&'a Gpu>,
    channels: Vec<&'a Channel>,
    pace: Vec<f64>,
    is_pace: bool,
    /// Of the GPUs that have too few samples to be compared, how many each has.
    too_few: Vec<u32>,
}

impl<'a> Speeds<'a> {
    /// By pace, where any GPU has one, else by clock at the cap.
    fn of(gpus: &[(&'a str, &'a Gpu)]) -> Result<Self, String> {
        let is_pace = gpus.iter().any(|it| it.1.pace.is_some());
        let channel = |gpu: &'a Gpu| match is_pace {
            true => gpu.pace.as_deref(),
            false => gpu.clock.as_deref(),
        };
        let mut speeds = Self {
            names: Vec::new(),
            gpus: Vec::new(),
            channels: Vec::new(),
            pace: Vec::new(),
            is_pace,
            too_few: Vec::new(),
        };
        let counts = gpus.iter().filter_map(|it| channel(it.1));
        let counts = counts.map(|it| f64::from(it.values.count()));
        let least = LEAST_SAMPLES * median(&Vec::from_iter(counts)).unwrap_or(0.0);
        for (name, gpu) in gpus {
            let known = channel(gpu).and_then(|it| Some((it, it.values.median()?)));
            let Some((channel, value)) = known else {
                continue;
            };
            if f64::from(channel.values.count()) < least {
                speeds.too_few.push(channel.values.count());
                continue;
            }
            speeds.names.push(name);
            speeds.gpus.push(gpu);
            speeds.channels.push(channel);
            speeds.pace.push(if is_pace { value } else { 1.0 / value });
        }
        match speeds.pace.len() {
            0 => Err(no_speed(gpus)),
            1 if gpus.len() == 1 => {
                Err("the node has one GPU: nothing to compare it with".to_owned())
            }
            1 => Err(format!(
                "one of {} GPUs has samples to compare: {}",
                gpus.len(),
                match speeds.left_out(gpus.len()) {
                    Some(why) => why,
                    None if is_pace => "the others have no pace".to_owned(),
                    None => "power limits no other".to_owned(),
                },
            )),
            _ => speeds.equal_work(),
        }
    }

    /// The GPUs with too few samples, in words.
    fn left_out(&self, gpus: usize) -> Option<String> {
        let most = self.too_few.iter().max()?;
        let at_cap = if self.is_pace { "" } else { " at the cap" };
        let (have, up_to) = match self.too_few.len() {
            1 => ("has", ""),
            _ => ("have", "up to "),
        };
        let samples = if *most == 1 { "sample" } else { "samples" };
        Some(format!(
            "{} of {gpus} GPUs {have} {up_to}{most} {samples}{at_cap}: not compared (fewer than {} % of what the median \
             GPU of the node has)",
            self.too_few.len(),
            100.0 * LEAST_SAMPLES
        ))
    }

    fn equal_work(self) -> Result<Self, String> {
        let why = "do not do the same work, or one column has several units";
        if bound::slosh(&self.pace) > MOST_APART - 1.0 {
            return Err(format!(
                "the slowest GPU is more than {MOST_APART} times as slow as the fastest: they {why}"
            ));
        }
        let is_mixed = |it: &&Channel| {
            let ends = it.values.quantile(0.05).zip(it.values.quantile(0.95));
            ends.is_some_and(|(low, high)| high > MOST_APART * low)
        };
        match self.channels.iter().any(is_mixed) {
            true => Err(format!(
                "samples of one GPU differ by more than {MOST_APART} times: they {why}"
            )),
            false => Ok(self),
        }
    }

    fn bins(&self) -> Vec<&'a TimeBins> {
        self.channels.iter().map(|it| &it.log_pace).collect()
    }

    /// The power of each GPU, or 1 where that is not known of all.
    fn weights(&self) -> Vec<f64> {
        let drawn = self.channels.iter().map(|it| it.power.value());
        let drawn = drawn.collect::<Option<Vec<_>>>();
        drawn.unwrap_or_else(|| vec![1.0; self.pace.len()])
    }

    fn slowest(&self) -> usize {
        let pace = self.pace.iter().enumerate();
        pace.max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |it| it.0)
    }
}

/// Why no GPU's speed is known.
fn no_speed(gpus: &[(&str, &Gpu)]) -> String {
    let any = |holds: fn(&Gpu) -> bool| gpus.iter().any(|it| holds(it.1));
    if !any(|it| it.has_clock) {
        return "no column has a clock or a pace".to_owned();
    }
    match any(|it| it.share(Limiter::Power).is_some()) {
        true => "power limits no GPU in any sample: clocks are compared only while it does".to_owned(),
        false => "no column has the cap or the limiter: give --cap-w, or cap_w= or limiter= with --columns"
            .to_owned(),
    }
}

/// The estimate of a node, but for GPUs to repair, which takes the whole fleet.
pub(crate) fn estimate(
    name: &str,
    gpus: &[(&str, &Gpu)],
    prices: Option<Prices>,
) -> (NodeEstimate, Compared) {
    let mut node = NodeEstimate {
        node: name.to_owned(),
        gpus: gpus.len(),
        samples: gpus.iter().map(|it| u64::from(it.1.samples)).sum(),
        limiter_share: limiter_share(gpus.iter().map(|it| it.1)),
        ..NodeEstimate::default()
    };
    if node.limiter_share.is_none() {
        let why = "no column has the limiter, nor power and cap together (--cap-w)";
        node.why.insert("limiter_share", why.to_owned());
    }
    let powers = gpus.iter().map(|it| it.1.power.value());
    let mut compared = Compared {
        power: powers.collect::<Option<Vec<_>>>().map(|it| it.iter().sum()),
        by_draw: gpus.iter().any(|it| it.1.by_draw > 0),
        ..Compared::default()
    };
    match Speeds::of(gpus) {
        Ok(speeds) => {
            node.spread(&speeds);
            node.bounds(&speeds, prices, compared.power);
            compared.halves = node.persists(&speeds);
            let middle = median(&speeds.pace).unwrap_or(f64::NAN);
            let pairs = speeds.names.iter().zip(&speeds.pace);
            compared.slower = pairs
                .map(|it| ((*it.0).to_owned(), (it.1 / middle).ln()))
                .collect();
        }
        Err(why) => {
            for key in [
                "spread_pct",
                "slowest_vs_median_pct",
                "persistence",
                "hottest_is_slowest",
                "bound",
                "value_per_node_hour",
                "repair",
            ] {
                node.why.insert(key, why.clone());
            }
            node.nothing_binds(gpus);
        }
    }
    (node, compared)
}

/// How often each limiter was it, over samples in which that is known.
pub(crate) fn limiter_share<'a>(
    gpus: impl Iterator<Item = &'a Gpu> + Clone,
) -> Option<BTreeMap<&'static str, f64>> {
    let known = || {
        LIMITERS
            .iter()
            .enumerate()
            .filter(|it| *it.1 != Limiter::Unknown)
    };
    let count = |at: usize| {
        gpus.clone()
            .map(|it| u64::from(it.limited[at]))
            .sum::<u64>()
    };
    let all = known().map(|it| count(it.0)).sum::<u64>();
    if all == 0 {
        return None;
    }
    let counts = known().map(|(at, limiter)| (limiter.name(), count(at)));
    let shares = counts.filter(|it| it.1 > 0 || it.0 == Limiter::Power.name());
    Some(shares.map(|it| (it.0, it.1 as f64 / all as f64)).collect())
}

fn percent(fraction: f64) -> f64 {
    // Sums of floats depend on their order in the last digits.
    (fraction * 1e10).round() / 1e8
}

impl NodeEstimate {
    /// Where power is known never to limit a GPU, moving watts to it gains nothing.
    fn nothing_binds(&mut self, gpus: &[(&str, &Gpu)]) {
        let most = gpus.iter().map(|it| it.1.limited_at_most());
        match most.collect::<Option<Vec<_>>>() {
            Some(most) if most.iter().all(|it| *it <= 0.0) => {
                self.bound.gpu_realloc_throughput_pct = Some(0.0);
                self.bound.cpu_slosh_throughput_pct = Some(0.0);
                let why = "power limits no GPU in any sample";
                self.why.insert("bound", why.to_owned());
            }
            None if self.limiter_share.is_some() => {
                self.why.insert("bound", NOT_AT_CAP.to_owned());
            }
            _ => {}
        }
    }

    fn spread(&mut self, speeds: &Speeds<'_>) {
        let slowest = speeds.pace[speeds.slowest()];
        self.basis = Some(if speeds.is_pace {
            "pace"
        } else {
            "clock at the cap"
        });
        self.spread_pct = Some(percent(bound::slosh(&speeds.pace)));
        let middle = median(&speeds.pace);
        self.slowest_vs_median_pct = middle.map(|it| percent(slowest / it - 1.0));
        let temperatures = speeds.channels.iter().map(|it| it.temperature.value());
        match temperatures.collect::<Option<Vec<_>>>() {
            None => {
                let why = "no column has the temperature of all GPUs".to_owned();
                self.why.insert("hottest_is_slowest", why);
            }
            Some(_) if bound::slosh(&speeds.pace) <= 0.0 => {
                self.why
                    .insert("hottest_is_slowest", "all GPUs are equally fast".to_owned());
            }
            Some(temperatures) => {
                let all = || temperatures.iter().copied();
                let hottest = all().fold(f64::NEG_INFINITY, f64::max);
                if all().all(|it| it >= hottest) {
                    self.why
                        .insert("hottest_is_slowest", "all GPUs are equally hot".to_owned());
                } else {
                    let slowest = temperatures.get(speeds.slowest());
                    self.hottest_is_slowest = slowest.map(|it| *it >= hottest);
                }
            }
        }
    }

    fn bounds(&mut self, speeds: &Speeds<'_>, prices: Option<Prices>, power: Option<f64>) {
        let shares = speeds.gpus.iter().filter_map(|it| it.limited_at_most());
        // While clocks are compared at the cap only, that is when leaders may be slower.
        let watched = match speeds.is_pace {
            true => Some(1.0),
            false => shares.reduce(f64::max),
        };
        let slowest = speeds.gpus[speeds.slowest()];
        // More power helps the node only while power limits the GPU that the others wait for.
        let binds = slowest.limited_at_most();
        let red = |pace: &[f64], slope| bound::red(pace, &speeds.weights(), slope);
        let at_ceiling = slowest.is_at_highest_cap();
        let raised = match at_ceiling {
            true => Some(0.0),
            false => binds,
        };
        let times = |share: Option<f64>, gain: f64| share.map(|it| percent(it * gain));
        self.bound = Bound {
            gpu_red_power_pct: times(watched, red(&speeds.pace, SMALLEST_SLOPE)),
            gpu_realloc_throughput_pct: times(raised, bound::realloc(&speeds.pace)),
            cpu_slosh_throughput_pct: times(raised, bound::slosh(&speeds.pace)),
        };
        if let Some(share) = watched {
            let at = |slope: f64| percent(share * red(&speeds.pace, slope));
            self.gpu_red_at_slopes = SLOPES.iter().map(|it| (it.0, at(it.1))).collect();
        }
        if at_ceiling {
            let why =
                "the slowest GPU's cap is the highest that it can have: only gpu-red can gain";
            self.why.insert("bound", why.to_owned());
        } else if binds.is_none() && slowest.share(Limiter::Power).is_some() {
            self.why.insert("bound", NOT_AT_CAP.to_owned());
        } else if binds.is_none() {
            let why = "no column has the cap or the limiter (--cap-w): whether power limits the GPUs, so that more of \
                       it would help, is not known";
            self.why.insert("bound", why.to_owned());
        } else if binds.is_some_and(|it| it <= 0.0) {
            let why = "power limits the slowest GPU in no sample: more of it would not help";
            self.why.insert("bound", why.to_owned());
        } else if slowest.cap.zip(slowest.highest_cap).is_none() {
            self.why.insert("bound", HIGHEST_CAP_UNKNOWN.to_owned());
        }
        self.intervals(speeds, watched, raised);
        self.value(speeds, prices, power);
    }

    fn value(&mut self, speeds: &Speeds<'_>, prices: Option<Prices>, power: Option<f64>) {
        self.watts = PerPolicy {
            gpu_red: self
                .bound
                .gpu_red_power_pct
                .and_then(|it| Some(it / 100.0 * power?)),
            gpu_realloc: self.bound.gpu_realloc_throughput_pct.map(|_| 0.0),
            cpu_slosh: self.bound.cpu_slosh_throughput_pct.map(|_| 0.0),
        };
        if power.is_none() {
            self.why
                .insert("watts", "no column has the power of all GPUs".to_owned());
        }
        let compared = speeds.pace.len();
        let others = (compared + speeds.too_few.len() < self.gpus)
            .then(|| format!("{compared} of {} GPUs are compared", self.gpus));
        let left_out = speeds.left_out(self.gpus).into_iter().chain(others);
        let left_out = Vec::from_iter(left_out).join("; ");
        if !left_out.is_empty() {
            self.why.insert("gpus", left_out);
        }
        let Some(prices) = prices else {
            let why = "no prices: give --price kwh=...,gpu_hour=...".to_owned();
            self.why.insert("value_per_node_hour", why);
            return;
        };
        let of_time =
            |gain: Option<f64>| gain.map(|it| it / 100.0 * self.gpus as f64 * prices.gpu_hour);
        self.values = PerPolicy {
            gpu_red: self
                .watts
                .gpu_red
                .map(|it| it / 1e3 * prices.energy_per_kwh),
            gpu_realloc: of_time(self.bound.gpu_realloc_throughput_pct),
            cpu_slosh: of_time(self.bound.cpu_slosh_throughput_pct),
        };
        self.value_per_node_hour = self.values.largest();
        self.value_interval(prices, power);
    }

    /// The interval of the policy that is worth most.
    fn value_interval(&mut self, prices: Prices, power: Option<f64>) {
        let per_kilowatt = power.map(|it| it / 1e5 * prices.energy_per_kwh);
        let per_gpu = self.gpus as f64 * prices.gpu_hour / 100.0;
        let largest = self.value_per_node_hour;
        let of = |value: Option<f64>, range: Option<Range>, scale: Option<f64>| {
            let (range, scale) = (range?, scale?);
            (value? >= largest?).then_some(Range(range.0 * scale, range.1 * scale))
        };
        let Intervals {
            gpu_red_power_pct: red,
            gpu_realloc_throughput_pct: realloc,
            cpu_slosh_throughput_pct: slosh,
            ..
        } = self.intervals;
        self.intervals.value_per_node_hour = of(self.values.cpu_slosh, slosh, Some(per_gpu))
            .or_else(|| of(self.values.gpu_realloc, realloc, Some(per_gpu)))
            .or_else(|| of(self.values.gpu_red, red, per_kilowatt));
    }

    /// Jackknife over bins of time in which all GPUs were seen.
    fn intervals(&mut self, speeds: &Speeds<'_>, watched: Option<f64>, raised: Option<f64>) {
        let rows = TimeBins::aligned(&speeds.bins());
        let rows = Vec::from_iter(rows.iter().filter(|row| row.iter().all(|it| it.1 > 0)));
        if rows.len() < LEAST_BINS {
            let why = format!(
                "intervals need {LEAST_BINS} stretches of time in which all GPUs were seen"
            );
            self.why.insert("intervals", why);
            return;
        }
        let without = |left_out: Option<usize>| {
            let kept = rows.iter().enumerate().filter(|it| Some(it.0) != left_out);
            let logs = means(kept.map(|it| *it.1))?;
            Some(Vec::from_iter(logs.into_iter().map(f64::exp)))
        };
        let all = without(None);
        let each = (0..rows.len())
            .map(|at| without(Some(at)))
            .collect::<Option<Vec<_>>>();
        let (Some(all), Some(each)) = (all, each) else {
            return;
        };
        let count = rows.len() as f64;
        let weights = speeds.weights();
        let around = |value: Option<f64>, scale: Option<f64>, of: &dyn Fn(&[f64]) -> f64| {
            let (value, scale) = (value?, scale?);
            let whole = of(&all);
            let pseudo = each.iter().map(|it| count * whole - (count - 1.0) * of(it));
            let half = Mean::of(&Vec::from_iter(pseudo), 0.95)?.half_width() * scale * 100.0;
            Some(Range::around(value, half))
        };
        let slowest = |pace: &[f64]| pace.iter().copied().fold(0.0, f64::max);
        let versus = |pace: &[f64]| slowest(pace) / median(pace).unwrap_or(f64::NAN) - 1.0;
        let bound = self.bound;
        self.intervals = Intervals {
            spread_pct: around(self.spread_pct, Some(1.0), &bound::slosh),
            slowest_vs_median_pct: around(self.slowest_vs_median_pct, Some(1.0), &versus),
            gpu_red_power_pct: around(bound.gpu_red_power_pct, watched, &|pace| {
                bound::red(pace, &weights, SMALLEST_SLOPE)
            })
            .map(Range::of_a_whole),
            gpu_realloc_throughput_pct: around(
                bound.gpu_realloc_throughput_pct,
                raised,
                &bound::realloc,
            ),
            cpu_slosh_throughput_pct: around(bound.cpu_slosh_throughput_pct, raised, &bound::slosh),
            value_per_node_hour: None,
        };
    }

    fn persists(&mut self, speeds: &Speeds<'_>) -> Vec<Halves> {
        let halves = halves(&speeds.bins());
        let seen = Vec::from_iter(halves.iter().copied().flatten());
        let why = match seen.len() {
            0 => NOT_IN_BOTH_HALVES.to_owned(),
            few @ (1 | 2) if few < halves.len() => {
                let all = halves.len();
                format!(
                    "{few} of {all} GPUs were seen in both halves of the time: a correlation needs three"
                )
            }
            1 | 2 => "two GPUs are too few for a correlation".to_owned(),
            _ => {
                self.persistence = correlation(&seen).map(|it| (it * 1e8).round() / 1e8);
                "the GPUs do not differ".to_owned()
            }
        };
        if self.persistence.is_none() {
            self.why.insert("persistence", why);
        }
        halves
    }
}

impl Gpu {
    fn is_at_highest_cap(&self) -> bool {
        let pair = self.cap.zip(self.highest_cap);
        pair.is_some_and(|(cap, highest)| cap >= highest * (1.0 - SAME_CAP))
    }
}
