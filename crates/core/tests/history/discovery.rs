//! The daemon starts, or `litd restore` does: what each device tells then. It may not tell which it
//! is, what its cap may be or what it holds; it may tell nonsense, or tell later, or never.

use litd_core::{Core, Device, Event};
use litd_power::{CapRange, Reading};
use litd_units::Watts;

use crate::fault::Fault;
use crate::hardware::{Hw, SECOND, micro};
use crate::matrix::{Manner, Phase, Subject};
use crate::rng::Rng;
use crate::world::World;

/// A device whose driver has not said what its cap may be, as the shell hands it to the core.
pub fn unknown_range() -> CapRange {
    CapRange {
        lowest: Watts::ZERO,
        highest: Watts::ZERO,
        default: Watts::ZERO,
        resolution: Watts::ZERO,
    }
}

/// Whether that is what is known of a range.
pub fn is_unknown(range: &CapRange) -> bool {
    range.highest == Watts::ZERO
}

/// How likely a device is not itself when a daemon starts.
const UNWELL: f64 = 0.07;

/// A range that can't be true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Odd {
    /// The highest cap is 0.
    Nothing,
    /// The highest cap is below the present one.
    BelowCap,
    /// The lowest cap is above the highest; no back end passes that on.
    UpsideDown,
    /// The range is NaN; no back end passes that on.
    NoNumber,
    /// The highest cap is negative; no back end passes that on.
    Negative,
    /// The range has no default.
    NoDefault,
    /// The range is another device's.
    Anothers(CapRange),
}

impl Odd {
    pub fn draw(rng: &mut Rng, another: CapRange) -> Self {
        match rng.below(8) {
            0 => Self::Nothing,
            1 => Self::BelowCap,
            2 => Self::UpsideDown,
            3 => Self::NoNumber,
            4 => Self::Negative,
            5 => Self::NoDefault,
            _ => Self::Anothers(another),
        }
    }

    /// The driver's range then; `None` where every back end refuses to pass it on.
    pub fn told(self, hw: &Hw) -> Option<CapRange> {
        let range = hw.range;
        match self {
            Self::Nothing => Some(CapRange {
                lowest: Watts::ZERO,
                highest: Watts::ZERO,
                ..range
            }),
            Self::BelowCap => {
                let highest = crate::hardware::whole(hw.cap * 2 / 3);
                Some(CapRange {
                    lowest: range.lowest.min(highest),
                    highest,
                    ..range
                })
            }
            Self::NoDefault => Some(CapRange {
                default: Watts::ZERO,
                ..range
            }),
            Self::Anothers(range) => Some(range),
            Self::UpsideDown | Self::NoNumber | Self::Negative => None,
        }
    }

    fn manner(self) -> Manner {
        match self {
            Self::Anothers(_) => Manner::Anothers,
            _ => Manner::Nonsense,
        }
    }
}

/// A fault of a device when a daemon starts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unwell {
    /// The device answers nothing before then.
    Slow(i64),
    /// The driver can't tell the range before then.
    Range(i64),
    /// The driver tells an odd range until then.
    Odd(Odd, i64),
    /// Readings fail until then.
    Reading(i64),
    /// Readings are odd until then.
    OddReading(i64),
    /// A reading is another device's, once.
    AnothersReading,
    /// The device tells neither serial number nor UUID.
    Nameless,
    /// The driver does not list the device before then.
    Absent(i64),
}

impl World {
    fn unwell(&mut self, device: usize) -> Option<Unwell> {
        if self.calm || !self.fates.chance(UNWELL) {
            return None;
        }
        // Past the end of the history: never.
        let lasts = self.fates.pick(&[2, 5, 5, 12, 40, 1000]) * SECOND;
        let until = self.now + lasts;
        let another = self.another(device);
        let range = another.map_or(self.hw[device].range, |it| self.hw[it].range);
        Some(match self.fates.below(10) {
            0 | 1 => Unwell::Slow(lasts),
            2 => Unwell::Range(until),
            3 | 4 => Unwell::Odd(Odd::draw(&mut self.fates, range), until),
            5 => Unwell::Reading(until),
            6 => Unwell::OddReading(until),
            7 => Unwell::AnothersReading,
            8 => Unwell::Nameless,
            _ => Unwell::Absent(lasts),
        })
    }

    /// Another device of the same kind.
    pub fn another(&mut self, device: usize) -> Option<usize> {
        let same = |&it: &usize| it != device && self.hw[it].is_gpu() == self.hw[device].is_gpu();
        let others: Vec<usize> = (0..self.hw.len()).filter(same).collect();
        (!others.is_empty()).then(|| self.fates.pick(&others))
    }

    /// A device as the shell finds it; none where its driver does not list it.
    fn found(&mut self, device: usize) -> Option<Device> {
        let (now, clock) = (self.now, self.clock().0);
        let unwell = self.unwell(device);
        let unreadable = !self.calm && self.rng.chance(0.01);
        let hw = &mut self.hw[device];
        let mut reading = hw.read(now, clock, &mut self.rng).ok();
        if unreadable {
            reading = None;
        }
        let mut range = hw.range(now).unwrap_or_else(|_| unknown_range());
        let mut identity = hw.identity.clone();
        if let Some(unwell) = unwell {
            self.note(|| format!("device {device} at start: {unwell:?}"));
            self.seen.mark(Fault::UnwellAtStart);
            let lasts = self.make_unwell(device, unwell, &mut range, &mut reading);
            match unwell {
                Unwell::Nameless => (identity.uuid, identity.serial) = (None, None),
                Unwell::Absent(_) => return None,
                _ => {}
            }
            if lasts > 0 {
                self.trouble(device, 0);
            }
        }
        if is_unknown(&range) && self.fates.chance(0.7) {
            // As the shell does it today; a reading alone may be handed on as well.
            reading = None;
        }
        if reading.is_none() {
            self.seen.mark(Fault::Unreadable);
        }
        let hw = &mut self.hw[device];
        let sound = |reading: &Reading| reading.cap.is_finite() && reading.cap > Watts::ZERO;
        let told = reading.filter(sound).map(|reading| micro(reading.cap));
        // A reading of another device's cap is not its own.
        hw.known = told.filter(|&told| told == hw.cap).unwrap_or(i64::MIN);
        (hw.read_asked, hw.was_judged) = (now, hw.known != i64::MIN && !is_unknown(&range));
        hw.worker_saw = reading.map(|reading| micro(reading.cap));
        hw.range_told = (!is_unknown(&range)).then_some(range);
        hw.range_unknown_since = is_unknown(&range).then_some(now);
        (hw.asked_again, hw.looked_at) = (None, false);
        let range = match is_unknown(&range) {
            true => litd_core::Range::NEVER_TOLD,
            false => range.into(),
        };
        let kinds = self.hw[..device].iter().map(|it| it.identity.kind);
        Some(Device {
            number: kinds.filter(|&kind| kind == identity.kind).count(),
            identity,
            range,
            reading,
        })
    }

    /// Returns how long it lasts.
    fn make_unwell(
        &mut self,
        device: usize,
        unwell: Unwell,
        range: &mut CapRange,
        reading: &mut Option<Reading>,
    ) -> i64 {
        let now = self.now;
        let another = self.another(device).map(|it| self.hw[it].cap);
        let hw = &mut self.hw[device];
        let (subject, manner, lasts) = match unwell {
            Unwell::Slow(lasts) => {
                hw.moods.block = lasts;
                (*range, *reading) = (unknown_range(), None);
                self.met(Subject::Range, Manner::Slow, Some(device));
                (Subject::Reading, Manner::Slow, lasts)
            }
            Unwell::Range(until) => {
                hw.moods.no_range = until;
                *range = unknown_range();
                (Subject::Range, Manner::Error, until - now)
            }
            Unwell::Odd(odd, until) => {
                hw.moods.odd_range = Some((odd, until));
                *range = odd.told(hw).unwrap_or_else(unknown_range);
                (Subject::Range, odd.manner(), until - now)
            }
            Unwell::Reading(until) => {
                hw.moods.flaky = until;
                *reading = None;
                (Subject::Reading, Manner::Error, until - now)
            }
            Unwell::OddReading(until) => {
                hw.moods.odd = until;
                let odd = [f64::NAN, -5.0, 0.0, 1e7, f64::INFINITY];
                let cap = Watts(self.fates.pick(&odd));
                *reading = reading.map(|reading| Reading { cap, ..reading });
                (Subject::Reading, Manner::Nonsense, until - now)
            }
            Unwell::AnothersReading => {
                let cap = another.map(crate::hardware::whole);
                *reading = reading.map(|reading| Reading {
                    cap: cap.unwrap_or(reading.cap),
                    ..reading
                });
                if let Some(cap) = another {
                    // Until it is read again nobody can know better.
                    self.hw[device].natural.push(cap);
                }
                (Subject::Reading, Manner::Anothers, 1)
            }
            Unwell::Nameless => (Subject::Identity, Manner::Error, 0),
            Unwell::Absent(lasts) => {
                hw.gone = true;
                self.after(lasts, crate::world::Ev::Back(device));
                self.met(Subject::Range, Manner::Gone, Some(device));
                self.met(Subject::Reading, Manner::Gone, Some(device));
                (Subject::Identity, Manner::Gone, lasts)
            }
        };
        self.met(subject, manner, Some(device));
        lasts
    }

    /// The daemon starts, or `litd restore` runs in its place.
    pub fn start(&mut self) {
        // In the end there is nobody but `litd restore`.
        if self.ends == 0 {
            self.start_as(false);
        }
    }

    /// `litd restore`: the same core, told to stop at once.
    pub fn restore(&mut self) {
        if self.core.is_some() || self.done {
            return;
        }
        let unreadable = self.disk.with(|disk| disk.unreadable);
        if self.entries().is_empty() && self.recovered().clocks.is_empty() && !unreadable {
            self.note(|| "restore: nothing to give back".to_owned());
            self.life = Phase::Restore;
            self.met(Subject::Journal, Manner::Gone, None);
            return match self.calm && self.ends > 0 {
                true => self.end(),
                false => self.after(SECOND / 10, crate::world::Ev::Start),
            };
        }
        self.start_as(true);
    }

    fn start_as(&mut self, restores: bool) {
        if self.core.is_some() || self.done {
            return;
        }
        self.epoch += 1;
        (self.stopped, self.stop_sent) = (false, None);
        self.disk.with(|disk| disk.dead = false);
        self.change_file();
        let (now, clock) = (self.now, self.clock());
        let entries = self.entries();
        let nothing_left = entries.is_empty() && self.recovered().clocks.is_empty();
        self.life = match (restores, nothing_left) {
            (true, _) => Phase::Restore,
            (false, false) => Phase::Recovery,
            (false, true) => Phase::Discovery,
        };
        self.started = now;
        let mut inventory = Vec::new();
        self.here.clear();
        for device in 0..self.hw.len() {
            self.hw[device].begin_life();
            let found = self.found(device);
            let hw = &mut self.hw[device];
            (hw.absent, hw.place) = (found.is_none(), self.here.len());
            hw.hold.open = !hw.absent;
            if let Some(found) = found {
                self.here.push(device);
                inventory.push(found);
            }
            self.supersede(device, &entries);
        }
        self.recall_spared(false);
        self.before_start();
        self.last_alive = now;
        self.ledger.watching = None;
        self.note(|| match restores {
            true => "litd restore".to_owned(),
            false => "daemon starts".to_owned(),
        });
        let boot = format!("boot-{}", self.boot);
        let unix = 1.7e9 + clock.as_secs_f64();
        let config = self.config.clone();
        self.meets_journal(&entries);
        let begin = match restores {
            true => Core::restoring,
            false => Core::new,
        };
        match begin(config, inventory, self.disk.clone(), &boot, clock, unix) {
            Ok(core) => (self.core, self.said) = (Some(core), Default::default()),
            Err(_) if self.disk.with(|disk| disk.unreadable) => return self.refuses_to_start(),
            Err(error) => return self.broke("start", error.to_string()),
        }
        if restores {
            // Before what the core wants done at once.
            self.before_stop();
            self.stop_sent = Some(self.now);
            self.act();
            return self.tell(Event::Stop);
        }
        self.act();
        self.tell(Event::Time);
    }

    /// A fault of the journal when a daemon starts.
    fn meets_journal(&mut self, entries: &[litd_core::journal::Entry]) {
        let boot = format!("boot-{}", self.boot);
        let (unreadable, meddled, length) = self.disk.with(|disk| {
            let meddled = std::mem::take(&mut disk.meddled);
            (disk.unreadable, meddled, disk.journal.len())
        });
        let damaged = self.recovered().damaged.is_some();
        let theirs = |it: &litd_core::journal::Entry| {
            let known = self.known().any(|hw| hw.identity.address == it.address);
            !known || it.boot_id != boot
        };
        let theirs = entries.iter().any(theirs);
        let met = [
            (unreadable, Manner::Error),
            (damaged && self.ledger.rotten, Manner::Nonsense),
            (length == 0, Manner::Gone),
            (theirs, Manner::Anothers),
            (meddled, Manner::Changed),
        ];
        for (_, manner) in met.into_iter().filter(|it| it.0) {
            self.met(Subject::Journal, manner, None);
        }
        if std::mem::take(&mut self.configured_anew) {
            self.met(Subject::Configuration, Manner::Changed, None);
        }
    }

    /// The journal can't be read: nothing is touched, and systemd starts litd again.
    fn refuses_to_start(&mut self) {
        self.note(|| "refuses to start: the journal can't be read".to_owned());
        self.disk.with(|disk| disk.unreadable = false);
        self.succeed(SECOND);
    }

    /// An old cap found is outdated where a foreign cap has been set since, as the journal and the first reading
    /// tell.
    fn supersede(&mut self, device: usize, entries: &[litd_core::journal::Entry]) {
        let rotten = self.ledger.rotten;
        let hw = &mut self.hw[device];
        let entry = entries.iter().find(|it| it.address == hw.identity.address);
        let Some(entry) = entry.filter(|_| hw.known == hw.cap && !rotten) else {
            return;
        };
        let known = entry.ours.iter().chain([&entry.found]).map(|&it| micro(it));
        let found = micro(entry.found);
        if !known.clone().any(|it| it == hw.cap) && hw.natural.contains(&hw.cap) {
            hw.natural.retain(|&it| it != found);
        }
    }
}

impl Hw {
    /// Another daemon knows nothing of what the one before was told.
    fn begin_life(&mut self) {
        self.op = None;
        (self.foreign, self.foreign_seen, self.report_due) = (false, false, None);
        self.let_go = false;
        self.hold.open = true;
        self.owes = 0;
        (self.told, self.throttle_told, self.foreign_known) = (false, None, false);
        (self.most_held, self.sharing_told) = (self.cap, self.identity.sharing);
        self.users_told = false;
        self.highest_told = 0;
    }
}
