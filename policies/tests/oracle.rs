//! Algorithms 2 and 3 against the oracle's golden cases.

use litd_policies::{Leads, Scale, adj_power_node, inc_power_gpu};
use litd_units::{Millis, Watts};
use serde::Deserialize;

const CASES: &str = include_str!("../../tests/data/oracle/control.json");

#[derive(Deserialize)]
struct Case {
    lead: Vec<Millis>,
    max_inc: Watts,
    scale: Scale,
    global_max_before: Millis,
    increase: Vec<Watts>,
    global_max_after: Millis,
    caps: Vec<Watts>,
    tdp: Watts,
    node_cap: Watts,
    new_caps: Vec<Watts>,
}

fn assert_close(got: &[Watts], want: &[Watts], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        let tolerance = Watts(1e-9) * want.0.abs().max(1.0);
        assert!(
            (*got - *want).abs() <= tolerance,
            "{what}: {got} is not {want}"
        );
    }
}

#[test]
fn algorithms_2_and_3_match_the_oracle() {
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    assert_eq!(cases.len(), 80);
    for (index, case) in cases.iter().enumerate() {
        let leads = Leads::new(case.lead.iter().map(|&lead| Some(lead))).unwrap();
        let (increase, global_max) =
            inc_power_gpu(&leads, case.max_inc, case.scale, case.global_max_before);
        assert_close(
            &increase,
            &case.increase,
            &format!("case {index}, increase"),
        );
        assert_eq!(global_max, case.global_max_after, "case {index}");
        let tdp = vec![case.tdp; case.caps.len()];
        let caps = adj_power_node(&increase, &case.caps, &tdp, case.node_cap);
        assert_close(&caps, &case.new_caps, &format!("case {index}, new_caps"));
    }
}
