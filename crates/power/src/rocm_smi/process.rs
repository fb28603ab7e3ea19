//! The other process as litd sees it: started when it is needed, asked with a deadline, killed when it misses one
//! or answers nonsense, and started again, with growing delays if it keeps failing.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::make::Make;
use super::protocol::{Answer, Cause, LONGEST_LINE, Numbered, Refusal, Request};
use crate::child;
use crate::error::PowerError;

/// How long the library has to set itself up, if a search waits no longer than [`SEARCH`] times that.
const START: Duration = Duration::from_secs(2);

/// A search that waits longer, as on a machine that has much else to do, leaves the library this part of its time.
const SEARCH: u32 = 4;

/// How long each call has. With [`START`] and [`TURNS`] as long as litd waits for a device.
const CALL: Duration = Duration::from_secs(2);

/// How long it waits for others to start; the processes of eight GPUs take half as long.
const TURNS: Duration = Duration::from_secs(1);

/// How long a killed process has to be gone. A process that hangs in the kernel is looked for later.
const END: Duration = Duration::from_millis(200);

/// A process that has lived so long counts as a good one.
const GOOD: Duration = Duration::from_secs(60);

/// The longest wait before another process is started.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How another process is made.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    /// The program, which calls [`super::serve`].
    pub program: PathBuf,
    /// The library to load: which, and where it is.
    pub make: Make,
    pub library: PathBuf,
    /// How long the library has to set itself up.
    pub start: Duration,
    /// Where the process notes that it sets a cap ([`child`]); `None` where it sets none.
    pub kept: Option<PathBuf>,
}

/// How long a library has to set itself up for a search that waits so long.
pub(super) fn start_within(patience: Duration) -> Duration {
    START.max(patience / SEARCH)
}

/// A process for one device, or for the list of all; one at a time.
#[derive(Debug)]
pub(super) struct Process {
    recipe: Recipe,
    /// The name in errors.
    name: String,
    running: Option<Running>,
    /// A killed process that is not gone yet.
    dying: Option<Child>,
    /// Failures since the last good process.
    failures: u32,
    /// The last failure, in words, and when another process may be started.
    wait: Option<(String, Instant)>,
}

/// Why there is no answer.
#[derive(Debug)]
enum Failure {
    /// The deadline has passed.
    Silence(Duration),
    /// The process has ended, or closed its side.
    End,
    /// The process's answer is malformed.
    Nonsense(String),
}

impl Process {
    pub fn new(recipe: Recipe, name: String) -> Self {
        Self {
            recipe,
            name,
            running: None,
            dying: None,
            failures: 0,
            wait: None,
        }
    }

    /// Asks, and waits for the answer no longer than [`TURNS`], the recipe's `start` and [`CALL`] together. `take` returns
    /// the wanted part of the answer, if it answers this question.
    pub fn ask<T>(
        &mut self,
        request: &Request,
        action: &'static str,
        take: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T, Unanswered> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start(action)?,
        };
        let answer = match running.ask(request) {
            Ok(Answer::Refused(refusal)) => {
                match refusal.cause {
                    // A driver that was loaded anew has other files than the library knows, and a new process has
                    // another mutex. This process did its best: the next one may start at once.
                    Cause::Gone | Cause::Busy | Cause::Other => {
                        self.end(running);
                    }
                    _ => self.running = Some(running),
                }
                return Err(Unanswered::Refused(refusal));
            }
            Ok(answer) => take(answer)
                .ok_or_else(|| Failure::Nonsense("an answer to another question".into())),
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) => {
                if running.since.elapsed() > GOOD {
                    self.failures = 0;
                }
                self.running = Some(running);
                Ok(answer)
            }
            Err(failure) => Err(Unanswered::Error(self.lose(running, failure, action))),
        }
    }

    /// The library in it.
    pub fn make(&self) -> Make {
        self.recipe.make
    }

    /// Ends the process, if there is one.
    pub fn close(&mut self) {
        if let Some(running) = self.running.take() {
            self.end(running);
        }
    }

    fn start(&mut self, action: &'static str) -> Result<Running, Unanswered> {
        if let Some(mut child) = self.dying.take() {
            if let Ok(None) = child.try_wait() {
                self.dying = Some(child);
                let text =
                    "the library's last process hangs in the kernel and can't be ended".to_owned();
                return Err(Unanswered::Error(self.error(action, text)));
            }
            self.forget(&child);
        }
        if let Some((before, until)) = &self.wait
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            let left = left.as_secs_f64();
            let text = format!(
                "{before}; {} is started again in {left:.1} s",
                self.recipe.make.name()
            );
            return Err(Unanswered::Error(self.error(action, text)));
        }
        let _turn = turn();
        let mut running = Running::start(&self.recipe, &self.name).map_err(|error| {
            let text = format!(
                "{} can't be started: {error}",
                self.recipe.program.display()
            );
            self.failed(text.clone());
            Unanswered::Error(self.error(action, text))
        })?;
        match running.answer(0, self.recipe.start) {
            Ok(Answer::Ready) => Ok(running),
            Ok(Answer::Refused(refusal)) => {
                let said = running.last_words();
                self.end(running);
                let text = join(refusal.text, said);
                self.failed(text.clone());
                Err(Unanswered::Refused(Refusal {
                    cause: refusal.cause,
                    text,
                }))
            }
            Ok(other) => {
                let failure = Failure::Nonsense(format!("{other:?}"));
                Err(Unanswered::Error(self.lose(running, failure, action)))
            }
            Err(Failure::Silence(time)) => {
                self.end(running);
                let seconds = time.as_secs_f64();
                let text = format!("the library has not set itself up for {seconds:.1} s");
                self.failed(text.clone());
                let cause = Cause::Init;
                Err(Unanswered::Refused(Refusal { cause, text }))
            }
            Err(failure) => Err(Unanswered::Error(self.lose(running, failure, action))),
        }
    }

    /// Ends a process that failed.
    fn lose(&mut self, mut running: Running, failure: Failure, action: &'static str) -> PowerError {
        let said = running.last_words();
        let status = self.end(running);
        let library = self.recipe.make.name();
        let text = match &failure {
            Failure::Silence(time) => {
                let seconds = time.as_secs_f64();
                self.failed(format!("{library} has not answered for {seconds:.1} s"));
                let device = self.name.clone();
                return PowerError::Timeout { device, seconds };
            }
            Failure::End => {
                let status = status.map_or("has ended".into(), ended);
                join(format!("the process with {library} {status}"), said)
            }
            Failure::Nonsense(what) => join(
                format!("the process with {library} gave an answer that can't be read: {what}"),
                said,
            ),
        };
        self.failed(text.clone());
        self.error(action, text)
    }

    /// Kills a process and waits a little for its end.
    fn end(&mut self, running: Running) -> Option<ExitStatus> {
        let Running {
            mut child,
            mut socket,
            ..
        } = running;
        let _ = child.kill();
        // A process that ends closes its side of the socket, just before it can be waited for.
        let gone = socket.set_read_timeout(Some(END)).is_ok() && drain(&mut socket);
        let status = match gone {
            true => child.wait().ok(),
            false => child.try_wait().ok().flatten(),
        };
        match status {
            Some(_) => self.forget(&child),
            None => self.dying = Some(child),
        }
        status
    }

    /// Removes the note of a process that was killed and is gone.
    fn forget(&self, child: &Child) {
        if let Some(directory) = &self.recipe.kept {
            let _ = fs::remove_file(child::path(directory, &self.name, child.id()));
        }
    }

    /// Counts a failure. The first one costs no waiting: a crash is one error.
    fn failed(&mut self, text: String) {
        let wait = match self.failures {
            0 => Duration::ZERO,
            n => LONGEST_WAIT.min(Duration::from_secs(1 << (n - 1).min(6))),
        };
        self.failures = self.failures.saturating_add(1);
        self.wait = Some((text, Instant::now() + wait));
    }

    fn error(&self, action: &'static str, cause: String) -> PowerError {
        PowerError::Driver {
            device: self.name.clone(),
            action,
            cause,
        }
    }
}

/// Only one process starts at a time: the library makes its mutexes in several steps and uses those that another
/// process has begun to make. A caller that has waited for too long starts without the lock.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let until = Instant::now() + TURNS;
    loop {
        match TURN.try_lock() {
            Ok(turn) => return Some(turn),
            Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() > until => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reason why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The library, or the process, refuses.
    Refused(Refusal),
    /// No process answers.
    Error(PowerError),
}

/// A running process.
#[derive(Debug)]
struct Running {
    child: Child,
    socket: UnixStream,
    /// The process's standard error.
    words: UnixStream,
    number: u64,
    since: Instant,
}

impl Running {
    /// Starts a process for the device with this name.
    fn start(recipe: &Recipe, name: &str) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let (words, error) = UnixStream::pair()?;
        // A library that prints a lot must not block on it.
        error.set_nonblocking(true)?;
        words.set_nonblocking(true)?;
        socket.set_write_timeout(Some(CALL))?;
        let mut command = Command::new(&recipe.program);
        command
            .arg0("litd")
            .arg(super::COMMAND)
            .arg(recipe.make.back_end())
            .arg(&recipe.library)
            .arg(std::process::id().to_string());
        if let Some(directory) = &recipe.kept {
            command.arg(directory).arg(name).arg(child::token());
        }
        let child = command
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(OwnedFd::from(error))
            .spawn()?;
        Ok(Self {
            child,
            socket,
            words,
            number: 0,
            since: Instant::now(),
        })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.last_words();
        self.number += 1;
        let number = self.number;
        let mut line = serde_json::to_vec(&Numbered {
            number,
            body: request,
        })
        .map_err(|error| Failure::Nonsense(error.to_string()))?;
        line.push(b'\n');
        self.socket
            .write_all(&line)
            .map_err(|error| failure(&error, CALL))?;
        self.answer(number, CALL)
    }

    fn answer(&mut self, number: u64, patience: Duration) -> Result<Answer, Failure> {
        let line = self.line(patience)?;
        let answer: Numbered<Answer> = serde_json::from_slice(&line)
            .map_err(|error| Failure::Nonsense(format!("{error}: {}", Excerpt(&line))))?;
        if answer.number != number {
            let text = format!("answer {} to question {number}", answer.number);
            return Err(Failure::Nonsense(text));
        }
        Ok(answer.body)
    }

    /// The next line, however slowly it comes, if it is complete in time.
    fn line(&mut self, patience: Duration) -> Result<Vec<u8>, Failure> {
        let deadline = Instant::now() + patience;
        let mut line = Vec::new();
        let mut piece = [0; 1024];
        while line.last() != Some(&b'\n') {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Silence(patience));
            }
            let read = self.socket.set_read_timeout(Some(left));
            match read.and_then(|()| self.socket.read(&mut piece)) {
                Ok(0) => return Err(Failure::End),
                Ok(count) => line.extend(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure(&error, patience)),
            }
            if line.len() > LONGEST_LINE {
                let text = format!("a line of more than {LONGEST_LINE} bytes");
                return Err(Failure::Nonsense(text));
            }
        }
        Ok(line)
    }

    /// The last line on its standard error since the last call.
    fn last_words(&mut self) -> Option<String> {
        let mut tail = Vec::new();
        let mut piece = [0; 1024];
        while let Ok(count @ 1..) = self.words.read(&mut piece) {
            tail.extend(&piece[..count]);
            let excess = tail.len().saturating_sub(piece.len());
            tail.drain(..excess);
        }
        let text = String::from_utf8_lossy(&tail);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        line.map(str::to_owned)
    }
}

fn failure(error: &io::Error, patience: Duration) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::Silence(patience),
        _ => Failure::End,
    }
}

/// Reads the rest; returns whether the other side was closed.
fn drain(socket: &mut UnixStream) -> bool {
    let mut piece = [0; 1024];
    // At most so much was under way: no process writes any more.
    for _ in 0..1024 {
        match socket.read(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
    false
}

fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => match Signal::try_from(signal) {
            Ok(signal) => format!("was ended by {signal}"),
            Err(_) => format!("was ended by signal {signal}"),
        },
        (None, Some(code)) => format!("has ended with status {code}"),
        (None, None) => "has ended".into(),
    }
}

fn join(text: String, said: Option<String>) -> String {
    match said {
        Some(said) => format!("{text}: {said}"),
        None => text,
    }
}

/// The beginning of a malformed answer.
struct Excerpt<'l>(&'l [u8]);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(60)];
        write!(f, "{:?}", String::from_utf8_lossy(shown).trim_end())
    }
}
