//! litd, the daemon. All code is in the library, so that litctl can run litd's commands, too (`litctl qualify`).

use std::process::ExitCode;

fn main() -> ExitCode {
    litd::main(std::env::args_os())
}
