//! Which operator of a framework launched the kernels of each name, by the time that they take.

use std::collections::HashMap;
use std::sync::Arc;

use super::Correlation;
use super::kept::Kept;
use crate::timeline::{NameId, NonMax};

/// The operators of one file, and the kernels that they launched.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    names: Vec<Arc<str>>,
    /// The place of each name.
    places: HashMap<Arc<str>, u32>,
    threads: HashMap<Box<[u8]>, Thread>,
    /// The last thread that was asked for, which mostly is the next as well.
    thread: Option<(Box<[u8]>, Thread)>,
    calls: Vec<Call>,
    launches: Vec<Launch>,
    launched: Vec<Launched>,
}

/// The most threads of hosts that are told apart, and the longest text that tells one, in bytes:
/// real ones are a few hundred, and two numbers.
const THREADS: usize = 1 << 16;
const THREAD_TEXT: usize = 256;

/// A thread of the host, by its place among those of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thread(NonMax);

// A large trace has millions of these.
const _: () = assert!(size_of::<Call>() <= 32 && size_of::<Launch>() <= 32);

/// The call of an operator.
#[derive(Debug, Clone, Copy)]
struct Call {
    name: u32,
    /// The number that the profiler gave it.
    number: Option<NonMax>,
    span: Option<Span>,
}

/// Where and when an operator ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) thread: Thread,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// A call of the runtime that launched kernels.
#[derive(Debug, Clone, Copy)]
struct Launch {
    correlation: u64,
    at: i64,
    thread: Thread,
    found: Found,
}

/// What a launch says of the operator.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// This one was running.
    Operator(u32),
    /// None was.
    None,
    /// No operator of this thread was recorded, or threads have other names there.
    Unknown,
}

/// A kernel, with what tells which call launched it.
#[derive(Debug, Clone, Copy)]
struct Launched {
    kernel: NameId,
    /// How long it took.
    length: i64,
    /// The number of an operator's call that it names.
    number: Option<NonMax>,
    correlation: Option<Correlation>,
}

impl Operators {
    /// The thread of an event, by what it says of its process and of itself; none if no profiler
    /// writes that.
    pub(crate) fn thread(&mut self, process: &[u8], thread: &[u8]) -> Option<Thread> {
        let [process, thread] = [process.trim_ascii(), thread.trim_ascii()];
        let is_last = |key: &[u8]| {
            let rest = key.strip_prefix(process);
            rest.and_then(|rest| rest.strip_prefix(b"/")) == Some(thread)
        };
        if let Some((_, last)) = self.thread.as_ref().filter(|(key, _)| is_last(key)) {
            return Some(*last);
        }
        if process.len() + thread.len() > THREAD_TEXT {
            return None;
        }
        let key = [process, thread].join(&b'/').into_boxed_slice();
        let found = match self.threads.get(&key) {
            Some(&known) => known,
            None => {
                let next = self.threads.len();
                let next = u32::try_from(next).ok().filter(|_| next < THREADS)?;
                let new = Thread(NonMax::new(next)?);
                self.threads.insert(key.clone(), new);
                new
            }
        };
        self.thread = Some((key, found));
        Some(found)
    }

    /// Takes the call of an operator. One that can't be kept is left out: kernels count all the same.
    pub(crate) fn called(
        &mut self,
        kept: &mut Kept,
        name: &str,
        number: Option<u32>,
        span: Option<Span>,
    ) {
        let Ok(Some(name)) = kept.text(Some(name), "the name of an operator") else {
            return;
        };
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let place = *self.places.entry(name.clone()).or_insert(next);
        if place == next {
            self.names.push(name);
        }
        self.calls.push(Call {
            name: place,
            number: number.and_then(NonMax::new),
            span,
        });
    }

    /// Takes a call that launched the kernels of this correlation.
    pub(crate) fn launch(&mut self, correlation: u64, at: i64, thread: Thread) {
        self.launches.push(Launch {
            correlation,
            at,
            thread,
            found: Found::Unknown,
        });
    }

    /// Takes a kernel that names the call of an operator, or shares a correlation with its launch.
    pub(crate) fn launched(
        &mut self,
        kernel: NameId,
        length: i64,
        number: Option<u32>,
        correlation: Option<Correlation>,
    ) {
        self.launched.push(Launched {
            kernel,
            length,
            number: number.and_then(NonMax::new),
            correlation,
        });
    }

    /// The operator whose kernels of each name took most time; of several the first by name.
    pub(super) fn of_kernels(mut self) -> HashMap<NameId, Arc<str>> {
        if self.calls.is_empty() {
            return HashMap::new();
        }
        self.find();
        self.launches
            .sort_unstable_by_key(|launch| (launch.correlation, launch.at));
        self.calls.sort_unstable_by_key(|call| call.number);
        let numbered = self.numbers_are_of_calls();
        let mut times = HashMap::<(NameId, u32), i64>::new();
        for kernel in &self.launched {
            let operator = match self.by_launch(kernel) {
                Found::Operator(operator) => Some(operator),
                Found::None => None,
                Found::Unknown => kernel
                    .number
                    .filter(|_| numbered)
                    .and_then(|number| self.by_number(number)),
            };
            if let Some(operator) = operator {
                let time = times.entry((kernel.kernel, operator)).or_default();
                *time = time.saturating_add(kernel.length);
            }
        }
        let name = |operator: u32| self.names.get(operator as usize);
        let mut most = HashMap::<NameId, (i64, &Arc<str>)>::new();
        for ((kernel, operator), time) in times {
            let Some(operator) = name(operator) else {
                continue;
            };
            let known = most.entry(kernel).or_insert((time, operator));
            if time > known.0 || (time == known.0 && operator < known.1) {
                *known = (time, operator);
            }
        }
        let own = |(kernel, (_, operator)): (NameId, (i64, &Arc<str>))| (kernel, operator.clone());
        most.into_iter().map(own).collect()
    }

    /// Finds the innermost operator that was running at each launch, on the thread that launched.
    fn find(&mut self) {
        let spans = self
            .calls
            .iter()
            .filter_map(|call| Some((call.span?, call.name)));
        let mut spans = Vec::from_iter(spans);
        // Of two that start at once the longer one called the other.
        spans.sort_by_key(|(span, _)| (span.thread, span.start, std::cmp::Reverse(span.end)));
        self.launches
            .sort_unstable_by_key(|launch| (launch.thread, launch.at));
        let mut launches = self.launches.as_mut_slice();
        for own in spans.chunk_by(|(a, _), (b, _)| a.thread == b.thread) {
            let Some(thread) = own.first().map(|(span, _)| span.thread) else {
                continue;
            };
            let first = launches.partition_point(|launch| launch.thread < thread);
            let (_, rest) = std::mem::take(&mut launches).split_at_mut(first);
            let count = rest.partition_point(|launch| launch.thread == thread);
            let (here, rest) = rest.split_at_mut(count);
            launches = rest;
            let mut own = own.iter().peekable();
            let mut running = Vec::new();
            for launch in here {
                while let Some(call) = own.next_if(|(span, _)| span.start <= launch.at) {
                    while running
                        .pop_if(|top: &mut &(Span, u32)| top.0.end <= call.0.start)
                        .is_some()
                    {}
                    running.push(call);
                }
                while running.pop_if(|top| top.0.end <= launch.at).is_some() {}
                launch.found = match running.last() {
                    Some(&&(_, name)) => Found::Operator(name),
                    None => Found::None,
                };
            }
        }
    }

    /// What the launch of a kernel says, in the first of several calls of its correlation.
    fn by_launch(&self, kernel: &Launched) -> Found {
        let Some(correlation) = kernel.correlation.map(Correlation::number) else {
            return Found::Unknown;
        };
        let first = self
            .launches
            .partition_point(|launch| launch.correlation < correlation);
        let launch = self.launches.get(first);
        let launch = launch.filter(|launch| launch.correlation == correlation);
        launch.map_or(Found::Unknown, |launch| launch.found)
    }

    /// The operator whose call has this number.
    fn by_number(&self, number: NonMax) -> Option<u32> {
        let first = self
            .calls
            .partition_point(|call| call.number < Some(number));
        let call = self.calls.get(first)?;
        (call.number == Some(number)).then_some(call.name)
    }

    /// Whether the numbers that kernels name are those of calls: some profilers write the correlation
    /// there instead, which numbers something else.
    fn numbers_are_of_calls(&self) -> bool {
        let own = |kernel: &Launched| {
            let correlation = kernel.correlation.map(Correlation::number);
            kernel
                .number
                .is_some_and(|number| correlation != Some(number.get().into()))
        };
        self.launched.iter().any(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(operators: Operators) -> Vec<(u32, String)> {
        let told = operators.of_kernels().into_iter();
        let mut told = Vec::from_iter(told.map(|(kernel, name)| (kernel.0, name.to_string())));
        told.sort();
        told
    }

    fn is(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
        let expected = expected.iter();
        Vec::from_iter(expected.map(|&(kernel, name)| (kernel, name.into())))
    }

    #[test]
    fn the_operator_whose_kernels_take_most_time_is_told() {
        let mut operators = Operators::default();
        let mut kept = Kept::default();
        for (number, name) in [(3, "aten::mm"), (1, "aten::add"), (2, "aten::mm")] {
            operators.called(&mut kept, name, Some(number), None);
        }
        for (kernel, number) in [(0, 1), (0, 2), (0, 3), (1, 3), (1, 1), (2, 9)] {
            operators.launched(NameId(kernel), 1, Some(number), None);
        }
        // Many short ones take less than a long one.
        for (length, number) in [(1, 1), (1, 1), (9, 3)] {
            operators.launched(NameId(3), length, Some(number), None);
        }
        let expected = [(0, "aten::mm"), (1, "aten::add"), (3, "aten::mm")];
        assert_eq!(told(operators), is(&expected));
    }

    /// Calls on two threads, each with its number, its thread, its start and its end.
    fn calls(operators: &mut Operators) -> [Thread; 3] {
        let mut kept = Kept::default();
        let threads = [&b"1"[..], b"2", b"3"].map(|thread| operators.thread(b"9", thread).unwrap());
        for (name, number, thread, start, end) in [
            ("aten::result_type", 1, 0, 0, 5),
            ("autograd::Conv", 2, 1, 10, 90),
            ("aten::convolution_backward", 3, 1, 20, 80),
            ("aten::empty", 4, 1, 30, 40),
            ("aten::sum", 5, 1, 80, 95),
        ] {
            let thread = threads[thread];
            let span = Span { thread, start, end };
            operators.called(&mut kept, name, Some(number), Some(span));
        }
        threads
    }

    #[test]
    fn a_launch_tells_the_innermost_operator_of_its_thread() {
        let mut operators = Operators::default();
        let threads = calls(&mut operators);
        // Kernels name their own correlations, where other operators' numbers should stand.
        for (kernel, correlation, thread, at) in [
            (0, 1_u32, 1, 50),
            (1, 2, 1, 35),
            (2, 3, 1, 15),
            (3, 4, 1, 99),
            (4, 5, 1, 80),
        ] {
            operators.launch(correlation.into(), at, threads[thread]);
            let shared = Correlation::new(correlation.into());
            operators.launched(NameId(kernel), 1, Some(correlation), shared);
        }
        let expected = [
            (0, "aten::convolution_backward"),
            (1, "aten::empty"),
            (2, "autograd::Conv"),
            (4, "aten::sum"),
        ];
        assert_eq!(told(operators), is(&expected));
    }

    #[test]
    fn the_number_of_a_call_counts_where_no_launch_tells() {
        let mut operators = Operators::default();
        let threads = calls(&mut operators);
        // No operator of this thread was recorded.
        operators.launch(70, 50, threads[2]);
        operators.launched(NameId(0), 1, Some(5), Correlation::new(70));
        operators.launched(NameId(1), 1, Some(4), Correlation::new(71));
        operators.launched(NameId(2), 1, Some(1), None);
        let expected = [
            (0, "aten::sum"),
            (1, "aten::empty"),
            (2, "aten::result_type"),
        ];
        assert_eq!(told(operators), is(&expected));
        // Of numbers that are all correlations nothing is told.
        let mut operators = Operators::default();
        calls(&mut operators);
        operators.launched(NameId(0), 1, Some(5), Correlation::new(5));
        operators.launched(NameId(1), 1, Some(4), Correlation::new(4));
        assert_eq!(told(operators), is(&[]));
    }
}
