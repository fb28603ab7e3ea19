//! A possible status: eight GPUs, two sockets, one job.

use litd_api::{
    BuildInfo, Counter, DeviceRole, DeviceState, DeviceStatus, Event, EventKind, GpusStatus,
    JobState, JobStatus, Limiter, Mode, NodeStatus, PlanStatus, RankStatus, Status, Totals,
};
use litd_units::{Celsius, Hertz, Millis, Watts};

const GPUS: u32 = 8;
const SOCKETS: u32 = 2;
const STRAGGLER: u32 = 4;

/// The PCI address of a GPU.
pub fn address(gpu: u32) -> String {
    format!("0000:{:02x}:00.0", 5 + gpu)
}

/// gpu4 is waited for, gpu5 is somebody else's, gpu6 is throttled, gpu7 can't follow its plan.
pub fn status() -> Status {
    let devices = (0..GPUS).map(gpu).chain((0..SOCKETS).map(socket));
    Status {
        build: BuildInfo {
            version: "0.1.0".into(),
            configuration: String::new(),
        },
        hostname: "node1".into(),
        uptime_seconds: 273_600.0,
        simulated: true,
        node: NodeStatus {
            mode: Mode::Steer,
            mode_reason: None,
            lease: None,
            policy: "gpu-realloc".into(),
            harm: None,
            yielded: false,
            unmanaged: Vec::new(),
            power: None,
            summary: "1 job, adjusting".into(),
        },
        gpus: GpusStatus {
            budget: Watts(5600.0),
            lent: Watts::ZERO,
            caps: Watts(5600.0),
            power: Some(Watts(5321.0)),
        },
        devices: devices.collect(),
        jobs: vec![job()],
        announced: Vec::new(),
        totals: Totals {
            errors: vec![Counter {
                kind: "driver".into(),
                backend: "nvml".into(),
                count: 3,
            }],
            ..Totals::default()
        },
    }
}

fn gpu(number: u32) -> DeviceStatus {
    let is_straggler = number == STRAGGLER;
    DeviceStatus {
        name: format!("gpu{number}"),
        address: address(number),
        uuid: None,
        serial: None,
        model: "Sample GPU".into(),
        backend: "nvml".into(),
        state: match number {
            5 => DeviceState::Foreign,
            _ => DeviceState::Ours,
        },
        opted_out: false,
        role: match number {
            STRAGGLER => DeviceRole::Straggler,
            0 => DeviceRole::Leader,
            _ => DeviceRole::Member,
        },
        job: Some("train".into()),
        found: Some(Watts(700.0)),
        cap: Some(Watts(if is_straggler { 740.0 } else { 680.0 })),
        in_force: None,
        floor: Watts(450.0),
        ceiling: Watts(750.0),
        power: Some(Watts(if is_straggler { 715.0 } else { 658.0 })),
        energy: None,
        temperature: Some(Celsius(if is_straggler { 81.0 } else { 64.0 })),
        clock: Some(Hertz(1.85e9)),
        power_limited: Some(true),
        why: "adjusting".to_owned(),
        limiter: match number {
            6 => Limiter::Heat,
            _ => Limiter::Power,
        },
        throttled: number == 6,
        ailing_since: None,
        needs_more_seconds: 0.0,
        lead: Some(Millis(if is_straggler {
            0.0
        } else {
            80.0 - f64::from(number)
        })),
        lead_per_kernel: Some(Millis(if is_straggler {
            0.0
        } else {
            8.0 - 0.1 * f64::from(number)
        })),
        busy: Some(0.98),
        plan: (number == 7).then_some(PlanStatus {
            locked: Some(Hertz(1.85e9)),
            needs: Some(Watts(512.0)),
            degree: 1.08,
        }),
    }
}

fn socket(number: u32) -> DeviceStatus {
    DeviceStatus {
        name: format!("cpu{number}"),
        address: format!("cpu{number}"),
        model: "Sample CPU".into(),
        backend: "powercap".into(),
        state: DeviceState::Ours,
        opted_out: false,
        role: DeviceRole::Host,
        job: None,
        cap: Some(Watts(350.0)),
        floor: Watts(200.0),
        ceiling: Watts(400.0),
        power: Some(Watts(210.0)),
        temperature: None,
        clock: None,
        limiter: Limiter::Unknown,
        throttled: false,
        lead: None,
        lead_per_kernel: None,
        busy: None,
        plan: None,
        ..gpu(0)
    }
}

fn job() -> JobStatus {
    let rank = |rank: u32| RankStatus {
        rank,
        device: address(rank),
        connected: rank != 7,
        iteration: 1234,
    };
    JobStatus {
        name: "train".into(),
        uid: 1000,
        state: JobState::Adjusting,
        why: "gpu4 +12 W: last in 94 % of kernels".into(),
        trial: None,
        ranks: (0..GPUS).map(rank).collect(),
        budget: Watts(5600.0),
        iteration_time: Some(Millis(512.3)),
        throughput: Some(1.95),
        adjustments: 4,
        samples: 30,
        bad_samples: 2,
        sampling_period: 10,
        measured: None,
        sampling_overhead: Some(0.004),
        iteration_histogram: vec![(Some(1.0), 1000), (None, 1234)],
        iteration_seconds_sum: 632.2,
    }
}

/// The first events of a daemon.
pub fn events(count: u64) -> Vec<Event> {
    let event = |seq| Event {
        seq,
        unix_seconds: 1.8e9 + seq as f64,
        kind: EventKind::Adjustment,
        warning: false,
        job: Some("train".into()),
        device: None,
        text: format!("event {seq}: gpu4 +12 W, last in 94 % of kernels"),
    };
    (1..=count).map(event).collect()
}
