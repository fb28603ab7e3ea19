//! A reader of rocprofv3's Perfetto on prost's types, with the fields that it needs and no others,
//! whose bytes are not copied: to compare with the one that reads the wire format by hand. It
//! takes less in than that one: no lost packets, clocks, render stages or legacy events.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use prost::Message;
use prost::bytes::{Buf, Bytes, BytesMut};

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(message, optional, tag = "11")]
    event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned: Option<Interned>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, tag = "11")]
    track: u64,
    #[prost(bytes = "bytes", tag = "23")]
    name: Bytes,
    #[prost(uint64, tag = "10")]
    name_id: u64,
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    category_ids: Vec<u64>,
    #[prost(bytes = "bytes", repeated, tag = "22")]
    categories: Vec<Bytes>,
    #[prost(message, repeated, tag = "4")]
    annotations: Vec<Annotation>,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(uint64, tag = "1")]
    name_id: u64,
    #[prost(bytes = "bytes", tag = "10")]
    name: Bytes,
    #[prost(uint64, optional, tag = "3")]
    number: Option<u64>,
    #[prost(bytes = "bytes", tag = "6")]
    text: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(message, repeated, tag = "1")]
    categories: Vec<Entry>,
    #[prost(message, repeated, tag = "3")]
    annotations: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    name: Bytes,
}

/// A kernel that was read.
struct Kernel {
    _name: u32,
    _device: u32,
    _span: (u64, u64),
}

#[derive(Default)]
struct Reader {
    names: HashMap<Vec<u8>, u32>,
    categories: HashMap<u64, Bytes>,
    annotations: HashMap<u64, Bytes>,
    open: HashMap<u64, Vec<(u32, u32, u64)>>,
    kernels: Vec<Kernel>,
}

/// The categories of kernels: rocprofv3's, and that of the files that litctl writes.
const KERNELS: [&[u8]; 2] = [b"kernel_dispatch", b"kernel"];

impl Reader {
    fn name(&mut self, name: &[u8]) -> u32 {
        if let Some(&known) = self.names.get(name) {
            return known;
        }
        let next = self.names.len() as u32;
        // What is kept must not hold the whole piece of the file.
        self.names.insert(name.to_vec(), next);
        next
    }

    fn packet(&mut self, packet: Packet) {
        let copied = |entry: Entry| (entry.id, Bytes::copy_from_slice(&entry.name));
        if let Some(interned) = packet.interned {
            self.categories
                .extend(interned.categories.into_iter().map(copied));
            self.annotations
                .extend(interned.annotations.into_iter().map(copied));
        }
        let (Some(event), Some(time)) = (packet.event, packet.timestamp) else {
            return;
        };
        let by_id = |id| {
            self.categories
                .get(id)
                .is_some_and(|name| KERNELS.contains(&&name[..]))
        };
        let is_kernel = event.category_ids.iter().any(by_id)
            || event
                .categories
                .iter()
                .any(|name| KERNELS.contains(&&name[..]));
        match event.kind {
            1 if is_kernel => {
                let mut device = Bytes::new();
                for annotation in &event.annotations {
                    let name = match annotation.name_id {
                        0 => Some(&annotation.name),
                        id => self.annotations.get(&id),
                    };
                    if name.is_some_and(|name| name == &b"agent"[..]) {
                        device = annotation.text.clone();
                    }
                }
                let begun = (self.name(&event.name), self.name(&device), time);
                self.open.entry(event.track).or_default().push(begun);
            }
            2 => {
                let begun = self.open.get_mut(&event.track).and_then(Vec::pop);
                self.kernels
                    .extend(begun.map(|(name, device, start)| Kernel {
                        _name: name,
                        _device: device,
                        _span: (start, time),
                    }));
            }
            _ => {}
        }
    }
}

/// Reads a file; how many kernels there are.
pub(crate) fn read(path: &Path) -> Result<usize, Box<dyn std::error::Error>> {
    const PIECE: usize = 1 << 20;
    let mut file = File::open(path)?;
    let mut reader = Reader::default();
    let mut rest = Bytes::new();
    loop {
        let mut piece = BytesMut::with_capacity(PIECE + rest.len());
        piece.extend_from_slice(&rest);
        let held = piece.len();
        piece.resize(held + PIECE, 0);
        let count = file.read(&mut piece[held..])?;
        piece.truncate(held + count);
        rest = piece.freeze();
        loop {
            let mut head = &rest[..rest.len().min(12)];
            let length = head.len();
            if !head.has_remaining() {
                break;
            }
            let framed = prost::encoding::decode_varint(&mut head)
                .and_then(|key| Ok((key, prost::encoding::decode_varint(&mut head)?)));
            let Ok((0x0A, size)) = framed else { break };
            let (start, size) = (length - head.len(), size as usize);
            if rest.len() < start + size {
                break;
            }
            reader.packet(Packet::decode(rest.slice(start..start + size))?);
            rest.advance(start + size);
        }
        if count == 0 {
            return Ok(reader.kernels.len());
        }
    }
}
