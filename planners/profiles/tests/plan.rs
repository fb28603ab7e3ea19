//! The plan contract: every format is read as it was written, however a person writes it; what is wrong is
//! said with its place; garbage is refused.

use std::collections::BTreeMap;
use std::path::Path;

use litd_profiles::plan::{
    Check, Contract, Format, Instruction, Origin, Partition, Stage, Step, Totals, partitions,
};
use litd_units::{Hertz, Joules, Millis, Watts};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

fn runner(cases: Option<u32>) -> TestRunner {
    let mut config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    config.cases = cases.unwrap_or(config.cases);
    TestRunner::new(config)
}

/// 1F1B of so many stages and microbatches, as the contract has it.
fn one_forward_one_backward(stages: u32, microbatches: u32) -> Contract {
    let stage = |stage: u32| {
        let ahead = (stages - 1 - stage).min(microbatches);
        let mut instructions = Vec::new();
        let mut add = |name: &str, microbatch| {
            instructions.push(Instruction {
                instruction: name.into(),
                microbatch,
                clock: Some(Hertz(1410e6)),
                ..Instruction::default()
            });
        };
        (0..ahead).for_each(|it| add("forward", it));
        for microbatch in 0..microbatches {
            if microbatch + ahead < microbatches {
                add("forward", microbatch + ahead);
            }
            add("backward", microbatch);
        }
        Stage {
            stage,
            instructions,
        }
    };
    Contract::new((0..stages).map(stage).collect())
}

fn check(text: &str) -> Check {
    Check::of(text, &[]).0
}

/// Every row of the public artifact's facts, file by file, becomes a plan, and the plan becomes them again.
#[test]
fn the_public_artifacts_rows_come_back() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/planner/kareus-artifact/instructions.csv");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED: {} is not there", path.display());
        return;
    };
    // Of each file and stage, in order: the instruction, its clock, its tokens.
    type Rows = BTreeMap<u32, Vec<[String; 3]>>;
    let mut files: BTreeMap<(String, bool), Rows> = BTreeMap::new();
    let mut count = 0;
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [.., stage, _, name, clock, tokens] = fields[..] else {
            panic!("{line}");
        };
        let file = (fields[..5].join("/"), tokens.is_empty());
        let rows = files.entry(file).or_default();
        let row = [name, clock, tokens].map(str::to_owned);
        rows.entry(stage.parse().unwrap()).or_default().push(row);
        count += 1;
    }
    assert_eq!(count, 7840);
    assert_eq!(files.len(), 245);
    for ((file, has_clocks), stages) in &files {
        let mut text = String::from("[\n");
        for rows in stages.values() {
            let row = |[name, clock, tokens]: &[String; 3]| match has_clocks {
                true => format!("('{name}', {clock})"),
                false => format!("('{name}', '{}')", tokens.replace('|', "', '")),
            };
            let rows: Vec<String> = rows.iter().map(row).collect();
            text += &format!("[{}],\n", rows.join(", "));
        }
        text += "]\n# Iteration 7 cost change: 0.5\n# Iteration 7 total cost: 1224.8\n";
        let (format, plan) = Contract::read(&text).unwrap();
        let found = check(&text);
        assert!(found.ok, "{file}: {:?}", found.problems);
        assert_eq!(
            (found.stages, found.instructions, found.microbatches),
            (2, 32, found.instructions / 4),
            "{file}"
        );
        assert_eq!(format == Format::Frequencies, *has_clocks);
        assert_eq!(plan.write(format), text, "{file}");
        assert_eq!(plan.totals.effective, Some(Joules(1224.8)));
        let json = plan.write(Format::Contract);
        assert_eq!(
            Contract::read(&json),
            Ok((Format::Contract, plan)),
            "{file}"
        );
    }
}

/// A whole file of the public artifact, in its own writing, and the messages about it.
#[test]
fn both_literals_are_told_apart_and_counted() {
    let freqs = "[\n[('forward', 930), ('forward', 900), ('backward', 900), ('backward', 1410)],\n\
                 [('forward', 930), ('backward', 900), ('forward', 900), ('backward', 900)],\n]\n\
                 # Iteration 324 total cost with P2P: 2333.9241048803174\n";
    let found = check(freqs);
    assert_eq!(found.kind, Some(Format::Frequencies));
    assert_eq!(
        (found.stages, found.instructions, found.microbatches),
        (2, 8, 2)
    );
    assert_eq!(found.clocks_mhz, [900, 930, 1410]);
    assert!(found.ok && found.problems.is_empty() && found.partitions.is_empty());
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(
        json,
        r#"{"kind":"freqs","stages":2,"instructions":8,"microbatches":2,"clocks_mhz":[900,930,1410],"partitions":{},"ok":true,"problems":[]}"#
    );

    let scheds = "[\n[('forward', 'norm_0-none-12-1024', 'norm_0-none-18-1024'), \
                  ('backward', 'attn_0-none-21-1024', 'norm_0-none-15-1024', 'rope_0-none-30-1024', 'activation_0-none-15-1024')],\n]\n";
    let found = check(scheds);
    assert_eq!(found.kind, Some(Format::Schedules));
    let named = |name: &str| found.partitions.get(name).copied();
    assert_eq!(named("attention"), Some(2));
    assert_eq!(named("recompute_mlp"), Some(1));
    assert!(found.ok, "{:?}", found.problems);
    let (_, plan) = Contract::read(scheds).unwrap();
    let first = &plan.stages[0].instructions[1].partitions[0];
    assert_eq!(
        *first,
        Partition {
            name: "recompute_attention".into(),
            launch: "attn_0".into(),
            end: None,
            sms: 21,
            threads: 1024,
        }
    );

    // Without activation checkpointing: pairs, by microbatch; with context parallelism, more tokens.
    let pairs = "[[(('forward', 'norm_0-none-3-1024', '', '', '', ''), \
                 ('backward', '', '', '', '', '', '', 'attn_0-none-6-1024'))],]";
    let (format, plan) = Contract::read(pairs).unwrap();
    assert_eq!(format, Format::Schedules);
    assert_eq!(
        check(pairs).partitions,
        BTreeMap::from([("mlp".into(), 1), ("qkv_ar".into(), 1)])
    );
    assert_eq!(plan.stages[0].instructions.len(), 2);
}

#[test]
fn clocks_and_partitions_of_two_files_make_one_plan() {
    let freqs = "[[('forward', 930), ('backward', 900)]]";
    let scheds =
        "[[('forward', 'norm_0-none-12-1024', ''), ('backward', '', 'rope_0-none-3-1024')]]";
    let read = |text: &str| Contract::read(text).unwrap().1;
    let both = read(freqs).with_partitions(&read(scheds)).unwrap();
    let own = &both.stages[0].instructions[1];
    assert_eq!(own.clock, Some(Hertz(900e6)));
    assert_eq!(own.partitions[0].name, "mlp");
    assert_eq!(read(&both.write(Format::Frequencies)), read(freqs));
    assert_eq!(read(&both.write(Format::Schedules)), read(scheds));
    let other =
        read("[[('forward', 930), ('backward', 900), ('forward', 900), ('backward', 900)]]");
    let error = other
        .with_partitions(&read(scheds))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "stage 0: no partitions for forward of microbatch 1");
}

/// A name that a Python string may hold.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["forward", "backward"]).prop_map(str::to_owned)
}

fn slot() -> impl Strategy<Value = String> {
    let words = vec!["norm", "linear", "rope", "attn", "activation"];
    (prop::sample::select(words), 0_u32..3).prop_map(|(word, number)| format!("{word}_{number}"))
}

/// Plans with everything that a contract can say.
fn contract() -> impl Strategy<Value = Contract> {
    let finite = || prop::option::of(0.0..1e6_f64);
    let partition = (slot(), prop::option::of(slot()), 1_u32..=108, 1_u32..=32);
    let own = (
        name(),
        prop::option::of(1_u32..3000),
        prop::sample::select(vec![0_usize, 2, 4, 5, 7, 12]),
        prop::collection::vec(prop::option::weighted(0.8, partition), 12),
        (finite(), finite(), finite(), finite()),
    );
    let stage = prop::collection::vec(own, 1..20);
    let stages = prop::collection::vec(stage, 1..5);
    let totals = (prop::option::of(0_u64..9999), finite(), finite(), finite());
    (stages, totals, finite(), any::<bool>()).prop_map(|(stages, totals, frontier, simulated)| {
        let stages = stages.into_iter().zip(0..);
        let stages = stages.map(|(rows, stage)| {
            let mut next = BTreeMap::new();
            let instructions = rows
                .into_iter()
                .map(|(name, clock, count, tokens, expected)| {
                    let microbatch = next.entry(name.clone()).or_insert(0);
                    *microbatch += 1;
                    let names = partitions(&name, count).unwrap_or_default();
                    let tokens = names.iter().zip(tokens);
                    let tokens = tokens.filter_map(|(name, token)| Some((name, token?)));
                    let planned = tokens.map(|(name, (launch, end, sms, warps))| Partition {
                        name: (*name).to_owned(),
                        launch,
                        end,
                        sms,
                        threads: 32 * warps,
                    });
                    let (time, energy, power, slack) = expected;
                    Instruction {
                        microbatch: *microbatch - 1,
                        chunk: 0,
                        clock: clock.map(|clock| Hertz(f64::from(clock) * 1e6)),
                        partitions: planned.collect(),
                        time: time.map(Millis),
                        energy: energy.map(Joules),
                        power: power.map(Watts),
                        slack: slack.map(Millis),
                        instruction: name,
                    }
                });
            let instructions = instructions.collect();
            Stage {
                stage,
                instructions,
            }
        });
        let (iteration, change, effective, energy) = totals;
        let mut contract = Contract::new(stages.collect());
        contract.simulated = simulated;
        contract.totals = Totals {
            iteration,
            cost_change: change.map(Joules),
            effective: effective.map(Joules),
            energy: energy.map(Joules),
            ..Totals::default()
        };
        contract.frontier = frontier.map(|time| Origin {
            unit: Millis(1.0),
            time: Millis(time),
            shortest: Millis(0.0),
            longest: Millis(2e6),
            cheapest: Millis(time),
            full_clock: Millis(time),
            points: vec![(Millis(time), Joules(1.5))],
        });
        contract
    })
}

/// A plan with only what a literal has a place for.
fn kept(plan: &Contract, format: Format) -> Contract {
    let mut kept = plan.clone();
    kept.frontier = None;
    let totals = &mut kept.totals;
    let has_any =
        totals.cost_change.is_some() || totals.effective.is_some() || totals.energy.is_some();
    totals.iteration = has_any.then(|| totals.iteration.unwrap_or(0));
    for own in kept.stages.iter_mut().flat_map(|it| &mut it.instructions) {
        *own = Instruction {
            instruction: own.instruction.clone(),
            microbatch: own.microbatch,
            clock: own.clock.filter(|_| format == Format::Frequencies),
            partitions: match format {
                Format::Schedules => std::mem::take(&mut own.partitions),
                _ => Vec::new(),
            },
            ..Instruction::default()
        };
    }
    kept
}

/// The same literal as another hand would write it.
fn restyled(text: &str, style: u8) -> String {
    let mut text = text.to_owned();
    if style & 1 != 0 {
        text = text.replace('\'', "\"").replace(", ", " ,\t");
    }
    if style & 2 != 0 {
        text = text.replace('(', "[").replace(')', ",]");
    }
    if style & 4 != 0 {
        text = text.replace(",\n", "  # a stage\r\n ,\n\n");
    }
    if style & 8 != 0 {
        text = format!("\u{feff}# -*- coding: utf-8 -*-\n\n{}", text.trim_end());
    }
    text
}

#[test]
fn generated_plans_come_back_from_every_format() {
    let ran = runner(None).run(&(contract(), 0_u8..16), |(plan, style)| {
        let json = plan.write(Format::Contract);
        prop_assert_eq!(Contract::read(&json), Ok((Format::Contract, plan.clone())));
        for format in [Format::Frequencies, Format::Schedules] {
            let text = restyled(&plan.write(format), style);
            let read = Contract::read(&text);
            prop_assert_eq!(read, Ok((format, kept(&plan, format))), "{}", text);
        }
        Ok(())
    });
    assert!(ran.is_ok(), "{ran:?}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let good = one_forward_one_backward(2, 3);
    assert_eq!(good.problems(&[]), [""; 0]);
    let spoiled = |spoil: &dyn Fn(&mut Contract)| {
        let mut plan = good.clone();
        spoil(&mut plan);
        plan.problems(&[]).join("; ")
    };
    type Spoil<'a> = &'a dyn Fn(&mut Contract);
    let cases: [(Spoil, &str); 14] = [
        (&|it| it.stages.clear(), "the plan has no stage"),
        (
            &|it| drop(it.stages.remove(0)),
            "stages[0] is stage 1, where stage 0 is wanted",
        ),
        (
            &|it| it.stages[1].stage = 2,
            "stages[1] is stage 2, where stage 1 is wanted",
        ),
        (
            &|it| it.stages[1].instructions.clear(),
            "stage 1: nothing is planned for it",
        ),
        (
            &|it| it.stages[1].instructions[2].instruction = "sideways".into(),
            "stage 1, instruction 2 (sideways of microbatch 1): no engine runs \"sideways\"",
        ),
        (
            &|it| it.stages[0].instructions[0].clock = Some(Hertz(-1e6)),
            "stage 0, instruction 0 (forward of microbatch 0): its clock is -1 MHz",
        ),
        (
            &|it| it.stages[0].instructions[0].clock = Some(Hertz(930.5e6)),
            "its clock is 930.5 MHz, no whole number",
        ),
        (
            &|it| it.stages[0].instructions.swap(0, 2),
            "stage 0, instruction 0 (backward of microbatch 0): it comes before its forward",
        ),
        (
            &|it| drop(it.stages[1].instructions.pop()),
            "stage 1: microbatch 2 has a forward and no backward",
        ),
        (
            &|it| it.stages[1].instructions.truncate(4),
            "stage 1: nothing is planned for microbatch 2, which stage 0 works on",
        ),
        (
            &|it| it.stages[0].instructions[1].microbatch = 0,
            "stage 0, instruction 1 (forward of microbatch 0): it is planned twice",
        ),
        (
            &|it| it.stages[0].instructions[0].slack = Some(Millis(-0.5)),
            "instruction 0 (forward of microbatch 0): its slack_ms is negative",
        ),
        (
            &|it| {
                let own = &mut it.stages[0].instructions[0];
                (own.time, own.energy, own.power) =
                    (Some(Millis(30.0)), Some(Joules(9.0)), Some(Watts(400.0)));
            },
            "9 J in 0.03 s are not 400 W",
        ),
        (
            &|it| {
                it.stages[0].instructions[0].partitions.push(Partition {
                    name: "mlp".into(),
                    launch: "norm_0".into(),
                    end: Some("later".into()),
                    sms: 12,
                    threads: 1024,
                });
            },
            "partition mlp: \"later\" is no place to end it",
        ),
    ];
    for (spoil, wanted) in cases {
        let said = spoiled(spoil);
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // An engine may have instructions of its own.
    let mut plan = good.clone();
    plan.stages[0].instructions[0].instruction = "load".into();
    plan.stages[0].instructions[0].microbatch = 0;
    assert!(
        !plan
            .problems(&["load".into()])
            .join(" ")
            .contains("no engine")
    );
}

/// Two stages of 90 ms and 27 J each, with a frontier that has its least energy at 240 ms.
fn expected() -> Contract {
    let mut plan = one_forward_one_backward(2, 1);
    for stage in &mut plan.stages {
        for (own, time) in stage.instructions.iter_mut().zip([30.0, 60.0]) {
            (own.time, own.energy) = (Some(Millis(time)), Some(Joules(0.3 * time)));
        }
    }
    plan.blocking = Some(Watts(75.0));
    plan.totals.time = Some(Millis(200.0));
    plan.totals.until = Some(Millis(200.0));
    plan.totals.energy = Some(Joules(70.5));
    let points = [(180.0, 75.0), (200.0, 70.5), (240.0, 70.0), (400.0, 80.0)];
    plan.frontier = Some(Origin {
        unit: Millis(1.0),
        time: Millis(200.0),
        shortest: Millis(180.0),
        longest: Millis(400.0),
        cheapest: Millis(240.0),
        full_clock: Millis(180.0),
        points: points.map(|it| (Millis(it.0), Joules(it.1))).to_vec(),
    });
    plan
}

#[test]
fn totals_that_cannot_be_true_are_said() {
    assert_eq!(expected().problems(&[]), [""; 0]);
    type Spoil<'a> = &'a dyn Fn(&mut Contract, &mut Origin);
    let cases: [(Spoil, &str); 7] = [
        (
            &|it, _| it.totals.time = Some(Millis(89.0)),
            "time_ms is 89, and the instructions of stage",
        ),
        (
            &|it, _| it.totals.until = Some(Millis(190.0)),
            "until_ms is 190, before the iteration's own end at 200 ms",
        ),
        (
            &|it, _| it.totals.energy = Some(Joules(53.0)),
            "energy_j is 53, and all instructions together use 54 J",
        ),
        (
            &|_, it| it.shortest = Millis(500.0),
            "its shortest time, 500 ms, is longer than its longest, 400 ms",
        ),
        (
            &|_, it| it.points.reverse(),
            "not in order of time: 240 ms comes after 400 ms",
        ),
        (
            &|_, it| it.points[0].1 = Joules(60.0),
            "its energy rises from 180 to 200 ms",
        ),
        (
            &|_, it| it.points[3].1 = Joules(120.0),
            "its energy without waiting rises from 240 to 400 ms",
        ),
    ];
    for (spoil, wanted) in cases {
        let mut plan = expected();
        let mut origin = plan.frontier.take().unwrap();
        spoil(&mut plan, &mut origin);
        plan.frontier = Some(origin);
        let said = plan.problems(&[]).join("; ");
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // Numbers that are rounded contradict nothing.
    let mut plan = expected();
    plan.totals.time = Some(Millis(89.5));
    plan.totals.energy = Some(Joules(53.9));
    assert_eq!(plan.problems(&[]), [""; 0]);
}

#[test]
fn names_move_no_cursor_and_do_not_fill_the_page() {
    let odd = |it: char| it.is_control() || it == '\u{202e}';
    let mut plan = one_forward_one_backward(2, 1);
    plan.stages[0].instructions[0].instruction = "evil\u{1b}[31m\n\u{202e}ok".into();
    plan.stages[1].instructions[0].instruction = "a".repeat(100_000);
    plan.stages[1].instructions[1].partitions.push(Partition {
        name: format!("{}\u{9b}", "b".repeat(50)),
        launch: "c\u{7}".repeat(1_000),
        end: None,
        sms: 12,
        threads: 1024,
    });
    let said = plan.problems(&[]);
    assert!(
        said.iter().any(|it| it.contains("evil\\u{1b}[31m\\n")),
        "{said:?}"
    );
    assert!(
        said.iter().any(|it| it.contains("no engine runs \"aaa")),
        "{said:?}"
    );
    for problem in &said {
        assert!(
            !problem.contains(odd) && problem.len() < 1_500,
            "{problem:?}"
        );
    }
    // Words of a text that is no plan come back in its refusal.
    let unknown = format!(
        "{{\"version\": 1, \"x\u{7f}\u{202e}{}\": 2}}",
        "y".repeat(100_000)
    );
    let problems = check(&unknown).problems.concat();
    assert!(
        problems.contains("unknown field") && !problems.contains(odd),
        "{problems:?}"
    );
    assert!(problems.len() < 1_500, "{}", problems.len());
}

#[test]
fn a_plan_is_compared_with_what_the_engine_runs() {
    let plan = one_forward_one_backward(3, 4);
    let steps = |plan: &Contract| -> Vec<Vec<Step>> {
        let of = |stage: &Stage| stage.instructions.iter().map(Instruction::step).collect();
        plan.stages.iter().map(of).collect()
    };
    assert_eq!(plan.fits(&steps(&plan)), Ok(()));
    let error = |engine: Vec<Vec<Step>>| plan.fits(&engine).unwrap_err().to_string();
    let other = error(steps(&one_forward_one_backward(3, 5)));
    assert_eq!(
        other,
        "stage 0, instruction 6: backward of microbatch 2, where the engine runs forward of microbatch 4"
    );
    let mut engine = steps(&plan);
    engine[2].pop();
    assert_eq!(
        error(engine),
        "stage 2, instruction 7: the plan has 8 instructions, and the engine runs 7"
    );
    let fewer = error(steps(&one_forward_one_backward(2, 4)));
    assert_eq!(fewer, "the plan has 3 stages, and the engine runs 2");
}

#[test]
fn texts_that_are_no_plan_are_refused_with_the_line() {
    for (text, wanted) in [
        ("", "line 1, column 1: the file ends"),
        ("[]", "line 1, column 1: no instruction"),
        ("[[]]", "no instruction"),
        ("7", "the plan is a number, not a list of stages"),
        (
            "[[('forward', 930)],\n 5]",
            "line 2, column 2: stage 1 is a number, not a list of instructions",
        ),
        (
            "[[('forward', 930), 'backward']]",
            "column 21: a row of stage 0 is a string",
        ),
        (
            "[[('forward', 930), ('backward',)]]",
            "stage 0, instruction 1: \"backward\" is followed by 0 values",
        ),
        (
            "[[('forward', 930), (930, 'backward')]]",
            "its name is a number",
        ),
        (
            "[[('forward', 930), ('backward', True)]]",
            "its clock is a boolean",
        ),
        (
            "[[('forward', 930), ('backward', '930')]]",
            "its clock is a string",
        ),
        (
            "[[('forward', 930), ('backward', 9, 9)]]",
            "followed by 2 values",
        ),
        (
            "[[('forward', 'norm_0-none-12-1024')]]",
            "\"forward\" has 1 tokens, not 2 or 5",
        ),
        (
            "[[('load', 'norm_0-none-12-1024', '')]]",
            "\"load\" has no partitions",
        ),
        (
            "[[('forward', 'norm_0-none-12', '')]]",
            "column 15: stage 0, instruction 0: the token \"norm_0-none-12\" of attention: it has 3 parts",
        ),
        (
            "[[('forward', '', 'norm_0-none-x-1024')]]",
            "of mlp: \"x\" is no number of SMs",
        ),
        (
            "[[('forward', '', 'norm_0-none-+1-1024')]]",
            "\"+1\" is no number of SMs",
        ),
        ("[[('forward', '', 'norm_0-none-1--1024')]]", "5 parts"),
        ("[[('forward', '', 5)]]", "the token of mlp is a number"),
        (
            "{",
            "it is no plan: EOF while parsing an object at line 1 column 1",
        ),
        ("{}", "the key version is missing"),
        (
            "{\"version\": 2, \"stages\": [], \"new\": 1}",
            "its version is 2, and only version 1 is known",
        ),
        ("{\"version\": 1}", "missing field `stages`"),
        (
            "{\"version\": 1, \"stages\": [{\"stage\": 0, \"instructions\": [{\"instruction\": \"forward\", \"microbatch\": 0, \"clock\": 900}]}]}",
            "unknown field `clock`",
        ),
        (
            "{\"version\": 1, \"stages\": [{\"stage\": -1, \"instructions\": []}]}",
            "invalid value: integer `-1`",
        ),
    ] {
        let found = check(text);
        assert!(!found.ok && found.stages == 0, "{text}");
        // The format is told as far as it shows.
        let kind = match text {
            it if it.contains("_0-none") || it.contains("'',") => Some(Format::Schedules),
            it if it.starts_with("[[('forward', 930)") => Some(Format::Frequencies),
            it if it.contains("\"version\": 1") => Some(Format::Contract),
            _ => None,
        };
        assert_eq!(found.kind, kind, "{text}");
        assert!(
            found.problems[0].contains(wanted),
            "{text}: {:?}",
            found.problems
        );
    }
}

/// However a plan is damaged it is read or refused, and what is read can be written and read again.
#[test]
fn damaged_plans_never_panic() {
    let told = std::env::var("LITD_FUZZ").ok();
    let cases = told.and_then(|cases| cases.parse().ok()).unwrap_or(2000);
    let plan = contract().new_tree(&mut TestRunner::deterministic());
    let plan = plan.unwrap().current();
    let formats = [Format::Contract, Format::Frequencies, Format::Schedules];
    let texts = formats.map(|format| plan.write(format));
    let flips = prop::collection::vec((0.0..1.0_f64, any::<u8>()), 0..8);
    let damage = (0..texts.len(), prop::option::of(0.0..1.0_f64), flips);
    let ran = runner(Some(cases)).run(&damage, |(text, cut, flips)| {
        let mut bytes = texts[text].clone().into_bytes();
        for (at, with) in flips {
            let at = (at * bytes.len() as f64) as usize;
            bytes[at] ^= with;
        }
        if let Some(cut) = cut {
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        let text = String::from_utf8_lossy(&bytes);
        let (found, read) = Check::of(&text, &[]);
        match read {
            None => prop_assert!(!found.ok && found.problems.len() == 1),
            Some(plan) => {
                let again = Contract::read(&plan.write(Format::Contract));
                prop_assert!(again.is_ok(), "{:?} {}", again, text);
            }
        }
        Ok(())
    });
    assert!(ran.is_ok(), "{ran:?}");
}
