//! The live view of a run on a terminal.

use std::error::Error;
use std::time::{Duration, Instant};

use litd_policies::State;
use litd_sim::Scenario;
use litd_units::{Millis, Watts};
use ratatui::Frame as Screen;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::run::{Frame, Run, largest};
use super::{Finished, Stopped};
use litd_cli::draw::{self, AROUND_TABLE, Entry, FOOT, Heights, bold, quit_within};
use litd_cli::show;

/// How long a sample stays on the screen. A run has about 120, and after [`LONG`] they go by
/// quickly, so that three policies take less than half a minute.
const WARM_UP: Duration = Duration::from_millis(20);
const ADJUSTING: Duration = Duration::from_millis(90);
const HOLDING: Duration = Duration::from_millis(40);
const HURRY: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(8);

/// A lead's bar, in cells, at most.
const BAR: u16 = 40;
/// The widths of the columns before the bar.
const WIDTHS: [u16; 6] = [7, 6, 5, 8, 6, 7];

/// How high the heading is.
const HEADING: u16 = 2;
/// Charts below each other.
const CHARTS: u16 = 2;

/// The least span of the throughput's chart, as a part of the throughput: noise looks small.
const SPAN: f64 = 0.01;

/// Shows a run to its end; the error is [`Stopped`] if the user quit.
pub fn watch(run: Run, scenario: &Scenario) -> Result<Finished, Box<dyn Error>> {
    let mut terminal = ratatui::try_init()?;
    let outcome = show(run, scenario, &mut terminal);
    ratatui::try_restore()?;
    outcome
}

fn show(
    mut run: Run,
    scenario: &Scenario,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<Finished, Box<dyn Error>> {
    let begin = Instant::now();
    let mut frames: Vec<Frame> = Vec::new();
    while let Some(frame) = run.advance()? {
        let stay = match frame.state {
            _ if begin.elapsed() > LONG => HURRY,
            State::WarmUp | State::Observe => WARM_UP,
            State::Adjusting | State::Drift => ADJUSTING,
            State::Converged | State::Rollback => HOLDING,
        };
        let iteration = frame.iteration;
        frames.push(frame);
        let view = View {
            run: &run,
            scenario,
            frames: &frames,
        };
        terminal.draw(|screen| view.draw(screen))?;
        if quit_within(stay)? {
            let policy = run.policy();
            return Err(Stopped { iteration, policy }.into());
        }
    }
    Ok(Finished {
        summary: run.summary(&frames),
        frames,
    })
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
        let heights = Heights::new(screen.area().height, HEADING, now.caps.len(), CHARTS);
        let rows = Layout::vertical([
            Constraint::Length(HEADING),
            Constraint::Length(heights.table),
            Constraint::Length(heights.chart),
            Constraint::Length(heights.chart),
            Constraint::Length(heights.events),
            Constraint::Min(0),
            Constraint::Length(FOOT),
        ])
        .split(screen.area());
        screen.render_widget(self.heading(now), rows[0]);
        self.draw_gpus(screen, rows[1], now);
        self.draw_leads(screen, rows[2]);
        self.draw_throughput(screen, rows[3]);
        screen.render_widget(self.events(rows[4]), rows[4]);
        screen.render_widget(draw::foot(), rows[6]);
    }

    fn heading(&self, now: &Frame) -> Paragraph<'_> {
        Paragraph::new(vec![
            Line::from(vec![
                draw::simulated(),
                Span::styled(format!(" {} ", self.run.policy()), bold()),
                Span::raw(format!(" {}", self.scenario.title)),
            ]),
            Line::from(vec![
                Span::raw(format!(" iteration {:5}  ", now.iteration)),
                Span::styled(format!("{:10}", now.state), state_style(now.state)),
                Span::raw(format!(
                    "  {:7.2} ms each  GPUs {:5.0} W",
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
            .mean_leads
            .iter()
            .copied()
            .fold(Millis(f64::MAX), Millis::min);
        let before_bar = WIDTHS.iter().sum::<u16>() + WIDTHS.len() as u16;
        let longest = area.width.saturating_sub(2 + before_bar).min(BAR);
        let leads: Vec<f64> = now.mean_leads.iter().map(|lead| lead.0).collect();
        let shown = draw::least(
            &leads,
            usize::from(area.height.saturating_sub(AROUND_TABLE)),
        );
        let hidden = now.caps.len() - shown.len();
        let rows = shown.into_iter().map(|gpu| {
            let lead = now.mean_leads[gpu];
            let filled = ((lead.0 / scale) * f64::from(longest)).round() as usize;
            let change = now.caps[gpu] - first.caps[gpu];
            let (mark, style) = if lead == smallest && !now.is_level {
                ('>', Style::new().fg(Color::Yellow))
            } else {
                (' ', Style::new())
            };
            Row::new(vec![
                format!("{mark} gpu{gpu}"),
                format!("{:4.0} W", now.caps[gpu].0),
                format!("{:>5}", signed(change)),
                show::mhz(now.clocks[gpu]),
                format!("{:3.0} °C", now.temperatures[gpu].0),
                format!("{:7.3}", lead.0),
                "█".repeat(filled.min(longest.into())),
            ])
            .style(style)
        });
        let widths = WIDTHS.map(Constraint::Length).into_iter();
        let title = draw::who_is_waited_for(!now.is_level, hidden);
        let table = Table::new(rows, widths.chain([Constraint::Min(0)]))
            .header(
                Row::new(["", "   cap", "moved", "   clock", "  temp", "lead ms", ""])
                    .style(bold()),
            )
            .block(Block::bordered().title(title));
        screen.render_widget(table, area);
    }

    fn draw_leads(&self, screen: &mut Screen, area: Rect) {
        let values: Vec<f64> = self.frames.iter().map(largest_lead).collect();
        let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let title = format!(" mean lead of the first GPU, up to {high:.2} ms ");
        draw::chart(screen, area, title, &values, 0.0..high);
    }

    /// A chart whose middle is the throughput's, so that a steady one is a level line.
    fn draw_throughput(&self, screen: &mut Screen, area: Rect) {
        let values: Vec<f64> = self.frames.iter().map(throughput).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let (middle, span) = ((low + high) / 2.0, (high - low).max(SPAN * high));
        let percent = 100.0 * span / middle;
        let title = format!(" throughput: from bottom to top is {percent:.1} % ");
        let range = middle - span / 2.0..middle + span / 2.0;
        draw::chart(screen, area, title, &values, range);
    }

    fn events(&self, area: Rect) -> Paragraph<'_> {
        let entries = self.frames.iter().rev().filter_map(|frame| {
            Some(Entry {
                label: format!("{:5}", frame.iteration),
                text: frame.event.as_deref()?,
                style: Style::new(),
            })
        });
        draw::news(area, " what the loop did and why, newest first ", entries)
    }
}

fn largest_lead(frame: &Frame) -> f64 {
    largest(&frame.mean_leads).0
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
    bold().fg(colour)
}

fn signed(change: Watts) -> String {
    if change == Watts::ZERO {
        String::new()
    } else {
        format!("{:+.0}", change.0)
    }
}
