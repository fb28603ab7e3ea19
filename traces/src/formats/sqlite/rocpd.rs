//! rocprofv3's rocpd, its default since ROCm 7: tables whose names end in the recording's UUID,
//! one set per process in a merged file. Schema 3 has times in the dispatches themselves; the
//! next has them in `rocpd_timestamp`, by way of numbers, and the GPU and stream in `rocpd_track`
//! (rocprofiler-sdk, `rocpd_tables.sql`). The host's calls are regions; a call and what it put on a
//! GPU have events with one `stack_id`.

use std::collections::{BTreeSet, HashMap};

use rusqlite::Row;

use super::{Tables, Trouble, gpu_label, label, optional};
use crate::formats::tables::{rocprofv3::ADVICE, rocprofv3::correlation, stream_label};
use crate::gather::{Fault, Found, Gathered, KernelText};
use crate::job::Ranks;
use crate::timeline::KernelClass;

/// Where a kernel ran.
#[derive(Clone, Default)]
struct Place {
    process: String,
    agent: Option<i64>,
    queue: String,
    stream: String,
}

/// What ran on a GPU, and when.
struct Ran {
    place: Place,
    times: [i64; 2],
    /// The number that it has in common with its launch.
    correlation: Option<u64>,
}

/// Whether rocprofv3 made these tables.
pub(super) fn wrote(tables: &Tables) -> bool {
    tables.suffixes("rocpd_kernel_dispatch").next().is_some()
}

pub(super) fn read(tables: &Tables) -> Result<Found, Trouble> {
    let mut gathered = Gathered::default();
    let mut events = 0;
    let recordings = Vec::from_iter(tables.suffixes("rocpd_kernel_dispatch"));
    let processes = Processes::of(tables, &recordings)?;
    gathered.world_size = processes.ranks.world_size();
    gathered.several_machines = processes.machines.len() > 1;
    let mut all = Vec::new();
    for (number, uuid) in recordings.into_iter().enumerate() {
        let recording = Recording::open(tables, (number, uuid), &processes)?;
        events += recording.kernels(&mut gathered)?;
        events += recording.copies(&mut gathered)?;
        all.push(recording);
    }
    let launched = gathered.correlated();
    for recording in all {
        recording.launches(&launched, &mut gathered)?;
    }
    Ok(Found::new(gathered, events, ADVICE))
}

/// The processes of all recordings, by recording and number.
#[derive(Default)]
struct Processes {
    several: bool,
    /// What their environments tell.
    ranks: Ranks<(String, String)>,
    machines: BTreeSet<String>,
}

impl Processes {
    fn of(tables: &Tables, recordings: &[&str]) -> Result<Self, Trouble> {
        let mut processes = Self::default();
        let mut count = 0;
        for uuid in recordings {
            let table = format!("rocpd_info_process{uuid}");
            let environment = tables.column(&table, &["environment"]);
            let id = tables.column(&table, &["id"]);
            let rows = tables.scan(&table, &[id, environment], |_, row| {
                let key = ((*uuid).to_owned(), label(row, 0)?);
                processes.ranks.add(key, &label(row, 1)?);
                Ok(())
            })?;
            count += rows.max(1);
            let table = format!("rocpd_info_node{uuid}");
            let machine = tables.column(&table, &["machine_id", "hostname"]);
            tables.scan(&table, &[machine], |_, row| {
                processes.machines.insert(label(row, 0)?);
                Ok(())
            })?;
        }
        processes.several = count > 1;
        Ok(processes)
    }
}

/// One process's recording.
struct Recording<'a> {
    tables: &'a Tables,
    /// Its place among the recordings of the file.
    number: usize,
    uuid: &'a str,
    processes: &'a Processes,
    /// GPUs by their agents' numbers.
    gpus: HashMap<i64, String>,
    tracks: HashMap<i64, Place>,
    times: HashMap<i64, i64>,
    /// Events with their stack ids, in order; none where no call is recorded.
    stacks: Vec<(i64, i64)>,
}

impl<'a> Recording<'a> {
    fn open(
        tables: &'a Tables,
        (number, uuid): (usize, &'a str),
        processes: &'a Processes,
    ) -> Result<Self, Trouble> {
        let mut recording = Self {
            tables,
            number,
            uuid,
            processes,
            gpus: HashMap::new(),
            tracks: HashMap::new(),
            times: HashMap::new(),
            stacks: Vec::new(),
        };
        let table = recording.table("rocpd_info_agent");
        let index = tables.column(&table, &["type_index", "logical_index", "absolute_index"]);
        let gpus = &mut recording.gpus;
        tables.scan(&table, &[Some("id"), index, Some("type")], |_, row| {
            if label(row, 2)? == "GPU" {
                gpus.insert(row.get(0)?, label(row, 1)?);
            }
            Ok(())
        })?;
        if tables
            .column(&recording.table("rocpd_kernel_dispatch"), &["start"])
            .is_none()
        {
            recording.indirect()?;
        }
        recording.events()?;
        Ok(recording)
    }

    fn table(&self, name: &str) -> String {
        format!("{name}{}", self.uuid)
    }

    /// Loads times and tracks, which dispatches refer to by number.
    fn indirect(&mut self) -> Result<(), Trouble> {
        let tables = self.tables;
        let columns = ["id", "value"].map(Some);
        let times = &mut self.times;
        tables.scan(
            &format!("rocpd_timestamp{}", self.uuid),
            &columns,
            |_, row| {
                times.insert(row.get(0)?, row.get(1)?);
                Ok(())
            },
        )?;
        let columns = ["id", "pid", "agent_id", "queue_id", "stream_id"].map(Some);
        let tracks = &mut self.tracks;
        tables.scan(&format!("rocpd_track{}", self.uuid), &columns, |_, row| {
            tracks.insert(row.get(0)?, Place::of(row, 1)?);
            Ok(())
        })?;
        Ok(())
    }

    /// Loads the stack ids of events, if calls have any.
    fn events(&mut self) -> Result<(), Trouble> {
        let tables = self.tables;
        if tables
            .column(&self.table("rocpd_region"), &["event_id"])
            .is_none()
        {
            return Ok(());
        }
        let table = self.table("rocpd_event");
        let columns = ["id", "stack_id"].map(|column| tables.column(&table, &[column]));
        tables.scan(&table, &columns, |_, row| {
            let stack = optional(row, 1).filter(|stack| *stack != 0);
            self.stacks.extend(optional(row, 0).zip(stack));
            Ok(())
        })?;
        self.stacks.sort_unstable();
        Ok(())
    }

    /// The number that the event of a call has in common with those of what it put on a GPU.
    fn correlation(&self, event: Option<i64>) -> Option<u64> {
        let event = event?;
        let first = self.stacks.partition_point(|known| known.0 < event);
        let (_, stack) = self.stacks.get(first).filter(|known| known.0 == event)?;
        correlation(self.number, u64::try_from(*stack).ok()?)
    }

    /// Takes the calls that put something on a GPU. A row that can't be understood is none.
    fn launches(&self, launched: &[u64], gathered: &mut Gathered) -> Result<(), Trouble> {
        if self.stacks.is_empty() || launched.is_empty() {
            return Ok(());
        }
        let table = self.table("rocpd_region");
        let column = |wanted: &[&'static str]| self.tables.column(&table, wanted);
        let columns = [
            column(&["event_id"]),
            column(&["start", "start_id"]),
            column(&["track_id"]),
            column(&["pid"]),
        ];
        let direct = column(&["start"]).is_some();
        self.tables.scan(&table, &columns, |_, row| {
            let correlation = self.correlation(optional(row, 0));
            let correlation = correlation.filter(|one| launched.binary_search(one).is_ok());
            let at = optional(row, 1);
            let at = match direct {
                true => at,
                false => at.and_then(|id| self.times.get(&id).copied()),
            };
            if let (Some(correlation), Some(at)) = (correlation, at) {
                let track = optional(row, 2).and_then(|track| self.tracks.get(&track));
                let rank = match track {
                    Some(place) => self.rank(&place.process),
                    None => self.rank(&label(row, 3)?),
                };
                gathered.launch(rank, correlation, at);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Hands out two numbers of each row of a table, and what ran.
    fn rows(
        &self,
        table: &str,
        own: [Option<&str>; 2],
        agents: &[&str],
        mut take: impl FnMut(u64, &Row<'_>, Ran) -> Result<(), Trouble>,
    ) -> Result<u64, Trouble> {
        let table = self.table(table);
        let column = |wanted: &[&'static str]| self.tables.column(&table, wanted);
        let agent = self.tables.column(&table, agents);
        let columns = [
            own[0],
            own[1],
            column(&["pid"]),
            agent,
            column(&["queue_id"]),
            column(&["stream_id"]),
            column(&["start", "start_id"]),
            column(&["end", "end_id"]),
            column(&["track_id"]),
            column(&["event_id"]),
        ];
        let direct = column(&["start"]).is_some();
        self.tables.scan(&table, &columns, |number, row| {
            let time = |at: usize| {
                let time = row.get::<_, Option<i64>>(at)?;
                let time = match direct {
                    true => time,
                    false => time.and_then(|id| self.times.get(&id).copied()),
                };
                let what = || format!("a row of {table} has no time");
                time.ok_or_else(|| {
                    Trouble::from(Fault::Value {
                        event: number,
                        what: what(),
                    })
                })
            };
            let track = row.get::<_, Option<i64>>(8)?;
            let place = match track.and_then(|track| self.tracks.get(&track)) {
                Some(place) => place.clone(),
                None => Place::of(row, 2)?,
            };
            let ran = Ran {
                place,
                times: [time(6)?, time(7)?],
                correlation: self.correlation(optional(row, 9)),
            };
            take(number, row, ran)
        })
    }

    fn kernels(&self, gathered: &mut Gathered) -> Result<u64, Trouble> {
        let symbols = self.table("rocpd_info_kernel_symbol");
        let mut shown = self.tables.texts(&symbols, &["display_name"], "id")?;
        let mut plain = self.tables.texts(&symbols, &["kernel_name"], "id")?;
        let own = [Some("kernel_id"), None];
        let take = |number, row: &Row<'_>, ran: Ran| {
            let kernel = row.get(0)?;
            let name = match shown.get(kernel)? {
                Some(name) => Some(name),
                None => plain.get(kernel)?,
            };
            let kernel = KernelText {
                name: name.unwrap_or("unnamed kernel"),
                class: None,
                stream: &ran.place.stream(),
                device: &self.device(&ran.place),
                start: ran.times[0],
                end: ran.times[1],
            };
            self.take(gathered, number, &ran, &kernel)
        };
        self.rows("rocpd_kernel_dispatch", own, &["agent_id"], take)
    }

    fn copies(&self, gathered: &mut Gathered) -> Result<u64, Trouble> {
        let strings = self.table("rocpd_string");
        let mut names = self.tables.texts(&strings, &["string"], "id")?;
        let own = [Some("name_id"), Some("src_agent_id")];
        let take = |number, row: &Row<'_>, mut ran: Ran| {
            // The GPU is the receiver, or the sender where the receiver is the host.
            let place = &mut ran.place;
            let agents = [place.agent, row.get(1)?];
            let gpu = |agent: &&Option<i64>| agent.is_some_and(|id| self.gpus.contains_key(&id));
            place.agent = agents.iter().find(gpu).copied().flatten().or(place.agent);
            let kernel = KernelText {
                name: names.get(row.get(0)?)?.unwrap_or("MEMORY_COPY_"),
                class: Some(KernelClass::Copy),
                stream: &ran.place.stream(),
                device: &self.device(&ran.place),
                start: ran.times[0],
                end: ran.times[1],
            };
            self.take(gathered, number, &ran, &kernel)
        };
        self.rows("rocpd_memory_copy", own, &["dst_agent_id"], take)
    }

    fn take(
        &self,
        gathered: &mut Gathered,
        number: u64,
        ran: &Ran,
        kernel: &KernelText<'_>,
    ) -> Result<(), Trouble> {
        let rank = self.rank(&ran.place.process);
        gathered.launched(number, rank, ran.correlation, kernel)?;
        Ok(())
    }

    /// The rank that a process's environment tells.
    fn rank(&self, process: &str) -> Option<u32> {
        let key = (self.uuid.to_owned(), process.to_owned());
        self.processes.ranks.of(&key)
    }

    fn device(&self, place: &Place) -> String {
        let agent = place.agent.unwrap_or(0);
        let gpu = self.gpus.get(&agent).cloned();
        let gpu = gpu.unwrap_or_else(|| agent.to_string());
        gpu_label(&gpu, &place.process, self.processes.several)
    }
}

impl Place {
    /// From four columns: process, agent, queue, stream.
    fn of(row: &Row<'_>, first: usize) -> Result<Self, Trouble> {
        Ok(Self {
            process: label(row, first)?,
            agent: row.get(first + 1)?,
            queue: label(row, first + 2)?,
            stream: label(row, first + 3)?,
        })
    }

    /// What its stream, or else its queue, is called.
    fn stream(&self) -> String {
        stream_label(&self.stream, &self.queue)
    }
}
