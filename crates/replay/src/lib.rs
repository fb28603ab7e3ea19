//! Recorded ranks, played to litd's ingest socket as if the job ran: each connects as its hook would, tells
//! of every recorded iteration in the time that it took, and sends the kernels of those that litd asks for.

mod rank;
mod sample;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub use litd_proto::client::ClientError;
use litd_traces::Timeline;
use litd_units::{Nanos, count};

use rank::Rank;
pub use sample::sample_of;

/// How long the daemon may take to let all ranks in and to ask for samples.
const SOON: Duration = Duration::from_secs(30);

/// How often is looked.
const POLL: Duration = Duration::from_millis(5);

/// The job: all its ranks.
pub struct Job {
    ranks: Vec<Rank>,
}

impl Job {
    /// Connects all ranks, and waits until the daemon asks for samples.
    ///
    /// # Errors
    /// As many GPUs are not named, the daemon refuses a rank or asks for nothing; in words.
    pub fn attach(
        socket: &Path,
        job: &str,
        timelines: Vec<Timeline>,
        gpus: &[String],
    ) -> Result<Self, Box<dyn Error>> {
        if gpus.len() != timelines.len() {
            let ranks = count(timelines.len(), "rank");
            return Err(format!("--gpus names {} for {ranks}", count(gpus.len(), "GPU")).into());
        }
        let deadline = Instant::now() + SOON;
        let here = u32::try_from(gpus.len())?;
        let largest = timelines.iter().map(|timeline| timeline.rank + 1).max();
        let told = timelines.iter().filter_map(|timeline| timeline.world_size);
        let world = told.chain(largest).max().unwrap_or(here).max(here);
        let mut ranks = Vec::new();
        let played: Arc<[u32]> = timelines.iter().map(|timeline| timeline.rank).collect();
        for (local, (timeline, gpu)) in (0..).zip(timelines.into_iter().zip(gpus)) {
            let hello = rank::hello(job, &timeline, (local, here, world), gpu);
            let here = played.clone();
            ranks.push(Rank::connect(socket, hello, &timeline, here, deadline)?);
        }
        let mut job = Self { ranks };
        while !job.ranks.iter().all(Rank::is_asked) {
            if Instant::now() > deadline {
                return Err(
                    "the daemon asks for no samples: is its mode off, or does it wait \
                            for other ranks?"
                        .into(),
                );
            }
            thread::sleep(POLL);
            job.poll()?;
        }
        Ok(job)
    }

    /// Plays all iterations so many times, in the time that they took, each with its load on the
    /// GPUs; answers how many were told of, and how many asked for.
    ///
    /// # Errors
    /// The daemon refuses or is gone.
    pub fn play(&mut self, times: u32, load: impl Fn()) -> Result<(u64, u64), Box<dyn Error>> {
        let recorded = self.ranks.iter().map(Rank::iterations).min().unwrap_or(0);
        let span = self.ranks.iter().map(Rank::span).max().unwrap_or_default();
        // The first iteration played is one that is asked for.
        let first = self.ranks.iter().map(Rank::first).max().unwrap_or(0);
        let (mut told, mut sampled) = (0, 0);
        for round in 0..times {
            let shift = Nanos(span.0.saturating_mul(i64::from(round)));
            for iteration in 0..recorded {
                self.poll()?;
                load();
                let lasts = self.ranks.iter().map(|rank| rank.duration(iteration));
                let duration = lasts.max().unwrap_or_default();
                thread::sleep(Duration::from_nanos(u64::try_from(duration.0).unwrap_or(0)));
                let mut asked = true;
                for rank in &mut self.ranks {
                    asked &= rank.tell(first + told, iteration, duration, shift)?;
                }
                told += 1;
                sampled += u64::from(asked);
            }
        }
        Ok((told, sampled))
    }

    fn poll(&mut self) -> Result<(), Box<dyn Error>> {
        self.ranks.iter_mut().try_for_each(|rank| rank.poll())
    }

    /// Ends the job: all ranks say goodbye.
    pub fn leave(self) {
        self.ranks.into_iter().for_each(Rank::leave);
    }
}
