//! Columns by their names, and cells with their place.

use csv::StringRecord;

use super::{Kind, TableError};
use crate::kernel::Precision;

/// Names of one column: the first is the one that errors tell.
type Names = &'static [&'static str];

pub(super) const LATENCY: Names = &["latency_ms", "latency", "avg_ms", "time_ms"];
pub(super) const POWER: Names = &["power_w", "power"];
pub(super) const LIMIT: Names = &["power_limit_w", "power_limit"];
pub(super) const BYTES: Names = &["bytes", "size_bytes"];
pub(super) const ELEMENTS: Names = &["message_size", "elements"];
pub(super) const BATCH: Names = &["batch_size", "batch"];
pub(super) const KV_HEADS: Names = &["num_key_value_heads", "num_kv_heads"];
pub(super) const HEADS: Names = &["num_heads", "num_attention_heads"];

/// The columns that a kind needs.
fn needed(kind: Kind) -> &'static [Names] {
    match kind {
        Kind::Gemm => &[&["m"], &["n"], &["k"], LATENCY],
        Kind::ContextAttention | Kind::GenerationAttention => {
            &[BATCH, &["isl"], HEADS, KV_HEADS, &["head_dim"], LATENCY]
        }
        Kind::Moe => &[
            &["num_tokens"],
            &["hidden_size"],
            &["inter_size"],
            &["topk"],
            &["num_experts"],
            LATENCY,
        ],
        // Without what both formats have in ways of their own: see `missing`.
        Kind::AllReduce => &[&["num_gpus", "num_workers"]],
        Kind::Layer => &[
            &["num_tokens"],
            &["n_embd"],
            &["n_expanded_embd"],
            &["n_head"],
            &["n_kv_head"],
            &["num_tensor_parallel_workers"],
            &["time_stats.mlp_up_proj.median"],
        ],
        Kind::Request => &[
            &["model"],
            &["gpu"],
            &["tp"],
            &["energy/req (j)"],
            &["avg tpot (s)"],
            &["avg output tokens"],
            &["avg bs (reqs)"],
        ],
    }
}

/// The head of a table.
pub(super) struct Columns {
    names: Vec<String>,
}

impl Columns {
    pub fn new(head: &StringRecord) -> Self {
        let names = head.iter().map(str::to_lowercase).collect();
        Self { names }
    }

    /// Where the column is.
    pub fn find(&self, names: &[&str]) -> Option<usize> {
        let place = |name: &&str| self.names.iter().position(|it| it == name);
        names.iter().find_map(place)
    }

    /// All names, as an error tells them.
    pub fn names(&self) -> String {
        self.names.join(", ")
    }

    /// The first column that a table of this kind lacks.
    pub fn missing(&self, kind: Kind) -> Option<String> {
        let lacks = |names: &&Names| self.find(names).is_none();
        let first = needed(kind).iter().find(lacks);
        first.map(|it| it[0].to_owned()).or_else(|| match kind {
            Kind::AllReduce => self.missing_collective(),
            _ => None,
        })
    }

    fn missing_collective(&self) -> Option<String> {
        let vidur = self.find(&["time_stats.all_reduce.median"]).is_some();
        let (size, time): (&[&str], &[&str]) = match vidur {
            true => (&["size"], &["time_stats.all_reduce.median"]),
            false => (
                &["bytes", "size_bytes", "message_size", "elements"],
                LATENCY,
            ),
        };
        let lacks = |names: &&&[&str]| self.find(names).is_none();
        [size, time].iter().find(lacks).map(|it| it[0].to_owned())
    }
}

/// A row, whose cells know their place.
pub(super) struct Record<'a> {
    columns: &'a Columns,
    cells: &'a StringRecord,
    pub line: u64,
}

impl<'a> Record<'a> {
    pub fn new(columns: &'a Columns, cells: &'a StringRecord) -> Result<Self, TableError> {
        let line = cells.position().map_or(0, csv::Position::line);
        let (has, needs) = (cells.len(), columns.names.len());
        match has == needs {
            true => Ok(Self {
                columns,
                cells,
                line,
            }),
            false => Err(TableError::Line {
                line,
                what: format!("has {has} cells, the head has {needs}"),
            }),
        }
    }

    /// The cell's text; none where there is no such column or nothing in it.
    pub fn text(&self, names: &[&str]) -> Option<&'a str> {
        let cell = self.cells.get(self.columns.find(names)?)?;
        (!cell.is_empty()).then_some(cell)
    }

    /// A cell that must be there.
    pub fn needed(&self, names: &[&str]) -> Result<&'a str, TableError> {
        self.text(names)
            .ok_or_else(|| self.wrong(names, "is empty"))
    }

    /// A number, if there is one.
    pub fn number(&self, names: &[&str]) -> Result<Option<f64>, TableError> {
        let Some(cell) = self.text(names) else {
            return Ok(None);
        };
        match cell.parse::<f64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.wrong(names, &format!("{cell:?} is no number"))),
        }
    }

    /// A size: a number of at least `least`.
    pub fn size(&self, names: &[&str], least: f64) -> Result<f64, TableError> {
        let cell = self.needed(names)?;
        match self.number(names)? {
            Some(number) if number.is_finite() && number >= least => Ok(number),
            _ => Err(self.wrong(names, &format!("{cell:?} is no size of {least} or more"))),
        }
    }

    /// A size that most tables leave out.
    pub fn size_or(&self, names: &[&str], otherwise: f64) -> Result<f64, TableError> {
        match self.text(names) {
            Some(_) => self.size(names, 1.0),
            None => Ok(otherwise),
        }
    }

    /// A quantity above zero; what is not (failed measurements) counts as absent.
    pub fn positive(&self, names: &[&str]) -> Result<Option<f64>, TableError> {
        let number = self.number(names)?;
        Ok(number.filter(|it| it.is_finite() && *it > 0.0))
    }

    /// The precision that a column of data types tells; bfloat16 where there is none.
    pub fn precision(&self, names: &[&str]) -> Result<Precision, TableError> {
        let Some(cell) = self.text(names) else {
            return Ok(Precision::BF16);
        };
        precision(cell).ok_or_else(|| {
            let known = "bfloat16, float16, half, fp8, fp8_block, int8, int8_wo, int4, int4_wo, w4afp8, nvfp4 and mxfp4 are";
            self.wrong(names, &format!("{cell:?} is no known data type; {known}"))
        })
    }

    pub fn wrong(&self, names: &[&str], what: &str) -> TableError {
        TableError::Cell {
            line: self.line,
            column: names.first().copied().unwrap_or_default().to_owned(),
            what: what.to_owned(),
        }
    }
}

/// A data type's bits, as tables name it.
pub(super) fn precision(name: &str) -> Option<Precision> {
    let of = |weights, activations| {
        Some(Precision {
            weights,
            activations,
        })
    };
    match name.to_lowercase().trim_start_matches("torch.") {
        "bfloat16" | "bf16" | "float16" | "fp16" | "half" | "f16" => of(16, 16),
        "fp8" | "fp8_block" | "fp8_ootb" | "fp8_static" | "float8_e4m3fn" | "e4m3" | "int8"
        | "sq" | "w8a8" => of(8, 8),
        "int8_wo" | "w8a16" | "fp8_wo" => of(8, 16),
        "int4" | "int4_wo" | "w4a16" | "w4a16_mxfp4" | "awq" | "gptq" => of(4, 16),
        "w4afp8" | "w4a8" | "w4a8_mxfp4_mxfp8" => of(4, 8),
        "nvfp4" | "fp4" | "mxfp4" | "w4a4" => of(4, 4),
        _ => None,
    }
}
