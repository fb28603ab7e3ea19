//! Measurements of a model on a node: power and throughput of each configuration, and the cost of a switch between
//! configurations (section 4.1).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use litd_units::{Seconds, TokensPerSecond, Watts};
use serde::{Deserialize, Serialize};

use crate::Configuration;
use crate::table::{Row, Table, TableError};

/// Power and throughput of one configuration at steady state, all GPUs of the job together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The configuration.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// P, the power of the job's GPUs.
    #[serde(rename = "power_w")]
    pub power: Watts,
    /// r, the throughput of the job.
    #[serde(rename = "tokens_per_s")]
    pub rate: TokensPerSecond,
}

/// No job draws or trains more than this number.
const MOST: f64 = 1e15;

/// The profile of one model on one kind of node.
///
/// As CSV the columns are `tp,pp,dp,power_w,tokens_per_s` and, where a switch was measured,
/// `switch_s` with the same value in each row. As JSON: `{"model", "hardware", "source", "switch_s",
/// "configurations": [{"tp", "pp", "dp", "power_w", "tokens_per_s"}]}`; only the last is needed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Document")]
pub struct Profile {
    /// The model that was trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The node that it was trained on.
    #[serde(skip_serializing_if = "Option::is_none")]
    hardware: Option<String>,
    /// Where the numbers come from, such as "SIMULATED".
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(rename = "switch_s", skip_serializing_if = "Option::is_none")]
    switch: Option<Seconds>,
    #[serde(rename = "configurations")]
    points: Vec<Point>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    hardware: Option<String>,
    #[serde(default)]
    source: Option<String>,
    #[serde(default, rename = "switch_s")]
    switch: Option<Seconds>,
    configurations: Vec<Point>,
}

impl TryFrom<Document> for Profile {
    type Error = TableError;

    fn try_from(document: Document) -> Result<Self, TableError> {
        let place = |at: usize| format!("configuration {}", at + 1);
        let profile = Self {
            model: document.model,
            hardware: document.hardware,
            source: document.source,
            switch: document.switch,
            points: document.configurations,
        };
        check(&profile.points, place)?;
        if let Some(switch) = profile.switch {
            possible_switch(switch.0).map_err(TableError::Whole)?;
        }
        Ok(profile)
    }
}

const COLUMNS: [&str; 5] = ["tp", "pp", "dp", "power_w", "tokens_per_s"];

impl Profile {
    /// The profile of these measurements.
    ///
    /// # Errors
    /// There is none, one is of another number of GPUs, is there twice, or has a number that can't be.
    pub fn new(points: Vec<Point>, switch: Option<Seconds>) -> Result<Self, TableError> {
        Self::try_from(Document {
            model: None,
            hardware: None,
            source: None,
            switch,
            configurations: points,
        })
    }

    /// The same with the names of model and hardware, and where the numbers come from.
    #[must_use]
    pub fn named(mut self, model: &str, hardware: &str, source: &str) -> Self {
        self.model = Some(model.to_owned());
        self.hardware = Some(hardware.to_owned());
        self.source = Some(source.to_owned());
        self
    }

    /// Every configuration, in the order of the file.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// K, the mean cost of a switch, where it was measured.
    #[must_use]
    pub fn switch(&self) -> Option<Seconds> {
        self.switch
    }

    /// K as plans count it: the given one, or what was measured. Where neither is known a switch costs plans nothing.
    #[must_use]
    pub fn planned_switch(&self, given: Option<Seconds>) -> Seconds {
        given.or(self.switch).unwrap_or(Seconds::ZERO)
    }

    /// The same, called so where nothing names it.
    #[must_use]
    pub fn or_named(mut self, name: &str) -> Self {
        if self.title().is_empty() {
            self.model = Some(name.to_owned());
        }
        self
    }

    /// W, the number of GPUs.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let first = self.points.first();
        first.map_or(0, |it| it.configuration.world_size().unwrap_or_default())
    }

    /// Model, hardware and source, as far as they are known.
    #[must_use]
    pub fn title(&self) -> String {
        let known = [&self.model, &self.hardware, &self.source];
        let known: Vec<&str> = known.into_iter().flatten().map(String::as_str).collect();
        known.join(", ")
    }

    /// The same as CSV.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = COLUMNS.join(",");
        text += if self.switch.is_some() {
            ",switch_s\n"
        } else {
            "\n"
        };
        for point in &self.points {
            let Configuration { tp, pp, dp } = point.configuration;
            let _ = write!(text, "{tp},{pp},{dp},{},{}", point.power.0, point.rate.0);
            if let Some(switch) = self.switch {
                let _ = write!(text, ",{}", switch.0);
            }
            text.push('\n');
        }
        text
    }
}

impl FromStr for Profile {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        if text
            .trim_start_matches('\u{feff}')
            .trim_start()
            .starts_with('{')
        {
            return serde_json::from_str(text)
                .map_err(|error| TableError::Whole(format!("the profile's JSON: {error}")));
        }
        let table = Table::read(text, &COLUMNS)?;
        table.check_surplus()?;
        let mut points = Vec::new();
        let mut switch: Option<f64> = None;
        for row in table.rows() {
            points.push(point(&table, row)?);
            let Some(column) = table.column("switch_s") else {
                continue;
            };
            let given = row.number(column, "switch_s")?;
            if let Some(given) = given {
                possible_switch(given).map_err(|what| TableError::line(row.line, what))?;
                if switch.is_some_and(|other| other != given) {
                    let what =
                        "switch_s differs from the rows above; K is one mean over all switches";
                    return Err(TableError::line(row.line, what));
                }
                switch = Some(given);
            }
        }
        let lines: Vec<usize> = table.rows().iter().map(|row| row.line).collect();
        check(&points, |at| format!("line {}", lines[at]))?;
        Self::new(points, switch.map(Seconds))
    }
}

fn possible_switch(seconds: f64) -> Result<(), String> {
    match seconds.is_finite() && seconds >= 0.0 {
        true => Ok(()),
        false => Err(format!("switch_s {seconds} must be 0 or more seconds")),
    }
}

fn point(table: &Table, row: &Row) -> Result<Point, TableError> {
    let column = |name: &str| table.column(name).unwrap_or(usize::MAX);
    let degree = |name: &str| {
        let text = row.text(column(name));
        let degree = text.parse().ok().filter(|it: &u32| *it > 0);
        let wrong = || TableError::line(row.line, format!("{name} {text:?} must be 1, 2, ..."));
        degree.ok_or_else(wrong)
    };
    let number = |name: &str| {
        let missing = || TableError::line(row.line, format!("{name} is missing"));
        row.number(column(name), name)?.ok_or_else(missing)
    };
    Ok(Point {
        configuration: Configuration {
            tp: degree("tp")?,
            pp: degree("pp")?,
            dp: degree("dp")?,
        },
        power: Watts(number("power_w")?),
        rate: TokensPerSecond(number("tokens_per_s")?),
    })
}

/// Looks for what can't be in one profile.
fn check(points: &[Point], place: impl Fn(usize) -> String) -> Result<(), TableError> {
    let whole = |what: String| Err(TableError::Whole(what));
    let mut gpus = None;
    let mut seen = BTreeMap::new();
    for (at, point) in points.iter().enumerate() {
        let of = point.configuration;
        let Some(size) = of.world_size() else {
            return whole(format!("{}: {of} is no number of GPUs", place(at)));
        };
        match gpus {
            Some((first, expected)) if expected != size => {
                return whole(format!(
                    "{}: {of} needs {size} GPUs, and {} needs {expected}: TP x PP x DP must be the same in \
                     every row",
                    place(at),
                    place(first)
                ));
            }
            Some(_) => (),
            None => gpus = Some((at, size)),
        }
        if let Some(first) = seen.insert(of, at) {
            return whole(format!(
                "{}: {of} is there already, in {}",
                place(at),
                place(first)
            ));
        }
        for (name, value) in [("power_w", point.power.0), ("tokens_per_s", point.rate.0)] {
            if !(value > 0.0 && value <= MOST) {
                let place = place(at);
                let bound = if value > 0.0 {
                    "at most 1e15"
                } else {
                    "more than 0"
                };
                return whole(format!("{place}: {name} {value} must be {bound}"));
            }
        }
    }
    match points.is_empty() {
        true => whole("the profile has no configuration".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "tp,pp,dp,power_w,tokens_per_s\n";

    fn error(rows: &str) -> String {
        let profile = format!("{HEADER}{rows}").parse::<Profile>();
        profile.unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_row_is_named_by_its_line() {
        assert_eq!(error(""), "the file has column names and no row");
        assert_eq!(
            error("1,1,8,1500,58000\n1,1,4,700,30000\n"),
            "line 3: TP=1 PP=1 DP=4 needs 4 GPUs, and line 2 needs 8: TP x PP x DP must be the same in every row"
        );
        assert_eq!(
            error("1,1,8,1500,58000\n\n1,1,8,700,30000\n"),
            "line 4: TP=1 PP=1 DP=8 is there already, in line 2"
        );
        assert_eq!(error("1,0,8,1,1\n"), "line 2: pp \"0\" must be 1, 2, ...");
        assert_eq!(
            error("1,1,8,-3,1\n"),
            "line 2: power_w -3 must be more than 0"
        );
        assert_eq!(
            error("1,1,8,nan,1\n"),
            "line 2: power_w \"nan\" is no number"
        );
        assert_eq!(error("1,1,8,5\n"), "line 2: tokens_per_s is missing");
        assert_eq!(
            error("1,1,8,1500,5,58000\n"),
            "line 2: the row has 6 fields and the first line names 5: a comma in a number?"
        );
        let error = "tp,pp,dp,power_w\n1,1,1,1\n"
            .parse::<Profile>()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the first line has no column \"tokens_per_s\"; needed are tp,pp,dp,power_w,tokens_per_s"
        );
    }

    #[test]
    fn csv_and_json_say_the_same() {
        let csv = "\u{feff}# SIMULATED\ndp,tp,pp,tokens_per_s,power_w,switch_s\n8,1,1,58000,1500,90\n1,8,1,30000,1100,90\n";
        let profile: Profile = csv.parse().unwrap();
        assert_eq!(profile.switch(), Some(Seconds(90.0)));
        assert_eq!(profile.gpus(), 8);
        let json = serde_json::to_string(&profile).unwrap();
        assert_eq!(json.parse::<Profile>().unwrap(), profile);
        assert_eq!(profile.to_csv().parse::<Profile>().unwrap(), profile);
        let error = r#"{"configurations":[]}"#.parse::<Profile>().unwrap_err();
        assert!(error.to_string().contains("no configuration"), "{error}");
    }
}
