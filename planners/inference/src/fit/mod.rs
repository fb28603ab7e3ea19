//! Calibration: constants of the analytic model from measured rows, and corrections from the same rows.

mod file;
mod simplex;

use litd_units::{Millis, Watts};

pub(crate) use simplex::least;

pub use file::{FileError, Fitted, Training, hash};

use crate::gpu::Gpu;
use crate::kernel::{Analytic, Constants, Family, Kernel, KernelModel as _, Point, Setting};
use crate::kernel::{Demand, place};
use crate::table::{Row, Subject, Table};

/// Kernels shorter than this draw no steady power: boards average over longer, ms.
pub const STEADY: Millis = Millis(0.06);

/// No more rows than these are looked at in each step of a fit: evenly chosen ones say as much as all.
const ROWS: usize = 2_500;

/// A measured kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The kernel's shape.
    pub kernel: Kernel,
    /// The measured time.
    pub latency: Millis,
    /// The measured power.
    pub power: Option<Watts>,
    /// The power limit under which it ran.
    pub setting: Setting,
}

impl Sample {
    /// A row of a kernel; none of what is more than one.
    #[must_use]
    pub fn of(row: &Row) -> Option<Self> {
        match row.subject {
            Subject::Kernel(kernel) => Some(Self {
                kernel,
                latency: row.latency,
                power: row.power,
                setting: row.setting(),
            }),
            Subject::Layer(_) | Subject::Request(_) => None,
        }
    }

    /// The power where it is steady.
    #[must_use]
    pub fn steady_power(&self) -> Option<Watts> {
        self.power.filter(|_| self.latency >= STEADY)
    }
}

/// The half of a table to which a row belongs. Rows of a shape group are in the same half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Rows that are fitted.
    Train,
    /// Rows that are predicted.
    Test,
}

/// The rows of one half. Groups of collectives are sizes, of which every second one is held out;
/// others go by a hash of their shape, so that neither half is a corner of the table.
#[must_use]
pub fn half(table: &Table, half: Half) -> Table {
    let mut groups: Vec<&str> = table.rows.iter().map(|it| it.group.as_str()).collect();
    let size = |group: &str| -> f64 {
        let number = group.rsplit('=').next().unwrap_or_default();
        number.parse().unwrap_or(0.0)
    };
    groups.sort_by(|a, b| size(a).total_cmp(&size(b)).then(a.cmp(b)));
    groups.dedup();
    let by_order = groups.first().is_some_and(|it| !it.contains(','));
    let test = |group: &str| match by_order {
        true => {
            let key = |it: &&str| size(it).total_cmp(&size(group)).then((*it).cmp(group));
            groups.binary_search_by(key).unwrap_or(0) % 2 == 1
        }
        false => file::fnv(group.as_bytes()) >> 17 & 1 == 1,
    };
    let wanted = |row: &&Row| test(&row.group) == (half == Half::Test);
    Table {
        kind: table.kind,
        rows: table.rows.iter().filter(wanted).cloned().collect(),
        skipped: table.skipped,
    }
}

/// Measured kernels of one GPU.
pub struct Measured<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The kernels.
    pub samples: &'a [Sample],
}

/// The constants that fit samples of one or several GPUs best, family by family; families without samples
/// keep `from`'s. Each row counts by the logarithm of its ratio.
#[must_use]
pub fn constants(from: &Constants, measured: &[Measured]) -> Constants {
    let mut fitted = *from;
    for family in Family::ALL {
        let chosen: Vec<(&Gpu, Vec<Sample>)> = measured
            .iter()
            .map(|it| (it.gpu, thinned(it.samples, family)))
            .filter(|it| it.1.len() >= 8)
            .collect();
        if chosen.is_empty() {
            continue;
        }
        fitted = latency(&fitted, family, &chosen);
        fitted = power(&fitted, family, &chosen);
    }
    fitted
}

fn thinned(samples: &[Sample], family: Family) -> Vec<Sample> {
    let of_family = |it: &&Sample| it.kernel.family() == family;
    let all: Vec<Sample> = samples.iter().filter(of_family).copied().collect();
    // A step that shares no divisor with grids of powers of two.
    let step = (all.len() / ROWS).max(1) | 1;
    all.into_iter().step_by(step).collect()
}

/// Mean over GPUs, so that one with a longer table does not speak for all.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), it| (sum + it, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn latency(from: &Constants, family: Family, measured: &[(&Gpu, Vec<Sample>)]) -> Constants {
    let cost = |values: &[f64]| {
        let constants = from.with_latency(family, values);
        let of_gpu = |(gpu, samples): &(&Gpu, Vec<Sample>)| {
            let model = Analytic::new((*gpu).clone(), constants);
            mean(samples.iter().map(|it| {
                let predicted = model.work(&it.kernel, &it.setting).latency;
                (predicted / it.latency.0).ln().abs()
            }))
        };
        mean(measured.iter().map(of_gpu))
    };
    from.with_latency(family, &simplex::least(&from.latency_vec(family), cost))
}

fn power(from: &Constants, family: Family, measured: &[(&Gpu, Vec<Sample>)]) -> Constants {
    // The utilisation that was measured, not the one that the latency model predicts.
    let steady = |(gpu, samples): &(&Gpu, Vec<Sample>)| -> Vec<(Gpu, Demand, Watts, Watts)> {
        let model = Analytic::new((*gpu).clone(), *from);
        let of_sample = |it: &Sample| {
            let power = it.steady_power()?;
            let work = model.work(&it.kernel, &it.setting);
            let limit = it.setting.power_limit.unwrap_or(gpu.power_limit);
            Some((
                (*gpu).clone(),
                Demand::of(&work, work.latency),
                power,
                limit,
            ))
        };
        samples.iter().filter_map(of_sample).collect()
    };
    let rows: Vec<_> = measured
        .iter()
        .map(steady)
        .filter(|it| it.len() >= 8)
        .collect();
    if rows.is_empty() {
        return *from;
    }
    let cost = |values: &[f64]| {
        let constants = from.with_power(family, values);
        let error = |(gpu, demand, power, limit): &(Gpu, Demand, Watts, Watts)| {
            let predicted = demand.power(gpu, constants.power_of(family)).min(*limit);
            (predicted / *power).ln().abs()
        };
        mean(rows.iter().map(|rows| mean(rows.iter().map(error))))
    };
    from.with_power(
        family,
        &simplex::least(&from.power_of(family).to_vec(), cost),
    )
}

/// The model's error at each sample.
#[must_use]
pub fn corrections(model: &Analytic, samples: &[Sample]) -> Vec<Point> {
    let point = |it: &Sample| {
        let family = it.kernel.family();
        let work = model.work(&it.kernel, &it.setting);
        let demand = Demand::of(&work, work.latency);
        let predicted = demand.power(model.gpu(), model.constants().power_of(family));
        let limit = it.setting.power_limit.unwrap_or(model.gpu().power_limit);
        Point {
            family,
            at: place(&it.kernel),
            latency: (it.latency.0 / work.latency).ln(),
            power: it
                .steady_power()
                .map(|power| (power / predicted.min(limit)).ln()),
        }
    };
    let finite = |it: &Point| it.latency.is_finite() && it.power.is_none_or(f64::is_finite);
    samples.iter().map(point).filter(finite).collect()
}
