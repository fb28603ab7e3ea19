//! A status to count.

use litd_api::Status;
use serde_json::{Value, json};

fn device(index: usize, role: &str) -> Value {
    let n = index as f64;
    json!({
        "name": format!("gpu{index}"), "address": format!("0000:{:02x}:00.0", 5 + index),
        "model": "Simulated GPU", "uuid": format!("GPU-{index}"),
        "serial": format!("SN{index}"), "backend": "sim", "state": "litd", "role": role, "job": "llama",
        "found": 700.0, "cap": 650.0 + n, "in_force": 650.0 + n, "floor": 200.0, "ceiling": 750.0,
        "power": 640.5 - n, "energy": 1.5e7 + n, "temperature": 71.25 + n, "clock": 1.755e9,
        "power_limited": true, "throttled": false, "lead": 12.5 * n, "busy": 0.875,
        "plan": {"locked": 1.41e9, "needs": 512.5, "degree": 1.0 + n / 10.0},
    })
}

/// A node where all is well: two GPUs of one job, and a CPU socket.
pub fn status() -> Status {
    let host = json!({
        "name": "cpu0", "address": "cpu0", "model": "Simulated CPU", "backend": "sim",
        "state": "litd", "role": "host", "floor": 100.0, "ceiling": 400.0, "throttled": false,
    });
    let job = json!({
        "name": "llama", "uid": 1000, "state": "adjusting", "why": "gpu1 waits",
        "ranks": [
            {"rank": 0, "device": "0000:05:00.0", "connected": true, "iteration": 41},
            {"rank": 1, "device": "0000:06:00.0", "connected": true, "iteration": 41},
        ],
        "budget": 1301.0, "iteration_time": 512.5, "throughput": 1.95, "adjustments": 3,
        "samples": 12, "bad_samples": 1, "sampling_period": 20, "sampling_overhead": 0.004,
        "iteration_histogram": [[0.1, 0], [0.5, 30], [1.0, 41], [null, 42]],
        "iteration_seconds_sum": 24.75,
    });
    serde_json::from_value(json!({
        "build": {"version": "0.1.0", "configuration": "00c0ffee00c0ffee"}, "uptime_seconds": 100.5, "simulated": true,
        "node": {
            "mode": "on", "policy": "gpu-realloc", "summary": "steering",
            "lease": {"controller": "fleet", "remaining_seconds": 42.5},
        },
        "gpus": {"budget": 1400.0, "caps": 1301.0, "power": 1280.0},
        "devices": [device(0, "straggler"), device(1, "leader"), host],
        "jobs": [job],
        "totals": {
            "writes": 8, "adjustments": 4, "frames": 900, "ticks": 1000,
            "errors": [{"kind": "permission", "backend": "sim", "count": 0}],
            "refused": [{"kind": "not_a_holder", "backend": "", "count": 0}],
        },
    }))
    .expect("the sample is a status")
}
