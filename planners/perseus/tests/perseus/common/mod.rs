//! The reference data beside the project, where it is.

use std::fs;
use std::path::{Path, PathBuf};

use litd_planner::{Graph, Problem};
use litd_profiles::Spec;

/// Stages and microbatches of the reference graphs.
pub const SIZES: [(u32, u32); 9] = [
    (2, 8),
    (2, 32),
    (2, 128),
    (4, 8),
    (4, 32),
    (4, 128),
    (8, 8),
    (8, 32),
    (8, 128),
];

/// The folder of the reference data; says so where it is absent.
pub fn reference() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/planner");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: ../shared/planner is absent");
    None
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A graph and its costs, as files.
pub fn problem(graph: &str, spec: &str) -> Result<Problem, Box<dyn std::error::Error>> {
    let graph: Graph = graph.parse()?;
    let curves = spec.parse::<Spec>()?.curves()?;
    Ok(Problem::new(graph, |kind| curves.get(kind).cloned())?)
}

/// A problem of the reference data.
pub fn reference_problem(folder: &Path, (stages, microbatches): (u32, u32)) -> Problem {
    let name = format!("n{stages}_m{microbatches}");
    let graph = read(&folder.join(format!("dags/dag_{name}.csv")));
    let spec = read(&folder.join(format!("dags/spec_{name}_tau1ms.json")));
    problem(&graph, &spec).unwrap()
}
