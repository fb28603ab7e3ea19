//! The cost of an operation, by the time that it may take.

use litd_units::Joules;
use thiserror::Error;

use crate::Units;

/// No operation takes more units than this: the next finer resolution would want gigabytes.
const MAX_UNITS: u32 = 1_000_000;
/// The possible effect of rounding on a curve that falls and flattens, relative to its largest cost.
const TOLERANCE: f64 = 1e-9;

/// The effective cost of an operation at every whole unit of time from its shortest to its
/// longest duration, linear between. It falls with time, and the longer, the less (convex): so
/// the relaxed problem is a linear program.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    shortest: Units,
    costs: Vec<f64>,
}

/// Why numbers are no [`Curve`].
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CurveError {
    #[error("it has no option: at least one time and cost are needed")]
    Empty,
    #[error("its shortest time, {shortest} units, is longer than its longest, {longest}")]
    Reversed { shortest: Units, longest: Units },
    #[error("it takes {0} units of time; at most {MAX_UNITS} are possible: choose a longer unit")]
    TooLong(Units),
    #[error("its cost at {0} units of time is not a finite number")]
    NotFinite(Units),
    #[error("its cost rises with time at {0} units; a slower clock that costs more is no choice")]
    Rises(Units),
    #[error("its cost falls faster after {0} units of time than before (it is not convex)")]
    NotConvex(Units),
}

impl Curve {
    /// The curve with these costs at `shortest`, `shortest` + 1, ... units of time.
    ///
    /// # Errors
    /// If there is no cost, one is not finite, or they do not fall and flatten.
    pub fn new(shortest: Units, costs: Vec<Joules>) -> Result<Self, CurveError> {
        let costs: Vec<f64> = costs.into_iter().map(|cost| cost.0).collect();
        let at = |index: usize| Units(shortest.0.saturating_add(index as u32));
        if costs.is_empty() {
            return Err(CurveError::Empty);
        }
        let longest = at(costs.len() - 1);
        if longest.0 > MAX_UNITS {
            return Err(CurveError::TooLong(longest));
        }
        if let Some(index) = costs.iter().position(|cost| !cost.is_finite()) {
            return Err(CurveError::NotFinite(at(index)));
        }
        let slack = TOLERANCE
            * costs
                .iter()
                .fold(0.0, |most: f64, cost| most.max(cost.abs()));
        if let Some(index) = costs.windows(2).position(|pair| pair[1] > pair[0] + slack) {
            return Err(CurveError::Rises(at(index)));
        }
        let flattens = |three: &[f64]| three[0] - three[1] >= three[1] - three[2] - slack;
        if let Some(index) = costs.windows(3).position(|three| !flattens(three)) {
            return Err(CurveError::NotConvex(at(index + 1)));
        }
        Ok(Self { shortest, costs })
    }

    /// An operation whose time no clock changes.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn single(time: Units, cost: Joules) -> Result<Self, CurveError> {
        Self::new(time, vec![cost])
    }

    /// `a * exp(b * t) + c` joules at `t` units of time (section 4.1).
    ///
    /// # Errors
    /// If the times are in the wrong order, or the function does not fall and flatten.
    pub fn exponential(
        [a, b, c]: [f64; 3],
        shortest: Units,
        longest: Units,
    ) -> Result<Self, CurveError> {
        check_order(shortest, longest)?;
        let cost = |time: u32| Joules(a * (b * f64::from(time)).exp() + c);
        Self::new(shortest, (shortest.0..=longest.0).map(cost).collect())
    }

    /// The lowest convex curve above no point: straight lines from measured point to point, those
    /// left out that lie above. Points are (time, cost) in any order; those at which the cost
    /// is not less than at a shorter time shorten the curve.
    ///
    /// # Errors
    /// If there is no point, or one is not finite.
    pub fn through(points: &[(Units, Joules)]) -> Result<Self, CurveError> {
        if let Some((time, _)) = points.iter().find(|(_, cost)| !cost.is_finite()) {
            return Err(CurveError::NotFinite(*time));
        }
        let mut points: Vec<(f64, f64)> = points
            .iter()
            .map(|(time, cost)| (f64::from(time.0), cost.0))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.dedup_by_key(|point| point.0);
        let hull = lower_hull(&points);
        let (Some(&(first, _)), Some(&(last, _))) = (hull.first(), hull.last()) else {
            return Err(CurveError::Empty);
        };
        let (shortest, longest) = (Units(first as u32), Units(last as u32));
        check_order(shortest, longest)?;
        let mut line = 0;
        let costs = (shortest.0..=longest.0).map(|time| {
            let time = f64::from(time);
            while line + 2 < hull.len() && hull[line + 1].0 < time {
                line += 1;
            }
            let (t0, c0) = hull[line];
            let (t1, c1) = *hull.get(line + 1).unwrap_or(&hull[line]);
            let way = if t1 > t0 {
                (time - t0) / (t1 - t0)
            } else {
                0.0
            };
            Joules(c0 + way * (c1 - c0))
        });
        Self::new(shortest, costs.collect())
    }

    /// The shortest time.
    #[must_use]
    pub fn shortest(&self) -> Units {
        self.shortest
    }

    /// The longest time that still saves something.
    #[must_use]
    pub fn longest(&self) -> Units {
        Units(self.shortest.0 + self.costs.len() as u32 - 1)
    }

    /// The cost at a time, which is taken as the nearest that is possible.
    #[must_use]
    pub fn cost(&self, time: Units) -> Joules {
        let index = time.0.saturating_sub(self.shortest.0) as usize;
        Joules(self.costs[index.min(self.costs.len() - 1)])
    }

    /// The cost of each unit less, from the longest time to the shortest: not negative, not falling.
    pub fn slopes(&self) -> impl Iterator<Item = f64> {
        let differences = self.costs.windows(2).rev().map(|pair| pair[0] - pair[1]);
        differences.scan(0.0, |most: &mut f64, slope| {
            *most = most.max(slope);
            Some(*most)
        })
    }
}

fn check_order(shortest: Units, longest: Units) -> Result<(), CurveError> {
    if shortest > longest {
        return Err(CurveError::Reversed { shortest, longest });
    }
    if longest.0 > MAX_UNITS {
        return Err(CurveError::TooLong(longest));
    }
    Ok(())
}

/// The falling part of the lower convex hull of points sorted by time.
fn lower_hull(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for &point in points {
        while let [.., a, b] = hull[..] {
            let cross = (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (point.0 - a.0);
            if cross > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    while let [.., a, b] = hull[..] {
        if b.1 < a.1 {
            break;
        }
        hull.pop();
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joules(costs: &[f64]) -> Vec<Joules> {
        costs.iter().copied().map(Joules).collect()
    }

    #[test]
    fn a_curve_falls_and_flattens() {
        let curve = |costs: &[f64]| Curve::new(Units(3), joules(costs));
        assert!(curve(&[9.0, 5.0, 3.0, 2.0]).is_ok());
        assert_eq!(curve(&[]), Err(CurveError::Empty));
        assert_eq!(curve(&[5.0, 6.0]), Err(CurveError::Rises(Units(3))));
        assert_eq!(
            curve(&[5.0, 4.0, 2.0]),
            Err(CurveError::NotConvex(Units(4)))
        );
        assert_eq!(
            curve(&[5.0, f64::NAN]),
            Err(CurveError::NotFinite(Units(4)))
        );
    }

    #[test]
    fn points_above_the_straight_line_are_left_out() {
        let points = [(10, 9.0), (12, 8.0), (14, 3.0), (20, 3.5)];
        let points = points.map(|(time, cost)| (Units(time), Joules(cost)));
        let curve = Curve::through(&points).unwrap();
        assert_eq!((curve.shortest(), curve.longest()), (Units(10), Units(14)));
        assert_eq!(curve.cost(Units(12)), Joules(6.0));
        assert_eq!(curve.slopes().collect::<Vec<_>>(), [1.5; 4]);
    }

    #[test]
    fn times_out_of_order_are_refused() {
        let error = Curve::exponential([1.0, -0.1, 0.0], Units(9), Units(8)).unwrap_err();
        assert!(
            error.to_string().contains("longer than its longest"),
            "{error}"
        );
        let error = Curve::exponential([1.0, -0.1, 0.0], Units(0), Units(u32::MAX)).unwrap_err();
        assert!(error.to_string().contains("longer unit"), "{error}");
    }
}
