//! Lower bounds with free switches: windows fall apart altogether then, so that a price for tokens and sums over
//! windows are all it takes, whatever the start and the end.

use super::Best;
use super::dual::{Span, offer};
use super::scaled::Scaled;

/// A start, and what no plan that begins there and completes at a given window emits less than.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Begin {
    pub start: usize,
    pub bound: f64,
    /// The price of tokens that gives the bound.
    pub token: f64,
}

/// Prices of tokens, and what the cheapest choices cost with each.
pub(super) struct Prices {
    tokens: Vec<f64>,
    /// By price and window: the sum over all windows before it.
    sums: Vec<Vec<f64>>,
}

/// Prices of tokens on each side of what a mean token emits; neighbours differ by a factor.
const PRICES: i32 = 56;
const FACTOR: f64 = 1.1;

impl Prices {
    pub fn new(scaled: &Scaled) -> Self {
        let count = scaled.configurations() as f64;
        let carbon = (0..scaled.windows).flat_map(|window| scaled.carbon(window));
        let carbon = carbon.map(|&it| it as f64).sum::<f64>() / (count * scaled.windows as f64);
        let tokens = scaled.tokens.iter().map(|&it| it as f64).sum::<f64>() / count;
        let mean = carbon / tokens;
        let tokens = (-PRICES..=PRICES).map(|power| mean * FACTOR.powi(power));
        let tokens = std::iter::once(0.0).chain(tokens).collect::<Vec<_>>();
        let sums = tokens.iter().map(|&token| {
            let least = |window: usize| {
                let each = scaled.carbon(window).iter().zip(&scaled.tokens);
                let reduced = each.map(|(carbon, own)| *carbon as f64 - token * *own as f64);
                reduced.fold(f64::INFINITY, f64::min)
            };
            sums((0..scaled.windows).map(least), 0.0)
        });
        let sums = sums.collect();
        Self { tokens, sums }
    }

    /// By the number of windows until the end: no plan that completes there has less carbon, in units, wherever
    /// it begins. Infinite where no plan can have its tokens by then.
    pub fn floors(&self, scaled: &Scaled) -> Vec<f64> {
        let shortest = scaled.shortest();
        let mut floors = vec![f64::INFINITY; scaled.windows + 1];
        let Some(possible) = floors.get_mut(shortest..) else {
            return floors;
        };
        possible.fill(f64::NEG_INFINITY);
        for (token, sums) in self.tokens.iter().zip(&self.sums) {
            let mut before = f64::NEG_INFINITY;
            for (start, floor) in possible.iter_mut().enumerate() {
                if start <= scaled.latest_start {
                    before = before.max(sums[start]);
                }
                let bound = token * scaled.target as f64 + sums[start + shortest] - before;
                *floor = floor.max(bound);
            }
        }
        floors
    }

    /// The starts from which plans that complete at one window can be better than the best plan.
    pub fn begins(&self, scaled: &Scaled, end: usize, best: &Best) -> Vec<Begin> {
        let latest = end.saturating_sub(scaled.shortest());
        let starts = 0..=latest.min(scaled.latest_start);
        let begins = starts.map(|start| self.highest(scaled, Span { start, end }));
        begins.filter(|it| !best.beats(it.bound)).collect()
    }

    fn bound(&self, price: usize, scaled: &Scaled, span: Span) -> f64 {
        let sums = &self.sums[price];
        self.tokens[price] * scaled.target as f64 + sums[span.end] - sums[span.start]
    }

    /// The price with the highest bound: bounds rise and then fall along the prices.
    fn highest(&self, scaled: &Scaled, span: Span) -> Begin {
        let (mut low, mut high) = (0, self.tokens.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.bound(middle, scaled, span) < self.bound(middle + 1, scaled, span) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Begin {
            start: span.start,
            bound: self.bound(low, scaled, span),
            token: self.tokens[low],
        }
    }
}

/// Offers the best plan of each configuration throughout: there is always something.
pub(super) fn offer_static(scaled: &Scaled, best: &mut Best) {
    for (own, &tokens) in scaled.tokens.iter().enumerate() {
        let length = scaled.windows_at(tokens);
        let Some(last) = scaled.windows.checked_sub(length) else {
            continue;
        };
        let switches = usize::from(scaled.running.is_some_and(|running| running != own));
        let sums = sums((0..scaled.windows).map(|it| scaled.carbon(it)[own]), 0);
        let is_possible =
            |start: &usize| scaled.affordable[start + length].is_some_and(|it| it >= switches);
        let starts = (0..=last.min(scaled.latest_start)).filter(is_possible);
        if let Some(start) = starts.min_by_key(|start| sums[start + length] - sums[*start]) {
            offer(scaled, start, &vec![own as u16; length], best);
        }
    }
}

/// The sums of all values before each, and of all.
fn sums<T: Copy + std::ops::AddAssign>(values: impl Iterator<Item = T>, zero: T) -> Vec<T> {
    let mut sum = zero;
    let before = std::iter::once(zero);
    before
        .chain(values.map(|value| {
            sum += value;
            sum
        }))
        .collect()
}
