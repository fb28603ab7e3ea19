//! The duties. Each gets a node of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use litd_power::{
    ClockRange, DeviceKind, Holder, Identity, Inventory, PowerDomain, PowerError, Throttle,
};
use litd_rig::Fault;
use litd_units::{Hertz, Watts};

use crate::stand::{Stand, set};
use crate::table::Row;

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(60);

/// Whether two powers are the same to a microwatt.
fn same(a: Watts, b: Watts) -> bool {
    (a.0 - b.0).abs() < 1e-6
}

/// A device that is back works: at once, or once its back end has started its own process again.
fn works_again(domain: &mut dyn PowerDomain, cap: Watts, row: &Row) {
    let deadline = Instant::now() + SOON;
    let mut result = set(domain, cap);
    while !row.waits && result.is_err() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(50));
        result = set(domain, cap);
    }
    assert_eq!(result, Ok(cap));
}

pub fn identity(stand: &Stand, row: &Row) {
    let found = stand.inventory();
    let kind = row.kind();
    let all: Vec<_> = found
        .domains
        .iter()
        .map(|domain| domain.identity().clone())
        .filter(|identity| identity.kind == kind)
        .collect();
    let expected = match kind {
        litd_power::DeviceKind::Gpu => 8,
        litd_power::DeviceKind::Cpu => 2,
    };
    assert_eq!(all.len(), expected, "{found:?}");
    let one = stand.domain();
    let identity = one.identity();
    assert_eq!(identity.backend, row.backend);
    assert!(!identity.model.is_empty() && !identity.driver.is_empty());
    // The same each time, and no other's.
    let again = stand.domain();
    let again = again.identity();
    let named = |it: &Identity| (it.address.clone(), it.serial.clone(), it.model.clone());
    assert_eq!(named(again), named(identity));
    // ROCm's library may not tell a unique id while others hold its mutexes; it is asked again later.
    let uuids = again.uuid.as_ref().zip(identity.uuid.as_ref());
    assert!(uuids.is_none_or(|(one, other)| one == other), "{again:?}");
    let same = all.iter().filter(|other| other.address == identity.address);
    assert_eq!(same.count(), 1);
}

pub fn units(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    assert_eq!(domain.cap().unwrap(), stand.held());
    let cap = stand.cap(0.8);
    domain.set_cap(cap).unwrap();
    assert_eq!(stand.held(), cap, "what was asked for is what is held");
    assert_eq!(stand.entries().len(), 1);
    let (truth, reading) = (stand.truth(), domain.read().unwrap());
    assert_eq!(reading.cap, cap);
    if row.tells.power {
        let (power, expected) = (reading.power.unwrap(), truth.power.unwrap());
        assert!((power - expected).abs() < Watts(1.0), "{power} {expected}");
    }
    if row.tells.clock {
        let (clock, expected) = (reading.clock.unwrap(), truth.clock.unwrap());
        assert!(
            (clock.0 - expected.0).abs() <= 1e6,
            "{clock:?} {expected:?}"
        );
    }
}

pub fn range(stand: &Stand, row: &Row) {
    let expected = stand.hardware().listed(row.device).unwrap().range;
    let range = stand.domain().range().unwrap();
    if row.tells.highest {
        assert_eq!(range.highest, expected.highest);
    } else {
        assert!(range.highest >= expected.highest);
    }
    assert_eq!(range.default, expected.default);
    assert_eq!(range.resolution, Watts(row.resolution));
    let lowest = if row.tells.lowest {
        expected.lowest
    } else {
        Watts::ZERO
    };
    assert_eq!(range.lowest, lowest);
    // Drivers have other ideas after a reset.
    if row.kind() == litd_power::DeviceKind::Gpu {
        stand.hardware().range_mut(row.device).unwrap().highest = Watts(650.0);
        assert_eq!(stand.domain().range().unwrap().highest, Watts(650.0));
    }
}

/// A cap is never rounded up: the sum of all caps would be more than litd has counted. What is a
/// whole number of units stays what it is.
pub fn rounding(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    for part in [0.0, 0.3, 0.99, 1.01, 2.0, 2.7] {
        let units = (stand.cap(0.7).0 / row.resolution).floor() + part;
        let asked = Watts(units * row.resolution);
        let back = set(domain.as_mut(), asked).unwrap();
        assert!(same(back, stand.held()), "{back}, held {}", stand.held());
        let lost = (asked - back).0 / row.resolution;
        assert!((-1e-6..1.0 - 1e-6).contains(&lost), "{asked}: {back}");
        assert!(part.fract() > 0.0 || same(asked, back), "{asked}: {back}");
    }
}

pub fn refusal(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    let range = domain.range().unwrap();
    let mut out = vec![range.highest + Watts(1.0), range.highest * 10.0];
    if row.tells.lowest {
        out.push(range.lowest - Watts(1.0));
    }
    for asked in out {
        let error = domain.set_cap(asked).unwrap_err();
        let PowerError::OutOfRange {
            device,
            asked: told,
            lowest,
            highest,
        } = &error
        else {
            panic!("{asked}: {error:?}");
        };
        assert_eq!((device, told), (&row.address(), &asked));
        assert_eq!(*highest, range.highest);
        assert!(*lowest >= range.lowest);
    }
    for asked in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0] {
        let error = domain.set_cap(Watts(asked));
        assert!(error.is_err(), "{asked}");
    }
    let changed = stand
        .entries()
        .iter()
        .any(|entry| entry.before != entry.after);
    assert!(!changed, "{:?}", stand.entries());
}

pub fn read_back(stand: &Stand, _: &Row) {
    let mut domain = stand.domain();
    for part in [0.8, 0.7, 0.9, 0.7] {
        let cap = stand.cap(part);
        assert_eq!(set(domain.as_mut(), cap), Ok(cap));
        assert_eq!(stand.held(), cap);
    }
    assert_eq!(stand.entries().len(), 4);
}

/// A driver that reports success and changes nothing is seen by reading back.
pub fn a_lie(stand: &Stand, _: &Row) {
    let mut domain = stand.domain();
    let before = stand.held();
    stand.inject(Fault::Lie);
    let back = set(domain.as_mut(), stand.cap(0.7));
    // A back end may also say itself that it has looked.
    assert_ne!(back, Ok(stand.cap(0.7)));
    assert_eq!(stand.held(), before);
    assert_eq!(domain.cap().unwrap(), before);
}

/// Where the driver answers from its memory, measured power tells.
pub fn a_cache(stand: &Stand, row: &Row) {
    if !row.tells.power {
        return;
    }
    let mut domain = stand.domain();
    let before = stand.held();
    stand.inject(Fault::Cached);
    let cap = stand.truth().power.unwrap() * 0.7;
    let cap = Watts(cap.0.floor());
    assert_eq!(set(domain.as_mut(), cap), Ok(cap));
    assert_eq!(stand.held(), before);
    stand.hardware().run_iteration();
    assert!(domain.read().unwrap().power.unwrap() > cap);
}

pub fn a_refusal_by_the_firmware(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    let before = stand.held();
    stand.inject(Fault::Refuse);
    let error = domain.set_cap(stand.cap(0.7)).unwrap_err();
    assert!(error.to_string().contains(&row.address()), "{error}");
    // The device is there and can be read.
    assert_eq!(error.kind(), "driver", "{error}");
    assert_eq!(domain.cap().unwrap(), before);
    stand.heal();
    assert_eq!(set(domain.as_mut(), stand.cap(0.7)), Ok(stand.cap(0.7)));
}

pub fn no_permission(stand: &Stand, row: &Row) {
    let mut open = stand.domain();
    let before = set(open.as_mut(), stand.cap(0.8)).unwrap();
    stand.inject(Fault::NoPermission);
    let mut domain = stand.domain();
    let error = domain.set_cap(stand.cap(0.7)).unwrap_err();
    let PowerError::Permission { device, hint, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(device, &row.address());
    assert!(!hint.is_empty());
    // Where files were open before, what drivers say then is less clear.
    assert!(open.set_cap(stand.cap(0.7)).is_err());
    for mut domain in [domain, open] {
        assert_eq!(domain.cap().unwrap(), before);
        assert_eq!(domain.read().unwrap().cap, before);
    }
    assert_eq!(stand.held(), before);
}

pub fn locked(stand: &Stand, row: &Row) {
    let mut open = stand.domain();
    let before = open.cap().unwrap();
    stand.inject(Fault::Locked);
    for mut domain in [open, stand.domain()] {
        let error = domain.set_cap(stand.cap(0.7)).unwrap_err();
        assert_eq!(error.kind(), row.locked, "{error}");
        assert!(error.to_string().contains(&row.address()), "{error}");
        assert_eq!(domain.read().unwrap().cap, before);
    }
    assert_eq!(stand.held(), before);
}

/// A reset is an error while it lasts, and nothing after it.
pub fn in_reset(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    domain.read().unwrap();
    stand.inject(Fault::InReset);
    for error in [
        domain.set_cap(stand.cap(0.7)).unwrap_err(),
        domain.read().map(|_| ()).unwrap_err(),
    ] {
        let is_right = matches!(error, PowerError::Permission { .. });
        assert!(!is_right, "nothing that a right would help: {error}");
        if row.tells.reset {
            assert_eq!(error.kind(), "driver", "{error}");
        }
    }
    stand.heal();
    works_again(domain.as_mut(), stand.cap(0.7), row);
}

/// The same domain works again when its device is back, whatever its files are called then.
pub fn gone_and_back(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    set(domain.as_mut(), stand.cap(0.8)).unwrap();
    domain.read().unwrap();
    for _ in 0..2 {
        let before = stand.held();
        stand.inject(Fault::Gone);
        let errors = [
            domain.set_cap(stand.cap(0.7)).unwrap_err(),
            domain.cap().map(|_| ()).unwrap_err(),
            domain.read().map(|_| ()).unwrap_err(),
            domain.range().map(|_| ()).unwrap_err(),
        ];
        for error in errors {
            assert!(error.kind() == "gone" || !row.tells.gone, "{error}");
            assert!(error.to_string().contains(&row.address()), "{error}");
        }
        assert_eq!(stand.held(), before);
        stand.heal();
        if row.waits {
            assert_eq!(domain.cap(), Ok(before));
        }
        for part in [0.7, 0.8] {
            works_again(domain.as_mut(), stand.cap(part), row);
        }
        assert_eq!(stand.held(), stand.cap(0.8));
    }
}

/// A slow device does it later, and holds up no other.
pub fn slow(stand: &Stand, row: &Row) {
    let (mut domain, mut other) = (stand.domain(), stand.another());
    let cap = stand.cap(0.7);
    // A back end with a process of its own has started it before.
    works_again(domain.as_mut(), stand.cap(1.0), row);
    stand.inject(Fault::Slow(Duration::from_secs(600)));
    let (answer, answered) = mpsc::channel();
    let writer = thread::spawn(move || answer.send(set(domain.as_mut(), cap)));
    let kept = other.cap().unwrap();
    assert_eq!(set(other.as_mut(), kept), Ok(kept));
    assert_ne!(stand.held(), cap);
    if row.waits {
        stand.heal();
        assert_eq!(answered.recv_timeout(SOON).unwrap(), Ok(cap));
        assert_eq!(stand.held(), cap);
    } else {
        let error = answered.recv_timeout(SOON).unwrap().unwrap_err();
        assert_eq!(error.kind(), "timeout", "{error}");
        stand.heal();
    }
    writer.join().unwrap().unwrap();
}

/// Reads a device: at once, or once its back end has started its own process again.
fn is_read(domain: &mut dyn PowerDomain) -> Result<(), PowerError> {
    let deadline = Instant::now() + SOON;
    loop {
        match domain.read() {
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            result => return result.map(drop),
        }
    }
}

/// A device that hangs while devices are looked for is found all the same, costs no other one anything, and
/// works as soon as its driver answers.
pub fn a_hang_in_a_search(stand: &Stand, row: &Row) {
    let addresses = |found: &Inventory| {
        let devices = found.domains.iter().map(|it| it.identity().address.clone());
        devices.collect::<Vec<_>>()
    };
    let expected = addresses(&stand.inventory());
    stand.inject(Fault::Block(SOON * 60));
    // A library has a part of this time to set itself up, from files that are slower here than a kernel's.
    let patience = Duration::from_secs(if row.waits { 3 } else { 20 });
    let Some(found) = stand.inventory_within(patience) else {
        return;
    };
    assert_eq!(addresses(&found), expected, "{found:?}");
    // A process of a library's own may know by then all that a search asks for.
    let told = found.notices.iter().any(|it| it.subject == row.address());
    assert!(told || !row.waits, "{:?}", found.notices);
    let (mut hung, others): (Vec<_>, Vec<_>) = found
        .domains
        .into_iter()
        .partition(|it| it.identity().address == row.address());
    for mut other in others {
        assert_eq!(is_read(other.as_mut()), Ok(()));
    }
    let mut hung = hung.remove(0);
    let (done, answer) = mpsc::channel();
    let reader = thread::spawn(move || {
        done.send(is_read(hung.as_mut())).unwrap();
        hung
    });
    thread::sleep(Duration::from_millis(200));
    assert!(answer.try_recv().is_err(), "it answers while it hangs");
    stand.heal();
    assert_eq!(answer.recv_timeout(2 * SOON).unwrap(), Ok(()));
    let mut mended = reader.join().unwrap();
    works_again(mended.as_mut(), stand.cap(0.8), row);
    assert!(mended.identify().unwrap().uuid.is_some() || row.kind() == DeviceKind::Cpu);
}

pub fn concurrent_readers(stand: &Stand, row: &Row) {
    let caps = [0.7, 0.8, 0.9].map(|part| stand.cap(part));
    let mut domain = stand.domain();
    set(domain.as_mut(), caps[0]).unwrap();
    let readers: Vec<_> = (0..4).map(|_| stand.domain()).collect();
    thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || {
                for _ in 0..30 {
                    let reading = reader.read().unwrap();
                    assert!(caps.contains(&reading.cap), "{reading:?}");
                    assert!(reading.power.is_some() || !row.tells.power);
                    assert!(caps.contains(&reader.cap().unwrap()));
                }
            });
        }
        for cap in caps.iter().cycle().take(30) {
            assert_eq!(set(domain.as_mut(), *cap), Ok(*cap));
        }
    });
}

/// A foreign cap is read, by a domain that has set another.
pub fn foreign_writes(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    set(domain.as_mut(), stand.cap(0.8)).unwrap();
    let theirs = stand.cap(0.7);
    stand.hardware().foreign_set(row.device, theirs).unwrap();
    assert_eq!(domain.cap(), Ok(theirs));
    assert_eq!(domain.read().unwrap().cap, theirs);
}

pub fn release(stand: &Stand, _: &Row) {
    let mut domain = stand.domain();
    for part in [0.8, 0.7] {
        domain.read().unwrap();
        domain.release();
        domain.release();
        assert_eq!(set(domain.as_mut(), stand.cap(part)), Ok(stand.cap(part)));
        domain.release();
        assert_eq!(domain.cap(), Ok(stand.cap(part)));
    }
}

/// Asks until a device's holders are as they should be: on a busy machine a look at all processes may take longer than
/// whoever asks waits, and what is answered then is of the look before, or that litd looks on.
fn come_to_hold(domain: &mut dyn PowerDomain, right: impl Fn(&[Holder]) -> bool) {
    let deadline = Instant::now() + SOON;
    loop {
        let told = domain.holders();
        if told.as_deref().is_ok_and(&right) {
            return;
        }
        assert!(Instant::now() < deadline, "{told:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub fn holders(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    if !row.tells.holders {
        // No process has a socket open, or the back end can't tell.
        let holders = domain.holders();
        assert!(holders.as_ref().map_or(true, Vec::is_empty), "{holders:?}");
        return;
    }
    // Processes that there are: the first one, and this one.
    let holder = |pid: u32| {
        let uid = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        Holder { pid, uid, cgroup }
    };
    let (first, own) = (holder(1), holder(std::process::id()));
    stand
        .hardware()
        .set_holders(row.device, vec![own.pid, first.pid]);
    come_to_hold(domain.as_mut(), |told| told == [first.clone(), own.clone()]);
    come_to_hold(stand.another().as_mut(), |told| !told.contains(&first));
    stand.hardware().set_holders(row.device, Vec::new());
    come_to_hold(domain.as_mut(), <[_]>::is_empty);
}

pub fn energy(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    let mut read = || domain.read().unwrap().energy;
    let first = read();
    if !row.tells.energy {
        assert_eq!(first, None);
        return;
    }
    let mut last = first.unwrap();
    for _ in 0..3 {
        let before = stand.truth().energy.unwrap();
        stand.hardware().run_iteration();
        let grown = stand.truth().energy.unwrap() - before;
        let now = read().unwrap();
        let (shown, truth) = ((now - last).0, grown.0);
        assert!(truth > 10.0, "{truth}");
        // ROCm SMI takes the unit, 15.259 uJ, for 15.3 uJ.
        assert!(
            (shown - truth).abs() < 3e-3 * truth,
            "{shown} J, not {truth} J"
        );
        last = now;
    }
}

/// Where there is only a counter of energy, power is what it grew by over the time that passed.
pub fn power_from_energy(stand: &Stand, row: &Row) {
    if row.tells.power || !row.tells.energy {
        return;
    }
    let mut domain = stand.domain();
    let begin = Instant::now();
    assert_eq!(domain.read().unwrap().power, None, "power over no time");
    let after = Instant::now();
    let before = stand.truth().energy.unwrap();
    stand.hardware().run_iteration();
    let grown = stand.truth().energy.unwrap() - before;
    // More than it takes for a counter to tell anything.
    thread::sleep(Duration::from_millis(60));
    let shortest = after.elapsed();
    let power = domain.read().unwrap().power.unwrap();
    let longest = begin.elapsed();
    let over = |time: Duration| grown.0 / time.as_secs_f64();
    let possible = 0.999 * over(longest)..=1.001 * over(shortest);
    assert!(possible.contains(&power.0), "{power}, not {possible:?}");
}

pub fn temperature(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    let reading = domain.read().unwrap();
    if !row.tells.temperature {
        assert_eq!(reading.temperature, None);
        return;
    }
    let hot = (
        reading.temperature.unwrap(),
        stand.truth().temperature.unwrap(),
    );
    assert!((hot.0 - hot.1).0.abs() <= 1.0, "{hot:?}");
    assert_eq!(reading.slowdown, stand.truth().slowdown);
    // Less power, less heat.
    domain.set_cap(stand.cap(0.7)).unwrap();
    stand.hardware().settle();
    stand.hardware().run_iteration();
    let cool = domain.read().unwrap();
    assert!(cool.temperature.unwrap() < hot.0);
    assert!(!row.tells.clock || cool.clock.unwrap() < reading.clock.unwrap());
}

pub fn limiters(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    let mut read = || {
        // Some drivers tell what has been since they were asked last.
        domain.read().unwrap();
        stand.hardware().run_iteration();
        let reading = domain.read().unwrap();
        (reading.power_limited, reading.throttle)
    };
    if !row.tells.limiter {
        assert_eq!(read(), (None, None));
        return;
    }
    assert_eq!(read(), (Some(true), None));
    stand.inject(Fault::Heat);
    let (power, throttle) = read();
    assert_eq!((power, throttle), (Some(false), Some(Throttle::Heat)));
    stand.inject(Fault::PowerBrake);
    let (power, throttle) = read();
    assert_eq!(power, Some(false));
    let brake = matches!(throttle, Some(Throttle::PowerBrake | Throttle::Hardware));
    assert!(brake, "{throttle:?}");
    stand.heal();
    assert_eq!(read(), (Some(true), None));
}

/// The limit that a board controller allows, below the cap that is set.
pub fn a_lower_limit(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    let (cap, lower) = (stand.cap(0.9), stand.cap(0.3));
    stand.inject(Fault::Enforced(lower));
    assert_eq!(set(domain.as_mut(), cap), Ok(cap));
    let reading = domain.read().unwrap();
    assert_eq!(reading.cap, cap);
    let expected = row.tells.enforced.then_some(lower);
    assert_eq!(reading.enforced, expected);
    assert!(!row.tells.power || reading.power.unwrap() <= lower);
}

/// Clocks are locked to what is asked, freed by whoever comes next, and nobody else's are touched.
pub fn clocks(stand: &Stand, row: &Row) {
    let mut domain = stand.domain();
    let at = |megahertz: f64| {
        let clock = Hertz(megahertz * 1e6);
        ClockRange {
            lowest: clock,
            highest: clock,
        }
    };
    if !row.tells.locks {
        assert!(domain.highest_clock().is_err());
        assert!(domain.lock_clocks(at(1200.0)).is_err());
        assert_eq!(stand.locked(), None);
        return;
    }
    assert!(domain.highest_clock().unwrap() > Hertz(1.2e9));
    for clock in [1200, 900] {
        assert_eq!(domain.lock_clocks(at(f64::from(clock))), Ok(()));
        assert_eq!(stand.locked(), Some(clock));
    }
    // Whoever finds the device anew, as litd does after a crash, can lock it and free it.
    let mut next = stand.domain();
    assert_eq!(next.lock_clocks(at(1000.0)), Ok(()));
    assert_eq!(stand.locked(), Some(1000));
    let mut last = stand.domain();
    for _ in 0..2 {
        assert_eq!(last.unlock_clocks(), Ok(()));
        assert_eq!(stand.locked(), None);
    }
    stand.inject(Fault::Refuse);
    assert!(last.lock_clocks(at(800.0)).is_err());
    stand.heal();
    assert_eq!(stand.locked(), None);
    assert_eq!(last.unlock_clocks(), Ok(()));
    assert_eq!(last.lock_clocks(at(800.0)), Ok(()));
    assert_eq!(stand.locked(), Some(800));
    assert_eq!(last.unlock_clocks(), Ok(()));
    let Some(level) = stand.file_of_device("power_dpm_force_performance_level") else {
        return;
    };
    let text = || fs::read_to_string(&level).unwrap();
    assert_eq!(text(), "auto\n");
    // A range that another program has set while litd had the clocks stays.
    let range = stand.file_of_device("pp_od_clk_voltage").unwrap();
    assert_eq!(last.lock_clocks(at(800.0)), Ok(()));
    for line in ["s 1 1500\n", "s 0 600\n", "c\n"] {
        fs::write(&range, line).unwrap();
    }
    let refused = |error| matches!(error, Err(PowerError::Unsupported { .. }));
    assert!(refused(last.lock_clocks(at(800.0))));
    assert_eq!(last.unlock_clocks(), Ok(()));
    assert_eq!((text().as_str(), stand.locked()), ("manual\n", Some(1500)));
    // The driver's own range, too, if another program has set it while litd had the clocks.
    fs::write(&level, "auto\n").unwrap();
    assert_eq!(last.lock_clocks(at(800.0)), Ok(()));
    for text in ["auto\n", "manual\n"] {
        fs::write(&level, text).unwrap();
    }
    assert_eq!(last.unlock_clocks(), Ok(()));
    assert_eq!(text(), "manual\n");
    // What a litd leaves that is killed before it sets a range.
    fs::write(&level, "auto\n").unwrap();
    fs::write(&level, "manual\n").unwrap();
    assert_eq!(stand.domain().unlock_clocks(), Ok(()));
    assert_eq!(text(), "auto\n");
    for foreign in ["manual\n", "perf_determinism\n"] {
        fs::write(&level, foreign).unwrap();
        assert!(refused(last.highest_clock().map(drop)));
        assert!(refused(last.lock_clocks(at(800.0))));
        assert_eq!((text().as_str(), stand.locked()), (foreign, None));
    }
}
