//! rocprof's `results.json`, made for viewers: Chrome's events, whose processes are named `GPU0`,
//! `COPY`, `CPU HIP API` and so on. Times of events are in microseconds from the first one; their
//! arguments have them in nanoseconds.

use std::collections::HashMap;

use super::{ADVICE, is_barrier, kernel_name};
use crate::error::ReadError;
use crate::formats::{Head, Input, json_error};
use crate::gather::{Fault, Found, Gathered, KernelText, few};
use crate::json::scan::{Part, ScanError, Scanner};
use crate::json::text::{decoded, members, number_of, unquoted};
use crate::timeline::KernelClass;

/// The most processes that may have names.
const PROCESSES: usize = 4096;

/// Whether rocprof wrote a text that begins like this: it names the process of copies always.
pub(in crate::formats) fn wrote(head: &Head<'_>) -> bool {
    head.text.starts_with(b"{") && head.has(br#""name":"COPY"},"ph":"M""#)
}

/// What the events of a process are.
#[derive(Clone, PartialEq)]
enum Process {
    Gpu(String),
    Copies,
}

impl Process {
    fn of(name: &str) -> Option<Self> {
        let gpu = name.strip_prefix("GPU");
        let number = gpu.filter(|gpu| gpu.bytes().all(|byte| byte.is_ascii_digit()));
        match number {
            Some(number) => Some(Self::Gpu(number.to_owned())),
            None => (name == "COPY").then_some(Self::Copies),
        }
    }
}

/// What was read so far.
#[derive(Default)]
struct Events {
    gathered: Gathered,
    processes: HashMap<Vec<u8>, Process>,
}

/// Why reading ends.
enum Trouble {
    Scan(ScanError),
    Content(Fault),
}

impl From<ScanError> for Trouble {
    fn from(error: ScanError) -> Self {
        Self::Scan(error)
    }
}

pub(in crate::formats) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    let file = input.file;
    let mut scanner = Scanner::new(input.source);
    let mut events = Events::default();
    let walked = scanner.walk(|number, part| match part {
        Part::Event(text) => events.take(number, text).map_err(Trouble::Content),
        Part::DistributedInfo(_) | Part::BaseTime(_) => Ok(()),
    });
    let count = scanner.progress.events;
    match walked {
        Ok(()) => Ok(Found::new(events.gathered, count, ADVICE)),
        Err(Trouble::Content(fault)) => Err(ReadError::of(fault, file)),
        Err(Trouble::Scan(error)) => Err(json_error(error, &scanner, file, count)),
    }
}

impl Events {
    fn take(&mut self, number: u64, text: &[u8]) -> Result<(), Fault> {
        let (mut phase, mut name, mut process, mut lane, mut args) =
            (&b""[..], &b""[..], &b""[..], &b""[..], &b"{}"[..]);
        for (key, value) in members(text) {
            match key {
                b"ph" => phase = unquoted(value),
                b"name" => name = unquoted(value),
                b"pid" => process = unquoted(value),
                b"tid" => lane = unquoted(value),
                b"args" if value.first() == Some(&b'{') => args = value,
                _ => {}
            }
        }
        match phase {
            b"M" if name == b"process_name" => self.name(number, process, args),
            b"X" => self.kernel(number, name, process, lane, args),
            _ => Ok(()),
        }
    }

    fn name(&mut self, number: u64, process: &[u8], args: &[u8]) -> Result<(), Fault> {
        let mut names = members(args).filter(|(key, _)| *key == b"name");
        let name = names.next().map(|(_, value)| decoded(unquoted(value)));
        if let Some(named) = name.as_deref().and_then(Process::of) {
            self.processes.insert(process.to_vec(), named);
            few(self.processes.len(), PROCESSES, "processes").map_err(|what| Fault::Value {
                event: number,
                what,
            })?;
        }
        Ok(())
    }

    fn kernel(
        &mut self,
        number: u64,
        name: &[u8],
        process: &[u8],
        lane: &[u8],
        args: &[u8],
    ) -> Result<(), Fault> {
        let Some(process) = self.processes.get(process) else {
            return Ok(());
        };
        let (mut begin, mut end, mut device) = (None, None, None);
        for (key, value) in members(args) {
            match key {
                b"BeginNs" => begin = number_of(value),
                b"EndNs" => end = number_of(value),
                b"dev-id" | b"gpu-id" => device = Some(decoded(unquoted(value))),
                _ => {}
            }
        }
        let name = decoded(name);
        let name = kernel_name(&name);
        if is_barrier(name) {
            return Ok(());
        }
        let (Some(start), Some(end)) = (begin, end) else {
            return Err(Fault::Value {
                event: number,
                what: "a kernel has no BeginNs or EndNs".into(),
            });
        };
        let of_process = match process {
            Process::Gpu(number) => number,
            Process::Copies => "",
        };
        let kernel = KernelText {
            name,
            class: (*process == Process::Copies).then_some(KernelClass::Copy),
            stream: &decoded(lane),
            device: device.as_deref().unwrap_or(of_process),
            start,
            end,
        };
        self.gathered.kernel(number, &kernel)
    }
}
