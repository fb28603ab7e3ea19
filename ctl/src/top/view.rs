//! The screen of `litctl top`.

use std::time::Duration;

use litd_api::{DeviceRole, DeviceState, DeviceStatus, JobState, JobStatus, Mode};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::Node;
use crate::control::name_of;
use crate::show::{self, or_dash};
use litd_cli::draw::{self, AROUND_TABLE, Entry, FOOT, Heights, bold};
use litd_cli::status::profiled;
use litd_units::Millis;

/// The lines of the heading about the node, and those at most about its jobs.
const ABOUT_NODE: u16 = 2;
const ABOUT_JOBS: usize = 4;
/// Charts beside each other.
const CHARTS: u16 = 1;
/// The widths of the columns but the bar's and the history's.
const NAME: u16 = 7;
const CAP: u16 = 6;
const BOUND: u16 = 4;
const TEMPERATURE: u16 = 6;
const CLOCK: u16 = 8;
const LEAD: u16 = 8;
const NOTE: u16 = 9;
/// A bar's width, and that where there is room for more.
const BAR: u16 = 10;
const LONG_BAR: u16 = 20;
/// From this width on there is room for more: longer bars, and a history for each device.
const WIDE: u16 = 100;
/// The least span of the chart of power, as a part of the power: noise looks small.
const SPAN: f64 = 0.01;

pub struct View<'a> {
    node: &'a Node,
    silent_for: Duration,
}

impl<'a> View<'a> {
    pub fn of(node: &'a Node) -> Self {
        Self {
            node,
            silent_for: node.heard.elapsed(),
        }
    }

    pub fn draw(&self, screen: &mut Frame) {
        let area = screen.area();
        let status = &self.node.status;
        let jobs = status.jobs.len().clamp(1, ABOUT_JOBS);
        let heading = ABOUT_NODE + jobs as u16;
        let heights = Heights::new(area.height, heading, status.devices.len(), CHARTS);
        let rows = Layout::vertical([
            Constraint::Length(ABOUT_NODE),
            Constraint::Length(jobs as u16),
            Constraint::Length(heights.table),
            Constraint::Length(heights.chart),
            Constraint::Length(heights.events),
            Constraint::Min(0),
            Constraint::Length(FOOT),
        ])
        .split(area);
        screen.render_widget(self.about_node(), rows[0]);
        screen.render_widget(self.about_jobs(), rows[1]);
        screen.render_widget(self.devices(rows[2]), rows[2]);
        self.charts(screen, rows[3]);
        screen.render_widget(self.events(rows[4]), rows[4]);
        screen.render_widget(self.foot(), rows[6]);
    }

    fn about_node(&self) -> Paragraph<'_> {
        let status = &self.node.status;
        let node = &status.node;
        let mut first = vec![Span::styled(
            format!(" {}, {} ", node.policy, node.mode.name()),
            match node.mode {
                Mode::Off | Mode::Canary => bold().fg(Color::Red),
                Mode::Observe => bold().fg(Color::Blue),
                Mode::Steer => bold(),
            },
        )];
        if status.simulated {
            first.insert(0, draw::simulated());
        }
        first.push(Span::raw(format!(" {}", node.summary)));
        let second = format!(
            " caps {:.0} of {}, power {}",
            status.gpus.caps,
            status.gpus.allowance(),
            or_dash(status.gpus.power, |power| format!("{power:.0}")),
        );
        Paragraph::new(vec![Line::from(first), Line::raw(second)])
    }

    fn about_jobs(&self) -> Paragraph<'_> {
        let jobs = &self.node.status.jobs;
        let hidden = jobs.len().saturating_sub(ABOUT_JOBS);
        let mut lines: Vec<Line> = jobs.iter().take(ABOUT_JOBS).map(about_job).collect();
        match lines.last_mut() {
            None => lines.push(Line::raw(" no job is connected")),
            Some(last) if hidden > 0 => {
                last.spans
                    .insert(0, Span::styled(format!(" +{hidden} more,"), bold()));
            }
            Some(_) => {}
        }
        Paragraph::new(lines)
    }

    fn devices(&self, area: Rect) -> Table<'_> {
        let devices = &self.node.status.devices;
        let columns = Columns::new(area.width);
        let fit = usize::from(area.height.saturating_sub(AROUND_TABLE));
        let urgency: Vec<f64> = devices.iter().map(urgency).collect();
        let shown = draw::least(&urgency, fit);
        let is_straggler = |it: &DeviceStatus| it.role == DeviceRole::Straggler;
        let is_waited_for = devices.iter().any(is_straggler);
        let title = draw::who_is_waited_for(is_waited_for, devices.len() - shown.len());
        let highest = self.highest_lead();
        let rows = shown.into_iter().map(|index| {
            let device = &devices[index];
            let mut cells = cells(device, columns.bar);
            cells.push(
                self.node
                    .history
                    .leads(&device.address, columns.history.into(), highest),
            );
            Row::new(cells).style(style(device))
        });
        let heads = [
            "",
            "   cap",
            " min",
            "",
            " max",
            " power",
            "  temp",
            "   clock",
            "    lead",
            "",
            "leads over time",
        ];
        Table::new(rows, columns.widths())
            .header(Row::new(heads).style(bold()))
            .block(Block::bordered().title(title))
    }

    fn highest_lead(&self) -> f64 {
        let leads = self.node.history.largest_lead();
        leads.into_iter().fold(f64::MIN_POSITIVE, f64::max)
    }

    fn charts(&self, screen: &mut Frame, area: Rect) {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).split(area);
        let power = self.node.history.power();
        let low = power.iter().copied().fold(f64::INFINITY, f64::min);
        let high = power.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let title = match low.is_finite() {
            true => format!(" power, {low:.0} to {high:.0} W "),
            false => " power: not known ".to_owned(),
        };
        let span = (high - low).max(SPAN * high);
        draw::chart(screen, halves[0], title, &power, high - span..high);
        let highest = self.highest_lead();
        let time = show::time(Millis(highest).to_nanos());
        let title = format!(" largest lead per kernel, up to {time} ");
        let leads = self.node.history.largest_lead();
        draw::chart(screen, halves[1], title, &leads, 0.0..highest);
    }

    fn events(&self, area: Rect) -> Paragraph<'_> {
        let devices = &self.node.status.devices;
        let entries = self.node.events.iter().rev().map(|event| {
            let time = show::time_of_day(event.unix_seconds);
            let device = event.device.as_deref();
            let label = match device.map(|address| name_of(devices, address)) {
                Some(name) if !event.text.contains(name) => format!("{time}  {name}"),
                _ => time,
            };
            let style = match event.warning {
                true => Style::new().fg(Color::Yellow),
                false => Style::new(),
            };
            Entry {
                label,
                text: &event.text,
                style,
            }
        });
        draw::news(area, " what litd did and why, newest first ", entries)
    }

    fn foot(&self) -> Line<'_> {
        let mut foot = Line::from(draw::foot());
        if let Some(why) = &self.node.silence {
            let seconds = self.silent_for.as_secs();
            let text = format!("  no answer from litd for {seconds} s: {why}");
            foot.push_span(Span::styled(text, bold().fg(Color::Red)));
        }
        foot
    }
}

fn about_job(job: &JobStatus) -> Line<'_> {
    let colour = match job.state {
        JobState::Gathering | JobState::Observe | JobState::WarmUp => Color::Blue,
        JobState::Adjusting | JobState::Drift => Color::Yellow,
        JobState::Converged => Color::Green,
        JobState::Rollback | JobState::Stale | JobState::Suspended => Color::Red,
    };
    Line::from(vec![
        Span::styled(format!(" {} ", job.name), bold()),
        Span::styled(job.state.name(), bold().fg(colour)),
        Span::raw(format!(
            "  {}, {}/s, {}; {}",
            or_dash(job.iteration_time, |time| show::time(time.to_nanos())),
            or_dash(job.throughput, |rate| format!("{rate:.2}")),
            // Traces on demand have a period of their own.
            job.measured
                .clone()
                .unwrap_or_else(|| profiled(job.sampling_period, job.sampling_overhead)),
            job.why
        )),
    ])
}

/// The order of devices where not all fit: those that are left alone, then by their leads.
fn urgency(device: &DeviceStatus) -> f64 {
    match device.state {
        DeviceState::Ours => device.lead_per_kernel.map_or(f64::INFINITY, |lead| lead.0),
        _ => f64::NEG_INFINITY,
    }
}

fn style(device: &DeviceStatus) -> Style {
    match (device.state, device.role) {
        (DeviceState::Ours, DeviceRole::Straggler) => Style::new().fg(Color::Yellow),
        (DeviceState::Ours, _) => Style::new(),
        _ => Style::new().fg(Color::Red),
    }
}

/// The cells of a row, except the history.
fn cells(device: &DeviceStatus, bar: u16) -> Vec<String> {
    let mark = match (device.state, device.role) {
        (DeviceState::Ours, DeviceRole::Straggler) => '>',
        (DeviceState::Ours, _) => ' ',
        _ => '!',
    };
    let note = match device.state {
        DeviceState::Ours if device.throttled => "throttled",
        DeviceState::Ours => "",
        other => other.name(),
    };
    let right = |text: String, width: u16| format!("{text:>width$}", width = width.into());
    vec![
        format!("{mark} {}", device.name),
        right(or_dash(device.cap, |cap| format!("{cap:.0}")), CAP),
        right(format!("{:.0}", device.floor.0), BOUND),
        cap_bar(device, bar),
        right(format!("{:.0}", device.ceiling.0), BOUND),
        right(or_dash(device.power, |power| format!("{power:.0}")), CAP),
        right(
            or_dash(device.temperature, |t| format!("{t:.0}")),
            TEMPERATURE,
        ),
        right(or_dash(device.clock, show::mhz), CLOCK),
        right(
            or_dash(device.lead_per_kernel, |lead| show::time(lead.to_nanos())),
            LEAD,
        ),
        note.to_owned(),
    ]
}

/// Where the cap is between the lowest and the highest.
fn cap_bar(device: &DeviceStatus, width: u16) -> String {
    let width = f64::from(width);
    let above = device.cap.map_or(0.0, |cap| {
        (cap - device.floor) / (device.ceiling - device.floor)
    });
    // A NaN, from a device without a range, is an empty bar.
    let bar = show::bar((above * width).max(0.0).min(width));
    let rest = (width as usize).saturating_sub(bar.chars().count());
    bar + &"░".repeat(rest)
}

/// The widths that depend on the screen's.
struct Columns {
    bar: u16,
    history: u16,
}

impl Columns {
    fn new(screen: u16) -> Self {
        let fixed = NAME + 2 * CAP + 2 * BOUND + TEMPERATURE + CLOCK + LEAD + NOTE;
        // Two sides of the frame, and a gap after each of the columns but the last.
        let around = 2 + 10;
        match screen {
            WIDE.. => Self {
                bar: LONG_BAR,
                history: screen.saturating_sub(fixed + LONG_BAR + around),
            },
            _ => Self {
                bar: BAR,
                history: 0,
            },
        }
    }

    fn widths(&self) -> impl Iterator<Item = Constraint> {
        [
            NAME,
            CAP,
            BOUND,
            self.bar,
            BOUND,
            CAP,
            TEMPERATURE,
            CLOCK,
            LEAD,
            NOTE,
            self.history,
        ]
        .into_iter()
        .map(Constraint::Length)
    }
}

#[cfg(test)]
mod tests {
    use litd_api::{EventKind, Status};
    use litd_units::{Millis, Watts};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::control::{ControlError, News};
    use crate::samples;
    use crate::top::Answer;

    /// The lines of a screen of this size.
    fn screen(node: &Node, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|screen| View::of(node).draw(screen)).unwrap();
        let buffer = terminal.backend().buffer();
        buffer
            .content
            .chunks(width.into())
            .map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect())
            .collect()
    }

    fn news() -> News {
        News {
            events: samples::events(3),
            ..News::default()
        }
    }

    /// A node that was asked a few times.
    fn node(status: &Status) -> Node {
        let answer = |status: &Status, news| Answer {
            status: status.clone(),
            news,
        };
        let mut node = Node::new(answer(status, news()));
        for moment in 1..20 {
            let mut status = status.clone();
            for device in &mut status.devices {
                let lead = device.lead_per_kernel;
                device.lead_per_kernel = lead.map(|lead| lead * (1.0 / f64::from(moment)));
            }
            node.hear(Ok(answer(&status, News::default())));
        }
        node
    }

    fn line<'a>(lines: &'a [String], start: &str) -> &'a str {
        let found = lines.iter().find(|line| line.contains(start));
        found.unwrap_or_else(|| panic!("no {start} in {lines:#?}"))
    }

    #[test]
    fn a_small_terminal_shows_all_that_matters() {
        let lines = screen(&node(&samples::status()), 80, 24);
        assert!(lines[0].contains("SIMULATED") && lines[0].contains("gpu-realloc, on"));
        assert!(lines[1].contains("caps 5600 W of 5600 W, power 5321 W"));
        assert!(lines[2].contains("train adjusting  512 ms, 1.95/s, 1 in 10 is profiled"));
        let straggler = line(&lines, "> gpu4");
        for part in [
            "> gpu4", "740 W", " 450 ", " 750 ", "715 W", "81 °C", "1850 MHz",
        ] {
            assert!(straggler.contains(part), "{part}: {straggler}");
        }
        assert!(line(&lines, "gpu5").contains("! gpu5"));
        assert!(line(&lines, "gpu5").contains("foreign"));
        assert!(line(&lines, "gpu6").contains("throttled"));
        for name in ["gpu0", "gpu7", "cpu0", "cpu1"] {
            line(&lines, name);
        }
        line(&lines, "power, 5321 to 5321 W");
        line(&lines, "largest lead per kernel, up to 8");
        // Newest first.
        let news = line(&lines, "what litd did and why");
        let index = lines.iter().position(|other| other == news).unwrap();
        assert!(lines[index + 1].contains("event 3"), "{lines:#?}");
        assert!(lines[23].starts_with(" q quits"));
    }

    #[test]
    fn a_wide_terminal_shows_the_history_of_each_device() {
        let status = samples::status();
        let lines = screen(&node(&status), 120, 40);
        let (_, leads) = line(&lines, "gpu0").split_once(" µs ").unwrap();
        assert!(leads.trim_start().starts_with("██▅▃"), "{leads}");
        assert!(leads.trim_end_matches([' ', '│']).ends_with("▁"), "{leads}");
        line(&lines, "leads over time");
        assert!(!line(&lines, "cpu0").contains('▁'));
        for number in 1..=3 {
            line(&lines, &format!("event {number}"));
        }
    }

    #[test]
    fn bars_go_from_the_lowest_cap_to_the_highest() {
        let mut device = samples::status().devices.remove(0);
        let bar = |device: &DeviceStatus| cap_bar(device, 10);
        (device.floor, device.ceiling) = (Watts(450.0), Watts(750.0));
        for (cap, shown) in [
            (600.0, "█████░░░░░"),
            (450.0, "░░░░░░░░░░"),
            (750.0, "██████████"),
            (1e300, "██████████"),
            (-7.0, "░░░░░░░░░░"),
        ] {
            device.cap = Some(Watts(cap));
            assert_eq!(bar(&device), shown, "{cap}");
        }
        device.ceiling = device.floor;
        device.cap = Some(device.floor);
        assert_eq!(bar(&device), "░░░░░░░░░░");
        device.cap = None;
        assert_eq!(bar(&device), "░░░░░░░░░░");
    }

    #[test]
    fn who_is_left_alone_and_who_is_late_is_shown_first() {
        let mut status = samples::status();
        let many = (10..60).map(|number| DeviceStatus {
            name: format!("gpu{number}"),
            lead_per_kernel: Some(Millis(500.0)),
            ..status.devices[0].clone()
        });
        let many: Vec<_> = many.collect();
        status.devices.splice(1..1, many);
        let lines = screen(&node(&status), 80, 16);
        line(&lines, "> gpu4");
        line(&lines, "! gpu5");
        line(&lines, "+51 more");
    }

    #[test]
    fn silence_is_told_and_what_was_known_stays() {
        let mut node = node(&samples::status());
        node.hear(Err(ControlError::Answer("nonsense".into())));
        let lines = screen(&node, 80, 24);
        assert!(lines[23].contains("no answer from litd for 0 s: litd's answer can't be read"));
        line(&lines, "> gpu4");
        let answer = Answer {
            status: samples::status(),
            news: news(),
        };
        node.hear(Ok(answer));
        assert!(!screen(&node, 80, 24)[23].contains("no answer from litd"));
    }

    #[test]
    fn nothing_is_too_small_or_too_empty() {
        let mut bare = samples::status();
        bare.devices.clear();
        bare.jobs.clear();
        bare.gpus.power = None;
        for status in [samples::status(), bare] {
            let node = node(&status);
            for width in [1, 2, 20, 79, 80, 99, 100, 101, 300] {
                for height in 1..30 {
                    assert_eq!(screen(&node, width, height).len(), usize::from(height));
                }
            }
        }
    }

    #[test]
    fn a_warning_about_a_device_names_it() {
        let mut node = node(&samples::status());
        let event = litd_api::Event {
            seq: 9,
            kind: EventKind::Foreign,
            device: Some(samples::address(5)),
            warning: true,
            text: "somebody else changed its cap".into(),
            ..samples::events(1).remove(0)
        };
        node.remember(News {
            events: vec![event],
            ..News::default()
        });
        line(&screen(&node, 80, 24), "gpu5  somebody else");
    }
}
