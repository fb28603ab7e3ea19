//! GPUs as the driver amdgpu shows them (drivers/gpu/drm/amd/pm/amdgpu_pm.c).

use litd_power::{CapRange, Reading, Sharing};
use litd_rig::{Hardware, gpu_address};
use litd_units::{Kelvins, Watts};
use nix::errno::Errno;

use crate::board::{Board, Device, Metrics};
use crate::levels::{self, Level};
use crate::metrics;
use crate::tree::{Attribute, Directory, errno, parse};

/// The first GPU's card; card 0 is the management controller's.
const FIRST_CARD: usize = 1;
/// The cards of a second compute partition begin here.
const SECOND_PARTITION: usize = 64;
/// The first GPU's hwmon; hwmon 0 is somebody else's.
const FIRST_HWMON: usize = 1;
/// The kernel gives a driver that is loaded anew the next free number.
const NEXT_HWMON: u64 = 32;

/// How much cooler the memory is than the junction.
const MEMORY: Kelvins = Kelvins(5.0);
/// The GPU stops to save itself so far above its slowdown temperature.
const EMERGENCY: Kelvins = Kelvins(5.0);

/// The hwmon of a device's driver: `base` at first.
pub(crate) fn hwmon(base: usize, device: &Device) -> String {
    format!("hwmon{}", base as u64 + NEXT_HWMON * device.generation)
}

/// How many hwmons there are before the first that is not a GPU's.
pub(crate) fn hwmons(gpus: usize) -> usize {
    FIRST_HWMON + gpus
}

/// `unique_id`: a GPU's serial number, as the topology has it too.
pub(crate) fn unique_id(gpu: &Device) -> u64 {
    0x51_3d00_0000_0000 + gpu.number as u64
}

/// Puts a GPU there.
pub(crate) fn add(
    sys: &mut Directory,
    hardware: &Hardware,
    gpu: &Device,
    board: Board,
    level: &Level,
) {
    let table = board.metrics;
    let address = gpu_address(gpu.number);
    let device = format!("devices/pci0000:00/{address}");
    let sharing = hardware
        .listed(gpu.index)
        .map_or(Sharing::Whole, |listed| listed.identity.sharing);
    let partition = match sharing {
        Sharing::Partitioned => "CPX",
        _ => "SPX",
    };
    sys.texts(
        &device,
        &[
            ("vendor", "0x1002"),
            ("device", board.model),
            ("subsystem_vendor", "0x1002"),
            ("subsystem_device", "0x74a1"),
            ("class", "0x120000"),
            ("revision", "0x00"),
            ("numa_node", "0"),
            ("unique_id", &format!("{:016x}", unique_id(gpu))),
            ("serial_number", &format!("SIM{:05}", gpu.number)),
            ("product_name", "simulated MI300X"),
            ("product_number", "SIM-MI300X"),
            ("vbios_version", "113-SIMULATED-001"),
            ("current_compute_partition", partition),
            ("current_memory_partition", "NPS1"),
            ("pp_dpm_sclk", "0: 132Mhz\n1: 1200Mhz *\n2: 2100Mhz"),
            ("pp_dpm_mclk", "0: 900Mhz\n1: 1300Mhz *"),
        ],
    );
    sys.link(
        &format!("{device}/driver"),
        "../../../bus/pci/drivers/amdgpu",
    );
    sys.link(
        &format!("bus/pci/devices/{address}"),
        &format!("../../../{device}"),
    );
    sys.link(
        &format!("bus/pci/drivers/amdgpu/{address}"),
        &format!("../../../../{device}"),
    );
    sys.texts("module/amdgpu", &[("version", "6.12.12-simulated")]);
    let gpu = *gpu;
    let mut file = |name: &str, attribute: Attribute| {
        sys.file(&format!("{device}/{name}"), attribute);
    };
    file(
        "gpu_busy_percent",
        Attribute::number(gpu, move |hardware| reading(hardware, gpu).map(|_| 99)),
    );
    file(
        "gpu_metrics",
        Attribute::show(gpu, move |hardware| {
            let reading = reading(hardware, gpu)?;
            Ok(metrics::table(
                table,
                &reading,
                &hardware.residency(gpu.index),
            ))
        }),
    );
    let mut cards = vec![FIRST_CARD + gpu.number];
    if sharing == Sharing::Partitioned {
        cards.push(SECOND_PARTITION + gpu.number);
    }
    for card in cards {
        let path = format!("{device}/drm/card{card}");
        sys.link(&format!("{path}/device"), &format!("../../../{address}"));
        sys.texts(&path, &[("dev", &format!("226:{card}"))]);
        sys.link(&format!("class/drm/card{card}"), &format!("../../{path}"));
    }
    let render = format!("renderD{}", render_minor(&gpu));
    let path = format!("{device}/drm/{render}");
    sys.link(&format!("{path}/device"), &format!("../../../{address}"));
    sys.link(&format!("class/drm/{render}"), &format!("../../{path}"));
    add_hwmon(sys, hardware, gpu, &device, table);
    levels::add(sys, hardware, gpu, &device, level);
}

/// The number of a GPU's render node.
pub(crate) fn render_minor(gpu: &Device) -> usize {
    128 + gpu.number
}

fn add_hwmon(sys: &mut Directory, hardware: &Hardware, gpu: Device, device: &str, table: Metrics) {
    let name = hwmon(FIRST_HWMON + gpu.number, &gpu);
    let path = format!("{device}/hwmon/{name}");
    sys.link(&format!("class/hwmon/{name}"), &format!("../../{path}"));
    let back = format!("../../../{}", gpu_address(gpu.number));
    sys.link(&format!("{path}/device"), &back);
    sys.texts(
        &path,
        &[
            ("name", "amdgpu"),
            ("power1_label", "PPT"),
            ("temp2_label", "junction"),
            ("temp3_label", "mem"),
            ("freq1_label", "sclk"),
            ("in0_label", "vddgfx"),
            ("in0_input", "800"),
        ],
    );
    let mut sensor = |name: &str, value: fn(&Reading) -> Option<f64>| {
        let attribute = Attribute::number(gpu, move |hardware| {
            let value = value(&reading(hardware, gpu)?).ok_or(Errno::EOPNOTSUPP)?;
            Ok(value.round() as u64)
        });
        sys.file(&format!("{path}/{name}"), attribute);
    };
    sensor("power1_input", micro);
    if table == Metrics::V1_3 {
        sensor("power1_average", micro);
    }
    sensor("freq1_input", |reading| Some(reading.clock?.0));
    sensor("temp2_input", |reading| Some(reading.temperature?.0 * 1e3));
    sensor("temp2_crit", |reading| Some(reading.slowdown?.0 * 1e3));
    sensor("temp2_emergency", |reading| {
        Some((reading.slowdown? + EMERGENCY).0 * 1e3)
    });
    sensor("temp3_input", |reading| {
        Some((reading.temperature? - MEMORY).0 * 1e3)
    });
    sensor("temp3_crit", |reading| Some(reading.slowdown?.0 * 1e3));
    for (name, of) in [
        (
            "power1_cap_min",
            (|range| range.lowest) as fn(CapRange) -> Watts,
        ),
        ("power1_cap_max", |range| range.highest),
        ("power1_cap_default", |range| range.default),
    ] {
        let attribute =
            Attribute::number(gpu, move |hardware| Ok(whole(of(range(hardware, gpu)?))));
        sys.file(&format!("{path}/{name}"), attribute);
    }
    let cap = Attribute::number(gpu, move |hardware| Ok(whole(reading(hardware, gpu)?.cap)));
    let cap = cap.store(gpu.writable(hardware), move |hardware, data| {
        store_cap(hardware, gpu, data)
    });
    sys.file(&format!("{path}/power1_cap"), cap);
}

/// `power1_cap`: microwatts of which the driver sees whole watts, in 32 bits; 0 keeps the cap.
fn store_cap(hardware: &mut Hardware, gpu: Device, data: &[u8]) -> Result<(), Errno> {
    let microwatts = u32::try_from(parse(data)?).map_err(|_| Errno::ERANGE)?;
    let watts = match microwatts / 1_000_000 {
        0 => reading(hardware, gpu)?.cap,
        watts => Watts(f64::from(watts)),
    };
    let result = hardware.set_cap(gpu.index, watts);
    // A virtual function has no say: EINVAL.
    result.map_err(|refused| errno(&refused, Errno::EINVAL, Errno::EPERM))
}

fn micro(reading: &Reading) -> Option<f64> {
    Some(reading.power?.0 * 1e6)
}

/// Whole watts, in microwatts.
fn whole(power: Watts) -> u64 {
    power.0 as u64 * 1_000_000
}

/// The driver's reading, if there is one: during a reset there is none (EPERM).
fn reading(hardware: &Hardware, gpu: Device) -> Result<Reading, Errno> {
    answers(hardware, gpu)?;
    hardware.reading(gpu.index).ok_or(Errno::ENODEV)
}

fn range(hardware: &Hardware, gpu: Device) -> Result<CapRange, Errno> {
    answers(hardware, gpu)?;
    let listed = hardware.listed(gpu.index).ok_or(Errno::ENODEV)?;
    Ok(listed.range)
}

fn answers(hardware: &Hardware, gpu: Device) -> Result<(), Errno> {
    let reachable = hardware.reachable(gpu.index);
    reachable.map_err(|refused| errno(&refused, Errno::EINVAL, Errno::EPERM))
}
