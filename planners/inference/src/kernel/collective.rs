//! Collectives: a protocol for small messages whose latency is all, one for large ones that fills the
//! links, and an engine's own all-reduce. Where tables are, they are interpolated instead (section 3.3).

use super::constants::CollectiveConstants;
use super::{Collective, Kernel, Library, Work};
use crate::gpu::{Gpu, Topology};

/// The least time of a launch from Python, ms; tables of eager launches start at this.
const EAGER: f64 = 0.044;
/// Above this NCCL takes over from an engine's own all-reduce, bytes per rank.
const CUSTOM_MOST: f64 = 8e6;

pub(super) fn work(
    gpu: &Gpu,
    constants: &CollectiveConstants,
    kernel: &Kernel,
    sms: Option<u32>,
) -> Work {
    let Kernel::Collective {
        collective,
        library,
        gpus,
        per_node,
        bytes,
    } = *kernel
    else {
        return super::attention::NOTHING;
    };
    let ranks = gpus.clamp(1.0, 1e6);
    let per_node = per_node.clamp(1.0, ranks);
    let bytes = bytes.max(0.0);
    // The part of the buffer that each rank sends, as in a ring; NCCL defines bus bandwidth by the same.
    let part = (ranks - 1.0) / ranks;
    let wire = bytes
        * match collective {
            Collective::AllReduce => 2.0 * part,
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => part,
        };
    let exchanges = match collective {
        Collective::AllReduce => 2.0,
        _ => 1.0,
    };
    let link = gpu.link_among(per_node as u32) * 1e-3;
    // Multiprocessors that are not given to it do not fill links.
    let filled = sms.map_or(1.0, |sms| {
        let sms = f64::from(sms.max(1));
        sms / (sms + constants.sms)
    });
    let pcie = match gpu.topology {
        Topology::Pcie => 2.0,
        Topology::Mesh | Topology::Switch => 1.0,
    };
    let fast = link * filled;
    let launch = constants.launch * pcie + constants.rank * (ranks - 1.0) * exchanges;
    let small = launch * 1e-3 + wire / (fast * constants.small);
    let large = (launch + constants.large * exchanges) * 1e-3 + wire / (fast * constants.bandwidth);
    let nccl = small.min(large);
    let nodes = (ranks / per_node).ceil();
    let inside = match library {
        Library::Nccl => nccl,
        Library::Custom | Library::CustomEager if bytes <= CUSTOM_MOST => {
            let first = (constants.custom + 0.1 * (ranks - 2.0).max(0.0)) * 1e-3;
            nccl.min(first + wire / (fast * constants.custom_bandwidth))
        }
        Library::Custom | Library::CustomEager => nccl,
    };
    let inside = match library {
        Library::CustomEager => inside.max(EAGER),
        Library::Nccl | Library::Custom => inside,
    };
    // Between nodes a node's GPUs send side by side.
    let between = match nodes > 1.0 {
        true => {
            let across = exchanges * bytes * (nodes - 1.0) / nodes / per_node;
            constants.node * (nodes - 1.0) * exchanges * 1e-3 + across / (constants.between * 1e6)
        }
        false => 0.0,
    };
    Work {
        latency: inside + between,
        clocked: 0.0,
        flops: 0.0,
        bytes: wire,
        peaks: [gpu.peak_16, link * 1e3],
    }
}
