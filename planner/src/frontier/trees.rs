//! Maximum flow by two search trees that survive augmentations and steps (Boykov and Kolmogorov,
//! "An experimental comparison of min-cut/max-flow algorithms", 2004).

use std::collections::VecDeque;

use super::Change;
use super::network::Network;
use crate::graph::Graph;

/// Which tree an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Side {
    /// More could flow to it from the beginning.
    Source,
    /// More could flow from it to the end.
    Sink,
    Neither,
}

/// No exit: a root has no parent, nor has an orphan.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The exit to the parent.
    up: u32,
    /// Where that leads.
    parent: u32,
    /// How far the root is, and when that was last known for certain.
    distance: u32,
    known: u32,
    is_active: bool,
}

pub struct Trees {
    /// By itself, because it is asked for far more often than the rest.
    sides: Vec<Side>,
    nodes: Vec<Node>,
    now: u32,
    active: VecDeque<u32>,
    orphans: VecDeque<u32>,
    /// The events that a step moves.
    moving: Vec<u32>,
    /// The events of an augmenting path, by which exit and whether inwards.
    path: Vec<(u32, u32, bool)>,
}

impl Trees {
    pub fn new(network: &Network) -> Self {
        let free = Node {
            up: NONE,
            parent: 0,
            distance: 0,
            known: 0,
            is_active: false,
        };
        let mut trees = Self {
            sides: vec![Side::Neither; network.events()],
            nodes: vec![free; network.events()],
            now: 0,
            active: VecDeque::new(),
            orphans: VecDeque::new(),
            moving: Vec::new(),
            path: Vec::new(),
        };
        for (root, side) in [(Graph::SOURCE, Side::Source), (Graph::SINK, Side::Sink)] {
            trees.sides[root as usize] = side;
            trees.activate(root);
        }
        trees
    }

    fn activate(&mut self, event: u32) {
        let is_active = &mut self.nodes[event as usize].is_active;
        if !std::mem::replace(is_active, true) {
            self.active.push_back(event);
        }
    }

    /// Raises the flow to its maximum and says by how much.
    pub fn maximise(&mut self, network: &mut Network) -> i64 {
        let mut raised = 0;
        while let Some(&event) = self.active.front() {
            match self.grow(network, event) {
                // The event stays active: it may touch the other tree elsewhere, too.
                Some(exit) => raised += self.augment(network, event, exit),
                None => {
                    self.active.pop_front();
                    self.nodes[event as usize].is_active = false;
                }
            }
        }
        raised
    }

    /// Adds the free neighbours of an event to its tree; the exit to the other tree, if there is
    /// one here.
    fn grow(&mut self, network: &Network, event: u32) -> Option<u32> {
        let side = self.sides[event as usize];
        let Node {
            distance, known, ..
        } = self.nodes[event as usize];
        if side == Side::Neither {
            return None;
        }
        for number in network.exits_of(event) {
            let exit = network.exit(number);
            let there = self.sides[exit.event as usize];
            if there == side || network.residual(number, side == Side::Sink) == 0 {
                continue;
            }
            if there != Side::Neither {
                return Some(number);
            }
            self.sides[exit.event as usize] = side;
            let other = &mut self.nodes[exit.event as usize];
            other.up = exit.sister;
            other.parent = event;
            other.distance = distance + 1;
            other.known = known;
            self.activate(exit.event);
        }
        None
    }

    /// Pushes all that fits along the path through an event's exit to the other tree, and mends
    /// the trees.
    fn augment(&mut self, network: &mut Network, event: u32, bridge: u32) -> i64 {
        let side = self.sides[event as usize];
        let other = network.exit(bridge).event;
        let (left, right) = match side {
            Side::Source => (event, other),
            _ => (other, event),
        };
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        path.push((event, bridge, side == Side::Sink));
        for (mut event, inwards) in [(left, true), (right, false)] {
            while self.nodes[event as usize].up != NONE {
                let Node { up, parent, .. } = self.nodes[event as usize];
                path.push((event, up, inwards));
                event = parent;
            }
        }
        let residuals = path
            .iter()
            .map(|&(_, exit, inwards)| network.residual(exit, inwards));
        let fits = residuals.min().unwrap_or(0);
        for (place, &(event, exit, inwards)) in path.iter().enumerate() {
            if network.push(exit, inwards, fits) == 0 && place > 0 {
                self.nodes[event as usize].up = NONE;
                self.orphans.push_front(event);
            }
        }
        self.path = path;
        self.now += 1;
        while let Some(orphan) = self.orphans.pop_front() {
            self.adopt(network, orphan);
        }
        fits
    }

    /// Finds a new parent for an event that has lost its own, the nearest to the root, or sets
    /// it free and makes orphans of its children.
    fn adopt(&mut self, network: &Network, orphan: u32) {
        let side = self.sides[orphan as usize];
        let mut best = (u32::MAX, NONE);
        for number in network.exits_of(orphan) {
            let other = network.exit(number).event;
            if self.sides[other as usize] == side
                && network.residual(number, side == Side::Source) > 0
                && let Some(distance) = self.root_distance(other)
            {
                best = best.min((distance, number));
            }
        }
        let (distance, up) = best;
        if up != NONE {
            let known = self.now;
            let node = &mut self.nodes[orphan as usize];
            node.parent = network.exit(up).event;
            (node.up, node.distance, node.known) = (up, distance + 1, known);
            return;
        }
        self.sides[orphan as usize] = Side::Neither;
        for number in network.exits_of(orphan) {
            let exit = network.exit(number);
            let there = self.sides[exit.event as usize];
            if there == Side::Neither {
                continue;
            }
            let other = &mut self.nodes[exit.event as usize];
            // Whoever could take the event in looks at it again, in the other tree as well: a
            // step may have opened a way that only the orphan was to follow.
            let could = network.residual(number, there == Side::Source) > 0;
            if other.up == exit.sister {
                other.up = NONE;
                self.orphans.push_back(exit.event);
            }
            if could {
                self.activate(exit.event);
            }
        }
    }

    /// How far the root of an event is; nothing if there is an orphan on the way.
    fn root_distance(&mut self, event: u32) -> Option<u32> {
        let mut length = 0;
        let mut at = event;
        loop {
            let node = &mut self.nodes[at as usize];
            if node.known == self.now {
                length += node.distance;
                break;
            }
            if node.up == NONE {
                if at != Graph::SOURCE && at != Graph::SINK {
                    return None;
                }
                (node.known, node.distance) = (self.now, 0);
                break;
            }
            length += 1;
            at = node.parent;
        }
        let mut distance = length;
        let mut at = event;
        loop {
            let node = &mut self.nodes[at as usize];
            if node.known == self.now {
                return Some(length);
            }
            (node.known, node.distance) = (self.now, distance);
            distance -= 1;
            at = node.parent;
        }
    }

    /// Makes the iteration a unit shorter along a minimum cut, and notes whose time changes. Of
    /// the two cuts that the trees are, the one with fewer events to move.
    pub fn step(&mut self, network: &mut Network, changes: &mut Vec<Change>) {
        let count = |side| self.sides.iter().filter(|&&other| other == side).count();
        let sources_move = count(Side::Source) <= count(Side::Sink);
        // The events after the cut become a unit earlier against those before it.
        let (side, by) = match sources_move {
            true => (Side::Source, 1),
            false => (Side::Sink, -1),
        };
        let mut moving = std::mem::take(&mut self.moving);
        moving.clear();
        let all = (0..).zip(&self.sides);
        moving.extend(all.filter_map(|(event, other)| (*other == side).then_some(event)));
        for &event in &moving {
            network.shift(event, by);
        }
        for &event in &moving {
            for number in network.exits_of(event) {
                let other = network.exit(number).event;
                if self.sides[other as usize] == side {
                    continue;
                }
                if let Some((operation, longer)) = network.follow(number, by) {
                    changes.push(Change::new(operation, longer));
                }
                if network.residual(number, !sources_move) > 0 {
                    self.activate(event);
                }
            }
        }
        self.moving = moving;
    }
}
