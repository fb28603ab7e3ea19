//! Decimal text to whole nanoseconds, exactly: an epoch time in microseconds has more digits
//! than a double keeps.

/// Microseconds as decimal text, in nanoseconds; rounds half away from zero beyond the third
/// decimal. `None` if it is no number or leaves the range of `i64`.
pub(crate) fn micros_to_nanos(text: &[u8]) -> Option<i64> {
    scaled(text, 3, false)
}

/// A whole number as decimal text, rounded like [`micros_to_nanos`].
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    scaled(text, 0, false)
}

/// A whole number as decimal text; `None` if it has a fraction other than zero.
pub(crate) fn whole(text: &[u8]) -> Option<i64> {
    scaled(text, 0, true)
}

/// `text` times ten to the `power`, rounded half away from zero, or `None` if that has to be
/// exact and is not.
fn scaled(text: &[u8], power: i64, exact: bool) -> Option<i64> {
    plain(text, power).or_else(|| scaled_of_any(text, power, exact))
}

/// The same of what nearly all numbers are: few digits, and no more of them behind the point than `power` shifts.
fn plain(text: &[u8], power: i64) -> Option<i64> {
    /// Whatever digits and point these are, they fit or are seen not to.
    const LONGEST: usize = 20;
    if text.len() > LONGEST {
        return None;
    }
    let (mut value, mut left) = (0_i64, None::<i64>);
    for &byte in text {
        match byte {
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
                left = left.map(|left| left - 1);
            }
            b'.' if left.is_none() => left = Some(power),
            _ => return None,
        }
    }
    let digits = text.len() - usize::from(left.is_some());
    if digits == 0 {
        return None;
    }
    let shift = u32::try_from(left.unwrap_or(power)).ok()?;
    value.checked_mul(10_i64.checked_pow(shift)?)
}

fn scaled_of_any(text: &[u8], power: i64, exact: bool) -> Option<i64> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let mantissa_end = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match mantissa_end {
        Some(at) => (text.get(..at)?, exponent(text.get(at + 1..)?)?),
        None => (text, 0),
    };
    let point = mantissa.iter().position(|&byte| byte == b'.');
    let whole = mantissa.get(..point.unwrap_or(mantissa.len()))?;
    let fraction = point.map_or(Some(&[][..]), |at| mantissa.get(at + 1..))?;
    let digits = || whole.iter().chain(fraction);
    if digits().next().is_none() || !digits().all(u8::is_ascii_digit) {
        return None;
    }
    let leading_zeros = digits().take_while(|&&digit| digit == b'0').count();
    let significant = i64::try_from(whole.len() + fraction.len() - leading_zeros).ok()?;
    if significant == 0 {
        return Some(0);
    }
    let shift = exponent
        .saturating_add(power)
        .saturating_sub(i64::try_from(fraction.len()).ok()?);
    // How many digits stand before the point of the result.
    let kept = significant.saturating_add(shift);
    if kept < 0 {
        return (!exact).then_some(0);
    }
    if kept > 19 {
        return None;
    }
    let mut value = 0_i128;
    let mut digits = digits()
        .skip(leading_zeros)
        .map(|digit| i128::from(digit - b'0'));
    for _ in 0..kept {
        value = value * 10 + digits.next().unwrap_or(0);
    }
    if exact && digits.clone().any(|digit| digit != 0) {
        return None;
    }
    if digits.next().unwrap_or(0) >= 5 {
        value += 1;
    }
    i64::try_from(if negative { -value } else { value }).ok()
}

/// The exponent behind an `e`; one beyond all reason saturates.
fn exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text.split_first()? {
        (b'-', rest) => (-1, rest),
        (b'+', rest) => (1, rest),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0_i64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    });
    Some(sign * magnitude.min(1 << 40))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn epoch_microseconds_keep_their_last_nanosecond() {
        assert_eq!(
            micros_to_nanos(b"1712195495502094.501"),
            Some(1_712_195_495_502_094_501)
        );
        assert_eq!(
            micros_to_nanos(b"1694128201424195"),
            Some(1_694_128_201_424_195_000)
        );
    }

    #[test]
    fn exponents_and_rounding_are_exact() {
        assert_eq!(micros_to_nanos(b"1.5e3"), Some(1_500_000));
        assert_eq!(micros_to_nanos(b"-25E-4"), Some(-3));
        assert_eq!(micros_to_nanos(b"0.0004999999999999999999999999"), Some(0));
        assert_eq!(micros_to_nanos(b"0.0005"), Some(1));
        assert_eq!(micros_to_nanos(b"0e999999999999999999999"), Some(0));
        assert_eq!(micros_to_nanos(b"1e-999999999999999999999"), Some(0));
        assert_eq!(micros_to_nanos(b"9223372036854775.807"), Some(i64::MAX));
        assert_eq!(micros_to_nanos(b"-9223372036854775.808"), Some(i64::MIN));
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        for (text, expected) in [
            ("12", Some(12)),
            ("1.0", Some(1)),
            ("1.5e1", Some(15)),
            ("1.5", None),
            ("0.2", None),
            ("1e-9", None),
        ] {
            assert_eq!(whole(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_or_is_no_number_is_refused() {
        for text in [
            "9223372036854775.808",
            "1e99",
            "",
            "-",
            ".",
            "NaN",
            "1x",
            "1e",
            "--1",
            "1.2.3",
        ] {
            assert_eq!(micros_to_nanos(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_decimal_matches_integer_arithmetic(
            negative: bool, whole in 0_u64..10_u64.pow(13), fraction in "[0-9]{0,9}", exponent in -6_i32..4
        ) {
            let text = format!("{}{whole}.{fraction}e{exponent}", if negative { "-" } else { "" });
            // All in units of 10^-18 microseconds.
            let mut units = i128::from(whole) * 10_i128.pow(18);
            for (place, digit) in fraction.bytes().enumerate() {
                units += i128::from(digit - b'0') * 10_i128.pow(17 - place as u32);
            }
            let scale = 10_i128.pow(exponent.unsigned_abs());
            // A nanosecond is 10^15 units; scale the divisor instead of the dividend downwards.
            let (units, nano) = if exponent < 0 {
                (units, 10_i128.pow(15) * scale)
            } else {
                (units * scale, 10_i128.pow(15))
            };
            let rounded = (units + nano / 2) / nano;
            let expected = i64::try_from(if negative { -rounded } else { rounded }).ok();
            prop_assert_eq!(micros_to_nanos(text.as_bytes()), expected);
        }
    }
}
