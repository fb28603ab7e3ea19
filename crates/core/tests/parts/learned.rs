//! Starting points: what is recalled for which job, and from which file.

use litd_core::learned::{Confidence, Key, Learned};
use litd_core::{Home, MemoryStore, Tenant};
use litd_policies::Policy;
use litd_units::Watts;
use proptest::prelude::*;

const NOW: f64 = 1_800_000_000.0;
const DAY: f64 = 86_400.0;
const POLICY: Policy = Policy::GpuRealloc;

fn key(gpus: &[&str]) -> Key {
    Key {
        gpus: gpus.iter().map(|&gpu| gpu.to_owned()).collect(),
        tenant: Tenant::from(1000),
        driver: "amdgpu 6.14".to_owned(),
        workload: u64::MAX - 7,
    }
}

/// A distribution: a has 600 W, b 650 W, c 750 W.
fn learned() -> Learned {
    let mut learned = Learned::default();
    let caps = [Watts(600.0), Watts(650.0), Watts(750.0)];
    assert!(learned.remember(key(&["a", "b", "c"]), &caps, POLICY, NOW));
    learned
}

fn saved(learned: &Learned) -> Vec<u8> {
    let mut store = MemoryStore::default();
    learned.save(&mut store).unwrap();
    store.learned
}

fn assert_caps(got: &[Watts], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got.0 - want).abs() < 1e-9, "{got} is not {want} W");
    }
}

#[test]
fn the_same_job_starts_where_it_ended_at_the_present_budget() {
    let learned = learned();
    let hint = learned
        .recall(&key(&["a", "b", "c"]), POLICY, NOW + 6.9 * DAY)
        .unwrap();
    assert_eq!(hint.confidence, Confidence::Full);
    assert_caps(&hint.caps(Watts(2000.0)), &[600.0, 650.0, 750.0]);
    assert_caps(&hint.caps(Watts(1800.0)), &[540.0, 585.0, 675.0]);
    assert_eq!(hint.learned_budget, Watts(2000.0));
}

#[test]
fn whatever_differs_makes_it_half_a_hint() {
    let learned = learned();
    let same = key(&["a", "b", "c"]);
    let driver = Key {
        driver: "amdgpu 6.15".to_owned(),
        ..same.clone()
    };
    let workload = Key {
        workload: 1,
        ..same.clone()
    };
    let cases = [
        ("driver", &driver, POLICY, NOW),
        ("workload", &workload, POLICY, NOW),
        ("policy", &same, Policy::GpuRed, NOW),
        ("old", &same, POLICY, NOW + 7.1 * DAY),
        ("clock put back", &same, POLICY, NOW - 7.1 * DAY),
        ("no clock", &same, POLICY, f64::NAN),
    ];
    for (what, key, policy, now) in cases {
        let hint = learned.recall(key, policy, now).unwrap();
        assert_eq!(hint.confidence, Confidence::Half, "{what}");
        assert_caps(&hint.caps(Watts(2000.0)), &[600.0, 650.0, 750.0]);
    }
}

#[test]
fn shares_follow_their_gpus() {
    let hint = learned()
        .recall(&key(&["c", "a", "b"]), POLICY, NOW)
        .unwrap();
    assert_eq!(hint.confidence, Confidence::Half);
    assert_caps(&hint.caps(Watts(2000.0)), &[750.0, 600.0, 650.0]);
}

#[test]
fn other_gpus_get_no_hint() {
    let learned = learned();
    for gpus in [
        &["a", "b"][..],
        &["a", "b", "d"],
        &["a", "b", "c", "d"],
        &["a", "b", "b"],
        &[],
    ] {
        assert_eq!(learned.recall(&key(gpus), POLICY, NOW), None, "{gpus:?}");
    }
}

#[test]
fn the_likest_job_is_recalled_and_the_latest_of_equals() {
    let mut learned = learned();
    let other = |workload| Key {
        workload,
        ..key(&["a", "b", "c"])
    };
    let level = |first: f64| [Watts(first), Watts(500.0), Watts(500.0)];
    assert!(learned.remember(other(1), &level(501.0), POLICY, NOW + 1.0));
    assert!(learned.remember(other(2), &level(502.0), POLICY, NOW + 2.0));
    let budget = |hint: Option<litd_core::learned::Hint>| hint.unwrap().learned_budget;
    assert_eq!(
        budget(learned.recall(&other(1), POLICY, NOW)),
        Watts(1501.0)
    );
    assert_eq!(
        budget(learned.recall(&other(9), POLICY, NOW)),
        Watts(1502.0)
    );

    assert!(learned.remember(other(1), &level(503.0), POLICY, NOW + 3.0));
    assert_eq!(
        budget(learned.recall(&other(1), POLICY, NOW)),
        Watts(1503.0)
    );
    assert_eq!(learned.distributions().len(), 3, "replaced, not added");

    assert!(learned.remember(other(1), &level(504.0), Policy::GpuRed, NOW + 4.0));
    let hint = learned.recall(&other(1), POLICY, NOW).unwrap();
    assert_eq!(
        (hint.learned_budget, hint.confidence),
        (Watts(1503.0), Confidence::Full)
    );
}

#[test]
fn nothing_is_learned_from_what_is_no_distribution() {
    let mut learned = Learned::default();
    let two = || key(&["a", "b"]);
    for caps in [
        &[][..],
        &[1.0],
        &[1.0, 2.0, 3.0],
        &[1.0, 0.0],
        &[1.0, -0.5],
        &[1.0, f64::NAN],
        &[1.0, f64::INFINITY],
        &[f64::MAX, f64::MAX],
    ] {
        let caps: Vec<Watts> = caps.iter().copied().map(Watts).collect();
        assert!(!learned.remember(two(), &caps, POLICY, NOW), "{caps:?}");
    }
    let caps = [Watts(600.0), Watts(700.0)];
    assert!(!learned.remember(key(&["a", "a"]), &caps, POLICY, NOW));
    assert!(!learned.remember(key(&["a", ""]), &caps, POLICY, NOW));
    assert!(!learned.remember(key(&[]), &[], POLICY, NOW));
    assert!(!learned.remember(two(), &caps, POLICY, f64::NAN));
    assert_eq!(learned, Learned::default());
}

#[test]
fn the_oldest_of_65_goes() {
    let mut learned = Learned::default();
    for workload in 0..65 {
        let key = Key {
            workload,
            ..key(&["a", "b"])
        };
        assert!(learned.remember(key, &[Watts(600.0), Watts(700.0)], POLICY, NOW));
    }
    let kept: Vec<u64> = learned
        .distributions()
        .iter()
        .map(|it| it.key.workload)
        .collect();
    assert_eq!(kept, (1..65).collect::<Vec<u64>>());
}

#[test]
fn forgetting_leaves_nothing_on_disk() {
    let mut learned = learned();
    learned.forget();
    assert_eq!(learned.recall(&key(&["a", "b", "c"]), POLICY, NOW), None);
    assert_eq!(Learned::load(&saved(&learned)), (Learned::default(), None));
}

#[test]
fn it_survives_the_file() {
    let learned = learned();
    assert_eq!(Learned::load(&saved(&learned)), (learned, None));
    assert_eq!(Learned::load(b""), (Learned::default(), None));
}

#[test]
fn one_damaged_distribution_does_not_cost_the_others() {
    let mut learned = learned();
    assert!(learned.remember(key(&["a", "b"]), &[Watts(600.0), Watts(200.0)], POLICY, NOW));
    let text = String::from_utf8(saved(&learned)).unwrap();
    for (from, to) in [
        ("0.75", "-0.75"),
        ("0.75", "0.70"),
        ("0.75", "\"much\""),
        ("0.75", "null"),
        ("800.0", "0.0"),
        ("0.75", "0.25, 0.5"),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{text}");
        let (read, note) = Learned::load(text.replace(from, to).as_bytes());
        assert_eq!(
            read.distributions(),
            &learned.distributions()[..1],
            "{from} -> {to}"
        );
        let note = note.unwrap();
        assert!(note.starts_with("1 of 2 entries are unusable"), "{note}");
    }
}

#[test]
fn another_version_and_a_damaged_file_start_anew_and_say_so() {
    let text = String::from_utf8(saved(&learned())).unwrap();
    let later = text.replace("\"litd-learned\": 2", "\"litd-learned\": 3");
    let (read, note) = Learned::load(later.as_bytes());
    assert_eq!(read, Learned::default());
    assert!(note.unwrap().contains("version 3"));
    for cut in 1..text.trim_end().len() {
        let (read, note) = Learned::load(&text.as_bytes()[..cut]);
        assert_eq!(read, Learned::default(), "cut at {cut}");
        assert!(note.is_some(), "cut at {cut}");
    }
}

fn pod(number: u32) -> Tenant {
    let cgroup = format!("0::/kubepods/pod{number:08x}-aaaa-4bbb-8ccc-0123456789ab\n");
    Tenant::of(0, Home::of(&cgroup).as_ref())
}

#[test]
fn no_tenant_is_told_of_another_ones_and_all_outlive_the_file() {
    let of = |tenant: Tenant| Key {
        tenant,
        ..key(&["a", "b", "c"])
    };
    let caps = [Watts(600.0), Watts(650.0), Watts(750.0)];
    let mut learned = Learned::default();
    assert!(learned.remember(of(pod(1)), &caps, POLICY, NOW));
    let (read, note) = Learned::load(&saved(&learned));
    assert_eq!((&read, note), (&learned, None));
    assert!(read.recall(&of(pod(1)), POLICY, NOW).is_some());
    for other in [pod(2), Tenant::from(0)] {
        assert_eq!(read.recall(&of(other), POLICY, NOW), None);
    }
    // Nor does one pod's crowd of jobs cost another tenant his.
    assert!(learned.remember(of(Tenant::from(7)), &caps, POLICY, NOW));
    for workload in 0..100 {
        let key = Key {
            workload,
            ..of(pod(3))
        };
        assert!(learned.remember(key, &caps, POLICY, NOW));
    }
    for tenant in [pod(1), pod(3), Tenant::from(7)] {
        assert!(learned.recall(&of(tenant), POLICY, NOW).is_some());
    }
}

/// Kubelets name pods at random, so a name says nothing of a pod's age.
#[test]
fn of_200_pods_in_turn_the_latest_64_find_what_they_have_learned() {
    let of = |tenant: Tenant| Key {
        tenant,
        ..key(&["a", "b", "c"])
    };
    let random_pod = |number: u32| pod(number.wrapping_mul(0x9E37_79B1));
    let caps = [Watts(600.0), Watts(650.0), Watts(750.0)];
    let mut learned = Learned::default();
    for number in 0..200 {
        assert!(learned.remember(of(random_pod(number)), &caps, POLICY, NOW));
        (learned, _) = Learned::load(&saved(&learned));
    }
    for number in 0..200 {
        let hint = learned.recall(&of(random_pod(number)), POLICY, NOW);
        assert_eq!(hint.is_some(), number >= 200 - 64, "{number}");
    }
    // Nor do 64 users leave a pod that comes after them without what it has learned.
    for uid in 0..64 {
        assert!(learned.remember(of(Tenant::from(uid)), &caps, POLICY, NOW));
    }
    for number in [0, u32::MAX] {
        assert!(learned.remember(of(pod(number)), &caps, POLICY, NOW));
        assert!(learned.recall(&of(pod(number)), POLICY, NOW).is_some());
    }
}

#[test]
fn what_an_earlier_version_has_learned_is_the_node_s_own_users() {
    let text = String::from_utf8(saved(&learned())).unwrap();
    let earlier = text.replace("\"litd-learned\": 2", "\"litd-learned\": 1");
    let (read, note) = Learned::load(earlier.as_bytes());
    assert_eq!((read, note), (learned(), None));
    // Of one without a user nobody knows whose it was.
    let nobodys = earlier.replace("\"uid\": 1000,", "");
    assert_ne!(nobodys, earlier);
    let (read, note) = Learned::load(nobodys.as_bytes());
    assert_eq!(read, Learned::default());
    assert!(note.unwrap().starts_with("1 of 1"));
}

#[test]
fn a_distribution_that_did_harm_is_not_used_for_seven_days_though_it_is_learned_again() {
    let mut learned = learned();
    let own = key(&["a", "b", "c"]);
    let caps = [Watts(600.0), Watts(650.0), Watts(750.0)];
    assert!(!learned.unlearn(&own, Policy::GpuRed, NOW));
    assert!(learned.unlearn(&own, POLICY, NOW));
    assert_eq!(learned.recall(&own, POLICY, NOW), None);
    assert!(learned.remember(own.clone(), &caps, POLICY, NOW + DAY));
    let (read, _) = Learned::load(&saved(&learned));
    assert_eq!(read, learned);
    for days in [1.0, 6.9] {
        assert_eq!(read.recall(&own, POLICY, NOW + days * DAY), None);
    }
    assert_eq!(read.recall(&own, POLICY, f64::NAN), None);
    assert!(read.recall(&own, POLICY, NOW + 7.1 * DAY).is_some());
    // Another workload's on the same GPUs is.
    let other = Key { workload: 1, ..own };
    assert!(learned.remember(other.clone(), &caps, POLICY, NOW));
    assert!(learned.recall(&other, POLICY, NOW).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_leaves_finite_positive_shares(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut file = saved(&learned());
        let at = at.index(file.len());
        file.splice(at..(at + 2).min(file.len()), bytes);
        let (read, _) = Learned::load(&file);
        for known in read.distributions() {
            let hint = read.recall(&known.key, known.policy, NOW).unwrap();
            let caps = hint.caps(Watts(1000.0));
            prop_assert!(caps.iter().all(|cap| *cap > Watts::ZERO && cap.is_finite()));
            let sum: Watts = caps.into_iter().sum();
            prop_assert!((sum.0 - 1000.0).abs() < 0.01, "{sum}");
        }
    }
}
