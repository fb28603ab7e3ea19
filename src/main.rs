//! litd, the daemon. This release holds its name only: the loop lives in `litd-policies`, and
//! `litctl demo` runs it on a simulated node.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--version") {
        println!("litd {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "litd: the daemon is not part of this release yet. `litctl demo` runs its loop on a simulated node."
    );
    ExitCode::from(2)
}
