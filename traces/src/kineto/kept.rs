//! What is kept of a file's text: each piece once, and no more than a sane profiler writes. A
//! compressed file of a few megabytes could fill any memory otherwise.

use std::collections::HashSet;
use std::sync::Arc;

use super::event::{RawCollective, decoded, ranks_of};
use crate::timeline::{Collective, NameId, NameTable};

/// The longest name of a kernel, in bytes. Real ones reach 5,000.
const NAME_LIMIT: usize = 64 << 10;
/// The longest other text, in bytes.
const LABEL_LIMIT: usize = 4 << 10;
/// The longest list of ranks, in bytes.
const RANKS_TEXT_LIMIT: usize = 256 << 10;
/// The most ranks in one list.
const RANKS_LIMIT: usize = 1 << 16;
/// The most text that is kept of one file, in bytes.
const TOTAL_LIMIT: usize = 64 << 20;
/// The most streams in one file.
const STREAM_LIMIT: usize = 4096;
/// The most devices in one file, or ranks: a node has no such thing.
pub(super) const DEVICE_LIMIT: usize = 1024;
/// What to do about a limit.
const ADVICE: &str = "no profiler writes that; record the trace again";

/// The text kept of one file. Errors tell what is wrong, without the file's name.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) names: NameTable,
    pub(super) streams: NameTable,
    pub(super) devices: NameTable,
    texts: HashSet<Arc<str>>,
    lists: HashSet<Arc<[u32]>>,
    /// Bytes of all of these.
    total: usize,
}

impl Kept {
    pub(super) fn name(&mut self, raw: &[u8]) -> Result<NameId, String> {
        within(raw, NAME_LIMIT, "a kernel's name")?;
        intern(&mut self.names, raw, &mut self.total)
    }

    pub(super) fn stream(&mut self, raw: &[u8]) -> Result<NameId, String> {
        within(raw, LABEL_LIMIT, "the label of a stream")?;
        let id = intern(&mut self.streams, raw, &mut self.total)?;
        few(self.streams.len(), STREAM_LIMIT, "streams").map(|()| id)
    }

    pub(super) fn device(&mut self, raw: &[u8]) -> Result<NameId, String> {
        within(raw, LABEL_LIMIT, "the label of a device")?;
        let id = intern(&mut self.devices, raw, &mut self.total)?;
        few(self.devices.len(), DEVICE_LIMIT, "devices").map(|()| id)
    }

    /// The metadata of a collective; what it repeats of others is shared with them.
    pub(super) fn collective(&mut self, raw: &RawCollective<'_>) -> Result<Collective, String> {
        Ok(Collective {
            name: self.text(raw.name, "the name of a collective")?,
            in_elements: raw.in_elements,
            out_elements: raw.out_elements,
            group_size: raw.group_size,
            dtype: self.text(raw.dtype, "the dtype of a collective")?,
            process_group: self.text(raw.process_group, "the name of a process group")?,
            ranks: self.list(raw.ranks)?,
            sequence: raw.sequence,
        })
    }

    fn text(&mut self, raw: Option<&[u8]>, what: &str) -> Result<Option<Arc<str>>, String> {
        let Some(raw) = raw else { return Ok(None) };
        within(raw, LABEL_LIMIT, what)?;
        let text = decoded(raw);
        if let Some(known) = self.texts.get(&*text) {
            return Ok(Some(known.clone()));
        }
        charge(&mut self.total, text.len())?;
        let text = Arc::<str>::from(text);
        self.texts.insert(text.clone());
        Ok(Some(text))
    }

    fn list(&mut self, raw: Option<&[u8]>) -> Result<Arc<[u32]>, String> {
        let Some(raw) = raw else {
            return Ok(Arc::default());
        };
        within(raw, RANKS_TEXT_LIMIT, "the list of a process group's ranks")?;
        let list = ranks_of(raw);
        few(list.len(), RANKS_LIMIT, "ranks in one process group")?;
        if let Some(known) = self.lists.get(&*list) {
            return Ok(known.clone());
        }
        charge(&mut self.total, size_of_val(&*list))?;
        let list = Arc::<[u32]>::from(list);
        self.lists.insert(list.clone());
        Ok(list)
    }
}

/// Refuses more of something than any node has.
pub(super) fn few(count: usize, limit: usize, what: &str) -> Result<(), String> {
    match count > limit {
        true => Err(format!(
            "the file has more than {limit} {what}, the most that are read; {ADVICE}"
        )),
        false => Ok(()),
    }
}

fn within(raw: &[u8], limit: usize, what: &str) -> Result<(), String> {
    match raw.len() > limit {
        true => Err(format!(
            "{what} has {} bytes, more than the {limit} that are read; {ADVICE}",
            raw.len()
        )),
        false => Ok(()),
    }
}

fn charge(total: &mut usize, bytes: usize) -> Result<(), String> {
    *total = total.saturating_add(bytes);
    match *total > TOTAL_LIMIT {
        true => Err(format!(
            "the names and metadata of kernels take more than {} MiB, the most that is kept of one file; record fewer iterations",
            TOTAL_LIMIT >> 20
        )),
        false => Ok(()),
    }
}

fn intern(table: &mut NameTable, raw: &[u8], total: &mut usize) -> Result<NameId, String> {
    let known = table.len();
    let text = decoded(raw);
    let id = table.intern(&text);
    if table.len() > known {
        charge(total, text.len())?;
    }
    Ok(id)
}
