//! The contract's JSON.

use super::{Contract, Format, PlanError, VERSION};

/// Whether a number need not be written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Clocks in MHz, whole ones without a point.
pub(super) mod megahertz {
    use litd_units::Hertz;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(clock: &Option<Hertz>, to: S) -> Result<S::Ok, S::Error> {
        match clock.map(|clock| clock.0 / 1e6) {
            None => to.serialize_none(),
            Some(whole) if whole.fract() == 0.0 && (0.0..1e9).contains(&whole) => {
                to.serialize_u64(whole as u64)
            }
            Some(other) => to.serialize_f64(other),
        }
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Hertz>, D::Error> {
        let megahertz = Option::<f64>::deserialize(from)?;
        Ok(megahertz.map(|megahertz| Hertz(megahertz * 1e6)))
    }
}

pub(super) fn read(text: &str) -> Result<Contract, PlanError> {
    let text = text.trim_start_matches('\u{feff}');
    // The version first: a newer plan may have keys that this version does not know.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: Option<serde_json::Value>,
    }
    let json = |cause: &serde_json::Error| PlanError::new(format!("it is no plan: {cause}"));
    let versioned: Versioned = serde_json::from_str(text).map_err(|cause| json(&cause))?;
    match versioned.version {
        None => Err(PlanError::new("it is no plan: the key version is missing")),
        Some(version) if version == VERSION => {
            serde_json::from_str(text).map_err(|cause| json(&cause).of(Format::Contract))
        }
        Some(version) => Err(PlanError::new(format!(
            "its version is {version}, and only version {VERSION} is known"
        ))),
    }
}

pub(super) fn write(contract: &Contract) -> String {
    // A contract has nothing that JSON can't have; infinite numbers become null.
    serde_json::to_string(contract).unwrap_or_default() + "\n"
}
