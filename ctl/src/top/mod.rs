//! `litctl top`: the node as it changes.

mod history;
mod view;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use litd_api::{Event, Status};

use crate::Outcome;
use crate::control::{Client, ControlError, Follow, News, Socket};
use history::History;
use litd_cli::draw::quit_within;
use view::View;

/// Watch caps, power, leads and decisions as they change
///
/// Shows for each device its cap, as a bar from the lowest to the highest cap that litd would set,
/// its power, and its lead: how much earlier it started its kernels than the last GPU did. Needs a
/// terminal: use `litctl --json status` in scripts.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// The option of all commands, which the help of this one does not list
    #[arg(long, hide = true)]
    json: bool,
}

/// How often litd is asked.
const PERIOD: Duration = Duration::from_secs(1);
/// How often the screen is drawn: it may have been resized.
const DRAWN: Duration = Duration::from_millis(200);
/// Events that are kept to be shown: more than the largest screen has lines.
const EVENTS: usize = 200;

pub fn run(args: &Args, json: bool) -> Outcome {
    if json || args.json || !std::io::stdout().is_terminal() {
        return Err(
            "top needs a terminal, and has no JSON; `litctl status` prints the same once".into(),
        );
    }
    let client = args.socket.client()?;
    let mut follow = Follow::new(0);
    // Before the screen is taken, so that what is wrong at once is told as by any command.
    let mut node = Node::new(Answer::ask(&client, &mut follow)?);
    let (sender, answers) = sync_channel(1);
    thread::spawn(move || watch(&client, &mut follow, &sender));
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, &mut node, &answers);
    ratatui::try_restore()?;
    outcome
}

/// An answer of litd's at one moment.
struct Answer {
    status: Status,
    news: News,
}

impl Answer {
    fn ask(client: &Client, follow: &mut Follow) -> Result<Self, ControlError> {
        Ok(Self {
            status: client.status()?,
            news: follow.poll(client)?,
        })
    }
}

type Answers = Result<Answer, ControlError>;

/// Asks until nobody listens. A thread of its own: a daemon that hangs must not hold the keys.
fn watch(client: &Client, follow: &mut Follow, answers: &SyncSender<Answers>) {
    loop {
        thread::sleep(PERIOD);
        if answers.send(Answer::ask(client, follow)).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    node: &mut Node,
    answers: &Receiver<Answers>,
) -> Outcome {
    loop {
        for answer in answers.try_iter() {
            node.hear(answer);
        }
        terminal.draw(|screen| View::of(node).draw(screen))?;
        if quit_within(DRAWN)? {
            return Ok(());
        }
    }
}

/// The state of the node.
struct Node {
    status: Status,
    history: History,
    /// Oldest first.
    events: VecDeque<Event>,
    heard: Instant,
    /// Why nothing was heard since.
    silence: Option<String>,
}

impl Node {
    fn new(answer: Answer) -> Self {
        let mut history = History::default();
        history.push(&answer.status);
        let mut node = Self {
            status: answer.status,
            history,
            events: VecDeque::new(),
            heard: Instant::now(),
            silence: None,
        };
        node.remember(answer.news);
        node
    }

    fn hear(&mut self, answer: Answers) {
        match answer {
            Ok(answer) => {
                self.history.push(&answer.status);
                self.status = answer.status;
                self.remember(answer.news);
                self.heard = Instant::now();
                self.silence = None;
            }
            Err(error) => self.silence = Some(error.to_string()),
        }
    }

    fn remember(&mut self, news: News) {
        self.events.extend(news.events);
        let surplus = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..surplus);
    }
}
