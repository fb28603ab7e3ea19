//! A job whose kernels are made up: which GPU is the straggler is this benchmark's choice.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use litd_proto::client::Client;
use litd_proto::{Class, FromHook, Hello, Kernels, PROTOCOL, Tick, ToHook, frame};
use litd_rig::{Rig, gpu_address};
use litd_units::Nanos;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub const RANKS: usize = 8;
pub const KERNELS: usize = 10_000;
const NAMES: usize = 100;
/// Kernels of a layer.
const LAYER: usize = 10;
/// How long a collective takes once all ranks are in it, in nanoseconds.
const TRANSFER: i64 = 2_000;

/// How long a daemon may take to write, if it is to write: on a busy machine much longer than its limit.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long all writes of an adjustment may take after the first, and more than an iteration: one that
/// began before its caps were written would not count.
const WRITTEN: Duration = Duration::from_millis(100);
/// What an iteration takes, in nanoseconds.
const ITERATION: i64 = 50_000_000;

pub struct Training {
    ranks: Vec<Client>,
    iteration: u64,
    names_sent: bool,
}

impl Training {
    /// One rank per GPU, welcomed.
    pub fn attach(rig: &Rig) -> Result<Self> {
        let rank = |rank: usize| {
            let mut client = Client::connect(&rig.layout().ingest())?;
            client.send(&FromHook::Hello(hello(rank)))?;
            match client.receive(Duration::from_secs(10))? {
                Some(ToHook::Welcome(_)) => Ok(client),
                other => Err(format!("rank {rank} is not welcomed but told {other:?}").into()),
            }
        };
        let ranks = (0..RANKS).map(rank).collect::<Result<_>>()?;
        // The caps of the start are written.
        sleep(Duration::from_secs(1));
        Ok(Self {
            ranks,
            iteration: 0,
            names_sent: false,
        })
    }

    /// Sends one profiled iteration, the last rank's part after `pause`. Answers how long after
    /// that part's last byte the first cap was written; `None` if none was.
    pub fn sample(&mut self, rig: &Rig, pause: Duration) -> Result<Option<Duration>> {
        // Readings follow the caps.
        rig.hardware().run_iteration();
        self.iteration += 1;
        // Each in its turn: what one gains in its own sample it gives back in the others', so that no
        // cap comes to its limit.
        let straggler = 3 * self.iteration as usize % RANKS;
        let mut frames = Vec::new();
        for rank in 0..RANKS {
            let kernels = self.kernels(rank, rank == straggler);
            let mut bytes = Vec::new();
            frame::write(&mut bytes, &FromHook::Kernels(kernels).encode())?;
            frames.push(bytes);
        }
        self.names_sent = true;
        let before = rig.ledger().len();
        // The last one is not always the same: neither the straggler nor the first known.
        for (place, rank) in (0..RANKS).map(|k| (k, (k + self.iteration as usize) % RANKS)) {
            if place == RANKS - 1 {
                sleep(pause);
            }
            self.ranks[rank].send_bytes(&frames[rank])?;
        }
        let sent = rig.ledger().now();
        let written = first_write(rig, before);
        sleep(WRITTEN);
        self.drain()?;
        Ok(written.map(|at| Duration::from_nanos(u64::try_from((at - sent).0).unwrap_or(0))))
    }

    /// Sends ticks of all ranks for so long, evenly. Answers how many, and how long it took.
    pub fn tick(&mut self, per_second: u32, time: Duration) -> Result<(u32, Duration)> {
        let rounds = (f64::from(per_second) * time.as_secs_f64()) as u32 / RANKS as u32;
        let start = Instant::now();
        for round in 0..rounds {
            let due = time * round / rounds;
            sleep(due.saturating_sub(start.elapsed()));
            self.iteration += 1;
            let tick = FromHook::Tick(Tick {
                iteration: self.iteration,
                duration: Nanos(time.as_nanos() as i64 / i64::from(rounds)),
                profiled: false,
                overhead: Nanos::ZERO,
            });
            for rank in &mut self.ranks {
                rank.send(&tick)?;
            }
        }
        let took = start.elapsed();
        self.drain()?;
        Ok((rounds * RANKS as u32, took))
    }

    /// Reads what litd has said, as hooks do.
    fn drain(&mut self) -> Result<()> {
        for rank in &mut self.ranks {
            while let Some(told) = rank.receive(Duration::ZERO)? {
                if let ToHook::Refusal(refusal) = told {
                    return Err(format!("refused: {}", refusal.reason).into());
                }
            }
        }
        Ok(())
    }

    /// Layers of kernels on a stream for computation and one for collectives. A late rank has a slow
    /// clock: what computes takes 2 % longer, what memory bounds does not, and all ranks wait for
    /// it in each layer's collective. No queue is ever empty.
    fn kernels(&self, rank: usize, late: bool) -> Kernels {
        let noise = |k: usize, rank: usize| {
            ((k * 7919 + rank * 104_729 + self.iteration as usize * 31) % 997) as i64
        };
        let mut kernels = Kernels {
            iteration: self.iteration,
            duration: Nanos(ITERATION),
            new_names: if self.names_sent { Vec::new() } else { names() },
            ..Kernels::default()
        };
        let mut layer = 1_000_000_000_000 + self.iteration as i64 * ITERATION;
        let (mut start, mut last) = (layer, layer);
        for k in 0..KERNELS {
            let place = k % LAYER;
            let usual = 4_000 + noise(k, 0) % 100;
            let slow = match is_compute_bound(k) {
                true => usual + usual / 50,
                false => usual,
            };
            // When the rank that comes last begins the collective.
            last += slow + 10;
            let (stream, class, duration) = match place == LAYER - 1 {
                true => (20, Class::Communication, last + TRANSFER - start),
                false if late => (7, Class::Computation, slow + noise(k, rank) % 10),
                false => (7, Class::Computation, usual + noise(k, rank) % 10),
            };
            kernels.name.push((k % NAMES) as u32);
            kernels.stream.push(stream);
            kernels.class.push(class);
            kernels.start.push(Nanos(start));
            kernels.duration_of.push(Nanos(duration));
            start += duration;
            if place == LAYER - 1 {
                layer = last + TRANSFER;
                (start, last) = (layer, layer);
            }
        }
        kernels
    }
}

/// Of a layer's kernels the last is a collective, and most are bound by the clock.
fn is_compute_bound(k: usize) -> bool {
    k % LAYER < 6
}

fn hello(rank: usize) -> Hello {
    let ranks = RANKS as u32;
    Hello {
        protocol: PROTOCOL,
        job: "footprint".to_owned(),
        rank: rank as u32,
        local_rank: rank as u32,
        world_size: ranks,
        local_world_size: ranks,
        gpu: gpu_address(rank),
        framework: "simulated".to_owned(),
        versions: Default::default(),
        group: String::new(),
    }
}

/// As long as real ones.
fn names() -> Vec<String> {
    let tail = "<float, at::native::(anonymous namespace)::Functor>".repeat(2);
    let name = |k: usize| match k % LAYER {
        9 => format!(
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)_{k}"
        ),
        _ if is_compute_bound(k) => format!(
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_{k}"
        ),
        _ => format!(
            "void at::native::elementwise_kernel_{k}{tail}(int, at::native::TensorIteratorBase&)"
        ),
    };
    (0..NAMES).map(name).collect()
}

/// When the first cap after `before` entries was written, on the ledger's clock.
fn first_write(rig: &Rig, before: usize) -> Option<Nanos> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        // Its core is the daemon's as well.
        sleep(Duration::from_millis(10));
        if let Some(entry) = rig.ledger().entries().get(before) {
            return Some(entry.at);
        }
    }
    None
}
