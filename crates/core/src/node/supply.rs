//! Whether the node is short of power: because its BMC says so, or because the power brake was pulled on a GPU.

use litd_units::Nanos;

/// For so long after a power brake, or an alarm of the BMC's, no cap is raised.
pub(crate) const BRAKE: Nanos = Nanos(60_000_000_000);

/// What is to be reported of the BMC's alarms, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The node is short of power, and why.
    Short(String),
    /// No alarm counts any longer.
    ShortNoMore,
}

/// The last alarm and the last brake. Both count for a while, so that a supply that comes and goes does not let caps
/// rise.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// Why the BMC says that the node is short of power, and until when that counts.
    alarm: Option<(String, Nanos)>,
    /// Whether an alarm was reported and not taken back.
    is_told: bool,
    /// The GPU on which the power brake was pulled, and until when that counts.
    brake: Option<(usize, Nanos)>,
}

impl Supply {
    /// The BMC says that the node is short of power, and why.
    pub fn alarms(&mut self, why: String, now: Nanos) {
        self.alarm = Some((why, now + BRAKE));
    }

    /// The power brake was pulled on a GPU. Returns whether no earlier brake counted any more.
    pub fn brakes(&mut self, device: usize, now: Nanos) -> bool {
        let is_first = self.braked(now).is_none();
        self.brake = Some((device, now + BRAKE));
        is_first
    }

    /// Why the BMC says that the node is short of power, while that counts.
    pub fn alarm(&self, now: Nanos) -> Option<&str> {
        let (why, until) = self.alarm.as_ref()?;
        (now < *until).then_some(why)
    }

    /// The GPU on which the power brake was pulled, while that counts.
    pub fn braked(&self, now: Nanos) -> Option<usize> {
        let (device, until) = self.brake?;
        (now < until).then_some(device)
    }

    /// What is to be reported now.
    pub fn news(&mut self, now: Nanos) -> Option<News> {
        let alarm = self.alarm(now).map(str::to_owned);
        let was_told = std::mem::replace(&mut self.is_told, alarm.is_some());
        match (was_told, alarm) {
            (false, Some(why)) => Some(News::Short(why)),
            (true, None) => Some(News::ShortNoMore),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_alarm_counts_for_a_minute_after_it_was_last_told_and_is_news_once() {
        let mut supply = Supply::default();
        assert_eq!(supply.news(at(0)), None);
        supply.alarms("PSU 1".to_owned(), at(0));
        assert_eq!(supply.news(at(0)), Some(News::Short("PSU 1".to_owned())));
        supply.alarms("PSU 2".to_owned(), at(30));
        assert_eq!(supply.news(at(30)), None);
        assert_eq!(supply.alarm(at(89)), Some("PSU 2"));
        assert_eq!(supply.alarm(at(90)), None);
        assert_eq!(supply.news(at(90)), Some(News::ShortNoMore));
        assert_eq!(supply.news(at(91)), None);
    }

    #[test]
    fn a_brake_counts_for_a_minute_and_is_the_first_again_after_that() {
        let mut supply = Supply::default();
        assert_eq!(supply.braked(at(0)), None);
        assert!(supply.brakes(3, at(0)));
        assert!(!supply.brakes(5, at(59)));
        assert_eq!(supply.braked(at(118)), Some(5));
        assert_eq!(supply.braked(at(119)), None);
        assert!(supply.brakes(3, at(119)));
        // The brake is the hardware's, and no alarm of the BMC's.
        assert_eq!(supply.alarm(at(119)), None);
        assert_eq!(supply.news(at(119)), None);
    }
}
