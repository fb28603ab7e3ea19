//! What it takes to set a cap. `cargo bench --bench power`, as root where there is FUSE; with
//! `-- sysfs` or `-- socket` that part alone. Whatever else runs on the machine shows in the times.

#[path = "../common/measured.rs"]
mod measured;
#[path = "../common/report.rs"]
mod report;
mod socket;
mod sysfs;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let parts = measured::Parts::asked(&["sysfs", "socket"])?;
    println!("load of the machine at start: {}", report::load());
    if parts.has("socket") {
        socket::run()?;
    }
    if parts.has("sysfs") {
        match litd_rig_sysfs::obstacle() {
            None => sysfs::run()?,
            Some(why) if parts.has("socket") => println!("SKIPPED: sysfs: {why}"),
            Some(why) => return Err(measured::nothing("sysfs", why).into()),
        }
    }
    println!("load of the machine at the end: {}", report::load());
    Ok(())
}
