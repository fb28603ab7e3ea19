//! The report as one HTML file: no script, nothing from a network; it fits a phone and paper.

mod ranks;
mod time;

use std::fmt::Write as _;

use litd_traces::study::{Aligned, KernelOverlap, Matched, MatchedKernel, Study, Wave};
use litd_traces::{Kernel, KernelClass, Report, Timeline};
use litd_units::Nanos;

use super::answer::Screen;
use super::summary::Summary;
use super::{text, words};
use crate::page;
use crate::svg::{Chart, colour, escaped};

/// The most kernels that the straggler wave draws.
const WAVE_LINES: usize = 80;
/// The most dots of one chart of overlap against duration, per rank.
const DOTS: usize = 150;
/// The most points of the lead curve of one rank; each iteration keeps two at least.
const POINTS: usize = 4_800;
/// The most kernels that the timeline draws, of all ranks together: a page that a phone still opens.
const BARS: usize = 2_000;
/// The most rows of the table of who is last.
const STRETCHES: usize = 100;
/// Less overlap than this can't be told from none.
const NO_OVERLAP: f64 = 0.01;
/// How many kernels are on either side of the one with the greatest lead.
const AROUND: usize = 12;

/// The whole file: of one group's ranks, if they were studied, all there is to see; of all ranks
/// where their time goes.
pub fn render(
    report: &Report,
    first: &Summary,
    study: Option<&Study<'_>>,
    timelines: &[Timeline],
) -> String {
    let heading = match report.ranks.len() {
        0 | 1 => "Where does this GPU's time go?",
        _ => "Who waits for whom, and why?",
    };
    let title = format!("{} (litctl analyze)", first.verdict.in_full());
    let mut out = page::begin(&title, heading);
    if report.simulated {
        out.push_str("<p><strong>SIMULATED</strong>: a simulator wrote these traces.</p>\n");
    }
    let screen = first.screen(text::taken(report));
    answers(&mut out, &screen);
    reasons(&mut out, &words::reasons(study, first, screen));
    ranks::section(&mut out, report);
    time::section(&mut out, report);
    if let Some(study) = study {
        pictures(&mut out, study, timelines);
    }
    for note in &report.notes {
        let _ = writeln!(out, "<p>Note: {}</p>", escaped(note));
    }
    page::end(out)
}

/// The pictures and tables of one group's ranks.
fn pictures(out: &mut String, study: &Study<'_>, timelines: &[Timeline]) {
    key(out, timelines);
    let (which, scatter) = (which(study), scatter(study));
    for (title, text, chart) in [
        (
            "Straggler wave",
            "Each line joins the starts of one kernel on all ranks, around the greatest lead: the rank where the lines reach furthest right starts it last.",
            straggler_wave(study, timelines),
        ),
        (
            "Lead curves",
            "By how much each rank started each kernel before the last rank did, through the iterations. A curve that stays at zero is that of the rank that is always last.",
            lead_curves(&study.waves),
        ),
        ("Overlap against duration", which.as_str(), scatter),
        (
            "Around the worst layer",
            &where_worst(&study.matched),
            timeline(study, timelines),
        ),
    ] {
        let _ = writeln!(
            out,
            "<section><h2>{title}</h2><p>{}</p><figure>{chart}</figure></section>",
            escaped(text)
        );
    }
    last(out, study);
    predictions(out, study);
    kernels(out, study);
}

/// The first screen.
fn answers(out: &mut String, screen: &Screen) {
    let [(_, verdict), rest @ ..] = &screen.lines;
    let _ = writeln!(out, "<p class=\"verdict\">{}</p><dl>", escaped(verdict));
    for (label, answer) in rest {
        let _ = write!(out, "<dt>{label}</dt><dd>{}</dd>", escaped(answer));
    }
    out.push_str("</dl>\n");
}

/// The basis of the verdict.
fn reasons(out: &mut String, reasons: &[String]) {
    out.push_str("<h2>Why</h2><ul>");
    for reason in reasons {
        let _ = write!(out, "<li>{}</li>", escaped(reason));
    }
    out.push_str("</ul>\n");
}

fn key(out: &mut String, timelines: &[Timeline]) {
    out.push_str("<p class=\"key\">");
    for (at, timeline) in timelines.iter().enumerate() {
        let _ = write!(
            out,
            "<span><i style=\"background:{}\"></i>rank {}</span>",
            colour(at),
            timeline.rank
        );
    }
    out.push_str("</p>\n");
}

fn millis(time: Nanos) -> f64 {
    time.to_millis().0
}

/// The kernels around the one with the greatest lead.
fn around(matched: &Matched<'_>, each_side: usize) -> Vec<MatchedKernel> {
    let at = matched.worst().unwrap_or(0);
    let first = at.saturating_sub(each_side);
    (first..=at + each_side)
        .filter_map(|k| matched.get(k))
        .collect()
}

/// The layer of the kernel with the greatest lead, in words.
fn where_worst(matched: &Matched<'_>) -> String {
    let Some(kernel) = matched.worst().and_then(|at| matched.get(at)) else {
        return String::new();
    };
    let place = match &kernel.layer {
        Some(layer) => format!(
            "The lead is greatest in layer {} of {}",
            layer.number, layer.pass
        ),
        None => "The lead is greatest here; no layer can be told".into(),
    };
    let iteration = kernel.iteration;
    let iteration = iteration.map_or(String::new(), |number| format!(", iteration {number}"));
    format!(
        "{place}{iteration}. Of each rank, computation is drawn above, communication (light grey) and copies (dark grey) below."
    )
}

/// The kernels of the layer with the greatest lead; where no layer can be told, those around it.
fn worst_layer(matched: &Matched<'_>) -> Vec<MatchedKernel> {
    let worst = matched.worst().and_then(|at| Some((at, matched.get(at)?)));
    let Some((at, worst)) = worst.filter(|(_, worst)| worst.layer.is_some()) else {
        return around(matched, AROUND);
    };
    let same = |k: usize| {
        let kernel = matched.get(k)?;
        let is_same = kernel.layer == worst.layer && kernel.iteration == worst.iteration;
        is_same.then_some(kernel)
    };
    let mut kernels = Vec::from_iter((0..at).rev().map_while(same));
    kernels.reverse();
    kernels.extend((at..).map_while(same));
    kernels
}

fn straggler_wave(study: &Study<'_>, timelines: &[Timeline]) -> String {
    let kernels = around(&study.matched, WAVE_LINES / 2);
    let starts = || {
        kernels
            .iter()
            .flat_map(|kernel| kernel.start.iter().copied())
    };
    let (Some(first), Some(last)) = (starts().min(), starts().max()) else {
        return String::new();
    };
    let ranks = timelines.len() as f64;
    let names = timelines.iter().enumerate();
    let names =
        names.map(|(at, timeline)| (ranks - 1.0 - at as f64, format!("rank {}", timeline.rank)));
    let range = (0.0, millis(last - first));
    let mut chart = Chart::new(range, (-0.3, ranks - 0.7), 60.0 + 32.0 * ranks)
        .horizontal_axis("time, ms")
        .rows(names);
    for kernel in kernels {
        let points = kernel.start.iter().enumerate();
        let points = points.map(|(at, start)| (millis(*start - first), ranks - 1.0 - at as f64));
        chart.line(points, "currentColor", "thin");
    }
    chart.finish("Starts of the same kernels on all ranks")
}

fn lead_curves(waves: &[Wave]) -> String {
    let total = waves.iter().map(|wave| wave.kernels).sum::<usize>() as f64;
    let leads = waves.iter().flat_map(|wave| wave.lead_ns.iter().flatten());
    let most = millis(leads.copied().max().unwrap_or_default());
    let mut chart = Chart::new((0.0, total), (0.0, most * 1.05), 300.0)
        .horizontal_axis("matched kernel")
        .vertical_axis("lead, ms");
    let mut before = 0.0;
    let points = waves.iter().map(|wave| wave.at.len());
    let step = points.clone().sum::<usize>().div_ceil(POINTS).max(1);
    for wave in waves {
        let step = step.min(wave.at.len().div_ceil(2)).max(1);
        for (at, leads) in wave.lead_ns.iter().enumerate() {
            let points = wave.at.iter().zip(leads).step_by(step);
            let points = points.map(|(k, lead)| (before + *k as f64, millis(*lead)));
            chart.line(points, &colour(at), "curve");
        }
        before += wave.kernels as f64;
    }
    chart.finish("Lead of each rank by kernel")
}

/// The kernel that is drawn: the one whose overlap varies in most of the time.
fn most_varying<'a>(study: &'a Study<'_>) -> Option<&'a KernelOverlap> {
    let weight =
        |kernel: &KernelOverlap| kernel.varying as f64 * kernel.time_ms.iter().sum::<f64>();
    let enough = study.kernels.iter().filter(|kernel| kernel.executions > 2);
    let most = enough.max_by(|a, b| weight(a).total_cmp(&weight(b)));
    let varies = most.filter(|kernel| weight(kernel) > 0.0);
    // Where none varies, the one with most overlap shows most.
    let overlaps = || {
        let kernels = study.kernels.iter();
        kernels.max_by(|a, b| most_overlap(a).total_cmp(&most_overlap(b)))
    };
    varies.or_else(overlaps)
}

/// The kernel, in words.
fn which(study: &Study<'_>) -> String {
    let Some(kernel) = most_varying(study) else {
        return String::new();
    };
    if most_overlap(kernel) <= NO_OVERLAP {
        return "No kernel runs beside communication for long enough to draw its overlap.".into();
    }
    let why = match kernel.varying {
        0 => "no kernel's overlap varies much across ranks",
        _ => "the kernel whose overlap varies most",
    };
    format!(
        "A dot is one execution of {} ({why}). If dots rise to the right, it takes longer where communication runs beside it.",
        words::short(&kernel.name)
    )
}

/// The greatest share of a kernel's time that communication runs beside it, over the ranks.
fn most_overlap(kernel: &KernelOverlap) -> f64 {
    let ratios = kernel.overlap_ratio.iter().flatten().copied();
    ratios.fold(0.0, f64::max)
}

fn scatter(study: &Study<'_>) -> String {
    let chosen = most_varying(study).filter(|kernel| most_overlap(kernel) > NO_OVERLAP);
    let Some(chosen) = chosen else {
        return String::new();
    };
    let kernels = study.matched.iter();
    let kernels = kernels.filter(|kernel| kernel.plain_name == chosen.name);
    let kernels = Vec::from_iter(kernels);
    let times = kernels
        .iter()
        .flat_map(|kernel| kernel.duration.iter().copied());
    let longest = millis(times.max().unwrap_or_default());
    let mut chart = Chart::new((0.0, 1.0), (0.0, longest * 1.05), 300.0)
        .horizontal_axis("overlap ratio")
        .vertical_axis("duration, ms");
    let step = kernels.len().div_ceil(DOTS).max(1);
    for kernel in kernels.iter().step_by(step) {
        for (at, (overlap, time)) in kernel.overlap.iter().zip(&kernel.duration).enumerate() {
            chart.dot(*overlap, millis(*time), &colour(at));
        }
    }
    chart.finish("Duration by overlap ratio")
}

fn timeline(study: &Study<'_>, timelines: &[Timeline]) -> String {
    let kernels = worst_layer(&study.matched);
    let starts = kernels
        .iter()
        .flat_map(|kernel| kernel.start.iter().copied());
    let ends = kernels.iter().flat_map(|kernel| {
        let pairs = kernel.start.iter().zip(&kernel.duration);
        pairs.map(|(start, time)| *start + *time)
    });
    let (Some(first), Some(last)) = (starts.min(), ends.max()) else {
        return String::new();
    };
    let ranks = timelines.len() as f64;
    let names = timelines.iter().enumerate();
    let names =
        names.map(|(at, timeline)| (ranks - 0.5 - at as f64, format!("rank {}", timeline.rank)));
    let range = (0.0, millis(last - first));
    let ran = timelines.iter();
    let ran = Vec::from_iter(ran.map(|timeline| between(timeline, first, last)));
    let all = ran.iter().map(Vec::len).sum::<usize>();
    let each = (BARS / timelines.len().max(1)).max(1);
    let axis = match ran.iter().any(|kernels| kernels.len() > each) {
        true => format!("time, ms (of {all} kernels, the {each} longest of each rank)"),
        false => "time, ms".into(),
    };
    let mut chart = Chart::new(range, (0.0, ranks), 60.0 + 40.0 * ranks)
        .horizontal_axis(&axis)
        .rows(names);
    for (at, (timeline, mut kernels)) in timelines.iter().zip(ran).enumerate() {
        let base = ranks - 1.0 - at as f64;
        kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.duration()));
        kernels.truncate(each);
        let own = colour(at);
        for kernel in kernels {
            let span = (
                millis(kernel.start.max(first) - first),
                millis(kernel.end.min(last) - first),
            );
            let (rows, fill) = match kernel.class {
                KernelClass::Computation => ((0.5, 0.9), own.as_str()),
                KernelClass::Communication | KernelClass::Fused => ((0.1, 0.45), "#999"),
                KernelClass::Copy => ((0.1, 0.45), "#555"),
            };
            let title = format!(
                "{}: {:.3} ms",
                words::short(timeline.name_of(kernel)),
                millis(kernel.duration())
            );
            chart.area(span, (base + rows.0, base + rows.1), fill, &title);
        }
    }
    chart.finish("Kernels of all ranks around the greatest lead")
}

/// The kernels of a rank that ran in this time.
fn between(timeline: &Timeline, first: Nanos, last: Nanos) -> Vec<&Kernel> {
    let kernels = timeline.kernels.iter();
    let ran = kernels.filter(|kernel| kernel.start <= last && kernel.end >= first);
    ran.collect()
}

fn last(out: &mut String, study: &Study<'_>) {
    out.push_str("<section><h2>Who is last</h2><table><tr><th>from kernel</th><th>iteration</th><th>kernels</th><th>rank</th><th>behind the next, ms</th></tr>");
    let waves = study.waves.iter();
    let stretches = || {
        waves
            .clone()
            .flat_map(|wave| wave.last.iter().map(move |stretch| (wave, stretch)))
    };
    for (wave, stretch) in stretches().take(STRETCHES) {
        let iteration = wave
            .iteration
            .map_or("-".into(), |number| number.to_string());
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{iteration}</td><td>{} to {}</td><td>{}</td><td>{:.3}</td></tr>",
            escaped(&words::short(&stretch.from_kernel)),
            stretch.first,
            stretch.end - 1,
            stretch.rank,
            millis(stretch.behind_ns)
        );
    }
    out.push_str("</table>");
    let all = stretches().count();
    if all > STRETCHES {
        let _ = write!(out, "<p>The first {STRETCHES} of {all} rows.</p>");
    }
    out.push_str("</section>\n");
}

fn predictions(out: &mut String, study: &Study<'_>) {
    // The gain from clocks is not shown where they are not the cause.
    if words::no_models(&study.diagnosis).is_some() {
        return;
    }
    let models = &study.models;
    let _ = write!(
        out,
        "<section><h2>What fixing it would gain</h2><p>{}</p><table><tr><th>policy</th><th>speed-up (estimate; above 1 is less time)</th><th>without noise</th><th>from iteration to iteration</th><th>power after / before</th></tr>",
        escaped(&words::assumptions(models))
    );
    for Aligned {
        policy,
        speedup,
        speedup_without_noise,
        speedup_interval,
        node_power_ratio,
        ..
    } in [&models.max, &models.med, &models.min]
    {
        let interval = speedup_interval.map_or("-".into(), |[least, most]| {
            format!("{least:.4} to {most:.4}")
        });
        let _ = write!(
            out,
            "<tr><td>{policy}</td><td>{speedup:.4}</td><td>{speedup_without_noise:.4}</td><td>{interval}</td><td>{node_power_ratio:.4}</td></tr>"
        );
    }
    out.push_str("</table></section>\n");
}

fn kernels(out: &mut String, study: &Study<'_>) {
    out.push_str("<section><h2>Overlap and duration by kernel</h2><table><tr><th>kernel</th><th>executions</th><th>varying</th><th>overlap, % (least to most)</th><th>Pearson (median)</th><th>cosine (median)</th></tr>");
    for kernel in study.kernels.iter().take(20) {
        let overlaps = || {
            kernel
                .overlap_ratio
                .iter()
                .flatten()
                .map(|ratio| ratio * 100.0)
        };
        let _ = write!(
            out,
            "<tr><td title=\"{}\">{}</td><td>{}</td><td>{}</td><td>{:.1} to {:.1}</td><td>{}</td><td>{}</td></tr>",
            escaped(&kernel.name),
            escaped(&words::short(&kernel.name)),
            kernel.executions,
            kernel.varying,
            overlaps().fold(f64::INFINITY, f64::min),
            overlaps().fold(f64::NEG_INFINITY, f64::max),
            words::middle(&kernel.pearson),
            words::middle(&kernel.cosine)
        );
    }
    out.push_str("</table></section>\n");
}
