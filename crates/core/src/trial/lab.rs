//! Caps of a job's devices while a trial or the hold-out wants others than its loop asks for. Caps found and
//! balanced caps go through the same account, journal and writes as any others: only the targets differ.

use litd_api::EventKind;
use litd_policies::diagnosis::too_hot_to_rise;
use litd_policies::{CapVector, Limits};
use litd_units::Watts;

use crate::core::Core;
use crate::job::Job;
use crate::plan::{DUST, project};
use crate::record::Note;
use crate::store::Store;

/// The caps that a trial wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lab {
    /// The caps that the loop asked for last; the loop rests.
    Balanced,
    /// The caps found.
    Found,
    /// On the way from the caps found to the balanced ones, so many steps up: no cap rises faster than the law
    /// would let it.
    Rising {
        /// Steps.
        steps: u32,
        /// Whether the loop goes on at the end.
        ends: bool,
        /// For how many seconds the next step has waited.
        waited: u32,
    },
}

/// After waiting so many seconds for the next step (a GPU is too hot), the job is planned anew.
const PATIENCE: u32 = 120;

/// Targets instead of the loop's demands.
#[derive(Debug, Default)]
pub(crate) struct Instead {
    /// Devices that hold their caps found.
    pub back: Vec<(usize, Watts)>,
    /// Devices with caps of an envelope.
    pub aim: Option<(Vec<usize>, CapVector)>,
}

impl<S: Store> Core<S> {
    /// The targets of a job's devices instead of its loop's demands, if any.
    pub(crate) fn instead(&self, job: &Job) -> Option<Instead> {
        match job.trial.lab? {
            Lab::Balanced => None,
            Lab::Found => Some(self.found_within(job)),
            Lab::Rising { steps, .. } => self.rising(job, steps),
        }
    }

    /// The caps found, as far as the job's share of a budget that was set allows them.
    fn found_within(&self, job: &Job) -> Instead {
        let mut instead = Instead::default();
        let (mut devices, mut limits, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = self.share(job);
        for device in job.devices() {
            let Some(unit) = self.devices.get(device) else {
                continue;
            };
            let Some(cap) = unit.base() else { continue };
            let own = unit.limits(&self.config.caps);
            if unit.is_gpu() && cap > own.floor {
                devices.push(device);
                limits.push(own);
                found.push(cap);
                continue;
            }
            if unit.is_gpu() {
                left -= cap;
            }
            instead.back.push((device, cap));
        }
        let whole: Watts = found.iter().copied().sum();
        let caps = match whole <= left + DUST {
            true => None,
            false => project(&limits, left, &found),
        };
        match caps {
            Some(caps) => instead.aim = Some((devices, caps)),
            None => instead.back.extend(devices.into_iter().zip(found)),
        }
        instead
    }

    /// The caps found of all of a job's devices, in their order.
    pub(crate) fn found_caps(&self, job: &Job) -> Vec<Watts> {
        let instead = self.found_within(job);
        let of = |device: usize| {
            let back = instead.back.iter().find(|(of, _)| *of == device);
            let aimed = || {
                let (devices, caps) = instead.aim.as_ref()?;
                caps.watts(devices.iter().position(|of| *of == device)?)
            };
            back.map(|&(_, cap)| cap).or_else(aimed)
        };
        let caps = job.devices().into_iter().map(of);
        caps.map(|cap| cap.unwrap_or(Watts(f64::NAN))).collect()
    }

    /// The caps asked for, each at most so many steps above the one found.
    fn rising(&self, job: &Job, steps: u32) -> Option<Instead> {
        let (devices, wanted) = self.after_steps(job, steps)?;
        let limits = devices
            .iter()
            .filter_map(|&device| self.devices.get(device));
        let limits: Vec<Limits> = limits.map(|unit| unit.limits(&self.config.caps)).collect();
        let most = job.control.ask()?.to_watts().into_iter().sum::<Watts>();
        let caps = project(&limits, most + DUST, &wanted)?;
        Some(Instead {
            back: Vec::new(),
            aim: Some((devices, caps)),
        })
    }

    fn after_steps(&self, job: &Job, steps: u32) -> Option<(Vec<usize>, Vec<Watts>)> {
        let devices = job.devices();
        let asked = job.control.ask()?.to_watts();
        let found = self.found_caps(job);
        let rise = self.config.law.mitigation.rise() * f64::from(steps);
        // A device without a known cap found can't be raised from there: it is not in any plan.
        let wanted = asked.iter().zip(&found).map(|(&asked, &found)| {
            let rises = asked > found;
            if rises {
                asked.min(found + rise)
            } else {
                asked
            }
        });
        Some((devices, wanted.collect()))
    }

    /// Whether the balanced caps are those found.
    pub(crate) fn nothing_moved(&self, job: &Job) -> bool {
        let Some(ask) = job.control.ask() else {
            return true;
        };
        let found = self.found_caps(job);
        let mut pairs = ask.to_watts().into_iter().zip(&found);
        pairs.all(|(ask, found)| ask.is_same_cap(*found))
    }

    /// From now on the job's devices return to the balanced caps, step by step.
    pub(crate) fn raise_lab(&mut self, name: &str, ends: bool) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        job.trial.lab = match job.trial.lab {
            Some(Lab::Found) => Some(Lab::Rising {
                steps: 1,
                ends,
                waited: 0,
            }),
            Some(Lab::Rising { steps, waited, .. }) => Some(Lab::Rising {
                steps,
                ends,
                waited,
            }),
            Some(Lab::Balanced) | None if ends => None,
            other => other,
        };
        if job.trial.lab.is_none() {
            job.ticks.forget_reference();
        }
    }

    /// Another step up, once a second, where the last one has been made and no GPU is too hot.
    pub(crate) fn raise_labs(&mut self) {
        let rising = |job: &&Job| matches!(job.trial.lab, Some(Lab::Rising { .. }));
        let names = self.jobs.values().filter(rising);
        let names: Vec<String> = names.map(|job| job.name.clone()).collect();
        for name in names {
            let Some(job) = self.jobs.get(&name) else {
                continue;
            };
            let Some(Lab::Rising {
                steps,
                ends,
                waited,
            }) = job.trial.lab
            else {
                continue;
            };
            let (done, ready) = (self.has_risen(job, steps), self.may_rise(job));
            let climbs = self.is_climbing(job);
            let Some(job) = self.jobs.get_mut(&name) else {
                continue;
            };
            if done {
                job.trial.lab = (!ends).then_some(Lab::Balanced);
                job.ticks.forget_reference();
            } else if ready {
                job.trial.lab = Some(Lab::Rising {
                    steps: steps.saturating_add(1),
                    ends,
                    waited: 0,
                });
            } else if waited < PATIENCE || climbs {
                job.trial.lab = Some(Lab::Rising {
                    steps,
                    ends,
                    waited: waited.saturating_add(1),
                });
            } else {
                let text = "the balanced caps can't be taken up again: a GPU is too hot, or takes \
                            no cap";
                self.note(Note::warning(EventKind::Trial, text).job(&name));
                self.plan_anew(&name);
            }
        }
    }

    fn has_risen(&self, job: &Job, steps: u32) -> bool {
        let (Some((_, wanted)), Some(ask)) = (self.after_steps(job, steps), job.control.ask())
        else {
            return true;
        };
        let mut pairs = wanted.into_iter().zip(ask.to_watts());
        pairs.all(|(wanted, asked)| wanted.is_same_cap(asked))
    }

    fn may_rise(&self, job: &Job) -> bool {
        let settled = |&device: &usize| {
            self.writer.account().is_settled(device) && !self.is_on_its_way(device)
        };
        let hot =
            |device| too_hot_to_rise(&self.devices.gpu_reading(device), &self.config.law.guard);
        job.devices().iter().all(settled) && !job.gpus().any(hot)
    }
}
