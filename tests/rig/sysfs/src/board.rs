//! The drivers of a made-up node, and the contents of its `/sys` and `/dev`.

use litd_rig::{Fault, Hardware};
use litd_units::{Joules, Watts};

use crate::cpu::Register;
use crate::levels::Level;
use crate::tree::Directory;
use crate::{amdgpu, cpu, hsmp, kfd};

/// An MI300X.
pub const MI300X: &str = "0x74a1";

/// An MI210.
pub const MI210: &str = "0x740f";

/// An MI250, a card of which has two dies; its GPUs here are first ones.
pub const MI250: &str = "0x740c";

/// The parts of the node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Board {
    /// Whether its GPUs are AMD's. Else `/sys` says nothing about them.
    pub amdgpu: bool,
    /// The GPUs' model, as the PCI bus numbers it.
    pub model: &'static str,
    /// The format of the GPUs' `gpu_metrics`.
    pub metrics: Metrics,
    /// How the CPU sockets' power is capped.
    pub cpus: Cpus,
    /// The first value of the sockets' `energy_uj`, for tests of its overflow.
    pub energy: Joules,
}

impl Default for Board {
    /// An MI300X node: amdgpu, and EPYC sockets behind a kernel with HSMP's hwmon.
    fn default() -> Self {
        Self {
            amdgpu: true,
            model: MI300X,
            metrics: Metrics::V1_6,
            cpus: Cpus::HsmpHwmon,
            energy: Joules::ZERO,
        }
    }
}

/// A version of the table `gpu_metrics` (kgd_pp_interface.h), and what else goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metrics {
    /// MI200: bits for what throttles, and `power1_average`.
    V1_3,
    /// MI300X: residencies of what throttles, and no average.
    V1_6,
}

/// How CPU sockets are capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    /// Not at all.
    None,
    /// Intel: powercap, in units of 1/8 W.
    Powercap,
    /// AMD: a hwmon per socket, in milliwatts.
    HsmpHwmon,
    /// AMD on older kernels: `/dev/hsmp` alone.
    HsmpDevice,
}

impl Board {
    /// The unit in which its CPU limits are kept.
    pub(crate) fn cpu_resolution(self) -> Watts {
        match self.cpus {
            Cpus::None => Watts(1.0),
            Cpus::Powercap => Watts(0.125),
            Cpus::HsmpHwmon | Cpus::HsmpDevice => Watts(0.001),
        }
    }

    /// The file system's contents now: `sys` and `dev`.
    pub(crate) fn tree(
        self,
        hardware: &Hardware,
        short_term: &[Register],
        levels: &[Level],
    ) -> Directory {
        let mut root = Directory::default();
        root.directory("dev");
        let sys = root.directory("sys");
        for class in ["drm", "hwmon", "kfd", "powercap"] {
            sys.directory(&format!("class/{class}"));
        }
        others(sys);
        let present = |device: &Device| !device.is_gone(hardware);
        let (gpus, cpus) = devices(hardware);
        if self.amdgpu {
            for (gpu, level) in gpus.iter().zip(levels).filter(|(gpu, _)| present(gpu)) {
                amdgpu::add(sys, hardware, gpu, self, level);
            }
            kfd::add(sys, hardware, &gpus, cpus.len());
        }
        for socket in cpus.iter().filter(|socket| present(socket)) {
            match self.cpus {
                Cpus::None => {}
                Cpus::Powercap => {
                    let register = short_term.get(socket.number);
                    cpu::add(sys, hardware, socket, self.energy, register);
                }
                Cpus::HsmpHwmon => {
                    cpu::add(sys, hardware, socket, self.energy, None);
                    hsmp::add_hwmon(sys, hardware, socket, gpus.len());
                }
                Cpus::HsmpDevice => cpu::add(sys, hardware, socket, self.energy, None),
            }
        }
        if self.cpus == Cpus::HsmpDevice {
            hsmp::add_device(root.directory("dev"), hardware, cpus);
        }
        root
    }
}

/// Entries of every node that drivers must leave alone: the management controller's screen, and a temperature
/// sensor.
fn others(sys: &mut Directory) {
    const SCREEN: &str = "devices/pci0000:00/0000:00:02.0";
    sys.texts(
        SCREEN,
        &[
            ("vendor", "0x1a03"),
            ("device", "0x2000"),
            ("class", "0x030000"),
        ],
    );
    let card = format!("{SCREEN}/drm/card0");
    sys.link(&format!("{card}/device"), "../../../0000:00:02.0");
    sys.directory(&format!("{card}/card0-VGA-1"));
    sys.link("class/drm/card0", &format!("../../{card}"));
    sys.link(
        "class/drm/card0-VGA-1",
        &format!("../../{card}/card0-VGA-1"),
    );
    sys.texts("class/drm", &[("version", "drm 1.1.0 20060810")]);
    let sensor = "devices/pci0000:00/0000:00:18.3/hwmon/hwmon0";
    sys.texts(sensor, &[("name", "k10temp"), ("temp1_input", "45250")]);
    sys.link("class/hwmon/hwmon0", &format!("../../{sensor}"));
}

/// A device of the rig as a driver has bound it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device {
    /// The device's number in the rig's hardware.
    pub index: usize,
    /// The device's number among those of its kind.
    pub number: usize,
    /// How often its driver was loaded anew.
    pub generation: u64,
}

impl Device {
    fn new(hardware: &Hardware, index: usize, number: usize) -> Self {
        Self {
            index,
            number,
            generation: hardware.generation(index),
        }
    }

    /// Whether the device, or this driver of it, is not there any more.
    pub fn is_gone(&self, hardware: &Hardware) -> bool {
        hardware.fault(self.index) == Some(Fault::Gone)
            || hardware.generation(self.index) != self.generation
    }

    /// The mode of its settings.
    pub fn writable(&self, hardware: &Hardware) -> u16 {
        match hardware.fault(self.index) {
            Some(Fault::NoPermission) => 0o444,
            _ => 0o644,
        }
    }
}

/// GPUs and CPU sockets.
fn devices(hardware: &Hardware) -> (Vec<Device>, Vec<Device>) {
    let gpus = hardware.plant().gpu_count();
    let device = |index: usize| Device::new(hardware, index, index % gpus.max(1));
    let cpu = |index: usize| Device::new(hardware, index, index - gpus);
    (
        (0..gpus).map(device).collect(),
        (gpus..hardware.len()).map(cpu).collect(),
    )
}
