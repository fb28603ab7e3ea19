//! The same as TOML: `[[op]]` with `eq`, the keys of the paper's lists and for attention `attn_eqs`, an
//! array of such tables; `[symbols]` has overrides.

use serde::Deserialize;
use toml::Spanned;

use super::einsum::Einsum;
use super::symbols::{Expression, Symbol};
use super::{Equation, Keys, Op, Place, Spec, SpecError, listings};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    op: Vec<Table>,
    #[serde(default)]
    symbols: std::collections::BTreeMap<String, Spanned<f64>>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Table {
    eq: Spanned<String>,
    parallel: Option<Spanned<String>>,
    #[serde(rename = "CP_dim")]
    cp_dim: Option<Spanned<String>>,
    overlap_stage: Option<Spanned<u32>>,
    #[serde(rename = "overlap_SM")]
    overlap_sm: Option<Spanned<u32>>,
    overlap: Option<Spanned<String>>,
    label: Option<String>,
    attn_eqs: Option<Vec<Table>>,
}

/// Whether the text means to be TOML: its first line that says something is a table's head.
pub(super) fn is_meant(text: &str) -> bool {
    let line = text
        .lines()
        .map(str::trim)
        .find(|it| !it.is_empty() && !it.starts_with('#'));
    line.is_some_and(|it| it.starts_with("[[op]]") || it.starts_with("[symbols]"))
}

pub(super) fn parse(source: &str) -> Result<Spec, SpecError> {
    let file: File = ::toml::from_str(source).map_err(|error| {
        let begin = error.span().map_or(0, |it| it.start);
        SpecError::at(source, place(source, begin), error.message())
    })?;
    let overrides = file.symbols.iter().map(|(name, value)| {
        let mut letters = name.chars();
        match (letters.next().and_then(Symbol::new), letters.next()) {
            (Some(symbol), None) => Ok((symbol, Expression::Number(*value.get_ref()))),
            _ => {
                let at = place(source, value.span().start);
                let what = format!("{name:?} is no symbol: a dimension is one letter");
                Err(SpecError::at(source, at, what))
            }
        }
    });
    let overrides = overrides.collect::<Result<Vec<_>, _>>()?;
    let ops = file.op.iter().map(|it| op(it, source, 0));
    let ops = ops.collect::<Result<Vec<_>, _>>()?;
    match ops.is_empty() {
        true => Err(SpecError::at(
            source,
            place(source, 0),
            "there is no [[op]]",
        )),
        false => Ok(Spec { ops, overrides }),
    }
}

/// Line and column of a byte.
fn place(source: &str, byte: usize) -> Place {
    let before = source.get(..byte).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |it| it + 1);
    Place {
        line,
        column: before[begin..].chars().count() + 1,
    }
}

fn op(table: &Table, source: &str, depth: usize) -> Result<Op, SpecError> {
    let at = |span: std::ops::Range<usize>| place(source, span.start + 1);
    let symbol = |text: &Spanned<String>| {
        let place = at(text.span());
        let mut letters = text.get_ref().trim().chars();
        match (letters.next().and_then(Symbol::new), letters.next()) {
            (Some(symbol), None) => Ok((symbol, place)),
            _ => {
                let what = format!(
                    "{:?} is no symbol: a dimension is one letter",
                    text.get_ref()
                );
                Err(SpecError::at(source, place, what))
            }
        }
    };
    let whole = |number: &Spanned<u32>| match *number.get_ref() {
        number @ 1..=1024 => Ok(number),
        _ => {
            let place = place(source, number.span().start);
            Err(SpecError::at(
                source,
                place,
                "a whole number of 1 to 1024 is needed here",
            ))
        }
    };
    let keys = Keys {
        parallel: table.parallel.as_ref().map(symbol).transpose()?,
        cp_dim: table.cp_dim.as_ref().map(symbol).transpose()?,
        stages: table.overlap_stage.as_ref().map(whole).transpose()?,
        sms: table.overlap_sm.as_ref().map(whole).transpose()?,
        along: table
            .overlap
            .as_ref()
            .map(symbol)
            .transpose()?
            .map(|it| it.0),
        label: table.label.clone(),
    };
    let text = table.eq.get_ref();
    let begin = at(table.eq.span());
    let equation = match (text.trim() == "attention", &table.attn_eqs) {
        (true, Some(inner)) if depth == 0 => {
            let ops = inner.iter().map(|it| op(it, source, 1));
            Equation::Attention(ops.collect::<Result<Vec<_>, _>>()?)
        }
        (true, None) if depth == 0 => Equation::Attention(listings::attention()?),
        (true, _) => {
            let what = "attention within attention";
            return Err(SpecError::at(source, begin, what));
        }
        (false, Some(_)) => {
            let what = "only eq = \"attention\" has attn_eqs";
            return Err(SpecError::at(source, begin, what));
        }
        (false, None) => Equation::Einsum(Einsum::parse(text, begin, source)?),
    };
    keys.op(equation, begin, source)
}
