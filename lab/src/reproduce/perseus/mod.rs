//! Perseus, item by item (Chung et al., SOSP 2024): all SIMULATED, on GPUs fitted to what is public.

mod emulation;
mod fits;
mod page;
pub(in crate::reproduce) mod pictures;
mod tables;
mod trends;
mod workloads;

use std::error::Error;
use std::path::PathBuf;

use litd_cli::Outcome;

use super::{Item, asked_for, print};
use emulation::Emulated;
use workloads::{EIGHT_STAGES, FOUR_STAGES, LARGE, SCALES, THREE_D, Workload};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Perseus: savings of pipelines with and without stragglers, beside the paper's
///
/// The paper does not publish times and energies of its GPUs: ours are SIMULATED, of GPUs that were
/// fitted to public data. Stages are as unequal as the paper's. With --out a page and its pictures
/// are written.
#[derive(clap::Args)]
pub struct Args {
    /// Only items whose name contains ITEM, such as table-6
    #[arg(long, value_name = "ITEM")]
    what: Option<String>,
    /// The folder with data of Kareus's artifact, to whose frontiers a GPU was fitted
    #[arg(long, value_name = "FOLDER")]
    artifact: Option<PathBuf>,
    /// Write the page perseus.md and its pictures there
    #[arg(long, value_name = "FOLDER", conflicts_with = "what")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let lab = Lab::new(args.what.as_deref())?;
    let mut items = tables::items(&lab)?;
    items.extend(fits::items(args.artifact.as_deref())?);
    items.extend(pictures::items());
    let items = asked_for(items, args.what.as_deref())?;
    if let Some(folder) = &args.out {
        page::write(folder, &lab, &items)?;
    }
    print(&items, json)
}

/// `litlab plan emulate`: Tables 5 and 6 and Figure 8.
pub fn emulate(json: bool) -> Outcome {
    let lab = Lab::new(Some("table-6"))?;
    let items = tables::large_scale(&lab)?;
    print(&items, json)
}

/// All workloads, emulated.
struct Lab {
    /// Table 6: by GPU (A100, A40), model, and microbatches as in [`SCALES`].
    large: Vec<Vec<Vec<Emulated>>>,
    four: Vec<(&'static str, Emulated)>,
    eight: Vec<(&'static str, Emulated)>,
    three_d: Option<Emulated>,
}

impl Lab {
    /// What the items of this name need, or all.
    fn new(what: Option<&str>) -> Fallible<Self> {
        use litd_profiles::synthetic::Gpu;
        let wants = |names: &[&str]| {
            what.is_none_or(|what| {
                names
                    .iter()
                    .any(|it| it.contains(what) || what.contains(it))
            })
        };
        let mut large = Vec::new();
        if wants(&["table-6", "figure-7", "figure-8"]) {
            for (at, gpu) in [Gpu::A100_SXM, Gpu::A40].into_iter().enumerate() {
                let models = LARGE.iter().map(|models| {
                    let scales = SCALES.iter().map(|(_, _, microbatches)| {
                        Emulated::new(&Workload {
                            model: models[at],
                            gpu,
                            microbatches: *microbatches,
                        })
                    });
                    scales.collect::<Fallible<Vec<_>>>()
                });
                large.push(models.collect::<Fallible<Vec<_>>>()?);
            }
        }
        let testbed = |models: &[(workloads::Model, u32)], gpu| {
            let all = models.iter().map(|&(model, microbatches)| {
                let workload = Workload {
                    model,
                    gpu,
                    microbatches,
                };
                Ok((model.name, Emulated::new(&workload)?))
            });
            all.collect::<Fallible<Vec<_>>>()
        };
        let testbeds = [
            "table-3",
            "table-4",
            "section",
            "figure-1",
            "figure-9",
            "figure-10",
            "figure-12",
            "figure-13",
        ];
        let (mut four, mut eight, mut three_d) = (Vec::new(), Vec::new(), None);
        if wants(&testbeds) {
            four = testbed(&FOUR_STAGES, Gpu::A100_PCIE)?;
            eight = testbed(&EIGHT_STAGES, Gpu::A40)?;
            three_d = testbed(&[THREE_D], Gpu::A40)?.pop().map(|(_, it)| it);
        }
        Ok(Self {
            large,
            four,
            eight,
            three_d,
        })
    }
}
