//! What it costs litd to answer PyTorch's on-demand client in a node's processes: a real daemon on a stand-in node, and
//! 1,000 sockets that each ask every 5 s. `cargo bench --bench polling`, for half a minute, as root. Whatever else runs
//! on the machine shows in the figure.

#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "it is the tests' client"
)]
#[path = "../../whole/attach/client.rs"]
mod client;
#[path = "../common/measured.rs"]
mod measured;
#[path = "../common/report.rs"]
mod report;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use litd_rig::Rig;
use litd_sim::Scenario;
use nix::sched::{CloneFlags, unshare};

use client::{Client, poll};
use measured::{amount, nothing};
use report::load;

const CLIENTS: u32 = 1000;
const PERIOD: Duration = Duration::from_secs(5);
const WATCHED: Duration = Duration::from_secs(20);

/// Of one core.
const LIMIT: f64 = 0.01;

/// The processor time of litd's threads that answer.
fn answering(litd: u32) -> Result<Duration, Box<dyn Error>> {
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{litd}/task"))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == "kineto" {
            let told = fs::read_to_string(task.join("schedstat"))?;
            let nanos = told.split_ascii_whitespace().next();
            sum += Duration::from_nanos(nanos.ok_or("no schedstat")?.parse()?);
        }
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("load of the machine at start: {}", load());
    // The name that clients know is one for a whole network namespace.
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|why| format!("a network namespace takes root: {why}"))?;
    let rig = Rig::new(&Scenario::builtin("default")?, 1)?;
    let litd = Path::new(env!("CARGO_BIN_EXE_litd"));
    let daemon = rig.spawn(litd, &rig.config("attach.kineto = true\n"))?;
    let clients: Vec<Client> = (0..CLIENTS).map(Client::new).collect();
    let question = poll(std::process::id());
    let (before, began) = (answering(daemon.pid())?, Instant::now());
    let (mut asked, mut answered) = (0_u32, 0_u32);
    while began.elapsed() < WATCHED {
        let client = &clients[asked as usize % clients.len()];
        client.ask(&question);
        answered += u32::from(client.answer(Duration::from_millis(90)).is_some());
        asked += 1;
        let next = PERIOD * asked / CLIENTS;
        sleep(next.saturating_sub(began.elapsed()));
    }
    let took = answering(daemon.pid())? - before;
    if answered < asked * 9 / 10 {
        return Err(nothing(
            "polling",
            format!("{answered} of {asked} questions were answered"),
        )
        .into());
    }
    let share = amount(
        "polling",
        took.as_secs_f64() / began.elapsed().as_secs_f64(),
    )?;
    println!(
        "{CLIENTS} clients that ask every 5 s ({answered} of {asked} questions answered): {:.2} % of a core ({:.2} of the \
         limit of {:.0} %)",
        100.0 * share,
        share / LIMIT,
        100.0 * LIMIT
    );
    println!("load of the machine at the end: {}", load());
    Ok(())
}
