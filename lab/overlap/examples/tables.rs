//! The paper's Table 1 and its case study (Figure 3), SIMULATED:
//! `cargo run -p litd-overlap --example tables`.

use litd_kareus::{Candidate, ProfilerError};
use litd_overlap::gpu::A100;
use litd_overlap::paper::{self, Row};
use litd_overlap::{Method, Simulated};
use litd_units::Hertz;

fn table_1() -> Result<(), ProfilerError> {
    println!("SIMULATED: Table 1. Each number is followed by the paper's.");
    println!("system                     time s         static J       dynamic J        total J");
    for (it, paper) in paper::table_1(A100)?.iter().zip(paper::TABLE_1) {
        let total = |row: &Row| (row.resting + row.dynamic).0;
        println!(
            "{:<24} {:5.2} {:5.2} {:8.0} {:6.0} {:8.0} {:6.0} {:8.0} {:6.0}",
            it.system,
            it.time.0 / 1e3,
            paper.time.0 / 1e3,
            it.resting.0,
            paper.resting.0,
            it.dynamic.0,
            paper.dynamic.0,
            total(it),
            total(&paper),
        );
    }
    Ok(())
}

fn figure_3() -> Result<(), ProfilerError> {
    println!(
        "\nSIMULATED: Figure 3's partition. Launch 0 norm, 1 linear_0, 2 rope, 3 attention, 4 linear_1."
    );
    println!("                     MHz SMs launch   time ms  energy J  exposed ms");
    let simulated = Simulated::new(A100, Method::default(), 0);
    let partition = paper::figure_3();
    let cases = [
        ("(a) too few SMs", 1_410.0, 2, 1),
        ("(b)", 1_410.0, 4, 1),
        ("(c) too many SMs", 1_410.0, 20, 1),
        ("(d) beside norm", 1_410.0, 4, 0),
        ("(e) (d), slower", 1_110.0, 4, 0),
        ("(f) beside rope", 1_110.0, 4, 2),
    ];
    let show = |name: &str, candidate: Candidate| -> Result<(), ProfilerError> {
        let truth = simulated.truth(&partition, candidate)?;
        let execution = A100.partition(&partition, candidate, truth.clock);
        println!(
            "{name:<18} {:6.0} {:3} {:6} {:9.3} {:9.4} {:11.3}",
            candidate.clock.0 / 1e6,
            candidate.sms,
            candidate.launch,
            truth.time.0,
            truth.energy.0,
            execution.exposed().0,
        );
        Ok(())
    };
    for (name, megahertz, sms, launch) in cases {
        let clock = Hertz(megahertz * 1e6);
        show(name, Candidate { clock, sms, launch })?;
    }
    println!("the least energy at each clock:");
    for megahertz in [1_410.0, 1_350.0, 1_290.0, 1_200.0, 1_110.0, 1_005.0, 900.0] {
        let clock = Hertz(megahertz * 1e6);
        let mut best = None;
        for (sms, launch) in (1..=30).flat_map(|sms| (0..5).map(move |launch| (sms, launch))) {
            let candidate = Candidate { clock, sms, launch };
            let energy = simulated.truth(&partition, candidate)?.energy;
            if best.is_none_or(|(least, _)| energy < least) {
                best = Some((energy, candidate));
            }
        }
        if let Some((_, candidate)) = best {
            show("", candidate)?;
        }
    }
    Ok(())
}

fn main() -> Result<(), ProfilerError> {
    table_1()?;
    figure_3()
}
