//! Lower bounds: the token budget and the number of switches are not kept to, but paid for.
//!
//! With a price for each missing token and one for each switch, the windows fall apart but for which
//! configuration ran before, and a pass over windows and configurations finds the cheapest sequence. Whatever
//! the prices are, no plan that keeps to the rules emits less than that sequence costs.

use super::Best;
use super::free::Begin;
use super::scaled::Scaled;

/// Prices of the relaxed constraints, in units of carbon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Multipliers {
    /// For a unit of tokens.
    pub token: f64,
    /// For a switch.
    pub switch: f64,
}

impl Multipliers {
    /// What no plan emits less than, if no sequence costs less than this.
    fn bound(self, scaled: &Scaled, cost: f64, affordable: usize) -> f64 {
        cost + self.token * scaled.target as f64 - priced(self.switch, affordable)
    }
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
            bound: prices.bound(self.scaled, last.cost, affordable),
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
pub(super) fn offer(scaled: &Scaled, start: usize, choices: &[u16], best: &mut Best) {
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

impl Dual {
    /// The best prices for the plans that complete at one window, those that begin at the start of the least
    /// bound above all. They are looked for around those that were good for another window. What that takes is
    /// taken from the cells.
    pub fn refine(
        scaled: &Scaled,
        end: usize,
        begins: &[Begin],
        near: Option<Multipliers>,
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
            near: Near::new(scaled, start, near),
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

/// Where to look for prices.
struct Near {
    /// The price of tokens that was best last, and by which factor to move from it at first.
    token: (f64, f64),
    switch: (f64, f64),
}

/// A price is near what was best a moment ago, or it is anywhere.
const NEAR: f64 = 1.02;
const ANYWHERE: f64 = 2.0;

impl Near {
    fn new(scaled: &Scaled, start: usize, known: Option<Multipliers>) -> Self {
        let dirtiest = scaled.carbon(start).iter().copied().max();
        let anyhow = dirtiest.unwrap_or(1).max(1) as f64 / scaled.fastest().max(1) as f64;
        let some = |price: f64, other| match price > 0.0 {
            true => (price, NEAR),
            false => (other, ANYWHERE),
        };
        let token = some(known.map_or(0.0, |it| it.token), anyhow);
        let switch = (token.0 * scaled.fastest() as f64 * 1e-3).max(1.0);
        Self {
            token,
            switch: some(known.map_or(0.0, |it| it.switch), switch),
        }
    }
}

/// Two prices, at the lower of which something is too much and at the higher one not, found from a price by
/// factors that grow. The lower one is zero if it never is, and the higher one the last that was tried if it
/// always is.
fn straddle((near, factor): (f64, f64), mut is_low: impl FnMut(f64) -> bool) -> (f64, f64) {
    let starts_low = is_low(near);
    let mut last = near;
    let factors = std::iter::successors(Some(factor), |it| Some((it * it).min(16.0)));
    for factor in factors.take(if starts_low { 40 } else { 10 }) {
        let price = if starts_low {
            last * factor
        } else {
            last / factor
        };
        match (starts_low, is_low(price)) {
            (true, false) => return (last, price),
            (false, true) => return (price, last),
            _ => last = price,
        }
    }
    (if starts_low { last } else { 0.0 }, last)
}

struct Refining<'a> {
    pass: Pass<'a>,
    span: Span,
    best: &'a mut Best,
    bound: f64,
    prices: Multipliers,
    near: Near,
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
        let (mut little, mut enough) = (None, None);
        straddle(self.near.token, |token| {
            let line = self.line(token, switch);
            let is_little = line.tokens < target;
            *if is_little { &mut little } else { &mut enough } = Some(line);
            is_little
        });
        let mut low = little.unwrap_or_else(|| self.line(0.0, switch));
        let mut high = enough.unwrap_or(low);
        if low.tokens >= target {
            return low.switches as f64;
        }
        for _ in 0..60 {
            if high.tokens <= low.tokens {
                break;
            }
            let token = (high.base - low.base) / (high.tokens - low.tokens) as f64;
            self.near.token = (token, NEAR);
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
        let near = self.near.switch;
        let (mut low, mut high) = straddle(near, |switch| self.best_token(switch) > affordable);
        for _ in 0..12 {
            if high <= low * PRECISE {
                break;
            }
            let middle = f64::midpoint(low, high);
            match self.best_token(middle) > affordable {
                true => low = middle,
                false => high = middle,
            }
        }
    }
}

/// The price of a switch is not looked for more precisely than to this factor.
const PRECISE: f64 = 1.0005;

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
        self.prices.bound(scaled, rest, affordable)
    }

    /// From a window on, where a configuration ran before.
    pub fn from(&self, window: usize, configuration: usize) -> f64 {
        self.values[window * self.configurations + configuration]
    }
}

/// By the number of windows until the end: no plan that completes there has less carbon, in units, wherever it
/// begins. One pass at prices that are good for one end tells nearly as much of its neighbours.
pub(super) fn floors(scaled: &Scaled, prices: Multipliers) -> Vec<f64> {
    let mut costs = vec![f64::INFINITY; scaled.configurations()];
    if let Some(running) = scaled.running {
        costs[running] = 0.0;
    }
    let least = |costs: &[f64]| costs.iter().copied().fold(f64::INFINITY, f64::min);
    let mut floors = vec![f64::NEG_INFINITY];
    for window in 0..scaled.windows {
        let may_begin = scaled.running.is_none() && window <= scaled.latest_start;
        let begun = if may_begin { 0.0 } else { f64::INFINITY };
        let other = begun.min(least(&costs) + prices.switch);
        let numbers = scaled.carbon(window).iter().zip(&scaled.tokens);
        for (cost, (carbon, tokens)) in costs.iter_mut().zip(numbers) {
            *cost = cost.min(other) + *carbon as f64 - prices.token * *tokens as f64;
        }
        let affordable = scaled.affordable[window + 1].unwrap_or(0);
        floors.push(prices.bound(scaled, least(&costs), affordable));
    }
    floors
}
