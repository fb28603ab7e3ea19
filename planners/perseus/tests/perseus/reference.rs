//! Frontiers against the reference data, which others computed.

use crate::common::{SIZES, read, reference, reference_problem};
use litd_planner::{Frontier, certificate};

/// The relative difference that is allowed: what rounding to nanojoules leaves in the reference.
const TOLERANCE: f64 = 1e-8;

#[test]
fn every_point_of_every_reference_frontier_comes_out() {
    let Some(folder) = reference() else { return };
    for size @ (stages, microbatches) in SIZES {
        let problem = reference_problem(&folder, size);
        let frontier = Frontier::characterise(&problem);
        let name = format!("frontiers/exact_n{stages}_m{microbatches}.csv");
        let text = read(&folder.join(&name));
        let wanted: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(frontier.len(), wanted.len(), "{name}");
        for (point, line) in frontier.points().zip(wanted) {
            let mut fields = line.split(',');
            let time: u32 = fields.next().unwrap().parse().unwrap();
            let cost: f64 = fields.next().unwrap().parse().unwrap();
            assert_eq!(point.time.0, time, "{name}");
            let difference = (point.cost.0 - cost).abs() / cost;
            assert!(
                difference < TOLERANCE,
                "{name} at {time}: {} against {cost}",
                point.cost
            );
        }
    }
}

#[test]
fn every_point_has_its_certificate() {
    let Some(folder) = reference() else { return };
    for size in SIZES {
        let problem = reference_problem(&folder, size);
        Frontier::observed(&problem, |state| {
            let fault = certificate::check(&problem, &state.certificate()).err();
            assert_eq!(fault, None, "{size:?} at {}", state.point.time);
        });
    }
}
