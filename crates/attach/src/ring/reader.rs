//! Reading a ring that another process writes, and may write wrongly.

use std::io;

use super::{
    AT_BEGUN, AT_DROPPED, AT_MAGIC, AT_PID, HEADER, HEADER_WORDS, MAGIC, RECORD, RECORD_WORDS,
    Record, SLOTS,
};

/// Records that are read at once.
const CHUNK: usize = 512;

/// Why a ring is read no more.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file can't be read, or is shorter than a ring.
    #[error("its file can't be read: {0}")]
    Io(#[from] io::Error),
    /// The file is no ring, or one of another layout.
    #[error("its file is no ring of this version of litd")]
    Foreign,
    /// The count of records went back.
    #[error("its count of records went back from {from} to {to}")]
    Rewound {
        /// The highest count seen.
        from: u64,
        /// The count now.
        to: u64,
    },
}

/// What came since the last look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Collectives in the order in which the process told of them, at most [`SLOTS`].
    pub records: Vec<Record>,
    /// How many records could not be read: they were overwritten before, or never finished.
    pub lost: u64,
    /// For how many collectives the writer had no room, since the ring began, as the writer says.
    pub dropped: u64,
    /// The writer's process id, as the writer says.
    pub pid: u64,
}

/// The words of the header that count.
struct Header {
    begun: u64,
    dropped: u64,
    pid: u64,
}

/// Where the reading of one ring has come to. Nothing that the file says leads to more work than one pass over the
/// ring.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    next: u64,
    /// The highest count of records seen.
    begun: u64,
    /// The record that was unfinished at the last look.
    unfinished: Option<u64>,
}

impl Reader {
    /// Passes over what has come so far: the next reading takes what comes from now on.
    ///
    /// # Errors
    /// When the file can't be read, or is no ring; it is not to be read again then.
    pub fn skip(
        &mut self,
        mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<(), Unreadable> {
        self.next = self.header(&mut read_at)?.begun;
        self.unfinished = None;
        Ok(())
    }

    /// The header; the count of records never goes back.
    fn header(
        &mut self,
        read_at: &mut impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Header, Unreadable> {
        let mut bytes = [0; HEADER];
        read_at(0, &mut bytes)?;
        let header = words_of::<HEADER_WORDS>(&bytes);
        if header[AT_MAGIC] != MAGIC {
            return Err(Unreadable::Foreign);
        }
        let begun = header[AT_BEGUN];
        if begun < self.begun {
            let from = self.begun;
            return Err(Unreadable::Rewound { from, to: begun });
        }
        self.begun = begun;
        Ok(Header {
            begun,
            dropped: header[AT_DROPPED],
            pid: header[AT_PID],
        })
    }

    /// Takes what has come, by a function that fills a buffer from a place of the file.
    ///
    /// # Errors
    /// When the file can't be read, or is no ring; it is not to be read again then.
    pub fn read(
        &mut self,
        mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Batch, Unreadable> {
        let Header {
            begun,
            dropped,
            pid,
        } = self.header(&mut read_at)?;
        let mut batch = Batch {
            dropped,
            pid,
            ..Batch::default()
        };
        let oldest = begun.saturating_sub(SLOTS as u64);
        batch.lost = oldest.saturating_sub(self.next);
        self.next = self.next.max(oldest);
        let mut bytes = vec![0; CHUNK * RECORD];
        while self.next < begun {
            let slot = (self.next % SLOTS as u64) as usize;
            let left = usize::try_from(begun - self.next).unwrap_or(usize::MAX);
            let count = left.min(CHUNK).min(SLOTS - slot);
            let Some(bytes) = bytes.get_mut(..count * RECORD) else {
                break;
            };
            read_at((HEADER + slot * RECORD) as u64, bytes)?;
            for bytes in bytes.chunks_exact(RECORD) {
                if !self.take(&words_of(bytes), &mut batch) {
                    return Ok(batch);
                }
            }
        }
        Ok(batch)
    }

    /// Takes the next record; whether to go on. A record that is not finished may be the next time: it is waited for
    /// once, because a thread that was killed never finishes its own.
    fn take(&mut self, words: &[u64; RECORD_WORDS], batch: &mut Batch) -> bool {
        match Record::of_words(words, self.next) {
            Some(record) => batch.records.push(record),
            None if self.unfinished != Some(self.next) && self.is_young() => {
                self.unfinished = Some(self.next);
                return false;
            }
            None => batch.lost = batch.lost.saturating_add(1),
        }
        self.next += 1;
        true
    }

    /// Whether the next record's slot has not been given to another one yet.
    fn is_young(&self) -> bool {
        self.begun - self.next <= SLOTS as u64 / 2
    }
}

/// The words that these bytes are; zeros behind their end.
fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    let (chunks, _) = bytes.as_chunks::<8>();
    for (word, &bytes) in words.iter_mut().zip(chunks) {
        *word = u64::from_ne_bytes(bytes);
    }
    words
}
