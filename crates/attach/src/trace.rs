//! The configuration of one trace, as libkineto reads it: lines with exactly one `=` each. The client stops at the
//! first line that it does not understand, and goes by those before it: so every line is written exactly, and a file
//! name that would break one is refused.

use std::fmt;

/// The extension of traces, before which the client puts its process id.
const JSON: &str = ".json";

/// The longest file name that is sent: the bound of the system's names (PATH_MAX), less what the client adds.
const LONGEST_FILE: usize = 3072;

/// How long a client warms up before a time at which it begins, in seconds: it looks once a second.
const WARM_UP: u32 = 1;

/// A trace that a client is to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Where the client writes it, as its own mount namespace has it. The client adds its process id:
    /// [`Trace::written`].
    pub file: String,
    /// How much is recorded.
    pub window: Window,
    /// Whether calls of the host are recorded, too: operators, and the launches of kernels.
    pub host: bool,
}

/// How much a trace is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The number of iterations, where the process steps optimizers.
    pub iterations: u32,
    /// The first iteration is the next whose number is a multiple of this, so that all ranks begin at the same one.
    pub roundup: u32,
    /// The number of milliseconds, where the process steps none: inference, and whatever has no optimizer of PyTorch's.
    pub milliseconds: u32,
    /// When such a trace begins, in milliseconds since 1970, so that all processes begin together; `None`: at once.
    pub start: Option<u64>,
}

/// Why a trace can't be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadTrace {
    /// The file's name would not come through: it is relative, too long, or has a character in it that ends a line
    /// or a key.
    File,
    /// The window is empty, or longer than a client is asked for.
    Window,
}

impl fmt::Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => {
                "the trace's path must be absolute, end with .json, have at most 3072 bytes, and no =, #, space or \
                 control character in it"
            }
            Self::Window => "a trace has 1 to 1000 iterations and 1 to 60000 ms",
        })
    }
}

impl Window {
    /// The most iterations in a trace, and the largest multiple at which one begins.
    const MOST_ITERATIONS: u32 = 1000;
    const MOST_ROUNDUP: u32 = 1_000_000;
    /// The most milliseconds in a trace: the client keeps all of it in the job's memory.
    const MOST_MILLISECONDS: u32 = 60_000;

    fn is_possible(self) -> bool {
        (1..=Self::MOST_ITERATIONS).contains(&self.iterations)
            && (1..=Self::MOST_ROUNDUP).contains(&self.roundup)
            && (1..=Self::MOST_MILLISECONDS).contains(&self.milliseconds)
    }
}

impl Trace {
    /// The configuration as text.
    ///
    /// # Errors
    /// The client would misread it, or record nothing.
    pub fn text(&self) -> Result<String, BadTrace> {
        let breaks = |it: char| it.is_control() || it.is_whitespace() || "=#\"'".contains(it);
        let file = &self.file;
        let is_plain = file.starts_with('/') && file.ends_with(JSON) && !file.contains(breaks);
        if !is_plain || file.len() > LONGEST_FILE {
            return Err(BadTrace::File);
        }
        if !self.window.is_possible() {
            return Err(BadTrace::Window);
        }
        let Window {
            iterations,
            roundup,
            milliseconds,
            start,
        } = self.window;
        // The client begins to warm up before that, by default 5 s before.
        let start = start.map_or_else(String::new, |at| {
            format!("PROFILE_START_TIME={at}\nACTIVITIES_WARMUP_PERIOD_SECS={WARM_UP}\n")
        });
        // Marks of the optimizer's steps are annotations; without them nothing tells one iteration from the next.
        let types = match self.host {
            false => "kernel,gpu_memcpy,gpu_memset,user_annotation",
            true => "kernel,gpu_memcpy,gpu_memset,user_annotation,cpu_op,cuda_runtime",
        };
        Ok(format!(
            "ACTIVITIES_LOG_FILE={file}\nPROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP={roundup}\n\
             ACTIVITIES_ITERATIONS={iterations}\nACTIVITIES_DURATION_MSECS={milliseconds}\nACTIVITY_TYPES={types}\n{start}"
        ))
    }

    /// The file that a client writes whose process id, in its own namespace, is this.
    #[must_use]
    pub fn written(&self, own: i32) -> String {
        match self.file.strip_suffix(JSON) {
            Some(stem) => format!("{stem}_{own}{JSON}"),
            None => self.file.clone(),
        }
    }
}
