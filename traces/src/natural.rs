//! The order in which people count: by the numbers in a text, and by what stands between them.

use std::cmp::Ordering;

/// Compares two texts piece by piece; runs of digits count as numbers, so that `rank2` comes
/// before `rank10`. Texts that differ only in zeros before numbers are told apart by these.
#[must_use]
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let order = match (left.chars().next(), right.chars().next()) {
            (None, None) => return a.cmp(b),
            (Some(one), Some(other)) if one.is_ascii_digit() && other.is_ascii_digit() => {
                let (one, other) = (number(&mut left), number(&mut right));
                one.len().cmp(&other.len()).then_with(|| one.cmp(other))
            }
            (one, other) => {
                left = behind(left, one);
                right = behind(right, other);
                one.cmp(&other)
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Takes a run of digits; the digits without zeros before them.
fn number<'a>(text: &mut &'a str) -> &'a str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    *text = rest;
    digits.trim_start_matches('0')
}

fn behind(text: &str, first: Option<char>) -> &str {
    first.map_or(text, |first| {
        text.get(first.len_utf8()..).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names = vec![
            "rank10",
            "rank2",
            "rank",
            "rank02",
            "0 of process 10000",
            "0 of process 9999",
            "10",
            "9",
            "a",
            "",
        ];
        names.sort_by(|a, b| natural(a, b));
        let sorted = [
            "",
            "0 of process 9999",
            "0 of process 10000",
            "9",
            "10",
            "a",
            "rank",
            "rank02",
            "rank2",
            "rank10",
        ];
        assert_eq!(names, sorted);
    }

    proptest! {
        #[test]
        fn any_three_texts_have_an_order(texts in prop::collection::vec("[a0-2é]{0,5}", 3)) {
            let [a, b, c] = [0, 1, 2].map(|at| texts[at].as_str());
            prop_assert_eq!(natural(a, b), natural(b, a).reverse());
            prop_assert_eq!(natural(a, b).is_eq(), a == b);
            if natural(a, b).is_le() && natural(b, c).is_le() {
                prop_assert!(natural(a, c).is_le());
            }
        }
    }
}
