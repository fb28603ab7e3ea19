//! The numbers by which devices are called (`gpu3`). Each device keeps its number until the node boots, also while
//! another GPU has fallen off the bus and litd is started again: otherwise a command by name would reach another board
//! than a minute before. They are kept beside the locks of devices (`.numbers`), one line `ADDRESS NUMBER` a device.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use litd_power::{DeviceKind, Identity};

use litd_files as files;

const FILE: &str = ".numbers";

/// Many nodes' worth of lines.
const LONGEST: u64 = 64 * 1024;

/// Each device's number, by kind and address.
#[derive(Debug, Default, PartialEq)]
pub struct Numbers {
    gpus: BTreeMap<String, usize>,
    cpus: BTreeMap<String, usize>,
}

impl Numbers {
    /// The numbers that devices have had since the node booted. Where they can't be read there are none: devices are
    /// numbered in the order in which they are found, as at the first start.
    #[must_use]
    pub fn read(directory: &Path) -> Self {
        let text = files::text(&directory.join(FILE), LONGEST).unwrap_or_default();
        let mut numbers = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(kind), Some(address), Some(number), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(number) = number.parse() else {
                continue;
            };
            let of_kind = match kind {
                "gpu" => &mut numbers.gpus,
                "cpu" => &mut numbers.cpus,
                _ => continue,
            };
            if of_kind.values().all(|&taken| taken != number) {
                of_kind.insert(address.to_owned(), number);
            }
        }
        numbers
    }

    /// The number of a device: the one that it has had, or the lowest that no device has had.
    pub fn of(&mut self, identity: &Identity) -> usize {
        let of_kind = match identity.kind {
            DeviceKind::Gpu => &mut self.gpus,
            DeviceKind::Cpu => &mut self.cpus,
        };
        if let Some(&number) = of_kind.get(&identity.address) {
            return number;
        }
        let free = (0..).find(|number| of_kind.values().all(|taken| taken != number));
        let number = free.unwrap_or_default();
        of_kind.insert(identity.address.clone(), number);
        number
    }

    /// The addresses of the GPUs that have had a number since the node booted.
    pub fn gpus(&self) -> impl Iterator<Item = &String> {
        self.gpus.keys()
    }

    /// Keeps the numbers for the next litd.
    ///
    /// # Errors
    /// The directory can't be written: after a start without one of the devices others may have its number.
    pub fn keep(&self, directory: &Path) -> io::Result<()> {
        if *self == Self::read(directory) {
            return Ok(());
        }
        let mut text = String::new();
        for (kind, of_kind) in [("gpu", &self.gpus), ("cpu", &self.cpus)] {
            // An address with a space, which no driver has, would be read as something else.
            for (address, number) in of_kind
                .iter()
                .filter(|(address, _)| !address.contains([' ', '\n']))
            {
                let _ = writeln!(text, "{kind} {address} {number}");
            }
        }
        let new = directory.join(format!("{FILE}.new"));
        files::replace_private(&directory.join(FILE), &new, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use litd_power::{ReadBack, Sharing};

    use std::fs;

    use super::*;

    fn device(kind: DeviceKind, address: &str) -> Identity {
        Identity {
            kind,
            address: address.to_owned(),
            uuid: None,
            serial: None,
            model: String::new(),
            driver: String::new(),
            backend: String::new(),
            sharing: Sharing::default(),
            read_back: ReadBack::default(),
        }
    }

    #[test]
    fn a_device_keeps_its_number_while_others_come_and_go() {
        let place = tempfile::tempdir().unwrap();
        let number = |gpus: &[&str]| {
            let mut numbers = Numbers::read(place.path());
            let got = gpus
                .iter()
                .map(|it| numbers.of(&device(DeviceKind::Gpu, it)));
            let got: Vec<usize> = got.collect();
            assert_eq!(numbers.of(&device(DeviceKind::Cpu, "cpu0")), 0);
            numbers.keep(place.path()).unwrap();
            got
        };
        assert_eq!(number(&["a", "b", "d"]), [0, 1, 2]);
        assert_eq!(number(&["a", "d"]), [0, 2]);
        assert_eq!(number(&["a", "b", "c", "d"]), [0, 1, 3, 2]);
        assert_eq!(number(&["c"]), [3]);
    }

    #[test]
    fn of_a_file_that_was_changed_by_hand_only_whole_lines_count() {
        let place = tempfile::tempdir().unwrap();
        let text =
            "gpu a 1\ngpu b 1\nxpu c 0\ngpu d\ngpu e -1\ngpu f 99999999999999999999999\n\u{0}\n";
        fs::write(place.path().join(FILE), text).unwrap();
        let mut numbers = Numbers::read(place.path());
        let mut of = |address| numbers.of(&device(DeviceKind::Gpu, address));
        assert_eq!([of("a"), of("b"), of("c")], [1, 0, 2]);
    }
}
