//! What the packets of one sequence have declared: names by number, defaults, a thread.

use std::collections::HashMap;

use crate::formats::proto::{Fields, Malformed, Value, fields};
use crate::timeline::{NameId, NameTable};

/// The most that one sequence may declare of one kind.
const ENTRIES: usize = 1 << 20;

/// Names by number.
type Names = HashMap<u64, NameId>;

/// The state of a sequence; cleared when it says so.
#[derive(Default)]
pub(super) struct Sequence {
    /// Whether packets were lost since the state was declared.
    lost: bool,
    pub(super) categories: Names,
    pub(super) names: Names,
    pub(super) annotations: Names,
    pub(super) strings: Names,
    /// Queues and stages of a GPU.
    pub(super) specifications: Names,
    pub(super) kernels: Names,
    clock: Option<u64>,
    pub(super) track: Option<u64>,
    /// The time that `timestamp_delta_us` counts from, in microseconds.
    pub(super) reference: Option<i64>,
}

impl Sequence {
    pub(super) fn clear(&mut self) {
        *self = Self {
            reference: self.reference,
            ..Self::default()
        };
    }

    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// The clock of packets that tell none.
    pub(super) fn clock(&self) -> Option<u64> {
        self.clock
    }

    /// Takes TracePacketDefaults.
    pub(super) fn set_defaults(&mut self, message: &[u8]) -> Result<(), Malformed> {
        (self.clock, self.track) = (None, None);
        for field in fields(message) {
            match field? {
                (58, value) => self.clock = Some(value.number()),
                (11, value) => {
                    for field in fields(value.bytes()) {
                        if let (11, value) = field? {
                            self.track = Some(value.number());
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a ThreadDescriptor, for the time that it sets.
    pub(super) fn set_thread(&mut self, message: &[u8]) -> Result<(), Malformed> {
        for field in fields(message) {
            if let (6, value) = field? {
                self.reference = Some(value.number() as i64);
            }
        }
        Ok(())
    }

    /// Takes InternedData.
    pub(super) fn intern(
        &mut self,
        message: &[u8],
        texts: &mut NameTable,
    ) -> Result<(), Malformed> {
        for field in fields(message) {
            let (number, value) = field?;
            let table = match number {
                1 => &mut self.categories,
                2 => &mut self.names,
                3 => &mut self.annotations,
                29 => &mut self.strings,
                24 => &mut self.specifications,
                // An extension, whose number has changed: told by what stands in it.
                40.. => {
                    self.kernel(value, texts);
                    continue;
                }
                _ => continue,
            };
            let (mut id, mut text) = (0, None);
            for field in fields(value.bytes()) {
                match field? {
                    (1, value) => id = value.number(),
                    (2, value) => text = Some(value.text()),
                    _ => {}
                }
            }
            if let (Some(text), true) = (text, table.len() < ENTRIES) {
                table.insert(id, texts.intern(&text));
            }
        }
        Ok(())
    }

    /// Takes an InternedComputeKernel (iid 1, name 2, demangled_name 3, arch 4), if it is one.
    fn kernel(&mut self, value: Value<'_>, texts: &mut NameTable) {
        let (mut id, mut name, mut shown, mut arch) = (None, None, None, false);
        let bytes: Fields<'_> = fields(value.bytes());
        for field in bytes {
            match field {
                Ok((1, Value::Number(number))) => id = Some(number),
                Ok((2, Value::Bytes(bytes))) => name = std::str::from_utf8(bytes).ok(),
                Ok((3, Value::Bytes(bytes))) => shown = std::str::from_utf8(bytes).ok(),
                Ok((4, Value::Bytes(_))) => arch = true,
                Ok((5, Value::Bytes(_))) => {}
                _ => return,
            }
        }
        if let (Some(id), Some(name), true) = (id, shown.or(name), arch || shown.is_some())
            && self.kernels.len() < ENTRIES
        {
            self.kernels.insert(id, texts.intern(name));
        }
    }
}
