//! The page docs/reproduce/lit-silicon.md with its pictures.

use std::path::Path;

use litd_policies::Policy;
use litd_study::course::{Hand, Point};

use super::items::caps;
use super::knobs::{Lab, Ran};
use super::{Fallible, Item};
use crate::reproduce::numbers;
use crate::reproduce::perseus::pictures::{Series, chart};

const HEAD: &str = "\
# Lit Silicon, repeated

    cargo run --release -p litlab -- reproduce lit-silicon --out docs/reproduce

wrote this page. **All of ours is SIMULATED**, on `mi300x-node1` and
`mi300x-node0` (lab/sim/scenarios), with 1000 iterations and one seed for each run. Read it so:

- node 1 was **fitted** to Table III under the bare law and to Figures 3 and 5 (docs/calibration.md). Where the bare
  law agrees with Table III, that is no prediction. Node 0 was not fitted: only its order of GPUs is the paper's;
- the *bare law* is Algorithms 1 to 3 as they stand, which nothing stops. *litd* is the model law as shipped, with its
  stopping rules. Both have Table II's defaults but for the one knob that a row names;
- a gain compares the mean of the last five samples with that of the last five of the warm-up; warm-up and sampling
  period are compared with the warm-up of the defaults. Convergence is the paper's 99.5 % rule, on raw samples where
  the paper has rolling means of power. CV is the deviation by the mean from then on;
- one run has no interval. The noise of one gain shows in the spread of rows that should not differ.

## Numbers
";

pub(super) fn write(folder: &Path, lab: &Lab, items: &[Item]) -> Fallible<()> {
    let named = |path: &Path, cause: std::io::Error| format!("{}: {cause}", path.display());
    std::fs::create_dir_all(folder).map_err(|cause| named(folder, cause))?;
    let mut page = format!("{HEAD}{}\n## Pictures\n", numbers(items));
    for (file, caption, svg) in draw(lab)? {
        let path = folder.join(&file);
        std::fs::write(&path, svg).map_err(|cause| named(&path, cause))?;
        page += &format!("\n{caption}\n\n![{caption}]({file})\n");
    }
    let path = folder.join("lit-silicon.md");
    Ok(std::fs::write(&path, page).map_err(|cause| named(&path, cause))?)
}

/// A file, what it shows, and the picture.
type Picture = (String, String, String);

fn draw(lab: &Lab) -> Fallible<Vec<Picture>> {
    let mut drawn = Vec::new();
    for policy in Policy::STEERING {
        let of = || lab.of(policy).filter(|it| it.knob.is_default());
        let throughput: Vec<Series> = of()
            .map(|it| over_samples(it.hand.name().into(), it, |point| 1.0 / point.time.0))
            .collect();
        let power: Vec<Series> = of()
            .map(|it| over_samples(it.hand.name().into(), it, |point| point.power.0))
            .collect();
        for (what, series) in [("throughput", throughput), ("power", power)] {
            let title = format!("Figure 9: {policy}, {what}");
            let up = format!("{what}, of the mean in warm-up");
            let svg = chart(&title, "sample", &up, &series)?;
            drawn.push((
                format!("lit-silicon-figure-9-{policy}-{what}.svg"),
                title,
                svg,
            ));
        }
    }
    let swept: Vec<Series> = lab
        .of(Policy::GpuRealloc)
        .filter(|it| it.hand == Hand::Bare)
        .filter(|it| it.knob.is_default() || it.knob.name == "warm-up")
        .map(|it| {
            over_samples(format!("{} samples", it.course.warm_up), it, |point| {
                1.0 / point.time.0
            })
        })
        .collect();
    let title = "Figure 11: warm-up, gpu-realloc, bare law".to_owned();
    let svg = chart(
        &title,
        "sample",
        "throughput, of the mean in warm-up",
        &swept,
    )?;
    drawn.push(("lit-silicon-figure-11.svg".into(), title, svg));
    for hand in Hand::ALL {
        let series: Vec<Series> = lab
            .of(Policy::GpuRealloc)
            .filter(|it| it.hand == hand)
            .filter(|it| it.knob.is_default() || it.knob.name == "power cap")
            .map(final_caps)
            .collect();
        let title = format!("Figure 12: final caps, gpu-realloc, {}", hand.name());
        let svg = chart(&title, "GPU", "cap less the mean cap, W", &series)?;
        let file = format!(
            "lit-silicon-figure-12-{}.svg",
            hand.name().replace(' ', "-")
        );
        drawn.push((file, title, svg));
    }
    Ok(drawn)
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
