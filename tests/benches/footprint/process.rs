//! What the kernel and the daemon itself tell of the daemon.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use litd_api::Status;
use litd_rig::Rig;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A process and its children.
pub struct Process(pub u32);

/// In bytes.
#[derive(Default)]
pub struct Memory {
    /// Shared pages count in part: by how many share them.
    pub pss: f64,
    pub private: f64,
    pub resident: f64,
}

/// The kilobytes after `key` in one of the kernel's tables, in bytes.
fn bytes(table: &str, key: &str) -> f64 {
    let lines = table
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kilobytes =
        lines.filter_map(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    1024.0 * kilobytes.sum::<f64>()
}

impl Process {
    pub fn memory(&self) -> Result<Memory> {
        let mut sum = Memory::default();
        for pid in self.family()? {
            let table = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            sum.pss += bytes(&table, "Pss");
            sum.private += bytes(&table, "Private_Clean") + bytes(&table, "Private_Dirty");
            sum.resident += bytes(&table, "Rss");
        }
        Ok(sum)
    }

    /// The highest PSS that it can have had, if what it shares now is what it shared then:
    /// `pss` of now and what the resident set was larger at its peak.
    pub fn peak(&self, pss: f64) -> Result<f64> {
        let table = fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let now = self.memory()?;
        Ok(pss.max(now.pss + bytes(&table, "VmHWM") - now.resident))
    }

    /// What all of its threads have used.
    pub fn cpu(&self) -> Result<Duration> {
        let mut sum = Duration::ZERO;
        for thread in fs::read_dir(format!("/proc/{}/task", self.0))? {
            let path = thread?.path();
            // In nanoseconds, where `stat` counts hundredths of a second.
            let table = fs::read_to_string(path.join("schedstat"))?;
            let used = table.split(' ').next().unwrap_or_default();
            sum += Duration::from_nanos(used.parse()?);
        }
        Ok(sum)
    }

    fn family(&self) -> Result<Vec<u32>> {
        let mut family = vec![self.0];
        for thread in fs::read_dir(format!("/proc/{}/task", self.0))? {
            let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace() {
                family.extend(Process(child.parse()?).family()?);
            }
        }
        Ok(family)
    }
}

/// Asks the daemon how it is.
pub fn ask_status(rig: &Rig) -> Result<Status> {
    let mut stream = UnixStream::connect(rig.layout().control())?;
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: litd\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(serde_json::from_str(body)?)
}
