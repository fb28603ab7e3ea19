//! The least of a function of positive numbers: Nelder and Mead's simplex (1965) over their logarithms.

/// Evaluations of a run.
const EVALUATIONS: usize = 700;
/// A run begins again from its best point with a smaller simplex, so often: it may have flattened.
const RUNS: [f64; 3] = [0.5, 0.25, 0.1];
/// The cost of leaving the starting point, per squared logarithm: numbers that no row determines stay where
/// they were.
const TETHER: f64 = 1e-3;
/// Numbers stay within this factor of where they began: beyond it nothing in the rows sets them.
const FARTHEST: f64 = 30.0;

/// The numbers near `from` at which `cost` is least.
pub(crate) fn least(from: &[f64], cost: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let origin: Vec<f64> = from.iter().map(|it| it.max(1e-9).ln()).collect();
    let at = |place: &[f64]| -> Vec<f64> {
        let bounded = |(place, origin): (&f64, &f64)| {
            place
                .clamp(origin - FARTHEST.ln(), origin + FARTHEST.ln())
                .exp()
        };
        place.iter().zip(&origin).map(bounded).collect()
    };
    let value = |place: &[f64]| {
        let away = place
            .iter()
            .zip(&origin)
            .map(|(place, origin)| (place - origin).powi(2));
        let cost = cost(&at(place)) + TETHER * away.sum::<f64>();
        if cost.is_finite() { cost } else { f64::MAX }
    };
    let mut best = origin.clone();
    for size in RUNS {
        best = run(&best, size, &value);
    }
    at(&best)
}

fn run(from: &[f64], size: f64, value: &impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut corners = vec![(value(from), from.to_vec())];
    for axis in 0..from.len() {
        let mut corner = from.to_vec();
        corner[axis] += size;
        corners.push((value(&corner), corner));
    }
    let mut left = EVALUATIONS;
    while left > 0 {
        corners.sort_by(|a, b| a.0.total_cmp(&b.0));
        let worst = corners.len() - 1;
        if corners[worst].0 - corners[0].0 < 1e-6 {
            break;
        }
        let centre: Vec<f64> = (0..from.len())
            .map(|axis| corners[..worst].iter().map(|it| it.1[axis]).sum::<f64>() / worst as f64)
            .collect();
        let along = |step: f64| {
            let mix = |(centre, corner): (&f64, &f64)| centre + step * (corner - centre);
            let place: Vec<f64> = centre.iter().zip(&corners[worst].1).map(mix).collect();
            (value(&place), place)
        };
        let reflected = along(-1.0);
        left = left.saturating_sub(2);
        let next = if reflected.0 < corners[0].0 {
            let expanded = along(-2.0);
            if expanded.0 < reflected.0 {
                expanded
            } else {
                reflected
            }
        } else if reflected.0 < corners[worst - 1].0 {
            reflected
        } else {
            along(if reflected.0 < corners[worst].0 {
                -0.5
            } else {
                0.5
            })
        };
        if next.0 < corners[worst].0 {
            corners[worst] = next;
            continue;
        }
        let nearest = corners[0].1.clone();
        for corner in &mut corners[1..] {
            for (place, best) in corner.1.iter_mut().zip(&nearest) {
                *place = best + 0.5 * (*place - best);
            }
            corner.0 = value(&corner.1);
            left = left.saturating_sub(1);
        }
    }
    let best = corners.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or_else(|| from.to_vec(), |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valley_is_followed_to_its_end() {
        let valley = |x: &[f64]| {
            let (a, b) = (x[0].ln(), x[1].ln());
            (1.0 - a).powi(2) + 10.0 * (b - a * a).powi(2)
        };
        let least = least(&[0.5, 2.0], valley);
        assert!((least[0].ln() - 1.0).abs() < 0.03, "{least:?}");
        assert!((least[1].ln() - 1.0).abs() < 0.06, "{least:?}");
    }

    #[test]
    fn a_number_that_nothing_sets_stays_where_it_was() {
        let least = least(&[5.0, 2.0], |x| (x[0].ln() - 1.0).abs());
        assert!((least[1] / 2.0 - 1.0).abs() < 0.05, "{least:?}");
    }
}
