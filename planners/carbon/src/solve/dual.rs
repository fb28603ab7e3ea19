//! Lower bounds: the token budget and the number of switches are not kept to, but paid for.
//!
//! With a price for each missing token and one for each switch, the windows fall apart but for which
//! configuration ran before, and a pass over windows and configurations finds the cheapest sequence. Whatever
//! the prices are, no plan that keeps to the rules emits less than that sequence costs.

use super::Best;
use super::scaled::Scaled;

/// What is paid for what is relaxed, in units of carbon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Multipliers {
    /// For a unit of tokens.
    pub token: f64,
    /// For a switch.
    pub switch: f64,
}

/// The best prices for the plans that complete at one window, and what they prove.
pub(super) struct Dual {
    /// The best prices first, then those around them.
    pub multipliers: Vec<Multipliers>,
    pub bound: f64,
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
        }
    }

    /// Goes through the first windows; tells the cheapest sequence that completes at each.
    fn run(&mut self, prices: Multipliers, end: usize, mut tell: impl FnMut(usize, &Node)) {
        let count = self.scaled.configurations();
        self.nodes.clear();
        self.nodes.resize(count, NOWHERE);
        if let Some(running) = self.scaled.running {
            self.nodes[running].cost = 0.0;
        }
        for window in 0..end {
            let carbon = self.scaled.carbon(window);
            let cheapest = cheapest(&self.nodes);
            let mut switched = self.nodes[cheapest];
            switched.cost += prices.switch;
            switched.switches += 1;
            let may_start = self.scaled.may_start(window);
            self.next.clear();
            for (own, stayed) in self.nodes.iter().enumerate() {
                let (mut node, mut from) = (*stayed, own as u16);
                if switched.cost < node.cost {
                    (node, from) = (switched, cheapest as u16);
                }
                if may_start && node.cost >= 0.0 {
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
            let best = &self.nodes[self::cheapest(&self.nodes)];
            tell(window + 1, best);
        }
    }

    /// The cheapest sequence that completes at one window. One that keeps to the rules is offered as a plan.
    fn line(&mut self, prices: Multipliers, end: usize, best: &mut Best) -> Line {
        let mut last = NOWHERE;
        self.run(prices, end, |_, node| last = *node);
        let affordable = self.scaled.affordable[end].unwrap_or(0);
        if last.tokens >= self.scaled.target && last.switches <= affordable {
            let (start, choices) = self.sequence(end);
            offer(self.scaled, start, &choices, best);
        }
        Line {
            base: last.cost + prices.token * last.tokens as f64,
            tokens: last.tokens,
            switches: last.switches,
            bound: last.cost + prices.token * self.scaled.target as f64
                - priced(prices.switch, affordable),
        }
    }

    /// The choices of the last pass, and the window of the first.
    fn sequence(&self, end: usize) -> (usize, Vec<u16>) {
        let count = self.scaled.configurations();
        let mut own = cheapest(&self.nodes) as u16;
        let mut choices = Vec::with_capacity(end);
        let mut window = end;
        while window > 0 {
            window -= 1;
            choices.push(own);
            match self.before[window * count + usize::from(own)] {
                BEGIN => break,
                before => own = before,
            }
        }
        choices.reverse();
        (window, choices)
    }
}

/// What so many switches cost; nothing where switches are free, however many there may be.
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

/// Bounds for all windows at which a plan may complete, from a few prices of tokens; infinite where none
/// can. Offers the best plans that come up.
pub(super) fn rough(scaled: &Scaled, best: &mut Best) -> Vec<f64> {
    offer_static(scaled, best);
    let mut bounds = vec![f64::NEG_INFINITY; scaled.windows + 1];
    let mut pass = Pass::new(scaled);
    let mut found: Option<(f64, Multipliers, usize)> = None;
    for token in rough_prices(scaled) {
        let prices = Multipliers { token, switch: 0.0 };
        pass.run(prices, scaled.windows, |end, node| {
            let bound = node.cost + token * scaled.target as f64;
            bounds[end] = bounds[end].max(bound);
            let affordable = scaled.affordable[end].is_some_and(|it| node.switches <= it);
            if affordable && node.tokens >= scaled.target {
                let carbon = node.cost + token * node.tokens as f64;
                if found.is_none_or(|(least, ..)| carbon < least) {
                    found = Some((carbon, prices, end));
                }
            }
        });
    }
    if let Some((_, prices, end)) = found {
        pass.line(prices, end, best);
    }
    for (end, bound) in bounds.iter_mut().enumerate() {
        let most = i128::from(scaled.fastest()) * end as i128;
        if scaled.affordable[end].is_none() || most < i128::from(scaled.target) {
            *bound = f64::INFINITY;
        }
    }
    bounds
}

/// Plans of one configuration throughout, from now: there is always something.
fn offer_static(scaled: &Scaled, best: &mut Best) {
    for (own, &tokens) in scaled.tokens.iter().enumerate() {
        let length = (scaled.target + tokens - 1) / tokens.max(1);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > scaled.windows {
            continue;
        }
        let switches = usize::from(scaled.running.is_some_and(|running| running != own));
        if scaled.affordable[length].is_some_and(|it| it >= switches) {
            offer(scaled, 0, &vec![own as u16; length], best);
        }
    }
}

/// Prices of tokens on both sides of what a mean token emits.
fn rough_prices(scaled: &Scaled) -> impl Iterator<Item = f64> {
    let count = scaled.configurations() as f64;
    let carbon = (0..scaled.windows).flat_map(|window| scaled.carbon(window));
    let carbon = carbon.map(|&it| it as f64).sum::<f64>() / (count * scaled.windows as f64);
    let tokens = scaled.tokens.iter().map(|&it| it as f64).sum::<f64>() / count;
    let mean = carbon / tokens;
    (-24..=24).map(move |power| mean * 1.25_f64.powi(power))
}

impl Dual {
    /// The best prices for the plans that complete at one window.
    pub fn refine(scaled: &Scaled, end: usize, best: &mut Best) -> Self {
        let affordable = scaled.affordable[end].unwrap_or(0);
        let mut refining = Refining {
            pass: Pass::new(scaled),
            end,
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
        let Multipliers { token, switch } = refining.prices;
        let around = [1.0, 0.8, 0.9, 0.96, 1.04, 1.1, 1.25, 1.6];
        let mut multipliers: Vec<_> = around
            .map(|factor| Multipliers {
                token: token * factor,
                switch,
            })
            .to_vec();
        if switch > 0.0 {
            multipliers.push(without);
            multipliers.extend([0.5, 2.0].map(|factor| Multipliers {
                token,
                switch: switch * factor,
            }));
        }
        Self {
            multipliers,
            bound: refining.bound,
        }
    }
}

struct Refining<'a> {
    pass: Pass<'a>,
    end: usize,
    best: &'a mut Best,
    bound: f64,
    prices: Multipliers,
}

impl Refining<'_> {
    fn line(&mut self, token: f64, switch: f64) -> Line {
        let prices = Multipliers { token, switch };
        let line = self.pass.line(prices, self.end, self.best);
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
        let dirtiest = self.pass.scaled.carbon(0).iter().copied().max();
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

/// What the rest of a sequence costs at least, by window and by the configuration that runs before it, if it
/// completes at one window.
pub(super) struct Rest {
    pub prices: Multipliers,
    values: Vec<f64>,
    configurations: usize,
}

impl Rest {
    pub fn new(scaled: &Scaled, prices: Multipliers, end: usize) -> Self {
        let count = scaled.configurations();
        let mut values = vec![0.0; (end + 1) * count];
        let mut through = vec![0.0; count];
        for window in (0..end).rev() {
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
        }
        Self {
            prices,
            values,
            configurations: count,
        }
    }

    /// From a window on, where a configuration ran before.
    pub fn from(&self, window: usize, configuration: usize) -> f64 {
        self.values[window * self.configurations + configuration]
    }
}
