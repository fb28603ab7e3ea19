//! What is checked before somebody is promised that a budget will be kept.

use litd_api::Problem;
use litd_units::Watts;

use crate::authority::admin::problem;
use crate::core::Core;
use crate::plan::DUST;
use crate::store::Store;

impl<S: Store> Core<S> {
    fn has_to_come_down(&self, budget: Watts) -> bool {
        self.caps_on_gpus() > budget + self.lent() + DUST
    }

    /// Why no cap comes down to a budget, if one would have to and can't be put on record.
    pub(crate) fn why_unrecorded(&self, budget: Watts) -> Option<String> {
        let why = self.writer.why_only_restores()?;
        let caps = self.caps_on_gpus();
        let text = || format!("the GPUs may hold {caps} of {budget}, and {why}");
        self.has_to_come_down(budget).then(text)
    }

    /// Checks that caps can be lowered to a budget before it is promised: no cap is lowered that can't be put on
    /// record. A budget that lowers no cap is accepted whatever the disk does.
    ///
    /// # Errors
    /// Why no cap could come down, and how much the GPUs may hold.
    pub(crate) fn check_on_record(&mut self, budget: Watts) -> Result<(), String> {
        if !self.has_to_come_down(budget) {
            return Ok(());
        }
        // If somebody has removed the journal, it is written anew first.
        let is_waited_for = self.devices.waits_for_disk();
        self.writer.check_journal(is_waited_for, &mut self.out);
        self.writer.try_log(&mut self.out);
        if self.writer.log_trouble().is_none() {
            self.writer.try_to_lower(&self.devices, &mut self.out);
        }
        self.why_unrecorded(budget).map_or(Ok(()), Err)
    }

    /// Why a budget is refused, with the remedy where it may be refused only because GPUs were not read yet: until
    /// then each counts with the most that it could hold.
    pub(crate) fn unless_unread(&self, why: String) -> String {
        match self.is_looking_round() {
            true => format!(
                "{why}; litd has just started, and a GPU that it has not read yet counts with the most that it could hold: ask again in a second"
            ),
            false => why,
        }
    }

    /// A budget is refused on a node without a GPU to enforce it on.
    pub(crate) fn check_has_gpu(&self) -> Result<(), Problem> {
        let unread = self.devices.unmanaged().len();
        match (self.devices.gpus().count(), unread) {
            (0, 0) => Err(problem("this node has no GPU to keep a budget with")),
            (0, _) => Err(problem(format!(
                "litd reads none of this node's GPUs ({unread} are on the bus), so it can keep no budget"
            ))),
            _ => Ok(()),
        }
    }
}
