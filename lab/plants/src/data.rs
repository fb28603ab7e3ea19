//! The recorded data (`plant/SOURCES.md` of the project's reference folder): gzip CSV with a
//! header, of public origin. Columns that aren't needed here are not read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The largest file that is read, unpacked.
const LARGEST: u64 = 1 << 30;

/// Why a file can't be used.
#[derive(Debug, Error)]
pub enum DataError {
    /// It can't be opened.
    #[error("{}: {cause}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A line that can't be read, or whose numbers can't be.
    #[error("{}, line {line}: {cause}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, 1 for the header.
        line: u64,
        /// What is wrong and what it should be.
        cause: String,
    },
    /// A file without a row.
    #[error("{}: it has a header and no row, or nothing at all", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

/// A row that knows which of its numbers can't be.
trait Row: DeserializeOwned {
    /// The numbers that must be finite and lie in a range: name, value, lowest, highest.
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)>;
}

/// One launch of one GPU (longhorn_sgemm).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Launch {
    /// Cabinet and node of it together name a node.
    pub cabinet: String,
    /// Number within the cabinet.
    pub node: String,
    /// When, s.
    pub ts: i64,
    /// The GPU.
    pub uuid: String,
    /// Median time of a kernel.
    pub time_ms: f64,
    /// Median clock.
    pub sm_mhz: f64,
    /// Median temperature.
    pub temp_c: f64,
    /// Median power as nvidia-smi says.
    pub power_w: f64,
}

impl Row for Launch {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("time_ms", self.time_ms, 1e-6, 1e9),
            ("sm_mhz", self.sm_mhz, 1.0, 1e4),
            ("temp_c", self.temp_c, -50.0, 200.0),
            ("power_w", self.power_w, 0.0, 1e4),
        ]
    }
}

/// One GPU of a job (longhorn_resnet, longhorn_bert).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct JobGpu {
    /// Median clock.
    pub median_sm_mhz: f64,
    /// Median temperature.
    pub median_temp_c: f64,
    /// Mean power.
    pub mean_pwr: f64,
    /// The highest sample of power.
    pub max_pwr: f64,
}

impl Row for JobGpu {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("median_sm_mhz", self.median_sm_mhz, 1.0, 1e4),
            ("median_temp_c", self.median_temp_c, -50.0, 200.0),
            ("mean_pwr", self.mean_pwr, 0.0, 1e4),
            ("max_pwr", self.max_pwr, 0.0, 1e4),
        ]
    }
}

/// One GPU in latency-bound work (longhorn_pagerank).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Control {
    /// The GPU.
    pub uuid: String,
    /// Time of all kernels, ms.
    pub perf_as_published: f64,
    /// Median power.
    pub median_power_w: f64,
}

impl Row for Control {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("perf_as_published", self.perf_as_published, 1e-6, 1e12),
            ("median_power_w", self.median_power_w, 0.0, 1e4),
        ]
    }
}

/// A job on one GPU at one limit (zeus_power_limit).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Limited {
    /// Model of the GPU.
    pub gpu: String,
    /// These four name the job.
    pub dataset: String,
    /// Network.
    pub network: String,
    /// Batch size.
    pub batch_size: String,
    /// Optimizer.
    pub optimizer: String,
    /// The limit, W.
    pub power_limit: f64,
    /// Time of an epoch, s.
    pub time_per_epoch: f64,
    /// Mean draw, W.
    pub average_power: f64,
}

impl Row for Limited {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("power_limit", self.power_limit, 1.0, 1e4),
            ("time_per_epoch", self.time_per_epoch, 1e-6, 1e9),
            ("average_power", self.average_power, 0.1, 1e4),
        ]
    }
}

/// A fixed number of steps at one limit (zeus_limit_profiles).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Profile {
    /// The job.
    pub profile: String,
    /// Which of its GPUs.
    pub gpu: String,
    /// The limit, W.
    pub limit_w: f64,
    /// How long it took, s.
    pub elapsed_s: f64,
    /// Energy, J.
    pub energy_j: f64,
}

impl Row for Profile {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("limit_w", self.limit_w, 1.0, 1e4),
            ("elapsed_s", self.elapsed_s, 1e-6, 1e9),
            ("energy_j", self.energy_j, 0.0, 1e12),
        ]
    }
}

/// A card at a moment (mi300x_node8).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Card {
    /// The run.
    pub run: String,
    /// The card.
    pub device: String,
    /// Power.
    pub power_watts: f64,
    /// Temperature at the edge.
    pub temp_edge_celsius: f64,
    /// How busy, %.
    pub gpu_use_percent: f64,
}

impl Row for Card {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("power_watts", self.power_watts, 0.0, 1e4),
            ("temp_edge_celsius", self.temp_edge_celsius, -50.0, 200.0),
            ("gpu_use_percent", self.gpu_use_percent, 0.0, 100.0),
        ]
    }
}

/// A whole node at a moment (mlperf_h100_node_power).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NodePower {
    /// Side of the power supplies.
    pub supply: String,
    /// These four name a node in a run.
    pub nodes: String,
    /// Benchmark.
    pub benchmark: String,
    /// Run.
    pub run: String,
    /// Node.
    pub node: String,
    /// When, Unix time in ms.
    pub time_ms: f64,
    /// Power; 0 is a dropout.
    pub watts: f64,
}

impl Row for NodePower {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("time_ms", self.time_ms, 0.0, 1e14),
            ("watts", self.watts, 0.0, 1e6),
        ]
    }
}

/// A poll of nvidia-smi (sensor_*_reported, sensor_update_*).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Poll {
    /// When, ms.
    pub t_ms: f64,
    /// Power.
    pub draw_w: f64,
}

impl Row for Poll {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("t_ms", self.t_ms, -1e12, 1e14),
            ("draw_w", self.draw_w, 0.0, 1e4),
        ]
    }
}

/// A millisecond of an external meter (sensor_*_meter).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Metered {
    /// When, ms.
    pub t_ms: f64,
    /// Power.
    pub watts: f64,
}

impl Row for Metered {
    fn numbers(&self) -> Vec<(&'static str, f64, f64, f64)> {
        vec![
            ("t_ms", self.t_ms, -1e12, 1e14),
            ("watts", self.watts, -100.0, 1e5),
        ]
    }
}

/// The folder with the files.
#[derive(Debug, Clone)]
pub struct Folder(Option<PathBuf>);

impl Folder {
    /// This one.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(Some(path.to_owned()))
    }

    /// No folder: nothing is recorded.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// longhorn_sgemm. Here and below, `None`: the folder has no such file.
    ///
    /// # Errors
    /// The file is there and can't be read, or a line of it.
    pub fn launches(&self) -> Result<Option<Vec<Launch>>, DataError> {
        self.read("longhorn_sgemm")
    }

    /// longhorn_resnet or longhorn_bert.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn job(&self, name: &str) -> Result<Option<Vec<JobGpu>>, DataError> {
        self.read(&format!("longhorn_{name}"))
    }

    /// longhorn_pagerank.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn controls(&self) -> Result<Option<Vec<Control>>, DataError> {
        self.read("longhorn_pagerank")
    }

    /// zeus_power_limit.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn limited(&self) -> Result<Option<Vec<Limited>>, DataError> {
        self.read("zeus_power_limit")
    }

    /// zeus_limit_profiles.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn profiles(&self) -> Result<Option<Vec<Profile>>, DataError> {
        self.read("zeus_limit_profiles")
    }

    /// mi300x_node8.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn cards(&self) -> Result<Option<Vec<Card>>, DataError> {
        self.read("mi300x_node8")
    }

    /// mlperf_h100_node_power.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn node_power(&self) -> Result<Option<Vec<NodePower>>, DataError> {
        self.read("mlperf_h100_node_power")
    }

    /// sensor_update of a GPU, or sensor_SET_reported.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn polls(&self, name: &str) -> Result<Option<Vec<Poll>>, DataError> {
        self.read(&format!("sensor_{name}"))
    }

    /// The names of all sensor sets with both a meter and a report, and all update files.
    #[must_use]
    pub fn sensors(&self) -> (Vec<String>, Vec<String>) {
        let folder = self.0.iter().filter_map(|it| std::fs::read_dir(it).ok());
        let entries = folder.flatten().flatten();
        let (mut pairs, mut updates) = (Vec::new(), Vec::new());
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|it| it.strip_prefix("sensor_")) else {
                continue;
            };
            let name = name.trim_end_matches(".gz").trim_end_matches(".csv");
            if let Some(set) = name.strip_suffix("_meter") {
                pairs.push(set.to_owned());
            } else if name.starts_with("update_") {
                updates.push(name.to_owned());
            }
        }
        pairs.sort();
        updates.sort();
        (pairs, updates)
    }

    /// sensor_SET_meter.
    ///
    /// # Errors
    /// As [`Self::launches`].
    pub fn meter(&self, set: &str) -> Result<Option<Vec<Metered>>, DataError> {
        self.read(&format!("sensor_{set}_meter"))
    }

    fn read<T: Row>(&self, name: &str) -> Result<Option<Vec<T>>, DataError> {
        let Some(folder) = &self.0 else {
            return Ok(None);
        };
        for file in [format!("{name}.csv.gz"), format!("{name}.csv")] {
            let path = folder.join(file);
            match litd_files::open(&path, OpenOptions::new().read(true)) {
                Ok(file) => return rows(&path, file).map(Some),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(DataError::Open { file: path, cause }),
            }
        }
        Ok(None)
    }
}

fn rows<T: Row>(path: &Path, file: File) -> Result<Vec<T>, DataError> {
    let packed = path.extension().is_some_and(|it| it == "gz");
    let bytes: Box<dyn Read> = match packed {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut reader = csv::Reader::from_reader(bytes.take(LARGEST));
    let mut rows = Vec::new();
    let wrong = |line, cause| DataError::Line {
        file: path.to_owned(),
        line,
        cause,
    };
    // A decoder's error has no line: the last one that was read is named.
    let mut line = 1;
    let headers = reader
        .headers()
        .map_err(|cause| wrong(1, cause.to_string()))?
        .clone();
    let mut record = csv::StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => line = record.position().map_or(line + 1, csv::Position::line),
            Err(cause) => {
                let at = cause.position().map_or(line + 1, csv::Position::line);
                return Err(wrong(at, cause.to_string()));
            }
        }
        let row: T = record
            .deserialize(Some(&headers))
            .map_err(|cause| wrong(line, plain(&cause, &headers)))?;
        for (name, value, lowest, highest) in row.numbers() {
            // A NaN is in no range.
            if !(lowest..=highest).contains(&value) {
                let cause =
                    format!("{name} is {value}; it must lie between {lowest} and {highest}");
                return Err(wrong(line, cause));
            }
        }
        rows.push(row);
    }
    match rows.is_empty() {
        true => Err(DataError::Empty {
            file: path.to_owned(),
        }),
        false => Ok(rows),
    }
}

/// What is wrong with a record, without the position that is said already.
fn plain(error: &csv::Error, headers: &csv::StringRecord) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|it| headers.get(it as usize));
            match column {
                Some(column) => format!("{column}: {}", err.kind()),
                None => err.kind().to_string(),
            }
        }
        _ => error.to_string(),
    }
}
