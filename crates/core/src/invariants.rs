//! What is true of the state after every event, whatever has happened: facts that two components know have to agree.
//! Tests check it after each event of each simulated history. What devices may hold is not judged here: the
//! histories' own simulated hardware judges that.

use litd_power::Operation;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::journal::Undo;
use crate::store::Store;

/// Tolerance: caps are counted in whole microwatts.
const ROUNDED: Watts = Watts(1e-5);

impl<S: Store> Core<S> {
    /// Whether the state agrees with itself.
    ///
    /// # Errors
    /// The first rule that it breaks, with its number, and where.
    pub fn invariants(&self) -> Result<(), String> {
        for (device, unit) in self.devices.iter() {
            let name = &unit.name;
            let of = |rule: String| format!("{name}: {rule}");
            self.has_its_job(device, unit).map_err(of)?;
            self.writes_as_accounted(device, unit).map_err(of)?;
            self.can_undo(device, unit).map_err(of)?;
            self.aims_within_range(device, unit).map_err(of)?;
            rests_while_closed(unit).map_err(of)?;
        }
        self.ranks_have_their_gpus()?;
        self.ranks_have_their_hooks()?;
        self.loops_ask_for_their_devices()
    }

    /// 1. The job of a device has a rank that computes on it.
    fn has_its_job(&self, device: usize, unit: &Unit) -> Result<(), String> {
        let Some(name) = unit.usage.job() else {
            return Ok(());
        };
        let job = self.jobs.get(name);
        match job.is_some_and(|job| job.gpus().any(|gpu| gpu == device)) {
            true => Ok(()),
            false => Err(format!("1: no rank of {name} computes on it")),
        }
    }

    /// 2. A rank computes on a GPU that is its job's, and on no other rank's.
    fn ranks_have_their_gpus(&self) -> Result<(), String> {
        let ranks = self.jobs.values().flat_map(|job| {
            let (name, ranks) = (&job.name, job.ranks.iter());
            ranks.map(move |(number, rank)| (name, number, rank.device()))
        });
        let mut taken = std::collections::BTreeSet::new();
        for (job, rank, device) in ranks {
            let unit = self.devices.get(device);
            let is_its = unit.is_some_and(|unit| unit.usage.job() == Some(job));
            if !is_its || !taken.insert(device) {
                return Err(format!("2: {job}'s rank {rank} has another's GPU"));
            }
        }
        Ok(())
    }

    /// 3. Connected ranks' hooks are attached as these ranks, and no others.
    fn ranks_have_their_hooks(&self) -> Result<(), String> {
        for job in self.jobs.values() {
            let name = &job.name;
            for (number, rank) in job.ranks.iter() {
                let hook = rank.session();
                let attached = hook.and_then(|id| self.hooks.get(id)?.attached());
                if hook.is_some() && attached != Some((name.as_str(), number)) {
                    return Err(format!("3: {name}'s rank {number} is not {hook:?}"));
                }
            }
        }
        let stray = self.hooks.attached().find(|&(id, job, rank)| {
            let rank = self.jobs.get(job).and_then(|job| job.ranks.get(rank));
            rank.is_none_or(|rank| rank.session() != Some(id))
        });
        match stray {
            None => Ok(()),
            Some((id, job, rank)) => Err(format!("3: {id:?} is not {job}'s rank {rank}")),
        }
    }

    /// 4. A loop asks for one cap of each device of its job, and moves no socket that another one moves.
    fn loops_ask_for_their_devices(&self) -> Result<(), String> {
        let mut moved = std::collections::BTreeSet::new();
        for job in self.jobs.values() {
            let name = &job.name;
            let devices = job.devices().len();
            let asked = job.control.ask().map(|ask| ask.to_watts().len());
            if asked.is_some_and(|asked| asked != devices) {
                return Err(format!("4: {name} asks for {asked:?} caps of {devices}"));
            }
            let mut cpus = job.control.cpus().iter();
            if let Some(twice) = cpus.find(|&&cpu| !moved.insert(cpu)) {
                return Err(format!("4: {name} moves another job's socket {twice}"));
            }
        }
        Ok(())
    }

    /// 5. The account knows of a write exactly while the device is doing one.
    fn writes_as_accounted(&self, device: usize, unit: &Unit) -> Result<(), String> {
        let doing = unit.answering.doing();
        let writes = matches!(doing, Some((Operation::Set(_), _)));
        match writes == self.writer.account().is_writing(device) {
            true => Ok(()),
            false => Err(format!("5: the account has another write than {doing:?}")),
        }
    }

    /// 6. Undo comes first: what is being written is the cap to go back to, in the journal, or an administrator's.
    fn can_undo(&self, device: usize, unit: &Unit) -> Result<(), String> {
        let Some((Operation::Set(cap), _)) = unit.answering.doing() else {
            return Ok(());
        };
        let is = |known: Watts| known.is_same_cap(cap);
        let entry = self.writer.entry(unit.address());
        // An override that took too long is given up, and may still be done.
        let known = self.devices.is_by_hand(device, cap)
            || unit.by_hand.has_failed_at(cap)
            || unit.back().is_some_and(is)
            || unit.found.is_some_and(is)
            || entry.is_some_and(|entry| entry.undo(cap) != Undo::Foreign);
        match known {
            true => Ok(()),
            false => Err(format!("6: {cap} is written, which the journal lacks")),
        }
    }

    /// 7. No device is aimed at a cap outside the range that its driver tells, but for the cap found.
    fn aims_within_range(&self, device: usize, unit: &Unit) -> Result<(), String> {
        let target = self.writer.account().target(device);
        let (Some(target), Some(range)) = (target, unit.device.range.known()) else {
            return Ok(());
        };
        let is_within = range.lowest <= target + ROUNDED && target <= range.highest + ROUNDED;
        match is_within || unit.found.is_some_and(|found| found.is_same_cap(target)) {
            true => Ok(()),
            false => Err(format!("7: {target} is aimed at, outside {range:?}")),
        }
    }
}

/// 8. A released device that was closed is asked for nothing.
fn rests_while_closed(unit: &Unit) -> Result<(), String> {
    let is_closed = unit.standing.let_go().is_some_and(|it| it.closed.is_some());
    match unit.answering.doing() {
        Some((doing, _)) if is_closed => Err(format!("8: it is closed, and does {doing:?}")),
        _ => Ok(()),
    }
}
