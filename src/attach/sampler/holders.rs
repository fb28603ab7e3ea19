//! Processes whose clients ask dynolog, where litd samples jobs through it: dynolog does not list them, so litd looks for
//! them among the processes that use GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use litd_attach::Client;
use litd_units::Nanos;

use crate::process::Process;

/// Processes that use GPUs, and the clients among them.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// What is known of each, once it was looked at; `None`: it does not ask.
    known: BTreeMap<u32, Option<Client>>,
    /// Those that are looked at, by the errand's number.
    looking: BTreeMap<u64, Vec<u32>>,
    /// When drivers were asked last.
    asked: Option<Nanos>,
}

impl Holders {
    /// Whether drivers are to be asked now who uses their GPUs.
    pub fn is_time(&mut self, now: Nanos, every: Nanos) -> bool {
        let is_time = self.asked.is_none_or(|then| now >= then + every);
        if is_time {
            self.asked = Some(now);
        }
        is_time
    }

    /// These are all processes that use GPUs now. Returns those that are to be looked at.
    pub fn keep(&mut self, proc: &Path, there: &BTreeSet<u32>) -> Vec<u32> {
        self.known.retain(|pid, client| {
            let same = |it: &Client| {
                let began = it.looked.began;
                Process::since(proc, *pid, began).doubt().is_none()
            };
            there.contains(pid) && client.as_ref().is_none_or(same)
        });
        let looked_at = |pid: &u32| {
            let is_looked_at = self.looking.values().any(|those| those.contains(pid));
            is_looked_at || self.known.contains_key(pid)
        };
        there.iter().copied().filter(|it| !looked_at(it)).collect()
    }

    /// An errand looks at these.
    pub fn begin(&mut self, errand: u64, pids: Vec<u32>) {
        self.looking.insert(errand, pids);
    }

    /// The clients among those that an errand has looked at.
    pub fn take(&mut self, errand: u64, clients: Vec<Client>) {
        let looked_at = self.looking.remove(&errand).unwrap_or_default();
        self.known
            .extend(looked_at.into_iter().map(|pid| (pid, None)));
        let clients = clients.into_iter();
        let clients = clients.map(|client| (client.sender.pid, Some(client)));
        self.known.extend(clients);
    }

    /// The clients.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.known.values().flatten()
    }

    /// The client of this process.
    pub fn client(&self, pid: u32) -> Option<&Client> {
        self.known.get(&pid)?.as_ref()
    }
}
