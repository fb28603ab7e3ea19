//! Who uses a device: the job that has it, and the users whose processes do. Also until when a CPU socket that needed
//! its watts lends none.

use litd_units::Nanos;

/// The users of a GPU, as its driver told last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Users {
    /// At most one user, as far as known.
    #[default]
    One,
    /// Several users: nobody may move its cap or its clocks.
    Several,
}

/// Who uses a device.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    job: Option<String>,
    users: Users,
    opted_out: bool,
    /// Until then a CPU socket that needed its watts lends none.
    keeps_until: Option<Nanos>,
}

impl Usage {
    /// The job whose rank uses the device.
    pub fn job(&self) -> Option<&str> {
        self.job.as_deref()
    }

    /// The device is this job's.
    pub fn attaches(&mut self, job: &str) {
        self.job = Some(job.to_owned());
    }

    /// The device is no job's any more.
    pub fn leaves(&mut self) {
        self.job = None;
    }

    /// Whether processes of several users use the device.
    pub fn is_shared(&self) -> bool {
        self.users == Users::Several
    }

    /// Its driver has told who uses the device. Returns whether that has changed.
    pub fn comes_to_be_used_by(&mut self, users: Users) -> bool {
        std::mem::replace(&mut self.users, users) != users
    }

    /// Whether the device's job has opted out of being steered.
    pub fn has_opted_out(&self) -> bool {
        self.opted_out
    }

    /// The device's job has opted out or not. Returns whether that has changed.
    pub fn opts_out(&mut self, opted_out: bool) -> bool {
        std::mem::replace(&mut self.opted_out, opted_out) != opted_out
    }

    /// A CPU socket needs its watts itself, and lends none until then.
    pub fn keeps_its_watts(&mut self, until: Nanos) {
        self.keeps_until = Some(until);
    }

    /// Whether a CPU socket may lend watts now.
    pub fn lends(&self, now: Nanos) -> bool {
        self.keeps_until.is_none_or(|until| until <= now)
    }

    /// Whether a CPU socket that kept its watts lends again from now on.
    pub fn lends_again(&mut self, now: Nanos) -> bool {
        self.keeps_until.take_if(|until| *until <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once() {
        let mut usage = Usage::default();
        assert!(!usage.comes_to_be_used_by(Users::One) && !usage.is_shared());
        assert!(usage.comes_to_be_used_by(Users::Several) && usage.is_shared());
        assert!(!usage.comes_to_be_used_by(Users::Several));
        assert!(usage.opts_out(true) && !usage.opts_out(true) && usage.has_opted_out());
        assert!(usage.opts_out(false) && !usage.has_opted_out());
    }

    #[test]
    fn a_device_is_one_jobs_until_that_leaves_it() {
        let mut usage = Usage::default();
        usage.attaches("train");
        assert_eq!(usage.job(), Some("train"));
        usage.leaves();
        assert_eq!(usage.job(), None);
    }

    #[test]
    fn a_socket_that_needed_its_watts_lends_again_after_a_while() {
        let mut usage = Usage::default();
        assert!(usage.lends(Nanos(0)) && !usage.lends_again(Nanos(0)));
        usage.keeps_its_watts(Nanos(10));
        assert!(!usage.lends(Nanos(9)) && !usage.lends_again(Nanos(9)));
        assert!(usage.lends(Nanos(10)));
        assert!(usage.lends_again(Nanos(10)) && !usage.lends_again(Nanos(10)));
    }
}
