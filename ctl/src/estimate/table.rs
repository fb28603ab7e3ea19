//! Tables of telemetry: CSV as nvidia-smi, amd-smi and people write it, read line by line in bounded memory.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use litd_api::Limiter;
use litd_estimate::{Fleet, Quantity, Sample};
use litd_traces::printable;
use litd_units::{Celsius, Hertz, Watts};

use super::cell::{self, Cell};
use super::columns::{Columns, Numbers, Wanted};
use super::damage::{Damage, shown};
use super::{limiter, time};

/// No line of telemetry is longer, in bytes: what is longer has lost its ends of lines.
const LONGEST_LINE: u64 = 1 << 20;
/// How much is read at once.
const CHUNK: usize = 256 << 10;
/// How a gzip file begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

type Fallible<T> = Result<T, Box<dyn Error>>;

/// The rules by which every table is read.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The wanted columns.
    pub wanted: Wanted,
    /// The node that a table is of that has no column for it; else it is named like its file.
    pub node: Option<String>,
    /// The cap where no column tells it, and the highest that can be set.
    pub cap: Option<Watts>,
    pub highest_cap: Option<Watts>,
}

/// The data that was read.
#[derive(Debug, Default)]
pub struct Input {
    pub rows: u64,
    pub damage: Damage,
}

/// Reads a file into the fleet; it is of the `node`, where no column and no rule names another.
///
/// # Errors
/// It can't be opened, or it is no table in which columns say what is needed. What is damaged is counted.
pub fn file(
    path: &Path,
    node: &str,
    rules: &Rules,
    fleet: &mut Fleet,
    read: &mut Input,
) -> Fallible<()> {
    let name = printable(&path.display().to_string());
    let failed = |error: io::Error| format!("{name}: {error}");
    let file = litd_files::open(path, OpenOptions::new().read(true)).map_err(failed)?;
    let mut file = BufReader::with_capacity(CHUNK, file);
    let is_gzip = file.fill_buf().map_err(failed)?.starts_with(&GZIP);
    match is_gzip {
        true => {
            let unpacked = BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file));
            table(unpacked, (name, node), rules, fleet, read)
        }
        false => table(file, (name, node), rules, fleet, read),
    }
}

fn table(
    mut source: impl BufRead,
    (name, node): (String, &str),
    rules: &Rules,
    fleet: &mut Fleet,
    read: &mut Input,
) -> Fallible<()> {
    let mut lines = Lines::default();
    let head = loop {
        match lines.next(&mut source) {
            Ok(true) if lines.text().trim().is_empty() => {}
            Ok(true) => break lines.text().trim_start_matches('\u{feff}').to_owned(),
            Ok(false) => {
                read.damage.add("files are empty", || name.clone());
                return Ok(());
            }
            Err(error) => return Err(format!("{name}: {error}").into()),
        }
    };
    let separator = [',', ';', '\t']
        .into_iter()
        .max_by_key(|it| (head.matches(*it).count(), *it == ','));
    let separator = separator.unwrap_or(',');
    let fields = |line: &str| {
        let mut fields = Fields::default();
        fields.split(line, separator).then(|| fields.owned(line))
    };
    let heads =
        fields(&head).ok_or_else(|| format!("{name}: a quote of the head is not closed"))?;
    let columns = Columns::of(&heads, &rules.wanted).map_err(|error| format!("{name}: {error}"))?;
    let mut rows = Rows {
        file: &name,
        columns,
        width: heads.len(),
        node: rules.node.clone().unwrap_or_else(|| node.to_owned()),
        rules,
        moment: (String::new(), None),
        names: (String::new(), String::new()),
    };
    let (mut fields, before) = (Fields::default(), read.rows);
    loop {
        match lines.next(&mut source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let what = "files end early or are damaged; what is before that counts";
                read.damage.add(what, || {
                    format!("{name}, after line {}: {error}", lines.number)
                });
                break;
            }
        }
        let place = lines.number;
        let at = || format!("{name}, line {place}");
        if lines.is_cut {
            read.damage
                .add("lines are longer than 1 MiB; they are left out", at);
            continue;
        }
        let line = lines.text();
        let bare = line.trim();
        // Programs that join files, and `amd-smi -w`, repeat the header.
        if bare.is_empty() || bare == head.trim() {
            continue;
        }
        read.rows += 1;
        match fields.split(line, separator) {
            true => rows.add(&fields, line, place, fleet, &mut read.damage)?,
            false => read.damage.add(
                "rows have a quote that is not closed; they are left out",
                at,
            ),
        }
    }
    if read.rows == before {
        read.damage
            .add("files have a head and no row", || name.clone());
    }
    Ok(())
}

/// Lines of a file, none longer than [`LONGEST_LINE`].
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    text: String,
    number: u64,
    is_cut: bool,
}

impl Lines {
    /// Reads on; false at the end.
    fn next(&mut self, input: &mut impl BufRead) -> io::Result<bool> {
        self.bytes.clear();
        self.is_cut = false;
        let mut all = 0;
        loop {
            // Of a line that is too long the rest is read and forgotten.
            if all > 0 {
                self.bytes.clear();
            }
            let count = input
                .by_ref()
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut self.bytes)?;
            all += count;
            let ended = self.bytes.last() == Some(&b'\n') || (count as u64) < LONGEST_LINE;
            if ended {
                break;
            }
            self.is_cut = true;
        }
        if all == 0 {
            return Ok(false);
        }
        self.number += 1;
        while self
            .bytes
            .last()
            .is_some_and(|it| matches!(it, b'\n' | b'\r'))
        {
            self.bytes.pop();
        }
        self.text.clear();
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => self.text.push_str(text),
            Err(_) => self.text.push_str(&String::from_utf8_lossy(&self.bytes)),
        }
        Ok(true)
    }

    fn text(&self) -> &str {
        &self.text
    }
}

/// Where the fields of a line are.
#[derive(Debug, Default)]
struct Fields {
    places: Vec<(usize, usize)>,
    /// Fields with doubled quotes, made plain; nearly never any.
    unescaped: Vec<(usize, String)>,
}

impl Fields {
    /// False if a quote is not closed (RFC 4180, but for fields of several lines: no telemetry has them).
    fn split(&mut self, line: &str, separator: char) -> bool {
        self.places.clear();
        self.unescaped.clear();
        let mut start = 0;
        if !line.contains('"') {
            for (at, _) in line.match_indices(separator) {
                self.places.push((start, at));
                start = at + separator.len_utf8();
            }
            self.places.push((start, line.len()));
            return true;
        }
        let (mut quoted, mut seen) = (false, false);
        for (at, letter) in line.char_indices() {
            match letter {
                '"' => (quoted, seen) = (!quoted, true),
                it if it == separator && !quoted => {
                    self.field(line, (start, at), seen);
                    (start, seen) = (at + separator.len_utf8(), false);
                }
                _ => {}
            }
        }
        self.field(line, (start, line.len()), seen);
        !quoted
    }

    fn field(&mut self, line: &str, place: (usize, usize), has_quotes: bool) {
        if has_quotes {
            let text = line.get(place.0..place.1).unwrap_or_default().trim();
            let inner = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            let plain = inner.unwrap_or(text).replace("\"\"", "\"");
            self.unescaped.push((self.places.len(), plain));
        }
        self.places.push(place);
    }

    fn get<'a>(&'a self, line: &'a str, at: usize) -> Option<&'a str> {
        if let Some(plain) = self.unescaped.iter().find(|it| it.0 == at) {
            return Some(&plain.1);
        }
        let (start, end) = self.places.get(at)?;
        line.get(*start..*end).map(str::trim)
    }

    fn owned(&self, line: &str) -> Vec<String> {
        let all =
            (0..self.places.len()).map(|at| self.get(line, at).unwrap_or_default().to_owned());
        all.collect()
    }
}

/// Rows of one table.
struct Rows<'a> {
    file: &'a str,
    columns: Columns,
    width: usize,
    node: String,
    rules: &'a Rules,
    /// The last moment as it was written and read: rows of many GPUs have the same.
    moment: (String, Option<i64>),
    names: (String, String),
}

impl Rows<'_> {
    fn add(
        &mut self,
        fields: &Fields,
        line: &str,
        place: u64,
        fleet: &mut Fleet,
        damage: &mut Damage,
    ) -> Fallible<()> {
        let at = || format!("{}, line {place}", self.file);
        if fields.places.len() != self.width {
            let what = match fields.places.len() < self.width {
                true => "rows are cut: they have fewer fields than the head; they are left out",
                false => "rows have more fields than the head; they are left out",
            };
            damage.add(what, at);
            return Ok(());
        }
        let mut names = std::mem::take(&mut self.names);
        joined(&mut names.0, fields, line, &self.columns.node);
        joined(&mut names.1, fields, line, &self.columns.gpu);
        if self.columns.node.is_empty() {
            names.0.push_str(&self.node);
        }
        if names.0.is_empty() || names.1.is_empty() {
            damage.add("rows name no node or no GPU; they are left out", at);
        } else {
            let sample = self.sample(fields, line, place, damage);
            fleet.add(&names.0, &names.1, &sample)?;
        }
        self.names = names;
        Ok(())
    }

    fn sample(&mut self, fields: &Fields, line: &str, place: u64, damage: &mut Damage) -> Sample {
        let time = self.time(fields, line, place, damage);
        let at = Place {
            file: self.file,
            line: place,
        };
        let mut read = |column: &Option<Numbers>, quantity: Quantity| {
            let column = column.as_ref()?;
            let text = fields.get(line, column.at)?;
            number(text, column, quantity, at, damage)
        };
        let columns = &self.columns;
        let power = read(&columns.power, Quantity::Power).map(Watts);
        let temperature = read(&columns.temperature, Quantity::Temperature).map(Celsius);
        let cap = read(&columns.cap, Quantity::Cap)
            .map(Watts)
            .or(self.rules.cap);
        let highest_cap = read(&columns.highest_cap, Quantity::Cap).map(Watts);
        let pace = read(&columns.pace, Quantity::Pace);
        let clocks = columns.clock.iter().filter_map(|column| {
            let text = fields.get(line, column.at)?;
            number(text, column, Quantity::Clock, at, damage)
        });
        let (sum, count) = clocks.fold((0.0, 0), |(sum, count), it| (sum + it, count + 1));
        Sample {
            time,
            power,
            clock: (count > 0).then(|| Hertz(sum / f64::from(count) * 1e6)),
            temperature,
            cap,
            highest_cap: highest_cap.or(self.rules.highest_cap),
            limiter: self.limiter(fields, line, at, damage),
            pace,
        }
    }

    fn time(
        &mut self,
        fields: &Fields,
        line: &str,
        place: u64,
        damage: &mut Damage,
    ) -> Option<i64> {
        let text = fields.get(line, self.columns.time?)?;
        if self.moment.0 != text {
            self.moment = (text.to_owned(), time::moment(text));
        }
        if self.moment.1.is_none() {
            let what =
                "moments can't be read (Unix seconds or RFC 3339); their rows count without time";
            damage.add(what, || {
                format!("{}, line {place}: {:?}", self.file, shown(text))
            });
        }
        self.moment.1
    }

    fn limiter(
        &self,
        fields: &Fields,
        line: &str,
        at: Place<'_>,
        damage: &mut Damage,
    ) -> Option<Limiter> {
        if let Some(column) = self.columns.limiter {
            let text = fields.get(line, column)?;
            if cell::is_absent(text) {
                return None;
            }
            let limiter = limiter::of_word(text);
            if limiter.is_none() {
                let what = "words for a limiter are not known; they count as unknown";
                damage.add(what, || format!("{at}: {:?}", shown(text)));
            }
            return limiter;
        }
        let flags = self.columns.flags.iter().filter_map(|(column, limiter)| {
            let text = fields.get(line, *column)?;
            active(text).map(|it| if it { *limiter } else { Limiter::None })
        });
        flags.reduce(limiter::strongest)
    }
}

/// Whether a limiter is active; `None` if that is not told.
fn active(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().replace('_', " ").as_str() {
        "active" | "true" | "1" => Some(true),
        "not active" | "false" | "0" => Some(false),
        _ => None,
    }
}

/// Where something is.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    line: u64,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, line {}", self.file, self.line)
    }
}

fn joined(name: &mut String, fields: &Fields, line: &str, columns: &[usize]) {
    name.clear();
    for column in columns {
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(fields.get(line, *column).unwrap_or_default());
    }
}

fn number(
    text: &str,
    column: &Numbers,
    quantity: Quantity,
    at: Place<'_>,
    damage: &mut Damage,
) -> Option<f64> {
    let place = || format!("{at}: {:?}", shown(text));
    let name = shown(&column.name);
    let what = match cell::read(text, quantity, &column.unit) {
        Cell::Value(value) => return Some(value),
        Cell::Converted(value, unit) => {
            damage.add(
                &format!(
                    "values of {name} have another unit than the others, {}; they are converted",
                    shown(unit)
                ),
                place,
            );
            return Some(value);
        }
        Cell::Absent => format!("values of {name} are absent"),
        Cell::NotFinite => format!("values of {name} are NaN or infinite; they are left out"),
        Cell::Unit(unit) => format!(
            "values of {name} have the unit {}, which is not known; they are left out",
            shown(unit)
        ),
        Cell::Word(_) => format!("values of {name} are no numbers; they are left out"),
        Cell::Unbelieved(_) => {
            let (low, high) = quantity.range();
            format!(
                "values of {name} are not between {low} and {high} ({quantity}): dropouts, or another unit; they are left out"
            )
        }
    };
    damage.add(&what, place);
    None
}

#[cfg(test)]
mod tests {
    use litd_estimate::Estimate;

    use super::*;

    fn read(text: &[u8]) -> (Fleet, Input, Option<String>) {
        let (mut fleet, mut input) = (Fleet::default(), Input::default());
        let rules = Rules {
            cap: Some(Watts(300.0)),
            ..Rules::default()
        };
        let file = ("a.csv".to_owned(), "a");
        let error = table(text, file, &rules, &mut fleet, &mut input).err();
        (fleet, input, error.map(|it| it.to_string()))
    }

    /// Two GPUs, six rows each, all that a table may have.
    fn sound() -> Vec<u8> {
        let mut text =
            "host,uuid,timestamp,power.draw [W],clocks.sm [MHz],temperature.gpu,limiter,pace\n"
                .to_owned();
        for second in 0..6 {
            for (gpu, clock) in [("a", 1400), ("b", 1330)] {
                text += &format!("n,{gpu},{second},297.5 W,{clock} MHz,61,power,\"2.{clock}\"\n");
            }
        }
        text.into_bytes()
    }

    /// `LITD_FUZZ`: how many tables are damaged (4,000 if not set).
    #[test]
    fn no_damage_makes_a_panic_or_a_zero() {
        let count = std::env::var("LITD_FUZZ")
            .ok()
            .and_then(|it| it.parse().ok());
        let sound = sound();
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below.max(1)
        };
        let words: [&[u8]; 16] = [
            b"",
            b"NaN",
            b"-1",
            b"0",
            b"1e999",
            b"\"",
            b",",
            b"\n",
            b"\r\n",
            b"[N/A]",
            b" kW",
            b"\xff",
            b"9223372036854775807",
            b"0x4",
            b"2024-05-08T00:00:00Z",
            b"\xef\xbb\xbf",
        ];
        for _ in 0..count.unwrap_or(4_000) {
            let mut text = sound.clone();
            for _ in 0..=random(4) {
                let at = random(text.len());
                let end = (at + random(12)).min(text.len());
                match random(4) {
                    0 => text.truncate(at),
                    1 => {
                        text.splice(at..end, words[random(words.len())].iter().copied());
                    }
                    2 => text[at..end].fill(random(256) as u8),
                    _ => {
                        let copied = text[at..end].to_vec();
                        text.splice(at..at, copied);
                    }
                }
            }
            let (fleet, input, error) = read(&text);
            let estimate = Estimate::of(&fleet, None);
            assert_eq!(estimate.fleet.samples, fleet.seen().samples);
            if fleet.seen().samples == 0 {
                assert!(error.is_some() || !input.damage.kinds().is_empty());
            }
            for node in &estimate.nodes {
                for value in [
                    node.spread_pct,
                    node.persistence,
                    node.bound.gpu_red_power_pct,
                ] {
                    assert!(value.is_none_or(f64::is_finite), "{node:?}");
                }
                for (key, is_there) in [
                    ("spread_pct", node.spread_pct.is_some()),
                    ("persistence", node.persistence.is_some()),
                    ("limiter_share", node.limiter_share.is_some()),
                    ("repair", node.repair.is_some()),
                ] {
                    assert!(is_there || node.why.contains_key(key), "{key} of {node:?}");
                }
            }
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut text = b"gpu,power_w,time\na,297,1\n".to_vec();
        text.extend(std::iter::repeat_n(b'7', 3 << 20));
        text.extend(b"\nb,297,1\n");
        let (fleet, input, error) = read(&text);
        assert_eq!((fleet.seen().samples, error), (2, None));
        assert!(input.damage.kinds()[0].what.contains("longer than 1 MiB"));
    }
}
