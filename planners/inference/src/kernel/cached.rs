//! Remembers what a model predicted: configurations of a sweep share most of their kernels.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

use super::{Estimate, Kernel, KernelModel, Setting};
use crate::gpu::Gpu;

/// No more predictions are kept: some hundred MiB.
const MOST: usize = 2_000_000;

/// A kernel and its setting as whole numbers, equal where both are.
type Key = [u64; 8];

/// A model that remembers.
pub struct Cached<'a> {
    model: &'a dyn KernelModel,
    known: Mutex<HashMap<Key, Estimate, BuildHasherDefault<Mix>>>,
}

impl<'a> Cached<'a> {
    /// A model that remembers nothing yet.
    #[must_use]
    pub fn new(model: &'a dyn KernelModel) -> Self {
        Self {
            model,
            known: Mutex::default(),
        }
    }
}

impl KernelModel for Cached<'_> {
    fn gpu(&self) -> &Gpu {
        self.model.gpu()
    }

    fn predict(&self, kernel: &Kernel, setting: &Setting) -> Estimate {
        // Only large searches are dearer than remembering.
        let Kernel::Gemm { .. } = kernel else {
            return self.model.predict(kernel, setting);
        };
        let key = key(kernel, setting);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(estimate) = known.get(&key) {
            return *estimate;
        }
        let estimate = self.model.predict(kernel, setting);
        if known.len() < MOST {
            known.insert(key, estimate);
        }
        estimate
    }
}

fn key(kernel: &Kernel, setting: &Setting) -> Key {
    let mut key = [0; 8];
    let option = |value: Option<f64>| value.map_or(u64::MAX, f64::to_bits);
    key[0] = option(setting.power_limit.map(|it| it.0));
    key[1] = option(setting.clock);
    key[2] = setting.sms.map_or(u64::MAX, u64::from);
    if let Kernel::Gemm {
        groups,
        m,
        n,
        k,
        precision,
    } = kernel
    {
        let sizes = [groups, m, n, k].map(|it| it.to_bits());
        key[3..7].copy_from_slice(&sizes);
        key[7] = u64::from(precision.weights) << 8 | u64::from(precision.activations);
    }
    key
}

/// Multiplies and mixes: keys are no one's choice, so that none needs protection.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
