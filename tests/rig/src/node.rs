//! The stand-in hardware's socket: what `[hardware] simulated` points to. The protocol is that
//! of [`litd_power::simulated`].

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use litd_power::simulated::{Answer, Cause, LONGEST_LINE, Refusal, Request};
use litd_rig_nvml as nvml;

use crate::delay::delayed;
use crate::hardware::{Hardware, SharedHardware};
use crate::lock;

/// A server of simulated hardware. Dropping it closes all connections and removes the socket,
/// as if all drivers were unloaded; the hardware stays with whoever shares it.
#[derive(Debug)]
pub struct Node {
    socket: PathBuf,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    hardware: SharedHardware,
    stop: AtomicBool,
    connections: Mutex<Vec<UnixStream>>,
}

impl Node {
    /// Serves `hardware` on a socket, which is made; one that lies there is removed.
    ///
    /// # Errors
    /// The socket can't be made, or the system gives no thread.
    pub fn start(socket: &Path, hardware: SharedHardware) -> io::Result<Self> {
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        let shared = Arc::new(Shared {
            hardware,
            stop: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let acceptor = {
            let shared = shared.clone();
            thread::Builder::new()
                .name("node".to_owned())
                .spawn(move || accept(&listener, &shared))?
        };
        Ok(Self {
            socket: socket.to_owned(),
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // The acceptor looks at the flag once somebody connects.
        drop(UnixStream::connect(&self.socket));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for connection in lock(&self.shared.connections).drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        lock(&self.shared.hardware).ring();
        let _ = fs::remove_file(&self.socket);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if let Ok(copy) = stream.try_clone() {
            lock(&shared.connections).push(copy);
        }
        let shared = shared.clone();
        // A connection that gets no thread is closed.
        let _ = thread::Builder::new()
            .name("node-device".to_owned())
            .spawn(move || serve(stream, &shared));
    }
}

/// Answers one connection until it ends. Errors end it.
fn serve(stream: UnixStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    let mut client = Client::default();
    loop {
        let mut line = Vec::new();
        match (&mut reader)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
        {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let Ok(mut text) = shared.reply(&line, &mut client) else {
            break;
        };
        text.push(b'\n');
        if reader.get_mut().write_all(&text).is_err() {
            break;
        }
    }
    // A process that ends has shut NVML down.
    let mut hardware = lock(&shared.hardware);
    if client.session {
        hardware.answer_nvml(&nvml::Request::Shutdown);
    }
    if let Some(gpu) = client.gpu {
        hardware.detach(&gpu);
    }
}

/// A process's open devices over one connection.
#[derive(Default)]
struct Client {
    /// NVML.
    session: bool,
    /// A GPU, by its address.
    gpu: Option<String>,
}

impl Shared {
    /// The answer to one line.
    fn reply(&self, line: &[u8], client: &mut Client) -> serde_json::Result<Vec<u8>> {
        let error = match serde_json::from_slice(line) {
            Ok(request) => return serde_json::to_vec(&self.answer(&request)),
            Err(error) => error,
        };
        let Ok(request) = serde_json::from_slice::<nvml::Request>(line) else {
            return serde_json::to_vec(&Answer::Bad(Refusal {
                error: Cause::Driver,
                cause: format!("not a request: {error}"),
                range: None,
            }));
        };
        if let (Some(device), None) = (request.device(), &client.gpu) {
            client.gpu = Some(device.to_owned());
            lock(&self.hardware).attach(device);
        }
        if request == nvml::Request::Init {
            self.wait_for_init();
        }
        let answer = self.delayed(request.device(), |hardware| hardware.answer_nvml(&request));
        match request {
            nvml::Request::Init => client.session = matches!(answer, nvml::Answer::Boards(_)),
            nvml::Request::Shutdown => client.session = false,
            _ => {}
        }
        serde_json::to_vec(&answer)
    }

    /// For as long as the driver takes to begin a session, or until it takes another time.
    fn wait_for_init(&self) {
        let takes = || lock(&self.hardware).nvidia().init_takes;
        let (wanted, began) = (takes(), Instant::now());
        while began.elapsed() < wanted && takes() == wanted && !self.stop.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Answers one request, when the device's fault lets it.
    fn answer(&self, request: &Request) -> Answer {
        let device = match request {
            Request::Inventory => None,
            Request::Read { device }
            | Request::Range { device }
            | Request::Set { device, .. }
            | Request::Clocks { device, .. }
            | Request::Holders { device }
            | Request::HighestClock { device }
            | Request::Release { device } => Some(device.as_str()),
        };
        self.delayed(device, |hardware| hardware.answer(request))
    }

    fn delayed<T>(&self, address: Option<&str>, act: impl FnOnce(&mut Hardware) -> T) -> T {
        let device = address.and_then(|address| lock(&self.hardware).find(address));
        let stopped = || self.stop.load(Ordering::Acquire);
        delayed(&self.hardware, device, stopped, act)
    }
}
