//! What the packets of one sequence have declared: names by number, defaults, a thread.

use super::Trouble;
use super::annotation::Meaning;
use super::slices::Category;
use super::texts::{Ids, Texts};
use crate::formats::proto::{Fields, Malformed, Value, fields};
use crate::timeline::NameId;

/// The most that one sequence may declare of one kind.
const ENTRIES: usize = 1 << 20;

/// Names by number.
pub(super) type Names = Ids<NameId>;

/// The state of a sequence; cleared when it says so.
#[derive(Default)]
pub(super) struct Sequence {
    /// Whether packets were lost since the state was declared.
    lost: bool,
    /// What categories say of a slice.
    pub(super) categories: Ids<Option<Category>>,
    pub(super) names: Names,
    /// What annotations tell, those that matter.
    pub(super) annotations: Ids<Option<Meaning>>,
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
    pub(super) fn intern(&mut self, message: &[u8], texts: &mut Texts) -> Result<(), Trouble> {
        for field in fields(message) {
            let (number, value) = field?;
            let names = match number {
                1 | 3 => None,
                2 => Some(&mut self.names),
                29 => Some(&mut self.strings),
                24 => Some(&mut self.specifications),
                // An extension, whose number has changed: told by what stands in it.
                40.. => {
                    self.kernel(value, texts)?;
                    continue;
                }
                _ => continue,
            };
            let (mut id, mut text) = (0, None);
            for field in fields(value.bytes()) {
                match field? {
                    (1, value) => id = value.number(),
                    (2, value) => text = Some(value),
                    _ => {}
                }
            }
            let Some(text) = text else { continue };
            match names {
                Some(names) if names.len() < ENTRIES => {
                    names.insert(id, texts.intern(&text.text())?);
                }
                None if number == 1 && self.categories.len() < ENTRIES => {
                    self.categories.insert(id, Category::of(text.bytes()));
                }
                None if number == 3 && self.annotations.len() < ENTRIES => {
                    self.annotations.insert(id, Meaning::of(text.bytes()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes an InternedComputeKernel (iid 1, name 2, demangled_name 3, arch 4), if it is one.
    fn kernel(&mut self, value: Value<'_>, texts: &mut Texts) -> Result<(), Trouble> {
        let (mut id, mut name, mut shown, mut arch) = (None, None, None, false);
        let bytes: Fields<'_> = fields(value.bytes());
        for field in bytes {
            match field {
                Ok((1, Value::Number(number))) => id = Some(number),
                Ok((2, Value::Bytes(bytes))) => name = std::str::from_utf8(bytes).ok(),
                Ok((3, Value::Bytes(bytes))) => shown = std::str::from_utf8(bytes).ok(),
                Ok((4, Value::Bytes(_))) => arch = true,
                Ok((5, Value::Bytes(_))) => {}
                _ => return Ok(()),
            }
        }
        if let (Some(id), Some(name), true) = (id, shown.or(name), arch || shown.is_some())
            && self.kernels.len() < ENTRIES
        {
            self.kernels.insert(id, texts.intern(name)?);
        }
        Ok(())
    }
}
