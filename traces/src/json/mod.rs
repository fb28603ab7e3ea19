//! JSON of any length, looked at only as far as it matters.

pub(crate) mod number;
pub(crate) mod scan;
pub(crate) mod text;
mod word;
