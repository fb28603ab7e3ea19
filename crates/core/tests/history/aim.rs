//! Faults that are aimed at a cell of the matrix: something is made to go wrong, and litd is made to
//! meet it while it does what the cell says.

use litd_api::{Command, Mode};
use litd_core::Event;
use litd_core::event::Peer;
use litd_proto::{FromHook, SetClock};
use litd_units::{Hertz, Watts};

use crate::discovery::Odd;
use crate::fault::Fault;
use crate::hardware::{Anothers, MILLI, SECOND};
use crate::hooks::Wrong;
use crate::inside::{Moment, Trap};
use crate::jobs::Put;
use crate::matrix::{Cell, Manner, Phase, Subject, Where, place};
use crate::world::{Ev, World};

impl World {
    /// A fault occurs as a cell of the matrix says.
    pub fn aim(&mut self) {
        if self.core.is_none() || self.stop_sent.is_some() {
            return;
        }
        let met = |&cell: &Cell| matches!(place(cell), Where::Histories | Where::Chance(_));
        let cells = Cell::all().filter(met);
        let cells: Vec<Cell> = cells
            .filter(|cell| cell.phase != Phase::Discovery)
            .collect();
        let cell = self.fates.pick(&cells);
        let Some(device) = self.worth(cell) else {
            return;
        };
        self.note(|| format!("aimed at device {device}: {cell}"));
        self.seen.mark(Fault::Aimed);
        // litd notices such a fault within two rounds.
        let (asks, delay) = match cell.subject {
            Subject::Identity | Subject::Range if cell.phase == Phase::Drain => (true, 0),
            Subject::Identity | Subject::Range => (true, self.fates.between(100, 2200)),
            _ => (false, self.fates.between(0, 20)),
        };
        let until = self.now + self.fates.pick(&[3, 5, 12]) * SECOND;
        let changes_in_drain = (cell.manner, cell.phase) == (Manner::Changed, Phase::Drain);
        if asks && changes_in_drain {
            // Reset by whoever changes it: that is what has litd ask.
            self.reset_by(device);
        }
        match (cell.subject, cell.manner, cell.phase) {
            // The fault stays until the device is written.
            (Subject::Set, Manner::Gone, Phase::Restore | Phase::Recovery) => {
                self.hw[device].moods.leaves = Some(until - self.now);
            }
            _ => self.goes_wrong(cell.subject, cell.manner, device, until),
        }
        if cell.subject == Subject::Identity && cell.phase == Phase::Restore {
            // Only a device that could not be judged is asked again.
            self.hw[device].moods.no_range = self.now + 2 * SECOND;
        }
        if cell.manner == Manner::Slow {
            // Slow enough to be noticed, and over before litd does something else.
            let soon = matches!(cell.phase, Phase::Recovery | Phase::Reload | Phase::Drain);
            let takes = match soon {
                true => self.fates.between(600, 1500) * MILLI,
                false => until - self.now,
            };
            self.hw[device].moods.slow = Some((cell.subject, takes));
        }
        self.trouble(device, until - self.now);
        if asks && cell.manner != Manner::Changed {
            self.reset_by(device);
        }
        if cell.subject == Subject::Configuration {
            // The next action of litd's has to be under way before.
            self.then(device, cell.phase);
            let soon = self.fates.between(0, 1500) * MILLI;
            return self.after(soon, Ev::Fault(Fault::ReloadAny));
        }
        let phase = cell.phase;
        self.after(delay * MILLI, Ev::Then { device, phase });
        match cell.subject {
            Subject::Holders => self.asks_for(device, phase),
            // A request of its rank would hide the fault.
            Subject::Clocks if !changes_in_drain => self.asks_for_clocks(device),
            _ => {}
        }
    }

    /// A device with which something can go wrong.
    fn worth(&mut self, cell: Cell) -> Option<usize> {
        let all = 0..self.hw.len();
        let fits = |&device: &usize| {
            let hw = &self.hw[device];
            let attached = || {
                let mut ranks = self.hooks.ranks.iter();
                ranks.any(|rank| rank.device == device && rank.welcomed)
            };
            match cell.subject {
                _ if hw.absent => false,
                Subject::Clocks if cell.manner == Manner::Changed => hw.clocks.is_some(),
                // A lock of a predecessor's is removed.
                Subject::Clocks if matches!(cell.phase, Phase::Recovery | Phase::Restore) => {
                    hw.clocks.is_some()
                }
                Subject::Set | Subject::Identity | Subject::Range => hw.touched,
                Subject::Holders => hw.is_gpu(),
                Subject::Clocks => hw.is_gpu() && attached(),
                _ => true,
            }
        };
        let fit: Vec<usize> = all.filter(fits).collect();
        (!fit.is_empty()).then(|| self.fates.pick(&fit))
    }

    fn goes_wrong(&mut self, subject: Subject, manner: Manner, device: usize, until: i64) {
        let lasts = until - self.now;
        let other = self.another(device);
        let hw = &mut self.hw[device];
        let moods = &mut hw.moods;
        match (subject, manner) {
            (Subject::Journal, Manner::Error) => {
                self.disk.with(|disk| {
                    (disk.full, disk.stuck, disk.unreadable) = (true, true, true);
                });
                self.after(lasts, Ev::DiskBack);
            }
            (Subject::Journal, Manner::Changed) => self.disk.with(|disk| disk.deadly = true),
            (Subject::Journal | Subject::Configuration | Subject::Lock, _) => {}
            (_, Manner::Slow) => {}
            (_, Manner::Gone) => {
                hw.gone = true;
                self.after(lasts, Ev::Back(device));
            }
            (Subject::Identity | Subject::Range, Manner::Error) => moods.no_range = until,
            (Subject::Reading, Manner::Error) => moods.flaky = until,
            (Subject::Holders, Manner::Error) => moods.no_holders = until,
            (Subject::Set | Subject::Clocks, Manner::Error) => moods.refuses = until,
            (Subject::Identity, Manner::Nonsense) => moods.anothers = Some((Anothers::Kind, until)),
            (Subject::Range, Manner::Nonsense) => {
                let range = hw.range;
                let odd = Odd::draw(&mut self.fates, range);
                self.hw[device].moods.odd_range = Some((odd, until));
            }
            (Subject::Reading, Manner::Nonsense) => moods.odd = until,
            (Subject::Holders, Manner::Nonsense) => moods.odd_holders = until,
            (Subject::Set, Manner::Nonsense) if self.fates.chance(0.5) => moods.overshoots = until,
            (Subject::Set | Subject::Clocks, Manner::Nonsense) => moods.lies = until,
            (_, Manner::Anothers) => {
                let Some(other) = other else { return };
                let (range, cap) = (self.hw[other].range, self.hw[other].cap);
                let moods = &mut self.hw[device].moods;
                match subject {
                    Subject::Range => moods.odd_range = Some((Odd::Anothers(range), until)),
                    Subject::Identity => {
                        moods.anothers = Some((Anothers::Address(other), until));
                    }
                    Subject::Holders => moods.anothers = Some((Anothers::Holders(other), until)),
                    _ => moods.anothers = Some((Anothers::Cap(cap), until)),
                }
            }
            (_, Manner::Changed) => self.changes(subject, device, until),
        }
    }

    fn changes(&mut self, subject: Subject, device: usize, until: i64) {
        let moment = match subject {
            Subject::Identity => return self.replace_part(device),
            Subject::Range => return self.shrink(device),
            Subject::Clocks => {
                let hw = &mut self.hw[device];
                (hw.clocks, hw.clocks_taken) = (None, hw.clocks.is_some());
                return;
            }
            Subject::Holders => Moment::Holders,
            Subject::Reading => Moment::Reading,
            _ => self.fates.pick(&Moment::ALL[..3]),
        };
        for hw in &mut self.hw {
            hw.trap = Some(Trap { moment, until });
        }
    }

    /// litd is made to do something.
    pub fn then(&mut self, device: usize, phase: Phase) {
        let stopping = self.stop_sent.is_some();
        if self.calm || self.core.is_none() || stopping {
            return;
        }
        let address = self.hw[device].identity.address.clone();
        match phase {
            Phase::Observe => {
                let mode = Mode::Observe;
                let config = litd_core::Config {
                    mode,
                    ..self.config.clone()
                };
                self.take_in(config);
                let later = self.fates.between(4, 12) * SECOND;
                self.after(later, Ev::Fault(Fault::ReloadAdjusting));
            }
            Phase::Reload => self.reload_any(),
            Phase::Drain => {
                let device = Some(address);
                self.command(Command::Release { device }, false);
                let later = self.fates.between(3, 9) * SECOND;
                self.after(later, Ev::Fault(Fault::Resume));
            }
            Phase::Stop => self.stop(),
            Phase::Recovery => self.crash_then(Ev::Start),
            Phase::Restore => self.crash_then(Ev::Restore),
            Phase::Steer | Phase::Discovery => self.act(),
        }
    }

    fn crash_then(&mut self, next: Ev) {
        self.seen.mark(Fault::Crash);
        self.end_life(false);
        let soon = self.fates.between(20, 800) * MILLI;
        self.after(soon, next);
    }

    /// A stranger says hello for a device, so that its driver is asked who holds it.
    fn asks_for(&mut self, device: usize, phase: Phase) {
        let mut ranks = self.hooks.ranks.iter();
        let Some(rank) = ranks.position(|rank| rank.device == device) else {
            return;
        };
        let delay = match phase {
            Phase::Recovery => 2000,
            _ => 5,
        };
        for turn in 0..3 {
            self.after((delay + turn * 700) * MILLI, Ev::Stranger { rank });
        }
    }

    pub fn stranger_comes(&mut self, rank: usize) {
        if self.core.is_none() {
            return;
        }
        let it = self.hooks.ranks[rank].clone();
        let (pid, uid) = (self.hooks.pid(), self.hooks.jobs[it.job].uid);
        let hello = self.hooks.hello(rank, &self.hw);
        let session = self.hooks.session(None, Some(Wrong::Always));
        let home = self.hooks.jobs[it.job].home.as_ref().and_then(Put::home);
        let says = Some(FromHook::Hello(hello).encode());
        self.meet(session, Peer { pid, uid }, home, says);
        let epoch = self.epoch;
        self.after(3 * SECOND, Ev::Hangup { session, epoch });
    }

    /// A device's rank asks for another clock.
    fn asks_for_clocks(&mut self, device: usize) {
        let mut ranks = self.hooks.ranks.iter();
        let Some(rank) = ranks.find(|rank| rank.device == device && rank.welcomed) else {
            return;
        };
        let Some(session) = rank.session else { return };
        for turn in 0..3 {
            let clock = self.fates.pick(&[900, 1200, 1410]);
            self.hw[device].wishes.push(clock);
            let clock = Some(Hertz(f64::from(clock) * 1e6));
            let bytes = FromHook::SetClock(SetClock { clock }).encode();
            self.after(turn * 500 * MILLI, Ev::Say { session, bytes });
        }
    }

    /// The file is changed while no daemon runs.
    pub fn change_file(&mut self) {
        if self.is_clean || self.calm || self.epoch < 2 {
            return;
        }
        if self.fates.chance(0.05) {
            let limit = self.limit();
            let config = self.drawn_anew();
            self.note(|| "the configuration's file is another".to_owned());
            (self.config, self.configured_anew) = (config, true);
            self.was_reconfigured(limit);
        }
    }

    /// The file can't be read, or makes no sense: it is refused, and what rules goes on to rule.
    pub fn reload_refused(&mut self) {
        let manners = [Manner::Error, Manner::Gone, Manner::Nonsense];
        let manner = self.fates.pick(&manners);
        self.met(Subject::Configuration, manner, None);
        self.tell(Event::ReloadRefused("it can't be read"));
    }

    /// A file that is meant for another node: its budget is none for these GPUs.
    pub fn budget_of_another(&mut self) -> Watts {
        let gpus = self.hw.iter().filter(|hw| hw.is_gpu()).count() as f64;
        Watts(self.fates.pick(&[50.0, 120.0, 5000.0]) * gpus)
    }

    /// The disk has failed, perhaps.
    pub fn meets_failures(&mut self) {
        let failures = self.disk.with(|disk| disk.failures);
        if failures != std::mem::replace(&mut self.failed, failures) {
            self.met(Subject::Journal, Manner::Error, None);
        }
    }
}
