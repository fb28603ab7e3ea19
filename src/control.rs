//! The control socket, for administrators and site tools ([`litd_api`]).

use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, StatusCode};
use litd_api::{Command, Done, Problem, TraceWish, Traceable};
use litd_core::{Crowd, Event, Progress, Stage};
use serde::Serialize;

use crate::answers::Answers;
use crate::hub::{Hub, Shared};
use crate::listening::Listening;
use crate::rights::{Admins, Caller};
use crate::seats::{Seats, Taking};
use crate::server::{self, Answer};
use crate::unread::{self, Room, Unread};

/// Connections at a time; root has as many again.
const SEATS: usize = 32;

/// The longest command, in bytes.
const LONGEST_BODY: usize = 64 * 1024;

/// How long the answer to an override waits for the driver: less than a connection lasts.
const LONGEST_SET: Duration = Duration::from_millis(1500);

/// How long the answer to a job's end waits; the client has 2 s for everything.
const LONGEST_JOB: Duration = Duration::from_millis(1200);

/// How long the answer to a release waits; the client is promised an answer within 5 s.
const LONGEST_RELEASE: Duration = Duration::from_millis(4000);

/// How long a connection may last in all.
const LONGEST: Duration = Duration::from_millis(4800);

/// Serves for ever.
pub async fn serve(
    listening: Rc<Listening>,
    admins: Admins,
    answers: Answers,
    unread: Unread,
    hub: Shared,
) {
    let seats = Seats::new(SEATS);
    loop {
        // The last connection's request is read before the next connection is accepted.
        tokio::task::yield_now().await;
        let connection = listening.accept().await;
        let Ok(stream) = connection.stream() else {
            continue;
        };
        let Ok(credentials) = stream.peer_cred() else {
            continue;
        };
        let caller = Caller {
            uid: credentials.uid(),
            gid: credentials.gid(),
        };
        // Root and the daemon's own user are answered whatever they have left unread.
        let is_own = admins.is_own(caller);
        let crowd = hub.borrow().crowd(caller.uid, None);
        if !is_own && unread.room(&crowd) == Room::Nothing {
            hub.borrow_mut().unanswered(Some(caller.uid), None);
            continue;
        }
        let Some((seat, leave)) = seats.take(crowd.clone(), is_own) else {
            hub.borrow_mut().crowded_out(Some(caller.uid));
            continue;
        };
        // Without a descriptor left the unread answer could not be tracked.
        let Ok(end) = connection.second() else {
            continue;
        };
        unread::bound(stream, server::SEND_BUFFER);
        let (hub, unread) = (hub.clone(), unread.clone());
        let waiting = answers.connection(Some(caller.uid));
        tokio::task::spawn_local(async move {
            let serving = server::http(connection, LONGEST, |request| async {
                let answer = respond(hub.clone(), admins, caller, &seat, request).await;
                seat.is_answered();
                waiting.admit(answer, &hub)
            });
            leave.or(serving).await;
            unread.close(crowd, end);
        });
    }
}

async fn respond(
    hub: Shared,
    admins: Admins,
    caller: Caller,
    seat: &Taking<Crowd>,
    request: Request<Incoming>,
) -> Answer {
    let method = request.method().clone();
    match (&method, request.uri().path()) {
        (&Method::GET, "/v1/status") => json(StatusCode::OK, &hub.borrow().status()),
        (&Method::GET, "/v1/events") => match after(request.uri().query()) {
            Ok(after) => json(StatusCode::OK, &hub.borrow().events(after)),
            Err(reason) => problem(StatusCode::BAD_REQUEST, reason),
        },
        (&Method::GET, "/v1/trial") => json(StatusCode::OK, &hub.borrow().trials()),
        (&Method::GET, "/v1/trace") => json(StatusCode::OK, &traceable(&hub)),
        (&Method::POST, "/v1/trace") => trace(&hub, admins, caller, seat, request).await,
        (&Method::GET, "/v1/stacks") => json(StatusCode::OK, &hub.borrow().stacks()),
        (&Method::POST, "/v1/command") => {
            command(&hub, admins, caller, seat, request, from_json).await
        }
        (&Method::PUT, "/v1/lease") => command(&hub, admins, caller, seat, request, lease).await,
        (&Method::DELETE, "/v1/lease") => {
            command(&hub, admins, caller, seat, request, |_| {
                Ok(Command::EndLease)
            })
            .await
        }
        (_, "/v1/lease") => wrong_method("PUT, DELETE"),
        (_, "/v1/trace") => wrong_method("GET, POST"),
        (_, "/v1/status" | "/v1/events" | "/v1/trial" | "/v1/stacks") => wrong_method("GET"),
        (_, "/v1/command") => wrong_method("POST"),
        (_, path) => problem(
            StatusCode::NOT_FOUND,
            format!(
                "nothing is at {path}; there are /v1/status, /v1/events, /v1/trial, /v1/stacks, /v1/trace, /v1/lease \
                 and /v1/command"
            ),
        ),
    }
}

fn from_json(body: &[u8]) -> Result<Command, serde_json::Error> {
    serde_json::from_slice(body)
}

fn lease(body: &[u8]) -> Result<Command, serde_json::Error> {
    serde_json::from_slice(body).map(Command::Lease)
}

fn traceable(hub: &Shared) -> Traceable {
    let hub = hub.borrow();
    let wishes = hub.wishes();
    let known = wishes.map_or_else(Traceable::default, |wishes| wishes.traceable());
    Traceable {
        rings: hub.rings_seen(),
        ..known
    }
}

/// Has processes record traces, which is recorded as commands are.
async fn trace(
    hub: &Shared,
    admins: Admins,
    caller: Caller,
    seat: &Taking<Crowd>,
    request: Request<Incoming>,
) -> Answer {
    let read = |body: &[u8]| serde_json::from_slice::<TraceWish>(body);
    let wish = match asked(admins, caller, seat, request, read).await {
        Ok(wish) => wish,
        Err(refusal) => return refusal,
    };
    let Some(wishes) = hub.borrow().wishes() else {
        return problem(StatusCode::CONFLICT, Traceable::OFF.to_owned());
    };
    let outcome = wishes.wish(&wish).await;
    let said = match &outcome {
        Ok(wished) => {
            let pids = wished.traces.iter().map(|it| it.pid.to_string());
            format!(
                "traces of processes {}",
                pids.collect::<Vec<_>>().join(", ")
            )
        }
        Err(refused) => format!("traces; refused: {}", refused.error),
    };
    let said = format!("user {} asks: {said}", caller.uid);
    hub.borrow_mut().handle(Event::Asked(&said));
    match outcome {
        Ok(wished) => json(StatusCode::OK, &wished),
        Err(refused) => json(StatusCode::CONFLICT, &refused),
    }
}

async fn command(
    hub: &Shared,
    admins: Admins,
    caller: Caller,
    seat: &Taking<Crowd>,
    request: Request<Incoming>,
    read: impl FnOnce(&[u8]) -> Result<Command, serde_json::Error>,
) -> Answer {
    let command = match asked(admins, caller, seat, request, read).await {
        Ok(command) => command,
        Err(refusal) => return refusal,
    };
    let waits = Waits::of(&command);
    let outcome = hub.borrow_mut().command(caller.uid, command);
    let outcome = match (outcome, waits) {
        (Ok(done), Some(waits)) => waits.end(hub, done).await,
        (outcome, _) => outcome,
    };
    match outcome {
        Ok(done) => json(StatusCode::OK, &done),
        Err(refused) => json(StatusCode::CONFLICT, &refused),
    }
}

/// Reads what is asked for, from somebody who may ask; or the answer to others.
async fn asked<T>(
    admins: Admins,
    caller: Caller,
    seat: &Taking<Crowd>,
    request: Request<Incoming>,
    read: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
) -> Result<T, Answer> {
    let body = Limited::new(request.into_body(), LONGEST_BODY).collect();
    let Ok(body) = tokio::time::timeout(server::PATIENCE, body).await else {
        let seconds = server::PATIENCE.as_secs();
        let why = format!("the command has not come within {seconds} s");
        return Err(problem(StatusCode::REQUEST_TIMEOUT, why));
    };
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(problem(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a command has at most {LONGEST_BODY} bytes"),
            ));
        }
        Err(error) => return Err(problem(StatusCode::BAD_REQUEST, error.to_string())),
    };
    seat.asks();
    // Checked only now: a client that is still sending its command would not read the answer.
    if !admins.admit(caller).await {
        return Err(problem(
            StatusCode::FORBIDDEN,
            format!(
                "user {} may not give commands: only root and the group of [control] admin_group may",
                caller.uid
            ),
        ));
    }
    read(&body).map_err(|error| {
        problem(
            StatusCode::BAD_REQUEST,
            format!("litd can't read the request: {error}"),
        )
    })
}

/// A request that is answered only once the hardware has carried it out, or has failed to.
enum Waits {
    /// An override: once it has been read back.
    ByHand(String),
    /// A job's end, or the beginning of a job that opts out: once its GPUs' caps are restored.
    Job(String),
    /// A release: once the caps are restored and every handle is closed.
    LetGo(Option<String>),
}

impl Waits {
    fn of(command: &Command) -> Option<Self> {
        match command {
            Command::SetCap { device, .. } => Some(Self::ByHand(device.clone())),
            Command::Release { device } => Some(Self::LetGo(device.clone())),
            Command::EndJob { job, .. }
            | Command::BeginJob {
                job, opt_out: true, ..
            } => Some(Self::Job(job.clone())),
            _ => None,
        }
    }

    async fn end(self, hub: &Shared, done: Done) -> Result<Done, Problem> {
        match self {
            Self::Job(job) => given_back(hub, &job, done).await,
            Self::ByHand(device) => set_by_hand(hub, &device).await,
            Self::LetGo(device) => let_go(hub, device.as_deref()).await,
        }
    }
}

/// Checks after each event until there is an answer or time is up.
async fn answered<T>(
    hub: &Shared,
    patience: Duration,
    ask: impl Fn(&Hub) -> Option<T>,
) -> Option<T> {
    let changed = hub.borrow().changed();
    let answer = async {
        loop {
            let next = changed.notified();
            let answer = ask(&hub.borrow());
            match answer {
                Some(answer) => return answer,
                None => next.await,
            }
        }
    };
    tokio::time::timeout(patience, answer).await.ok()
}

/// An override whose outcome has not been sent yet. When this is dropped, because time is up or the client has
/// closed the connection, the override is given up.
struct Untold<'a> {
    hub: &'a Shared,
    device: &'a str,
}

impl Untold<'_> {
    /// The answer was sent.
    fn tell(self) {
        std::mem::forget(self);
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        // Connections end between two events; if the hub is in the middle of one, the daemon is ending.
        if let Ok(mut hub) = self.hub.try_borrow_mut() {
            hub.give_up_by_hand(self.device);
        }
    }
}

async fn set_by_hand(hub: &Shared, device: &str) -> Result<Done, Problem> {
    let untold = Untold { hub, device };
    let outcome = answered(hub, LONGEST_SET, |hub| hub.outcome_by_hand(device)).await;
    let Some(outcome) = outcome else {
        drop(untold);
        return Err(Problem {
            error: format!(
                "{device} has not taken the cap within {} s; it keeps what it has \
                 (`litctl events` may say why)",
                LONGEST_SET.as_secs_f64()
            ),
        });
    };
    untold.tell();
    match outcome {
        Ok(held) => Ok(Done {
            message: format!("{device} holds {held}"),
        }),
        Err(why) => Err(Problem { error: why }),
    }
}

async fn given_back(hub: &Shared, job: &str, done: Done) -> Result<Done, Problem> {
    let back = |hub: &Hub| {
        let outcome = hub.giving_back(job);
        (outcome.stage != Stage::Pending).then_some(outcome.said)
    };
    let said = done.message;
    match answered(hub, LONGEST_JOB, back).await {
        Some(more) if more.is_empty() => Ok(Done { message: said }),
        Some(more) => Ok(Done {
            message: format!("{said}; {more}"),
        }),
        None => Err(Problem {
            error: format!(
                "{said}, but {} s later not all caps and clocks are restored: {}",
                LONGEST_JOB.as_secs_f64(),
                hub.borrow().giving_back(job).said
            ),
        }),
    }
}

async fn let_go(hub: &Shared, device: Option<&str>) -> Result<Done, Problem> {
    let done = |hub: &Hub| {
        let progress = hub.letting_go(device);
        (progress.stage != Stage::Pending).then_some(progress)
    };
    match answered(hub, LONGEST_RELEASE, done).await {
        Some(Progress {
            stage: Stage::Done,
            said: message,
        }) => Ok(Done { message }),
        Some(Progress { said: error, .. }) => Err(Problem { error }),
        None => Err(Problem {
            error: hub.borrow().letting_go(device).said,
        }),
    }
}

/// The number in `after=SEQ`; 0 without one.
fn after(query: Option<&str>) -> Result<u64, String> {
    let parameters = query.unwrap_or_default().split('&');
    let mut after = parameters.filter_map(|parameter| parameter.strip_prefix("after="));
    match after.next_back() {
        Some(number) => number
            .parse()
            .map_err(|_| format!("after={number}: not the number of an event")),
        None => Ok(0),
    }
}

fn wrong_method(allowed: &'static str) -> Answer {
    let mut answer = problem(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("only {allowed} is possible here"),
    );
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn problem(status: StatusCode, error: String) -> Answer {
    json(status, &Problem { error })
}

fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_vec(body) {
        Ok(mut body) => {
            body.push(b'\n');
            server::answer(status, "application/json", body)
        }
        Err(error) => server::answer(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            error.to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_asked_for_by_number() {
        assert_eq!(after(None), Ok(0));
        assert_eq!(after(Some("after=17")), Ok(17));
        assert_eq!(after(Some("x=1&after=3")), Ok(3));
        assert!(after(Some("after=-1")).is_err());
        assert!(after(Some("after=")).is_err());
    }
}
