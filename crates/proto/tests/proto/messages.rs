//! Every message's bytes, what other versions may send, and what is refused.

use litd_proto::{
    Bye, Class, Directive, FromHook, Hello, Kernels, Limits, Notice, NoticeKind, Refusal,
    RefusalCode, SetClock, Tick, ToHook, Welcome, WireError, wire,
};
use litd_units::{Hertz, Nanos};
use prost::Message as _;

fn hello() -> Hello {
    Hello {
        protocol: 1,
        job: "llama".into(),
        rank: 9,
        local_rank: 1,
        world_size: 16,
        local_world_size: 8,
        gpu: "0000:85:00.0".into(),
        framework: "pytorch".into(),
        versions: [("torch".into(), "2.9.1".into())].into(),
        group: String::new(),
    }
}

fn kernels() -> Kernels {
    Kernels {
        iteration: 300,
        duration: Nanos(1_000_000),
        new_names: vec!["gemm".into(), "nccl".into()],
        name: vec![0, 1, 0],
        stream: vec![7, 300, 7],
        class: vec![Class::Computation, Class::Communication, Class::Unspecified],
        start: vec![Nanos(1000), Nanos(1100), Nanos(1050)],
        duration_of: vec![Nanos(90), Nanos(200), Nanos(0)],
        shows_collectives: false,
    }
}

fn from_hook() -> [(FromHook, Vec<u8>); 6] {
    let tick = Tick {
        iteration: 300,
        duration: Nanos(1_000_000),
        profiled: true,
        overhead: Nanos::ZERO,
    };
    let bye = Bye {
        reason: "done".into(),
    };
    let notice = Notice {
        kind: NoticeKind::ProfilingOff,
        text: "off".into(),
        samples: 0,
    };
    [
        (
            FromHook::Hello(hello()),
            [
                b"\x0a\x38\x08\x01\x12\x05llama\x18\x09\x20\x01\x28\x10\x30\x08".as_slice(),
                b"\x3a\x0c0000:85:00.0\x42\x07pytorch",
                b"\x4a\x0e\x0a\x05torch\x12\x052.9.1",
            ]
            .concat(),
        ),
        (
            FromHook::Kernels(kernels()),
            [
                b"\x12\x30\x08\xac\x02\x10\xc0\x84\x3d\x1a\x04gemm\x1a\x04nccl".as_slice(),
                b"\x22\x03\x00\x01\x00\x2a\x04\x07\xac\x02\x07\x32\x03\x01\x02\x00",
                b"\x3a\x05\xd0\x0f\xc8\x01\x63\x42\x04\x5a\xc8\x01\x00",
            ]
            .concat(),
        ),
        (
            FromHook::Tick(tick),
            b"\x1a\x09\x08\xac\x02\x10\xc0\x84\x3d\x18\x01".to_vec(),
        ),
        (FromHook::Bye(bye), b"\x22\x06\x0a\x04done".to_vec()),
        (
            FromHook::Notice(notice),
            b"\x2a\x07\x08\x01\x12\x03off".to_vec(),
        ),
        (
            FromHook::SetClock(SetClock {
                clock: Some(Hertz(1410e6)),
            }),
            b"\x32\x03\x08\x82\x0b".to_vec(),
        ),
    ]
}

fn to_hook() -> [(ToHook, Vec<u8>); 3] {
    let directive = Directive {
        first: 300,
        period: 50,
        pause: true,
    };
    let welcome = Welcome {
        protocol: 1,
        daemon: "0.1.0".into(),
        directive,
        ..Welcome::default()
    };
    let refusal = Refusal {
        code: RefusalCode::Busy,
        reason: "full".into(),
        retry_after: Some(Nanos(2_000_000)),
    };
    [
        (
            ToHook::Welcome(welcome),
            b"\x0a\x12\x08\x01\x12\x050.1.0\x1a\x07\x08\xac\x02\x10\x32\x18\x01".to_vec(),
        ),
        (
            ToHook::Directive(directive),
            b"\x12\x07\x08\xac\x02\x10\x32\x18\x01".to_vec(),
        ),
        (
            ToHook::Refusal(refusal),
            b"\x1a\x0a\x08\x09\x12\x04full\x18\x02".to_vec(),
        ),
    ]
}

fn decode(frame: &[u8]) -> Result<FromHook, WireError> {
    FromHook::decode(frame, &Limits::default())
}

/// A frame of a message that no well-behaved hook would send.
fn frame(message: impl Into<wire::from_hook::Message>) -> Vec<u8> {
    let message = Some(message.into());
    wire::FromHook { message }.encode_to_vec()
}

fn bare_hello() -> wire::Hello {
    let frame = wire::FromHook::decode(&*FromHook::Hello(hello()).encode()).unwrap();
    match frame.message {
        Some(wire::from_hook::Message::Hello(hello)) => hello,
        other => panic!("{other:?}"),
    }
}

fn bare_kernels() -> wire::Kernels {
    let frame = wire::FromHook::decode(&*FromHook::Kernels(kernels()).encode()).unwrap();
    match frame.message {
        Some(wire::from_hook::Message::Kernels(kernels)) => kernels,
        other => panic!("{other:?}"),
    }
}

fn refused_hello(change: impl FnOnce(&mut wire::Hello)) -> WireError {
    let mut hello = bare_hello();
    change(&mut hello);
    decode(&frame(wire::from_hook::Message::Hello(hello))).unwrap_err()
}

fn refused_kernels(change: impl FnOnce(&mut wire::Kernels)) -> WireError {
    let mut kernels = bare_kernels();
    change(&mut kernels);
    decode(&frame(wire::from_hook::Message::Kernels(kernels))).unwrap_err()
}

#[test]
fn bytes_never_change() {
    for (message, bytes) in from_hook() {
        assert_eq!(message.encode(), bytes, "{message:?}");
        assert_eq!(decode(&bytes), Ok(message));
    }
    for (message, bytes) in to_hook() {
        assert_eq!(message.encode(), bytes, "{message:?}");
        assert_eq!(ToHook::decode(&bytes, &Limits::default()), Ok(message));
    }
}

#[test]
fn codes_never_change() {
    for (number, code) in RefusalCode::ALL.into_iter().enumerate() {
        let refusal = ToHook::Refusal(Refusal {
            code,
            reason: "r".into(),
            retry_after: None,
        });
        let expected: &[u8] = match u8::try_from(number).unwrap() {
            0 => b"\x1a\x03\x12\x01r",
            number => &[0x1a, 5, 8, number, 0x12, 1, b'r'],
        };
        assert_eq!(refusal.encode(), expected);
        assert_eq!(ToHook::decode(expected, &Limits::default()), Ok(refusal));
    }
    // A code of a later litd.
    let later = ToHook::decode(b"\x1a\x02\x08\x63", &Limits::default());
    assert!(matches!(
        later,
        Ok(ToHook::Refusal(Refusal {
            code: RefusalCode::Unspecified,
            retry_after: None,
            ..
        }))
    ));
}

/// Fields of a later version, of every wire type, with numbers that are free today.
const LATER: &[u8] = b"\xa0\x06\x05\xaa\x06\x02hi\xad\x06\x01\x02\x03\x04\
    \xa9\x06\x01\x02\x03\x04\x05\x06\x07\x08";

/// The frame, with `LATER` appended both to the message in it and to the frame itself.
fn from_later(frame: &[u8]) -> Vec<u8> {
    let (key, message) = (frame[0], &frame[2..]);
    let length = u8::try_from(message.len() + LATER.len()).unwrap();
    assert!(length < 128);
    [&[key, length], message, LATER, LATER].concat()
}

#[test]
fn unknown_fields_are_ignored() {
    for (message, bytes) in from_hook() {
        assert_eq!(decode(&from_later(&bytes)), Ok(message));
    }
    for (message, bytes) in to_hook() {
        let later = from_later(&bytes);
        assert_eq!(ToHook::decode(&later, &Limits::default()), Ok(message));
    }
}

#[test]
fn unknown_messages_and_values_are_ignored() {
    for bytes in [LATER, b"", b"\x3a\x03abc"] {
        assert_eq!(decode(bytes), Ok(FromHook::Unknown));
        let answer = ToHook::decode(bytes, &Limits::default());
        assert_eq!(answer, Ok(ToHook::Unknown));
    }
    assert_eq!(decode(&FromHook::Unknown.encode()), Ok(FromHook::Unknown));
    let mut kernels = bare_kernels();
    kernels.kernel_class = vec![3, 77, -1];
    let decoded = decode(&frame(wire::from_hook::Message::Kernels(kernels)));
    let Ok(FromHook::Kernels(kernels)) = decoded else {
        panic!("{decoded:?}");
    };
    let expected = [Class::Copy, Class::Unspecified, Class::Unspecified];
    assert_eq!(kernels.class, expected);
}

#[test]
fn absent_fields_have_their_defaults() {
    assert_eq!(
        decode(b"\x12\x00"),
        Ok(FromHook::Kernels(Kernels::default()))
    );
    assert_eq!(decode(b"\x1a\x00"), Ok(FromHook::Tick(Tick::default())));
    let welcome = ToHook::decode(b"\x0a\x02\x08\x01", &Limits::default());
    let none = Directive::default();
    assert!(matches!(welcome, Ok(ToHook::Welcome(w)) if w.directive == none));
}

#[test]
fn a_frame_cut_anywhere_is_refused() {
    let cut = |bytes: &[u8], at| matches!(decode(&bytes[..at]), Err(WireError::Malformed(_)));
    for (message, bytes) in from_hook() {
        // An empty frame is an unknown message; every incomplete one is an error.
        for at in 1..bytes.len() {
            assert!(cut(&bytes, at), "{message:?} cut at {at}");
        }
    }
    for (message, bytes) in to_hook() {
        for at in 1..bytes.len() {
            let decoded = ToHook::decode(&bytes[..at], &Limits::default());
            assert!(decoded.is_err(), "{message:?} cut at {at}");
        }
    }
}

#[test]
fn a_frame_has_one_message() {
    let (_, tick) = &from_hook()[2];
    let (_, bye) = &from_hook()[3];
    for frame in [[&**tick, tick].concat(), [&**tick, bye].concat()] {
        let fault = WireError::Malformed("more than one message in a frame");
        assert_eq!(decode(&frame), Err(fault));
    }
    let number = WireError::Malformed("a number where a message belongs");
    assert_eq!(decode(b"\x08\x01"), Err(number));
}

#[test]
fn impossible_ranks_are_refused() {
    for (change, words) in [
        (
            (|h| h.world_size = 0) as fn(&mut wire::Hello),
            "rank 9 is not below world_size 0",
        ),
        (|h| h.rank = 16, "rank 16 is not below world_size 16"),
        (
            |h| h.local_rank = 8,
            "local_rank 8 is not below local_world_size 8",
        ),
        (
            |h| h.local_world_size = 0,
            "local_rank 1 is not below local_world_size 0",
        ),
        (
            |h| h.local_world_size = 17,
            "local_world_size 17 is above world_size 16",
        ),
    ] {
        let fault = refused_hello(change);
        assert_eq!(fault.to_string(), words);
        assert_eq!(fault.code(), RefusalCode::Malformed);
    }
}

#[test]
fn what_names_something_is_refused_and_other_text_is_cleaned() {
    let empty = refused_hello(|h| h.job.clear());
    assert_eq!(empty, WireError::Empty("job"));
    assert_eq!(refused_hello(|h| h.gpu.clear()), WireError::Empty("gpu"));
    let control = refused_hello(|h| h.job = "a\nb".into());
    assert_eq!(control, WireError::Control("job"));
    let control = refused_hello(|h| h.gpu = "\u{9b}1m".into());
    assert_eq!(control, WireError::Control("gpu"));

    let mut hello = bare_hello();
    hello.framework = "py\x1b[2J".into();
    hello.versions = [("a\0".into(), "1\n2".into())].into();
    let decoded = decode(&frame(wire::from_hook::Message::Hello(hello)));
    let Ok(FromHook::Hello(hello)) = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(hello.framework, "py\u{fffd}[2J");
    let versions = [("a\u{fffd}".to_owned(), "1\u{fffd}2".to_owned())];
    assert_eq!(hello.versions, versions.into());

    let mut kernels = bare_kernels();
    kernels.new_names = vec!["ge\rmm".into()];
    let decoded = decode(&frame(wire::from_hook::Message::Kernels(kernels)));
    let cleaned = |k: &Kernels| k.new_names == ["ge\u{fffd}mm"];
    assert!(matches!(decoded, Ok(FromHook::Kernels(k)) if cleaned(&k)));
}

#[test]
fn columns_must_be_equally_long() {
    for (change, words) in [
        (
            (|k| k.stream.truncate(2)) as fn(&mut wire::Kernels),
            "column stream has 2 elements, column name has 3",
        ),
        (
            |k| k.kernel_class.push(1),
            "column kernel_class has 4 elements, column name has 3",
        ),
        (
            |k| k.start_delta_ns.clear(),
            "column start_delta_ns has 0 elements, column name has 3",
        ),
        (
            |k| k.kernel_duration_ns.push(1),
            "column kernel_duration_ns has 4 elements, column name has 3",
        ),
        (
            |k| k.name.clear(),
            "column stream has 3 elements, column name has 0",
        ),
    ] {
        assert_eq!(refused_kernels(change).to_string(), words);
    }
}

#[test]
fn times_out_of_range_are_refused() {
    const LAST: i64 = i64::MAX;
    let kernel = |kernel| WireError::KernelTime { kernel };
    for (starts, durations, fault) in [
        ([-1, 5, 0], [0, 0, 0], kernel(0)),
        ([10, -11, 5], [0, 0, 0], kernel(1)),
        ([LAST, 0, 1], [0, 0, 0], kernel(2)),
        ([i64::MIN, 0, 0], [0, 0, 0], kernel(0)),
        ([0, 0, 0], [0, LAST as u64 + 1, 0], kernel(1)),
        ([0, 0, LAST], [0, 0, 1], kernel(2)),
        ([0, 0, 0], [0, 0, u64::MAX], kernel(2)),
    ] {
        let found = refused_kernels(|k| {
            k.start_delta_ns = starts.into();
            k.kernel_duration_ns = durations.into();
        });
        assert_eq!(found, fault, "{starts:?} {durations:?}");
    }
    let iteration = refused_kernels(|k| k.duration_ns = 1 << 63);
    assert!(matches!(iteration, WireError::Time { .. }));
    let tick = wire::Tick {
        duration_ns: u64::MAX,
        ..wire::Tick::default()
    };
    let tick = decode(&frame(wire::from_hook::Message::Tick(tick)));
    assert!(matches!(tick, Err(WireError::Time { .. })));
}

#[test]
fn limits_hold_exactly() {
    let enough = Limits {
        kernels: 3,
        names: 2,
        name_bytes: 8,
        text_bytes: 12,
    };
    let hello = FromHook::Hello(hello()).encode();
    let kernels = FromHook::Kernels(kernels()).encode();
    assert!(FromHook::decode(&hello, &enough).is_ok());
    assert!(FromHook::decode(&kernels, &enough).is_ok());
    for (change, frame, what) in [
        (
            (|l| l.kernels = 2) as fn(&mut Limits),
            &kernels,
            "kernels: 3, and the limit is 2",
        ),
        (
            |l| l.names = 1,
            &kernels,
            "new names: 2, and the limit is 1",
        ),
        (
            |l| l.name_bytes = 7,
            &kernels,
            "bytes of new names: 8, and the limit is 7",
        ),
        (
            |l| l.text_bytes = 11,
            &hello,
            "bytes of gpu: 12, and the limit is 11",
        ),
    ] {
        let mut limits = enough;
        change(&mut limits);
        let fault = FromHook::decode(frame, &limits).unwrap_err();
        assert_eq!(fault.to_string(), what);
        assert_eq!(fault.code(), RefusalCode::Limits);
    }
}

#[test]
fn every_text_and_list_has_a_limit() {
    let long = "x".repeat(Limits::default().text_bytes + 1);
    let is_limit = |fault| matches!(fault, WireError::Limit { .. });
    assert!(is_limit(refused_hello(|h| h.job = long.clone())));
    assert!(is_limit(refused_hello(|h| h.gpu = long.clone())));
    assert!(is_limit(refused_hello(|h| h.framework = long.clone())));
    let many = (0..33).map(|k| (k.to_string(), String::new())).collect();
    assert!(is_limit(refused_hello(|h| h.versions = many)));
    let large = [("v".into(), "x".repeat(33 * 1024))].into();
    assert!(is_limit(refused_hello(|h| h.versions = large)));
    let bye = wire::Bye {
        reason: long.clone(),
    };
    let bye = decode(&frame(wire::from_hook::Message::Bye(bye)));
    assert!(is_limit(bye.unwrap_err()));
    let limits = Limits {
        text_bytes: 3,
        ..Limits::default()
    };
    let [(_, welcome), _, (_, refusal)] = to_hook();
    assert!(is_limit(ToHook::decode(&welcome, &limits).unwrap_err()));
    assert!(is_limit(ToHook::decode(&refusal, &limits).unwrap_err()));
    let too_many = |change: fn(&mut wire::Kernels)| {
        let limits = Limits {
            kernels: 3,
            ..Limits::default()
        };
        let mut kernels = bare_kernels();
        change(&mut kernels);
        let bytes = frame(wire::from_hook::Message::Kernels(kernels));
        is_limit(FromHook::decode(&bytes, &limits).unwrap_err())
    };
    assert!(too_many(|k| k.name.push(0)));
    assert!(too_many(|k| k.stream.push(0)));
    assert!(too_many(|k| k.kernel_class.push(0)));
    assert!(too_many(|k| k.start_delta_ns.push(0)));
    assert!(too_many(|k| k.kernel_duration_ns.push(0)));
}
