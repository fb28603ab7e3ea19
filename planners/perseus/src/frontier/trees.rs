//! Maximum flow by two search trees that survive augmentations and steps (Boykov and Kolmogorov,
//! "An experimental comparison of min-cut/max-flow algorithms", 2004), with one change. There, all
//! that hangs below a saturated arc is set free event by event and found anew. Pipelines' paths
//! are as long as the iteration, so that is most of a tree, and as flow can go back on nearly
//! every arc, the part that was cut off is still one: it is hung up by any of its events that has
//! a neighbour in the rest of the tree, with the arcs between that event and its old top turned
//! round, as when an arc enters the basis of network simplex.

use std::collections::VecDeque;

use super::Change;
use super::network::Network;

/// The tree to which an event belongs.
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

/// So many events are looked at together for whether a step moves any of them.
const RUN: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The exit to the parent.
    up: u32,
    /// Where that leads.
    parent: u32,
    /// How far the root is, and when that was last known for certain.
    distance: u32,
    known: u32,
    /// The last search that found it in what was cut off.
    lost: u32,
    is_active: bool,
}

pub struct Trees {
    /// By itself, because it is asked for far more often than the rest.
    sides: Vec<Side>,
    nodes: Vec<Node>,
    roots: [u32; 2],
    /// Counts augmentations.
    now: u32,
    /// Counts searches for a place where what is cut off can be hung up.
    search: u32,
    /// Events below an orphan, as far as it has been searched, and the events that must be looked at again if all
    /// of them are set free.
    cut_off: Vec<u32>,
    near: Vec<u32>,
    active: VecDeque<u32>,
    orphans: VecDeque<u32>,
    /// The events of an augmenting path, none for the arc between the trees, and the way from each.
    path: Vec<(u32, [u32; 2])>,
}

impl Trees {
    pub fn new(network: &Network) -> Self {
        let free = Node {
            up: NONE,
            parent: 0,
            distance: 0,
            known: 0,
            lost: 0,
            is_active: false,
        };
        let mut trees = Self {
            sides: vec![Side::Neither; network.events()],
            nodes: vec![free; network.events()],
            roots: [network.source(), network.sink()],
            now: 0,
            search: 0,
            cut_off: Vec::new(),
            near: Vec::new(),
            active: VecDeque::new(),
            orphans: VecDeque::new(),
            path: Vec::new(),
        };
        for (root, side) in [
            (network.source(), Side::Source),
            (network.sink(), Side::Sink),
        ] {
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
        let mut fits = i64::MAX;
        let mut add = |event, exit, inwards| {
            let way = network.way(exit, inwards);
            fits = fits.min(network.exit(way[0]).residual);
            path.push((event, way));
        };
        add(NONE, bridge, side == Side::Sink);
        for (mut event, inwards) in [(left, true), (right, false)] {
            loop {
                let Node { up, parent, .. } = self.nodes[event as usize];
                if up == NONE {
                    break;
                }
                add(event, up, inwards);
                event = parent;
            }
        }
        for &(event, way) in &path {
            if network.push(way, fits) == 0 && event != NONE {
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

    /// Hangs up what an orphan's tree has become, wherever that is possible, or sets it free.
    fn adopt(&mut self, network: &Network, orphan: u32) {
        let mut cut_off = std::mem::take(&mut self.cut_off);
        let mut near = std::mem::take(&mut self.near);
        cut_off.clear();
        near.clear();
        self.search += 1;
        self.nodes[orphan as usize].lost = self.search;
        cut_off.push(orphan);
        let mut next = 0;
        let mut hangs = false;
        while let Some(&event) = cut_off.get(next)
            && !hangs
        {
            next += 1;
            if let Some((distance, up)) = self.look_around(network, event, &mut cut_off, &mut near)
            {
                self.turn(network, event, up, distance + 1);
                hangs = true;
            }
        }
        if !hangs {
            self.set_free(&cut_off, &near);
        } else if self.nodes[orphan as usize].up == NONE {
            // Not all of it could be turned round.
            self.orphans.push_front(orphan);
        }
        (self.cut_off, self.near) = (cut_off, near);
    }

    /// Notes what hangs below an event that is cut off, and who else could take it in: yields the
    /// nearest to the root that is still in the tree, by distance and exit.
    fn look_around(
        &mut self,
        network: &Network,
        event: u32,
        cut_off: &mut Vec<u32>,
        near: &mut Vec<u32>,
    ) -> Option<(u32, u32)> {
        let side = self.sides[event as usize];
        let mut best = (u32::MAX, NONE);
        for number in network.exits_of(event) {
            let exit = network.exit(number);
            let there = self.sides[exit.event as usize];
            let other = &mut self.nodes[exit.event as usize];
            if there == side && other.up == exit.sister {
                other.lost = self.search;
                cut_off.push(exit.event);
                continue;
            }
            if there == Side::Neither || network.residual(number, there == Side::Source) == 0 {
                continue;
            }
            let is_in_tree = there == side;
            match is_in_tree.then(|| self.root_distance(exit.event)).flatten() {
                Some(distance) => best = best.min((distance, number)),
                None => near.push(exit.event),
            }
        }
        (best.1 != NONE).then_some(best)
    }

    /// Makes an event hang from this exit, and what it hung below from it, as far up as flow can
    /// go that way.
    fn turn(&mut self, network: &Network, mut event: u32, mut up: u32, mut distance: u32) {
        let takes_in = self.sides[event as usize] == Side::Source;
        loop {
            let node = &mut self.nodes[event as usize];
            let before = node.up;
            node.parent = network.exit(up).event;
            (node.up, node.distance, node.known) = (up, distance, self.now);
            if before == NONE {
                return;
            }
            let exit = network.exit(before);
            if network.residual(exit.sister, takes_in) == 0 {
                return;
            }
            (event, up, distance) = (exit.event, exit.sister, distance + 1);
        }
    }

    /// Sets free what nothing in its tree can take in.
    fn set_free(&mut self, cut_off: &[u32], near: &[u32]) {
        for &event in cut_off {
            self.sides[event as usize] = Side::Neither;
            self.nodes[event as usize].up = NONE;
        }
        // An event that could adopt this one is looked at again, in the other tree as well: a step may have opened
        // a way that only the event was to follow.
        for &event in near {
            if self.sides[event as usize] != Side::Neither {
                self.activate(event);
            }
        }
    }

    /// How far the root of an event is; nothing if there is an orphan on the way.
    fn root_distance(&mut self, event: u32) -> Option<u32> {
        let mut length = 0;
        let mut at = event;
        let is_in_tree = loop {
            let node = &mut self.nodes[at as usize];
            if node.known == self.now {
                length += node.distance;
                break true;
            }
            if node.lost == self.search {
                break false;
            }
            if node.up == NONE {
                let is_root = self.roots.contains(&at);
                if is_root {
                    (node.known, node.distance) = (self.now, 0);
                } else {
                    node.lost = self.search;
                }
                break is_root;
            }
            length += 1;
            at = node.parent;
        };
        // A search from the same branch need not go so far.
        let (end, mut distance) = (at, length);
        at = event;
        while at != end {
            let node = &mut self.nodes[at as usize];
            if is_in_tree {
                (node.known, node.distance) = (self.now, distance);
                distance -= 1;
            } else {
                node.lost = self.search;
            }
            at = node.parent;
        }
        is_in_tree.then_some(length)
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
        for first in (0..self.sides.len()).step_by(RUN) {
            let end = self.sides.len().min(first + RUN);
            if !self.sides[first..end].contains(&side) {
                continue;
            }
            for event in first as u32..end as u32 {
                if self.sides[event as usize] != side {
                    continue;
                }
                network.shift(event, by);
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
        }
    }
}
