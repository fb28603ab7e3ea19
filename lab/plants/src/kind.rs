//! The kinds of nodes: what their vendors publish, and what the data of `plant/SOURCES.md` shows.

use litd_units::Watts;
use serde::Serialize;

/// A kind of node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Four V100-SXM2 of 16 GB, as in Longhorn.
    V100x4,
    /// Eight A100-SXM4.
    A100x8,
    /// Eight H100-SXM5.
    H100x8,
    /// Eight MI300X.
    Mi300xx8,
}

/// What a driver accepts as a cap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// The lowest cap.
    pub lowest: Watts,
    /// The highest cap, which is the TDP.
    pub highest: Watts,
    /// Drivers cut caps to multiples of this.
    pub unit: Watts,
}

/// How a vendor's tool reads power.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sensor {
    /// A mean of the last `window` ms, published every `period` ms, `late` ms after its end.
    Window {
        /// Length of the mean, ms.
        window: f64,
        /// Time between two values, ms.
        period: f64,
        /// Age of a value when it is published, ms.
        late: f64,
    },
}

/// Numbers of a kind of node.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name as printed.
    pub name: &'static str,
    /// GPUs in the node.
    pub gpus: usize,
    /// Caps of a GPU.
    pub range: Range,
    /// Highest clock, MHz.
    pub clock: f64,
    /// The lowest clock that a limiter reaches, relative to the highest.
    pub lowest_clock: f64,
    /// What matrix products would draw at the highest clock and 65 C, relative to the TDP, on a
    /// middling GPU.
    pub gemm_draw: f64,
    /// The range of idle power with clocks up, relative to the TDP.
    pub idle: (f64, f64),
    /// Above this junction temperature the firmware lowers clocks, C.
    pub slowdown: f64,
    /// CPU sockets and the limit of each, W.
    pub cpus: (usize, f64),
    /// What fans draw at full speed, W.
    pub fans: f64,
    /// What the rest of the node draws, W.
    pub rest: f64,
    /// How its tool reads power.
    pub sensor: Sensor,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::V100x4, Self::A100x8, Self::H100x8, Self::Mi300xx8];

    /// Its numbers. TDPs, clocks and caps are the vendors'; V100's draw is
    /// such that the limiter holds the Longhorn launches at 1357 of 1530 MHz; idle is pagerank's
    /// 81 W of 300 (V100), 82 to 92 W of 400 (A100), 183 W of 1100 scaled (B300 for H100) and
    /// 141 to 153 W of 750 (MI300X). Draws of the others, fans and the rest are assumed: no source.
    #[must_use]
    pub fn spec(self) -> Spec {
        let range = |lowest, highest| Range {
            lowest: Watts(lowest),
            highest: Watts(highest),
            unit: Watts(1.0),
        };
        let quarter = Sensor::Window {
            window: 25.0,
            period: 100.0,
            late: 65.0,
        };
        match self {
            Self::V100x4 => Spec {
                name: "v100x4",
                gpus: 4,
                range: range(100.0, 300.0),
                clock: 1530.0,
                lowest_clock: 0.09,
                gemm_draw: 1.36,
                idle: (0.2, 0.28),
                slowdown: 87.0,
                cpus: (2, 190.0),
                fans: 200.0,
                rest: 250.0,
                sensor: Sensor::Window {
                    window: 20.0,
                    period: 20.0,
                    late: 30.0,
                },
            },
            Self::A100x8 => Spec {
                name: "a100x8",
                gpus: 8,
                range: range(100.0, 400.0),
                clock: 1410.0,
                lowest_clock: 0.15,
                gemm_draw: 1.25,
                idle: (0.21, 0.27),
                slowdown: 85.0,
                cpus: (2, 225.0),
                fans: 600.0,
                rest: 700.0,
                sensor: quarter,
            },
            Self::H100x8 => Spec {
                name: "h100x8",
                gpus: 8,
                range: range(200.0, 700.0),
                clock: 1980.0,
                lowest_clock: 0.1,
                gemm_draw: 1.4,
                idle: (0.15, 0.22),
                slowdown: 87.0,
                cpus: (2, 350.0),
                fans: 900.0,
                rest: 1200.0,
                sensor: quarter,
            },
            Self::Mi300xx8 => Spec {
                name: "mi300x8",
                gpus: 8,
                // The driver reads 0 as the lowest; 300 W is litd's own floor.
                range: range(300.0, 750.0),
                clock: 2100.0,
                lowest_clock: 0.2,
                gemm_draw: 1.45,
                idle: (0.21, 0.26),
                slowdown: 100.0,
                cpus: (2, 400.0),
                fans: 900.0,
                rest: 900.0,
                sensor: Sensor::Window {
                    window: 20.0,
                    period: 20.0,
                    late: 10.0,
                },
            },
        }
    }
}
