//! The plants of `lab/sim`.

use litd_policies::{Cpu, GpuReading, Limits, Node};
use litd_sim::{Limiter, Plant};
use litd_traces::limit_of;
use litd_units::{Millis, Watts};

use super::{Kernels, Ran, Span, Steered};
use crate::StudyError;
use crate::optimum::Outcome;

impl Steered for Plant {
    fn gpu_count(&self) -> usize {
        Plant::gpu_count(self)
    }

    fn node(&self) -> Node {
        let caps = self.cap_limits();
        let gpu = Limits {
            floor: caps.floor,
            ceiling: caps.tdp,
            resolution: caps.resolution,
        };
        let cpus = self.cpus().map(|cpu| Cpu {
            limits: Limits {
                floor: cpu.floor,
                ceiling: cpu.limit,
                resolution: caps.resolution,
            },
            draw: cpu.draw,
        });
        Node {
            gpus: vec![gpu; Plant::gpu_count(self)],
            cpus: cpus.collect(),
        }
    }

    fn range(&self) -> (Watts, Watts) {
        let limits = self.cap_limits();
        (limits.driver_min, limits.tdp)
    }

    fn kernels(&self) -> Kernels {
        let workload = self.workload();
        let named = |name: &String| (name.clone(), limit_of(name));
        Kernels {
            computation: workload.kernels.iter().map(|it| named(&it.name)).collect(),
            collectives: workload
                .collectives
                .iter()
                .map(|it| it.name.clone())
                .collect(),
        }
    }

    fn iterations(&self) -> u64 {
        u64::from(Plant::iterations(self))
    }

    fn iterate(&mut self) -> Ran {
        let time = self.run_iteration().length;
        let gpus = self.gpu_power();
        Ran {
            time,
            gpus,
            node: gpus + self.cpu_power(),
        }
    }

    fn spans(&self, rank: usize) -> (Vec<Span>, Vec<Span>) {
        let last = Plant::last(self);
        let pairs = last.start[rank].iter().zip(&last.duration[rank]);
        let collectives = last.collective_start[rank]
            .iter()
            .zip(&last.collective_end[rank]);
        (
            pairs.map(|(&start, &duration)| (start, duration)).collect(),
            collectives
                .map(|(&start, &end)| (start, end - start))
                .collect(),
        )
    }

    fn last(&self) -> Millis {
        Plant::last(self).length
    }

    fn readings(&mut self) -> Vec<GpuReading> {
        let gpus = self.gpus().map(|gpu| GpuReading {
            cap: gpu.cap,
            temperature: Some(gpu.temperature),
            slowdown: Some(gpu.slowdown),
            throttled: gpu.throttle.thermal || gpu.throttle.hardware,
            power_share: Some(if gpu.limiter == Limiter::Power {
                1.0
            } else {
                0.0
            }),
            power: Some(gpu.power),
            clock: Some(gpu.clock),
            ..GpuReading::default()
        });
        gpus.collect()
    }

    fn cap(&self, device: usize) -> Result<Watts, StudyError> {
        Ok(match device.checked_sub(Plant::gpu_count(self)) {
            None => self.gpu_cap(device)?,
            Some(cpu) => self.cpu_limit(cpu)?,
        })
    }

    fn set(&mut self, device: usize, cap: Watts) -> Result<(), StudyError> {
        let set = match device.checked_sub(Plant::gpu_count(self)) {
            None => self.set_gpu_cap(device, cap),
            Some(cpu) => self.set_cpu_limit(cpu, cap),
        };
        set.map(|_| ())
            .map_err(|error| StudyError::Write(format!("device {device}: {error}")))
    }

    fn settle(&mut self) {
        Plant::settle(self);
    }

    fn steady(&self, caps: &[Watts]) -> Result<Outcome, StudyError> {
        let mut plant = self.clone();
        for (gpu, &cap) in caps.iter().enumerate() {
            plant.set_gpu_cap(gpu, cap)?;
        }
        let steady = plant.steady_state();
        Ok(Outcome {
            time: steady.iteration,
            power: steady.gpu_power,
        })
    }
}
