//! The input of planners: time and energy of each kind of operation at each clock, measured ([`Profile`]) or
//! fitted ([`Spec`]), with the curves between the measured points ([`Curve`]). Costs are effective ones: energy
//! less what blocking would have used in the same time (Perseus, section 4.1, equation 4). And their output: the
//! [`plan`] contract.

mod curve;
mod fit;
mod input;
mod kind;
pub mod plan;
mod profile;
mod spec;
pub mod synthetic;
mod units;

pub use curve::{Curve, CurveError};
pub use fit::{Fit, Quality};
pub use input::{ReadError, read};
pub use kind::{Kind, MAX_STAGES, stage};
pub use profile::{Measurement, Priced, Pricing, Profile, ProfileError, Rounding, Shape};
pub use spec::{ClockOption, Entry, Spec, SpecError};
pub use units::Units;
