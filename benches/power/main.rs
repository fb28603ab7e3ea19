//! What it takes to set a cap. `cargo bench --bench power`, as root where there is FUSE; with
//! `-- sysfs` or `-- socket` that part alone. Whatever else runs on the machine shows in the times.

#[path = "../common/report.rs"]
mod report;
mod socket;
mod sysfs;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("load of the machine at start: {}", report::load());
    if report::wanted("sysfs") {
        sysfs::run()?;
    }
    if report::wanted("socket") {
        socket::run()?;
    }
    println!("load of the machine at the end: {}", report::load());
    Ok(())
}
