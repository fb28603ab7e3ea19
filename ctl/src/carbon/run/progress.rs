//! The tokens of the job's last checkpoint.

use std::path::Path;

/// Tokens of the last checkpoint; none where the job has written none yet.
///
/// # Errors
/// The file has no number: the job may be writing it, or a crash has left it so.
pub fn read(path: &Path) -> Result<f64, String> {
    let shown = path.display();
    if !path.exists() {
        return Ok(0.0);
    }
    let text = litd_files::text(path, litd_files::LONGEST_STATE);
    let text = text.map_err(|error| format!("{shown}: {error}"))?;
    let number = text.trim().parse().ok();
    let number = number.filter(|it: &f64| it.is_finite() && *it >= 0.0);
    number.ok_or_else(|| format!("{shown}: {:?} must be a number of tokens", text.trim()))
}
