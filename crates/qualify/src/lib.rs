//! `litd qualify` without its shell: which writes an examination of a device makes, what its answers show, and the
//! report. Nothing here asks a device, reads a clock or opens a file: the shell carries out each [`Step`] and hands
//! back the answer, so that tests can be every device there could be.
//!
//! - [`target`]: the one cap that a device is lowered to, or why the device is not written to;
//! - [`Exam`]: the steps of one device's examination, and what the answers mean;
//! - [`sensors`]: periods, noise and energy counters, from readings alone;
//! - [`report`]: the schema of the report; [`text`]: the same for people; [`page`]: docs/qualified.md.
//!
//! Two rules hold whatever a device answers, and properties test them: no write is above the cap found or below the
//! floor, and an examination ends with the cap found, with somebody else's cap, or as [`Ending::Owed`].

mod exam;
pub mod page;
pub mod report;
pub mod sensors;
mod target;
pub mod text;

pub use exam::{Ending, Exam, Pace, Step, Stop};
pub use target::{Facts, STEP, target};
