//! The daemon's end of the ingest socket, as much of it as jobs need.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use litd_proto::{FromHook, Hello, Limits, ToHook, frame};

use super::SOON;

/// The end of a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    Message(FromHook),
    /// A frame that is no message.
    Garbage,
    /// Bytes that are no frame; the connection is closed.
    NoFrame,
    End,
}

pub struct Server {
    heard: Receiver<(usize, Heard)>,
    waiting: VecDeque<(usize, Heard)>,
    streams: Arc<Mutex<Vec<UnixStream>>>,
}

impl Server {
    /// Listens, and answers each hello as told.
    pub fn start(socket: &Path, answer: impl Fn(&Hello) -> ToHook + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (sender, heard) = mpsc::channel();
        let streams = Arc::<Mutex<Vec<UnixStream>>>::default();
        let (kept, answer) = (streams.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let session = {
                    let mut kept = kept.lock().unwrap();
                    kept.push(stream.try_clone().unwrap());
                    kept.len() - 1
                };
                let (sender, answer) = (sender.clone(), answer.clone());
                thread::spawn(move || listen(stream, session, &sender, answer.as_ref()));
            }
        });
        Self {
            heard,
            waiting: VecDeque::new(),
            streams,
        }
    }

    /// The next thing that a session did. Sessions count from 0, in the order of connection.
    pub fn next(&mut self, session: usize) -> Heard {
        loop {
            let known = self.waiting.iter().position(|(from, _)| *from == session);
            if let Some((_, heard)) = known.and_then(|position| self.waiting.remove(position)) {
                return heard;
            }
            let heard = self
                .heard
                .recv_timeout(SOON)
                .expect("nothing more is heard");
            self.waiting.push_back(heard);
        }
    }

    /// Sends a message to a session.
    pub fn send(&self, session: usize, message: &ToHook) {
        write(&self.streams.lock().unwrap()[session], message);
    }

    /// Closes a session.
    pub fn close(&self, session: usize) {
        let stream = &self.streams.lock().unwrap()[session];
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

fn write(mut stream: &UnixStream, message: &ToHook) {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, &message.encode()).unwrap();
    stream.write_all(&bytes).unwrap();
}

fn listen(
    mut stream: UnixStream,
    session: usize,
    heard: &Sender<(usize, Heard)>,
    answer: &dyn Fn(&Hello) -> ToHook,
) {
    let mut reader = frame::Reader::new(frame::MAX_FRAME);
    let mut chunk = vec![0; 65_536];
    loop {
        let length = stream.read(&mut chunk).unwrap_or(0);
        if length == 0 {
            let _ = heard.send((session, Heard::End));
            return;
        }
        let mut input = &chunk[..length];
        loop {
            let event = match reader.take(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) => match FromHook::decode(frame, &Limits::default()) {
                    Ok(message) => Heard::Message(message),
                    Err(_) => Heard::Garbage,
                },
                Err(_) => Heard::NoFrame,
            };
            if let Heard::Message(FromHook::Hello(hello)) = &event {
                write(&stream, &answer(hello));
            }
            let over = event == Heard::NoFrame;
            let _ = heard.send((session, event));
            if over {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
        }
    }
}
