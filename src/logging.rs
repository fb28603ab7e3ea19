//! The log: structured entries to journald where it listens, lines on stderr otherwise.

use std::fmt::Write as _;
use std::io::Write as _;

use litd_api::{Event, EventKind};
use log::kv::{Key, Source, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};
use systemd_journal_logger::{JournalLog, connected_to_journal};

use crate::config::Level;

/// Begins to log, once per process.
pub fn start(level: Level) {
    set_level(level);
    // Whoever has set a logger before has taken over: a test, or litctl.
    let _ = match JournalLog::new() {
        Ok(journal) if connected_to_journal() => {
            journal.with_syslog_identifier("litd".into()).install()
        }
        _ => log::set_logger(&Stderr),
    };
}

/// Changes what is important enough to be logged.
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

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // Nobody can be told that stderr is closed.
            let _ = std::io::stderr().write_all(line(record).as_bytes());
        }
    }

    fn flush(&self) {}
}

/// One line: level where it is not the usual one, text, fields that it is about. Names come from
/// jobs, so that control characters are shown, not obeyed.
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
