//! What kind of work a kernel does, told by its name: [`table`] is the table, which [`Classes`]
//! extends by rows of the user's own.
//!
//! A pattern stands for names that have it in them, whatever their case: `deep_ep` from the
//! beginning of a word on (in `void deep_ep::dispatch` and in the mangled `_ZN7deep_ep…`, not in
//! `sdeep_ep`), `*nccl` anywhere; a `*` further on stands for any text.

mod suspects;
mod table;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;

use crate::timeline::{KernelClass, Timeline};
pub use suspects::{Suspect, Suspicion, suspects};
pub(crate) use suspects::{behaving, exchange};
use table::TABLE;

/// A row of the table.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    pattern: &'a str,
    class: KernelClass,
    /// Where the name comes from.
    #[cfg_attr(not(test), expect(dead_code, reason = "for who reads the table"))]
    source: &'a str,
}

/// The rows of the table, ready to be looked for.
static PATTERNS: LazyLock<Vec<(Pattern, KernelClass)>> = LazyLock::new(|| {
    let rows = TABLE.iter();
    rows.map(|row| (Pattern::of(row.pattern), row.class))
        .collect()
});

/// The class of a kernel with this name. (Copies by DMA engines have no kernel name: the trace
/// marks those itself.)
#[must_use]
pub fn class_of(name: &str) -> KernelClass {
    let name = name.to_ascii_lowercase();
    let row = PATTERNS.iter().find(|(pattern, _)| pattern.fits(&name));
    row.map_or(KernelClass::Computation, |(_, class)| *class)
}

/// What is to be in a name, made ready once for many names.
#[derive(Debug)]
struct Pattern {
    /// Whether it may begin within a word.
    anywhere: bool,
    /// What comes one after the other; nothing fits where there is none.
    parts: Vec<Finder<'static>>,
}

impl Pattern {
    fn of(text: &str) -> Self {
        let parts = text.split('*').filter(|part| !part.is_empty());
        Self {
            anywhere: text.starts_with('*'),
            parts: parts.map(|part| Finder::new(part).into_owned()).collect(),
        }
    }

    /// Whether a name, in lower case, has it in it.
    fn fits(&self, name: &str) -> bool {
        let bytes = name.as_bytes();
        let Some((first, parts)) = self.parts.split_first() else {
            return false;
        };
        let begins = |&at: &usize| {
            // A mangled name has the length of a word before it.
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            self.anywhere || !before.is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        };
        let behind = |from: usize, part: &Finder<'_>| from + part.needle().len();
        let found = first.find_iter(bytes).find(begins);
        let found = found.and_then(|at| bytes.get(behind(at, first)..));
        let Some(mut rest) = found else {
            return false;
        };
        parts.iter().all(|part| {
            let at = part.find(rest);
            rest = at
                .and_then(|at| rest.get(behind(at, part)..))
                .unwrap_or_default();
            at.is_some()
        })
    }
}

/// Rows of the user's own, which count before those of the table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classes {
    /// The rows, the first that fits first.
    #[serde(default, rename = "kernel")]
    rows: Vec<OwnRow>,
}

/// A row as the user writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnRow {
    /// What is in the names.
    #[serde(deserialize_with = "pattern")]
    name: String,
    class: KernelClass,
    /// Where the name comes from: for who reads the file.
    #[serde(default, rename = "source")]
    _source: String,
}

fn pattern<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    match name.bytes().all(|byte| byte == b'*') {
        true => Err(serde::de::Error::custom(
            "name must be more than '*', which fits every kernel",
        )),
        false => Ok(name.to_ascii_lowercase()),
    }
}

impl Classes {
    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The class of a kernel with this name: by the user's rows, else by the table.
    #[must_use]
    pub fn class_of(&self, name: &str) -> KernelClass {
        self.own(name).unwrap_or_else(|| class_of(name))
    }

    fn own(&self, name: &str) -> Option<KernelClass> {
        let name = name.to_ascii_lowercase();
        let mut rows = self.rows.iter();
        let row = rows.find(|row| Pattern::of(&row.name).fits(&name));
        row.map(|row| row.class)
    }

    /// Gives the kernels of a timeline that the user's rows name their class; how many.
    pub fn apply(&self, timeline: &mut Timeline) -> usize {
        if self.rows.is_empty() {
            return 0;
        }
        let own = Vec::from_iter(timeline.names.iter().map(|name| self.own(name)));
        let mut named = 0;
        for kernel in &mut timeline.kernels {
            if let Some(&Some(class)) = own.get(kernel.name.0 as usize) {
                kernel.class = class;
                named += 1;
            }
        }
        named
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
mod tests {
    use super::*;
    use KernelClass::{Communication, Computation, Copy, Fused};

    #[test]
    fn patterns_fit_from_the_beginning_of_a_word_or_anywhere() {
        for (pattern, name, fit) in [
            ("deep_ep", "void deep_ep::dispatch", true),
            ("deep_ep", "_zn7deep_ep9internode", true),
            ("deep_ep", "my_deep_ep", false),
            ("dpsk::ep::", "void cdpsk::ep::cub_200::scan", false),
            ("*nccl", "mynccl", true),
            ("*a*b", "xaxb", true),
            ("*a*b", "xbxa", false),
            ("*a*a", "xa", false),
            ("a", "ba a", true),
            ("*", "", false),
        ] {
            assert_eq!(Pattern::of(pattern).fits(name), fit, "{pattern} in {name}");
        }
    }

    #[test]
    fn every_row_of_the_table_can_fit_and_says_where_its_name_comes_from() {
        for (at, row) in TABLE.iter().enumerate() {
            let name = row.pattern.replace('*', " ");
            let first = TABLE
                .iter()
                .position(|row| Pattern::of(row.pattern).fits(&name));
            assert_eq!(first, Some(at), "{} is hidden by another row", row.pattern);
            assert!(!row.source.is_empty());
            assert_eq!(row.pattern, row.pattern.to_ascii_lowercase());
        }
    }

    #[test]
    fn rows_of_the_users_own_count_first() {
        let rows = r#"{"kernel":[{"name":"*My_Ring","class":"communication","source":"ours"},
            {"name":"nccl","class":"computation"}]}"#;
        let classes: Classes = serde_json::from_str(rows).unwrap();
        assert_eq!(classes.class_of("void a::my_ring<4>"), Communication);
        assert_eq!(classes.class_of("ncclDevKernel_SendRecv"), Computation);
        assert_eq!(classes.class_of("RCCL"), Communication);
        for bad in [
            r#"{"kernel":[{"name":"*","class":"copy"}]}"#,
            r#"{"kernel":[{"name":"a","class":"coffee"}]}"#,
            r#"{"kernels":[]}"#,
        ] {
            assert!(serde_json::from_str::<Classes>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_table_had_before_is_as_before() {
        for (name, class) in [
            (
                "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
                Communication,
            ),
            ("void my::RCCL_thing", Communication),
            ("__amd_rocclr_copyBuffer.kd", Copy),
            ("__amd_rocclr_fillBufferAligned", Copy),
            ("MEMORY_COPY_HOST_TO_DEVICE", Copy),
            ("void at::native::CatArrayBatchedCopy<float>", Computation),
            ("ccl", Computation),
            ("", Computation),
            ("void aiter::allreduce_fusion_kernel_1stage<bf16, 8>", Fused),
        ] {
            assert_eq!(class_of(name), class, "{name}");
        }
    }
}
