//! Where a live signal comes from.

use std::env;
use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use litd_carbon::signal::{self, Auth, Current, Feed, History, Provider, Reading};
use litd_carbon::{Factor, Forecasts, Known, Trace};
use litd_units::{Intensity, Seconds};

use super::asker::{self, Answer, Asker};
use super::http::{Http, Url};
use super::input::{self, Damaged};
use crate::output;

/// A file that is written anew, a recorded trace, or a provider.
#[derive(Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("signal").required(true))]
pub struct Source {
    /// A file with the signal: CSV with datetime_utc and ci_direct_g_per_kwh (or another factor, or
    /// price_per_kwh), read again each minute
    #[arg(long, value_name = "FILE", group = "signal")]
    trace: Option<PathBuf>,
    /// A file with forecasts of that signal: CSV with issued_utc,lead_h,forecast_g_per_kwh
    #[arg(long, value_name = "FILE", requires = "trace")]
    forecast: Option<PathBuf>,
    /// The provider of the signal: electricity-maps-v3, electricity-maps-v4, watttime, uk or
    /// carbon-aware-sdk; for prices electricity-maps-price, energy-charts or octopus
    #[arg(long, value_name = "NAME", group = "signal")]
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
    /// Which kind of carbon intensity counts, or price [default: direct for a file and for uk,
    /// lifecycle for electricity-maps, marginal for watttime and carbon-aware-sdk, price for the
    /// providers of prices]
    #[arg(long, value_name = "direct|lifecycle|marginal|price")]
    factor: Option<Factor>,
    /// Keep a provider's values and forecasts of the last weeks in this folder, so that the last
    /// value survives a restart and forecasts are corrected by their past errors [default: litctl
    /// carbon run keeps them in the folder of its --state, the other commands don't keep them]
    #[arg(long, value_name = "FOLDER", requires = "provider")]
    history: Option<PathBuf>,
    /// How many hours after the start of its interval a value becomes stale
    #[arg(long, value_name = "HOURS", default_value = "2", value_parser = input::hours)]
    stale_hours: Seconds,
}

/// No file with a token is longer.
const LONGEST: u64 = 64 << 10;

/// A decision is waited with so long for a provider's first answer: its pages may take ten seconds each.
pub const FIRST: Duration = Duration::from_secs(60);

/// A signal that is followed.
pub struct Signal {
    feed: Feed,
    asked: Asked,
    /// Why there is no forecast.
    no_forecast: Option<String>,
    factor: Factor,
    history: Option<Kept>,
}

/// A provider is asked in a thread of its own: whoever renews a lease or looks after a job can't wait for it.
enum Asked {
    Not(Box<Asker>),
    Under(JoinHandle<(Box<Asker>, Timestamp, Answer)>),
    /// Between two of the others.
    Changing,
}

/// A history, and the folder that it is kept in.
struct Kept {
    folder: PathBuf,
    history: History,
    /// Why it can't be written.
    trouble: Option<String>,
}

type Fallible<T> = Result<T, Box<dyn Error>>;

impl Source {
    /// The signal, before any request. A provider's values are kept in --history, or else in this
    /// folder.
    pub fn signal(&self, folder: Option<&Path>) -> Fallible<Signal> {
        let stale = SignedDuration::try_from_secs_f64(self.stale_hours.0)?;
        let (from, factor) = match (&self.trace, self.provider) {
            (Some(trace), _) => {
                let factor = self.factor.unwrap_or_default();
                asker::check(trace, self.forecast.as_deref(), factor)?;
                let from = Asker::File {
                    trace: trace.clone(),
                    forecast: self.forecast.clone(),
                };
                (from, factor)
            }
            (None, Some(provider)) => self.provider(provider)?,
            (None, None) => return Err("--trace or --provider is missing".into()),
        };
        let folder = self.history.as_deref().or(folder);
        let folder = folder.filter(|_| self.provider.is_some());
        let history = folder
            .map(|folder| Kept::read(folder, factor, &self.name()))
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
            asked: Asked::Not(Box::new(from)),
            no_forecast: None,
            factor,
            history,
        })
    }

    /// The name of the source.
    fn name(&self) -> String {
        let provider = self.provider.map(|it| it.to_string());
        let zone = self.zone.as_deref().unwrap_or_default();
        format!("{} {zone}", provider.unwrap_or_default())
            .trim()
            .to_owned()
    }

    fn provider(&self, provider: Provider) -> Fallible<(Asker, Factor)> {
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
        let from = Asker::Provider {
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
    /// Asks, if it is time to, and takes what was answered meanwhile. Nobody waits for a provider here.
    pub fn poll(&mut self, now: Timestamp) {
        self.collect();
        if !self.feed.is_due(now) {
            return;
        }
        match std::mem::replace(&mut self.asked, Asked::Changing) {
            Asked::Not(mut asker) if asker.is_quick() => {
                let answer = asker.ask(now, self.factor);
                self.asked = Asked::Not(asker);
                self.take(now, answer);
            }
            Asked::Not(mut asker) => {
                let factor = self.factor;
                self.asked = Asked::Under(thread::spawn(move || {
                    let answer = asker.ask(now, factor);
                    (asker, now, answer)
                }));
            }
            other => self.asked = other,
        }
    }

    /// The same, and waits for a provider's first answer, but not for longer than that.
    pub fn poll_first(&mut self, now: Timestamp, patience: Duration) {
        self.poll(now);
        let until = Instant::now() + patience;
        while !self.feed.has_been_asked() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
            self.collect();
        }
    }

    /// Takes an answer that has come.
    fn collect(&mut self) {
        match std::mem::replace(&mut self.asked, Asked::Changing) {
            Asked::Under(thread) if thread.is_finished() => match thread.join() {
                Ok((asker, now, answer)) => {
                    self.asked = Asked::Not(asker);
                    self.take(now, answer);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            },
            other => self.asked = other,
        }
    }

    fn take(&mut self, now: Timestamp, answer: Answer) {
        self.feed.take(now, answer.reading);
        self.no_forecast = answer.no_forecast;
        if let (Some(kept), None, Some(reading)) =
            (&mut self.history, self.feed.trouble(), self.feed.reading())
        {
            kept.take(reading);
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

    /// Why there is a value and no forecast, where the provider should have one.
    pub fn no_forecast(&self) -> Option<&str> {
        self.no_forecast.as_deref()
    }

    /// Why what was asked can't be kept.
    pub fn kept_trouble(&self) -> Option<&str> {
        self.history.as_ref()?.trouble.as_deref()
    }

    /// The signal's factor.
    pub fn factor(&self) -> Factor {
        self.factor
    }

    /// The values of so many windows from now on; equal ones where none are known.
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
    /// The file that names provider and zone.
    const WHOSE: &str = "signal-of";

    /// Damaged history is set aside: forecasts are corrected less, but decisions are still made.
    fn read(folder: &Path, factor: Factor, whose: &str) -> Fallible<Self> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let path = folder.join(Self::WHOSE);
        match input::text_if_there(&path, LONGEST)? {
            Some(other) if other.trim() != whose => {
                let (path, other) = (path.display(), other.trim());
                return Err(format!(
                    "{path}: this folder keeps the signal of {other}, and this run asks {whose}: give another \
                     --history"
                )
                .into());
            }
            Some(_) => (),
            None => replace(&path, &format!("{whose}\n"))?,
        }
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

/// A value of a signal, for people.
pub fn shown(value: Intensity, factor: Factor) -> String {
    match factor {
        Factor::Price => format!("{:.4} {}", value.0, factor.unit()),
        _ => format!("{:.0} {}, {factor} factor", value.0, factor.unit()),
    }
}

/// Writes a file in one step: whoever reads it sees the old one or the new one. Where others may write to its directory
/// they may have put a link or a named pipe beside it: that is taken away, and never written to.
pub fn replace(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let beside = path.with_extension("new");
    let file = litd_files::make_anew(&beside, &mut fs::OpenOptions::new());
    let mut file = file.map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_others_put_beside_a_file_is_not_written_to() {
        let place = tempfile::tempdir().unwrap();
        let [theirs, path, beside] =
            ["theirs", "litd.prom", "litd.new"].map(|it| place.path().join(it));
        fs::write(&theirs, "kept").unwrap();
        symlink(&theirs, &beside).unwrap();
        replace(&path, "one").unwrap();
        nix::unistd::mkfifo(&beside, nix::sys::stat::Mode::S_IRWXU).unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    }
}
