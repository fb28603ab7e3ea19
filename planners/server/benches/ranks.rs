//! How long it takes to register the ranks of a large job, each on disk before it is answered:
//! `cargo bench -p litd-planner-server`. 16 clients register 10,000 ranks over a connection each; the limit is 5 s.
//! Beside it, in the same run, as many appended and synchronised lines as the fewest writes would take: what the
//! disk alone costs if no two clients ever waited for the same write.

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::error::Error;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use litd_profiles::synthetic;
use measured::{amount, nothing};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const RANKS: u32 = 10_000;
const CLIENTS: u32 = 16;
const LIMIT: f64 = 5.0;
/// Lines that are appended and synchronised one after the other, for the disk's own time.
const LINES: u32 = 200;

/// A server that ends with the benchmark.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("profile.csv");
    std::fs::write(&profile, csv()?)?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_litd-planner"))
        .args([
            "--listen",
            "127.0.0.1:0",
            "--microbatches",
            "4",
            "--profile",
        ])
        .arg(&profile)
        .arg("--state")
        .arg(folder.path().join("state"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or("no output")?;
    let _server = Server(child);
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line
        .trim()
        .strip_prefix("listening on ")
        .unwrap_or_default()
        .to_owned();
    let mut connection = TcpStream::connect(&address)?;
    let body = format!(
        r#"{{"job_id": "", "pp_degree": 2, "dp_degree": {}, "tp_degree": 1, "world_size": {RANKS}, "job_metadata": null}}"#,
        RANKS / 2
    );
    let id = ask(&mut connection, "/register_job", &body)?;
    let id = id.trim_matches('"').to_owned();
    let began = Instant::now();
    let registered: u32 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn({
                    let (address, id) = (&address, &id);
                    move || register(address, id, client)
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|it| it.join().map_err(|_| "a client panicked")?)
            .sum::<Outcome<u32>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    if registered != RANKS {
        return Err(
            nothing("registering", format!("{registered} of {RANKS} ranks"))
                .to_string()
                .into(),
        );
    }
    let seconds = amount("registering", seconds).map_err(|why| why.to_string())?;
    let alone = disk(folder.path())? * f64::from(RANKS / CLIENTS);
    println!(
        "{RANKS} ranks by {CLIENTS} clients: {seconds:.2} s, limit {LIMIT} s ({}); the disk alone, {} appended lines: {alone:.2} s",
        if seconds <= LIMIT { "within" } else { "ABOVE" },
        RANKS / CLIENTS
    );
    Ok(())
}

fn csv() -> Outcome<String> {
    let mut text = String::from("stage,instruction,frequency,time,energy\n");
    for (kind, measurements) in synthetic::profile(2, 1).measurements() {
        for one in measurements {
            let (clock, time, energy) = (one.clock.0 / 1e6, one.time.0 / 1e3, one.energy.0);
            writeln!(
                text,
                "{},{},{clock},{time},{energy}",
                kind.stage, kind.instruction
            )?;
        }
    }
    Ok(text)
}

/// Registers every rank whose turn is this client's. How many.
fn register(address: &str, id: &str, client: u32) -> Outcome<u32> {
    let mut connection = TcpStream::connect(address)?;
    let clocks: Vec<String> = (210..=1410)
        .rev()
        .step_by(15)
        .map(|it| it.to_string())
        .collect();
    let clocks = clocks.join(",");
    let mut count = 0;
    for rank in (client..RANKS).step_by(CLIENTS as usize) {
        let (dp, pp) = (rank / 2, rank % 2);
        let body = format!(
            r#"{{"rank": {rank}, "dp_rank": {dp}, "pp_rank": {pp}, "tp_rank": 0, "available_frequencies": [{clocks}]}}"#
        );
        ask(&mut connection, &format!("/register_rank/{id}"), &body)?;
        count += 1;
    }
    Ok(count)
}

/// Posts over a connection that stays open. What is answered.
fn ask(connection: &mut TcpStream, path: &str, body: &str) -> Outcome<String> {
    let length = body.len();
    let request =
        format!("POST {path} HTTP/1.1\r\nhost: planner\r\ncontent-length: {length}\r\n\r\n{body}");
    connection.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(connection);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line)?;
    let is_good = line.starts_with("HTTP/1.1 200");
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body)?;
    match is_good {
        true => Ok(body),
        false => Err(format!("{path}: {body}").into()),
    }
}

/// Seconds for a line that is appended and synchronised.
fn disk(folder: &std::path::Path) -> Outcome<f64> {
    let mut file = File::create(folder.join("lines"))?;
    let began = Instant::now();
    for _ in 0..LINES {
        file.write_all(&[b'x'; 512])?;
        file.sync_data()?;
    }
    Ok(began.elapsed().as_secs_f64() / f64::from(LINES))
}
