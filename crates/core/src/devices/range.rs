//! The range of a device's cap, as far as its driver has told. A driver may be slow, refuse, or tell an impossible
//! range: until it tells a possible one nobody can judge what the device may hold, and its cap found still has to
//! be restored.

use litd_power::CapRange;
use litd_units::Watts;

/// No device can be set to so much: a higher cap was misread.
const ABSURD: Watts = Watts(100_000.0);

/// The range of a device's cap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// The driver has told this range.
    Told(CapRange),
    /// The device was reset or taken back since its driver told this range: it is asked anew, and the old range
    /// counts meanwhile.
    Asked(CapRange),
    /// The driver does not tell a range, or the device itself contradicts it. The driver is asked again every
    /// second.
    Untold {
        /// The last range that it told, if it ever did.
        last: Option<CapRange>,
        /// The most that the device could hold, which it counts with.
        most: Watts,
    },
}

impl From<CapRange> for Range {
    /// An empty range counts as none.
    fn from(range: CapRange) -> Self {
        match range.highest > Watts::ZERO && range.highest >= range.lowest {
            true => Self::Told(range),
            false => Self::NEVER_TOLD,
        }
    }
}

impl Range {
    /// The range of a device whose driver has never told. It counts as infinite until something is known.
    pub const NEVER_TOLD: Self = Self::Untold {
        last: None,
        most: ABSURD,
    };

    /// The range that counts now, unless the driver does not tell.
    pub(crate) fn known(&self) -> Option<CapRange> {
        match self {
            Self::Told(range) | Self::Asked(range) => Some(*range),
            Self::Untold { .. } => None,
        }
    }

    /// The last range that the driver told, if it ever did.
    #[must_use]
    pub fn last(&self) -> Option<CapRange> {
        match self {
            Self::Told(range) | Self::Asked(range) => Some(*range),
            Self::Untold { last, .. } => *last,
        }
    }

    /// The most that the device could hold, while its driver does not tell.
    pub(crate) fn unjudged(&self) -> Option<Watts> {
        match self {
            Self::Untold { most, .. } => Some(*most),
            Self::Told(_) | Self::Asked(_) => None,
        }
    }

    /// Whether the driver has to be asked.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::Told(_))
    }

    /// The device was reset, or is taken back: its driver may tell another range now.
    pub(crate) fn ask_anew(&mut self) {
        if let Self::Told(range) = *self {
            *self = Self::Asked(range);
        }
    }

    /// The driver does not tell, or has told an impossible range. Until the device is judged anew it counts with
    /// `most`.
    pub(crate) fn refused(&mut self, most: Watts) {
        if let Some(range) = self.known() {
            let last = Some(range);
            *self = Self::Untold { last, most };
        }
    }

    /// A better value of the most that the device could hold; used only where its driver does not tell.
    pub(crate) fn judge(&mut self, could_hold: Watts) {
        if let Self::Untold { most, .. } = self {
            *most = could_hold;
        }
    }

    /// Whether a device like this can hold a cap at all: if not, it was misread. Caps found may be below the
    /// driver's range, which is for setting, and are never above it.
    pub(crate) fn admits(&self, cap: Watts) -> bool {
        let highest = self
            .known()
            .map_or(ABSURD, |range| range.highest + range.resolution);
        cap > Watts::ZERO && cap <= highest
    }

    /// Whether a device was read to hold a cap that is possible, but outside the range that its driver tells: one
    /// of the two is wrong.
    pub(crate) fn is_belied_by(&self, cap: Watts) -> bool {
        !self.admits(cap) && Self::NEVER_TOLD.admits(cap)
    }

    /// Whether a cap is above the last range that the driver told, while it tells none.
    pub(crate) fn is_beyond_last(&self, cap: Watts) -> bool {
        match self {
            Self::Untold {
                last: Some(last), ..
            } => cap > last.highest + last.resolution,
            Self::Untold { last: None, .. } | Self::Told(_) | Self::Asked(_) => false,
        }
    }

    /// The cap to restore on a device that holds `held`, if `found` was found: that cap or, should the driver's
    /// highest have shrunk below it, the nearest that the driver takes. A device is never lowered for that: the
    /// driver's range may be wrong, and restoring goes up to be nearer.
    pub(crate) fn nearest(&self, found: Watts, held: Option<Watts>) -> Watts {
        match self {
            Self::Told(range) if found > range.highest + range.resolution => {
                let highest = range.highest.cut_to(range.resolution);
                held.map_or(highest, |held| held.min(found).max(highest))
            }
            _ => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: CapRange = CapRange {
        lowest: Watts(200.0),
        highest: Watts(700.0),
        default: Watts(700.0),
        resolution: Watts(1.0),
    };

    #[test]
    fn a_driver_that_fails_to_tell_is_remembered_and_asked_until_it_does() {
        let mut range = Range::from(RANGE);
        assert!(!range.is_open());
        range.ask_anew();
        assert_eq!(range, Range::Asked(RANGE));
        range.refused(Watts(800.0));
        assert_eq!(range.unjudged(), Some(Watts(800.0)));
        assert_eq!((range.known(), range.last()), (None, Some(RANGE)));
        // A second failure keeps both values.
        range.refused(Watts(1.0));
        range.ask_anew();
        assert_eq!(range.last(), Some(RANGE));
        assert!(range.is_open());
        range.judge(Watts(750.0));
        assert_eq!(range.unjudged(), Some(Watts(750.0)));
    }

    #[test]
    fn nothing_above_the_range_is_a_cap_and_without_a_range_only_the_absurd_is_not() {
        let told = Range::from(RANGE);
        let never = Range::NEVER_TOLD;
        for (cap, by_told, by_never) in [
            (f64::NAN, false, false),
            (0.0, false, false),
            (-1.0, false, false),
            (100.0, true, true),
            (701.0, true, true),
            (702.0, false, true),
            (100_001.0, false, false),
        ] {
            assert_eq!(told.admits(Watts(cap)), by_told, "{cap}");
            assert_eq!(never.admits(Watts(cap)), by_never, "{cap}");
        }
    }

    #[test]
    fn a_range_without_room_is_none() {
        for (lowest, highest) in [(0.0, 0.0), (500.0, 400.0), (0.0, f64::NAN), (0.0, -1.0)] {
            let range = CapRange {
                lowest: Watts(lowest),
                highest: Watts(highest),
                ..RANGE
            };
            assert_eq!(Range::from(range), Range::NEVER_TOLD, "{lowest} {highest}");
        }
    }

    #[test]
    fn what_goes_back_is_cut_only_by_a_range_that_was_told() {
        let found = Watts(750.0);
        let held = Some(Watts(600.0));
        let told = Range::from(RANGE);
        assert_eq!(told.nearest(found, held), Watts(700.0));
        assert_eq!(told.nearest(found, None), Watts(700.0));
        assert_eq!(told.nearest(Watts(650.0), held), Watts(650.0));
        // Not below what it holds.
        assert_eq!(told.nearest(found, Some(Watts(720.0))), Watts(720.0));
        assert_eq!(told.nearest(found, Some(Watts(800.0))), found);
        assert_eq!(Range::Asked(RANGE).nearest(found, held), found);
        assert_eq!(Range::NEVER_TOLD.nearest(found, held), found);
    }
}
