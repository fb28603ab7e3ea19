//! Other programs that set power caps: two hands on one knob are one too many.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// A program that may set caps, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rival {
    /// The process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// What it does, and what to do about it.
    pub advice: String,
}

/// Programs, by the name that the kernel has (15 bytes at most), and what to do.
const KNOWN: [(&str, &str); 7] = [
    (
        "nv-hostengine",
        "DCGM enforces power targets of its own if it was told any: `dcgmi config --get`",
    ),
    (
        "zeusd",
        "Zeus sets power limits and leaves them: keep one of the two",
    ),
    (
        "lact",
        "LACT applies its saved power caps at start: remove them from its configuration",
    ),
    (
        "geopmd",
        "GEOPM sets power limits for its sessions: don't run a power agent beside litd",
    ),
    (
        "tuned",
        "tuned profiles may set CPU power limits: choose one that does not",
    ),
    (
        "thermald",
        "thermald moves Intel power limits: stop it before cpu-slosh is used",
    ),
    (
        "powercapd",
        "it sets powercap limits: stop it before cpu-slosh is used",
    ),
];

/// Those that run now. Whose processes can't be seen is not told.
pub fn running(proc: &Path) -> Vec<Rival> {
    let Ok(entries) = fs::read_dir(proc) else {
        return Vec::new();
    };
    let mut rivals: Vec<Rival> = entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read(entry.path().join("comm")).ok()?;
            let name = String::from_utf8_lossy(&name).trim_end().to_owned();
            let (program, advice) = KNOWN.iter().find(|(program, _)| *program == name)?;
            Some(Rival {
                pid,
                program: (*program).to_owned(),
                advice: (*advice).to_owned(),
            })
        })
        .collect();
    rivals.sort_by_key(|rival| rival.pid);
    rivals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_programs_are_found_by_the_kernels_name() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, name) in [("7", "zeusd\n"), ("12", "bash\n"), ("self", "zeusd\n")] {
            let folder = proc.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("comm"), name).unwrap();
        }
        let rivals = running(proc.path());
        assert_eq!(rivals.len(), 1, "{rivals:?}");
        assert_eq!((rivals[0].pid, rivals[0].program.as_str()), (7, "zeusd"));
    }

    #[test]
    fn names_are_as_short_as_the_kernel_makes_them() {
        assert!(KNOWN.iter().all(|(name, _)| name.len() <= 15));
    }
}
