//! A domain on its thread: order, read-back, and releasing a driver that blocks.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use litd_power::{
    CapRange, DeviceKind, Handles, Holder, Identity, Operation, PowerDomain, PowerError, ReadBack,
    Reading, Reply, Sharing, Stopped, Worker,
};
use litd_units::Watts;

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(20);

fn holder() -> Holder {
    Holder::new(7, 1000)
}

/// A domain whose writes wait until the test lets them go on; it rounds caps down to 10 W.
struct Gated {
    identity: Identity,
    cap: Watts,
    begun: Sender<Watts>,
    gate: Receiver<Gate>,
}

enum Gate {
    Open,
    Fail,
    Panic,
}

impl PowerDomain for Gated {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        Ok(CapRange {
            lowest: Watts(100.0),
            highest: Watts(700.0),
            default: Watts(700.0),
            resolution: Watts(10.0),
        })
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        let _ = self.begun.send(cap);
        match self.gate.recv() {
            Ok(Gate::Open) => {
                self.cap = Watts((cap.0 / 10.0).floor() * 10.0);
                Ok(())
            }
            Ok(Gate::Panic) => panic!("a driver's bug"),
            Ok(Gate::Fail) | Err(_) => Err(PowerError::Driver {
                device: self.identity.address.clone(),
                action: "setting the cap",
                cause: "told to fail".to_owned(),
            }),
        }
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        Ok(Reading {
            cap: self.cap,
            ..Reading::default()
        })
    }

    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        Ok(vec![holder()])
    }
}

struct Setup {
    worker: Worker,
    begun: Receiver<Watts>,
    gate: Sender<Gate>,
    replies: Receiver<Reply>,
}

fn identity() -> Identity {
    Identity {
        kind: DeviceKind::Gpu,
        address: "0000:05:00.0".to_owned(),
        uuid: None,
        serial: None,
        model: "made up".to_owned(),
        driver: "made up".to_owned(),
        backend: "test".to_owned(),
        sharing: Sharing::Whole,
        read_back: ReadBack::Device,
    }
}

fn setup() -> Setup {
    let (begun_sender, begun) = mpsc::channel();
    let (gate, gate_receiver) = mpsc::channel();
    let (reply, replies) = mpsc::channel();
    let domain = Gated {
        identity: identity(),
        cap: Watts(700.0),
        begun: begun_sender,
        gate: gate_receiver,
    };
    let worker = Worker::start(Box::new(domain), "gpu0", move |outcome| {
        let _ = reply.send(outcome);
    });
    Setup {
        worker: worker.unwrap(),
        begun,
        gate,
        replies,
    }
}

#[test]
fn operations_are_done_in_order_and_a_write_answers_with_what_is_held() {
    let Setup {
        worker,
        gate,
        replies,
        begun: _begun,
    } = setup();
    for gate_state in [Gate::Open, Gate::Fail] {
        gate.send(gate_state).unwrap();
    }
    for operation in [
        Operation::Set(Watts(655.0)),
        Operation::Set(Watts(500.0)),
        Operation::Read,
        Operation::Holders,
        Operation::Range,
        Operation::Release,
    ] {
        worker.submit(operation).unwrap();
    }
    let next = || replies.recv_timeout(SOON).unwrap();
    assert_eq!(next(), Reply::Set(Ok(Watts(650.0))));
    assert!(matches!(next(), Reply::Set(Err(PowerError::Driver { .. }))));
    let Reply::Read(Ok(reading)) = next() else {
        panic!("not a reading");
    };
    assert_eq!(reading.cap, Watts(650.0));
    assert_eq!(next(), Reply::Holders(Ok(vec![holder()])));
    assert!(matches!(next(), Reply::Range(Ok(range)) if range.resolution == Watts(10.0)));
    assert_eq!(next(), Reply::Released(Handles::Closed));
}

#[test]
fn a_blocked_driver_does_not_hang_the_drop_and_nothing_is_begun_after_it() {
    let Setup {
        worker,
        begun,
        gate,
        replies,
    } = setup();
    worker.submit(Operation::Set(Watts(600.0))).unwrap();
    worker.submit(Operation::Set(Watts(300.0))).unwrap();
    assert_eq!(begun.recv_timeout(SOON).unwrap(), Watts(600.0));
    let (dropped, is_dropped) = mpsc::channel();
    std::thread::spawn(move || {
        drop(worker);
        dropped.send(()).unwrap();
    });
    is_dropped
        .recv_timeout(SOON)
        .expect("the drop hangs on the driver");
    assert!(replies.try_recv().is_err());

    // The driver comes back: the operation under way is reported, those behind it never begin.
    gate.send(Gate::Open).unwrap();
    // For a second write, if it did begin; there may be no receiver any more.
    let _ = gate.send(Gate::Open);
    assert_eq!(
        replies.recv_timeout(SOON).unwrap(),
        Reply::Set(Ok(Watts(600.0)))
    );
    let end = replies.recv_timeout(SOON);
    assert_eq!(end, Err(mpsc::RecvTimeoutError::Disconnected));
    assert!(begun.try_recv().is_err());
}

#[test]
fn a_driver_that_panics_stops_its_own_thread_only() {
    let Setup {
        worker,
        gate,
        replies,
        begun: _begun,
    } = setup();
    gate.send(Gate::Panic).unwrap();
    worker.submit(Operation::Set(Watts(600.0))).unwrap();
    let end = replies.recv_timeout(SOON);
    assert_eq!(end, Err(mpsc::RecvTimeoutError::Disconnected));
    // The queue goes with the thread, at the latest a moment after its replies did.
    let stopped = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        worker.submit(Operation::Read) == Err(Stopped)
    });
    assert!(stopped);
}

/// A domain whose cap others can change.
struct Open {
    identity: Identity,
    cap: std::sync::Arc<std::sync::Mutex<Watts>>,
}

impl PowerDomain for Open {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        unreachable!("nobody asks")
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        *self.cap.lock().unwrap() = cap;
        Ok(())
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        Ok(Reading {
            cap: *self.cap.lock().unwrap(),
            ..Reading::default()
        })
    }

    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        Ok(Vec::new())
    }
}

#[test]
fn a_cap_that_somebody_else_has_set_since_is_not_written_over() {
    let cap = std::sync::Arc::new(std::sync::Mutex::new(Watts(700.0)));
    let open = Open {
        identity: identity(),
        cap: cap.clone(),
    };
    let (sender, replies) = mpsc::channel();
    let report = move |reply| sender.send(reply).unwrap();
    let worker = Worker::start(Box::new(open), "gpu0", report).unwrap();
    let told = |operation| {
        worker.submit(operation).unwrap();
        replies.recv_timeout(SOON).unwrap()
    };
    assert!(matches!(told(Operation::Read), Reply::Read(Ok(_))));
    assert_eq!(
        told(Operation::Set(Watts(650.0))),
        Reply::Set(Ok(Watts(650.0)))
    );
    *cap.lock().unwrap() = Watts(500.0);
    let changed = told(Operation::Set(Watts(640.0)));
    assert!(
        matches!(changed, Reply::Set(Err(PowerError::Changed { known, cap, .. }))
            if known == Watts(650.0) && cap == Watts(500.0)),
        "{changed:?}"
    );
    assert_eq!(*cap.lock().unwrap(), Watts(500.0));
    // A caller that gets this error and writes again knows the present cap.
    assert_eq!(
        told(Operation::Set(Watts(640.0))),
        Reply::Set(Ok(Watts(640.0)))
    );
}
