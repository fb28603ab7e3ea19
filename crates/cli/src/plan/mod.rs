//! The time-energy frontier of a pipeline (Perseus), and the plans on it, as litctl shows them of what was
//! measured and litlab of what it makes up ([`Costs`] is the difference).

mod contract;
pub mod frontier;
mod input;
pub mod kareus;
pub mod lookup;
mod picture;
pub mod timeline;

use std::fmt::{self, Write as _};

use litd_planner::{Job, Plan};
use litd_units::Millis;

pub use input::{Costs, Fallible, Graphing, Priced, parse};
pub use picture::draw as draw_timeline;

/// How much less energy a plan uses than another, in percent.
#[must_use]
pub fn saving(plan: &Plan, than: &Plan) -> f64 {
    100.0 * (1.0 - plan.energy / than.energy)
}

/// Explains a fastest plan that takes longer than the full clock.
pub(crate) fn rounding(out: &mut String, job: &Job, full: &Plan, plan: &Plan) -> fmt::Result {
    let longer = 100.0 * (plan.realised / full.realised - 1.0);
    let shows = longer >= 0.005 && longer.is_finite();
    if plan.time > job.frontier().shortest() || !shows {
        return Ok(());
    }
    let unit = job.scale().unit.0;
    writeln!(
        out,
        "It takes {longer:.2} % longer than at full clock, because planned times are whole units \
         of {unit} ms: a smaller --unit comes nearer."
    )
}

pub(crate) fn seconds(time: Millis) -> String {
    format!("{:.4} s", time.0 * 1e-3)
}

/// Reads a number that is more than 0.
///
/// # Errors
/// It is none.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0".into())
}
