//! The page docs/reproduce/lit-silicon.md with its pictures.

use std::path::Path;

use super::knobs::Lab;
use super::{Fallible, Item, pictures, trends};
use crate::reproduce::write_page;

const HEAD: &str = "\
# Lit Silicon, repeated

    cargo run --release -p litlab -- reproduce lit-silicon --out docs/reproduce

wrote this page, which a test compares with what that prints. **All of ours is SIMULATED**, on `mi300x-node1` and
`mi300x-node0` (lab/sim/scenarios), with 1000 iterations and one seed for each run, where no interval is given.
Read it so:

- node 1 was **fitted** to Table III under the bare law and to Figures 3 and 5 (docs/calibration.md). Where the bare
  law agrees with Table III, that is no prediction. Node 0 was not fitted: only its order of GPUs is the paper's;
- the *bare law* is Algorithms 1 to 3 as they stand, which nothing stops. *litd* is the model law as shipped, with its
  stopping rules. Both have Table II's defaults but for the one knob that a row names;
- a gain compares the mean of the last five samples with that of the last five of the warm-up; warm-up and sampling
  period are compared with the warm-up of the defaults. Convergence is the paper's 99.5 % rule, on raw samples where
  the paper has rolling means of power. CV is the deviation by the mean from then on;
- Table III and section VIII-A have the mean of eight seeds and its 95 % interval (Student). One run has no interval:
  the noise of one gain shows in the spread of rows that should not differ. An interval is of noise on one simulated
  node and says nothing of other nodes.

Trends are those of the bare law, which is the paper's.
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
