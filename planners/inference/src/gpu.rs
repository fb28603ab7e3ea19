//! GPUs from public specifications. A description holds only what a data sheet tells and what follows
//! from the architecture; constants that measurements set are in [`crate::kernel::Constants`].

use litd_units::{Hertz, Watts};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a node's GPUs reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// A switch: any two GPUs have the whole bandwidth between them.
    Switch,
    /// A link between each two of eight GPUs: fewer GPUs use fewer links.
    Mesh,
    /// The host's PCIe.
    Pcie,
}

/// The generation, where efficiency at sustained load differs by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// NVIDIA compute capability 8.0 and 8.6.
    Ampere,
    /// NVIDIA compute capability 8.9.
    Ada,
    /// NVIDIA compute capability 9.0.
    Hopper,
    /// NVIDIA compute capability 10.0 and later.
    Blackwell,
    /// AMD CDNA 3 and 4.
    Cdna,
}

/// A GPU of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// The name in lower case, such as "h200".
    pub name: String,
    /// The generation.
    pub architecture: Architecture,
    /// Streaming multiprocessors (AMD: compute units).
    pub sms: u32,
    /// The boost clock at which the peaks below hold.
    pub clock: Hertz,
    /// Dense matrix peak with 16-bit operands, FLOP/s.
    pub peak_16: f64,
    /// The same with 8-bit floating-point operands; none where the GPU lacks them.
    pub peak_8: Option<f64>,
    /// The same with 4-bit floating-point operands.
    pub peak_4: Option<f64>,
    /// Bandwidth of device memory, bytes/s.
    pub bandwidth: f64,
    /// The last cache before device memory, bytes.
    pub cache: f64,
    /// Device memory, bytes.
    pub memory: f64,
    /// Bandwidth to the other GPUs of the node in one direction, bytes/s.
    pub link: f64,
    /// How they are connected.
    pub topology: Topology,
    /// The power limit of the data sheet.
    pub power_limit: Watts,
    /// Board power with a context and nothing to do; typical of published measurements, not of a data sheet.
    pub idle: Watts,
}

/// No GPU of this name is described.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("no GPU is called {name:?}; there are {known}")]
pub struct UnknownGpu {
    name: String,
    known: String,
}

/// Numbers of the data sheets, in the data sheets' units.
struct Sheet {
    name: &'static str,
    architecture: Architecture,
    sms: u32,
    mhz: f64,
    /// Dense TFLOP/s with 16, 8 and 4 bits; 0 where the GPU lacks them.
    tflops: [f64; 3],
    /// GB/s, MB of cache, GiB of memory (where error correction takes a part, what is left).
    memory: [f64; 3],
    /// GB/s in one direction.
    link: f64,
    topology: Topology,
    /// Limit and idle, W.
    watts: [f64; 2],
}

#[rustfmt::skip]
const SHEETS: [Sheet; 19] = {
    use Architecture::{Ada, Ampere, Blackwell, Cdna, Hopper};
    use Topology::{Mesh, Pcie, Switch};
    [
        Sheet { name: "a100", architecture: Ampere, sms: 108, mhz: 1410.0, tflops: [312.0, 0.0, 0.0], memory: [2039.0, 40.0, 80.0], link: 300.0, topology: Switch, watts: [400.0, 60.0] },
        Sheet { name: "a100-40gb", architecture: Ampere, sms: 108, mhz: 1410.0, tflops: [312.0, 0.0, 0.0], memory: [1555.0, 40.0, 40.0], link: 300.0, topology: Switch, watts: [400.0, 50.0] },
        Sheet { name: "a100-pcie", architecture: Ampere, sms: 108, mhz: 1410.0, tflops: [312.0, 0.0, 0.0], memory: [1935.0, 40.0, 80.0], link: 32.0, topology: Pcie, watts: [300.0, 50.0] },
        Sheet { name: "a40", architecture: Ampere, sms: 84, mhz: 1740.0, tflops: [149.7, 0.0, 0.0], memory: [696.0, 6.0, 45.0], link: 32.0, topology: Pcie, watts: [300.0, 30.0] },
        Sheet { name: "l4", architecture: Ada, sms: 58, mhz: 2040.0, tflops: [121.0, 242.0, 0.0], memory: [300.0, 48.0, 22.5], link: 32.0, topology: Pcie, watts: [72.0, 16.0] },
        Sheet { name: "a10", architecture: Ampere, sms: 72, mhz: 1695.0, tflops: [125.0, 0.0, 0.0], memory: [600.0, 6.0, 22.5], link: 32.0, topology: Pcie, watts: [150.0, 20.0] },
        Sheet { name: "l40s", architecture: Ada, sms: 142, mhz: 2520.0, tflops: [362.0, 733.0, 0.0], memory: [864.0, 96.0, 45.0], link: 32.0, topology: Pcie, watts: [350.0, 35.0] },
        Sheet { name: "h20", architecture: Hopper, sms: 78, mhz: 1980.0, tflops: [148.0, 296.0, 0.0], memory: [4000.0, 60.0, 96.0], link: 450.0, topology: Switch, watts: [500.0, 75.0] },
        Sheet { name: "h100", architecture: Hopper, sms: 132, mhz: 1830.0, tflops: [989.4, 1978.9, 0.0], memory: [3352.0, 50.0, 80.0], link: 450.0, topology: Switch, watts: [700.0, 75.0] },
        Sheet { name: "h100-pcie", architecture: Hopper, sms: 114, mhz: 1755.0, tflops: [756.0, 1513.0, 0.0], memory: [2039.0, 50.0, 80.0], link: 64.0, topology: Pcie, watts: [350.0, 50.0] },
        Sheet { name: "h200", architecture: Hopper, sms: 132, mhz: 1830.0, tflops: [989.4, 1978.9, 0.0], memory: [4800.0, 50.0, 141.0], link: 450.0, topology: Switch, watts: [700.0, 80.0] },
        Sheet { name: "gh200", architecture: Hopper, sms: 132, mhz: 1830.0, tflops: [989.4, 1978.9, 0.0], memory: [4000.0, 50.0, 96.0], link: 450.0, topology: Switch, watts: [700.0, 90.0] },
        Sheet { name: "b200", architecture: Blackwell, sms: 148, mhz: 1850.0, tflops: [2250.0, 4500.0, 9000.0], memory: [8000.0, 126.0, 180.0], link: 900.0, topology: Switch, watts: [1000.0, 140.0] },
        Sheet { name: "gb200", architecture: Blackwell, sms: 148, mhz: 1920.0, tflops: [2500.0, 5000.0, 10000.0], memory: [8000.0, 126.0, 186.0], link: 900.0, topology: Switch, watts: [1200.0, 150.0] },
        Sheet { name: "rtx-pro-6000", architecture: Blackwell, sms: 188, mhz: 2450.0, tflops: [503.8, 1007.6, 2015.2], memory: [1792.0, 128.0, 95.0], link: 64.0, topology: Pcie, watts: [600.0, 40.0] },
        Sheet { name: "b300", architecture: Blackwell, sms: 148, mhz: 1920.0, tflops: [2250.0, 4500.0, 13500.0], memory: [8000.0, 126.0, 270.0], link: 900.0, topology: Switch, watts: [1100.0, 150.0] },
        Sheet { name: "mi300x", architecture: Cdna, sms: 304, mhz: 2100.0, tflops: [1307.4, 2614.9, 0.0], memory: [5300.0, 256.0, 192.0], link: 448.0, topology: Mesh, watts: [750.0, 140.0] },
        Sheet { name: "mi325x", architecture: Cdna, sms: 304, mhz: 2100.0, tflops: [1307.4, 2614.9, 0.0], memory: [6000.0, 256.0, 256.0], link: 448.0, topology: Mesh, watts: [1000.0, 150.0] },
        Sheet { name: "mi355x", architecture: Cdna, sms: 256, mhz: 2400.0, tflops: [2516.0, 5033.0, 10066.0], memory: [8000.0, 256.0, 288.0], link: 537.0, topology: Mesh, watts: [1400.0, 200.0] },
    ]
};

/// Names by which tables and people call the same GPU, after [`plain`].
const ALIASES: [(&str, &str); 26] = [
    ("a100-sxm", "a100"),
    ("a100-sxm4", "a100"),
    ("a100-80gb", "a100"),
    ("a100-sxm4-80gb", "a100"),
    ("a100-sxm4-40gb", "a100-40gb"),
    ("a100-pcie-80gb", "a100-pcie"),
    ("a100-80gb-pcie", "a100-pcie"),
    ("h100-sxm", "h100"),
    ("h100-sxm5", "h100"),
    ("h100-80gb-hbm3", "h100"),
    ("h100-80gb", "h100"),
    ("h100-sxm5-80gb", "h100"),
    ("h200-sxm", "h200"),
    ("h200-141gb", "h200"),
    ("h20-sxm", "h20"),
    ("b200-sxm", "b200"),
    ("b300-sxm", "b300"),
    ("gb200-sxm", "gb200"),
    ("gb300", "b300"),
    ("gb300-sxm", "b300"),
    ("a10g", "a10"),
    ("rtx-pro-6000-server", "rtx-pro-6000"),
    ("rtxpro6000", "rtx-pro-6000"),
    ("h100-nvl", "h100-pcie"),
    ("gh200-480gb", "gh200"),
    ("mi300x-oam", "mi300x"),
];

/// "NVIDIA A100-SXM4-40GB" and "a100_sxm4_40gb" are written in one way.
fn plain(name: &str) -> String {
    let name = name.trim().to_lowercase().replace(['_', ' '], "-");
    let stripped = name
        .strip_prefix("nvidia-")
        .or_else(|| name.strip_prefix("amd-instinct-"))
        .or_else(|| name.strip_prefix("amd-"));
    stripped.unwrap_or(&name).to_owned()
}

impl Sheet {
    fn gpu(&self) -> Gpu {
        let some = |teraflops: f64| (teraflops > 0.0).then_some(teraflops * 1e12);
        let [bandwidth, cache, memory] = self.memory;
        let [limit, idle] = self.watts;
        Gpu {
            name: self.name.to_owned(),
            architecture: self.architecture,
            sms: self.sms,
            clock: Hertz(self.mhz * 1e6),
            peak_16: self.tflops[0] * 1e12,
            peak_8: some(self.tflops[1]),
            peak_4: some(self.tflops[2]),
            bandwidth: bandwidth * 1e9,
            cache: cache * 1e6,
            // Makers' gigabytes of device memory are powers of two.
            memory: memory * f64::from(1_u32 << 30),
            link: self.link * 1e9,
            topology: self.topology,
            power_limit: Watts(limit),
            idle: Watts(idle),
        }
    }
}

impl Gpu {
    /// The GPU of this name; case, underscores and a maker's name before it do not matter.
    ///
    /// # Errors
    /// No such GPU is described. The error lists those that are.
    pub fn named(name: &str) -> Result<Self, UnknownGpu> {
        let plain = plain(name);
        let alias = ALIASES.iter().find(|(alias, _)| *alias == plain);
        let wanted = alias.map_or(plain.as_str(), |(_, name)| name);
        let found = SHEETS.iter().find(|it| it.name == wanted);
        found.map(Sheet::gpu).ok_or_else(|| UnknownGpu {
            name: name.to_owned(),
            known: Self::names().collect::<Vec<_>>().join(", "),
        })
    }

    /// The names of all that are described.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHEETS.iter().map(|it| it.name)
    }

    /// Bandwidth in one direction between so many GPUs of a node, bytes/s.
    #[must_use]
    pub fn link_among(&self, gpus: u32) -> f64 {
        match self.topology {
            Topology::Mesh => self.link * f64::from(gpus.saturating_sub(1).clamp(1, 7)) / 7.0,
            Topology::Switch | Topology::Pcie => self.link,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_people_may_write_names_in_their_ways() {
        for (written, name) in [
            ("h200", "h200"),
            ("H200_SXM", "h200"),
            ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("mi300x", "mi300x"),
        ] {
            assert_eq!(Gpu::named(written).map(|it| it.name), Ok(name.to_owned()));
        }
        let error = Gpu::named("v100").unwrap_err().to_string();
        assert!(error.contains("\"v100\"; there are a100, "), "{error}");
    }

    #[test]
    fn every_alias_names_a_gpu() {
        for (alias, _) in ALIASES {
            assert!(Gpu::named(alias).is_ok(), "{alias}");
        }
    }

    /// Two GPUs of a mesh have one link of seven between them.
    #[test]
    fn a_mesh_of_two_has_one_link() {
        let mesh = Gpu::named("mi300x").unwrap();
        assert!((mesh.link_among(2) - 64e9).abs() < 1.0);
        assert!((mesh.link_among(8) - 448e9).abs() < 1.0);
        let switch = Gpu::named("h100").unwrap();
        assert_eq!(switch.link_among(2), switch.link_among(8));
    }
}
