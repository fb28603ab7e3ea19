//! Sessions: counted as NVML counts them, with one connection per GPU.

use std::ffi::{CStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::code;
use crate::protocol::{Answer, Board, Request, Sensors};

/// `nvmlDevice_t` of `nvml.h`. Its parts are the session's number, whether it is a MIG instance, and the GPU's
/// number from 1; callers never look inside.
pub type Handle = usize;

const INDEX_BITS: u32 = 8;
const MIG_BIT: usize = 1 << INDEX_BITS;
const SESSION_BITS: u32 = INDEX_BITS + 1;

static STATE: Mutex<State> = Mutex::new(State {
    users: 0,
    number: 0,
    gpus: Vec::new(),
    control: None,
});

struct State {
    /// How often it was initialised and not shut down.
    users: usize,
    /// Counts sessions: handles of the last one are of no use in this one.
    number: usize,
    gpus: Vec<Arc<Gpu>>,
    /// The connection whose end tells the node that the session is over.
    control: Option<Line>,
}

/// A GPU of a session.
pub struct Gpu {
    pub board: Board,
    pub index: usize,
    socket: PathBuf,
    lost: AtomicBool,
    /// Whether this session has a handle of it.
    opened: AtomicBool,
    line: Mutex<Option<Line>>,
}

type Line = BufReader<UnixStream>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a session, or counts one more user of it.
pub fn init() -> Result<(), u32> {
    let mut state = lock(&STATE);
    if state.users == 0 {
        let socket = socket().ok_or(code::DRIVER_NOT_LOADED)?;
        let mut control = connect(&socket).map_err(|_| code::DRIVER_NOT_LOADED)?;
        let boards = match exchange(&mut control, &Request::Init) {
            Ok(Answer::Boards(boards)) => boards,
            Ok(Answer::Error(code)) => return Err(code),
            Ok(_) => return Err(code::UNKNOWN),
            Err(_) => return Err(code::DRIVER_NOT_LOADED),
        };
        let gpus = boards.into_iter().enumerate().map(|(index, board)| {
            Arc::new(Gpu {
                board,
                index,
                socket: socket.clone(),
                lost: AtomicBool::new(false),
                opened: AtomicBool::new(false),
                line: Mutex::default(),
            })
        });
        state.gpus = gpus.collect();
        state.control = Some(control);
        state.number += 1;
    }
    state.users += 1;
    Ok(())
}

/// Counts one user less; the last one ends the session.
pub fn shutdown() -> Result<(), u32> {
    let mut state = lock(&STATE);
    state.users = state.users.checked_sub(1).ok_or(code::UNINITIALIZED)?;
    if state.users == 0 {
        state.gpus.clear();
        if let Some(mut control) = state.control.take() {
            // A node that is gone has no session either.
            let _ = exchange(&mut control, &Request::Shutdown);
        }
    }
    Ok(())
}

/// The GPUs of the session, in NVML's order.
pub fn gpus() -> Result<Vec<Arc<Gpu>>, u32> {
    let state = lock(&STATE);
    match state.users {
        0 => Err(code::UNINITIALIZED),
        _ => Ok(state.gpus.clone()),
    }
}

/// A handle of the first GPU of which something is so.
pub fn find(is: impl Fn(&Gpu) -> bool) -> Result<Handle, u32> {
    let gpu = gpus()?.into_iter().find(|gpu| is(gpu));
    let gpu = gpu.ok_or(code::NOT_FOUND)?;
    gpu.reachable()?;
    gpu.open()?;
    Ok((lock(&STATE).number << SESSION_BITS) | (gpu.index + 1))
}

/// The GPU behind a handle, and whether it is a MIG instance on it that is meant.
pub fn device(handle: Handle) -> Result<(Arc<Gpu>, bool), u32> {
    let state = lock(&STATE);
    if state.users == 0 {
        return Err(code::UNINITIALIZED);
    }
    if handle >> SESSION_BITS != state.number {
        return Err(code::INVALID_ARGUMENT);
    }
    let index = (handle & (MIG_BIT - 1)).wrapping_sub(1);
    let gpu = state.gpus.get(index).ok_or(code::INVALID_ARGUMENT)?;
    gpu.reachable()?;
    Ok((gpu.clone(), handle & MIG_BIT != 0))
}

/// The handle of a GPU's MIG instance.
pub fn instance(handle: Handle) -> Handle {
    handle | MIG_BIT
}

impl Gpu {
    fn reachable(&self) -> Result<(), u32> {
        match self.lost.load(Ordering::Acquire) {
            true => Err(code::GPU_IS_LOST),
            false => Ok(()),
        }
    }

    /// NVML initialises a GPU when the first handle of it is asked for: one that hangs hangs there.
    fn open(&self) -> Result<(), u32> {
        if !self.opened.load(Ordering::Acquire) {
            let device = self.board.address.clone();
            self.ask(&Request::Open { device })?;
            self.opened.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Asks the node.
    pub fn ask(&self, request: &Request) -> Result<Answer, u32> {
        // At most one call runs per GPU, and no call waits for another GPU's.
        let mut line = lock(&self.line);
        let answer = match line.take() {
            Some(line) => Ok(line),
            None => connect(&self.socket),
        };
        let answer = answer.and_then(|mut open| {
            let answer = exchange(&mut open, request)?;
            *line = Some(open);
            Ok(answer)
        });
        match answer {
            Ok(Answer::Error(code)) => {
                if code == code::GPU_IS_LOST {
                    self.lost.store(true, Ordering::Release);
                }
                Err(code)
            }
            Ok(answer) => Ok(answer),
            Err(_) => {
                self.lost.store(true, Ordering::Release);
                Err(code::GPU_IS_LOST)
            }
        }
    }

    pub fn sensors(&self) -> Result<Sensors, u32> {
        let device = self.board.address.clone();
        match self.ask(&Request::Read { device })? {
            Answer::Sensors(sensors) => Ok(sensors),
            _ => Err(code::UNKNOWN),
        }
    }

    /// The address as NVML writes it: eight digits of domain, upper case.
    pub fn bus_id(&self) -> String {
        format!("{:0>16}", self.board.address.to_ascii_uppercase())
    }
}

fn connect(socket: &PathBuf) -> io::Result<Line> {
    Ok(BufReader::with_capacity(1024, UnixStream::connect(socket)?))
}

fn exchange(line: &mut Line, request: &Request) -> io::Result<Answer> {
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    line.get_mut().write_all(&text)?;
    let mut answer = Vec::new();
    line.read_until(b'\n', &mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// Where the node listens, as the file beside this library says.
fn socket() -> Option<PathBuf> {
    let mut file = library()?.into_os_string();
    file.push(".socket");
    let text = fs::read(file).ok()?;
    Some(PathBuf::from(OsString::from_vec(text)))
}

/// From where this library was loaded.
fn library() -> Option<PathBuf> {
    // SAFETY: all of `Dl_info` are pointers, which may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let inside = &raw const STATE;
    // SAFETY: dladdr(3) takes any address and fills `info`, which outlives the call.
    let known = unsafe { libc::dladdr(inside.cast(), &raw mut info) } != 0;
    if !known || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr(3) succeeded: the name is a C string that lives as long as this library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(OsString::from_vec(name.to_bytes().to_vec()).into())
}
