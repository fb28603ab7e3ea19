//! SIMULATED profiles of the paper's scale. Its per-configuration numbers are published in figures only; what
//! its text implies is kept: GPT-2 on 8 A100 trains some 58,000 tokens/s at 1.1 to 1.5 kW and TP=1 PP=1 is the
//! fastest, Llama 1B on 4 L40 some 8,900 tokens/s at about 1 kW, TP draws least and is slowest. A leaner
//! configuration needs a little more energy for each token, so that a flat signal is no reason to take it.

use std::error::Error;

use litd_carbon::{Configuration, Point, Profile};
use litd_units::{Seconds, TokensPerSecond, Watts};

/// Which setup of section 5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Setup {
    /// GPT-2 on 8 A100
    Gpt2,
    /// Llama 1B on 4 L40
    Llama,
}

/// TP, PP, DP, watts, tokens/s.
type Row = (u32, u32, u32, f64, f64);

const GPT2: [Row; 10] = [
    (1, 1, 8, 1500.0, 58_000.0),
    (1, 2, 4, 1410.0, 53_500.0),
    (1, 4, 2, 1225.0, 46_000.0),
    (1, 8, 1, 1170.0, 41_000.0),
    (2, 1, 4, 1340.0, 49_000.0),
    (2, 2, 2, 1270.0, 45_500.0),
    (2, 4, 1, 1110.0, 40_000.0),
    (4, 1, 2, 1150.0, 38_000.0),
    (4, 2, 1, 1130.0, 36_000.0),
    (8, 1, 1, 1060.0, 30_000.0),
];

const LLAMA: [Row; 6] = [
    (1, 1, 4, 1040.0, 8_900.0),
    (1, 2, 2, 960.0, 8_100.0),
    (1, 4, 1, 872.0, 7_250.0),
    (2, 1, 2, 945.0, 7_800.0),
    (2, 2, 1, 815.0, 6_650.0),
    (4, 1, 1, 705.0, 5_600.0),
];

/// What a switch is taken to cost: the paper does not say what it took.
const SWITCH: Seconds = Seconds(60.0);

impl Setup {
    /// Its profile.
    pub fn profile(self) -> Result<Profile, Box<dyn Error>> {
        let (rows, model, hardware) = match self {
            Self::Gpt2 => (&GPT2[..], "GPT-2", "8x A100"),
            Self::Llama => (&LLAMA[..], "Llama 1B", "4x L40"),
        };
        let point = |&(tp, pp, dp, watts, rate): &Row| Point {
            configuration: Configuration { tp, pp, dp },
            power: Watts(watts),
            rate: TokensPerSecond(rate),
        };
        let points = rows.iter().map(point).collect();
        Ok(Profile::new(points, Some(SWITCH))?.named(model, hardware, "SIMULATED"))
    }
}
