//! The operations of one iteration and what must come before what.

mod file;

use std::collections::{BTreeSet, HashMap};

use litd_profiles::Kind;
use litd_units::Millis;
use thiserror::Error;

/// A node of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The operation's kind, a number in [`Graph::kinds`].
    pub kind: u32,
    /// Of which microbatch, from 0.
    pub microbatch: u32,
    /// The operation's number in the file it came from.
    pub id: u64,
}

/// The operations of one iteration, with their dependencies: a directed acyclic graph.
///
/// For the flow it is edge-centric (section 4.3): events are points in time, 0 is the beginning
/// and 1 the end of the iteration, [`Graph::start`] and [`Graph::finish`] those of an operation;
/// [`Graph::arcs`] lead from event to event.
#[derive(Debug, Clone)]
pub struct Graph {
    kinds: Vec<Kind>,
    /// In topological order.
    operations: Vec<Operation>,
    arcs: Vec<Arc>,
}

/// From one event to a later one: first all operations in their order, then the dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arc {
    /// The earlier event.
    pub from: u32,
    /// The later event.
    pub to: u32,
}

/// Why something is no graph.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GraphError {
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("the graph has no operation")]
    Empty,
    #[error("node {0} is defined twice (0 is the source and 1 the sink: both are there already)")]
    Twice(u64),
    #[error("the edge from {from} to {to} names node {missing}, which the graph does not have")]
    Unknown { from: u64, to: u64, missing: u64 },
    #[error("the edge from {from} to {to} leads into the source (0) or out of the sink (1)")]
    Outside { from: u64, to: u64 },
    #[error(
        "the graph has a cycle through node {id} ({kind}, microbatch {microbatch}): nothing on it can ever begin"
    )]
    Cycle {
        id: u64,
        kind: Kind,
        microbatch: u32,
    },
    #[error("the graph has {0} operations; at most {MAX_OPERATIONS} are possible")]
    TooMany(usize),
}

/// So many take some 2 GiB. No iteration has as many: 128 stages with 1024 microbatches in zero
/// bubble's three parts are a tenth. Events and arcs are counted in 32 bits, with room for a
/// direction.
pub(crate) const MAX_OPERATIONS: usize = 1 << 22;

/// The beginning and the end of the iteration, as nodes in files and as events.
const SOURCE: u64 = 0;
const SINK: u64 = 1;

/// A node as its maker names it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub id: u64,
    pub kind: Kind,
    pub microbatch: u32,
}

impl Graph {
    /// The event at which an iteration begins.
    pub const SOURCE: u32 = SOURCE as u32;
    /// The event at which it has ended.
    pub const SINK: u32 = SINK as u32;

    /// The graph of these nodes and edges. Source and sink need no edges: what has no
    /// predecessor can begin at once, what has no successor must have ended.
    pub(crate) fn new(nodes: &[Node], edges: &[(u64, u64)]) -> Result<Self, GraphError> {
        if nodes.is_empty() {
            return Err(GraphError::Empty);
        }
        if nodes.len() > MAX_OPERATIONS {
            return Err(GraphError::TooMany(nodes.len()));
        }
        let mut index = HashMap::with_capacity(nodes.len());
        for (position, node) in nodes.iter().enumerate() {
            if index.insert(node.id, position).is_some() || node.id <= SINK {
                return Err(GraphError::Twice(node.id));
            }
        }
        let mut dependencies = Vec::with_capacity(edges.len());
        for &(from, to) in edges {
            if to == SOURCE || from == SINK {
                return Err(GraphError::Outside { from, to });
            }
            let find = |id: u64| {
                let unknown = GraphError::Unknown {
                    from,
                    to,
                    missing: id,
                };
                index.get(&id).copied().ok_or(unknown)
            };
            match (from == SOURCE, to == SINK) {
                (false, false) => dependencies.push((find(from)?, find(to)?)),
                (true, false) => drop(find(to)?),
                (false, true) => drop(find(from)?),
                (true, true) => {}
            }
        }
        let order = sort(nodes, &dependencies)?;
        Ok(Self::assemble(nodes, &order, &dependencies))
    }

    fn assemble(nodes: &[Node], order: &[usize], dependencies: &[(usize, usize)]) -> Self {
        let kinds: BTreeSet<&Kind> = nodes.iter().map(|node| &node.kind).collect();
        let kinds: Vec<Kind> = kinds.into_iter().cloned().collect();
        let number: HashMap<&Kind, u32> = kinds.iter().zip(0..).collect();
        let operations: Vec<Operation> = order
            .iter()
            .map(|&node| Operation {
                kind: number[&nodes[node].kind],
                microbatch: nodes[node].microbatch,
                id: nodes[node].id,
            })
            .collect();
        let mut place = vec![0; nodes.len()];
        for (position, &node) in order.iter().enumerate() {
            place[node] = position;
        }
        let mut pairs: Vec<(usize, usize)> = dependencies
            .iter()
            .map(|&(from, to)| (place[from], place[to]))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut first = vec![true; nodes.len()];
        let mut last = vec![true; nodes.len()];
        for &(from, to) in &pairs {
            last[from] = false;
            first[to] = false;
        }
        let arc = |from, to| Arc { from, to };
        let all = 0..operations.len();
        let mut arcs: Vec<Arc> = Vec::with_capacity(all.len() * 3);
        arcs.extend(all.clone().map(|op| arc(Self::start(op), Self::finish(op))));
        arcs.extend(
            pairs
                .iter()
                .map(|&(from, to)| arc(Self::finish(from), Self::start(to))),
        );
        let firsts = all.clone().filter(|&op| first[op]);
        arcs.extend(firsts.map(|op| arc(Self::SOURCE, Self::start(op))));
        let lasts = all.filter(|&op| last[op]);
        arcs.extend(lasts.map(|op| arc(Self::finish(op), Self::SINK)));
        Self {
            kinds,
            operations,
            arcs,
        }
    }

    /// The event at which an operation begins.
    #[must_use]
    pub fn start(operation: usize) -> u32 {
        2 + 2 * operation as u32
    }

    /// The event at which it has ended.
    #[must_use]
    pub fn finish(operation: usize) -> u32 {
        3 + 2 * operation as u32
    }

    /// Every kind of operation, sorted.
    #[must_use]
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The operations, each after all that it waits for.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The kind of an operation.
    #[must_use]
    pub fn kind(&self, operation: usize) -> &Kind {
        &self.kinds[self.operations[operation].kind as usize]
    }

    /// How many events there are.
    #[must_use]
    pub fn events(&self) -> usize {
        2 + 2 * self.operations.len()
    }

    /// All arcs: arc n is operation n, and after the operations come dependencies.
    #[must_use]
    pub fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    /// How many pipeline stages there are: one more than the largest.
    #[must_use]
    pub fn stages(&self) -> u32 {
        self.kinds
            .iter()
            .map(|kind| kind.stage + 1)
            .max()
            .unwrap_or(0)
    }

    /// The earliest moment of every event, where each operation takes so many units; the sink's
    /// is the iteration's time.
    #[must_use]
    pub fn earliest(&self, duration: impl Fn(usize) -> u64) -> Vec<u64> {
        let mut times = vec![0; self.events()];
        let mut into = vec![Vec::new(); self.events()];
        for arc in &self.arcs[self.operations.len()..] {
            into[arc.to as usize].push(arc.from as usize);
        }
        for op in 0..self.operations.len() {
            let start = Self::start(op) as usize;
            times[start] = into[start]
                .iter()
                .map(|&event| times[event])
                .max()
                .unwrap_or(0);
            times[start + 1] = times[start] + duration(op);
        }
        let ends = &into[Self::SINK as usize];
        times[Self::SINK as usize] = ends.iter().map(|&event| times[event]).max().unwrap_or(0);
        times
    }

    /// When each operation begins and ends, all as early as possible, where each takes so long.
    #[must_use]
    pub fn moments(&self, time: impl Fn(usize) -> Millis) -> Vec<[Millis; 2]> {
        let nanos = |operation: usize| time(operation).to_nanos().0.max(0).unsigned_abs();
        let times = self.earliest(nanos);
        let millis = |event: u32| Millis(times[event as usize] as f64 / 1e6);
        (0..self.operations.len())
            .map(|it| [Self::start(it), Self::finish(it)].map(millis))
            .collect()
    }
}

/// The nodes so that each comes after its predecessors (Kahn). What follows upon each other
/// stands together, which spares the flow's long paths many misses of the cache.
fn sort(nodes: &[Node], dependencies: &[(usize, usize)]) -> Result<Vec<usize>, GraphError> {
    let mut waits_for = vec![0_u32; nodes.len()];
    let mut successors = vec![Vec::new(); nodes.len()];
    for &(from, to) in dependencies {
        waits_for[to] += 1;
        successors[from].push(to);
    }
    let free = |node: &usize| waits_for[*node] == 0;
    let mut ready: Vec<usize> = (0..nodes.len()).rev().filter(free).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(node) = ready.pop() {
        order.push(node);
        for &next in &successors[node] {
            waits_for[next] -= 1;
            if waits_for[next] == 0 {
                ready.push(next);
            }
        }
    }
    if order.len() == nodes.len() {
        return Ok(order);
    }
    let node = &nodes[on_cycle(&waits_for, dependencies)];
    Err(GraphError::Cycle {
        id: node.id,
        kind: node.kind.clone(),
        microbatch: node.microbatch,
    })
}

/// A node that is on a cycle, not merely behind one: going back from a blocked node among
/// blocked ones, one comes round.
fn on_cycle(waits_for: &[u32], dependencies: &[(usize, usize)]) -> usize {
    let mut before: Vec<Option<usize>> = vec![None; waits_for.len()];
    for &(from, to) in dependencies {
        if waits_for[from] > 0 {
            before[to] = Some(from);
        }
    }
    let blocked = waits_for.iter().position(|&count| count > 0);
    let mut node = blocked.unwrap_or_default();
    for _ in 0..waits_for.len() {
        node = before[node].unwrap_or(node);
    }
    node
}
