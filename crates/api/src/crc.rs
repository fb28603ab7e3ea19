//! The checksum of the lines that litd writes to disk.

/// CRC-32 as in zlib, four bits at a time.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut nibble = 0;
        while nibble < 16 {
            let mut crc = nibble as u32;
            let mut bit = 0;
            while bit < 4 {
                crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
                bit += 1;
            }
            table[nibble] = crc;
            nibble += 1;
        }
        table
    };
    let step = |crc: u32| (crc >> 4) ^ TABLE[(crc & 15) as usize];
    let add = |crc: u32, &byte: &u8| step(step(crc ^ u32::from(byte)));
    !bytes.iter().fold(u32::MAX, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_zlibs() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
