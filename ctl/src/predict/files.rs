//! Input of the commands: tables, calibrations, GPUs by their names.

use std::fs::OpenOptions;
use std::path::Path;

use litd_inference::fit::{Fitted, Half, half};
use litd_inference::gpu::Gpu;
use litd_inference::table::{Kind, Table, read};

/// No calibration is longer, bytes.
const LONGEST_FITTED: u64 = 256 << 20;

pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Reads a GPU's name.
pub fn gpu(name: &str) -> Result<Gpu, String> {
    Gpu::named(name).map_err(|error| error.to_string())
}

/// Reads the name of a kind of table.
pub fn kind(name: &str) -> Result<Kind, String> {
    Kind::named(name).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|it| it.name()).collect();
        format!("there are {}", known.join(", "))
    })
}

/// Reads the name of half a table.
pub fn half_named(name: &str) -> Result<Half, String> {
    match name {
        "train" => Ok(Half::Train),
        "test" => Ok(Half::Test),
        _ => Err("must be train or test".to_owned()),
    }
}

/// A measured table, or half of it.
pub fn table(path: &Path, kind: Option<Kind>, gpu: &Gpu, part: Option<Half>) -> Fallible<Table> {
    let of_path = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = litd_files::open(path, OpenOptions::new().read(true)).map_err(|it| of_path(&it))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let table = read(file, &name, kind, gpu).map_err(|it| of_path(&it))?;
    let table = match part {
        Some(part) => half(&table, part),
        None => table,
    };
    match table.rows.is_empty() {
        true => Err(of_path(&"has no row in this half: it has one shape only").into()),
        false => Ok(table),
    }
}

/// A calibration of this GPU.
pub fn fitted(path: &Path, gpu: &Gpu) -> Fallible<Fitted> {
    let of_path = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = litd_files::text(path, LONGEST_FITTED).map_err(|it| of_path(&it))?;
    Ok(Fitted::parse(&text, gpu).map_err(|it| of_path(&it))?)
}
