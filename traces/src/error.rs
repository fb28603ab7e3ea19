//! What can be wrong with a trace file, or with a set of them.

use std::io;

use crate::gather::Fault;

/// Why a trace cannot be used. Each text names the file, the cause and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system refused.
    #[error("{file}: {cause}")]
    Io {
        /// The file as the user named it.
        file: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// Nothing in it.
    #[error("{file}: is empty; record the trace again")]
    Empty {
        /// The file as the user named it.
        file: String,
    },
    /// The compressed data stops early.
    #[error(
        "{file}: the {packing} data is truncated after {offset} bytes of JSON ({events} events); copy the file again"
    )]
    TruncatedPacking {
        /// The file as the user named it.
        file: String,
        /// gzip or zstd.
        packing: &'static str,
        /// Bytes of JSON before the end.
        offset: u64,
        /// Events read before the end.
        events: u64,
    },
    /// The compressed data is damaged.
    #[error(
        "{file}: the {packing} data is damaged after {offset} bytes of JSON ({cause}); copy the file again"
    )]
    CorruptPacking {
        /// The file as the user named it.
        file: String,
        /// gzip or zstd.
        packing: &'static str,
        /// Bytes of JSON before the damage.
        offset: u64,
        /// What the decoder said.
        cause: io::Error,
    },
    /// The compressed data of another format stops early or is damaged.
    #[error("{file}: the {packing} data is cut or damaged ({cause}); copy the file again")]
    BadPacking {
        /// The file as the user named it.
        file: String,
        /// gzip or zstd.
        packing: &'static str,
        /// What the decoder said.
        cause: io::Error,
    },
    /// The JSON stops early.
    #[error(
        "{file}: the JSON is cut at byte {offset}, after {events} events; the profiler or the copy was stopped early, record or copy it again"
    )]
    CutJson {
        /// The file as the user named it.
        file: String,
        /// Length of the JSON.
        offset: u64,
        /// Events read before the end.
        events: u64,
    },
    /// Not JSON.
    #[error(
        "{file}: is neither JSON nor gzip-compressed JSON ({what} at byte {offset}); copy or record it again"
    )]
    NotJson {
        /// The file as the user named it.
        file: String,
        /// Where that shows.
        offset: u64,
        /// What was found there.
        what: String,
    },
    /// JSON of another kind.
    #[error("{file}: is JSON, but not a Kineto trace: {what}")]
    NotKineto {
        /// The file as the user named it.
        file: String,
        /// How it differs.
        what: String,
    },
    /// None of the formats that are read.
    #[error(
        "{file}: is none of the formats that are read: Kineto JSON, Perfetto, rocprofv3 (rocpd, JSON, CSV), rocprof (JSON, CSV, db), rocmProfileData, xplane.pb, Nsight Systems (SQLite export, nsys stats --report cuda_gpu_trace as CSV); plain, gzip or zstd"
    )]
    UnknownFormat {
        /// The file as the user named it.
        file: String,
    },
    /// What comes out of it is compressed.
    #[error("{file}: is compressed twice; unpack it once")]
    PackedTwice {
        /// The file as the user named it.
        file: String,
    },
    /// Text whose characters take two bytes.
    #[error("{file}: is text in UTF-16; save it as UTF-8")]
    Utf16 {
        /// The file as the user named it.
        file: String,
    },
    /// A binary file that breaks the rules of its format.
    #[error("{file}: the {format} is damaged at byte {offset}: {what}; copy or record it again")]
    Damaged {
        /// The file as the user named it.
        file: String,
        /// Its format.
        format: &'static str,
        /// Where that shows.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// An SQLite file that can't be read.
    #[error("{file}: as an SQLite file: {what}")]
    Sqlite {
        /// The file as the user named it.
        file: String,
        /// What SQLite said, or what was missed.
        what: String,
    },
    /// An SQLite file that no known profiler wrote.
    #[error(
        "{file}: is an SQLite file whose tables are of none of rocpd, rocprof, rocmProfileData and Nsight Systems; give the file that the profiler wrote (of Nsight Systems: nsys export --type sqlite)"
    )]
    OtherDatabase {
        /// The file as the user named it.
        file: String,
    },
    /// A compressed SQLite file that would fill the disk.
    #[error(
        "{file}: the SQLite file in it takes more than {limit} GiB; unpack it yourself and give what comes out"
    )]
    TooLargeUnpacked {
        /// The file as the user named it.
        file: String,
        /// The most that is unpacked, in GiB.
        limit: u64,
    },
    /// A trace of the host alone.
    #[error(
        "{file}: holds no GPU kernels: it was recorded without device activity ({events} events read); record it again while kernels run, {advice}"
    )]
    NoKernels {
        /// The file as the user named it.
        file: String,
        /// Events read.
        events: u64,
        /// How the profiler that wrote it is told to record kernels.
        advice: &'static str,
    },
    /// A trace of devices of another kind.
    #[error("{file}: holds no GPU kernels, but {what}")]
    OtherActivity {
        /// The file as the user named it.
        file: String,
        /// What it holds instead, and what to do about that.
        what: String,
    },
    /// A trace of copies.
    #[error(
        "{file}: holds {}, and no kernel: only kernels show who waits; give the trace of the kernels as well, or \
         record both into one file",
        match copies { 1 => "one copy".to_owned(), copies => format!("{copies} copies") }
    )]
    OnlyCopies {
        /// The file as the user named it.
        file: String,
        /// How many copies and fills.
        copies: usize,
    },
    /// A file of a profiler's own, which only that profiler reads.
    #[error("{file}: is {what}; {advice}")]
    Foreign {
        /// The file as the user named it.
        file: String,
        /// What it is.
        what: &'static str,
        /// How to make of it what is read.
        advice: String,
    },
    /// None of the devices that the user wants.
    #[error("{file}: has none of the devices {wanted} (--devices); it has {there}")]
    NoSuchDevice {
        /// The file as the user named it.
        file: String,
        /// The devices that were wanted.
        wanted: String,
        /// The devices that are there.
        there: String,
    },
    /// A summary of collectives without one that tells who waits.
    #[error(
        "{file}: holds no all-reduce, all-gather or reduce-scatter, and only these show who waits; give the traces \
         themselves"
    )]
    NoCollectives {
        /// The file as the user named it.
        file: String,
    },
    /// One event that no sane profiler writes.
    #[error(
        "{file}: the event at byte {offset} takes more than {limit} bytes; no profiler writes that, record the trace again"
    )]
    EventTooLong {
        /// The file as the user named it.
        file: String,
        /// Where it starts.
        offset: u64,
        /// The most that is read, in bytes.
        limit: usize,
    },
    /// A kernel event that cannot be understood.
    #[error("{file}: {what} (event {event}, kernel \"{kernel}\")")]
    BadKernel {
        /// The file as the user named it.
        file: String,
        /// What is wrong with it.
        what: String,
        /// Its number in the file, from 1.
        event: u64,
        /// Its name, shortened.
        kernel: String,
    },
    /// Another value that cannot be understood.
    #[error("{file}: {what} (event {event})")]
    BadEvent {
        /// The file as the user named it.
        file: String,
        /// What is wrong with it.
        what: String,
        /// The number of the last event seen, from 1.
        event: u64,
    },
    /// Several files, and which ranks they are is not known.
    #[error("{file}: does not name its rank; name the ranks of all files with --ranks")]
    UnknownRank {
        /// The file as the user named it.
        file: String,
    },
    /// Ranks were given, but not as many as there are GPUs.
    #[error(
        "{file}: holds {} ({devices}), but --ranks names {} for it: name one for each, in this order",
        match gpus { 1 => "one GPU".to_owned(), gpus => format!("{gpus} GPUs") },
        match given { 1 => "one rank".to_owned(), given => format!("{given} ranks") }
    )]
    GivenRanks {
        /// The file as the user named it.
        file: String,
        /// How many GPUs it holds.
        gpus: usize,
        /// The labels of their devices.
        devices: String,
        /// How many ranks were given.
        given: usize,
    },
    /// One rank twice.
    #[error(
        "{first} and {second} both hold rank {rank}{}",
        match successive {
            true => ", one after the other: a profiler that records again and again writes a file each time; give the files of one time, one of each rank",
            false => "; leave one out, or name the ranks of the files with --ranks, each once",
        }
    )]
    DuplicateRank {
        /// The rank.
        rank: u32,
        /// A file.
        first: String,
        /// Another file, or the same one.
        second: String,
        /// Whether one was recorded after the other.
        successive: bool,
    },
    /// A rank that its job cannot have.
    #[error(
        "{file}: holds rank {rank} of a job of world size {world_size}, which there cannot be; name the ranks of the files with --ranks"
    )]
    RankOutsideWorld {
        /// The file as the user named it.
        file: String,
        /// The rank.
        rank: u32,
        /// How many ranks the job has.
        world_size: u32,
    },
    /// Two files that are not of one run.
    #[error("{first} and {second} do not belong together: {why}; give traces of one run")]
    Strangers {
        /// A file.
        first: String,
        /// Another.
        second: String,
        /// What tells that.
        why: String,
    },
    /// Nothing was given to read.
    #[error("no trace was given")]
    NoTraces,
}

impl ReadError {
    /// What is wrong with the content of `file`.
    pub(crate) fn of(fault: Fault, file: &str) -> Self {
        let file = file.to_owned();
        match fault {
            Fault::Kernel { event, name, what } => Self::BadKernel {
                file,
                what,
                event,
                kernel: name,
            },
            Fault::Value { event, what } => Self::BadEvent { file, what, event },
            Fault::Ranks {
                gpus,
                devices,
                given,
            } => Self::GivenRanks {
                file,
                gpus,
                devices,
                given,
            },
            Fault::Devices { wanted, there } => Self::NoSuchDevice {
                file,
                wanted,
                there,
            },
            Fault::OnlyCopies { copies } => Self::OnlyCopies { file, copies },
        }
    }
}
