//! All mistakes of a refused configuration file at once, each with its line, and the section that a misplaced key belongs
//! to.

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::{DEFAULT_FILE, Finding, bounds_in, key_at, line_at, section};

/// The most mistakes told of one file.
pub(super) const TOLD: usize = 20;

/// What is wrong in these tables, which could not be read as a whole because of `first`: each key is read by itself.
pub(super) fn in_tables<T: DeserializeOwned>(
    tables: &DeTable<'_>,
    first: Error,
    text: &str,
) -> Vec<Finding> {
    let alone = one_by_one(tables).into_iter();
    let read = |table| section::<T>(Deserializer::from(Spanned::new(0..text.len(), table))).err();
    // What is missing beside a key that stands alone may be there in the file.
    let is_its_own = |error: &Error| !error.message().starts_with("missing field");
    let errors = alone.filter_map(read).filter(is_its_own);
    let found: Vec<Finding> = errors.take(TOLD).map(|it| finding(&it, text)).collect();
    match found.is_empty() {
        true => vec![finding(&first, text)],
        false => found,
    }
}

/// The same tables once for each of their keys, and nothing else in them.
fn one_by_one<'i>(table: &DeTable<'i>) -> Vec<DeTable<'i>> {
    let entries = table.iter().flat_map(|(key, value)| {
        let inner: Vec<DeValue<'i>> = match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => {
                let alone = one_by_one(inner).into_iter();
                alone.map(DeValue::Table).collect()
            }
            other => vec![other.clone()],
        };
        let spanned = move |it| Spanned::new(value.span(), it);
        inner.into_iter().map(move |it| (key.clone(), spanned(it)))
    });
    entries.map(|it| [it].into_iter().collect()).collect()
}

/// What the parser has to say, with the line and the key, and what to do about it.
pub(super) fn finding(error: &Error, text: &str) -> Finding {
    let place = error.span();
    let line = place.as_ref().map(|span| line_at(text, span.start));
    let key = place.as_ref().and_then(|span| key_at(text, span));
    let mut message = error.message().trim_end().replace('\n', ", ");
    let unknown = message.strip_prefix("unknown field `");
    let unknown = unknown.and_then(|rest| rest.split('`').next());
    if let Some(home) = unknown.and_then(home_of) {
        message.push_str(&format!("; {home}"));
    }
    if let Some(section) = place.and_then(|span| bounds_in(text, &span)) {
        message.push_str(&format!(
            "; what bounds caps is never ignored: take the key out of [{section}], or install the litd that knows it; \
             caps stay as they are"
        ));
    }
    Finding {
        line,
        reason: key.map_or(message.clone(), |key| format!("{key}: {message}")),
    }
}

/// Where keys of this name belong, if there are any: the shipped file has every key.
pub(super) fn home_of(key: &str) -> Option<String> {
    let mut header = None;
    let mut homes = Vec::new();
    for line in DEFAULT_FILE.lines() {
        if line.starts_with('[') {
            header = Some(line.trim_end());
        }
        let name = line.strip_prefix('#').and_then(|it| it.split_once(" = "));
        if name.is_some_and(|(name, _)| name == key) {
            homes.push(header.unwrap_or("the file's top, before the first section"));
        }
    }
    let homes = homes.join(" and of ");
    (!homes.is_empty()).then(|| format!("`{key}` is a key of {homes}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;

    fn said(text: &str) -> String {
        let refused = Config::parse(text, Path::new("litd.toml")).unwrap_err();
        refused.to_string()
    }

    #[test]
    fn all_mistakes_are_told_at_once_each_with_its_line() {
        let said = said(
            "budget = 4000\nmode = \"drive\"\n[caps]\nbudgett = 3\ngpu_floor = \"high\"\nsafe_budget = 4000\n\
             [law]\nfoo = 1\n[law.model]\nmax_samples = \"x\"\n[ingest]\nsocket = 3\n",
        );
        let lines: Vec<&str> = said.lines().collect();
        let begun = [
            "litd.toml:1: unknown key `budget`; `budget` is a key of [caps] and of [node]",
            "litd.toml:2: ",
            "litd.toml:4: unknown field `budgett`",
            "litd.toml:5: caps.gpu_floor: invalid type",
            "litd.toml:8: unknown field `foo`",
            "litd.toml:10: law.model.max_samples: invalid type",
            "litd.toml:12: ingest.socket: invalid type",
        ];
        assert_eq!(lines.len(), begun.len(), "{said}");
        for (line, begun) in lines.iter().zip(begun) {
            assert!(line.starts_with(begun), "{line}");
        }
    }

    #[test]
    fn a_key_in_the_wrong_section_is_told_where_it_belongs() {
        let misplaced = said("[caps]\nmode = \"steer\"\n");
        let home = "`mode` is a key of the file's top, before the first section and of [ingest]";
        assert!(misplaced.contains(home), "{misplaced}");
        let nowhere = said("[jobs]\nnope = 1\n");
        assert!(!nowhere.contains("is a key of"), "{nowhere}");
    }

    #[test]
    fn a_file_of_nothing_but_mistakes_is_told_in_twenty_lines() {
        let text: String = (0..5000).map(|it| format!("nope{it} = 1\n")).collect();
        let said = said(&format!("[caps]\n{text}"));
        assert_eq!(said.lines().count(), 20, "{said}");
    }
}
