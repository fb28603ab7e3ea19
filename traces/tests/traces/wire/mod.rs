//! Protocol buffers' wire format, written by hand: what profilers write, without their code.

/// A message.
#[derive(Default, Clone)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 127 {
            self.0.push(number as u8 | 128);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    pub fn fixed(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub fn block(self, field: u64, inner: Self) -> Self {
        self.bytes(field, &inner.0)
    }
}

pub fn message() -> Message {
    Message::default()
}

/// A slice on a Perfetto track, with its annotations: texts, and times that stand there too.
pub fn slice(
    trace: Message,
    track: u64,
    kind: (&str, &str),
    span: (u64, u64),
    annotations: &[(&str, &str)],
) -> Message {
    let (category, name) = kind;
    let number = |name: &str, value| message().text(10, name).number(3, value);
    let mut event = message()
        .number(9, 1)
        .number(11, track)
        .text(22, category)
        .text(23, name)
        .block(4, number("begin_ns", span.0))
        .block(4, number("end_ns", span.1));
    for (name, value) in annotations {
        event = event.block(4, message().text(10, name).text(6, value));
    }
    let end = message().number(9, 2).number(11, track);
    let packet = |time, event| message().number(8, time).number(10, 1).block(11, event);
    trace
        .block(1, packet(span.0, event))
        .block(1, packet(span.1, end))
}

/// The name of a Perfetto track.
pub fn track(trace: Message, number: u64, name: &str) -> Message {
    let track = message().number(1, number).text(2, name);
    trace.block(1, message().number(10, 1).block(60, track))
}
