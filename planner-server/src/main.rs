//! litd-planner: plans for pipelines, for any client that speaks Zeus's protocol. It sets no
//! clock and needs no privilege.

mod http;
mod plans;
mod protocol;
mod registry;
mod store;

use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::{CommandFactory, Parser, ValueEnum};
use litd_planner::{Graph, Pricing, Profile, Scale, Schedule};
use litd_units::{Millis, Watts};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::http::Server;
use crate::plans::Plans;
use crate::store::Store;

/// A file of more bytes is no profile, such as a device that never ends.
const MAX_FILE: u64 = 256 << 20;

/// Serve plans to training jobs: Zeus's protocol for pipeline frequencies, and stragglers
#[derive(Parser)]
#[command(name = "litd-planner", version, max_term_width = 100)]
struct Cli {
    /// Where to listen; nobody is asked who he is, so keep it within the cluster
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7787")]
    listen: SocketAddr,
    /// The folder in which jobs and results survive a restart
    #[arg(long, value_name = "FOLDER")]
    state: PathBuf,
    /// Measurements: CSV with stage,instruction,frequency,time,energy (MHz, s, J)
    #[arg(long, value_name = "PROFILE.csv")]
    profile: PathBuf,
    /// The pipeline's schedule
    #[arg(long, value_enum, default_value_t)]
    schedule: Named,
    /// Microbatches of an iteration
    #[arg(long, value_name = "M")]
    microbatches: u32,
    /// The unit of time, in ms
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    unit: f64,
    /// What a GPU draws while it waits for another, in watts
    #[arg(long, value_name = "W", default_value_t = 75.0)]
    blocking: f64,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Named {
    #[default]
    #[value(name = "1f1b")]
    OneForwardOneBackward,
    Gpipe,
    EarlyRecomputation,
    ZeroBubble,
}

fn main() -> ExitCode {
    // For whoever makes a package; not among the options, because it goes without those needed.
    if std::env::args_os().skip(1).eq(["--man"]) {
        return page();
    }
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("litd-planner: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the manual page.
fn page() -> ExitCode {
    let page = clap_mangen::Man::new(Cli::command());
    match page.render(&mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let (graph, spec, scale) = priced(cli)?;
    let state = Store::open(&cli.state)?;
    let (done, plans) = watch::channel(None);
    // Characterising takes seconds, and nobody should wait for it to register.
    std::thread::spawn(move || {
        let plans = Plans::new(graph, &spec, scale);
        done.send_replace(Some(plans.map(Arc::new).map_err(|error| error.to_string())));
    });
    let server = Arc::new(Server::new(state, scale.gpus, plans));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(cli.listen).await;
        let listener = listener.map_err(|cause| format!("{}: {cause}", cli.listen))?;
        println!("listening on {}", listener.local_addr()?);
        tokio::select! {
            () = server.serve(listener) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(())
    })
}

fn priced(cli: &Cli) -> Result<(Graph, litd_planner::Spec, Scale), Box<dyn Error>> {
    let profile: Profile = parse(&cli.profile)?;
    let pricing = Pricing {
        unit: Millis(cli.unit),
        blocking: Watts(cli.blocking),
        ..Pricing::default()
    };
    let named = |error: &dyn Error| format!("{}: {error}", cli.profile.display());
    let (spec, priced) = profile.price(&pricing).map_err(|error| named(&error))?;
    // A curve that can't be used is better known before anybody waits for it.
    spec.curves().map_err(|error| named(&error))?;
    let stages = priced
        .iter()
        .map(|priced| priced.kind.stage + 1)
        .max()
        .unwrap_or(0);
    let schedule = match cli.schedule {
        Named::OneForwardOneBackward => Schedule::OneForwardOneBackward,
        Named::Gpipe => Schedule::GPipe,
        Named::EarlyRecomputation => Schedule::EarlyRecomputation,
        Named::ZeroBubble => Schedule::ZeroBubble,
    };
    let graph = schedule.graph(stages, cli.microbatches)?;
    let scale = Scale {
        unit: pricing.unit,
        blocking: pricing.blocking,
        gpus: stages,
    };
    Ok((graph, spec, scale))
}

fn parse<T: FromStr<Err: std::fmt::Display>>(path: &Path) -> Result<T, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| named(&error))?;
    let mut text = String::new();
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    if read.map_err(|error| named(&error))? as u64 > MAX_FILE {
        return Err(named(&"more than 256 MiB: that is no profile"));
    }
    text.parse().map_err(|error| named(&error))
}
