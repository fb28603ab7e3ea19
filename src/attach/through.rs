//! Processes whose clients ask dynolog, and traces of them through its port. dynolog lists no processes: what procfs
//! tells of them decides.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use litd_api::WishedTrace;
use litd_attach::{Client, Sender, Stage, Trace};
use litd_core::Owners;
use litd_units::Nanos;
use tokio::sync::oneshot;

use super::dynolog::{NotTold, Request, ask};
use super::launcher::Environment;
use super::looked::look;
use crate::process::{Process, Processes, Stat};

/// The way through dynolog.
#[derive(Debug, Clone)]
pub(super) struct Through {
    address: SocketAddr,
    proc: PathBuf,
    owners: Owners,
    /// Locked while an administrator's request is under way: one at a time.
    only: Arc<Mutex<()>>,
}

impl Through {
    pub fn new(address: SocketAddr, proc: &Path, owners: Owners) -> Self {
        let proc = proc.to_owned();
        let only = Arc::default();
        Self {
            address,
            proc,
            owners,
            only,
        }
    }

    /// Where dynolog listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The client of a process. Reading its environment may take long.
    ///
    /// # Errors
    /// The process can't be asked through dynolog; why, in words.
    pub fn client(&self, pid: u32) -> Result<Client, String> {
        let ended = || "has ended".to_owned();
        let stat = Stat::read(&self.proc.join(pid.to_string()).join("stat"));
        let began = stat.filter(|it| !it.has_ended).ok_or_else(ended)?.began;
        let environment = Environment::of(&self.proc, pid);
        if !environment
            .as_ref()
            .is_some_and(Environment::asks_for_traces)
        {
            return Err("was started without KINETO_USE_DAEMON in its environment".to_owned());
        }
        let processes = Processes::new(&self.proc);
        let uid = processes.user(pid).ok_or_else(ended)?;
        let process = Process::since(&self.proc, pid, began);
        let looked = look(&processes, &self.owners, &process, (pid, uid)).ok_or_else(ended)?;
        if i64::from(looked.own) != i64::from(pid) {
            return Err(format!(
                "is process {} in a PID namespace of its own, by which dynolog can't tell it from others",
                looked.own
            ));
        }
        Ok(Client {
            sender: Sender { pid, uid },
            looked,
            job: environment.map_or(0, |it| it.slurm_job().into()),
            traces: true,
            heard: Nanos::ZERO,
            gpu: None,
            stage: Stage::Idle,
        })
    }

    /// Has dynolog tell a process to record a trace.
    ///
    /// # Errors
    /// The process is not told.
    pub fn tell(&self, client: &Client, text: &str) -> Result<(), NotTold> {
        let request = Request {
            pid: client.sender.pid,
            job: i32::try_from(client.job).unwrap_or(0),
            text: text.to_owned(),
        };
        ask(self.address, &request)
    }

    /// Has processes record traces that an administrator wishes for.
    pub async fn wish(&self, traces: Vec<(u32, Trace)>) -> Vec<Result<WishedTrace, String>> {
        let of = |pid: u32, why: &str| Err(format!("process {pid}: {why}"));
        let pids: Vec<u32> = traces.iter().map(|(pid, _)| *pid).collect();
        let none = |why: &str| pids.iter().map(|&pid| of(pid, why)).collect();
        let (out, told) = oneshot::channel();
        let through = self.clone();
        let work = move || {
            let Ok(_only) = through.only.try_lock() else {
                return;
            };
            // Whoever has asked may have gone.
            let _ = out.send(through.wish_all(traces));
        };
        let thread = thread::Builder::new().name("dynolog".into());
        if let Err(error) = thread.stack_size(512 * 1024).spawn(work) {
            return none(&error.to_string());
        }
        match told.await {
            Ok(told) => told,
            Err(_) => none("another request to dynolog is under way: ask again later"),
        }
    }

    fn wish_all(&self, traces: Vec<(u32, Trace)>) -> Vec<Result<WishedTrace, String>> {
        let mut gone = None;
        let each = traces.into_iter().map(|(pid, trace)| {
            if let Some(why) = &gone {
                return Err(format!("process {pid}: {why}"));
            }
            let told = self.wish_one(pid, &trace);
            told.map_err(|why| {
                let said = format!("process {pid}: {}", why.text);
                // The others' requests would wait as long for nothing.
                gone = why.is_dynologs.then_some(why.text);
                said
            })
        });
        each.collect()
    }

    fn wish_one(&self, pid: u32, trace: &Trace) -> Result<WishedTrace, Why> {
        let text = trace.text().map_err(|why| Why::from(why.to_string()))?;
        let client = self.client(pid)?;
        self.tell(&client, &text).map_err(|why| Why {
            is_dynologs: why.is_dynologs(),
            text: why.to_string(),
        })?;
        Ok(WishedTrace {
            pid,
            uid: client.sender.uid,
            began: client.looked.began,
            file: trace.written(client.looked.own),
        })
    }
}

/// Why a process was told nothing.
struct Why {
    text: String,
    /// Whether the same would come of every request.
    is_dynologs: bool,
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        let is_dynologs = false;
        Self { text, is_dynologs }
    }
}
