//! A cap that an administrator sets by hand, through litd: within the same limits, written and
//! read back in the same way, and theirs from then on. What they set is what the device came
//! with: steering begins from it and goes back to it, and litd's end does not undo it. So the undo
//! journal need not know: should litd die in the middle, the device holds what they asked for, or
//! what was there before.

use litd_api::{EventKind, Problem};
use litd_policies::Limits;
use litd_power::DeviceKind;
use litd_units::{Nanos, Watts};

use crate::admin::problem;
use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;
use crate::undo::LATE;

/// What has become of the cap that an administrator asked for by hand.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum ByHand {
    /// None was asked for, or the last one is what the device came with by now.
    #[default]
    Settled,
    /// It is to hold this, and was not seen to yet.
    Asked(Watts),
    /// It was answered as not set. It may be there all the same: then what was found goes back.
    Failed(Failed),
    /// It was answered as not set, and the device has been seen since to hold what was found.
    Undone(Failed),
}

/// A cap that was to be set by hand and was answered as not set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failed {
    cap: Watts,
    why: String,
    /// When that was answered.
    at: Nanos,
}

impl ByHand {
    /// The cap that was asked for and has not been answered yet.
    pub fn asked(&self) -> Option<Watts> {
        match self {
            Self::Asked(cap) => Some(*cap),
            Self::Settled | Self::Failed(_) | Self::Undone(_) => None,
        }
    }

    /// What was asked for is not to be any more, if anything was. Returns that cap.
    pub fn fail(&mut self, at: Nanos, why: impl FnOnce() -> String) -> Option<Watts> {
        let cap = self.asked()?;
        let why = why();
        *self = Self::Failed(Failed { cap, why, at });
        Some(cap)
    }

    /// The device was read at `read_at` to hold what was found: a cap that failed before is not owed
    /// any longer, unless it lands late.
    fn seen_back(&mut self, read_at: Nanos) {
        if let Self::Failed(failed) = self
            && read_at > failed.at
        {
            *self = Self::Undone(failed.clone());
        }
    }

    /// The device holds this cap. Returns whether it is the one that was answered as not set: then what was
    /// found is owed.
    fn landed(&mut self, cap: Watts, now: Nanos) -> bool {
        let (Self::Failed(failed) | Self::Undone(failed)) = self else {
            return false;
        };
        if !failed.cap.is_same_cap(cap) || now >= failed.at + LATE {
            return false;
        }
        *self = Self::Failed(failed.clone());
        true
    }
}

impl<S: Store> Core<S> {
    /// Sets a device's cap by hand.
    pub(crate) fn ask_cap(
        &mut self,
        uid: u32,
        name: &str,
        asked: Watts,
    ) -> Result<String, Problem> {
        let devices = self.named(Some(name))?;
        let [device] = devices[..] else {
            return Err(problem("name one device"));
        };
        let cap = self.check_by_hand(device, asked)?;
        let held = self.actuator.held(device);
        let Some(unit) = self.devices.get_mut(device) else {
            return Err(problem("the device is gone"));
        };
        let name = unit.name.clone();
        // One that it holds already is settled before this is answered, also where it is there
        // only because a write that was given up has landed after all.
        unit.by_hand = ByHand::Asked(cap);
        let is_gpu = unit.is_gpu();
        self.writer.asked_by(device, uid);
        if !is_gpu {
            // What is left to the GPUs is less at once, so that they go down first.
            self.bind();
        }
        Ok(if held.is_some_and(|held| held.is_same_cap(cap)) {
            format!("{name} holds {cap} already")
        } else if cap.is_same_cap(asked) {
            format!("{name} is to hold {cap}")
        } else {
            format!("{name} is to hold {cap}: its driver takes no finer steps")
        })
    }

    /// The cap that the driver can hold, if it may be set.
    fn check_by_hand(&self, device: usize, asked: Watts) -> Result<Watts, Problem> {
        let Some(unit) = self.devices.get(device) else {
            return Err(problem("the device is gone"));
        };
        let name = &unit.name;
        let Some(limits) = unit.limits_by_hand(&self.config.caps) else {
            return Err(problem(format!(
                "the driver of {name} does not say what its cap may be: try again once it does"
            )));
        };
        if unit.standing.is_ours() && !unit.is_judged() {
            return Err(problem(format!(
                "the cap of {name} has not been read twice yet, so nobody knows what goes back \
                 when litd ends: try again in some seconds"
            )));
        }
        if !unit.is_ours() || unit.device.range.is_open() {
            let state = unit.standing.state().name();
            return Err(problem(format!(
                "{name} is not litd's to set ({state}): `litctl resume {name}` first"
            )));
        }
        let asked_for = unit.by_hand.asked().is_some();
        if self.is_moved(device) {
            return Err(problem(format!(
                "litd moves the cap of {name} itself: `litctl policy observe` first, which gives \
                 all caps back, as far as a budget lets it"
            )));
        }
        if self.is_journaled(device) || asked_for {
            return Err(problem(match self.set_budget() {
                Some(budget) => format!(
                    "the cap of {name} is litd's to keep a budget of {budget} with: raise that \
                     first (`litctl budget`)"
                ),
                None if unit.landing.is_some() => format!(
                    "a write to {name} that failed may still be done: try again in half a minute"
                ),
                None => format!("the cap of {name} is being set: try again in some seconds"),
            }));
        }
        let cap = asked.cut_to(limits.resolution);
        // Written so that a NaN is refused, and what is rounded down below the floor.
        if !(cap >= limits.floor && asked <= limits.ceiling) {
            return Err(problem(format!(
                "{name}: {asked} is outside this device's {} to {}",
                limits.floor, limits.ceiling
            )));
        }
        self.check_room(device, unit, cap)?;
        Ok(cap)
    }

    /// A budget that was set holds for caps set by hand, too, and so does what the node's leaves to the
    /// GPUs, also where the caps found are less than that. A CPU socket may have what the GPUs can do without.
    fn check_room(&self, device: usize, unit: &Unit, cap: Watts) -> Result<(), Problem> {
        // Less is never too much, whatever the others hold.
        if self.actuator.held(device).is_some_and(|held| cap <= held) {
            return Ok(());
        }
        if !unit.is_gpu() {
            return self.check_floors(device, unit, cap);
        }
        let budgets = [self.set_budget(), self.node.bound()];
        let Some(budget) = budgets.into_iter().flatten().reduce(Watts::min) else {
            return Ok(());
        };
        let budget = budget - self.unmanaged_hold();
        let others = self.devices.gpus().filter(|&(other, _)| other != device);
        let most = |(other, unit): (usize, &Unit)| {
            let asked = unit.by_hand.asked().unwrap_or(Watts::ZERO);
            self.actuator.most_of(other).max(asked)
        };
        let others: Watts = others.map(most).sum();
        if others + cap > budget {
            return Err(problem(format!(
                "{}: {cap} would be above the budget: the other GPUs hold {others} of {budget}",
                unit.name
            )));
        }
        Ok(())
    }

    /// Whether the GPUs can be set to what this limit of a CPU socket leaves them of what the node may draw.
    fn check_floors(&self, device: usize, unit: &Unit, cap: Watts) -> Result<(), Problem> {
        let Some(left) = self.left_to_gpus() else {
            return Ok(());
        };
        let left = left + self.came_with(device, unit) - cap;
        let floors = self.bounds().floors();
        match left >= floors {
            true => Ok(()),
            false => Err(problem(format!(
                "{}: {cap} would leave {left} of what the node may draw to the GPUs, whose floors add up to \
                 {floors}",
                unit.name
            ))),
        }
    }

    /// What became of a cap set by hand: nothing yet, the cap that is held, or why it is not.
    #[must_use]
    pub fn outcome_by_hand(&self, name: &str) -> Option<Result<Watts, String>> {
        let devices = self.named(Some(name)).ok()?;
        let unit = self.devices.get(*devices.first()?)?;
        Some(match (&unit.by_hand, unit.found) {
            (ByHand::Asked(_), _) => return None,
            (ByHand::Failed(failed) | ByHand::Undone(failed), _) => Err(failed.why.clone()),
            (ByHand::Settled, Some(found)) => Ok(found),
            (ByHand::Settled, None) => Err("its cap is not known".to_owned()),
        })
    }

    /// Whether any job's loop moves a device's cap now.
    pub(crate) fn is_moved(&self, device: usize) -> bool {
        let ours = self.devices.get(device).is_some_and(Unit::is_ours);
        ours && self.jobs.values().any(|job| job.moves(device))
    }

    /// Whether a device may hold a cap that was to be set by hand and was answered as not set.
    pub(crate) fn owes_undo(&self, device: usize, unit: &Unit) -> bool {
        // What is being written is not what is held yet.
        let held = self.actuator.held(device);
        let held = held.filter(|_| !self.actuator.is_writing(device));
        let held = held.zip(unit.back());
        matches!(unit.by_hand, ByHand::Failed(_))
            && !held.is_some_and(|(held, back)| held.is_same_cap(back))
    }

    /// Whether this write is an administrator's.
    pub(crate) fn is_by_hand(&self, device: usize, cap: Watts) -> bool {
        let asked = self
            .devices
            .get(device)
            .and_then(|unit| unit.by_hand.asked());
        asked.is_some_and(|asked| asked.is_same_cap(cap))
    }

    /// An administrator's write has ended. If the device does not hold what was asked for, that
    /// is the answer, and what was found goes back.
    pub(crate) fn wrote_by_hand(&mut self, device: usize, held: Result<Watts, String>) {
        let now = self.now;
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let Some(cap) = unit.by_hand.asked() else {
            return;
        };
        let why = match held {
            Ok(held) if held.is_same_cap(cap) => return,
            Ok(held) => format!("it was set to {cap} and holds {held}"),
            Err(why) => why,
        };
        let text = format!("could not be set by hand, and what was found goes back: {why}");
        unit.by_hand.fail(now, || why);
        let address = unit.address().to_owned();
        self.note(Note::warning(EventKind::Command, text).device(&address));
        // What a socket was to take is the GPUs' again, all of it.
        self.bind_anew();
    }

    /// A device that holds what was asked for by hand came with it from now on; one that holds what was
    /// found after all owes nothing any longer.
    pub(crate) fn settle_by_hand(&mut self) {
        let mut settled = Vec::new();
        for (device, unit) in self.devices.iter_mut() {
            let held = self.actuator.held(device);
            let held = held.filter(|_| !self.actuator.is_writing(device));
            let holds = |cap: Watts| held.is_some_and(|held| held.is_same_cap(cap));
            if unit.back().is_some_and(holds) {
                unit.by_hand.seen_back(unit.read_at);
            }
            let Some(cap) = unit.by_hand.asked().filter(|&cap| holds(cap)) else {
                continue;
            };
            unit.by_hand = ByHand::Settled;
            if !unit
                .found
                .replace(cap)
                .is_some_and(|it| it.is_same_cap(cap))
            {
                settled.push((unit.address().to_owned(), cap));
            }
        }
        for (address, cap) in settled {
            let text = format!("holds {cap}, set by hand: it stays when litd ends");
            self.note(Note::info(EventKind::Command, text).device(&address));
        }
    }

    /// Whether a cap that has turned up is one that was to be set by hand and was answered as not set, which
    /// its driver has done late: what was found goes back then.
    pub(crate) fn landed_by_hand(&mut self, device: usize, cap: Watts) -> bool {
        let now = self.now;
        let Some(unit) = self.devices.get_mut(device) else {
            return false;
        };
        if !unit.by_hand.landed(cap, now) {
            return false;
        }
        let text = format!(
            "{cap}, which was to be set by hand and was answered as not set, is there after all: what was \
             found goes back"
        );
        let note = Note::warning(EventKind::Command, text).device(unit.address());
        self.note(note);
        true
    }

    /// Caps that were to be set by hand are not, because litd ends first.
    pub(crate) fn forget_by_hand(&mut self) {
        let now = self.now;
        for (_, unit) in self.devices.iter_mut() {
            unit.by_hand.fail(now, || "litd is stopping".to_owned());
        }
    }

    /// Nobody waits any longer for a cap to be set by hand: it is not to be set later, unseen.
    pub fn give_up_by_hand(&mut self, now: Nanos, name: &str) {
        self.moves_on(now);
        let now = self.now;
        let devices = self.named(Some(name)).unwrap_or_default();
        let device = devices.first().copied();
        let Some(unit) = device.and_then(|device| self.devices.get_mut(device)) else {
            return;
        };
        let late = || "it was not done in time, and is given up".to_owned();
        let Some(cap) = unit.by_hand.fail(now, late) else {
            return;
        };
        let address = unit.address().to_owned();
        let mut text =
            format!("{cap} is not to be set by hand any more: nobody waits for it any longer");
        if let Some(device) = device.filter(|&device| self.actuator.is_writing(device)) {
            text.push_str(", and should its driver still set it, what was found goes back");
            self.journal_late(device, cap);
        }
        self.note(Note::warning(EventKind::Command, text).device(&address));
        self.settle_up();
    }
}

impl Unit {
    /// The cap that the device is to have while no loop moves it.
    pub(crate) fn base(&self) -> Option<Watts> {
        self.by_hand.asked().or(self.back())
    }

    /// The cap that goes back when litd ends: the one found, or the nearest that the driver takes by
    /// now.
    pub(crate) fn back(&self) -> Option<Watts> {
        let held = self.device.reading.map(|reading| reading.cap);
        let nearest = |found| self.device.range.nearest(found, held);
        self.found.map(nearest)
    }

    /// What may be set by hand: all that the driver accepts and the configuration allows.
    fn limits_by_hand(&self, caps: &crate::config::Caps) -> Option<Limits> {
        let range = self.device.range.known()?;
        let (floor, ceiling) = match self.device.identity.kind {
            DeviceKind::Gpu => (caps.gpu_floor, caps.gpu_ceiling.unwrap_or(range.highest)),
            DeviceKind::Cpu => (caps.cpu_floor, range.highest),
        };
        let ceiling = ceiling.min(range.highest);
        Some(Limits {
            floor: range.lowest.max(floor).min(ceiling),
            ceiling,
            resolution: range.resolution,
        })
    }
}
