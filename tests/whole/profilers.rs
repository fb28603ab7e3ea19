//! What the node remembers of profilers, and tells the hooks.

use litd_api::{Command, OffStack, Stacks};
use litd_proto::client::Client;
use litd_proto::{Bye, FromHook, Hello, Notice, NoticeKind, Profiling, ToHook, Welcome};

use crate::stand::{SOON, Stand, hello, quick, wait_for};

pub const CUPTI: [(&str, &str); 3] = [
    ("torch", "2.9.1"),
    ("cuda", "12.8"),
    ("profiler", "cupti 12.8.90"),
];

/// A rank of a job of one, on this GPU, and its welcome.
pub fn rank(stand: &Stand, job: &str, gpu: usize, versions: &[(&str, &str)]) -> (Client, Welcome) {
    let mut client = Client::connect(&stand.rig.layout().ingest()).unwrap();
    let versions = versions.iter();
    let hello = Hello {
        framework: "pytorch".to_owned(),
        versions: versions
            .map(|&(name, version)| (name.to_owned(), version.to_owned()))
            .collect(),
        ..hello(job, gpu)
    };
    client.send(&FromHook::Hello(hello)).unwrap();
    match client.receive(SOON).unwrap() {
        Some(ToHook::Welcome(welcome)) => (client, welcome),
        other => panic!("{other:?}"),
    }
}

fn tell(client: &mut Client, kind: NoticeKind, text: &str) {
    let text = text.to_owned();
    client
        .send(&FromHook::Notice(Notice {
            kind,
            text,
            samples: 0,
        }))
        .unwrap();
}

/// Tells that so many samples in a row had no loss.
fn tell_of_samples(stand: &Stand, client: &mut Client, samples: u32) {
    let text = format!("nothing lost in {samples}");
    let said = format!("says: {text}");
    let kind = NoticeKind::ProfilingSafe;
    let notice = Notice {
        kind,
        text,
        samples,
    };
    client.send(&FromHook::Notice(notice)).unwrap();
    wait_for("notice", || stand.said().contains(&said));
}

fn stacks(stand: &Stand) -> Stacks {
    let (status, body) = stand.ask("GET", "/v1/stacks", "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn leave(stand: &Stand, mut client: Client) {
    let before = stand.status().jobs.len();
    let reason = String::new();
    client.send(&FromHook::Bye(Bye { reason })).unwrap();
    wait_for("end", || stand.status().jobs.len() < before);
}

#[test]
fn a_profiler_that_did_harm_is_off_for_all_jobs_of_its_software_and_stays_so() {
    let mut stand = Stand::real(&quick("gpu-red"));
    let (mut first, welcome) = rank(&stand, "first", 0, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Try);
    tell(&mut first, NoticeKind::ProfilingOff, "12 % slower");
    // Tests run as one user. What root's jobs have told counts for all.
    let whose = match nix::unistd::geteuid().as_raw() {
        0 => "in everybody's jobs".to_owned(),
        uid => format!("in jobs of user {uid}"),
    };
    let off = format!("the profiler is off {whose} with torch 2.9.1, cuda 12.8, cupti 12.8.90");
    wait_for("notice", || stand.said().contains(&off));
    for again in 0..2 {
        let (second, welcome) = rank(&stand, "second", 1, &CUPTI);
        assert_eq!(welcome.profiling, Profiling::Off, "{again}");
        assert_eq!(welcome.profiling_reason, "12 % slower");
        leave(&stand, second);
        // Other software is none of that.
        let other = [
            ("torch", "2.9.1"),
            ("hip", "6.4"),
            ("profiler", "rocm 6.4.0"),
        ];
        let (third, welcome) = rank(&stand, "third", 2, &other);
        assert_eq!(welcome.profiling, Profiling::Try, "{again}");
        leave(&stand, third);
        // It is on disk.
        assert_eq!(stand.terminate(), Some(0));
        stand.start();
    }
    stand.command(&Command::Forget);
    let (_second, welcome) = rank(&stand, "second", 1, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Try);
    stand.stop();
}

#[test]
fn one_job_tries_a_profiler_and_the_others_wait_for_its_word() {
    let stand = Stand::real(&quick("gpu-red"));
    let (mut first, welcome) = rank(&stand, "first", 0, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Try);
    let (mut second, welcome) = rank(&stand, "second", 1, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Wait);
    // Not theirs to say.
    tell(&mut second, NoticeKind::ProfilingSafe, "fine");
    wait_for("notice", || stand.said().contains("says: fine"));
    let (third, welcome) = rank(&stand, "third", 2, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Wait);
    leave(&stand, third);
    tell(&mut first, NoticeKind::ProfilingSafe, "as fast as before");
    wait_for("notice", || stand.said().contains("says: as fast"));
    let (third, welcome) = rank(&stand, "third", 2, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Safe);
    // A hook that would not profile is told nothing.
    let (fourth, welcome) = rank(&stand, "fourth", 3, &CUPTI[..2]);
    assert_eq!(welcome.profiling, Profiling::Unspecified);
    drop((first, second, third, fourth));
    stand.stop();
}

#[test]
fn twenty_samples_without_a_loss_make_a_profiler_good_over_a_restart_and_on_another_node() {
    const SOFTWARE: &str = "torch 2.9.1, cuda 12.8, cupti 12.8.90";
    let mut stand = Stand::real(&quick("gpu-red"));
    let (mut first, welcome) = rank(&stand, "first", 0, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Try);
    tell_of_samples(&stand, &mut first, 19);
    assert_eq!(stacks(&stand), Stacks::default());
    tell_of_samples(&stand, &mut first, 20);
    let known = stacks(&stand);
    assert_eq!(known.good.len(), 1);
    assert_eq!(known.good[0].software, SOFTWARE);
    assert_eq!((known.good[0].users, known.good[0].for_all), (1, false));
    leave(&stand, first);
    assert_eq!(stand.terminate(), Some(0));
    stand.start();
    let (second, welcome) = rank(&stand, "second", 1, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Safe);
    drop(second);
    stand.stop();

    let stand = Stand::real(&quick("gpu-red"));
    let mut imported = known.clone();
    imported.off.push(OffStack {
        software: "torch 2.6.0, cuda 12.6, cupti 12.6.80".to_owned(),
        reason: "it hangs".to_owned(),
        told_by: None,
        for_all: true,
    });
    stand.command(&Command::ImportStacks { stacks: imported });
    let (_second, welcome) = rank(&stand, "second", 1, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Safe);
    let hanging = [
        ("torch", "2.6.0"),
        ("cuda", "12.6"),
        ("profiler", "cupti 12.6.80"),
    ];
    let (_third, welcome) = rank(&stand, "third", 2, &hanging);
    assert_eq!(welcome.profiling, Profiling::Off);
    assert_eq!(welcome.profiling_reason, "it hangs");
    let mut odd = known;
    odd.good[0].software = "two\nlines".to_owned();
    let (status, why) = stand.try_command(&Command::ImportStacks { stacks: odd });
    assert_eq!(status, 409);
    assert!(why.contains("be the software of a stack"), "{why}");
    stand.stop();
}

#[test]
fn the_administrators_key_turns_profilers_off_for_jobs_that_run_and_for_new_ones() {
    let mut stand = Stand::real(&quick("gpu-red"));
    let (mut first, welcome) = rank(&stand, "first", 0, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Try);
    let (mut other, welcome) = rank(&stand, "modules", 1, &CUPTI[..2]);
    assert_eq!(welcome.profiling, Profiling::Unspecified);
    stand.reload(&(quick("gpu-red") + "sampling.profiler = \"off\"\n"));
    let told = loop {
        match first.receive(SOON).unwrap() {
            Some(ToHook::Welcome(welcome)) => break welcome,
            Some(_) => {}
            None => panic!("litd has closed the connection"),
        }
    };
    // A hook that waits keeps nothing of it, as it would of harm.
    assert_eq!(told.profiling, Profiling::Wait);
    assert!(
        told.profiling_reason
            .contains("sampling.profiler = \"off\""),
        "{}",
        told.profiling_reason
    );
    assert_eq!(told.protocol, 1);
    let (third, welcome) = rank(&stand, "third", 2, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Wait);
    leave(&stand, third);
    leave(&stand, first);
    stand.reload(&quick("gpu-red"));
    let read = |stand: &Stand| stand.said().matches("configuration read anew").count();
    wait_for("configuration", || read(&stand) == 2);
    let (third, welcome) = rank(&stand, "third", 2, &CUPTI);
    assert_eq!(welcome.profiling, Profiling::Try);
    // A hook that would not profile has heard nothing of it.
    let reason = String::new();
    other.send(&FromHook::Bye(Bye { reason })).unwrap();
    while let Ok(Some(message)) = other.receive(SOON) {
        assert!(matches!(message, ToHook::Directive(_)), "{message:?}");
    }
    drop(third);
    stand.stop();
}
