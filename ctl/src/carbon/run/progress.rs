//! The tokens of the job's last checkpoint.

use std::fmt;
use std::path::{Path, PathBuf};

use super::super::input;

/// Why the progress is not known.
#[derive(Debug, Clone, PartialEq)]
pub enum Unknown {
    /// The file has no number: the job may be writing it, or a crash has left it so.
    NoNumber { path: PathBuf, text: String },
    /// The number is more than twice the tokens to train: for example two numbers in a row.
    TooMany {
        path: PathBuf,
        tokens: f64,
        wanted: f64,
    },
    /// The file is there and can't be read.
    Unreadable(String),
    /// The file is gone, though the job had told of a checkpoint.
    Gone { path: PathBuf, tokens: f64 },
}

impl Unknown {
    /// Whether the number that was told last may be believed at a start: a crash leaves half a file, but no file that
    /// is gone or can't be read. Nothing tells then whether the checkpoint beside it is there.
    pub fn may_be_a_crash(&self) -> bool {
        matches!(self, Self::NoNumber { .. })
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber { path, text } => {
                write!(f, "{}: {text:?} must be a number of tokens", path.display())
            }
            Self::TooMany {
                path,
                tokens,
                wanted,
            } => write!(
                f,
                "{}: {tokens} tokens are more than twice the {wanted} that are to be trained: it must be one number, \
                 written anew with each checkpoint",
                path.display()
            ),
            Self::Unreadable(error) => {
                write!(f, "{error}: --progress must be a file that litctl may read")
            }
            Self::Gone { path, tokens } => write!(
                f,
                "{}: it is gone, and the job's last checkpoint had {tokens} tokens: is its file system mounted? Write \
                 the number into it again; or, to train anew, give another --state",
                path.display()
            ),
        }
    }
}

/// Tokens of the last checkpoint, of so many `wanted`; 0 where the job has written none yet, which it has where some
/// were `told`.
///
/// # Errors
/// The number is not known.
pub fn read(path: &Path, told: Option<f64>, wanted: f64) -> Result<f64, Unknown> {
    let text = input::text_if_there(path, litd_files::LONGEST_STATE);
    let Some(text) = text.map_err(Unknown::Unreadable)? else {
        return match told.filter(|tokens| *tokens > 0.0) {
            Some(tokens) => Err(Unknown::Gone {
                path: path.to_owned(),
                tokens,
            }),
            None => Ok(0.0),
        };
    };
    let number = text.trim().parse().ok();
    let number = number.filter(|it: &f64| it.is_finite() && *it >= 0.0);
    let Some(tokens) = number else {
        return Err(Unknown::NoNumber {
            path: path.to_owned(),
            text: text.trim().to_owned(),
        });
    };
    match tokens <= 2.0 * wanted {
        true => Ok(tokens),
        false => Err(Unknown::TooMany {
            path: path.to_owned(),
            tokens,
            wanted,
        }),
    }
}
