//! Common parts of the live views: `litlab demo` and `litctl top`.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline};

use crate::output;

/// How high the last line is, which says what keys there are.
pub const FOOT: u16 = 1;
/// Frame and head of the table of devices.
pub const AROUND_TABLE: u16 = 3;
/// A frame and one line.
const LEAST: u16 = 3;
/// Events have this much before there are charts.
const EVENTS: u16 = 4;
/// A chart is at most this high.
const CHART: u16 = 6;
/// Between an event's label and its text.
const GAP: usize = 2;

/// Waits, and tells whether the user asked to stop.
pub fn quit_within(time: Duration) -> io::Result<bool> {
    let until = Instant::now() + time;
    loop {
        if !event::poll(until.saturating_duration_since(Instant::now()))? {
            return Ok(false);
        }
        if let Event::Key(key) = event::read()? {
            let interrupt =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
}

/// How high the parts of the screen are; what does not fit is left out.
pub struct Heights {
    /// Of the table of devices.
    pub table: u16,
    /// Of each row of charts.
    pub chart: u16,
    /// Of the events below.
    pub events: u16,
}

impl Heights {
    /// For a screen with a heading and a table of so many devices, and so many rows of charts.
    /// The table comes first, then some events, then the charts; events take the rest.
    pub fn new(screen: u16, heading: u16, devices: usize, charts: u16) -> Self {
        let room = screen.saturating_sub(heading.saturating_add(FOOT));
        let devices = u16::try_from(devices).unwrap_or(u16::MAX);
        let table = devices.saturating_add(AROUND_TABLE).min(room);
        let room = room - table;
        let or_none = |height: u16| if height < LEAST { 0 } else { height };
        let chart = or_none((room.saturating_sub(EVENTS) / charts.max(1)).min(CHART));
        Self {
            table,
            chart,
            events: or_none(room - charts * chart),
        }
    }
}

/// The title of a table of GPUs, of which some may be hidden.
pub fn who_is_waited_for(anyone: bool, hidden: usize) -> String {
    let mut title = match anyone {
        true => " > starts last: the others wait for it".to_owned(),
        false => " no GPU is waited for".to_owned(),
    };
    if hidden > 0 {
        title.push_str(&format!(", +{hidden} more"));
    }
    title + " "
}

/// As many as fit, those with the least values, in order.
pub fn least(values: &[f64], fit: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..values.len()).collect();
    chosen.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    chosen.truncate(fit);
    chosen.sort_unstable();
    chosen
}

/// The last values, as many as fit.
pub fn chart(screen: &mut Frame, area: Rect, title: String, values: &[f64], range: Range<f64>) {
    let width = usize::from(area.width.saturating_sub(2)).max(1);
    let span = range.end - range.start;
    let data: Vec<u64> = values[values.len().saturating_sub(width)..]
        .iter()
        .map(|value| ((value - range.start) / span * 100.0).round() as u64)
        .collect();
    let sparkline = Sparkline::default()
        .data(&data)
        .max(100)
        .style(Style::new().fg(Color::Cyan))
        .block(Block::bordered().title(title));
    screen.render_widget(sparkline, area);
}

/// An event in the list.
pub struct Entry<'a> {
    /// When.
    pub label: String,
    /// The text.
    pub text: &'a str,
    /// How it is to look.
    pub style: Style,
}

/// Events, newest first; texts are wrapped beside their labels.
pub fn news<'a>(
    area: Rect,
    title: &'a str,
    newest_first: impl Iterator<Item = Entry<'a>>,
) -> Paragraph<'a> {
    let lines = newest_first.flat_map(|entry| {
        let (label, style) = (entry.label, entry.style);
        let indent = label.chars().count();
        let width = usize::from(area.width).saturating_sub(2 + GAP + indent);
        output::wrap(entry.text, width)
            .into_iter()
            .enumerate()
            .map(move |(line, text)| {
                let label = if line == 0 { label.as_str() } else { "" };
                Line::styled(format!("{label:indent$}{:GAP$}{text}", ""), style)
            })
    });
    let lines: Vec<Line> = lines.take(area.height.into()).collect();
    Paragraph::new(lines).block(Block::bordered().title(title))
}

/// The mark of what is not of a real node.
pub fn simulated() -> Span<'static> {
    Span::styled(" SIMULATED ", bold().fg(Color::Magenta))
}

/// The last line.
pub fn foot() -> Span<'static> {
    Span::styled(" q quits", Style::new().add_modifier(Modifier::DIM))
}

/// Style of emphasis.
pub fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}
