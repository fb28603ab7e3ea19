//! A refillable window on a stream of bytes.

use std::io::{self, Read};

/// How much is asked of the source at a time.
const CHUNK: usize = 256 << 10;

/// What is held of a stream.
pub(crate) struct Window<R> {
    source: R,
    /// Room for bytes, which is cleared once: a source that hands out little at a time is asked often.
    room: Vec<u8>,
    /// How many bytes are held, at the beginning of the room.
    held: usize,
    /// The next byte to look at.
    pub(crate) at: usize,
    /// How many bytes left the window before its first one.
    gone: u64,
    /// Whether the source has no more.
    pub(crate) ended: bool,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            source,
            room: Vec::new(),
            held: 0,
            at: 0,
            gone: 0,
            ended: false,
        }
    }

    /// The offset of the next byte in the stream.
    pub(crate) fn offset(&self) -> u64 {
        self.gone + self.at as u64
    }

    /// How many bytes of the stream were read.
    pub(crate) fn length(&self) -> u64 {
        self.gone + self.held as u64
    }

    /// The bytes that are held.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.room.get(..self.held).unwrap_or_default()
    }

    /// The bytes from the next one on.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes().get(self.at..).unwrap_or_default()
    }

    /// Reads more, dropping what lies before `keep`, which becomes the window's first byte;
    /// `false` at the end of the stream.
    pub(crate) fn refill(&mut self, keep: usize) -> io::Result<bool> {
        self.room.copy_within(keep..self.held, 0);
        self.held -= keep;
        self.at -= keep;
        self.gone += keep as u64;
        // Twice as much each time, so that a long piece is not copied over and over.
        let wanted = self.held + CHUNK.max(self.held);
        if self.room.len() < wanted {
            self.room.resize(wanted, 0);
        }
        let room = self.room.get_mut(self.held..wanted).unwrap_or_default();
        let read = loop {
            match self.source.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.held += read.as_ref().map_or(0, |&count| count);
        self.ended = read? == 0;
        Ok(!self.ended)
    }
}
