//! The paper's lists: `name = [ op("bsm,mf->bsf", parallel="f", label="Gate"), ... ]`, and overrides of
//! symbols: `i = (2 + r) * K * h`.

use super::einsum::Einsum;
use super::lexer::{Token, Word, words};
use super::symbols::{Expression, Symbol};
use super::{Equation, Keys, Op, Place, Spec, SpecError, listings};

/// A list's name by which attention finds its inner equations where it names none.
const INNER: &str = "attn_eqs";

pub(super) fn parse(source: &str) -> Result<Spec, SpecError> {
    let mut parser = Parser {
        source,
        words: words(source)?,
        next: 0,
        lists: Vec::new(),
    };
    let mut overrides = Vec::new();
    let mut last = None;
    while parser.peek().is_some() {
        let (name, place) = parser.name("a list's or symbol's name")?;
        parser.sign('=')?;
        if parser.is_sign('[') {
            let ops = parser.list()?;
            if name != INNER {
                last = Some(ops.clone());
            }
            parser.lists.push((name, ops));
            continue;
        }
        let letter = name.chars().next().filter(|_| name.len() == 1);
        match letter.and_then(Symbol::new) {
            Some(symbol) => overrides.push((symbol, parser.sum()?)),
            None => {
                let what =
                    format!("{name:?} is neither a list (name = [...]) nor a symbol of one letter");
                return Err(parser.wrong(place, what));
            }
        }
    }
    match last {
        Some(ops) if !ops.is_empty() => Ok(Spec { ops, overrides }),
        _ => {
            let what =
                "there is no list of operators: write model.EQS = [ op(\"bsm,mf->bsf\"), ... ]";
            Err(parser.wrong(Place { line: 1, column: 1 }, what))
        }
    }
}

struct Parser<'a> {
    source: &'a str,
    words: Vec<Word>,
    next: usize,
    lists: Vec<(String, Vec<Op>)>,
}

impl Parser<'_> {
    fn wrong(&self, place: Place, what: impl Into<String>) -> SpecError {
        SpecError::at(self.source, place, what)
    }

    fn peek(&self) -> Option<&Word> {
        self.words.get(self.next)
    }

    /// The place of the next word, or of the text's end.
    fn place(&self) -> Place {
        let end = || Place {
            line: self.source.lines().count().max(1),
            column: self
                .source
                .lines()
                .last()
                .map_or(0, |it| it.chars().count())
                + 1,
        };
        self.peek().map_or_else(end, |it| it.place)
    }

    fn is_sign(&self, sign: char) -> bool {
        self.peek().is_some_and(|it| it.token == Token::Sign(sign))
    }

    fn sign(&mut self, sign: char) -> Result<(), SpecError> {
        match self.is_sign(sign) {
            true => {
                self.next += 1;
                Ok(())
            }
            false => Err(self.wrong(self.place(), format!("{sign:?} is missing here"))),
        }
    }

    fn name(&mut self, what: &str) -> Result<(String, Place), SpecError> {
        match self.peek() {
            Some(Word {
                token: Token::Name(name),
                place,
                ..
            }) => {
                let found = (name.clone(), *place);
                self.next += 1;
                Ok(found)
            }
            _ => Err(self.wrong(self.place(), format!("{what} is missing here"))),
        }
    }

    fn text(&mut self) -> Result<(String, Place), SpecError> {
        match self.peek() {
            Some(Word {
                token: Token::Text(text),
                place,
                ..
            }) => {
                let found = (text.clone(), *place);
                self.next += 1;
                Ok(found)
            }
            _ => Err(self.wrong(self.place(), "a text in quotes is missing here")),
        }
    }

    /// `[ op(...), op(...) ]`; a comma before the end may stand.
    fn list(&mut self) -> Result<Vec<Op>, SpecError> {
        self.sign('[')?;
        let mut ops = Vec::new();
        while !self.is_sign(']') {
            ops.push(self.op()?);
            if !self.is_sign(']') {
                self.sign(',')?;
            }
        }
        self.sign(']')?;
        Ok(ops)
    }

    fn op(&mut self) -> Result<Op, SpecError> {
        let (name, place) = self.name("op(...)")?;
        if name != "op" {
            return Err(self.wrong(place, format!("{name:?} is no operator: write op(\"...\")")));
        }
        self.sign('(')?;
        let (equation, at) = self.text()?;
        let mut keys = Keys::default();
        let mut inner = None;
        while !self.is_sign(')') {
            self.sign(',')?;
            if self.is_sign(')') {
                break;
            }
            let (key, place) = self.name("a key, such as parallel=")?;
            self.sign('=')?;
            match key.as_str() {
                "attn_eqs" => inner = Some(self.inner()?),
                _ => self.value(&key, place, &mut keys)?,
            }
        }
        self.sign(')')?;
        let equation = match equation.trim() == "attention" {
            true => Equation::Attention(match inner {
                Some(ops) => ops,
                None => self.inner_in_scope()?,
            }),
            false if inner.is_some() => {
                return Err(self.wrong(at, "only op(\"attention\") has attn_eqs"));
            }
            false => Equation::Einsum(Einsum::parse(&equation, at, self.source)?),
        };
        keys.op(equation, at, self.source)
    }

    /// A list by its name, or written in place.
    fn inner(&mut self) -> Result<Vec<Op>, SpecError> {
        if self.is_sign('[') {
            return self.list();
        }
        let (name, place) = self.name("a list of equations")?;
        let found = self.lists.iter().rev().find(|it| it.0 == name);
        match found {
            Some((_, ops)) => Ok(ops.clone()),
            None if name == INNER => self.inner_in_scope(),
            None => Err(self.wrong(place, format!("no list is called {name:?} above"))),
        }
    }

    /// The last list of that name, or Listing 4.
    fn inner_in_scope(&self) -> Result<Vec<Op>, SpecError> {
        let found = self.lists.iter().rev().find(|it| it.0 == INNER);
        found.map_or_else(listings::attention, |it| Ok(it.1.clone()))
    }

    fn value(&mut self, key: &str, place: Place, keys: &mut Keys) -> Result<(), SpecError> {
        match key {
            "parallel" => keys.parallel = Some(self.symbol()?),
            "CP_dim" => keys.cp_dim = Some(self.symbol()?),
            "overlap" => keys.along = Some(self.symbol()?.0),
            "overlap_stage" => keys.stages = Some(self.whole(1, 1024)?),
            "overlap_SM" => keys.sms = Some(self.whole(1, 1024)?),
            "label" => keys.label = Some(self.text()?.0),
            _ => {
                let what = format!(
                    "{key:?} is no key: there are parallel, CP_dim, overlap_stage, overlap_SM, overlap, attn_eqs and label"
                );
                return Err(self.wrong(place, what));
            }
        }
        Ok(())
    }

    fn symbol(&mut self) -> Result<(Symbol, Place), SpecError> {
        let (text, place) = self.text()?;
        let mut letters = text.trim().chars();
        match (letters.next().and_then(Symbol::new), letters.next()) {
            (Some(symbol), None) => Ok((symbol, place)),
            _ => Err(self.wrong(
                place,
                format!("{text:?} is no symbol: a dimension is one letter"),
            )),
        }
    }

    fn whole(&mut self, least: u32, most: u32) -> Result<u32, SpecError> {
        let place = self.place();
        match self.peek().map(|it| &it.token) {
            Some(&Token::Number(number))
                if number.fract() == 0.0
                    && (f64::from(least)..=f64::from(most)).contains(&number) =>
            {
                self.next += 1;
                Ok(number as u32)
            }
            _ => Err(self.wrong(
                place,
                format!("a whole number of {least} to {most} is needed here"),
            )),
        }
    }

    /// Terms joined by + and -, to the end of the line.
    fn sum(&mut self) -> Result<Expression, SpecError> {
        let mut left = self.product()?;
        while let Some(sign) = self.operator(&['+', '-']) {
            left = Expression::Joined(sign, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, SpecError> {
        let mut left = self.factor(0)?;
        while let Some(sign) = self.operator(&['*', '/']) {
            left = Expression::Joined(sign, Box::new(left), Box::new(self.factor(0)?));
        }
        Ok(left)
    }

    fn operator(&mut self, signs: &[char]) -> Option<char> {
        match self.peek() {
            Some(Word {
                token: Token::Sign(sign),
                first: false,
                ..
            }) if signs.contains(sign) => {
                let sign = *sign;
                self.next += 1;
                Some(sign)
            }
            _ => None,
        }
    }

    /// A number, a symbol or a sum in parentheses; these may be 16 deep.
    fn factor(&mut self, depth: usize) -> Result<Expression, SpecError> {
        let place = self.place();
        let token = self.peek().map(|it| it.token.clone());
        self.next += 1;
        match token {
            Some(Token::Number(number)) => Ok(Expression::Number(number)),
            Some(Token::Name(name)) if name.len() == 1 => {
                let symbol = name.chars().next().and_then(Symbol::new);
                let what = || self.wrong(place, format!("{name:?} is no symbol"));
                symbol.map(Expression::Symbol).ok_or_else(what)
            }
            Some(Token::Sign('(')) if depth < 16 => {
                let inside = self.parenthesis(depth + 1)?;
                self.sign(')')?;
                Ok(inside)
            }
            _ => {
                self.next -= 1;
                Err(self.wrong(place, "a number or a symbol of one letter is missing here"))
            }
        }
    }

    /// A sum whose factors are one level deeper.
    fn parenthesis(&mut self, depth: usize) -> Result<Expression, SpecError> {
        let mut left = self.factor(depth)?;
        while let Some(sign) = self.operator(&['+', '-', '*', '/']) {
            let mut right = self.factor(depth)?;
            if "+-".contains(sign) {
                while let Some(inner) = self.operator(&['*', '/']) {
                    right =
                        Expression::Joined(inner, Box::new(right), Box::new(self.factor(depth)?));
                }
            }
            left = Expression::Joined(sign, Box::new(left), Box::new(right));
        }
        Ok(left)
    }
}
