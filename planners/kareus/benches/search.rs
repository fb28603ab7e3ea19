//! A batch of a search: train, resample, score 600 candidates, choose 32. The limit is 100 ms on one core.

#![allow(clippy::unwrap_used, reason = "in benches a panic is the report")]

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::time::Instant;

use litd_kareus::search::{Row, Sample, Settings, propose};
use measured::{Nothing, Samples, nothing};

const LIMIT: f64 = 0.1;

fn main() -> Result<(), Nothing> {
    let rows: Vec<Row> = (0..18)
        .flat_map(|clock| (1..=10).map(move |sms| (clock, sms)))
        .flat_map(|(clock, sms)| {
            let row = move |launch| {
                [
                    900.0 + 30.0 * f64::from(clock),
                    3.0 * f64::from(sms),
                    f64::from(launch),
                ]
            };
            (0..4).map(row)
        })
        .collect();
    let settings = Settings::for_computations(5);
    // The last batch has the most samples; what is left of 720 candidates is scored, and no fewer than 600.
    for count in [96, 120] {
        let (known, open): (Vec<_>, Vec<_>) = rows
            .iter()
            .enumerate()
            .partition(|(at, _)| at * count % 720 < count);
        let known: Vec<Sample> = known.iter().map(|(at, row)| sample(*at, **row)).collect();
        let open: Vec<Row> = open.iter().map(|(_, row)| **row).collect();
        if open.len() < 600 || known.len() < count {
            return Err(nothing("a batch", format!("{} candidates", open.len())));
        }
        let mut times = Vec::new();
        for seed in 0..40 {
            let began = Instant::now();
            let chosen = propose(&known, 0.3, &open, &settings, seed);
            times.push(began.elapsed().as_secs_f64());
            if chosen.len() != settings.batch {
                return Err(nothing("a batch", format!("it chose {}", chosen.len())));
            }
        }
        let times = Samples::new("a batch", 20, times)?;
        println!(
            "{} samples, {} candidates: median {:.1} ms, slowest {:.1} ms: {:.3} of 100 ms",
            known.len(),
            open.len(),
            times.percentile(50) * 1e3,
            times.percentile(100) * 1e3,
            times.percentile(100) / LIMIT
        );
    }
    Ok(())
}

/// An uneven result, so that trees grow to their depth.
fn sample(at: usize, row: Row) -> Sample {
    let [clock, sms, launch] = row;
    let uneven = (at * 7919 % 101) as f64 / 1000.0;
    Sample {
        row,
        time: 900.0 / clock * (0.6 + 1.0 / sms + 0.05 * launch) + uneven,
        dynamic: (clock / 1410.0).powi(2) * 0.6 + uneven,
    }
}
