//! A terminal for programs that draw on one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use nix::pty::{Winsize, openpty};

/// The last line of a live view.
const FOOT: &str = "q quits";

/// Runs a live view on a terminal of 80 x 24 until it is quit with `key`; returns the output and the exit status.
/// The program's standard error is no terminal.
///
/// # Errors
///
/// There is no terminal to be had, or the program can't be started.
pub fn on_a_terminal(mut command: Command, key: &[u8]) -> io::Result<(String, Output)> {
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None)?;
    let (mut screen, theirs) = (File::from(pty.master), File::from(pty.slave));
    command.stdin(theirs.try_clone()?).stdout(theirs);
    let child = command.stderr(Stdio::piped()).spawn()?;
    // The command keeps its side of the terminal open, too; once it is dropped, only the program has that side
    // open.
    drop(command);
    let (mut seen, mut chunk) = (Vec::new(), [0; 4096]);
    let mut asked = false;
    // Where the other side has closed the terminal, Linux answers a read with an error.
    while let Ok(count @ 1..) = screen.read(&mut chunk) {
        seen.extend_from_slice(&chunk[..count]);
        if !asked && String::from_utf8_lossy(&seen).contains(FOOT) {
            screen.write_all(key)?;
            asked = true;
        }
    }
    let seen = String::from_utf8_lossy(&seen).into_owned();
    Ok((seen, child.wait_with_output()?))
}
