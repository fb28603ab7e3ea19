//! rocprof's `results.db`: `OPS` has what HIP ran, `COPY` its copies, `KERN` (once `A`) what was
//! dispatched; which are there depends on what was traced.

use super::{ADVICE, is_barrier, kernel_name};
use crate::formats::sqlite::{Tables, Trouble, label};
use crate::gather::{Found, Gathered, KernelText};
use crate::timeline::KernelClass;

/// Tables of kernels, the first with rows is read, and the columns of names in them.
const KERNELS: [(&str, &str); 3] = [("OPS", "Name"), ("KERN", "KernelName"), ("A", "KernelName")];
const COPIES: &str = "COPY";

/// Whether rocprof made these tables.
pub(in crate::formats) fn wrote(tables: &Tables) -> bool {
    let timed = |table: &str| tables.column(table, &["BeginNs"]).is_some();
    KERNELS.iter().any(|(table, _)| timed(table)) || timed(COPIES)
}

pub(in crate::formats) fn read(tables: &Tables) -> Result<Found, Trouble> {
    let mut gathered = Gathered::default();
    let mut events = 0;
    for (table, name) in KERNELS {
        if gathered.is_empty() {
            events += rows(tables, table, name, None, &mut gathered)?;
        }
    }
    events += rows(
        tables,
        COPIES,
        "Name",
        Some(KernelClass::Copy),
        &mut gathered,
    )?;
    Ok(Found::new(gathered, events, ADVICE))
}

fn rows(
    tables: &Tables,
    table: &str,
    name: &'static str,
    class: Option<KernelClass>,
    gathered: &mut Gathered,
) -> Result<u64, Trouble> {
    let timed = ["BeginNs", "EndNs"].map(|column| tables.column(table, &[column]));
    let [Some(begin), Some(end)] = timed else {
        return Ok(0);
    };
    let columns = [
        tables.column(table, &[name]),
        tables.column(table, &["dev-id", "gpu-id"]),
        tables.column(table, &["stream-id"]),
        tables.column(table, &["queue-id"]),
        Some(begin),
        Some(end),
    ];
    tables.scan(table, &columns, |number, row| {
        let told = label(row, 0)?;
        let name = kernel_name(&told);
        if is_barrier(name) {
            return Ok(());
        }
        let stream = crate::formats::tables::stream_label(&label(row, 2)?, &label(row, 3)?);
        let kernel = KernelText {
            name,
            class,
            stream: &stream,
            device: &label(row, 1)?,
            start: row.get(4)?,
            end: row.get(5)?,
        };
        Ok(gathered.kernel(number, &kernel)?)
    })
}
