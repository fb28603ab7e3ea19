//! Releasing devices and taking them back. When a device is released its cap found is restored, every handle is
//! closed and nothing opens it again, so that it can be reset and its driver upgraded. Its job is only observed;
//! the job's other devices keep their caps.

use litd_api::{EventKind, Problem};
use litd_power::{Handles, Operation};
use litd_units::{Nanos, Watts};

use crate::core::{Core, seconds};
use crate::devices::Unit;
use crate::devices::mending::Trust;
use crate::event::DeviceId;
use crate::record::Note;
use crate::store::Store;
use crate::undo::progress::{Progress, Remains};

/// How long litd tries to restore a cap; then the device is closed all the same. An administrator is answered
/// within 5 s.
const TRIES: Nanos = Nanos(2_000_000_000);

/// How long the others may take to make room for the cap that a device gets when it is closed or reset.
const MAKES_ROOM: Nanos = Nanos(3_000_000_000);

/// The text about a device whose driver's library stays open because of another device.
const HELD: &str = "its cap is back, but its driver's library has one session for all GPUs, which stays open because \
                    the driver of another GPU does not answer or does not open it: a reset or an upgrade fails until \
                    that is over or litd is stopped";

/// A released device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LetGo {
    /// Since when.
    pub since: Nanos,
    /// A reading from before then tells nothing of its cap.
    pub looked: Nanos,
    /// Whether its cap could not be restored and litd has stopped trying: it stays in the undo journal.
    pub given_up: bool,
    /// Set once its handles were closed, with the handles that are left of its driver's library.
    pub closed: Option<Handles>,
    /// When it was closed last: until it is read again its cap is unknown.
    pub unseen_since: Option<Nanos>,
    /// Whether it was released only because litd is off: it is taken back when that ends.
    pub by_mode: bool,
    /// Whether it was released because litd is off, and no foreign cap is in force there: then litd keeps it
    /// within the safe budget, if that is to be left behind.
    pub held: bool,
}

impl<S: Store> Core<S> {
    /// Restores devices' caps and releases the devices.
    pub(crate) fn let_go(&mut self, device: Option<&str>) -> Result<String, Problem> {
        for device in self.devices.named(device)? {
            self.let_go_of(device, false);
        }
        Ok("letting go".to_owned())
    }

    pub(crate) fn let_go_of(&mut self, device: usize, by_mode: bool) {
        let (now, held) = (self.now(), self.writer.account().held(device));
        let owed = self.may_open(device) || self.writer.is_journaled(device);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        // While litd is only off, failed locks are looked after in time.
        let may_lock = unit.clocks.lock.is_free_for_now() && !by_mode;
        let owed = owed || may_lock && unit.standing.let_go().is_some_and(|it| it.by_mode);
        if let Some(let_go) = unit.standing.let_go_mut()
            && let_go.closed.is_some()
            && !(owed || let_go.given_up || let_go.held)
        {
            // The device stays closed, and what it may hold since then counts as before.
            let_go.by_mode &= by_mode;
            let_go.since = now;
            return;
        }
        if unit.standing.is_kept() {
            // The foreign cap stays, and becomes the cap found.
            unit.found = held;
        }
        unit.standing.release(now, by_mode);
        unit.clocks.lock.free_once_more();
        // The driver is not asked about a reset any more, and another reset may come before the device is taken
        // back.
        unit.resets.stop_waiting();
        self.turn_away(device);
        self.writer.account_mut().retry(device);
        // The cap is restored at once, without waiting for anybody's sensor.
        let gpus: Vec<usize> = self.devices.gpus().map(|(gpu, _)| gpu).collect();
        for gpu in gpus {
            self.writer.believe(gpu, &mut self.devices);
        }
        self.standing_changed(device);
    }

    /// A device's handles are closed.
    pub(crate) fn closed(&mut self, device: usize, handles: Handles) {
        if let Some(unit) = self.devices.get_mut(device)
            && let Some(let_go) = unit.standing.let_go_mut()
        {
            let_go.closed = Some(handles);
            let_go.unseen_since = Some(self.out.now());
            // A suspect reading will not be repeated: no undo waits for it any longer.
            self.writer.account_mut().suspect_no_more(device);
        }
    }

    /// Closes released devices whose caps can't be restored, and takes back those that were released for long
    /// enough.
    pub(crate) fn check_let_go(&mut self) {
        if self.authority.is_stopping() {
            return;
        }
        let back = self.config.release.resume_after_seconds;
        let mut returning = Vec::new();
        for device in 0..self.devices.iter().count() {
            let Some(let_go) = self
                .devices
                .get(device)
                .and_then(|unit| unit.standing.let_go())
            else {
                continue;
            };
            if let_go.by_mode {
                self.look_once_more(device, let_go);
                continue;
            }
            if !self.authority.is_off() && back > 0.0 && self.now() >= let_go.since + seconds(back)
            {
                returning.push(device);
            } else if self.now() >= let_go.since + TRIES && self.owes_cap(device) {
                self.give_up_cap(device);
            }
        }
        if !returning.is_empty() {
            let text = format!("released {back} s ago: taken back");
            self.take_back_noted(&returning, &text);
        }
    }

    /// Whether litd still tries to restore a released device's cap, or has closed it without that because it holds what a
    /// safe budget leaves to it.
    fn owes_cap(&self, device: usize) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        let is_tried = unit.standing.let_go().is_some_and(|it| !it.given_up);
        let is_back =
            self.is_back_for_now(device, unit) || self.left_view(device, unit).is_left(None);
        let is_short = self.writer.is_journaled(device) && !is_back;
        self.may_open(device) || is_tried && is_short
    }

    /// While litd is off closed devices are not read: once a failed write can't be done any more, the device is
    /// opened again and read, so that a late write is undone. A device that its users had released is not opened:
    /// it may be about to be reset.
    fn look_once_more(&mut self, device: usize, let_go: LetGo) {
        let now = self.now();
        let is_owed = self.writer.is_journaled(device);
        let Some(unit) = self
            .devices
            .get_mut(device)
            .filter(|_| is_owed && let_go.closed.is_some())
        else {
            return;
        };
        let is_over = unit.landing.as_ref().is_some_and(|it| it.is_over(now));
        if let Some(let_go) = unit.standing.let_go_mut().filter(|_| is_over) {
            (let_go.closed, let_go.since, let_go.looked) = (None, now, now);
            self.devices.want_read(device);
        }
    }

    /// Closes released devices with nothing left to undo, once the others have made room.
    pub(crate) fn close_let_go(&mut self) {
        if self
            .devices
            .iter()
            .any(|(device, _)| self.waits_for_room(device))
        {
            // A device that has left the journal counts with its default from now on.
            self.replan();
            self.write_caps();
        }
        for device in 0..self.devices.iter().count() {
            let Some(unit) = self.devices.get(device) else {
                continue;
            };
            let Some(let_go) = unit.standing.let_go().filter(|_| !self.may_open(device)) else {
                continue;
            };
            let closing = matches!(unit.answering.doing(), Some((Operation::Release, _)));
            let waits = closing || self.waits_for_room(device);
            self.devices
                .want_closed(device, let_go.closed.is_none() && !waits);
        }
    }

    /// Whether a released device whose cap is restored stays open for now, because others still have to be
    /// lowered: without persistence mode it gets its default once it is closed, otherwise once it is reset.
    fn waits_for_room(&self, device: usize) -> bool {
        let unit = self.devices.get(device);
        let let_go = unit.and_then(|unit| unit.standing.let_go());
        let in_time = |it: LetGo| it.closed.is_none() && self.now() < it.since + MAKES_ROOM;
        if !let_go.is_some_and(in_time) || self.authority.is_stopping() {
            return false;
        }
        let is_unplanned = |most| self.writer.account().most_of(device) < most;
        let most = self.once_reset(device);
        most.is_some_and(|most| is_unplanned(most) || self.writer.account().is_lowering())
    }

    fn give_up_cap(&mut self, device: usize) {
        let held = self.writer.account().held(device);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        if let Some(let_go) = unit.standing.let_go_mut() {
            let_go.given_up = true;
        }
        let address = unit.address().to_owned();
        let why = if unit.answering.failures() > 0 || !unit.answering.is_free() {
            "its driver did not take it"
        } else {
            "the other devices' caps leave no room for it below the budget"
        };
        let owed = owed(held, unit.found);
        let text = format!("is closed although its cap is not back, because {why}: {owed}");
        self.note(Note::warning(EventKind::Restore, text).device(&address));
    }

    /// A released device has come back, from a reset or with another driver: it is taken back. No handle was
    /// opened to see that.
    pub(crate) fn returned(&mut self, DeviceId(device): DeviceId) {
        if !self.config.release.resume_on_return {
            return;
        }
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let Some(let_go) = unit.standing.let_go_mut() else {
            return;
        };
        // While litd is off it stays released; it is taken back afterwards.
        let_go.by_mode |= self.authority.is_off();
        let is_later = let_go.by_mode;
        self.leave_alone_no_more(device);
        if !is_later {
            self.take_back_noted(&[device], "it has come back: taken back");
        }
    }

    /// litd takes a device again: its entry is removed, also where this litd dies before it has read the device.
    fn leave_alone_no_more(&mut self, device: usize) {
        let unit = self.devices.get(device);
        if unit.is_some_and(|unit| self.condition.left_alone.take(unit)) {
            self.save_condition();
        }
    }

    fn take_back_noted(&mut self, devices: &[usize], text: &str) {
        for &device in devices {
            if let Some(unit) = self.devices.get(device) {
                let note = Note::info(EventKind::State, text).device(unit.address());
                self.note(note);
            }
        }
        self.take_back(devices);
    }

    /// Steers devices again, from what they hold now.
    pub(crate) fn take_back(&mut self, devices: &[usize]) {
        for &device in devices {
            self.leave_alone_no_more(device);
        }
        self.begin_anew_with(devices);
    }

    /// The same without a command, after litd was only off: foreign caps stay foreign.
    pub(crate) fn begin_anew_with(&mut self, devices: &[usize]) {
        for &device in devices {
            let journaled = self.writer.is_journaled(device);
            let held = self.writer.account().held(device);
            let writing = self.writer.account().is_writing(device);
            let Some(unit) = self.devices.get_mut(device) else {
                continue;
            };
            if unit.standing.is_ours() {
                continue;
            }
            let before = unit.begins_anew();
            let unread = before.let_go().is_some();
            // The entry of a foreign cap is about late writes, or outdated.
            let journaled = journaled && !before.is_kept();
            unit.following.begins_anew();
            unit.answering.give_time();
            unit.resets.forget();
            unit.answering.trust = Trust::default();
            if !journaled && !writing && !before.is_overwritten() {
                // A cap that is there now was set on purpose by an administrator, except when it is a failed
                // override that was done late. If nothing was read meanwhile, the cap has to be read first.
                unit.found = held.filter(|_| !unread);
                self.devices.want_read(device);
            }
            if unread {
                // The device may have been reset, have another driver or a foreign cap: until it has been read it
                // counts with the most that it could hold, and its range is read anew.
                if let Some(unit) = self.devices.get_mut(device) {
                    unit.readings.forget_last();
                    self.writer.account_mut().forget(device);
                }
                self.devices.ask_anew(device);
            }
            self.writer.account_mut().retry(device);
            self.standing_changed(device);
        }
    }

    /// The released devices, by address.
    pub fn let_go_of_now(&self) -> impl Iterator<Item = (DeviceId, &str)> {
        let let_go = self
            .devices
            .iter()
            .filter(|(_, unit)| unit.standing.let_go().is_some());
        let_go.map(|(device, unit)| (DeviceId(device), unit.address()))
    }

    /// The progress of releasing a device, or all of them.
    #[must_use]
    pub fn letting_go(&self, device: Option<&str>) -> Progress {
        let devices = self.devices.named(device).unwrap_or_default();
        let units = devices
            .into_iter()
            .filter_map(|device| Some((device, self.devices.get(device)?)));
        let each =
            units.map(|(device, unit)| (unit.name.as_str(), self.remains_open(device, unit)));
        Progress::of(
            each,
            "caps are restored and no handle is open until `litctl resume` or what [release] configures",
        )
    }

    fn remains_open(&self, device: usize, unit: &Unit) -> Remains {
        let owed = || owed(self.writer.account().held(device), unit.found);
        match (unit.standing.let_go(), unit.answering.doing()) {
            (None, _) => Remains::Others("was taken back meanwhile".to_owned()),
            (Some(LetGo { closed: Some(handles), .. }), _) => {
                match self.writer.is_journaled(device) || self.writer.may_be_locked(unit) {
                    true if unit.landing.is_some() && self.is_back_for_now(device, unit) => Remains::Others(
                        "is closed and its cap restored, but a write that failed may still take effect: it stays in \
                         the undo journal until litd takes it back or restarts"
                            .to_owned(),
                    ),
                    true => Remains::Owed(format!("is closed, but {}", owed())),
                    false if handles == Handles::HeldByAnother => Remains::Owed(HELD.to_owned()),
                    false if unit.clocks.lock.is_free_for_now() => Remains::Others(
                        "is closed, its cap restored and its clocks unlocked, but a lock of them that failed may still \
                         take effect: litd unlocks them once more when it takes the device back, stops or restarts"
                            .to_owned(),
                    ),
                    false => Remains::Nothing,
                }
            }
            (Some(_), Some((_, since))) => Remains::Open(format!(
                "its driver has not answered for {:.1} s, so its handle is open and its cap may \
                 not be restored",
                (self.now() - since).as_secs_f64()
            )),
            (Some(_), None) if self.waits_for_room(device) => Remains::Open(
                "its cap is restored, but it stays open until other caps are lowered: once it is closed or reset its \
                 driver may set the default cap, and the budget has no room for that yet"
                    .to_owned(),
            ),
            (Some(_), None) => {
                Remains::Open(format!("it is open until its cap is restored: {}", owed()))
            }
        }
    }
}

fn owed(held: Option<Watts>, found: Option<Watts>) -> String {
    let watts = |cap: Option<Watts>| cap.map_or("an unknown cap".to_owned(), |cap| cap.to_string());
    format!(
        "it holds {}, and {} is restored when litd takes it again or stops",
        watts(held),
        watts(found)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::stand::Stand;

    /// Two GPUs that were found at 600 W and hold 400 W each.
    fn lowered(config: Config) -> Stand {
        let mut node = Stand::new(config, &[600.0, 600.0]);
        node.pass(3);
        node.has_budget(800.0);
        assert_eq!(node.caps(), [400.0, 400.0]);
        node
    }

    fn let_go(node: &Stand) -> Option<LetGo> {
        node.unit(1).standing.let_go()
    }

    #[test]
    fn others_make_room_for_a_released_gpu_before_it_has_its_cap_back() {
        let mut node = lowered(Config::default());
        node.writes.clear();
        node.release(1);
        node.pass(3);
        // Once it is closed it may be reset to its default of 700 W, for which there is no room: 200 W are the floor.
        assert_eq!(node.caps(), [200.0, 600.0]);
        assert_eq!(node.writes, [(0, 200.0), (1, 600.0)]);
        assert!(let_go(&node).unwrap().closed.is_some() && !let_go(&node).unwrap().given_up);
    }

    #[test]
    fn a_released_gpu_stays_released_for_the_time_configured_and_for_ever_without_one() {
        let mut config = Config::default();
        config.release.resume_after_seconds = 6.0;
        let mut node = lowered(config);
        node.release(1);
        node.pass(5);
        assert!(let_go(&node).is_some());
        node.pass(4);
        assert!(let_go(&node).is_none());
        assert_eq!(node.caps(), [400.0, 400.0]);
        let mut node = lowered(Config::default());
        node.release(1);
        node.pass(100);
        assert!(let_go(&node).is_some());
    }

    #[test]
    fn a_gpu_that_does_not_take_its_cap_back_is_closed_after_two_seconds_and_stays_owed() {
        let mut node = lowered(Config::default());
        node.refuse = vec![1];
        node.release(1);
        node.pass(1);
        assert!(!let_go(&node).unwrap().given_up);
        node.pass(3);
        let it = let_go(&node).unwrap();
        assert!(it.given_up && it.closed.is_some());
        assert!(node.core.writer.is_journaled(1));
    }
}
