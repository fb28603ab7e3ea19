//! Training jobs, against a made-up daemon at the other end of the ingest socket.

use crate::common::server::{Heard, Server};
use crate::common::{SOON, rig};
use litd_proto::{
    Class, Directive, FromHook, Hello, Kernels, NameDictionary, Refusal, RefusalCode, Tick, ToHook,
    Welcome,
};
use litd_rig::{Job, JobSpec, RankState, Rig, gpu_address};
use litd_traces::{KernelClass, Timeline};
use litd_units::Nanos;

fn every(period: u64, first: u64) -> Directive {
    Directive {
        first,
        period,
        pause: false,
    }
}

fn welcome(directive: Directive) -> ToHook {
    ToHook::Welcome(Welcome {
        protocol: 1,
        daemon: "made up".to_owned(),
        directive,
        ..Welcome::default()
    })
}

fn refusal(code: RefusalCode) -> Refusal {
    Refusal {
        code,
        reason: "made up".to_owned(),
        retry_after: None,
    }
}

/// A node, a daemon that welcomes everybody with this directive, and a welcomed job.
fn setup(gpus: &[usize], directive: Directive) -> (Rig, Server, Job) {
    let rig = rig();
    let mut server = Server::start(&rig.layout().ingest(), move |_| welcome(directive));
    let spec = JobSpec::new("llama", gpus.iter().copied());
    let mut job = rig.attach(spec).unwrap();
    job.welcome(SOON).unwrap();
    for session in 0..gpus.len() {
        hello(&mut server, session);
    }
    (rig, server, job)
}

fn hello(server: &mut Server, session: usize) -> Hello {
    match server.next(session) {
        Heard::Message(FromHook::Hello(hello)) => hello,
        other => panic!("not a hello: {other:?}"),
    }
}

fn tick(server: &mut Server, session: usize) -> Tick {
    match server.next(session) {
        Heard::Message(FromHook::Tick(tick)) => tick,
        other => panic!("not a tick: {other:?}"),
    }
}

fn kernels(server: &mut Server, session: usize) -> Kernels {
    match server.next(session) {
        Heard::Message(FromHook::Kernels(kernels)) => kernels,
        other => panic!("not kernels: {other:?}"),
    }
}

#[test]
fn ranks_say_who_they_are() {
    let rig = rig();
    let mut server = Server::start(&rig.layout().ingest(), |_| welcome(Directive::default()));
    let mut job = rig.attach(JobSpec::new("llama", [6, 2])).unwrap();
    assert_eq!(job.ranks(), 2);
    for (rank, gpu) in [(0, 6), (1, 2)] {
        let hello = hello(&mut server, rank as usize);
        assert_eq!(hello.job, "llama");
        assert_eq!((hello.rank, hello.local_rank), (rank, rank));
        assert_eq!((hello.world_size, hello.local_world_size), (2, 2));
        assert_eq!(hello.gpu, gpu_address(gpu));
        assert_eq!(hello.framework, "simulated");
    }
    job.welcome(SOON).unwrap();
    assert_eq!(
        job.state(1),
        Some(&RankState::Welcome(Directive::default()))
    );
    assert_eq!(rig.frames().count(), 2);
    assert!(rig.attach(JobSpec::new("too big", [99])).is_err());
}

/// The kernels of a timeline that a rank should send.
fn expected(timeline: &Timeline) -> Vec<(String, u32, Class, Nanos, Nanos)> {
    let class = |class| match class {
        KernelClass::Computation => Class::Computation,
        KernelClass::Communication | KernelClass::Fused => Class::Communication,
        KernelClass::Copy => Class::Copy,
    };
    let kernels = timeline.kernels.iter().map(|kernel| {
        let name = timeline.name_of(kernel).to_owned();
        let stream = kernel.stream.0.into();
        (
            name,
            stream,
            class(kernel.class),
            kernel.start,
            kernel.duration(),
        )
    });
    kernels.collect()
}

#[test]
fn profiled_iterations_are_those_of_the_directive_and_carry_the_plants_kernels() {
    let (rig, mut server, mut job) = setup(&[5, 1, 3], every(2, 2));
    let mut names = vec![NameDictionary::default(); 3];
    for iteration in 1..=4 {
        assert_eq!(job.run_iteration(), 3);
        let (duration, timelines) = {
            let hardware = rig.hardware();
            let plant = hardware.plant();
            (plant.last().length.to_nanos(), plant.timelines())
        };
        for (rank, gpu) in [5, 1, 3].into_iter().enumerate() {
            let profiled = iteration % 2 == 0;
            let expected_tick = Tick {
                iteration,
                duration,
                profiled,
                overhead: Nanos::ZERO,
            };
            assert_eq!(tick(&mut server, rank), expected_tick);
            if !profiled {
                continue;
            }
            let kernels = kernels(&mut server, rank);
            assert_eq!((kernels.iteration, kernels.duration), (iteration, duration));
            assert_eq!(kernels.new_names.is_empty(), iteration == 4);
            let limits = litd_proto::Limits::default();
            names[rank].extend(&kernels.new_names, &limits).unwrap();
            let sent: Vec<_> = (0..kernels.name.len())
                .map(|k| {
                    let name = names[rank].get(kernels.name[k]).unwrap().to_owned();
                    let (start, duration) = (kernels.start[k], kernels.duration_of[k]);
                    (name, kernels.stream[k], kernels.class[k], start, duration)
                })
                .collect();
            assert_eq!(sent, expected(&timelines[gpu]));
        }
    }
    // Hellos, ticks, and kernels of two iterations.
    assert_eq!(rig.frames().count(), 3 + 4 * 3 + 2 * 3);
}

#[test]
fn a_new_directive_replaces_the_old_one() {
    let (_rig, mut server, mut job) = setup(&[0], every(1, 0));
    job.run_iteration();
    assert!(tick(&mut server, 0).profiled);
    kernels(&mut server, 0);
    let pause = Directive {
        pause: true,
        ..every(1, 0)
    };
    for (directive, profiled) in [(pause, false), (every(1, 3), true), (every(0, 0), false)] {
        server.send(0, &ToHook::Directive(directive));
        job.run_iteration();
        assert_eq!(job.state(0), Some(&RankState::Welcome(directive)));
        assert_eq!(tick(&mut server, 0).profiled, profiled);
        if profiled {
            kernels(&mut server, 0);
        }
    }
}

#[test]
fn a_refused_rank_stays_silent_and_the_others_go_on() {
    let rig = rig();
    let mut server = Server::start(&rig.layout().ingest(), |hello| match hello.rank {
        1 => ToHook::Refusal(refusal(RefusalCode::NotHolder)),
        _ => welcome(Directive::default()),
    });
    let mut job = rig.attach(JobSpec::new("llama", [0, 1, 2])).unwrap();
    assert!(
        job.welcome(SOON)
            .unwrap_err()
            .to_string()
            .contains("rank 1")
    );
    let refused = RankState::Refused(refusal(RefusalCode::NotHolder));
    assert_eq!(job.state(1), Some(&refused));
    hello(&mut server, 2);
    while job.state(2) == Some(&RankState::Greeting) {
        job.poll();
    }
    assert_eq!(job.run_iteration(), 2);
    assert_eq!(tick(&mut server, 2).iteration, 1);
    hello(&mut server, 1);
    assert_eq!(server.next(1), Heard::End);
}

#[test]
fn crashing_leaving_and_coming_back_are_told_apart() {
    let (_rig, mut server, mut job) = setup(&[0, 1], every(1, 0));
    assert_eq!(job.run_iteration(), 2);
    for session in [0, 1] {
        tick(&mut server, session);
        assert!(!kernels(&mut server, session).new_names.is_empty());
    }
    job.crash(0);
    job.leave(1);
    assert_eq!(job.state(0), Some(&RankState::Away));
    assert_eq!(server.next(0), Heard::End);
    assert!(matches!(server.next(1), Heard::Message(FromHook::Bye(_))));
    assert_eq!(server.next(1), Heard::End);
    assert_eq!(job.run_iteration(), 0);

    job.connect(0).unwrap();
    assert_eq!(hello(&mut server, 2).rank, 0);
    while job.state(0) == Some(&RankState::Greeting) {
        job.poll();
    }
    assert_eq!(job.run_iteration(), 1);
    assert_eq!(tick(&mut server, 2).iteration, 3);
    // A new connection knows no names.
    assert!(!kernels(&mut server, 2).new_names.is_empty());
    job.end();
    assert!(matches!(server.next(2), Heard::Message(FromHook::Bye(_))));
}

#[test]
fn a_daemon_that_closes_is_noticed() {
    let (_rig, server, mut job) = setup(&[0, 1], Directive::default());
    server.close(0);
    assert_eq!(job.run_iteration(), 1);
    assert!(matches!(job.state(0), Some(RankState::Lost(_))));
}

#[test]
fn everything_that_ranks_must_not_do_can_be_done() {
    let (rig, mut server, mut job) = setup(&[0, 1], Directive::default());
    assert_eq!(job.run_iteration(), 2);
    tick(&mut server, 0);
    // An old iteration, a flood, garbage in a frame, garbage without.
    assert!(job.report_as(0, 0));
    assert_eq!(kernels(&mut server, 0).iteration, 0);
    let before = rig.frames().count();
    assert_eq!(job.flood(0, 1000), 1000);
    assert_eq!(rig.frames().count(), before + 1000);
    for _ in 0..1000 {
        assert_eq!(tick(&mut server, 0).iteration, 1);
    }
    assert!(job.send_frame(0, b"\xff\xff\xff"));
    assert_eq!(server.next(0), Heard::Garbage);
    assert!(job.send_raw(0, &[0; 4]));
    assert_eq!(server.next(0), Heard::NoFrame);
    assert_eq!(rig.frames().count(), before + 1001);
    // Another's GPU.
    let stolen = Hello {
        gpu: gpu_address(7),
        ..job.hello(0).unwrap()
    };
    job.connect_as(0, stolen).unwrap();
    assert_eq!(hello(&mut server, 2).gpu, gpu_address(7));
}

#[test]
fn a_second_job_reports_the_iterations_that_the_first_one_runs() {
    let (rig, mut server, mut first) = setup(&[0, 1], Directive::default());
    let mut second = rig.attach(JobSpec::new("mixtral", [4, 5])).unwrap();
    second.welcome(SOON).unwrap();
    assert_eq!(hello(&mut server, 2).job, "mixtral");
    first.run_iteration();
    assert_eq!(second.report(), 2);
    assert_eq!(rig.hardware().plant().iterations(), 1);
    assert_eq!(tick(&mut server, 0), tick(&mut server, 2));
}
