//! The envelope: what caps may be. A law asks; the envelope projects what it asks for onto the
//! set of allowed cap vectors. Nothing else makes a [`CapVector`], and actuation takes nothing
//! else, so a vector that breaks a rule can't be written.

use litd_units::Watts;
use thiserror::Error;

/// Whole microwatts: sums of caps are compared with budgets exactly, as integers. It is also
/// the finest unit that any driver speaks.
pub(crate) type Microwatts = i64;

/// A watt in microwatts.
const WATT: f64 = 1e6;

/// A thousandth of a microwatt: 520.8 W times a million is a little less than 520,800,000 in
/// floats, and must not lose a whole microwatt, and with it a driver unit, when rounded down.
const DUST: f64 = 1e-3;

/// More than this is no power limit of one device, but a mistake in units.
const MOST: Watts = Watts(100_000.0);

/// The limits of one device's cap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The lowest cap that is allowed.
    pub floor: Watts,
    /// The highest cap that is allowed (TDP, or less).
    pub ceiling: Watts,
    /// The driver's unit: caps are whole multiples of it.
    pub resolution: Watts,
}

impl Limits {
    /// The same with a floor that the driver can hold: rounded up to its unit. Where that is above the
    /// ceiling no whole unit lies between the two, and the device has one cap: the ceiling rounded down.
    #[must_use]
    pub fn on_grid(self) -> Self {
        let down = self.floor.cut_to(self.resolution);
        let is_whole = down.is_same_cap(self.floor);
        let floor = if is_whole {
            self.floor
        } else {
            down + self.resolution
        };
        let ceiling = self.ceiling.cut_to(self.resolution);
        match floor <= ceiling {
            true => Self { floor, ..self },
            false => Self {
                floor: ceiling,
                ceiling,
                ..self
            },
        }
    }
}

/// A device's limits on its driver's grid: `floor` rounded up, `ceiling` rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    floor: Microwatts,
    ceiling: Microwatts,
    unit: Microwatts,
}

/// Why limits and a budget make no envelope.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum EnvelopeError {
    /// There is nothing to cap.
    #[error("no device to cap")]
    NoDevices,
    /// A limit is not a number of watts that a device can have.
    #[error(
        "device {device}: {what} is {value}, which is not possible: it must be more than 0 and at most 100000 W"
    )]
    NotAPower {
        /// The device, counted from 0: GPUs first, then CPU sockets.
        device: usize,
        /// The limit's name.
        what: &'static str,
        /// The limit.
        value: Watts,
    },
    /// No whole driver unit lies between floor and ceiling.
    #[error(
        "device {device}: no cap between the floor of {floor} and the ceiling of {ceiling} in units of {unit}"
    )]
    EmptyRange {
        /// The device, counted from 0: GPUs first, then CPU sockets.
        device: usize,
        /// The floor.
        floor: Watts,
        /// The ceiling.
        ceiling: Watts,
        /// The driver's unit.
        unit: Watts,
    },
    /// Even with every cap at its floor the sum is too high.
    #[error("the budget of {budget} is below the {floors} that all caps at their floors add up to")]
    BudgetTooSmall {
        /// The budget.
        budget: Watts,
        /// The sum of floors.
        floors: Watts,
    },
}

/// The set of allowed cap vectors: every cap within its device's range, in whole driver units,
/// the sum within the budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    ranges: Vec<Range>,
    budget: Microwatts,
}

/// Caps that an [`Envelope`] allows, one per device. It has no public constructor:
///
/// ```compile_fail,E0451
/// use litd_policies::CapVector;
/// let forged = CapVector { caps: vec![820_000_000], budget: i64::MAX };
/// ```
///
/// The only way is through an envelope:
///
/// ```
/// use litd_policies::{CapVector, Envelope, Limits};
/// use litd_units::Watts;
/// let limits = Limits { floor: Watts(300.0), ceiling: Watts(750.0), resolution: Watts(1.0) };
/// let envelope = Envelope::new(&[limits], Watts(750.0)).unwrap();
/// let caps: CapVector = envelope.project(&[Watts(820.0)], &[Watts(700.0)]);
/// assert_eq!(caps.watts(0), Some(Watts(750.0)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapVector {
    caps: Vec<Microwatts>,
    budget: Microwatts,
}

/// A driver that lies may name any power. Beyond this, far above every budget, all are one: as many
/// of them as there can be devices still add up, and no sum of them ever becomes a small one.
const FARTHEST: f64 = (Microwatts::MAX >> 20) as f64;

/// A whole number of microwatts; NaN becomes 0.
fn whole(power: f64) -> Microwatts {
    power.clamp(-FARTHEST, FARTHEST) as Microwatts
}

fn microwatts_down(power: Watts) -> Microwatts {
    whole((power.0 * WATT + DUST).floor())
}

/// The nearest whole number of microwatts, of a finite power.
pub(crate) fn microwatts(power: Watts) -> Option<Microwatts> {
    power.is_finite().then(|| whole((power.0 * WATT).round()))
}

/// A cap in whole microwatts; `None` for NaN.
#[must_use]
pub fn to_the_microwatt(cap: Watts) -> Option<Watts> {
    microwatts(cap).map(watts)
}

pub(crate) fn watts(power: Microwatts) -> Watts {
    Watts(power as f64 / WATT)
}

impl Range {
    fn new(device: usize, limits: &Limits) -> Result<Self, EnvelopeError> {
        let named = [
            ("floor", limits.floor),
            ("ceiling", limits.ceiling),
            ("resolution", limits.resolution),
        ];
        for (what, value) in named {
            // A floor of zero is allowed: some drivers name no minimum.
            let enough = if what == "floor" {
                value >= Watts::ZERO
            } else {
                value.0 * WATT >= 1.0
            };
            if !(enough && value <= MOST) {
                return Err(EnvelopeError::NotAPower {
                    device,
                    what,
                    value,
                });
            }
        }
        let unit = (limits.resolution.0 * WATT).round() as Microwatts;
        let floor = (limits.floor.0 * WATT - DUST).ceil() as Microwatts;
        let floor = floor + (unit - floor % unit) % unit;
        let ceiling = microwatts_down(limits.ceiling);
        let ceiling = ceiling - ceiling % unit;
        if floor > ceiling {
            return Err(EnvelopeError::EmptyRange {
                device,
                floor: limits.floor,
                ceiling: limits.ceiling,
                unit: limits.resolution,
            });
        }
        Ok(Self {
            floor,
            ceiling,
            unit,
        })
    }

    /// The highest cap on the grid that is at most `power` and within the range.
    fn round_down(&self, power: Microwatts) -> Microwatts {
        let power = power.clamp(self.floor, self.ceiling);
        power - power % self.unit
    }
}

impl Envelope {
    /// An envelope over devices in a fixed order (GPUs first, then CPU sockets). Refused where
    /// no cap vector could satisfy it.
    pub fn new(devices: &[Limits], budget: Watts) -> Result<Self, EnvelopeError> {
        if devices.is_empty() {
            return Err(EnvelopeError::NoDevices);
        }
        let ranges = devices
            .iter()
            .enumerate()
            .map(|(device, limits)| Range::new(device, limits))
            .collect::<Result<Vec<_>, _>>()?;
        let floors: Microwatts = ranges.iter().map(|range| range.floor).sum();
        let microwatts = microwatts_down(budget);
        if microwatts < floors {
            return Err(EnvelopeError::BudgetTooSmall {
                budget,
                floors: watts(floors),
            });
        }
        Ok(Self {
            ranges,
            budget: microwatts,
        })
    }

    /// How many devices it covers.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.ranges.len()
    }

    /// The bound on the sum of the caps.
    #[must_use]
    pub fn budget(&self) -> Watts {
        watts(self.budget)
    }

    /// The lowest and the highest cap of a device, the budget aside.
    #[must_use]
    pub fn range(&self, device: usize) -> Option<(Watts, Watts)> {
        let range = self.ranges.get(device)?;
        Some((watts(range.floor), watts(range.ceiling)))
    }

    /// Whether a device may hold this cap, the budget aside.
    #[must_use]
    pub fn allows(&self, device: usize, cap: Watts) -> bool {
        self.ranges.get(device).is_some_and(|range| {
            cap >= watts(range.floor) && cap <= watts(range.ceiling + range.unit - 1)
        })
    }

    /// The allowed caps nearest to the `wanted` ones (in the sum of squares), rounded down to
    /// driver units. Where the budget binds, all caps above their floors come down by the same
    /// amount. A wanted cap that is missing or not finite becomes the `held` one.
    #[must_use]
    pub fn project(&self, wanted: &[Watts], held: &[Watts]) -> CapVector {
        self.project_rising(wanted, held, &[])
    }

    /// Like [`Envelope::project`], with no cap rising above the held one by more than its
    /// `rise` (absent: no limit but the range). A held cap below its floor rises to the floor
    /// all the same: the range comes first. A held cap that is missing or not finite is taken
    /// for the floor.
    #[must_use]
    pub fn project_rising(&self, wanted: &[Watts], held: &[Watts], rise: &[Watts]) -> CapVector {
        let caps: Vec<Microwatts> = self
            .ranges
            .iter()
            .enumerate()
            .map(|(device, range)| {
                let held = finite(held, device).unwrap_or(watts(range.floor));
                let wanted = finite(wanted, device).unwrap_or(held);
                let most = match rise.get(device) {
                    None => wanted,
                    // Not `f64::min`: a NaN as rise allows none.
                    Some(&rise) if rise > Watts::ZERO => wanted.min(held + rise),
                    Some(_) => wanted.min(held),
                };
                microwatts_down(most).clamp(range.floor, range.ceiling)
            })
            .collect();
        let cut = self.cut(&caps);
        let caps = caps
            .iter()
            .zip(&self.ranges)
            .map(|(cap, range)| range.round_down(cap - cut))
            .collect();
        CapVector {
            caps,
            budget: self.budget,
        }
    }

    /// By how much caps within their ranges must all come down (those at their floors stay
    /// there) for the sum to fit the budget: the Euclidean projection's one unknown.
    fn cut(&self, caps: &[Microwatts]) -> Microwatts {
        let mut over = caps.iter().sum::<Microwatts>() - self.budget;
        if over <= 0 {
            return 0;
        }
        let mut room: Vec<Microwatts> = caps
            .iter()
            .zip(&self.ranges)
            .map(|(cap, range)| cap - range.floor)
            .collect();
        room.sort_unstable();
        // Devices with little room reach their floors first and leave the rest to the others.
        let mut left = room.len() as Microwatts;
        for room in room {
            let share = (over + left - 1) / left;
            if share <= room {
                return share;
            }
            over -= room;
            left -= 1;
        }
        // Not reached: `new` made sure that the floors fit the budget.
        Microwatts::MAX / 2
    }
}

fn finite(values: &[Watts], device: usize) -> Option<Watts> {
    values
        .get(device)
        .copied()
        .filter(|value| value.is_finite())
}

impl CapVector {
    /// The cap of one device.
    #[must_use]
    pub fn watts(&self, device: usize) -> Option<Watts> {
        self.caps.get(device).map(|&cap| watts(cap))
    }

    /// All caps, in the envelope's order of devices.
    #[must_use]
    pub fn to_watts(&self) -> Vec<Watts> {
        self.caps.iter().map(|&cap| watts(cap)).collect()
    }

    /// How many devices it covers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.caps.len()
    }

    /// Whether it covers none; never true of what an envelope made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.caps.is_empty()
    }

    /// The sum of all caps: at most the budget.
    #[must_use]
    pub fn sum(&self) -> Watts {
        watts(self.caps.iter().sum())
    }

    /// The budget of the envelope that made it.
    #[must_use]
    pub fn budget(&self) -> Watts {
        watts(self.budget)
    }
}
