//! A node of eight MI300X, made up of plain files: the classes of /sys that ROCm SMI reads, in a
//! mount namespace where they cover the real ones, and a /dev/shm of its own.
//!
//! A test that wants one runs anew as a process in such a namespace, as root or as root of a user
//! namespace.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use litd_power::{AmdBackEnd, Inventory, NvidiaBackEnd, Search};

/// Set where the test already is in its namespace.
const INSIDE: &str = "LITD_TEST_NAMESPACE";

/// What the files of a node are below.
const CLASS: &str = "/sys/class";

/// The buses of a real node's GPUs.
pub const ADDRESSES: [&str; 8] = [
    "0000:05:00.0",
    "0000:26:00.0",
    "0000:46:00.0",
    "0000:65:00.0",
    "0000:85:00.0",
    "0000:a6:00.0",
    "0000:c6:00.0",
    "0000:e5:00.0",
];

/// The daemon.
pub const LITD: &str = env!("CARGO_BIN_EXE_litd");

/// Runs `test`, which the function called `name` consists of, on a made-up node; or says why not.
pub fn on_a_node(name: &str, test: impl FnOnce(&Node)) {
    if std::env::var_os(INSIDE).is_some() {
        return test(&Node::build());
    }
    let Some(flags) = namespace() else { return };
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args([flags, "--propagation", "private", "--"])
        .arg(program)
        .args([&format!("rocm_smi::{name}"), "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(passed, "{said}\n{complained}");
}

/// How a mount namespace is made here; `None`, having said why, if ROCm SMI can't be tested.
fn namespace() -> Option<&'static str> {
    let found = Command::new("ldconfig").arg("-p").output();
    let libraries = found.map_or_else(|_| Vec::new(), |found| found.stdout);
    if !String::from_utf8_lossy(&libraries).contains("librocm_smi64.so.1 ") {
        eprintln!("SKIPPED: there is no librocm_smi64.so.1 (librocm-smi64-1)");
        return None;
    }
    let probe = "mount -t tmpfs none /sys/class && mount -t tmpfs none /dev/shm";
    let works = |flags: &&str| {
        let tried = Command::new("unshare")
            .args([flags, "--propagation", "private", "--", "sh", "-c", probe])
            .output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    // The library sets caps for root only: a user is root in a namespace of users.
    let flags = ["-m", "-Urm"].into_iter().find(works);
    if flags.is_none() {
        eprintln!("SKIPPED: no mount namespace: neither root nor user namespaces");
    }
    flags
}

/// The node, as its files.
pub struct Node;

impl Node {
    fn build() -> Self {
        mount(&["-t", "tmpfs", "-o", "mode=755", "none", CLASS]);
        mount(&["-t", "tmpfs", "-o", "mode=1777", "none", "/dev/shm"]);
        for (number, address) in ADDRESSES.iter().enumerate() {
            gpu(number, address);
        }
        for number in [0, 1] {
            topology(
                number,
                "0",
                "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\ndomain 0\n",
            );
        }
        fs::create_dir_all(class("kfd/kfd/proc")).unwrap();
        Self
    }

    /// A GPU's folder of sensors.
    pub fn hwmon(&self, gpu: usize) -> PathBuf {
        class(&format!(
            "devices/{}/hwmon/hwmon{}",
            ADDRESSES[gpu],
            gpu + 3
        ))
    }

    /// What a GPU's cap file says.
    pub fn cap(&self, gpu: usize) -> String {
        let text = fs::read_to_string(self.hwmon(gpu).join("power1_cap")).unwrap();
        text.trim().to_owned()
    }

    /// Has the kernel refuse (EINVAL) whatever is written to a GPU's cap, which is 0 from now on.
    pub fn refuse_writes(&self, gpu: usize) {
        let cap = self.hwmon(gpu).join("power1_cap");
        let refuses = format!("/proc/{}/oom_score_adj", std::process::id());
        mount(&["--bind", &refuses, cap.to_str().unwrap()]);
        assert!(fs::write(cap, "600000000").is_err());
    }

    /// Takes a GPU's sensors away, and puts them back.
    pub fn hide_sensors(&self, gpu: usize, hidden: bool) {
        let here = self.hwmon(gpu).parent().unwrap().to_owned();
        let away = here.with_extension("away");
        let (from, to) = if hidden { (here, away) } else { (away, here) };
        fs::rename(from, to).unwrap();
    }

    pub fn search(&self) -> Search {
        search("librocm_smi64.so.1".as_ref(), LITD.as_ref())
    }

    /// Eight GPUs, and nothing to complain of.
    pub fn discover(&self) -> Inventory {
        let found = litd_power::rocm_smi::discover(&self.search());
        assert_eq!(found.notices, []);
        assert_eq!(found.domains.len(), ADDRESSES.len(), "{found:?}");
        found
    }
}

/// Where to look with another library or program.
pub fn search(library: &Path, program: &Path) -> Search {
    Search {
        amd: AmdBackEnd::RocmSmi,
        nvidia: NvidiaBackEnd::Off,
        cpus: false,
        rocm_smi_library: library.to_owned(),
        own_program: program.to_owned(),
        ..Search::default()
    }
}

fn class(path: &str) -> PathBuf {
    Path::new(CLASS).join(path)
}

fn mount(arguments: &[&str]) {
    let status = Command::new("mount").args(arguments).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

fn put(path: PathBuf, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The files that the library wants of a GPU, with each GPU's numbers a little higher than those
/// of the one before.
fn gpu(number: usize, address: &str) {
    let device = class(&format!("devices/{address}"));
    let bus = u64::from_str_radix(&address[5..7], 16).unwrap();
    let files = [
        ("vendor", "0x1002".to_owned()),
        ("device", "0x74a1".to_owned()),
        ("subsystem_vendor", "0x1002".to_owned()),
        ("subsystem_device", "0x74a1".to_owned()),
        ("unique_id", format!("{:x}", 0xabcd_0000_0000_0000 + number)),
        ("serial_number", format!("MADEUP{number}")),
        ("vbios_version", "113-M3000100-102".to_owned()),
        ("pp_dpm_sclk", "0: 132Mhz\n1: 2100Mhz *".to_owned()),
        ("pp_dpm_mclk", "0: 900Mhz\n1: 1300Mhz *".to_owned()),
    ];
    for (name, text) in files {
        put(device.join(name), format!("{text}\n"));
    }
    put(device.join("gpu_metrics"), gpu_metrics(140 + number as u16));
    let hwmon = device.join(format!("hwmon/hwmon{}", number + 3));
    let sensors = [
        ("name", "amdgpu".to_owned()),
        ("power1_cap", "750000000".to_owned()),
        ("power1_cap_default", "750000000".to_owned()),
        ("power1_cap_max", "750000000".to_owned()),
        ("power1_cap_min", "0".to_owned()),
        ("power1_average", format!("{}000000", 140 + number)),
        ("temp2_label", "junction".to_owned()),
        ("temp2_input", format!("{}000", 50 + number)),
        ("temp2_crit", "100000".to_owned()),
        // Without a voltage the library throws where it sets itself up.
        ("in0_label", "vddgfx".to_owned()),
        ("in0_input", "800".to_owned()),
    ];
    for (name, text) in sensors {
        put(hwmon.join(name), format!("{text}\n"));
    }
    let card = device.join(format!("drm/card{number}"));
    fs::create_dir_all(&card).unwrap();
    fs::create_dir_all(device.join(format!("drm/renderD{}", 128 + number))).unwrap();
    symlink("../..", card.join("device")).unwrap();
    fs::create_dir_all(class("drm")).unwrap();
    symlink(card, class(&format!("drm/card{number}"))).unwrap();
    let properties = format!(
        "cpu_cores_count 0\nsimd_count 1216\nsimd_arrays_per_engine 1\n\
         array_count 32\ncu_per_simd_array 10\nlocation_id {}\ndomain 0\ndrm_render_minor {}\n\
         unique_id {}\nhive_id 77\n",
        bus << 8,
        128 + number,
        0xabcd_0000_0000_0000 + number
    );
    topology(number + 2, &(1000 + number).to_string(), &properties);
}

fn topology(number: usize, id: &str, properties: &str) {
    let node = class(&format!("kfd/kfd/topology/nodes/{number}"));
    put(node.join("gpu_id"), format!("{id}\n"));
    put(node.join("name"), "gfx942\n");
    put(node.join("properties"), properties);
    fs::create_dir_all(node.join("io_links")).unwrap();
}

/// `struct gpu_metrics_v1_3` (Linux, `kgd_pp_interface.h`), of which the library takes the energy.
fn gpu_metrics(watts: u16) -> Vec<u8> {
    const SIZE: u16 = 120;
    let mut table = vec![0; SIZE.into()];
    table[..2].copy_from_slice(&SIZE.to_le_bytes());
    (table[2], table[3]) = (1, 3);
    table[22..24].copy_from_slice(&watts.to_le_bytes());
    table[24..32].copy_from_slice(&ENERGY.to_le_bytes());
    table
}

/// In units of 15.3 µJ (15.259, of which the library's own constant is a rounding).
pub const ENERGY: u64 = 2_000_000_000;
