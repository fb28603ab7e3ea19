//! A rank of the job that is replayed.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use litd_proto::client::Client;
use litd_proto::{Bye, Class, Directive, FromHook, Hello, Kernels, PROTOCOL, Tick, ToHook};
use litd_traces::{Collective, Kernel, Timeline};
use litd_units::Nanos;

use crate::sample::sample_of;

/// The hello of a rank; its place is its local rank, and the numbers of ranks here and in all.
pub fn hello(job: &str, timeline: &Timeline, place: (u32, u32, u32), gpu: &str) -> Hello {
    let (local_rank, local_world_size, world_size) = place;
    Hello {
        protocol: PROTOCOL,
        job: job.to_owned(),
        rank: timeline.rank,
        local_rank,
        world_size,
        local_world_size,
        gpu: gpu.to_owned(),
        framework: "replay".to_owned(),
        versions: BTreeMap::new(),
        group: String::new(),
    }
}

/// A rank that is connected.
pub struct Rank {
    number: u32,
    client: Client,
    directive: Directive,
    names: HashMap<String, u32>,
    pieces: Vec<Timeline>,
    /// The ranks that are played: those of this node.
    here: Arc<[u32]>,
}

impl Rank {
    /// Connects and waits for the daemon's welcome; tries again while the daemon says so.
    pub fn connect(
        socket: &Path,
        hello: Hello,
        timeline: &Timeline,
        here: Arc<[u32]>,
        deadline: Instant,
    ) -> Result<Self, Box<dyn Error>> {
        let number = hello.rank;
        let (client, directive) = loop {
            let mut client = Client::connect(socket)?;
            client.send(&FromHook::Hello(hello.clone()))?;
            let left = deadline.saturating_duration_since(Instant::now());
            match client.receive(left)? {
                Some(ToHook::Welcome(welcome)) => break (client, welcome.directive),
                Some(ToHook::Refusal(refusal)) => {
                    let wait = refusal.retry_after.map(|wait| wait.0);
                    let wait = wait.and_then(|wait| u64::try_from(wait).ok());
                    match wait.map(Duration::from_nanos) {
                        Some(wait) if Instant::now() + wait < deadline => thread::sleep(wait),
                        _ => return Err(format!("rank {number}: {}", refusal.reason).into()),
                    }
                }
                _ => return Err(format!("rank {number}: the daemon does not answer").into()),
            }
        };
        let mut pieces = timeline.pieces();
        if pieces.is_empty() {
            pieces.push(timeline.clone());
        }
        Ok(Self {
            number,
            client,
            directive,
            names: HashMap::new(),
            pieces,
            here,
        })
    }

    /// How many iterations were recorded.
    pub fn iterations(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the daemon wants samples of this rank.
    pub fn is_asked(&self) -> bool {
        self.directive.period > 0 && !self.directive.pause
    }

    /// The first iteration that the daemon wants.
    pub fn first(&self) -> u64 {
        self.directive.first
    }

    /// How long a recorded iteration took: its mark, or its kernels.
    pub fn duration(&self, iteration: usize) -> Nanos {
        self.pieces.get(iteration).map_or(Nanos::ZERO, length)
    }

    /// First start to last end of all that was recorded.
    pub fn span(&self) -> Nanos {
        let starts = self.pieces.iter().filter_map(|piece| piece.kernels.first());
        let ends = self.pieces.iter().flat_map(|piece| &piece.kernels);
        let first = starts.map(|kernel| kernel.start).min();
        let last = ends.map(|kernel| kernel.end).max();
        first
            .zip(last)
            .map_or(Nanos::ZERO, |(first, last)| last - first)
    }

    /// Takes in what the daemon says.
    pub fn poll(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(message) = self.client.receive(Duration::ZERO)? {
            match message {
                ToHook::Directive(directive) => self.directive = directive,
                ToHook::Refusal(refusal) => {
                    return Err(format!("rank {}: {}", self.number, refusal.reason).into());
                }
                ToHook::Welcome(_) | ToHook::Unknown => {}
            }
        }
        Ok(())
    }

    /// Tells of a recorded iteration as number `number`; answers whether its kernels were asked
    /// for, and sent.
    pub fn tell(
        &mut self,
        number: u64,
        iteration: usize,
        duration: Nanos,
        shift: Nanos,
    ) -> Result<bool, Box<dyn Error>> {
        let profiled = self.directive.profiles(number);
        self.client.send(&FromHook::Tick(Tick {
            iteration: number,
            duration,
            profiled,
            overhead: Nanos::ZERO,
        }))?;
        if let (true, Some(piece)) = (profiled, self.pieces.get(iteration)) {
            let mut sample = sample_of(piece, &mut self.names, number, duration);
            tell_reach(&mut sample, piece, &self.here);
            for start in &mut sample.start {
                *start += shift;
            }
            self.client.send(&FromHook::Kernels(sample))?;
        }
        Ok(profiled)
    }

    /// Says goodbye.
    pub fn leave(mut self) {
        let reason = "the traces have been played".to_owned();
        // A daemon that is gone needs no goodbye.
        let _ = self.client.send(&FromHook::Bye(Bye { reason }));
    }
}

/// Says of each collective whether it leaves the node, where the trace tells its ranks.
fn tell_reach(sample: &mut Kernels, piece: &Timeline, here: &[u32]) {
    let collective = |kernel: &Kernel| piece.collectives.get(kernel.collective?.0.get() as usize);
    let told = piece.kernels.iter().map(collective);
    for (class, collective) in sample.class.iter_mut().zip(told) {
        if let (Class::Communication, Some(collective)) = (*class, collective) {
            *class = reach(collective, here);
        }
    }
}

fn reach(collective: &Collective, here: &[u32]) -> Class {
    let larger = |size: u32| size as usize > here.len();
    if collective.ranks.iter().any(|rank| !here.contains(rank)) {
        Class::CommunicationOutside
    } else if !collective.ranks.is_empty() {
        Class::CommunicationInside
    } else if collective.group_size.is_some_and(larger) {
        Class::CommunicationOutside
    } else {
        Class::Communication
    }
}

fn length(piece: &Timeline) -> Nanos {
    let marks = piece.iterations.iter();
    let marked = marks.map(|iteration| iteration.end - iteration.start).max();
    let first = piece.kernels.first().map(|kernel| kernel.start);
    let last = piece.kernels.iter().map(|kernel| kernel.end).max();
    let ran = first.zip(last).map(|(first, last)| last - first);
    marked.max(ran).unwrap_or_default()
}
