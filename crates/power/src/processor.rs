//! The processors of a node.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::domain::{DeviceKind, Identity, ReadBack, Sharing};
use crate::sysfs;

/// The address of a socket: it has the number that the hardware gives the socket and, if dies have limits of their own,
/// the die's. A place among the sockets that are there at one start is no number: the undo journal of the next start
/// names sockets so, and one that is missing then must not make another out of those that are there.
pub(crate) fn address(number: u32, die: Option<u32>) -> String {
    match die {
        Some(die) => format!("cpu{number}-die{die}"),
        None => format!("cpu{number}"),
    }
}

/// The number and the die in such an address.
pub(crate) fn number_in(address: &str) -> Option<(u32, Option<u32>)> {
    let number = address.strip_prefix("cpu")?;
    match number.split_once("-die") {
        Some((number, die)) => Some((number.parse().ok()?, Some(die.parse().ok()?))),
        None => Some((number.parse().ok()?, None)),
    }
}

/// How many sockets the node has by its kernel's account; none where that does not tell.
pub(crate) fn sockets(sys: &Path) -> Option<usize> {
    let processors = sysfs::numbered(&sys.join("devices/system/cpu"), "cpu").into_iter();
    let package = |(_, folder): (u32, PathBuf)| {
        sysfs::number::<u32>(folder.join("topology/physical_package_id"))
    };
    let packages: BTreeSet<u32> = processors.filter_map(package).collect();
    (!packages.is_empty()).then_some(packages.len())
}

/// The processors' maker, family and name, from `/proc/cpuinfo`. All processors of a node are
/// alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    /// `GenuineIntel`, `AuthenticAMD`; empty on other architectures.
    pub vendor: String,
    /// The vendor's number of the generation.
    pub family: u32,
    /// The marketing name.
    pub model: String,
    /// Whether this is a virtual machine.
    pub is_guest: bool,
}

impl Processor {
    /// The processors of the node whose procfs is at `proc`. Unknown fields are empty.
    pub fn read(proc: &Path) -> Self {
        // The entry of one processor is enough; the first is within the first page.
        Self::parse(&sysfs::head(proc.join("cpuinfo")))
    }

    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
            Some(value.trim().to_owned())
        };
        let flags = value("flags").unwrap_or_default();
        Self {
            is_guest: flags.split_whitespace().any(|it| it == "hypervisor"),
            vendor: value("vendor_id").unwrap_or_default(),
            family: value("cpu family")
                .and_then(|family| family.parse().ok())
                .unwrap_or_default(),
            model: value("model name").unwrap_or_default(),
        }
    }

    /// Whether Intel makes the processor.
    pub fn is_intel(&self) -> bool {
        self.vendor == "GenuineIntel"
    }

    /// Whether the processor is one of AMD's servers: an EPYC, or the CPU in an Instinct.
    pub fn is_epyc(&self) -> bool {
        let named = |name| self.model.contains(name);
        self.vendor == "AuthenticAMD" && (named("EPYC") || named("Instinct"))
    }

    /// Whether the processor is one of these from before HSMP.
    pub fn is_before_hsmp(&self) -> bool {
        self.is_epyc() && self.family < 0x19
    }

    /// The socket at `address`, behind a back end and its driver.
    pub fn socket(&self, address: String, backend: &str, driver: &str) -> Identity {
        let model = match self.model.as_str() {
            "" => "CPU",
            model => model,
        };
        Identity {
            kind: DeviceKind::Cpu,
            address,
            uuid: None,
            serial: None,
            model: model.to_owned(),
            driver: driver.to_owned(),
            backend: backend.to_owned(),
            sharing: Sharing::Whole,
            read_back: ReadBack::Device,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_speaks_for_all() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\n\
                    model name\t: AMD EPYC 9654 96-Core Processor\n\nprocessor\t: 1\n\
                    vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n";
        let processor = Processor::parse(text);
        assert_eq!(processor.vendor, "AuthenticAMD");
        assert_eq!(processor.family, 25);
        assert!(processor.is_epyc() && !processor.is_intel() && !processor.is_before_hsmp());
        assert!(processor.is_guest);
    }

    #[test]
    fn a_processor_that_says_nothing_is_nobodys() {
        let processor = Processor::parse("CPU implementer\t: 0x41\n");
        assert!(!processor.is_epyc() && !processor.is_intel() && !processor.is_guest);
        assert_eq!(
            processor
                .socket("cpu1".to_owned(), "hsmp", "amd_hsmp")
                .model,
            "CPU"
        );
    }
}
