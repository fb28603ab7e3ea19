//! The metrics of each exporter: the names of dcgm-exporter (etc/default-counters.csv and DCGM's
//! field identifiers), of AMD's device-metrics-exporter (docs/configuration/metricslist.md; some
//! sites prefix amd_), and of litd (src/metrics.rs).

use litd_api::Limiter;
use litd_estimate::Quantity;

/// The meaning of a series' values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Says {
    /// A quantity, after multiplication by this.
    Number(Quantity, f64),
    /// The highest cap that a GPU can be given.
    HighestCap,
    /// NVML's clocks event reasons.
    Mask,
    /// A share of time in which this limits the GPU, in per cent.
    Percent(Limiter),
    /// A counter of time in which this limits the GPU, in micro- or nanoseconds: DCGM's documentation and its
    /// exporter's have both.
    Counter(Limiter),
    /// The limiter is in the label of this name, at the series that is 1.
    OneOf(&'static str),
}

/// A metric of an exporter.
pub struct Metric {
    pub says: Says,
    /// Names, the best first.
    pub names: &'static [&'static str],
    /// Labels that the series must have, besides the user's.
    pub having: &'static str,
}

/// An exporter.
pub struct Exporter {
    pub name: &'static str,
    /// The labels that name the node and the GPU, the best first. The exporter's own are written before
    /// Prometheus's.
    pub node: &'static [&'static str],
    pub gpu: &'static [&'static str],
    pub metrics: &'static [Metric],
}

const fn metric(says: Says, names: &'static [&'static str]) -> Metric {
    Metric {
        says,
        names,
        having: "",
    }
}

const fn having(says: Says, names: &'static [&'static str], having: &'static str) -> Metric {
    Metric {
        says,
        names,
        having,
    }
}

const GPU: &str = r#"kind="gpu""#;

/// The exporter that is litd.
pub const LITD: &str = "litd";

/// All known exporters.
pub const EXPORTERS: [Exporter; 3] = [
    Exporter {
        name: "dcgm-exporter",
        node: &["Hostname", "hostname", "node", "instance"],
        gpu: &["UUID", "uuid", "gpu", "device"],
        metrics: &[
            metric(
                Says::Number(Quantity::Power, 1.0),
                &["DCGM_FI_DEV_POWER_USAGE"],
            ),
            metric(
                Says::Number(Quantity::Clock, 1.0),
                &["DCGM_FI_DEV_SM_CLOCK"],
            ),
            metric(
                Says::Number(Quantity::Temperature, 1.0),
                &["DCGM_FI_DEV_GPU_TEMP"],
            ),
            metric(
                Says::Number(Quantity::Cap, 1.0),
                &[
                    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
                    "DCGM_FI_DEV_POWER_MGMT_LIMIT",
                ],
            ),
            metric(Says::HighestCap, &["DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX"]),
            metric(
                Says::Mask,
                &[
                    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
                    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
                ],
            ),
            metric(
                Says::Counter(Limiter::Power),
                &["DCGM_FI_DEV_POWER_VIOLATION"],
            ),
            metric(
                Says::Counter(Limiter::Heat),
                &["DCGM_FI_DEV_THERMAL_VIOLATION"],
            ),
        ],
    },
    Exporter {
        name: "AMD device-metrics-exporter",
        node: &["hostname", "Hostname", "node", "instance"],
        gpu: &["serial_number", "gpu_uuid", "gpu_id"],
        metrics: &[
            metric(
                Says::Number(Quantity::Power, 1.0),
                &[
                    "gpu_package_power",
                    "amd_gpu_package_power",
                    "gpu_average_package_power",
                    "amd_gpu_average_package_power",
                    "gpu_power_usage",
                    "amd_gpu_power_usage",
                ],
            ),
            having(
                Says::Number(Quantity::Clock, 1.0),
                &["gpu_clock", "amd_gpu_clock"],
                r#"clock_type=~"(?i).*system""#,
            ),
            metric(
                Says::Number(Quantity::Temperature, 1.0),
                &[
                    "gpu_junction_temperature",
                    "amd_gpu_junction_temperature",
                    "gpu_edge_temperature",
                    "amd_gpu_edge_temperature",
                ],
            ),
            metric(
                Says::Percent(Limiter::Power),
                &[
                    "gpu_violation_ppt_residency_percentage",
                    "amd_gpu_violation_ppt_residency_percentage",
                ],
            ),
            metric(
                Says::Percent(Limiter::Heat),
                &[
                    "gpu_violation_socket_thermal_residency_percentage",
                    "amd_gpu_violation_socket_thermal_residency_percentage",
                ],
            ),
            metric(
                Says::Percent(Limiter::Regulator),
                &[
                    "gpu_violation_vr_thermal_residency_percentage",
                    "amd_gpu_violation_vr_thermal_residency_percentage",
                ],
            ),
            metric(
                Says::Percent(Limiter::Memory),
                &[
                    "gpu_violation_hbm_thermal_residency_percentage",
                    "amd_gpu_violation_hbm_thermal_residency_percentage",
                ],
            ),
        ],
    },
    Exporter {
        name: LITD,
        node: &["instance"],
        gpu: &["device"],
        metrics: &[
            having(
                Says::Number(Quantity::Power, 1.0),
                &["litd_device_power_watts"],
                GPU,
            ),
            having(
                Says::Number(Quantity::Clock, 1e-6),
                &["litd_device_clock_hertz"],
                GPU,
            ),
            having(
                Says::Number(Quantity::Temperature, 1.0),
                &["litd_device_temperature_celsius"],
                GPU,
            ),
            having(
                Says::Number(Quantity::Cap, 1.0),
                &["litd_device_cap_watts"],
                GPU,
            ),
            having(Says::HighestCap, &["litd_device_ceiling_watts"], GPU),
            having(Says::OneOf("limiter"), &["litd_device_limiter"], GPU),
        ],
    },
];

/// 1 where litd's hardware is a simulation.
pub const SIMULATED: &str = "litd_simulated";

/// All names, as a regular expression.
pub fn all_names() -> String {
    let metrics = EXPORTERS.iter().flat_map(|it| it.metrics);
    let names = metrics.flat_map(|it| it.names.iter().copied());
    Vec::from_iter(names.chain([SIMULATED])).join("|")
}
