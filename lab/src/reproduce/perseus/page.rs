//! The page docs/reproduce/perseus.md with its pictures.

use std::path::Path;

use super::{Fallible, Item, Lab, pictures, trends};
use crate::reproduce::write_page;

const HEAD: &str = "\
# Perseus, repeated

    cargo run --release -p litlab -- reproduce perseus --out docs/reproduce

wrote this page, which a test compares with what that prints. **All of ours is SIMULATED**: Perseus (Chung et al.,
SOSP 2024) does not publish the times and energies of its GPUs. Here

- pipelines have the paper's stages (Table 7): as many layers in each, with a head whose time fits the paper's
  ratios. Of Wide-ResNet only the ratio is known, and its stages rise evenly from the first to the last;
- an operation's time and power by clock are those of three GPUs that were fitted to what is public
  (`planners/profiles/src/synthetic.rs`): an A100 SXM to the frontiers of Kareus's artifact (rows fit-a100-sxm
  have what is left over), an A100 PCIe and an A40 to the paper's two averages each (sections 2.4 and 6.2.3);
- a backward takes three forwards (activations are computed again), a unit of time is 1 ms, profiles go from the
  full clock down until slower clocks cost more energy (section 5), and a GPU that waits draws 85 W (A40: 70 W).

So the sections to which a GPU was fitted agree by making, all else by what the planner does. Savings are against
everything at the full clock. EnvPipe and both of Zeus's are `planners/perseus/src/baselines.rs`.
";

pub(super) fn write(folder: &Path, lab: &Lab, items: &[Item]) -> Fallible<()> {
    std::fs::create_dir_all(folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
    let drawn = pictures::draw(folder, lab)?;
    let path = folder.join("perseus.md");
    write_page(&path, HEAD, &trends::all(lab)?, items, &drawn)
}
