//! Tells what a job runs from what other jobs run.

use super::rank::Shape;
use crate::timeline::NameTable;

/// See [`LiveReport::workload`](super::LiveReport::workload).
pub(super) fn of(shape: &Shape, names: &NameTable) -> u64 {
    // Many kernels have few names: each text is hashed once, and a kernel counts by that hash.
    let mut hashes = vec![None; names.len()];
    let texts = Vec::from_iter(names.iter());
    let mut hash_of = |name: u32| {
        let at = name as usize;
        let text = texts.get(at).copied().unwrap_or_default();
        let Some(known) = hashes.get_mut(at) else {
            return Hash::default().with(&[]).0;
        };
        *known.get_or_insert_with(|| Hash::default().with(text.as_bytes()).0)
    };
    let mut streams = Vec::new();
    for stream in shape.computation() {
        let mut kernels = stream.peekable();
        if kernels.peek().is_some() {
            let hash = kernels.fold(Hash::default(), |hash, name| {
                hash.with(&hash_of(name).to_le_bytes())
            });
            streams.push(hash.0);
        }
    }
    // Streams are numbered differently from run to run.
    streams.sort_unstable();
    let all = streams.into_iter().fold(Hash::default(), |hash, stream| {
        hash.with(&stream.to_le_bytes())
    });
    all.0
}

/// FNV-1a with 64 bits: what it yields is the same on every machine and in every release.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hash {
    fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        Self(bytes.iter().fold(self.0, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_published() {
        let hash = |text: &str| Hash::default().with(text.as_bytes()).0;
        assert_eq!(hash(""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(hash("a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(hash("foobar"), 0x8594_4171_F739_67E8);
    }
}
