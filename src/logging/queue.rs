//! Lines that wait to be written, up to a bound: further lines are dropped and counted.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use log::kv::{Key, Source, Value, VisitSource};
use log::{Level, Log, Metadata, Record};

/// How many lines may wait; their bytes are bounded as well.
const MOST_LINES: usize = 1024;
const MOST_BYTES: usize = 256 * 1024;

/// The bytes of a line besides its text and fields.
const OF_A_LINE: usize = 128;

/// The destination of lines. Writing may block.
pub(super) trait Sink: Send + Sync {
    fn write(&self, record: &Record<'_>);
}

/// A line that waits, with all that a sink may want to know of it.
struct Line {
    level: Level,
    target: String,
    text: String,
    fields: Vec<(String, String)>,
    module: Option<&'static str>,
    file: Option<&'static str>,
    number: Option<u32>,
}

impl Line {
    fn of(record: &Record<'_>) -> Self {
        struct Owned(Vec<(String, String)>);
        impl<'kvs> VisitSource<'kvs> for Owned {
            fn visit_pair(
                &mut self,
                key: Key<'kvs>,
                value: Value<'kvs>,
            ) -> Result<(), log::kv::Error> {
                self.0.push((key.to_string(), value.to_string()));
                Ok(())
            }
        }
        let mut fields = Owned(Vec::new());
        // No source of values fails.
        let _ = record.key_values().visit(&mut fields);
        Self {
            level: record.level(),
            target: record.target().to_owned(),
            text: record.args().to_string(),
            fields: fields.0,
            module: record.module_path_static(),
            file: record.file_static(),
            number: record.line(),
        }
    }

    fn of_dropped(count: u64) -> Self {
        Self {
            level: Level::Warn,
            target: "litd".to_owned(),
            text: format!("{count} lines of the log are missing here: they were not read in time"),
            fields: Vec::new(),
            module: None,
            file: None,
            number: None,
        }
    }

    fn bytes(&self) -> usize {
        let fields = self
            .fields
            .iter()
            .map(|(key, value)| key.len() + value.len());
        OF_A_LINE + self.target.len() + self.text.len() + fields.sum::<usize>()
    }

    fn write_to(&self, sink: &dyn Sink) {
        sink.write(
            &Record::builder()
                .args(format_args!("{}", self.text))
                .level(self.level)
                .target(&self.target)
                .module_path_static(self.module)
                .file_static(self.file)
                .line(self.number)
                .key_values(&Fields(&self.fields))
                .build(),
        );
    }
}

struct Fields<'a>(&'a [(String, String)]);

impl Source for Fields<'_> {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), log::kv::Error> {
        for (key, value) in self.0 {
            visitor.visit_pair(Key::from_str(key), value.as_str().into())?;
        }
        Ok(())
    }
}

struct Waiting {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Whether a line that was taken out is being written.
    writing: bool,
    /// Lines dropped since one had room.
    dropped: u64,
    /// Whether any line was dropped since all were last written.
    drops: bool,
    /// Whether dropping has begun and was not reported.
    untold: bool,
}

impl Waiting {
    fn put(&mut self, line: Line) {
        let gap = (self.dropped > 0).then(|| Line::of_dropped(self.dropped));
        let bytes = line.bytes() + gap.as_ref().map_or(0, Line::bytes);
        if self.lines.len() >= MOST_LINES || self.bytes + bytes > MOST_BYTES {
            self.dropped = self.dropped.saturating_add(1);
            self.untold |= !std::mem::replace(&mut self.drops, true);
            return;
        }
        if let Some(gap) = gap {
            self.add(gap);
            self.dropped = 0;
        }
        self.add(line);
    }

    fn add(&mut self, line: Line) {
        self.bytes += line.bytes();
        self.lines.push_back(line);
    }

    fn take(&mut self) -> Option<Line> {
        if let Some(line) = self.lines.pop_front() {
            self.bytes = self.bytes.saturating_sub(line.bytes());
            return Some(line);
        }
        self.drops = false;
        let dropped = std::mem::take(&mut self.dropped);
        (dropped > 0).then(|| Line::of_dropped(dropped))
    }

    fn is_written(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0 && !self.writing
    }
}

/// The queue, and the logger that fills it.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Used where the system gave no thread.
    in_place: OnceLock<Arc<dyn Sink>>,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                lines: VecDeque::new(),
                bytes: 0,
                writing: false,
                dropped: 0,
                drops: false,
                untold: false,
            }),
            changed: Condvar::new(),
            in_place: OnceLock::new(),
        }
    }

    /// Writes waiting lines, and all later ones, there.
    pub(super) fn write_to(&'static self, sink: Arc<dyn Sink>) {
        let its = sink.clone();
        let thread = std::thread::Builder::new().name("log".into());
        if thread.spawn(move || self.write_for_ever(&*its)).is_err() {
            let _ = self.in_place.set(sink);
        }
    }

    fn write_for_ever(&self, sink: &dyn Sink) {
        loop {
            let mut waiting = self.lock();
            waiting.writing = false;
            let line = loop {
                if let Some(line) = waiting.take() {
                    waiting.writing = true;
                    break line;
                }
                // Wakes also those that wait for all lines to be written.
                self.changed.notify_all();
                waiting = self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            drop(waiting);
            line.write_to(sink);
        }
    }

    /// Waits until all lines are written, for at most so long.
    pub(super) fn wait_until_written(&self, most: Duration) {
        let waiting = self.lock();
        let unwritten = |waiting: &mut Waiting| !waiting.is_written();
        drop(self.changed.wait_timeout_while(waiting, most, unwritten));
    }

    /// Whether lines have begun to be dropped; true once each time.
    pub(super) fn begins_to_drop(&self) -> bool {
        std::mem::take(&mut self.lock().untold)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for Queue {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if let Some(sink) = self.in_place.get() {
            sink.write(record);
            return;
        }
        let line = Line::of(record);
        self.lock().put(line);
        self.changed.notify_all();
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Takes a line only while nobody has the lock.
    #[derive(Default)]
    struct Hangs {
        lock: Mutex<()>,
        taken: Mutex<Vec<String>>,
    }

    impl Sink for Hangs {
        fn write(&self, record: &Record<'_>) {
            let _free = self.lock.lock().unwrap();
            self.taken.lock().unwrap().push(record.args().to_string());
        }
    }

    fn say(queue: &Queue, text: &str) {
        let line = Line::of(
            &Record::builder()
                .args(format_args!("{text}"))
                .level(Level::Error)
                .build(),
        );
        queue.lock().put(line);
        queue.changed.notify_all();
    }

    fn queue() -> (&'static Queue, Arc<Hangs>) {
        let (queue, sink) = (
            Box::leak(Box::new(Queue::new())),
            Arc::new(Hangs::default()),
        );
        queue.write_to(sink.clone());
        (queue, sink)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn nobody_waits_for_who_takes_the_log_and_what_has_no_room_is_counted() {
        let (queue, sink) = queue();
        let hangs = sink.lock.lock().unwrap();
        let began = Instant::now();
        for line in 0..2 * MOST_LINES {
            say(queue, &line.to_string());
        }
        assert!(queue.begins_to_drop() && !queue.begins_to_drop());
        queue.wait_until_written(Duration::from_millis(50));
        assert!(began.elapsed() < Duration::from_secs(5));
        drop(hangs);
        queue.wait_until_written(LONG);
        say(queue, "last");
        queue.wait_until_written(LONG);
        let mut taken = sink.taken.lock().unwrap().clone();
        assert_eq!(taken.pop().unwrap(), "last");
        // Gaps are reported at their place, once or, if there was room in between, more often.
        let (mut next, mut told) = (0, 0);
        for line in taken {
            match line.parse::<usize>() {
                Ok(number) => {
                    assert!(number >= next, "{number} after {next}");
                    next = number + 1;
                    told += 1;
                }
                Err(_) => told += line.split(' ').next().unwrap().parse::<usize>().unwrap(),
            }
        }
        assert_eq!(told, 2 * MOST_LINES);
        assert!(!queue.begins_to_drop());
    }

    #[test]
    fn few_long_lines_take_no_more_room_than_many_short_ones() {
        let (queue, sink) = queue();
        let hangs = sink.lock.lock().unwrap();
        let long = "x".repeat(MOST_BYTES / 4);
        for _ in 0..10 {
            say(queue, &long);
        }
        let waiting = queue.lock();
        let wait = waiting.lines.iter().filter(|line| line.text == long);
        let (bytes, wait) = (waiting.bytes, wait.count());
        drop(waiting);
        assert!(bytes <= MOST_BYTES && wait < 4, "{wait} in {bytes} bytes");
        drop(hangs);
        queue.wait_until_written(LONG);
        assert_eq!(queue.lock().bytes, 0);
    }
}
