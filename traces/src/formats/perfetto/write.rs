//! Writes timelines as a Perfetto trace, to be looked at in Perfetto's user interface: the kernels
//! of all ranks, their leads as counters, and arrows along the straggler wave.

use std::collections::HashMap;
use std::io::{self, Write};

use litd_units::Nanos;
use prost::Message;

use crate::leads::Leads;
use crate::timeline::{Kernel, KernelClass, StreamId, Timeline};

/// The most arrows; more hide what they show.
const ARROWS: usize = 200;
/// The sequence of all packets.
const SEQUENCE: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    sequence: u32,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "12")]
    interned: Option<Interned>,
    #[prost(uint32, tag = "13")]
    flags: u32,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    categories: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    annotations: Vec<Annotation>,
    #[prost(uint32, tag = "9")]
    kind: u32,
    #[prost(uint64, optional, tag = "10")]
    name: Option<u64>,
    #[prost(uint64, tag = "11")]
    track: u64,
    #[prost(int64, optional, tag = "30")]
    counter: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flows: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(string, optional, tag = "6")]
    text: Option<String>,
    #[prost(string, tag = "10")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(message, repeated, tag = "1")]
    categories: Vec<Entry>,
    #[prost(message, repeated, tag = "2")]
    names: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<Counter>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, tag = "6")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    /// 1 = nanoseconds.
    #[prost(uint32, tag = "3")]
    unit: u32,
}

/// The process of what makes leads doubtful; no rank has such a number.
const DOUBTS: i32 = i32::MAX;

/// Categories by number: what computes and communicates, and what copies.
const CATEGORIES: [&str; 2] = ["kernel", "gpu_memcpy"];

/// Writes the timelines, their leads where there are any, and what makes these doubtful, each as a mark at
/// the beginning of a track of its own.
///
/// # Errors
/// `out` doesn't take it.
pub fn write_perfetto(
    timelines: &[Timeline],
    leads: Option<&Leads<'_>>,
    doubts: &[String],
    out: impl Write,
) -> io::Result<()> {
    let mut writer = Writer {
        out,
        names: HashMap::new(),
        tracks: 0,
    };
    let categories = (1..).zip(CATEGORIES).map(|(id, name)| Entry {
        id,
        name: name.into(),
    });
    writer.packet(Packet {
        flags: 1,
        interned: Some(Interned {
            categories: categories.collect(),
            names: Vec::new(),
        }),
        ..Packet::default()
    })?;
    for (at, timeline) in timelines.iter().enumerate() {
        writer.rank(at, timeline, leads)?;
    }
    let starts = timelines
        .iter()
        .filter_map(|timeline| timeline.kernels.first());
    let start = starts.map(|kernel| kernel.start).min().unwrap_or_default();
    for doubt in doubts {
        writer.doubt(start, doubt)?;
    }
    writer.out.flush()
}

struct Writer<W> {
    out: W,
    names: HashMap<String, u64>,
    tracks: u64,
}

impl<W: Write> Writer<W> {
    fn packet(&mut self, mut packet: Packet) -> io::Result<()> {
        packet.sequence = SEQUENCE;
        if packet.flags == 0 {
            packet.flags = 2;
        }
        // A trace of one packet is what the packet adds to a trace.
        let trace = Trace {
            packet: vec![packet],
        };
        self.out.write_all(&trace.encode_to_vec())
    }

    fn track(&mut self, track: Track) -> io::Result<u64> {
        self.tracks += 1;
        let uuid = self.tracks;
        let track = Some(Track { uuid, ..track });
        self.packet(Packet {
            track,
            ..Packet::default()
        })?;
        Ok(uuid)
    }

    fn rank(
        &mut self,
        at: usize,
        timeline: &Timeline,
        leads: Option<&Leads<'_>>,
    ) -> io::Result<()> {
        let simulated = if timeline.simulated {
            " (simulated)"
        } else {
            ""
        };
        let process = self.track(Track {
            process: Some(Process {
                pid: i32::try_from(timeline.rank).ok(),
                name: format!("rank {}{simulated}", timeline.rank),
            }),
            ..Track::default()
        })?;
        let flows = leads.map(|leads| flows(leads, at)).unwrap_or_default();
        let mut lanes = HashMap::<StreamId, Vec<(u64, Nanos)>>::new();
        for (index, kernel) in timeline.kernels.iter().enumerate() {
            // Kernels of one stream that overlap can't be slices of one track.
            let lanes = lanes.entry(kernel.stream).or_default();
            let free = lanes.iter().position(|(_, end)| *end <= kernel.start);
            let lane = match free {
                Some(lane) => lane,
                None => {
                    let label = timeline.streams.get(kernel.stream.0 as usize);
                    let label = label.map_or("", |label| label);
                    let track = self.track(Track {
                        name: Some(format!("stream {label}")),
                        parent: Some(process),
                        ..Track::default()
                    })?;
                    lanes.push((track, Nanos::ZERO));
                    lanes.len() - 1
                }
            };
            lanes[lane].1 = kernel.end;
            let flow = flows.get(&index).copied();
            self.kernel(timeline, kernel, lanes[lane].0, flow)?;
        }
        if let Some(leads) = leads {
            self.leads(at, timeline, leads, process)?;
        }
        Ok(())
    }

    fn kernel(
        &mut self,
        timeline: &Timeline,
        kernel: &Kernel,
        track: u64,
        flow: Option<u64>,
    ) -> io::Result<()> {
        let name = timeline.name_of(kernel);
        let next = self.names.len() as u64 + 1;
        let known = self.names.get(name).copied();
        let interned = known.is_none().then(|| {
            self.names.insert(name.to_owned(), next);
            Interned {
                categories: Vec::new(),
                names: vec![Entry {
                    id: next,
                    name: name.to_owned(),
                }],
            }
        });
        let stream = timeline.streams.get(kernel.stream.0 as usize);
        let annotation = Annotation {
            name: "stream".into(),
            text: stream.map(|label| label.to_string()),
        };
        let category = if kernel.class == KernelClass::Copy {
            2
        } else {
            1
        };
        let begin = Event {
            categories: vec![category],
            annotations: vec![annotation],
            kind: 1,
            name: known.or(Some(next)),
            track,
            flows: flow.into_iter().collect(),
            ..Event::default()
        };
        let end = Event {
            kind: 2,
            track,
            ..Event::default()
        };
        self.event(kernel.start, begin, interned)?;
        self.event(kernel.end, end, None)
    }

    /// A sentence as a mark that takes no time, whose name the user interface shows whole when it is chosen.
    fn doubt(&mut self, at: Nanos, doubt: &str) -> io::Result<()> {
        const INSTANT: u32 = 3;
        let process = self.track(Track {
            process: Some(Process {
                pid: Some(DOUBTS),
                name: format!("what makes leads doubtful: {doubt}"),
            }),
            ..Track::default()
        })?;
        let track = self.track(Track {
            name: Some("note".into()),
            parent: Some(process),
            ..Track::default()
        })?;
        let next = self.names.len() as u64 + 1;
        let id = *self.names.entry(doubt.to_owned()).or_insert(next);
        let interned = (id == next).then(|| Interned {
            categories: Vec::new(),
            names: vec![Entry {
                id,
                name: doubt.to_owned(),
            }],
        });
        let mark = Event {
            kind: INSTANT,
            name: Some(id),
            track,
            ..Event::default()
        };
        self.event(at, mark, interned)
    }

    fn event(&mut self, at: Nanos, event: Event, interned: Option<Interned>) -> io::Result<()> {
        self.packet(Packet {
            timestamp: u64::try_from(at.0).ok(),
            event: Some(event),
            interned,
            ..Packet::default()
        })
    }

    /// The lead as a counter, which steps where a matched kernel starts.
    fn leads(
        &mut self,
        at: usize,
        timeline: &Timeline,
        leads: &Leads<'_>,
        process: u64,
    ) -> io::Result<()> {
        let track = self.track(Track {
            name: Some("lead".into()),
            parent: Some(process),
            counter: Some(Counter { unit: 1 }),
            ..Track::default()
        })?;
        let mut steps = Vec::new();
        for (row, lead) in leads.alignment.matched().zip(&leads.wave[at]) {
            let kernel = row.get(at).and_then(|&k| timeline.kernels.get(k as usize));
            steps.extend(kernel.map(|kernel| (kernel.start, lead.0)));
        }
        steps.sort_unstable();
        for (start, lead) in steps {
            let event = Event {
                kind: 4,
                track,
                counter: Some(lead),
                ..Event::default()
            };
            self.event(start, event, None)?;
        }
        Ok(())
    }
}

/// The arrow's number by the kernel's, for some of the matched kernels of a rank. An arrow goes
/// through the same kernel of all ranks, from the first to start it to the last.
fn flows(leads: &Leads<'_>, rank: usize) -> HashMap<usize, u64> {
    let rows = leads.alignment.matched();
    let step = rows.len().div_ceil(ARROWS).max(1);
    let chosen = (1..).zip(rows).step_by(step);
    let arrow = |(number, row): (u64, &[u32])| Some((*row.get(rank)? as usize, number));
    chosen.filter_map(arrow).collect()
}
