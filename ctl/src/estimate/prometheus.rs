//! Telemetry out of a Prometheus: the HTTP API, read in pieces that fit its limits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use litd_api::Limiter;
use litd_carbon::signal::Trouble;
use litd_estimate::{Fleet, Quantity, Sample};
use litd_units::{Celsius, Hertz, Watts};
use serde::Deserialize;

use super::damage::{Damage, shown};
use super::exporters::{EXPORTERS, Exporter, LITD, Metric, SIMULATED, Says, all_names};
use super::table::{Input, Rules};
use super::{limiter, time};
use crate::carbon::http::{Http, Url};

/// An answer is waited for so long: a day of a thousand nodes takes a server seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a server is asked again that does not answer, and how long is waited before, times the try.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// A server answers with so many points of a series at most.
const MOST_POINTS: i64 = 11_000;
/// With so many the first piece is asked for. It doubles while answers are shorter than this many bytes.
const FIRST_POINTS: i64 = 60;
const SHORT: usize = 4 << 20;
/// A limiter that is active for more than this share of a step is the step's limiter.
const MOST_OF_THE_TIME: f64 = 0.5;
/// No file with a token is longer.
const LONGEST_TOKEN: u64 = 64 << 10;

/// Where and when.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "prometheus-options")]
pub struct Options {
    /// The address of a Prometheus, or of another server with its HTTP API, whose history is read
    #[arg(long, value_name = "URL", group = "telemetry")]
    pub prometheus: Option<Address>,
    /// A file with a bearer token for --prometheus
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    token_file: Option<PathBuf>,
    /// Read only series with these labels, such as 'cluster="a",Hostname=~"gpu.*"'
    #[arg(
        long = "match",
        value_name = "MATCHERS",
        requires = "prometheus",
        default_value = "",
        hide_default_value = true
    )]
    matching: String,
    /// How long a time to read, up to --until: a whole number of seconds, or with a unit, such as
    /// 15m, 24h or 7d
    #[arg(long, value_name = "SPAN", requires = "prometheus", default_value = "24h", value_parser = span)]
    last: i64,
    /// The end of that time, as Unix seconds or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", requires = "prometheus", value_parser = end)]
    until: Option<i64>,
    /// The time between two samples, such as 30s or 5m: the scrape interval, or more
    #[arg(long, value_name = "SPAN", requires = "prometheus", default_value = "30s", value_parser = span)]
    step: i64,
}

/// An address with an optional path before `/api/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    url: Url,
    path: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.find("://").map_or(0, |it| it + 3);
        let path = text
            .get(host..)
            .and_then(|it| it.find('/'))
            .map_or(text.len(), |it| host + it);
        let (url, path) = text.split_at(path);
        let plain = |it: char| it.is_ascii_alphanumeric() || "/-._~".contains(it);
        match path.chars().all(plain) {
            true => Ok(Self {
                url: url.parse()?,
                path: path.trim_end_matches('/').to_owned(),
            }),
            false => Err(format!(
                "{path:?}: the path before /api/v1 may have letters, digits, / - . _ ~ alone"
            )),
        }
    }
}

/// Whole seconds: "30s", "15m", "24h", "7d", or a number.
fn span(text: &str) -> Result<i64, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, text.chars().last()),
        None => (text, None),
    };
    let seconds = match unit {
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => 1,
    };
    let number = number
        .parse::<i64>()
        .ok()
        .filter(|it| (1..=1_000_000_000).contains(it));
    let number = number.ok_or_else(|| format!("{text:?} must be such as 30s, 15m, 24h or 7d"))?;
    Ok(number * seconds)
}

fn end(text: &str) -> Result<i64, String> {
    let milliseconds = time::moment(text).ok_or("must be Unix seconds or RFC 3339")?;
    Ok(milliseconds.div_euclid(1_000))
}

#[derive(Deserialize)]
struct Answer<T> {
    data: Option<T>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Matrix {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: HashMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

struct Server<'a> {
    http: Http,
    path: &'a str,
    header: Option<String>,
    matching: &'a str,
}

/// Reads a history into the fleet. True if a litd says that its hardware is a simulation.
///
/// # Errors
/// The server can't be asked, refuses, or has none of the metrics.
pub fn history(
    options: &Options,
    address: &Address,
    rules: &Rules,
    fleet: &mut Fleet,
    input: &mut Input,
) -> Result<bool, Box<dyn std::error::Error>> {
    let token = options.token_file.as_ref().map(|path| {
        let text = litd_files::text(path, LONGEST_TOKEN);
        text.map_err(|error| format!("{}: {error}", path.display()))
    });
    let server = Server {
        http: Http::new(address.url.clone())?.within(PATIENCE),
        path: &address.path,
        header: token.transpose()?.map(|it| format!("Bearer {}", it.trim())),
        matching: &options.matching,
    };
    let until = options
        .until
        .unwrap_or_else(|| Timestamp::now().as_second());
    // Steps are whole since the epoch, so that the same history is read twice alike.
    let last = until.div_euclid(options.step);
    let first = last - options.last / options.step;
    let range = Steps {
        first,
        last,
        step: options.step,
    };
    let names = server.names(range)?;
    let mut read = Reader {
        server,
        rules,
        fleet,
        input,
        names: &names,
    };
    let mut found = false;
    for exporter in &EXPORTERS {
        // A node of litd's that has another exporter as well would be two.
        if found && exporter.name == LITD {
            continue;
        }
        found |= read.exporter(exporter, range)?;
    }
    if !found {
        return Err(format!(
            "{}: no metric of dcgm-exporter, AMD's device-metrics-exporter or litd in that time (--match, --last, \
             --until)",
            address.url
        )
        .into());
    }
    Ok(names.contains(SIMULATED) && read.server.is_simulated(range)?)
}

/// Steps since the epoch, first and last included.
#[derive(Debug, Clone, Copy)]
struct Steps {
    first: i64,
    last: i64,
    step: i64,
}

impl Server<'_> {
    /// The body of an answer. A server that is away is asked again, and not without end.
    fn get(&self, path: &str) -> Result<Vec<u8>, Trouble> {
        let header = self.header.as_deref().map(|it| ("authorization", it));
        let path = format!("{}{path}", self.path);
        let mut tried = 1;
        loop {
            match self.http.get(&path, header) {
                Err(Trouble::Away(why)) if tried < TRIES && !why.contains("length limit") => {
                    thread::sleep(PAUSE * tried);
                    tried += 1;
                }
                other => return other,
            }
        }
    }

    fn asked<T: for<'a> Deserialize<'a>>(&self, path: &str) -> Result<(T, usize), Trouble> {
        let body = self.get(path)?;
        let answer: Result<Answer<T>, _> = serde_json::from_slice(&body);
        let answer =
            answer.map_err(|error| Trouble::Wrong(format!("the answer can't be read: {error}")))?;
        let error = answer.error.map(|it| shown(&it));
        let data = answer
            .data
            .ok_or_else(|| Trouble::Wrong(error.unwrap_or_else(|| "no data".into())))?;
        Ok((data, body.len()))
    }

    /// The known names that the server has in this time.
    fn names(&self, range: Steps) -> Result<BTreeSet<String>, String> {
        let selector = self.selector(None, &format!("__name__=~\"{}\"", all_names()));
        let path = format!(
            "/api/v1/label/__name__/values?match[]={}&start={}&end={}",
            escaped(&selector),
            range.first * range.step,
            range.last * range.step
        );
        let names = self.asked::<BTreeSet<String>>(&path.replace("[]", "%5B%5D"));
        names.map(|it| it.0).map_err(|it| it.text().to_owned())
    }

    fn selector(&self, name: Option<&str>, having: &str) -> String {
        let matchers = [having, self.matching];
        let matchers = matchers.into_iter().filter(|it| !it.is_empty());
        format!(
            "{}{{{}}}",
            name.unwrap_or_default(),
            Vec::from_iter(matchers).join(",")
        )
    }

    fn range(&self, query: &str, piece: Steps) -> Result<(Vec<Series>, usize), Trouble> {
        let path = format!(
            "/api/v1/query_range?query={}&start={}&end={}&step={}",
            escaped(query),
            piece.first * piece.step,
            piece.last * piece.step,
            piece.step
        );
        let (matrix, bytes) = self.asked::<Matrix>(&path)?;
        Ok((matrix.result, bytes))
    }

    fn is_simulated(&self, range: Steps) -> Result<bool, String> {
        let piece = Steps {
            first: range.last,
            ..range
        };
        let query = format!("max({})", self.selector(Some(SIMULATED), ""));
        let (series, _) = self
            .range(&query, piece)
            .map_err(|it| it.text().to_owned())?;
        Ok(series
            .iter()
            .flat_map(|it| &it.values)
            .any(|it| it.1 == "1"))
    }

    /// The value of one second of a time counter: 1e6 or 1e9, or `None` if unclear. The busiest
    /// GPU's counter grows by most of a second each second, or power hardly ever limits.
    fn counter_unit(&self, name: &str, range: Steps) -> Result<Option<f64>, String> {
        let selector = self.selector(Some(name), "");
        let seconds = (range.last - range.first).max(1) * range.step;
        let query = format!("max(max_over_time(rate({selector}[5m])[{seconds}s:5m]))");
        let piece = Steps {
            first: range.last,
            ..range
        };
        let (series, _) = self
            .range(&query, piece)
            .map_err(|it| it.text().to_owned())?;
        let values = series.iter().flat_map(|it| &it.values);
        let most = values
            .filter_map(|it| it.1.parse::<f64>().ok())
            .fold(0.0, f64::max);
        Ok(match most {
            it if it > 1.05e6 => Some(1e9),
            it if it > 0.2e6 => Some(1e6),
            _ => None,
        })
    }
}

fn escaped(text: &str) -> String {
    let byte = |it: u8| match it {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(it).to_string(),
        it => format!("%{it:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// A query and what its values are.
struct Query {
    says: Says,
    text: String,
    /// A second of a counter of time.
    second: f64,
}

struct Reader<'a> {
    server: Server<'a>,
    rules: &'a Rules,
    fleet: &'a mut Fleet,
    input: &'a mut Input,
    names: &'a BTreeSet<String>,
}

/// The samples of a piece by node and GPU, one for each step.
type Piece = BTreeMap<(String, String), Vec<Sample>>;

impl Reader<'_> {
    /// Reads what one exporter tells; false if it tells nothing.
    fn exporter(&mut self, exporter: &Exporter, range: Steps) -> Result<bool, String> {
        let queries = self.queries(exporter, range)?;
        if queries.is_empty() {
            return Ok(false);
        }
        let (mut first, mut points) = (range.first, FIRST_POINTS);
        while first <= range.last {
            let piece = Steps {
                first,
                last: range.last.min(first + points - 1),
                ..range
            };
            match self.piece(exporter, &queries, piece) {
                Ok((samples, bytes)) => {
                    self.add(samples, piece)?;
                    first = piece.last + 1;
                    if bytes < SHORT {
                        points = (2 * points).min(MOST_POINTS);
                    }
                }
                // A piece that is too much for the server, or for us, is asked for in smaller ones.
                Err(trouble) if points == 1 => return Err(trouble.text().to_owned()),
                Err(_) => points = (points / 2).max(1),
            }
        }
        Ok(true)
    }

    fn queries(&mut self, exporter: &Exporter, range: Steps) -> Result<Vec<Query>, String> {
        let mut queries = Vec::new();
        let has_mask = exporter
            .metrics
            .iter()
            .any(|it| it.says == Says::Mask && self.name_of(it).is_some());
        for metric in exporter.metrics {
            let Some(name) = self.name_of(metric) else {
                continue;
            };
            let selector = self.server.selector(Some(name), metric.having);
            let (text, second) = match metric.says {
                Says::Counter(_) if has_mask => continue,
                Says::Counter(_) => match self.server.counter_unit(name, range)? {
                    Some(second) => (format!("rate({selector}[{}s])", 4 * range.step), second),
                    None => {
                        let what = format!(
                            "{name} grows too little to tell whether it counts µs or ns; it is left out"
                        );
                        self.input.damage.add(&what, || "Prometheus".to_owned());
                        continue;
                    }
                },
                Says::OneOf(_) => (format!("{selector} == 1"), 1.0),
                _ => (selector, 1.0),
            };
            queries.push(Query {
                says: metric.says,
                text,
                second,
            });
        }
        Ok(queries)
    }

    fn name_of(&self, metric: &Metric) -> Option<&'static str> {
        metric
            .names
            .iter()
            .copied()
            .find(|it| self.names.contains(*it))
    }

    fn piece(
        &mut self,
        exporter: &Exporter,
        queries: &[Query],
        piece: Steps,
    ) -> Result<(Piece, usize), Trouble> {
        let steps = (piece.last - piece.first + 1) as usize;
        let (mut samples, mut most, mut damage) = (Piece::new(), 0, Damage::default());
        // Clocks of several dies are averaged.
        let mut clocks: HashMap<(String, String), Vec<(f64, u32)>> = HashMap::new();
        for query in queries {
            let (series, bytes) = self.server.range(&query.text, piece)?;
            most = most.max(bytes);
            for one in series {
                let Some(key) = key(exporter, &one.metric) else {
                    let what = "series name no node or no GPU; they are left out";
                    damage.add(what, || shown(&query.text));
                    continue;
                };
                let row = samples
                    .entry(key.clone())
                    .or_insert_with(|| vec![Sample::default(); steps]);
                for (moment, text) in &one.values {
                    let at = (moment.round() as i64).div_euclid(piece.step) - piece.first;
                    let Some(sample) = usize::try_from(at).ok().and_then(|at| row.get_mut(at))
                    else {
                        continue;
                    };
                    let value = text.parse::<f64>().unwrap_or(f64::NAN);
                    let at = at as usize;
                    match query.says {
                        Says::Number(Quantity::Clock, scale) => {
                            if let Some(value) =
                                believed(Quantity::Clock, value * scale, query, &mut damage)
                            {
                                let row = clocks
                                    .entry(key.clone())
                                    .or_insert_with(|| vec![(0.0, 0); steps]);
                                row[at] = (row[at].0 + value, row[at].1 + 1);
                                sample.clock = Some(Hertz(row[at].0 / f64::from(row[at].1) * 1e6));
                            }
                        }
                        _ => tell(sample, query, value, &one.metric, &mut damage),
                    }
                }
            }
        }
        for kind in damage.kinds() {
            self.input
                .damage
                .count(&kind.what, kind.count, || kind.first);
        }
        Ok((samples, most))
    }

    fn add(&mut self, samples: Piece, piece: Steps) -> Result<(), String> {
        for ((node, gpu), row) in samples {
            for (step, mut sample) in (piece.first..).zip(row) {
                if sample == Sample::default() {
                    continue;
                }
                sample.time = Some(step * piece.step * 1_000);
                sample.cap = sample.cap.or(self.rules.cap);
                sample.highest_cap = sample.highest_cap.or(self.rules.highest_cap);
                self.input.rows += 1;
                let added = self.fleet.add(&node, &gpu, &sample);
                added.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}

fn key(exporter: &Exporter, labels: &HashMap<String, String>) -> Option<(String, String)> {
    let first = |names: &[&str]| {
        let found = names.iter().filter_map(|it| labels.get(*it));
        found.filter(|it| !it.is_empty()).map(|it| shown(it)).next()
    };
    Some((first(exporter.node)?, first(exporter.gpu)?))
}

fn believed(quantity: Quantity, value: f64, query: &Query, damage: &mut Damage) -> Option<f64> {
    let believed = quantity.believed(value);
    if believed.is_none() {
        let (low, high) = quantity.range();
        let what = match value.is_nan() {
            true => format!("values of {quantity} are NaN; they are left out"),
            false => {
                format!("values of {quantity} are not between {low} and {high}; they are left out")
            }
        };
        damage.add(&what, || shown(&query.text));
    }
    believed
}

/// Puts a value where it belongs.
fn tell(
    sample: &mut Sample,
    query: &Query,
    value: f64,
    labels: &HashMap<String, String>,
    damage: &mut Damage,
) {
    let active = |limiter: Limiter, is: bool| {
        let now = if is { limiter } else { Limiter::None };
        Some(
            sample
                .limiter
                .map_or(now, |before| limiter::strongest(before, now)),
        )
    };
    match query.says {
        Says::Number(quantity, scale) => {
            let value = believed(quantity, value * scale, query, damage);
            match quantity {
                Quantity::Power => sample.power = value.map(Watts).or(sample.power),
                Quantity::Clock => sample.clock = value.map(|it| Hertz(it * 1e6)),
                Quantity::Temperature => {
                    sample.temperature = value.map(Celsius).or(sample.temperature)
                }
                Quantity::Cap => sample.cap = value.map(Watts).or(sample.cap),
                Quantity::Pace => sample.pace = value,
            }
        }
        Says::HighestCap => {
            sample.highest_cap = believed(Quantity::Cap, value, query, damage).map(Watts)
        }
        // The cast saturates; NaN is no mask.
        Says::Mask if value >= 0.0 => sample.limiter = Some(limiter::of_mask(value as u64)),
        Says::Percent(limiter) if value >= 0.0 => {
            sample.limiter = active(limiter, value > 100.0 * MOST_OF_THE_TIME);
        }
        Says::Counter(limiter) if value >= 0.0 => {
            sample.limiter = active(limiter, value > query.second * MOST_OF_THE_TIME);
        }
        Says::OneOf(label) => {
            sample.limiter = labels.get(label).and_then(|it| limiter::of_word(it))
        }
        _ => damage.add(
            "values for a limiter are no numbers; they are left out",
            || shown(&query.text),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_a_path() {
        let address: Address = "http://127.0.0.1:9090/prometheus/".parse().unwrap();
        assert_eq!(
            (address.url.to_string().as_str(), address.path.as_str()),
            ("http://127.0.0.1:9090", "/prometheus")
        );
        assert_eq!("http://a:1".parse::<Address>().unwrap().path, "");
        for wrong in ["a:9090", "http://a/?x", "http://"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_have_a_unit() {
        assert_eq!(
            ["30s", "15m", "24h", "7d", "90"]
                .map(span)
                .map(Result::unwrap),
            [30, 900, 86_400, 604_800, 90]
        );
        assert!(
            ["", "0s", "h", "1w", "-3s", "9999999999999d"]
                .map(span)
                .iter()
                .all(Result::is_err)
        );
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(
            escaped("a{b=~\"c|d\"}"),
            "a%7Bb%3D~%22c%7Cd%22%7D".replace('~', "%7E")
        );
    }
}
