//! What the node remembers of profilers, and tells the hooks.

use litd_api::Command;
use litd_proto::client::Client;
use litd_proto::{Bye, FromHook, Hello, Notice, NoticeKind, Profiling, ToHook, Welcome};

use crate::stand::{SOON, Stand, hello, quick, wait_for};

const CUPTI: [(&str, &str); 3] = [
    ("torch", "2.9.1"),
    ("cuda", "12.8"),
    ("profiler", "cupti 12.8.90"),
];

/// A rank of a job of one, on this GPU, and its welcome.
fn rank(stand: &Stand, job: &str, gpu: usize, versions: &[(&str, &str)]) -> (Client, Welcome) {
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
        .send(&FromHook::Notice(Notice { kind, text }))
        .unwrap();
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
        0 => "in anybody's jobs".to_owned(),
        uid => format!("in jobs of user {uid}"),
    };
    let off = format!(
        "the profiler is not used here any more {whose} with torch 2.9.1, cuda 12.8, cupti 12.8.90"
    );
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
