//! The specification of a model: lists of einsums with how they are shared among GPUs, as the paper writes
//! them (section 3.1, Listings 1 to 5) or as TOML. Text is parsed, never evaluated.

mod einsum;
mod lexer;
pub mod listings;
mod symbols;
mod text;
mod toml;

use std::fmt;

pub use einsum::Einsum;
pub use symbols::{Expression, Symbol, Symbols};

/// A place in a specification's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
}

/// An error in a specification, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// Where.
    pub place: Place,
    /// The line as it stands, for the pointer below it; empty where there is none.
    pub excerpt: String,
    /// The error, and the correct form.
    pub what: String,
}

impl SpecError {
    /// An error at a place of a text.
    fn at(text: &str, place: Place, what: impl Into<String>) -> Self {
        let line = text.lines().nth(place.line.saturating_sub(1));
        Self {
            place,
            excerpt: line.unwrap_or_default().to_owned(),
            what: what.into(),
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, column } = self.place;
        write!(f, "line {line}, column {column}: {}", self.what)?;
        if !self.excerpt.is_empty() {
            let pointer = " ".repeat(column.saturating_sub(1));
            write!(f, "\n  {}\n  {pointer}^", self.excerpt)?;
        }
        Ok(())
    }
}

impl std::error::Error for SpecError {}

/// The computation of an operator.
#[derive(Debug, Clone, PartialEq)]
pub enum Equation {
    /// An einsum.
    Einsum(Einsum),
    /// Attention, by its inner equations: queries with keys, then with values.
    Attention(Vec<Op>),
}

/// How an operator is shared among GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// Every GPU computes all of it.
    Replicated,
    /// Tensor or expert parallelism along a symbol (`parallel=`).
    Parallel(Symbol),
    /// Context parallelism along a symbol (`CP_dim=`).
    Context(Symbol),
}

/// Compute and communication in stages (section 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Stages; at least 2.
    pub stages: u32,
    /// Multiprocessors that communicate.
    pub sms: u32,
    /// The symbol along which the product is cut.
    pub along: Symbol,
}

/// An operator of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// The computation.
    pub equation: Equation,
    /// How it is shared.
    pub sharding: Sharding,
    /// The overlap with communication, if any.
    pub overlap: Option<Overlap>,
    /// The operator's name in breakdowns.
    pub label: String,
    /// Where it is written.
    pub place: Place,
}

/// A model's layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The layer's operators, in order.
    pub ops: Vec<Op>,
    /// Symbols that this specification defines otherwise than Table 2 does, in order.
    pub overrides: Vec<(Symbol, Expression)>,
}

impl Spec {
    /// Reads a specification: TOML where it begins as that does, and the paper's lists otherwise.
    ///
    /// # Errors
    /// The text is no specification; the error points at the character.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        match toml::is_meant(text) {
            true => toml::parse(text),
            false => text::parse(text),
        }
    }

    /// The same specification with every all-reduced product of this label overlapped.
    #[must_use]
    pub fn with_overlap(mut self, labels: &[&str], overlap: Option<Overlap>) -> Self {
        for op in &mut self.ops {
            if labels.contains(&op.label.as_str()) {
                op.overlap = overlap;
            }
        }
        self
    }
}

/// The keys of an operator besides its equation, as both forms give them.
#[derive(Default)]
struct Keys {
    parallel: Option<(Symbol, Place)>,
    cp_dim: Option<(Symbol, Place)>,
    stages: Option<u32>,
    sms: Option<u32>,
    along: Option<Symbol>,
    label: Option<String>,
}

impl Keys {
    /// The operator, if its keys agree with each other and with the equation.
    fn op(self, equation: Equation, place: Place, source: &str) -> Result<Op, SpecError> {
        let sharding = match (self.parallel, self.cp_dim) {
            (Some(_), Some((_, place))) => {
                let what = "parallel and CP_dim are given both: an operator is shared in one way";
                return Err(SpecError::at(source, place, what));
            }
            (Some((symbol, place)), None) => {
                Self::occurs(symbol, &equation, place, source)?;
                Sharding::Parallel(symbol)
            }
            (None, Some((symbol, place))) => {
                Self::occurs(symbol, &equation, place, source)?;
                Sharding::Context(symbol)
            }
            (None, None) => Sharding::Replicated,
        };
        let overlap = match (self.stages, self.sms, self.along) {
            (None | Some(0 | 1), _, _) => None,
            (Some(stages), sms, Some(along)) => Some(Overlap {
                stages,
                sms: sms.unwrap_or(16),
                along,
            }),
            (Some(_), _, None) => {
                let what = "overlap_stage is given without overlap: name the symbol along which stages are cut, \
                            such as overlap=\"s\"";
                return Err(SpecError::at(source, place, what));
            }
        };
        if let (Some(Overlap { along, .. }), Equation::Einsum(einsum)) = (overlap, &equation)
            && !einsum.output().contains(&along)
        {
            let what = format!(
                "overlap={:?} is no symbol of the output: stages cut the output",
                along.0
            );
            return Err(SpecError::at(source, place, what));
        }
        let label = self.label.unwrap_or_else(|| match &equation {
            Equation::Einsum(einsum) => einsum.to_string(),
            Equation::Attention(_) => "Attention".to_owned(),
        });
        Ok(Op {
            equation,
            sharding,
            overlap,
            label,
            place,
        })
    }

    fn occurs(
        symbol: Symbol,
        equation: &Equation,
        place: Place,
        source: &str,
    ) -> Result<(), SpecError> {
        let found = match equation {
            Equation::Einsum(einsum) => einsum.has(symbol),
            // The inner equations decide; H stands for K and r together.
            Equation::Attention(inner) => {
                let inside = |op: &Op| match &op.equation {
                    Equation::Einsum(einsum) => einsum.has(symbol),
                    Equation::Attention(_) => false,
                };
                symbol == Symbol::QUERY_HEADS || inner.iter().any(inside)
            }
        };
        match found {
            true => Ok(()),
            false => {
                let what = format!("{:?} does not occur in the equation", symbol.0);
                Err(SpecError::at(source, place, what))
            }
        }
    }
}
