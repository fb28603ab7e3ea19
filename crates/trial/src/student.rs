//! Student's distribution, for whole degrees of freedom.

use std::f64::consts::FRAC_2_PI;

/// The probability that |T| is at most `t`, for T with so many degrees of freedom (Abramowitz and
/// Stegun 26.7.3 and 26.7.4: a finite sum, so exact).
fn within(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let square = cosine * cosine;
    let odd = freedom % 2 == 1;
    if odd && freedom == 1 {
        return FRAC_2_PI * angle;
    }
    // Odd: cos + 2/3 cos^3 + 2*4/(3*5) cos^5 ...; even: 1 + 1/2 cos^2 + 1*3/(2*4) cos^4 ...
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = term;
    let mut factor = if odd { 2.0 } else { 1.0 };
    while factor + 1.0 < f64::from(freedom) - 1.0 + f64::EPSILON {
        term *= square * factor / (factor + 1.0);
        sum += term;
        factor += 2.0;
    }
    match odd {
        true => FRAC_2_PI * (angle + sine * sum),
        false => sine * sum,
    }
}

/// The t that |T| stays within with probability `level`, which lies strictly between 0 and 1.
pub(crate) fn quantile(level: f64, freedom: u32) -> f64 {
    let freedom = freedom.max(1);
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while within(high, freedom) < level && high < 1e9 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        match within(middle, freedom) < level {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Any textbook's table of the two-sided t distribution.
        let table = [
            (0.95, 1, 12.706),
            (0.95, 2, 4.303),
            (0.95, 3, 3.182),
            (0.95, 4, 2.776),
            (0.95, 7, 2.365),
            (0.95, 10, 2.228),
            (0.95, 30, 2.042),
            (0.95, 120, 1.980),
            (0.999, 3, 12.924),
            (0.999, 4, 8.610),
            (0.999, 9, 4.781),
            (0.999, 30, 3.646),
            (0.5, 5, 0.727),
        ];
        for (level, freedom, expected) in table {
            let found = quantile(level, freedom);
            assert!(
                (found - expected).abs() < 6e-4,
                "{level} {freedom}: {found}, not {expected}"
            );
        }
    }
}
