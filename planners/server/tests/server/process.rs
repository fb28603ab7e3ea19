//! The server's program, and what clients send it.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use litd_profiles::synthetic;
use serde_json::{Value, json};

pub const MICROBATCHES: usize = 4;

pub struct Server {
    child: Child,
    pub address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// A server for two stages.
    pub fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// The same, with more options. What it says is in the file `log`.
    pub fn start_with(folder: &Path, options: &[&str]) -> Self {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("log"));
        let mut child = command(folder, options)
            .stdout(Stdio::piped())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("listening on ");
        let Some(address) = address else {
            panic!("{}", std::fs::read_to_string(folder.join("log")).unwrap());
        };
        Self {
            address: address.to_owned(),
            child,
        }
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&self) {
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    pub fn send(&self, method: &str, target: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nhost: planner\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    pub fn post(&self, target: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = answer(self.send("POST", target, &body.to_string()));
        (status, body)
    }

    pub fn get(&self, target: &str) -> (u16, Value) {
        let (status, _, body) = answer(self.send("GET", target, ""));
        (status, body)
    }

    /// Registers a job of two pipelines with two stages each, and its ranks.
    pub fn job(&self) -> String {
        let (status, id) = self.post("/register_job", &job(2, 2, 1));
        assert_eq!(status, 200, "{id}");
        let id = id.as_str().unwrap().to_owned();
        for number in 0..4 {
            assert_eq!(
                self.post(&format!("/register_rank/{id}"), &rank(number)),
                (200, Value::Null)
            );
        }
        id
    }

    /// All four ranks' schedules; plans' versions with them.
    pub fn ask_all(&self, id: &str, after: u64) -> Vec<(u64, Value)> {
        let asked: Vec<_> = (0..4).map(|rank| self.ask(id, rank, after)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    }

    pub fn ask(&self, id: &str, rank: u32, after: u64) -> thread::JoinHandle<(u64, Value)> {
        let stream = self.send(
            "GET",
            &format!("/schedule/{id}?rank={rank}&after={after}"),
            "",
        );
        thread::spawn(move || {
            let (status, head, body) = answer(stream);
            assert_eq!(status, 200, "{body}");
            let version = head
                .lines()
                .find_map(|line| line.strip_prefix("plan-version: "));
            (version.unwrap().parse().unwrap(), body)
        })
    }
}

/// The program, for the profile in the folder, which is made unless it is there.
pub fn command(folder: &Path, options: &[&str]) -> Command {
    let profile = folder.join("profile.csv");
    if !profile.exists() {
        std::fs::write(&profile, profile_csv(2)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_litd-planner"));
    let microbatches = MICROBATCHES.to_string();
    for (option, value) in [
        ("--listen", "127.0.0.1:0"),
        ("--microbatches", &microbatches),
    ] {
        if !options.contains(&option) {
            command.args([option, value]);
        }
    }
    command
        .args(["--state".as_ref(), folder.join("state").as_os_str()])
        .args(["--profile".as_ref(), profile.as_os_str()])
        .args(options);
    command
}

pub fn profile_csv(stages: u32) -> String {
    let mut text = String::from("stage,instruction,frequency,time,energy\n");
    for (kind, measurements) in synthetic::profile(stages, 1).measurements() {
        for one in measurements {
            let (clock, time, energy) = (one.clock.0 / 1e6, one.time.0 / 1e3, one.energy.0);
            writeln!(
                text,
                "{},{},{clock},{time},{energy}",
                kind.stage, kind.instruction
            )
            .unwrap();
        }
    }
    text
}

pub fn answer(mut stream: TcpStream) -> (u16, String, Value) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), serde_json::from_str(body).unwrap())
}

pub fn job(pp: u32, dp: u32, tp: u32) -> Value {
    json!({"job_id": "", "pp_degree": pp, "dp_degree": dp, "tp_degree": tp,
        "world_size": pp * dp * tp, "job_metadata": "try"})
}

pub fn rank(number: u32) -> Value {
    let clocks: Vec<u32> = (210..=1410).rev().step_by(15).collect();
    json!({"rank": number, "dp_rank": number / 2, "pp_rank": number % 2, "tp_rank": 0,
        "available_frequencies": clocks})
}

pub fn clocks(schedule: &Value) -> Vec<u64> {
    let entries = schedule["frequencies"].as_array().unwrap().iter();
    entries.map(|entry| entry[1].as_u64().unwrap()).collect()
}
