//! A Perfetto file as rocprofv3 writes one of several GPUs: every kernel with all that it annotates.

use std::io::{self, Write};

/// GPUs, and streams on each: two of computation, one of collectives.
const GPUS: u64 = 8;
const STREAMS: u64 = 3;
/// What rocprofv3 annotates a kernel with, by interned number.
const ANNOTATIONS: [&str; 15] = [
    "begin_ns",
    "end_ns",
    "delta_ns",
    "kind",
    "agent",
    "corr_id",
    "queue",
    "tid",
    "kernel_id",
    "private_segment_size",
    "group_segment_size",
    "workgroup_size",
    "grid_size",
    "stream_ID",
    "agent_type",
];

/// Protocol buffers' wire format.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 127 {
            self.0.push(number as u8 | 128);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn block(self, field: u64, inner: Self) -> Self {
        self.bytes(field, &inner.0)
    }
}

/// A packet of sequence 1 that needs the sequence's state.
fn packet() -> Message {
    Message::default().number(10, 1).number(13, 2)
}

fn write(file: &mut impl Write, packet: Message) -> io::Result<u64> {
    let framed = Message::default().block(1, packet);
    file.write_all(&framed.0)?;
    Ok(framed.0.len() as u64)
}

fn uuid(gpu: u64, stream: u64) -> u64 {
    // A hash, as real ones are.
    (gpu * STREAMS + stream + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn names() -> Vec<String> {
    let name = |i: u64| match i % 4 {
        0 | 1 => format!(
            "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT{}x256x64_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM{i}_CLR1_CADS0_DTLA0_DTLB0_DTVA0_DTVB0_EPS0_FDSI0_GRPM1_GRVWA8_GRVWB8_GSU0_GSUAMB_ISA942",
            64 << (i % 3)
        ),
        2 => format!(
            "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::Functor{i}<float> >, std::array<char*, 3ul> >(int)"
        ),
        _ => format!("_fwd_kernel_rms_norm_{i}"),
    };
    (0..300).map(name).collect()
}

/// Begin and end of one kernel.
fn kernel(correlation: u64, place: [u64; 2], name: &str, start: u64, end: u64) -> [Message; 2] {
    let [gpu, stream] = place;
    let mut event = Message::default()
        .number(3, 1)
        .number(9, 1)
        .number(11, uuid(gpu, stream))
        .bytes(23, name.as_bytes());
    let agent = format!("Agent-{}", gpu + 2);
    for (id, called) in (1..).zip(ANNOTATIONS) {
        let value = Message::default().number(1, id);
        let value = match called {
            "begin_ns" => value.number(3, start),
            "end_ns" => value.number(3, end),
            "delta_ns" => value.number(3, end - start),
            "kind" => value.bytes(6, b"KERNEL_DISPATCH"),
            "agent" => value.bytes(6, agent.as_bytes()),
            "agent_type" => value.bytes(6, b"GPU"),
            "corr_id" => value.number(3, correlation),
            "stream_ID" => value.number(3, stream),
            "workgroup_size" => value.number(3, 256),
            "grid_size" => value.number(3, 1 << 20),
            "tid" => value.number(3, 1_234_567),
            _ => value.number(3, 1 + correlation % 100),
        };
        event = event.block(4, value);
    }
    let ended = Message::default()
        .number(9, 2)
        .number(11, uuid(gpu, stream));
    [
        packet().number(8, start).number(58, 6).block(11, event),
        packet().number(8, end).number(58, 6).block(11, ended),
    ]
}

/// Writes a file of `size` bytes or a little more: kernels of all GPUs and streams in turn, in the
/// order of time. The count of kernels.
pub(crate) fn write_trace(file: &mut impl Write, size: u64) -> io::Result<u64> {
    let entry = |id, name: &str| Message::default().number(1, id).bytes(2, name.as_bytes());
    let mut interned = Message::default().block(1, entry(1, "kernel_dispatch"));
    for (id, name) in (1..).zip(ANNOTATIONS) {
        interned = interned.block(3, entry(id, name));
    }
    let first = Message::default()
        .number(10, 1)
        .number(13, 1)
        .number(41, 1)
        .block(12, interned);
    let mut written = write(file, first)?;
    for (gpu, stream) in (0..GPUS).flat_map(|gpu| (0..STREAMS).map(move |stream| (gpu, stream))) {
        let track = Message::default()
            .number(1, uuid(gpu, stream))
            .bytes(2, format!("STREAM [{stream}]").as_bytes());
        written += write(file, packet().block(60, track))?;
    }
    let names = names();
    let mut free = [[100_000_000_000_000_u64; STREAMS as usize]; GPUS as usize];
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for count in 0.. {
        if written >= size {
            return Ok(count);
        }
        let (gpu, stream) = (count % GPUS, count / GPUS % STREAMS);
        let free = &mut free[gpu as usize][stream as usize];
        let start = *free + 500 + next(2_000);
        *free = start + 2_000 + next(90_000);
        // All GPUs run the same.
        let at = (count / GPUS % 1_000_003).wrapping_mul(7919) % names.len() as u64;
        let name = match (stream, at % 2) {
            (2, 0) => "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
            (2, _) => "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            _ => &names[at as usize],
        };
        for packet in kernel(count, [gpu, stream], name, start, *free) {
            written += write(file, packet)?;
        }
    }
    Ok(0)
}
