//! The two Python literals of Kareus's public artifact (`ml-energy/kareus`, branch osdi26ae).
//!
//! Both are a list with a list per stage, then comments with totals. In `freqs_pipeline_N.py` a stage's
//! list has `('forward', 1410)` for each instruction in its order, in `scheds_pipeline_N.py` a name and a
//! token for each partition, `start-end-SMs-block`. Without activation checkpointing the artifact's
//! writer lists partitions by microbatch, as pairs of a forward and a backward.

use std::collections::HashMap;
use std::fmt::Write as _;

use litd_units::{Hertz, Joules};

use super::literal::{Literal, Value, What, parse};
use super::{Contract, Format, Instruction, Partition, PlanError, Stage};

/// An instruction's partitions, in the order of its tokens; `None` where no instruction has so many.
/// Activation checkpointing runs the forward's before the backward's own, named `recompute_...`; context
/// parallelism has more of them.
#[must_use]
pub fn partitions(instruction: &str, tokens: usize) -> Option<&'static [&'static str]> {
    Some(match (instruction, tokens) {
        ("forward" | "backward", 2) => &["attention", "mlp"],
        ("backward", 4) => &["recompute_attention", "recompute_mlp", "attention", "mlp"],
        ("forward", 5) => &["qkv_ar", "qkv_ag", "ao_ag", "ao_ar", "mlp"],
        ("backward", 7) => &["qkv_ar", "qkv_rs", "a_rs", "a_ag", "o_ag", "o_ar", "mlp"],
        ("backward", 12) => &[
            "recompute_qkv_ar",
            "recompute_qkv_ag",
            "recompute_ao_ag",
            "recompute_ao_ar",
            "recompute_mlp",
            "qkv_ar",
            "qkv_rs",
            "a_rs",
            "a_ag",
            "o_ag",
            "o_ar",
            "mlp",
        ],
        _ => return None,
    })
}

/// The comment of a plan that rests on made-up measurements.
const SIMULATED: &str = "SIMULATED";

/// How many tokens each instruction may have.
const COUNTS: [(&str, &str); 2] = [("forward", "2 or 5"), ("backward", "2, 4, 7 or 12")];

pub(super) fn read(text: &str) -> Result<(Format, Contract), PlanError> {
    let Literal { value, comments } = parse(text)?;
    let stages = items(&value, "the plan", "a list of stages")?;
    let format = format(&value, stages)?;
    let stages = (0..).zip(stages).map(|(number, value)| {
        let rows = items(value, &format!("stage {number}"), "a list of instructions")?;
        stage(number, rows, format)
    });
    let stages: Result<_, PlanError> = stages.collect();
    let mut contract = Contract::new(stages.map_err(|why| why.of(format))?);
    for comment in &comments {
        total(&mut contract, comment);
    }
    Ok((format, contract))
}

fn items<'a>(value: &'a Value, whose: &str, wanted: &str) -> Result<&'a [Value], PlanError> {
    match &value.what {
        What::Sequence(items) => Ok(items),
        other => Err(PlanError::at(
            value.at,
            format!("{whose} is {}, not {wanted}", other.name()),
        )),
    }
}

/// Tells the formats apart by what follows the first instruction's name.
fn format(whole: &Value, stages: &[Value]) -> Result<Format, PlanError> {
    let rows = stages.iter().filter_map(|stage| match &stage.what {
        What::Sequence(rows) => Some(rows),
        _ => None,
    });
    for row in rows.flatten() {
        let What::Sequence(fields) = &row.what else {
            continue;
        };
        match fields.first().map(|field| &field.what) {
            Some(What::Sequence(_)) => return Ok(Format::Schedules),
            Some(What::Text(_)) => {}
            _ => continue,
        }
        return Ok(match fields.get(1).map(|field| &field.what) {
            Some(What::Text(_)) => Format::Schedules,
            _ => Format::Frequencies,
        });
    }
    Err(PlanError::at(
        whole.at,
        "no instruction: a stage is a list like [('forward', 1410), ('backward', 1320)]",
    ))
}

fn stage(number: u32, rows: &[Value], format: Format) -> Result<Stage, PlanError> {
    let mut next: HashMap<String, u32> = HashMap::new();
    let mut instructions = Vec::with_capacity(rows.len());
    let mut add = |row: &Value| {
        let place = format!("stage {number}, instruction {}", instructions.len());
        let mut instruction = match format {
            Format::Schedules => scheduled(row, &place)?,
            _ => clocked(row, &place)?,
        };
        // The files don't number microbatches: each instruction takes them in turn.
        let count = next.entry(instruction.instruction.clone()).or_default();
        instruction.microbatch = *count;
        *count += 1;
        instructions.push(instruction);
        Ok(())
    };
    for row in rows {
        let fields = items(row, &format!("a row of stage {number}"), "an instruction")?;
        match fields.first().map(|field| &field.what) {
            Some(What::Sequence(_)) if format == Format::Schedules => {
                fields.iter().try_for_each(&mut add)?;
            }
            _ => add(row)?,
        }
    }
    let stage = number;
    Ok(Stage {
        stage,
        instructions,
    })
}

/// An instruction's name, and the fields that follow it.
fn named<'a>(row: &'a Value, place: &str) -> Result<(&'a str, &'a [Value]), PlanError> {
    let fields = items(row, place, "a name with what follows it")?;
    match fields.split_first() {
        Some((name, rest)) => match &name.what {
            What::Text(text) => Ok((text, rest)),
            other => Err(PlanError::at(
                name.at,
                format!("{place}: its name is {}, not a string", other.name()),
            )),
        },
        None => Err(PlanError::at(row.at, format!("{place}: it is empty"))),
    }
}

fn clocked(row: &Value, place: &str) -> Result<Instruction, PlanError> {
    let (name, rest) = named(row, place)?;
    let [clock] = rest else {
        return Err(PlanError::at(
            row.at,
            format!(
                "{place}: {name:?} is followed by {} values; one is needed, the clock in MHz",
                rest.len()
            ),
        ));
    };
    let megahertz = match clock.what {
        What::Number(megahertz) => megahertz,
        // The artifact writes 0 if no clock was chosen.
        What::None => 0.0,
        ref other => {
            return Err(PlanError::at(
                clock.at,
                format!(
                    "{place}: its clock is {}, not a number of MHz",
                    other.name()
                ),
            ));
        }
    };
    Ok(Instruction {
        instruction: name.to_owned(),
        clock: (megahertz != 0.0).then_some(Hertz(megahertz * 1e6)),
        ..Instruction::default()
    })
}

fn scheduled(row: &Value, place: &str) -> Result<Instruction, PlanError> {
    let (name, tokens) = named(row, place)?;
    let names = match partitions(name, tokens.len()) {
        Some(names) => names,
        None => {
            let counts = COUNTS.iter().find(|(known, _)| *known == name);
            let what = match counts {
                Some((_, counts)) => {
                    format!(
                        "{place}: {name:?} has {} tokens, not {counts}",
                        tokens.len()
                    )
                }
                None => format!(
                    "{place}: {name:?} has no partitions: it is neither forward nor backward"
                ),
            };
            return Err(PlanError::at(row.at, what));
        }
    };
    let mut partitions = Vec::with_capacity(names.len());
    for (name, value) in names.iter().zip(tokens) {
        let What::Text(text) = &value.what else {
            let what = format!(
                "{place}: the token of {name} is {}, not a string",
                value.what.name()
            );
            return Err(PlanError::at(value.at, what));
        };
        if text.is_empty() {
            // The artifact leaves the text empty for a partition that was not planned.
            continue;
        }
        let partition = token(name, text).map_err(|why| {
            PlanError::at(
                value.at,
                format!("{place}: the token {text:?} of {name}: {why}; it must be start-end-SMs-block, like norm_0-none-12-1024"),
            )
        })?;
        partitions.push(partition);
    }
    Ok(Instruction {
        instruction: name.to_owned(),
        partitions,
        ..Instruction::default()
    })
}

/// A partition from its token.
fn token(name: &str, text: &str) -> Result<Partition, String> {
    let fields: Vec<&str> = text.split('-').collect();
    let [launch, end, sms, threads] = fields[..] else {
        return Err(format!("it has {} parts, not 4", fields.len()));
    };
    let whole = |what: &str, text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.ok_or_else(|| format!("{text:?} is no {what}"))
    };
    Ok(Partition {
        name: name.to_owned(),
        launch: launch.to_owned(),
        end: (end != "none").then(|| end.to_owned()),
        sms: whole("number of SMs", sms)?,
        threads: whole("number of threads", threads)?,
    })
}

/// A total from a comment such as `Iteration 324 total cost: 1224.8`, or that the plan is simulated; other
/// comments say nothing.
fn total(contract: &mut Contract, comment: &str) {
    contract.simulated |= comment == SIMULATED;
    let Some((number, rest)) = comment
        .strip_prefix("Iteration ")
        .and_then(|rest| rest.trim_start().split_once(' '))
    else {
        return;
    };
    let (Ok(number), Some((what, value))) = (number.parse(), rest.split_once(':')) else {
        return;
    };
    let Some(value) = value
        .trim()
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
    else {
        return;
    };
    let totals = &mut contract.totals;
    let place = match what.trim() {
        "cost change" => &mut totals.cost_change,
        "total cost" => &mut totals.effective,
        "total cost with P2P" => &mut totals.energy,
        _ => return,
    };
    *place = Some(Joules(value));
    totals.iteration = Some(number);
}

pub(super) fn frequencies(contract: &Contract) -> String {
    write(contract, |instruction| {
        let megahertz = instruction.clock.map_or(0.0, |clock| clock.0 / 1e6);
        format!("({}, {megahertz})", quoted(&instruction.instruction))
    })
}

pub(super) fn schedules(contract: &Contract) -> String {
    write(contract, |instruction| {
        let mut text = format!("({}", quoted(&instruction.instruction));
        let tokens = match layout(instruction) {
            Some(names) => names
                .iter()
                .map(|name| planned(instruction, name))
                .collect(),
            // Partitions that the artifact does not know: all of them, in their order.
            None => instruction
                .partitions
                .iter()
                .map(written)
                .collect::<Vec<_>>(),
        };
        for token in tokens {
            text += ", ";
            text += &quoted(&token);
        }
        text + ")"
    })
}

/// The shortest list of the artifact's names that has all of an instruction's partitions.
fn layout(instruction: &Instruction) -> Option<&'static [&'static str]> {
    let own = &instruction.partitions;
    let mut layouts = [2, 4, 5, 7, 12].into_iter();
    layouts.find_map(|count| {
        let names = partitions(&instruction.instruction, count)?;
        own.iter()
            .all(|partition| names.contains(&partition.name.as_str()))
            .then_some(names)
    })
}

/// The token of the partition of this name, or the empty one.
fn planned(instruction: &Instruction, name: &str) -> String {
    let mut own = instruction.partitions.iter();
    own.find(|partition| partition.name == name)
        .map_or_else(String::new, written)
}

fn written(partition: &Partition) -> String {
    let Partition {
        launch,
        end,
        sms,
        threads,
        ..
    } = partition;
    format!(
        "{launch}-{}-{sms}-{threads}",
        end.as_deref().unwrap_or("none")
    )
}

fn write(contract: &Contract, row: impl Fn(&Instruction) -> String) -> String {
    let mut text = String::from("[\n");
    for stage in &contract.stages {
        let rows: Vec<String> = stage.instructions.iter().map(&row).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{}],", rows.join(", "));
    }
    text += "]\n";
    if contract.simulated {
        let _ = writeln!(text, "# {SIMULATED}");
    }
    let totals = &contract.totals;
    let number = totals.iteration.unwrap_or(0);
    for (what, value) in [
        ("cost change", totals.cost_change),
        ("total cost", totals.effective),
        ("total cost with P2P", totals.energy),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "# Iteration {number} {what}: {}", value.0);
        }
    }
    text
}

/// A Python string.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('\'', "\\'")
        .replace('\n', "\\n")
        .replace('\r', "\\r");
    format!("'{escaped}'")
}
