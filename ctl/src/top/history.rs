//! The history on the screen.

use std::collections::{BTreeMap, VecDeque};

use litd_api::Status;

/// How many moments are kept: more than the widest screen has columns.
const KEPT: usize = 512;

/// The last moments, oldest first.
#[derive(Default)]
pub struct History {
    moments: VecDeque<Moment>,
}

struct Moment {
    /// Power of the GPUs, in watts; NaN where they don't tell.
    power: f64,
    /// Leads per kernel in milliseconds by the device's address.
    leads: BTreeMap<String, f64>,
}

impl History {
    pub fn push(&mut self, status: &Status) {
        let lead = |device: &litd_api::DeviceStatus| {
            Some((device.address.clone(), device.lead_per_kernel?.0))
        };
        self.moments.push_back(Moment {
            power: status.gpus.power.map_or(f64::NAN, |power| power.0),
            leads: status.devices.iter().filter_map(lead).collect(),
        });
        if self.moments.len() > KEPT {
            self.moments.pop_front();
        }
    }

    /// The node's power over time.
    pub fn power(&self) -> Vec<f64> {
        self.moments.iter().map(|moment| moment.power).collect()
    }

    /// The largest lead over time; NaN where there was none.
    pub fn largest_lead(&self) -> Vec<f64> {
        let largest = |moment: &Moment| moment.leads.values().copied().fold(f64::NAN, f64::max);
        self.moments.iter().map(largest).collect()
    }

    /// The last leads of a device, as many as fit, as small bars from nothing to `high`.
    pub fn leads(&self, address: &str, fit: usize, high: f64) -> String {
        const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let bar = |moment: &Moment| match moment.leads.get(address) {
            Some(lead) => EIGHTHS[((lead / high * 7.0).round() as usize).min(7)],
            None => ' ',
        };
        let skipped = self.moments.len().saturating_sub(fit);
        self.moments.iter().skip(skipped).map(bar).collect()
    }
}
