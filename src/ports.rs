//! Owners of TCP ports, by the kernel's tables.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The state of a listening socket.
const LISTENS: &str = "0A";

/// How much of a table is read, in bytes. Listening sockets come first; users can have any number of others.
const LONGEST: u64 = 1024 * 1024;

/// The user of a process that listens at an address, or at all addresses of its port; `None` where nobody
/// does, or the kernel does not tell. `proc` is a procfs.
#[must_use]
pub fn listener(proc: &Path, address: SocketAddr) -> Option<u32> {
    ["net/tcp", "net/tcp6"].iter().find_map(|table| {
        let table = File::open(proc.join(table)).ok()?.take(LONGEST);
        let mut lines = BufReader::new(table).lines().map_while(Result::ok);
        lines.find_map(|line| user_of(&line, address))
    })
}

/// The user in a line of a table, if it is one of a socket that takes connections to an address.
fn user_of(line: &str, address: SocketAddr) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace();
    let (host, port) = fields.nth(1)?.split_once(':')?;
    let listens = fields.nth(1)? == LISTENS;
    let port = u16::from_str_radix(port, 16).ok()?;
    let host = host_of(host)?.to_canonical();
    let takes = host.is_unspecified() || host == address.ip().to_canonical();
    let is_it = listens && takes && port == address.port();
    is_it.then(|| fields.nth(3)?.parse().ok()).flatten()
}

/// An address as the kernel writes it: hexadecimal words in memory order.
fn host_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = hex.get(8 * at..8 * at + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (at, part) in octets.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_tells_who_listens() {
        let own = nix::unistd::Uid::effective().as_raw();
        for host in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(socket) = TcpListener::bind(host) else {
                eprintln!("SKIPPED: there is no {host} here");
                continue;
            };
            let mut address = socket.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            assert_eq!(listener(Path::new("/proc"), address), Some(own), "{host}");
            drop(socket);
            assert_eq!(listener(Path::new("/proc"), address), None, "{host}");
        }
    }

    #[test]
    fn a_table_may_have_anything_in_it() {
        let address = "127.0.0.1:9816".parse().unwrap();
        let port = format!("{:04X}", 9816);
        let host = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let line = |host: &str, state: &str| {
            format!(
                "   0: {host}:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 61001 0"
            )
        };
        assert_eq!(user_of(&line(&host, "0A"), address), Some(61_001));
        assert_eq!(user_of(&line("00000000", "0A"), address), Some(61_001));
        assert_eq!(user_of(&line(&"0".repeat(32), "0A"), address), Some(61_001));
        assert_eq!(user_of(&line(&host, "01"), address), None);
        for bad in ["", "é", "é".repeat(4).as_str(), "00000001"] {
            assert_eq!(user_of(&line(bad, "0A"), address), None, "{bad}");
        }
        assert_eq!(user_of("sl local_address", address), None);
    }
}
