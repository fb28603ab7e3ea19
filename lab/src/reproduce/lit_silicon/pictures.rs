//! The figures, drawn.

use litd_policies::Policy;
use litd_study::course::{Hand, Point};
use litd_study::iterations::{Execution, Layer, Reading};

use super::Fallible;
use super::characterised::{Characterised, KERNELS};
use super::items::caps;
use super::knobs::{Lab, Ran};
use crate::reproduce::perseus::pictures::{Series, chart};
use crate::study::figures::{Pair, bars_named};

/// Of an iteration's 640 kernels every fifth is drawn.
const EVERY: usize = 5;

/// A file, what it shows, and the picture.
type Picture = (String, String, String);

pub(super) fn draw(lab: &Lab) -> Fallible<Vec<Picture>> {
    let mut drawn = Vec::new();
    if let Some(characterised) = &lab.characterised {
        drawn.extend(by_layer(characterised)?);
        drawn.extend(by_kernel(characterised)?);
        drawn.extend(warming(characterised)?);
        drawn.extend(leads(characterised)?);
    }
    drawn.extend(dynamics(lab)?);
    drawn.push(clocks(lab)?);
    drawn.push(warm_up(lab)?);
    for hand in Hand::ALL {
        drawn.push(caps_of(lab, hand)?);
    }
    for (figure, policy) in [13, 14, 15].into_iter().zip(Policy::STEERING) {
        drawn.push(knobs(lab, figure, policy)?);
    }
    Ok(drawn)
}

/// A chart with its file's name: figure and what it shows.
fn picture(
    figure: &str,
    what: &str,
    (across, up): (&str, &str),
    series: &[Series],
) -> Fallible<Picture> {
    let title = format!("Figure {figure}: {what}");
    let svg = chart(&title, across, up, series)?;
    let words: Vec<&str> = what
        .split(|it: char| !it.is_ascii_alphanumeric())
        .filter(|it| !it.is_empty())
        .collect();
    let file = format!(
        "lit-silicon-figure-{figure}-{}.svg",
        words.join("-").to_lowercase()
    );
    Ok((file, title, svg))
}

/// A line for each GPU.
fn gpus(all: &[Vec<f64>]) -> Vec<Series> {
    let line = |(gpu, values): (usize, &Vec<f64>)| Series {
        name: format!("GPU {gpu}"),
        points: values
            .iter()
            .enumerate()
            .map(|(at, it)| (at as f64, *it))
            .collect(),
        is_line: true,
    };
    all.iter().enumerate().map(line).collect()
}

/// Each value by the least of all GPUs at the same place.
fn normalised(all: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let least = |at: usize| {
        let values = all.iter().filter_map(|it| it.get(at));
        values.copied().fold(f64::MAX, f64::min)
    };
    let row = |row: &Vec<f64>| {
        let values = row.iter().enumerate();
        values.map(|(at, it)| it / least(at)).collect()
    };
    all.iter().map(row).collect()
}

fn by_layer(characterised: &Characterised) -> Fallible<Vec<Picture>> {
    let [node, _] = &characterised.nodes;
    let of = |value: fn(&Layer) -> f64| -> Vec<Vec<f64>> {
        let gpu = |gpu| node.iterations.layers(gpu).iter().map(value).collect();
        (0..node.iterations.gpus()).map(gpu).collect()
    };
    let overlap = gpus(&of(|it| it.overlap));
    let communication = gpus(&normalised(&of(|it| it.communication.0)));
    let across = "layer and pass, over three iterations";
    Ok(vec![
        picture("3a", "overlap", (across, "overlap ratio"), &overlap)?,
        picture(
            "3a",
            "communication",
            (across, "time of collectives / the shortest"),
            &communication,
        )?,
    ])
}

fn by_kernel(characterised: &Characterised) -> Fallible<Vec<Picture>> {
    let [node, _] = &characterised.nodes;
    let across = "layer, over three iterations";
    let mut drawn = Vec::new();
    for (name, ours, _) in KERNELS {
        let of = |value: fn(&Execution) -> f64| -> Vec<Vec<f64>> {
            let gpu = |gpu| {
                let executions = node.iterations.executions(ours, gpu);
                executions.iter().map(value).collect()
            };
            (0..node.iterations.gpus()).map(gpu).collect()
        };
        let overlap = gpus(&of(|it| it.overlap));
        let duration = gpus(&normalised(&of(|it| it.duration.0)));
        let (first, second) = (format!("{name}, overlap"), format!("{name}, duration"));
        drawn.push(picture("3b", &first, (across, "overlap ratio"), &overlap)?);
        let up = "duration / the shortest";
        drawn.push(picture("3b", &second, (across, up), &duration)?);
    }
    Ok(drawn)
}

fn warming(characterised: &Characterised) -> Fallible<Vec<Picture>> {
    let readings = &characterised.warming;
    let of = |value: fn(&Reading) -> f64| -> Vec<Vec<f64>> {
        let count = readings.first().map_or(0, Vec::len);
        let gpu = |gpu: usize| {
            let own = readings.iter().filter_map(|it| it.get(gpu));
            own.map(value).collect()
        };
        (0..count).map(gpu).collect()
    };
    let across = "iteration, from a cold start";
    let (hot, fast) = (of(|it| it.temperature), of(|it| it.clock));
    Ok(vec![
        picture("5", "temperature", (across, "°C"), &gpus(&hot))?,
        picture("5", "clock", (across, "MHz"), &gpus(&fast))?,
    ])
}

fn leads(characterised: &Characterised) -> Fallible<Vec<Picture>> {
    let draw = |node: &super::characterised::Node| {
        let leads = node.iterations.leads();
        let all: Vec<Vec<f64>> = leads
            .iter()
            .map(|it| it.iter().step_by(EVERY).map(|it| it.0).collect())
            .collect();
        let across = "every fifth kernel of three iterations";
        let what = format!("leads, {}", node.name);
        picture("7", &what, (across, "lead value, ms"), &gpus(&all))
    };
    characterised.nodes.iter().map(draw).collect()
}

fn dynamics(lab: &Lab) -> Fallible<Vec<Picture>> {
    let mut drawn = Vec::new();
    for policy in Policy::STEERING {
        let of = |value: fn(&Point) -> f64| -> Vec<Series> {
            let runs = lab.of(policy).filter(|it| it.knob.is_default());
            runs.map(|it| over_samples(it.hand.name().into(), it, value))
                .collect()
        };
        let throughput = of(|point| 1.0 / point.time.0);
        let power = of(|point| point.power.0);
        for (what, series) in [("throughput", throughput), ("power", power)] {
            let up = format!("{what}, of the mean in warm-up");
            let of = format!("{policy}, {what}");
            drawn.push(picture("9", &of, ("sample", &up), &series)?);
        }
    }
    Ok(drawn)
}

/// Figure 10: a dot for each configuration.
fn clocks(lab: &Lab) -> Fallible<Picture> {
    let series = |hand: Hand| Series {
        name: hand.name().into(),
        points: lab
            .of(Policy::GpuRed)
            .filter(|it| it.hand == hand)
            .map(|it| {
                let power = 1.0 / (1.0 + it.measures.saved) - 1.0;
                (power * 100.0, it.measures.clock * 100.0)
            })
            .collect(),
        is_line: false,
    };
    let axes = ("change of power, %", "change of the mean clock, %");
    let what = "gpu-red, a dot for each configuration";
    picture("10", what, axes, &Hand::ALL.map(series))
}

fn warm_up(lab: &Lab) -> Fallible<Picture> {
    let swept: Vec<Series> = lab
        .of(Policy::GpuRealloc)
        .filter(|it| it.hand == Hand::Bare)
        .filter(|it| it.knob.is_default() || it.knob.name == "warm-up")
        .map(|it| {
            let name = format!("{} samples", it.course.warm_up);
            over_samples(name, it, |point| 1.0 / point.time.0)
        })
        .collect();
    let axes = ("sample", "throughput, of the mean in warm-up");
    picture("11", "warm-up, gpu-realloc, bare law", axes, &swept)
}

fn caps_of(lab: &Lab, hand: Hand) -> Fallible<Picture> {
    let series: Vec<Series> = lab
        .of(Policy::GpuRealloc)
        .filter(|it| it.hand == hand)
        .filter(|it| it.knob.is_default() || it.knob.name == "power cap")
        .map(final_caps)
        .collect();
    let what = format!("final caps, gpu-realloc, {}", hand.name());
    picture("12", &what, ("GPU", "cap less the mean cap, W"), &series)
}

/// Figures 13 to 15: bars of both laws for each knob.
fn knobs(lab: &Lab, figure: u32, policy: Policy) -> Fallible<Picture> {
    let of = |hand: Hand| lab.of(policy).filter(move |it| it.hand == hand);
    let [first, second] = Hand::ALL;
    let values = |ran: &Ran| {
        let it = &ran.measures;
        let gain = if policy == Policy::GpuRed {
            it.saved
        } else {
            it.faster
        };
        [gain * 100.0, it.convergence as f64, it.variation * 100.0]
    };
    let pair = |(one, other): (&Ran, &Ran)| {
        let (one_values, other_values) = (values(one), values(other));
        Pair {
            name: format!("{} {}", one.knob.name, one.knob.value),
            values: one_values
                .into_iter()
                .zip(other_values)
                .map(Into::into)
                .collect(),
        }
    };
    let pairs: Vec<Pair> = of(first).zip(of(second)).map(pair).collect();
    let gained = if policy == Policy::GpuRed {
        "power saved, %"
    } else {
        "throughput gained, %"
    };
    let quantities = [gained, "samples to converge", "CV from then on, %"];
    let title = format!("Figure {figure}: {policy}, each knob");
    let names = Hand::ALL.map(|it| it.name().to_owned());
    let svg = bars_named(&title, &names, &quantities, &pairs)?;
    Ok((format!("lit-silicon-figure-{figure}.svg"), title, svg))
}

fn over_samples(name: String, ran: &Ran, of: fn(&Point) -> f64) -> Series {
    let before = ran.course.before();
    let mean = before.iter().map(of).sum::<f64>() / before.len().max(1) as f64;
    let points = ran.course.points.iter().enumerate();
    Series {
        name,
        points: points.map(|(at, it)| (at as f64, of(it) / mean)).collect(),
        is_line: true,
    }
}

fn final_caps(ran: &Ran) -> Series {
    let caps = caps(ran);
    let mean = caps.iter().sum::<f64>() / caps.len().max(1) as f64;
    Series {
        name: match ran.knob.is_default() {
            true => "700 W".into(),
            false => ran.knob.value.clone(),
        },
        points: caps
            .iter()
            .enumerate()
            .map(|(gpu, cap)| (gpu as f64, cap - mean))
            .collect(),
        is_line: true,
    }
}
