//! Where a live signal comes from.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use litd_carbon::signal::{self, Auth, Current, Feed, History, Provider, Reading, Trouble};
use litd_carbon::{Factor, Forecasts, Known, Skill, Trace};
use litd_units::{Intensity, Seconds};
use serde_json::Value;

use super::http::{Http, Url};
use super::input::{self, Damaged};
use crate::output;

/// A file that is written anew, a recorded trace, or a provider.
#[derive(Clone, clap::Args)]
pub struct Source {
    /// A file with the signal: CSV with datetime_utc and ci_direct_g_per_kwh (or of another factor, or price_per_kwh),
    /// read anew each minute
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "provider",
        conflicts_with = "provider"
    )]
    trace: Option<PathBuf>,
    /// Forecasts beside it: CSV with issued_utc,lead_h,forecast_g_per_kwh
    #[arg(long, value_name = "FILE", requires = "trace")]
    forecast: Option<PathBuf>,
    /// Ask a provider: electricity-maps-v3, electricity-maps-v4, watttime, uk or carbon-aware-sdk; of prices
    /// electricity-maps-price, energy-charts or octopus
    #[arg(long, value_name = "NAME")]
    provider: Option<Provider>,
    /// The zone, region, location or tariff, as the provider calls it
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// The provider's address [default: its public one]
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// A file with the provider's token (WattTime: user:password) [default: the systemd credential of the
    /// provider's name]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Which emissions count, or the price [default: direct for a file, the provider's first]
    #[arg(long, value_name = "direct|lifecycle|marginal|price")]
    factor: Option<Factor>,
    /// Keep a provider's values and forecasts of the last weeks in this folder: the last value outlasts a restart, and
    /// forecasts are corrected by how much of the earlier ones came true [default: none; run has --state]
    #[arg(long, value_name = "DIR", requires = "provider")]
    history: Option<PathBuf>,
    /// A value is stale so many hours after its step began
    #[arg(long, value_name = "HOURS", default_value = "2", value_parser = input::hours)]
    stale_hours: Seconds,
}

/// No file with a token is longer.
const LONGEST: u64 = 64 << 10;

/// A signal that is followed.
pub struct Signal {
    feed: Feed,
    from: From,
    factor: Factor,
    history: Option<Kept>,
}

/// A history, and the folder that it is kept in.
struct Kept {
    folder: PathBuf,
    history: History,
    /// Why it can't be written.
    trouble: Option<String>,
}

enum From {
    File {
        trace: PathBuf,
        forecast: Option<PathBuf>,
    },
    Provider {
        provider: Provider,
        zone: String,
        http: Http,
        secret: Option<String>,
        /// What a login gave for the secret.
        token: Option<String>,
    },
}

type Fallible<T> = Result<T, Box<dyn Error>>;

impl Source {
    /// Nothing is asked yet. What a provider says is kept in --history, or else in this folder.
    pub fn signal(&self, folder: Option<&Path>) -> Fallible<Signal> {
        let stale = SignedDuration::try_from_secs_f64(self.stale_hours.0)?;
        let (from, factor) = match (&self.trace, self.provider) {
            (Some(trace), _) => {
                let from = From::File {
                    trace: trace.clone(),
                    forecast: self.forecast.clone(),
                };
                (from, self.factor.unwrap_or_default())
            }
            (None, Some(provider)) => self.provider(provider)?,
            (None, None) => return Err("--trace or --provider is missing".into()),
        };
        let folder = self.history.as_deref().or(folder);
        let folder = folder.filter(|_| self.provider.is_some());
        let history = folder
            .map(|folder| Kept::read(folder, factor))
            .transpose()?;
        let mut feed = Feed::new(stale);
        if let Some((begin, value)) = history.as_ref().and_then(|kept| kept.history.last()) {
            feed.remember(Reading {
                factor,
                issued: begin,
                now: (begin, value),
                is_estimated: true,
                expected: Vec::new(),
            });
        }
        Ok(Signal {
            feed,
            from,
            factor,
            history,
        })
    }

    fn provider(&self, provider: Provider) -> Fallible<(From, Factor)> {
        let factors = provider.factors();
        let factor = self.factor.unwrap_or(factors[0]);
        if !factors.contains(&factor) {
            let known: Vec<_> = factors.iter().map(ToString::to_string).collect();
            return Err(format!("--factor: {provider} has {}", known.join(", ")).into());
        }
        let zone = self.zone.clone().unwrap_or_default();
        if zone.is_empty() && provider.needs_zone() {
            return Err(format!("--zone is missing: {provider} must be told one").into());
        }
        let public = || provider.url().map(str::parse).transpose();
        let url = match &self.url {
            Some(url) => Some(url.clone()),
            None => public()?,
        };
        let url =
            url.ok_or_else(|| format!("--url is missing: {provider} has no public address"))?;
        let secret = match provider.auth() {
            Auth::None => None,
            Auth::Header | Auth::Login => Some(self.secret(provider)?),
        };
        let from = From::Provider {
            provider,
            zone,
            http: Http::new(url)?,
            secret,
            token: None,
        };
        Ok((from, factor))
    }

    fn secret(&self, provider: Provider) -> Fallible<String> {
        let credential = || {
            let folder = env::var_os("CREDENTIALS_DIRECTORY")?;
            Some(Path::new(&folder).join(provider.to_string()))
        };
        let path = self.token_file.clone().or_else(credential);
        let path = path.ok_or_else(|| {
            format!(
                "--token-file is missing: {provider} wants a token (or LoadCredential={provider}:…)"
            )
        })?;
        let text = litd_files::text(&path, LONGEST);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(text.trim().to_owned())
    }
}

impl Signal {
    /// Asks, if it is time to.
    pub fn poll(&mut self, now: Timestamp) {
        if self.feed.is_due(now) {
            let answer = self.from.ask(now, self.factor);
            self.feed.take(now, answer);
            if let (Some(kept), None, Some(reading)) =
                (&mut self.history, self.feed.trouble(), self.feed.reading())
            {
                kept.take(reading);
            }
        }
    }

    /// The last good value, marked where it is stale.
    pub fn current(&self, now: Timestamp) -> Option<Current> {
        self.feed.current(now)
    }

    /// Why there is none newer.
    pub fn trouble(&self) -> Option<String> {
        self.feed.trouble().map(|it| it.text().to_owned())
    }

    /// Why what was asked can't be kept.
    pub fn kept_trouble(&self) -> Option<&str> {
        self.history.as_ref()?.trouble.as_deref()
    }

    /// What it counts.
    pub fn factor(&self) -> Factor {
        self.factor
    }

    /// What is known of so many windows from now on; where nothing is, that all are alike.
    pub fn outlook(&self, now: Timestamp, window: Seconds, count: usize) -> Vec<Known> {
        match (self.feed.reading(), &self.history) {
            (Some(reading), Some(kept)) => kept.history.outlook(reading, now, window, count),
            (Some(reading), None) => reading.outlook(now, window, count),
            (None, _) => signal::level(now, window, count),
        }
    }
}

impl Kept {
    const FILES: [&str; 2] = ["signal.csv", "forecasts.csv"];

    /// What is damaged is set aside: forecasts are corrected the less, and that is no reason not to decide.
    fn read(folder: &Path, factor: Factor) -> Fallible<Self> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let files = Self::FILES.map(|name| folder.join(name));
        let history = match Self::parse(&files) {
            Ok(None) => History::default(),
            Ok(Some((trace, forecasts))) => {
                let history = History::of(&trace, forecasts, factor);
                history.map_err(|error| {
                    let path = files[0].display();
                    format!("{path}: {error}: give the same --factor, or another folder")
                })?
            }
            Err(Damaged::Unreadable(error)) => {
                let what =
                    "make it readable for litctl, or keep the signal in another folder (--history)";
                return Err(format!("{error}: {what}").into());
            }
            Err(Damaged::Wrong(error)) => {
                for file in &files {
                    // Where even that is not possible, it is overwritten.
                    let _: std::io::Result<()> = fs::rename(file, file.with_extension("damaged"));
                }
                let aside = "is set aside as signal.damaged and forecasts.damaged, and begins anew";
                output::note(&format!("{error}; what was kept of the signal {aside}"));
                History::default()
            }
        };
        Ok(Self {
            folder: folder.to_owned(),
            history,
            trouble: None,
        })
    }

    fn parse(
        [trace, forecasts]: &[PathBuf; 2],
    ) -> Result<Option<(Trace, Option<Forecasts>)>, Damaged> {
        let issued = input::parse_if_there(forecasts)?;
        Ok(input::parse_if_there(trace)?.map(|trace| (trace, issued)))
    }

    /// A history that can't be written is no reason to end: forecasts are corrected the less.
    fn take(&mut self, reading: &Reading) {
        if self.history.take(reading) {
            let (trace, forecasts) = self.history.to_csv(reading.factor);
            let [first, second] = Self::FILES.map(|name| self.folder.join(name));
            let written = replace(&first, &trace)
                .and_then(|()| forecasts.map_or(Ok(()), |text| replace(&second, &text)));
            self.trouble = written.err();
        }
    }
}

impl From {
    fn ask(&mut self, now: Timestamp, factor: Factor) -> Result<Reading, Trouble> {
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
                        Err(_) if request.is_optional => answers.push(None),
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

/// What a file says of a moment: nothing that is later than it.
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

/// A value of a signal, for people.
pub fn shown(value: Intensity, factor: Factor) -> String {
    match factor {
        Factor::Price => format!("{:.4} {}", value.0, factor.unit()),
        _ => format!("{:.0} {}, {factor} factor", value.0, factor.unit()),
    }
}

/// Writes a file in one step: whoever reads it sees the old one or the new one.
pub fn replace(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let beside = path.with_extension("new");
    fs::write(&beside, text).map_err(failed)?;
    let file = fs::File::open(&beside).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
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
