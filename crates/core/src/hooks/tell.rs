//! What hooks are told besides the answer to a frame: what to profile, and why they are disconnected.

use litd_proto::{RefusalCode, ToHook};

use super::No;
use crate::core::Core;
use crate::event::SessionId;
use crate::store::Store;

/// Why a released GPU admits no hook: asking for its holders would open it.
pub(super) fn let_go_of(name: &str) -> No {
    let reason = format!("litd has released {name} until `litctl resume {name}`");
    No::new(RefusalCode::Busy, "let_go", reason).for_now()
}

impl<S: Store> Core<S> {
    /// Tells a job's hooks what to profile, if that has changed.
    pub(crate) fn tell_hooks(&mut self, name: &str) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let Some(directive) = job.new_directive(&self.config) else {
            return;
        };
        for id in job.ranks.sessions() {
            let message = ToHook::Directive(directive);
            self.hooks.send(id, &message, &mut self.out);
        }
    }

    /// Tells a hook why it is disconnected, counts and logs it, and closes its connection.
    pub(crate) fn refuse(&mut self, id: SessionId, no: No) {
        let was = self.hooks.refuse(id, no, &mut self.out);
        if let Some((name, rank)) = was
            && let Some(job) = self.jobs.get_mut(&name)
            && job.ranks.goes_away(rank, self.out.now())
        {
            self.tell_hooks(&name);
        }
    }

    /// Disconnects hooks whose GPU was released before its driver has confirmed that they hold it.
    pub(crate) fn turn_away(&mut self, device: usize) {
        let Some(name) = self.devices.get(device).map(|unit| unit.name.clone()) else {
            return;
        };
        for id in self.hooks.waiting_for(device) {
            self.refuse(id, let_go_of(&name));
        }
    }
}
