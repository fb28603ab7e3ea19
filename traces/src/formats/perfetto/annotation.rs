//! What a kernel's annotations tell.

use std::borrow::Cow;

use super::Trouble;
use super::sequence::Sequence;
use super::texts::Texts;
use crate::formats::proto::fields;
use crate::timeline::NameId;

/// What an annotation tells, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Begin,
    End,
    Device,
    /// Where a copy goes, and where it is from.
    Receiver,
    Sender,
    Stream,
    Queue,
}

impl Meaning {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"begin_ns" => Some(Self::Begin),
            b"end_ns" => Some(Self::End),
            b"agent" | b"device" => Some(Self::Device),
            b"dst_agent" => Some(Self::Receiver),
            b"src_agent" => Some(Self::Sender),
            b"stream_ID" | b"stream" => Some(Self::Stream),
            b"queue" => Some(Self::Queue),
            _ => None,
        }
    }
}

/// What the annotations of one event tell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) begin: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) device: Option<NameId>,
    pub(super) receiver: Option<NameId>,
    pub(super) sender: Option<NameId>,
    pub(super) stream: Option<NameId>,
    pub(super) queue: Option<NameId>,
}

impl Told {
    /// Takes a DebugAnnotation, if it is of those that matter.
    pub(super) fn take(
        &mut self,
        message: &[u8],
        sequence: &Sequence,
        texts: &mut Texts,
    ) -> Result<(), Trouble> {
        let (mut meaning, mut number, mut text) = (None, None, None);
        for field in fields(message) {
            match field? {
                // Encoders write the name first, and most annotations don't matter.
                (1, value) => match sequence.annotations.get(value.number()).flatten() {
                    None => return Ok(()),
                    known => meaning = known,
                },
                (10, value) => meaning = Meaning::of(value.bytes()),
                (3 | 4, value) => number = Some(value.number() as i64),
                (6, value) => text = Some(value.text()),
                (17, value) => {
                    let id = sequence.strings.get(value.number());
                    text = id.map(|id| Cow::Owned(texts.get(id).to_owned()));
                }
                _ => {}
            }
        }
        let slot = match meaning {
            None => return Ok(()),
            Some(Meaning::Begin | Meaning::End) => {
                let number = number.or_else(|| text.as_ref()?.parse().ok());
                match meaning {
                    Some(Meaning::Begin) => self.begin = number,
                    _ => self.end = number,
                }
                return Ok(());
            }
            Some(Meaning::Device) => &mut self.device,
            Some(Meaning::Receiver) => &mut self.receiver,
            Some(Meaning::Sender) => &mut self.sender,
            Some(Meaning::Stream) => &mut self.stream,
            Some(Meaning::Queue) => &mut self.queue,
        };
        *slot = match (text, number) {
            (Some(text), _) => Some(texts.intern(&text)?),
            (None, Some(number)) => Some(texts.intern_number(number)?),
            (None, None) => *slot,
        };
        Ok(())
    }
}
