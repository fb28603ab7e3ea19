//! Handles that can be closed: an open NVML client blocks a GPU reset and a driver upgrade.

use std::time::Duration;

use litd_power::{Handles, PowerDomain};
use litd_rig::{Fault, Rig};
use litd_rig_nvml::code;
use litd_units::Watts;

use super::{discover, gpus, set};
use crate::common::{rig, wait_for};

#[test]
fn all_gpus_share_one_session() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for gpu in &mut gpus {
        gpu.read().unwrap();
    }
    assert_eq!(rig.hardware().nvidia().sessions(), 1);
    assert_eq!(rig.hardware().nvidia().clients(), 1);
}

#[test]
fn one_gpu_that_is_released_is_closed_and_the_others_are_served() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    let clients = |gpu: usize| rig.hardware().nvidia().gpus[gpu].clients;
    gpus[0].set_cap(Watts(600.0)).unwrap();
    assert_eq!(clients(0), 1);
    gpus[0].release();
    for gpu in &mut gpus[1..] {
        gpu.read().unwrap();
    }
    // The node hears of it when the connection ends.
    wait_for("closed", || clients(0) == 0);
    assert_eq!((clients(1), clients(7)), (1, 1));
    rig.hardware().reset(0).unwrap();
    assert_eq!(gpus[0].cap().unwrap(), Watts(750.0));
}

#[test]
fn gpus_without_persistence_mode_keep_their_caps_while_another_one_is_released() {
    let rig = rig();
    for gpu in 0..8 {
        set(&rig, gpu, |gpu| gpu.persistence = false);
        rig.hardware().set_holders(gpu, Vec::new());
    }
    let mut gpus = discover(&rig).domains;
    for gpu in &mut gpus {
        gpu.set_cap(Watts(600.0)).unwrap();
    }
    let clients = |gpu: usize| rig.hardware().nvidia().gpus[gpu].clients;
    for released in [3, 5] {
        assert_eq!(gpus[released].release(), Handles::Closed);
        wait_for("closed", || clients(released) == 0);
        for (at, gpu) in gpus.iter_mut().enumerate() {
            if ![3, released].contains(&at) {
                assert_eq!(gpu.cap().unwrap(), Watts(600.0), "GPU {at}");
            }
        }
        // Only litd has the GPUs open.
        wait_for("only litd", || (clients(0), clients(7)) == (1, 1));
        assert_eq!(rig.hardware().nvidia().clients(), 1);
    }
    assert_eq!(gpus[3].cap().unwrap(), Watts(750.0));
    for gpu in &mut gpus {
        gpu.release();
    }
    wait_for("nobody", || rig.hardware().nvidia().clients() == 0);
}

/// A node without persistence mode whose GPUs all have this cap, and nobody else has them open.
fn forgetful(rig: &Rig, cap: Watts) -> Vec<Box<dyn PowerDomain>> {
    let mut gpus = discover(rig).domains;
    for (at, gpu) in gpus.iter_mut().enumerate() {
        set(rig, at, |gpu| gpu.persistence = false);
        rig.hardware().set_holders(at, Vec::new());
        gpu.set_cap(cap).unwrap();
        gpu.read().unwrap();
    }
    gpus
}

#[test]
fn persistence_mode_that_is_turned_off_later_is_noticed() {
    let rig = rig();
    let mut gpus = forgetful(&rig, Watts(600.0));
    assert_eq!(gpus[3].release(), Handles::Closed);
    wait_for("closed", || rig.hardware().nvidia().gpus[3].clients == 0);
    for at in [0, 1, 2, 4, 5, 6, 7] {
        assert_eq!(gpus[at].cap().unwrap(), Watts(600.0), "GPU {at}");
    }
}

/// The driver of one hangs while another is released: that costs no third one its cap.
#[test]
fn a_gpu_that_hangs_does_not_make_others_forget_their_caps() {
    let rig = rig();
    let mut gpus = forgetful(&rig, Watts(600.0));
    let mut hung = gpus.remove(5);
    rig.hardware()
        .inject(5, Fault::Block(Duration::from_secs(3600)));
    std::thread::scope(|scope| {
        scope.spawn(|| hung.read());
        // Long enough for its call to be under way.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(gpus[3].release(), Handles::HeldByAnother);
        rig.hardware().heal(5);
    });
    wait_for("closed", || rig.hardware().nvidia().gpus[3].clients == 0);
    for (at, gpu) in gpus.iter_mut().enumerate() {
        if at != 3 {
            assert_eq!(gpu.cap().unwrap(), Watts(600.0), "GPU {at} of those left");
        }
    }
    assert_eq!(hung.cap().unwrap(), Watts(600.0));
}

/// No other process can open the library: then one GPU's release would be the others' reset.
#[test]
fn a_session_stays_open_where_nobody_else_can_have_its_gpus_open() {
    let rig = rig();
    let mut gpus = forgetful(&rig, Watts(600.0));
    rig.hardware().nvidia_mut().refuses = Some(code::UNKNOWN);
    assert_eq!(gpus[3].release(), Handles::HeldByAnother);
    for at in [0, 1, 2, 4, 5, 6, 7] {
        assert_eq!(gpus[at].cap().unwrap(), Watts(600.0), "GPU {at}");
    }
    rig.hardware().nvidia_mut().refuses = None;
    assert_eq!(gpus[3].release(), Handles::Closed);
    wait_for("closed", || rig.hardware().nvidia().gpus[3].clients == 0);
    for at in [0, 1, 2, 4, 5, 6, 7] {
        assert_eq!(gpus[at].cap().unwrap(), Watts(600.0), "GPU {at}");
    }
}

#[test]
fn gpus_that_are_all_released_close_the_library() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for gpu in &mut gpus {
        gpu.release();
        // Twice is once.
        gpu.release();
    }
    assert_eq!(rig.hardware().nvidia().clients(), 0);
    assert_eq!(rig.hardware().nvidia().sessions(), 1);
    assert!(!is_loaded(&rig), "the library is still mapped");
}

#[test]
fn one_that_is_released_tells_of_the_session_that_another_one_keeps_open() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for gpu in &mut gpus {
        gpu.read().unwrap();
    }
    rig.hardware()
        .inject(5, Fault::Block(Duration::from_secs(3600)));
    let mut hung = gpus.remove(5);
    std::thread::scope(|scope| {
        scope.spawn(|| hung.read());
        // Long enough for its call to be under way.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(gpus[3].release(), Handles::HeldByAnother);
        // Once more: nothing of its own is open, and the session is.
        assert_eq!(gpus[3].release(), Handles::HeldByAnother);
        rig.hardware().heal(5);
    });
    assert_eq!(gpus[3].release(), Handles::Closed);
}

/// Whether this process has the rig's library in its memory: an upgrade would replace its file.
fn is_loaded(rig: &litd_rig::Rig) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let directory = rig.layout().directory.display().to_string();
    maps.lines().any(|line| line.contains(&directory))
}

#[test]
fn a_reset_between_release_and_the_next_call_shows_the_default_cap() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    gpus[0].set_cap(Watts(600.0)).unwrap();
    for gpu in &mut gpus {
        gpu.release();
    }
    assert_eq!(rig.hardware().nvidia().clients(), 0);
    rig.hardware().reset(0).unwrap();
    rig.hardware().range_mut(0).unwrap().highest = Watts(720.0);
    // The next call opens it again, for itself and the others.
    assert_eq!(gpus[0].cap().unwrap(), Watts(750.0));
    assert_eq!(gpus[0].range().unwrap().highest, Watts(720.0));
    assert_eq!(gpus[7].read().unwrap().cap, Watts(700.0));
    assert_eq!(rig.hardware().nvidia().sessions(), 2);
    assert_eq!(rig.hardware().nvidia().clients(), 1);
}

#[test]
fn gpus_that_are_dropped_or_not_there_leave_nothing_open() {
    let rig = rig();
    set(&rig, 0, |gpu| gpu.persistence = false);
    let found = discover(&rig);
    assert_eq!(rig.hardware().nvidia().clients(), 1);
    drop(found);
    assert_eq!(rig.hardware().nvidia().clients(), 0);
}
