//! A planner's server, as `litctl plan report` talks to it.

use std::error::Error;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderValue};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time;

use litd_client::{Request, converse};

/// The timeout.
const PATIENCE: Duration = Duration::from_secs(5);
/// A longer file holds no token.
const TOKEN: u64 = 4096;
/// So much of what it says is shown.
const WORDS: usize = 500;

/// An address of HTTP, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Host and port.
    host: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("http://").unwrap_or(text);
        let host = host.strip_suffix('/').unwrap_or(host);
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
        let port = host
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        match port {
            Some(1_u16..) if host.chars().all(plain) => Ok(Self {
                host: host.to_owned(),
            }),
            _ => Err(
                "must be http://HOST:PORT, such as http://planner:7787 or http://[::1]:7787"
                    .to_owned(),
            ),
        }
    }
}

/// Reads what the planner calls a job.
pub fn id(text: &str) -> Result<String, String> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/?#%".contains(c);
    match text.is_empty() || text.contains(odd) || !text.is_ascii() {
        true => Err("is not a job id of the planner".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Why the planner did not take something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The planner can't be reached or has a problem of its own: later it may accept.
    Away(String),
    /// The planner refuses, and would again.
    Refused(String),
}

impl Trouble {
    pub fn text(&self) -> &str {
        match self {
            Self::Away(text) | Self::Refused(text) => text,
        }
    }
}

/// A job at a planner's server.
pub struct Planner {
    host: String,
    job: String,
    /// The header that says who asks, where the planner wants to know.
    token: Option<HeaderValue>,
    runtime: Runtime,
}

impl Planner {
    pub fn new(url: &Url, job: &str, token: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            token: token.map(bearer).transpose()?,
            host: url.host.clone(),
            job: job.to_owned(),
            runtime: Builder::new_current_thread().enable_all().build()?,
        })
    }

    /// Where it is.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Tells how late a rank is.
    pub fn set_straggler(&self, rank: u32, degree: f64) -> Result<(), Trouble> {
        let body = serde_json::json!({"id": rank, "delay": 0.0, "degree": degree}).to_string();
        let path = format!("/set_straggler/{}", self.job);
        let request = Request::Post(path, body.into_bytes());
        let answer = async { time::timeout(PATIENCE, self.ask(&request)).await };
        let (status, body) = self.runtime.block_on(answer).unwrap_or_else(|_| {
            Err(Trouble::Away(format!(
                "no answer within {} s",
                PATIENCE.as_secs()
            )))
        })?;
        if status == StatusCode::OK {
            return Ok(());
        }
        let said = format!("{status}: {}", words(&body));
        Err(match status.is_client_error() {
            true => Trouble::Refused(said),
            false => Trouble::Away(said),
        })
    }

    async fn ask(&self, request: &Request) -> Result<(StatusCode, Vec<u8>), Trouble> {
        let request = request.to_http(&self.host);
        let mut request = request.map_err(|error| Trouble::Refused(error.to_string()))?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let stream = TcpStream::connect(&self.host).await;
        let stream = stream
            .map_err(|error| Trouble::Away(format!("{error} (does litd-planner listen there?)")))?;
        let answer = converse(stream, request).await.map_err(Trouble::Away)?;
        Ok((answer.status(), answer.into_body().to_vec()))
    }
}

/// The header with a file's token.
fn bearer(path: &Path) -> Result<HeaderValue, Box<dyn Error>> {
    let named = |cause: &dyn std::fmt::Display| format!("{}: {cause}", path.display());
    let bytes = litd_files::read(path, TOKEN).map_err(|cause| named(&cause))?;
    let token = String::from_utf8_lossy(&bytes);
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| named(&"a token is a line of ASCII"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The text of an answer, fit for a terminal.
fn words(body: &[u8]) -> String {
    let detail = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|document| Some(document.get("detail")?.as_str()?.to_owned()));
    let text = detail.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let shown = text.chars().filter(|letter| !letter.is_control());
    shown.take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ids_are_looked_at_first() {
        for good in ["http://planner:7787", "127.0.0.1:1/", "http://[::1]:7787"] {
            assert!(good.parse::<Url>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "planner",
            "https://planner:1",
            "http://a:0",
            "a:99999",
            "a b:1",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
        assert!(id("2026-01-02-03-04-05+dp2+pp2+tp8+Perseus").is_ok());
        for bad in ["", "a b", "a/b", "a?b", "a\r\nHost: x"] {
            assert!(id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_left_out() {
        assert_eq!(words(br#"{"detail": "no \u001b[2Jjob\n"}"#), "no [2Jjob");
        assert_eq!(words(b"<html>"), "<html>");
    }
}
