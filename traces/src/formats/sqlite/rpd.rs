//! rocmProfileData's .rpd, schema version 2: `rocpd_op` has all that ran on GPUs, with names in
//! `rocpd_string`.

use std::collections::{BTreeMap, HashMap};

use rusqlite::Row;

use litd_units::Nanos;

use super::{Tables, Trouble, label, optional};
use crate::gather::{Found, Gathered, KernelText, shortened};
use crate::timeline::KernelClass;

/// How rocmProfileData is told to record kernels.
const ADVICE: &str = "with runTracer.sh, or librpd_tracer.so in LD_PRELOAD";

/// Takes the host's calls that put work on GPUs: a table names calls and what they led to.
fn launches(tables: &Tables, gathered: &mut Gathered) -> Result<(), Trouble> {
    let mut led_to = HashMap::<u64, Vec<u64>>::new();
    let columns = ["api_id", "op_id"].map(Some);
    tables.scan("rocpd_api_ops", &columns, |_, row| {
        if let (Some(call), Some(work)) = (number_of(row, 0), number_of(row, 1)) {
            led_to.entry(call).or_default().push(work);
        }
        Ok(())
    })?;
    if led_to.is_empty() {
        return Ok(());
    }
    tables.scan("rocpd_api", &["id", "start"].map(Some), |_, row| {
        let work = number_of(row, 0).and_then(|call| led_to.get(&call));
        if let (Some(work), Some(at)) = (work, optional(row, 1)) {
            work.iter()
                .for_each(|&work| gathered.launch(None, work, at));
        }
        Ok(())
    })?;
    Ok(())
}

fn number_of(row: &Row<'_>, at: usize) -> Option<u64> {
    optional(row, at).and_then(|number| u64::try_from(number).ok())
}

/// Whether rocmProfileData made these tables.
pub(super) fn wrote(tables: &Tables) -> bool {
    tables.has("rocpd_op")
}

pub(super) fn read(tables: &Tables) -> Result<Found, Trouble> {
    let mut kinds = tables.texts("rocpd_string", &["string"], "id")?;
    let mut names = tables.texts("rocpd_string", &["string"], "id")?;
    let mut gathered = Gathered::default();
    let mut others = Others::default();
    let columns = [
        "opType_id",
        "description_id",
        "gpuId",
        "queueId",
        "start",
        "end",
        "id",
    ];
    let events = tables.scan("rocpd_op", &columns.map(Some), |number, row| {
        let kind = kinds.get(row.get(0)?)?.unwrap_or_default();
        if occupies_nothing(kind) {
            return Ok(());
        }
        let is_copy = kind.starts_with("Copy") || kind.starts_with("Fill");
        let name = names.get(row.get(1)?)?;
        let kernel = KernelText {
            name: name.unwrap_or(kind),
            class: is_copy.then_some(KernelClass::Copy),
            stream: &label(row, 3)?,
            device: &label(row, 2)?,
            start: row.get(4)?,
            end: row.get(5)?,
        };
        if name.is_none() && !is_copy && kind != KERNEL {
            others.add(kind, kernel.start, kernel.end);
        }
        gathered.launched(number, None, number_of(row, 6), &kernel)?;
        Ok(())
    })?;
    launches(tables, &mut gathered)?;
    let mut found = Found::new(gathered, events, ADVICE);
    found.notes = others.notes();
    Ok(found)
}

/// The type of an operation that is a kernel launched by itself.
const KERNEL: &str = "KernelExecution";

/// Whether operations of this type only order others: a GPU does nothing while they last. Those of
/// type `Task` are kernels that a HIP graph launched, each under its own name.
fn occupies_nothing(kind: &str) -> bool {
    ["Barrier", "Marker"].iter().any(|word| kind.contains(word))
}

/// Operations that have no name, of types that tell of no kernel and of no copy: how many there are of
/// each type, and how long they took. They count as computation under the name of their type, because a
/// GPU that works on them is not idle.
#[derive(Default)]
struct Others(BTreeMap<String, (u64, Nanos)>);

impl Others {
    fn add(&mut self, kind: &str, start: i64, end: i64) {
        let (count, time) = self.0.entry(shortened(kind)).or_default();
        *count += 1;
        *time = Nanos(time.0.saturating_add(end.saturating_sub(start)));
    }

    fn notes(self) -> Vec<String> {
        let note = |(kind, (count, time)): (String, (u64, Nanos))| {
            format!(
                "{count} operations of type {kind}, which take {:.3} ms together, have no name: they count as computation, and may be something else",
                time.to_millis().0
            )
        };
        self.0.into_iter().map(note).collect()
    }
}
