//! litd-planner: plans for pipelines, for any client that speaks Zeus's protocol. It sets no
//! clock and needs no privilege.

mod drift;
mod http;
mod journal;
mod model;
mod models;
mod pipeline;
mod plans;
mod protocol;
mod registry;
mod state;
mod store;
mod token;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{CommandFactory, Parser};
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::http::Server;
use crate::pipeline::Wanted;
use crate::plans::Plans;
use crate::registry::Registry;
use crate::state::State;
use crate::store::Store;
use crate::token::Token;

/// Writing to disk is for few threads: one writes, and what waits is written together.
const WRITERS: usize = 4;

/// Serve plans of clocks to training jobs over HTTP, in Zeus's protocol, and slower plans while a
/// pipeline is late
#[derive(Parser)]
#[command(name = "litd-planner", version, max_term_width = 100)]
struct Cli {
    /// Where to listen; other machines are served only with a token (--token-file), or with
    /// --without-token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7787", value_parser = address)]
    listen: SocketAddr,
    /// The folder in which jobs and results survive a restart
    #[arg(long, value_name = "FOLDER")]
    state: PathBuf,
    /// The file with the token that clients must send as "Authorization: Bearer TOKEN" [default: systemd's
    /// credential planner-token, if there is one]
    #[arg(long, value_name = "FILE", conflicts_with = "without_token")]
    token_file: Option<PathBuf>,
    /// Serve whoever can connect, from other machines too
    #[arg(long)]
    without_token: bool,
    #[command(flatten)]
    wanted: Wanted,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let hint = "must be an IP address and a port: 127.0.0.1:7787, 0.0.0.0:7787 for all, [::]:7787";
    text.parse().map_err(|_| hint.to_owned())
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
    let token = Token::new(cli.token_file.as_deref(), cli.without_token, cli.listen)?;
    let (pipeline, basis) = cli.wanted.pipeline()?;
    let gpus = pipeline.scale().gpus;
    let (store, mut registry) = Store::open(&cli.state)?;
    registry.hear_all(http::now());
    let registry = resume(&store, registry.serving(gpus), &basis)?;
    let (done, plans) = watch::channel(None);
    // Characterising takes seconds, and nobody should wait for it to register.
    std::thread::spawn(move || {
        let began = Instant::now();
        let plans = Plans::new(pipeline);
        let (points, seconds) = (plans.points(), began.elapsed().as_secs_f64());
        eprintln!("litd-planner: plans for {points} iteration times, found in {seconds:.1} s");
        done.send_replace(Some(Arc::new(plans)));
    });
    let server = Arc::new(Server::new(State::new(store, registry), plans, token));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(WRITERS)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        server.characterise_all();
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

/// Takes up the jobs that were there before. Where their plans were made from something else, they
/// get new ones.
fn resume(
    store: &Store,
    mut registry: Registry,
    basis: &Map<String, Value>,
) -> Result<Registry, Box<dyn Error>> {
    if registry.len() > 0 {
        eprintln!(
            "litd-planner: jobs taken up from the state folder: {}",
            registry.len()
        );
    }
    let changed = store.new_in_basis(basis)?;
    if changed.is_empty() {
        return Ok(registry);
    }
    if registry.len() > 0 {
        eprintln!(
            "litd-planner: their plans were made from other settings ({}): all jobs get new plans",
            changed.join(", ")
        );
        for id in registry.replan() {
            eprintln!(
                "litd-planner: {id} has another number of stages than the profile: it gets no plan"
            );
        }
        store.save(&serde_json::to_vec(&registry)?)?;
    }
    // After the jobs: interrupted in between, they get new plans once more, not never.
    store.save_basis(basis)?;
    Ok(registry)
}
