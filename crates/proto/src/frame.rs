//! Frames: the message's length as a 32-bit little-endian number, then the message. No I/O here.

/// The longest message that is accepted by default, in bytes.
pub const MAX_FRAME: usize = 4 << 20;

/// A buffer larger than this is given back once its frame is done with, in bytes. Frames of
/// kernels come once in a while, ticks all the time.
const KEEP: usize = 64 << 10;

const HEADER: usize = size_of::<u32>();

/// A length that no frame has. Where the next frame would begin is not known then: the
/// connection is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is empty, without even a message's kind.
    #[error("a frame of 0 bytes")]
    Empty,
    /// Longer than is accepted.
    #[error("a frame of {length} bytes, and the limit is {max}")]
    TooLong {
        /// The message's length in bytes.
        length: usize,
        /// The longest accepted, in bytes.
        max: usize,
    },
}

fn checked(length: usize, max: usize) -> Result<usize, FrameError> {
    match length {
        0 => Err(FrameError::Empty),
        _ if length > max => Err(FrameError::TooLong { length, max }),
        _ => Ok(length),
    }
}

/// Appends a message with its length to `out`.
///
/// # Errors
/// [`FrameError`] if the message is empty or longer than 32 bits can say; `out` is as it was.
pub fn write(out: &mut Vec<u8>, message: &[u8]) -> Result<(), FrameError> {
    let length = checked(message.len(), u32::MAX as usize)? as u32;
    out.reserve(HEADER + message.len());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(message);
    Ok(())
}

/// Takes a stream of bytes apart into messages. Holds one message at most, and memory for no more
/// than has arrived of it (twice that, while it grows), whatever length it announces.
#[derive(Debug)]
pub struct Reader {
    max: usize,
    header: [u8; HEADER],
    /// How much of `header` has arrived.
    known: usize,
    body: Vec<u8>,
    /// Whether `body` was whole and has been handed out.
    done: bool,
}

impl Reader {
    /// A reader for messages of up to `max` bytes, such as [`MAX_FRAME`].
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            header: [0; HEADER],
            known: 0,
            body: Vec::new(),
            done: false,
        }
    }

    /// From now on messages of up to `max` bytes: strangers get less room than those who have
    /// been let in.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Takes from the head of `input` what the present message lacks, and answers with it once it
    /// is whole. Call it until it answers `None`: all of `input` has been taken then.
    ///
    /// # Errors
    /// [`FrameError`] as soon as an impossible length has arrived, and for ever after.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<&[u8]>, FrameError> {
        if self.done {
            self.restart();
        }
        while self.known < HEADER {
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(None);
            };
            self.header[self.known] = byte;
            self.known += 1;
            *input = rest;
        }
        let length = checked(u32::from_le_bytes(self.header) as usize, self.max)?;
        let lacking = length - self.body.len();
        let (taken, rest) = input.split_at(lacking.min(input.len()));
        *input = rest;
        self.grow(taken.len(), length);
        self.body.extend_from_slice(taken);
        self.done = self.body.len() == length;
        Ok(self.done.then_some(&*self.body))
    }

    /// How many bytes of an unfinished frame are here. Not 0 when a stream ends: it was cut.
    #[must_use]
    pub fn pending(&self) -> usize {
        match self.done {
            true => 0,
            false => self.known + self.body.len(),
        }
    }

    fn restart(&mut self) {
        self.known = 0;
        self.done = false;
        self.body.clear();
        if self.body.capacity() > KEEP {
            self.body = Vec::new();
        }
    }

    /// Room for `more` bytes: doubled as usual, but never more than the message's length.
    fn grow(&mut self, more: usize, length: usize) {
        let needed = self.body.len() + more;
        if needed > self.body.capacity() {
            let wanted = needed.max(2 * self.body.capacity()).min(length);
            self.body.reserve_exact(wanted - self.body.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(messages: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            write(&mut bytes, message).unwrap();
        }
        bytes
    }

    fn read(reader: &mut Reader, mut input: &[u8]) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(message) = reader.take(&mut input).unwrap() {
            messages.push(message.to_vec());
        }
        assert!(input.is_empty());
        messages
    }

    #[test]
    fn a_frame_is_its_length_and_the_message() {
        assert_eq!(
            stream(&[b"abc", b"d"]),
            b"\x03\x00\x00\x00abc\x01\x00\x00\x00d"
        );
        assert_eq!(write(&mut Vec::new(), b""), Err(FrameError::Empty));
    }

    #[test]
    fn a_stream_may_be_cut_anywhere() {
        let messages: [&[u8]; 4] = [b"one", &[7; 300], b"x", b"the last"];
        let bytes = stream(&messages);
        for first in 0..=bytes.len() {
            for second in [first, (first + 5).min(bytes.len()), bytes.len()] {
                let mut reader = Reader::new(300);
                let mut found = read(&mut reader, &bytes[..first]);
                found.extend(read(&mut reader, &bytes[first..second]));
                found.extend(read(&mut reader, &bytes[second..]));
                assert_eq!(found, messages, "cut at {first} and {second}");
                assert_eq!(reader.pending(), 0);
            }
        }
    }

    #[test]
    fn byte_by_byte_and_what_is_pending() {
        let mut reader = Reader::new(8);
        for (k, byte) in stream(&[b"12345678"]).iter().enumerate() {
            assert_eq!(reader.pending(), k);
            let message = reader.take(&mut [*byte].as_slice()).unwrap();
            assert_eq!(message.is_some(), k == 11);
        }
    }

    #[test]
    fn an_impossible_length_is_refused_at_once_and_for_ever() {
        for (length, fault) in [
            (0_u32, FrameError::Empty),
            (9, FrameError::TooLong { length: 9, max: 8 }),
            (
                u32::MAX,
                FrameError::TooLong {
                    length: u32::MAX as usize,
                    max: 8,
                },
            ),
        ] {
            let mut reader = Reader::new(8);
            let header = length.to_le_bytes();
            assert_eq!(reader.take(&mut &header[..3]), Ok(None));
            assert_eq!(reader.take(&mut &header[3..]), Err(fault));
            let good = stream(&[b"ok"]);
            assert_eq!(reader.take(&mut good.as_slice()), Err(fault));
        }
    }

    #[test]
    fn memory_follows_what_arrived_and_is_given_back() {
        let mut reader = Reader::new(MAX_FRAME);
        let length = u32::try_from(MAX_FRAME).unwrap();
        assert_eq!(reader.take(&mut length.to_le_bytes().as_slice()), Ok(None));
        assert_eq!(reader.body.capacity(), 0);
        let chunk = vec![1; 5000];
        let mut arrived = 0;
        while arrived < MAX_FRAME {
            let mut input = &chunk[..chunk.len().min(MAX_FRAME - arrived)];
            arrived += input.len();
            let whole = reader.take(&mut input).unwrap().is_some();
            assert_eq!(whole, arrived == MAX_FRAME);
            assert!(reader.body.capacity() <= (2 * arrived).min(MAX_FRAME));
        }
        assert_eq!(reader.take(&mut [].as_slice()), Ok(None));
        assert_eq!(reader.body.capacity(), 0);
    }
}
