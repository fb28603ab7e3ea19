//! A disk that takes long to sync, because somebody else writes much to it: budgets are kept, requests are
//! answered, and the watchdog is fed.

use std::fs;
use std::time::{Duration, Instant};

use litd_units::Watts;

use crate::preload::litd_with;
use crate::stand::{Stand, quick, wait_for};

/// Every `fsync` takes 20 s while a file is there, whose name is in the environment.
const SLOW: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    const char *slow = getenv("SLOW_DISK");
    if (slow && access(slow, F_OK) == 0) sleep(20);
    return real(fd);
}
"#;

#[test]
fn a_budget_is_kept_and_requests_are_answered_while_the_disk_is_slow() {
    let mut stand = Stand::bare(&quick("observe"), false);
    let directory = stand.rig.layout().directory.clone();
    let slow = directory.join("slow");
    let Some(program) = litd_with(&directory, SLOW, "SLOW_DISK", &slow) else {
        return;
    };
    stand.start_as(&program);
    stand.wait_for_found();
    fs::write(&slow, "").unwrap();
    let asked = Instant::now();
    stand.command(&litd_api::Command::SetBudget {
        watts: Some(Watts(4400.0)),
    });
    wait_for("the budget is kept", || stand.sum() <= Watts(4400.0));
    stand.status();
    // One sync is waited for, and no other while the disk does not answer.
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{}",
        stand.said()
    );
    assert!(
        stand.said().contains("the disk has not answered"),
        "{}",
        stand.said()
    );
    // What was written survives the process, and is undone.
    stand.kill();
    fs::remove_file(&slow).unwrap();
    let said = stand.restore_after_kill();
    assert!(stand.is_back(), "{said}: {:?}", stand.held());
}
