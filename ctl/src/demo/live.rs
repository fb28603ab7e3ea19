//! The live view of a run on a terminal.

use std::error::Error;
use std::time::{Duration, Instant};

use litd_policies::State;
use litd_sim::Scenario;
use litd_units::{Hertz, Millis, Watts};
use ratatui::Frame as Screen;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::Finished;
use super::run::{Frame, Run};

/// How long a sample stays on the screen. A run has about 120, and after [`LONG`] they go by
/// quickly, so that three policies take less than half a minute.
const WARM_UP: Duration = Duration::from_millis(20);
const ADJUSTING: Duration = Duration::from_millis(90);
const HOLDING: Duration = Duration::from_millis(40);
const HURRY: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(8);

/// The width of a lead's bar, in cells.
const BAR: usize = 24;

/// Shows a run to its end; `None` if the user quit.
pub fn watch(run: Run, scenario: &Scenario) -> Result<Option<Finished>, Box<dyn Error>> {
    let mut terminal = ratatui::try_init()?;
    let outcome = show(run, scenario, &mut terminal);
    ratatui::try_restore()?;
    outcome
}

fn show(
    mut run: Run,
    scenario: &Scenario,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<Option<Finished>, Box<dyn Error>> {
    let begin = Instant::now();
    let mut frames: Vec<Frame> = Vec::new();
    while let Some(frame) = run.advance()? {
        let stay = match frame.state {
            _ if begin.elapsed() > LONG => HURRY,
            State::WarmUp | State::Observe => WARM_UP,
            State::Adjusting | State::Drift => ADJUSTING,
            State::Converged | State::Rollback => HOLDING,
        };
        frames.push(frame);
        let view = View {
            run: &run,
            scenario,
            frames: &frames,
        };
        terminal.draw(|screen| view.draw(screen))?;
        if quit_within(stay)? {
            return Ok(None);
        }
    }
    Ok(Some(Finished {
        summary: run.summary(&frames),
        frames,
    }))
}

/// Waits, and tells whether the user asked to stop.
fn quit_within(time: Duration) -> std::io::Result<bool> {
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

struct View<'a> {
    run: &'a Run,
    scenario: &'a Scenario,
    frames: &'a [Frame],
}

impl View<'_> {
    fn draw(&self, screen: &mut Screen) {
        let Some(now) = self.frames.last() else {
            return;
        };
        let gpus = u16::try_from(now.caps.len()).unwrap_or(u16::MAX);
        let rows = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(gpus.saturating_add(3)),
            Constraint::Length(4),
            Constraint::Length(4),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .split(screen.area());
        screen.render_widget(self.heading(now), rows[0]);
        self.draw_gpus(screen, rows[1], now);
        self.draw_history(screen, rows[2], "largest lead", largest_lead);
        self.draw_history(screen, rows[3], "throughput above its lowest", throughput);
        screen.render_widget(self.events(rows[4]), rows[4]);
        screen.render_widget(
            Paragraph::new(" q quits").style(Style::new().add_modifier(Modifier::DIM)),
            rows[5],
        );
    }

    fn heading(&self, now: &Frame) -> Paragraph<'_> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        Paragraph::new(vec![
            Line::from(vec![
                Span::styled(" SIMULATED ", bold.fg(Color::Magenta)),
                Span::styled(format!(" {} ", self.run.policy()), bold),
                Span::raw(format!(" {}", self.scenario.title)),
            ]),
            Line::from(vec![
                Span::raw(format!(" iteration {:5}   ", now.iteration)),
                Span::styled(format!("{:10}", now.state), state_style(now.state)),
                Span::raw(format!(
                    "   {:7.2} ms per iteration   GPUs {:6.0} W",
                    now.iteration_time.0, now.power.0
                )),
            ]),
        ])
    }

    fn draw_gpus(&self, screen: &mut Screen, area: Rect, now: &Frame) {
        let first = &self.frames[0];
        let scale = self
            .frames
            .iter()
            .map(largest_lead)
            .fold(f64::MIN_POSITIVE, f64::max);
        let smallest = now
            .leads
            .iter()
            .copied()
            .fold(Millis(f64::MAX), Millis::min);
        let rows = (0..now.caps.len()).map(|gpu| {
            let lead = now.leads[gpu];
            let filled = ((lead.0 / scale) * BAR as f64).round() as usize;
            let bar = "█".repeat(filled.min(BAR));
            let change = now.caps[gpu] - first.caps[gpu];
            let style = if lead == smallest {
                Style::new().fg(Color::Yellow)
            } else {
                Style::new()
            };
            Row::new(vec![
                format!("gpu{gpu}"),
                format!("{:4.0} W", now.caps[gpu].0),
                signed(change),
                mhz(now.clocks[gpu]),
                format!("{:3.0} °C", now.temperatures[gpu].0),
                format!("{:7.1}", lead.0),
                bar,
            ])
            .style(style)
        });
        let widths = [
            Constraint::Length(5),
            Constraint::Length(7),
            Constraint::Length(6),
            Constraint::Length(9),
            Constraint::Length(7),
            Constraint::Length(9),
            Constraint::Min(10),
        ];
        let table = Table::new(rows, widths)
            .header(
                Row::new(["", "cap", "moved", "clock", "temp", "lead ms", ""])
                    .style(Style::new().add_modifier(Modifier::BOLD)),
            )
            .block(Block::bordered().title(" the yellow GPU starts last: the others wait for it "));
        screen.render_widget(table, area);
    }

    fn draw_history(&self, screen: &mut Screen, area: Rect, title: &str, of: fn(&Frame) -> f64) {
        let width = usize::from(area.width.saturating_sub(2)).max(1);
        let values: Vec<f64> = self.frames.iter().map(of).collect();
        let shown = &values[values.len().saturating_sub(width)..];
        let low = if title.starts_with("throughput") {
            values.iter().copied().fold(f64::INFINITY, f64::min)
        } else {
            0.0
        };
        let high = values.iter().copied().fold(f64::MIN, f64::max);
        let span = (high - low).max(f64::MIN_POSITIVE);
        let data: Vec<u64> = shown
            .iter()
            .map(|value| ((value - low) / span * 100.0).round() as u64)
            .collect();
        let sparkline = Sparkline::default()
            .data(&data)
            .max(100)
            .style(Style::new().fg(Color::Cyan))
            .block(Block::bordered().title(format!(" {title} ")));
        screen.render_widget(sparkline, area);
    }

    fn events(&self, area: Rect) -> Paragraph<'_> {
        let fits = usize::from(area.height.saturating_sub(2)).max(1);
        let newest_first: Vec<Line> = self
            .frames
            .iter()
            .rev()
            .filter_map(|frame| {
                let event = frame.event.as_deref()?;
                Some(Line::raw(format!("{:5}  {event}", frame.iteration)))
            })
            .take(fits)
            .collect();
        Paragraph::new(newest_first)
            .block(Block::bordered().title(" what the loop did and why, newest first "))
    }
}

fn largest_lead(frame: &Frame) -> f64 {
    frame
        .leads
        .iter()
        .copied()
        .fold(Millis::ZERO, Millis::max)
        .0
}

/// Iterations per second.
fn throughput(frame: &Frame) -> f64 {
    1e3 / frame.iteration_time.0
}

fn state_style(state: State) -> Style {
    let colour = match state {
        State::Observe | State::WarmUp => Color::Blue,
        State::Adjusting | State::Drift => Color::Yellow,
        State::Converged => Color::Green,
        State::Rollback => Color::Red,
    };
    Style::new().fg(colour).add_modifier(Modifier::BOLD)
}

fn signed(change: Watts) -> String {
    if change == Watts::ZERO {
        String::new()
    } else {
        format!("{:+.0}", change.0)
    }
}

fn mhz(clock: Hertz) -> String {
    format!("{:4.0} MHz", clock.0 / 1e6)
}
