//! A node on which dynolog answers PyTorch's clients: litd asks a stand-in for dynolog through its port, and leaves the
//! name that clients know alone. SIMULATED.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use litd_api::{TraceWish, WishedTraces};
use litd_sim::kineto::Marks;
use serde_json::{Value, json};

use super::client::{Client, named};
use super::sampled::Node;
use super::{alone, has_loopback, job};
use crate::stand::GPUS;

/// Longer than litd waits for dynolog, and shorter than litctl waits for litd.
const LATE: Duration = Duration::from_millis(4500);

/// A stand-in for dynolog, written from its sources.
struct Dynolog {
    hangs: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    /// The name that clients know is its own.
    _name: Client,
}

/// A request as dynolog reads it.
fn request(stream: &mut TcpStream) -> Option<Value> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut text = vec![0; i32::from_ne_bytes(length).try_into().ok()?];
    stream.read_exact(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

impl Dynolog {
    /// Serves the processes with these ids, and tells what each is to record.
    fn serve(listener: TcpListener, pids: Vec<u32>, out: Sender<(usize, String)>) -> Self {
        let (hangs, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (waits, counts) = (hangs.clone(), asked.clone());
        let mut kept = Vec::new();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = request(&mut stream) else {
                    continue;
                };
                counts.fetch_add(1, Ordering::SeqCst);
                if waits.load(Ordering::SeqCst) {
                    kept.push(stream);
                    continue;
                }
                assert_eq!(request["fn"], "setKinetOnDemandRequest");
                assert_eq!(
                    (&request["job_id"], &request["process_limit"]),
                    (&json!(0), &json!(1))
                );
                let wanted = request["pids"][0].as_u64().unwrap();
                let rank = pids.iter().position(|&pid| u64::from(pid) == wanted);
                let told: Vec<u64> = rank.map(|_| wanted).into_iter().collect();
                let answer = json!({
                    "processesMatched": told,
                    "eventProfilersTriggered": [],
                    "activityProfilersTriggered": told,
                    "eventProfilersBusy": 0,
                    "activityProfilersBusy": 0,
                });
                let answer = answer.to_string();
                let length = i32::try_from(answer.len()).unwrap().to_ne_bytes();
                stream.write_all(&length).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                let config = request["config"].as_str().unwrap().replace('\n', ";");
                if let Some(rank) = rank
                    && out.send((rank, config)).is_err()
                {
                    return;
                }
            }
        });
        let _name = Client::called(named("dynolog"));
        Self {
            hangs,
            asked,
            _name,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// A node with dynolog and a job. `None`, and a sentence on why, where no namespace can be made.
fn node(policy: &str) -> Option<(Dynolog, Node)> {
    let namespace = alone()?;
    if !has_loopback() {
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!("attach.dynolog = \"{}\"\n", listener.local_addr().unwrap());
    let (out, told) = channel();
    let node = Node::with(policy, &config, "waits", told, namespace);
    let pids = node.children.iter().map(|it| it.id()).collect();
    Some((Dynolog::serve(listener, pids, out), node))
}

/// SIMULATED.
#[test]
fn a_job_whose_clients_ask_dynolog_is_sampled_through_it() {
    let Some((dynolog, mut node)) = node("gpu-realloc") else {
        return;
    };
    let known = node.stand.traceable();
    assert!(known.on && known.troubles.is_empty(), "{known:?}");
    assert!(known.dynolog.is_some() && known.processes.is_empty());
    let mut rounds = 0;
    while node.stand.moved() < 3 {
        assert!(rounds < 10, "{:#?}", job(&node.stand));
        node.sample(Marks::Optimizer);
        rounds += 1;
    }
    assert_eq!(dynolog.asked(), rounds * GPUS);
    let job = job(&node.stand).unwrap();
    assert_eq!(job.ranks.len(), GPUS);
    assert!(job.measured.unwrap().starts_with("Kineto on demand"));
    node.stand.assert_rules();
}

/// Each is one error, and litd waits for none of them.
#[test]
fn a_dynolog_that_hangs_or_is_gone_is_one_error() {
    let Some((dynolog, mut node)) = node("gpu-realloc") else {
        return;
    };
    node.sample(Marks::Optimizer);
    dynolog.hangs.store(true, Ordering::SeqCst);
    let before = dynolog.asked();
    node.pass_until("an error", |node| {
        node.has_said("(attach.dynolog) does not answer: nothing has come within 3 s")
    });
    // The other ranks' requests would wait as long.
    assert_eq!(dynolog.asked(), before + 1);
    assert!(job(&node.stand).is_some());
    // litd answers meanwhile, and steers by what it has.
    let began = Instant::now();
    let wish = |pid| wish(&node, &[pid]);
    let why = wish(node.children[0].id()).unwrap_err();
    assert!(why.contains("does not answer"), "{why}");
    assert!(began.elapsed() < LATE);
}

/// Wishes for traces by hand.
fn wish(node: &Node, pids: &[u32]) -> Result<WishedTraces, String> {
    let wish = TraceWish {
        pids: pids.to_vec(),
        iterations: 2,
        milliseconds: 500,
        ..TraceWish::default()
    };
    let body = serde_json::to_string(&wish).unwrap();
    let (code, body) = node.stand.ask("POST", "/v1/trace", &body);
    match code {
        200 => Ok(serde_json::from_str(&body).unwrap()),
        _ => Err(body),
    }
}

#[test]
fn traces_by_hand_go_through_dynolog_to_processes_that_ask_it() {
    let Some((_dynolog, node)) = node("observe") else {
        return;
    };
    let pids: Vec<u32> = node.children.iter().map(|it| it.id()).collect();
    // Its environment has no KINETO_USE_DAEMON.
    let own = std::process::id();
    let wished = wish(&node, &[pids[2], own]).unwrap();
    assert_eq!(wished.traces.len(), 1);
    let (trace, refused) = (&wished.traces[0], &wished.refused[0]);
    assert_eq!((trace.pid, trace.uid), (pids[2], 0));
    assert!(trace.file.ends_with(&format!("_{}.json", pids[2])));
    assert!(
        refused.contains("was started without KINETO_USE_DAEMON"),
        "{refused}"
    );
    let stem = trace
        .file
        .strip_suffix(&format!("_{}.json", pids[2]))
        .unwrap();
    // litd itself asks, too.
    let (rank, config) = loop {
        let told = node.told.recv_timeout(Duration::from_secs(5)).unwrap();
        if told.1.contains(stem) {
            break told;
        }
    };
    assert_eq!(rank, 2);
    assert!(config.contains("ACTIVITIES_ITERATIONS=2;"), "{config}");
    let named = wish(&node, &[]).unwrap_err();
    assert!(named.contains("no process is named"), "{named}");
}
