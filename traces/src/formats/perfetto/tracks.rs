//! Tracks, and what their names and a kernel's annotations tell of where it ran.

use std::collections::HashMap;

use super::Trouble;
use super::texts::Texts;
use crate::formats::proto::fields;
use crate::gather::shortened;
use crate::timeline::{KernelClass, NameId};

/// The longest chain of parents that is followed.
const DEPTH: usize = 16;
/// The most tracks that are kept.
const TRACKS: usize = 1 << 21;

/// A track, or a process or thread that is one.
#[derive(Default, Clone)]
struct Track {
    parent: Option<u64>,
    name: Option<NameId>,
}

/// Where a kernel ran, and its class where the file tells.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Its track (0), or its sequence (1) where it has none.
    pub(super) track: (u64, u64),
    pub(super) class: Option<KernelClass>,
    /// The GPU, and the stream or the queue, where annotations tell.
    pub(super) device: Option<NameId>,
    /// Where a copy is from.
    pub(super) sender: Option<NameId>,
    pub(super) stream: Option<NameId>,
}

/// The rank, the GPU and the stream of a place.
pub(super) struct Labels {
    pub(super) rank: Option<u32>,
    pub(super) device: String,
    /// Where a copy is from.
    pub(super) sender: Option<String>,
    pub(super) stream: String,
}

/// Tracks by their numbers.
#[derive(Default)]
pub(super) struct Tracks(HashMap<u64, Track>);

impl Tracks {
    /// Whether a track says that a simulator made it up.
    pub(super) fn simulated(&self, texts: &Texts) -> bool {
        let name = |track: &Track| track.name.map_or("", |name| texts.get(name));
        self.0
            .values()
            .any(|track| name(track).ends_with("(simulated)"))
    }

    /// Takes a TrackDescriptor.
    pub(super) fn describe(&mut self, message: &[u8], texts: &mut Texts) -> Result<(), Trouble> {
        let (mut uuid, mut track) = (0, Track::default());
        let mut inner = None;
        for field in fields(message) {
            match field? {
                (1, value) => uuid = value.number(),
                (5, value) => track.parent = Some(value.number()),
                (2 | 10, value) => track.name = Some(texts.intern(&value.text())?),
                // A process's name (6) or a thread's (5).
                (3, value) => inner = Some((6, value.bytes())),
                (4, value) => inner = inner.or(Some((5, value.bytes()))),
                _ => {}
            }
        }
        if let (Some((wanted, message)), None) = (inner, track.name) {
            for field in fields(message) {
                match field? {
                    (number, value) if number == wanted => {
                        track.name = Some(texts.intern(&value.text())?);
                    }
                    _ => {}
                }
            }
        }
        if self.0.len() < TRACKS {
            let known = self.0.entry(uuid).or_default();
            known.parent = track.parent.or(known.parent);
            known.name = track.name.or(known.name);
        }
        Ok(())
    }

    /// What a place is called.
    pub(super) fn labels(&self, place: &Place, texts: &Texts) -> Labels {
        let mut names = Vec::new();
        let mut at = (place.track.0 == 0).then_some(place.track.1);
        while let (Some(track), true) = (at.and_then(|at| self.0.get(&at)), names.len() < DEPTH) {
            names.push(track.name.map_or("", |name| texts.get(name)));
            at = track.parent.filter(|_| track.parent != at);
        }
        let name = names.first().copied().unwrap_or_default();
        let rank = names.iter().find_map(|name| {
            let number = name.strip_prefix("rank ")?;
            number.split(' ').next()?.parse().ok()
        });
        let text = |id: Option<NameId>| id.map(|id| texts.get(id));
        let number = |id| text(id).map(agent);
        let device = number(place.device);
        let of_track = || match name.contains("Agent") || name.contains("GPU") {
            true => bracketed(name).next(),
            false => None,
        };
        let device = device.or_else(of_track).unwrap_or_default();
        // `STREAM [3]`; `COMPUTE Agent [4] QUEUE [1] GPU`; `HIP Activity Stream 3`.
        let of_track = || bracketed(name).last().or_else(|| digits(name));
        let stream = text(place.stream).or_else(of_track).unwrap_or(name);
        Labels {
            rank,
            device: device.to_owned(),
            sender: number(place.sender).map(str::to_owned),
            stream: shortened(stream),
        }
    }
}

/// The number of an agent, `Agent-4` or `GPU-0`; all of what is a host's, `CPU-0`, whose numbers
/// may be those of GPUs too.
fn agent(label: &str) -> &str {
    let is_host = label
        .get(..3)
        .is_some_and(|kind| kind.eq_ignore_ascii_case("cpu"));
    match is_host {
        true => label,
        false => digits(label).unwrap_or(label),
    }
}

/// What stands in square brackets.
fn bracketed(text: &str) -> impl Iterator<Item = &str> {
    text.split('[')
        .skip(1)
        .filter_map(|part| part.split(']').next())
}

/// The last number in a text.
fn digits(text: &str) -> Option<&str> {
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let head = text.get(..end)?;
    let start = head.rfind(|c: char| !c.is_ascii_digit());
    head.get(start.map_or(0, |at| at + 1)..)
}
