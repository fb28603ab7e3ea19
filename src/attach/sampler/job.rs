//! A job that is sampled by traces on demand.

use litd_attach::{Course, Rounds, Ticket};
use litd_proto::{FromHook, Notice, NoticeKind, Profiling};
use litd_units::Nanos;

use super::WAY;
use crate::attach::ranks::{Rank, Sample, Sampled, Told, is_wanted_still, tell_of_none};
use crate::hub::Hub;

/// A trace of all ranks that is wished for.
#[derive(Debug)]
pub(super) struct Wish {
    /// The errand that waits for the files.
    pub errand: u64,
    pub tickets: Vec<(u32, Ticket)>,
    /// By the loop's clock.
    pub since: Nanos,
    /// Whether caps had settled then, and the loop wanted samples.
    pub counts: bool,
}

/// A job that is sampled.
#[derive(Debug)]
pub(super) struct Sampling {
    pub ranks: Vec<Rank>,
    pub rounds: Rounds,
    pub wish: Option<Wish>,
    pub told: Told,
    /// Samples that the core was given.
    samples: u64,
    /// Why the last trace gave none, in words.
    trouble: Option<String>,
}

impl Sampled for Sampling {
    fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    fn parts(&mut self) -> (&mut Vec<Rank>, &mut Told) {
        (&mut self.ranks, &mut self.told)
    }

    fn words(&self) -> String {
        if let Profiling::Off | Profiling::Wait = self.told.profiling {
            return format!("not sampled: {}", self.told.profiling_reason);
        }
        let course = match self.rounds.course() {
            Course::Over(why) => return format!("sampled no more: {why}"),
            Course::Records { .. } => "; a trace is being recorded",
            Course::Rests { .. } => "",
        };
        let trouble = self.trouble.as_ref();
        let trouble = trouble.map_or_else(String::new, |why| {
            format!("; the last trace gave none: {why}")
        });
        format!("{} samples so far{course}{trouble}", self.samples)
    }
}

impl Sampling {
    pub fn new(ranks: Vec<Rank>, told: Told, rounds: Rounds) -> Self {
        Self {
            ranks,
            rounds,
            wish: None,
            told,
            samples: 0,
            trouble: None,
        }
    }

    /// Whether traces are permitted, and the job is asked for them.
    pub fn is_asked(&self) -> bool {
        let may = !matches!(self.told.profiling, Profiling::Off | Profiling::Wait);
        may && !matches!(self.rounds.course(), Course::Over(_))
    }

    /// Whether the job is asked no more, by all that is known now.
    pub fn is_over(&self) -> bool {
        let is_off = matches!(self.told.profiling, Profiling::Off);
        self.wish.is_none() && (is_off || matches!(self.rounds.course(), Course::Over(_)))
    }

    /// Since when a trace is due, if one is and is permitted.
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        let due = self.rounds.due(now);
        due.filter(|_| self.is_asked() && self.wish.is_none())
    }

    /// There is no sample; why, in words. It is in the log once, and no word of the job's: a job of which nothing is
    /// measured becomes stale.
    pub fn fails(&mut self, hub: &mut Hub, now: Nanos, why: &str, too_short: bool) {
        self.wish = None;
        let over = self.rounds.fail(now, too_short);
        let over = over.map_or_else(String::new, |it| format!("; {it}, and it is asked no more"));
        tell_of_none(hub, &self.ranks, WAY.name, &format!("{why}{over}"));
        self.trouble = Some(why.to_owned());
    }

    /// Hands a sample to the core, as hooks do: the iterations' times, and the kernels of the last one unless caps have
    /// moved since it was asked for.
    pub fn takes(&mut self, hub: &mut Hub, now: Nanos, sample: Sample) {
        let Some(wish) = self.wish.take() else {
            return;
        };
        let settled = wish.counts && is_wanted_still(hub, &self.ranks, &self.told, wish.since);
        let (took, iterations) = (sample.took(), sample.iterations());
        let heard = self.rounds.hear(now, sample.began, took, iterations);
        self.trouble = None;
        sample.hand_over(hub, &mut self.ranks, heard.last, true, settled);
        self.samples += u64::from(settled);
        if let Some(samples) = heard.passed {
            let text = format!(
                "{samples} traces on demand in a row, and iterations take as long as before"
            );
            self.notice(hub, NoticeKind::ProfilingSafe, text, samples);
        }
        if let Some(why) = heard.over {
            let text = format!("{why}: no more traces on demand");
            self.notice(hub, NoticeKind::ProfilingOff, text, 0);
        }
    }

    /// A notice in the first rank's name.
    fn notice(&self, hub: &mut Hub, kind: NoticeKind, text: String, samples: u32) {
        if let Some(rank) = self.ranks.first() {
            let notice = Notice {
                kind,
                text,
                samples,
            };
            hub.guest_says(rank.session, &FromHook::Notice(notice));
        }
    }
}
