//! The meaning of a table's columns: by the names that nvidia-smi, amd-smi and people use, or by
//! the command line.

use std::collections::BTreeMap;
use std::str::FromStr;

use litd_api::Limiter;

use super::damage::{listed, shown};
use super::limiter;

/// The keys of `--columns`.
pub const KEYS: [&str; 10] = [
    "node",
    "gpu",
    "time",
    "power_w",
    "clock_mhz",
    "temp_c",
    "cap_w",
    "limiter",
    "pace",
    "max_cap_w",
];

/// The names by which each is recognised, in lower case without unit, the best first.
const KNOWN: [(&str, &[&str]); 10] = [
    (
        "node",
        &["node", "hostname", "host", "nodename", "node_name"],
    ),
    (
        "gpu",
        &[
            "uuid",
            "gpu_uuid",
            "gpu",
            "gpu_id",
            "index",
            "device",
            "pci.bus_id",
            "gpu_bus_id",
        ],
    ),
    (
        "time",
        &["time", "timestamp", "ts", "datetime", "datetime_utc"],
    ),
    (
        "power_w",
        &[
            "power_w",
            "power.draw",
            "power.draw.average",
            "power.draw.instant",
            "power_watts",
            "power",
            "socket_power",
            "current_socket_power",
            "average_socket_power",
            "power_usage",
        ],
    ),
    (
        "clock_mhz",
        &[
            "clock_mhz",
            "clocks.current.sm",
            "clocks.sm",
            "sm_mhz",
            "clocks.current.graphics",
            "clocks.gr",
            "sm_clock",
            "gfx_clock",
            "gfx_clk",
            "sclk",
        ],
    ),
    (
        "temp_c",
        &[
            "temp_c",
            "temperature.gpu",
            "hotspot",
            "hotspot_temperature",
            "temp_junction_celsius",
            "junction",
            "temperature",
            "edge",
        ],
    ),
    (
        "cap_w",
        &[
            "cap_w",
            "enforced.power.limit",
            "power.limit",
            "power_cap",
            "power_limit",
            "limit_w",
            // amd-smi monitor's PWR_CAP: the current one.
            "max_power",
            "pwr_cap",
        ],
    ),
    (
        "limiter",
        &[
            "limiter",
            "clocks_event_reasons.active",
            "clocks_throttle_reasons.active",
        ],
    ),
    ("pace", &["pace"]),
    ("max_cap_w", &["max_cap_w", "power.max_limit"]),
];

/// The value of `--columns`: keys and the names of columns. `a+b` is the two joined; an empty name
/// after `=` is no column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted(BTreeMap<&'static str, Vec<String>>);

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut wanted = BTreeMap::new();
        for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (key, names) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} must be KEY=COLUMN, such as power_w=draw"))?;
            let known = KEYS.iter().find(|it| **it == key.trim());
            let known = known
                .ok_or_else(|| format!("{key:?} is not a key; there are {}", KEYS.join(", ")))?;
            let names = names.split('+').map(|it| it.trim().to_owned());
            let names = Vec::from_iter(names.filter(|it| !it.is_empty()));
            if wanted.insert(*known, names).is_some() {
                return Err(format!("{key} is given twice"));
            }
        }
        Ok(Self(wanted))
    }
}

/// A column with a number, and the unit that its head names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    pub at: usize,
    pub unit: String,
    /// As the table calls it.
    pub name: String,
}

/// Where a table says what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    pub node: Vec<usize>,
    pub gpu: Vec<usize>,
    pub time: Option<usize>,
    pub power: Option<Numbers>,
    /// Several columns, because each of an accelerator's dies has a clock of its own.
    pub clock: Vec<Numbers>,
    pub temperature: Option<Numbers>,
    pub cap: Option<Numbers>,
    pub highest_cap: Option<Numbers>,
    pub pace: Option<Numbers>,
    /// A word or a mask.
    pub limiter: Option<usize>,
    /// Columns that say whether one limiter is active.
    pub flags: Vec<(usize, Limiter)>,
}

/// A head's name in lower case, and its unit: `power.draw [W]`.
fn parts(head: &str) -> (String, String) {
    let (name, unit) = match head.trim().split_once('[') {
        Some((name, unit)) => (name, unit.trim_end().trim_end_matches(']')),
        None => (head, ""),
    };
    (name.trim().to_ascii_lowercase(), unit.trim().to_owned())
}

impl Columns {
    /// Of a table with this head.
    ///
    /// # Errors
    /// A column that is wanted is not there, or none names the GPU.
    pub fn of(head: &[String], wanted: &Wanted) -> Result<Self, String> {
        let names = Vec::from_iter(head.iter().map(|it| parts(it)));
        let find = |key: &str| -> Result<Vec<usize>, String> {
            if let Some(wanted) = wanted.0.get(key) {
                return wanted.iter().map(|it| named(head, &names, it)).collect();
            }
            let known = KNOWN
                .iter()
                .find(|it| it.0 == key)
                .map_or(&[][..], |it| it.1);
            let places = |known: &&str| {
                let named = |it: &(usize, &(String, String))| it.1.0 == **known;
                Vec::from_iter(names.iter().enumerate().filter(named).map(|it| it.0))
            };
            let found = known.iter().map(places).find(|it| !it.is_empty());
            let found = found.map(|it| {
                only(head, &it, || {
                    format!(
                        "rename one, or say with --columns which is {key}, or {key}= for neither"
                    )
                })
            });
            Ok(Vec::from_iter(found.transpose()?))
        };
        let numbers = |key: &str| -> Result<Vec<Numbers>, String> {
            let numbered = |at: usize| Numbers {
                at,
                unit: names.get(at).map_or_else(String::new, |it| it.1.clone()),
                name: head
                    .get(at)
                    .map_or_else(String::new, |it| it.trim().to_owned()),
            };
            Ok(find(key)?.into_iter().map(numbered).collect())
        };
        let one = |key: &str| -> Result<Option<Numbers>, String> {
            let mut found = numbers(key)?;
            match found.len() {
                0 | 1 => Ok(found.pop()),
                _ => Err(format!(
                    "--columns: {key} is one column; node, gpu and clock_mhz may be several"
                )),
            }
        };
        let mut columns = Self {
            node: find("node")?,
            gpu: find("gpu")?,
            time: find("time")?.first().copied(),
            power: one("power_w")?,
            clock: numbers("clock_mhz")?,
            temperature: one("temp_c")?,
            cap: one("cap_w")?,
            highest_cap: one("max_cap_w")?,
            pace: one("pace")?,
            limiter: find("limiter")?.first().copied(),
            flags: Vec::new(),
        };
        if columns.clock.is_empty() && !wanted.0.contains_key("clock_mhz") {
            columns.clock = dies(head, &names);
        }
        if columns.limiter.is_none() && !wanted.0.contains_key("limiter") {
            let flags = names.iter().enumerate();
            let flags = flags.filter_map(|(at, name)| Some((at, limiter::of_column(&name.0)?)));
            columns.flags = flags.collect();
        }
        if columns.gpu.is_empty() {
            return Err(format!(
                "no column names the GPU: say which with --columns gpu=...; there are {}",
                listed(head)
            ));
        }
        Ok(columns)
    }
}

/// amd-smi's clocks of the dies of one accelerator: gfx_0_clk, gfx_1_clk ...
fn dies(head: &[String], names: &[(String, String)]) -> Vec<Numbers> {
    let is_die = |name: &str| {
        let number = name
            .strip_prefix("gfx_")
            .and_then(|it| it.strip_suffix("_clk"));
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
    };
    let dies = names
        .iter()
        .zip(head)
        .enumerate()
        .filter(|(_, it)| is_die(&it.0.0));
    let numbers = dies.map(|(at, (name, head))| Numbers {
        at,
        unit: name.1.clone(),
        name: head.trim().to_owned(),
    });
    numbers.collect()
}

/// The column that the command line names: as the table writes it, or but for capitals and unit.
fn named(head: &[String], names: &[(String, String)], wanted: &str) -> Result<usize, String> {
    let exact = head.iter().enumerate().filter(|it| it.1.trim() == wanted);
    let exact = Vec::from_iter(exact.map(|it| it.0));
    let name = parts(wanted).0;
    let nearly = names.iter().enumerate().filter(|it| it.1.0 == name);
    let nearly = Vec::from_iter(nearly.map(|it| it.0));
    match (exact.is_empty(), nearly.is_empty()) {
        (true, true) => Err(format!(
            "--columns: there is no column {wanted:?}; there are {}",
            listed(head)
        )),
        (true, false) => only(head, &nearly, || "name it as the head does".to_owned()),
        (false, _) => only(head, &exact, || "rename one".to_owned()),
    }
}

/// The one place at which a name stands in the head; two columns of one name are not guessed between.
fn only(head: &[String], places: &[usize], advice: impl Fn() -> String) -> Result<usize, String> {
    match places {
        [] => Err("there is no such column".to_owned()),
        [place] => Ok(*place),
        [first, second, ..] => {
            let name = |at: &usize| {
                head.get(*at)
                    .map_or_else(String::new, |it| shown(it.trim()))
            };
            Err(format!(
                "columns {} ({}) and {} ({}) have one name: {}",
                first + 1,
                name(first),
                second + 1,
                name(second),
                advice()
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str, wanted: &str) -> Result<Columns, String> {
        let head = Vec::from_iter(head.split(',').map(|it| it.trim().to_owned()));
        Columns::of(&head, &wanted.parse()?)
    }

    #[test]
    fn nvidia_smi_is_known_by_its_head() {
        let columns = of(
            "timestamp, index, uuid, power.draw [W], clocks.current.sm [MHz], temperature.gpu, enforced.power.limit [W], \
             clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_slowdown",
            "",
        )
        .unwrap();
        assert_eq!((columns.time, columns.gpu), (Some(0), vec![2]));
        let power = columns.power.unwrap();
        assert_eq!((power.at, power.unit.as_str()), (3, "W"));
        assert_eq!((columns.clock[0].at, columns.cap.unwrap().at), (4, 6));
        assert_eq!(columns.flags, [(7, Limiter::Power), (8, Limiter::Hardware)]);
    }

    #[test]
    fn amd_smi_is_too() {
        let head = "timestamp,gpu,socket_power,gfx_0_clk,gfx_0_min_clk,gfx_1_clk,mem_0_clk,edge,hotspot,ppt_violation_status";
        let columns = of(head, "").unwrap();
        assert_eq!(
            (columns.power.unwrap().at, columns.temperature.unwrap().at),
            (2, 8)
        );
        assert_eq!(Vec::from_iter(columns.clock.iter().map(|it| it.at)), [3, 5]);
        assert_eq!(columns.flags, [(9, Limiter::Power)]);
    }

    #[test]
    fn the_command_line_goes_first() {
        let columns = of(
            "cabinet,node,uuid,ts,draw",
            "node=cabinet+node, power_w=draw, time=",
        )
        .unwrap();
        assert_eq!((columns.node, columns.time), (vec![0, 1], None));
        assert_eq!(columns.power.unwrap().at, 4);
        for (wanted, said) in [
            (
                "power_w=watts",
                "there is no column \"watts\"; there are cabinet",
            ),
            ("speed=ts", "is not a key; there are node, gpu"),
            ("power_w", "must be KEY=COLUMN"),
            ("gpu=uuid,gpu=ts", "given twice"),
            ("gpu=", "no column names the GPU"),
        ] {
            let error = of("cabinet,node,uuid,ts,draw", wanted).unwrap_err();
            assert!(error.contains(said), "{wanted}: {error}");
        }
    }
}
