//! dynolog as the daemon that PyTorch's clients ask: it has the name that they know, and litd asks it for traces through
//! its own port.
//!
//! A request is the length of a JSON text, as an i32 in the machine's byte order, and the text; the answer comes in the
//! same form. dynolog keeps the configuration until the client asks next. Written from dynolog's sources
//! (`SimpleJsonServerInl.h` at 29e39de, `LibkinetoConfigManager.cpp` at 04a0899); dynolog itself was not asked yet.
//! Anybody may listen at that port: an answer has a bound and a deadline, and only tells whether to wait for a file.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long dynolog may take for everything: it answers from memory.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest answer that is read, in bytes: dynolog names a process or two.
const LONGEST: usize = 64 * 1024;

/// A trace that dynolog is to have a process record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The process's id: the same in its own namespace as here.
    pub pid: u32,
    /// The client's `SLURM_JOB_ID`, or 0: dynolog keeps processes by it.
    pub job: i32,
    /// The trace's configuration.
    pub text: String,
}

/// Why a process was told nothing.
#[derive(Debug)]
pub(super) enum NotTold {
    /// Nobody listens there, or the answer does not come in time.
    Io(SocketAddr, io::Error),
    /// The answer is none of dynolog's; why.
    Nonsense(SocketAddr, String),
    /// dynolog says that it failed.
    Failed(String),
    /// The process asks dynolog for nothing.
    Unknown,
    /// The process has not fetched the trace before this one yet.
    Busy,
    /// dynolog has told another process.
    Other(i64),
}

impl NotTold {
    /// Whether the same would come of every request.
    pub fn is_dynologs(&self) -> bool {
        matches!(self, Self::Io(..) | Self::Nonsense(..))
    }
}

impl fmt::Display for NotTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(address, error) => {
                write!(f, "dynolog at {address} (attach.dynolog) does not answer: {error}")
            }
            Self::Nonsense(address, why) => write!(
                f,
                "what listens at {address} (attach.dynolog) is not dynolog: {why}"
            ),
            Self::Failed(status) => write!(f, "dynolog says: {status}"),
            Self::Unknown => f.write_str(
                "dynolog knows no such process: start it with KINETO_USE_DAEMON=1 in its environment (PyTorch 2.7 or \
                 later), and wait for some seconds",
            ),
            Self::Busy => f.write_str("it is to record a trace already: ask again later"),
            Self::Other(pid) => write!(
                f,
                "dynolog has told process {pid} instead, which has this one among its ancestors, or the same id in a \
                 container"
            ),
        }
    }
}

/// A request as dynolog reads it.
#[derive(Serialize)]
struct Call<'a> {
    #[serde(rename = "fn")]
    function: &'static str,
    config: &'a str,
    job_id: i32,
    pids: [u32; 1],
    process_limit: u32,
}

/// dynolog's answer. A failure has a status, and nothing else.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Answer {
    status: Option<String>,
    processes_matched: Vec<i64>,
    activity_profilers_triggered: Vec<i64>,
}

impl Request {
    /// The bytes that dynolog reads.
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let call = Call {
            function: "setKinetOnDemandRequest",
            config: &self.text,
            job_id: self.job,
            pids: [self.pid],
            // dynolog takes children of the process for matches, too.
            process_limit: 1,
        };
        let text = serde_json::to_vec(&call)?;
        let length = i32::try_from(text.len()).map_err(io::Error::other)?;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(text);
        Ok(bytes)
    }

    /// What an answer to it means.
    fn judge(&self, answer: Answer) -> Result<(), NotTold> {
        if let Some(status) = answer.status {
            let plain = status.chars().take(200).collect::<String>();
            return Err(NotTold::Failed(plain.escape_debug().to_string()));
        }
        let own = i64::from(self.pid);
        match answer.activity_profilers_triggered.as_slice() {
            [told] if *told == own => Ok(()),
            [other, ..] => Err(NotTold::Other(*other)),
            [] if answer.processes_matched.is_empty() => Err(NotTold::Unknown),
            [] => Err(NotTold::Busy),
        }
    }
}

/// Has dynolog tell a process to record a trace. This takes some seconds at most; call it on a thread of its own.
///
/// # Errors
/// The process is not told.
pub(super) fn ask(address: SocketAddr, request: &Request) -> Result<(), NotTold> {
    let answer = exchange(address, request, PATIENCE);
    let answer = answer.map_err(|error| NotTold::Io(address, error))?;
    let nonsense = |why: String| NotTold::Nonsense(address, why);
    let answer = answer.map_err(nonsense)?;
    let answer = serde_json::from_slice(&answer).map_err(|error| nonsense(error.to_string()))?;
    request.judge(answer)
}

/// The text of dynolog's answer, or why it is none.
fn exchange(
    address: SocketAddr,
    request: &Request,
    patience: Duration,
) -> io::Result<Result<Vec<u8>, String>> {
    let deadline = Instant::now() + patience;
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(&request.bytes()?)?;
    let mut length = [0; 4];
    read(&mut stream, &mut length, deadline)?;
    let length = i32::from_ne_bytes(length);
    let Some(bytes) = usize::try_from(length).ok().filter(|it| *it <= LONGEST) else {
        return Ok(Err(format!("it announces an answer of {length} bytes")));
    };
    let mut text = vec![0; bytes];
    read(&mut stream, &mut text, deadline)?;
    Ok(Ok(text))
}

/// Fills a buffer before the deadline, however slowly its bytes come.
fn read(stream: &mut TcpStream, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !into.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(into) {
            Ok(0) => {
                let ends = "the connection ends before the answer";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ends));
            }
            Ok(count) => into = into.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What a timeout of a socket is called.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time that is left.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    Ok(left)
}

fn late() -> io::Error {
    let seconds = PATIENCE.as_secs();
    let text = format!("nothing has come within {seconds} s");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    fn request() -> Request {
        Request {
            pid: 4711,
            job: 99,
            text: "ACTIVITIES_LOG_FILE=/tmp/a.json\nACTIVITIES_ITERATIONS=2\n".to_owned(),
        }
    }

    /// Serves one connection on a port of this machine, and returns what came.
    fn server(
        answers: impl FnOnce(&mut TcpStream) + Send + 'static,
    ) -> (SocketAddr, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut text = vec![0; i32::from_ne_bytes(length).try_into().unwrap()];
            stream.read_exact(&mut text).unwrap();
            answers(&mut stream);
            [length.to_vec(), text].concat()
        };
        (address, thread::spawn(serve))
    }

    fn says(stream: &mut TcpStream, text: &str) {
        let length = i32::try_from(text.len()).unwrap();
        stream.write_all(&length.to_ne_bytes()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
    }

    /// The answer to a request that is answered with this text.
    fn answered(text: &'static str) -> Result<(), NotTold> {
        let (address, server) = server(|stream| says(stream, text));
        let outcome = ask(address, &request());
        server.join().unwrap();
        outcome
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_request_is_those_bytes() {
        let text = "{\"fn\":\"setKinetOnDemandRequest\",\"config\":\"ACTIVITIES_LOG_FILE=/tmp/a.json\\n\
                    ACTIVITIES_ITERATIONS=2\\n\",\"job_id\":99,\"pids\":[4711],\"process_limit\":1}";
        let mut bytes = vec![0x92, 0, 0, 0];
        bytes.extend(text.as_bytes());
        assert_eq!(request().bytes().unwrap(), bytes);
        let (address, server) = server(|stream| {
            let told = "{\"activityProfilersBusy\":0,\"activityProfilersTriggered\":[4711],\
                        \"eventProfilersBusy\":0,\"eventProfilersTriggered\":[],\"processesMatched\":[4711]}";
            // An answer that comes in pieces.
            let mut bytes = i32::try_from(told.len()).unwrap().to_ne_bytes().to_vec();
            bytes.extend(told.as_bytes());
            for piece in bytes.chunks(7) {
                stream.write_all(piece).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        });
        ask(address, &request()).unwrap();
        assert_eq!(server.join().unwrap(), bytes);
    }

    #[test]
    fn what_dynolog_has_not_told_is_an_error() {
        for (text, why) in [
            (
                "{\"processesMatched\":[],\"activityProfilersTriggered\":[]}",
                "knows no such process",
            ),
            (
                "{\"processesMatched\":[4711],\"activityProfilersTriggered\":[]}",
                "is to record a trace already",
            ),
            (
                "{\"processesMatched\":[4712],\"activityProfilersTriggered\":[4712]}",
                "process 4712 instead",
            ),
            (
                "{\"status\":\"failed\\u001b[31m\"}",
                "dynolog says: failed\\u{1b}[31m",
            ),
            ("{\"status\":1}", "is not dynolog"),
            ("[]x", "is not dynolog"),
            ("", "is not dynolog"),
        ] {
            let said = answered(text).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn whoever_else_listens_there_is_one_error_and_takes_no_memory() {
        for (bytes, why) in [
            (
                i32::MAX.to_ne_bytes(),
                "announces an answer of 2147483647 bytes",
            ),
            ((-1_i32).to_ne_bytes(), "announces an answer of -1 bytes"),
            // It hangs up in the middle.
            (
                100_i32.to_ne_bytes(),
                "the connection ends before the answer",
            ),
        ] {
            let (address, server) = server(move |stream| stream.write_all(&bytes).unwrap());
            let said = ask(address, &request()).unwrap_err();
            assert!(
                said.is_dynologs() && said.to_string().contains(why),
                "{said}"
            );
            server.join().unwrap();
        }
        let nobody = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let said = ask(nobody, &request()).unwrap_err();
        assert!(said.to_string().contains("does not answer: "), "{said}");
    }

    #[test]
    fn an_answer_that_does_not_come_or_drips_is_waited_for_no_longer_than_that() {
        let patience = Duration::from_millis(300);
        for drips in [false, true] {
            let (address, server) = server(move |stream| {
                let began = Instant::now();
                stream.write_all(&100_i32.to_ne_bytes()).unwrap();
                // It may have hung up meanwhile.
                while began.elapsed() < Duration::from_secs(1) {
                    thread::sleep(Duration::from_millis(20));
                    let _ = drips.then(|| stream.write_all(b"{"));
                }
            });
            let began = Instant::now();
            let error = exchange(address, &request(), patience).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() < Duration::from_millis(900), "{drips}");
            server.join().unwrap();
        }
    }
}
