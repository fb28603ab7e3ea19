//! Symbols of one letter (Table 2), their values, and arithmetic with them for overrides.

use std::fmt;

/// A dimension: one ASCII letter, case matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub(crate) char);

impl Symbol {
    /// Query heads, H.
    pub const QUERY_HEADS: Self = Self('H');

    /// The symbol of a letter.
    #[must_use]
    pub fn new(letter: char) -> Option<Self> {
        letter.is_ascii_alphabetic().then_some(Self(letter))
    }

    /// Where its value is kept.
    fn index(self) -> usize {
        match self.0 {
            'A'..='Z' => self.0 as usize - 'A' as usize,
            letter => 26 + (letter as usize).saturating_sub('a' as usize).min(25),
        }
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Values of symbols; most letters have none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Symbols {
    values: [f64; 52],
}

impl Default for Symbols {
    fn default() -> Self {
        Self {
            values: [f64::NAN; 52],
        }
    }
}

impl Symbols {
    /// The value; none where the letter is not defined.
    #[must_use]
    pub fn get(&self, symbol: Symbol) -> Option<f64> {
        let value = self.values[symbol.index()];
        (!value.is_nan()).then_some(value)
    }

    /// The value of a symbol that was found defined before.
    pub(crate) fn value(&self, symbol: Symbol) -> f64 {
        self.values[symbol.index()]
    }

    /// Defines a letter.
    pub fn set(&mut self, letter: char, value: f64) {
        if let Some(symbol) = Symbol::new(letter) {
            self.values[symbol.index()] = value;
        }
    }

    /// The letters that are defined, as an error lists them.
    #[must_use]
    pub fn known(&self) -> String {
        let letters = ('A'..='Z').chain('a'..='z');
        let defined =
            letters.filter(|&it| Symbol::new(it).is_some_and(|it| self.get(it).is_some()));
        defined.map(String::from).collect::<Vec<_>>().join(" ")
    }
}

/// Arithmetic of an override, such as (2 + r) * K * h.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A number.
    Number(f64),
    /// A symbol's value.
    Symbol(Symbol),
    /// Two values joined by one of + - * /.
    Joined(char, Box<Expression>, Box<Expression>),
}

impl Expression {
    /// The expression's value, or the first undefined symbol.
    ///
    /// # Errors
    /// A symbol is not defined.
    pub fn value(&self, symbols: &Symbols) -> Result<f64, Symbol> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Symbol(symbol) => symbols.get(*symbol).ok_or(*symbol),
            Self::Joined(operator, left, right) => {
                let (left, right) = (left.value(symbols)?, right.value(symbols)?);
                Ok(match operator {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ => left / right,
                })
            }
        }
    }
}
