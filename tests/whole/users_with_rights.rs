//! Users with rights of their own: one without a GPU, one with one of several, two on the same GPU,
//! one whose process id is another's by now, one who may use the control socket. None of them gets
//! at what is another's.

use std::fs;
use std::path::PathBuf;

use litd_api::{EventKind, JobState};
use litd_proto::{FromHook, Hello, RefusalCode, SetClock};
use litd_rig::Rig;
use litd_rig_sysfs::{Board, Mount, obstacle};
use litd_sim::Scenario;
use litd_units::Hertz;

use crate::clocks::{journaled, locked};
use crate::stand::{GPUS, Stand, hello, quick, wait_for};
use crate::users::{ALICE, BOB, User, group, is_root, open, refused};

fn clock(megahertz: Option<u32>) -> FromHook {
    let clock = megahertz.map(|megahertz| Hertz(f64::from(megahertz) * 1e6));
    FromHook::SetClock(SetClock { clock })
}

/// A node that all users can get at.
fn stand(config: &str) -> Stand {
    let stand = Stand::clocked(config);
    open(&stand.rig.layout().directory);
    stand
}

fn ingest(stand: &Stand) -> PathBuf {
    stand.rig.layout().ingest()
}

/// Whose processes use a GPU.
fn uses(stand: &Stand, gpu: usize, users: &[&User]) {
    let pids = users.iter().map(|user| user.pid()).collect();
    stand.rig.hardware().set_holders(gpu, pids);
}

/// Time passes until something is so.
fn pass_until(stand: &mut Stand, what: &str, done: impl Fn(&Stand) -> bool) {
    wait_for(what, || {
        stand.pass(1.0);
        done(stand)
    });
}

#[test]
fn a_user_has_the_gpus_that_its_processes_use_and_no_other() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let mut alice = User::new(ALICE);
    let bob = User::new(BOB);
    uses(&stand, 3, &[&alice]);
    uses(&stand, 4, &[&bob]);
    uses(&stand, 5, &[]);
    for gpu in [4, 5] {
        let answer = alice.greet(&ingest(&stand), hello("own", gpu));
        assert_eq!(answer, refused(RefusalCode::NotHolder), "gpu{gpu}");
    }
    assert_eq!(alice.greet(&ingest(&stand), hello("own", 3)), Ok(()));
    stand.finish();
    let job = stand.status().jobs.remove(0);
    assert_eq!((job.uid, job.ranks.len()), (ALICE, 1));
    drop((alice, bob));
    stand.stop();
}

/// On the files of a made-up `/sys`, with the kernel's own `/proc`.
#[test]
fn files_that_look_like_a_gpus_node_give_nobody_a_gpu() {
    if !is_root() {
        return;
    }
    if let Some(obstacle) = obstacle() {
        return eprintln!("SKIPPED: {obstacle}");
    }
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let mount = Mount::start(rig.shared_hardware(), Board::default()).unwrap();
    let config = format!("{}{}", quick("gpu-realloc"), mount.config());
    let mut stand = Stand::on(rig, &config, true);
    stand.start();
    open(&stand.rig.layout().directory);
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(
        home.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let mut alice = User::new(ALICE);
    for gpu in 0..GPUS {
        stand.rig.hardware().set_holders(gpu, vec![1]);
    }
    // What the nodes of all GPUs could be called.
    for number in 0..GPUS {
        for name in [
            format!("card{}", number + 1),
            format!("renderD{}", 128 + number),
        ] {
            alice.keep_open(&home.path().join("dri").join(name));
        }
    }
    for gpu in 0..GPUS {
        let answer = alice.greet(&ingest(&stand), hello("forged", gpu));
        assert_eq!(answer, refused(RefusalCode::NotHolder), "gpu{gpu}");
    }
    assert!(stand.status().jobs.is_empty());
    // By the compute driver's account she does use one.
    uses(&stand, 2, &[&alice]);
    assert_eq!(alice.greet(&ingest(&stand), hello("real", 2)), Ok(()));
    drop(alice);
    stand.stop();
}

/// The one who locked it keeps his connection, and goes on asking.
#[test]
fn a_locked_clock_is_not_left_to_the_gpus_next_user() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let (mut alice, bob) = (User::new(ALICE), User::new(BOB));
    uses(&stand, 0, &[&alice]);
    assert_eq!(alice.greet(&ingest(&stand), hello("first", 0)), Ok(()));
    alice.say(&clock(Some(1500)));
    pass_until(&mut stand, "a lock", |stand| locked(stand)[0] == Some(1500));
    uses(&stand, 0, &[&bob]);
    let since = stand.rig.now();
    for asked in 1501.. {
        if locked(&stand)[0].is_none() {
            break;
        }
        alice.say(&clock(Some(asked)));
        stand.pass(0.5);
        let waited = (stand.rig.now() - since).as_secs_f64();
        assert!(waited < 4.0, "still locked after {waited} s");
    }
    drop((alice, bob));
    stand.stop();
}

#[test]
fn a_gpu_of_two_users_is_nobodys_to_steer_or_to_clock() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let (mut alice, mut bob) = (User::new(ALICE), User::new(BOB));
    uses(&stand, 0, &[&alice]);
    assert_eq!(alice.greet(&ingest(&stand), hello("first", 0)), Ok(()));
    alice.say(&clock(Some(1500)));
    pass_until(&mut stand, "a lock", |stand| locked(stand)[0] == Some(1500));
    // Another user's processes come.
    uses(&stand, 0, &[&alice, &bob]);
    let shared = |stand: &Stand| stand.status().jobs[0].state == JobState::Suspended;
    pass_until(&mut stand, "a shared GPU", shared);
    pass_until(&mut stand, "a free clock", |stand| {
        locked(stand)[0].is_none()
    });
    let why = stand.status().jobs[0].why.clone();
    assert!(why.contains("several users"), "{why}");
    assert!(stand.has_event(
        EventKind::Foreign,
        "processes of several users use it (user 61001, user 61002)"
    ));
    // Nobody else gets it either, and what is asked for is not done.
    assert_eq!(
        bob.greet(&ingest(&stand), hello("second", 0)),
        refused(RefusalCode::GpuShared)
    );
    alice.say(&clock(Some(1600)));
    stand.pass(5.0);
    assert_eq!(locked(&stand)[0], None);
    assert!(stand.is_back());
    // They go.
    uses(&stand, 0, &[&alice]);
    pass_until(&mut stand, "one user's GPU", |stand| !shared(stand));
    pass_until(&mut stand, "a lock", |stand| locked(stand)[0] == Some(1600));
    drop((alice, bob));
    stand.stop();
}

#[test]
fn the_first_of_two_users_is_not_let_in_either() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let (mut alice, bob) = (User::new(ALICE), User::new(BOB));
    uses(&stand, 6, &[&alice, &bob]);
    let answer = alice.greet(&ingest(&stand), hello("first", 6));
    assert_eq!(answer, refused(RefusalCode::GpuShared));
    assert_eq!(stand.counted("gpu_shared"), 1);
    stand.finish();
    drop((alice, bob));
    stand.stop();
}

/// It connects, hands the connection on and ends; its id becomes the id of a process of the same
/// user that uses a GPU, of another job perhaps.
#[test]
fn whoever_has_the_id_next_is_not_who_connected() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let mut thief = User::new(ALICE);
    thief.connect(&ingest(&stand));
    let pid = thief.pid();
    thief.hand_on();
    let Some(victim) = User::with_pid(ALICE, pid) else {
        return eprintln!("SKIPPED: no process got the id {pid} again");
    };
    uses(&stand, 1, &[&victim]);
    thief.say(&FromHook::Hello(hello("stolen", 1)));
    assert_eq!(thief.hear(), refused(RefusalCode::NotHolder));
    assert_eq!(stand.counted("process_ended"), 1);
    assert!(stand.status().jobs.is_empty());
    stand.finish();
    drop((thief, victim));
    stand.stop();
}

/// A rank that is in already: who has its connection now speaks for nobody.
#[test]
fn a_rank_whose_process_ends_speaks_no_longer() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let mut thief = User::new(ALICE);
    uses(&stand, 1, &[&thief]);
    assert_eq!(thief.greet(&ingest(&stand), hello("train", 1)), Ok(()));
    let pid = thief.pid();
    thief.hand_on();
    let Some(victim) = User::with_pid(ALICE, pid) else {
        return eprintln!("SKIPPED: no process got the id {pid} again");
    };
    uses(&stand, 1, &[&victim]);
    thief.say(&clock(Some(1500)));
    pass_until(&mut stand, "a rank less", |stand| {
        stand.counted("process_ended") == 1
    });
    pass_until(&mut stand, "an end", |stand| stand.status().jobs.is_empty());
    pass_until(&mut stand, "a free clock", |stand| {
        locked(stand)[1].is_none()
    });
    drop((thief, victim));
    stand.stop();
}

#[test]
fn a_member_of_the_control_group_commands_and_takes_no_job() {
    if !is_root() {
        return;
    }
    let Some(admins) = group("adm") else { return };
    let groups = "control.read_group = \"adm\"\ncontrol.admin_group = \"adm\"\n";
    let mut stand = stand(&format!("{}{groups}", quick("gpu-realloc")));
    let mut alice = User::new(ALICE);
    let mut member = User::in_group(BOB, admins);
    uses(&stand, 0, &[&alice]);
    assert_eq!(alice.greet(&ingest(&stand), hello("train", 0)), Ok(()));
    let control = stand.rig.layout().control();
    assert_eq!(member.ask(&control, "GET", "/v1/status", ""), "200");
    assert_eq!(
        member.ask(&control, "POST", "/v1/command", "{\"command\":\"forget\"}"),
        "200"
    );
    // The name of her job, her GPU, and a GPU of the member's own.
    let answer = member.greet(&ingest(&stand), hello("train", 0));
    assert_eq!(answer, refused(RefusalCode::NotHolder));
    uses(&stand, 7, &[&member]);
    let second = Hello {
        rank: 1,
        world_size: 2,
        local_world_size: 2,
        ..hello("train", 7)
    };
    assert_eq!(member.greet(&ingest(&stand), second), Ok(()));
    assert_eq!(
        alice.ask(&control, "GET", "/v1/status", ""),
        "PermissionDenied"
    );
    // His is a job of its own.
    let jobs = stand.status().jobs.into_iter();
    let jobs: Vec<_> = jobs.map(|it| (it.name, it.uid, it.ranks.len())).collect();
    let his = format!("user-{BOB}/train");
    assert_eq!(jobs, [("train".to_owned(), ALICE, 1), (his, BOB, 1)],);
    stand.finish();
    drop((alice, member));
    stand.stop();
}

#[test]
fn a_flood_of_clocks_costs_the_driver_and_the_disk_no_more_than_is_configured() {
    if !is_root() {
        return;
    }
    let limits = "clocks.per_second = 2.0\nclocks.per_minute = 12.0\n";
    let mut stand = stand(&format!("{}{limits}", quick("gpu-realloc")));
    let mut alice = User::new(ALICE);
    uses(&stand, 5, &[&alice]);
    assert_eq!(alice.greet(&ingest(&stand), hello("plan", 5)), Ok(()));
    let journal = stand.rig.layout().state().join("journal");
    let locks = |stand: &Stand| stand.rig.hardware().nvidia().gpus[5].locks.len();
    let operations = |stand: &Stand| {
        let locks = stand.rig.hardware().nvidia().gpus[5].locks.clone();
        locks.iter().flatten().count()
    };
    alice.say(&clock(Some(1500)));
    pass_until(&mut stand, "a lock", |stand| locks(stand) == 1);
    let before = fs::metadata(&journal).unwrap().len();
    for _ in 0..20 {
        let frames = stand.status().totals.frames;
        alice.say_in_turn(&[clock(Some(1000)), clock(None), clock(Some(1400))], 30);
        wait_for("frames", || stand.status().totals.frames >= frames + 90);
        stand.pass(0.5);
    }
    // Ten seconds: a minute's worth, and two more.
    let count = operations(&stand);
    assert!((8..=14).contains(&count), "{count} locks");
    assert!(stand.counted("clocks_too_often") > 0);
    assert!(stand.has_event(EventKind::Job, "clocks.per_second = 2"));
    let grown = fs::metadata(&journal).unwrap().len().saturating_sub(before);
    assert!(grown < 4096, "{grown} bytes of journal");
    // The latest counts.
    pass_until(&mut stand, "the last wish", |stand| {
        locked(stand)[5] == Some(1400)
    });
    drop(alice);
    pass_until(&mut stand, "an end", |stand| journaled(stand).is_empty());
    stand.stop();
}

#[test]
fn a_clock_below_the_floor_is_refused_and_said() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let mut alice = User::new(ALICE);
    uses(&stand, 5, &[&alice]);
    assert_eq!(alice.greet(&ingest(&stand), hello("plan", 5)), Ok(()));
    for _ in 0..3 {
        alice.say(&clock(Some(1)));
        let low = |stand: &Stand| stand.counted("clocks_too_low") > 0;
        pass_until(&mut stand, "a refusal", low);
    }
    assert!(stand.has_event(EventKind::Job, "clocks.floor_share = 0.3"));
    assert!(stand.rig.hardware().nvidia().gpus[5].locks.is_empty());
    assert_eq!(journaled(&stand), [""; 0]);
    // A configuration that is stricter frees what is lower.
    alice.say(&clock(Some(1500)));
    pass_until(&mut stand, "a lock", |stand| locked(stand)[5] == Some(1500));
    stand.reload(&format!(
        "{}clocks.floor_share = 0.9\n",
        quick("gpu-realloc")
    ));
    pass_until(&mut stand, "a free clock", |stand| {
        locked(stand)[5].is_none()
    });
    drop(alice);
    stand.stop();
}

#[test]
fn whoever_takes_a_jobs_name_first_keeps_nobody_elses_job_from_being_steered() {
    if !is_root() {
        return;
    }
    let mut stand = stand(&quick("gpu-realloc"));
    let (mut bob, mut first, mut second) = (User::new(BOB), User::new(ALICE), User::new(ALICE));
    uses(&stand, 7, &[&bob]);
    uses(&stand, 0, &[&first]);
    uses(&stand, 1, &[&second]);
    assert_eq!(bob.greet(&ingest(&stand), hello("train", 7)), Ok(()));
    let rank = |rank: u32| Hello {
        rank,
        local_rank: rank,
        world_size: 2,
        local_world_size: 2,
        ..hello("train", rank as usize)
    };
    assert_eq!(first.greet(&ingest(&stand), rank(0)), Ok(()));
    // The name is free again, and her job keeps the one that it has.
    drop(bob);
    pass_until(&mut stand, "his end", |stand| {
        stand.status().jobs.len() == 1
    });
    assert_eq!(second.greet(&ingest(&stand), rank(1)), Ok(()));
    let job = stand.job_status(&format!("user-{ALICE}/train"));
    assert_eq!((job.uid, job.ranks.len()), (ALICE, 2));
    // Nobody else has a job of that name, whatever he calls his.
    let mut bob = User::new(BOB);
    uses(&stand, 7, &[&bob]);
    let name = format!("user-{ALICE}/train");
    assert_eq!(bob.greet(&ingest(&stand), hello(&name, 7)), Ok(()));
    let his = stand.job_status(&format!("user-{BOB}/{name}"));
    assert_eq!((his.uid, his.ranks.len()), (BOB, 1));
    stand.finish();
    drop((first, second, bob));
    stand.stop();
}
