#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    dead_code
)]
mod world;

use litd_api::{Command, Lease, Mode};
use litd_core::config::OnExit;
use litd_core::{Config, Event};
use litd_units::Watts;
use world::{Dev, MS, RANGE, S, W, address, dev};

fn config() -> Config {
    Config {
        mode: Mode::Observe,
        ..Config::default()
    }
}
fn budget(watts: f64) -> Command {
    Command::SetBudget {
        watts: Some(Watts(watts)),
    }
}

/// A configured ceiling that is no whole watt, with the floor in the same watt.
#[test]
fn edge_ceiling() {
    let mut c = config();
    c.caps.gpu_floor = Watts(300.2);
    c.caps.gpu_ceiling = Some(Watts(300.8));
    c.caps.budget = Some(Watts(8.0 * 300.8));
    let mut w = W::new(8, c);
    w.pass(20.0);
    w.show();
    assert!(w.sum() <= 8.0 * 300.8, "{}", w.sum());
}

/// Floors that are no whole watts.
#[test]
fn edge_floor() {
    let mut c = config();
    c.caps.gpu_floor = Watts(250.5);
    c.caps.budget = Some(Watts(8.0 * 250.5));
    let mut w = W::new(8, c);
    w.pass(20.0);
    w.show();
    assert!(w.sum() <= 8.0 * 250.5, "{}", w.sum());
}

/// A GPU is reset (reads fail for 4 s), comes back at its default, answers everything, takes every write.
#[test]
fn reset_that_takes_four_seconds() {
    let mut c = config();
    c.caps.budget = Some(Watts(2000.0));
    let mut w = W::new(8, c);
    w.pass(10.0);
    assert!(w.sum() <= 2000.0);
    w.devs[3].fail_reads = true;
    w.devs[3].no_range = true;
    w.pass(4.0);
    w.devs[3].fail_reads = false;
    w.devs[3].no_range = false;
    w.devs[3].cap = Watts(700.0);
    w.devs[3].energy = 0.0;
    w.pass(120.0);
    w.show();
    assert!(w.sum() <= 2000.0, "{}", w.sum());
}

/// A failed write, released at once, lands afterwards; resumed; stopped.
#[test]
fn released_then_lands() {
    let mut w = W::new(4, config());
    w.pass(5.0);
    w.devs[1].fail_sets = Some(Some(10 * S));
    w.command(budget(1600.0)).unwrap();
    w.pass(0.5);
    w.devs[1].fail_sets = None;
    w.command(Command::Restore {
        device: Some("gpu1".into()),
    })
    .unwrap();
    w.pass(3.0);
    println!("{:?}", w.core.as_ref().unwrap().letting_go(Some("gpu1")));
    w.pass(20.0);
    w.command(Command::Resume {
        device: Some("gpu1".into()),
    })
    .unwrap();
    w.pass(40.0);
    w.stop();
    w.show();
    assert_eq!(w.caps(), [700.0; 4]);
}

/// Two writes: the first failed, the second was taken; kill -9; the first lands.
#[test]
fn older_write_lands_after_crash() {
    let mut w = W::new(4, config());
    w.pass(5.0);
    w.devs[1].fail_sets = Some(Some(15 * S));
    w.command(budget(1600.0)).unwrap();
    w.pass(0.3);
    w.devs[1].fail_sets = None;
    w.command(budget(2000.0)).unwrap();
    w.pass(3.0);
    w.kill();
    w.pass(0.5);
    w.start();
    w.pass(60.0);
    w.stop();
    w.show();
    assert_eq!(w.caps(), [700.0; 4]);
}

/// A GPU that came up late leaves no room; what status and metrics say of it.
#[test]
fn unmanaged_is_told() {
    let mut c = config();
    c.caps.budget = Some(Watts(2000.0));
    let mut w = W::new(7, c);
    w.pass(5.0);
    w.event(Event::Unmanaged(["0000:f1:00.0".to_owned()].into()));
    w.pass(20.0);
    w.show();
    let s = w.status();
    let real = w.sum() + 700.0;
    assert!(
        real <= 2000.0 || s.node.caps > s.node.budget,
        "holds {real}, says {} of {}",
        s.node.caps,
        s.node.budget
    );
}

/// A released GPU is reset, as it was released for.
#[test]
fn released_and_reset_is_told() {
    let mut c = config();
    c.caps.budget = Some(Watts(2000.0));
    let mut w = W::new(8, c);
    w.pass(5.0);
    w.command(Command::Restore {
        device: Some("gpu3".into()),
    })
    .unwrap();
    w.pass(5.0);
    w.foreign(3, 700.0);
    w.pass(60.0);
    w.show();
    let s = w.status();
    assert!(
        w.sum() <= 2000.0 || s.node.caps > s.node.budget,
        "holds {}, says {} of {}",
        w.sum(),
        s.node.caps,
        s.node.budget
    );
}

/// A cap by hand that failed, and lands after the stop.
#[test]
fn by_hand_fails_stop_lands() {
    let mut w = W::new(2, config());
    w.pass(5.0);
    w.devs[1].fail_sets = Some(Some(5 * S));
    w.command(Command::SetCap {
        device: "gpu1".into(),
        watts: Watts(300.0),
    })
    .unwrap();
    println!("{:?}", w.core.as_ref().unwrap().outcome_by_hand("gpu1"));
    w.devs[1].fail_sets = None;
    w.pass(1.0);
    let done = w.stop();
    w.pass(10.0);
    w.show();
    assert!(!done || w.caps() == [700.0; 2], "{:?}", w.caps());
}

/// The same, and litd is killed and started anew.
#[test]
fn by_hand_fails_crash_lands() {
    let mut w = W::new(2, config());
    w.pass(5.0);
    w.devs[1].fail_sets = Some(Some(5 * S));
    w.command(Command::SetCap {
        device: "gpu1".into(),
        watts: Watts(300.0),
    })
    .unwrap();
    w.devs[1].fail_sets = None;
    w.pass(1.0);
    w.kill();
    w.start();
    w.pass(60.0);
    w.stop();
    w.show();
    assert_eq!(w.caps(), [700.0; 2]);
}

/// It hangs (its driver answers nothing) while it is reset by others, and answers again.
#[test]
fn hangs_and_is_reset() {
    let mut c = config();
    c.caps.budget = Some(Watts(2000.0));
    let mut w = W::new(8, c);
    w.pass(10.0);
    w.devs[3].hang = true;
    w.pass(30.0);
    w.devs[3].cap = Watts(700.0);
    w.devs[3].energy = 0.0;
    w.unhang(3);
    w.pass(60.0);
    w.show();
    assert!(w.sum() <= 2000.0, "{}", w.sum());
}

/// A budget by reload that a faulty GPU leaves no room for.
#[test]
fn reload_below_what_a_faulty_gpu_holds() {
    let mut w = W::new(8, config());
    w.pass(5.0);
    w.devs[3].fail_reads = true;
    w.pass(4.0);
    w.devs[3].fail_reads = false;
    w.pass(5.0);
    println!("by hand: {:?}", w.command(budget(2000.0)));
    let mut c = config();
    c.caps.budget = Some(Watts(2000.0));
    w.event(Event::Reloaded(Box::new(c)));
    w.pass(30.0);
    w.show();
    assert!(w.sum() <= w.status().node.budget.0, "{}", w.sum());
}
mod fuzz;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(or)
}

/// ADV_SEED=, ADV_MASK=, ADV_N=
#[test]
fn fuzz_all() {
    let mask = number("ADV_MASK", 0x7fff) as u32;
    if let Ok(seed) = std::env::var("ADV_SEED") {
        if let Err((why, log)) = fuzz::run(seed.parse().unwrap(), mask) {
            for line in log {
                println!("{line}");
            }
            panic!("{why}");
        }
        return;
    }
    let first = number("ADV_FIRST", 0);
    let mut bad = 0;
    for seed in first..first + number("ADV_N", 2000) {
        let out = std::panic::catch_unwind(|| fuzz::run(seed, mask));
        match out {
            Ok(Ok(())) => {}
            Ok(Err((why, _))) => {
                println!("seed {seed}: {why}");
                bad += 1;
            }
            Err(_) => {
                println!("seed {seed}: PANIC");
                bad += 1;
            }
        }
        if bad > 60 {
            break;
        }
    }
    println!("{bad} bad");
}

/// A GPU that was released and reset is released once more (`litctl release --all` before a driver upgrade, say).
#[test]
fn released_twice() {
    let mut c = config();
    c.caps.budget = Some(Watts(3600.0));
    let mut devs: Vec<Dev> = (0..8)
        .map(|n| dev(n, litd_power::DeviceKind::Gpu))
        .collect();
    for d in &mut devs {
        d.cap = Watts(500.0);
    }
    let mut w = W::with(devs, c);
    w.pass(5.0);
    w.command(Command::Restore {
        device: Some("gpu3".into()),
    })
    .unwrap();
    w.pass(4.0);
    w.foreign(3, 700.0);
    w.pass(20.0);
    assert!(w.sum() <= 3600.0, "{}", w.sum());
    w.most_sum = 0.0;
    // Its driver takes a while to close it.
    w.devs[3].hang = std::env::var("ADV_HANG").is_ok();
    w.command(Command::Restore {
        device: Some("gpu3".into()),
    })
    .unwrap();
    w.pass(30.0);
    w.show();
    assert!(w.most_sum <= 3600.0, "{}", w.most_sum);
}

/// The same by the kill switch, without anybody's release.
#[test]
fn kill_switch_then_lands() {
    let mut w = W::new(4, config());
    w.pass(5.0);
    w.devs[1].fail_sets = Some(Some(12 * S));
    w.command(budget(1600.0)).unwrap();
    w.pass(0.3);
    w.devs[1].fail_sets = None;
    w.event(Event::KillSwitch(Some("k".into())));
    w.pass(5.0);
    println!(
        "{:?} {:?}",
        w.caps(),
        w.core.as_ref().unwrap().letting_go(None)
    );
    w.pass(20.0);
    w.event(Event::KillSwitch(None));
    w.pass(40.0);
    w.stop();
    w.show();
    assert_eq!(w.caps(), [700.0; 4]);
}

/// After a crash: a write fails, litd goes off and on again, the write is done.
#[test]
fn landing_is_forgotten_when_taken_back() {
    let mut c = config();
    c.caps.budget = Some(Watts(1600.0));
    let mut w = W::new(4, c);
    w.pass(5.0);
    w.kill();
    w.config.caps.budget = Some(Watts(1200.0));
    w.devs[1].fail_sets = Some(Some(14 * S));
    w.start();
    w.pass(0.3);
    w.devs[1].fail_sets = None;
    w.event(Event::KillSwitch(Some("k".into())));
    w.pass(1.5);
    w.event(Event::KillSwitch(None));
    w.pass(1.5);
    w.event(Event::KillSwitch(Some("k".into())));
    w.pass(2.0);
    let mut c = config();
    c.caps.budget = Some(Watts(1000.0));
    w.event(Event::Reloaded(Box::new(c)));
    w.event(Event::KillSwitch(None));
    w.pass(60.0);
    w.stop();
    w.show();
    assert_eq!(w.caps(), [700.0; 4]);
}

fn found_at(gpus: usize, cap: f64) -> Vec<Dev> {
    let mut devs: Vec<Dev> = (0..gpus)
        .map(|n| dev(n, litd_power::DeviceKind::Gpu))
        .collect();
    for d in &mut devs {
        d.cap = Watts(cap);
    }
    devs
}

/// A GPU that was found below its default is reset; its driver takes no write for the first seconds.
#[test]
fn reset_and_two_failed_writes() {
    let mut c = config();
    c.caps.budget = Some(Watts(2000.0));
    let mut w = W::with(found_at(8, 600.0), c);
    w.pass(10.0);
    w.devs[3].cap = Watts(700.0);
    w.devs[3].fail_sets = Some(None);
    w.pass(3.0);
    w.devs[3].fail_sets = None;
    w.pass(100.0);
    let sum = w.sum();
    w.show();
    w.stop();
    println!("{:?}", w.caps());
    assert!(
        sum <= 2000.0 && w.caps() == [600.0; 8],
        "{sum} {:?}",
        w.caps()
    );
}

/// The same with an energy counter that was begun anew once.
#[test]
fn reset_with_energy_and_two_failed_writes() {
    let mut c = config();
    c.caps.budget = Some(Watts(2000.0));
    let mut w = W::with(found_at(8, 600.0), c);
    w.pass(10.0);
    w.devs[3].cap = Watts(700.0);
    w.devs[3].energy = 0.0;
    w.devs[3].fail_sets = Some(None);
    w.pass(4.0);
    w.devs[3].fail_sets = None;
    w.pass(100.0);
    let sum = w.sum();
    w.show();
    w.stop();
    println!("{:?}", w.caps());
    assert!(
        sum <= 2000.0 && w.caps() == [600.0; 8],
        "{sum} {:?}",
        w.caps()
    );
}

fn refused(found: f64, how: u8) {
    let mut w = W::with(found_at(4, found), config());
    w.pass(5.0);
    for d in &mut w.devs {
        d.refuses = how;
    }
    w.command(budget(1600.0)).unwrap();
    w.pass(5.0);
    for d in &mut w.devs {
        d.refuses = 0;
    }
    w.pass(60.0);
    w.show();
    assert!(w.sum() <= 1600.0, "{}", w.sum());
}
/// Rights are lacking for some seconds.
#[test]
fn no_permission_600() {
    refused(600.0, 1);
}
#[test]
fn no_permission_700() {
    refused(700.0, 1);
}
#[test]
fn out_of_range_600() {
    refused(600.0, 2);
}

/// A driver takes no write for four seconds, just when the budget comes down.
#[test]
fn four_seconds_of_trouble() {
    let mut w = W::new(8, config());
    w.pass(5.0);
    w.devs[3].fail_sets = Some(None);
    w.command(budget(2000.0)).unwrap();
    w.pass(4.0);
    w.devs[3].fail_sets = None;
    w.pass(600.0);
    w.show();
    assert!(w.sum() <= 2000.0, "{}", w.sum());
}

/// A reset after which the driver has another default and highest cap.
#[test]
fn reset_to_another_default() {
    let mut c = config();
    c.caps.budget = Some(Watts(1900.0));
    let mut w = W::new(8, c);
    w.pass(10.0);
    w.devs[3].range.highest = Watts(600.0);
    w.devs[3].range.default = Watts(600.0);
    w.devs[3].cap = Watts(600.0);
    w.devs[3].energy = 0.0;
    w.pass(120.0);
    w.show();
    assert!(w.sum() <= 1900.0, "{}", w.sum());
}

/// As systemd does it: kill -9, `litd restore` (ExecStopPost), a new daemon. A write that was called failed is done after that.
#[test]
fn failed_write_kill_restore_start() {
    let mut w = W::new(4, config());
    w.pass(5.0);
    w.devs[1].fail_sets = Some(Some(10 * S));
    w.command(budget(1600.0)).unwrap();
    w.pass(0.3);
    w.devs[1].fail_sets = None;
    w.kill();
    assert!(w.restore());
    w.pass(1.0);
    w.start();
    w.pass(60.0);
    let done = w.stop();
    w.show();
    println!("{done}");
    assert_eq!(w.caps(), [700.0; 4]);
}

/// Stopped in order a second after a failed write: `litd restore` follows.
#[test]
fn failed_write_stop_restore() {
    let mut w = W::new(4, config());
    w.pass(5.0);
    w.devs[1].fail_sets = Some(Some(22 * S));
    w.command(budget(1600.0)).unwrap();
    w.pass(0.3);
    w.devs[1].fail_sets = None;
    println!("stopped {}", w.stop());
    println!("restored {}", w.restore());
    let left = litd_core::journal::read(&w.store.0.borrow().mem.journal)
        .unwrap()
        .is_some();
    w.pass(30.0);
    w.show();
    assert!(left || w.caps() == [700.0; 4], "{:?}", w.caps());
}

/// A job ends; the BMC's reading follows ten seconds later, as an average does.
#[test]
fn bmc_lags_behind_a_jobs_end() {
    use litd_core::NodeReading;
    let mut c = config();
    c.node.budget = Some(Watts(10_000.0));
    let mut w = W::new(8, c);
    let tell = |w: &mut W, watts: f64| {
        w.event(Event::NodePower(NodeReading {
            source: "redfish".into(),
            power: Some(Watts(watts)),
            ..NodeReading::default()
        }));
        w.pass(5.0);
    };
    for d in &mut w.devs {
        d.power = Some(Watts(690.0));
    }
    w.pass(3.0);
    for _ in 0..200 {
        tell(&mut w, 8.0 * 690.0 + 1400.0);
    }
    println!(
        "bound {:?}, reserve {:?}",
        w.status().node.measured.as_ref().unwrap().bound,
        w.status().node.measured.unwrap().reserve
    );
    assert_eq!(w.sum(), 5600.0);
    // The job ends: GPUs idle at once, the BMC says the old power for 10 s more.
    for d in &mut w.devs {
        d.power = Some(Watts(90.0));
    }
    for _ in 0..3 {
        tell(&mut w, 8.0 * 690.0 + 1400.0);
    }
    let mut hours = 0.0;
    for _ in 0..4000 {
        tell(&mut w, 8.0 * 90.0 + 1400.0);
        if w.sum() < 5599.0 {
            hours += 5.0 / 3600.0;
        }
    }
    let m = w.status().node.measured.unwrap();
    println!(
        "bound {:?}, reserve {:?}, lowered for {hours:.2} h of 5.6 h",
        m.bound, m.reserve
    );
    w.log.truncate(60);
    w.show();
    assert!(hours < 0.1, "{hours}");
}

fn cached(read_back: litd_power::ReadBack) {
    let mut devs = found_at(8, 700.0);
    for d in &mut devs {
        d.id.read_back = read_back;
        d.power = Some(Watts(100.0));
    }
    let mut w = W::with(devs, config());
    w.pass(5.0);
    w.devs[3].cached = true;
    w.devs[3].power = Some(Watts(690.0));
    w.command(budget(4000.0)).unwrap();
    w.pass(120.0);
    w.show();
    // What gpu3 is seen to draw, beside what the others hold.
    assert!(w.sum() <= 4000.0, "{}", w.sum());
}
/// A driver that answers from memory, and firmware that has not taken the cap: its power says so.
#[test]
fn cap_not_in_force_cached() {
    cached(litd_power::ReadBack::MayBeCached)
}
#[test]
fn cap_not_in_force_device() {
    cached(litd_power::ReadBack::Device)
}

/// Limits, floors and budgets at the edges of what is accepted.
#[test]
fn fuzz_edges() {
    let mut bad = 0;
    for seed in number("ADV_FIRST", 0)..number("ADV_FIRST", 0) + number("ADV_N", 4000) {
        let mut r = fuzz::Rng(seed);
        let mut c = config();
        c.caps.gpu_floor =
            Watts(r.pick(&[1.0, 100.0, 200.0, 250.0, 300.0, 349.0, 350.0, 700.0, 0.4]));
        c.caps.gpu_ceiling = r
            .pick(&[
                None,
                None,
                Some(350.0),
                Some(349.7),
                Some(500.0),
                Some(700.0),
                Some(1000.0),
            ])
            .map(Watts);
        let gpus = 1 + r.below(8);
        let mut devs = found_at(gpus, 700.0);
        for d in &mut devs {
            d.range.lowest = Watts(r.pick(&[0.0, 75.5, 100.0, 250.0, 300.0]));
            d.range.highest = Watts(r.pick(&[350.0, 349.7, 400.0, 700.0, 750.0, 1000.0]));
            d.range.default = Watts(d.range.highest.0 * r.pick(&[1.0, 0.9, 0.8]));
            d.range.resolution = Watts(r.pick(&[1.0, 0.001]));
            let span = d.range.highest.0 - d.range.lowest.0;
            d.cap = Watts(
                ((d.range.lowest.0 + span * r.pick(&[0.0, 0.1, 0.5, 0.77, 1.0])) * 1000.0).round()
                    / 1000.0,
            );
            if d.cap.0 <= 0.0 {
                d.cap = d.range.default;
            }
        }
        if c.caps.gpu_ceiling.is_some_and(|it| it < c.caps.gpu_floor) {
            continue;
        }
        let found: Vec<f64> = devs.iter().map(|d| d.cap.0).collect();
        let floor = |d: &Dev| {
            let ceiling = c
                .caps
                .gpu_ceiling
                .unwrap_or(Watts(d.range.default.0.max(d.cap.0)))
                .max(d.range.lowest)
                .min(d.range.highest);
            d.range.lowest.max(c.caps.gpu_floor).min(ceiling).0
        };
        let floors: f64 = devs.iter().map(floor).sum();
        let low: f64 = devs
            .iter()
            .map(|d| (floor(d).ceil()).min(d.cap.0))
            .sum::<f64>();
        let whole: f64 = found.iter().sum();
        let b = (floors + (whole - floors).max(0.0) * r.pick(&[0.0, 0.01, 0.3, 0.7, 1.0])).ceil();
        c.caps.budget = Some(Watts(b));
        let inventory: Vec<litd_core::Device> = devs
            .iter()
            .map(|d| litd_core::Device {
                identity: d.id.clone(),
                range: d.range.into(),
                reading: Some(world::reading(d)),
            })
            .collect();
        if !litd_core::budget::impossible(&c, &inventory).is_empty() {
            continue;
        }
        let out = std::panic::catch_unwind(|| {
            let mut w = W::with(devs.clone(), c.clone());
            w.pass(15.0);
            let sum = w.sum();
            let held = w.caps();
            let told = w.status();
            w.stop();
            (sum, held, w.caps(), told)
        });
        match out {
            Err(_) => {
                println!("seed {seed}: PANIC");
                bad += 1;
            }
            Ok((sum, held, after, told)) => {
                if sum > b.max(low) + gpus as f64 * 0.0 + 0.001 {
                    println!(
                        "seed {seed}: {sum} of {b} (low {low}) floor {} ceiling {:?} held {held:?} found {found:?} {:?}",
                        c.caps.gpu_floor,
                        c.caps.gpu_ceiling,
                        devs.iter()
                            .map(|d| (d.range.lowest.0, d.range.highest.0))
                            .collect::<Vec<_>>()
                    );
                    bad += 1;
                }
                if after != found {
                    println!("seed {seed}: after the stop {after:?}, found {found:?}");
                    bad += 1;
                }
                let _ = told;
            }
        }
        if bad > 15 {
            break;
        }
    }
    println!("{bad} bad");
}

/// A CPU socket's limit is raised by hand under a node's budget.
#[test]
fn cpu_by_hand_under_a_nodes_budget() {
    let mut c = config();
    c.node.budget = Some(Watts(6000.0));
    c.node.reserve = Some(Watts(1000.0));
    let mut devs = found_at(8, 700.0);
    let mut cpu = dev(0, litd_power::DeviceKind::Cpu);
    cpu.range = litd_power::CapRange {
        lowest: Watts(0.0),
        highest: Watts(4095.0),
        default: Watts(400.0),
        resolution: Watts(1.0),
    };
    cpu.cap = Watts(400.0);
    devs.push(cpu);
    let mut w = W::with(devs, c);
    w.pass(5.3);
    let all = |w: &W| w.devs.iter().map(|d| d.cap.0).sum::<f64>();
    println!("{}", all(&w));
    assert!(all(&w) <= 5000.0);
    println!(
        "{:?}",
        w.command(Command::SetCap {
            device: "cpu0".into(),
            watts: Watts(1200.0)
        })
    );
    let mut over = 0.0;
    let mut most: f64 = 0.0;
    for _ in 0..100 {
        if all(&w) > 5000.0 {
            over += 0.1;
        }
        most = most.max(all(&w));
        w.step();
    }
    println!("{over} s above, {most}");
    w.show();
    assert!(over < 0.05, "{over} s, {most} of 5000");
}

/// Somebody else raises a CPU socket's limit.
#[test]
fn budget_with_a_full_disk_is_told() {
    let mut w = W::new(4, config());
    w.pass(5.0);
    w.store.0.borrow_mut().mode = 3;
    let one = w.command(budget(1600.0));
    w.pass(3.0);
    let two = w.command(budget(1500.0));
    w.pass(3.0);
    assert!(one.is_err() || two.is_err(), "{one:?} {two:?} {}", w.sum());
}

/// A CPU socket whose limit can't be read, under a node's budget with plenty of room.
#[test]
fn unreadable_cpu_under_a_nodes_budget() {
    let mut c = config();
    c.node.budget = Some(Watts(9000.0));
    c.node.reserve = Some(Watts(1000.0));
    let mut devs = found_at(8, 700.0);
    let mut cpu = dev(0, litd_power::DeviceKind::Cpu);
    cpu.range = litd_power::CapRange {
        lowest: Watts(0.0),
        highest: Watts(4095.0),
        default: Watts(400.0),
        resolution: Watts(1.0),
    };
    cpu.cap = Watts(400.0);
    cpu.fail_reads = true;
    devs.push(cpu);
    let mut w = W::with(devs, c);
    w.pass(120.0);
    w.show();
    assert!(w.sum() > 5000.0, "{}", w.sum());
}

/// A foreign cap with a lower limit in force; the device falls silent, and that limit is lifted.
#[test]
fn foreign_enforced_then_silent() {
    let mut c = config();
    c.caps.budget = Some(Watts(3000.0));
    let mut w = W::new(8, c);
    w.pass(5.0);
    w.devs[3].enforced = Some(Watts(250.0));
    w.foreign(3, 650.0);
    w.pass(10.0);
    println!("{:?}", w.caps());
    w.devs[3].hang = true;
    w.devs[3].enforced = None;
    w.pass(120.0);
    w.show();
    // What it was read to hold is 650 W.
    assert!(w.sum() <= 3000.0, "{}", w.sum());
}

#[test]
fn fuzz_smooth() {
    if let Ok(seed) = std::env::var("ADV_SEED") {
        if let Err((why, log)) = fuzz::smooth(seed.parse().unwrap()) {
            for line in log {
                println!("{line}");
            }
            panic!("{why}");
        }
        return;
    }
    let first = number("ADV_FIRST", 0);
    let mut bad = 0;
    for seed in first..first + number("ADV_N", 3000) {
        match std::panic::catch_unwind(|| fuzz::smooth(seed)) {
            Ok(Ok(())) => {}
            Ok(Err((why, _))) => {
                println!("seed {seed}: {why}");
                bad += 1;
            }
            Err(_) => {
                println!("seed {seed}: PANIC");
                bad += 1;
            }
        }
        if bad > 30 {
            break;
        }
    }
    println!("{bad} bad");
}

/// A node of four MI250X: each card's second die tells 0 W as its cap and default (aldebaran_get_power_limit), and takes no write.
#[test]
fn second_dies() {
    let mut c = config();
    c.caps.budget = Some(Watts(1800.0));
    let mut devs = found_at(8, 560.0);
    for (n, d) in devs.iter_mut().enumerate() {
        d.range = litd_power::CapRange {
            lowest: Watts(0.0),
            highest: Watts(560.0),
            default: Watts(560.0),
            resolution: Watts(1.0),
        };
        if n % 2 == 1 {
            d.range.default = Watts(0.0);
            d.refuses = 2;
            d.cap = Watts(0.0);
            d.power = Some(Watts(0.0));
        }
    }
    let mut w = W::with(devs, c);
    w.pass(30.0);
    w.show();
    // Four caps of 450 W would do.
    assert!(w.sum() >= 1700.0, "{}", w.sum());
}

/// The driver as a whole stands still for eight seconds (it resets one GPU, say) and goes on. Then the lease ends.
#[test]
fn driver_stalls_for_eight_seconds() {
    let mut c = config();
    c.caps.safe_budget = Some(Watts(2400.0));
    let mut w = W::new(8, c);
    w.pass(3.0);
    w.command(Command::Lease(Lease {
        controller: "fleet".into(),
        seconds: 60.0,
        mode: None,
        budget: Some(Watts(5600.0)),
    }))
    .unwrap();
    w.pass(10.0);
    for d in 0..8 {
        w.devs[d].hang = true;
    }
    w.pass(8.0);
    for d in 0..8 {
        w.unhang(d);
    }
    w.pass(300.0);
    w.show();
    assert!(w.sum() <= 2400.0, "{}", w.sum());
}

/// Every GPU's driver takes no write for four seconds, just when the budget comes down.
#[test]
fn four_seconds_of_trouble_everywhere() {
    let mut w = W::new(8, config());
    w.pass(5.0);
    for d in 0..8 {
        w.devs[d].fail_sets = Some(None);
    }
    w.command(budget(2000.0)).unwrap();
    w.pass(4.0);
    for d in 0..8 {
        w.devs[d].fail_sets = None;
    }
    w.pass(600.0);
    println!("{} {}", w.sum(), w.status().node.summary);
    assert!(w.sum() <= 2000.0, "{}", w.sum());
}

/// A stall, and then the orderly stop of a litd that is to leave the safe budget behind.
#[test]
fn stall_then_hold() {
    let mut c = config();
    c.caps.safe_budget = Some(Watts(2400.0));
    c.caps.on_exit = OnExit::Hold;
    let mut w = W::new(8, c);
    w.pass(3.0);
    w.command(Command::Lease(Lease {
        controller: "fleet".into(),
        seconds: 600.0,
        mode: None,
        budget: Some(Watts(5600.0)),
    }))
    .unwrap();
    w.pass(10.0);
    for d in 0..8 {
        w.devs[d].hang = true;
    }
    w.pass(8.0);
    for d in 0..8 {
        w.unhang(d);
    }
    w.pass(20.0);
    println!("stop {}", w.stop());
    println!("{:?}", w.caps());
    assert!(w.sum() <= 2400.0, "{}", w.sum());
}

/// A rack's emergency: the BMC of a node without a limit tells one of 5000 W, and the node draws 7000 W.
#[test]
fn bmc_limit_in_an_emergency() {
    use litd_core::NodeReading;
    let mut c = config();
    c.node.reserve = Some(Watts(1400.0));
    let mut w = W::new(8, c);
    for d in &mut w.devs {
        d.power = Some(Watts(690.0));
    }
    w.pass(3.0);
    let tell = |w: &mut W, cap: Option<f64>| {
        let power = 1400.0 + w.devs.iter().map(|d| d.cap.0.min(690.0)).sum::<f64>();
        w.event(Event::NodePower(NodeReading {
            source: "redfish".into(),
            power: Some(Watts(power)),
            cap: cap.map(Watts),
            ..NodeReading::default()
        }));
        w.pass(5.0);
    };
    for _ in 0..20 {
        tell(&mut w, None);
    }
    w.log.push("--- limit".into());
    for _ in 0..120 {
        tell(&mut w, Some(5000.0));
    }
    w.show();
    assert!(w.sum() + 1400.0 <= 5000.0, "{}", w.sum());
}
