//! Who makes room: whoever has most, and of equal ones the oldest, but never who has told just now.

use litd_api::{GoodStack, OffStack, Stacks};
use litd_proto::Profiling;
use proptest::prelude::*;

use super::tests::{STACK, pod};
use super::{KEPT, Profilers, Tenant};

/// An id as directory services give them out, and as a rootless user has thousands of.
fn unnamed(number: u32) -> Tenant {
    Tenant::from(1_200_000_000 + number)
}

/// A pod with a random name: kubelets name pods at random, so a name says nothing of a pod's age.
fn random_pod(number: u32) -> Tenant {
    pod(number.wrapping_mul(0x9E37_79B1))
}

/// What is on disk, read by the next litd.
fn restarted(profilers: &Profilers) -> Profilers {
    let off = serde_json::to_vec(profilers.off()).unwrap();
    let good = serde_json::to_vec(profilers.good()).unwrap();
    Profilers::with(
        serde_json::from_slice(&off).unwrap(),
        serde_json::from_slice(&good).unwrap(),
    )
}

fn is_off(profilers: &mut Profilers, whose: &Tenant, software: &str) -> bool {
    profilers.tell(whose, software, "asks").0 == Profiling::Off
}

/// For whom it is off, without a first use of those for whom it is not.
fn are_off(profilers: &Profilers, those: impl Iterator<Item = Tenant>) -> Vec<bool> {
    let off = |it: Tenant| is_off(&mut profilers.clone(), &it, STACK);
    those.map(off).collect()
}

/// Of 200 that came one after the other those whose results are kept.
fn latest_64() -> Vec<bool> {
    (0..200).map(|number| number >= 200 - KEPT).collect()
}

#[test]
fn sixty_four_ids_that_may_be_one_users_keep_nobody_from_a_result_of_his_own() {
    for whose in [1000, 0, 99_999].map(Tenant::from) {
        let mut profilers = Profilers::default();
        for number in 0..64 {
            profilers.turn_off(&unnamed(number), STACK, "it hangs", 0.0);
        }
        assert!(!is_off(&mut profilers, &whose, STACK));
        assert!(profilers.turn_off(&whose, STACK, "it hangs", 0.0).is_some());
        assert!(is_off(&mut profilers, &whose, STACK));
        // Neither does it become new again, nor do more ids take it from him.
        assert_eq!(profilers.turn_off(&whose, STACK, "it hangs", 0.0), None);
        for number in 64..300 {
            profilers.turn_off(&unnamed(number), STACK, "it hangs", 0.0);
        }
        assert!(is_off(&mut restarted(&profilers), &whose, STACK));
    }
}

#[test]
fn sixty_four_ids_keep_no_two_users_nor_root_from_turning_it_off_for_all() {
    for those in [&[1000, 1001][..], &[0]] {
        let mut profilers = Profilers::default();
        for number in 0..200 {
            profilers.turn_off(&unnamed(number), STACK, "it hangs", 0.0);
        }
        for &uid in those {
            assert!(!is_off(&mut profilers, &1002.into(), STACK));
            profilers.turn_off(&uid.into(), STACK, "it hangs", 0.0);
        }
        // Whoever tells afterwards undoes nothing.
        for number in 0..200 {
            profilers.turn_off(&unnamed(number), STACK, "it hangs", 0.0);
            profilers.turn_off(&(2000 + number).into(), STACK, "it hangs", 0.0);
            profilers.turn_off(&random_pod(number), STACK, "it hangs", 0.0);
            assert!(is_off(&mut profilers, &1002.into(), STACK));
        }
        let off = &restarted(&profilers).off[0];
        assert!(off.is_for_all() && off.uids.len() <= KEPT + 1 && off.pods.len() <= KEPT);
        assert_eq!(off.uids.contains(&0), those == [0]);
    }
}

#[test]
fn a_result_of_ones_own_outlives_those_who_had_turned_it_off_for_all() {
    let mut profilers = Profilers::default();
    for uid in [1000, 1001, 1002] {
        profilers.turn_off(&uid.into(), STACK, "it hangs", 0.0);
    }
    // Room is made again and again by the two who have most.
    for stack in 0..200 {
        for uid in [1000, 1001] {
            let software = format!("torch {stack}");
            profilers.turn_off(&uid.into(), &software, "made up", 0.0);
        }
    }
    let told = [1000, 1001, 1002].map(Tenant::from).into_iter();
    assert_eq!(are_off(&profilers, told), [false, false, true]);
}

#[test]
fn of_200_pods_in_turn_the_latest_64_are_remembered_by_what_did_harm_to_them() {
    let mut profilers = Profilers::default();
    for number in 0..200 {
        let whose = random_pod(number);
        assert!(profilers.turn_off(&whose, STACK, "it hangs", 0.0).is_some());
        assert_eq!(profilers.turn_off(&whose, STACK, "it hangs", 0.0), None);
        // Their age is on disk, too.
        profilers = restarted(&profilers);
    }
    let all = (0..200).map(random_pod);
    assert_eq!(are_off(&profilers, all), latest_64());
}

#[test]
fn of_200_pods_in_turn_the_latest_64_are_remembered_by_what_was_good_for_them() {
    let mut profilers = Profilers::default();
    for number in 0..200 {
        assert!(profilers.is_good(&random_pod(number), STACK, 0.0));
        assert!(!profilers.is_good(&random_pod(number), STACK, 0.0));
        profilers = restarted(&profilers);
    }
    let is_safe = |number| profilers.clone().tell(&random_pod(number), STACK, "a").0;
    let safe: Vec<bool> = (0..200).map(|it| is_safe(it) == Profiling::Safe).collect();
    assert_eq!(safe, latest_64());
}

#[test]
fn of_200_pods_with_a_stack_each_the_latest_64_are_remembered() {
    let mut profilers = Profilers::default();
    let software = |number| format!("torch {}", random_pod(number));
    for number in 0..200 {
        let whose = random_pod(number);
        profilers.turn_off(&whose, &software(number), "it hangs", 0.0);
        profilers.is_good(&whose, &format!("good {number}"), 0.0);
        profilers = restarted(&profilers);
    }
    for (number, kept) in (0..200).zip(latest_64()) {
        let (whose, mut later) = (random_pod(number), profilers.clone());
        assert_eq!(is_off(&mut later, &whose, &software(number)), kept);
        let (told, _) = later.tell(&whose, &format!("good {number}"), "a");
        assert_eq!(told == Profiling::Safe, kept, "{number}");
    }
}

/// An old stack that somebody has reported anew is not the oldest any more.
#[test]
fn a_new_report_of_an_old_stack_is_not_the_first_to_go() {
    let mut profilers = Profilers::default();
    let software = |number: u32| format!("torch {number}");
    for number in 1..=64 {
        profilers.turn_off(&pod(number), &software(number), "it hangs", 0.0);
        profilers.is_good(&pod(number), &format!("good {number}"), 0.0);
    }
    profilers.turn_off(&pod(0), "torch 1", "it hangs", 0.0);
    profilers.is_good(&pod(0), "good 1", 0.0);
    for number in 65..100 {
        profilers.turn_off(&pod(number), &software(number), "it hangs", 0.0);
        profilers.is_good(&pod(number), &format!("good {number}"), 0.0);
    }
    let mut next = restarted(&profilers);
    assert!(is_off(&mut next, &pod(0), "torch 1"));
    assert_eq!(next.tell(&pod(0), "good 1", "a").0, Profiling::Safe);
}

#[test]
fn of_200_pods_that_try_a_stack_the_latest_64_go_on_trying() {
    let mut profilers = Profilers::default();
    for number in 0..200 {
        profilers.tell(&random_pod(number), STACK, "first");
        profilers.passed(&random_pod(number), STACK, "first");
    }
    let is_safe = |number| profilers.clone().tell(&random_pod(number), STACK, "b").0;
    let safe: Vec<bool> = (0..200).map(|it| is_safe(it) == Profiling::Safe).collect();
    assert_eq!(safe, latest_64());
}

#[test]
fn stacks_of_administrators_and_of_root_keep_nobody_from_a_result_of_his_own() {
    let mut profilers = Profilers::default();
    let number_64 = |kind: &str| (0..64).map(|it| format!("{kind} {it}")).collect::<Vec<_>>();
    let good = number_64("good").into_iter().map(|software| GoodStack {
        software,
        users: 0,
        for_all: true,
    });
    let off = number_64("off").into_iter().map(|software| OffStack {
        software,
        reason: "an administrator says so".to_owned(),
        told_by: None,
        for_all: true,
    });
    let stacks = Stacks {
        good: good.collect(),
        off: off.collect(),
    };
    profilers.import(&stacks, 0.0);
    for number in 0..200 {
        let software = format!("torch {number}");
        profilers.turn_off(&unnamed(number), &software, "it hangs", 0.0);
        assert!(is_off(&mut profilers, &unnamed(number), &software));
        profilers.is_good(&random_pod(number), &software, 0.0);
        let (told, _) = profilers.tell(&random_pod(number), &software, "a");
        assert_eq!(told, Profiling::Safe);
    }
    // Nor do theirs cost an administrator his.
    for software in number_64("off") {
        assert!(is_off(&mut profilers, &1000.into(), &software));
    }
    for software in number_64("good") {
        let (told, _) = profilers.tell(&1000.into(), &software, "a");
        assert_eq!(told, Profiling::Safe);
    }
    for number in 0..65 {
        profilers.turn_off(&0.into(), &format!("root's {number}"), "it hangs", 0.0);
    }
    assert!(is_off(&mut profilers, &1000.into(), "root's 64"));
    assert!(!is_off(&mut profilers, &1000.into(), "root's 0"));
    assert_eq!(profilers.off().len(), 2 * KEPT);
}

#[test]
fn a_file_with_doubles_or_with_too_many_is_read_to_what_is_kept() {
    let numbers: Vec<u32> = (0..300).map(|it| 100_000 + it % 150).collect();
    let text =
        format!(r#"[{{"software":"{STACK}","reason":"","unix_seconds":1.5,"uids":{numbers:?}}}]"#);
    let profilers = Profilers::with(serde_json::from_str(&text).unwrap(), Vec::new());
    let kept: Vec<u32> = (100_086..100_150).collect();
    assert_eq!(profilers.off()[0].uids, kept);
}

/// Somebody who reports: users of the node's own and root, ids that may be one user's, and users in pods.
fn anybody() -> impl Strategy<Value = Tenant> {
    prop_oneof![
        1 => Just(Tenant::from(0)),
        2 => (1000..1100_u32).prop_map(Tenant::from),
        4 => (0..100_u32).prop_map(unnamed),
        4 => (0..100_u32).prop_map(random_pod),
        2 => (0..100_u32, 0..3_u32).prop_map(|(uid, number)| Tenant::in_pod(uid, number)),
    ]
}

/// Some stacks are reported by many, and most by few.
fn any_stack() -> impl Strategy<Value = String> {
    prop_oneof![0..3_u32, 0..200_u32].prop_map(|number| format!("torch {number}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn whoever_reports_the_last_ones_own_report_holds(
        reports in prop::collection::vec((anybody(), any_stack(), 0..4_u32), 1..600),
        restarts in prop::collection::vec(any::<bool>(), 600),
    ) {
        let mut profilers = Profilers::default();
        for ((whose, software, kind), restarts) in reports.into_iter().zip(restarts) {
            let was_off = is_off(&mut profilers.clone(), &whose, &software);
            let wanted = match kind {
                0 => {
                    profilers.is_good(&whose, &software, 0.0);
                    if was_off { Profiling::Off } else { Profiling::Safe }
                }
                1 => {
                    let (told, _) = profilers.tell(&whose, &software, "asks");
                    prop_assert_eq!(told == Profiling::Off, was_off);
                    told
                }
                _ => {
                    profilers.turn_off(&whose, &software, "it hangs", 0.0);
                    Profiling::Off
                }
            };
            if restarts && kind != 1 {
                profilers = restarted(&profilers);
            }
            prop_assert_eq!(profilers.tell(&whose, &software, "asks").0, wanted);
            prop_assert!(profilers.off.len() <= 2 * KEPT && profilers.good.len() <= KEPT);
            prop_assert!(profilers.first_uses.len() <= KEPT);
            for off in &profilers.off {
                prop_assert!(off.uids.len() <= KEPT + 1 && off.pods.len() <= KEPT);
            }
            prop_assert!(profilers.good.iter().all(|it| it.tenants.len() <= KEPT));
        }
    }
}
