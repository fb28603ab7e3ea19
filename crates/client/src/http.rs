//! An HTTP request and its answer over a unix socket, bounded in time and size.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time;

use crate::access;
use crate::error::ControlError;

/// How long the daemon may take for all of an answer. It answers from memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a daemon is called that has too many callers waiting.
const AGAIN: Duration = Duration::from_millis(50);
/// The longest answer: the status of the largest node with the longest names is far below.
const LONGEST: usize = 16 << 20;

/// A request.
pub enum Request {
    /// A path, and its query.
    Get(String),
    /// A path and a JSON document.
    Post(String, Vec<u8>),
}

/// A socket, and what waits for answers on it.
pub struct Exchange {
    socket: PathBuf,
    patience: Duration,
    runtime: Runtime,
}

impl Exchange {
    pub fn new(socket: &Path) -> Result<Self, ControlError> {
        Self::within(socket, PATIENCE)
    }

    /// A connection that waits for at most so long.
    pub fn within(socket: &Path, patience: Duration) -> Result<Self, ControlError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            socket: socket.to_owned(),
            patience,
            runtime: runtime.map_err(|error| ControlError::Unreachable {
                socket: socket.to_owned(),
                why: format!("can't wait for answers: {error}"),
            })?,
        })
    }

    /// The answer's status and body, whatever they are.
    pub fn exchange(&self, request: &Request) -> Result<(StatusCode, Bytes), ControlError> {
        let exchange = async { time::timeout(self.patience, self.talk(request)).await };
        self.runtime.block_on(exchange).unwrap_or_else(|_| {
            Err(ControlError::Silent {
                socket: self.socket.clone(),
                seconds: self.patience.as_secs_f64(),
            })
        })
    }

    async fn talk(&self, request: &Request) -> Result<(StatusCode, Bytes), ControlError> {
        let request = request.to_http("localhost")?;
        let stream = connect(&self.socket)
            .await
            .map_err(|error| ControlError::Unreachable {
                why: access::why(&self.socket, &error),
                socket: self.socket.clone(),
            })?;
        let answer = attempt(stream, request).await;
        let answer = answer.map_err(|broken| match broken {
            Broken::Ended(why) => ControlError::Lost {
                socket: self.socket.clone(),
                why,
            },
            Broken::Nonsense(why) => ControlError::Answer(why),
        })?;
        Ok((answer.status(), answer.into_body()))
    }
}

/// Why there is no answer, in words.
enum Broken {
    /// The other end has closed the connection, or ended, before it had answered.
    Ended(String),
    /// The other end speaks no HTTP, or says too much.
    Nonsense(String),
}

impl Broken {
    fn of(error: &hyper::Error) -> Self {
        let why = format!("{error}{}", sources(error));
        match error.is_parse() {
            true => Self::Nonsense(why),
            false => Self::Ended(why),
        }
    }
}

/// Sends a request through a connection of its own. The answer with its whole body, or what broke.
///
/// # Errors
/// In words: what is at the other end speaks no HTTP, leaves in the middle, or says too much.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: hyper::Request<Full<Bytes>>,
) -> Result<hyper::Response<Bytes>, String> {
    let answer = attempt(stream, request).await;
    answer.map_err(|broken| match broken {
        Broken::Ended(why) | Broken::Nonsense(why) => why,
    })
}

async fn attempt(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: hyper::Request<Full<Bytes>>,
) -> Result<hyper::Response<Bytes>, Broken> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Broken::of(&error))?;
    // Errors of the connection end the request as well.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(|error| Broken::of(&error))?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, LONGEST).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<hyper::Error>() {
        Some(error) => Broken::of(error),
        None => Broken::Nonsense(format!("{error}{}", sources(error.as_ref()))),
    });
    let body = body?.to_bytes();
    connection.abort();
    Ok(hyper::Response::from_parts(head, body))
}

impl Request {
    /// The request to a host, on a connection for it alone.
    ///
    /// # Errors
    /// The path is none.
    pub fn to_http(&self, host: &str) -> Result<hyper::Request<Full<Bytes>>, ControlError> {
        let (method, path, body) = match self {
            Self::Get(path) => ("GET", path, Bytes::new()),
            Self::Post(path, body) => ("POST", path, Bytes::copy_from_slice(body)),
        };
        hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .header(
                header::USER_AGENT,
                concat!("litd-client/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(body))
            .map_err(|error| ControlError::Answer(error.to_string()))
    }
}

/// A full queue of callers shows as "would block": on unix sockets nobody tells when it is over.
async fn connect(socket: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => time::sleep(AGAIN).await,
            other => return other,
        }
    }
}

/// The causes of an error: hyper's own text names the step only.
fn sources(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .map(|source| format!(": {source}"))
        .collect()
}
