//! A daemon's actions in a history, as one number: two versions of litd with the same actions have the same
//! number.
//!
//! ```text LITD_DIGEST=FILE cargo test -p litd-core --test history a line for each seed: seed, digest ```
//!
//! `.ci/same-effects COMMIT` compares two commits by it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use litd_core::Effect;

/// FNV-1a over the text of all effects with their times: the same in every build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

impl Digest {
    /// The daemon's effects at `now`.
    pub fn effects(&mut self, now: i64, effects: &[Effect]) {
        for effect in effects {
            let _ = writeln!(self, "{now} {effect:?}");
        }
    }

    /// The files that it has left on disk.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The digests of many histories, by seed.
pub type Digests = BTreeMap<u64, Digest>;

/// Writes them to a file, a line each.
pub fn write(digests: &Digests, path: &Path) -> std::io::Result<()> {
    let mut text = String::new();
    for (seed, digest) in digests {
        let _ = writeln!(text, "{seed} {:016x}", digest.0);
    }
    std::fs::write(path, text)
}
