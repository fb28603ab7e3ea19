//! cpu-slosh and what CPU sockets do with it: watts are others' once they are seen not to be
//! drawn, and a socket that needs what it lent has it back.

use litd_rig::Fault;
use litd_units::Watts;

use crate::stand::{DEVICES, GPUS, Stand, quick};

/// What the GPUs were found with, all together.
const FOUND: Watts = Watts(5600.0);

fn gpus(stand: &Stand) -> Watts {
    stand.held()[..GPUS].iter().copied().sum()
}

fn sockets(stand: &Stand) -> Watts {
    stand.held()[GPUS..DEVICES].iter().copied().sum()
}

fn sloshing() -> Stand {
    let stand = Stand::clocked(&quick("cpu-slosh"));
    stand.rig.ledger().permit_slosh();
    stand
}

#[test]
fn a_socket_that_goes_on_drawing_lends_nothing() {
    let mut stand = sloshing();
    let found = sockets(&stand);
    for socket in GPUS..DEVICES {
        stand.rig.hardware().inject(socket, Fault::Overdraw);
    }
    let mut job = stand.train();
    // Both count as faulty after a while, and are given back.
    stand.play_until(&mut job, "faults", |stand| stand.not_ours().len() == 2);
    let most = stand
        .rig
        .ledger()
        .entries()
        .iter()
        .fold(Watts::ZERO, |most, entry| {
            let gpu = entry.device < GPUS && entry.after > entry.before;
            most.max(if gpu { entry.after } else { Watts::ZERO })
        });
    assert!(gpus(&stand) <= FOUND, "{}", gpus(&stand));
    assert_eq!(sockets(&stand), found);
    assert_eq!(
        most,
        Watts::ZERO,
        "a GPU was raised on watts that were still drawn"
    );
    stand.assert_rules();
    stand.stop();
}

#[test]
fn a_socket_that_needs_its_watts_has_them_back_after_the_gpus_went_down() {
    let mut stand = sloshing();
    let found = stand.held();
    let mut job = stand.train();
    stand.play_until(&mut job, "sloshing", |stand| gpus(stand) > FOUND);
    let lowered = sockets(&stand);
    assert!(lowered < found[GPUS] + found[GPUS + 1]);
    // The data loader of the job wakes up.
    for socket in 0..DEVICES - GPUS {
        let draw = found[GPUS + socket];
        stand.rig.hardware().set_cpu_draw(socket, draw).unwrap();
    }
    stand.play_until(&mut job, "watts back", |stand| {
        sockets(stand) == found[GPUS] + found[GPUS + 1]
    });
    assert!(gpus(&stand) <= FOUND);
    // It keeps them: a loader that comes in waves is not starved at each.
    for socket in 0..DEVICES - GPUS {
        stand
            .rig
            .hardware()
            .set_cpu_draw(socket, Watts(150.0))
            .unwrap();
    }
    stand.play(&mut job, 100);
    assert_eq!(sockets(&stand), found[GPUS] + found[GPUS + 1]);
    stand.assert_rules();
    stand.pass(601.0);
    stand.play_until(&mut job, "sloshing again", |stand| gpus(stand) > FOUND);
    stand.assert_rules();
    stand.stop();
}
