//! How long whole frontiers take: `cargo bench -p litd-planner`.

use std::path::Path;
use std::time::Instant;

use litd_planner::{Frontier, Graph, Problem, Spec};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/planner/dags");
    for name in ["n2_m8", "n2_m128", "n4_m32", "n8_m8", "n8_m32", "n8_m128"] {
        let read = |file: String| std::fs::read_to_string(folder.join(file));
        let graph: Graph = read(format!("dag_{name}.csv"))?.parse()?;
        let curves = read(format!("spec_{name}_tau1ms.json"))?
            .parse::<Spec>()?
            .curves()?;
        let problem = Problem::new(graph, |kind| curves.get(kind).cloned())?;
        let start = Instant::now();
        let frontier = Frontier::characterise(&problem);
        println!("{name} {} {:?}", frontier.len(), start.elapsed());
    }
    Ok(())
}
