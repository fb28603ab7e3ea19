//! One open library for all GPUs, closed when one of them is let go of: an NVML client blocks the
//! reset of every GPU that it has a handle of, and an upgrade of the driver.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The library, open or not.
#[derive(Debug)]
pub(super) struct Session {
    library: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    nvml: Option<Arc<Nvml>>,
    /// How many clients have opened it and not let go since.
    users: usize,
}

impl Session {
    pub(super) fn new(library: &Path) -> Arc<Self> {
        Arc::new(Self {
            library: library.to_owned(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is in there is right between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One GPU's share in the session. Dropping it lets go.
#[derive(Debug)]
pub(super) struct Client {
    session: Arc<Session>,
    uses: bool,
}

impl Client {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self {
            session,
            uses: false,
        }
    }

    /// The library, which is opened and initialised if it isn't. Kept for one call only: the last
    /// one that is kept is what shuts it down.
    pub(super) fn open(&mut self) -> Result<Arc<Nvml>, NvmlError> {
        let mut state = self.session.lock();
        let nvml = match &state.nvml {
            Some(nvml) => nvml.clone(),
            None => {
                let path = self.session.library.as_os_str();
                let nvml = Arc::new(Nvml::builder().lib_path(path).init()?);
                state.nvml.insert(nvml).clone()
            }
        };
        state.users += usize::from(!self.uses);
        self.uses = true;
        Ok(nvml)
    }

    /// Lets go, and shuts the library down for all: a session keeps every GPU open of which it
    /// had a handle. The others' next call opens it again, for their own GPUs only.
    pub(super) fn release(&mut self) {
        if self.uses {
            self.leave();
            self.renew();
        }
    }

    fn leave(&mut self) {
        let mut state = self.session.lock();
        state.users -= usize::from(self.uses);
        self.uses = false;
        if state.users == 0 {
            // Within the lock: whoever opens it next finds it closed.
            state.nvml = None;
        }
    }

    /// Shuts the library down for all, as soon as no call is under way; the next call opens it
    /// again. A GPU that was lost stays lost to a client that saw it go.
    pub(super) fn renew(&mut self) {
        self.session.lock().nvml = None;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
    }
}
