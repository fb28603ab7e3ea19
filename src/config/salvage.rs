//! The usable part of a configuration file that is refused, for restoring caps.

use std::path::Path;

use litd_core::config::{Caps, OnExit};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::{
    Config, ConfigError, DEFAULT_PATH, Finding, Shell, limits, line_of, part, places, section,
};
use crate::{baseline, hold};
use litd_files as files;

/// Why a good file that does not say what is to become of caps is not taken for one that wants them restored.
const SILENT: &str = "the last litd left caps held within caps.safe_budget, and this file says nothing of caps.on_exit. \
                      No cap was moved. Write it (on_exit = \"hold\" keeps them, \"restore\" restores the caps found), \
                      then run `litd restore` again or start litd";

impl Config {
    /// The usable part of a file that [`Config::load`] refuses with `error`, for restoring caps: the shell's
    /// sections and the valid keys of `[caps]`. All other keys get their defaults: they don't affect which caps
    /// are left behind.
    ///
    /// # Errors
    /// The file can't be read or is empty, `[hardware]` or `[state]` is wrong, or the file says that caps are to
    /// be held and not at what: raising them would be wrong then.
    pub fn salvage(path: Option<&Path>, mut error: ConfigError) -> Result<Self, ConfigError> {
        let path = path.unwrap_or(Path::new(DEFAULT_PATH));
        let Ok(text) = files::text(path, files::LONGEST_CONFIG) else {
            return Err(error);
        };
        // An empty file may be one that was cut off and that said that caps are to be held.
        if text.trim().is_empty() {
            return Err(error);
        }
        match salvage(&text) {
            Ok(config) => Ok(config),
            Err(finding) => {
                error.findings.extend(finding);
                Err(error)
            }
        }
    }

    /// Loads a configuration that caps may be restored by: as [`Config::load`], and not where the file restores caps only
    /// because it says nothing of it, while the litd before, which has died since, said that it holds them.
    ///
    /// # Errors
    /// The file is refused, or silent.
    pub fn load_after(path: Option<&Path>) -> Result<Self, ConfigError> {
        let config = Self::load(path)?;
        match config.is_silent(path) && !hold::noted(&config.shell).is_empty() {
            true => Err(ConfigError::of_all(
                path.unwrap_or(Path::new(DEFAULT_PATH)),
                SILENT.to_owned(),
            )),
            false => Ok(config),
        }
    }

    /// Whether this configuration, salvaged from that file, restores caps only because the file says nothing of it,
    /// where the litd before, of this boot, said that it holds them.
    #[must_use]
    pub fn is_silent_on_a_hold(&self, path: Option<&Path>) -> bool {
        // An administrator's shell has none of the unit's variables.
        let beside_locks = || Some(self.shell.locks().parent()?.join("baseline"));
        let baseline = self.shell.baseline_path().or_else(beside_locks);
        let was_held = || baseline.is_some_and(|path| baseline::was_held(&path));
        self.is_silent(path) && (was_held() || !hold::noted(&self.shell).is_empty())
    }

    /// Whether caps are to be restored because the file says nothing of it.
    fn is_silent(&self, path: Option<&Path>) -> bool {
        let path = path.unwrap_or(Path::new(DEFAULT_PATH));
        let text = files::text(path, files::LONGEST_CONFIG).unwrap_or_default();
        self.core.caps.on_exit == OnExit::Restore && !says_to_restore(&text)
    }
}

/// The usable part of a file's text; or a further mistake, if it is not known already.
fn salvage(text: &str) -> Result<Config, Option<Finding>> {
    let (tree, mistakes) = DeTable::parse_recoverable(text);
    let mut core = litd_core::Config::default();
    let mut caps = tree.get_ref().get("caps").map_or_else(Caps::default, good);
    hold_as_lines_say(text, &mut caps);
    let on_exit = value(tree.get_ref(), "caps").and_then(|caps| value(caps.as_table()?, "on_exit"));
    // An administrator who sets a safe budget and mistypes `on_exit` has not meant the default.
    let mistyped = on_exit.is_some_and(|word| word.as_str() != Some("restore"));
    let restores = on_exit.is_some() && !mistyped;
    let may_hold = mistyped || !restores && holds_by_another_name(text);
    if may_hold && names_a_safe_budget(text) {
        caps.on_exit = OnExit::Hold;
    }
    if caps.on_exit == OnExit::Hold && caps.safe_budget.is_none() {
        return Err(Some(Finding {
            line: line_of(text, "caps.on_exit"),
            reason:
                "caps.on_exit is \"hold\" and caps.safe_budget can't be used: no cap is moved, \
                     because the caps found may be more than is safe; correct the file and run \
                     `litd restore` again"
                    .to_owned(),
        }));
    }
    core.caps = caps;
    let mut shell = part(tree, true);
    // Where the mistake is, the parser may have lost what follows.
    let stated = places::SECTIONS.map(|name| places::section_of(text, name));
    if !mistakes.is_empty() {
        for (name, lines) in places::SECTIONS.iter().zip(&stated) {
            let lost = || {
                Some(Finding {
                    line: None,
                    reason: format!(
                        "the file is not valid TOML, and its section [{name}], which says where devices and the undo \
                     journal are, can't be read. No cap was restored. Correct the file and run `litd restore` again"
                    ),
                })
            };
            let lines = lines.as_deref().ok_or_else(lost)?;
            let section = DeTable::parse(lines).map_err(|_| lost())?.into_inner();
            let others = std::mem::take(shell.get_mut()).into_iter();
            let others = others.filter(|(key, _)| key.get_ref() != name);
            *shell.get_mut() = others.chain(section).collect();
        }
    }
    let shell = good_sections(shell).ok_or(None)?;
    Ok(Config { core, shell })
}

/// The shell's sections that are valid. `None`: one that is not says which devices to restore, and from which
/// journal.
fn good_sections(tree: Spanned<DeTable<'_>>) -> Option<Shell> {
    let read =
        |table: DeTable<'_>| section::<Shell>(Deserializer::from(Spanned::new(0..0, table))).ok();
    let mut good = DeTable::new();
    for (name, value) in tree.into_inner() {
        let alone = [(name.clone(), value.clone())].into_iter().collect();
        match read(alone) {
            Some(_) => drop(good.insert(name, value)),
            None if ["hardware", "state"].contains(&name.get_ref().as_ref()) => return None,
            None => {}
        }
    }
    read(good)
}

fn value<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Option<&'a DeValue<'i>> {
    table.get(key).map(Spanned::get_ref)
}

/// The keys of `[caps]` that are valid by themselves.
fn good(caps: &Spanned<DeValue<'_>>) -> Caps {
    caps.get_ref()
        .as_table()
        .map_or_else(Caps::default, possible)
}

fn possible(table: &DeTable<'_>) -> Caps {
    let read = |table: DeTable<'_>| {
        let caps = section::<Caps>(Deserializer::from(Spanned::new(0..0, table))).ok()?;
        let mut config = Config::default();
        config.core.caps = caps.clone();
        limits::numbers(&config).next().is_none().then_some(caps)
    };
    let entries = table
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()));
    let good = entries.filter(|entry| read([entry.clone()].into_iter().collect()).is_some());
    read(good.collect()).unwrap_or_default()
}

/// In a file that is refused a key may be in another section than was meant. Whether caps are to be held, and
/// within which budget, is taken from any line: no other section has these keys.
fn hold_as_lines_say(text: &str, caps: &mut Caps) {
    for line in text.lines() {
        let Ok(tree) = DeTable::parse(line) else {
            continue;
        };
        let said = tree.get_ref().get("caps").map(good);
        let said = said.unwrap_or_else(|| possible(tree.get_ref()));
        if said.on_exit == OnExit::Hold {
            caps.on_exit = OnExit::Hold;
        }
        let budgets = [caps.safe_budget, said.safe_budget];
        caps.safe_budget = budgets
            .into_iter()
            .flatten()
            .reduce(|one, other| one.min(other));
    }
}

/// Whether the file has "hold" as the value of an unknown key: of the known keys only `caps.on_exit` may have that
/// value, and at `jobs.on_stale` it is a mistake for "keep".
fn holds_by_another_name(text: &str) -> bool {
    text.lines().any(|line| match DeTable::parse(line) {
        Ok(table) => says_hold(table.get_ref()),
        Err(_) => may_say_hold(line),
    })
}

/// Whether a line that is no TOML, as a pasted patch has them, may mean that caps are to be held. A line that is a
/// comment means nothing; what follows a hash counts, because that may stand in a string, and to hold is the safe side.
fn may_say_hold(line: &str) -> bool {
    let is_comment = line.trim_start().starts_with('#');
    let mut words = line.split(|it: char| !it.is_alphanumeric() && it != '_');
    !is_comment && words.any(|word| word == "hold") && !line.contains("on_stale")
}

/// Whether any line but a comment names a safe budget, in whatever state: who holds caps has one.
fn names_a_safe_budget(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let mut said = lines.filter(|line| !line.starts_with('#'));
    said.any(|line| line.replace(['_', '-', ' '], "").contains("safebudget"))
}

fn says_hold(table: &DeTable<'_>) -> bool {
    says(table, &|key, word| word == "hold" && key != "on_stale")
}

/// Whether the file, or any line of it by itself, has `on_exit = "restore"`, however that is written.
fn says_to_restore(text: &str) -> bool {
    let restores =
        |table: &DeTable<'_>| says(table, &|key, word| key == "on_exit" && word == "restore");
    let by_itself = |line| DeTable::parse(line).is_ok_and(|line| restores(line.get_ref()));
    restores(DeTable::parse_recoverable(text).0.get_ref()) || text.lines().any(by_itself)
}

/// Whether a table, or one inside it, has a key and a word of which that is so.
fn says(table: &DeTable<'_>, so: &dyn Fn(&str, &str) -> bool) -> bool {
    table.iter().any(|(key, value)| match value.get_ref() {
        DeValue::String(word) => so(key.get_ref(), word),
        DeValue::Table(inner) => says(inner, so),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use litd_units::Watts;

    use super::*;

    const HOLD: &str = "[caps]\non_exit = \"hold\"\nsafe_budget = 4800\ngpu_floor = 250.0\n";

    fn held(text: &str) -> (OnExit, Option<f64>) {
        let caps = salvage(text).unwrap().core.caps;
        (caps.on_exit, caps.safe_budget.map(|budget| budget.0))
    }

    #[test]
    fn what_is_to_be_held_outlives_every_mistake_elsewhere_in_the_file() {
        let parse = |text: &str| Config::parse(text, Path::new("litd.toml"));
        parse(HOLD).unwrap();
        for text in [
            format!("mode = \"drive\"\n{HOLD}"),
            format!("nope = 1\n{HOLD}"),
            format!("{HOLD}nope = 1\n"),
            format!("{HOLD}budget = \"plenty\"\n"),
            format!("{HOLD}budget = -1\n"),
            format!("{HOLD}budget = 1e999999\n"),
            format!("{HOLD}[law]\nlaw = 7\n"),
            format!("{HOLD}[prices]\ngpu_hour = 1\n"),
            // Not TOML.
            format!("mode = \"on\n{HOLD}"),
            format!("{HOLD}[law\nlaw = \"model\"\n"),
            format!("<<<<<<< ours\n{HOLD}=======\n>>>>>>> theirs\n"),
            format!("{HOLD}{HOLD}"),
            HOLD.replace("[caps]", "[caps"),
            HOLD.replace("[caps]", "caps]"),
            HOLD.replace("[caps]\n", ""),
            HOLD.replace("[caps]\n", "[caps]]\n"),
            HOLD.replace("[caps]\n", "caps.")
                .replace("\nsafe", "\ncaps.safe")
                + "= 5\n",
            // A mistyped value, beside a safe budget.
            HOLD.replace("\"hold\"", "\"hodl\""),
            HOLD.replace("\"hold\"", "hold"),
            HOLD.replace("\"hold\"", "\"hold"),
            HOLD.replace("\"hold\"", "true"),
            // What stands before a key.
            HOLD.replace("on_exit", "+on_exit"),
            HOLD.replace("on_exit", "$ on_exit"),
            HOLD.replace("on_exit", "- on_exit"),
            HOLD.replace("on_exit", "on exit"),
            // A hash in a string before it.
            HOLD.replace("on_exit", "note = \"#\", on_exit"),
            // An unknown key.
            HOLD.replace("on_exit", "on_exti"),
            HOLD.replace("on_exit", "\"on exit\""),
            HOLD.replace("on_exit", "caps.on-exit"),
            HOLD.replace(
                "[caps]\non_exit = \"hold\"",
                "cpas = { on_exit = \"hold\" }\n[caps]",
            ),
        ] {
            assert!(parse(&text).is_err(), "{text}");
            assert_eq!(held(&text), (OnExit::Hold, Some(4800.0)), "{text}");
        }
        let floor = salvage(&format!("nope = 1\n{HOLD}")).unwrap();
        assert_eq!(floor.core.caps.gpu_floor, Watts(250.0));
    }

    #[test]
    fn the_lowest_of_several_safe_budgets_is_safe() {
        let text = format!("{HOLD}=======\nsafe_budget = 4000\n");
        assert_eq!(held(&text), (OnExit::Hold, Some(4000.0)));
    }

    #[test]
    fn without_what_is_to_be_held_nothing_is_salvaged() {
        for budget in [
            "",
            "safe_budget = -1\n",
            "safe_budget = \"4 kW\"\n",
            "safe_budget = inf\n",
        ] {
            let text = format!("\n[caps]\non_exit = \"hold\"\n{budget}");
            let finding = salvage(&text).unwrap_err().unwrap();
            assert_eq!(finding.line, Some(3), "{text}");
            assert!(finding.reason.contains("no cap is moved"), "{finding:?}");
        }
        // Neither of the two can be read.
        for text in [
            "[caps]\n+on_exit = \"hold\"\n+safe_budget = 1000.0\n",
            "[caps]\non_exit = \"holt\"\nsafe_budget = \"1000\"\n",
            "[caps]\non_exit = hold\nsafe-budget = 1000.0\n",
        ] {
            let finding = salvage(text).unwrap_err().unwrap();
            assert!(finding.reason.contains("no cap is moved"), "{finding:?}");
        }
    }

    #[test]
    fn an_empty_file_does_not_tell_whether_caps_are_to_be_held() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["", "\n \n"] {
            std::fs::write(file.path(), text).unwrap();
            let refused = Config::load(Some(file.path())).unwrap_err();
            assert_eq!(
                Config::salvage(Some(file.path()), refused.clone()),
                Err(refused)
            );
        }
    }

    #[test]
    fn a_file_that_holds_nothing_gives_back() {
        let restore = HOLD.replace("hold", "restore");
        for text in [
            "mode = \"drive\"\n".to_owned(),
            "[caps]\non_exit = \"hodl\"\n".to_owned(),
            format!("nope = 1\n{restore}"),
            format!("{restore}[law\n"),
            format!("#{}", HOLD.replace('\n', "\n#")) + "\n[[[\n",
            "caps = 5\n".to_owned(),
            // At a different key that value says nothing of it.
            format!("nope = 1\n{restore}[jobs]\non_stale = \"hold\"\n"),
            format!("nope = 1\njobs.on_stale = \"hold\"\n{restore}"),
        ] {
            assert_eq!(held(&text).0, OnExit::Restore, "{text}");
        }
    }

    #[test]
    fn to_restore_is_said_in_every_way_that_toml_has() {
        for text in [
            "[caps]\non_exit = \"restore\"\n",
            "[caps]\n\ton_exit\t=\t'restore' # as before\n",
            "caps = { gpu_floor = 250.0, on_exit = \"restore\" }\n[law\n",
            "caps.\"on_exit\" = \"\"\"restore\"\"\"\n",
            "[law\non_exit = \"restore\"\n",
        ] {
            assert!(says_to_restore(text), "{text}");
        }
        for text in [
            "",
            "[caps]\n# on_exit = \"restore\"\n",
            "[caps]\non_exit = \"restored\"\n",
            "[jobs]\non_stale = \"restore\"\n",
        ] {
            assert!(!says_to_restore(text), "{text}");
        }
    }

    #[test]
    fn a_mistake_elsewhere_hides_neither_the_journal_nor_the_devices() {
        let places = "[state]\ndirectory = \"/srv/litd\"\n[hardware]\namd = \"off\"\n";
        for wrong in [
            "[caps]\nbudget: 1000\n",
            "[caps]\n<<<<<<< HEAD\nbudget = 1000.0\n=======\nbudget = 900.0\n>>>>>>> b\n",
            "[caps\nbudget = 1000.0\n",
            "[caps]\nbudget = \n",
            "[caps]\nnote = \"\"\"\nbudget = 1000.0\n",
            "[caps]\nlist = [1,\n",
            "[caps]\nb = { x = 1,\n",
        ] {
            let shell = salvage(&format!("{wrong}{places}")).unwrap().shell;
            assert_eq!(shell.state.directory, Path::new("/srv/litd"), "{wrong}");
            assert_ne!(shell.hardware, Shell::default().hardware, "{wrong}");
        }
        for lost in [
            "<<<<<<< HEAD\n[state\ndirectory = \"/srv\"\n",
            "[state]\ndirectory: /srv\n",
        ] {
            let finding = salvage(lost).unwrap_err().unwrap();
            assert!(
                finding.reason.contains("its section [state]")
                    && finding.reason.contains("No cap was restored"),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn a_section_that_says_where_nothing_is_that_goes_back_may_be_wrong() {
        let good = "[state]\ndirectory = \"/srv/litd\"\n";
        let text = format!("{good}[log]\nlevel = \"loud\"\n[metrics]\nlisten = 5\n");
        let shell = salvage(&text).unwrap().shell;
        assert_eq!(shell.state.directory, Path::new("/srv/litd"));
        assert_eq!(shell.log, Shell::default().log);
        for where_it_is in ["[state]\ndirectory = 5\n", "[hardware]\namd = \"magic\"\n"] {
            assert_eq!(salvage(where_it_is), Err(None));
        }
    }
}
