//! rocprofv3's JSON: `rocprofiler-sdk-tool[].buffer_records.kernel_dispatch[]`, with kernels and
//! agents by number, whose names may come before or after. The host's calls stand in
//! `hip_api[]` and the like; a call and what it put on a GPU have one `correlation_id`.

use std::collections::HashMap;
use std::io::Read;

use super::tables::{
    rocprofv3::{ADVICE, correlation},
    stream_label,
};
use super::{Head, Input, json_error};
use crate::error::ReadError;
use crate::gather::{Fault, Found, Gathered, KernelText};
use crate::json::scan::{ScanError, Scanner};
use crate::json::text::{decoded, members, number_of, unquoted};
use crate::timeline::KernelClass;

/// The key that all else lies below.
const KEY: &[u8] = b"rocprofiler-sdk-tool";
/// What the lists of the host's calls are called.
const CALLS: [&[u8]; 3] = [b"hip_api", b"hsa_api", b"rccl_api"];
/// The most kernel symbols and agents that are kept of one process.
const SYMBOL_LIMIT: usize = 1 << 20;

/// Whether rocprofv3 wrote a text that begins like this.
pub(super) fn wrote(head: &Head<'_>) -> bool {
    let key = head.text.strip_prefix(b"{").unwrap_or_default();
    let key = key.trim_ascii_start().strip_prefix(b"\"");
    key.is_some_and(|key| key.starts_with(KEY))
}

/// A dispatch or a copy as it stands in the file.
#[derive(Default)]
struct Record {
    start: Option<i64>,
    end: Option<i64>,
    agent: u64,
    /// Where a copy is from.
    from: u64,
    queue: u64,
    stream: u64,
    /// The kernel's number, or a copy's kind.
    kernel: u64,
    is_copy: bool,
    /// The number that it has in common with its launch.
    correlation: u64,
}

/// One process of the file.
#[derive(Default)]
struct Process {
    records: Vec<Record>,
    /// The host's calls: when each began, and the number that it has in common with what it put on a GPU.
    calls: Vec<(u64, i64)>,
    symbols: HashMap<u64, String>,
    /// The number of a GPU among the GPUs, by the handle of its agent.
    gpus: HashMap<u64, String>,
    pid: u64,
}

pub(super) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    let file = input.file;
    let mut scanner = Scanner::new(input.source);
    let mut processes = Vec::new();
    let walked = scanner.members(&mut |scanner, key| {
        if key != KEY {
            return scanner.skip();
        }
        scanner.elements(&mut |scanner| {
            let mut process = Process::default();
            scanner.members(&mut |scanner, key| process.member(scanner, key))?;
            processes.push(process);
            Ok(())
        })
    });
    let events = processes.iter().map(|process| process.records.len() as u64);
    let events = events.sum();
    walked.map_err(|error| json_error(error, &scanner, file, events))?;
    let mut gathered = Gathered::default();
    let several = processes.len() > 1;
    for (number, process) in processes.iter_mut().enumerate() {
        let taken = process.gather(&mut gathered, number, several);
        taken.map_err(|fault| ReadError::of(fault, file))?;
    }
    let launched = gathered.correlated();
    for (number, process) in processes.iter().enumerate() {
        for &(call, at) in &process.calls {
            let call = correlation(number, call);
            if let Some(call) = call.filter(|call| launched.binary_search(call).is_ok()) {
                gathered.launch(None, call, at);
            }
        }
    }
    Ok(Found::new(gathered, events, ADVICE))
}

impl Process {
    fn member<R: Read>(&mut self, scanner: &mut Scanner<R>, key: &[u8]) -> Result<(), ScanError> {
        match key {
            b"metadata" => scanner.members(&mut |scanner, key| match key {
                b"pid" => {
                    self.pid = number_of(scanner.value()?).unwrap_or(0);
                    Ok(())
                }
                _ => scanner.skip(),
            }),
            b"agents" => scanner.elements(&mut |scanner| {
                self.agent(scanner.value()?);
                Ok(())
            }),
            b"kernel_symbols" => scanner.elements(&mut |scanner| {
                self.symbol(scanner.value()?);
                Ok(())
            }),
            b"buffer_records" => scanner.members(&mut |scanner, key| {
                let is_copy = key == b"memory_copy";
                let is_call = CALLS.contains(&key);
                if !is_copy && !is_call && key != b"kernel_dispatch" {
                    return scanner.skip();
                }
                scanner.elements(&mut |scanner| {
                    let record = Record::of(scanner.value()?, is_copy);
                    match (is_call, record.start) {
                        (false, _) => self.records.push(record),
                        (true, Some(at)) => self.calls.push((record.correlation, at)),
                        (true, None) => {}
                    }
                    Ok(())
                })
            }),
            _ => scanner.skip(),
        }
    }

    fn agent(&mut self, text: &[u8]) {
        let (mut handle, mut kind, mut among, mut node) = (None, 0_u64, None, None);
        for (key, value) in members(text) {
            match key {
                b"id" => handle = handle_of(value),
                b"type" => kind = number_of(value).unwrap_or(0),
                b"logical_node_type_id" => among = number_of::<u64>(value),
                b"node_id" => node = number_of::<u64>(value),
                _ => {}
            }
        }
        if let (Some(handle), 2, true) = (handle, kind, self.gpus.len() < SYMBOL_LIMIT) {
            let number = among.or(node).unwrap_or(handle);
            self.gpus.insert(handle, number.to_string());
        }
    }

    fn symbol(&mut self, text: &[u8]) {
        let (mut id, mut formatted, mut plain) = (None, None, None);
        for (key, value) in members(text) {
            match key {
                b"kernel_id" => id = number_of(value),
                b"formatted_kernel_name" => formatted = Some(unquoted(value)),
                b"kernel_name" => plain = Some(unquoted(value)),
                _ => {}
            }
        }
        if let (Some(id), Some(name)) = (id, formatted.or(plain))
            && self.symbols.len() < SYMBOL_LIMIT
        {
            self.symbols.insert(id, decoded(name).into_owned());
        }
    }

    /// Hands out what ran on GPUs, and forgets it.
    fn gather(
        &mut self,
        gathered: &mut Gathered,
        process: usize,
        several: bool,
    ) -> Result<(), Fault> {
        let records = std::mem::take(&mut self.records);
        for (number, record) in (1..).zip(&records) {
            let (Some(start), Some(end)) = (record.start, record.end) else {
                return Err(Fault::Value {
                    event: number,
                    what: "a kernel_dispatch has no start_timestamp or end_timestamp".into(),
                });
            };
            let unknown = || format!("kernel {}", record.kernel);
            let name = match self.symbols.get(&record.kernel) {
                _ if record.is_copy => "MEMORY_COPY_".into(),
                Some(name) => name.clone(),
                None => unknown(),
            };
            // The GPU of a copy is the receiver, or the sender where the receiver is the host.
            let agents = [record.agent, record.from];
            let gpu = agents
                .iter()
                .find_map(|agent| self.gpus.get(agent))
                .cloned();
            let gpu = gpu.unwrap_or_else(|| record.agent.to_string());
            let device = match several {
                true => format!("{gpu} of process {}", self.pid),
                false => gpu,
            };
            gathered.launched(
                number,
                None,
                correlation(process, record.correlation),
                &KernelText {
                    name: &name,
                    class: record.is_copy.then_some(KernelClass::Copy),
                    stream: &stream_label(&record.stream.to_string(), &record.queue.to_string()),
                    device: &device,
                    start,
                    end,
                },
            )?;
        }
        Ok(())
    }
}

impl Record {
    fn of(text: &[u8], is_copy: bool) -> Self {
        let mut record = Self {
            is_copy,
            ..Self::default()
        };
        for (key, value) in members(text) {
            match key {
                b"start_timestamp" => record.start = number_of(value),
                b"end_timestamp" => record.end = number_of(value),
                b"stream_id" => record.stream = handle_of(value).unwrap_or(0),
                b"correlation_id" => record.correlation = internal(value),
                b"dst_agent_id" => record.agent = handle_of(value).unwrap_or(0),
                b"src_agent_id" => record.from = handle_of(value).unwrap_or(0),
                b"dispatch_info" => {
                    for (key, value) in members(value) {
                        match key {
                            b"agent_id" => record.agent = handle_of(value).unwrap_or(0),
                            b"queue_id" => record.queue = handle_of(value).unwrap_or(0),
                            b"kernel_id" => record.kernel = number_of(value).unwrap_or(0),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        record
    }
}

/// The profiler's own number in `{"internal": number, "external": the program's}`.
fn internal(value: &[u8]) -> u64 {
    let mut members = members(value);
    let own = members.find(|(key, _)| *key == b"internal");
    own.and_then(|(_, value)| number_of(value)).unwrap_or(0)
}

/// The number in `{"handle": number}`, or a bare number.
fn handle_of(value: &[u8]) -> Option<u64> {
    match value.first() {
        Some(b'{') => members(value)
            .find(|(key, _)| *key == b"handle")
            .and_then(|(_, value)| number_of(value)),
        _ => number_of(value),
    }
}
