//! Pareto sums: which sums of one option from each list no other such sum beats.

use crate::search::{Point, frontier};

/// A sum and which option of each list it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// Time and energy.
    pub point: Point,
    /// For each list the place of its option.
    pub chosen: Vec<usize>,
}

/// The sums of `base` and of one option of each list, times the list's factor, that no other sum beats: by rising
/// time and falling energy. An empty list leaves none.
///
/// What is dominated in a partial sum is dominated in every sum that begins with it, because the same is added to
/// both. So dropping it after each list loses nothing of the frontier of the full product, and what is kept stays
/// small.
#[must_use]
pub fn pareto_sums(base: Point, lists: &[(Vec<Point>, f64)]) -> Vec<Sum> {
    let mut sums = vec![Sum {
        point: base,
        chosen: Vec::new(),
    }];
    for (options, factor) in lists {
        let useful = frontier(options);
        let pairs = sums
            .iter()
            .flat_map(|sum| useful.iter().map(move |&it| (sum, it)));
        let pairs: Vec<(&Sum, usize)> = pairs.collect();
        let points: Vec<Point> = pairs
            .iter()
            .map(|(sum, it)| [0, 1].map(|at| sum.point[at] + factor * options[*it][at]))
            .collect();
        let extended = |&place: &usize| {
            let (sum, option) = pairs[place];
            let mut chosen = sum.chosen.clone();
            chosen.push(option);
            Sum {
                point: points[place],
                chosen,
            }
        };
        sums = frontier(&points).iter().map(extended).collect();
    }
    sums
}
