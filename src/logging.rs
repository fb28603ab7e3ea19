//! The log: structured entries to journald where it listens, lines on stderr otherwise. Both may be slow, or hang
//! for as long as a disk does. So lines wait in a queue ([`queue`]) for a thread that writes them, and the rest of
//! litd never waits for its log.

mod queue;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use litd_api::{Event, EventKind};
use log::kv::{Key, Source, VisitSource};
use log::{LevelFilter, Record};
use systemd_journal_logger::{JournalLog, connected_to_journal};

use crate::config::Level;
use queue::{Queue, Sink};

/// How long the last lines may take at the process's end.
const LAST_WORDS: Duration = Duration::from_secs(1);

static QUEUE: Queue = Queue::new();

/// Begins to log, once per process.
pub fn start(level: Level) {
    set_level(level);
    // A logger that was set before, by a test or litctl, has taken over.
    if log::set_logger(&QUEUE).is_ok() {
        QUEUE.write_to(match JournalLog::new() {
            Ok(journal) if connected_to_journal() => {
                Arc::new(journal.with_syslog_identifier("litd".into()))
            }
            _ => Arc::new(Stderr),
        });
    }
}

/// Waits a moment until all lines are written.
pub fn flush() {
    QUEUE.wait_until_written(LAST_WORDS);
}

/// Writes all remaining lines when this is dropped, if that takes a moment only.
#[derive(Debug)]
pub struct Flushed;

impl Drop for Flushed {
    fn drop(&mut self) {
        flush();
    }
}

/// Writes a line on stderr, after all that was logged. A reader that does not read it delays nobody for longer
/// than a moment.
pub fn last_words(line: &str) {
    flush();
    // In one write: other daemons may write to the same place.
    let write = |line: &str| drop(std::io::stderr().write_all(line.as_bytes()));
    let (done, written) = std::sync::mpsc::channel();
    let its = line.to_owned();
    let writer = std::thread::Builder::new()
        .name("log".into())
        .spawn(move || {
            write(&its);
            let _ = done.send(());
        });
    match writer {
        Ok(_) => drop(written.recv_timeout(LAST_WORDS)),
        Err(_) => write(line),
    }
}

/// The message, once each time, when lines of the log begin to be dropped.
pub fn begins_to_drop() -> Option<&'static str> {
    QUEUE.begins_to_drop().then_some(
        "journald (or whatever reads litd's standard error) does not keep up with litd's log: litd drops lines until \
         it does; `litctl events` shows what happens meanwhile",
    )
}

/// Changes the least important level that is logged.
pub fn set_level(level: Level) {
    log::set_max_level(match level {
        Level::Error => LevelFilter::Error,
        Level::Warn => LevelFilter::Warn,
        Level::Info => LevelFilter::Info,
        Level::Debug => LevelFilter::Debug,
    });
}

/// Logs what happened, with its job, device and kind as fields.
pub fn event(event: &Event) {
    let level = match (event.kind, event.warning) {
        (EventKind::Fault, true) => log::Level::Error,
        (_, true) => log::Level::Warn,
        (_, false) => log::Level::Info,
    };
    if level > log::max_level() {
        return;
    }
    log::logger().log(
        &Record::builder()
            .args(format_args!("{}", event.text))
            .level(level)
            .target("litd")
            .key_values(&Fields(event))
            .build(),
    );
}

/// The fields of an event. In journald their names are in capitals.
struct Fields<'a>(&'a Event);

impl Fields<'_> {
    fn kind(&self) -> &'static str {
        match self.0.kind {
            EventKind::Daemon => "daemon",
            EventKind::Job => "job",
            EventKind::State => "state",
            EventKind::Adjustment => "adjustment",
            EventKind::Restore => "restore",
            EventKind::Foreign => "foreign",
            EventKind::Command => "command",
            EventKind::Fault => "fault",
            EventKind::Trial => "trial",
        }
    }
}

impl Source for Fields<'_> {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), log::kv::Error> {
        let Event { job, device, .. } = self.0;
        let fields = [
            ("kind", Some(self.kind())),
            ("job", job.as_deref()),
            ("device", device.as_deref()),
        ];
        for (key, value) in fields {
            if let Some(value) = value {
                visitor.visit_pair(Key::from_str(key), value.into())?;
            }
        }
        visitor.visit_pair(Key::from_str("event"), self.0.seq.into())
    }
}

impl Sink for JournalLog {
    fn write(&self, record: &Record<'_>) {
        // There is nowhere to report that journald refuses a line.
        let _ = self.journal_send(record);
    }
}

struct Stderr;

impl Sink for Stderr {
    fn write(&self, record: &Record<'_>) {
        // There is nowhere to report that stderr is closed.
        let _ = std::io::stderr().write_all(line(record).as_bytes());
    }
}

/// A record in one line: level where it is not the usual one, text, fields. Names come from jobs, so control
/// characters are escaped.
fn line(record: &Record<'_>) -> String {
    struct About<'a>(&'a mut String);
    impl<'kvs> VisitSource<'kvs> for About<'_> {
        fn visit_pair(
            &mut self,
            key: Key<'kvs>,
            value: log::kv::Value<'kvs>,
        ) -> Result<(), log::kv::Error> {
            if matches!(key.as_str(), "job" | "device") {
                let _ = write!(self.0, " [{key} {value}]");
            }
            Ok(())
        }
    }
    let mut text = match record.level() {
        log::Level::Error => "error: ".to_owned(),
        log::Level::Warn => "warning: ".to_owned(),
        _ => String::new(),
    };
    let _ = write!(text, "{}", record.args());
    let _ = record.key_values().visit(&mut About(&mut text));
    let shown = text.chars().flat_map(|letter| {
        let control = letter.is_control();
        let escaped = control.then(|| letter.escape_default());
        let plain = (!control).then_some(letter);
        escaped.into_iter().flatten().chain(plain)
    });
    "litd: ".chars().chain(shown).chain(['\n']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(event: &Event, level: log::Level) -> String {
        line(
            &Record::builder()
                .args(format_args!("{}", event.text))
                .level(level)
                .key_values(&Fields(event))
                .build(),
        )
    }

    #[test]
    fn a_line_names_job_and_device_and_no_name_forges_one() {
        let mut event = Event {
            seq: 7,
            unix_seconds: 0.0,
            kind: EventKind::Adjustment,
            warning: false,
            job: None,
            device: None,
            text: "caps move".into(),
        };
        assert_eq!(shown(&event, log::Level::Info), "litd: caps move\n");
        event.job = Some("a\nlitd: error: b\u{1b}[2J".into());
        event.device = Some("0000:05:00.0".into());
        assert_eq!(
            shown(&event, log::Level::Warn),
            "litd: warning: caps move [job a\\nlitd: error: b\\u{1b}[2J] [device 0000:05:00.0]\n"
        );
    }
}
