//! An einsum of two operands as a batch of products A\[m, k\] x B\[k, n\].

use crate::kernel::{Kernel, Precision};
use crate::spec::{Einsum, Symbol, Symbols};

/// Sizes of a batch of products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Products.
    pub groups: f64,
    /// Rows.
    pub m: f64,
    /// Columns.
    pub n: f64,
    /// The size that is summed over.
    pub k: f64,
}

impl Shape {
    /// Operations: a multiplication and an addition for each term.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * self.groups * self.m * self.n * self.k
    }

    /// Bytes of both operands and the result with numbers of this size.
    #[must_use]
    pub fn bytes(&self, each: f64) -> f64 {
        let Self { groups, m, n, k } = *self;
        each * groups * (m * k + k * n + m * n)
    }

    /// Operations per byte with 16-bit numbers.
    #[must_use]
    pub fn intensity(&self) -> f64 {
        self.flops() / self.bytes(2.0)
    }

    /// The kernel.
    #[must_use]
    pub fn kernel(&self, precision: Precision) -> Kernel {
        let Self { groups, m, n, k } = *self;
        Kernel::Gemm {
            groups,
            m,
            n,
            k,
            precision,
        }
    }
}

/// The symbols of each size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Indices {
    groups: Vec<Symbol>,
    m: Vec<Symbol>,
    n: Vec<Symbol>,
    k: Vec<Symbol>,
    inputs: Vec<Vec<Symbol>>,
    output: Vec<Symbol>,
}

impl Indices {
    pub fn of(einsum: &Einsum) -> Self {
        let none = Vec::new();
        let (first, second) = match einsum.inputs() {
            [first, second, ..] => (first, second),
            [first] => (first, &none),
            [] => (&none, &none),
        };
        let output = einsum.output();
        let chosen = |first_has: bool, second_has: bool, out_has: bool| -> Vec<Symbol> {
            let fits = |it: &Symbol| {
                first.contains(it) == first_has
                    && second.contains(it) == second_has
                    && output.contains(it) == out_has
            };
            einsum.symbols().filter(fits).collect()
        };
        let mut k = chosen(true, true, false);
        // A symbol that only one operand has and the result lacks is summed within the product.
        k.extend(chosen(true, false, false));
        k.extend(chosen(false, true, false));
        Self {
            groups: chosen(true, true, true),
            m: chosen(true, false, true),
            n: chosen(false, true, true),
            k,
            inputs: einsum.inputs().to_vec(),
            output: output.to_vec(),
        }
    }

    /// Whether it is no matrix product: one side has no dimension of its own, as in a weighted sum.
    pub fn is_thin(&self) -> bool {
        self.m.is_empty() || self.n.is_empty() || self.k.is_empty()
    }

    pub fn shape(&self, symbols: &Symbols) -> Shape {
        Shape {
            groups: size(&self.groups, symbols),
            m: size(&self.m, symbols),
            n: size(&self.n, symbols),
            k: size(&self.k, symbols),
        }
    }

    /// Numbers read.
    pub fn read(&self, symbols: &Symbols) -> f64 {
        self.inputs.iter().map(|it| size(it, symbols)).sum()
    }

    /// Numbers written.
    pub fn written(&self, symbols: &Symbols) -> f64 {
        size(&self.output, symbols)
    }
}

fn size(tensor: &[Symbol], symbols: &Symbols) -> f64 {
    tensor.iter().map(|it| symbols.value(*it)).product()
}
