//! Operations of devices: they begin, writes are done, and answers come.

use litd_core::{DeviceId, Doubt, Event, Operation, Reply, SessionId};
use litd_power::{DeviceKind, Handles, PowerError, ReadBack, Reading, Throttle};

use crate::fault::Fault;
use crate::hardware::{Anothers, MILLI, Op, micro, whole};
use crate::ledger::ROOM;
use crate::world::{BRAKE, Ev, QUICK, SLOW, World};

impl World {
    /// A device begins what it was told.
    pub fn begin(&mut self, device: usize, operation: Operation) {
        if self.hw[device].op.is_some() {
            return self.broke("one at a time", format!("device {device}: {operation:?}"));
        }
        self.note(|| format!("    device {device}: {operation:?}"));
        self.opens(device, operation);
        if let Operation::Set(cap) = operation {
            if let Some(lasts) = self.hw[device].moods.leaves.take() {
                self.hw[device].gone = true;
                self.trouble(device, lasts);
                self.after(lasts, Ev::Back(device));
            }
            self.writes += 1;
            self.issue(device, micro(cap));
        }
        let mut takes = self.rng.between(1, QUICK) * MILLI;
        if self.rng.chance(0.02) {
            takes += self.rng.between(10, SLOW) * MILLI;
        }
        if let Some(block) = self.hw[device].moods.takes(operation) {
            takes = block;
            self.seen.mark(Fault::Block);
            self.trouble(device, block);
        }
        self.serial += 1;
        let (serial, since, epoch, boot) = (self.serial, self.now, self.epoch, self.boot);
        let lands = (takes as f64 * self.rng.unit()) as i64;
        let looks = (lands as f64 * self.fates.unit()) as i64;
        let (before, knew) = (self.hw[device].cap, self.hw[device].worker_saw);
        let op = Op {
            operation,
            since,
            serial,
            before,
            knew,
            looks,
            lands,
        };
        self.hw[device].op = Some(op);
        self.asks(device, operation);
        self.begin_clocks(device, operation, takes, serial);
        self.spring(device, op, takes);
        if matches!(operation, Operation::Set(_) | Operation::Read) {
            self.after(
                looks,
                Ev::Glance {
                    device,
                    serial,
                    epoch,
                },
            );
        }
        if let Operation::Set(cap) = operation {
            let cap = micro(cap);
            self.after(
                lands,
                Ev::Land {
                    device,
                    serial,
                    cap,
                    boot,
                    epoch,
                },
            );
        }
        self.after(
            takes,
            Ev::Reply {
                device,
                serial,
                epoch,
            },
        );
    }

    /// A write reaches its device.
    pub fn land(&mut self, device: usize, serial: u64, cap: i64, epoch: u32) {
        let now = self.now;
        if self.results.contains_key(&serial) {
            // The reading before showed another cap.
            return;
        }
        let lying = now < self.hw[device].moods.lies && cap != self.hw[device].cap;
        let outcome = self.hw[device].set(now, cap, &mut self.rng);
        match outcome {
            Ok(holds) => {
                if lying {
                    self.hw[device].failed_at = Some(now);
                    self.seen.mark(Fault::Lie);
                } else if holds != cap {
                    self.seen.mark(Fault::Overshoot);
                }
                if epoch != self.epoch && self.core.is_some() {
                    self.seen.mark(Fault::LateLanding);
                }
                self.note(|| format!("    device {device} holds {} W", whole(holds).0));
                self.hand_landed(device, holds);
                self.hold(device, holds, cap, epoch != self.epoch);
                self.results.insert(serial, Ok(()));
            }
            Err(error) => {
                if now < self.hw[device].moods.refuses {
                    self.seen.mark(Fault::RefusedWrite);
                }
                if !error.refuses() {
                    self.hw[device].failed_at = Some(now);
                }
                if !error.refuses() && self.fates.chance(0.5) {
                    let later = self.fates.between(1000, 25_000) * MILLI;
                    let (boot, epoch) = (self.boot, self.epoch);
                    let event = Ev::LandAfterAll {
                        device,
                        cap,
                        asked: now,
                        boot,
                        epoch,
                    };
                    self.after(later, event);
                }
                self.results.insert(serial, Err(error));
            }
        }
    }

    /// A write that was called failed at `asked` is done all the same. Nobody waits for that who has had
    /// the device let go of since.
    pub fn land_after_all(&mut self, device: usize, cap: i64, asked: i64) {
        let hw = &self.hw[device];
        let theirs = hw.let_go || hw.absent || hw.gone || hw.op.is_some();
        let unwatched =
            !hw.hold.open || hw.hold.since.0 >= asked || self.seen.has(Fault::ClockJump);
        if theirs || unwatched || hw.cap == cap {
            return;
        }
        self.note(|| format!("    device {device} holds {} W after all", whole(cap).0));
        self.seen.mark(Fault::LandAfterAll);
        // A write of long ago: litd has to see it first.
        self.excuses(device, ROOM);
        // An undo meanwhile does not wait for it.
        let more = (cap - self.hw[device].cap).max(0);
        self.ledger.excuse(device, more, self.now);
        self.hold(device, cap, cap, true);
        self.trouble(device, 0);
    }

    pub fn reply(&mut self, device: usize, serial: u64, epoch: u32) {
        let Some(op) = self.hw[device].op.filter(|op| op.serial == serial) else {
            return;
        };
        if epoch != self.epoch || self.core.is_none() {
            return;
        }
        let (now, clock) = (self.now, self.clock().0);
        self.meets(device, op);
        // An entry that can't be removed at once, because the disk fails, is removed after this answer.
        if let Some(entry) = self.entry(device) {
            self.told_twice(&entry);
        }
        let lets_go = self.hw.iter().any(|hw| hw.is_gpu() && hw.let_go);
        let lets_go = lets_go && self.hw[device].is_gpu();
        let journaled = self.entry(device).is_some();
        let (judged, weight) = (self.hw[device].is_judged(), self.weight(device));
        let hw = &mut self.hw[device];
        hw.op = None;
        let reply = match op.operation {
            Operation::Read => {
                let sensed = self.sensed.remove(&serial);
                let (read, then) = match sensed {
                    Some((_, _)) if hw.gone => (Err(hw.error("reading", "no answer")), hw.cap),
                    Some(sensed) => sensed,
                    None => (hw.read(now, clock, &mut self.rng), hw.cap),
                };
                let power = read.as_ref().ok().and_then(|read| read.power);
                // The accuracy of a GPU's sensor.
                let margin = match hw.identity.read_back {
                    ReadBack::MayBeCached => 1.001,
                    ReadBack::Device if hw.is_gpu() => 1.02,
                    ReadBack::Device => 1.0,
                };
                let most = hw.cap as f64 / 1e6 * margin;
                if power.is_some_and(|power| (0.0..=most).contains(&power.0)) {
                    hw.owes = 0;
                }
                // A reading of another cap than is known is looked at twice.
                let sure = read.as_ref().is_ok_and(|read| micro(read.cap) == hw.known);
                let tells = power.is_some_and(|power| power.0 > 0.0 && power.0.is_finite());
                hw.told |= sure && tells;
                if let Ok(read) = &read {
                    hw.throttle_told = read.throttle;
                    if hw.is_gpu() && read.throttle == Some(Throttle::PowerBrake) {
                        self.ledger.braked_until = clock + BRAKE;
                    }
                }
                if let Ok(read) = &read {
                    let saw = hw.worker_saw.replace(micro(read.cap));
                    hw.looked_at |= saw == hw.worker_saw;
                }
                // The answer is of a moment before a foreign change, or another device's.
                if read.as_ref().is_ok_and(|read| read.cap.is_finite()) {
                    hw.read_asked = op.since;
                }
                let current = |read: &Reading| then == hw.cap && micro(read.cap) == then;
                if read.as_ref().is_ok_and(current) {
                    hw.known = hw.cap;
                    hw.was_judged |= hw.range_told.is_some();
                    // A device that litd took for restored is not steered: then its cap is found anew.
                    hw.foreign &= journaled || hw.foreign_known;
                    hw.foreign_known = hw.foreign && hw.foreign_seen;
                    hw.foreign_seen = hw.foreign;
                }
                if now < hw.moods.flaky && read.is_err() {
                    self.seen.mark(Fault::FlakyReads);
                }
                Reply::Read(read)
            }
            Operation::Set(_) => {
                let outcome = self.results.remove(&serial).unwrap_or(Ok(()));
                let outcome = match hw.gone {
                    true => Err(hw.error("reading the cap back", "no answer")),
                    false => outcome,
                };
                if !matches!(outcome, Err(PowerError::Changed { .. })) {
                    hw.worker_saw = outcome.is_ok().then_some(hw.cap);
                }
                hw.known = if outcome.is_ok() { hw.cap } else { i64::MIN };
                // Other than a cap that was found to have been changed, such a write may still be done.
                let changed = matches!(outcome, Err(PowerError::Changed { .. }));
                let asked = matches!(op.operation, Operation::Set(cap) if micro(cap) == hw.cap);
                if !(changed || outcome.is_ok() && asked) {
                    hw.not_done_at = Some(now);
                }
                // Watts that an override frees are given to nobody.
                let given = hw.hand.open.is_none_or(|(asked, _)| asked != hw.cap);
                // Nor is what somebody else has taken.
                let given = given && !hw.foreign;
                if outcome.is_ok() && hw.is_measured() && hw.cap < op.before && given && !lets_go {
                    hw.owes = hw.owes.max(op.before);
                }
                Reply::Set(outcome.map(|()| whole(hw.cap)))
            }
            Operation::Range => {
                let range = hw.range(now);
                if let Ok(range) = &range {
                    hw.has_told_range(*range, now);
                }
                Reply::Range(range)
            }
            Operation::Identify => {
                if now < hw.moods.no_range {
                    self.seen.mark(Fault::NoRange);
                }
                let range = hw.range(now);
                let mut identity = hw.identity.clone();
                let anothers = hw.moods.anothers.filter(|&(_, until)| now < until);
                if let Some((Anothers::Address(other), _)) = anothers {
                    identity = self.hw[other].identity.clone();
                } else if let Some((Anothers::Kind, _)) = anothers {
                    identity.kind = match identity.kind {
                        DeviceKind::Gpu => DeviceKind::Cpu,
                        DeviceKind::Cpu => DeviceKind::Gpu,
                    };
                } else if let Ok(range) = &range {
                    hw.has_told_range(*range, now);
                } else {
                    hw.range_unknown_since = hw.range_unknown_since.or(Some(now));
                }
                Reply::Identity(range.map(|range| (identity, range)))
            }
            Operation::Holders => {
                if now < hw.moods.no_holders {
                    self.seen.mark(Fault::NoHolders);
                }
                let holders = hw.holders(now);
                Reply::Holders(holders.map(|holders| self.told_holders(device, holders)))
            }
            Operation::HighestClock => Reply::HighestClock(hw.highest_clock(now)),
            Operation::Clocks(_) => Reply::Clocks(self.results.remove(&serial).unwrap_or(Ok(()))),
            Operation::Release => {
                (hw.hold.open, hw.looked_at) = (false, false);
                Reply::Released(Handles::Closed)
            }
        };
        let asks_others = matches!(
            op.operation,
            Operation::Range | Operation::Holders | Operation::HighestClock
        );
        if !asks_others {
            self.hand_read(device);
        }
        self.note(|| format!("    device {device} answers {reply:?}"));
        self.read_back(device, op, &reply);
        let written = match &reply {
            Reply::Set(outcome) => Some((self.record_of(device), outcome.as_ref().ok().copied())),
            _ => None,
        };
        if !judged {
            // Only now can litd know that it holds more than anybody could have told.
            let more = self.weight(device) - weight;
            self.ledger.excuse(device, more.max(0), now);
        }
        if let Reply::Holders(_) = reply {
            // As the shell does: before what a driver says of ids.
            for session in self.hooks.handed_on.clone() {
                let (session, doubt) = (SessionId(session), Doubt::Ended);
                self.tell(Event::Doubted { session, doubt });
            }
        }
        let id = DeviceId(self.hw[device].place);
        self.tell(Event::Device { device: id, reply });
        if let Some((record, held)) = written {
            self.check_outcome(record, held.map(micro));
        }
    }
}
