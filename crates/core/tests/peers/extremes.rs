//! Numbers at the ends of their ranges, in every field of every message, of every driver's answer
//! and of every command.

use litd_api::{Command, Lease, Mode};
use litd_core::{Event, NodeReading, Reply, SessionId};
use litd_power::{CapRange, Reading};
use litd_proto::{Class, FromHook, Kernels, Tick};
use litd_units::{Celsius, Hertz, Joules, Nanos, Watts};
use proptest::prelude::*;

use crate::node::{Node, SECOND, beside, config};

const GPUS: usize = 2;

fn number() -> impl Strategy<Value = u64> {
    let ends = [
        0,
        1,
        (1 << 31) - 1,
        u64::from(u32::MAX),
        (1 << 63) - 1,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    prop_oneof![prop::sample::select(ends.to_vec()), 0_u64..20]
}

fn quantity() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![
        0.0,
        -0.0,
        -1.0,
        1.0,
        300.0,
        700.0,
        1e9,
        1e300,
        -1e300,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ])
}

/// A field of a message as protobuf has it: a number, a column of them, or a text.
#[derive(Debug, Clone)]
enum Field {
    Number(u64),
    Column(Vec<u64>),
    Text(Vec<u8>),
}

#[derive(Debug, Clone)]
enum Happens {
    /// A rank sends a message of this kind with these fields.
    Raw(usize, u32, Vec<(u32, Field)>),
    Tick(usize, u64, u64, bool),
    /// All ranks send an iteration with these starts and durations of kernels.
    Sample(u64, u64, Vec<(u64, u64)>),
    /// A sensor, a cap and a range as a driver may tell them.
    Driver([f64; 8]),
    Node([f64; 3], u32),
    Command(u32, f64, u64),
    Passes(u64),
}

fn field() -> impl Strategy<Value = (u32, Field)> {
    let value = prop_oneof![
        number().prop_map(Field::Number),
        prop::collection::vec(number(), 0..4).prop_map(Field::Column),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Field::Text),
    ];
    (1_u32..10, value)
}

fn happens() -> impl Strategy<Value = Happens> {
    let rank = 0..GPUS;
    let kernels = prop::collection::vec((number(), number()), 1..12);
    prop_oneof![
        (rank.clone(), 1_u32..8, prop::collection::vec(field(), 0..9))
            .prop_map(|(rank, kind, fields)| Happens::Raw(rank, kind, fields)),
        (rank, number(), number(), any::<bool>())
            .prop_map(|(rank, at, time, profiled)| Happens::Tick(rank, at, time, profiled)),
        (number(), number(), kernels)
            .prop_map(|(at, time, kernels)| Happens::Sample(at, time, kernels)),
        prop::array::uniform8(quantity()).prop_map(Happens::Driver),
        (prop::array::uniform3(quantity()), any::<u32>())
            .prop_map(|(told, count)| Happens::Node(told, count)),
        (0_u32..5, quantity(), number())
            .prop_map(|(which, amount, seed)| Happens::Command(which, amount, seed)),
        prop_oneof![0..3 * SECOND as u64, 0..1_u64 << 58].prop_map(Happens::Passes),
    ]
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 127 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn block(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend(bytes);
}

fn raw(kind: u32, fields: &[(u32, Field)]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, field) in fields {
        match field {
            Field::Number(value) => {
                varint(u64::from(*number) << 3, &mut message);
                varint(*value, &mut message);
            }
            Field::Column(values) => {
                let mut packed = Vec::new();
                values.iter().for_each(|&value| varint(value, &mut packed));
                block(*number, &packed, &mut message);
            }
            Field::Text(bytes) => block(*number, bytes, &mut message),
        }
    }
    let mut frame = Vec::new();
    block(kind, &message, &mut frame);
    frame
}

/// Possible values of hooks: decoding refuses the rest, which [`Happens::Raw`] sends.
fn nanos(number: u64) -> Nanos {
    Nanos(i64::try_from(number).unwrap_or(i64::MAX))
}

fn sample(iteration: u64, time: u64, kernels: &[(u64, u64)]) -> FromHook {
    let mut starts: Vec<Nanos> = kernels.iter().map(|&(start, _)| nanos(start)).collect();
    starts.sort_unstable();
    let longest =
        |(start, &(_, time)): (&Nanos, &(u64, u64))| Nanos(nanos(time).0.min(i64::MAX - start.0));
    FromHook::Kernels(Kernels {
        iteration,
        duration: nanos(time),
        new_names: vec!["gemm".to_owned()],
        name: vec![0; kernels.len()],
        stream: kernels.iter().map(|&(_, time)| time as u32 % 3).collect(),
        class: vec![Class::Unspecified; kernels.len()],
        duration_of: starts.iter().zip(kernels).map(longest).collect(),
        start: starts,
        shows_collectives: true,
    })
}

fn lie(told: [f64; 8], reply: Reply) -> Reply {
    let range = CapRange {
        lowest: Watts(told[4]),
        highest: Watts(told[5]),
        default: Watts(told[6]),
        resolution: Watts(told[7]),
    };
    match reply {
        Reply::Read(Ok(_)) => Reply::Read(Ok(Reading {
            cap: Watts(told[0]),
            enforced: Some(Watts(told[1])),
            power: Some(Watts(told[2])),
            energy: Some(Joules(told[3])),
            temperature: Some(Celsius(told[4])),
            slowdown: Some(Celsius(told[5])),
            clock: Some(Hertz(told[6])),
            power_limited: Some(true),
            power_share: Some(told[7]),
            throttle: None,
            forgetful: false,
        })),
        Reply::Set(Ok(_)) => Reply::Set(Ok(Watts(told[0]))),
        Reply::Range(Ok(_)) => Reply::Range(Ok(range)),
        Reply::Identity(Ok((identity, _))) => Reply::Identity(Ok((identity, range))),
        other => other,
    }
}

fn command(which: u32, amount: f64, seed: u64) -> Command {
    match which {
        0 => Command::SetBudget {
            watts: Some(Watts(amount)),
        },
        1 => Command::SetCap {
            device: "gpu0".to_owned(),
            watts: Watts(amount),
        },
        2 => Command::Lease(Lease {
            controller: "fleet".to_owned(),
            seconds: amount,
            mode: Some(Mode::Steer),
            budget: Some(Watts(amount)),
        }),
        3 => Command::StartTrial {
            job: None,
            quads: u32::try_from(seed).ok(),
            same: false,
            seed: Some(seed),
        },
        _ => Command::Resume { device: None },
    }
}

/// Connects whoever was sent away, or never came.
fn attach(node: &mut Node, ranks: &mut [Option<SessionId>]) {
    for (gpu, rank) in ranks.iter_mut().enumerate() {
        if rank.is_none_or(|session| node.is_closed(session)) {
            *rank = Some(node.attach(gpu, GPUS as u32));
        }
    }
}

fn happen(node: &mut Node, ranks: &[Option<SessionId>], what: &Happens) {
    let of = |rank: usize| ranks[rank].unwrap();
    match what {
        Happens::Raw(rank, kind, fields) => node.frame(of(*rank), &raw(*kind, fields)),
        &Happens::Tick(rank, iteration, time, profiled) => {
            let duration = nanos(time);
            let tick = Tick {
                iteration,
                duration,
                profiled,
                overhead: duration,
            };
            node.say(of(rank), &FromHook::Tick(tick));
        }
        Happens::Sample(iteration, time, kernels) => {
            for rank in 0..GPUS {
                // A rank that was sent away with this very message says no more.
                let message = sample(*iteration, *time, kernels);
                node.say(of(rank), &message);
            }
        }
        Happens::Driver(told) => {
            node.now += Nanos(SECOND);
            let told = *told;
            node.handle(Event::Time, &mut |reply| lie(told, reply));
        }
        &Happens::Node([power, cap, inlet], count) => {
            node.sound(Event::NodePower(NodeReading {
                source: "made up".to_owned(),
                power: Some(Watts(power)),
                cap: Some(Watts(cap)),
                inlet: Some(Celsius(inlet)),
                supplies: Some(count),
                failed: Some(!count),
                alarm: None,
            }));
        }
        &Happens::Command(which, amount, seed) => {
            // Refused or not: that is another test's matter.
            let _ = node.command(command(which, amount, seed), &mut |reply| reply);
        }
        &Happens::Passes(nanos) => node.pass(nanos as i64),
    }
}

proptest! {
    // Failures are printed with their inputs; no file is left in the tree.
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_number_ends_the_daemon(story in prop::collection::vec(happens(), 1..40)) {
        let _beside = beside();
        let mut node = Node::new(GPUS, config());
        let mut ranks = [None; GPUS];
        for what in &story {
            attach(&mut node, &mut ranks);
            happen(&mut node, &ranks, what);
            // Status is made of the same numbers.
            let _ = serde_json::to_string(&node.status());
            let _ = node.core.events(0);
        }
        node.sound(Event::Stop);
        node.pass(SECOND);
    }
}

#[test]
fn caps_that_no_device_can_hold_end_nothing() {
    let _beside = beside();
    let mut node = Node::new(GPUS, config());
    let mut ranks = [None; GPUS];
    for cap in [300.0, 1e300] {
        attach(&mut node, &mut ranks);
        node.now += Nanos(SECOND);
        let told = [cap, 1e9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        node.handle(Event::Time, &mut |reply| lie(told, reply));
    }
    node.sound(Event::Stop);
    node.pass(SECOND);
    assert_eq!(node.status().devices.len(), GPUS);
}

#[test]
fn an_iteration_that_is_the_last_there_is_ends_nothing() {
    let _beside = beside();
    let mut node = Node::new(1, config());
    let session = node.attach(0, 1);
    let tick = Tick {
        iteration: u64::MAX,
        duration: Nanos(SECOND),
        profiled: false,
        overhead: Nanos::ZERO,
    };
    node.say(session, &FromHook::Tick(tick));
    // The hooks are told anew which iterations to profile, which come after that one.
    node.sound(Event::Disconnected { session });
    let second = node.attach(0, 1);
    node.pass(SECOND);
    assert!(!node.is_closed(second));
}

#[test]
fn a_budget_is_a_positive_number_of_watts_for_gpus_that_are_there() {
    let _beside = beside();
    let truth = &mut |reply| reply;
    for gpus in [0, 2] {
        let mut node = Node::new(gpus, config());
        for watts in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            let watts = Some(Watts(watts));
            let refused = node.command(Command::SetBudget { watts }, truth);
            refused.expect_err("a budget that is none");
            // A lease may be the same for nodes with fewer GPUs, as a file may.
            if watts.is_some_and(|it| it > Watts::ZERO && it.is_finite() && gpus == 0) {
                continue;
            }
            let lease = Lease {
                controller: "fleet".to_owned(),
                seconds: 60.0,
                mode: None,
                budget: watts,
            };
            let refused = node.command(Command::Lease(lease), truth);
            refused.expect_err("a budget that is none");
        }
        let fits = Command::SetBudget {
            watts: Some(Watts(1000.0)),
        };
        let outcome = node.command(fits, truth);
        assert_eq!(outcome.is_ok(), gpus == 2, "{outcome:?}");
    }
    let mut node = Node::new(0, config());
    let watts = Some(Watts(0.0));
    let problem = node.command(Command::SetBudget { watts }, truth);
    assert_eq!(
        problem.unwrap_err().error,
        "this node has no GPU to keep a budget with"
    );
}
