//! A budget that is set and not kept. GPUs that litd may not move, or does not read, can hold so much that the rest of
//! the budget is less than the sum of the other GPUs' floors. Only an administrator can mend that, so it is reported.

use litd_api::EventKind;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

/// How long lowering caps may take, also where a driver fails twice.
const PATIENCE: Nanos = Nanos(10_000_000_000);

/// Tolerance: caps that were rounded to whole microwatts add up to no more than this above their budget.
const MARGIN: Watts = Watts(1.0);

/// Whether what the GPUs may hold is within the budget that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Keeping {
    /// The budget is kept, or there is none.
    #[default]
    Kept,
    /// The budget has been exceeded since then.
    ExceededSince(Nanos),
    /// The budget is exceeded, and that was reported.
    Told,
}

/// What is to be reported of a budget, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The budget is not kept, although caps had the time to come down.
    Exceeded,
    /// A budget that was reported as exceeded is kept again.
    KeptAgain,
}

impl Keeping {
    /// A look at the GPUs' caps. While a distrusted GPU comes and goes the budget does not count as kept again, so
    /// that this is not reported each time.
    pub fn looks(
        &mut self,
        is_exceeded: bool,
        is_any_distrusted: bool,
        now: Nanos,
    ) -> Option<News> {
        let (next, news) = match (*self, is_exceeded) {
            (Self::Kept | Self::ExceededSince(_), false) => (Self::Kept, None),
            (Self::Kept, true) => (Self::ExceededSince(now), None),
            (Self::ExceededSince(since), true) if now >= since + PATIENCE => {
                (Self::Told, Some(News::Exceeded))
            }
            (Self::Told, false) if !is_any_distrusted => (Self::Kept, Some(News::KeptAgain)),
            (keeping, _) => (keeping, None),
        };
        *self = next;
        news
    }
}

impl<S: Store> Core<S> {
    /// The sum of all GPUs' caps, as far as known. A GPU that can't be judged, was not read of late, was released
    /// or is being written counts with the most that it may hold, as does one that litd may not move.
    pub(crate) fn caps_on_gpus(&self) -> Watts {
        let caps = self.devices.gpus().map(|(device, unit)| {
            let is_open = unit.standing.let_go().is_none_or(|it| it.closed.is_none());
            let is_read = is_open && self.fresh_reading(unit).is_some();
            let is_in_force = unit.standing.not_in_force().is_none();
            let is_settled = is_in_force && !self.writer.account().is_writing(device);
            let is_known = is_read && is_settled && unit.device.range.known().is_some();
            let most = self.counts_with(device, unit);
            let held = self.writer.account().held(device).filter(|_| is_known);
            held.map_or(most, |held| held.min(most))
        });
        caps.sum::<Watts>() + self.unmanaged_hold()
    }

    /// Reports once that the budget is not kept and which GPUs litd can't lower for it, and once that it is kept
    /// again.
    pub(crate) fn check_budget_kept(&mut self) {
        let exceeded = self
            .set_budget()
            .filter(|budget| self.caps_on_gpus() > *budget + self.lent() + MARGIN);
        let is_any_distrusted = self.is_any_distrusted();
        let news = self
            .authority
            .looks_at_caps(exceeded.is_some(), is_any_distrusted, self.now());
        let note = match (news, exceeded) {
            (Some(News::Exceeded), Some(budget)) => {
                Note::warning(EventKind::Fault, self.why_exceeded(budget))
            }
            (Some(News::KeptAgain), _) => {
                let text = "the GPUs' caps are within the budget again";
                Note::info(EventKind::Fault, text)
            }
            _ => return,
        };
        self.note(note);
    }

    fn why_exceeded(&self, budget: Watts) -> String {
        let view = self.view();
        let is_movable = |device: usize| {
            let target = self.writer.account().target(device);
            let unit = view.devices.get(device);
            unit.is_some_and(|unit| unit.movable(&view, target).is_some())
        };
        let immovable = self
            .devices
            .gpus()
            .filter(|&(device, _)| !is_movable(device));
        let named = |(device, unit): (usize, &Unit)| {
            format!(
                "{} ({}, counts with {})",
                unit.name,
                unit.standing.told().name(),
                self.counts_with(device, unit)
            )
        };
        let mut others: Vec<String> = immovable.map(named).collect();
        others.extend(
            self.devices
                .unmanaged()
                .iter()
                .map(|address| format!("{address} (unmanaged: not found at start)")),
        );
        let why = match others.is_empty() {
            true => "litd may lower all of them, but each is at its floor or has not come down yet"
                .to_owned(),
            false => format!("litd may not lower {}", others.join(", ")),
        };
        format!(
            "{}: the GPUs may hold {}; {why}",
            self.not_kept(budget),
            self.caps_on_gpus()
        )
    }

    fn not_kept(&self, budget: Watts) -> String {
        match self.authority.is_off() {
            true => format!("the safe budget of {budget} is not kept while litd is off"),
            false => format!("the budget of {budget} is not kept"),
        }
    }

    /// The same in short, for status, while litd is off and a safe budget that it holds is not kept.
    pub(crate) fn not_held(&self) -> Option<String> {
        let is_told = self.authority.is_off() && self.authority.is_exceeded();
        let budget = self.config.caps.budget_on_exit().filter(|_| is_told)?;
        let (text, held) = (self.not_kept(budget), self.caps_on_gpus());
        Some(format!("{text}: the GPUs may hold {held}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_budget_that_is_exceeded_for_ten_seconds_is_reported_once_and_once_that_it_is_kept_again() {
        let mut keeping = Keeping::default();
        assert_eq!(keeping.looks(true, false, at(0)), None);
        assert_eq!(keeping.looks(true, false, at(9)), None);
        assert_eq!(keeping.looks(true, false, at(10)), Some(News::Exceeded));
        assert_eq!(keeping.looks(true, false, at(60)), None);
        assert_eq!(keeping.looks(false, false, at(61)), Some(News::KeptAgain));
        assert_eq!(keeping.looks(false, false, at(62)), None);
    }

    #[test]
    fn a_short_excess_is_not_reported_and_the_next_one_is_counted_anew() {
        let mut keeping = Keeping::default();
        keeping.looks(true, false, at(0));
        assert_eq!(keeping.looks(false, false, at(9)), None);
        keeping.looks(true, false, at(10));
        assert_eq!(keeping.looks(true, false, at(19)), None);
        assert_eq!(keeping.looks(true, false, at(20)), Some(News::Exceeded));
    }

    #[test]
    fn while_a_distrusted_gpu_comes_and_goes_nothing_more_is_reported() {
        let mut keeping = Keeping::Told;
        for second in 0..30 {
            let is_exceeded = second % 2 == 0;
            assert_eq!(keeping.looks(is_exceeded, true, at(second)), None);
        }
        assert_eq!(keeping.looks(false, false, at(30)), Some(News::KeptAgain));
    }
}
