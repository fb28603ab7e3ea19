//! The ledger finds what it is there to find, and only that.

use std::time::Duration;

use crate::common::{domains, rig, write};
use litd_rig::{Fault, Rig, Rule};
use litd_units::{Nanos, Watts};

const SECOND: i64 = 1_000_000_000;

/// A node under a driven clock, whose GPUs hold 700 W each, 5600 W together.
fn timed() -> Rig {
    let rig = rig();
    rig.ledger().set_time(Nanos::ZERO);
    rig
}

fn rules(rig: &Rig) -> Vec<Rule> {
    let violations = rig.ledger().check();
    violations.into_iter().map(|found| found.rule).collect()
}

#[test]
fn a_node_that_nobody_touches_is_in_order() {
    let rig = rig();
    assert!(rig.ledger().is_empty());
    assert!(rig.ledger().restored());
    assert_eq!(rig.ledger().budget(), Watts(5600.0));
    assert_eq!(rig.ledger().found()[7..], [700.0, 400.0, 400.0].map(Watts));
    assert_eq!(rules(&rig), []);
}

#[test]
fn a_sum_above_the_budget_counts_even_if_the_next_write_mends_it() {
    let rig = rig();
    let mut domains = domains(&rig);
    write(&mut domains, &[(0, 720.0), (1, 680.0)]);
    let violations = rig.ledger().check();
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].sequence, 1);
    let rule = Rule::Gpus {
        sum: Watts(5620.0),
        budget: Watts(5600.0),
    };
    assert_eq!(violations[0].rule, rule);
    let text = violations[0].to_string();
    for part in [
        "5620 W",
        "5600 W",
        "number 1",
        "device 0 from 700 W to 720 W",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn decreases_before_increases_are_in_order() {
    let rig = rig();
    let mut domains = domains(&rig);
    write(&mut domains, &[(1, 680.0), (0, 720.0)]);
    assert_eq!(rules(&rig), []);
    assert!(!rig.ledger().restored());
    write(&mut domains, &[(0, 700.0), (1, 700.0)]);
    assert_eq!(rules(&rig), []);
    assert!(rig.ledger().restored());
    let entries = rig.ledger().entries();
    let numbers: Vec<_> = entries.iter().map(|entry| entry.sequence).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(entries.is_sorted_by_key(|entry| entry.at));
}

#[test]
fn an_increase_after_a_lied_decrease_is_found() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().inject(1, Fault::Lie);
    write(&mut domains, &[(1, 680.0), (0, 720.0)]);
    assert!(matches!(rules(&rig)[..], [Rule::Gpus { .. }]));
}

#[test]
fn a_cap_outside_the_administrators_range_is_found() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.ledger().limit(0, Watts(400.0), Watts(650.0));
    write(&mut domains, &[(0, 400.0), (0, 650.0)]);
    assert_eq!(rules(&rig), []);
    write(&mut domains, &[(0, 399.0), (0, 651.0)]);
    assert!(
        matches!(
            rules(&rig)[..],
            [
                Rule::Range {
                    device: 0,
                    held: Watts(399.0),
                    ..
                },
                Rule::Range {
                    device: 0,
                    held: Watts(651.0),
                    ..
                }
            ]
        ),
        "{:?}",
        rules(&rig)
    );
}

#[test]
fn what_was_found_may_be_put_back_though_the_range_is_narrower() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.ledger().limit(0, Watts(400.0), Watts(650.0));
    write(&mut domains, &[(0, 600.0), (0, 700.0)]);
    assert_eq!(rules(&rig), []);
    assert!(rig.ledger().restored());
}

#[test]
fn gpus_may_have_what_cpus_give_only_where_that_is_the_policy() {
    for slosh in [false, true] {
        let rig = rig();
        let mut domains = domains(&rig);
        if slosh {
            rig.ledger().permit_slosh();
        }
        write(&mut domains, &[(8, 350.0), (0, 750.0)]);
        assert_eq!(rules(&rig).len(), usize::from(!slosh));
        // The sum is one watt more than was freed.
        write(&mut domains, &[(1, 701.0)]);
        let found = rules(&rig);
        assert_eq!(found.len(), if slosh { 1 } else { 2 });
        let is_node = matches!(found.last(), Some(Rule::Node { sum, most })
            if (*sum, *most) == (Watts(6401.0), Watts(6400.0)));
        assert_eq!(is_node, slosh, "{found:?}");
    }
}

#[test]
fn a_lower_budget_counts_from_its_deadline() {
    // Lowered in time: in order, whatever the way down.
    let rig = timed();
    let mut domains = domains(&rig);
    rig.ledger()
        .lower_budget(Watts(5500.0), Duration::from_secs(1));
    assert_eq!(rig.ledger().budget(), Watts(5600.0));
    write(&mut domains, &[(0, 650.0)]);
    rig.ledger().set_time(Nanos(SECOND));
    write(&mut domains, &[(1, 650.0)]);
    rig.ledger().set_time(Nanos(2 * SECOND));
    assert_eq!(rig.ledger().budget(), Watts(5500.0));
    assert_eq!(rules(&rig), []);
    // From then on it is the budget like any other.
    write(&mut domains, &[(0, 651.0)]);
    assert!(matches!(rules(&rig)[..], [Rule::Gpus { .. }]));
}

#[test]
fn a_budget_lowered_too_late_is_found_with_and_without_a_write() {
    let rig = timed();
    let mut domains = domains(&rig);
    rig.ledger()
        .lower_budget(Watts(5500.0), Duration::from_secs(1));
    write(&mut domains, &[(0, 650.0)]);
    rig.ledger().set_time(Nanos(SECOND + 1));
    let found = rules(&rig);
    assert!(
        matches!(&found[..], [Rule::Late { due: Nanos(SECOND), broken }]
            if matches!(**broken, Rule::Gpus { sum: Watts(5550.0), .. })),
        "{found:?}"
    );
    // Going down at last is no further violation; going up again is.
    write(&mut domains, &[(1, 680.0)]);
    assert_eq!(rules(&rig).len(), 1);
    write(&mut domains, &[(1, 690.0)]);
    assert_eq!(rules(&rig).len(), 2);
}

#[test]
fn the_ledgers_own_clock_lets_deadlines_pass() {
    let rig = rig();
    rig.ledger()
        .lower_budget(Watts(5500.0), Duration::from_millis(10));
    std::thread::sleep(Duration::from_millis(30));
    assert!(matches!(rules(&rig)[..], [Rule::Late { .. }]));
}

#[test]
fn a_budget_below_what_was_found_allows_nothing_to_rise() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.ledger().set_budget(Watts(5500.0));
    write(&mut domains, &[(0, 650.0)]);
    assert_eq!(rules(&rig), []);
    write(&mut domains, &[(0, 651.0)]);
    assert!(matches!(rules(&rig)[..], [Rule::Gpus { .. }]));
}

#[test]
fn putting_back_what_was_found_under_a_lower_budget_must_be_permitted() {
    for permitted in [false, true] {
        let rig = rig();
        let mut domains = domains(&rig);
        write(&mut domains, &[(0, 600.0)]);
        rig.ledger().set_budget(Watts(5500.0));
        if permitted {
            rig.ledger().permit_found();
        }
        write(&mut domains, &[(0, 700.0)]);
        assert_eq!(rules(&rig).is_empty(), permitted);
        write(&mut domains, &[(1, 701.0)]);
        assert!(!rules(&rig).is_empty());
    }
}

#[test]
fn what_others_do_is_not_litds_fault_but_must_not_be_made_worse() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().reset(0).unwrap();
    rig.hardware().foreign_set(1, Watts(250.0)).unwrap();
    rig.hardware().foreign_set(1, Watts(750.0)).unwrap();
    assert_eq!(rules(&rig), []);
    // 5700 W are held: the way down is free.
    write(&mut domains, &[(2, 690.0), (0, 720.0)]);
    assert_eq!(rules(&rig), []);
    write(&mut domains, &[(2, 700.0)]);
    assert!(matches!(rules(&rig)[..], [Rule::Gpus { .. }]));
}

#[test]
fn restored_leaves_out_what_belongs_to_others() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().foreign_set(0, Watts(500.0)).unwrap();
    rig.hardware().reset(1).unwrap();
    assert!(rig.ledger().restored());
    // litd must restore a cap that it takes over.
    write(&mut domains, &[(0, 510.0)]);
    assert!(!rig.ledger().restored());
    write(&mut domains, &[(0, 700.0), (8, 300.0)]);
    assert!(!rig.ledger().restored());
    write(&mut domains, &[(8, 400.0)]);
    assert!(rig.ledger().restored());
}
