//! An HTTP request to a provider of carbon signals, or to a Prometheus, bounded in time and size.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use litd_carbon::signal::Trouble;
use litd_client::{Request, converse};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time;

/// A provider is waited for no longer, unless the caller says so.
const PATIENCE: Duration = Duration::from_secs(10);
/// A server that answers 429 without Retry-After is left alone for so long.
const LIMITED: SignedDuration = SignedDuration::from_mins(1);
/// So much of what it says is shown.
const WORDS: usize = 200;

/// A provider's address, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    host: String,
    port: u16,
    is_tls: bool,
}

impl Url {
    /// The host as resolvers and certificates have it: the brackets around an IPv6 address are the URL's.
    fn name(&self) -> &str {
        let inner = self.host.strip_prefix('[');
        inner
            .and_then(|it| it.strip_suffix(']'))
            .unwrap_or(&self.host)
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} must be http://HOST[:PORT] or https://HOST[:PORT]");
        let (rest, is_tls) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (rest, Some(if is_tls { 443 } else { 80 })),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
        match port {
            Some(port @ 1..) if !host.is_empty() && host.chars().all(plain) => Ok(Self {
                host: host.to_owned(),
                port,
                is_tls,
            }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Asks one provider; every request is a connection of its own.
pub struct Http {
    url: Url,
    patience: Duration,
    runtime: Runtime,
}

impl Http {
    /// For a provider at this address. Nothing is connected yet.
    pub fn new(url: Url) -> Result<Self, String> {
        if url.is_tls && !cfg!(feature = "tls") {
            return Err(format!(
                "{url}: this litctl was built without TLS: build it with --features tls, or give the http:// \
                 address of a proxy on this host that speaks it"
            ));
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            url,
            patience: PATIENCE,
            runtime: runtime.map_err(|error| error.to_string())?,
        })
    }

    /// The same, but answers may take so long.
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The answer's body, with one header besides the usual ones.
    pub fn get(&self, path: &str, header: Option<(&str, &str)>) -> Result<Vec<u8>, Trouble> {
        let asked = async { time::timeout(self.patience, self.ask(path, header)).await };
        let answer = self.runtime.block_on(asked).unwrap_or_else(|_| {
            let seconds = self.patience.as_secs();
            Err(Trouble::Away(format!(
                "{}: no answer within {seconds} s",
                self.url
            )))
        })?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer.into_body().to_vec());
        }
        let said = format!("{} answers {status}: {}", self.url, words(answer.body()));
        let after = answer.headers().get(RETRY_AFTER);
        let after = after.and_then(|it| pause(it.to_str().ok()?, Timestamp::now()));
        // Another question at once is what it limits.
        let is_limited = status == StatusCode::TOO_MANY_REQUESTS;
        let after = after.or_else(|| is_limited.then_some(LIMITED));
        Err(match (status, after) {
            (_, Some(after)) => Trouble::Limited(said, after),
            (StatusCode::UNAUTHORIZED, None) => Trouble::Unknown(said),
            (_, None) if status.is_client_error() => Trouble::Refused(said),
            (_, None) => Trouble::Away(said),
        })
    }

    async fn ask(
        &self,
        path: &str,
        header: Option<(&str, &str)>,
    ) -> Result<Response<Bytes>, Trouble> {
        let away = |error: String| Trouble::Away(format!("{}: {error}", self.url));
        let wrong = |error: String| Trouble::Wrong(error);
        let request = Request::Get(path.to_owned()).to_http(&self.url.host);
        let mut request = request.map_err(|error| wrong(error.to_string()))?;
        if let Some((name, value)) = header {
            let name = HeaderName::from_str(name).map_err(|error| wrong(error.to_string()))?;
            let value = HeaderValue::from_str(value)
                .map_err(|_| wrong("the token has characters that no header may have".into()))?;
            request.headers_mut().insert(name, value);
        }
        let stream = TcpStream::connect((self.url.name(), self.url.port)).await;
        let stream = stream.map_err(|error| away(error.to_string()))?;
        let answer = match self.url.is_tls {
            #[cfg(feature = "tls")]
            true => {
                converse(
                    tls::begin(self.url.name(), stream).await.map_err(away)?,
                    request,
                )
                .await
            }
            // Without the feature there is no such address.
            _ => converse(stream, request).await,
        };
        answer.map_err(away)
    }
}

/// TLS with the system's certificates.
#[cfg(feature = "tls")]
mod tls {
    use std::sync::Arc;

    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    pub async fn begin(host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(
                "this host has no certificates of authorities (package ca-certificates)".into(),
            );
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connected = connector.connect(name, stream).await;
        connected.map_err(|error| error.to_string())
    }
}

/// How long Retry-After asks to be left alone: in seconds, or until a date (RFC 9110).
fn pause(text: &str, now: Timestamp) -> Option<SignedDuration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(SignedDuration::from_secs(i64::from(seconds)));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text);
    Some(date.ok()?.duration_since(now).max(SignedDuration::ZERO))
}

/// The text of an answer, fit for a terminal.
fn words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let shown = text.chars().filter(|letter| !letter.is_control());
    shown.take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_a_date() {
        let now = litd_carbon::moment("2026-11-26T08:00:00Z").unwrap();
        let seconds = |text| pause(text, now).map(|it| it.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Thu, 26 Nov 2026 08:01:30 GMT"), Some(90));
        assert_eq!(seconds("Thu, 26 Nov 2026 07:00:00 GMT"), Some(0));
        for other in ["", "soon", "-5", "1e3", "99999999999"] {
            assert_eq!(seconds(other), None, "{other}");
        }
    }

    #[test]
    fn addresses_are_looked_at_first() {
        for (text, shown) in [
            ("http://sdk:8080/", "http://sdk:8080"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
            ("https://api.example.org", "https://api.example.org:443"),
            ("http://[::1]:7", "http://[::1]:7"),
        ] {
            assert_eq!(
                text.parse::<Url>().map(|it| it.to_string()),
                Ok(shown.to_owned())
            );
        }
        assert_eq!("http://[::1]:7".parse::<Url>().unwrap().name(), "::1");
        for text in [
            "",
            "sdk:80",
            "ftp://a:1",
            "http://",
            "http://a b:1",
            "http://a:0",
            "http://a:x",
        ] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }
}
