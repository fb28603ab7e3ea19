//! Stages of a pipeline that the others wait for, in words.

use litd_traces::study::Cause;
use litd_traces::whatif::{Stage, Why};

use super::certainty::Graded;
use super::weighed::{WORTH, Weighed};
use super::words;

/// The name of a stage.
fn name(stage: &Stage) -> String {
    let ranks = words::ranks(&stage.ranks);
    match stage.stage {
        Some(number) => format!("stage {number} ({ranks})"),
        None => ranks,
    }
}

/// The cause, for programs.
pub fn cause(stage: &Stage) -> Cause {
    match stage.why {
        Why::Clock => Cause::SlowClock,
        Why::Work | Why::Kernels => Cause::DataDependent,
    }
}

/// In one sentence.
pub fn headline(stage: &Stage) -> String {
    let (name, longer) = (name(stage), words::percents(stage.longer));
    match stage.why {
        Why::Work => format!(
            "Uneven stages: the others wait for {name}, which computes {longer} longer than the median stage, in {}; power only hides it.",
            match stage.kernels {
                [own, theirs] if own > theirs => "more kernels",
                [own, theirs] if own < theirs => "fewer kernels",
                _ => "as many kernels",
            }
        ),
        Why::Clock => format!(
            "Slow clock: the others wait for {name}, all of whose kernels take {longer} longer than those of the same names and grids elsewhere; power can help."
        ),
        Why::Kernels => format!(
            "Slow GPUs, or more work: the others wait for {name}, whose kernels of all kinds take {longer} longer than those of the same names and grids elsewhere."
        ),
    }
}

/// The short form.
pub fn short(stage: &Stage) -> String {
    let name = name(stage);
    match stage.why {
        Why::Work => format!("that {name} computes longer than the median stage"),
        Why::Clock | Why::Kernels => format!("that kernels of {name} take longer than elsewhere"),
    }
}

pub fn sure(stage: &Stage) -> Graded {
    match stage.why {
        Why::Work => ("sure", "computation is counted.".into()),
        Why::Clock | Why::Kernels => (
            "likely",
            "names and grids are equal, sizes and lengths of sequences may differ.".into(),
        ),
    }
}

pub fn next(stage: &Stage) -> String {
    match stage.why {
        Why::Work => format!(
            "move work (layers, the head) from {} to stages that wait.",
            name(stage)
        ),
        Why::Clock | Why::Kernels => format!(
            "look at clocks, temperatures and power limits of {}.",
            words::ranks(&stage.ranks)
        ),
    }
}

/// The cost, alone and together with other causes.
pub fn cost(stage: &Stage, weighed: &Weighed<'_>) -> String {
    let as_others = match stage.why {
        Why::Work => "as short as the median stage",
        Why::Clock | Why::Kernels => "as fast as elsewhere",
    };
    let name = match stage.stage {
        Some(number) => format!("stage {number}"),
        None => words::ranks(&stage.ranks),
    };
    let late = weighed.late.as_ref().map_or(0.0, |late| late.share);
    let alone = match late >= WORTH {
        true => " alone",
        false => "",
    };
    format!(
        "with {name}{alone} {as_others} an iteration would take {}.",
        weighed.less(stage.saved)
    )
}
