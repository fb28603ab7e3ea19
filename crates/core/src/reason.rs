//! The reason for each device's target, in words: taken from the plan, for the audit log and for people.

use litd_policies::Policy;

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::standing::Standing;
use crate::plan::{View, Why};
use crate::store::Store;

/// A reason, and the job that it is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reason {
    pub job: Option<String>,
    pub text: String,
}

impl Reason {
    fn of_litd(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { job: None, text }
    }
}

impl<S: Store> Core<S> {
    /// The reason for a device's target, or for leaving it alone.
    pub(crate) fn reason(&self, device: usize) -> Reason {
        let Reason { job, text } = self.planned_reason(device);
        let planned = self.targets.planned(device);
        let text = match planned.filter(|_| self.is_on_its_way(device)) {
            Some(cap) => {
                format!("on its way to {cap}, as fast as caps.max_rise_w_per_s allows: {text}")
            }
            None => text,
        };
        let is_lower = planned.zip(self.writer.account().held(device));
        let is_lower = is_lower.is_some_and(|(planned, held)| held < planned);
        let text = match self.unfollowed().filter(|_| is_lower) {
            Some(why) => format!("{text}; it waits for watts that may still be drawn: {why}"),
            None => text,
        };
        Reason { job, text }
    }

    fn planned_reason(&self, device: usize) -> Reason {
        let (Some(view), Some(unit)) = (self.targets.view(), self.devices.get(device)) else {
            return Reason::of_litd("nothing was planned yet");
        };
        match self.targets.why(device).unwrap_or_default() {
            Why::LookingRound => Reason::of_litd("left alone: devices are still being read"),
            Why::Unread => Reason::of_litd("left alone: it has not been read yet"),
            Why::Theirs => Reason::of_litd(format!(
                "left alone: somebody else set its cap; `litctl resume {}` takes it back",
                unit.name
            )),
            Why::NothingOwed if self.writer.is_journaled(device) => Reason::of_litd(format!(
                "left alone, although its cap is not restored: litd has released it; {} is restored when litd steers it \
                 again or stops",
                unit.found
                    .map_or("the cap found".to_owned(), |found| found.to_string())
            )),
            Why::NothingOwed => Reason::of_litd("left alone: litd has nothing to restore here"),
            Why::NoRoom => Reason::of_litd(format!(
                "left as it is: the other devices leave it no more of the budget of {}",
                self.gpu_budget()
            )),
            Why::RisesStopped => {
                let why = view.rises_stopped.as_deref().unwrap_or_default();
                Reason::of_litd(format!("left as it is, because no cap may rise: {why}"))
            }
            Why::Found => Reason::of_litd(format!(
                "the cap found is restored: {}",
                self.why_back(unit)
            )),
            Why::ByHand => Reason::of_litd("set by hand"),
            Why::Loop(job) => self.reason_of(view, job, |why| why.to_owned()),
            Why::Trial(job) => self.reason_of(view, job, |_| {
                "a trial or a hold-out: the cap found, or a step from it to the balanced cap"
                    .to_owned()
            }),
            Why::Clocks(job) => Reason {
                job: view.jobs.get(job).map(|job| job.name.clone()),
                text: "kept up for its planned clocks, as far as the watts of its job go"
                    .to_owned(),
            },
            Why::Room(Some(job)) => self.reason_of(view, job, |why| {
                format!("makes room within the budget; {why}")
            }),
            Why::Share | Why::Room(None) => {
                Reason::of_litd(format!("its share of the budget of {}", self.gpu_budget()))
            }
            Why::HasFailed => Reason::of_litd(
                "it is faulty: until it is litd's again, its cap stays at or below the highest that it has held since",
            ),
            Why::LeftBehind => Reason::of_litd("stays as it is when litd leaves"),
        }
    }

    fn reason_of(&self, view: &View, job: usize, text: impl Fn(&str) -> String) -> Reason {
        let name = view.demands.get(job).map(|demand| &demand.job);
        let job = name.and_then(|name| self.jobs.get(name));
        let why = job.map_or("", |job| job.control.why());
        Reason {
            job: job.map(|job| job.name.clone()),
            text: text(why),
        }
    }

    /// Why a device's cap found is restored.
    fn why_back(&self, unit: &Unit) -> &'static str {
        match unit.standing {
            _ if self.authority.is_stopping() => "litd stops",
            Standing::Released(it) if it.by_mode => "litd is off",
            Standing::Released(_) => "an administrator has released the device",
            Standing::Faulty(_) => "the device is faulty",
            Standing::Foreign(_) => "a late write of litd's has replaced a foreign cap",
            _ if unit.usage.has_opted_out() => "its job opted out",
            _ if self.policy() == Policy::Observe => "litd only observes",
            _ => "no job steers the device",
        }
    }
}
