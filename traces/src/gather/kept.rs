//! What is kept of a file's text: each piece once, and no more than a sane profiler writes. A
//! compressed file of a few megabytes could fill any memory otherwise.

use std::collections::HashSet;
use std::sync::Arc;

use crate::timeline::{NameId, NameTable};

/// The longest name of a kernel, in bytes. Real ones reach 5,000.
const NAME_LIMIT: usize = 64 << 10;
/// The longest other text, in bytes.
const LABEL_LIMIT: usize = 4 << 10;
/// The most ranks in one list.
const RANKS_LIMIT: usize = 1 << 16;
/// The most text that is kept of one file, in bytes.
const TOTAL_LIMIT: usize = 64 << 20;
/// The most streams in one file.
const STREAM_LIMIT: usize = 4096;
/// The most devices in one file, or ranks: a node has no such thing.
pub(crate) const DEVICE_LIMIT: usize = 1024;
/// What to do about a limit.
const ADVICE: &str = "no profiler writes that; record the trace again";

/// The number of a stream or a device in its table: limits keep both small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Label(u16);

impl Label {
    fn of(id: NameId) -> Self {
        Self(u16::try_from(id.0).unwrap_or(u16::MAX))
    }

    pub(crate) fn id(self) -> NameId {
        NameId(self.0.into())
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

const _: () = assert!(STREAM_LIMIT < u16::MAX as usize);
const _: () = assert!(DEVICE_LIMIT < STREAM_LIMIT);

/// The text kept of one file. Errors tell what is wrong, without the file's name.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) names: NameTable,
    pub(crate) streams: NameTable,
    pub(crate) devices: NameTable,
    texts: HashSet<Arc<str>>,
    lists: HashSet<Arc<[u32]>>,
    /// Bytes of all of these.
    total: usize,
}

impl Kept {
    pub(crate) fn name(&mut self, raw: &str) -> Result<NameId, String> {
        within(raw.as_bytes(), NAME_LIMIT, "a kernel's name")?;
        intern(&mut self.names, raw, &mut self.total)
    }

    pub(crate) fn stream(&mut self, raw: &str) -> Result<Label, String> {
        within(raw.as_bytes(), LABEL_LIMIT, "the label of a stream")?;
        let id = intern(&mut self.streams, raw, &mut self.total)?;
        few(self.streams.len(), STREAM_LIMIT, "streams").map(|()| Label::of(id))
    }

    pub(crate) fn device(&mut self, raw: &str) -> Result<Label, String> {
        within(raw.as_bytes(), LABEL_LIMIT, "the label of a device")?;
        let id = intern(&mut self.devices, raw, &mut self.total)?;
        few(self.devices.len(), DEVICE_LIMIT, "devices").map(|()| Label::of(id))
    }

    /// A text of a collective, which is kept once; `what` names it in messages.
    pub(crate) fn text(
        &mut self,
        raw: Option<&str>,
        what: &str,
    ) -> Result<Option<Arc<str>>, String> {
        let Some(raw) = raw else { return Ok(None) };
        within(raw.as_bytes(), LABEL_LIMIT, what)?;
        if let Some(known) = self.texts.get(raw) {
            return Ok(Some(known.clone()));
        }
        charge(&mut self.total, raw.len())?;
        let text = Arc::<str>::from(raw);
        self.texts.insert(text.clone());
        Ok(Some(text))
    }

    /// A list of ranks, which is kept once.
    pub(crate) fn list(&mut self, list: Vec<u32>) -> Result<Arc<[u32]>, String> {
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
pub(crate) fn few(count: usize, limit: usize, what: &str) -> Result<(), String> {
    match count > limit {
        true => Err(format!(
            "the file has more than {limit} {what}, the most that are read; {ADVICE}"
        )),
        false => Ok(()),
    }
}

pub(crate) fn within(raw: &[u8], limit: usize, what: &str) -> Result<(), String> {
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

fn intern(table: &mut NameTable, text: &str, total: &mut usize) -> Result<NameId, String> {
    let known = table.len();
    let id = table.intern(text);
    if table.len() > known {
        charge(total, text.len())?;
    }
    Ok(id)
}
