//! PCI addresses.

use std::fmt;
use std::str::FromStr;

/// A function of a device on a PCI bus, as the kernel writes it: `0000:85:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Address {
    /// The domain (segment).
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Bus, device and function in 16 bits.
    pub fn place(&self) -> u16 {
        u16::from(self.bus) << 8 | u16::from(self.device) << 3 | u16::from(self.function)
    }

    /// The same device's first function.
    pub fn slot(&self) -> Self {
        Self {
            function: 0,
            ..*self
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for Address {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |digits: &str, longest: usize| {
            let fits = (1..=longest).contains(&digits.len());
            let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let number = u32::from_str_radix(digits, 16).map_err(|_| ())?;
            (fits && hexadecimal).then_some(number).ok_or(())
        };
        let (domain, rest) = text.split_once(':').ok_or(())?;
        let (bus, rest) = rest.split_once(':').ok_or(())?;
        let (device, function) = rest.split_once('.').ok_or(())?;
        let (device, function) = (number(device, 2)?, number(function, 1)?);
        if device > 0x1f || function > 7 {
            return Err(());
        }
        Ok(Self {
            domain: number(domain, 8)?,
            bus: number(bus, 2)? as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_is_written_as_it_is_read(
            domain: u32, bus: u8, device in 0u8..32, function in 0u8..8,
        ) {
            let address = Address { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn anything_else_is_none(text in ".{0,14}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert!(address.device < 32 && address.function < 8);
            }
        }
    }

    #[test]
    fn its_place_is_what_the_compute_driver_calls_its_location() {
        let address: Address = "0000:85:00.0".parse().unwrap();
        assert_eq!(address.place(), 0x8500);
        let address: Address = "10000:c6:03.1".parse().unwrap();
        assert_eq!((address.domain(), address.place()), (0x10000, 0xc619));
        for text in [
            "0000:85:00",
            "85:00.0",
            "amdgpu_xcp_1",
            "0000:85:20.0",
            "0:0:0.8",
            "+1:0:0.0",
        ] {
            assert_eq!(text.parse::<Address>(), Err(()), "{text}");
        }
    }
}
