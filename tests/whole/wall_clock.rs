//! The wall clock is set while litd runs, as it is after a boot without a network.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use litd_units::Watts;

use crate::preload::litd_with;
use crate::stand::{Stand, quick, wait_for};

/// So much later it is by litd's wall clock, in seconds, while a file is there, whose name is in the
/// environment.
const LATER: f64 = 7200.0;

const SET: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, time);
    const char *set = getenv("WALL_CLOCK_SET");
    if (clock == CLOCK_REALTIME && set && access(set, F_OK) == 0) time->tv_sec += 7200;
    return answer;
}
"#;

#[test]
fn events_and_the_audit_log_have_the_time_that_it_is_when_the_wall_clock_has_been_set() {
    let mut stand = Stand::bare(&quick("observe"), false);
    let directory = stand.rig.layout().directory.clone();
    let set = directory.join("set");
    let Some(program) = litd_with(&directory, SET, "WALL_CLOCK_SET", &set) else {
        return;
    };
    stand.start_as(&program);
    stand.wait_for_found();
    let budget = |watts: f64| litd_api::Command::SetBudget {
        watts: Some(Watts(watts)),
    };
    let told = |stand: &Stand| -> [f64; 2] {
        let (_, body) = stand.ask("GET", "/v1/events?after=0", "");
        let events: litd_api::Events = serde_json::from_str(&body).unwrap();
        let log = stand.rig.layout().state().join("audit/audit.jsonl");
        let log = fs::read_to_string(log).unwrap();
        let line = log.lines().last().unwrap();
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let last = events.events.last().unwrap().unix_seconds;
        [last, record["unix_seconds"].as_f64().unwrap()]
    };
    let near = |told: [f64; 2], later: f64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let off = told.map(|it| now.as_secs_f64() + later - it);
        assert!(off.iter().all(|off| off.abs() < 60.0), "{off:?} s off");
    };
    stand.command(&budget(5000.0));
    wait_for("a budget", || stand.sum() <= Watts(5000.0));
    near(told(&stand), 0.0);
    fs::write(&set, "").unwrap();
    stand.command(&budget(4400.0));
    wait_for("another budget", || stand.sum() <= Watts(4400.0));
    std::thread::sleep(Duration::from_millis(100));
    near(told(&stand), LATER);
    // And back again.
    fs::remove_file(&set).unwrap();
    stand.command(&budget(4000.0));
    wait_for("a third budget", || stand.sum() <= Watts(4000.0));
    near(told(&stand), 0.0);
    stand.kill();
}
