//! Messages survive a round trip; arbitrary bytes do no harm. `PROPTEST_CASES` sets the number of cases.

use litd_proto::frame::{self, Reader};
use litd_proto::{
    Bye, Class, Directive, FromHook, Hello, Kernels, Limits, Notice, NoticeKind, Profiling,
    Refusal, RefusalCode, SetClock, Tick, ToHook, Welcome,
};
use litd_units::{Hertz, Nanos};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Small, so that made-up frames reach them.
const TIGHT: Limits = Limits {
    kernels: 20,
    names: 4,
    name_bytes: 40,
    text_bytes: 16,
};

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9:<> µ]{1,12}"
}

fn hello() -> impl Strategy<Value = Hello> {
    let ranks = (1..=u32::MAX, any::<[Index; 3]>()).prop_map(|(world, [local, rank, own])| {
        let below = |index: Index, count: u32| index.index(count as usize) as u32;
        let local = below(local, world) + 1;
        (below(rank, world), below(own, local), world, local)
    });
    let texts = (name(), name(), "[a-z]{0,8}", "[a-z0-9 ]{0,8}");
    let versions = btree_map("[a-z]{0,4}", "[0-9.]{0,6}", 0..5);
    (any::<u32>(), texts, ranks, versions).prop_map(|(protocol, texts, ranks, versions)| {
        let (job, gpu, framework, group) = texts;
        let (rank, local_rank, world_size, local_world_size) = ranks;
        Hello {
            protocol,
            job,
            rank,
            local_rank,
            world_size,
            local_world_size,
            gpu,
            framework,
            versions,
            group,
        }
    })
}

fn class() -> impl Strategy<Value = Class> {
    select(vec![
        Class::Unspecified,
        Class::Computation,
        Class::Communication,
        Class::Copy,
        Class::CommunicationInside,
        Class::CommunicationOutside,
    ])
}

fn nanos() -> impl Strategy<Value = Nanos> {
    prop_oneof![0..2_000_000_i64, 0..=i64::MAX].prop_map(Nanos)
}

fn kernels() -> impl Strategy<Value = Kernels> {
    let kernel = (any::<u32>(), 0..300_u32, class(), nanos(), nanos());
    let columns = vec(kernel, 0..30);
    let head = (any::<u64>(), nanos(), any::<bool>());
    (head, vec(name(), 0..6), columns).prop_map(
        |((iteration, duration, shows_collectives), new_names, columns)| {
            let mut kernels = Kernels {
                iteration,
                duration,
                new_names,
                shows_collectives,
                ..Kernels::default()
            };
            for (name, stream, class, start, duration) in columns {
                kernels.name.push(name);
                kernels.stream.push(stream);
                kernels.class.push(class);
                kernels.start.push(start);
                // The end fits as well.
                let duration = duration.min(Nanos(i64::MAX) - start);
                kernels.duration_of.push(duration);
            }
            kernels
        },
    )
}

fn from_hook() -> impl Strategy<Value = FromHook> {
    let tick = (any::<u64>(), nanos(), any::<bool>(), nanos()).prop_map(
        |(iteration, duration, profiled, overhead)| {
            FromHook::Tick(Tick {
                iteration,
                duration,
                profiled,
                overhead,
            })
        },
    );
    prop_oneof![
        hello().prop_map(FromHook::Hello),
        kernels().prop_map(FromHook::Kernels),
        tick,
        name().prop_map(|reason| FromHook::Bye(Bye { reason })),
        (
            select(vec![
                NoticeKind::Unspecified,
                NoticeKind::ProfilingOff,
                NoticeKind::ProfilingSafe,
            ]),
            name(),
            any::<u32>()
        )
            .prop_map(|(kind, text, samples)| {
                FromHook::Notice(Notice {
                    kind,
                    text,
                    samples,
                })
            }),
        (0..=10_000_u32).prop_map(|megahertz| {
            let clock = (megahertz > 0).then(|| Hertz(f64::from(megahertz) * 1e6));
            FromHook::SetClock(SetClock { clock })
        }),
    ]
}

fn to_hook() -> impl Strategy<Value = ToHook> {
    let directive =
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(first, period, pause)| Directive {
            first,
            period,
            pause,
        });
    let profiling = select(vec![
        Profiling::Unspecified,
        Profiling::Try,
        Profiling::Wait,
        Profiling::Safe,
        Profiling::Off,
    ]);
    let welcome = (any::<u32>(), name(), directive.clone(), profiling, name()).prop_map(
        |(protocol, daemon, directive, profiling, profiling_reason)| {
            ToHook::Welcome(Welcome {
                protocol,
                daemon,
                directive,
                profiling,
                profiling_reason,
            })
        },
    );
    let retry = proptest::option::of(1..=i64::from(u32::MAX));
    let refusal =
        (select(RefusalCode::ALL.to_vec()), name(), retry).prop_map(|(code, reason, retry)| {
            ToHook::Refusal(Refusal {
                code,
                reason,
                retry_after: retry.map(|milliseconds| Nanos(milliseconds * 1_000_000)),
            })
        });
    prop_oneof![welcome, directive.prop_map(ToHook::Directive), refusal]
}

/// Overwrites, inserts or removes bytes here and there.
fn mutate(bytes: &mut Vec<u8>, changes: &[(Index, u8, u8)]) {
    for (place, how, byte) in changes {
        if bytes.is_empty() {
            bytes.push(*byte);
            continue;
        }
        let place = place.index(bytes.len());
        match how % 4 {
            0 => bytes[place] = *byte,
            1 => bytes.insert(place, *byte),
            2 => drop(bytes.remove(place)),
            _ => bytes.truncate(place),
        }
    }
}

/// Asserts that a decoded message keeps the promises of `FromHook::decode`, memory included.
fn assert_sound(decoded: &FromHook) {
    match decoded {
        FromHook::Kernels(kernels) => assert_kernels(kernels),
        FromHook::Hello(hello) => {
            assert!(hello.rank < hello.world_size && hello.local_rank < hello.local_world_size);
            assert!(hello.local_world_size <= hello.world_size);
            assert!(!hello.job.is_empty() && !hello.job.contains(char::is_control));
            assert!(hello.job.len() <= TIGHT.text_bytes && hello.gpu.len() <= TIGHT.text_bytes);
            assert!(hello.versions.len() <= 32);
        }
        FromHook::Tick(tick) => assert!(tick.duration >= Nanos::ZERO),
        FromHook::Bye(bye) => assert!(!bye.reason.contains(char::is_control)),
        FromHook::Notice(notice) => assert!(!notice.text.contains(char::is_control)),
        FromHook::SetClock(SetClock { clock }) => {
            assert!(clock.is_none_or(|clock| clock.0 > 0.0 && clock.0 <= 1e10));
        }
        FromHook::Unknown => {}
    }
}

fn assert_kernels(kernels: &Kernels) {
    let count = kernels.name.len();
    assert!(count <= TIGHT.kernels);
    assert_eq!([kernels.stream.len(), kernels.class.len()], [count, count]);
    assert_eq!(
        [kernels.start.len(), kernels.duration_of.len()],
        [count, count]
    );
    for (start, duration) in kernels.start.iter().zip(&kernels.duration_of) {
        assert!(*start >= Nanos::ZERO && *duration >= Nanos::ZERO);
        assert!(start.0.checked_add(duration.0).is_some());
    }
    // A vector doubles, and starts with no less than 4 (8 if of bytes).
    let room = 2 * TIGHT.kernels;
    let columns = [
        kernels.name.capacity(),
        kernels.stream.capacity(),
        kernels.class.capacity(),
        kernels.start.capacity(),
        kernels.duration_of.capacity(),
    ];
    assert!(columns.into_iter().all(|capacity| capacity <= room));
    assert!(kernels.new_names.capacity() <= 2 * TIGHT.names);
    let bytes: usize = kernels.new_names.iter().map(String::len).sum();
    // The replacement character has three bytes.
    assert!(bytes <= 3 * TIGHT.name_bytes);
}

proptest! {
    #[test]
    fn hooks_are_understood(message in from_hook()) {
        let decoded = FromHook::decode(&message.encode(), &Limits::default());
        prop_assert_eq!(decoded, Ok(message));
    }

    #[test]
    fn litd_is_understood(message in to_hook()) {
        let decoded = ToHook::decode(&message.encode(), &Limits::default());
        prop_assert_eq!(decoded, Ok(message));
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(decoded) = FromHook::decode(&bytes, &TIGHT) {
            assert_sound(&decoded);
        }
        let _ = ToHook::decode(&bytes, &TIGHT);
    }

    #[test]
    fn damaged_frames_do_no_harm(
        message in from_hook(),
        // Four frames a case: a million in all with the gate's 200,000 cases.
        damages in vec(vec(any::<(Index, u8, u8)>(), 0..6), 4),
    ) {
        for changes in &damages {
            let mut bytes = message.encode();
            mutate(&mut bytes, changes);
            if let Ok(decoded) = FromHook::decode(&bytes, &TIGHT) {
                assert_sound(&decoded);
                // A valid message can be encoded again.
                let again = FromHook::decode(&decoded.encode(), &Limits::default());
                prop_assert_eq!(again, Ok(decoded));
            }
        }
    }

    #[test]
    fn damaged_answers_do_no_harm(
        message in to_hook(),
        changes in vec(any::<(Index, u8, u8)>(), 0..6),
    ) {
        let mut bytes = message.encode();
        mutate(&mut bytes, &changes);
        if let Ok(decoded) = ToHook::decode(&bytes, &TIGHT) {
            let again = ToHook::decode(&decoded.encode(), &Limits::default());
            prop_assert_eq!(again, Ok(decoded));
        }
    }

    #[test]
    fn frames_survive_any_cutting(
        messages in vec(vec(any::<u8>(), 1..200), 0..8),
        cuts in vec(1..50_usize, 1..20),
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            frame::write(&mut bytes, message).unwrap();
        }
        let mut reader = Reader::new(200);
        let (mut rest, mut found) = (&*bytes, Vec::new());
        for cut in cuts.iter().cycle() {
            let (mut input, after) = rest.split_at((*cut).min(rest.len()));
            while let Some(message) = reader.take(&mut input).unwrap() {
                found.push(message.to_vec());
            }
            prop_assert!(input.is_empty());
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, messages);
    }
}
