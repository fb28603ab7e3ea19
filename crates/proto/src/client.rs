//! A hook's end of the socket, blocking: for the rig and for tests.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::frame::{self, FrameError, MAX_FRAME};
use crate::{FromHook, Limits, ToHook, WireError};

/// How long litd may leave a full socket unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Added to the time it is, any longer wait could overflow.
const DAY: Duration = Duration::from_secs(86_400);

/// Errors at a hook's end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No process listens there.
    #[error("cannot connect to {}: {source}; is litd running?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket failed. A frame may have been sent in part: the connection is of no more use.
    #[error("the connection to litd failed: {0}")]
    Io(#[from] io::Error),
    /// litd closed the connection.
    #[error("litd closed the connection")]
    Closed,
    /// litd has sent a malformed frame, or the frame to send is malformed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// litd has sent a malformed message.
    #[error("from litd: {0}")]
    Wire(#[from] WireError),
}

/// A connection to litd, as a hook has one.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    reader: frame::Reader,
    chunk: Box<[u8]>,
    /// Where in `chunk` lies what has arrived and was not yet taken apart.
    unread: std::ops::Range<usize>,
}

impl Client {
    /// Connects to litd's ingest socket. Nothing is sent.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let connect = || {
            let stream = UnixStream::connect(path)?;
            stream.set_write_timeout(Some(SEND_TIMEOUT))?;
            Ok(stream)
        };
        let stream = connect().map_err(|source| ClientError::Connect {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            stream,
            reader: frame::Reader::new(MAX_FRAME),
            chunk: vec![0; 4096].into(),
            unread: 0..0,
        })
    }

    /// Sends one message. Waits while the socket is full, for 10 s at most.
    ///
    /// # Errors
    /// [`ClientError::Io`]; [`ClientError::Frame`] for [`FromHook::Unknown`].
    pub fn send(&mut self, message: &FromHook) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, &message.encode())?;
        self.send_bytes(&bytes)
    }

    /// Sends bytes as they are, which may be no frame at all.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Waits up to `timeout` (a day at most) for one message; `None` if none came. What has come in part is kept
    /// for the next call.
    ///
    /// # Errors
    /// [`ClientError`]: the connection ended or failed, or litd sent what is no message.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<ToHook>, ClientError> {
        let deadline = Instant::now() + timeout.min(DAY);
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.fill(left) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(None),
                    ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset => return Err(ClientError::Closed),
                    _ => return Err(error.into()),
                },
            }
        }
    }

    fn take(&mut self) -> Result<Option<ToHook>, ClientError> {
        let mut unread = &self.chunk[self.unread.clone()];
        let frame = self.reader.take(&mut unread)?;
        let message = frame.map(|frame| ToHook::decode(frame, &Limits::default()));
        self.unread.start = self.unread.end - unread.len();
        Ok(message.transpose()?)
    }

    fn fill(&mut self, timeout: Duration) -> io::Result<usize> {
        // Even the shortest timeout of a socket lasts a kernel tick; none at all is another mode.
        let wait = !timeout.is_zero();
        self.stream.set_nonblocking(!wait)?;
        if wait {
            let timeout = timeout.max(Duration::from_micros(1));
            self.stream.set_read_timeout(Some(timeout))?;
        }
        let read = self.stream.read(&mut self.chunk);
        self.stream.set_nonblocking(false)?;
        let length = read?;
        self.unread = 0..length;
        Ok(length)
    }
}
