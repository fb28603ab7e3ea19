//! Calls by other NVML clients (a zeusd, an nvidia-smi) besides litd.

use std::path::Path;

use litd_power::Sharing;
use litd_rig::Fault;
use litd_rig_nvml::MIG_INSTANCES;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{
    Clock, ComputeMode, PerformanceState, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enums::device::GpuLockedClocksSetting;
use nvml_wrapper::error::NvmlError;

use crate::common::rig;

/// Another program with NVIDIA's library.
fn client(library: &Path) -> Nvml {
    let library = library.as_os_str();
    Nvml::builder().lib_path(library).init().unwrap()
}

#[test]
fn another_client_finds_what_it_asks_for() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    let open = || client(&library);
    let nvml = open();
    assert_eq!(nvml.sys_driver_version().unwrap(), "simulated 1");
    assert_eq!(nvml.sys_nvml_version().unwrap(), env!("CARGO_PKG_VERSION"));
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12_040);
    assert_eq!(nvml.device_count().unwrap(), 8);
    assert!(matches!(
        nvml.device_by_index(8),
        Err(NvmlError::InvalidArg)
    ));

    let mut gpu = nvml.device_by_uuid("GPU-simulated-2").unwrap();
    let pci = gpu.pci_info().unwrap();
    assert_eq!((pci.domain, pci.bus, pci.device), (0, 0x25, 0));
    assert_eq!(pci.bus_id, "00000000:25:00.0");
    assert_eq!((gpu.index().unwrap(), gpu.minor_number().unwrap()), (2, 2));
    let memory = gpu.memory_info().unwrap();
    assert_eq!(memory.total, memory.used + memory.free);
    assert_eq!(gpu.utilization_rates().unwrap().gpu, 100);
    assert_eq!(gpu.compute_mode().unwrap(), ComputeMode::Default);
    assert_eq!(gpu.performance_state().unwrap(), PerformanceState::Zero);
    assert_eq!(gpu.cuda_compute_capability().unwrap().major, 9);
    assert_eq!(gpu.supported_memory_clocks().unwrap(), [2619]);
    assert_eq!(gpu.max_clock_info(Clock::Graphics).unwrap(), 1980);
    assert_eq!(gpu.clock_info(Clock::Memory).unwrap(), 2619);
    let clocks = gpu.supported_graphics_clocks(2619).unwrap();
    assert_eq!((clocks[0], clocks[1]), (1980, 1965));
    let shutdown = gpu.temperature_threshold(TemperatureThreshold::Shutdown);
    assert!(shutdown.unwrap() > gpu.temperature(TemperatureSensor::Gpu).unwrap());

    gpu.set_mem_locked_clocks(2619, 2619).unwrap();
    gpu.set_gpu_locked_clocks(GpuLockedClocksSetting::Numeric {
        min_clock_mhz: 1000,
        max_clock_mhz: 1200,
    })
    .unwrap();
    gpu.set_persistent(false).unwrap();
    assert!(!gpu.is_in_persistent_mode().unwrap());
    let settings = rig.hardware().nvidia().gpus[2].clone();
    assert_eq!(settings.memory, Some((2619, 2619)));
    assert_eq!(settings.clocks, Some((1000, 1200)));
    gpu.reset_mem_locked_clocks().unwrap();
    gpu.reset_gpu_locked_clocks().unwrap();
    let settings = rig.hardware().nvidia().gpus[2].clone();
    assert_eq!((settings.clocks, settings.memory), (None, None));
    assert_eq!(settings.locks, [Some((1000, 1200)), None]);
    assert_eq!(settings.memory_locks, [Some((2619, 2619)), None]);

    // Sessions are counted: one user's end is not the other's.
    let second = open();
    drop(nvml);
    assert_eq!(second.device_count().unwrap(), 8);
    assert_eq!(rig.hardware().nvidia().sessions(), 1);
}

#[test]
fn instances_have_processes_and_no_settings() {
    let rig = rig();
    rig.hardware().identity_mut(0).unwrap().sharing = Sharing::Mig;
    let library = rig.install_nvml().unwrap();
    let nvml = Nvml::builder()
        .lib_path(library.as_os_str())
        .init()
        .unwrap();
    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.mig_device_count().unwrap(), MIG_INSTANCES);
    assert!(gpu.running_compute_processes().unwrap().is_empty());
    let mut instance = gpu.mig_device_by_index(0).unwrap();
    assert_eq!(instance.running_compute_processes().unwrap().len(), 1);
    assert!(matches!(
        instance.set_power_management_limit(600_000),
        Err(NvmlError::NotSupported)
    ));
    assert!(matches!(
        gpu.mig_device_by_index(1),
        Err(NvmlError::NotFound)
    ));
}

/// As with NVIDIA's: a driver that comes back is not seen by who has seen it go.
#[test]
fn a_gpu_that_was_lost_stays_lost_in_its_session() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    let open = || client(&library);
    let nvml = open();
    let gpu = nvml.device_by_index(0).unwrap();
    rig.hardware().inject(0, Fault::Gone);
    assert!(matches!(gpu.power_usage(), Err(NvmlError::GpuLost)));
    rig.hardware().heal(0);
    assert!(matches!(gpu.power_usage(), Err(NvmlError::GpuLost)));
    assert!(nvml.device_by_index(1).unwrap().power_usage().is_ok());
    drop(nvml);
    assert!(open().device_by_index(0).unwrap().power_usage().is_ok());
}
