//! Executes the programs of all ranks, and records what a profiler would have.

use std::collections::{HashMap, VecDeque};

use litd_traces::{Collective, CollectiveId, Iteration, Kernel, KernelClass, NonMax, Timeline};
use litd_units::{Millis, Nanos};

use super::Run;
use super::program::{Exchange, Op};
use crate::record::EPOCH;

/// The streams of computation, collectives, sends and receives.
const STREAMS: [&str; 4] = ["7", "20", "24", "28"];
/// From the end of one kernel to the start of the next, in milliseconds.
const GAP: f64 = 0.001;

/// A rank on its way through its program.
#[derive(Default)]
struct Walk {
    /// The next step, and when the rank gets there.
    next: usize,
    now: f64,
    /// When its last send has ended; not known while it waits for its receiver.
    sends_end: Option<f64>,
    /// When it reached the collective or the receive that it waits for.
    waiting: bool,
}

/// The state of one iteration.
struct State<'a> {
    programs: &'a [Vec<Op>],
    walks: Vec<Walk>,
    /// Sends that no receive has met: when each was issued. By sender and receiver.
    posted: HashMap<(usize, usize), VecDeque<f64>>,
    /// By rank: step, stream, start and end.
    ran: Vec<Vec<Ran>>,
}

/// A step of a rank's program that has run.
struct Ran {
    step: usize,
    stream: usize,
    start: f64,
    end: f64,
}

pub(super) fn timelines(
    programs: &[Vec<Op>],
    run: &Run<'_>,
    factors: &mut dyn FnMut(usize, u32) -> Vec<f64>,
) -> Vec<Timeline> {
    let mut recorders = (0..programs.len()).map(|rank| Recorder::new(rank, programs.len()));
    let mut recorders = Vec::from_iter(recorders.by_ref());
    let mut begins = vec![0.0; programs.len()];
    for number in 0..run.iterations {
        let factors = (0..programs.len()).map(|rank| factors(rank, number));
        let factors = Vec::from_iter(factors);
        let mut state = State {
            programs,
            walks: begins
                .iter()
                .map(|&now| Walk {
                    now,
                    sends_end: Some(now),
                    ..Walk::default()
                })
                .collect(),
            posted: HashMap::new(),
            ran: programs.iter().map(|_| Vec::new()).collect(),
        };
        while state.step_all(run.speeds, &factors) {}
        for (rank, recorder) in recorders.iter_mut().enumerate() {
            let begin = begins[rank];
            begins[rank] = state.walks[rank].now;
            recorder.record(
                &programs[rank],
                &state.ran[rank],
                (begin, begins[rank]),
                number,
            );
        }
    }
    let timelines = recorders.into_iter().map(|mut recorder| {
        recorder.timeline.sort();
        recorder.timeline
    });
    timelines.collect()
}

impl State<'_> {
    /// Lets each rank go on as far as it can; whether any could.
    fn step_all(&mut self, speeds: &[f64], factors: &[Vec<f64>]) -> bool {
        let mut any = false;
        for rank in 0..self.walks.len() {
            while self.step(rank, speeds, factors) {
                any = true;
            }
        }
        any
    }

    fn step(&mut self, rank: usize, speeds: &[f64], factors: &[Vec<f64>]) -> bool {
        let step = self.walks[rank].next;
        let Some(op) = self.programs[rank].get(step) else {
            return false;
        };
        match op {
            Op::Compute {
                work, clock_bound, ..
            } => {
                let slower = clock_bound / speeds[rank] + 1.0 - clock_bound;
                let time = work * slower * factors[rank][step];
                let start = self.walks[rank].now;
                self.end(rank, 0, (start, start + time));
                true
            }
            Op::Collective(exchange) => self.collective(rank, exchange),
            Op::Send { to, .. } => {
                let now = self.walks[rank].now;
                self.posted.entry((rank, *to)).or_default().push_back(now);
                self.walks[rank].next += 1;
                true
            }
            Op::Receive { from, pair } => self.receive(rank, *from, pair),
        }
    }

    /// A rank's next step is done.
    fn end(&mut self, rank: usize, stream: usize, (start, end): (f64, f64)) {
        let walk = &mut self.walks[rank];
        let step = walk.next;
        walk.next += 1;
        walk.now = end + GAP;
        walk.waiting = false;
        self.ran[rank].push(Ran {
            step,
            stream,
            start,
            end,
        });
    }

    fn collective(&mut self, rank: usize, exchange: &Exchange) -> bool {
        if self.walks[rank].waiting {
            return false;
        }
        self.walks[rank].waiting = true;
        // The whole group waits at this very collective: a rank waits for one thing at a time.
        let here = |&other: &usize| {
            let walk = &self.walks[other];
            walk.waiting
                && self.programs[other].get(walk.next) == Some(&Op::Collective(exchange.clone()))
        };
        if !exchange.ranks.iter().all(here) {
            return true;
        }
        let arrivals = exchange.ranks.iter().map(|&other| self.walks[other].now);
        let end = arrivals.fold(0.0, f64::max) + exchange.transfer;
        for &other in &exchange.ranks {
            let start = self.walks[other].now;
            self.end(other, 1, (start, end));
        }
        true
    }

    fn receive(&mut self, rank: usize, from: usize, pair: &Exchange) -> bool {
        let posted = self.posted.get_mut(&(from, rank));
        let Some(issued) = posted.and_then(VecDeque::pop_front) else {
            return false;
        };
        let start = self.walks[rank].now;
        let sends_end = self.walks[from].sends_end.unwrap_or(0.0);
        let sent = issued.max(sends_end);
        let end = start.max(sent) + pair.transfer;
        self.walks[from].sends_end = Some(end);
        let step = self.step_of_send(from, rank);
        self.ran[from].push(Ran {
            step,
            stream: 2,
            start: sent,
            end,
        });
        self.end(rank, 3, (start, end));
        true
    }

    /// The step of the first send from one rank to another that has not been recorded.
    fn step_of_send(&self, from: usize, to: usize) -> usize {
        let sends = self.programs[from].iter().enumerate();
        let sends =
            sends.filter(|(_, op)| matches!(op, Op::Send { to: other, .. } if *other == to));
        let done = self.ran[from].iter();
        let is_one = |ran: &&Ran| matches!(&self.programs[from][ran.step], Op::Send { to: other, .. } if *other == to);
        let done = done.filter(is_one).count();
        sends.map(|(step, _)| step).nth(done).unwrap_or_default()
    }
}

/// Makes a rank's timeline.
struct Recorder {
    timeline: Timeline,
    /// How many collectives of each process group there were.
    sequences: HashMap<String, u64>,
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

impl Recorder {
    fn new(rank: usize, ranks: usize) -> Self {
        let mut timeline = Timeline::new(number(rank), "simulated");
        timeline.simulated = true;
        timeline.world_size = Some(number(ranks));
        for stream in STREAMS {
            timeline.stream(stream);
        }
        Self {
            timeline,
            sequences: HashMap::new(),
        }
    }

    fn record(&mut self, program: &[Op], ran: &[Ran], (begin, end): (f64, f64), iteration: u32) {
        let at = |time: f64| EPOCH + Millis(time).to_nanos();
        for ran in ran {
            let (name, exchange, peer) = match &program[ran.step] {
                Op::Compute { name, .. } => (*name, None, None),
                Op::Collective(exchange) => (exchange.kernel, Some(exchange), None),
                Op::Send { to, pair } => (pair.kernel, Some(pair), Some(*to)),
                Op::Receive { from, pair } => (pair.kernel, Some(pair), Some(*from)),
            };
            let collective = exchange.and_then(|exchange| self.told(exchange, peer));
            let timeline = &mut self.timeline;
            let kernel = Kernel {
                name: timeline.names.intern(name),
                stream: timeline.stream(STREAMS[ran.stream]),
                class: match exchange {
                    Some(_) => KernelClass::Communication,
                    None => KernelClass::Computation,
                },
                start: at(ran.start),
                end: at(ran.end),
                collective,
                iteration: NonMax::new(iteration),
            };
            timeline.kernels.push(kernel);
        }
        self.timeline.iterations.push(Iteration {
            number: iteration,
            start: at(begin),
            end: at(end) - Nanos(1),
        });
    }

    /// Arguments that PyTorch's profiler records of a transfer.
    fn told(&mut self, exchange: &Exchange, peer: Option<usize>) -> Option<CollectiveId> {
        let ranks = Vec::from_iter(exchange.ranks.iter().map(|&rank| number(rank)));
        // Process groups of one kind are told apart by their first ranks.
        let name = format!(
            "{}{}",
            exchange.description,
            ranks.first().copied().unwrap_or_default()
        );
        let sequence = self.sequences.entry(name.clone()).or_default();
        *sequence += 1;
        self.timeline.collectives.push(Collective {
            name: Some(exchange.name.into()),
            in_elements: Some(exchange.elements),
            out_elements: Some(exchange.elements),
            group_size: Some(number(ranks.len())),
            dtype: Some("BFloat16".into()),
            process_group: Some(name.into()),
            description: Some(exchange.description.into()),
            peer: peer.map(number),
            sequence: peer.is_none().then_some(*sequence),
            ranks: ranks.into(),
        });
        let last = u32::try_from(self.timeline.collectives.len() - 1).ok()?;
        NonMax::new(last).map(CollectiveId)
    }
}
