//! A device's sensors, as a series of readings shows them.

use litd_power::Reading;
use litd_units::{Joules, Nanos, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// A reading, and the middle of the time that it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The time.
    pub at: Nanos,
    /// The reading.
    pub reading: Reading,
}

/// The measurements of a device's sensors. Absent is what the readings do not show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sensors {
    /// Mean power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Watts>,
    /// The usual time between two values of the power sensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_period: Option<Seconds>,
    /// The standard deviation of the sensor's values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Watts>,
    /// Mean power by the energy counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Watts>,
    /// The usual time between two readings: no shorter period can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_every: Option<Seconds>,
}

/// Fewer changes of a value than this show no period.
const CHANGES: usize = 3;

/// Judges the readings of a device whose cap did not change meanwhile.
#[must_use]
pub fn judge(samples: &[Sample]) -> Sensors {
    let powers = samples
        .iter()
        .filter_map(|it| Some((it.at, it.reading.power?)));
    let powers: Vec<(Nanos, Watts)> = powers.filter(|(_, power)| power.is_finite()).collect();
    let changes = changes(&powers);
    let times: Vec<Nanos> = samples.iter().map(|it| it.at).collect();
    Sensors {
        power: mean(powers.iter().map(|&(_, power)| power)),
        power_period: (changes.len() > CHANGES)
            .then(|| median_gap(&changes.iter().map(|&(at, _)| at).collect::<Vec<_>>()))
            .flatten(),
        noise: deviation(&changes),
        counted: counted(samples),
        read_every: median_gap(&times),
    }
}

/// The first reading of each new value: a sensor that is read more often than it is renewed repeats itself.
fn changes(powers: &[(Nanos, Watts)]) -> Vec<(Nanos, Watts)> {
    let mut changes: Vec<(Nanos, Watts)> = Vec::new();
    for &(at, power) in powers {
        if changes.last().is_none_or(|&(_, last)| last != power) {
            changes.push((at, power));
        }
    }
    changes
}

fn mean(values: impl Iterator<Item = Watts> + Clone) -> Option<Watts> {
    let count = values.clone().count();
    (count > 0).then(|| values.sum::<Watts>() / count as f64)
}

fn deviation(values: &[(Nanos, Watts)]) -> Option<Watts> {
    let mean = mean(values.iter().map(|&(_, power)| power)).filter(|_| values.len() > CHANGES)?;
    let squares = values.iter().map(|&(_, power)| (power - mean).0.powi(2));
    Some(Watts(
        (squares.sum::<f64>() / (values.len() - 1) as f64).sqrt(),
    ))
}

fn median_gap(times: &[Nanos]) -> Option<Seconds> {
    let mut gaps: Vec<Nanos> = times.windows(2).map(|it| it[1] - it[0]).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2)
        .map(|gap| Seconds(gap.as_secs_f64()))
}

/// Mean power by the counter, between its first and its last step: a counter that is renewed once a second counts
/// whole seconds only.
fn counted(samples: &[Sample]) -> Option<Watts> {
    let counts = samples
        .iter()
        .filter_map(|it| Some((it.at, it.reading.energy?)));
    let mut steps: Vec<(Nanos, Joules)> = Vec::new();
    let mut last = None;
    for (at, energy) in counts {
        if last.is_some_and(|last| last != energy) {
            steps.push((at, energy));
        }
        last = Some(energy);
    }
    let ((begin, first), (end, last)) = (steps.first()?, steps.last()?);
    let seconds = (*end - *begin).as_secs_f64();
    (seconds > 0.0 && last > first).then(|| Watts((*last - *first).0 / seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings every 10 ms of a sensor that is renewed every 100 ms and of a counter of 1 s.
    fn series(seconds: usize) -> Vec<Sample> {
        (0..seconds * 100)
            .map(|index| Sample {
                at: Nanos(index as i64 * 10_000_000),
                reading: Reading {
                    power: Some(Watts(500.0 + (index / 10 % 3) as f64)),
                    energy: Some(Joules(501.0 * (index / 100) as f64)),
                    ..Reading::default()
                },
            })
            .collect()
    }

    #[test]
    fn a_sensor_that_repeats_itself_shows_its_period_and_its_noise() {
        let sensors = judge(&series(5));
        assert_eq!(sensors.power_period, Some(Seconds(0.1)));
        assert_eq!(sensors.read_every, Some(Seconds(0.01)));
        let noise = sensors.noise.unwrap();
        assert!((noise - Watts(0.82)).abs() < Watts(0.02), "{noise}");
        let (power, counted) = (sensors.power.unwrap(), sensors.counted.unwrap());
        assert!((power - counted).abs() < Watts(0.1), "{power} {counted}");
    }

    #[test]
    fn what_does_not_change_shows_nothing() {
        let mut still = series(2);
        for it in &mut still {
            (it.reading.power, it.reading.energy) = (Some(Watts(90.0)), Some(Joules(1.0)));
        }
        let sensors = judge(&still);
        assert_eq!((sensors.power_period, sensors.noise), (None, None));
        assert_eq!(sensors.counted, None);
        assert_eq!(judge(&[]), Sensors::default());
    }
}
