//! The paper's numbers beside ours.

use litd_policies::Policy;
use litd_study::course::{Hand, Measures};
use litd_traces::study::pearson;

use super::characterised::Characterised;
use super::knobs::{Lab, Ran};
use super::{Fallible, Item};

/// Beside what the node was fitted to.
const FITTED: &str =
    "the simulated node was fitted to Table III under the bare law, so agreement is no prediction";

pub(super) fn all(lab: &Lab) -> Fallible<Vec<Item>> {
    let mut items = use_cases(lab);
    items.extend(lab.characterised.iter().flat_map(Characterised::items));
    items.extend(dynamics(lab));
    items.extend(sensitivities(lab));
    items.extend(clocks(lab));
    items.extend(warm_up(lab));
    items.extend(final_caps(lab));
    items.extend(cost(lab));
    items.extend(absent());
    Ok(items)
}

fn percent(part: f64) -> f64 {
    part * 100.0
}

fn name(ran: &Ran) -> String {
    let policy = ran.knob.policy;
    match ran.knob.is_default() {
        true => format!("{policy}, defaults, {}", ran.hand.name()),
        false => format!(
            "{policy}, {} {}, {}",
            ran.knob.name,
            ran.knob.value,
            ran.hand.name()
        ),
    }
}

fn defaults(lab: &Lab) -> impl Iterator<Item = &Ran> {
    lab.runs.iter().filter(|it| it.knob.is_default())
}

/// Why litd's number may differ from the bare law's.
fn origin(hand: Hand) -> &'static str {
    match hand {
        Hand::Bare => FITTED,
        Hand::Litd => "litd's model law with its stopping rules on the same node",
    }
}

/// Table III, measured.
fn use_cases(lab: &Lab) -> Vec<Item> {
    let mut items = Vec::new();
    for ran in defaults(lab) {
        let (power, throughput) = match ran.knob.policy {
            Policy::GpuRed => (1.04, 1.00),
            Policy::GpuRealloc => (1.00, 1.03),
            _ => (0.97, 1.04),
        };
        let pairs = [
            (
                "power, before / after",
                power,
                ran.mean(|it| 1.0 + it.saved),
            ),
            (
                "throughput, after / before",
                throughput,
                ran.mean(|it| 1.0 + it.faster),
            ),
        ];
        for (what, theirs, (ours, interval)) in pairs {
            let what = format!("{}: {what}", name(ran));
            let note = format!("{}; {interval}", origin(ran.hand));
            items.push(Item::compared("table-3", what, "times", theirs, ours, note));
        }
    }
    items
}

/// Figure 9: what section VII-A says of it.
fn dynamics(lab: &Lab) -> Vec<Item> {
    let mut items = Vec::new();
    for ran in defaults(lab) {
        let it = &ran.measures;
        let lead = "the paper draws the leads and says that they are minimised";
        let clock = match ran.knob.policy {
            Policy::GpuRed => "the paper: average power falls proportionally to average frequency",
            Policy::GpuRealloc => "the paper: the average frequency decreases",
            _ => "the paper draws it without a number",
        };
        let of = |what: &str| format!("{}: {what}", name(ran));
        items.push(Item::ours(
            "figure-9a",
            of("largest summed lead, after / before"),
            "times",
            it.lead,
            lead,
        ));
        items.push(Item::ours(
            "figure-9b",
            of("mean clock"),
            "%",
            percent(it.clock),
            clock,
        ));
    }
    items
}

/// Figures 13 to 15: a row for each knob and law.
fn sensitivities(lab: &Lab) -> Vec<Item> {
    let mut items = Vec::new();
    for ran in &lab.runs {
        let (item, what, ours) = match ran.knob.policy {
            Policy::GpuRed => ("figure-13", "power saved", ran.measures.saved),
            Policy::GpuRealloc => ("figure-14", "throughput gained", ran.measures.faster),
            _ => ("figure-15", "throughput gained", ran.measures.faster),
        };
        let note = format!("{}; {}", said(ran), rest(ran.knob.policy, &ran.measures));
        let (what, ours) = (format!("{}: {what}", name(ran)), percent(ours));
        items.push(match theirs(ran) {
            Some(theirs) => Item::compared(item, what, "%", theirs, ours, note),
            None => Item::ours(item, what, "%", ours, note),
        });
    }
    items
}

/// Where the text of section VII-B has a number for a bar.
fn theirs(ran: &Ran) -> Option<f64> {
    let (name, value) = (ran.knob.name, ran.knob.value.as_str());
    match ran.knob.policy {
        Policy::GpuRed if name == "node" || (name, value) == ("max adjustment", "5 W") => None,
        Policy::GpuRed => Some(4.0),
        Policy::GpuRealloc => None,
        _ if (name, value) == ("power cap", "550 W") => Some(6.0),
        _ => Some(4.0),
    }
}

/// What the text says where it has no number, and what stands behind one.
fn said(ran: &Ran) -> &'static str {
    let (name, value) = (ran.knob.name, ran.knob.value.as_str());
    match ran.knob.policy {
        Policy::GpuRed if name == "node" => {
            "the paper: less than on node 1, which has more leaders"
        }
        Policy::GpuRed if value == "5 W" => "the paper: less, because the experiment is too short",
        Policy::GpuRealloc if name == "node" => "the paper: less than on node 1",
        Policy::GpuRealloc if value == "500 W" => "the paper: less than elsewhere, and noisier",
        Policy::GpuRealloc => "the paper: between 2.5 and 3.5 % for nearly all knobs",
        Policy::CpuSlosh if value == "550 W" => "the paper: up to 6 %",
        _ => "the paper: 4 % for nearly all knobs",
    }
}

fn rest(policy: Policy, it: &Measures) -> String {
    let (of, other, value) = match policy {
        Policy::GpuRed => ("power", "throughput", it.faster),
        _ => ("throughput", "power", -it.saved / (1.0 + it.saved)),
    };
    format!(
        "ours: {of} converges in {} samples (99.5 % rule), CV {:.2} % from then on; {other} {:+.2} %",
        it.convergence,
        percent(it.variation),
        percent(value)
    )
}

/// Figure 10: power and clock of gpu-red.
fn clocks(lab: &Lab) -> Vec<Item> {
    let runs = lab.of(Policy::GpuRed).filter(|it| it.hand == Hand::Bare);
    let item = |ran: &Ran| {
        let note = format!(
            "the paper: clocks decrease proportionally with power; power {:+.2} % here",
            percent(-ran.measures.saved / (1.0 + ran.measures.saved))
        );
        let what = format!("{}: mean clock", name(ran));
        Item::ours("figure-10", what, "%", percent(ran.measures.clock), note)
    };
    runs.map(item).collect()
}

/// Figure 11: throughput whatever the warm-up.
fn warm_up(lab: &Lab) -> Vec<Item> {
    let mut items = Vec::new();
    for hand in Hand::ALL {
        let swept = lab
            .of(Policy::GpuRealloc)
            .filter(|it| it.hand == hand && (it.knob.is_default() || it.knob.name == "warm-up"));
        let gains: Vec<f64> = swept.map(|it| percent(it.measures.faster)).collect();
        if gains.len() < 2 {
            continue;
        }
        let most = gains.iter().copied().fold(f64::MIN, f64::max);
        let least = gains.iter().copied().fold(f64::MAX, f64::min);
        let shown: Vec<String> = gains.iter().map(|it| format!("{it:.2}")).collect();
        let note = format!(
            "the paper: similar values regardless of warm-up; ours: gains of {} % for 50, 3, 6, 12, 25 samples",
            shown.join(", ")
        );
        let what = format!(
            "gpu-realloc, {}: throughput gained, greatest less least",
            hand.name()
        );
        items.push(Item::ours("figure-11", what, "points", most - least, note));
    }
    items
}

/// Figure 12: the caps at the end, whatever the caps at the start.
fn final_caps(lab: &Lab) -> Vec<Item> {
    let mut items = Vec::new();
    for ran in &lab.runs {
        if !(ran.knob.is_default() || ran.knob.name == "power cap") {
            continue;
        }
        let Some(first) =
            defaults(lab).find(|it| it.knob.policy == Policy::GpuRealloc && it.hand == ran.hand)
        else {
            continue;
        };
        let shown: Vec<String> = caps(ran).iter().map(|it| format!("{it:.0}")).collect();
        let note = format!(
            "the paper: a very similar distribution; ours: caps {} W",
            shown.join(" ")
        );
        let what = format!(
            "{}: correlation with gpu-realloc's caps at 700 W",
            name(ran)
        );
        items.push(match pearson(&caps(first), &caps(ran)) {
            Some(ours) => Item::ours("figure-12", what, "", ours, note),
            None => Item::absent(
                "figure-12",
                what,
                "",
                None,
                format!("no cap differs from another; {note}"),
            ),
        });
    }
    items
}

/// The caps that a run ended with, W.
pub(super) fn caps(ran: &Ran) -> Vec<f64> {
    let last = ran.course.points.last();
    last.map_or_else(Vec::new, |it| it.caps.iter().map(|cap| cap.0).collect())
}

/// Section VIII-A: what a fleet of 6 GW saves in a year.
fn cost(lab: &Lab) -> Vec<Item> {
    let runs = lab
        .of(Policy::GpuRed)
        .filter(|it| it.knob.is_default() || it.knob.name == "node");
    let item = |ran: &Ran| {
        let dollars = |it: &Measures| {
            let part = it.saved / (1.0 + it.saved);
            6e6 * 0.5 * 24.0 * 365.0 * 0.14 * part / 1e6
        };
        let (ours, interval) = ran.mean(dollars);
        let note = format!(
            "6 GW, half of it for GPUs, at 0.14 $/kWh, as the paper computes it; {interval}. The interval is of noise \
             on one simulated node, not of a fleet's nodes, which differ: litlab study --part family has those"
        );
        let what = format!("{}: a fleet of 6 GW, saved in a year", name(ran));
        Item::compared("section-8a", what, "million $", 147.0, ours, note)
    };
    runs.map(item).collect()
}

/// What has no numbers, or none here.
fn absent() -> Vec<Item> {
    let sketch = "it is a sketch, and has no numbers";
    let mut items = Vec::new();
    for (item, what, why) in [
        ("figure-1", "overview", sketch),
        ("figure-2", "overlap in FSDP", sketch),
        ("figure-6", "the four phases", sketch),
        ("figure-8", "the framework", sketch),
        ("table-1", "use cases", "it has no numbers"),
        (
            "table-2",
            "model Mistral 7B, FSDP v1, fp8",
            "the simulated workload is one FSDP of 32 layers; kernel times of the others are not public",
        ),
        (
            "table-2",
            "batch size and sequence length b1s4, b4s4, b1s8, b2s8",
            "kernel times of these are not public, and scaling one workload's would assume the answer",
        ),
    ] {
        items.push(Item::absent(item, what, "", None, why));
    }
    items
}
