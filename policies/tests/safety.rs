//! No law, no sample and no device can make a wrong cap: properties over all inputs.
#![allow(clippy::unwrap_used, clippy::panic)]

mod ledger;

use ledger::{drive, ledger};
use litd_diagnosis::Marks;
use litd_policies::config::Guard;
use litd_policies::{
    Actuator, CapVector, Config, Controller, Cpu, Decision, Envelope, GpuReading, Law, Leads,
    Limits, Node, Plan, Policy, Sample, Scale, State, Why, Written, inc_power_gpu,
};
use litd_units::{Celsius, Millis, Watts};
use proptest::prelude::*;

/// Failures are printed with their inputs; no file is left in the tree.
fn no_files() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Any number at all, the awkward ones often.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -2000.0..2000.0,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, f64::MAX, f64::MIN, 1e-300,
        ]),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let unit = prop::sample::select(vec![1.0, 0.001, 0.000_001, 0.125, 5.0, 0.3]);
    (0.0..400.0, 0.0..500.0, unit).prop_map(|(floor, span, unit): (f64, f64, f64)| Limits {
        floor: Watts(floor),
        ceiling: Watts(floor + span + 2.0 * unit),
        resolution: Watts(unit),
    })
}

fn watts(values: &[f64]) -> Vec<Watts> {
    values.iter().copied().map(Watts).collect()
}

/// The rules, checked in exact microwatts.
fn assert_allowed(caps: &CapVector, limits: &[Limits], budget: Watts) {
    let micro = |w: Watts| (w.0 * 1e6).round() as i64;
    let mut sum = 0;
    assert_eq!(caps.len(), limits.len());
    for (device, limits) in limits.iter().enumerate() {
        let cap = caps.watts(device).unwrap();
        assert!(cap.is_finite());
        assert!(
            micro(cap) >= micro(limits.floor) && micro(cap) <= micro(limits.ceiling),
            "{cap} is outside {limits:?}"
        );
        assert_eq!(
            micro(cap) % micro(limits.resolution),
            0,
            "{cap} in {limits:?}"
        );
        sum += micro(cap);
    }
    assert!(sum <= micro(budget), "{sum} uW above {budget}");
}

fn device() -> impl Strategy<Value = (Limits, f64, f64, f64)> {
    (limits(), any_number(), any_number(), any_number())
}

proptest! {
    #![proptest_config(no_files())]

    #[test]
    fn whatever_is_wanted_the_caps_are_allowed(
        devices in prop::collection::vec(device(), 1..17),
        budget in 1.0..20_000.0,
    ) {
        let limits: Vec<Limits> = devices.iter().map(|d| d.0).collect();
        let wanted = watts(&devices.iter().map(|d| d.1).collect::<Vec<_>>());
        let held = watts(&devices.iter().map(|d| d.2).collect::<Vec<_>>());
        let rise = watts(&devices.iter().map(|d| d.3).collect::<Vec<_>>());
        if let Ok(envelope) = Envelope::new(&limits, Watts(budget)) {
            assert_allowed(&envelope.project(&wanted, &held), &limits, Watts(budget));
            let caps = envelope.project_rising(&wanted, &held, &rise);
            assert_allowed(&caps, &limits, Watts(budget));
            // Missing numbers are as good as bad ones.
            assert_allowed(&envelope.project(&wanted[1..], &[]), &limits, Watts(budget));
            for (device, limits) in limits.iter().enumerate() {
                let (cap, held) = (caps.watts(device).unwrap(), held[device]);
                let rise = rise[device].max(Watts::ZERO);
                let unit = limits.resolution;
                prop_assert!(
                    !held.is_finite() || cap <= (held + rise).max(limits.floor + unit) + Watts(1e-8),
                    "{cap} rose from {held} by more than {rise}"
                );
            }
        }
    }

    #[test]
    fn allowed_caps_are_left_as_they_are(
        devices in prop::collection::vec((limits(), 0.0..1.0f64), 1..17),
    ) {
        let limits: Vec<Limits> = devices.iter().map(|d| d.0).collect();
        let all: Watts = limits.iter().map(|l| l.ceiling).sum();
        let envelope = Envelope::new(&limits, all).unwrap();
        let wanted: Vec<Watts> = devices
            .iter()
            .map(|(l, share)| l.floor + (l.ceiling - l.floor) * *share)
            .collect();
        let caps = envelope.project(&wanted, &wanted).to_watts();
        prop_assert_eq!(&envelope.project(&caps, &caps).to_watts(), &caps);
        for ((cap, wanted), limits) in caps.iter().zip(&wanted).zip(&limits) {
            prop_assert!((*cap - *wanted).abs() <= limits.resolution + Watts(1e-6));
        }
    }

    #[test]
    fn a_binding_budget_is_used_up_to_driver_units(
        devices in prop::collection::vec((limits(), 0.0..1.0f64), 1..17),
        share in 0.0..1.0f64,
    ) {
        let limits: Vec<Limits> = devices.iter().map(|d| d.0).collect();
        let wanted: Vec<Watts> = devices
            .iter()
            .map(|(l, share)| l.floor + (l.ceiling - l.floor) * *share)
            .collect();
        let floors: Watts = limits.iter().map(|l| l.floor + l.resolution).sum();
        let sum: Watts = wanted.iter().copied().sum();
        prop_assume!(sum > floors);
        let budget = floors + (sum - floors) * share;
        let caps = Envelope::new(&limits, budget).unwrap().project(&wanted, &wanted);
        let units: Watts = limits.iter().map(|l| l.resolution + Watts(1e-5)).sum();
        prop_assert!(caps.sum() >= budget - units, "{} of {budget}", caps.sum());
    }

    #[test]
    fn equal_leads_give_no_increase(lead in 0.0..1e12f64, gpus in 1usize..17, before in 0.0..1e12f64) {
        let leads = Leads::new(vec![Some(Millis(lead)); gpus]).unwrap();
        for scale in [Scale::Global, Scale::Local] {
            let (increase, _) = inc_power_gpu(&leads, Watts(15.0), scale, Millis(before));
            prop_assert_eq!(increase, vec![Watts::ZERO; gpus]);
        }
    }

    #[test]
    fn increases_stay_between_nothing_and_the_most(
        leads in prop::collection::vec(0.0..1e300f64, 1..17),
        before in 0.0..1e300f64,
    ) {
        let leads = Leads::new(leads.into_iter().map(|l| Some(Millis(l)))).unwrap();
        for scale in [Scale::Global, Scale::Local] {
            let (increase, after) = inc_power_gpu(&leads, Watts(15.0), scale, Millis(before));
            prop_assert!(after >= Millis(before) && after >= leads.largest());
            for i in increase {
                prop_assert!(i >= Watts::ZERO && i <= Watts(15.0), "{i}");
            }
        }
    }
}

fn gpu_limits() -> Limits {
    Limits {
        floor: Watts(300.0),
        ceiling: Watts(750.0),
        resolution: Watts(1.0),
    }
}

fn node() -> Node {
    let limits = Limits {
        floor: Watts(120.0),
        ceiling: Watts(400.0),
        resolution: Watts(1.0),
    };
    Node {
        gpus: vec![gpu_limits(); 4],
        cpus: vec![
            Cpu {
                limits,
                draw: Watts(150.0),
            };
            2
        ],
    }
}

fn config(law: Law) -> Config {
    let mut config = Config {
        law,
        ..Config::default()
    };
    config.calibration.warm_up = 2;
    config.detection.window = 2;
    config
}

#[derive(Debug, Clone)]
struct AnySample {
    leads: Vec<Option<f64>>,
    time: f64,
    temperature: Option<f64>,
    pace: Option<f64>,
    throttled: bool,
    power: Option<f64>,
}

fn any_sample() -> impl Strategy<Value = AnySample> {
    let lead = prop_oneof![
        6 => (0.0..5000.0).prop_map(Some),
        1 => any_number().prop_map(Some),
        1 => Just(None),
    ];
    (
        prop::collection::vec(lead, 3..6),
        prop_oneof![5 => 500.0..700.0, 1 => any_number()],
        prop::option::of(any_number()),
        prop::option::of(prop_oneof![0.9..1.1, any_number()]),
        any::<bool>(),
        prop_oneof![4 => Just(Some(1.0)), 1 => prop::option::of(any_number())],
    )
        .prop_map(
            |(leads, time, temperature, pace, throttled, power)| AnySample {
                leads,
                time,
                temperature,
                pace,
                throttled,
                power,
            },
        )
}

impl AnySample {
    fn on(&self, caps: &[Watts], iteration: u64) -> Sample {
        let hot = |gpu: usize| gpu == 0;
        Sample {
            iteration,
            leads: self.leads.iter().map(|lead| lead.map(Millis)).collect(),
            summands: 640,
            iteration_time: Millis(self.time),
            gpus: (0..4)
                .map(|gpu| GpuReading {
                    cap: caps[gpu],
                    temperature: self.temperature.filter(|_| hot(gpu)).map(Celsius),
                    slowdown: self
                        .temperature
                        .map(|_| Celsius(100.0))
                        .filter(|_| hot(gpu)),
                    throttled: self.throttled && hot(gpu),
                    power_share: if hot(gpu) { self.power } else { Some(1.0) },
                    pace: self.pace.map(|pace| if hot(gpu) { pace } else { 1.0 }),
                    marks: Marks {
                        slower_compute: self
                            .pace
                            .map(|pace| if hot(gpu) { pace - 1.0 } else { 0.0 }),
                        ..Marks::default()
                    },
                    ..GpuReading::default()
                })
                .collect(),
            last_in: vec![],
        }
    }
}

/// An event for a loop.
#[derive(Debug, Clone)]
enum Event {
    Sample(AnySample),
    Replan(Policy, Option<f64>),
    StartFrom(Policy, Vec<f64>),
    Restart,
    Resume,
    Hint(Vec<f64>, f64),
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Policy::Observe,
        Policy::GpuRed,
        Policy::GpuRealloc,
        Policy::CpuSlosh,
    ])
}

fn any_budget() -> impl Strategy<Value = Option<f64>> {
    prop::option::of(1200.0..3200.0f64)
}

fn any_event() -> impl Strategy<Value = Event> {
    let fraction = prop_oneof![4 => 0.01..1.0f64, 1 => any_number()];
    let distribution = || {
        prop_oneof![
            4 => prop::collection::vec(250.0..800.0f64, 4),
            1 => prop::collection::vec(any_number(), 3..6),
        ]
    };
    prop_oneof![
        24 => any_sample().prop_map(Event::Sample),
        2 => (any_policy(), any_budget()).prop_map(|(policy, budget)| Event::Replan(policy, budget)),
        1 => (any_policy(), distribution())
            .prop_map(|(policy, caps)| Event::StartFrom(policy, caps)),
        1 => Just(Event::Restart),
        1 => Just(Event::Resume),
        2 => (distribution(), fraction).prop_map(|(caps, fraction)| Event::Hint(caps, fraction)),
    ]
}

/// A loop and the hardware that its decisions are written to: four GPUs, two CPU sockets.
struct Driven {
    controller: Controller,
    /// The most that a cap may rise in one adjustment.
    most: Watts,
    hardware: Vec<Watts>,
    budget: Option<Watts>,
    iteration: u64,
}

impl Driven {
    fn plan(policy: Policy, budget: Option<f64>) -> Plan {
        let knobs = Config::default().mitigation;
        Plan::within(policy, &node(), &knobs, budget.map(Watts)).unwrap()
    }

    fn new(law: Law, policy: Policy, budget: Option<f64>) -> Self {
        let (config, plan) = (config(law), Self::plan(policy, budget));
        let most = match law {
            Law::Paper => config.mitigation.rise(),
            Law::Model => config.model.max_adjustment,
        };
        let mut hardware = plan.start().to_watts();
        hardware.resize(6, Watts(400.0));
        Self {
            controller: Controller::new(plan, config),
            most,
            hardware,
            budget: budget.map(Watts),
            iteration: 0,
        }
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Sample(sample) => {
                self.iteration += 1;
                let sample = sample.on(&self.hardware, self.iteration);
                let decision = self.controller.step(&sample);
                self.check_rises(&decision, &sample);
                self.write(&decision);
            }
            Event::Replan(policy, budget) => {
                self.budget = budget.map(Watts);
                self.replan(Self::plan(*policy, *budget));
            }
            Event::StartFrom(policy, caps) => {
                self.budget = None;
                self.replan(Self::plan(*policy, None).start_from(&watts(caps)));
            }
            Event::Restart => self.controller.restart(),
            Event::Resume => {
                self.controller.resume();
            }
            Event::Hint(caps, fraction) => self.controller.hint(watts(caps), *fraction),
        }
    }

    /// No sample tells how warm the GPUs are: nothing may rise but to its floor.
    fn replan(&mut self, plan: Plan) {
        let observes = plan.policy() == Policy::Observe;
        let decision = self.controller.replan(plan);
        assert_eq!(decision.apply.is_none(), observes);
        for (gpu, &held) in self.hardware.iter().take(4).enumerate() {
            let cap = decision.apply.as_ref().and_then(|caps| caps.watts(gpu));
            let highest = held.max(gpu_limits().floor);
            assert!(cap.unwrap_or(held) <= highest, "gpu{gpu} rose from {held}");
        }
        self.write(&decision);
    }

    /// No cap rises too far, or at all on a hot GPU. Going back and going to a known place may
    /// be far.
    fn check_rises(&self, decision: &Decision, sample: &Sample) {
        let Some(caps) = &decision.apply else { return };
        // Going back may undo a jump.
        let jumps = decision.state == State::Rollback
            || matches!(decision.why, Why::Recalled { .. } | Why::CostsSpeed { .. });
        for (gpu, reading) in sample.gpus.iter().enumerate() {
            let rise = caps.watts(gpu).unwrap() - self.hardware[gpu];
            assert!(
                rise <= self.most || jumps,
                "gpu{gpu} rose by {rise}: {}",
                decision.why
            );
            let hot = litd_policies::diagnosis::too_hot_to_rise(reading, &Guard::default());
            assert!(!hot || rise <= Watts::ZERO, "hot gpu{gpu} rose by {rise}");
        }
    }

    /// Checks the caps and writes them.
    fn write(&mut self, decision: &Decision) {
        let plan = self.controller.plan();
        assert!(plan.policy() != Policy::Observe || decision.apply.is_none());
        let Some(caps) = &decision.apply else { return };
        let floors = plan.cpu_targets().iter();
        let cpus = floors.map(|&floor| Limits {
            floor,
            ..node().cpus[0].limits
        });
        let limits: Vec<Limits> = [gpu_limits(); 4].into_iter().chain(cpus).collect();
        assert_allowed(caps, &limits, plan.envelope().budget());
        if let Some(budget) = self.budget {
            let limits = Watts(400.0) * plan.cpu_targets().len() as f64;
            assert!(caps.sum() <= budget + limits, "{} of {budget}", caps.sum());
        }
        let held = &mut self.hardware[..caps.len()];
        let mut lines = ledger(&Vec::from_iter(held.iter().map(|&cap| Some(cap))));
        let settled = drive(&mut lines, caps, |device, wanted| {
            held[device] = wanted;
            Some(wanted)
        });
        assert!(settled);
        assert_eq!(held, caps.to_watts());
        // CPUs that the plan leaves alone get their limit back.
        self.hardware[caps.len()..].fill(Watts(400.0));
    }
}

proptest! {
    #![proptest_config(no_files())]

    /// The loop on any sequence of samples, good and bad: the hardware it writes to never holds
    /// a wrong cap, and no cap rises too far, or at all on a hot GPU.
    #[test]
    fn no_history_of_samples_makes_a_wrong_cap(
        law in prop::sample::select(Law::ALL.to_vec()),
        policy in prop::sample::select(Policy::STEERING.to_vec()),
        samples in prop::collection::vec(any_sample(), 1..60),
    ) {
        let mut driven = Driven::new(law, policy, None);
        for sample in samples {
            driven.handle(&Event::Sample(sample));
        }
    }

    /// Nor does any history of new plans, budgets, restarts and hints.
    #[test]
    fn no_history_of_plans_and_hints_makes_a_wrong_cap(
        law in prop::sample::select(Law::ALL.to_vec()),
        policy in any_policy(),
        budget in any_budget(),
        events in prop::collection::vec(any_event(), 1..80),
    ) {
        let mut driven = Driven::new(law, policy, budget);
        for event in &events {
            driven.handle(event);
        }
    }

    /// A plan is within its budget, and one within all that it would use is the plan without.
    #[test]
    fn a_plan_is_within_its_budget(
        policy in prop::sample::select(Policy::STEERING.to_vec()),
        budget in 0.0..4000.0f64,
    ) {
        let knobs = Config::default().mitigation;
        let free = Plan::new(policy, &node(), &knobs).unwrap();
        match Plan::within(policy, &node(), &knobs, Some(Watts(budget))) {
            Err(error) => {
                prop_assert!(budget < 1200.0);
                prop_assert!(error.to_string().contains("below the 1200 W"), "{error}");
            }
            Ok(plan) => {
                prop_assert!(budget >= 1200.0);
                let start = plan.start().to_watts();
                let gpus: Watts = start[..4].iter().copied().sum();
                prop_assert!(gpus <= Watts(budget));
                prop_assert!(start[..4].iter().all(|&cap| cap == start[0]));
                let from_cpus: Watts = plan.cpu_targets().iter().map(|&t| Watts(400.0) - t).sum();
                prop_assert!(plan.gpu_budget() <= Watts(budget) + from_cpus);
                let enough: Watts = free.start().to_watts()[..4].iter().copied().sum();
                prop_assert_eq!(plan == free, Watts(budget) >= enough);
            }
        }
    }
}

/// A device's behaviour at one write.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    Refuses,
    Ignores,
    /// Reports an error and has done it all the same.
    DoesAndFails,
}

proptest! {
    #![proptest_config(no_files())]

    /// After every single write the devices hold a sum within the budget, whatever fails.
    #[test]
    fn the_sum_is_within_the_budget_after_every_write(
        from in prop::collection::vec(300.0..750.0f64, 8),
        to in prop::collection::vec(300.0..750.0f64, 8),
        faults in prop::collection::vec(prop::sample::select(vec![
            Fault::None, Fault::None, Fault::None, Fault::None, Fault::None,
            Fault::Refuses, Fault::Ignores, Fault::DoesAndFails,
        ]), 8),
    ) {
        let limits = vec![gpu_limits(); 8];
        let budget = Watts(from.iter().sum::<f64>().max(2400.0));
        let envelope = Envelope::new(&limits, budget).unwrap();
        let start = envelope.project(&watts(&from), &watts(&from));
        let target = envelope.project(&watts(&to), &watts(&to));
        let mut hardware = start.to_watts();
        let mut lines = ledger(&Vec::from_iter(hardware.iter().map(|&cap| Some(cap))));
        let settled = drive(&mut lines, &target, |device, wanted| {
            let answer = match faults[device] {
                Fault::None => { hardware[device] = wanted; Some(wanted) }
                Fault::Refuses => None,
                Fault::Ignores => Some(hardware[device]),
                Fault::DoesAndFails => { hardware[device] = wanted; None }
            };
            let sum: Watts = hardware.iter().copied().sum();
            assert!(sum <= budget, "{sum} above {budget} after device {device}");
            answer
        });
        if settled {
            prop_assert_eq!(&hardware, &target.to_watts());
        }
        // The watts that it counts with are never less than the hardware's cap.
        for (device, &holds) in hardware.iter().enumerate() {
            let counts = lines.counts(device);
            prop_assert!(counts >= holds, "device {device}: {counts} counted, {holds} held");
        }
    }
}

#[test]
fn a_device_that_does_not_come_down_keeps_the_others_from_rising() {
    let limits = vec![gpu_limits(); 3];
    let envelope = Envelope::new(&limits, Watts(2100.0)).unwrap();
    let target = [Watts(650.0), Watts(750.0), Watts(700.0)];
    let caps = envelope.project(&target, &target);
    let mut lines = ledger(&[Some(Watts(700.0)); 3]);
    let mut written = Vec::new();
    let settled = drive(&mut lines, &caps, |device, wanted| {
        written.push((device, wanted));
        Some(Watts(700.0))
    });
    assert!(!settled);
    assert_eq!(written, [(0, Watts(650.0))]);
    assert!(lines.has_failed(0) && !lines.has_failed(1));
}

#[test]
fn a_cap_that_is_not_known_stays_unknown_until_it_is_read() {
    let limits = [gpu_limits(); 2];
    let envelope = Envelope::new(&limits, Watts(1400.0)).unwrap();
    let target = [Watts(650.0), Watts(750.0)];
    let caps = envelope.project(&target, &target);
    // The hardware holds 750 and 650, and device 0 can't be reached.
    let mut lines = ledger(&[None, Some(Watts(650.0))]);
    for _ in 0..3 {
        lines.retry(0);
        let settled = drive(&mut lines, &caps, |device, wanted| {
            assert_eq!(device, 0, "nothing rises beside an unknown cap");
            assert_eq!(wanted, Watts(650.0));
            None
        });
        assert!(!settled && lines.held(1) == Some(Watts(650.0)));
    }
    // A read-back that is no number is no confirmation either.
    let mut lines = ledger(&[Some(Watts(750.0)), Some(Watts(650.0))]);
    for answer in [Some(Watts(f64::NAN)), None, None] {
        lines.retry(0);
        assert!(!drive(&mut lines, &caps, |_, _| answer));
        assert_eq!(lines.held(1), Some(Watts(650.0)));
    }
}

#[test]
fn microwatts_count() {
    let limits = [Limits {
        floor: Watts(300.0),
        ceiling: Watts(750.0),
        resolution: Watts(1e-6),
    }; 16];
    let envelope = Envelope::new(&limits, Watts(11_200.0)).unwrap();
    let caps = envelope.project(&[Watts(700.0); 16], &[]);
    let mut lines = ledger(&[Some(Watts(700.000_4)); 16]);
    assert!(drive(&mut lines, &caps, |_, wanted| Some(wanted)));
    assert!(lines.most() <= Watts(11_200.0));
}

#[test]
fn impossible_envelopes_are_refused_with_the_reason() {
    let with = |floor: f64, ceiling: f64, unit: f64| Limits {
        floor: Watts(floor),
        ceiling: Watts(ceiling),
        resolution: Watts(unit),
    };
    let refused = |limits: &[Limits], budget: f64| {
        Envelope::new(limits, Watts(budget))
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&[], 100.0).contains("no device"));
    assert!(refused(&[with(300.0, 750.0, 1.0); 8], 2399.0).contains("budget of 2399 W"));
    assert!(refused(&[with(800.0, 750.0, 1.0)], 900.0).contains("no cap between"));
    assert!(refused(&[with(300.2, 300.8, 1.0)], 900.0).contains("no cap between"));
    assert!(refused(&[with(300.0, f64::NAN, 1.0)], 900.0).contains("ceiling is NaN W"));
    assert!(refused(&[with(-5.0, 700.0, 1.0)], 900.0).contains("floor is -5 W"));
    assert!(refused(&[with(300.0, 750e6, 1.0)], 900.0).contains("ceiling"));
    assert!(refused(&[with(300.0, 750.0, 0.0)], 900.0).contains("resolution"));
    assert!(refused(&[with(300.0, 750.0, 1.0)], f64::NAN).contains("budget of NaN W"));
}

#[test]
fn caps_that_no_device_can_hold_add_up_to_more_than_any_budget() {
    for devices in [1, 2, 8, 4096] {
        let absurd = vec![(Some(Watts(1e300)), Watts(750.0)); devices];
        let actuator = Actuator::new(&absurd, Watts(1e300));
        // A sum that wraps would be a small one, and let every cap rise.
        assert!(actuator.most() > Watts(1e6 * devices as f64));
        assert!(actuator.budget() > Watts(1e6));
    }
}

#[test]
fn the_budget_cuts_all_alike_and_the_floor_stops_it() {
    let limits = vec![gpu_limits(); 3];
    let envelope = Envelope::new(&limits, Watts(1500.0)).unwrap();
    let wanted = [Watts(310.0), Watts(750.0), Watts(650.0)];
    let caps = envelope.project(&wanted, &wanted).to_watts();
    // 210 W too much: 10 from the first, which is then at its floor, 100 from each of the others.
    assert_eq!(caps, [Watts(300.0), Watts(650.0), Watts(550.0)]);
}

#[test]
fn nobody_rises_into_what_a_device_may_have_risen_by() {
    let held = (Some(Watts(600.0)), Watts(750.0));
    let mut actuator = Actuator::new(&[held; 2], Watts(1300.0));
    actuator.give_back(1, Watts(700.0));
    actuator.suspect(0, Watts(601.0));
    assert_eq!(actuator.due(|_| true), []);
    // A decrease waits for nobody.
    actuator.give_back(1, Watts(500.0));
    assert_eq!(actuator.due(|_| true), [(1, Watts(500.0))]);
    actuator.written(1, Some(Watts(500.0)));
    actuator.give_back(1, Watts(700.0));
    assert_eq!(actuator.due(|_| true), []);
    // A single reading was wrong.
    actuator.observe(0, Watts(600.0));
    assert_eq!(actuator.due(|_| true), [(1, Watts(700.0))]);
}

#[test]
fn nobody_rises_into_what_a_failed_write_may_still_take_but_to_undo() {
    let held = (Some(Watts(600.0)), Watts(750.0));
    let mut actuator = Actuator::new(&[held; 2], Watts(1300.0));
    actuator.rest(0, Watts(700.0));
    assert_eq!(actuator.due(|_| true), [(0, Watts(700.0))]);
    assert_eq!(actuator.written(0, None), Written::Failed);
    actuator.straggles(0, Watts(700.0));
    // A reading shows the old cap, which is to stay; the write may still be done late.
    actuator.observe(0, Watts(600.0));
    actuator.leave(0);
    actuator.rest(1, Watts(700.0));
    assert_eq!(actuator.due(|_| true), []);
    actuator.give_back(1, Watts(700.0));
    assert_eq!(actuator.due(|_| true), [(1, Watts(700.0))]);
    actuator.written(1, Some(Watts(600.0)));
    actuator.retry(1);
    actuator.rest(1, Watts(700.0));
    assert_eq!(actuator.due(|_| true), []);
    // The device's own way up is not barred by that.
    actuator.retry(0);
    actuator.rest(0, Watts(650.0));
    assert_eq!(actuator.due(|_| true), [(0, Watts(650.0))]);
    actuator.written(0, Some(Watts(600.0)));
    actuator.leave(0);
    actuator.straggles_no_more(0);
    assert_eq!(actuator.due(|_| true), [(1, Watts(700.0))]);
}
