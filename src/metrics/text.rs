//! Prometheus text 0.0.4 and `OpenMetrics` 1.0: one writer, since names, labels and numbers are the
//! same in both and only the lines around them differ.

use std::fmt::Write as _;

use litd_api::Status;

/// How the daemon's numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that an HTTP client asks for by its `Accept` header: 0.0.4 unless `OpenMetrics` is named, with
    /// no less weight than plain text. An unreadable header counts as none.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let weight = |wanted: &str| {
            accept
                .split(',')
                .filter_map(|range| weight_of(range, wanted))
                .fold(0.0, f64::max)
        };
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The answer's `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    pub(super) fn encode(self, families: &[Family], status: &Status) -> String {
        let mut out = String::new();
        for family in families {
            let start = out.len();
            self.head(&mut out, family);
            let mut samples = Samples {
                empty: true,
                name: family.name,
                out: &mut out,
            };
            (family.samples)(status, &mut samples);
            if samples.empty {
                out.truncate(start);
            }
        }
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    /// 0.0.4 knows series, so a counter's `_total` is part of its name, and no information type;
    /// `OpenMetrics` knows families, whose names the suffixes are added to, and units.
    fn head(self, out: &mut String, family: &Family) {
        let (name, kind) = match (self, family.kind) {
            (Self::Prometheus, Kind::Info) => (family.name, "gauge"),
            (Self::OpenMetrics, Kind::Info) => (stem(family.name, "_info"), "info"),
            (Self::Prometheus, Kind::Counter) => (family.name, "counter"),
            (Self::OpenMetrics, Kind::Counter) => (stem(family.name, "_total"), "counter"),
            (_, Kind::Gauge) => (family.name, "gauge"),
            (_, Kind::Histogram) => (family.name, "histogram"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {name} {}", family.help);
        let _ = writeln!(out, "# TYPE {name} {kind}");
        if self == Self::OpenMetrics && !family.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {}", family.unit);
        }
    }
}

fn stem(name: &'static str, suffix: &str) -> &'static str {
    name.strip_suffix(suffix).unwrap_or(name)
}

/// The weight of one range of an `Accept` header, if it is for this type and a version we speak.
fn weight_of(range: &str, wanted: &str) -> Option<f64> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(wanted) {
        return None;
    }
    let mut weight = 1.0;
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key.trim() {
            "q" => weight = value.trim().parse().ok()?,
            "version" if !["1.0.0", "0.0.4"].contains(&value.trim()) => return None,
            _ => {}
        }
    }
    Some(weight)
}

/// The meaning of a family's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows; the name ends in `_total`.
    Counter,
    /// Counts by upper bound.
    Histogram,
    /// Says something in its labels, and 1; the name ends in `_info`.
    Info,
}

/// A metric family: its numbers, and their meaning.
pub(super) struct Family {
    /// The name as queries use it, suffix of the kind and unit included.
    pub name: &'static str,
    /// The meaning of the numbers.
    pub kind: Kind,
    /// The unit that the name ends in (before `_total`), or nothing.
    pub unit: &'static str,
    /// A line without backslashes and quotes, for the two formats escape them differently.
    pub help: &'static str,
    /// Writes the numbers of one moment.
    pub samples: fn(&Status, &mut Samples<'_>),
}

/// A label's name and its value.
pub(super) type Label<'a> = (&'a str, &'a str);

/// Where a family writes its numbers.
pub(super) struct Samples<'a> {
    name: &'static str,
    empty: bool,
    out: &'a mut String,
}

impl Samples<'_> {
    /// A number. One that is absent or not finite leaves no line.
    pub fn gauge(&mut self, labels: &[Label<'_>], value: impl Into<Option<f64>>) {
        self.number("", labels, value);
    }

    /// 1 or 0.
    pub fn flag(&mut self, labels: &[Label<'_>], value: bool) {
        self.count(labels, u64::from(value));
    }

    /// A count, exact beyond what a float holds.
    pub fn count(&mut self, labels: &[Label<'_>], count: u64) {
        self.line("", labels, None, format_args!("{count}"));
    }

    /// A histogram from cumulative counts by upper bound; the last is of everything, whatever its
    /// bound. No counts: no lines.
    pub fn histogram(&mut self, labels: &[Label<'_>], counts: &[(Option<f64>, u64)], sum: f64) {
        let Some((_, all)) = counts.last() else {
            return;
        };
        let finite = counts
            .iter()
            .filter_map(|(bound, count)| bound.filter(|bound| bound.is_finite()).zip(Some(count)));
        for (bound, count) in finite {
            self.line("_bucket", labels, Some(bound), format_args!("{count}"));
        }
        let infinity = Some(f64::INFINITY);
        self.line("_bucket", labels, infinity, format_args!("{all}"));
        self.number("_sum", labels, sum);
        self.line("_count", labels, None, format_args!("{all}"));
    }

    fn number(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.line(suffix, labels, None, format_args!("{value:?}"));
        }
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[Label<'_>],
        bound: Option<f64>,
        value: std::fmt::Arguments<'_>,
    ) {
        self.empty = false;
        // Writing to a string does not fail.
        let _ = write!(self.out, "{}{suffix}", self.name);
        let mut separator = '{';
        for (name, text) in labels {
            let _ = write!(self.out, "{separator}{name}=\"");
            escape(self.out, text);
            self.out.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            // `1.0`, as OpenMetrics wants it, in both formats: to Prometheus `1` is another series.
            let _ = match bound.is_finite() {
                true => write!(self.out, "{separator}le=\"{bound:?}\""),
                false => write!(self.out, "{separator}le=\"+Inf\""),
            };
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// A label's value with what would end it escaped. A zero byte ends the text for Prometheus'
/// parser and has no escape, so it is replaced.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\0' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
}
