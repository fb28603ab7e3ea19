//! The label-setting search for the plans that complete at one window.

use super::Best;
use super::dual::Rest;
use super::free::Begin;
use super::scaled::Scaled;

/// How a search ended.
pub(super) enum Found {
    /// The search is complete: no plan is better than the best one.
    All,
    /// Some labels were dropped for want of room; none of them leads below this.
    Dropped(f64),
}

/// The beginning of a plan.
#[derive(Debug, Clone, Copy)]
struct Label {
    carbon: i64,
    tokens: i64,
    switches: u32,
    configuration: u16,
    /// The plan so far, in the tree.
    node: u32,
    /// No plan that begins so emits less.
    bound: f64,
}

/// A window of a plan.
#[derive(Debug, Clone, Copy)]
struct Node {
    before: u32,
    configuration: u16,
}

/// No window before.
const ROOT: u32 = u32::MAX;
/// The tree grows no larger; 8 bytes each.
const LARGEST: usize = 24_000_000;

pub(super) struct Search<'a> {
    scaled: &'a Scaled,
    rests: &'a [Rest],
    /// Where plans may begin, in order.
    begins: &'a [Begin],
    end: usize,
    /// Where more switches than windows are affordable, they are not counted.
    affordable: Option<u32>,
    width: usize,
    tree: Vec<Node>,
    dropped: f64,
}

impl<'a> Search<'a> {
    pub fn new(
        scaled: &'a Scaled,
        rests: &'a [Rest],
        begins: &'a [Begin],
        end: usize,
        width: usize,
    ) -> Self {
        let affordable = scaled.affordable[end].unwrap_or(0);
        let is_short = affordable < end;
        Self {
            scaled,
            rests,
            begins,
            end,
            affordable: is_short.then_some(affordable as u32),
            width,
            tree: Vec::new(),
            dropped: f64::INFINITY,
        }
    }

    pub fn run(mut self, best: &mut Best, budget: &mut u64) -> Found {
        let mut labels: Vec<Label> = Vec::new();
        let mut made: Vec<Label> = Vec::new();
        let mut fronts = Fronts::new(self.scaled.configurations(), self.affordable);
        if let Some(running) = self.scaled.running {
            labels.push(Label {
                configuration: running as u16,
                ..BEGINNING
            });
        }
        let mut begins = self.begins.iter().peekable();
        for window in self.begins.first().map_or(0, |it| it.start)..self.end {
            made.clear();
            let begin = begins.next_if(|it| it.start == window);
            let is_hopeful = begin.is_some_and(|it| !best.beats(it.bound));
            if is_hopeful && self.scaled.running.is_none() {
                for own in 0..self.scaled.configurations() {
                    self.extend(&BEGINNING, window, own, best, &mut made);
                }
            }
            for label in &labels {
                for own in 0..self.scaled.configurations() {
                    self.extend(label, window, own, best, &mut made);
                }
            }
            *budget = budget.saturating_sub(made.len() as u64);
            if *budget == 0 || self.tree.len() + self.width > LARGEST {
                // A plan that has not begun yet has no bound here.
                return Found::Dropped(f64::NEG_INFINITY);
            }
            self.choose(&mut made, &mut labels, &mut fronts, best);
        }
        match best.beats(self.dropped) {
            true => Found::All,
            false => Found::Dropped(self.dropped),
        }
    }

    /// Lets a configuration run in one more window. What trains enough is a plan.
    fn extend(
        &self,
        label: &Label,
        window: usize,
        own: usize,
        best: &mut Best,
        made: &mut Vec<Label>,
    ) {
        let configuration = own as u16;
        let begins = label.node == ROOT && self.scaled.running.is_none();
        let is_switch = !begins && label.configuration != configuration;
        let mut next = Label {
            carbon: label.carbon + self.scaled.carbon(window)[own],
            tokens: label.tokens + self.scaled.tokens[own],
            switches: label.switches + u32::from(is_switch && self.affordable.is_some()),
            configuration,
            node: label.node,
            bound: 0.0,
        };
        let after = window + 1;
        if let Some(most) = self.affordable {
            if next.switches > most {
                return;
            }
            // As many as there are windows left are as good as any number.
            let left = u32::try_from(self.end - after).unwrap_or(u32::MAX);
            next.switches = next.switches.max(most.saturating_sub(left));
        }
        if next.tokens >= self.scaled.target {
            if next.carbon < best.units {
                let (start, choices) = self.choices(&next, window);
                best.offer(next.carbon, || self.scaled.plan(start, &choices));
            }
            return;
        }
        if self.can_complete(&next, after) {
            next.bound = self.bound(&next, after, best);
            if !best.beats(next.bound) {
                made.push(next);
            }
        }
    }

    /// Whether the fastest configuration would train the rest.
    fn can_complete(&self, label: &Label, after: usize) -> bool {
        let may_switch = self.affordable.is_none_or(|most| label.switches < most);
        let rate = match may_switch {
            true => self.scaled.fastest(),
            false => self.scaled.tokens[usize::from(label.configuration)],
        };
        let left = i128::from(rate) * (self.end - after) as i128;
        i128::from(label.tokens) + left >= i128::from(self.scaled.target)
    }

    /// The highest of the bounds, or the first that is high enough.
    fn bound(&self, label: &Label, after: usize, best: &Best) -> f64 {
        let missing = (self.scaled.target - label.tokens) as f64;
        let spare = self
            .affordable
            .map_or(0.0, |most| f64::from(most) - f64::from(label.switches));
        let mut highest = f64::NEG_INFINITY;
        for rest in self.rests {
            let bound = label.carbon as f64 + rest.prices.token * missing
                - rest.prices.switch * spare
                + rest.from(after, usize::from(label.configuration));
            highest = highest.max(bound);
            if best.beats(highest) {
                break;
            }
        }
        highest
    }

    /// Keeps those labels that no other one dominates, as many as there is room for.
    fn choose(
        &mut self,
        made: &mut [Label],
        labels: &mut Vec<Label>,
        fronts: &mut Fronts,
        best: &Best,
    ) {
        made.sort_unstable_by(|a, b| {
            let tokens = b.tokens.cmp(&a.tokens).then(a.carbon.cmp(&b.carbon));
            tokens.then(a.switches.cmp(&b.switches))
        });
        labels.clear();
        fronts.clear();
        for label in made.iter() {
            // The best plan may have become better since.
            if !best.beats(label.bound) && fronts.admit(label) {
                labels.push(*label);
            }
        }
        if labels.len() > self.width {
            let least = |a: &Label, b: &Label| a.bound.total_cmp(&b.bound);
            let (_, first, _) = labels.select_nth_unstable_by(self.width, least);
            self.dropped = self.dropped.min(first.bound);
            labels.truncate(self.width);
        }
        for label in labels {
            self.tree.push(Node {
                before: label.node,
                configuration: label.configuration,
            });
            label.node = (self.tree.len() - 1) as u32;
        }
    }

    /// The choices of a plan whose last window is this, and the window of the first.
    fn choices(&self, label: &Label, last: usize) -> (usize, Vec<u16>) {
        let mut choices = vec![label.configuration];
        let mut node = label.node;
        while let Some(it) = self.tree.get(node as usize) {
            choices.push(it.configuration);
            node = it.before;
        }
        choices.reverse();
        (last + 1 - choices.len(), choices)
    }
}

/// The label before the first configuration runs.
const BEGINNING: Label = Label {
    carbon: 0,
    tokens: 0,
    switches: 0,
    configuration: 0,
    node: ROOT,
    bound: 0.0,
};

/// The least carbon of the labels that train at least as much, by configuration and number of switches: a
/// label is dominated by one of its own configuration with no more switches, or by one of another with
/// fewer, which can switch to what the label runs next.
struct Fronts {
    /// By configuration and number of switches: with no more switches.
    own: Vec<i64>,
    /// Of all configurations, by number of switches.
    any: Vec<i64>,
    /// How many numbers of switches are told apart.
    levels: usize,
    /// Whether switches are not counted.
    is_free: bool,
}

impl Fronts {
    fn new(configurations: usize, affordable: Option<u32>) -> Self {
        let levels = affordable.map_or(1, |it| it as usize + 1);
        Self {
            own: vec![i64::MAX; configurations * levels],
            any: vec![i64::MAX; levels],
            levels,
            is_free: affordable.is_none(),
        }
    }

    fn clear(&mut self) {
        self.own.fill(i64::MAX);
        self.any.fill(i64::MAX);
    }

    /// Whether no label seen before dominates this one. Labels come by falling tokens.
    fn admit(&mut self, label: &Label) -> bool {
        let switches = label.switches as usize;
        let own = usize::from(label.configuration) * self.levels;
        let fewer = match self.is_free {
            true => Some(0),
            false => switches.checked_sub(1),
        };
        let is_dominated = self.own[own + switches] <= label.carbon
            || fewer.is_some_and(|it| self.any[it] <= label.carbon);
        if is_dominated {
            return false;
        }
        lower(
            &mut self.own[own + switches..own + self.levels],
            label.carbon,
        );
        lower(&mut self.any[switches..], label.carbon);
        true
    }
}

/// Lowers values that do not rise along the slice.
fn lower(values: &mut [i64], to: i64) {
    for value in values {
        if *value <= to {
            break;
        }
        *value = to;
    }
}
