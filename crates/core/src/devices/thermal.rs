//! How long a GPU takes to warm up, from its own readings: a cap's effect on clocks is seen only once temperature
//! has followed.
//!
//! A first-order model, `dT/dt = a + b P - T / tau`, in its integral form, `T(t) - T(0) = a t + b int P - (1/tau)
//! int (T - T(0))`, because derivatives of whole degrees are noise. Ordinary least squares over two minutes give
//! tau wherever temperature has moved enough.

use std::collections::VecDeque;

use litd_units::{Celsius, Nanos, Watts};

/// How many seconds of readings a fit takes.
const SEGMENT: f64 = 120.0;

/// A longer gap between readings, in seconds, begins a new fit.
const GAP: f64 = 5.0;

/// How many kelvins the temperature must have moved.
const MOVED: f64 = 6.0;

/// The model must explain the temperature except for this share.
const UNEXPLAINED: f64 = 0.02;

/// Plausible time constants of GPUs, in seconds.
const SENSIBLE: std::ops::RangeInclusive<f64> = 1.0..=300.0;

/// The median of so many fits counts.
const FITS: usize = 5;

/// After so many time constants 95 % of a step is over.
const SETTLED: f64 = 3.0;

/// The thermal time constant of one GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thermal {
    segment: Option<Segment>,
    fits: VecDeque<f64>,
}

/// The sums of one fit in progress.
#[derive(Debug, Clone)]
struct Segment {
    began: Nanos,
    first: f64,
    last: (Nanos, f64, f64),
    lowest: f64,
    highest: f64,
    /// Integrals of power (in hundreds of watts) and of temperature above the first.
    integrals: [f64; 2],
    products: [[f64; 3]; 3],
    with_rise: [f64; 3],
    rises: f64,
}

impl Segment {
    fn new(now: Nanos, temperature: f64, power: f64) -> Self {
        Self {
            began: now,
            first: temperature,
            last: (now, temperature, power),
            lowest: temperature,
            highest: temperature,
            integrals: [0.0; 2],
            products: [[0.0; 3]; 3],
            with_rise: [0.0; 3],
            rises: 0.0,
        }
    }

    fn add(&mut self, now: Nanos, temperature: f64, power: f64) {
        let (before, then, drawn) = self.last;
        let step = (now - before).as_secs_f64();
        let mean = |now: f64, then: f64| (now + then) / 2.0;
        self.integrals[0] += mean(power, drawn) * step;
        self.integrals[1] += mean(temperature, then).mul_add(1.0, -self.first) * step;
        self.last = (now, temperature, power);
        self.lowest = self.lowest.min(temperature);
        self.highest = self.highest.max(temperature);
        let time = (now - self.began).as_secs_f64();
        let row = [time, self.integrals[0], self.integrals[1]];
        let rise = temperature - self.first;
        for (at, &one) in row.iter().enumerate() {
            for (other, &two) in row.iter().enumerate() {
                self.products[at][other] += one * two;
            }
            self.with_rise[at] += one * rise;
        }
        self.rises += rise * rise;
    }

    /// The time constant in seconds.
    fn fit(&self) -> Option<f64> {
        if self.highest - self.lowest < MOVED {
            return None;
        }
        let factors = solve(self.products, self.with_rise)?;
        let explained: f64 = factors
            .iter()
            .zip(&self.with_rise)
            .map(|(f, r)| f * r)
            .sum();
        let tau = -1.0 / factors[2];
        let fits = self.rises - explained < UNEXPLAINED * self.rises;
        (fits && SENSIBLE.contains(&tau)).then_some(tau)
    }
}

/// Solves three equations by elimination. Where power was constant its integral is time's, and
/// any share of either will do: a hair on the diagonal decides.
fn solve(mut products: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    for (at, row) in products.iter_mut().enumerate() {
        row[at] *= 1.0 + 1e-7;
    }
    for pivot in 0..3 {
        let (above, known) = (products[pivot], right[pivot]);
        if above[pivot].is_nan() || above[pivot] <= 0.0 {
            return None;
        }
        for row in pivot + 1..3 {
            let factor = products[row][pivot] / above[pivot];
            for (cell, &one) in products[row].iter_mut().zip(&above) {
                *cell -= factor * one;
            }
            right[row] -= factor * known;
        }
    }
    let mut solution = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3)
            .map(|at| products[row][at] * solution[at])
            .sum();
        solution[row] = (right[row] - known) / products[row][row];
    }
    solution.iter().all(|it| it.is_finite()).then_some(solution)
}

impl Thermal {
    /// Takes a reading.
    pub fn add(&mut self, now: Nanos, temperature: Option<Celsius>, power: Option<Watts>) {
        let known = temperature.zip(power).map(|(t, p)| (t.0, p.0 / 100.0));
        let sound = known.filter(|(t, p)| t.is_finite() && p.is_finite() && *p >= 0.0);
        let Some((temperature, power)) = sound else {
            self.segment = None;
            return;
        };
        let begin = || Segment::new(now, temperature, power);
        let segment = self.segment.get_or_insert_with(begin);
        if (now - segment.last.0).as_secs_f64() > GAP {
            *segment = begin();
        }
        if now > segment.last.0 {
            segment.add(now, temperature, power);
        }
        if (now - segment.began).as_secs_f64() >= SEGMENT {
            if let Some(tau) = segment.fit() {
                self.fits.push_back(tau);
                if self.fits.len() > FITS {
                    self.fits.pop_front();
                }
            }
            self.segment = Some(begin());
        }
    }

    /// How many seconds a cap's effect takes; `None` while unknown.
    pub fn settles(&self) -> Option<f64> {
        let mut fits: Vec<f64> = self.fits.iter().copied().collect();
        fits.sort_by(f64::total_cmp);
        fits.get(fits.len() / 2).map(|tau| SETTLED * tau)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU that is read once a second, in whole degrees, with some noise of its sensor.
    fn watched(tau: f64, seconds: usize, power: impl Fn(usize) -> f64) -> Thermal {
        let mut thermal = Thermal::default();
        let mut temperature = 40.0;
        for second in 0..seconds {
            let drawn = power(second);
            for _ in 0..100 {
                temperature += 0.01 * (40.0 + 0.06 * drawn - temperature) / tau;
            }
            let shown = (temperature + [0.0, 0.3, -0.3][second % 3]).round();
            let now = Nanos(second as i64 * 1_000_000_000);
            thermal.add(now, Some(Celsius(shown)), Some(Watts(drawn)));
        }
        thermal
    }

    #[test]
    fn a_step_of_power_tells_how_long_a_gpu_takes() {
        for tau in [8.0, 20.0, 40.0] {
            let step = |second| if second < 5 { 100.0 } else { 700.0 };
            let settles = watched(tau, 130, step).settles().unwrap();
            assert!(
                (settles / (3.0 * tau) - 1.0).abs() < 0.2,
                "{tau}: {settles}"
            );
        }
    }

    #[test]
    fn power_that_comes_and_goes_does_too() {
        let waves = |second: usize| {
            if (second / 25).is_multiple_of(2) {
                200.0
            } else {
                700.0
            }
        };
        let settles = watched(20.0, 400, waves).settles().unwrap();
        assert!((settles / 60.0 - 1.0).abs() < 0.2, "{settles}");
    }

    #[test]
    fn a_steady_gpu_a_gap_or_a_sensor_that_fails_tell_nothing() {
        assert_eq!(watched(20.0, 100, |_| 700.0).settles(), None);
        let steady = watched(0.05, 1000, |_| 700.0);
        assert_eq!(steady.settles(), None);
        let mut thermal = Thermal::default();
        for second in 0..1000 {
            let now = Nanos(second * 6_000_000_000);
            thermal.add(now, Some(Celsius(second as f64)), Some(Watts(1.0)));
        }
        thermal.add(Nanos(0), Some(Celsius(f64::NAN)), None);
        assert_eq!(thermal.settles(), None);
    }
}
