//! Whether a device's power follows its cap: what is waited for after a cap was lowered, for how long, and from
//! when on only a limit other than the cap that it reports can explain its power.

use litd_units::{Nanos, Watts};

/// What a reading's power says of the cap that it was to follow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    /// Power is within the cap: it is waited for no longer.
    Followed,
    /// Power is not known to be within this cap although its time is over.
    Late(Watts),
}

/// Whether a device's power follows its cap.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The cap whose effect is awaited.
    awaited: Option<Awaited>,
    /// Set after a lowering: until its power is seen to follow, the device counts with the cap before. After this
    /// time no raise waits for that any longer.
    doubted_until: Option<Nanos>,
    /// Since when it has drawn more than the cap that it reads.
    over_since: Option<Nanos>,
    /// Whether it has ever told its power.
    tells_power: bool,
}

/// A cap that measured power is to follow.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    cap: Watts,
    /// When power has to be below it.
    until: Nanos,
}

impl Following {
    /// A GPU holds a cap; if it was lowered, its power has to follow `by` then.
    pub fn gpu_holds(&mut self, cap: Watts, by: Option<Nanos>) {
        self.awaited = by.map(|until| Awaited { cap, until });
    }

    /// A CPU socket was raised, and still counts with more than it holds: its power has to be within its present
    /// limit.
    pub fn socket_holds_more(&mut self, cap: Watts) {
        if let Some(awaited) = &mut self.awaited {
            awaited.cap = cap;
        }
    }

    /// A device was lowered, and counts with the cap before; no raise waits for its power after `until`. A CPU
    /// socket's power has to be within `socket` by then, whatever the outcome of the write.
    pub fn doubts(&mut self, socket: Option<Watts>, until: Nanos) {
        self.doubted_until = Some(until);
        if let Some(cap) = socket {
            self.awaited = Some(Awaited { cap, until });
        }
    }

    /// The device counts with its present cap.
    pub fn believes(&mut self) {
        self.doubted_until = None;
    }

    /// Whether a raise that is paid for by this device has waited long enough.
    pub fn is_late(&self, now: Nanos) -> bool {
        self.doubted_until.is_some_and(|until| until <= now)
    }

    /// The device's power says nothing about a cap of litd's: it has failed, or holds a foreign cap.
    pub fn stop_awaiting(&mut self) {
        self.awaited = None;
    }

    /// Whether power has yet to follow.
    pub fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// litd takes the device back: earlier power does not count.
    pub fn begins_anew(&mut self) {
        self.awaited = None;
        self.over_since = None;
    }

    /// A reading has told this power, if any.
    pub fn hears(&mut self, power: Option<Watts>) {
        self.tells_power |= power.is_some_and(|power| power > Watts::ZERO);
    }

    /// Whether the device has ever told its power.
    pub fn tells_power(&self) -> bool {
        self.tells_power
    }

    /// A reading has told this power, if any; `margin` is the share of the cap by which it may exceed it. A GPU that
    /// tells none is not judged by it; a CPU socket is, because its watts are given to others.
    pub fn follows(
        &mut self,
        power: Option<Watts>,
        margin: f64,
        is_gpu: bool,
        now: Nanos,
    ) -> Option<Verdict> {
        let Awaited { cap, until } = self.awaited?;
        if power.is_some_and(|power| power <= cap * (1.0 + margin)) {
            self.awaited = None;
            return Some(Verdict::Followed);
        }
        let is_judged = power.is_some() || !is_gpu;
        (is_judged && now >= until).then_some(Verdict::Late(cap))
    }

    /// The device draws more than the cap that it reads, or does not. Returns whether it has for so long that another
    /// limit must be in force. That is not judged of a device that is not litd's, or whose power has yet to follow.
    pub fn overdraws(&mut self, is_over: bool, is_ours: bool, patience: Nanos, now: Nanos) -> bool {
        if !is_over {
            self.over_since = None;
            return false;
        }
        let since = *self.over_since.get_or_insert(now);
        let is_judged = is_ours && !self.is_awaited() && now >= since + patience;
        if is_judged {
            self.over_since = None;
        }
        is_judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn gpu(following: &mut Following, power: Option<f64>, second: i64) -> Option<Verdict> {
        following.follows(power.map(Watts), 0.05, true, at(second))
    }

    fn socket(following: &mut Following, power: Option<f64>, second: i64) -> Option<Verdict> {
        following.follows(power.map(Watts), 0.0, false, at(second))
    }

    #[test]
    fn a_gpu_that_was_lowered_has_to_draw_less_in_time() {
        let mut following = Following::default();
        assert_eq!(gpu(&mut following, Some(900.0), 0), None);
        following.gpu_holds(Watts(500.0), Some(at(10)));
        assert_eq!(gpu(&mut following, Some(600.0), 9), None);
        assert_eq!(
            gpu(&mut following, Some(600.0), 10),
            Some(Verdict::Late(Watts(500.0)))
        );
        // It is not blamed for what its driver does not tell.
        assert_eq!(gpu(&mut following, None, 11), None);
        assert_eq!(
            gpu(&mut following, Some(525.0), 12),
            Some(Verdict::Followed)
        );
        assert!(!following.is_awaited());
        // One that was raised is not waited for.
        following.gpu_holds(Watts(700.0), None);
        assert_eq!(gpu(&mut following, Some(900.0), 99), None);
    }

    #[test]
    fn a_socket_has_to_tell_that_its_last_watt_is_gone() {
        let mut following = Following::default();
        following.doubts(Some(Watts(100.0)), at(10));
        assert_eq!(socket(&mut following, None, 9), None);
        assert_eq!(
            socket(&mut following, None, 10),
            Some(Verdict::Late(Watts(100.0)))
        );
        assert_eq!(
            socket(&mut following, Some(100.5), 10),
            Some(Verdict::Late(Watts(100.0)))
        );
        // It was raised, and has to be within that.
        following.socket_holds_more(Watts(120.0));
        assert_eq!(
            socket(&mut following, Some(120.0), 11),
            Some(Verdict::Followed)
        );
        // Nothing is awaited of a socket that was only raised.
        following.socket_holds_more(Watts(130.0));
        assert!(!following.is_awaited());
    }

    #[test]
    fn a_raise_waits_for_a_doubted_device_for_a_while() {
        let mut following = Following::default();
        assert!(!following.is_late(at(99)));
        following.doubts(None, at(10));
        assert!(!following.is_late(at(9)) && following.is_late(at(10)));
        assert!(!following.is_awaited());
        following.believes();
        assert!(!following.is_late(at(10)));
    }

    #[test]
    fn another_limit_is_in_force_once_a_device_has_drawn_too_much_for_long() {
        let mut following = Following::default();
        let over = |following: &mut Following, second: i64| {
            following.overdraws(true, true, at(5), at(second))
        };
        assert!(!over(&mut following, 0) && !over(&mut following, 4));
        // A reading within the cap begins it anew.
        assert!(!following.overdraws(false, true, at(5), at(4)));
        assert!(!over(&mut following, 5) && !over(&mut following, 9));
        assert!(over(&mut following, 10) && !over(&mut following, 11));
        // While its power has yet to follow a lowered cap, and while it is not litd's, that says nothing.
        following.gpu_holds(Watts(500.0), Some(at(99)));
        assert!(!over(&mut following, 60));
        following.begins_anew();
        assert!(!following.overdraws(true, false, at(5), at(60)));
        assert!(!following.overdraws(true, false, at(5), at(70)));
    }

    #[test]
    fn a_device_tells_its_power_once_it_has() {
        let mut following = Following::default();
        for power in [None, Some(Watts(0.0))] {
            following.hears(power);
            assert!(!following.tells_power());
        }
        following.hears(Some(Watts(1.0)));
        following.hears(None);
        assert!(following.tells_power());
    }
}
