use crate::Outcome;

/// Not built yet
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: &Args, _json: bool) -> Outcome {
    Err("not built yet".into())
}
