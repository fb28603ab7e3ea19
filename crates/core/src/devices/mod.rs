//! The devices of the node: their last readings, and who owns their caps.

pub(crate) mod ailing;
pub(crate) mod all;
pub(crate) mod answering;
mod faults;
pub(crate) mod following;
pub(crate) mod hardware;
pub(crate) mod identity;
pub(crate) mod landing;
pub(crate) mod limits;
pub(crate) mod mending;
mod moved;
pub(crate) mod not_in_force;
pub(crate) mod range;
pub(crate) mod readings;
pub(crate) mod resets;
pub(crate) mod settling;
pub(crate) mod standing;
pub(crate) mod thermal;
pub(crate) mod unbelieved;
pub(crate) mod unjudged;
pub(crate) mod unmanaged;
pub(crate) mod usage;

use litd_policies::Limits;
use litd_power::{CapRange, DeviceKind};
use litd_units::Watts;

pub(crate) use crate::devices::all::Devices;

use crate::clocks::Clocks;
use crate::config::Caps;
use crate::devices::answering::Answering;
use crate::devices::following::Following;
use crate::devices::hardware::FAILURES;
use crate::devices::landing::Landing;
use crate::devices::range::Range;
use crate::devices::readings::Readings;
use crate::devices::resets::Resets;
use crate::devices::standing::Standing;
use crate::devices::usage::Usage;
use crate::event::Device;
use crate::undo::by_hand::ByHand;

/// A device with all that litd knows of it.
#[derive(Debug)]
pub(crate) struct Unit {
    /// `gpu3`, `cpu0`.
    pub name: String,
    /// Identity of the device and range of its cap.
    pub device: Device,
    /// What its sensors have told.
    pub readings: Readings,
    /// The cap to restore. `None`: unknown, and the device is never touched.
    pub found: Option<Watts>,
    /// The state of the administrator's override.
    pub by_hand: ByHand,
    /// The owner of its cap.
    pub standing: Standing,
    /// Who uses it.
    pub usage: Usage,
    /// Operations and answers.
    pub answering: Answering,
    /// A failed write that may be done late.
    pub landing: Option<Landing>,
    /// Whether its power follows its cap.
    pub following: Following,
    /// When it was reset.
    pub resets: Resets,
    /// State of its locked clocks.
    pub clocks: Clocks,
}

impl Unit {
    /// A device that has answered once at most.
    pub fn new(name: String, mut device: Device) -> Self {
        // Every undo goes to the cap found, and a single reading may be wrong: the first one counts once a second
        // agrees.
        let first = device.reading.take().map(|reading| reading.cap);
        let impossible = first.filter(|&cap| device.range.is_belied_by(cap));
        if let Some(cap) = impossible {
            // The reading or the range is wrong, and nobody can say which.
            device.range.refused(cap);
        }
        let range = device.range;
        Self {
            name,
            found: None,
            by_hand: ByHand::default(),
            device,
            readings: Readings::first(first.filter(|&cap| range.admits(cap)), impossible),
            standing: Standing::Ours,
            usage: Usage::default(),
            answering: Answering::default(),
            landing: None,
            following: Following::default(),
            resets: Resets::default(),
            clocks: Clocks::default(),
        }
    }

    /// Whether a cap is what the driver makes of the wanted one by rounding it.
    pub fn rounds(&self, wanted: Watts, held: Watts) -> bool {
        let resolution = self.device.range.last().map(|range| range.resolution);
        let rounded = resolution.is_some_and(|resolution| (held - wanted).abs() <= resolution);
        rounded || held.is_same_cap(wanted)
    }

    /// Whether its users had it released, or its job opts out: changes to it may be their doing.
    pub fn is_left_alone(&self) -> bool {
        let is_let_go = self.standing.let_go().is_some_and(|it| !it.by_mode);
        is_let_go || self.usage.has_opted_out()
    }

    /// Whether it is no use to wait until it can be judged: its driver does not tell its range, or has failed to read
    /// it, or takes too long.
    pub fn is_beyond_judging(&self) -> bool {
        let failed = self.answering.failures() >= FAILURES || self.answering.is_overdue();
        !self.was_read() && failed || self.device.range.known().is_none()
    }

    /// The device's address.
    pub fn address(&self) -> &str {
        &self.device.identity.address
    }

    /// The back end that serves it.
    pub fn backend(&self) -> &str {
        &self.device.identity.backend
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.device.identity.kind == DeviceKind::Gpu
    }

    /// Whether its driver sets its default cap once nobody has the GPU open any more.
    pub fn is_forgetful(&self) -> bool {
        let reading = self.readings.last();
        self.is_gpu() && reading.is_some_and(|reading| reading.forgetful)
    }

    /// Whether it was read since litd started: until then nobody knows who set its cap, and nothing is written
    /// over it.
    pub fn was_read(&self) -> bool {
        self.readings.last().is_some()
    }

    /// Whether the last reading shows this cap.
    pub fn reads(&self, cap: Watts) -> bool {
        let last = self.readings.cap();
        last.is_some_and(|last| last.is_same_cap(cap))
    }

    /// Whether its driver has to be asked for the range of its cap: it has told none, or one below the cap found,
    /// which can't always have been true.
    pub fn is_to_tell(&self) -> bool {
        let range = &self.device.range;
        range.is_open() || self.found.is_some_and(|found| !range.admits(found))
    }

    /// Whether a cap is the one that its driver starts with.
    pub fn is_default(&self, cap: Watts) -> bool {
        let range = self.device.range.last();
        range.is_some_and(|range| cap.is_same_cap(range.default))
    }

    /// The device belongs to litd again, whatever was known of it before: failures have been mended, or will show
    /// again. Returns its former standing.
    pub fn begins_anew(&mut self) -> Standing {
        let before = self.standing.take_back();
        self.answering.begins_anew();
        self.resets.stop_waiting();
        before
    }

    /// Whether both its cap found and the range of its cap are known.
    pub fn is_judged(&self) -> bool {
        self.found.is_some() && self.device.range.known().is_some()
    }

    /// Whether litd may move its cap.
    pub fn is_ours(&self) -> bool {
        self.standing.is_ours() && self.is_judged()
    }

    /// Whether a hook means this device by this name.
    pub fn is_called(&self, name: &str) -> bool {
        let identity = &self.device.identity;
        identity.address.eq_ignore_ascii_case(name)
            || identity
                .uuid
                .as_ref()
                .is_some_and(|uuid| uuid.eq_ignore_ascii_case(name))
    }

    /// The lowest cap that litd would ever set, as far as known.
    pub fn floor(&self, caps: &Caps) -> Watts {
        let untold = match self.device.identity.kind {
            DeviceKind::Gpu => caps.gpu_floor,
            DeviceKind::Cpu => caps.cpu_floor,
        };
        match self.device.range {
            Range::Told(_) | Range::Asked(_) => self.limits(caps).floor,
            Range::Untold { last, .. } => last.map_or(untold, |last| last.lowest.max(untold)),
        }
    }

    /// The limits of the caps that litd sets: the driver's range within the administrator's bounds. A GPU's
    /// ceiling is the cap that its driver starts with (its TDP), or the cap found if that is higher; a CPU
    /// socket's is the limit found. A device whose driver does not tell its range has one cap, the most that it
    /// could hold.
    pub fn limits(&self, caps: &Caps) -> Limits {
        let CapRange {
            lowest,
            highest,
            default,
            resolution,
        } = match self.device.range {
            Range::Told(range) | Range::Asked(range) => range,
            Range::Untold { most, .. } => {
                return Limits {
                    floor: most,
                    ceiling: most,
                    resolution: Watts::ZERO,
                };
            }
        };
        let found = self.found.unwrap_or(default);
        let (floor, ceiling) = match self.device.identity.kind {
            DeviceKind::Gpu => {
                let usual = default.max(found).min(highest);
                (caps.gpu_floor, caps.gpu_ceiling.unwrap_or(usual))
            }
            DeviceKind::Cpu => (caps.cpu_floor, found),
        };
        // The configured ceiling is for all devices; no driver takes less than its lowest cap.
        let ceiling = ceiling.max(lowest).min(highest);
        Limits {
            // A device whose highest cap is below the floor for all has that cap, and no other.
            floor: lowest.max(floor).min(ceiling),
            ceiling,
            resolution,
        }
        .on_grid()
    }
}

#[cfg(test)]
mod tests {
    use litd_power::Reading;
    use litd_units::Nanos;

    use super::*;
    use crate::devices::all::tests::device;

    fn unit(kind: DeviceKind) -> Unit {
        Unit::new("one".to_owned(), device(kind, "0000:05:00.0"))
    }

    /// The floor and the ceiling of a device under these bounds.
    fn limits(unit: &Unit, caps: &Caps) -> (f64, f64) {
        let limits = unit.limits(caps);
        (limits.floor.0, limits.ceiling.0)
    }

    #[test]
    fn the_first_reading_is_not_believed_and_neither_is_one_beyond_the_range() {
        let read = |cap: f64| {
            let mut device = device(DeviceKind::Gpu, "0000:05:00.0");
            device.reading = Some(Reading {
                cap: Watts(cap),
                ..Reading::default()
            });
            Unit::new("gpu0".to_owned(), device)
        };
        let unit = read(600.0);
        assert!(unit.found.is_none() && !unit.was_read() && !unit.is_ours());
        assert!(unit.readings.unbelieved.is_suspect());
        // Nobody can say which of the two is wrong, so nothing is known of the range.
        let unit = read(9000.0);
        assert!(unit.readings.unbelieved.impossible().is_some());
        assert!(unit.device.range.known().is_none() && unit.is_to_tell());
    }

    #[test]
    fn nobody_waits_for_a_device_that_tells_no_range_or_cannot_be_read() {
        let untold = || {
            let mut unit = unit(DeviceKind::Gpu);
            unit.device.range = Range::NEVER_TOLD;
            unit
        };
        assert!(untold().is_beyond_judging());
        // Its first reading may still come.
        let mut gpu = unit(DeviceKind::Gpu);
        assert!(!gpu.is_beyond_judging());
        for failures in 1..=FAILURES {
            gpu.answering.has_failed_to_read();
            assert_eq!(gpu.is_beyond_judging(), failures == FAILURES);
        }
        // One that was read can be judged by that, whatever follows.
        gpu.readings.comes(Reading::default(), Nanos(0), Nanos(0));
        assert!(gpu.was_read() && !gpu.is_beyond_judging());
    }

    #[test]
    fn a_gpu_is_held_between_the_administrators_bounds_within_its_drivers_range() {
        let mut caps = Caps::default();
        let mut gpu = unit(DeviceKind::Gpu);
        assert_eq!(limits(&gpu, &caps), (200.0, 700.0));
        (caps.gpu_floor, caps.gpu_ceiling) = (Watts(300.0), Some(Watts(650.0)));
        assert_eq!(limits(&gpu, &caps), (300.0, 650.0));
        // Bounds are for all devices: one that can't keep them has one cap, and no other.
        caps.gpu_ceiling = Some(Watts(100.0));
        assert_eq!(limits(&gpu, &caps), (200.0, 200.0));
        caps.gpu_ceiling = Some(Watts(9000.0));
        assert_eq!(limits(&gpu, &caps), (300.0, 700.0));
        // Without a ceiling it is the driver's default, or the cap found where that is higher.
        caps.gpu_ceiling = None;
        let lower = CapRange {
            lowest: Watts(200.0),
            highest: Watts(700.0),
            default: Watts(500.0),
            resolution: Watts(1.0),
        };
        gpu.device.range = lower.into();
        assert_eq!(limits(&gpu, &caps), (300.0, 500.0));
        gpu.found = Some(Watts(600.0));
        assert_eq!(limits(&gpu, &caps), (300.0, 600.0));
    }

    #[test]
    fn a_socket_gets_no_more_than_it_was_found_with() {
        let mut socket = unit(DeviceKind::Cpu);
        socket.found = Some(Watts(350.0));
        let caps = Caps {
            cpu_floor: Watts(250.0),
            ..Caps::default()
        };
        assert_eq!(limits(&socket, &caps), (250.0, 350.0));
    }

    #[test]
    fn a_device_of_unknown_range_has_one_cap_and_its_floor_is_the_configured_one() {
        let mut gpu = unit(DeviceKind::Gpu);
        gpu.device.range = Range::Untold {
            last: None,
            most: Watts(900.0),
        };
        gpu.found = Some(Watts(700.0));
        let caps = Caps::default();
        assert_eq!(limits(&gpu, &caps), (900.0, 900.0));
        assert_eq!(gpu.floor(&caps), Watts(200.0));
        assert!(gpu.standing.is_ours() && !gpu.is_ours());
    }

    #[test]
    fn a_driver_rounds_to_its_unit_and_no_further() {
        let gpu = unit(DeviceKind::Gpu);
        assert!(gpu.rounds(Watts(500.4), Watts(500.0)) && gpu.rounds(Watts(500.0), Watts(501.0)));
        assert!(!gpu.rounds(Watts(500.0), Watts(501.5)));
    }

    #[test]
    fn changes_to_a_device_that_is_left_alone_may_be_its_users_doing() {
        let mut gpu = unit(DeviceKind::Gpu);
        assert!(!gpu.is_left_alone());
        gpu.standing.release(litd_units::Nanos(0), true);
        assert!(!gpu.is_left_alone());
        gpu.standing.release(litd_units::Nanos(0), false);
        assert!(gpu.is_left_alone());
        gpu.begins_anew();
        assert!(!gpu.is_left_alone());
        gpu.usage.opts_out(true);
        assert!(gpu.is_left_alone());
    }
}
