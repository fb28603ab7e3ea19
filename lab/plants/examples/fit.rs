//! How the plant `lit-silicon` was chosen: 2,500 candidates by how unequal their GPUs are, the best
//! 70 of them by all targets. Prints the three best. SIMULATED; takes some two minutes.

use litd_plants::paper::{Target, policies, profile};
use litd_plants::{Dimension as D, Draw, Kind, WorkloadKind};
use litd_sim::rng::Rng;

/// What the search moves, each over its whole range.
const MOVED: [D; 10] = [
    D::Silicon,
    D::CoolingSpread,
    D::HotSlow,
    D::GemmActivity,
    D::TransferRatio,
    D::Contention,
    D::WaitContention,
    D::LowestVoltage,
    D::Knee,
    D::Inlet,
];

fn candidate(number: u64) -> Draw {
    let mut rng = Rng::stream(7, &[number]);
    let sibling = (rng.uniform() * 1000.0) as u64;
    let middle = Draw::middle(Kind::Mi300xx8, WorkloadKind::LlamaFsdp8b).sibling(sibling);
    let by_hand = [(D::Start, 0.5), (D::CurrentLimit, 1.5), (D::Outlier, 0.0)];
    let begun = by_hand
        .iter()
        .fold(middle, |draw, it| draw.with(it.0, it.1));
    MOVED.iter().fold(begun, |draw, &it| {
        draw.with(it, it.spec().at(rng.uniform()))
    })
}

fn score(targets: &[Target]) -> f64 {
    let off = |it: &Target| ((it.plant - it.paper.0) / it.paper.1).powi(2).min(9.0);
    targets.iter().map(off).sum()
}

fn main() {
    let mut first: Vec<(f64, Draw)> = (0..2_500)
        .map(candidate)
        .map(|draw| (score(&profile(&draw)), draw))
        .collect();
    first.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut last: Vec<(f64, Vec<Target>, Draw)> = first
        .into_iter()
        .take(70)
        .map(|(_, draw)| {
            let mut targets = policies(&draw);
            targets.extend(profile(&draw));
            (score(&targets), targets, draw)
        })
        .collect();
    last.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (score, targets, draw) in last.iter().take(3) {
        let met = targets.iter().filter(|it| it.is_met()).count();
        println!(
            "SIMULATED score {score:.2}, {met} met, sibling {}",
            draw.sibling
        );
        for dimension in MOVED {
            println!("  {} {:.3}", dimension.spec().name, draw.value(dimension));
        }
        for it in targets {
            println!(
                "    {} {:.4} (paper {} ± {})",
                it.name, it.plant, it.paper.0, it.paper.1
            );
        }
    }
}
