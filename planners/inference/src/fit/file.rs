//! The file of a calibration: JSON with the constants, the corrections, and the rows from which they were
//! fitted.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::gpu::Gpu;
use crate::kernel::{Analytic, Constants, Interpolating, KernelModel, Point};
use crate::table::{Row, Table};

/// The format's name and version.
const FORMAT: &str = "litd-inference fitted 1";

/// Rows that were fitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The table's name.
    pub table: String,
    /// The GPU's kind.
    pub kind: String,
    /// How many rows of it.
    pub rows: usize,
    /// The hash of the rows: of [`hash`].
    pub hash: String,
}

/// A calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// The format's name and version.
    pub format: String,
    /// The GPU whose rows were fitted.
    pub gpu: Gpu,
    /// The rows fitted.
    pub training: Vec<Training>,
    /// The constants.
    pub constants: Constants,
    /// The corrections; none where only constants were fitted.
    pub points: Vec<Point>,
}

/// Why a file is no calibration.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FileError {
    #[error("is no calibration: {0}")]
    Json(#[from] serde_json::Error),
    #[error("has the format {0:?}, where {FORMAT:?} is needed: calibrate again")]
    Format(String),
    #[error("has a constant that is no positive number: calibrate again")]
    Constant,
    #[error("has a correction that is no number: calibrate again")]
    Point,
    #[error("was fitted on {fitted}, and {asked} was asked for")]
    OtherGpu { fitted: String, asked: String },
}

impl Fitted {
    /// A calibration.
    #[must_use]
    pub fn new(
        gpu: Gpu,
        training: Vec<Training>,
        constants: Constants,
        points: Vec<Point>,
    ) -> Self {
        Self {
            format: FORMAT.to_owned(),
            gpu,
            training,
            constants,
            points,
        }
    }

    /// Reads a calibration for a GPU.
    ///
    /// # Errors
    /// It is none, or one of another GPU.
    pub fn parse(text: &str, gpu: &Gpu) -> Result<Self, FileError> {
        let fitted: Self = serde_json::from_str(text)?;
        if fitted.format != FORMAT {
            return Err(FileError::Format(fitted.format));
        }
        if !fitted.constants.are_sane() {
            return Err(FileError::Constant);
        }
        let finite = |it: &Point| {
            let values = it.at.iter().chain([&it.latency]).chain(&it.power);
            values
                .into_iter()
                .all(|it| it.is_finite() && it.abs() < 1e4)
        };
        if !fitted.points.iter().all(finite) {
            return Err(FileError::Point);
        }
        match fitted.gpu.name == gpu.name {
            true => Ok(fitted),
            false => Err(FileError::OtherGpu {
                fitted: fitted.gpu.name,
                asked: gpu.name.clone(),
            }),
        }
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> Box<dyn KernelModel> {
        let analytic = Analytic::new(self.gpu.clone(), self.constants);
        match self.points.is_empty() {
            true => Box::new(analytic),
            false => Box::new(Interpolating::new(analytic, self.points.clone())),
        }
    }

    /// The table whose rows were all fitted, if one with this hash was: predictions of it say nothing.
    #[must_use]
    pub fn saw(&self, table: &Table) -> Option<&Training> {
        let hash = hash(table);
        self.training.iter().find(|it| it.hash == hash)
    }
}

/// The hash of a table's rows: FNV-1a of 64 bits over each row's shape, time and power, in the file's order.
#[must_use]
pub fn hash(table: &Table) -> String {
    let mut text = String::new();
    for Row {
        subject,
        latency,
        power,
        limit,
        ..
    } in &table.rows
    {
        text.push_str(&format!("{subject:?} {latency:?} {power:?} {limit:?}\n"));
    }
    format!("fnv1a64:{:016x}", fnv(text.as_bytes()))
}

/// FNV-1a (Fowler, Noll, Vo).
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference values of the algorithm's authors.
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
