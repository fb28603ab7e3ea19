//! A file's bytes, unpacked: what compressed them is told by their beginning.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// How much of a file is looked at before it is known what it is.
#[cfg(feature = "formats")]
pub(crate) const HEAD: usize = 64 << 10;

/// How compressed files begin.
const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Whether bytes begin as compressed ones do.
#[cfg(feature = "formats")]
pub(crate) fn is_packed(head: &[u8]) -> bool {
    head.starts_with(&GZIP) || head.starts_with(&ZSTD)
}

/// What compressed a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Nothing.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    #[cfg_attr(not(feature = "formats"), expect(dead_code))]
    Zstd,
}

impl Packing {
    /// What it is called; none for nothing.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }
}

/// A source whose first bytes were looked at.
type Peeked<R> = Chain<Cursor<Vec<u8>>, R>;

/// The bytes of a file, whether it was compressed or not.
pub(crate) struct Source<R: Read> {
    unpacked: Unpacked<R>,
    /// What [`Source::head`] has read ahead, and how much of that was read since.
    ahead: Cursor<Vec<u8>>,
}

enum Unpacked<R: Read> {
    Plain(Peeked<R>),
    // Several members one after the other are one document.
    Gzip(Box<MultiGzDecoder<BufReader<Peeked<R>>>>),
    #[cfg(feature = "formats")]
    Zstd(Box<zstd::Frames<BufReader<Peeked<R>>>>),
}

impl<R: Read> Source<R> {
    /// The source, unpacked.
    pub(crate) fn of(mut source: R) -> io::Result<Self> {
        let mut magic = Vec::new();
        source.by_ref().take(4).read_to_end(&mut magic)?;
        let gzip = magic.starts_with(&GZIP);
        let zstd = magic == ZSTD;
        let source = Cursor::new(magic).chain(source);
        let buffered = |source| BufReader::with_capacity(64 << 10, source);
        let unpacked = match (gzip, zstd) {
            (true, _) => Unpacked::Gzip(Box::new(MultiGzDecoder::new(buffered(source)))),
            #[cfg(feature = "formats")]
            (_, true) => Unpacked::Zstd(Box::new(zstd::Frames::new(buffered(source)))),
            _ => Unpacked::Plain(source),
        };
        Ok(Self {
            unpacked,
            ahead: Cursor::default(),
        })
    }

    /// What compressed it.
    pub(crate) fn packing(&self) -> Packing {
        match self.unpacked {
            Unpacked::Plain(_) => Packing::None,
            Unpacked::Gzip(_) => Packing::Gzip,
            #[cfg(feature = "formats")]
            Unpacked::Zstd(_) => Packing::Zstd,
        }
    }

    /// The first [`HEAD`] bytes, or all if there are fewer; they are still to be read. A failure
    /// to read them will be met again.
    #[cfg(feature = "formats")]
    pub(crate) fn head(&mut self) -> &[u8] {
        if self.ahead.get_ref().is_empty() {
            let mut head = Vec::new();
            let _: io::Result<usize> = (&mut self.unpacked)
                .take(HEAD as u64)
                .read_to_end(&mut head);
            self.ahead = Cursor::new(head);
        }
        self.ahead.get_ref()
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.ahead.read(into)? {
            0 => self.unpacked.read(into),
            count => Ok(count),
        }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(into),
            Self::Gzip(source) => source.read(into),
            #[cfg(feature = "formats")]
            Self::Zstd(source) => source.read(into),
        }
    }
}

#[cfg(feature = "formats")]
mod zstd {
    use std::io::{self, BufRead, Read};

    use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

    /// Zstandard frames, one after the other.
    pub(super) enum Frames<R: BufRead> {
        Between(R),
        Within(Box<StreamingDecoder<R, FrameDecoder>>),
        /// Whether it stops early; what it was that broke.
        Broken(bool, String),
    }

    impl<R: BufRead> Frames<R> {
        pub(super) fn new(source: R) -> Self {
            Self::Between(source)
        }
    }

    impl<R: BufRead> Read for Frames<R> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if into.is_empty() {
                return Ok(0);
            }
            loop {
                match std::mem::replace(self, Self::Broken(false, String::new())) {
                    Self::Between(mut source) => {
                        if source.fill_buf()?.is_empty() {
                            *self = Self::Between(source);
                            return Ok(0);
                        }
                        *self = match StreamingDecoder::new(source) {
                            Ok(frame) => Self::Within(Box::new(frame)),
                            Err(cause) => Self::Broken(false, cause.to_string()),
                        };
                    }
                    Self::Within(mut frame) => match frame.read(into) {
                        Ok(0) => *self = Self::Between(frame.into_inner()),
                        Ok(count) => {
                            *self = Self::Within(frame);
                            return Ok(count);
                        }
                        Err(cause) => {
                            let early = frame.get_mut().fill_buf()?.is_empty();
                            *self = Self::Broken(early, cause.to_string());
                        }
                    },
                    Self::Broken(early, cause) => {
                        *self = Self::Broken(early, cause.clone());
                        let kind = match early {
                            true => io::ErrorKind::UnexpectedEof,
                            false => io::ErrorKind::InvalidData,
                        };
                        return Err(io::Error::new(kind, cause));
                    }
                }
            }
        }
    }
}
