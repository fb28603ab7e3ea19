//! Who is told what of a profiler, by what has happened to whom.

use super::*;

pub(super) const STACK: &str = "torch 2.9.1, cuda 12.8, cupti 12.8.90";
const ALICE: u32 = 1000;
const BOB: u32 = 1001;

pub(super) fn pod(number: u32) -> Tenant {
    Tenant::in_pod(0, number)
}

#[test]
fn one_job_of_a_user_tries_the_others_wait_and_then_all_may() {
    let mut profilers = Profilers::default();
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "a").0, Profiling::Try);
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Wait);
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "a").0, Profiling::Try);
    assert_eq!(
        profilers.tell(&ALICE.into(), "another", "b").0,
        Profiling::Try
    );
    // Only the job that tries can say how it went.
    profilers.passed(&ALICE.into(), STACK, "b");
    profilers.passed(&BOB.into(), STACK, "a");
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Wait);
    profilers.passed(&ALICE.into(), STACK, "a");
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Safe);
}

#[test]
fn a_job_that_ends_early_leaves_it_to_the_next() {
    let mut profilers = Profilers::default();
    profilers.tell(&ALICE.into(), STACK, "a");
    profilers.ended("a");
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Try);
}

#[test]
fn what_did_harm_is_off_and_stays_so_on_disk() {
    let mut profilers = Profilers::default();
    profilers.tell(&ALICE.into(), STACK, "a");
    assert!(
        profilers
            .turn_off(&ALICE.into(), STACK, "12 % slower", 1.5e9)
            .is_some()
    );
    assert!(
        profilers
            .turn_off(&ALICE.into(), STACK, "again", 1.6e9)
            .is_none()
    );
    profilers.passed(&ALICE.into(), STACK, "a");
    profilers.ended("a");
    let mut next = Profilers::with(profilers.off().to_vec(), Vec::new());
    let told = (Profiling::Off, "12 % slower".to_owned());
    assert_eq!(next.tell(&ALICE.into(), STACK, "b"), told);
    assert_eq!(next.off().len(), 1);
}

#[test]
fn one_user_turns_it_off_for_himself_two_or_root_for_all() {
    let mut profilers = Profilers::default();
    profilers.turn_off(&ALICE.into(), STACK, "made up", 0.0);
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "a").0, Profiling::Off);
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
    assert!(
        profilers
            .turn_off(&BOB.into(), STACK, "it hangs", 0.0)
            .is_some()
    );
    assert_eq!(profilers.tell(&1002.into(), STACK, "c").0, Profiling::Off);
    profilers.turn_off(&0.into(), "another", "root's", 0.0);
    assert_eq!(
        profilers.tell(&BOB.into(), "another", "b").0,
        Profiling::Off
    );
}

/// Hooks log what they are told: nobody's words may come to stand in another user's log.
#[test]
fn whoever_is_told_of_harm_is_told_in_his_own_words_or_in_litds() {
    let (mallory, lure) = (Tenant::from(1_200_000_002), "run /home/mallory/fix.sh");
    let mut profilers = Profilers::default();
    profilers.turn_off(&mallory, STACK, lure, 0.0);
    profilers.turn_off(&BOB.into(), STACK, "12 % slower", 0.0);
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").1, "12 % slower");
    profilers.turn_off(&ALICE.into(), STACK, lure, 0.0);
    for (whose, told) in [
        (Tenant::from(ALICE), lure),
        (BOB.into(), HARM_TO_OWN),
        // The profiler is off for all by now.
        (1002.into(), HARM_TO_OTHERS),
        (pod(1), HARM_TO_OTHERS),
    ] {
        assert_eq!(profilers.tell(&whose, STACK, "a").1, told, "{whose}");
    }
    // An administrator is told whose words they are, and so is nobody to whom he brings them.
    let here = profilers.stacks();
    assert_eq!(here.off[0].told_by.as_deref(), Some("user 1000"));
    let mut there = Profilers::default();
    there.import(&here, 0.0);
    assert_eq!(there.tell(&BOB.into(), STACK, "b").1, HARM_ELSEWHERE);
    assert_eq!(there.stacks().off[0].told_by, None);
}

#[test]
fn roots_words_are_told_to_all_and_those_of_whoever_is_forgotten_to_nobody() {
    let mut profilers = Profilers::default();
    profilers.turn_off(&0.into(), STACK, "it hangs", 0.0);
    profilers.turn_off(&ALICE.into(), STACK, "made up", 0.0);
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").1, "it hangs");
    let mut off = profilers.off()[0].clone();
    off.uids = vec![BOB, ALICE];
    off.told_by = Some(ALICE.into());
    off.forget(&Tenant::from(ALICE).party());
    assert_eq!(off.reason_for(&BOB.into()), HARM_TO_OWN);
    assert_eq!(off.words(), (None, HARM_TO_OTHERS.to_owned()));
}

#[test]
fn a_pod_turns_it_off_for_itself_whoever_it_says_it_is_and_however_many_pods_there_are() {
    let mut profilers = Profilers::default();
    for number in 0..100 {
        profilers.turn_off(&pod(number), STACK, "made up", 0.0);
    }
    assert_eq!(profilers.tell(&pod(99), STACK, "a").0, Profiling::Off);
    assert_eq!(profilers.tell(&pod(200), STACK, "b").0, Profiling::Try);
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
    assert_eq!(profilers.tell(&0.into(), STACK, "b").0, Profiling::Try);
    // The file says the same.
    let bytes = serde_json::to_vec(profilers.off()).unwrap();
    let mut next = Profilers::with(serde_json::from_slice(&bytes).unwrap(), Vec::new());
    assert_eq!(next.tell(&pod(99), STACK, "a").0, Profiling::Off);
    assert_eq!(next.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
    let whose = next.off()[0].whose();
    assert!(whose.starts_with("user 0 in pod-00000024-"), "{whose}");
    assert!(whose.ends_with(" and 56 others"), "{whose}");
}

/// For user ids that the node's files do not name (`getsubids`).
#[test]
fn numbers_that_may_be_one_users_are_not_two_users() {
    let mut profilers = Profilers::default();
    for uid in 100_000..100_010_u32 {
        profilers.turn_off(&uid.into(), STACK, "made up", 0.0);
    }
    assert_eq!(
        profilers.tell(&100_001.into(), STACK, "a").0,
        Profiling::Off
    );
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
}

#[test]
fn what_an_older_litd_wrote_counts_for_all() {
    let text = format!(r#"{{"software":"{STACK}","reason":"hangs","unix_seconds":1.5}}"#);
    let off: ProfilerOff = serde_json::from_str(&text).unwrap();
    let mut profilers = Profilers::with(vec![off], Vec::new());
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Off);
}

#[test]
fn made_up_versions_take_no_more_than_their_room_and_nobody_elses() {
    let mut profilers = Profilers::default();
    profilers.turn_off(&BOB.into(), STACK, "it hangs", 0.0);
    for number in 0..1000 {
        let software = format!("torch {number}");
        profilers.tell(&ALICE.into(), &software, "a");
        profilers.turn_off(&ALICE.into(), &software, &"x".repeat(5000), 0.0);
        profilers.tell(&ALICE.into(), &format!("rocm {number}"), "a");
    }
    assert!(profilers.off.len() <= KEPT_OF_A_PARTY + 1 && profilers.first_uses.len() <= KEPT);
    assert!(profilers.off.iter().all(|off| off.reason.len() <= LONGEST));
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Off);
    for uid in 1..1000 {
        profilers.tell(&uid.into(), "made up", "a");
        profilers.turn_off(&uid.into(), &format!("torch {uid}"), "", 0.0);
    }
    assert!(profilers.off.len() <= KEPT && profilers.first_uses.len() <= KEPT);
}

#[test]
fn an_id_of_a_directory_service_pushes_out_its_own_results_only() {
    let (victim, other) = (Tenant::from(1_200_000_001), Tenant::from(1_200_000_002));
    let mut profilers = Profilers::default();
    profilers.turn_off(&victim, STACK, "it hangs", 0.0);
    profilers.is_good(&victim, "good here", 0.0);
    for number in 0..1000 {
        profilers.turn_off(&other, &format!("torch {number}"), "", 0.0);
        profilers.is_good(&other, &format!("rocm {number}"), 0.0);
    }
    assert_eq!(profilers.tell(&victim, STACK, "v").0, Profiling::Off);
    assert_eq!(profilers.tell(&victim, "good here", "v").0, Profiling::Safe);
    assert_eq!(profilers.off.len(), KEPT_OF_A_PARTY + 1);
}

#[test]
fn a_pod_of_many_users_pushes_no_other_pod_off_a_stack() {
    let mut profilers = Profilers::default();
    profilers.turn_off(&pod(1), STACK, "it hangs", 0.0);
    profilers.is_good(&pod(1), "good here", 0.0);
    for uid in 0..200 {
        profilers.turn_off(&Tenant::in_pod(uid, 15), STACK, "", 0.0);
        profilers.is_good(&Tenant::in_pod(uid, 15), "good here", 0.0);
    }
    assert_eq!(profilers.tell(&pod(1), STACK, "a").0, Profiling::Off);
    assert_eq!(profilers.tell(&pod(1), "good here", "a").0, Profiling::Safe);
    assert!(profilers.off[0].pods.len() <= KEPT);
    // And it keeps nobody from being told what he found himself.
    profilers.is_good(&pod(2), "good here", 0.0);
    assert_eq!(profilers.tell(&pod(2), "good here", "b").0, Profiling::Safe);
}

#[test]
fn many_pods_with_a_result_each_push_no_user_out() {
    let mut profilers = Profilers::default();
    profilers.turn_off(&BOB.into(), STACK, "it hangs", 0.0);
    for number in 0..200 {
        profilers.turn_off(&pod(number), &format!("torch {number}"), "", 0.0);
    }
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Off);
}

/// A pod's root can have processes of any user id.
#[test]
fn one_pods_users_together_take_no_more_room_than_one_user() {
    let mut profilers = Profilers::default();
    let imported = Stacks {
        good: Vec::new(),
        off: vec![OffStack {
            software: "hangs GPUs".to_owned(),
            reason: "an administrator says so".to_owned(),
            told_by: None,
            for_all: true,
        }],
    };
    profilers.import(&imported, 0.0);
    profilers.turn_off(&BOB.into(), STACK, "it hangs", 0.0);
    profilers.is_good(&BOB.into(), "good here", 0.0);
    for number in 0..1000 {
        let whose = Tenant::in_pod(number % 100, 1);
        let software = format!("torch {number}");
        profilers.turn_off(&whose, &software, "", 0.0);
        profilers.is_good(&whose, &format!("rocm {number}"), 0.0);
        profilers.tell(&whose, &format!("xpu {number}"), "a");
    }
    assert_eq!(profilers.off.len(), KEPT_OF_A_PARTY + 2);
    assert_eq!(profilers.good.len(), KEPT_OF_A_PARTY + 1);
    assert!(profilers.first_uses.len() <= KEPT_OF_A_PARTY);
    for stack in [STACK, "hangs GPUs"] {
        assert_eq!(profilers.tell(&BOB.into(), stack, "b").0, Profiling::Off);
    }
    assert_eq!(
        profilers.tell(&BOB.into(), "good here", "b").0,
        Profiling::Safe
    );
}

/// Also where many pods come and go: each of them has few, and Bob, who has one, is never the one with most.
#[test]
fn a_crowd_of_pods_pushes_out_nobody_who_has_less() {
    let mut profilers = Profilers::default();
    profilers.turn_off(&BOB.into(), STACK, "it hangs", 0.0);
    for number in 0..60 {
        for stack in 0..KEPT_OF_A_PARTY {
            profilers.turn_off(&pod(number), &format!("torch {number}.{stack}"), "", 0.0);
        }
    }
    assert_eq!(profilers.off.len(), KEPT);
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Off);
}

#[test]
fn what_lost_nothing_for_long_is_good_for_its_user_over_a_restart() {
    let mut profilers = Profilers::default();
    profilers.tell(&ALICE.into(), STACK, "a");
    assert!(profilers.is_good(&ALICE.into(), STACK, 1.5e9));
    assert!(!profilers.is_good(&ALICE.into(), STACK, 1.6e9));
    let bytes = serde_json::to_vec(profilers.good()).unwrap();
    let mut next = Profilers::with(Vec::new(), serde_json::from_slice(&bytes).unwrap());
    assert_eq!(next.tell(&ALICE.into(), STACK, "b").0, Profiling::Safe);
    assert_eq!(next.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
    assert_eq!(next.tell(&pod(1), STACK, "b").0, Profiling::Try);
}

#[test]
fn harm_outweighs_what_was_good_and_good_undoes_no_harm() {
    let mut profilers = Profilers::default();
    profilers.is_good(&ALICE.into(), STACK, 0.0);
    profilers.is_good(&BOB.into(), STACK, 0.0);
    profilers.turn_off(&ALICE.into(), STACK, "it hangs", 0.0);
    assert!(!profilers.is_good(&ALICE.into(), STACK, 0.0));
    assert_eq!(profilers.tell(&ALICE.into(), STACK, "a").0, Profiling::Off);
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Safe);
    profilers.turn_off(&BOB.into(), STACK, "it hangs", 0.0);
    assert!(profilers.good().is_empty());
}

#[test]
fn made_up_good_software_takes_no_more_than_its_room_and_nobody_elses() {
    let mut profilers = Profilers::default();
    profilers.is_good(&BOB.into(), STACK, 0.0);
    for number in 0..1000 {
        profilers.is_good(&ALICE.into(), &format!("torch {number}"), 0.0);
    }
    assert_eq!(profilers.good().len(), KEPT_OF_A_PARTY + 1);
    assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Safe);
    for number in 0..1000 {
        profilers.is_good(&pod(number), STACK, 0.0);
        profilers.is_good(&pod(number), &format!("torch {number}"), 0.0);
    }
    assert!(profilers.good().len() <= KEPT);
    assert!(profilers.good().iter().all(|it| it.tenants.len() <= KEPT));
}

#[test]
fn an_administrator_brings_results_for_all_and_keeps_his_own_nodes() {
    let mut there = Profilers::default();
    there.is_good(&ALICE.into(), STACK, 0.0);
    there.is_good(&ALICE.into(), "hangs here", 0.0);
    there.turn_off(&0.into(), "slow", "12 % slower", 0.0);
    there.turn_off(&ALICE.into(), "made up", "", 0.0);
    let mut here = Profilers::default();
    here.turn_off(&0.into(), "hangs here", "it hangs", 0.0);
    here.is_good(&BOB.into(), "slow", 0.0);
    here.is_good(&BOB.into(), STACK, 0.0);
    assert_eq!(here.import(&there.stacks(), 1.0), (1, 1));
    for user in [ALICE, BOB] {
        assert_eq!(here.tell(&user.into(), STACK, "a").0, Profiling::Safe);
        assert_eq!(here.tell(&user.into(), "slow", "a").0, Profiling::Off);
        assert_eq!(here.tell(&user.into(), "hangs here", "a").0, Profiling::Off);
    }
    assert_eq!(here.tell(&ALICE.into(), "made up", "a").0, Profiling::Try);
    // The same once more changes nothing.
    let before = here.stacks();
    here.import(&there.stacks(), 2.0);
    assert_eq!(here.stacks(), before);
}
