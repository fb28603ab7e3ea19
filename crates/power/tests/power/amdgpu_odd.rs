//! AMD GPUs below roots that no kernel makes: garbage, loops, files that are not regular.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::tree::gpu::{ADDRESS, device, gpu, hwmon, one};
use crate::tree::{addresses, notice, only};
use litd_power::amdgpu::discover;
use litd_power::{PowerError, Severity};
use litd_units::Watts;
use proptest::prelude::*;

#[test]
fn a_gpu_whose_cap_is_garbage_is_listed_all_the_same() {
    for text in [
        "",
        "\n",
        "unlimited\n",
        "-1\n",
        "7.5e8\n",
        "\0\u{1}",
        "99999999999999999999999\n",
    ] {
        let tree = one();
        tree.put(format!("{}/power1_cap", hwmon(ADDRESS)), text);
        let found = discover(&tree.search());
        assert!(
            notice(&found, Severity::Error)
                .text
                .contains("can't be read")
        );
        let error = only(found).read().unwrap_err();
        assert_eq!(error.kind(), "driver", "{error}");
        assert!(error.to_string().contains("power1_cap"), "{error}");
    }
}

/// As in the kernel: each of a card's dies is a GPU with sensors, and the first die's cap is the card's.
#[test]
fn the_second_die_of_a_card_is_no_gpu_with_a_cap() {
    const SECOND: &str = "0000:86:00.0";
    let tree = one();
    gpu(&tree, 1, SECOND);
    for name in ["power1_cap", "power1_cap_default"] {
        tree.put(format!("{}/{name}", hwmon(SECOND)), "0\n");
    }
    // For a model with one die that is a misreading.
    assert_eq!(addresses(&discover(&tree.search())), [ADDRESS, SECOND]);
    for number in ["0x7408\n", "0x740c\n"] {
        for die in [ADDRESS, SECOND] {
            tree.put(format!("{}/device", device(die)), number);
        }
        let found = discover(&tree.search());
        assert_eq!(addresses(&found), [ADDRESS]);
        let notice = notice(&found, Severity::Info);
        assert_eq!(notice.subject, SECOND);
        assert!(notice.text.contains("second die"), "{}", notice.text);
        // Only its driver knows which: the bus shows two candidates.
        let search = tree.search();
        let on_the_bus = litd_power::gpus_on_the_bus(&search);
        assert_eq!(
            on_the_bus.into_iter().collect::<Vec<_>>(),
            [ADDRESS, SECOND]
        );
    }
}

#[test]
fn an_absurd_range_is_the_drivers_error() {
    for (name, text, named) in [
        (
            "power1_cap_max",
            "18446744073709551615\n",
            "the highest cap",
        ),
        ("power1_cap_min", "751000000\n", "751 W"),
    ] {
        let tree = one();
        tree.put(format!("{}/{name}", hwmon(ADDRESS)), text);
        let error = only(discover(&tree.search())).range().unwrap_err();
        assert_eq!(error.kind(), "driver", "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn sensors_that_fail_are_absent() {
    let tree = one();
    let hwmon = hwmon(ADDRESS);
    for name in ["power1_input", "temp2_input", "freq1_input"] {
        tree.put(format!("{hwmon}/{name}"), "garbage");
    }
    tree.put(format!("{hwmon}/temp2_crit"), vec![b'9'; 100_000]);
    tree.put(format!("{}/gpu_metrics", device(ADDRESS)), vec![1; 100_000]);
    let mut gpu = only(discover(&tree.search()));
    let reading = gpu.read().unwrap();
    assert_eq!(reading.cap, Watts(750.0));
    let rest = (
        reading.power,
        reading.temperature,
        reading.slowdown,
        reading.clock,
    );
    assert_eq!(rest, (None, None, None, None));
}

#[test]
fn a_gpu_that_vanishes_is_gone_and_comes_back_under_another_number() {
    let tree = one();
    let mut gpu = only(discover(&tree.search()));
    gpu.read().unwrap();
    gpu.release();
    tree.remove(device(ADDRESS));
    for _ in 0..2 {
        let error = gpu.read().unwrap_err();
        assert!(matches!(error, PowerError::Gone { .. }), "{error}");
        assert!(error.to_string().starts_with(ADDRESS), "{error}");
        let error = gpu.set_cap(Watts(500.0)).unwrap_err();
        assert!(matches!(error, PowerError::Gone { .. }), "{error}");
    }
    tree.put(format!("{}/hwmon/hwmon9/name", device(ADDRESS)), "amdgpu\n");
    tree.put(
        format!("{}/hwmon/hwmon9/power1_cap", device(ADDRESS)),
        "600000000\n",
    );
    assert_eq!(gpu.read().unwrap().cap, Watts(600.0));
}

#[test]
fn a_driver_that_is_loaded_anew_under_another_number_is_found() {
    let tree = one();
    let mut gpu = only(discover(&tree.search()));
    gpu.read().unwrap();
    let folder = hwmon(ADDRESS);
    let anew = format!("{}/hwmon/hwmon9", device(ADDRESS));
    fs::rename(tree.path(&folder), tree.path(&anew)).unwrap();
    // At the latest with the call after the one that finds the old files missing.
    gpu.set_cap(Watts(500.0)).unwrap_err();
    gpu.set_cap(Watts(500.0)).unwrap();
    assert_eq!(tree.get(format!("{anew}/power1_cap")), "500000000");
    assert_eq!(gpu.read().unwrap().cap, Watts(500.0));
}

#[test]
fn strange_trees_are_survived() {
    let tree = one();
    tree.link("sys/class/drm/card1", "card1");
    tree.link("sys/class/drm/card2/device", "../card2/device");
    tree.link("sys/class/drm/card3/device", "/nowhere");
    tree.put("sys/class/drm/card4", "a file");
    tree.put("sys/class/drm/card5/device/vendor", "0x1002\n");
    let name = OsStr::from_bytes(b"card\xff");
    tree.put(
        tree.path("sys/class/drm").join(name).join("device/vendor"),
        "0x1002\n",
    );
    tree.put(
        tree.path(hwmon(ADDRESS))
            .join(OsStr::from_bytes(b"temp\xfe_label")),
        "mem\n",
    );
    // A folder in a file's place.
    tree.remove(format!("{}/freq1_input", hwmon(ADDRESS)));
    tree.put(format!("{}/freq1_input/x", hwmon(ADDRESS)), "");
    let found = discover(&tree.search());
    assert_eq!(addresses(&found), [ADDRESS]);
    let lost = found
        .notices
        .iter()
        .filter(|n| n.severity == Severity::Warning);
    assert_eq!(lost.count(), 4, "{:#?}", found.notices);
    let mut gpu = only(found);
    assert_eq!(gpu.read().unwrap().clock, None);
    assert!(gpu.holders().unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any contents of a GPU's files give a reading of numbers or an error that names the file.
    #[test]
    fn any_bytes_in_any_file_are_a_reading_or_an_error(
        file in prop::sample::select(vec![
            "power1_cap", "power1_cap_max", "power1_cap_min", "power1_input", "temp2_input",
            "temp2_label", "temp2_crit", "freq1_input", "name", "../../gpu_metrics",
            "../../unique_id", "../../current_compute_partition", "../../vendor",
        ]),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[0-9]{0,30}\n?".prop_map(String::into_bytes),
        ],
    ) {
        let tree = one();
        tree.put(format!("{}/{file}", hwmon(ADDRESS)), &bytes);
        for mut gpu in discover(&tree.search()).domains {
            match gpu.read() {
                Ok(reading) => {
                    prop_assert!(reading.cap.is_finite() && reading.cap >= Watts::ZERO);
                    prop_assert!(reading.power.is_none_or(|power| power.is_finite()));
                }
                Err(error) => prop_assert!(error.to_string().starts_with(ADDRESS)),
            }
            if let Ok(range) = gpu.range() {
                prop_assert!(range.highest > Watts::ZERO);
            }
        }
    }
}
