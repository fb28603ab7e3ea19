//! How long whole frontiers take: `cargo bench -p litd-planner`.

use std::time::Instant;

use litd_planner::{Frontier, Pricing, Problem, Rounding, Schedule, synthetic};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let args: Vec<u32> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let sizes = if args.len() == 2 {
        vec![(args[0], args[1])]
    } else {
        vec![
            (2, 8),
            (2, 32),
            (4, 8),
            (4, 32),
            (8, 8),
            (8, 32),
            (8, 128),
            (16, 128),
        ]
    };
    for (stages, microbatches) in sizes {
        let pricing = Pricing {
            rounding: Rounding::Down,
            ..Pricing::default()
        };
        let (spec, _) = synthetic::profile(stages, 1).price(&pricing)?;
        let curves = spec.curves()?;
        let graph = Schedule::OneForwardOneBackward.graph(stages, microbatches)?;
        let problem = Problem::new(graph, |kind| curves.get(kind).cloned())?;
        let start = Instant::now();
        let frontier = Frontier::characterise(&problem);
        println!(
            "{stages}x{microbatches} {} {:?}",
            frontier.len(),
            start.elapsed()
        );
    }
    Ok(())
}
