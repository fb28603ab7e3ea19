//! The interpreter (section 3.2): which products, movements and collectives the operators of a layer are,
//! found once for a specification, and their sizes for values of the symbols.

mod shapes;

use thiserror::Error;

use crate::kernel::{Heads, Kernel, Precision};
use crate::spec::{Einsum, Equation, Op, Overlap, Sharding, Spec, Symbol, Symbols};

use shapes::Indices;
pub use shapes::Shape;

/// GPUs among which a layer is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Degrees {
    /// Tensor parallelism.
    pub tp: u32,
    /// Expert parallelism, over the same GPUs.
    pub ep: u32,
    /// Context parallelism.
    pub cp: u32,
}

impl Degrees {
    /// A single GPU.
    pub const ONE: Self = Self {
        tp: 1,
        ep: 1,
        cp: 1,
    };

    /// All GPUs: tensor and expert parallelism share theirs.
    #[must_use]
    pub fn gpus(self) -> u32 {
        self.tp.max(self.ep).saturating_mul(self.cp)
    }
}

/// Why a specification does not fit a model or its degrees.
#[derive(Debug, Error, Clone, PartialEq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InterpretError {
    #[error(
        "H = {query} is not K x r = {kv} x {ratio}: the symbols of attention contradict each other"
    )]
    Contradiction { query: f64, kv: f64, ratio: f64 },
    #[error("{label:?}: the symbol {symbol} has no value; there are {known}")]
    Unknown {
        label: String,
        symbol: Symbol,
        known: String,
    },
    #[error(
        "{label:?}: {symbol} = {value} does not divide by a degree of {degree}: {symbol} caps it at {most}"
    )]
    Indivisible {
        label: String,
        symbol: Symbol,
        value: f64,
        degree: u32,
        most: u32,
    },
    #[error("{label:?}: {symbol} is {value}: a size of 1 or more is needed")]
    Nonsense {
        label: String,
        symbol: Symbol,
        value: f64,
    },
    #[error(
        "attention needs two inner equations of two operands each, queries with keys and then with values; {label:?} has {count}"
    )]
    Inner { label: String, count: usize },
    #[error(
        "{label:?}: overlap needs a product whose sum is shared, so that there is an all-reduce to overlap"
    )]
    NothingToOverlap { label: String },
}

/// The kind of an operator of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A product.
    Product,
    /// Moves data only: copies, scatters, weighted sums of few terms.
    Movement,
    /// Attention over the KV cache, of which this is the product of queries and keys.
    Attention,
}

/// An operator, ready for sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    /// The operator's name in breakdowns.
    pub label: String,
    /// The operator's kind.
    pub action: Action,
    einsum: Einsum,
    /// Every symbol of it, once.
    symbols: Vec<Symbol>,
    /// Whether its size depends on how tokens are routed.
    routed: bool,
    indices: Indices,
    /// The symbol that is shared, and how.
    shared: Option<(Symbol, Way)>,
    /// Where attention is shared by H, K must divide as well.
    also: Option<Symbol>,
    /// Whether the sum is shared: an all-reduce follows (Algorithm 1).
    pub reduces: bool,
    /// The stages in which it overlaps with that.
    pub overlap: Option<Overlap>,
    /// Whether an all-to-all comes before (Algorithm 2).
    pub exchanges: bool,
    /// The tensor that the next operator's all-to-all sends.
    result: (Vec<Symbol>, Option<Symbol>),
}

/// By which degree a symbol is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Tensor,
    /// Experts: E and T are of one GPU already, and A is not shared.
    Expert,
    Context,
}

/// A specification, ready for sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The operators of a layer, in order.
    pub operators: Vec<Operator>,
    spec: Spec,
}

impl Program {
    /// Finds what each operator is.
    ///
    /// # Errors
    /// Attention's inner equations are not two products, or an overlap has nothing to overlap with.
    pub fn new(spec: &Spec) -> Result<Self, InterpretError> {
        let operators = spec
            .ops
            .iter()
            .map(operator)
            .collect::<Result<Vec<_>, _>>()?;
        let mut program = Self {
            operators,
            spec: spec.clone(),
        };
        let contexts: Vec<Option<Symbol>> = spec.ops.iter().map(context_of).collect();
        for (at, operator) in program.operators.iter_mut().enumerate() {
            // The first operator follows the last of the layer before.
            let before = contexts[(at + contexts.len() - 1) % contexts.len()];
            operator.exchanges = contexts[at] != before;
        }
        Ok(program)
    }

    /// Whether this specification says itself what a letter is.
    #[must_use]
    pub fn overrides(&self, letter: char) -> bool {
        self.spec.overrides.iter().any(|it| it.0.0 == letter)
    }

    /// The values of the symbols with this specification's overrides, checked against every operator.
    ///
    /// # Errors
    /// A symbol has no value or one below 1, or a degree does not divide one.
    pub fn symbols(&self, base: &Symbols, degrees: Degrees) -> Result<Symbols, InterpretError> {
        let mut symbols = *base;
        for (symbol, expression) in &self.spec.overrides {
            let value = expression
                .value(&symbols)
                .map_err(|unknown| InterpretError::Unknown {
                    label: format!("{symbol} = ..."),
                    symbol: unknown,
                    known: symbols.known(),
                })?;
            symbols.set(symbol.0, value);
        }
        for operator in &self.operators {
            operator.check(&symbols, degrees)?;
        }
        let value = |letter| Symbol::new(letter).and_then(|it| symbols.get(it));
        match (value('H'), value('K'), value('r')) {
            (Some(query), Some(kv), Some(ratio)) if query != kv * ratio => {
                Err(InterpretError::Contradiction { query, kv, ratio })
            }
            _ => Ok(symbols),
        }
    }
}

/// The symbol along which context is shared, which for attention is that of its inner equations.
fn context_of(op: &Op) -> Option<Symbol> {
    match op.sharding {
        Sharding::Context(symbol) => Some(symbol),
        Sharding::Replicated | Sharding::Parallel(_) => None,
    }
}

fn operator(op: &Op) -> Result<Operator, InterpretError> {
    let wrong = |count: usize| InterpretError::Inner {
        label: op.label.clone(),
        count,
    };
    let (einsum, sharding, result, also) = match &op.equation {
        Equation::Einsum(einsum) => (einsum, op.sharding, einsum.output().to_vec(), None),
        Equation::Attention(inner) => {
            let [queries, values] = inner.as_slice() else {
                return Err(wrong(inner.len()));
            };
            let (Equation::Einsum(scores), Equation::Einsum(last)) =
                (&queries.equation, &values.equation)
            else {
                return Err(wrong(2));
            };
            if scores.inputs().len() != 2 || last.inputs().len() != 2 {
                return Err(wrong(1));
            }
            // The inner equations decide; where they say nothing the outer annotation does.
            let inner = match queries.sharding {
                Sharding::Replicated => op.sharding,
                said => said,
            };
            let also = match op.sharding {
                Sharding::Parallel(symbol) | Sharding::Context(symbol) => Some(symbol),
                Sharding::Replicated => None,
            };
            (scores, inner, last.output().to_vec(), also)
        }
    };
    let shared = match sharding {
        Sharding::Replicated => None,
        Sharding::Parallel(symbol) => match symbol.0 {
            'E' | 'A' => Some((symbol, Way::Expert)),
            _ => Some((symbol, Way::Tensor)),
        },
        Sharding::Context(symbol) => Some((symbol, Way::Context)),
    };
    let reduces = match (op.sharding, &op.equation) {
        (Sharding::Parallel(symbol), Equation::Einsum(einsum)) => einsum.sums(symbol),
        _ => false,
    };
    let indices = Indices::of(einsum);
    let action = match &op.equation {
        Equation::Attention(_) => Action::Attention,
        Equation::Einsum(einsum) if einsum.inputs().len() == 1 || indices.is_thin() => {
            Action::Movement
        }
        Equation::Einsum(_) => Action::Product,
    };
    if op.overlap.is_some() && !(reduces && action == Action::Product) {
        return Err(InterpretError::NothingToOverlap {
            label: op.label.clone(),
        });
    }
    Ok(Operator {
        label: op.label.clone(),
        action,
        einsum: einsum.clone(),
        symbols: einsum.symbols().collect(),
        routed: einsum.symbols().any(|it| matches!(it.0, 'E' | 'T')),
        indices,
        shared,
        also: also.filter(|it| Some(*it) != shared.map(|it| it.0)),
        reduces,
        overlap: op.overlap,
        exchanges: false,
        result: (
            result,
            shared.filter(|it| it.1 == Way::Context).map(|it| it.0),
        ),
    })
}

impl Operator {
    fn check(&self, symbols: &Symbols, degrees: Degrees) -> Result<(), InterpretError> {
        for &symbol in &self.symbols {
            let Some(value) = symbols.get(symbol) else {
                return Err(InterpretError::Unknown {
                    label: self.label.clone(),
                    symbol,
                    known: symbols.known(),
                });
            };
            // E and T are averages and may be fractions.
            if !(value > 0.0 && value.is_finite()) {
                return Err(InterpretError::Nonsense {
                    label: self.label.clone(),
                    symbol,
                    value,
                });
            }
        }
        if let Some((symbol, way)) = self.shared {
            let degree = way.degree(degrees);
            for symbol in [Some(symbol), self.also].into_iter().flatten() {
                if way != Way::Expert {
                    self.divides(symbol, symbols, degree)?;
                }
            }
        }
        Ok(())
    }

    fn divides(
        &self,
        symbol: Symbol,
        symbols: &Symbols,
        degree: u32,
    ) -> Result<(), InterpretError> {
        let Some(value) = symbols.get(symbol) else {
            return Err(InterpretError::Unknown {
                label: self.label.clone(),
                symbol,
                known: symbols.known(),
            });
        };
        match value % f64::from(degree) == 0.0 {
            true => Ok(()),
            false => Err(InterpretError::Indivisible {
                label: self.label.clone(),
                symbol,
                value,
                degree,
                most: (1..degree)
                    .rev()
                    .find(|it| value % f64::from(*it) == 0.0)
                    .unwrap_or(1),
            }),
        }
    }

    /// Whether it is attention, whose cache grows from step to step.
    #[must_use]
    pub fn is_attention(&self) -> bool {
        self.action == Action::Attention
    }

    /// Whether it only moves memory.
    #[must_use]
    pub fn is_movement(&self) -> bool {
        self.action == Action::Movement
    }

    /// Whether its size depends on how tokens are routed.
    #[must_use]
    pub fn is_routed(&self) -> bool {
        self.einsum
            .symbols()
            .any(|it| "ET".contains(&it.to_string()))
    }

    /// The size on one GPU.
    #[must_use]
    pub fn shape(&self, symbols: &Symbols, degrees: Degrees) -> Shape {
        self.indices.shape(&self.local(symbols, degrees))
    }

    /// The symbols' values on one GPU.
    fn local(&self, symbols: &Symbols, degrees: Degrees) -> Symbols {
        let mut local = *symbols;
        if let Some((symbol, way)) = self.shared
            && way != Way::Expert
        {
            let value = symbols.value(symbol) / f64::from(way.degree(degrees));
            local.set(symbol.0, value);
        }
        local
    }

    /// The kernel that computes it.
    #[must_use]
    pub fn kernel(
        &self,
        symbols: &Symbols,
        degrees: Degrees,
        precision: Precision,
        causal: bool,
    ) -> Kernel {
        let local = self.local(symbols, degrees);
        let shape = self.indices.shape(&local);
        match self.action {
            Action::Product => shape.kernel(precision),
            Action::Movement => Kernel::Memory {
                read: self.indices.read(&local) * 2.0,
                written: self.indices.written(&local) * 2.0,
            },
            Action::Attention => attention(&shape, &local, precision, causal),
        }
    }

    /// The product in so many stages: the first of them.
    #[must_use]
    pub fn stage(&self, symbols: &Symbols, degrees: Degrees, overlap: Overlap) -> Shape {
        let mut cut = *symbols;
        let along = overlap.along;
        cut.set(along.0, symbols.value(along) / f64::from(overlap.stages));
        self.shape(&cut, degrees)
    }

    /// Ranks and bytes of the all-reduce that follows: the whole output, which is not shared.
    #[must_use]
    pub fn reduced(&self, symbols: &Symbols, degrees: Degrees) -> Option<(u32, f64)> {
        let (_, way) = self.shared.filter(|_| self.reduces)?;
        let ranks = way.degree(degrees);
        let numbers: f64 = self
            .einsum
            .output()
            .iter()
            .map(|it| symbols.value(*it))
            .product();
        (ranks > 1).then_some((ranks, 2.0 * numbers))
    }

    /// Bytes of its result on each of the ranks that share context.
    #[must_use]
    pub fn sent(&self, symbols: &Symbols, degrees: Degrees) -> f64 {
        let (tensor, context) = &self.result;
        let whole: f64 = tensor.iter().map(|it| symbols.value(*it)).product();
        let ranks = if context.is_some() {
            f64::from(degrees.cp)
        } else {
            1.0
        };
        2.0 * whole / ranks
    }
}

impl Way {
    fn degree(self, degrees: Degrees) -> u32 {
        match self {
            Self::Tensor => degrees.tp,
            Self::Expert => degrees.ep,
            Self::Context => degrees.cp,
        }
    }
}

/// The kernel of attention whose queries and keys make products of this shape: a batch of pairs of request
/// and KV head, rows of grouped queries, columns of keys.
fn attention(shape: &Shape, local: &Symbols, precision: Precision, causal: bool) -> Kernel {
    let value = |letter: char| Symbol::new(letter).and_then(|it| local.get(it));
    let kv = value('K').unwrap_or(1.0).min(shape.groups).max(1.0);
    let length = value('s').unwrap_or(1.0).min(shape.m).max(1.0);
    let batch = shape.groups / kv;
    let heads = Heads {
        query: kv * shape.m / length,
        kv,
        dim: shape.k,
    };
    match length > 1.0 {
        true => Kernel::ContextAttention {
            batch,
            length,
            prefix: (shape.n - length).max(0.0),
            heads,
            causal,
            precision,
        },
        false => Kernel::GenerationAttention {
            batch,
            length: shape.n,
            heads,
            precision,
        },
    }
}
