//! Duties of every back end, on devices of any maker: one duty after the other, on each back end of the table. A
//! back end is reached as litd reaches it, by [`litd_power::discover`], and finds only files, ioctls, sockets and
//! libraries; their effects on the plant are looked up in the plant and its ledger.
//!
//! A new back end is a row in `table.rs` and a line below.
//!
//! In the same program, so that their waiting overlaps: the rig itself (its node, its ledger, its jobs and its clock),
//! and NVIDIA's library (`nvidia`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clock;
#[path = "../common/mod.rs"]
mod common;
mod duties;
mod job;
mod ledger;
mod node;
mod nvidia;
mod stand;
mod table;

/// A test for each duty, on the back end `$row`.
macro_rules! tests_of {
    ($row:path; $($duty:ident)*) => {
        $(#[test]
        fn $duty() {
            if let Some(stand) = crate::stand::Stand::start(&$row()) {
                stand.run(stringify!($duty), crate::duties::$duty);
            }
        })*
    };
}

/// All duties of each back end: tests called `back_end::duty`.
macro_rules! back_ends {
    ($($row:ident)*) => {
        $(mod $row {
            tests_of! { crate::table::$row;
                identity units range rounding refusal
                read_back a_lie a_cache a_refusal_by_the_firmware
                no_permission locked in_reset gone_and_back slow a_hang_in_a_search
                concurrent_readers foreign_writes release
                holders energy power_from_energy temperature limiters a_lower_limit clocks
            }
        })*
    };
}

back_ends! {
    simulated_gpu simulated_cpu
    amdgpu amdgpu_mi200 powercap hsmp_hwmon hsmp_device
    nvml rocm_smi rocm_smi_of_trixie rocm_smi_of_sid amd_smi_of_sid
}
