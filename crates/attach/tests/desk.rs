//! The protocol, byte by byte, and what no sender gets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use litd_attach::{
    BadTrace, Client, Desk, HEAD, LONGEST, Looked, Malformed, Message, NoWish, Outcome, Owner,
    Poll, Register, Sender, Stage, Trace, Window, answer, registered,
};
use litd_units::Nanos;

const NOW: Nanos = Nanos(1_000_000_000_000);

/// A client: process 4711 of user 1000, which calls itself 17.
const ALICE: Sender = Sender {
    pid: 4711,
    uid: 1000,
};
const LOOKED: Looked = Looked {
    own: 17,
    began: 900,
    owner: Owner::User(1000),
    job: None,
    parent: 1,
};

fn seconds(seconds: i64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

/// Hexadecimal text as bytes; the rest of a head's 32 bytes for its kind is left out in it.
fn bytes(length: &str, kind: &str, body: &str) -> Vec<u8> {
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<u8> = text
            .bytes()
            .filter(|it| !it.is_ascii_whitespace())
            .collect();
        let pairs = digits.chunks(2).map(|it| std::str::from_utf8(it).unwrap());
        pairs
            .map(|it| u8::from_str_radix(it, 16).unwrap())
            .collect()
    };
    let mut all = hex(length);
    all.extend(hex(kind));
    all.resize(HEAD, 0);
    all.extend(hex(body));
    all
}

/// A poll for traces of the client that calls itself so, with one ancestor.
fn poll(own: i32) -> Vec<u8> {
    let mut all = 24_u64.to_ne_bytes().to_vec();
    all.extend(b"req");
    all.resize(HEAD, 0);
    for number in [2_i32, 2] {
        all.extend(number.to_ne_bytes());
    }
    all.extend(99_i64.to_ne_bytes());
    for pid in [own, 1] {
        all.extend(pid.to_ne_bytes());
    }
    all
}

fn trace() -> Trace {
    Trace {
        file: "/tmp/litd-0123.json".to_owned(),
        window: Window {
            iterations: 2,
            roundup: 10,
            milliseconds: 500,
            start: None,
        },
        host: false,
    }
}

fn nothing_to_do() -> Outcome {
    Outcome::Answer(answer(""))
}

/// A desk that Alice's client has asked once.
fn asked() -> Desk {
    let mut desk = Desk::default();
    assert!(desk.wants_look(ALICE));
    let outcome = desk.take(NOW, ALICE, Some(LOOKED), &poll(17));
    assert_eq!(outcome, nothing_to_do());
    desk
}

#[test]
#[cfg(target_endian = "little")]
fn messages_are_those_bytes() {
    // As PyTorch 2.15's client sends it: type 2, six process ids, no job of Slurm's.
    let body =
        "02000000 06000000 0000000000000000 ac260000 ab260000 0f1e0000 00120000 05000000 01000000";
    let datagram = bytes("2800000000000000", "726571", body);
    assert_eq!(datagram.len(), 80);
    let read = Message::read(&datagram).unwrap();
    let wanted = Poll {
        kinds: 2,
        job: 0,
        own: 9900,
        ancestors: vec![9899, 7695, 4608, 5, 1],
    };
    assert_eq!(read, Message::Poll(wanted));

    let body = "03000000 11000000 e703000000000000";
    let datagram = bytes("1000000000000000", "63747874", body);
    let wanted = Register {
        gpu: 3,
        own: 17,
        job: 999,
    };
    assert_eq!(Message::read(&datagram), Ok(Message::Register(wanted)));

    assert_eq!(answer(""), bytes("0000000000000000", "726571", ""));
    let told = bytes("0500000000000000", "726571", "413d310a42");
    assert_eq!(answer("A=1\nB"), told);
    let counted = bytes("0400000000000000", "63747874", "02000000");
    assert_eq!(registered(2), counted);
}

#[test]
fn a_configuration_is_this_text() {
    assert_eq!(
        trace().text().unwrap(),
        "ACTIVITIES_LOG_FILE=/tmp/litd-0123.json\nPROFILE_START_ITERATION=0\n\
         PROFILE_START_ITERATION_ROUNDUP=10\nACTIVITIES_ITERATIONS=2\nACTIVITIES_DURATION_MSECS=500\n\
         ACTIVITY_TYPES=kernel,gpu_memcpy,gpu_memset,user_annotation\n"
    );
    let mut later = trace();
    later.window.start = Some(1_760_000_000_123);
    let text = later.text().unwrap();
    let (same, start) = text.split_at(trace().text().unwrap().len());
    assert_eq!(same, trace().text().unwrap());
    assert_eq!(
        start,
        "PROFILE_START_TIME=1760000000123\nACTIVITIES_WARMUP_PERIOD_SECS=1\n"
    );
    assert_eq!(trace().written(17), "/tmp/litd-0123_17.json");
    for line in trace().text().unwrap().lines() {
        assert_eq!(line.matches('=').count(), 1, "{line}");
    }
}

#[test]
fn what_a_client_would_misread_is_refused() {
    for file in [
        "tmp/a.json",
        "/tmp/a",
        "/tmp/a b.json",
        "/tmp/a=b.json",
        "/tmp/a#b.json",
        "/tmp/a\nb.json",
        "/tmp/\0.json",
    ] {
        let file = file.to_owned();
        let trace = Trace { file, ..trace() };
        assert_eq!(trace.text(), Err(BadTrace::File), "{trace:?}");
    }
    let file = format!("/tmp/{}.json", "a".repeat(4096));
    assert!(Trace { file, ..trace() }.text().is_err());
    for (iterations, roundup, milliseconds) in [
        (0, 1, 1),
        (1001, 1, 1),
        (1, 0, 1),
        (1, 1, 0),
        (1, 1, 60_001),
    ] {
        let window = Window {
            iterations,
            roundup,
            milliseconds,
            start: None,
        };
        let trace = Trace { window, ..trace() };
        assert_eq!(trace.text(), Err(BadTrace::Window), "{window:?}");
    }
}

#[test]
fn cut_and_oversize_messages_are_malformed_and_get_no_answer() {
    let whole = poll(17);
    let mut desk = asked();
    let mut count = 0;
    for length in 0..whole.len() {
        let outcome = desk.take(NOW, ALICE, Some(LOOKED), &whole[..length]);
        assert_eq!(outcome, Outcome::Nothing, "{length} bytes");
        count += 1;
    }
    let mut long = whole.clone();
    long.push(0);
    assert_eq!(Message::read(&long), Err(Malformed::Length));
    long.resize(LONGEST + 1, 0);
    let length = (long.len() - HEAD) as u64;
    long[..8].copy_from_slice(&length.to_ne_bytes());
    assert_eq!(Message::read(&long), Err(Malformed::Body));
    let other = [b"reqx", b"REQ\0", b"\0req"];
    for kind in other {
        let mut named = whole.clone();
        named[8..12].copy_from_slice(kind);
        assert_eq!(Message::read(&named), Err(Malformed::Kind));
    }
    // As many ids as a number can say, and none.
    for said in [i32::MIN, -1, 0, 1, 3, i32::MAX] {
        let mut lying = whole.clone();
        lying[HEAD + 4..HEAD + 8].copy_from_slice(&said.to_ne_bytes());
        assert_eq!(Message::read(&lying), Err(Malformed::Body), "{said}");
    }
    assert_eq!(desk.counts().malformed, count);
}

#[test]
fn a_wish_is_told_once_to_its_client() {
    let mut desk = asked();
    let ticket = desk.want(NOW, ALICE.pid, &trace()).unwrap();
    assert_eq!(desk.want(NOW, ALICE.pid, &trace()), Err(NoWish::Busy));
    assert!(desk.wants_look(ALICE));
    let told = desk.take(NOW + seconds(5), ALICE, Some(LOOKED), &poll(17));
    let text = trace().text().unwrap();
    assert_eq!(told, Outcome::Told(ticket, answer(&text)));
    assert!(!desk.wants_look(ALICE));
    for at in [10, 15] {
        let next = desk.take(NOW + seconds(at), ALICE, None, &poll(17));
        assert_eq!(next, nothing_to_do());
    }
    assert_eq!(desk.get(ALICE.pid).and_then(Client::ticket), Some(ticket));
    desk.end(ALICE.pid, ticket);
    let again = desk.want(NOW + seconds(16), ALICE.pid, &trace()).unwrap();
    assert_ne!(again, ticket);
    // An old ticket ends nothing.
    desk.end(ALICE.pid, ticket);
    assert_eq!(desk.get(ALICE.pid).and_then(Client::ticket), Some(again));
    assert_eq!(desk.counts().told, 1);
}

#[test]
fn nobody_gets_a_wish_in_anothers_name() {
    let mut desk = asked();
    desk.want(NOW, ALICE.pid, &trace()).unwrap();
    let mallory = Sender {
        pid: 666,
        uid: 1001,
    };
    let other = Looked {
        own: 5,
        began: 950,
        owner: Owner::User(1001),
        job: None,
        parent: 1,
    };
    // Another process says Alice's id, of which procfs knows better, or procfs knows nothing.
    for looked in [Some(other.clone()), None] {
        let outcome = desk.take(NOW, mallory, looked, &poll(17));
        assert_eq!(outcome, nothing_to_do());
    }
    assert_eq!((desk.counts().impostors, desk.counts().unsure), (1, 1));
    assert!(desk.get(mallory.pid).is_none());
    // Mallory's process in a namespace of its own has the same id there.
    let outcome = desk.take(NOW, mallory, Some(LOOKED), &poll(17));
    assert_eq!(outcome, nothing_to_do());
    // Alice's own process is not believed to have another id, nor before procfs was asked.
    assert_eq!(
        desk.take(NOW, ALICE, Some(LOOKED), &poll(18)),
        nothing_to_do()
    );
    assert_eq!(desk.take(NOW, ALICE, None, &poll(17)), nothing_to_do());
    // A later process with her process's id, and one of another user's, get nothing of hers.
    let later = Looked {
        began: 1000,
        ..LOOKED
    };
    let mut reused = desk.clone();
    let outcome = reused.take(NOW, ALICE, Some(later), &poll(17));
    assert_eq!(outcome, nothing_to_do());
    assert_eq!(reused.get(ALICE.pid).unwrap().stage, Stage::Idle);
    let taken = Sender { uid: 1001, ..ALICE };
    assert!(desk.wants_look(taken));
    let mut other = desk.clone();
    let outcome = other.take(NOW, taken, Some(LOOKED), &poll(17));
    assert_eq!(outcome, nothing_to_do());
    // Alice's gets it.
    let told = desk.take(NOW, ALICE, Some(LOOKED), &poll(17));
    assert_ne!(told, nothing_to_do());
}

#[test]
fn whoever_goes_is_forgotten_and_no_wish_waits_for_ever() {
    let mut desk = asked();
    desk.want(NOW, ALICE.pid, &trace()).unwrap();
    let late = desk.take(NOW + seconds(16), ALICE, Some(LOOKED), &poll(17));
    assert_eq!(late, nothing_to_do());
    desk.want(NOW + seconds(16), ALICE.pid, &trace()).unwrap();
    let told = desk.take(NOW + seconds(17), ALICE, Some(LOOKED), &poll(17));
    assert_ne!(told, nothing_to_do());
    for at in (20..=45).step_by(5) {
        desk.take(NOW + seconds(at), ALICE, None, &poll(17));
    }
    let early = desk.want(NOW + seconds(46), ALICE.pid, &trace());
    assert_eq!(early, Err(NoWish::Busy));
    desk.want(NOW + seconds(47), ALICE.pid, &trace()).unwrap();
    desk.forget_gone(NOW + seconds(76));
    assert_eq!(desk.clients().count(), 0);
    let gone = desk.want(NOW + seconds(76), ALICE.pid, &trace());
    assert_eq!(gone, Err(NoWish::Unknown));
}

#[test]
fn a_user_with_very_many_processes_keeps_nobody_out() {
    let mut desk = Desk::default();
    // Some of his processes run under ids that are subordinate to his.
    let owner = |uid: u32| if uid >= 100_000 { 1000 } else { uid };
    let mut ask = |now: Nanos, uid: u32, pid: u32| {
        let sender = Sender { pid, uid };
        let looked = Looked {
            owner: Owner::User(owner(uid)),
            ..LOOKED
        };
        desk.take(now, sender, Some(looked), &poll(17));
        desk.clients().count()
    };
    for pid in 0..2000 {
        ask(NOW, [1000, 100_000 + pid][pid as usize % 2], pid);
    }
    assert_eq!(ask(NOW, 1000, 2000), 1024);
    assert_eq!(ask(NOW, 105_000, 2001), 1024);
    assert_eq!(ask(NOW, 1001, 5000), 1025);
    // Those that have gone make room.
    assert_eq!(ask(NOW + seconds(60), 1000, 2001), 1);
    for uid in 0..100 {
        for pid in 0..100 {
            ask(NOW + seconds(61), uid, 10_000 + 100 * uid + pid);
        }
    }
    // The last users find places too, because each has few, and so does another one.
    let all = ask(NOW + seconds(62), 1, 10_100);
    assert!(all > 4096 && all < 2 * 4096, "{all}");
    assert_eq!(ask(NOW + seconds(62), 5000, 1), all + 1);
}

/// In pods most processes are of user 0, and a pod's root can have any other user ids.
#[test]
fn pods_with_very_many_processes_keep_no_other_pod_out() {
    let mut desk = Desk::default();
    let mut ask = |pod: u32, uid: u32, pid: u32| {
        let sender = Sender { pid, uid };
        let looked = Looked {
            owner: Owner::Pod(format!("pod-{pod}")),
            ..LOOKED
        };
        desk.take(NOW, sender, Some(looked), &poll(17));
        desk.get(pid).is_some()
    };
    let places = (0..2000).filter(|&pid| ask(1, pid % 7, pid)).count();
    assert_eq!(places, 1024);
    assert!(ask(2, 0, 10_000));
    for pod in 3..30 {
        for pid in 0..1000 {
            ask(pod, 0, 100_000 + 1000 * pod + pid);
        }
    }
    assert!(ask(100, 0, 20_000));
}

/// Whatever comes, in whatever order: nobody is told but the client that was meant, and every table stays bounded.
/// `LITD_FUZZ`: how many datagrams (20,000 if not set).
#[test]
fn any_datagrams() {
    let told = std::env::var("LITD_FUZZ").ok();
    let count: u64 = told.map_or(20_000, |it| it.parse().unwrap());
    let mut random = Random(0x5eed);
    let mut desk = Desk::default();
    let (mut now, mut wanted, mut answered) = (NOW, None, 0);
    for _ in 0..count {
        now += Nanos(random.below(1_000_000_000) as i64);
        let pid = random.below(6) as u32;
        let uid = if random.below(20) == 0 { 0 } else { pid % 3 };
        let sender = Sender { pid, uid };
        // Mostly one process per id, which mostly tells its own.
        let own = if random.below(20) == 0 { 9 } else { pid as i32 };
        let claimed = if random.below(10) == 0 { 3 } else { own };
        let mut datagram = poll(claimed);
        if random.below(4) == 0 {
            datagram[8..12].copy_from_slice(b"ctxt");
            datagram[..8].copy_from_slice(&16_u64.to_ne_bytes());
            datagram.truncate(HEAD + 16);
        }
        for _ in 0..random.below(5).saturating_sub(2) {
            let at = random.below(datagram.len() as u64) as usize;
            match random.below(3) {
                0 => datagram[at] = random.below(256) as u8,
                1 => datagram.truncate(at.max(1)),
                _ => datagram.push(random.below(256) as u8),
            }
        }
        let began = u64::from(random.below(20) == 0);
        let looks = random.below(8) > 0;
        let looked = (desk.wants_look(sender) && looks).then_some(Looked {
            own,
            began,
            owner: Owner::User(sender.uid),
            job: None,
            parent: 1,
        });
        if random.below(4) == 0 {
            let pid = random.below(6) as u32;
            if desk.want(now, pid, &trace()).is_ok() {
                let client = desk.get(pid).unwrap();
                wanted = Some((client.sender, client.looked.clone()));
            }
        }
        let before = desk.counts().told;
        let outcome = desk.take(now, sender, looked.clone(), &datagram);
        if outcome != Outcome::Nothing {
            answered += 1;
            assert!(Message::read(&datagram).is_ok());
            if let Outcome::Told(_, bytes) = &outcome {
                assert_eq!(desk.counts().told, before + 1);
                assert_eq!(*bytes, answer(&trace().text().unwrap()));
                let client = desk.get(sender.pid).unwrap();
                assert_eq!(looked.as_ref(), Some(&client.looked));
                assert!(matches!(client.stage, Stage::Told { at, .. } if at == now));
                assert!(wanted.is_some());
            } else {
                let counted = |it: &[u8]| it.len() == HEAD + 4;
                assert!(
                    outcome == nothing_to_do()
                        || matches!(&outcome, Outcome::Answer(it) if counted(it))
                );
            }
        }
        if let Some(client) = desk.get(sender.pid).filter(|_| random.below(5) == 0)
            && let Some(ticket) = client.ticket()
        {
            desk.end(sender.pid, ticket);
        }
        assert!(desk.clients().count() <= 6);
    }
    assert!(answered > count / 10, "{answered}");
    assert!(desk.counts().told > count / 1000, "{:?}", desk.counts());
}

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
