//! The configuration file: the loop's part ([`litd_core::Config`], at the top level) and the
//! shell's sections, which only the daemon's process knows. `systemd/litd.toml` describes every
//! key.

mod limits;
mod mistakes;
mod places;
mod salvage;
mod sections;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use litd_core::Device;
use litd_core::budget::{self, Impossible};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

use litd_files as files;

pub use sections::{
    Attach, Audit, Control, Hardware, Ingest, Level, Listen, Log, Metrics, Permissions, Shell,
    State,
};

/// The path of the configuration unless `--config` names another. The file need not exist.
pub const DEFAULT_PATH: &str = "/etc/litd/litd.toml";

/// The shipped default file: every key, commented out, at its default value.
pub const DEFAULT_FILE: &str = include_str!("../systemd/litd.toml");

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The loop's part.
    pub core: litd_core::Config,
    /// Sockets, paths and the like.
    pub shell: Shell,
}

/// A mistake in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The line, counted from 1, where known.
    pub line: Option<usize>,
    /// The mistake, and a valid value.
    pub reason: String,
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// All mistakes that were found; never empty.
    pub findings: Vec<Finding>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file.display())?;
            if let Some(line) = finding.line {
                write!(f, ":{line}")?;
            }
            write!(f, ": {}", finding.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// An error about the file as a whole.
    fn of_all(file: &Path, reason: String) -> Self {
        let findings = vec![Finding { line: None, reason }];
        Self {
            file: file.to_owned(),
            findings,
        }
    }

    /// The same with a mistake more, about the file as a whole.
    #[must_use]
    pub fn and(mut self, reason: &str) -> Self {
        let reason = reason.to_owned();
        self.findings.push(Finding { line: None, reason });
        self
    }
}

/// Why an empty file is refused: it would lift every budget.
const EMPTY: &str = "is empty, perhaps because the disk was full when it was written: write it again; to run litd \
                     with its defaults, write a comment into it";

impl Config {
    /// Reads the file, or the default where no file was named and none is there.
    ///
    /// # Errors
    /// The file can't be read, or [`Config::parse`] refuses it.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let file = path.unwrap_or(Path::new(DEFAULT_PATH));
        match files::text(file, files::LONGEST_CONFIG) {
            Ok(text) if text.trim().is_empty() => Err(ConfigError::of_all(file, EMPTY.to_owned())),
            Ok(text) => Self::parse(&text, file),
            Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(ConfigError::of_all(file, format!("can't be read: {error}"))),
        }
    }

    /// An identifier of this configuration: a hash of all its values. Comments, explicit defaults and the host's
    /// name make no difference.
    #[must_use]
    pub fn hash(&self) -> String {
        let values = serde_json::to_vec(&(&self.core, &self.shell)).unwrap_or_default();
        format!("{:016x}", litd_core::fnv1a(&values))
    }

    /// Reads the text of a configuration file; `file` is for messages.
    ///
    /// # Errors
    /// It is no TOML, has a key that is not known, or a value of the wrong type or that is
    /// impossible. Every finding has its line.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        Self::read(text).map_err(|findings| ConfigError {
            file: file.to_owned(),
            findings,
        })
    }

    /// Whether this node's devices can keep the budgets.
    ///
    /// # Errors
    /// They can't. Every finding has its line, as those of [`Config::load`].
    pub fn fits(&self, inventory: &[Device], path: Option<&Path>) -> Result<(), ConfigError> {
        let file = path.unwrap_or(Path::new(DEFAULT_PATH));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let finding = |it: Impossible| Finding {
            line: line_of(&text, it.key),
            reason: it.reason,
        };
        let found = budget::impossible(&self.core, inventory);
        let findings: Vec<Finding> = found.into_iter().map(finding).collect();
        match findings.is_empty() {
            true => Ok(()),
            false => Err(ConfigError {
                file: file.to_owned(),
                findings,
            }),
        }
    }

    /// Whether any budget is set that [`Config::fits`] would look at.
    #[must_use]
    pub fn has_budgets(&self) -> bool {
        let caps = &self.core.caps;
        let budgets = [caps.budget, caps.safe_budget, self.core.node.budget];
        budgets.iter().any(Option::is_some)
    }

    fn read(text: &str) -> Result<Self, Vec<Finding>> {
        let tree = DeTable::parse(text).map_err(|error| vec![mistakes::finding(&error, text)])?;
        let mut findings = Vec::new();
        let known = without_unknown(tree, text, &mut findings);
        let (core, shell) = (part(known.clone(), false), part(known, true));
        let core = read_tables(core, text, &mut findings);
        let shell = read_tables(shell, text, &mut findings);
        let config = match (core, shell) {
            (Some(core), Some(shell)) if findings.is_empty() => Self { core, shell },
            _ => {
                findings.sort_by_key(|it| it.line);
                return Err(findings);
            }
        };
        let findings: Vec<Finding> = limits::violations(&config)
            .into_iter()
            .map(|violation| Finding {
                line: violation.keys.iter().find_map(|key| line_of(text, key)),
                reason: violation.reason,
            })
            .collect();
        if findings.is_empty() {
            Ok(config)
        } else {
            Err(findings)
        }
    }
}

/// The shell's sections of a file, or all the rest.
fn part(tree: Spanned<DeTable<'_>>, of_shell: bool) -> Spanned<DeTable<'_>> {
    let (span, table) = (tree.span(), tree.into_inner());
    let wanted = table
        .into_iter()
        .filter(|(key, _)| Shell::SECTIONS.contains(&key.get_ref().as_ref()) == of_shell);
    Spanned::new(span, wanted.collect())
}

fn section<T: DeserializeOwned>(from: Deserializer<'_>) -> Result<T, toml::de::Error> {
    T::deserialize(from)
}

/// The tables as a `T`. If they are none, this adds their mistakes to `findings`.
fn read_tables<T: DeserializeOwned>(
    tables: Spanned<DeTable<'_>>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Option<T> {
    let whole = section(Deserializer::from(tables.clone()));
    let told = |first| findings.extend(mistakes::in_tables::<T>(tables.get_ref(), first, text));
    whole.map_err(told).ok()
}

/// The file without the top-level keys that neither the loop nor the shell has, which are told. serde would name only
/// one half of those that there are.
fn without_unknown<'i>(
    tree: Spanned<DeTable<'i>>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Spanned<DeTable<'i>> {
    let loops = toml::Table::try_from(litd_core::Config::default()).unwrap_or_default();
    let loops = loops.keys().map(String::as_str);
    let known: Vec<&str> = loops.chain(Shell::SECTIONS).collect();
    let (span, tree) = (tree.span(), tree.into_inner());
    let is_known = |key: &Spanned<DeString<'_>>| known.contains(&&**key.get_ref());
    for key in tree.keys().filter(|it| !is_known(it)).take(mistakes::TOLD) {
        let name = key.get_ref();
        let others = || format!("there are {}", known.join(", "));
        let home = mistakes::home_of(name).unwrap_or_else(others);
        findings.push(Finding {
            line: Some(line_at(text, key.span().start)),
            reason: format!("unknown key `{name}`; {home}"),
        });
    }
    let kept = tree.into_iter().filter(|(key, _)| is_known(key));
    Spanned::new(span, kept.collect())
}

/// Sections that say what litd may do: a key there that this version does not know may be a bound of a newer one.
const BOUNDS: [&str; 3] = ["caps", "node", "rollout"];

/// The section of [`BOUNDS`] that has its key at this place in the text.
fn bounds_in(text: &str, place: &Range<usize>) -> Option<&'static str> {
    let tree = DeTable::parse(text).ok()?;
    let has_key = |section: &&str| {
        let mut tables = tree.get_ref().iter();
        let table = tables.find(|(name, _)| name.get_ref() == *section);
        let table = table.and_then(|(_, value)| value.get_ref().as_table());
        table.is_some_and(|table| table.keys().any(|key| key.span() == *place))
    };
    BOUNDS.into_iter().find(has_key)
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// The line of a key such as `caps.gpu_floor`, if the file has it.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let tree = DeTable::parse(text).ok()?;
    let mut table = tree.get_ref();
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        let (name, value) = table.iter().find(|(name, _)| name.get_ref() == part)?;
        if parts.peek().is_none() {
            return Some(line_at(text, name.span().start));
        }
        table = value.get_ref().as_table()?;
    }
    None
}

/// The key, such as `caps.gpu_floor`, whose value is at this place in the text.
fn key_at(text: &str, place: &Range<usize>) -> Option<String> {
    fn find(table: &DeTable<'_>, place: &Range<usize>) -> Option<String> {
        table.iter().find_map(|(name, value)| {
            let name = name.get_ref();
            match value.get_ref() {
                DeValue::Table(inner) => find(inner, place).map(|key| format!("{name}.{key}")),
                _ if value.span() == *place => Some(name.to_string()),
                _ => None,
            }
        })
    }
    find(DeTable::parse(text).ok()?.get_ref(), place)
}

#[cfg(test)]
mod tests {
    use toml::{Table, Value};

    use super::*;

    /// The shipped file with every key uncommented.
    pub(super) fn activated(file: &str) -> String {
        let activate = |line: &str| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase()) => {
                rest.to_owned()
            }
            _ => line.to_owned(),
        };
        file.lines().map(|line| activate(line) + "\n").collect()
    }

    #[test]
    fn a_budget_of_the_node_within_which_no_gpu_can_live_is_refused() {
        let read = |text: &str| Config::parse(text, Path::new("litd.toml"));
        let refused = |text: &str| read(text).unwrap_err().to_string();
        let without = refused("[node]\nbudget = 100\n");
        assert!(
            without.contains("2: node.budget is 100")
                && without.contains("caps.gpu_floor is 200")
                && without.contains("set node.budget to 200"),
            "{without}"
        );
        // A reserve above the budget leaves nothing.
        let nothing = refused("[node]\nbudget = 1000\nreserve = 2000\n");
        assert!(
            nothing.contains("which leaves 0") && nothing.contains("set node.budget to 2200"),
            "{nothing}"
        );
        assert!(!nothing.contains("floors add up to 0"), "{nothing}");
        let little = refused("[node]\nbudget = 1000\nreserve = 900\n");
        assert!(little.contains("which leaves 100"), "{little}");
        read("[node]\nbudget = 1000\nreserve = 800\n").unwrap();
    }

    /// All keys with their values, such as `caps.gpu_floor`.
    pub(super) fn leaves(table: &Table) -> Vec<(String, Value)> {
        let of = |(key, value): (&String, &Value)| match value {
            Value::Table(inner) => leaves(inner)
                .into_iter()
                .map(|(rest, value)| (format!("{key}.{rest}"), value))
                .collect(),
            value => vec![(key.clone(), value.clone())],
        };
        table.iter().flat_map(of).collect()
    }

    fn refused(text: &str) -> String {
        let error = Config::parse(text, Path::new("litd.toml")).unwrap_err();
        error.to_string()
    }

    #[test]
    fn the_shipped_file_is_the_default() {
        let shipped = Config::parse(DEFAULT_FILE, Path::new("litd.toml")).unwrap();
        assert_eq!(shipped, Config::default());
    }

    #[test]
    fn the_shipped_file_shows_every_default() {
        let text = activated(DEFAULT_FILE);
        let shown = leaves(&toml::from_str(&text).unwrap());
        let default = Config::default();
        for table in [
            Table::try_from(&default.core).unwrap(),
            Table::try_from(&default.shell).unwrap(),
        ] {
            for (key, value) in leaves(&table) {
                let found = shown.iter().find(|(name, _)| *name == key);
                assert_eq!(found.map(|(_, value)| value), Some(&value), "{key}");
            }
        }
        // Examples that are no defaults have to be valid values, too.
        Config::parse(&text, Path::new("litd.toml")).unwrap();
    }

    #[test]
    fn the_shipped_file_shows_every_key_without_a_default_too() {
        // serde names all keys of a section when one is unknown.
        let text = activated(DEFAULT_FILE);
        let shown: Vec<String> = leaves(&toml::from_str(&text).unwrap())
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let sections: std::collections::BTreeSet<&str> = shown
            .iter()
            .filter_map(|key| Some(key.rsplit_once('.')?.0))
            .collect();
        for section in sections {
            let message = refused(&format!("[{section}]\nnope = 1"));
            let known = message.split("expected").nth(1).unwrap();
            for key in known.split('`').skip(1).step_by(2) {
                let key = format!("{section}.{key}");
                let there = shown.iter().filter_map(|name| name.strip_prefix(&key));
                // The key, or the section that it is.
                let there = there.filter(|rest| rest.is_empty() || rest.starts_with('.'));
                assert!(there.count() > 0, "{key} is not in litd.toml");
            }
        }
    }

    #[test]
    fn a_file_changes_what_it_names() {
        let config = Config::parse(
            "mode = \"on\"\ncaps.budget = 5000\n[metrics]\nlisten = \"off\"\n",
            Path::new("litd.toml"),
        )
        .unwrap();
        assert_eq!(config.core.mode, litd_api::Mode::Steer);
        assert_eq!(config.core.caps.budget, Some(litd_units::Watts(5000.0)));
        assert_eq!(config.shell.metrics.listen, Listen(None));
        assert_eq!(config.shell.ingest, Ingest::default());
    }

    #[test]
    fn an_unknown_bound_of_a_newer_version_is_refused_with_the_remedy() {
        let refused = |text: &str| {
            let refused = Config::parse(text, Path::new("litd.toml")).unwrap_err();
            refused.to_string()
        };
        for section in BOUNDS {
            for text in [
                format!("[{section}]\nnewer = 1"),
                format!("\n{section}.newer = 1"),
                format!("{section} = {{ newer = 1 }}"),
            ] {
                let said = refused(&text);
                let remedy = format!("take the key out of [{section}], or install the litd");
                assert!(said.contains("unknown field `newer`"), "{said}");
                assert!(said.contains(&remedy), "{said}");
            }
        }
        assert!(!refused("[control]\nnewer = 1").contains("install the litd"));
        assert!(!refused("[caps]\ngpu_floor = \"high\"").contains("install the litd"));
    }

    #[test]
    fn refusals_name_file_line_and_key() {
        let cases = [
            ("mode = \"on\"\nnope = 1", "litd.toml:2: unknown key `nope`"),
            ("[caps]\n\nnope = 1", "litd.toml:3: unknown field `nope`"),
            ("[control]\nnope = 1", "litd.toml:2: unknown field `nope`"),
            (
                "[caps]\ngpu_floor = \"high\"",
                "litd.toml:2: caps.gpu_floor: invalid type",
            ),
            (
                "[caps]\n# one\ngpu_floor = -5.0",
                "litd.toml:3: caps.gpu_floor is -5;",
            ),
            (
                "[caps]\ngpu_floor = nan",
                "litd.toml:2: caps.gpu_floor is NaN;",
            ),
            ("[caps]\nbudget = inf", "litd.toml:2: caps.budget is inf;"),
            (
                "[limits]\nsessions = 0",
                "litd.toml:2: limits.sessions is 0;",
            ),
            (
                "[limits]\nsessions = -1",
                "litd.toml:2: limits.sessions: invalid value",
            ),
            (
                "law.detection.window = 0",
                "litd.toml:1: law.detection.window is 0;",
            ),
            (
                "[caps]\ngpu_ceiling = 150",
                "litd.toml:2: caps.gpu_ceiling is 150 W, below",
            ),
            (
                "mode = \"drive\"",
                "litd.toml:1: mode: unknown variant `drive`",
            ),
            (
                "\n[log]\nlevel = \"loud\"",
                "litd.toml:3: log.level: unknown variant `loud`",
            ),
            (
                "ingest.mode = \"0777\"",
                "litd.toml:1: ingest.mode: \"0777\" is not",
            ),
            (
                "metrics.listen = \"9816\"",
                "litd.toml:1: metrics.listen: \"9816\" is neither",
            ),
            (
                "[control]\nsocket = \"a.sock\"",
                "litd.toml:2: control.socket is \"a.sock\"; it must be an absolute",
            ),
            (
                "[state]\ndirectory = \"lib\"",
                "litd.toml:2: state.directory is \"lib\"",
            ),
            (
                "[audit]\ndirectory = \"log\"",
                "litd.toml:2: audit.directory is \"log\"",
            ),
            ("[audit]\nfiles = 0", "litd.toml:2: audit.files is 0;"),
            (
                "[attach]\nkineto_samples = true",
                "litd.toml:2: attach.kineto_samples = true needs attach.kineto = true",
            ),
            (
                "[attach]\nkineto = true\nkineto_samples = true\nkineto_every_seconds = 61",
                "litd.toml:4: attach.kineto_every_seconds is 61; it must be at most half",
            ),
            (
                "[attach]\nkineto_every_seconds = 1",
                "litd.toml:2: attach.kineto_every_seconds is 1;",
            ),
            (
                "[attach]\ndynolog = \"10.0.0.7:1778\"",
                "litd.toml:2: attach.dynolog is 10.0.0.7:1778; it must be",
            ),
            (
                "[attach]\ndynolog = \"1778\"",
                "litd.toml:2: attach.dynolog: invalid socket address",
            ),
            ("mode = \"on\"\n[caps\n", "litd.toml:2: "),
            (
                "[caps]\ngpu_floor = 1\ngpu_floor = 2",
                "litd.toml:3: duplicate key",
            ),
        ];
        for (text, expected) in cases {
            let message = refused(text);
            assert!(message.starts_with(expected), "{text:?}: {message}");
        }
    }

    #[test]
    fn everything_impossible_is_told_at_once() {
        let message = refused("[caps]\ngpu_floor = 0\ncpu_floor = 0\n");
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines.len(), 2, "{message}");
        assert!(
            lines[1].starts_with("litd.toml:3: caps.cpu_floor"),
            "{message}"
        );
    }

    #[test]
    fn a_socket_path_that_the_kernel_could_not_bind_is_refused() {
        let long = format!("[ingest]\nsocket = \"/{}\"", "x".repeat(107));
        assert!(refused(&long).contains("at most 107 bytes, not 108"));
        let fits = format!("[ingest]\nsocket = \"/{}\"", "x".repeat(106));
        Config::parse(&fits, Path::new("litd.toml")).unwrap();
    }

    #[test]
    fn only_the_default_file_may_be_absent() {
        let error = Config::load(Some(Path::new("/nonexistent/litd.toml"))).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/nonexistent/litd.toml: can't be read")
        );
    }
}
