//! The kernel names of a job, each once, with what a name tells of its kernels.

use std::collections::BTreeSet;

use litd_traces::{KernelClass, Limit, NameId, NameTable, class_of, limit_of};

use crate::core::Core;
use crate::event::SessionId;
use crate::room::{Full, Room, Table};
use crate::store::Store;

/// The longest kernel name, in bytes. Templates make names of some thousands.
const LONGEST_NAME: usize = 16 * 1024;

/// The bytes per name besides its text, in a table that is as empty as it can be.
const BESIDES: usize = 128;

/// The class of the kernels with a name, and their limiter.
pub(crate) type Kind = (KernelClass, Option<Limit>);

/// The bytes that a name takes in a table.
pub(crate) fn bytes_of(name: &str) -> usize {
    name.len().saturating_add(BESIDES)
}

/// The names of all ranks of a job.
#[derive(Debug)]
pub(crate) struct Names {
    table: NameTable,
    /// Classified once per name, not once per kernel.
    kinds: Vec<Kind>,
    room: Room,
}

impl Names {
    /// No names, and no room for any; see [`Names::resize`].
    pub fn new() -> Self {
        Self {
            table: NameTable::default(),
            kinds: Vec::new(),
            room: Room::new(0),
        }
    }

    /// From now on there is room for so many bytes.
    pub fn resize(&mut self, most: usize) {
        self.room.resize(most);
    }

    /// The id of a name, which is added if it is new.
    pub fn learn(&mut self, name: &str) -> Result<NameId, Full> {
        self.add(name, |name| (class_of(name), limit_of(name)))
    }

    fn add(&mut self, name: &str, kind: impl Fn(&str) -> Kind) -> Result<NameId, Full> {
        if let Some(id) = self.table.find(name) {
            return Ok(id);
        }
        self.room.charge(bytes_of(name))?;
        self.kinds.push(kind(name));
        Ok(self.table.intern(name))
    }

    /// Forgets the names that none of these dictionaries has, and numbers the others anew.
    pub fn keep<'a>(&mut self, dictionaries: impl Iterator<Item = &'a mut Vec<NameId>>) {
        let mut kept = Self {
            // Names that are in another table already fit.
            room: Room::new(usize::MAX),
            ..Self::new()
        };
        for id in dictionaries.flatten() {
            let kind = |_: &str| self.kind(*id).unwrap_or((KernelClass::Computation, None));
            if let Ok(new) = kept.add(self.table.get(*id), kind) {
                *id = new;
            }
        }
        kept.room.resize(self.room.most());
        *self = kept;
    }

    /// The kind of kernels with this name.
    pub fn kind(&self, id: NameId) -> Option<Kind> {
        self.kinds.get(id.0 as usize).copied()
    }

    /// The names by their ids.
    pub fn table(&self) -> &NameTable {
        &self.table
    }

    /// The bytes that the names take.
    pub fn bytes(&self) -> usize {
        self.room.taken()
    }
}

impl<S: Store> Core<S> {
    /// Adds a rank's new kernel names to its dictionary and its job's. An error says what is too
    /// much.
    pub(crate) fn learn_names(
        &mut self,
        id: SessionId,
        job: &str,
        new: &[String],
    ) -> Result<(), String> {
        for name in new {
            self.room_for_name(id, name)?;
            let known = self.learn_name(job, name).or_else(|Full { .. }| {
                self.forget_names(job);
                self.learn_name(job, name)
            });
            let known = known.map_err(|full| too_many_bytes(full.most))?;
            let session = self.hooks.get_mut(id);
            if let (Some(session), Some(known)) = (session, known) {
                session.dictionary_mut().add(known);
            }
        }
        Ok(())
    }

    /// Whether a rank may add a name.
    fn room_for_name(&mut self, id: SessionId, name: &str) -> Result<(), String> {
        let limits = &self.config.limits;
        let Some(session) = self.hooks.get_mut(id) else {
            return Ok(());
        };
        let dictionary = session.dictionary_mut();
        let (names, bytes) = dictionary.with(name);
        let too_many =
            name.len() > LONGEST_NAME || names > limits.names || bytes > limits.name_bytes;
        if too_many {
            return Err(format!(
                "more than {} kernel names or {} bytes of them, or one of more than {LONGEST_NAME}",
                limits.names, limits.name_bytes
            ));
        }
        let charged = dictionary.charge(bytes_of(name));
        charged.map_err(|full| too_many_bytes(full.most))
    }

    fn learn_name(&mut self, job: &str, name: &str) -> Result<Option<NameId>, Full> {
        let job = self.jobs.get_mut(job);
        job.map(|job| job.samples.names_mut().learn(name))
            .transpose()
    }

    /// A job's ranks have changed: its names have the room that the present ranks bring. If ranks have left, the
    /// names that only those had may not fit any more.
    pub(crate) fn fit_names(&mut self, name: &str) {
        let share = Table::Names.of_a_gpu(self.devices.gpus().count());
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let most = share.saturating_mul(job.ranks.len());
        let names = job.samples.names_mut();
        names.resize(most);
        if names.bytes() > most {
            self.forget_names(name);
        }
    }

    /// Forgets the names that none of a job's connected ranks has told of: those of ranks that
    /// were here before, or connected anew.
    fn forget_names(&mut self, name: &str) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        // Incomplete iterations refer to kernels by the old numbers.
        job.samples.drop_pending();
        let connected: BTreeSet<SessionId> = job.ranks.sessions().collect();
        let told = self.hooks.dictionaries(&connected);
        job.samples.names_mut().keep(told);
    }
}

fn too_many_bytes(most: usize) -> String {
    format!("kernel names that take more than {most} bytes, the room of one of this node's GPUs")
}
