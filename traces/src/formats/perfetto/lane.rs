//! What began and ended on one track, packed: a dozen bytes for each of millions of kernels.

use std::num::NonZeroU64;

use prost::encoding::encode_varint;

use crate::formats::proto::varint;
use crate::timeline::NameId;

/// Edges that are packed together; few in tests, which are to see many blocks.
const BLOCK: usize = if cfg!(test) { 8 } else { 1024 };

/// A kernel that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) name: NameId,
    /// The number of its place.
    pub(super) place: u32,
    /// The start and the end that annotations tell.
    pub(super) told: Option<(i64, i64)>,
    /// The flow that it has in common with its launch.
    pub(super) flow: Option<NonZeroU64>,
}

/// What happens at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    End,
    /// A slice begins that is no kernel; it only keeps its end from ending another.
    Other,
    Kernel(Begun),
}

/// The edges of one track, in the order of the file.
#[derive(Default)]
pub(super) struct Lane {
    blocks: Vec<Block>,
    /// How many edges the last block has, and the time of the last of them.
    edges: usize,
    last: Last,
    /// The place of the last kernel.
    pub(super) place: u32,
}

/// What an edge is packed against: of the one before in its block the time, and of the kernel before the
/// flow. One process's flows have most bits in common.
#[derive(Default)]
struct Last {
    time: i64,
    flow: u64,
}

#[derive(Default)]
struct Block {
    packed: Vec<u8>,
    /// The least time in it.
    least: i64,
}

impl Lane {
    pub(super) fn push(&mut self, time: i64, edge: Edge) {
        if self.edges == BLOCK || self.blocks.is_empty() {
            if let Some(full) = self.blocks.last_mut() {
                full.packed.shrink_to_fit();
            }
            self.blocks.push(Block {
                packed: Vec::new(),
                least: time,
            });
            (self.edges, self.last) = (0, Last::default());
        }
        let Some(block) = self.blocks.last_mut() else {
            return;
        };
        let packed = &mut block.packed;
        put(packed, time.wrapping_sub(self.last.time));
        match edge {
            Edge::End => encode_varint(0, packed),
            Edge::Other => encode_varint(1, packed),
            Edge::Kernel(begun) => {
                let has = [begun.flow.is_some(), begun.told.is_some()].map(u64::from);
                let kind = 4 * u64::from(begun.place) + 2 * has[0] + has[1];
                encode_varint(2 + kind, packed);
                encode_varint(begun.name.0.into(), packed);
                if let Some(flow) = begun.flow {
                    encode_varint(flow.get() ^ self.last.flow, packed);
                    self.last.flow = flow.get();
                }
                if let Some((start, end)) = begun.told {
                    put(packed, start.wrapping_sub(time));
                    put(packed, end.wrapping_sub(start));
                }
            }
        }
        block.least = block.least.min(time);
        self.edges += 1;
        self.last.time = time;
    }

    /// Hands out every kernel that ended, and its start and end; the count of those that did not.
    /// An end ends what began last in the order of time, whatever the file's order is.
    pub(super) fn close<E>(
        self,
        mut take: impl FnMut(&Begun, i64, i64) -> Result<(), E>,
    ) -> Result<u64, E> {
        // The least time that is still to come.
        let mut coming = i64::MAX;
        let least = self.blocks.iter().rev().map(|block| {
            let next = coming;
            coming = coming.min(block.least);
            next
        });
        let mut coming = Vec::from_iter(least);
        let mut waiting = Vec::new();
        let mut open = Vec::new();
        for block in self.blocks {
            unpack(&block.packed, &mut waiting);
            // A stable sort: what happens at one time keeps the file's order.
            waiting.sort_by_key(|&(time, _)| time);
            let coming = coming.pop().unwrap_or(i64::MAX);
            let ready = waiting.partition_point(|&(time, _)| time <= coming);
            for (time, edge) in waiting.drain(..ready) {
                match edge {
                    Edge::Other => open.push((time, None)),
                    Edge::Kernel(begun) => open.push((time, Some(begun))),
                    Edge::End => {
                        if let Some((start, Some(begun))) = open.pop() {
                            take(&begun, start, time)?;
                        }
                    }
                }
            }
        }
        Ok(open.iter().filter(|(_, begun)| begun.is_some()).count() as u64)
    }
}

/// A signed number; small ones take few bytes.
fn put(packed: &mut Vec<u8>, number: i64) {
    encode_varint((number << 1 ^ number >> 63) as u64, packed);
}

fn get(packed: &mut &[u8]) -> Option<i64> {
    let number = varint(packed)?;
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

/// The edges of a block.
fn unpack(mut packed: &[u8], edges: &mut Vec<(i64, Edge)>) {
    let mut last = Last::default();
    while !packed.is_empty() {
        let Some(edge) = one(&mut packed, &mut last) else {
            return;
        };
        edges.push((last.time, edge));
    }
}

fn one(packed: &mut &[u8], last: &mut Last) -> Option<Edge> {
    last.time = get(packed)?.wrapping_add(last.time);
    let time = last.time;
    let kind = varint(packed)?;
    Some(match kind.checked_sub(2) {
        None if kind == 0 => Edge::End,
        None => Edge::Other,
        Some(kind) => Edge::Kernel(Begun {
            place: u32::try_from(kind / 4).ok()?,
            name: NameId(u32::try_from(varint(packed)?).ok()?),
            flow: match kind / 2 % 2 {
                1 => {
                    last.flow ^= varint(packed)?;
                    NonZeroU64::new(last.flow)
                }
                _ => None,
            },
            told: match kind % 2 {
                1 => {
                    let start = get(packed)?.wrapping_add(time);
                    Some((start, get(packed)?.wrapping_add(start)))
                }
                _ => None,
            },
        }),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All kernels, as one sort of all edges makes them.
    fn plainly(edges: &[(i64, Edge)]) -> (Vec<(Begun, i64, i64)>, u64) {
        let mut sorted = edges.to_vec();
        sorted.sort_by_key(|&(time, _)| time);
        let (mut open, mut kernels) = (Vec::new(), Vec::new());
        for (time, edge) in sorted {
            match edge {
                Edge::End => {
                    if let Some((start, Edge::Kernel(begun))) = open.pop() {
                        kernels.push((begun, start, time));
                    }
                }
                begins => open.push((time, begins)),
            }
        }
        let left = |(_, edge): &&(i64, Edge)| matches!(edge, Edge::Kernel(_));
        let left = open.iter().filter(left).count() as u64;
        (kernels, left)
    }

    fn edges() -> impl Strategy<Value = Vec<(i64, Edge)>> {
        let time = prop_oneof![20 => 0..100_i64, 1 => any::<i64>()];
        let told = prop::option::of((any::<i64>(), any::<i64>()));
        let flow = any::<u64>().prop_map(NonZeroU64::new);
        let kernel = (any::<u32>(), any::<u32>(), told, flow);
        let kernel = kernel.prop_map(|(name, place, told, flow)| {
            Edge::Kernel(Begun {
                name: NameId(name),
                place,
                told,
                flow,
            })
        });
        let edge = prop_oneof![4 => Just(Edge::End), 1 => Just(Edge::Other), 4 => kernel];
        prop::collection::vec((time, edge), 0..100)
    }

    proptest! {
        #[test]
        fn packing_changes_nothing(edges in edges(), drift in 0..20_i64) {
            let mut lane = Lane::default();
            let edges = (0..).zip(edges).map(|(at, (time, edge))| {
                // Mostly in order, with some disorder.
                (time.wrapping_add(at * drift), edge)
            });
            let edges = Vec::from_iter(edges);
            for &(time, edge) in &edges {
                lane.push(time, edge);
            }
            let mut kernels = Vec::new();
            let left = lane.close(|begun, start, end| {
                kernels.push((*begun, start, end));
                Ok::<_, ()>(())
            });
            prop_assert_eq!((kernels, left.unwrap()), plainly(&edges));
        }
    }
}
