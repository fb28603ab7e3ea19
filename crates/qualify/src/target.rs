//! The cap that an examination lowers a device to, and the devices that are not written to.

use litd_power::{CapRange, Identity, Reading, Sharing};
use litd_units::Watts;

/// How far a cap is lowered, where the driver's unit allows: enough to be told from rounding, and too little to harm.
pub const STEP: Watts = Watts(5.0);

/// The facts about a device before anything is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The device.
    pub identity: Identity,
    /// The range of its cap, if the driver tells.
    pub range: Option<CapRange>,
    /// The first reading, if there was one. Its cap is the one to restore.
    pub reading: Option<Reading>,
    /// The administrator's floor for devices of this kind.
    pub floor: Watts,
}

/// The cap that the device is lowered to: [`STEP`] below the one found, or one unit where that is more or the floor
/// leaves no more room.
///
/// # Errors
/// Why the device is not written to: something about it is unclear, or the cap found could not be set again.
pub fn target(facts: &Facts) -> Result<Watts, String> {
    let Facts {
        identity,
        range,
        reading,
        floor,
    } = facts;
    match identity.sharing {
        Sharing::Whole => {}
        Sharing::Mig => return Err("MIG is on: its instances share one cap".to_owned()),
        Sharing::Partitioned => return Err("it is partitioned: its parts share one cap".to_owned()),
        Sharing::Mps => return Err("MPS is on: its clients share one cap".to_owned()),
    }
    let range = range.ok_or("its driver does not report the range of its cap")?;
    let reading = reading.ok_or("its driver does not report its cap")?;
    let (found, unit) = (reading.cap, range.resolution);
    let settable = range.lowest.max(Watts::ZERO)..=range.highest;
    if !(found > Watts::ZERO && settable.contains(&found)) {
        return Err(format!(
            "its cap found, {found}, is outside the range that its driver reports, {} to {}: it could not be set again",
            range.lowest, range.highest
        ));
    }
    if !found.cut_to(unit).is_same_cap(found) {
        return Err(format!(
            "its cap found, {found}, is no multiple of its driver's unit, {unit}: it could not be set again"
        ));
    }
    if reading.forgetful && !found.is_same_cap(range.default) {
        return Err(format!(
            "without persistence mode its driver sets {} once no program has it open, and its cap found is {found}: \
             switch persistence mode on (`nvidia-smi -pm 1`), set the cap again, and qualify then",
            range.default
        ));
    }
    let floor = floor.max(range.lowest);
    let below = |step: Watts| (found - step).cut_to(unit);
    let wanted = [STEP, unit].map(below).into_iter();
    let allowed = wanted.filter(|&cap| cap >= floor && cap < found && cap > Watts::ZERO);
    allowed.reduce(Watts::min).ok_or_else(|| {
        format!("its cap found, {found}, can't be lowered without going below the floor, {floor}")
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use litd_power::{DeviceKind, ReadBack};
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn facts(found: f64) -> Facts {
        Facts {
            identity: Identity {
                kind: DeviceKind::Gpu,
                address: "0000:05:00.0".to_owned(),
                uuid: None,
                serial: None,
                model: "GPU".to_owned(),
                driver: "1".to_owned(),
                backend: "test".to_owned(),
                sharing: Sharing::Whole,
                read_back: ReadBack::Device,
            },
            range: Some(CapRange {
                lowest: Watts(200.0),
                highest: Watts(700.0),
                default: Watts(700.0),
                resolution: Watts(1.0),
            }),
            reading: Some(Reading {
                cap: Watts(found),
                ..Reading::default()
            }),
            floor: Watts(200.0),
        }
    }

    #[test]
    fn a_cap_goes_down_by_a_few_watts_or_by_the_one_that_is_left() {
        assert_eq!(target(&facts(700.0)), Ok(Watts(695.0)));
        assert_eq!(target(&facts(205.0)), Ok(Watts(200.0)));
        assert_eq!(target(&facts(203.0)), Ok(Watts(202.0)));
        assert!(target(&facts(200.0)).unwrap_err().contains("floor, 200 W"));
        let mut coarse = facts(700.0);
        coarse.range.as_mut().unwrap().resolution = Watts(25.0);
        assert_eq!(target(&coarse), Ok(Watts(675.0)));
    }

    #[test]
    fn what_could_not_be_set_again_or_is_unclear_is_not_written() {
        for found in [199.0, 701.0, 0.0, f64::NAN, f64::INFINITY, 500.5] {
            target(&facts(found)).unwrap_err();
        }
        type Change = fn(&mut Facts);
        let changes: [(&str, Change); 5] = [
            ("MIG", |it| it.identity.sharing = Sharing::Mig),
            ("partitioned", |it| {
                it.identity.sharing = Sharing::Partitioned;
            }),
            ("does not report the range", |it| it.range = None),
            ("does not report its cap", |it| it.reading = None),
            ("persistence mode", |it| {
                it.reading.as_mut().unwrap().forgetful = true;
            }),
        ];
        for (part, change) in changes {
            let mut facts = facts(650.0);
            change(&mut facts);
            let why = target(&facts).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        // The driver would set this very cap.
        let mut forgetful = facts(700.0);
        forgetful.reading.as_mut().unwrap().forgetful = true;
        target(&forgetful).unwrap();
    }

    proptest! {
        #[test]
        fn no_target_is_above_the_cap_found_or_below_a_floor(
            lowest in -10.0..800.0_f64, highest in 0.0..900.0_f64, found in 0.0..900.0_f64,
            unit in prop_oneof![Just(1.0), Just(0.001), Just(0.125), Just(25.0), Just(0.0)], floor in 0.0..500.0_f64,
            whole: bool,
        ) {
            let mut facts = facts(if whole { found.floor() } else { found });
            let range = facts.range.as_mut().unwrap();
            (range.lowest, range.highest) = (Watts(lowest), Watts(highest));
            range.resolution = Watts(unit);
            facts.floor = Watts(floor);
            if let Ok(cap) = target(&facts) {
                let found = facts.reading.unwrap().cap;
                prop_assert!(cap < found && cap >= Watts(lowest) && cap >= Watts(floor) && cap > Watts::ZERO);
                prop_assert!(found <= Watts(highest));
            }
        }
    }
}
