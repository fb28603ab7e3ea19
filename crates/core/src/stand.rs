//! A node for tests of core's rules: GPUs that do at once what they are asked.

use litd_api::{Command, Done, Problem};
use litd_power::{DeviceKind, Handles, PowerError, Reading};
use litd_units::{Nanos, Watts};

use crate::devices::Unit;
use crate::devices::all::tests::device;
use crate::{Config, Core, Device, DeviceId, Effect, Event, MemoryStore, Operation, Reply};

/// GPUs of 200 W to 700 W, and litd.
pub(crate) struct Stand {
    pub core: Core<MemoryStore>,
    /// What each GPU tells.
    pub gpus: Vec<Reading>,
    /// GPUs whose drivers refuse every write.
    pub refuse: Vec<usize>,
    /// The GPUs and the caps that they were told to hold, in order.
    pub writes: Vec<(usize, f64)>,
    second: i64,
}

impl Stand {
    /// litd has just started on GPUs with these caps.
    pub fn new(config: Config, caps: &[f64]) -> Self {
        Self::after(config, caps, MemoryStore::default(), 0)
    }

    /// The same with what an earlier litd has left on disk, at this second.
    pub fn after(config: Config, caps: &[f64], store: MemoryStore, second: i64) -> Self {
        let reading = |&cap: &f64| Reading {
            cap: Watts(cap),
            power: Some(Watts(100.0)),
            ..Reading::default()
        };
        let gpus: Vec<Reading> = caps.iter().map(reading).collect();
        let inventory = gpus.iter().enumerate().map(|(number, &reading)| Device {
            number,
            reading: Some(reading),
            ..device(DeviceKind::Gpu, &address(number))
        });
        let now = Nanos(second * 1_000_000_000);
        let core = Core::new(config, inventory.collect(), store, "boot", now, 0.0).unwrap();
        Self {
            core,
            gpus,
            refuse: Vec::new(),
            writes: Vec::new(),
            second,
        }
    }

    pub fn pass(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.second += 1;
            self.tell(Event::Time);
        }
    }

    /// An event happens, and the GPUs do what follows from it.
    pub fn tell(&mut self, event: Event<'_>) {
        let now = Nanos(self.second * 1_000_000_000);
        self.core.handle(now, event);
        self.act();
    }

    pub fn command(&mut self, command: Command) -> Result<Done, Problem> {
        let now = Nanos(self.second * 1_000_000_000);
        let done = self.core.command(now, 0, command);
        self.act();
        done
    }

    pub fn has_budget(&mut self, watts: f64) {
        let watts = Some(Watts(watts));
        self.command(Command::SetBudget { watts }).unwrap();
        self.pass(2);
    }

    pub fn release(&mut self, gpu: usize) {
        let device = Some(address(gpu));
        self.command(Command::Release { device }).unwrap();
    }

    fn act(&mut self) {
        let now = Nanos(self.second * 1_000_000_000);
        loop {
            let effects = self.core.effects().into_iter();
            let asked = effects.filter_map(|effect| match effect {
                Effect::Device { device, operation } => Some((device, operation)),
                _ => None,
            });
            let asked: Vec<(DeviceId, Operation)> = asked.collect();
            if asked.is_empty() {
                return;
            }
            for (device, operation) in asked {
                let reply = self.does(device.0, operation);
                self.core.handle(now, Event::Device { device, reply });
            }
        }
    }

    fn does(&mut self, gpu: usize, operation: Operation) -> Reply {
        match operation {
            Operation::Read => Reply::Read(Ok(self.gpus[gpu])),
            Operation::Set(cap) => {
                self.writes.push((gpu, cap.0));
                if self.refuse.contains(&gpu) {
                    return Reply::Set(Err(PowerError::Driver {
                        device: address(gpu),
                        action: "setting the cap",
                        cause: "refused".to_owned(),
                    }));
                }
                self.gpus[gpu].cap = cap;
                Reply::Set(Ok(cap))
            }
            Operation::Holders => Reply::Holders(Ok(Vec::new())),
            Operation::Release => Reply::Released(Handles::Closed),
            Operation::Identify => {
                let device = device(DeviceKind::Gpu, &address(gpu));
                let range = device.range.known().unwrap();
                Reply::Identity(Ok((device.identity, range)))
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// The caps that the GPUs hold.
    pub fn caps(&self) -> Vec<f64> {
        self.gpus.iter().map(|gpu| gpu.cap.0).collect()
    }

    pub fn unit(&self, gpu: usize) -> &Unit {
        self.core.devices.get(gpu).unwrap()
    }
}

/// The address of a GPU.
pub(crate) fn address(gpu: usize) -> String {
    format!("0000:{gpu:02}:00.0")
}
