//! Manual pages and completions, as the programs that read them see them.
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::LITCTL;

/// The files of `litctl packaging`.
fn share() -> tempfile::TempDir {
    let share = tempfile::tempdir().unwrap();
    let status = Command::new(LITCTL)
        .arg("packaging")
        .arg(share.path())
        .status();
    assert!(status.unwrap().success());
    share
}

/// Runs a program of this machine; nothing, and says so, where it is not there.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        eprintln!("SKIPPED: {program} is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    assert_eq!(said, "", "{program} {arguments:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn path(share: &Path, name: &str) -> String {
    let path = share.join(name);
    assert!(path.is_file(), "{name} is not written");
    path.display().to_string()
}

#[test]
fn every_command_that_help_shows_has_a_page_that_man_formats() {
    let share = share();
    let help = run(LITCTL, &["--help"]).unwrap();
    let commands = help.split("Commands:").nth(1).unwrap();
    let commands = commands.split("Options:").next().unwrap();
    let shown: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(shown.contains(&"status") && !shown.contains(&"packaging"));
    let mut pages: Vec<String> = shown
        .iter()
        .map(|it| format!("man1/litctl-{it}.1"))
        .collect();
    pages.extend(
        [
            "man1/litctl.1",
            "man5/litd.toml.5",
            "man8/litd.8",
            "man8/litd-restore.8",
        ]
        .map(str::to_owned),
    );
    for page in pages {
        let file = path(&share.path().join("man"), &page);
        let Some(text) = run("man", &["--warnings", "--local-file", &file]) else {
            return;
        };
        assert!(text.contains("NAME") && text.contains("SYNOPSIS"), "{text}");
    }
    // Keys keep their lines.
    let file = path(&share.path().join("man"), "man5/litd.toml.5");
    let text = run("man", &["--local-file", &file]).unwrap();
    assert!(text.contains("#mode = \"observe\"\n"), "{text}");
    let hidden = share.path().join("man/man1/litctl-packaging.1");
    assert!(!hidden.exists());
}

#[test]
fn a_page_keeps_the_lines_of_examples() {
    let share = share();
    let page = fs::read_to_string(share.path().join("man/man1/litctl-lease.1")).unwrap();
    let notes = page.split(".SH NOTES\n.nf\n").nth(1).unwrap();
    assert!(
        notes.lines().any(|line| line.trim()
            == "litctl lease grant \\-\\-seconds 3600 \\-\\-mode off      litd is off for an hour"),
        "{notes}"
    );
}

#[test]
fn bash_completes_commands_and_options() {
    let share = share();
    let file = path(share.path(), "bash-completion/completions/litctl.bash");
    let complete = |words: &str, last: usize| {
        let script = format!(
            "source '{file}'; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _litctl litctl \"${{COMP_WORDS[{last}]}}\" x; echo \"${{COMPREPLY[*]}}\""
        );
        run("bash", &["-c", &script])
    };
    if let Some(found) = complete("litctl stat", 1) {
        assert_eq!(found.trim(), "status");
        assert!(
            complete("litctl status --s", 2)
                .unwrap()
                .contains("--socket")
        );
    }
}

#[test]
fn the_other_shells_take_their_completions() {
    let share = share();
    for program in ["litctl", "litd"] {
        let zsh = path(share.path(), &format!("zsh/vendor-completions/_{program}"));
        run("zsh", &["-n", &zsh]);
        let fish = path(
            share.path(),
            &format!("fish/vendor_completions.d/{program}.fish"),
        );
        run("fish", &["--no-execute", &fish]);
    }
}

#[test]
fn a_place_that_cant_be_written_is_named() {
    let output = Command::new(LITCTL)
        .args(["packaging", "/dev/null/share"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/null/share/"));
}
