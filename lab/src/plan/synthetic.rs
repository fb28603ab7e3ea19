//! SIMULATED measurements, made up from a seed.

use litd_cli::plan::{Costs, Fallible, Graphing, Priced};
use litd_profiles::synthetic;

/// So many stages are measured in seconds; a typing error should not take hours.
const MAX_STAGES: u32 = 4096;

/// What they are made up from.
#[derive(clap::Args)]
pub struct Synthetic {
    /// SIMULATED measurements, made up from this seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    synthetic: u64,
}

impl Costs for Synthetic {
    const SIMULATED: bool = true;
    const EXAMPLES: &'static str = "\
Example:
  litlab plan frontier --synthetic 1 --stages 16 --schedule 1f1b \\
      --microbatches 128 --check";

    const OPTIONS: [&'static str; 3] = [
        "The pipeline's number of stages, each on one GPU",
        "Times are rounded to multiples of this, in ms",
        "The power of a GPU that waits for another, in watts",
    ];

    fn costs(&self, graphing: &Graphing) -> Fallible<Priced> {
        let stages = graphing.stages()?;
        let stages = stages.filter(|stages| (1..=MAX_STAGES).contains(stages));
        let wanted = format!(
            "--stages is missing or too large: how many stages are to be made up (times --chunks \
             where they are interleaved), 1 to {MAX_STAGES}"
        );
        let profile = synthetic::profile(stages.ok_or(wanted)?, self.synthetic);
        let (spec, kinds) = profile.price(&graphing.pricing())?;
        Ok(Priced { spec, kinds })
    }

    fn source(&self) -> String {
        "the made-up measurements".into()
    }
}
