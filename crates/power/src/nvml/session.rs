//! One open library for all GPUs, closed when one of them is let go of: an NVML client blocks the
//! reset of every GPU that it has a handle of, and an upgrade of the driver.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// Calls wait so long for those that are under way in a session that is to be closed. One that hangs
/// keeps it open; the others then go on with it as it is.
const DRAIN: Duration = Duration::from_millis(200);

/// The library, open or not.
#[derive(Debug)]
pub(super) struct Session {
    library: PathBuf,
    state: Mutex<State>,
    /// Told when a call has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    nvml: Option<Arc<Nvml>>,
    /// How many clients have opened it and not let go since.
    users: usize,
    /// How many calls are under way. The library counts its openings: as long as one of them is
    /// open, another is the same session.
    calls: usize,
    /// It is to be closed once no call is under way.
    stale: bool,
}

impl State {
    fn close_if_idle(&mut self) {
        if self.stale && self.calls == 0 {
            self.nvml = None;
            self.stale = false;
        }
    }
}

impl Session {
    pub(super) fn new(library: &Path) -> Arc<Self> {
        Arc::new(Self {
            library: library.to_owned(),
            state: Mutex::default(),
            ended: Condvar::new(),
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

    /// The library for one call, opened and initialised if it isn't.
    pub(super) fn open(&mut self) -> Result<Call, NvmlError> {
        let state = self.session.lock();
        let draining = |state: &mut State| state.stale && state.calls > 0;
        let waited = self
            .session
            .ended
            .wait_timeout_while(state, DRAIN, draining);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let nvml = match &state.nvml {
            Some(nvml) => nvml.clone(),
            None => {
                let path = self.session.library.as_os_str();
                let nvml = Arc::new(Nvml::builder().lib_path(path).init()?);
                state.nvml.insert(nvml).clone()
            }
        };
        state.users += usize::from(!self.uses);
        state.calls += 1;
        self.uses = true;
        drop(state);
        let session = self.session.clone();
        Ok(Call {
            nvml,
            _ends: End { session },
        })
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
            state.stale = true;
            state.close_if_idle();
        }
    }

    /// Shuts the library down for all, as soon as no call is under way; the next call waits for
    /// that and opens it again. A GPU that was lost stays lost to a client that saw it go.
    pub(super) fn renew(&mut self) {
        let mut state = self.session.lock();
        state.stale = state.nvml.is_some();
        state.close_if_idle();
    }
}

/// The library while a call is made.
#[derive(Debug)]
pub(super) struct Call {
    /// Dropped first: the library is closed by the session, within its lock.
    nvml: Arc<Nvml>,
    _ends: End,
}

/// Tells the session that a call has ended.
#[derive(Debug)]
struct End {
    session: Arc<Session>,
}

impl Deref for Call {
    type Target = Nvml;

    fn deref(&self) -> &Nvml {
        &self.nvml
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        state.calls -= 1;
        state.close_if_idle();
        self.session.ended.notify_all();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
    }
}
