//! A line of recorded results.

use serde::Deserialize;

/// The values of a line, in its own units, checked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Line {
    #[serde(default)]
    name: Option<String>,
    /// MHz.
    #[serde(alias = "freq")]
    pub frequency: f64,
    #[serde(default, alias = "sm")]
    pub sms: Option<u32>,
    #[serde(default, alias = "overlap_start")]
    pub launch: Option<String>,
    /// Seconds.
    #[serde(alias = "time_s")]
    pub time: f64,
    /// Joules.
    #[serde(alias = "energy_j")]
    pub energy: f64,
    /// MHz.
    #[serde(default)]
    pub clock: Option<f64>,
    #[serde(default)]
    pub temperature: Option<f64>,
    #[serde(default)]
    pub noise: Option<f64>,
}

const NEEDED: [&str; 6] = ["name", "frequency", "sms", "launch", "time", "energy"];
const OPTIONAL: [&str; 3] = ["clock", "temperature", "noise"];

/// Where a CSV file has its columns.
#[derive(Debug)]
pub(super) struct Columns {
    needed: [usize; 6],
    optional: [Option<usize>; 3],
}

impl Columns {
    /// From a header; the name of a column that it lacks otherwise.
    pub fn find(header: &str) -> Result<Self, &'static str> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |column: &str| names.iter().position(|it| *it == column);
        let mut needed = [0; 6];
        for (place, column) in needed.iter_mut().zip(NEEDED) {
            *place = find(column).ok_or(column)?;
        }
        Ok(Self {
            needed,
            optional: OPTIONAL.map(find),
        })
    }
}

impl Line {
    /// A JSON object.
    pub fn json(text: &str) -> Result<Self, String> {
        let line: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        line.check()
    }

    /// A row of CSV.
    pub fn csv(text: &str, columns: &Columns) -> Result<Self, String> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let at = |place: Option<usize>| {
            let field = place.and_then(|it| fields.get(it)).copied();
            field.filter(|it| !it.is_empty())
        };
        let field = |column: usize| at(Some(columns.needed[column]));
        let needed = |column: usize| {
            let text = field(column).ok_or_else(|| format!("{} is missing", NEEDED[column]))?;
            number(NEEDED[column], text)
        };
        let optional = |column: usize| {
            let text = at(columns.optional[column]);
            text.map(|text| number(OPTIONAL[column], text)).transpose()
        };
        let sms = field(2).map(|text| {
            let sms = text.parse::<u32>().ok();
            sms.ok_or_else(|| format!("sms {text:?} is no number of SMs"))
        });
        let line = Self {
            name: field(0).map(str::to_owned),
            frequency: needed(1)?,
            sms: sms.transpose()?,
            launch: field(3).map(str::to_owned),
            time: needed(4)?,
            energy: needed(5)?,
            clock: optional(0)?,
            temperature: optional(1)?,
            noise: optional(2)?,
        };
        line.check()
    }

    /// The same with this name, if it has none.
    pub fn named(mut self, name: Option<&str>) -> Result<Self, String> {
        if self.name.is_none() {
            self.name = name.map(str::to_owned);
        }
        match self.name {
            Some(_) => Ok(self),
            None => Err("name is missing: of which partition or sequence is it?".to_owned()),
        }
    }

    /// Of what it is.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn check(self) -> Result<Self, String> {
        let positive = [
            ("frequency", Some(self.frequency)),
            ("time", Some(self.time)),
            ("energy", Some(self.energy)),
            ("clock", self.clock),
        ];
        for (name, value) in positive {
            if let Some(value) = value
                && !(value.is_finite() && value > 0.0)
            {
                return Err(format!("{name} {value} is no number that is more than 0"));
            }
        }
        if self.sms == Some(0) {
            return Err("sms is 0: a communication needs at least one SM".to_owned());
        }
        let noise = self.noise.is_none_or(|it| it.is_finite() && it >= 0.0);
        let temperature = self.temperature.is_none_or(f64::is_finite);
        match noise && temperature {
            true => Ok(self),
            false => Err("temperature and noise are finite, and noise is not negative".to_owned()),
        }
    }
}

fn number(column: &str, text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number.ok_or_else(|| format!("{column} {text:?} is no number"))
}
