//! Common parts of all listeners: bounded numbers of connections, files with the right group, and HTTP with
//! bounded patience.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::unistd::{Group, chown};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// An HTTP connection serves one request and may take so long from its first byte to its last.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The send buffer, of which the kernel keeps twice as much; the rest of an answer waits in
/// [`crate::answers::Answers`].
pub const SEND_BUFFER: usize = 16 * 1024;

/// Headers beyond so many bytes are refused.
const HEADERS: usize = 16 * 1024;

/// Accepting is tried again after so long when the system has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives a file to a group; with an empty name the group stays.
pub fn own_by(path: &Path, group: &str) -> Result<(), String> {
    if group.is_empty() {
        return Ok(());
    }
    let group = Group::from_name(group)
        .map_err(|error| error.to_string())?
        .ok_or("there is no such group")?;
    chown(path, None, Some(group.gid)).map_err(|error| error.to_string())
}

/// A bounded number of places for connections.
#[derive(Debug, Clone)]
pub struct Places(std::sync::Arc<Semaphore>);

impl Places {
    /// Places for so many.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self(std::sync::Arc::new(Semaphore::new(
            count.min(Semaphore::MAX_PERMITS),
        )))
    }

    /// Waits for a free place, which is free again when the result is dropped.
    pub async fn take(&self) -> Option<OwnedSemaphorePermit> {
        // Fails only on a closed semaphore, and this one is never closed.
        self.0.clone().acquire_owned().await.ok()
    }
}

/// The next connection, however long it takes.
pub async fn accept<S, A, F>(next: impl Fn() -> F) -> S
where
    F: Future<Output = io::Result<(S, A)>>,
{
    loop {
        match next().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                log::warn!("a connection can't be accepted: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// An answer.
pub type Answer = Response<Full<Bytes>>;

/// An answer with a body.
pub fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Serves one HTTP request on a connection. A client that takes longer than [`PATIENCE`] to ask, or than `longest`
/// in all, is disconnected.
pub async fn http<S, H, F>(stream: S, longest: Duration, handle: H)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answer>,
{
    let service = service_fn(|request| {
        let answer = handle(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEADERS)
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // Errors here concern the client only.
    let _ = timeout(longest, connection).await;
}
