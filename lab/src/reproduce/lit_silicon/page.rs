//! The page docs/reproduce/lit-silicon.md with its pictures.

use std::path::Path;

use super::knobs::Lab;
use super::{Fallible, Item, pictures, trends};
use crate::reproduce::write_page;

const HEAD: &str = "\
# Lit Silicon, repeated

The tables and figures of the Lit Silicon paper beside what litd's simulator gives. The command

    cargo run --release -p litlab -- reproduce lit-silicon --out docs/reproduce

writes this page. A test compares some rows with what the command prints, and with LITD_REPRODUCE=1 the whole page
(`cargo test -p litlab --test lab reproduce`). **All numbers in the columns \"ours\" are SIMULATED**, with 1000
iterations for each run of a law. Node 1 is the simulated node `mi300x-node1`, node 0 is `mi300x-node0`
(lab/sim/scenarios); a row that names no node is about node 1.

- **Fit.** Node 1 was fitted to Table III under the bare law and to Figures 3 and 5 (docs/calibration.md), so agreement
  there is no prediction. Node 0 was not fitted: only its order of GPUs is the paper's. Power above idle grows as
  clock^1.2 (fitted); so if caps are lowered, the mean clock falls a little less, in per cent, than power.
- **Laws.** The *bare law* is Algorithms 1 to 3 of the paper without any stopping rule. *litd* is the model law
  (docs/laws.md) as shipped, with its stopping rules. Both have Table II's defaults, except for the one knob that a
  row names (docs/laws-sensitivity.md explains them; *power cap* is the cap of all GPUs at the start).
- **Gains.** A *sample* is one sampling period: ten iterations by default. Gains compare the mean of the last five
  samples with that of the last five samples of the warm-up. Rows that change the warm-up or the sampling period are
  compared with the warm-up of the run with the defaults.
- **Power.** *Power saved* is power before / after, less 1, as in Table III. A *change* of power (\"power -4.45 %\") is
  after / before, less 1: 4.66 % saved is a change of -4.45 %.
- **Predicted** is what equations 1 to 16 of the paper compute from three iterations before any adjustment.
- **Kernels of Figure 3b** have the paper's names: `b_attn_fa` is attention in the backward pass, `f_attn_op` the output
  projection after attention in the forward pass, `b_mlp_dp` the down projection of the MLP in the backward pass.
- **Convergence** (the paper's 99.5 % rule): throughput has converged at the first sample that reaches 99.5 % of its
  greatest value. Power has converged at the first sample at or below 100.5 % of its least value. A row gives N, the
  number of samples between the warm-up and that sample; of power, samples at 99.5 % of its greatest value or more are
  left out of N, because there power has not begun to fall. We take single samples; the paper takes rolling means of
  power. CV is the standard deviation / mean of all samples later than N samples after the warm-up.
- **Seeds.** Rows with a 95 % interval (Student) have the mean of eight seeds. The interval covers noise on one
  simulated node, and not the differences between nodes. Rows that node 1 was fitted to name their seeds. Every other
  number, those under Trends included, is of one seed, so small differences may be noise.

The trends are those of the bare law, because that is the paper's law.
";

pub(super) fn write(folder: &Path, lab: &Lab, items: &[Item]) -> Fallible<()> {
    let named = |path: &Path, cause: std::io::Error| format!("{}: {cause}", path.display());
    std::fs::create_dir_all(folder).map_err(|cause| named(folder, cause))?;
    let mut beside = Vec::new();
    for (file, caption, svg) in pictures::draw(lab)? {
        let path = folder.join(&file);
        std::fs::write(&path, svg).map_err(|cause| named(&path, cause))?;
        beside.push((file, caption));
    }
    let path = folder.join("lit-silicon.md");
    write_page(&path, HEAD, &trends::all(lab), items, &beside)
}
