//! A made-up MI300X.

use super::Tree;

pub const ADDRESS: &str = "0000:85:00.0";

/// The folder on the bus.
pub fn device(address: &str) -> String {
    format!("sys/devices/pci0000:80/{address}")
}

/// The folder of sensors.
pub fn hwmon(address: &str) -> String {
    format!("{}/hwmon/hwmon5", device(address))
}

/// An MI300X, as card `number` at `address`.
pub fn gpu(tree: &Tree, number: u32, address: &str) {
    let (device, hwmon) = (device(address), hwmon(address));
    let files = [
        ("name", "amdgpu"),
        ("power1_cap", "750000000"),
        ("power1_cap_min", "0"),
        ("power1_cap_max", "750000000"),
        ("power1_cap_default", "750000000"),
        ("power1_input", "412000000"),
        ("temp1_label", "mem"),
        ("temp1_input", "48000"),
        ("temp1_crit", "105000"),
        ("temp2_label", "junction"),
        ("temp2_input", "71000"),
        ("temp2_crit", "100000"),
        ("freq1_label", "sclk"),
        ("freq1_input", "2100000000"),
    ];
    for (name, text) in files {
        tree.put(format!("{hwmon}/{name}"), format!("{text}\n"));
    }
    tree.put(format!("{device}/vendor"), "0x1002\n");
    tree.put(format!("{device}/device"), "0x74a1\n");
    tree.put(format!("{device}/drm/card{number}/dev"), "226:0\n");
    tree.put(
        format!("{device}/drm/renderD{}/dev", 128 + number),
        "226:1\n",
    );
    tree.link(format!("{device}/drm/card{number}/device"), "../..");
    let card = format!("../../devices/pci0000:80/{address}/drm/card{number}");
    tree.link(format!("sys/class/drm/card{number}"), card);
}

/// A node with one such GPU.
pub fn one() -> Tree {
    let tree = Tree::new();
    gpu(&tree, 0, ADDRESS);
    tree
}
