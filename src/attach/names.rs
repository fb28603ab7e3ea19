//! Which process holds the abstract socket name `dynolog`, if litd can't bind it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

/// How much of the table of unix sockets is read, in bytes; a user may have any number of them.
const LONGEST: u64 = 1024 * 1024;

/// The process that has an abstract name, in words; `None` where the kernel does not tell.
pub(super) fn owner(proc: &Path, name: &str) -> Option<String> {
    let table = File::open(proc.join("net/unix")).ok()?.take(LONGEST);
    let lines = BufReader::new(table).lines().map_while(Result::ok);
    let inode = lines.filter_map(|line| inode_of(&line, name)).next()?;
    let (pid, program) = holder(proc, inode)?;
    Some(format!("process {pid} ({program})"))
}

/// The inode of a socket in a line of the table, if the socket has that name. The table writes NUL as `@`.
fn inode_of(line: &str, name: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace().skip(6);
    let inode = fields.next()?.parse().ok()?;
    let named = fields.next()?.strip_prefix('@')?;
    (named.trim_end_matches('@') == name).then_some(inode)
}

/// A process that has a socket open, and the name of its program.
fn holder(proc: &Path, inode: u64) -> Option<(u32, String)> {
    let socket = format!("socket:[{inode}]");
    let numbered = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let processes = fs::read_dir(proc).ok()?.flatten().filter_map(numbered);
    let has_it = |pid: &u32| {
        let open = fs::read_dir(proc.join(format!("{pid}/fd")));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == &*socket))
    };
    let pid = processes.into_iter().find(has_it)?;
    let program = fs::read(proc.join(format!("{pid}/comm"))).unwrap_or_default();
    // A process may put anything into its name.
    let program = program.trim_ascii().escape_ascii().to_string();
    Some((pid, program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read() {
        let line = "0000000000000000: 00000002 00000000 00000000 0002 01 70123 @dynolog@";
        assert_eq!(inode_of(line, "dynolog"), Some(70123));
        assert_eq!(inode_of(line, "dyno"), None);
        let other = "0000000000000000: 00000002 00000000 00000000 0002 01 70123 /run/dynolog";
        assert_eq!(inode_of(other, "dynolog"), None);
        assert_eq!(
            inode_of("Num RefCount Protocol Flags Type St Inode Path", "x"),
            None
        );
    }
}
