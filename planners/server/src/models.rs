//! The plans of jobs with models of their own, characterised one after the other in the background.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litd_planner::Pipeline;

use crate::plans::Plans;

/// The plans of each such job.
#[derive(Debug, Default)]
pub struct Models {
    jobs: Mutex<HashMap<String, Entry>>,
    /// Held while one is characterised: a core is enough, and others have waited for less.
    alone: Mutex<()>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Counts characterisations: one that ends after a later one began is of no use.
    begun: u64,
    plans: Option<Arc<Plans>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Models {
    /// A job's plans, if they are made.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Plans>> {
        held(&self.jobs).get(id)?.plans.clone()
    }

    /// Characterises a job's pipeline in a thread, and tells when that is done: whether it had plans before.
    pub fn characterise(
        self: &Arc<Self>,
        id: String,
        pipeline: Pipeline,
        done: impl FnOnce(&str, bool) + Send + 'static,
    ) {
        let turn = {
            let mut jobs = held(&self.jobs);
            let entry = jobs.entry(id.clone()).or_default();
            entry.begun += 1;
            entry.begun
        };
        let models = self.clone();
        std::thread::spawn(move || {
            let alone = held(&models.alone);
            if held(&models.jobs)
                .get(&id)
                .is_none_or(|it| it.begun != turn)
            {
                return;
            }
            let plans = Arc::new(Plans::new(pipeline));
            drop(alone);
            let had = {
                let mut jobs = held(&models.jobs);
                let entry = jobs.entry(id.clone()).or_default();
                if entry.begun != turn {
                    return;
                }
                entry.plans.replace(plans).is_some()
            };
            done(&id, had);
        });
    }
}
