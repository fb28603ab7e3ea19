//! Asking for a signal: a file that is read, or a provider.

use std::error::Error;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use litd_carbon::signal::{Auth, Provider, Reading, Trouble};
use litd_carbon::{Factor, Forecasts, Skill, Trace};
use litd_units::{Intensity, Seconds};
use serde_json::Value;

use super::http::Http;
use super::input;
use crate::output;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// The source of the signal.
pub enum Asker {
    File {
        trace: PathBuf,
        forecast: Option<PathBuf>,
    },
    Provider {
        provider: Provider,
        zone: String,
        http: Http,
        secret: Option<String>,
        /// The token that a login gave for the secret.
        token: Option<String>,
    },
}

/// An answer.
pub struct Answer {
    pub reading: Result<Reading, Trouble>,
    /// Why there is no forecast, where the provider has one and it could not be got.
    pub no_forecast: Option<String>,
}

impl Asker {
    /// Whether asking takes no longer than reading a file.
    pub fn is_quick(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Asks.
    pub fn ask(&mut self, now: Timestamp, factor: Factor) -> Answer {
        let mut no_forecast = None;
        Answer {
            reading: self.read(now, factor, &mut no_forecast),
            no_forecast,
        }
    }

    fn read(
        &mut self,
        now: Timestamp,
        factor: Factor,
        no_forecast: &mut Option<String>,
    ) -> Result<Reading, Trouble> {
        match self {
            Self::File { trace, forecast } => {
                let read = file(trace, forecast.as_deref(), now, factor);
                read.map_err(|error| Trouble::Wrong(error.to_string()))
            }
            Self::Provider {
                provider,
                zone,
                http,
                secret,
                token,
            } => {
                let mut asked = Asked {
                    provider: *provider,
                    http,
                    secret: secret.as_deref(),
                    token,
                };
                let mut answers = Vec::new();
                for request in provider.requests(zone, factor, now) {
                    match asked.first_of(&request.paths) {
                        Ok(body) => answers.push(Some(body)),
                        Err(trouble) if request.is_optional => {
                            *no_forecast = Some(trouble.text().to_owned());
                            answers.push(None);
                        }
                        Err(trouble) => return Err(trouble),
                    }
                }
                asked.pages(&mut answers)?;
                let bodies: Vec<_> = answers.iter().map(Option::as_deref).collect();
                let read = provider.read(zone, factor, now, &bodies);
                read.map_err(Trouble::Wrong)
            }
        }
    }
}

/// A provider that is asked.
struct Asked<'a> {
    provider: Provider,
    http: &'a Http,
    secret: Option<&'a str>,
    token: &'a mut Option<String>,
}

/// An answer has no more pages than this.
const PAGES: usize = 20;

impl Asked<'_> {
    /// The answer to the first of these paths that is not refused.
    fn first_of(&mut self, paths: &[String]) -> Result<Vec<u8>, Trouble> {
        let mut answer = Err(Trouble::Wrong("nothing was asked".into()));
        for path in paths {
            answer = self.get(path);
            // Out of reach or limited: one question more would not help.
            if !matches!(answer, Err(Trouble::Refused(_) | Trouble::Unknown(_))) {
                break;
            }
        }
        answer
    }

    /// The pages that follow the last answer.
    fn pages(&mut self, answers: &mut Vec<Option<Vec<u8>>>) -> Result<(), Trouble> {
        while answers.len() < PAGES {
            let last = answers.last().and_then(Option::as_deref);
            let Some(next) = last.and_then(|body| self.provider.next_page(body)) else {
                break;
            };
            answers.push(Some(self.get(&next)?));
        }
        Ok(())
    }

    /// An answer. A login that has expired is made anew once.
    fn get(&mut self, path: &str) -> Result<Vec<u8>, Trouble> {
        let Some(secret) = self.secret else {
            return self.http.get(path, None);
        };
        if self.provider.auth() == Auth::Header {
            return self.http.get(path, Some(("auth-token", secret)));
        }
        if let Some(token) = self.token.as_deref() {
            match self.http.get(path, Some(("authorization", token))) {
                Err(Trouble::Unknown(_)) => (),
                answer => return answer,
            }
        }
        let token = self.token.insert(login(self.http, secret)?);
        self.http.get(path, Some(("authorization", token)))
    }
}

/// The header that a login with `user:password` gives.
fn login(http: &Http, secret: &str) -> Result<String, Trouble> {
    let basic = format!("Basic {}", base64(secret.as_bytes()));
    let body = http.get("/login", Some(("authorization", &basic)))?;
    let token = serde_json::from_slice::<Value>(&body).ok();
    let token = token.and_then(|it| Some(it.get("token")?.as_str()?.to_owned()));
    let token = token.ok_or_else(|| Trouble::Wrong("the login's answer has no token".into()))?;
    Ok(format!("Bearer {token}"))
}

/// Reads files once: a name that was mistyped is found out before anybody waits for the file.
pub fn check(trace: &Path, forecast: Option<&Path>, factor: Factor) -> Fallible<()> {
    let read: Trace = input::parse(trace)?;
    let series = read.series(factor);
    series.map_err(|error| format!("{}: {error}", trace.display()))?;
    match forecast {
        Some(forecast) => forecasts(forecast, &read, factor).map(|_| ()),
        None => Ok(()),
    }
}

/// Forecasts for a trace. Where the file does not say whose they are, that is said.
pub fn forecasts(path: &Path, trace: &Trace, factor: Factor) -> Fallible<Forecasts> {
    let forecasts: Forecasts = input::parse(path)?;
    let belong = forecasts.are_of(trace.zone(), factor);
    let unknown = belong.map_err(|error| format!("{}: {error}", path.display()))?;
    if let Some(unknown) = unknown {
        output::note(&format!("{}: {unknown}", path.display()));
    }
    Ok(forecasts)
}

/// The values of a file at a moment: none that is later.
fn file(
    trace: &Path,
    forecast: Option<&Path>,
    now: Timestamp,
    factor: Factor,
) -> Fallible<Reading> {
    let read: Trace = input::parse(trace)?;
    let series = read.series(factor);
    let series = series.map_err(|error| format!("{}: {error}", trace.display()))?;
    let known = series.until(now);
    let Some(&(begin, value)) = known.last() else {
        return Err(format!("{}: no value until {now}", trace.display()).into());
    };
    let forecasts: Option<Forecasts> = forecast.map(input::parse).transpose()?;
    // Before the first issue there is none to go by.
    let forecasts = forecasts.filter(|it| it.newest(now).is_some());
    let expected = match factor {
        Factor::Price => {
            let issue = forecasts.as_ref().and_then(|it| it.newest(now));
            // Tomorrow is as today: the windows of the last day stand for those to come.
            issue.map_or_else(|| last_day(&known, series.step()), |issue| issue.values())
        }
        _ => {
            let skill = Skill::learn(series, forecasts.as_ref(), now, now);
            let issue = skill.issue(series, forecasts.as_ref(), now);
            let issue = issue.or_else(|| forecasts.as_ref()?.newest(now).cloned());
            issue.map_or_else(Vec::new, |issue| issue.values())
        }
    };
    Ok(Reading {
        factor,
        issued: now,
        now: (begin, value),
        is_estimated: false,
        expected,
    })
}

fn last_day(known: &[(Timestamp, Intensity)], step: Seconds) -> Vec<(Timestamp, Intensity)> {
    let steps = (86_400.0 / step.0).round() as usize;
    known[known.len().saturating_sub(steps)..].to_vec()
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [
            chunk[0],
            *chunk.get(1).unwrap_or(&0),
            *chunk.get(2).unwrap_or(&0),
        ];
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > chunk.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standards() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("user:pass", "dXNlcjpwYXNz"),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
