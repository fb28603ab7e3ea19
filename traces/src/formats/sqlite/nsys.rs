//! Nsight Systems' SQLite export (`nsys export --type sqlite`): tables named after CUPTI's
//! activities, made only where there was such activity. Columns: the user guide's "SQLite Export
//! Schema Reference".

use std::collections::BTreeSet;

use super::{Tables, Trouble, gpu_label, label, optional};
use crate::gather::{Found, Gathered, KernelText, launches};
use crate::timeline::KernelClass;

/// Table, name column, and what its records are called if that is no name of a kernel.
const TABLES: [(&str, &[&str], Option<&str>); 3] = [
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        &["demangledName", "shortName"],
        None,
    ),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", &[], Some("Memcpy")),
    ("CUPTI_ACTIVITY_KIND_MEMSET", &[], Some("Memset")),
];

/// How Nsight Systems is told to record kernels.
pub(in crate::formats) const ADVICE: &str =
    "with nsys profile --trace=cuda, and export that with nsys export --type sqlite";
/// The host's calls of CUDA.
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
/// Launches of CUDA graphs, where nsys recorded each as one.
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";

/// The process in a global number of a process or of a thread: the bits above name the machine, those
/// below the thread.
fn process_of(global: i64) -> i64 {
    global >> 24 & 0xFF_FFFF
}

/// The number that a call and its kernels share, which each process counts by itself.
fn correlation(process: i64, number: i64) -> Option<u64> {
    let number = u32::try_from(number).ok()?;
    Some(u64::try_from(process).ok()? << 32 | u64::from(number))
}

/// Whether Nsight Systems made these tables, with GPUs' or without.
pub(super) fn wrote(tables: &Tables) -> bool {
    let own = [
        "TARGET_INFO_GPU",
        "TARGET_INFO_SYSTEM_ENV",
        "META_DATA_EXPORT",
        GRAPHS,
    ];
    let activity = TABLES.iter().map(|(table, ..)| *table);
    activity.chain(own).any(|table| tables.has(table))
}

pub(super) fn read(tables: &Tables) -> Result<Found, Trouble> {
    let mut names = tables.texts("StringIds", &["value"], "id")?;
    let mut gathered = Gathered::default();
    let mut events = 0;
    let kernels = TABLES[0].0;
    let mut processes = BTreeSet::new();
    let process = tables.column(kernels, &["globalPid"]);
    tables.scan(kernels, &[process], |_, row| {
        processes.insert(row.get::<_, Option<i64>>(0)?);
        Ok(())
    })?;
    let several = processes.len() > 1;
    for (table, name, called) in TABLES {
        let columns = [
            tables.column(table, name),
            tables.column(table, &["globalPid"]),
            Some("deviceId"),
            Some("streamId"),
            Some("start"),
            Some("end"),
            tables.column(table, &["correlationId"]),
        ];
        events += tables.scan(table, &columns, |number, row| {
            let name = match called {
                Some(name) => name,
                None => names.get(row.get(0)?)?.unwrap_or("unnamed kernel"),
            };
            // The upper bits of a global process number name the machine.
            let process = process_of(row.get::<_, Option<i64>>(1)?.unwrap_or(0));
            let correlation = optional(row, 6).and_then(|number| correlation(process, number));
            let kernel = KernelText {
                name,
                class: called.map(|_| KernelClass::Copy),
                stream: &label(row, 3)?,
                device: &gpu_label(&label(row, 2)?, &process.to_string(), several),
                start: row.get(4)?,
                end: row.get(5)?,
            };
            gathered.launched(number, None, correlation, &kernel)?;
            Ok(())
        })?;
    }
    let mut columns = Vec::from(["start", "correlationId", "globalTid", "nameId"].map(Some));
    let has =
        |column: &Option<&str>| column.is_some_and(|one| tables.column(CALLS, &[one]).is_some());
    if columns.iter().all(has) {
        columns.push(tables.column(CALLS, &["end"]));
        tables.scan(CALLS, &columns, |_, row| {
            let name = names.get(optional(row, 3))?.unwrap_or_default();
            let [at, number, thread] = [0, 1, 2].map(|column| optional(row, column));
            if let (Some(at), Some(number), Some(thread), true) =
                (at, number, thread, launches(name))
                && let Some(correlation) = correlation(process_of(thread), number)
            {
                gathered.launch_until(None, correlation, (at, optional(row, 4)));
            }
            Ok(())
        })?;
    }
    let graphs = tables.scan(GRAPHS, &[], |_, _| Ok(()))?;
    let of_graphs = format!(
        "{}, recorded as one; record again with nsys profile --trace=cuda --cuda-graph-trace=node",
        match graphs {
            1 => "one launch of a CUDA graph".to_owned(),
            graphs => format!("{graphs} launches of CUDA graphs, each"),
        }
    );
    Ok(Found {
        other: (graphs > 0).then_some(of_graphs),
        ..Found::new(gathered, events, ADVICE)
    })
}
