//! The routes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use litd_planner::Pipeline;
use litd_profiles::plan::Format;
use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::drift::Drifts;
use crate::model::StageProfile;
use crate::models::Models;
use crate::plans::Plans;
use crate::protocol::ProfilingResult;
use crate::registry::{Refusal, Registry};
use crate::state::State;
use crate::token::Token;

/// Bodies beyond so many bytes are refused: the longest has a GPU's clocks.
const BODY: usize = 64 << 10;
/// The limit for results, which have times of each instruction in each iteration.
const RESULT: usize = 8 << 20;
/// So many results are read at the same time, which bounds what they take.
const RESULTS: usize = 8;
/// Headers must have come after so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// The body must have come after so long.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// After so many silent seconds the system asks whether a client is still there, which may wait for
/// its plan for days.
const KEEP_ALIVE: u32 = 60;

/// State shared by all connections.
pub struct Server {
    state: Arc<State>,
    /// The plans, once they are made; before that, nothing.
    plans: watch::Receiver<Option<Arc<Plans>>>,
    /// Counts what may let somebody go on who waits.
    changes: watch::Sender<u64>,
    /// Results that may be read.
    results: Semaphore,
    /// The plans of jobs with models of their own.
    models: Arc<Models>,
    /// Measurements of ranks.
    drifts: Mutex<Drifts>,
    /// The token that clients must send, if any.
    token: Option<Token>,
}

type Answer = Response<Full<Bytes>>;

/// A refusal with its status.
struct Failure(StatusCode, String);

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self(StatusCode::BAD_REQUEST, refusal.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(cause: std::io::Error) -> Self {
        let text = format!("the state can't be written: {cause}");
        Self(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

/// The time in Unix seconds.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

impl Server {
    /// A server of these jobs and plans.
    pub fn new(
        state: State,
        plans: watch::Receiver<Option<Arc<Plans>>>,
        token: Option<Token>,
    ) -> Self {
        Self {
            state: Arc::new(state),
            plans,
            changes: watch::Sender::new(0),
            results: Semaphore::new(RESULTS),
            models: Arc::default(),
            drifts: Mutex::default(),
            token,
        }
    }

    /// Makes the plans of jobs with models of their own, after a start.
    pub fn characterise_all(self: &Arc<Self>) {
        for (id, pipeline) in self.state.look(|registry| registry.models()) {
            self.characterise(id, pipeline);
        }
    }

    /// Makes a job's plans in the background; whoever waits for them, or for newer ones, gets them then.
    fn characterise(self: &Arc<Self>, id: String, pipeline: Pipeline) {
        let server = self.clone();
        let runtime = tokio::runtime::Handle::current();
        self.models
            .characterise(id, pipeline, move |id, had_plans| {
                let id = id.to_owned();
                runtime.spawn(async move {
                    if had_plans {
                        let renew = |registry: &mut Registry| {
                            registry.new_plans(&id);
                            Ok(())
                        };
                        // A failure to save is reported to the next client that changes something.
                        let _ = server.state.change(renew).await;
                    }
                    server.changed();
                });
            });
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Serves for ever.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        tokio::spawn(self.clone().follow_announcements());
        loop {
            // Out of file descriptors: later there may be some.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            keep_alive(&stream);
            let server = self.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.respond(request).await) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .serve_connection(TokioIo::new(stream), service);
                // A client that vanishes is its own affair.
                let _ = connection.await;
            });
        }
    }

    /// Lets stragglers that were announced come true in time.
    async fn follow_announcements(self: Arc<Self>) {
        let mut changes = self.changes.subscribe();
        loop {
            if self.state.look(|registry| registry.apply_due(now())) {
                // A failure to save is reported to the next client that changes something.
                let _ = self.state.change(|_| Ok(())).await;
                self.changed();
            }
            let next = self.state.look(|registry| registry.next_due());
            let wait = next.map(|due| Duration::try_from_secs_f64((due - now()).max(0.001)));
            let wait = wait.and_then(Result::ok);
            tokio::select! {
                () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)) => {}
                _ = changes.changed() => {}
            }
        }
    }

    async fn respond(self: &Arc<Self>, request: Request<Incoming>) -> Answer {
        let (status, body, version) = match self.route(request).await {
            Ok((body, version)) => (StatusCode::OK, body, version),
            Err(Failure(status, detail)) => (
                status,
                serde_json::json!({ "detail": detail }).to_string(),
                None,
            ),
        };
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(version) = version {
            headers.insert("plan-version", HeaderValue::from(version));
        }
        answer
    }

    async fn route(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<(String, Option<u64>), Failure> {
        let sent = request.headers().get(AUTHORIZATION);
        let sent = sent.map(HeaderValue::as_bytes);
        if self.token.as_ref().is_some_and(|token| !token.is_in(sent)) {
            return Err(Failure(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: send it as Authorization: Bearer TOKEN".into(),
            ));
        }
        let path = request.uri().path().to_owned();
        let (call, id) = path
            .trim_start_matches('/')
            .split_once('/')
            .unwrap_or((path.trim_start_matches('/'), ""));
        let id = decoded(id)?;
        let is_post = request.method() == Method::POST;
        match (call, is_post) {
            ("register_job", true) => {
                let info = body(request, BODY).await?;
                let register = |registry: &mut Registry| registry.register_job(info, now(), name);
                json(&self.state.change(register).await??)
            }
            ("register_rank", true) => {
                let rank = body(request, BODY).await?;
                let register = |registry: &mut Registry| registry.register_rank(&id, rank, now());
                json(&self.state.change(register).await??)
            }
            ("result", true) => {
                let _place = self.results.acquire().await;
                let result = body(request, RESULT).await?;
                let check = |registry: &mut Registry| registry.check_result(&id, &result, now());
                self.state.look(check)?;
                self.state.add_result(id.clone(), result.clone()).await?;
                self.compare(&id, &result).await?;
                json(&())
            }
            ("profile", true) => {
                let profile: StageProfile = body(request, RESULT).await?;
                let set = |registry: &mut Registry| registry.set_profile(&id, profile, now());
                if let Some(pipeline) = self.state.change(set).await?? {
                    self.characterise(id, pipeline);
                }
                json(&())
            }
            ("set_straggler", true) => {
                let straggler = body(request, BODY).await?;
                let set = |registry: &mut Registry| registry.set_straggler(&id, straggler, now());
                self.state.change(set).await??;
                self.changed();
                json(&())
            }
            ("schedule", false) if request.method() == Method::GET => {
                let query = request.uri().query().unwrap_or_default();
                let rank = parameter(query, "rank")?;
                let rank = rank.ok_or_else(|| unprocessable("the parameter rank is missing"))?;
                let rank = u32::try_from(rank).map_err(|_| unprocessable("rank is too large"))?;
                let after = parameter(query, "after")?.unwrap_or(0);
                self.schedule(&id, rank, after).await
            }
            ("plan", false) if request.method() == Method::GET => {
                let query = request.uri().query().unwrap_or_default();
                let pipeline = parameter(query, "pipeline")?.unwrap_or(0);
                let pipeline =
                    u32::try_from(pipeline).map_err(|_| unprocessable("pipeline is too large"))?;
                let after = parameter(query, "after")?.unwrap_or(0);
                self.plan(&id, pipeline, after).await
            }
            (
                "register_job" | "register_rank" | "result" | "set_straggler" | "schedule" | "plan"
                | "profile",
                _,
            ) => Err(Failure(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{} is not possible here", request.method()),
            )),
            _ => Err(Failure(
                StatusCode::NOT_FOUND,
                format!("there is nothing at {path:?}"),
            )),
        }
    }

    /// A rank's schedule: when all ranks have asked, the plans are made, and, for who has a plan
    /// already, there is a newer one.
    async fn schedule(
        &self,
        id: &str,
        rank: u32,
        after: u64,
    ) -> Result<(String, Option<u64>), Failure> {
        let mut changes = self.changes.subscribe();
        if self.state.look(|registry| registry.ask(id, rank, now()))? {
            self.state.change(|_| Ok(())).await??;
            if self
                .state
                .look(|registry| registry.plan(id, rank))?
                .is_some()
            {
                // The other ranks wait for this request only.
                self.changed();
            }
        }
        let plan = loop {
            changes.mark_unchanged();
            let plan = self.state.look(|registry| registry.plan(id, rank))?;
            match plan.filter(|plan| plan.version > after) {
                Some(plan) => break plan,
                None => drop(changes.changed().await),
            }
        };
        // Before its version is told: after a crash, who waits for a newer one would wait for ever.
        self.state.on_disk().await?;
        let schedule = self.plans(id).await?.schedule(&plan.rank, plan.degree);
        Ok((json(&schedule)?.0, Some(plan.version)))
    }

    /// A pipeline's plan as a contract; with `after`, one that is newer, which is waited for.
    async fn plan(
        &self,
        id: &str,
        pipeline: u32,
        after: u64,
    ) -> Result<(String, Option<u64>), Failure> {
        let mut changes = self.changes.subscribe();
        let (version, degree) = loop {
            changes.mark_unchanged();
            match self
                .state
                .look(|registry| registry.pipeline(id, pipeline))?
            {
                (version, _) if version <= after => drop(changes.changed().await),
                newer => break newer,
            }
        };
        self.state.on_disk().await?;
        let contract = self.plans(id).await?.contract(degree);
        Ok((contract.write(Format::Contract), Some(version)))
    }

    /// Compares what a rank measured with what its plan expects. What all ranks of a stage see to be otherwise,
    /// beyond noise, makes a job's own model other, and new plans.
    async fn compare(self: &Arc<Self>, id: &str, result: &ProfilingResult) -> Result<(), Failure> {
        let rank = result.rank;
        let Some((plan, peers)) = self.state.look(|registry| registry.peers(id, rank)) else {
            return Ok(());
        };
        let has_model = self.state.look(|registry| registry.has_model(id));
        let plans = match has_model {
            true => self.models.get(id),
            false => self.plans.borrow().clone(),
        };
        let Some(plans) = plans else {
            return Ok(());
        };
        let gpu = plan.rank.pp_rank;
        let expected = plans.expected(gpu, plan.degree);
        let off = {
            let mut drifts = self.drifts.lock().unwrap_or_else(PoisonError::into_inner);
            drifts.note(id, result, &expected, &peers)
        };
        for (name, off) in &off {
            eprintln!(
                "litd-planner: {id}: {name} of stage {gpu} takes {:.1} % of the planned time: {}",
                100.0 * off.time,
                if has_model {
                    "new plans are being computed"
                } else {
                    "the profile is out of date; measure it again and restart with --profile"
                }
            );
        }
        if off.is_empty() || !has_model {
            return Ok(());
        }
        let correct = |registry: &mut Registry| registry.correct(id, gpu, &off, now());
        if let Some(pipeline) = self.state.change(correct).await?? {
            self.characterise(id.to_owned(), pipeline);
        }
        Ok(())
    }

    /// A job's plans, once they are made.
    async fn plans(&self, id: &str) -> Result<Arc<Plans>, Failure> {
        if self.state.look(|registry| registry.has_model(id)) {
            let mut changes = self.changes.subscribe();
            loop {
                changes.mark_unchanged();
                match self.models.get(id) {
                    Some(plans) => return Ok(plans),
                    None => drop(changes.changed().await),
                }
            }
        }
        let mut plans = self.plans.clone();
        let ready = plans.wait_for(Option::is_some).await;
        let plans = ready.ok().and_then(|plans| plans.clone());
        let stopped = || {
            Failure(
                StatusCode::INTERNAL_SERVER_ERROR,
                "planning was stopped".into(),
            )
        };
        plans.ok_or_else(stopped)
    }
}

/// Has a client noticed that is gone without a word, such as a node without power.
fn keep_alive(stream: &TcpStream) {
    // Where the system can't, such a client stays until the server ends.
    let _ = setsockopt(stream, sockopt::KeepAlive, &true)
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_ALIVE));
}

fn json(value: &impl Serialize) -> Result<(String, Option<u64>), Failure> {
    let failed =
        |cause: serde_json::Error| Failure(StatusCode::INTERNAL_SERVER_ERROR, cause.to_string());
    Ok((serde_json::to_string(value).map_err(failed)?, None))
}

fn unprocessable(text: impl Into<String>) -> Failure {
    Failure(StatusCode::UNPROCESSABLE_ENTITY, text.into())
}

async fn body<T: DeserializeOwned>(
    request: Request<Incoming>,
    longest: usize,
) -> Result<T, Failure> {
    let collected = Limited::new(request.into_body(), longest).collect();
    let collected = tokio::time::timeout(BODY_PATIENCE, collected).await;
    let bytes = collected
        .map_err(|_| {
            Failure(
                StatusCode::REQUEST_TIMEOUT,
                "the request's body did not arrive in time".into(),
            )
        })?
        .map_err(|cause| unprocessable(format!("the request's body: {cause}")))?
        .to_bytes();
    serde_json::from_slice(&bytes)
        .map_err(|cause| unprocessable(format!("the request's body: {cause}")))
}

/// A job's name from the path. A plus is a plus; only percent signs stand for something else.
fn decoded(id: &str) -> Result<String, Failure> {
    let mut bytes = Vec::with_capacity(id.len());
    let mut rest = id.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let pair = digit().zip(digit());
        let (high, low) =
            pair.ok_or_else(|| unprocessable("a % without two digits in the path"))?;
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| unprocessable("the path is not UTF-8"))
}

fn parameter(query: &str, name: &str) -> Result<Option<u64>, Failure> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .next_back();
    let parse = |value: &str| {
        value
            .parse()
            .map_err(|_| unprocessable(format!("{name} {value:?} is no whole number")))
    };
    value.map(parse).transpose()
}

/// A job's name by the time, so many seconds later.
fn name(later: u64) -> String {
    let seconds = now() as i64 + later as i64;
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%d-%H-%M-%S").to_string()
}
