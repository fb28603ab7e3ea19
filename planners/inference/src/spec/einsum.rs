//! An equation: "bsm,miKh->bsiKh".

use std::fmt;

use super::symbols::Symbol;
use super::{Place, SpecError};

/// Symbols of one or two operands and of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Einsum {
    inputs: Vec<Vec<Symbol>>,
    output: Vec<Symbol>,
}

impl Einsum {
    /// Parses the text of an equation, whose first character stands at `place` of `source`.
    pub(super) fn parse(equation: &str, place: Place, source: &str) -> Result<Self, SpecError> {
        let wrong = |at: usize, what: String| {
            let column = place.column + at;
            SpecError::at(source, Place { column, ..place }, what)
        };
        let Some(arrow) = equation.find("->") else {
            let what = "an equation needs \"->\" before its output, as in \"bsm,mf->bsf\"";
            return Err(wrong(0, what.to_owned()));
        };
        let (left, right) = (&equation[..arrow], &equation[arrow + 2..]);
        let mut inputs = Vec::new();
        let mut begin = 0;
        for operand in left.split(',') {
            inputs.push(operand_of(operand, begin, &wrong)?);
            begin += operand.len() + 1;
        }
        if inputs.len() > 2 {
            let what = format!("{} operands: an operator has one or two", inputs.len());
            return Err(wrong(0, what));
        }
        let output = operand_of(right, arrow + 2, &wrong)?;
        let symbols = |tensor: &[(Symbol, usize)]| tensor.iter().map(|it| it.0).collect::<Vec<_>>();
        let einsum = Self {
            inputs: inputs.iter().map(|it| symbols(it)).collect(),
            output: symbols(&output),
        };
        let new = output.iter().find(|it| !einsum.is_input(it.0));
        match new {
            // A copy of one operand: bsm->bsmA.
            Some(_) if einsum.inputs.len() == 1 => Ok(einsum),
            Some((symbol, at)) => {
                let what = format!(
                    "{:?} is in the output but in no operand: add it to one, as in \"bsm,miKh->bsiKh\"",
                    symbol.0
                );
                Err(wrong(*at, what))
            }
            None => Ok(einsum),
        }
    }

    /// The operands.
    #[must_use]
    pub fn inputs(&self) -> &[Vec<Symbol>] {
        &self.inputs
    }

    /// The result.
    #[must_use]
    pub fn output(&self) -> &[Symbol] {
        &self.output
    }

    fn is_input(&self, symbol: Symbol) -> bool {
        self.inputs.iter().any(|it| it.contains(&symbol))
    }

    /// Whether the symbol occurs.
    #[must_use]
    pub fn has(&self, symbol: Symbol) -> bool {
        self.is_input(symbol) || self.output.contains(&symbol)
    }

    /// Whether the symbol is summed over: Algorithm 1's question.
    #[must_use]
    pub fn sums(&self, symbol: Symbol) -> bool {
        self.is_input(symbol) && !self.output.contains(&symbol)
    }

    /// Every symbol once.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol> {
        let mut all: Vec<Symbol> = self.inputs.iter().flatten().copied().collect();
        all.extend(&self.output);
        all.sort_unstable();
        all.dedup();
        all.into_iter()
    }
}

/// A tensor's symbols and where they stand in the equation.
fn operand_of(
    text: &str,
    begin: usize,
    wrong: &impl Fn(usize, String) -> SpecError,
) -> Result<Vec<(Symbol, usize)>, SpecError> {
    let mut symbols: Vec<(Symbol, usize)> = Vec::new();
    for (at, letter) in text.chars().enumerate() {
        if letter == ' ' {
            continue;
        }
        let at = begin + at;
        let Some(symbol) = Symbol::new(letter) else {
            let what = format!("{letter:?} is no symbol: a dimension is one letter");
            return Err(wrong(at, what));
        };
        if symbols.iter().any(|it| it.0 == symbol) {
            let what =
                format!("{letter:?} stands twice in one tensor: diagonals are no operators here");
            return Err(wrong(at, what));
        }
        symbols.push((symbol, at));
    }
    match symbols.is_empty() {
        true => Err(wrong(begin, "a tensor has no symbols".to_owned())),
        false => Ok(symbols),
    }
}

impl fmt::Display for Einsum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |tensor: &[Symbol]| tensor.iter().map(|it| it.0).collect::<String>();
        let inputs: Vec<String> = self.inputs.iter().map(|it| text(it)).collect();
        write!(f, "{}->{}", inputs.join(","), text(&self.output))
    }
}
