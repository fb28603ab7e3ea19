//! Forecasts corrected by how much of them came true.
//!
//! A provider's forecast can be far off, and off in the same way from day to day. What was observed and issued until
//! a moment tells how much of a forecast's swings to believe at each distance, how long an error of now lasts, and
//! what the same time of other days says. A correction learned so is a straight line in three numbers, fitted by
//! least squares with weights that fade, and held near "as issued" until there is enough to learn from.

use jiff::{SignedDuration, Timestamp};
use litd_units::{Intensity, Seconds};

use crate::forecast::{Forecasts, Issued, Known};
use crate::series::Series;
use crate::time::at;

/// Distances, in hours, up to which one line holds. What is forecast for later is taken as issued.
const LEADS: [i64; 6] = [3, 6, 12, 24, 48, 72];
/// The regression's inputs: the forecast against the usual value, its error now, and now against the usual.
const NUMBERS: usize = 3;
/// As issued.
const ISSUED: [f64; NUMBERS] = [1.0, 0.0, 0.0];
/// "As issued" counts as so many hours of observations.
const PRIOR_HOURS: f64 = 48.0;
/// The weight of an observation halves in so many hours.
const HALF_LIFE_HOURS: f64 = 240.0;
/// The usual value is the mean of the same time on so many days.
const DAYS: i64 = 7;
const DAY: i64 = 86_400;
/// Forecasts for later than this, in days, are not used.
const FARTHEST: i64 = 31;
const HOUR: i64 = 3600;
/// Of signals with finer steps than this, in seconds, some are looked at: what a correction learns holds for hours.
const PACE: i64 = 900;
/// Observations older than this have too little weight to count.
const MEMORY: SignedDuration = SignedDuration::from_hours(24 * 60);

/// How much of forecasts to believe, by the moment at which it was known. The default has learned nothing and takes
/// forecasts as issued.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Skill {
    /// In order of time: the step of the signal that had begun, and what was known then.
    known: Vec<(i64, [[f64; NUMBERS]; LEADS.len()])>,
}

/// The values known at one moment.
#[derive(Clone, Copy)]
struct Past<'a> {
    signal: &'a Series,
    forecasts: Option<&'a Forecasts>,
    /// The moment, in seconds since 1970.
    now: i64,
}

impl Skill {
    /// Learns from a signal and its forecasts, for decisions from one moment to another. Each is looked at in order of
    /// time: what is known of a moment has been observed and issued by then. Without forecasts the usual value stands
    /// for them.
    #[must_use]
    pub fn learn(
        signal: &Series,
        forecasts: Option<&Forecasts>,
        from: Timestamp,
        until: Timestamp,
    ) -> Self {
        let step = pace(signal);
        let begin = from.saturating_sub(MEMORY).unwrap_or(Timestamp::MIN);
        let mut second = signal
            .first()
            .as_second()
            .max(signal.begin(begin.as_second()));
        let end = until.as_second().min(signal.end().as_second() - 1);
        let hours = step as f64 / HOUR as f64;
        let mut lines = [Line::default(); LEADS.len()];
        let mut known = Vec::new();
        while second <= end {
            if let Some(truth) = signal.at(second) {
                lines.iter_mut().for_each(|line| line.fade(hours));
                for lead in 1..=(LEADS[LEADS.len() - 1] * HOUR / step) {
                    let now = second - lead * step;
                    let past = Past {
                        signal,
                        forecasts,
                        now,
                    };
                    let line = line_of(lead * step);
                    let share = hours / width(line) * hours;
                    if let Some((usual, numbers)) = past.numbers(second) {
                        lines[line].add(numbers, truth - usual, share);
                    }
                }
            }
            if second + step > from.as_second() {
                known.push((second, lines.map(|line| line.slopes())));
            }
            second += step;
        }
        Self { known }
    }

    /// The newest forecast at a moment, corrected by what was known then: an issue of that moment. `None` where
    /// nothing is observed or issued by then.
    #[must_use]
    pub fn issue(
        &self,
        signal: &Series,
        forecasts: Option<&Forecasts>,
        now: Timestamp,
    ) -> Option<Issued> {
        let second = now.as_second();
        let past = Past {
            signal,
            forecasts,
            now: second,
        };
        let step = pace(signal);
        let begin = signal.begin(second);
        let value = signal.at(second)?;
        let mut until = begin + LEADS[LEADS.len() - 1] * HOUR;
        if let Some(forecasts) = forecasts {
            let end = forecasts.newest(now)?.end().as_second();
            // A day that is as issued, which stands for all that come after it.
            until = until.max(end.min(begin + FARTHEST * DAY)).max(until + DAY);
        }
        let learned = self.known.partition_point(|(known, _)| *known <= second);
        let learned = learned.checked_sub(1).map(|at| self.known[at]);
        let (learned, slopes) = learned.unwrap_or((begin, [ISSUED; LEADS.len()]));
        let mut values = vec![(at(begin), Intensity(value))];
        let mut target = begin + step;
        while target < until {
            let (usual, numbers) = past.numbers(target)?;
            let slopes =
                match target - begin <= LEADS[LEADS.len() - 1] * HOUR || forecasts.is_none() {
                    true => slopes[line_of(target - begin)],
                    false => ISSUED,
                };
            let more: f64 = slopes.iter().zip(numbers).map(|(a, b)| a * b).sum();
            values.push((at(target), Intensity((usual + more).max(0.0))));
            target += step;
        }
        // Of the latest moment of all that went in: a decision refuses what is later than itself.
        Issued::new(at(learned.max(begin)).max(past.issued()?), &values).ok()
    }

    /// The forecast of so many windows from its moment on.
    #[must_use]
    pub fn outlook(
        &self,
        signal: &Series,
        forecasts: &Forecasts,
        now: Timestamp,
        window: Seconds,
        count: usize,
    ) -> Option<Vec<Known>> {
        let issue = self.issue(signal, Some(forecasts), now)?;
        Some(issue.outlook(now, window, count))
    }
}

/// The least number of whole steps that is no shorter than [`PACE`], in seconds.
fn pace(signal: &Series) -> i64 {
    let step = signal.step().0 as i64;
    step * ((PACE + step - 1) / step)
}

/// By its number, the line that holds at a distance in seconds.
fn line_of(distance: i64) -> usize {
    let line = LEADS.iter().position(|hours| distance <= hours * HOUR);
    line.unwrap_or(LEADS.len() - 1)
}

/// For how many hours of distance a line holds.
fn width(line: usize) -> f64 {
    let before = line.checked_sub(1).map_or(0, |before| LEADS[before]);
    (LEADS[line] - before) as f64
}

impl Past<'_> {
    /// When the newest forecast was issued, or the moment itself without forecasts.
    fn issued(self) -> Option<Timestamp> {
        match self.forecasts {
            Some(forecasts) => Some(forecasts.newest(at(self.now))?.at),
            None => Some(at(self.now)),
        }
    }

    /// The usual value of a step that begins at a moment to come, and what the lines are drawn through.
    fn numbers(self, target: i64) -> Option<(f64, [f64; NUMBERS])> {
        let begin = self.signal.begin(self.now);
        let value = self.signal.at(self.now)?;
        let step = self.signal.step().0 as i64;
        let usual_now = self.usual(begin).unwrap_or(value);
        let usual = self.usual(target);
        let Some(forecasts) = self.forecasts else {
            return Some((usual.unwrap_or(value), [0.0, 0.0, value - usual_now]));
        };
        let issue = forecasts.newest(at(self.now))?;
        let said = issue.expected(target, target + step);
        let said_now = issue.expected(begin, begin + step);
        let usual = usual.unwrap_or(said);
        Some((usual, [said - usual, value - said_now, value - usual_now]))
    }

    /// The mean of the same time on the last days that have been observed.
    fn usual(self, target: i64) -> Option<f64> {
        let begin = self.signal.begin(self.now);
        let behind = (target - begin).div_euclid(DAY);
        let is_whole = target > begin && (target - begin) % DAY == 0;
        let newest = target - (behind + i64::from(!is_whole)) * DAY;
        let values = (0..DAYS).filter_map(|day| self.signal.at(newest - day * DAY));
        let (sum, count) =
            values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        (count > 0.0).then(|| sum / count)
    }
}

/// Sums of a fit by least squares.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    squares: [[f64; NUMBERS]; NUMBERS],
    products: [f64; NUMBERS],
    hours: f64,
}

impl Line {
    fn fade(&mut self, hours: f64) {
        let rest = 0.5_f64.powf(hours / HALF_LIFE_HOURS);
        self.squares.iter_mut().flatten().for_each(|it| *it *= rest);
        self.products.iter_mut().for_each(|it| *it *= rest);
        self.hours *= rest;
    }

    fn add(&mut self, numbers: [f64; NUMBERS], outcome: f64, share: f64) {
        for (row, own) in numbers.iter().enumerate() {
            for (column, other) in numbers.iter().enumerate() {
                self.squares[row][column] += share * own * other;
            }
            self.products[row] += share * own * outcome;
        }
        self.hours += share;
    }

    /// The slopes that fit best, held near "as issued".
    fn slopes(&self) -> [f64; NUMBERS] {
        let mut matrix = self.squares;
        let mut right = self.products;
        let size = (0..NUMBERS).map(|at| matrix[at][at]).fold(0.0, f64::max);
        if self.hours <= 0.0 || size <= 0.0 {
            return ISSUED;
        }
        for at in 0..NUMBERS {
            let usual = (matrix[at][at] / self.hours).max(size / self.hours * 1e-9);
            matrix[at][at] += PRIOR_HOURS * usual;
            right[at] += PRIOR_HOURS * usual * ISSUED[at];
        }
        solved(matrix, right).unwrap_or(ISSUED)
    }
}

/// Gauss with the largest pivot of each column; `None` where there is none.
fn solved(
    mut matrix: [[f64; NUMBERS]; NUMBERS],
    mut right: [f64; NUMBERS],
) -> Option<[f64; NUMBERS]> {
    for column in 0..NUMBERS {
        let rows = column..NUMBERS;
        let pivot =
            rows.max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let head = matrix[column][column];
        if !(head.abs() > 0.0 && head.is_finite()) {
            return None;
        }
        let top = matrix[column];
        for row in column + 1..NUMBERS {
            let share = matrix[row][column] / head;
            let cells = matrix[row].iter_mut().zip(top);
            cells.for_each(|(cell, above)| *cell -= share * above);
            right[row] -= share * right[column];
        }
    }
    let mut slopes = [0.0; NUMBERS];
    for row in (0..NUMBERS).rev() {
        let known: f64 = (row + 1..NUMBERS)
            .map(|at| matrix[row][at] * slopes[at])
            .sum();
        slopes[row] = (right[row] - known) / matrix[row][row];
    }
    slopes.iter().all(|it| it.is_finite()).then_some(slopes)
}
