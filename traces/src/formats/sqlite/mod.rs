//! SQLite files: rocprofv3's rocpd, rocmProfileData's .rpd and Nsight Systems' export. Which of
//! them one is, its tables tell. Only tables are read, one after the other: a view of a hostile
//! file could compute for ever.

mod nsys;
mod rocpd;
mod rpd;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

use super::{Head, Input, rocprof_v1};
use crate::error::ReadError;
use crate::gather::{Fault, Found};
pub(super) use nsys::ADVICE as NSYS_ADVICE;

/// The longest value that is read, in bytes.
const VALUE_LIMIT: i32 = 16 << 20;
/// The most that is unpacked to a temporary file, in GiB.
const UNPACKED_LIMIT: u64 = 4;

/// Which tables a profiler makes, and what reads them.
struct Schema {
    /// Whether it made these.
    wrote: fn(&Tables) -> bool,
    read: fn(&Tables) -> Result<Found, Trouble>,
}

/// All schemas, in the order in which they are tried.
#[rustfmt::skip]
const SCHEMAS: [Schema; 4] = [
    Schema { wrote: nsys::wrote, read: nsys::read },
    Schema { wrote: rpd::wrote, read: rpd::read },
    Schema { wrote: rocpd::wrote, read: rocpd::read },
    Schema { wrote: rocprof_v1::database::wrote, read: rocprof_v1::database::read },
];

/// Whether a file that begins so is one of SQLite's.
pub(super) fn wrote(head: &Head<'_>) -> bool {
    head.bytes.starts_with(b"SQLite format 3\0")
}

/// Reads an SQLite file: the one at the input's path, or a copy of what its source yields.
pub(super) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    let Input { source, path, file } = input;
    let io = |cause| ReadError::Io {
        file: file.into(),
        cause,
    };
    let copy;
    let path = match path {
        Some(path) => path,
        None => {
            copy = spooled(source, UNPACKED_LIMIT << 30).map_err(io)?;
            let copy = copy.as_ref().ok_or_else(|| ReadError::TooLargeUnpacked {
                file: file.into(),
                limit: UNPACKED_LIMIT,
            })?;
            copy.path()
        }
    };
    let size = std::fs::metadata(path).map_err(io)?.len();
    let explain = |trouble: Trouble| match trouble {
        Trouble::Content(fault) => ReadError::of(fault, file),
        Trouble::Sqlite(what) => ReadError::Sqlite {
            file: file.into(),
            what,
        },
        Trouble::Other => ReadError::OtherDatabase { file: file.into() },
    };
    Tables::open(path, size)
        .and_then(|tables| tables.read())
        .map_err(explain)
}

/// A temporary file with all that a source yields; none if that is too much.
fn spooled(source: impl Read, limit: u64) -> io::Result<Option<tempfile::NamedTempFile>> {
    let mut copy = tempfile::NamedTempFile::new()?;
    let copied = io::copy(&mut source.take(limit + 1), &mut copy)?;
    copy.as_file_mut().seek(SeekFrom::Start(0))?;
    Ok((copied <= limit).then_some(copy))
}

/// What is wrong, without the file's name.
pub(super) enum Trouble {
    Sqlite(String),
    Content(Fault),
    /// Nothing, but no known profiler wrote it.
    Other,
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let advice = match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => "; it is damaged or incomplete, copy it again",
            _ => "",
        };
        Self::Sqlite(format!("{error}{advice}"))
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Content(fault)
    }
}

/// The tables of an open file, by name.
pub(super) struct Tables {
    connection: Connection,
    /// The columns of each.
    columns: HashMap<String, Vec<String>>,
    /// More records than this no file of this size can have; a damaged one may seem to.
    most: u64,
}

impl Tables {
    fn open(path: &Path, size: u64) -> Result<Self, Trouble> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_LIMIT)?;
        connection.execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA cache_size = -16384;",
        )?;
        let mut columns = HashMap::new();
        {
            let query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0";
            let mut names = connection.prepare(query)?;
            let names = names.query_map([], |row| row.get::<_, String>(0))?;
            let names = names.collect::<Result<Vec<_>, _>>()?;
            let mut of_table = connection.prepare("SELECT name FROM pragma_table_info(?)")?;
            for name in names {
                let found = of_table.query_map([&name], |row| row.get::<_, String>(0))?;
                let found = found.collect::<Result<Vec<_>, _>>()?;
                columns.insert(name, found);
            }
        }
        Ok(Self {
            connection,
            columns,
            most: size / 4,
        })
    }

    fn read(&self) -> Result<Found, Trouble> {
        let schema = SCHEMAS.iter().find(|schema| (schema.wrote)(self));
        (schema.ok_or(Trouble::Other)?.read)(self)
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.columns.contains_key(table)
    }

    /// What stands behind the beginning of a table's name, for each such table, in order.
    fn suffixes<'a>(&'a self, beginning: &'a str) -> impl Iterator<Item = &'a str> {
        let mut found = Vec::from_iter(
            self.columns
                .keys()
                .filter_map(move |table| table.strip_prefix(beginning)),
        );
        found.sort_unstable();
        found.into_iter()
    }

    /// The first of some columns that a table has.
    pub(super) fn column<'a>(&self, table: &str, wanted: &[&'a str]) -> Option<&'a str> {
        let columns = self.columns.get(table)?;
        let has = |name: &&&str| columns.iter().any(|column| column == **name);
        wanted.iter().find(has).copied()
    }

    /// Hands out some columns of all rows of a table; one that it lacks is null. A table that is
    /// not there has no rows.
    pub(super) fn scan(
        &self,
        table: &str,
        columns: &[Option<&str>],
        mut take: impl FnMut(u64, &Row<'_>) -> Result<(), Trouble>,
    ) -> Result<u64, Trouble> {
        if !self.has(table) {
            return Ok(0);
        }
        let list = columns
            .iter()
            .map(|column| column.map_or("NULL".into(), quoted));
        let list = list.collect::<Vec<_>>().join(", ");
        let list = if list.is_empty() { "NULL" } else { &list };
        let query = format!("SELECT {list} FROM {}", quoted(table));
        let mut statement = self.connection.prepare(&query)?;
        let mut rows = statement.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            if count > self.most {
                return Err(Trouble::Sqlite(format!(
                    "table {table} has more rows than the file has room for; copy it again"
                )));
            }
            take(count, row)?;
        }
        Ok(count)
    }

    /// Looks texts up by their numbers.
    fn texts<'a>(&'a self, table: &str, text: &[&str], key: &str) -> Result<Texts<'a>, Trouble> {
        let statement = match self.column(table, text) {
            Some(text) => Some(self.connection.prepare(&format!(
                "SELECT {} FROM {} WHERE {} = ?",
                quoted(text),
                quoted(table),
                quoted(key)
            ))?),
            None => None,
        };
        Ok(Texts {
            statement,
            known: HashMap::new(),
        })
    }
}

/// Texts by their numbers, looked up once each.
struct Texts<'a> {
    statement: Option<rusqlite::Statement<'a>>,
    known: HashMap<i64, String>,
}

impl Texts<'_> {
    /// The text, or none.
    fn get(&mut self, key: Option<i64>) -> Result<Option<&str>, Trouble> {
        let (Some(key), Some(statement)) = (key, &mut self.statement) else {
            return Ok(None);
        };
        let text = match self.known.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let found = statement.query_row([key], |row| row.get::<_, Option<String>>(0));
                new.insert(found.optional()?.flatten().unwrap_or_default())
            }
        };
        Ok(Some(text.as_str()).filter(|text| !text.is_empty()))
    }
}

/// A name as SQL has it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A label of a row: a number or a text as text, nothing for null.
pub(super) fn label(row: &Row<'_>, at: usize) -> Result<String, Trouble> {
    use rusqlite::types::ValueRef;
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    })
}

/// A number of a row. One that can't be read is as good as none: what it would tell is not needed.
fn optional(row: &Row<'_>, at: usize) -> Option<i64> {
    row.get::<_, Option<i64>>(at).ok().flatten()
}

/// A GPU's label, which has to tell apart GPUs of several processes that number theirs from 0.
fn gpu_label(gpu: &str, process: &str, several: bool) -> String {
    match several {
        true => format!("{gpu} of process {process}"),
        false => gpu.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_unpacked_than_the_limit() {
        assert!(spooled(io::repeat(0), 1 << 20).unwrap().is_none());
        let all = spooled(io::repeat(0).take(1 << 20), 1 << 20).unwrap();
        assert_eq!(all.unwrap().path().metadata().unwrap().len(), 1 << 20);
    }
}
