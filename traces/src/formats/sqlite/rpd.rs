//! rocmProfileData's .rpd, schema version 2: `rocpd_op` has all that ran on GPUs, with names in
//! `rocpd_string`.

use super::{Tables, Trouble, label};
use crate::gather::{Found, Gathered, KernelText};
use crate::timeline::KernelClass;

/// How rocmProfileData is told to record kernels.
const ADVICE: &str = "with runTracer.sh, or librpd_tracer.so in LD_PRELOAD";

/// Whether rocmProfileData made these tables.
pub(super) fn wrote(tables: &Tables) -> bool {
    tables.has("rocpd_op")
}

pub(super) fn read(tables: &Tables) -> Result<Found, Trouble> {
    let mut kinds = tables.texts("rocpd_string", &["string"], "id")?;
    let mut names = tables.texts("rocpd_string", &["string"], "id")?;
    let mut gathered = Gathered::default();
    let columns = [
        "opType_id",
        "description_id",
        "gpuId",
        "queueId",
        "start",
        "end",
    ];
    let events = tables.scan("rocpd_op", &columns.map(Some), |number, row| {
        let kind = kinds.get(row.get(0)?)?.unwrap_or_default();
        let is_copy = kind.starts_with("Copy") || kind.starts_with("Fill");
        // Others are barriers, markers and tasks of the runtime.
        if !is_copy && kind != "KernelExecution" {
            return Ok(());
        }
        let name = names.get(row.get(1)?)?.unwrap_or(kind);
        let kernel = KernelText {
            name,
            class: is_copy.then_some(KernelClass::Copy),
            stream: &label(row, 3)?,
            device: &label(row, 2)?,
            start: row.get(4)?,
            end: row.get(5)?,
        };
        Ok(gathered.kernel(number, &kernel)?)
    })?;
    Ok(Found::new(gathered, events, ADVICE))
}
