//! The node's power from the file of `litd-node-power`: another process speaks to the BMC, and nothing here waits
//! for it.

use std::path::{Path, PathBuf};

use litd_core::NodeReading;
use litd_units::{Celsius, Watts};
use serde::Deserialize;

use litd_files as files;

/// The longest such file, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The file.
#[derive(Debug)]
pub struct NodePowerFile {
    path: PathBuf,
    /// The last reading that was seen. The first one may be of long ago.
    seen: Option<(String, u64)>,
}

/// The file's contents. Other keys are for people.
#[derive(Debug, Deserialize)]
struct Told {
    run: String,
    seq: u64,
    source: Option<String>,
    power_watts: Option<Watts>,
    cap_watts: Option<Watts>,
    inlet_celsius: Option<Celsius>,
    supplies: Option<u32>,
    failed: Option<u32>,
    alarm: Option<String>,
}

impl NodePowerFile {
    /// A file that may exist now or later.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            seen: None,
        }
    }

    /// A new reading. An unreadable file counts as none.
    pub fn poll(&mut self) -> Option<NodeReading> {
        let text = files::read(&self.path, LONGEST).ok()?;
        let told: Told = serde_json::from_slice(&text).ok()?;
        let this = (told.run, told.seq);
        let before = self.seen.replace(this.clone())?;
        (before != this).then(|| NodeReading {
            source: told.source.unwrap_or_default(),
            power: told.power_watts,
            cap: told.cap_watts,
            inlet: told.inlet_celsius,
            supplies: told.supplies,
            failed: told.failed,
            alarm: told.alarm.map(|text| text.chars().take(200).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_comes_once_and_an_old_file_is_none() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("reading.json");
        let mut file = NodePowerFile::new(&path);
        assert_eq!(file.poll(), None);
        let put = |seq: u64, power: &str| {
            let text = format!(
                "{{\"run\":\"1\",\"seq\":{seq},\"source\":\"redfish\",\"power_watts\":{power},\
                 \"cap_watts\":null,\"inlet_celsius\":24.5,\"supplies\":6,\"failed\":0,\
                 \"alarm\":null,\"error\":null}}"
            );
            std::fs::write(&path, text).unwrap();
        };
        // The reading's age is unknown.
        put(7, "5000.0");
        assert_eq!(file.poll(), None);
        put(8, "5100.0");
        let reading = file.poll().unwrap();
        assert_eq!(reading.power, Some(Watts(5100.0)));
        assert_eq!(reading.inlet, Some(Celsius(24.5)));
        assert_eq!(file.poll(), None);
        put(9, "null");
        assert_eq!(file.poll().unwrap().power, None);
        std::fs::write(&path, "{\"run\":").unwrap();
        assert_eq!(file.poll(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.poll(), None);
    }
}
