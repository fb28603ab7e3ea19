//! Ranks that leave or are lost, jobs that end or fall silent.

use litd_api::EventKind;
use litd_units::Nanos;

use crate::core::{Core, seconds};
use crate::event::SessionId;
use crate::record::Note;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// A rank says goodbye.
    pub(crate) fn left(&mut self, id: SessionId, name: &str, rank: u32) {
        self.hooks.close(id, &mut self.out);
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if let Some(device) = job.ranks.leaves(rank)
            && let Some(unit) = self.devices.get_mut(device)
        {
            unit.usage.leaves();
        }
        if job.ranks.is_empty() {
            self.end_job(name, "all its ranks have left");
        } else {
            self.broken_up(name);
        }
    }

    pub(crate) fn disconnected(&mut self, id: SessionId) {
        let Some(session) = self.hooks.disconnected(id) else {
            return;
        };
        let Some((name, rank)) = session.attached() else {
            return;
        };
        let now = self.now();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if !job.ranks.disconnects(rank, id, now) {
            return;
        }
        let text = format!("rank {rank} lost its connection");
        self.note(Note::info(EventKind::Job, text).job(name));
        self.tell_hooks(name);
    }

    /// Finds stale jobs, and jobs whose ranks did not come back.
    pub(crate) fn check_jobs(&mut self) {
        let patience = seconds(self.config.jobs.reconnect_seconds);
        let silence = seconds(self.config.jobs.stale_seconds);
        for name in self.jobs.names() {
            let now = self.now();
            let Some(job) = self.jobs.get_mut(&name) else {
                continue;
            };
            if job.ranks.has_lost(patience, now) {
                self.lose_ranks(&name, patience);
            } else if job.hearing.grows_stale(silence, now) {
                self.grown_stale(&name);
            }
            self.drop_unread(&name);
            self.watch_for_drift(&name);
        }
    }

    /// A sample whose GPUs can't be read is dropped, so that later ones can come in.
    fn drop_unread(&mut self, name: &str) {
        let patience = seconds(self.config.caps.answer_seconds);
        let now = self.now();
        if let Some(job) = self.jobs.get_mut(name) {
            let waits_since = job.samples.measured().map(|measured| measured.at);
            if waits_since.is_some_and(|since| now >= since + patience) {
                job.samples.drop_measured();
            }
        }
    }

    /// Ranks that did not come back in time are removed.
    fn lose_ranks(&mut self, name: &str, patience: Nanos) {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        for device in job.ranks.lose(patience, now) {
            if let Some(unit) = self.devices.get_mut(device) {
                unit.usage.leaves();
            }
        }
        if job.ranks.is_empty() {
            self.end_job(
                name,
                "its ranks lost their connections and did not come back",
            );
        } else {
            self.broken_up(name);
        }
    }

    pub(crate) fn end_job(&mut self, name: &str, why: &str) {
        let Some(job) = self.jobs.ends(name) else {
            return;
        };
        for device in job.gpus() {
            if let Some(unit) = self.devices.get_mut(device) {
                unit.usage.leaves();
            }
        }
        for id in job.ranks.sessions() {
            self.hooks.close(id, &mut self.out);
        }
        let note = Note::info(EventKind::Job, format!("ended: {why}"));
        let party = self.hooks.tenant_of(&job).party();
        self.note(note.job(name).caused_by(Some(party)));
    }
}
