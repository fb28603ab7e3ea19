//! All devices of the node, those that litd manages and those that it does not: their names, and the requests that go
//! to them.

use std::collections::{BTreeMap, BTreeSet};

use litd_api::Problem;
use litd_policies::GpuReading;
use litd_power::{DeviceKind, Operation, PowerError};
use litd_traces::Marks;
use litd_units::{Nanos, Watts};

use crate::authority::admin::problem;
use crate::devices::Unit;
use crate::event::{Device, DeviceId, Effect};
use crate::job::Job;
use crate::outbox::Outbox;

/// More than any present GPU takes. An unmanaged GPU counts with it where no GPU of the node has told its range.
const UNTOLD: Watts = Watts(1500.0);

/// All devices.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    units: Vec<Unit>,
    /// GPUs on the bus that litd does not manage, by address.
    unmanaged: BTreeSet<String>,
    /// GPUs that were litd's since the node booted and were not there when litd looked for devices, by address.
    gone: BTreeSet<String>,
}

impl Devices {
    pub fn new(inventory: Vec<Device>) -> Self {
        let unit = |device: Device| {
            let prefix = match device.identity.kind {
                DeviceKind::Gpu => "gpu",
                DeviceKind::Cpu => "cpu",
            };
            Unit::new(format!("{prefix}{}", device.number), device)
        };
        Self {
            units: inventory.into_iter().map(unit).collect(),
            unmanaged: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    /// These GPUs were litd's since the node booted, by address. Those that are litd's now are passed over.
    pub fn were_here(&mut self, addresses: impl IntoIterator<Item = String>) {
        self.gone = addresses.into_iter().collect();
    }

    pub fn get(&self, device: usize) -> Option<&Unit> {
        self.units.get(device)
    }

    pub fn get_mut(&mut self, device: usize) -> Option<&mut Unit> {
        self.units.get_mut(device)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &Unit)> {
        self.units.iter().enumerate()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Unit)> {
        self.units.iter_mut().enumerate()
    }

    pub fn gpus(&self) -> impl Iterator<Item = (usize, &Unit)> {
        self.iter().filter(|(_, unit)| unit.is_gpu())
    }

    pub fn cpus(&self) -> impl Iterator<Item = (usize, &Unit)> {
        self.iter().filter(|(_, unit)| !unit.is_gpu())
    }

    /// The device with this address or UUID.
    pub fn called(&self, name: &str) -> Option<usize> {
        let mut units = self.iter();
        units.find_map(|(device, unit)| unit.is_called(name).then_some(device))
    }

    /// The device with this address, UUID or short name.
    pub fn known_as(&self, name: &str) -> Option<usize> {
        let by_name = || self.units.iter().position(|unit| unit.name == name);
        self.called(name).or_else(by_name)
    }

    /// The GPU with a scheduler's number, if litd manages it: schedulers count all GPUs of the bus, also those
    /// that did not answer when litd looked for devices, and those that have fallen off it since the node booted.
    pub fn gpu_on_the_bus(&self, number: usize) -> Option<usize> {
        let ours = self.gpus();
        let ours = ours.map(|(device, unit)| (unit.address(), Some(device)));
        let others = self.unmanaged.iter().chain(&self.gone);
        let others = others.map(|it| (it.as_str(), None));
        // By address: litd's own numbers are in the order in which it has first seen the GPUs.
        let all: BTreeMap<&str, Option<usize>> = others.chain(ours).collect();
        all.into_values().nth(number).flatten()
    }

    /// These GPUs are on the bus and not managed, by address. Returns those of them that were not before.
    pub fn finds_unmanaged(&mut self, addresses: BTreeSet<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.unmanaged, addresses);
        self.unmanaged.difference(&before).cloned().collect()
    }

    /// The GPUs on the bus that litd does not manage, by address.
    pub fn unmanaged(&self) -> &BTreeSet<String> {
        &self.unmanaged
    }

    /// The watts that each unmanaged GPU may hold: as many as any GPU of the node takes, as far as drivers have told.
    pub fn most_of_any_gpu(&self) -> Watts {
        let ranges = self.gpus().map(|(_, unit)| unit.device.range.last());
        let highest = ranges.flatten().map(|range| range.highest);
        highest.reduce(Watts::max).unwrap_or(UNTOLD)
    }

    /// The watts that each unmanaged GPU may hold.
    pub fn each_unmanaged(&self) -> impl Iterator<Item = Watts> {
        let each = self.most_of_any_gpu();
        self.unmanaged.iter().map(move |_| each)
    }

    /// The job that uses a device.
    pub fn job_of(&self, device: usize) -> Option<String> {
        self.get(device)?.usage.job().map(str::to_owned)
    }

    /// Whether a device is doing nothing.
    pub fn is_free(&self, device: usize) -> bool {
        let free = |unit: &Unit| unit.answering.is_free() && !unit.readings.unbelieved.is_suspect();
        self.get(device).is_some_and(free)
    }

    /// Whether an administrator had a device released: its handles are to stay closed.
    pub fn is_released(&self, device: usize) -> bool {
        self.get(device)
            .is_some_and(|unit| unit.standing.let_go().is_some())
    }

    /// A released device whose cap could not be restored is tried once more: the other devices' caps are no longer
    /// in the way.
    pub fn try_once_more(&mut self) {
        for let_go in self
            .units
            .iter_mut()
            .filter_map(|unit| unit.standing.let_go_mut())
        {
            let_go.given_up = false;
        }
    }

    /// A device with a foreign cap that was not resumed, where `held` tells the cap that each device holds. One at its
    /// default counts as nobody's, as in `Core::foreign_change`: it takes its watts of the budget, and stops nobody's
    /// raises besides.
    pub fn foreign(&self, held: impl Fn(usize) -> Option<Watts>) -> Option<&Unit> {
        // What was found before says nothing of the foreign cap, unless a late write has replaced that one: then it is
        // the cap found, and is about to be restored.
        let theirs = |device: usize, unit: &Unit| match unit.standing.is_overwritten() {
            true => unit.found,
            false => held(device),
        };
        let at_default = |device: usize, unit: &Unit| {
            theirs(device, unit).is_some_and(|cap| unit.is_default(cap))
        };
        let mut foreign = self.iter().filter(|(_, unit)| unit.standing.is_foreign());
        let (_, unit) = foreign.find(|&(device, unit)| !at_default(device, unit))?;
        Some(unit)
    }

    /// Why no cap may rise, if a GPU can't be judged. Released GPUs don't count.
    pub fn unjudged(&self) -> Option<String> {
        let told = |unit: &Unit| unit.device.range.known().is_some();
        let judged = |unit: &Unit| told(unit) && unit.found.is_some();
        let mut units = self.gpus().map(|(_, unit)| unit);
        let unit = units.find(|unit| unit.standing.let_go().is_none() && !judged(unit))?;
        let what = match told(unit) {
            true => "no usable cap",
            false => "no usable range of caps",
        };
        Some(format!(
            "the driver of {0} reports {what}; `litctl release --gpu {0}` lets the others' caps rise",
            unit.name
        ))
    }

    /// Whether the hardware is a simulation.
    pub fn is_simulated(&self) -> bool {
        let simulated = |(_, unit): (usize, &Unit)| unit.backend() == "simulated";
        self.iter().any(simulated)
    }

    /// Whether all of a job's GPUs that litd may not steer were released: then its other devices keep their caps.
    pub fn lacks_let_go_only(&self, job: &Job) -> bool {
        let units = job.gpus().filter_map(|device| self.get(device));
        let mut others = units
            .filter(|unit| !unit.is_ours() || unit.usage.has_opted_out())
            .peekable();
        // If no GPU was released, something else keeps the job from being steered.
        others.peek().is_some() && others.all(|unit| unit.standing.let_go().is_some())
    }

    /// Whether this write is an administrator's.
    pub fn is_by_hand(&self, device: usize, cap: Watts) -> bool {
        let asked = self.get(device).and_then(|unit| unit.by_hand.asked());
        asked.is_some_and(|asked| asked.is_same_cap(cap))
    }

    /// Whether a write to the disk is tried again in a moment.
    pub fn waits_for_disk(&self) -> bool {
        self.units
            .iter()
            .any(|unit| unit.answering.retry_at().is_some())
    }

    /// The devices that a command names: this one, or all.
    pub fn named(&self, device: Option<&str>) -> Result<Vec<usize>, Problem> {
        let Some(name) = device else {
            return Ok(self.iter().map(|(device, _)| device).collect());
        };
        let device = self.known_as(name);
        device.map(|device| vec![device]).ok_or_else(|| {
            problem(format!(
                "there is no device {name:?}: `litctl status` lists them"
            ))
        })
    }

    /// What the law goes by of a GPU's readings.
    pub fn gpu_reading(&self, device: usize) -> GpuReading {
        let unit = self.get(device);
        let Some(reading) = unit.and_then(|unit| unit.readings.last()) else {
            return GpuReading {
                cap: Watts(f64::NAN),
                ..GpuReading::default()
            };
        };
        GpuReading {
            cap: reading.cap,
            temperature: reading.temperature,
            slowdown: reading.slowdown,
            throttled: unit.is_some_and(|unit| unit.readings.window().throttled()),
            power_share: unit.and_then(|unit| unit.readings.window().power_share()),
            power: unit
                .and_then(|unit| unit.readings.window().power())
                .or(reading.power),
            clock: reading.clock,
            // Leads from kernels, so no pace.
            pace: None,
            slowness: None,
            marks: Marks::default(),
            busy: None,
        }
    }

    /// Targets have changed, so devices that have refused writes are tried at once.
    pub fn try_refused(&mut self, now: Nanos) {
        for unit in &mut self.units {
            unit.answering.retries_now(now);
        }
    }

    /// Counts an error of a device's back end.
    pub fn count_error(&self, device: usize, error: &PowerError, out: &mut Outbox) {
        if let Some(unit) = self.get(device) {
            out.error(error.kind(), unit.backend());
        }
    }

    pub fn want_read(&mut self, device: usize) {
        if let Some(unit) = self.get_mut(device) {
            unit.answering.want_read();
        }
    }

    pub fn want_identity(&mut self, device: usize) {
        if let Some(unit) = self.get_mut(device) {
            unit.answering.want_identity();
        }
    }

    /// A device's range may have changed: the driver is asked, and nothing is written before it has answered.
    pub fn ask_anew(&mut self, device: usize) {
        if let Some(unit) = self.get_mut(device) {
            unit.device.range.ask_anew();
            unit.answering.want_identity();
        }
    }

    pub fn want_holders(&mut self, device: usize) {
        if let Some(unit) = self.get_mut(device) {
            unit.answering.want_holders();
        }
    }

    /// Closes a device if it is `open`, and drops every other request: asking would open it again.
    pub fn want_closed(&mut self, device: usize, open: bool) {
        if let Some(unit) = self.get_mut(device) {
            unit.answering.want_closed(open);
        }
    }

    /// Has a free device do an operation.
    pub fn begin(&mut self, device: usize, operation: Operation, now: Nanos, out: &mut Outbox) {
        if let Some(unit) = self.get_mut(device) {
            unit.answering.begins(operation, now);
            unit.clocks.had_turn = false;
            if let Some(let_go) = unit.standing.let_go_mut() {
                let_go.closed = None;
            }
            let device = DeviceId(device);
            out.push(Effect::Device { device, operation });
        }
    }

    /// Has all free devices do their next operations.
    pub fn begin_wanted(&mut self, now: Nanos, out: &mut Outbox) {
        for device in 0..self.units.len() {
            let unit = self.get_mut(device);
            if let Some(operation) = unit.and_then(|it| it.answering.take_wanted()) {
                self.begin(device, operation, now, out);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use litd_power::{CapRange, Identity, ReadBack, Sharing};

    use super::*;
    use crate::devices::range::Range;
    use crate::undo::by_hand::ByHand;

    /// A device that was not read yet, whose driver has told a range of 200 W to 700 W.
    pub(crate) fn device(kind: DeviceKind, address: &str) -> Device {
        let range = CapRange {
            lowest: Watts(200.0),
            highest: Watts(700.0),
            default: Watts(700.0),
            resolution: Watts(1.0),
        };
        Device {
            number: 0,
            identity: Identity {
                kind,
                address: address.to_owned(),
                uuid: (kind == DeviceKind::Gpu).then(|| format!("GPU-{address}")),
                serial: None,
                model: "model".to_owned(),
                driver: "driver".to_owned(),
                backend: "simulated".to_owned(),
                sharing: Sharing::default(),
                read_back: ReadBack::default(),
            },
            range: range.into(),
            reading: None,
        }
    }

    /// Two GPUs and a CPU socket, as discovery may tell them.
    pub(crate) fn node() -> Devices {
        Devices::new(vec![
            device(DeviceKind::Gpu, "0000:85:00.0"),
            device(DeviceKind::Cpu, "cpu0"),
            Device {
                number: 1,
                ..device(DeviceKind::Gpu, "0000:05:00.0")
            },
        ])
    }

    fn gpu(number: usize, address: &str) -> Device {
        Device {
            number,
            ..device(DeviceKind::Gpu, address)
        }
    }

    /// By the number by which schedulers count it, each GPU.
    fn numbered<const N: usize>(devices: &Devices) -> [Option<usize>; N] {
        std::array::from_fn(|number| devices.gpu_on_the_bus(number))
    }

    fn addresses(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|&address| address.to_owned()).collect()
    }

    #[test]
    fn a_device_is_known_by_address_uuid_and_short_name() {
        let devices = node();
        assert_eq!(devices.known_as("0000:05:00.0"), Some(2));
        assert_eq!(devices.known_as("gpu-0000:85:00.0"), Some(0));
        assert_eq!(devices.known_as("gpu1"), Some(2));
        assert_eq!(devices.known_as("cpu0"), Some(1));
        assert_eq!(devices.known_as("gpu2"), None);
        assert_eq!(devices.called("gpu1"), None);
    }

    #[test]
    fn schedulers_count_all_gpus_of_the_bus_by_address() {
        let mut devices = node();
        assert_eq!(numbered(&devices), [Some(2), Some(0), None]);
        devices.finds_unmanaged(addresses(&["0000:45:00.0"]));
        assert_eq!(numbered(&devices), [Some(2), None, Some(0)]);
        // Once litd manages it, it counts once.
        devices.finds_unmanaged(addresses(&["0000:05:00.0"]));
        assert_eq!(numbered(&devices), [Some(2), Some(0), None]);
    }

    /// A GPU has fallen off the bus and litd was started again: neither names nor schedulers' numbers move.
    #[test]
    fn a_gpu_that_is_gone_leaves_its_number() {
        let mut devices = Devices::new(vec![
            gpu(0, "0000:05:00.0"),
            gpu(2, "0000:85:00.0"),
            gpu(3, "0000:c5:00.0"),
        ]);
        let were = [
            "0000:05:00.0",
            "0000:26:00.0",
            "0000:85:00.0",
            "0000:c5:00.0",
        ];
        devices.were_here(were.map(str::to_owned));
        assert_eq!(devices.known_as("gpu2"), Some(1));
        assert_eq!(numbered(&devices), [Some(0), None, Some(1), Some(2)]);
        // One that did not answer at the first start, and has no number.
        devices.finds_unmanaged(addresses(&["0000:45:00.0"]));
        assert_eq!(devices.gpu_on_the_bus(4), Some(2));
    }

    /// The first GPU of the bus came up last, and so has the highest number; then the second one has fallen off.
    #[test]
    fn schedulers_numbers_go_by_the_bus_whatever_order_gpus_came_up_in() {
        let mut devices = Devices::new(vec![
            gpu(3, "0000:01:00.0"),
            gpu(1, "0000:03:00.0"),
            gpu(2, "0000:04:00.0"),
        ]);
        let were = [
            "0000:01:00.0",
            "0000:02:00.0",
            "0000:03:00.0",
            "0000:04:00.0",
        ];
        devices.were_here(were.map(str::to_owned));
        assert_eq!(numbered(&devices), [Some(0), None, Some(1), Some(2)]);
        // It is back on the bus, and not litd's yet.
        devices.finds_unmanaged(addresses(&["0000:02:00.0"]));
        assert_eq!(devices.gpu_on_the_bus(3), Some(2));
    }

    #[test]
    fn an_unmanaged_gpu_is_new_once() {
        let mut devices = node();
        assert_eq!(devices.finds_unmanaged(addresses(&["a", "b"])), ["a", "b"]);
        assert!(devices.finds_unmanaged(addresses(&["b"])).is_empty());
        assert_eq!(devices.finds_unmanaged(addresses(&["a", "b"])), ["a"]);
        assert_eq!(devices.unmanaged().len(), 2);
    }

    #[test]
    fn an_unmanaged_gpu_counts_as_the_largest_of_the_node() {
        let mut devices = node();
        assert_eq!(devices.most_of_any_gpu(), Watts(700.0));
        for device in [0, 2] {
            devices.get_mut(device).unwrap().device.range = Range::NEVER_TOLD;
        }
        assert_eq!(devices.most_of_any_gpu(), UNTOLD);
    }

    #[test]
    fn a_command_names_one_device_or_all() {
        let devices = node();
        assert_eq!(devices.named(None).unwrap(), [0, 1, 2]);
        assert_eq!(devices.named(Some("cpu0")).unwrap(), [1]);
        assert!(
            devices
                .named(Some("gpu7"))
                .unwrap_err()
                .error
                .contains("gpu7")
        );
    }

    #[test]
    fn a_foreign_cap_counts_as_somebodys_unless_it_is_the_default() {
        let mut devices = node();
        let named = |devices: &Devices, held: f64| {
            let unit = devices.foreign(|_| Some(Watts(held)));
            unit.map(|unit| unit.name.clone())
        };
        assert_eq!(named(&devices, 600.0), None);
        devices.get_mut(2).unwrap().standing.take();
        let gpu1 = Some("gpu1".to_owned());
        assert_eq!(devices.foreign(|_| None).map(|it| it.name.clone()), gpu1);
        // Whatever cap was found before.
        for found in [600.0, 700.0] {
            devices.get_mut(2).unwrap().found = Some(Watts(found));
            assert_eq!(named(&devices, 700.0), None);
            assert_eq!(named(&devices, 600.0), gpu1);
        }
        // A late write has put the default in place of the foreign cap, which is restored.
        let unit = devices.get_mut(2).unwrap();
        unit.found = Some(Watts(600.0));
        assert!(unit.standing.overwrite());
        assert_eq!(named(&devices, 700.0), gpu1);
    }

    #[test]
    fn a_gpu_that_is_not_judged_is_named_until_it_is_released() {
        let mut devices = node();
        for device in 0..2 {
            devices.get_mut(device).unwrap().found = Some(Watts(700.0));
        }
        let why = devices.unjudged().unwrap();
        assert!(why.contains("gpu1 reports no usable cap;"), "{why}");
        devices.get_mut(2).unwrap().device.range = Range::NEVER_TOLD;
        let why = devices.unjudged().unwrap();
        assert!(
            why.contains("gpu1 reports no usable range of caps;"),
            "{why}"
        );
        devices
            .get_mut(2)
            .unwrap()
            .standing
            .release(Nanos(0), false);
        assert_eq!(devices.unjudged(), None);
    }

    #[test]
    fn an_override_is_known_by_its_cap_while_it_is_under_way() {
        let mut devices = node();
        devices.get_mut(0).unwrap().by_hand = ByHand::Asked(Watts(600.0));
        assert!(devices.is_by_hand(0, Watts(600.0)));
        assert!(!devices.is_by_hand(0, Watts(601.0)) && !devices.is_by_hand(2, Watts(600.0)));
        let unit = devices.get_mut(0).unwrap();
        unit.by_hand.fail(Nanos(0), "no answer".to_owned());
        assert!(!devices.is_by_hand(0, Watts(600.0)));
    }

    #[test]
    fn a_device_does_one_operation_at_a_time() {
        let mut devices = node();
        let mut out = Outbox::new(Nanos(0), 0.0);
        devices.want_read(0);
        devices.want_identity(0);
        devices.begin_wanted(Nanos(0), &mut out);
        devices.begin_wanted(Nanos(1), &mut out);
        let begun = out.take();
        assert!(matches!(
            &begun[..],
            [Effect::Device {
                device: DeviceId(0),
                ..
            }]
        ));
        assert!(!devices.get(0).unwrap().answering.is_free());
    }
}
