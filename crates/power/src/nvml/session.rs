//! The open library, shared by all GPUs and closed when one of them is released: an NVML client blocks the reset
//! of every GPU that it has a handle of, and an upgrade of the driver.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::keep::Keeper;
use crate::discovery::Search;
use crate::domain::Handles;
use crate::worker::STACK;

/// How long new calls wait for those that are under way in a session that is to be closed. A call that hangs keeps
/// the session open; the others then go on with it.
const DRAIN: Duration = Duration::from_millis(200);

/// How long a call waits for the library to be opened or closed, which a driver may make last: less than litd
/// waits for a device that answers.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long a release waits for the library to be closed.
const CLOSING: Duration = Duration::from_secs(1);

/// The library, open or not.
#[derive(Debug)]
pub(super) struct Session {
    library: PathBuf,
    /// The program that keeps GPUs open meanwhile.
    program: PathBuf,
    state: Mutex<State>,
    /// Only one call has GPUs kept open at a time, because a later one knows better which.
    keeping: Mutex<()>,
    /// Notified when a call has ended, and when the library was opened or closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    nvml: Option<Arc<Nvml>>,
    /// How many clients have opened it and not released it since.
    users: usize,
    /// How many calls are under way. The library counts its openings: as long as one of them is
    /// open, another is the same session.
    calls: usize,
    /// Since when the session is to be closed, as soon as no call is under way.
    stale: Option<Instant>,
    /// How often it was opened.
    openings: u64,
    /// The GPUs that it has open, except those known to keep their caps once no program has them open.
    forgetful: BTreeSet<String>,
    /// A process that has those open until this session has them again, and the value of `openings` then.
    keeper: Option<(Keeper, u64)>,
    /// Whether a thread is opening or closing it. No lock is held meanwhile: a driver decides how long it takes.
    busy: bool,
}

impl State {
    /// Whether a call has to wait.
    fn is_draining(&self) -> bool {
        let waits = self.stale.is_some_and(|since| since.elapsed() < DRAIN);
        waits && self.calls > 0
    }
}

impl Session {
    pub(super) fn new(search: &Search) -> Arc<Self> {
        Arc::new(Self {
            library: search.nvml_library.clone(),
            program: search.own_program.clone(),
            state: Mutex::default(),
            keeping: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the state has changed, for so long at most.
    fn wait<'s>(&self, state: MutexGuard<'s, State>, time: Duration) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Has a thread of its own open the library, which sends the outcome.
    fn begin_opening(self: &Arc<Self>) -> Result<Receiver<Result<(), NvmlError>>, NvmlError> {
        let (done, outcome) = mpsc::channel();
        let session = self.clone();
        let open = move || {
            let path = session.library.as_os_str();
            let opened = Nvml::builder().lib_path(path).init();
            let mut state = session.lock();
            state.busy = false;
            let told = opened.map(|nvml| {
                state.openings += 1;
                state.nvml = Some(Arc::new(nvml));
            });
            // The caller may have stopped waiting; the library is open all the same.
            let _ = done.send(told);
            session.changed.notify_all();
        };
        match aside(open) {
            Ok(()) => Ok(outcome),
            Err(_) => {
                self.lock().busy = false;
                self.changed.notify_all();
                Err(NvmlError::Unknown)
            }
        }
    }

    /// Has a thread of its own close the library if it is to be closed and no call is under way.
    fn close_if_idle(self: &Arc<Self>, state: &mut State) {
        if state.stale.is_none() || state.calls > 0 || state.busy {
            return;
        }
        state.stale = None;
        let Some(nvml) = state.nvml.take() else {
            return;
        };
        let session = self.clone();
        let close = move || {
            drop(nvml);
            session.lock().busy = false;
            session.changed.notify_all();
        };
        // Without a thread it is closed here.
        state.busy = aside(close).is_ok();
    }

    /// Runs before a library with open GPUs is closed: those that may lose their caps, except `but`, are kept open
    /// by another process. Returns whether that worked; otherwise the library must stay open.
    fn keep_open(&self, but: Option<&str>) -> bool {
        let _one = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.lock();
        let mut bus_ids = state.forgetful.clone();
        if let Some(but) = but {
            bus_ids.remove(but);
        }
        let openings = state.openings;
        drop(state);
        let keeper = match bus_ids.is_empty() {
            true => None,
            false => match Keeper::of(&self.program, &self.library, &bus_ids) {
                None => return false,
                keeper => keeper,
            },
        };
        let keeper = keeper.map(|keeper| (keeper, openings));
        let before = std::mem::replace(&mut self.lock().keeper, keeper);
        end(before);
        true
    }

    /// Waits for the library to be closed, if it is being closed.
    fn wait_for_closing(&self, state: MutexGuard<'_, State>) {
        self.wait_while(state, |state| state.busy && state.nvml.is_none());
    }

    /// Waits while `is_so` holds, at most as long as closing the library may take. Returns whether it ended.
    fn wait_while(&self, mut state: MutexGuard<'_, State>, is_so: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + CLOSING;
        while is_so(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.wait(state, left);
        }
        true
    }
}

/// Ends a process that has GPUs open. No lock is held over that.
fn end(keeper: Option<(Keeper, u64)>) {
    if let Some((keeper, _)) = keeper {
        keeper.end(CLOSING);
    }
}

/// Runs this on a thread of its own.
pub(super) fn aside(act: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new()
        .name("litd-nvml".to_owned())
        .stack_size(STACK);
    thread.spawn(act).map(drop)
}

/// The share of one GPU in the session. Dropping it releases the GPU.
#[derive(Debug)]
pub(super) struct Client {
    session: Arc<Session>,
    uses: bool,
    /// The GPU, in NVML's notation; `None` for questions about the node alone.
    bus_id: Option<String>,
    /// Whether its GPU is known to keep its cap once no program has it open (persistence mode).
    persists: bool,
    /// The session was to be closed for its sake, but others' GPUs would have lost their caps.
    owes_closing: bool,
}

impl Client {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self {
            session,
            uses: false,
            bus_id: None,
            persists: false,
            owes_closing: false,
        }
    }

    /// Names its GPU, which counts as one that may lose its cap until the driver says otherwise.
    pub(super) fn is_of(&mut self, bus_id: &str) {
        self.bus_id = Some(bus_id.to_owned());
        self.tell_session();
    }

    /// Records whether its GPU keeps its cap once no program has it open, by the driver's last answer: an
    /// administrator, or a driver that is loaded anew, may change that at any time.
    pub(super) fn persists(&mut self, persists: bool) {
        if self.persists != persists {
            self.persists = persists;
            self.tell_session();
        }
    }

    pub(super) fn is_persistent(&self) -> bool {
        self.persists
    }

    fn tell_session(&self) {
        let Some(bus_id) = self.bus_id.as_ref().filter(|_| self.uses) else {
            return;
        };
        let forgetful = &mut self.session.lock().forgetful;
        match self.persists {
            true => drop(forgetful.remove(bus_id)),
            false => drop(forgetful.insert(bus_id.clone())),
        }
    }

    /// The GPU, if it may lose its cap once no program has it open.
    fn forgetful(&self) -> Option<&String> {
        self.bus_id.as_ref().filter(|_| !self.persists)
    }

    /// The library for one call, opened and initialised if it isn't.
    ///
    /// # Errors
    /// It can't be opened, or ([`NvmlError::Timeout`]) that takes too long; it is opened all the same then.
    pub(super) fn open(&mut self) -> Result<Call, NvmlError> {
        self.open_within(PATIENCE)
    }

    /// The same, with another patience.
    pub(super) fn open_within(&mut self, patience: Duration) -> Result<Call, NvmlError> {
        let deadline = Instant::now() + patience;
        let mut state = self.session.lock();
        let mut own = None;
        let nvml = loop {
            if let Some(Err(error)) = own
                .as_ref()
                .and_then(|own: &Receiver<_>| own.try_recv().ok())
            {
                return Err(error);
            }
            let draining = state.is_draining();
            match &state.nvml {
                Some(nvml) if !draining => break nvml.clone(),
                None if !state.busy => {
                    state.busy = true;
                    drop(state);
                    own = Some(self.session.begin_opening()?);
                    state = self.session.lock();
                    continue;
                }
                _ => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NvmlError::Timeout);
            }
            let left = if draining { left.min(DRAIN) } else { left };
            state = self.session.wait(state, left);
        };
        state.users += usize::from(!self.uses);
        state.calls += 1;
        self.uses = true;
        state.forgetful.extend(self.forgetful().cloned());
        let opening = state.openings;
        drop(state);
        let session = self.session.clone();
        Ok(Call {
            nvml: Some(nvml),
            session,
            opening,
            bus_id: self.bus_id.clone(),
            has_answered: false,
        })
    }

    /// Releases the GPU, and shuts the library down for all: a session keeps every GPU open of which it had a
    /// handle. The others' next call opens it again, for their own GPUs only.
    pub(super) fn release(&mut self) -> Handles {
        if self.uses || self.owes_closing {
            self.leave();
            self.owes_closing = !self.renew();
        }
        if self.owes_closing {
            return Handles::HeldByAnother;
        }
        // A session that is to be closed stays open while another GPU's call hangs in it.
        let is_stale = |state: &State| state.stale.is_some();
        match self.session.wait_while(self.session.lock(), is_stale) {
            true => Handles::Closed,
            false => Handles::HeldByAnother,
        }
    }

    fn leave(&mut self) {
        let mut state = self.session.lock();
        state.users -= usize::from(self.uses);
        self.uses = false;
        if let Some(bus_id) = &self.bus_id {
            state.forgetful.remove(bus_id);
        }
        if state.users > 0 {
            return;
        }
        let keeper = state.keeper.take();
        if state.nvml.is_some() {
            state.stale.get_or_insert_with(Instant::now);
            self.session.close_if_idle(&mut state);
            self.session.wait_for_closing(state);
        } else {
            drop(state);
        }
        end(keeper);
    }

    /// Shuts the library down for all, as soon as no call is under way; the next call waits for that and opens it
    /// again. A GPU that was lost stays lost to a client that saw it go. Returns whether it is closed, or will be:
    /// not where other GPUs would lose their caps.
    pub(super) fn renew(&mut self) -> bool {
        if !self.session.keep_open(self.bus_id.as_deref()) {
            return false;
        }
        let mut state = self.session.lock();
        if state.nvml.is_some() {
            state.stale.get_or_insert_with(Instant::now);
            self.session.close_if_idle(&mut state);
            self.session.wait_for_closing(state);
        }
        true
    }
}

/// The library while a call is made.
#[derive(Debug)]
pub(super) struct Call {
    /// Dropped first: the session has to have the last reference.
    nvml: Option<Arc<Nvml>>,
    session: Arc<Session>,
    /// The number of the opening in which this call is made.
    opening: u64,
    bus_id: Option<String>,
    has_answered: bool,
}

impl Call {
    /// The library.
    pub(super) fn nvml(&self) -> Result<&Nvml, NvmlError> {
        self.nvml.as_deref().ok_or(NvmlError::Uninitialized)
    }

    /// The GPU has done an operation, so it is open now.
    pub(super) fn has_answered(&mut self) {
        self.has_answered = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.nvml = None;
        let mut state = self.session.lock();
        state.calls -= 1;
        let own = self.bus_id.as_deref().filter(|_| self.has_answered);
        let opening = self.opening;
        let is_open = |(keeper, before): &mut (Keeper, u64)| {
            own.is_some_and(|own| opening > *before && keeper.has_opened(own))
        };
        drop(state.keeper.take_if(is_open));
        self.session.close_if_idle(&mut state);
        self.session.changed.notify_all();
        if state.users == 0 {
            self.session.wait_for_closing(state);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
    }
}
