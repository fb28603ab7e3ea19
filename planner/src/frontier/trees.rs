//! Maximum flow by two search trees that survive augmentations and steps (Boykov and Kolmogorov,
//! "An experimental comparison of min-cut/max-flow algorithms", 2004).

use std::collections::VecDeque;

use super::Change;
use super::network::{Network, Way};
use crate::graph::Graph;

/// Which tree an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// More could flow to it from the beginning.
    Source,
    /// More could flow from it to the end.
    Sink,
    Neither,
}

pub struct Trees {
    side: Vec<Side>,
    /// The way to the parent, towards the root, seen from the child.
    parent: Vec<Way>,
    /// How far the root is, and when that was last known for certain.
    distance: Vec<u32>,
    known: Vec<u32>,
    now: u32,
    active: VecDeque<u32>,
    is_active: Vec<bool>,
    orphans: VecDeque<u32>,
}

impl Trees {
    pub fn new(network: &Network) -> Self {
        let events = network.events();
        let mut trees = Self {
            side: vec![Side::Neither; events],
            parent: vec![Way::NONE; events],
            distance: vec![0; events],
            known: vec![0; events],
            now: 0,
            active: VecDeque::new(),
            is_active: vec![false; events],
            orphans: VecDeque::new(),
        };
        trees.side[Graph::SOURCE as usize] = Side::Source;
        trees.side[Graph::SINK as usize] = Side::Sink;
        trees.activate(Graph::SOURCE);
        trees.activate(Graph::SINK);
        trees
    }

    fn activate(&mut self, event: u32) {
        if !std::mem::replace(&mut self.is_active[event as usize], true) {
            self.active.push_back(event);
        }
    }

    /// Raises the flow to its maximum and says by how much.
    pub fn maximise(&mut self, network: &mut Network) -> i64 {
        let mut raised = 0;
        while let Some(&event) = self.active.front() {
            match self.grow(network, event) {
                // The event stays active: it may touch the other tree elsewhere, too.
                Some(way) => raised += self.augment(network, way),
                None => {
                    self.active.pop_front();
                    self.is_active[event as usize] = false;
                }
            }
        }
        raised
    }

    /// Adds the free neighbours of an event to its tree; the way from the source's tree to the
    /// sink's, if there is one here.
    fn grow(&mut self, network: &Network, event: u32) -> Option<Way> {
        let own = self.side[event as usize];
        if own == Side::Neither {
            return None;
        }
        for exit in network.exits(event) {
            let other = self.side[exit.event as usize];
            if other == own {
                continue;
            }
            let outward = if own == Side::Source {
                exit.way
            } else {
                exit.way.reversed()
            };
            if network.residual(outward) == 0 {
                continue;
            }
            if other != Side::Neither {
                return Some(outward);
            }
            let child = exit.event as usize;
            self.side[child] = own;
            self.parent[child] = exit.way.reversed();
            self.distance[child] = self.distance[event as usize] + 1;
            self.known[child] = self.known[event as usize];
            self.activate(exit.event);
        }
        None
    }

    /// Pushes all that fits along the path through `bridge`, and mends the trees.
    fn augment(&mut self, network: &mut Network, bridge: Way) -> i64 {
        let (left, right) = (network.origin(bridge), network.goal(bridge));
        let mut fits = network.residual(bridge);
        for (mut event, side) in [(left, Side::Source), (right, Side::Sink)] {
            while let Some((parent, flows)) = self.towards_root(network, event, side) {
                fits = fits.min(network.residual(flows));
                event = parent;
            }
        }
        network.push(bridge, fits);
        for (mut event, side) in [(left, Side::Source), (right, Side::Sink)] {
            while let Some((parent, flows)) = self.towards_root(network, event, side) {
                network.push(flows, fits);
                if network.residual(flows) == 0 {
                    self.parent[event as usize] = Way::NONE;
                    self.orphans.push_front(event);
                }
                event = parent;
            }
        }
        self.now += 1;
        while let Some(orphan) = self.orphans.pop_front() {
            self.adopt(network, orphan);
        }
        fits
    }

    /// The parent of an event, and the way that the flow takes between them.
    fn towards_root(&self, network: &Network, event: u32, side: Side) -> Option<(u32, Way)> {
        let up = self.parent[event as usize];
        if up == Way::NONE {
            return None;
        }
        let flows = if side == Side::Source {
            up.reversed()
        } else {
            up
        };
        Some((network.goal(up), flows))
    }

    /// Finds a new parent for an event that has lost its own, the nearest to the root, or sets
    /// it free and makes orphans of its children.
    fn adopt(&mut self, network: &Network, orphan: u32) {
        let side = self.side[orphan as usize];
        let mut best: Option<(u32, Way)> = None;
        for exit in network.exits(orphan) {
            if self.side[exit.event as usize] != side {
                continue;
            }
            let flows = if side == Side::Source {
                exit.way.reversed()
            } else {
                exit.way
            };
            if network.residual(flows) == 0 {
                continue;
            }
            if let Some(distance) = self.root_distance(network, exit.event)
                && best.is_none_or(|(least, _)| distance < least)
            {
                best = Some((distance, exit.way));
            }
        }
        if let Some((distance, way)) = best {
            self.parent[orphan as usize] = way;
            self.distance[orphan as usize] = distance + 1;
            self.known[orphan as usize] = self.now;
            return;
        }
        for exit in network.exits(orphan) {
            // Whoever could take the event in looks at it again, in the other tree as well: a
            // step may have opened a way that only the orphan was to follow.
            let flows = match self.side[exit.event as usize] {
                Side::Source => exit.way.reversed(),
                Side::Sink => exit.way,
                Side::Neither => continue,
            };
            if network.residual(flows) > 0 {
                self.activate(exit.event);
            }
            let neighbour = exit.event as usize;
            if self.side[neighbour] == side && self.parent[neighbour] == exit.way.reversed() {
                self.parent[neighbour] = Way::NONE;
                self.orphans.push_back(exit.event);
            }
        }
        self.side[orphan as usize] = Side::Neither;
    }

    /// How far the root of an event is; nothing if there is an orphan on the way.
    fn root_distance(&mut self, network: &Network, event: u32) -> Option<u32> {
        let mut length = 0;
        let mut at = event;
        loop {
            if self.known[at as usize] == self.now {
                length += self.distance[at as usize];
                break;
            }
            let up = self.parent[at as usize];
            if up == Way::NONE {
                if at != Graph::SOURCE && at != Graph::SINK {
                    return None;
                }
                self.known[at as usize] = self.now;
                self.distance[at as usize] = 0;
                break;
            }
            length += 1;
            at = network.goal(up);
        }
        let mut distance = length;
        let mut at = event;
        while self.known[at as usize] != self.now {
            self.known[at as usize] = self.now;
            self.distance[at as usize] = distance;
            distance -= 1;
            at = network.goal(self.parent[at as usize]);
        }
        Some(length)
    }

    /// Makes the iteration a unit shorter along a minimum cut, and notes whose time changes. Of
    /// the two cuts that the trees are, the one with fewer events to move.
    pub fn step(&mut self, network: &mut Network, changes: &mut Vec<Change>) {
        let count = |side| self.side.iter().filter(|&&other| other == side).count();
        let side = if count(Side::Source) <= count(Side::Sink) {
            Side::Source
        } else {
            Side::Sink
        };
        // The events after the cut become a unit earlier against those before it.
        let by = if side == Side::Source { 1 } else { -1 };
        let members =
            (0..self.side.len() as u32).filter(|&event| self.side[event as usize] == side);
        let members: Vec<u32> = members.collect();
        for &event in &members {
            network.shift(event, by);
        }
        for &event in &members {
            for exit in network.exits(event) {
                if self.side[exit.event as usize] == side {
                    continue;
                }
                let longer = Network::stretches(exit.way, by);
                if let Some(operation) = network.changed(exit.way, longer) {
                    changes.push(Change::new(operation, longer));
                }
                let outward = if side == Side::Source {
                    exit.way
                } else {
                    exit.way.reversed()
                };
                if network.residual(outward) > 0 {
                    self.activate(event);
                }
            }
        }
    }
}
