use super::*;

const LATE: Nanos = Nanos(60_000_000_000);

fn limits(sessions: usize, per_user: usize) -> Limits {
    Limits {
        sessions,
        sessions_per_user: per_user,
        ..Limits::default()
    }
}

/// Hooks of these users, connected one second after the other; each has its position as its id.
fn hooks(users: &[u32]) -> Hooks {
    let mut hooks = Hooks::default();
    for (at, &uid) in users.iter().enumerate() {
        hooks.add(SessionId(at as u64), hook(uid, at as i64));
    }
    hooks
}

fn hook(uid: u32, second: i64) -> Session {
    let peer = Peer { pid: 7, uid };
    Session::new(
        peer,
        None,
        Crowd::from(uid),
        10.0,
        Nanos(second * 1_000_000_000),
    )
}

fn says_hello(hooks: &mut Hooks, id: u64, device: usize) {
    let session = hooks.get_mut(SessionId(id)).unwrap();
    let hello = Hello {
        protocol: litd_proto::PROTOCOL,
        job: "job".to_owned(),
        rank: 0,
        local_rank: 0,
        world_size: 1,
        local_world_size: 1,
        gpu: format!("0000:0{device}:00.0"),
        framework: "pytorch".to_owned(),
        versions: BTreeMap::new(),
        group: String::new(),
    };
    session.is_checked(hello, device, LATE);
}

fn place(hooks: &mut Hooks, uid: u32, limits: &Limits) -> Result<Option<u64>, &'static str> {
    let place = hooks.place_for(&hook(uid, 60), limits, LATE);
    place.map(|goes| goes.map(|id| id.0)).map_err(|no| no.label)
}

#[test]
fn where_all_places_are_taken_the_largest_crowd_gives_one_up_its_oldest_silent_hook_first() {
    let limits = limits(4, 4);
    let mut hooks = hooks(&[1, 2, 2, 2]);
    assert_eq!(place(&mut hooks, 3, &limits), Ok(Some(1)));
    // Who has said hello waits for a driver; silent ones go before him.
    says_hello(&mut hooks, 1, 0);
    assert_eq!(place(&mut hooks, 3, &limits), Ok(Some(2)));
}

#[test]
fn who_uses_the_gpu_that_he_names_keeps_his_place() {
    let limits = limits(2, 4);
    let mut hooks = hooks(&[1, 2]);
    says_hello(&mut hooks, 0, 5);
    says_hello(&mut hooks, 1, 5);
    hooks.told_holders(5, vec![Peer { pid: 7, uid: 1 }]);
    assert_eq!(place(&mut hooks, 3, &limits), Ok(Some(1)));
    hooks.told_holders(5, vec![Peer { pid: 7, uid: 1 }, Peer { pid: 7, uid: 2 }]);
    assert_eq!(place(&mut hooks, 3, &limits), Err("busy"));
}

#[test]
fn a_user_with_all_his_places_loses_one_of_his_own_and_ranks_count_for_none() {
    let limits = limits(9, 2);
    let mut hooks = hooks(&[1, 2, 2]);
    assert_eq!(place(&mut hooks, 2, &limits), Ok(Some(1)));
    says_hello(&mut hooks, 1, 0);
    says_hello(&mut hooks, 2, 0);
    assert_eq!(place(&mut hooks, 2, &limits), Err("busy"));
    let rank = hooks.get_mut(SessionId(2)).unwrap();
    rank.attaches("job".to_owned(), 0, 1, 8);
    assert_eq!(place(&mut hooks, 2, &limits), Ok(None));
}

#[test]
fn a_crowd_that_connects_too_often_is_told_so_and_others_are_not() {
    let limits = limits(1_000_000, 1_000_000);
    let mut hooks = Hooks::default();
    let mut told = (0..10_000).map(|_| place(&mut hooks, 1, &limits));
    assert!(told.any(|it| it == Err("too_often")));
    assert_eq!(place(&mut hooks, 2, &limits), Ok(None));
    // Users by the thousand don't make litd forget him.
    for uid in 10..3000 {
        assert_eq!(place(&mut hooks, uid, &limits), Ok(None));
    }
    assert_eq!(place(&mut hooks, 1, &limits), Err("too_often"));
}

#[test]
fn a_rank_that_is_refused_is_told_once_that_it_was_one() {
    let mut out = Outbox::new(LATE, 0.0);
    let mut hooks = hooks(&[1]);
    let rank = hooks.get_mut(SessionId(0)).unwrap();
    rank.attaches("job".to_owned(), 3, 1, 8);
    let no = || No::new(RefusalCode::Limits, "names", "too many");
    let was = hooks.refuse(SessionId(0), no(), &mut out);
    assert_eq!(was, Some(("job".to_owned(), 3)));
    assert_eq!(hooks.refuse(SessionId(0), no(), &mut out), None);
    let closes = |effect: &Effect| {
        matches!(
            effect,
            Effect::Close {
                session: SessionId(0)
            }
        )
    };
    assert!(out.take().iter().any(closes));
    assert!(hooks.framed(SessionId(0)).is_none());
}

#[test]
fn who_says_nothing_and_whose_driver_says_nothing_is_overdue_after_ten_seconds() {
    let mut hooks = hooks(&[1, 2, 3]);
    says_hello(&mut hooks, 1, 0);
    hooks.get_mut(SessionId(2)).unwrap().is_turned_away();
    let overdue = |now| hooks.overdue(now).into_iter().map(|(id, _)| id.0);
    let ids = |now: i64| overdue(Nanos(now * 1_000_000_000)).collect::<Vec<_>>();
    assert_eq!(ids(9), [] as [u64; 0]);
    assert_eq!(ids(10), [0]);
    assert_eq!(ids(70), [0, 1]);
}
