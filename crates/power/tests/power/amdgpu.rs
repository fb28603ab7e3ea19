//! AMD GPUs below made-up roots of plain files: finding, reading and writing them, and strange trees. Behaviour of
//! drivers (refusals, lies) is tested elsewhere.

use crate::tree::gpu::{ADDRESS, device, gpu, hwmon, one};
use crate::tree::{Tree, addresses, notice, only, with_tools};
use litd_power::amdgpu::discover;
use litd_power::{CapRange, DeviceKind, Operation, PowerError, Reply, Severity, Sharing, Throttle};
use litd_units::{Celsius, Hertz, Joules, Watts};

#[test]
fn a_gpu_says_who_it_is() {
    let tree = one();
    let device = device(ADDRESS);
    tree.put(format!("{device}/unique_id"), "7a3b00000000c0de\n");
    tree.put(format!("{device}/serial_number"), "692251001\n");
    tree.put(
        format!("{device}/product_name"),
        "AMD Instinct MI300X OAM\n",
    );
    tree.put("proc/sys/kernel/osrelease", "6.8.0-52-generic\n");
    let gpu = only(discover(&tree.search()));
    let identity = gpu.identity();
    assert_eq!(identity.kind, DeviceKind::Gpu);
    assert_eq!(identity.address, ADDRESS);
    assert_eq!(identity.uuid.as_deref(), Some("GPU-7a3b00000000c0de"));
    assert_eq!(identity.serial.as_deref(), Some("692251001"));
    assert_eq!(identity.model, "AMD Instinct MI300X OAM");
    assert_eq!(identity.driver, "amdgpu Linux 6.8.0-52-generic");
    assert_eq!(identity.backend, "amdgpu");
    assert_eq!(identity.sharing, Sharing::Whole);
}

#[test]
fn an_unnamed_gpu_goes_by_its_numbers_and_the_module_by_its_own_version() {
    let tree = one();
    tree.put("sys/module/amdgpu/version", "6.10.5\n");
    let gpu = only(discover(&tree.search()));
    assert_eq!(gpu.identity().model, "AMD GPU 1002:74a1");
    assert_eq!(gpu.identity().driver, "amdgpu 6.10.5");
    assert_eq!(
        (&gpu.identity().uuid, &gpu.identity().serial),
        (&None, &None)
    );
}

#[test]
fn all_sensors_are_read_in_their_units() {
    let tree = one();
    let mut gpu = only(discover(&tree.search()));
    let reading = gpu.read().unwrap();
    assert_eq!(reading.cap, Watts(750.0));
    assert_eq!(reading.enforced, None);
    assert_eq!(reading.power, Some(Watts(412.0)));
    assert_eq!(reading.energy, None);
    assert_eq!(reading.temperature, Some(Celsius(71.0)));
    assert_eq!(reading.slowdown, Some(Celsius(100.0)));
    assert_eq!(reading.clock, Some(Hertz(2.1e9)));
    assert_eq!((reading.power_limited, reading.throttle), (None, None));
    let range = CapRange {
        lowest: Watts(0.0),
        highest: Watts(750.0),
        default: Watts(750.0),
        resolution: Watts(1.0),
    };
    assert_eq!(gpu.range().unwrap(), range);
}

#[test]
fn a_kept_file_shows_what_is_new() {
    let tree = one();
    let mut gpu = only(discover(&tree.search()));
    assert_eq!(gpu.cap().unwrap(), Watts(750.0));
    tree.put(format!("{}/power1_cap", hwmon(ADDRESS)), "300000000\n");
    tree.put(format!("{}/power1_input", hwmon(ADDRESS)), "299000000\n");
    let reading = gpu.read().unwrap();
    assert_eq!(
        (reading.cap, reading.power),
        (Watts(300.0), Some(Watts(299.0)))
    );
}

#[test]
fn a_cap_is_written_in_microwatts_of_whole_watts_and_read_back() {
    let tree = one();
    let mut gpu = only(discover(&tree.search()));
    let cap = format!("{}/power1_cap", hwmon(ADDRESS));
    for (asked, written) in [
        (Watts(599.0), "599000000"),
        (Watts(450.75), "450000000"),
        // The last bit of a float is not a watt.
        (Watts(299.999_999_999_9), "300000000"),
        (Watts(1.0), "1000000"),
    ] {
        let reply = Operation::Set(asked).perform(gpu.as_mut());
        let read_back = Watts(asked.0.round().min((asked.0 + 1e-7).floor()));
        assert_eq!(reply, Reply::Set(Ok(read_back)));
        assert_eq!(tree.get(&cap), written);
    }
}

#[test]
fn a_cap_of_less_than_a_watt_is_never_written() {
    let tree = one();
    let mut gpu = only(discover(&tree.search()));
    for asked in [0.0, 0.9, -5.0, f64::NAN, f64::NEG_INFINITY] {
        let error = gpu.set_cap(Watts(asked)).unwrap_err();
        assert!(
            matches!(error, PowerError::OutOfRange { lowest, highest, .. }
                if lowest == Watts(1.0) && highest == Watts(750.0)),
            "{error}"
        );
    }
    assert_eq!(gpu.cap().unwrap(), Watts(750.0));
}

#[test]
fn the_range_is_read_anew_each_time() {
    let tree = one();
    let mut gpu = only(discover(&tree.search()));
    assert_eq!(gpu.range().unwrap().highest, Watts(750.0));
    tree.put(format!("{}/power1_cap_max", hwmon(ADDRESS)), "650000000\n");
    tree.put(format!("{}/power1_cap_min", hwmon(ADDRESS)), "100000000\n");
    let range = gpu.range().unwrap();
    assert_eq!((range.lowest, range.highest), (Watts(100.0), Watts(650.0)));
}

#[test]
fn an_older_driver_names_no_default_and_no_lowest_cap() {
    let tree = one();
    tree.remove(format!("{}/power1_cap_default", hwmon(ADDRESS)));
    tree.remove(format!("{}/power1_cap_min", hwmon(ADDRESS)));
    let range = only(discover(&tree.search())).range().unwrap();
    assert_eq!((range.lowest, range.default), (Watts(0.0), Watts(750.0)));
}

#[test]
fn eight_gpus_come_in_the_order_of_the_bus() {
    let tree = Tree::new();
    let buses = ["e5", "05", "26", "46", "65", "85", "a6", "c6"];
    for (number, bus) in (0..).zip(buses) {
        gpu(&tree, number, &format!("0000:{bus}:00.0"));
    }
    // Connectors are not cards.
    tree.link("sys/class/drm/card0-DP-1", "../../devices");
    let found = addresses(&discover(&tree.search()));
    let mut buses = buses;
    buses.sort();
    assert_eq!(found, buses.map(|bus| format!("0000:{bus}:00.0")));
}

#[test]
fn partitions_are_one_gpu_that_is_shared() {
    let tree = one();
    let device = device(ADDRESS);
    tree.put(format!("{device}/current_compute_partition"), "CPX\n");
    tree.put(format!("{device}/unique_id"), "7a3b00000000c0de\n");
    // The kernel gives other partitions a card on a device of their own, without sensors.
    for n in 1..8 {
        let xcp = format!("devices/platform/amdgpu_xcp_{n}");
        tree.put(format!("sys/{xcp}/drm/card{n}/dev"), "226:9\n");
        tree.link(format!("sys/{xcp}/drm/card{n}/device"), "../..");
        tree.link(
            format!("sys/class/drm/card{n}"),
            format!("../../{xcp}/drm/card{n}"),
        );
    }
    // Two cards of one device, and another function with the same number, are the same GPU.
    tree.link(
        "sys/class/drm/card8",
        format!("../../devices/pci0000:80/{ADDRESS}/drm/card0"),
    );
    gpu(&tree, 9, "0000:85:00.1");
    let function = "sys/devices/pci0000:80/0000:85:00.1";
    tree.put(format!("{function}/unique_id"), "7a3b00000000c0de\n");
    let found = discover(&tree.search());
    assert!(notice(&found, Severity::Info).text.contains("partitioned"));
    let gpu = only(found);
    assert_eq!(gpu.identity().address, ADDRESS);
    assert_eq!(gpu.identity().sharing, Sharing::Partitioned);
}

#[test]
fn a_gpu_without_a_cap_is_no_domain_and_says_why() {
    let tree = one();
    tree.remove(format!("{}/power1_cap", hwmon(ADDRESS)));
    let found = discover(&tree.search());
    assert_eq!(addresses(&found), [""; 0]);
    let notice = notice(&found, Severity::Error);
    assert_eq!(notice.subject, ADDRESS);
    assert!(notice.text.contains("power1_cap is missing"), "{notice}");
    assert!(notice.remedy.is_some());
}

#[test]
fn a_gpu_whose_driver_has_not_come_up_is_an_error_with_a_remedy() {
    let tree = one();
    tree.remove(format!("{}/hwmon", device(ADDRESS)));
    let found = discover(&tree.search());
    assert_eq!(addresses(&found), [""; 0]);
    let notice = notice(&found, Severity::Error);
    assert!(notice.to_string().contains("modprobe amdgpu"), "{notice}");
}

#[test]
fn a_cap_that_the_driver_offers_for_reading_only_is_a_hosts() {
    let tree = one();
    tree.mode(format!("{}/power1_cap", hwmon(ADDRESS)), 0o444);
    let found = discover(&tree.search());
    let notice = notice(&found, Severity::Error);
    assert!(notice.to_string().contains("virtual machine"), "{notice}");
    assert_eq!(addresses(&found), [ADDRESS]);
}

#[test]
fn the_average_is_what_a_cap_rules() {
    let tree = one();
    tree.put(format!("{}/power1_average", hwmon(ADDRESS)), "400000000\n");
    let mut gpu = only(discover(&tree.search()));
    assert_eq!(gpu.read().unwrap().power, Some(Watts(400.0)));
}

#[test]
fn memory_that_is_too_hot_throttles() {
    let tree = one();
    tree.put(format!("{}/temp1_input", hwmon(ADDRESS)), "105000\n");
    let mut gpu = only(discover(&tree.search()));
    assert_eq!(gpu.read().unwrap().throttle, Some(Throttle::Memory));
}

/// A table of revision 1.7 with the given counters: cycles, prochot, power, socket, VR, HBM.
fn metrics(energy: u64, counters: [u32; 6]) -> Vec<u8> {
    let mut table = vec![0xff; 2208];
    table[..4].copy_from_slice(&[0xa0, 0x08, 1, 7]);
    table[24..32].copy_from_slice(&energy.to_le_bytes());
    for (index, counter) in counters.into_iter().enumerate() {
        table[40 + 4 * index..44 + 4 * index].copy_from_slice(&counter.to_le_bytes());
    }
    table
}

#[test]
fn what_limits_a_gpu_is_told_from_two_tables() {
    let tree = one();
    let file = format!("{}/gpu_metrics", device(ADDRESS));
    tree.put(&file, metrics(65536 * 7, [1000, 0, 0, 0, 0, 0]));
    let mut gpu = only(discover(&tree.search()));
    let mut read = || {
        let reading = gpu.read().unwrap();
        (reading.power_limited, reading.throttle)
    };
    assert_eq!(read(), (None, None));
    tree.put(&file, metrics(65536 * 8, [2000, 0, 700, 0, 0, 0]));
    assert_eq!(read(), (Some(true), None));
    // The same table again: the last values still hold.
    assert_eq!(read(), (Some(true), None));
    tree.put(&file, metrics(65536 * 9, [3000, 0, 710, 800, 0, 0]));
    assert_eq!(read(), (Some(false), Some(Throttle::Heat)));
    assert_eq!(gpu.read().unwrap().energy, Some(Joules(9.0)));
}

#[test]
fn a_table_of_metrics_that_litd_does_not_know_is_named_and_not_read() {
    let tree = one();
    let file = format!("{}/gpu_metrics", device(ADDRESS));
    let mut table = metrics(65536 * 7, [1000, 0, 900, 0, 0, 0]);
    table[3] = 10;
    tree.put(&file, &table);
    let found = discover(&tree.search());
    let notice = notice(&found, Severity::Warning);
    assert_eq!(notice.subject, ADDRESS);
    assert!(
        notice.text.contains("revision 1.10 of 2208 bytes"),
        "{notice}"
    );
    let reading = only(found).read().unwrap();
    assert_eq!((reading.energy, reading.power_limited), (None, None));
    // One that it knows is not worth a word.
    table[3] = 7;
    tree.put(&file, &table);
    assert_eq!(discover(&tree.search()).notices, []);
}

#[test]
fn without_a_list_of_processes_nobody_can_be_told() {
    let tree = one();
    tree.remove("proc");
    let error = only(discover(&tree.search())).holders().unwrap_err();
    assert!(error.to_string().contains("proc"), "{error}");
}

#[test]
fn nothing_there_is_worth_a_word_and_no_error() {
    let tree = Tree::new();
    let found = discover(&tree.search());
    assert!(found.domains.is_empty());
    notice(&found, Severity::Info);
    assert_eq!(found.notices.len(), 1);
}

#[test]
fn gpus_without_a_driver_or_with_another_are_noticed() {
    let tree = one();
    let bus = "sys/bus/pci/devices";
    for (address, class, driver) in [
        ("0000:05:00.0", "0x120000", None),
        ("0000:06:00.0", "0x030000", Some("vfio-pci")),
        ("0000:07:00.0", "0x060400", None),
        (ADDRESS, "0x120000", Some("amdgpu")),
    ] {
        tree.put(format!("{bus}/{address}/vendor"), "0x1002\n");
        tree.put(format!("{bus}/{address}/class"), format!("{class}\n"));
        if let Some(driver) = driver {
            tree.link(
                format!("{bus}/{address}/driver"),
                format!("../../drivers/{driver}"),
            );
        }
    }
    tree.put(format!("{bus}/0000:08:00.0/vendor"), "0x10de\n");
    let found = discover(&tree.search());
    assert_eq!(notice(&found, Severity::Warning).subject, "0000:05:00.0");
    assert!(notice(&found, Severity::Info).text.contains("vfio-pci"));
    assert_eq!(found.notices.len(), 2);
}

#[test]
fn another_tool_that_sets_caps_is_noticed() {
    let tree = one();
    tree.put("proc/900/comm", "lactd\n");
    tree.put("proc/901/comm", "bash\n");
    let found = with_tools(discover, &tree);
    assert_eq!(notice(&found, Severity::Warning).subject, "lactd");
}
