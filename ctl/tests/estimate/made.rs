//! A made-up fleet: 50 nodes of four GPUs, an hour at 30 s, clocks in whole MHz. golden.py makes the same.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

pub const NODES: u64 = 50;
pub const GPUS: u64 = 4;
pub const STEPS: u64 = 120;
pub const STEP: u64 = 30;
/// 2024-05-08T00:00:00Z.
pub const START: u64 = 1_715_126_400;

/// `SplitMix64`'s finaliser.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn noise(node: u64, gpu: u64, step: u64, what: u64) -> f64 {
    let number = mixed(node * 1_000_003 + gpu * 10_007 + step * 101 + what);
    (number % 1_000) as f64 / 1_000.0 - 0.5
}

/// A reading.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub node: u64,
    pub gpu: u64,
    pub step: u64,
}

impl Row {
    /// The readings, in order of time.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..STEPS).flat_map(|step| {
            (0..NODES * GPUS).map(move |at| Self {
                node: at / GPUS,
                gpu: at % GPUS,
                step,
            })
        })
    }

    pub fn time(self) -> u64 {
        START + self.step * STEP
    }

    pub fn clock(self) -> u64 {
        let Self { node, gpu, step } = self;
        let slow = if (node, gpu) == (3, 2) { 80.0 } else { 0.0 };
        let level = 1_400.0 - (7 * gpu + node % 7 * gpu * 2) as f64 - slow;
        let wander = 5.0 * (step as f64 / 20.0).sin();
        (level + wander + 6.0 * noise(node, gpu, step, 0)).round_ties_even() as u64
    }

    pub fn is_limited(self) -> bool {
        self.step % 10 < 5 + self.node % 5
    }

    /// NVML's mask.
    pub fn reasons(self) -> u64 {
        if self.is_limited() { 4 } else { 0 }
    }

    pub fn power(self) -> f64 {
        let drawn = 690.0 + 5.0 * noise(self.node, self.gpu, self.step, 1);
        (drawn * 1_000.0).round() / 1_000.0
    }

    pub fn temperature(self) -> u64 {
        50 + 3 * self.gpu + self.node % 3
    }

    pub fn cap(self) -> u64 {
        700
    }

    pub fn host(self) -> String {
        format!("node{:02}", self.node)
    }

    pub fn uuid(self) -> String {
        format!("GPU-{:02}-{}", self.node, self.gpu)
    }
}

pub const HEAD: &str = "host,uuid,timestamp,power.draw [W],clocks.current.sm [MHz],temperature.gpu,\
                        power.limit [W],clocks_event_reasons.active";

/// The rows as one table.
pub fn csv(rows: impl Iterator<Item = Row>) -> String {
    let mut text = format!("{HEAD}\n");
    for row in rows {
        let _ = writeln!(
            text,
            "{},{},{},{:.3} W,{} MHz,{},{} W,{:#018x}",
            row.host(),
            row.uuid(),
            row.time(),
            row.power(),
            row.clock(),
            row.temperature(),
            row.cap(),
            row.reasons()
        );
    }
    text
}

/// A column of a row.
type Value = fn(Row) -> f64;

/// The same for Prometheus's backfill, by dcgm-exporter's names.
pub fn openmetrics() -> String {
    let mut text = String::new();
    let families: [(&str, Value); 5] = [
        ("DCGM_FI_DEV_POWER_USAGE", |it| it.power()),
        ("DCGM_FI_DEV_SM_CLOCK", |it| it.clock() as f64),
        ("DCGM_FI_DEV_GPU_TEMP", |it| it.temperature() as f64),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", |it| it.cap() as f64),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", |it| it.reasons() as f64),
    ];
    for (name, value) in families {
        let _ = writeln!(text, "# TYPE {name} gauge");
        for row in Row::all() {
            let labels = format!(
                "Hostname=\"{}\",UUID=\"{}\",gpu=\"{}\"",
                row.host(),
                row.uuid(),
                row.gpu
            );
            let _ = writeln!(text, "{name}{{{labels}}} {} {}", value(row), row.time());
        }
    }
    text.push_str("# EOF\n");
    text
}

pub fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}
