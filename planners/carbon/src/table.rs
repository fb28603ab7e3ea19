//! Comma-separated tables with a line of column names.

use thiserror::Error;

/// Why a table can't be used. Lines count from 1, the line of column names included.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TableError {
    #[error("the file is empty; its first line must name its columns: {0}")]
    Empty(String),
    #[error("the first line has no column {column:?}; needed are {needed}")]
    Column { column: String, needed: String },
    #[error("the first line names the column {0:?} twice")]
    Twice(String),
    #[error("the file has column names and no row")]
    NoRow,
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("{0}")]
    Whole(String),
}

impl TableError {
    /// A field that fills a file is not repeated whole.
    pub(crate) fn line(line: usize, what: impl Into<String>) -> Self {
        const LONGEST: usize = 400;
        let mut what = what.into();
        if let Some((end, _)) = what.char_indices().nth(LONGEST) {
            what.truncate(end);
            what.push('…');
        }
        Self::Line { line, what }
    }
}

/// No signal has a larger value: what does is in another unit, or no signal.
pub(crate) const MOST: f64 = 1e6;

/// No table has more columns: names are compared with each other.
const WIDEST: usize = 1000;

/// A table's rows by the names of its columns.
pub(crate) struct Table<'a> {
    header: Vec<&'a str>,
    rows: Vec<Row<'a>>,
}

/// A row.
pub(crate) struct Row<'a> {
    /// From 1, the line of column names included.
    pub line: usize,
    fields: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// Reads a table that has at least these columns, in any order.
    pub fn read(text: &'a str, needed: &[&str]) -> Result<Self, TableError> {
        // Spreadsheets begin their files with a mark of the byte order.
        let text = text.trim_start_matches('\u{feff}');
        // A line that begins with # is a comment, such as one that says SIMULATED.
        let is_row = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
        let mut lines = text.lines().enumerate();
        let header = lines.find(|(_, line)| is_row(line));
        let Some((at, header)) = header else {
            return Err(TableError::Empty(needed.join(",")));
        };
        let header = split(header);
        if header.len() > WIDEST {
            let what = format!(
                "it names {} columns, and at most {WIDEST} can be read",
                header.len()
            );
            return Err(TableError::line(at + 1, what));
        }
        for (at, name) in header.iter().enumerate() {
            if header[..at].contains(name) {
                return Err(TableError::Twice((*name).to_owned()));
            }
        }
        if let Some(missing) = needed.iter().find(|name| !header.contains(name)) {
            return Err(TableError::Column {
                column: (*missing).to_owned(),
                needed: needed.join(","),
            });
        }
        let rows = lines.filter(|(_, line)| is_row(line));
        let rows: Vec<Row> = rows
            .map(|(at, line)| Row {
                line: at + 1,
                fields: split(line),
            })
            .collect();
        match rows.is_empty() {
            true => Err(TableError::NoRow),
            false => Ok(Self { header, rows }),
        }
    }

    /// Looks whether each row has as many fields as the first line names; more may be there if they are empty.
    pub fn check_lengths(&self) -> Result<(), TableError> {
        self.check_surplus()?;
        let is_short = |row: &&Row| row.fields.len() < self.header.len();
        match self.rows.iter().find(is_short) {
            Some(short) => Err(self.length(short, "is the file cut?")),
            None => Ok(()),
        }
    }

    /// Looks whether no row has more fields than the first line names, unless they are empty: whoever writes 1,5 for
    /// one and a half moves all fields after it.
    pub fn check_surplus(&self) -> Result<(), TableError> {
        let has_more = |row: &&Row| {
            let mut more = row.fields.iter().skip(self.header.len());
            more.any(|field| !field.is_empty())
        };
        match self.rows.iter().find(has_more) {
            Some(long) => Err(self.length(long, "a comma in a number?")),
            None => Ok(()),
        }
    }

    fn length(&self, row: &Row, question: &str) -> TableError {
        let (given, named) = (row.fields.len(), self.header.len());
        let what =
            format!("the row has {given} fields and the first line names {named}: {question}");
        TableError::line(row.line, what)
    }

    /// The text that a column has in every row; none where there is no such column or it is empty.
    pub fn same(&self, name: &str) -> Result<Option<&'a str>, TableError> {
        let Some(column) = self.column(name) else {
            return Ok(None);
        };
        let mut same: Option<&'a str> = None;
        for row in &self.rows {
            let own = row.fields.get(column).copied().unwrap_or_default();
            match same {
                Some(before) if before != own => {
                    let what = format!("the {name} is {own:?} and was {before:?}: a file has one");
                    return Err(TableError::line(row.line, what));
                }
                _ => same = Some(own),
            }
        }
        Ok(same.filter(|it| !it.is_empty()))
    }

    /// Where a column is, if the table has it.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|it| *it == name)
    }

    pub fn rows(&self) -> &[Row<'a>] {
        &self.rows
    }

    pub fn name(&self, column: usize) -> &'a str {
        self.header[column]
    }
}

impl<'a> Row<'a> {
    /// The text in a column; empty where the row is too short.
    pub fn text(&self, column: usize) -> &'a str {
        self.fields.get(column).copied().unwrap_or_default()
    }

    /// The number in a column; `None` where the field is empty.
    pub fn number(&self, column: usize, name: &str) -> Result<Option<f64>, TableError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse().ok().filter(|it: &f64| it.is_finite());
        let wrong = || TableError::line(self.line, format!("{name} {text:?} is no number"));
        number.map(Some).ok_or_else(wrong)
    }
}

fn split(line: &str) -> Vec<&str> {
    line.split(',')
        .map(|field| field.trim().trim_matches('"'))
        .collect()
}
