//! AMD's compute driver: its topology of the node, and the processes that compute
//! (drivers/gpu/drm/amd/amdkfd/kfd_topology.c, kfd_process.c).

use std::collections::BTreeSet;

use litd_rig::{Hardware, gpu_address};

use crate::amdgpu::{render_minor, unique_id};
use crate::board::Device;
use crate::tree::Directory;

const CLASS: &str = "devices/virtual/kfd/kfd";

/// Puts it there. CPU sockets come first in the topology.
pub(crate) fn add(sys: &mut Directory, hardware: &Hardware, gpus: &[Device], cpus: usize) {
    sys.link("class/kfd/kfd", &format!("../../{CLASS}"));
    sys.directory(&format!("{CLASS}/proc"));
    for node in 0..cpus {
        let text = "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\ndomain 0";
        add_node(sys, node, 0, "", text);
    }
    let mut processes = BTreeSet::<u32>::new();
    for gpu in gpus {
        let text = format!(
            "cpu_cores_count 0\nsimd_count 1216\nsimd_arrays_per_engine 1\narray_count 32\n\
             cu_per_simd_array 10\nlocation_id {}\ndomain {}\nunique_id {}\nhive_id 77\n\
             drm_render_minor {}\nnum_xcc 8",
            location(gpu),
            domain(gpu),
            unique_id(gpu),
            render_minor(gpu),
        );
        if !gpu.is_gone(hardware) {
            add_node(sys, cpus + gpu.number, id(gpu), "gfx942", &text);
        }
        processes.extend(hardware.holders(gpu.index).iter());
    }
    for process in processes {
        add_process(sys, hardware, gpus, process);
    }
}

/// The driver's own number of a GPU.
fn id(gpu: &Device) -> usize {
    1000 + gpu.number
}

/// Bus, device and function, in one number.
fn location(gpu: &Device) -> u32 {
    let address = gpu_address(gpu.number);
    let bus = address.get(5..7).unwrap_or_default();
    u32::from_str_radix(bus, 16).unwrap_or_default() << 8
}

fn domain(gpu: &Device) -> u32 {
    let address = gpu_address(gpu.number);
    let domain = address.get(..4).unwrap_or_default();
    u32::from_str_radix(domain, 16).unwrap_or_default()
}

fn add_node(sys: &mut Directory, node: usize, id: usize, name: &str, properties: &str) {
    let path = format!("{CLASS}/topology/nodes/{node}");
    let texts = [
        ("gpu_id", id.to_string()),
        ("name", name.to_owned()),
        ("properties", properties.to_owned()),
    ];
    for (file, text) in texts {
        sys.texts(&path, &[(file, &text)]);
    }
    sys.directory(&format!("{path}/io_links"));
}

/// The driver makes files for all GPUs once a process has opened it; memory and queues tell on
/// which the process computes.
fn add_process(sys: &mut Directory, hardware: &Hardware, gpus: &[Device], process: u32) {
    let path = format!("{CLASS}/proc/{process}");
    sys.texts(&path, &[("pasid", "32770")]);
    sys.directory(&format!("{path}/queues"));
    for gpu in gpus.iter().filter(|gpu| !gpu.is_gone(hardware)) {
        let held = hardware.holders(gpu.index).contains(&process);
        let id = id(gpu);
        let memory = if held { "8589934592" } else { "0" };
        sys.texts(
            &path,
            &[
                (&format!("vram_{id}"), memory),
                (&format!("sdma_{id}"), "0"),
            ],
        );
        if held {
            let queue = format!("{path}/queues/{}", gpu.number);
            let files = [
                ("gpuid", id.to_string().as_str()),
                ("size", "4096"),
                ("type", "0"),
            ]
            .map(|(name, text)| (name, text.to_owned()));
            for (name, text) in files {
                sys.texts(&queue, &[(name, &text)]);
            }
        }
    }
}
