//! Lower bounds: the token budget and the number of switches are not kept to, but paid for.
//!
//! With a price for each missing token and one for each switch, the windows fall apart but for which
//! configuration ran before, and a pass over windows and configurations finds the cheapest sequence. Whatever
//! the prices are, no plan that keeps to the rules emits less than that sequence costs.

use super::Best;
use super::scaled::Scaled;

/// Prices of the relaxed constraints, in units of carbon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Multipliers {
    /// For a unit of tokens.
    pub token: f64,
    /// For a switch.
    pub switch: f64,
}

/// The best prices for the plans that complete at one window.
pub(super) struct Dual {
    /// The best prices first, then those around them.
    pub multipliers: Vec<Multipliers>,
}

/// No configuration before: the job begins.
const BEGIN: u16 = u16::MAX;

/// The cheapest sequence that ends in one configuration.
#[derive(Debug, Clone, Copy)]
struct Node {
    cost: f64,
    tokens: i64,
    switches: usize,
}

const NOWHERE: Node = Node {
    cost: f64::INFINITY,
    tokens: 0,
    switches: 0,
};

/// A pass over the windows, and the memory for it.
struct Pass<'a> {
    scaled: &'a Scaled,
    nodes: Vec<Node>,
    next: Vec<Node>,
    /// By window and configuration, the configuration before.
    before: Vec<u16>,
    /// How much was gone through, windows times configurations.
    cells: u64,
}

/// The cheapest sequence at some prices, as a line over the price of tokens.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// Carbon and what its switches cost.
    base: f64,
    tokens: i64,
    switches: usize,
    /// The bound that follows.
    bound: f64,
}

impl<'a> Pass<'a> {
    fn new(scaled: &'a Scaled) -> Self {
        Self {
            scaled,
            nodes: Vec::new(),
            next: Vec::new(),
            before: vec![BEGIN; scaled.windows * scaled.configurations()],
            cells: 0,
        }
    }

    /// Goes through the windows of a span; tells the cheapest sequence through them.
    fn run(&mut self, prices: Multipliers, span: Span) -> Node {
        let count = self.scaled.configurations();
        self.cells += span.cells(self.scaled);
        self.nodes.clear();
        self.nodes.resize(count, NOWHERE);
        if let Some(running) = self.scaled.running {
            self.nodes[running].cost = 0.0;
        }
        for window in span.start..span.end {
            let carbon = self.scaled.carbon(window);
            let cheapest = cheapest(&self.nodes);
            let mut switched = self.nodes[cheapest];
            switched.cost += prices.switch;
            switched.switches += 1;
            let begins = window == span.start && self.scaled.running.is_none();
            self.next.clear();
            for (own, stayed) in self.nodes.iter().enumerate() {
                let (mut node, mut from) = (*stayed, own as u16);
                if switched.cost < node.cost {
                    (node, from) = (switched, cheapest as u16);
                }
                if begins {
                    node = Node {
                        cost: 0.0,
                        ..NOWHERE
                    };
                    from = BEGIN;
                }
                let tokens = self.scaled.tokens[own];
                node.cost += carbon[own] as f64 - prices.token * tokens as f64;
                node.tokens += tokens;
                self.next.push(node);
                self.before[window * count + own] = from;
            }
            std::mem::swap(&mut self.nodes, &mut self.next);
        }
        self.nodes[cheapest(&self.nodes)]
    }

    /// The cheapest sequence through a span. One that keeps to the rules is offered as a plan.
    fn line(&mut self, prices: Multipliers, span: Span, best: &mut Best) -> Line {
        let last = self.run(prices, span);
        let affordable = self.scaled.affordable[span.end].unwrap_or(0);
        if last.tokens >= self.scaled.target && last.switches <= affordable {
            let choices = self.sequence(span);
            offer(self.scaled, span.start, &choices, best);
        }
        Line {
            base: last.cost + prices.token * last.tokens as f64,
            tokens: last.tokens,
            switches: last.switches,
            bound: last.cost + prices.token * self.scaled.target as f64
                - priced(prices.switch, affordable),
        }
    }

    /// The choices of the last pass.
    fn sequence(&self, span: Span) -> Vec<u16> {
        let count = self.scaled.configurations();
        let mut own = cheapest(&self.nodes) as u16;
        let mut choices = Vec::with_capacity(span.end - span.start);
        for window in (span.start..span.end).rev() {
            choices.push(own);
            let before = self.before[window * count + usize::from(own)];
            if before == BEGIN {
                break;
            }
            own = before;
        }
        choices.reverse();
        choices
    }
}

/// The price of so many switches; zero if switches are free, whatever their number.
fn priced(switch: f64, switches: usize) -> f64 {
    if switch > 0.0 {
        switch * switches as f64
    } else {
        0.0
    }
}

fn cheapest(nodes: &[Node]) -> usize {
    let each = nodes.iter().enumerate();
    let least = each.min_by(|a, b| a.1.cost.total_cmp(&b.1.cost));
    least.map_or(0, |(at, _)| at)
}

/// Offers a sequence that trains enough; windows that are not needed at its end are left out.
fn offer(scaled: &Scaled, start: usize, choices: &[u16], best: &mut Best) {
    let (mut tokens, mut carbon, mut length) = (0, 0, 0);
    for (at, &choice) in choices.iter().enumerate() {
        if tokens >= scaled.target {
            break;
        }
        tokens += scaled.tokens[usize::from(choice)];
        carbon += scaled.carbon(start + at)[usize::from(choice)];
        length += 1;
    }
    if tokens >= scaled.target {
        best.offer(carbon, || scaled.plan(start, &choices[..length]));
    }
}

/// The windows in which a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub start: usize,
    /// The window after the last one.
    pub end: usize,
}

impl Span {
    /// The work of going through it once.
    pub fn cells(self, scaled: &Scaled) -> u64 {
        ((self.end - self.start) * scaled.configurations()) as u64
    }
}

/// A start, and what no plan that begins there and completes at a given window emits less than.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Begin {
    pub start: usize,
    pub bound: f64,
    /// The price of tokens that gives the bound.
    pub token: f64,
}

/// The starts from which plans that complete at one window can be better than the best plan: by window.
/// The bounds are those of free switches, for which windows fall apart altogether.
pub(super) fn begins(scaled: &Scaled, best: &mut Best) -> Vec<Vec<Begin>> {
    offer_static(scaled, best);
    let prices = Prices::new(scaled);
    let latest = scaled.latest_start;
    let to = |end: usize| {
        let possible = (0..=latest.min(end)).filter(|&start| {
            let most = i128::from(scaled.fastest()) * (end - start) as i128;
            scaled.affordable[end].is_some() && most >= i128::from(scaled.target)
        });
        let begins = possible.map(|start| prices.highest(scaled, Span { start, end }));
        begins.filter(|it| !best.beats(it.bound)).collect()
    };
    (0..=scaled.windows).map(to).collect()
}

/// Prices of tokens, and what the cheapest choices cost with each.
struct Prices {
    tokens: Vec<f64>,
    /// By price and window: the sum over all windows before it.
    sums: Vec<Vec<f64>>,
}

/// Prices of tokens on each side of what a mean token emits; neighbours differ by a factor.
const PRICES: i32 = 56;
const FACTOR: f64 = 1.1;

impl Prices {
    fn new(scaled: &Scaled) -> Self {
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
            let mut sum = 0.0;
            let mut sums = vec![0.0];
            sums.extend((0..scaled.windows).map(|window| {
                sum += least(window);
                sum
            }));
            sums
        });
        let sums = sums.collect();
        Self { tokens, sums }
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

/// Plans of one configuration throughout: there is always something.
fn offer_static(scaled: &Scaled, best: &mut Best) {
    for (own, &tokens) in scaled.tokens.iter().enumerate() {
        let length = (scaled.target + tokens - 1) / tokens.max(1);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let switches = usize::from(scaled.running.is_some_and(|running| running != own));
        let last = scaled.windows.checked_sub(length);
        let starts = last.map(|last| 0..=last.min(scaled.latest_start));
        let mut least: Option<(i64, usize)> = None;
        for start in starts.into_iter().flatten() {
            if scaled.affordable[start + length].is_none_or(|it| it < switches) {
                continue;
            }
            let windows = start..start + length;
            let carbon = windows.map(|window| scaled.carbon(window)[own]).sum();
            if least.is_none_or(|(other, _)| carbon < other) {
                least = Some((carbon, start));
            }
        }
        if let Some((_, start)) = least {
            offer(scaled, start, &vec![own as u16; length], best);
        }
    }
}

impl Dual {
    /// The best prices for the plans that complete at one window, those that begin at the start of the least
    /// bound above all. What that takes is taken from the cells.
    pub fn refine(
        scaled: &Scaled,
        end: usize,
        begins: &[Begin],
        best: &mut Best,
        cells: &mut u64,
    ) -> Self {
        let least = begins.iter().min_by(|a, b| a.bound.total_cmp(&b.bound));
        let start = least.map_or(0, |it| it.start);
        let affordable = scaled.affordable[end].unwrap_or(0);
        let mut refining = Refining {
            pass: Pass::new(scaled),
            span: Span { start, end },
            best,
            bound: f64::NEG_INFINITY,
            prices: Multipliers {
                token: 0.0,
                switch: 0.0,
            },
        };
        let free = refining.best_token(0.0);
        let without = refining.prices;
        if free > affordable as f64 {
            refining.best_switch(affordable as f64);
        }
        *cells = cells.saturating_sub(refining.pass.cells);
        let Multipliers { token, switch } = refining.prices;
        let mut tokens = [1.0, 0.8, 0.9, 0.96, 1.04, 1.1, 1.25, 1.6]
            .map(|it| token * it)
            .to_vec();
        tokens.extend(spread(begins));
        let mut multipliers: Vec<_> = tokens
            .iter()
            .map(|&token| Multipliers { token, switch })
            .collect();
        if switch > 0.0 {
            multipliers.push(without);
            multipliers.extend([0.5, 2.0].map(|factor| Multipliers {
                token,
                switch: switch * factor,
            }));
        }
        Self { multipliers }
    }
}

/// Some prices of tokens from the lowest to the highest that suit the starts.
fn spread(begins: &[Begin]) -> Vec<f64> {
    const SOME: i32 = 6;
    let tokens = || begins.iter().map(|it| it.token).filter(|it| *it > 0.0);
    let low = tokens().fold(f64::INFINITY, f64::min);
    let ratio = tokens().fold(0.0, f64::max) / low;
    if !(ratio > 1.2) {
        return Vec::new();
    }
    let step = ratio.powf(1.0 / f64::from(SOME));
    (0..=SOME).map(|it| low * step.powi(it)).collect()
}

struct Refining<'a> {
    pass: Pass<'a>,
    span: Span,
    best: &'a mut Best,
    bound: f64,
    prices: Multipliers,
}

impl Refining<'_> {
    fn line(&mut self, token: f64, switch: f64) -> Line {
        let prices = Multipliers { token, switch };
        let line = self.pass.line(prices, self.span, self.best);
        if line.bound > self.bound {
            self.bound = line.bound;
            self.prices = prices;
        }
        line
    }

    /// The best price of tokens at a price of switches: where the line of a sequence that trains too little
    /// meets that of one that trains enough, until no sequence lies below both. Answers with the mean number
    /// of switches there.
    fn best_token(&mut self, switch: f64) -> f64 {
        let target = self.pass.scaled.target;
        let mut low = self.line(0.0, switch);
        if low.tokens >= target {
            return low.switches as f64;
        }
        let dirtiest = self
            .pass
            .scaled
            .carbon(self.span.start)
            .iter()
            .copied()
            .max();
        let mut token = (dirtiest.unwrap_or(1).max(1) as f64) / self.pass.scaled.fastest() as f64;
        let mut high = self.line(token, switch);
        for _ in 0..60 {
            if high.tokens >= target {
                break;
            }
            (low, token) = (high, token * 2.0);
            high = self.line(token, switch);
        }
        for _ in 0..60 {
            if high.tokens <= low.tokens {
                break;
            }
            token = (high.base - low.base) / (high.tokens - low.tokens) as f64;
            let line = self.line(token, switch);
            let met = low.base - token * low.tokens as f64;
            let below = met - (line.base - token * line.tokens as f64);
            if below <= met.abs().max(1.0) * 1e-13 {
                break;
            }
            match line.tokens >= target {
                true => high = line,
                false => low = line,
            }
        }
        let span = (high.tokens - low.tokens).max(1) as f64;
        let share = ((target - low.tokens) as f64 / span).clamp(0.0, 1.0);
        share * high.switches as f64 + (1.0 - share) * low.switches as f64
    }

    /// The best price of a switch, and of tokens with it.
    fn best_switch(&mut self, affordable: f64) {
        let mut low = 0.0;
        let mut high = self.prices.token * self.pass.scaled.fastest() as f64 * 1e-3;
        high = high.max(1.0);
        for _ in 0..40 {
            if self.best_token(high) <= affordable {
                break;
            }
            (low, high) = (high, high * 2.0);
        }
        for _ in 0..12 {
            let middle = f64::midpoint(low, high);
            match self.best_token(middle) > affordable {
                true => low = middle,
                false => high = middle,
            }
        }
    }
}

/// The least cost of the rest of a sequence, by window and by the configuration that runs before it, if it
/// completes at one window.
pub(super) struct Rest {
    pub prices: Multipliers,
    values: Vec<f64>,
    /// By window, where none runs before it.
    begun: Vec<f64>,
    configurations: usize,
}

impl Rest {
    /// From the first window that is asked for on.
    pub fn new(scaled: &Scaled, prices: Multipliers, span: Span) -> Self {
        let end = span.end;
        let count = scaled.configurations();
        let mut values = vec![0.0; (end + 1) * count];
        let mut begun = vec![0.0; end + 1];
        let mut through = vec![0.0; count];
        for window in (span.start..end).rev() {
            let carbon = scaled.carbon(window);
            let mut least = f64::INFINITY;
            for own in 0..count {
                let reduced = carbon[own] as f64 - prices.token * scaled.tokens[own] as f64;
                through[own] = reduced + values[(window + 1) * count + own];
                least = least.min(through[own]);
            }
            for own in 0..count {
                values[window * count + own] = through[own].min(least + prices.switch);
            }
            begun[window] = least;
        }
        Self {
            prices,
            values,
            begun,
            configurations: count,
        }
    }

    /// The least emissions of a plan that begins in a window, with so many switches at most.
    pub fn bound(&self, scaled: &Scaled, start: usize, affordable: usize) -> f64 {
        let rest = match scaled.running {
            Some(running) => self.from(start, running),
            None => self.begun[start],
        };
        rest + self.prices.token * scaled.target as f64 - priced(self.prices.switch, affordable)
    }

    /// From a window on, where a configuration ran before.
    pub fn from(&self, window: usize, configuration: usize) -> f64 {
        self.values[window * self.configurations + configuration]
    }
}
