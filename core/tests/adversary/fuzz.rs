//! Anything in any order; what has to be so once all is calm, without excuses.
use crate::world::*;
use litd_api::{Command, DeviceState, Lease, Mode};
use litd_core::config::OnExit;
use litd_core::{Config, Event};
use litd_units::Watts;

pub struct Rng(pub u64);
impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn chance(&mut self, p: f64) -> bool {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 <= p
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Which operations may happen; bits.
pub const RESET: u32 = 1;
pub const FOREIGN: u32 = 2;
pub const FAILSET: u32 = 4;
pub const LATE: u32 = 8;
pub const FAILREAD: u32 = 16;
pub const HANG: u32 = 32;
pub const CRASH: u32 = 64;
pub const RELEASE: u32 = 128;
pub const BYHAND: u32 = 256;
pub const MODES: u32 = 512;
pub const LEASES: u32 = 1024;
pub const RANGES: u32 = 2048;
pub const UNMANAGED: u32 = 4096;
pub const HOLD: u32 = 8192;
pub const SLOWSET: u32 = 16384;
pub const REFUSE: u32 = 32768;
pub const DISK: u32 = 65536;

pub fn run(seed: u64, mask: u32) -> Result<(), (String, Vec<String>)> {
    let mut r = Rng(seed);
    let gpus = 3 + r.below(4);
    let mut c = Config {
        mode: Mode::Observe,
        ..Config::default()
    };
    let full = gpus as f64 * 700.0;
    if r.chance(0.4) {
        c.caps.budget = Some(Watts(
            (full * (0.35 + 0.5 * (r.below(100) as f64 / 100.0))).floor(),
        ));
    }
    if mask & HOLD != 0 && r.chance(0.5) {
        c.caps.safe_budget = Some(Watts((full * 0.5).floor()));
        c.caps.on_exit = OnExit::Hold;
    }
    let mut devs: Vec<Dev> = (0..gpus)
        .map(|n| dev(n, litd_power::DeviceKind::Gpu))
        .collect();
    for d in &mut devs {
        if r.chance(0.4) {
            d.cap = Watts(r.pick(&[600.0, 500.0, 450.5]));
        }
    }
    let mut natural: Vec<Vec<f64>> = devs.iter().map(|d| vec![d.cap.0]).collect();
    let mut w = W::with(devs, c);
    w.pass(3.0);
    let steps = 4 + r.below(14);
    let mut until: Vec<i64> = vec![0; gpus];
    let mut lifted = false;
    let mut disk_until = 0i64;
    let mut hands = vec![0u32; gpus];
    let mut resets = vec![0u32; gpus];
    for _ in 0..steps {
        let d = r.below(gpus);
        let name = format!("gpu{d}");
        if w.core.is_none() {
            w.start();
        }
        let what = 1u32 << r.below(17);
        match what & mask {
            RESET => {
                w.devs[d].energy = 0.0;
                let default = w.devs[d].range.default.0;
                w.foreign(d, default);
                natural[d].push(default);
                resets[d] += 1;
            }
            DISK => {
                let m = r.pick(&[1, 2, 3, 4, 5, 8, 11, 7]);
                {
                    let mut p = w.store.0.borrow_mut();
                    p.mode = m;
                    if m == 0 {
                        p.lost = true;
                        p.mem.journal.clear();
                    }
                }
                w.log.push(format!("{:8.2} DISK {m}", w.now as f64 / 1e9));
                disk_until = w.now + r.below(6000) as i64 * MS;
            }
            REFUSE => {
                w.devs[d].refuses = r.pick(&[1, 2]);
                until[d] = w.now + r.below(6000) as i64 * MS;
            }
            FOREIGN => {
                let cap = r.pick(&[700.0, 650.0, 333.0, 222.0, 250.0]);
                if cap <= w.devs[d].range.highest.0 {
                    w.foreign(d, cap);
                    natural[d].push(cap);
                    hands[d] += 1;
                }
            }
            FAILSET => {
                w.devs[d].fail_sets = Some(None);
                until[d] = w.now + r.below(8000) as i64 * MS;
            }
            LATE => {
                w.devs[d].fail_sets = Some(Some((1 + r.below(20)) as i64 * S));
                until[d] = w.now + r.below(4000) as i64 * MS;
            }
            FAILREAD => {
                w.devs[d].fail_reads = true;
                until[d] = w.now + r.below(6000) as i64 * MS;
            }
            HANG => {
                w.devs[d].hang = true;
                until[d] = w.now + r.below(9000) as i64 * MS;
            }
            SLOWSET => {
                w.devs[d].set_takes = r.below(3000) as i64 * MS;
                until[d] = w.now + r.below(9000) as i64 * MS;
            }
            CRASH => {
                w.kill();
                if r.chance(0.4) {
                    w.restore();
                }
                w.pass(r.below(2000) as f64 / 1000.0);
                w.start();
                lifted = false;
            }
            RELEASE => {
                let device = (!r.chance(0.2)).then(|| name.clone());
                if r.chance(0.5) {
                    let _ = w.command(Command::Restore { device });
                } else {
                    let _ = w.command(Command::Resume { device });
                }
            }
            BYHAND => {
                let cap = r.pick(&[700.0, 300.0, 400.0, 650.0, 222.0]);
                if w.command(Command::SetCap {
                    device: name,
                    watts: Watts(cap),
                })
                .is_ok()
                {
                    natural[d].push(cap);
                }
            }
            MODES => {
                let mut c = w.config.clone();
                match r.below(4) {
                    0 => c.mode = Mode::Off,
                    1 => c.mode = Mode::Observe,
                    2 => {
                        c.caps.budget = r.chance(0.6).then(|| {
                            Watts((full * (0.35 + 0.6 * (r.below(100) as f64 / 100.0))).floor())
                        })
                    }
                    _ => {
                        w.event(Event::KillSwitch(Some("k".into())));
                        w.pass(r.below(6000) as f64 / 1000.0);
                        w.event(Event::KillSwitch(None));
                    }
                }
                if w.core.as_ref().unwrap().refuses(&c).is_none() {
                    w.config = c.clone();
                    w.event(Event::Reloaded(Box::new(c)));
                }
            }
            LEASES => {
                let watts = (full * (0.35 + 0.6 * (r.below(100) as f64 / 100.0))).floor();
                match r.below(3) {
                    0 => {
                        let _ = w.command(Command::Lease(Lease {
                            controller: "f".into(),
                            seconds: 1.0 + r.below(20) as f64,
                            mode: None,
                            budget: Some(Watts(watts)),
                        }));
                    }
                    1 => {
                        let _ = w.command(Command::EndLease);
                    }
                    _ => {
                        let on = r.chance(0.7);
                        if w.command(Command::SetBudget {
                            watts: on.then_some(Watts(watts)),
                        })
                        .is_ok()
                        {
                            lifted = on;
                        }
                    }
                }
            }
            RANGES => {
                let held = w.devs[d].cap.0;
                let highest = r.pick(&[700.0, 500.0, 600.0]);
                w.devs[d].range.highest = Watts(highest);
                w.devs[d].range.default = Watts(highest);
                if held > highest {
                    w.foreign(d, highest);
                    natural[d].push(highest);
                    hands[d] += 1;
                }
            }
            UNMANAGED => {
                let it = if r.chance(0.5) {
                    vec!["0000:f1:00.0".to_owned()]
                } else {
                    vec![]
                };
                w.event(Event::Unmanaged(it.into_iter().collect()));
            }
            _ => {}
        }
        let wait = w.now + r.pick(&[50, 200, 700, 1500, 3000, 9000]) * MS;
        while w.now < wait {
            w.step();
            for d in 0..gpus {
                if w.now >= until[d] {
                    heal(&mut w, d);
                }
            }
            if w.now >= disk_until {
                w.store.0.borrow_mut().mode = 0;
            }
        }
    }
    let _ = lifted;
    for d in 0..gpus {
        if w.devs[d].range.highest.0 < 700.0 {
            w.devs[d].range = RANGE;
        }
    }
    // Calm.
    for d in 0..gpus {
        heal(&mut w, d);
    }
    w.store.0.borrow_mut().mode = 0;
    w.event(Event::Unmanaged(Default::default()));
    w.log.push(format!("{:8.2} --- calm", w.now as f64 / 1e9));
    w.pass(75.0);
    let s = w.status();
    let off = s.node.mode == Mode::Off;
    let set = w.config.caps.budget.is_some()
        || s.node.lease.is_some()
        || lifted
        || w.config.caps.safe_budget.is_some();
    let mut least = 0.0;
    for (i, it) in s.devices.iter().enumerate() {
        least += match it.state {
            DeviceState::Ours => w.devs[i].cap.0.min(it.floor.0 + 1.0),
            _ => w.devs[i].cap.0,
        };
    }
    let fail = |w: &W, why: String| {
        let mut log = w.log.clone();
        log.push(format!(
            "{:?} budget {} caps {} {}",
            w.caps(),
            s.node.budget,
            s.node.caps,
            s.node.summary
        ));
        for d in &s.devices {
            log.push(format!(
                "   {} {:?} found {:?} cap {:?}",
                d.name, d.state, d.found, d.cap
            ));
        }
        Err((why, log))
    };
    if !off && set && w.sum() > s.node.budget.0.max(least) + 0.001 {
        return fail(
            &w,
            format!("sum {} above {} (least {least})", w.sum(), s.node.budget),
        );
    }
    for (i, it) in s.devices.iter().enumerate() {
        if it.state == DeviceState::Foreign && hands[i] == 0 && resets[i] < 3 {
            return fail(&w, format!("gpu{i} is foreign without a hand"));
        }
        if mask & (1 << 20) != 0
            && it.state == DeviceState::Faulty
            && resets[i] == 0
            && !off
            && set
            && w.sum() > s.node.budget.0 + 0.001
        {
            return fail(
                &w,
                format!("gpu{i} is faulty, {} of {}", w.sum(), s.node.budget),
            );
        }
    }
    let told = s.node.caps.0;
    let rel = s.devices.iter().any(|d| d.state == DeviceState::Released);
    if !rel && !off && set && w.sum() > s.node.budget.0 + 0.001 && told <= s.node.budget.0 + 0.001 {
        return fail(
            &w,
            format!("sum {} and it says {told} of {}", w.sum(), s.node.budget),
        );
    }
    if !off && !set {
        for (i, it) in s.devices.iter().enumerate() {
            if it.state == DeviceState::Ours
                && it.found.map(|f| f.0) != Some(w.devs[i].cap.0)
                && !natural[i].contains(&w.devs[i].cap.0)
            {
                return fail(
                    &w,
                    format!(
                        "gpu{i} holds {} found {:?} natural {:?}",
                        w.devs[i].cap, it.found, natural[i]
                    ),
                );
            }
        }
    }
    for (i, it) in s.devices.iter().enumerate() {
        if let Some(found) = it.found
            && !natural[i].contains(&found.0)
        {
            return fail(
                &w,
                format!(
                    "gpu{i} found {found} which nobody else ever set: {:?}",
                    natural[i]
                ),
            );
        }
    }
    let hold = w.config.caps.on_exit == OnExit::Hold;
    let done = w.stop();
    w.pass(2.0);
    let left = litd_core::journal::read(&w.store.0.borrow().mem.journal)
        .unwrap()
        .map_or(vec![], |r| r.entries);
    let kept = |i: usize| left.iter().any(|e| e.address == w.devs[i].id.address);
    if !done {
        return fail(&w, "stop is not done".into());
    }
    if !hold {
        for i in 0..gpus {
            let cap = w.devs[i].cap.0;
            if !natural[i].contains(&cap) && !kept(i) {
                return fail(
                    &w,
                    format!(
                        "gpu{i} holds {cap} after the stop, natural {:?}",
                        natural[i]
                    ),
                );
            }
            // Nobody but litd has ever touched it.
            if natural[i].len() == 1 && cap != natural[i][0] && !kept(i) {
                return fail(&w, format!("gpu{i} {cap}"));
            }
        }
    } else {
        let safe = w.config.caps.safe_budget.unwrap().0;
        if w.sum() > safe.max(least) + 0.001
            && s.devices.iter().all(|d| d.state == DeviceState::Ours)
        {
            return fail(&w, format!("sum {} is left, {safe} is safe", w.sum()));
        }
    }
    Ok(())
}

fn heal(w: &mut W, d: usize) {
    w.devs[d].fail_sets = None;
    w.devs[d].refuses = 0;
    w.devs[d].fail_reads = false;
    w.devs[d].set_takes = 0;
    if w.devs[d].hang {
        w.unhang(d);
    }
}

/// Nothing fails and nobody else is there: no moment above the budget, but for the second in which a lower one comes into force.
pub fn smooth(seed: u64) -> Result<(), (String, Vec<String>)> {
    let mut r = Rng(seed ^ 0x5555);
    let gpus = 3 + r.below(5);
    let full = gpus as f64 * 700.0;
    let mut c = Config {
        mode: Mode::Observe,
        ..Config::default()
    };
    if r.chance(0.6) {
        c.caps.budget = Some(Watts(
            (full * (0.35 + 0.5 * (r.below(100) as f64 / 100.0))).floor(),
        ));
    }
    if r.chance(0.3) {
        c.caps.safe_budget = Some(Watts((full * 0.6).floor()));
        if r.chance(0.5) {
            c.caps.on_exit = OnExit::Hold;
        }
    }
    let mut devs: Vec<Dev> = (0..gpus)
        .map(|n| dev(n, litd_power::DeviceKind::Gpu))
        .collect();
    for d in &mut devs {
        if r.chance(0.4) {
            d.cap = Watts(r.pick(&[600.0, 500.0, 450.5]));
        }
        d.power = r.pick(&[None, None, Some(Watts(480.0))]);
    }
    let mut w = W::with(devs, c);
    w.pass(1.0);
    let mut budgets: Vec<(i64, f64)> = vec![];
    let mut above: i64 = 0;
    for _ in 0..(6 + r.below(14)) {
        let d = r.below(gpus);
        let name = format!("gpu{d}");
        let watts = (full * (0.35 + 0.7 * (r.below(100) as f64 / 100.0))).floor();
        for dev in &mut w.devs {
            dev.set_takes = r.pick(&[0, 0, 100, 200, 300]) * MS;
        }
        match r.below(9) {
            0 => {
                let _ = w.command(Command::Lease(Lease {
                    controller: "f".into(),
                    seconds: 1.0 + r.below(9) as f64,
                    mode: r.pick(&[None, Some(Mode::Off), Some(Mode::Observe)]),
                    budget: Some(Watts(watts)),
                }));
            }
            1 => {
                let _ = w.command(Command::EndLease);
            }
            2 => {
                let _ = w.command(Command::SetBudget {
                    watts: Some(Watts(watts)),
                });
            }
            3 => {
                let _ = w.command(Command::SetBudget { watts: None });
            }
            4 => {
                let device = (!r.chance(0.2)).then_some(name);
                let _ = w.command(Command::Restore { device });
            }
            5 => {
                let _ = w.command(Command::Resume { device: None });
            }
            6 => {
                let cap = r.pick(&[700.0, 300.0, 400.0, 650.0, 222.0]);
                let _ = w.command(Command::SetCap {
                    device: name,
                    watts: Watts(cap),
                });
            }
            7 => {
                let mut c = w.config.clone();
                if r.chance(0.5) {
                    c.caps.budget = r.chance(0.7).then_some(Watts(watts));
                }
                if r.chance(0.3) {
                    c.mode = r.pick(&[Mode::Off, Mode::Observe, Mode::Observe]);
                }
                if r.chance(0.3) {
                    c.caps.gpu_floor = Watts(r.pick(&[200.0, 250.0, 300.0]));
                }
                if r.chance(0.2) {
                    c.caps.gpu_ceiling = r.pick(&[None, Some(Watts(600.0))]);
                }
                if w.core.as_ref().unwrap().refuses(&c).is_none() {
                    w.config = c.clone();
                    w.event(Event::Reloaded(Box::new(c)));
                }
            }
            _ => {
                w.event(Event::KillSwitch(Some("k".into())));
                for _ in 0..r.below(30) {
                    w.step();
                }
                w.event(Event::KillSwitch(None));
                budgets.clear();
                above = 0;
            }
        }
        let until = w.now + r.pick(&[100, 300, 900, 2500, 6000]) * MS;
        while w.now < until {
            w.step();
            let s = w.status();
            let off = s.node.mode == Mode::Off;
            budgets.push((w.now, s.node.budget.0));
            let now = w.now;
            budgets.retain(|it| it.0 > now - 1200 * MS);
            let allowed = budgets.iter().map(|it| it.1).fold(0.0, f64::max);
            let least: f64 = s
                .devices
                .iter()
                .enumerate()
                .map(|(i, it)| match it.state {
                    DeviceState::Ours => w.devs[i].cap.0.min(it.floor.0 + 1.0),
                    _ => w.devs[i].cap.0,
                })
                .sum();
            let sum = w.sum();
            if !off && sum > allowed.max(least) + 0.001 {
                above += 1;
            } else {
                above = 0;
            }
            if above
                > std::env::var("ADV_ABOVE")
                    .ok()
                    .and_then(|it| it.parse().ok())
                    .unwrap_or(13)
            {
                w.log.push(format!(
                    "{:8.2} ABOVE {sum} of {allowed} {:?}",
                    w.now as f64 / 1e9,
                    w.caps()
                ));
                let mut log = w.log.clone();
                log.push(format!(
                    "{:?}",
                    s.devices
                        .iter()
                        .map(|d| (d.state, d.cap))
                        .collect::<Vec<_>>()
                ));
                return Err((format!("{sum} of {allowed}"), log));
            }
        }
    }
    Ok(())
}
