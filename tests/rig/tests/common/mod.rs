//! A node, and litd's view of it.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod server;

use std::thread;
use std::time::{Duration, Instant};

use litd_power::{PowerDomain, simulated};
use litd_rig::Rig;
use litd_sim::Scenario;
use litd_units::Watts;

/// Long enough for anything that does happen.
pub const SOON: Duration = Duration::from_secs(20);

/// Eight GPUs at 700 W (300 to 750 W) and two CPU sockets at 400 W (100 to 400 W).
pub fn rig() -> Rig {
    Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap()
}

/// The rig's devices as litd sees them.
pub fn domains(rig: &Rig) -> Vec<Box<dyn PowerDomain>> {
    simulated::discover(&rig.layout().hardware()).unwrap()
}

/// Writes in order.
pub fn write(domains: &mut [Box<dyn PowerDomain>], caps: &[(usize, f64)]) {
    for &(device, cap) in caps {
        domains[device].set_cap(Watts(cap)).unwrap();
    }
}

/// Waits until something is so.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "not {what} within {SOON:?}");
        thread::sleep(Duration::from_millis(2));
    }
}
