//! Values over time, each for a step.

use jiff::Timestamp;
use litd_units::Seconds;

use crate::time::at;

/// Values of steps of equal length, one after the other; a step may lack its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Where the first step begins, in seconds since 1970.
    first: i64,
    /// The length of a step in seconds, more than 0.
    step: i64,
    values: Vec<Option<f64>>,
}

/// No series has more steps: two centuries of half-hours.
pub(crate) const MOST: usize = 4_000_000;

impl Series {
    /// From moments (seconds since 1970) and values, in order of time. The step is the shortest distance of
    /// two neighbours, an hour where there is one value only. Steps between the first and the last that have no value
    /// take memory as well, so that there may be so many at most.
    ///
    /// # Errors
    /// At which value, and why: a moment that is not after the one before, or that lies between steps or too far from
    /// the first.
    pub(crate) fn new(points: &[(i64, Option<f64>)], most: usize) -> Result<Self, (usize, String)> {
        let steps = points.windows(2).map(|pair| pair[1].0 - pair[0].0);
        for (index, step) in steps.clone().enumerate() {
            if step <= 0 {
                let what = match step {
                    0 => "has the time of the row before",
                    _ => "lies before the row before; rows must be in order of time",
                };
                return Err((index + 1, format!("{} {what}", at(points[index + 1].0))));
            }
        }
        let step = steps.min().unwrap_or(3600);
        let first = points.first().map_or(0, |point| point.0);
        let mut values = Vec::with_capacity(points.len());
        for (index, (second, value)) in points.iter().enumerate() {
            let offset = second - first;
            if offset % step != 0 {
                let what = format!("{} lies between steps of {step} s", at(*second));
                return Err((index, what));
            }
            let place = usize::try_from(offset / step).unwrap_or(usize::MAX);
            if place > most {
                let what = format!(
                    "{} lies more than {most} steps of {step} s after the first value; the shortest distance of two \
                     values is taken for the step",
                    at(*second)
                );
                return Err((index, what));
            }
            values.resize(place, None);
            values.push(*value);
        }
        Ok(Self {
            first,
            step,
            values,
        })
    }

    /// Where the first step begins.
    #[must_use]
    pub fn first(&self) -> Timestamp {
        at(self.first)
    }

    /// Where the last step ends.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        at(self.first + self.values.len() as i64 * self.step)
    }

    /// The length of a step.
    #[must_use]
    pub fn step(&self) -> Seconds {
        Seconds(self.step as f64)
    }

    /// Where the step begins that a moment lies in (seconds since 1970).
    pub(crate) fn begin(&self, second: i64) -> i64 {
        second - (second - self.first).rem_euclid(self.step)
    }

    /// The value that holds at a moment (seconds since 1970).
    pub(crate) fn at(&self, second: i64) -> Option<f64> {
        let step = (second - self.first).div_euclid(self.step);
        *self.values.get(usize::try_from(step).ok()?)?
    }

    /// The mean from one moment to another, each value with the time for which it holds; `None` where a
    /// value is missing.
    pub(crate) fn mean(&self, from: i64, to: i64) -> Option<f64> {
        let (mut sum, mut at) = (0.0, from);
        while at < to {
            let value = self.at(at)?;
            let step = (at - self.first).div_euclid(self.step);
            let end = (self.first + (step + 1) * self.step).min(to);
            if at == from && end == to {
                return Some(value);
            }
            sum += value * (end - at) as f64;
            at = end;
        }
        (to > from).then(|| sum / (to - from) as f64)
    }

    /// The first moment of a time that has no value.
    pub(crate) fn missing(&self, from: i64, to: i64) -> i64 {
        let mut at = from;
        while at < to && self.at(at).is_some() {
            at = self.begin(at) + self.step;
        }
        at
    }

    /// The steps and their values, those that are missing left out.
    pub(crate) fn known(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        let steps = self.values.iter().zip(0_i64..);
        steps.filter_map(|(value, at)| value.map(|value| (self.first + at * self.step, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(values: &[f64]) -> Series {
        let points = values.iter().zip(0..);
        let points: Vec<_> = points.map(|(v, at)| (at * 3600, Some(*v))).collect();
        Series::new(&points, MOST).unwrap()
    }

    #[test]
    fn a_window_across_steps_has_their_mean_by_time() {
        let series = hours(&[10.0, 20.0, 40.0]);
        assert_eq!(series.mean(0, 3600), Some(10.0));
        assert_eq!(series.mean(1800, 3600), Some(10.0));
        assert_eq!(series.mean(1800, 5400), Some(15.0));
        assert_eq!(series.mean(0, 10_800), Some(70.0 / 3.0));
        assert_eq!(series.mean(7200, 10_801), None);
        assert_eq!(series.mean(-1, 10), None);
    }

    #[test]
    fn a_gap_has_no_value_and_disorder_is_refused() {
        let series = Series::new(
            &[(0, Some(1.0)), (1800, Some(2.0)), (5400, Some(3.0))],
            MOST,
        )
        .unwrap();
        assert_eq!((series.step(), series.at(3600)), (Seconds(1800.0), None));
        assert_eq!(series.mean(0, 3600), Some(1.5));
        assert_eq!(series.mean(1800, 5400), None);
        let wrong = |points: &[(i64, Option<f64>)]| Series::new(points, MOST).unwrap_err();
        assert_eq!(wrong(&[(0, None), (3600, None), (3600, None)]).0, 2);
        assert!(
            wrong(&[(0, None), (3600, None), (0, None)])
                .1
                .contains("in order of time")
        );
        assert!(
            wrong(&[(0, None), (3600, None), (9000, None)])
                .1
                .contains("between steps")
        );
    }
}
