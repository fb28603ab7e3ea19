//! `litctl analyze`: which GPU the others wait for, from the kernel traces of a job's ranks.

mod answer;
mod certainty;
mod cost;
mod doubts;
mod files;
mod hosts;
mod html;
mod links;
mod next;
mod parts;
pub mod read;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
mod shapes;
mod stages;
mod summary;
mod text;
mod time;
mod weighed;
mod words;

use std::path::PathBuf;

use clap::ValueEnum;
use litd_cli::traces;
use litd_traces::formats::nccl_summary::Waits;
use litd_traces::study::{
    Cause, Gain, ModelOptions, Skew, Study, gain, remove_skew, set_right, study_group,
};
use litd_traces::whatif::WhatIf;
use litd_traces::{
    AlignError, AlignOptions, AnalysisOptions, Choice, GroupReport, Groups, KernelClass, Report,
    Selection, Suspect, Timeline, analyse_groups, common_iterations, folder, formats, join, leads,
    partition, suspects,
};
use litd_units::{Aggregation, Watts};
use serde::Serialize;

use self::summary::Summary;
use self::weighed::Weighed;
use crate::{Outcome, output};

/// Find the GPU that the others wait for, in the kernel traces of a job's ranks
///
/// Prints a verdict (which rank the others wait for, and why), how sure it is, what to look at
/// next, and how much shorter an iteration would be with the cause mended. Then the evidence, and
/// for each rank its kernels, waits, overlap and lead. docs/analyze.md explains the answers.
///
/// Reads one file per rank, or several ranks in one file, plain or compressed with gzip or zstd:
/// Kineto JSON (PyTorch), Perfetto, rocpd, JSON and CSV (rocprofv3), rocprof's db, JSON and CSV,
/// rocmProfileData, xplane.pb (XLA), Nsight Systems' SQLite export and the CSV of nsys stats
/// (report cuda_gpu_trace). A file's content tells its format.
///
/// A rank's lead is by how much it starts matching kernels before the rank that starts them last.
/// Its pace is its time for the kernels of which the same share runs beside communication on every
/// rank, divided by the median rank's time for them: 1.05 is 5 % slower.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Trace files, or folders whose traces are read (not those of subfolders)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Which kernels are matched across ranks: computation, or communication as well ("all")
    #[arg(long, value_enum, value_name = "CLASS", default_value_t)]
    kernels: Kernels,
    /// How the leads of a rank's kernels become its lead. The rank with the smallest lead is the
    /// straggler if no collective shows who waits
    #[arg(long, value_enum, default_value_t)]
    aggregation: How,
    /// The ranks of the files, one for each file in their order. For a file that holds several GPUs
    /// give a rank for each GPU, in the order of the device numbers
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_name = "R,R,…", value_parser = one_of_ranks)]
    ranks: Vec<u32>,
    /// Read only these GPUs of files that hold several, by the labels of their devices (0, 1 ...)
    #[arg(long, value_delimiter = ',', value_name = "DEVICE,…")]
    devices: Vec<String>,
    /// A TOML file with the classes of kernels by name: a table "kernel" for each, with name and
    /// class (computation, communication, fused or copy). Its rows are tried before litctl's own
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// Refuse traces if too few kernels match on all ranks: less than this share of the kernels of the
    /// rank that has the fewest. In a pipeline the ranks of each stage are compared with each other, and
    /// if too few of their kernels match, the stage is split into groups of ranks that do match. A rank
    /// of a stage that matches no other rank is left out; the other ranks are compared. Below 0.8 no
    /// cause is named, whatever is given here
    #[arg(long, allow_negative_numbers = true, value_name = "FRACTION", default_value_t = 0.8, value_parser = fraction)]
    min_matched: f64,
    /// Analyze one iteration: the N of ProfilerStep#N, or counted from 0 with --cut-at
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = whole)]
    iteration: Option<u32>,
    /// Begin an iteration wherever a kernel starts whose name contains NAME
    #[arg(long, value_name = "NAME")]
    cut_at: Option<String>,
    /// Also print the predictions of the Lit Silicon paper's models: speed-up and power if all GPUs
    /// were equally fast
    #[arg(long)]
    models: bool,
    /// Also print the overlap of the 20 kernels that take most time, and its correlation with their
    /// duration
    #[arg(long)]
    overlap: bool,
    /// Power of a busy GPU under its present cap, for --models only
    #[arg(long, allow_negative_numbers = true, value_name = "WATTS", default_value_t = 700.0, value_parser = watts)]
    baseline_power: f64,
    /// Power of an idle GPU, for --models only
    #[arg(long, allow_negative_numbers = true, value_name = "WATTS", default_value_t = 140.0, value_parser = watts)]
    idle_power: f64,
    /// For --models and --overlap: a kernel's overlap is varying if its ratio differs by more than this
    /// across GPUs
    #[arg(long, allow_negative_numbers = true, value_name = "FRACTION", default_value_t = 0.1, value_parser = fraction)]
    varying: f64,
    /// Write one HTML page with the answers and pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the kernels of all ranks with their leads as a trace for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Write start, duration, overlap and lead of each matched kernel
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  litctl analyze traces/                       all ranks of a job, a file each
  litctl analyze rank*.json.gz --kernels all   match collectives too
  litctl analyze traces/ --iteration 12        the kernels of ProfilerStep#12
  litctl analyze a.json b.json --ranks 0,1     where files tell no ranks
  litctl analyze node1.db --ranks 8,9,10,11    one file of four GPUs
  litctl analyze node1.db --devices 0,2        two of them
  litctl analyze traces/ --models --html r.html   gains, and pictures
  litctl --json analyze traces/ | jq .verdict.text

Exit status:
  0  the traces were analyzed, whatever the verdict is (JSON: .verdict.kind)
  2  a file or an option is refused, which the message explains";

#[derive(Clone, Copy, Default, ValueEnum)]
enum Kernels {
    #[default]
    Computation,
    All,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum How {
    /// The sum of the leads of all kernels
    #[default]
    Sum,
    /// The largest lead
    Max,
    /// The lead at the last kernel
    Last,
}

/// More than any GPU draws.
const MOST_WATTS: f64 = 100_000.0;

fn watts(text: &str) -> Result<f64, String> {
    let watts = text.parse::<f64>().ok();
    let watts = watts.filter(|watts| (0.0..=MOST_WATTS).contains(watts));
    watts.ok_or_else(|| format!("must be a number of watts from 0 to {MOST_WATTS}"))
}

fn whole(text: &str) -> Result<u32, String> {
    let number = crate::spaced::<u32>(text).ok();
    let number = number.filter(|&number| number < u32::MAX);
    number.ok_or_else(|| format!("must be a whole number from 0 to {}", u32::MAX - 1))
}

fn one_of_ranks(text: &str) -> Result<u32, String> {
    whole(text).map_err(|told| format!("{told}; ranks are separated by commas, as in 0,1,2,3"))
}

fn fraction(text: &str) -> Result<f64, String> {
    let fraction = text
        .parse::<f64>()
        .ok()
        .filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| "must be a number from 0 to 1".into())
}

pub fn run(args: &Args, json: bool) -> Outcome {
    if args.baseline_power <= args.idle_power {
        return Err("--baseline-power must be more than --idle-power".into());
    }
    let files = folder::files(&args.paths)?;
    let written = [&args.html, &args.perfetto, &args.csv];
    files::check(&written.map(Option::as_deref), &files)?;
    if let Some(waits) = read::waits(&files)? {
        return collectives(&waits, args, json);
    }
    let classes = args.classes.as_deref().map(read::classes).transpose()?;
    let choice = Choice {
        ranks: &args.ranks,
        devices: &args.devices,
    };
    let (traces, mut notes) = traces::read(&files, choice)?;
    let (timelines, more) = join(traces)?;
    notes.extend(more);
    if !args.ranks.is_empty() {
        read::distinct(&timelines)?;
        notes.extend(read::ranks(&timelines));
    }
    let mut timelines = chosen(timelines, args)?;
    notes.extend(common_iterations(&mut timelines));
    let mut classed = 0;
    for timeline in &mut timelines {
        classed += classes
            .as_ref()
            .map_or(0, |classes| classes.apply(timeline));
    }
    if let Some(path) = args.classes.as_ref().filter(|_| classed == 0) {
        notes.push(format!(
            "{}: none of its rows fits the name of any kernel (--classes)",
            path.display()
        ));
    }
    notes.extend(Suspect::note(&suspects(&timelines)));
    let options = options(args);
    let compared = compared(&mut timelines, &options);
    let (groups, skews, mut report) = compared.map_err(|error| explained(error, &timelines))?;
    notes.extend(report.missing());
    report.notes.splice(..0, notes);
    let studies = studies((&timelines, &groups), skews, &options, args, &mut report);
    // Behind the studies: each of both takes much memory for a while.
    let job = WhatIf::of(&timelines, &groups);
    let study = studied((&timelines, &groups), &job, studies, &mut report);
    let told = study.as_ref().map_or(&timelines[..], |told| told.timelines);
    let gain = study.as_ref().and_then(|told| told.gain);
    let study = study.map(|told| told.study);
    let weighed = Weighed::of(&job, &report, study.as_ref());
    let first = Summary::of(&report, study.as_ref(), gain.as_ref(), &weighed);
    // Files take much memory for a while, too, and need nothing of it.
    let job = json.then_some(job);
    write_files(
        args,
        (&report, &first),
        study.as_ref(),
        (&timelines, told),
        &options,
    )?;
    if let Some(job) = &job {
        return output::json(&Document {
            report: &report,
            verdict: &first,
            study: study.as_ref(),
            gain,
            what_if: job,
        });
    }
    let screen = first.screen(text::taken(&report));
    let mut text = text::render(&report, &screen, options.aggregation, study.as_ref());
    let reasons = words::reasons(study.as_ref(), &first, screen);
    text.push_str(&words::why(&reasons));
    if let Some(study) = &study {
        if args.models {
            text.push_str(&words::models(study));
        }
        if args.overlap {
            text.push_str(&words::overlap(study));
        }
    }
    text.push_str(&time::render(&report));
    text.push_str(&text::notes(&report));
    output::text(&text)
}

fn options(args: &Args) -> AnalysisOptions {
    AnalysisOptions {
        align: AlignOptions {
            selection: match args.kernels {
                Kernels::Computation => Selection::Computation,
                Kernels::All => Selection::All,
            },
            min_matched: args.min_matched,
        },
        aggregation: match args.aggregation {
            How::Sum => Aggregation::Sum,
            How::Max => Aggregation::Max,
            How::Last => Aggregation::Last,
        },
    }
}

/// Puts ranks of equal work together, sets the clocks within each group and between groups right, and compares the
/// ranks of each.
fn compared(
    timelines: &mut [Timeline],
    options: &AnalysisOptions,
) -> Result<(Groups, Vec<Skew>, Report), AlignError> {
    let mut groups = partition(timelines, &options.align)?;
    let ranges = groups.all.iter().map(|group| group.range.clone());
    let skews = ranges.map(|range| remove_skew(timelines.get_mut(range).unwrap_or_default()));
    let skews = Vec::from_iter(skews);
    let clocks = set_right(timelines, &groups);
    let removed = skews.iter().any(|skew| skew.removed.contains(&true));
    if removed || !clocks.right.is_empty() {
        groups.sort(timelines);
    }
    let mut report = analyse_groups(timelines, &groups, options)?;
    report.notes.extend(words::clocks(&clocks.right, timelines));
    report.doubts.extend(doubts::between_groups(&clocks));
    if groups.stages_are_seen() {
        let stages = report.groups.iter().map(|group| words::ranks(&group.ranks));
        report.notes.push(format!(
            "the traces name no process groups; which collectives run at the same time and which transfers end together tell the stages of a pipeline: {}",
            Vec::from_iter(stages).join("; ")
        ));
    }
    Ok((groups, skews, report))
}

/// Why there are no leads. Traces that hold collectives alone have some, once these are matched.
fn explained(error: AlignError, timelines: &[Timeline]) -> String {
    let has = |wanted: fn(KernelClass) -> bool| {
        let mut kernels = timelines.iter().flat_map(|timeline| &timeline.kernels);
        kernels.any(|kernel| wanted(kernel.class))
    };
    let computes = has(|class| class == KernelClass::Computation);
    match error {
        AlignError::NothingSelected { .. } if !computes && has(KernelClass::communicates) => {
            format!("{error}: there are collectives only, and --kernels all matches these")
        }
        error => error.to_string(),
    }
}

/// Tells what a summary of collectives says.
fn collectives(waits: &Waits, args: &Args, json: bool) -> Outcome {
    let Args {
        html,
        perfetto,
        csv,
        ..
    } = args;
    if let Some(path) = html.as_ref().or(perfetto.as_ref()).or(csv.as_ref()) {
        return Err(format!(
            "{}: is not written: a summary of collectives has no kernels to show; give traces",
            path.display()
        )
        .into());
    }
    let asked = [
        (args.models, "--models"),
        (args.overlap, "--overlap"),
        (args.iteration.is_some(), "--iteration"),
        (args.cut_at.is_some(), "--cut-at"),
        (!args.ranks.is_empty(), "--ranks"),
    ];
    if let Some((_, option)) = asked.iter().find(|(asked, _)| *asked) {
        return Err(format!(
            "{option} is for traces: a summary of collectives has no kernels, and names its ranks itself; leave it out, or give traces"
        )
        .into());
    }
    let verdict = Summary::of_waits(waits);
    match json {
        true => output::json(&OfCollectives {
            waits,
            verdict: &verdict,
        }),
        false => output::text(&text::waits(waits, &verdict)),
    }
}

/// The JSON document: docs/analyze-json.md describes it.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a Report,
    verdict: &'a Summary,
    #[serde(flatten)]
    study: Option<&'a Study<'a>>,
    /// Where power can help.
    #[serde(skip_serializing_if = "Option::is_none")]
    gain: Option<Gain>,
    what_if: &'a WhatIf<'a>,
}

/// The JSON document of a summary of collectives.
#[derive(Serialize)]
struct OfCollectives<'a> {
    #[serde(flatten)]
    waits: &'a Waits,
    verdict: &'a Summary,
}

/// The paper's analysis of one group.
struct Told<'a> {
    study: Study<'a>,
    /// The gain from equal clocks, where clocks are the cause of differences.
    gain: Option<Gain>,
    /// The timelines of the group.
    timelines: &'a [Timeline],
}

/// The paper's analysis of each group, which needs two ranks with computation that matches.
fn studies<'a>(
    (timelines, groups): (&'a [Timeline], &'a Groups),
    skews: Vec<Skew>,
    options: &AnalysisOptions,
    args: &Args,
    report: &mut Report,
) -> Vec<Option<Study<'a>>> {
    if timelines.len() < 2 {
        if args.models || args.overlap {
            let note = "--models and --overlap compare ranks: they need at least two";
            report.notes.push(note.into());
        }
        return Vec::new();
    }
    let models = ModelOptions {
        baseline_power: Watts(args.baseline_power),
        idle_power: Watts(args.idle_power),
        varying_threshold: args.varying,
    };
    let mut studies = Vec::new();
    for ((group, skew), told) in groups.all.iter().zip(skews).zip(&report.groups) {
        let own = timelines.get(group.range.clone()).unwrap_or_default();
        if own.len() < 2 {
            studies.push(None);
            continue;
        }
        let waits = told.waits.as_ref();
        match study_group(own, (group, waits), skew, &options.align, &models) {
            // In a pipeline of single ranks the schedule decides who waits; only a slow clock is
            // visible.
            Ok(study) if group.pipeline && !study.diagnosis.clearly_slow() => studies.push(None),
            Ok(study) => studies.push(Some(study)),
            Err(error) => {
                report.notes.push(format!("no diagnosis: {error}"));
                studies.push(None);
            }
        }
    }
    studies
}

/// The analysis of the group whose ranks wait longest, of those that are not healthy. What holds each group back goes
/// to the report.
fn studied<'a>(
    (timelines, groups): (&'a [Timeline], &'a Groups),
    job: &WhatIf<'_>,
    mut studies: Vec<Option<Study<'a>>>,
    report: &mut Report,
) -> Option<Told<'a>> {
    if studies.is_empty() {
        return None;
    }
    let several = groups.all.len() > 1;
    for (study, told) in studies.iter_mut().zip(&mut report.groups) {
        if let Some(study) = study {
            weighed::add_alike(job, &mut study.diagnosis);
            told.skew = several.then(|| study.skew.clone());
            told.diagnosed(weighed::within(&study.diagnosis, &told.ranks));
        }
    }
    let ill = |group: &GroupReport| {
        let diagnosis = group.diagnosis.as_ref();
        diagnosis.is_some_and(|diagnosis| diagnosis.cause != Cause::Healthy)
    };
    let worst = match report.groups.iter().any(ill) {
        true => costliest(job, &studies).unwrap_or_else(|| longest_waiting(report, ill)),
        false => report.worst_group(|_| true),
    };
    report.tell(worst);
    let study = studies.into_iter().nth(worst).flatten()?;
    let helps = study.diagnosis.power_helps;
    let gain = helps.then(|| gain((timelines, job), groups, worst, &study));
    let group = groups.all.get(worst)?;
    Some(Told {
        gain: gain.flatten(),
        study,
        timelines: timelines.get(group.range.clone())?,
    })
}

/// The group whose ranks wait longest for their straggler, of these. Where transfers between stages can't be matched,
/// one late rank makes those of its replica late in all groups: one where it is known why comes before others that
/// wait as long.
fn longest_waiting(report: &Report, ill: impl Fn(&GroupReport) -> bool) -> usize {
    let explained = |group: &GroupReport| {
        let diagnosis = group.diagnosis.as_ref();
        diagnosis.is_some_and(weighed::is_explained) && ill(group)
    };
    let longest = report.worst_group(&ill);
    let other = report.worst_group(explained);
    let waits = |at: usize| {
        report
            .groups
            .get(at)
            .map_or(0.0, |group| group.spread().0 as f64)
    };
    let known = report.groups.get(other).is_some_and(explained);
    match known && waits(other) >= weighed::EXPLAINS * waits(longest) {
        true => other,
        false => longest,
    }
}

/// The group whose stragglers cost the job most, where that is clearly more than those of any other: what a stage
/// waits in its own group may cost the whole pipeline nothing. A group where it is known why comes before others that
/// cost as much.
fn costliest(job: &WhatIf<'_>, studies: &[Option<Study<'_>>]) -> Option<usize> {
    /// So many times as much is clear.
    const CLEAR: f64 = 2.0;
    let cost = |study: &Option<Study<'_>>| {
        let diagnosis = &study.as_ref()?.diagnosis;
        let part = weighed::part(diagnosis);
        let ranks = diagnosis.stragglers.iter().map(|&rank| (rank, part));
        let ranks = Vec::from_iter(ranks);
        let mended = litd_traces::whatif::Mended {
            ranks: &ranks,
            links: &[],
        };
        let explained = weighed::is_explained(diagnosis);
        let counts = if explained { 1.0 } else { weighed::EXPLAINS };
        (!ranks.is_empty()).then(|| (counts * job.share(mended), explained))
    };
    let costs = studies.iter().enumerate();
    let costs = costs.filter_map(|(at, study)| Some((cost(study)?, at)));
    let mut costs = Vec::from_iter(costs);
    costs.sort_by(|a, b| b.0.0.total_cmp(&a.0.0));
    let ((first, explained), at) = *costs.first()?;
    let rivals = costs.iter().skip(1).map(|(cost, _)| cost);
    let mut rivals = rivals.filter(|(_, other)| *other || !explained);
    let second = rivals.next().map_or(0.0, |rival| rival.0);
    (first >= weighed::WORTH && first >= CLEAR * second).then_some(at)
}

fn write_files(
    args: &Args,
    (report, first): (&Report, &Summary),
    study: Option<&Study<'_>>,
    (timelines, told): (&[Timeline], &[Timeline]),
    options: &AnalysisOptions,
) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = &args.perfetto {
        // Between groups there are no leads.
        let one_group = timelines.len() == told.len();
        let leads = one_group.then(|| leads(timelines, &options.align).ok());
        let leads = leads.flatten();
        files::write(path, |out| {
            formats::write_perfetto(timelines, leads.as_ref(), &first.doubts, out)
        })?;
    }
    if let Some(path) = &args.html {
        let page = html::render(report, first, study, told);
        files::write(path, |out| out.write_all(page.as_bytes()))?;
    }
    if let Some(path) = &args.csv {
        let needed = "--csv needs at least two ranks of equal work whose computation matches";
        let study = study.ok_or(needed)?;
        files::write(path, |out| files::csv(study, told, out))?;
    }
    Ok(())
}

/// The part of the timelines that was asked for.
fn chosen(mut timelines: Vec<Timeline>, args: &Args) -> Result<Vec<Timeline>, String> {
    if let Some(name) = &args.cut_at {
        if name.trim().is_empty() {
            return Err("--cut-at: an empty name fits every kernel; name the kernel at which iterations begin".into());
        }
        for timeline in &mut timelines {
            *timeline = timeline.marked_at(name);
            if timeline.kernels.is_empty() {
                let Timeline { source, rank, .. } = timeline;
                return Err(format!(
                    "{source}: rank {rank} has no kernel whose name contains {name:?}"
                ));
            }
        }
    }
    if let Some(number) = args.iteration {
        for timeline in &mut timelines {
            let iteration = timeline.iteration(number);
            if iteration.kernels.is_empty() {
                return Err(no_iteration(timeline, number));
            }
            *timeline = iteration;
        }
    }
    Ok(timelines)
}

fn no_iteration(timeline: &Timeline, number: u32) -> String {
    let Timeline { source, rank, .. } = timeline;
    let known = timeline.iteration_numbers();
    match (known.first(), known.last()) {
        (Some(only), _) if known.len() == 1 => format!(
            "{source}: rank {rank} has no kernels in iteration {number}; it has iteration {only} only"
        ),
        (Some(first), Some(last)) => format!(
            "{source}: rank {rank} has no kernels in iteration {number}; it has {} iterations from {first} to {last}",
            known.len()
        ),
        _ => format!(
            "{source}: rank {rank} marks no iterations (ProfilerStep); --cut-at NAME lets them begin at a kernel"
        ),
    }
}
