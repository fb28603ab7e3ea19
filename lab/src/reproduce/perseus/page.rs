//! The page docs/reproduce/perseus.md with its pictures.

use std::path::Path;

use super::{Fallible, Item, Lab, pictures, trends};
use crate::reproduce::write_page;

const HEAD: &str = "\
# Perseus, repeated

The tables and figures of the Perseus paper (Chung et al., SOSP 2024) beside what litd's planner gives. The command

    cargo run --release -p litlab -- reproduce perseus --out docs/reproduce

writes this page, and a test compares them. Rows fit-a100-sxm need the data of Kareus's public artifact (`--artifact
FOLDER`), which this repository does not have. **All numbers in the columns \"ours\" are SIMULATED**, because the paper
does not publish the times and energies of its GPUs. In their place:

- **Stages** have as many layers as the paper's (Table 7). The last one also has the model's head (its output layer),
  whose time is chosen so that the ratio of longest to shortest stage is nearest to the paper's. For Wide-ResNet only
  the ratio is known; its stages become longer evenly from the first to the last.
- **Time and power by clock** are those of three GPUs that were fitted to public data
  (`planners/profiles/src/synthetic.rs`): an A100 SXM to the frontiers of Kareus's artifact (in rows fit-a100-sxm the
  column \"the paper\" has the artifact's numbers), an A100 PCIe and an A40 to two averages of the paper each (sections
  2.4 and 6.2.3). As in the paper, \"A100\" is the SXM in Table 6 and Figures 7 and 8, and the PCIe in all other rows.
  So A100's T*/T is 1.22 or 1.23 in Figure 8, and 1.10 in section 6.2.3.
- **Other assumptions**: a backward takes as long as three forwards (activations are computed again), planned times are
  whole milliseconds, profiles go from the full clock down until slower clocks cost more energy (section 5), and a
  waiting GPU needs 85 W (A40: 70 W).

So the numbers to which a GPU was fitted agree because of the fit; all others show what the planner does.

- **Times**: T is the time of an iteration with all GPUs at the full clock, T' that of the slowest pipeline (the
  straggler), and T* the time above which a longer iteration saves no more joules.
- **Savings** are relative to a pipeline at the full clock that waits for the same straggler. The longer it waits, the
  more energy it uses. So the largest saving in per cent is at or before T*.
- **Intrinsic** savings are those of the plan without a straggler; what the plan for T' saves beyond them is
  **extrinsic**. Figure 7 has both at T'/T 1.2, where GPUs also use energy while they wait: so its intrinsic savings, in
  per cent, are a little below those of Table 6.
- **Baselines** (`planners/perseus/src/baselines.rs`): EnvPipe slows down what is not on its critical path, and has one
  plan for all T'; ZeusGlobal has one power limit for all stages, ZeusPerStage one for each.
";

pub(super) fn write(folder: &Path, lab: &Lab, items: &[Item]) -> Fallible<()> {
    std::fs::create_dir_all(folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
    let drawn = pictures::draw(folder, lab)?;
    let path = folder.join("perseus.md");
    write_page(&path, HEAD, &trends::all(lab)?, items, &drawn)
}
