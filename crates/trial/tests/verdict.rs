//! Conclusions of reports, on blocks made by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use litd_trial::report::About;
use litd_trial::{Arm, Block, Design, Prices, Report, State, Times, Verdict};
use litd_units::{Millis, Nanos, Watts};

const QUADS: u32 = 8;

fn design(same: bool) -> Design {
    Design {
        quads: QUADS,
        block: Nanos(300_000_000_000),
        settle: Nanos(60_000_000_000),
        iterations: 30,
        seed: 1,
        same,
    }
}

fn about(prices: Option<Prices>) -> About {
    About {
        job: "train".to_owned(),
        policy: "gpu-red".to_owned(),
        simulated: false,
        gpus: 8,
        prices,
        started_unix: 0.0,
    }
}

/// Blocks with so much more throughput and power in B, and hardly any noise.
fn blocks(design: &Design, throughput: f64, power: f64) -> Vec<Block> {
    let block = |index: u32| {
        let arm = design.arm(index);
        let (faster, hotter) = match arm {
            Arm::Found => (1.0, 1.0),
            Arm::Balanced => (1.0 + throughput, 1.0 + power),
        };
        let noise = 1.0 + f64::from(index * 7919 % 13) * 1e-6;
        Block {
            arm,
            times: Times {
                mean: Millis(1000.0 * noise / faster),
                counted: 100,
                excluded: 2,
                profiled: 10,
            },
            power: Some(Watts(5600.0 * hotter * noise)),
            node_power: None,
        }
    };
    (0..design.blocks()).map(block).collect()
}

fn concluded(prices: Option<Prices>, throughput: f64, power: f64) -> Report {
    let design = design(false);
    let mut report = Report::new(about(prices), design);
    report.complete(&blocks(&design, throughput, power));
    report
}

const PRICES: Option<Prices> = Some(Prices {
    energy_per_kwh: 0.14,
    gpu_hour: 2.5,
});

#[test]
fn four_percent_of_power_is_outweighed_by_two_thousandths_of_speed() {
    // 4 % of 700 W at 0.14 per kWh is 0.004 an hour, and so is 0.16 % of 2.50.
    let worth = concluded(PRICES, 0.0, -0.04).net_value.unwrap();
    assert!((worth.mean - 0.003_92).abs() < 1e-5, "{worth:?}");
    assert_eq!(concluded(PRICES, 0.0, -0.04).verdict, Verdict::Pays);
    assert_eq!(concluded(PRICES, -0.0009, -0.04).verdict, Verdict::Pays);
    assert_eq!(concluded(PRICES, -0.0018, -0.04).verdict, Verdict::Harm);
    assert_eq!(
        concluded(PRICES, -0.0009, -0.01).verdict,
        Verdict::DoesNotPay
    );
    let even = concluded(PRICES, -0.001_568, -0.04).net_value.unwrap();
    assert!(even.mean.abs() < 2e-5, "{even:?}");
}

#[test]
fn without_prices_hardly_any_speed_may_be_lost() {
    assert_eq!(concluded(None, -0.0004, -0.04).verdict, Verdict::Pays);
    assert_eq!(concluded(None, -0.0007, -0.04).verdict, Verdict::DoesNotPay);
    assert_eq!(concluded(None, 0.02, 0.02).verdict, Verdict::Pays);
    // Neither watts nor speed: nothing is gained.
    assert_eq!(concluded(None, 0.0, 0.0).verdict, Verdict::Undecided);
    assert_eq!(concluded(None, 0.0, 0.0).net_value, None);
}

#[test]
fn saved_and_faster_are_said_only_of_a_complete_trial() {
    let whole = concluded(None, 0.02, -0.03);
    assert!(whole.saved() && whole.faster() && !whole.slower());
    let design = design(false);
    let mut half = Report::new(about(None), design);
    half.state = State::Running;
    half.update(&blocks(&design, 0.02, -0.03)[..20]);
    assert_eq!((half.verdict, half.blocks), (Verdict::Open, 20));
    assert!(!half.saved() && !half.faster());
    half.abort("the job has ended");
    assert!(!half.saved() && !half.faster());
    assert_eq!(half.why, "the job has ended");
}

#[test]
fn an_arm_that_loses_more_iterations_is_not_compared() {
    let design = design(false);
    let mut all = blocks(&design, 0.02, -0.03);
    for block in all.iter_mut().filter(|block| block.arm == Arm::Balanced) {
        block.times.excluded = 20;
    }
    let mut report = Report::new(about(None), design);
    report.complete(&all);
    assert_eq!(report.verdict, Verdict::Invalid);
    assert!(!report.saved() && !report.faster());
}

#[test]
fn an_a_a_trial_that_differs_is_invalid() {
    let design = design(true);
    let mut report = Report::new(about(PRICES), design);
    report.complete(&blocks(&design, 0.01, 0.0));
    assert_eq!(report.verdict, Verdict::Invalid);
    report.complete(&blocks(&design, 0.0, 0.0));
    assert_eq!(report.verdict, Verdict::Zero);
}

#[test]
fn a_block_without_power_costs_the_power_and_nothing_else() {
    let design = design(false);
    let mut all = blocks(&design, 0.02, -0.03);
    all[5].power = None;
    let mut report = Report::new(about(PRICES), design);
    report.complete(&all);
    assert_eq!(report.throughput.unwrap().count, QUADS);
    assert_eq!(report.power.unwrap().count, QUADS - 1);
    // A value of some quads only would be another experiment's.
    assert_eq!(report.net_value, None);
}
