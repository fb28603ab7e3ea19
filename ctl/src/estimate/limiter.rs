//! Words for a GPU's limiter in telemetry.

use litd_api::Limiter;

/// Bits of NVML's clocks event reasons, in the order in which litd looks at them: heat and a brake come with
/// hardware's slowdown.
const REASONS: [(u64, Limiter); 5] = [
    (0x40, Limiter::Heat),
    (0x20, Limiter::Heat),
    (0x80, Limiter::PowerBrake),
    (0x08, Limiter::Hardware),
    (0x04, Limiter::Power),
];

/// From the mask of nvidia-smi (`clocks_event_reasons.active`) and DCGM (`DCGM_FI_DEV_CLOCKS_EVENT_REASONS`).
pub fn of_mask(mask: u64) -> Limiter {
    let reason = REASONS.iter().find(|it| mask & it.0 != 0);
    reason.map_or(Limiter::None, |it| it.1)
}

/// From a word: litd's own names, those of NVML's reasons and of amd-smi's violations, or a mask.
pub fn of_word(word: &str) -> Option<Limiter> {
    let word = word.to_ascii_lowercase().replace([' ', '-'], "_");
    let mask = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    if let Some(mask) = mask {
        return Some(of_mask(mask));
    }
    Some(match word.as_str() {
        "power" | "sw_power_cap" | "power_cap" | "ppt" | "cap" => Limiter::Power,
        "enforced" => Limiter::Enforced,
        "heat"
        | "thermal"
        | "sw_thermal_slowdown"
        | "hw_thermal_slowdown"
        | "sw_thermal"
        | "hw_thermal"
        | "socket_thermal"
        | "prochot" => Limiter::Heat,
        "memory" | "hbm" | "hbm_thermal" => Limiter::Memory,
        "regulator" | "vr" | "vr_thermal" | "tdc" => Limiter::Regulator,
        "power_brake" | "hw_power_brake" | "hw_power_brake_slowdown" => Limiter::PowerBrake,
        "hardware" | "hw_slowdown" => Limiter::Hardware,
        "none" | "idle" | "gpu_idle" | "not_active" | "applications_clocks_setting" => {
            Limiter::None
        }
        "unknown" => Limiter::Unknown,
        _ => return None,
    })
}

/// The limiter of a yes-or-no column, by its name in lower case.
pub fn of_column(name: &str) -> Option<Limiter> {
    let reason = ["clocks_event_reasons.", "clocks_throttle_reasons."];
    let reason = reason.iter().find_map(|it| name.strip_prefix(it));
    let violation = || name.strip_suffix("_violation_status");
    match reason.or_else(violation)? {
        // NVML has it for all kinds of slowdown that hardware makes.
        "hw_slowdown" => Some(Limiter::Hardware),
        word => of_word(word).filter(|it| !matches!(it, Limiter::None | Limiter::Unknown)),
    }
}

/// The limiter of several such columns together: the strongest of those that are active.
pub fn strongest(one: Limiter, other: Limiter) -> Limiter {
    let rank = |limiter| match limiter {
        Limiter::Heat => 0,
        Limiter::PowerBrake => 1,
        Limiter::Memory => 2,
        Limiter::Regulator => 3,
        Limiter::Hardware => 4,
        Limiter::Enforced => 5,
        Limiter::Power => 6,
        Limiter::None => 7,
        Limiter::Unknown => 8,
    };
    if rank(one) <= rank(other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_masks_are_one_limiter() {
        for (word, limiter) in [
            ("0x0000000000000004", Limiter::Power),
            ("4", Limiter::Power),
            ("SW Power Cap", Limiter::Power),
            ("0x48", Limiter::Heat),
            ("0x88", Limiter::PowerBrake),
            ("0x8", Limiter::Hardware),
            ("0x1", Limiter::None),
            ("0", Limiter::None),
            ("hbm", Limiter::Memory),
            ("unknown", Limiter::Unknown),
        ] {
            assert_eq!(of_word(word), Some(limiter), "{word}");
        }
        assert_eq!(of_word("gremlins"), None);
        let name = "clocks_throttle_reasons.sw_power_cap";
        assert_eq!(of_column(name), Some(Limiter::Power));
        assert_eq!(
            of_column("vr_thermal_violation_status"),
            Some(Limiter::Regulator)
        );
        assert_eq!(of_column("clocks_event_reasons.gpu_idle"), None);
        assert_eq!(of_column("ppt_violation_accumulated"), None);
    }
}
