//! Properties of every plan, whatever the view.

use litd_policies::Limits;
use litd_units::Watts;
use proptest::prelude::*;

use super::*;

const FLOOR: f64 = 300.0;
const CEILING: f64 = 700.0;

pub(super) fn gpu(held: f64) -> DeviceView {
    let held = Watts(held);
    DeviceView {
        is_gpu: true,
        owner: Owner::Ours,
        known: KnownView {
            is_judged: true,
            is_beyond_judging: false,
            range: RangeView::Told,
            is_read: true,
            is_reset: false,
            is_overdue: false,
        },
        limits: Limits {
            floor: Watts(FLOOR),
            ceiling: Watts(CEILING),
            resolution: Watts(1.0),
        },
        planned_floor: Watts(FLOOR),
        undo: UndoView {
            back: Some(Watts(CEILING)),
            by_hand: None,
            is_journaled: held != Watts(CEILING),
            owes_undo: false,
        },
        account: Account {
            held: Some(held),
            most: held,
            counts: held,
            has_failed: false,
            is_writing: false,
        },
        counts_with: held,
        late: None,
    }
}

fn socket(held: f64) -> DeviceView {
    let limits = Limits {
        floor: Watts(100.0),
        ceiling: Watts(350.0),
        resolution: Watts(0.125),
    };
    let undo = UndoView {
        back: Some(limits.ceiling),
        ..gpu(held).undo
    };
    DeviceView {
        is_gpu: false,
        limits,
        planned_floor: limits.floor,
        undo,
        ..gpu(held)
    }
}

fn theirs(held: f64) -> DeviceView {
    DeviceView {
        owner: Owner::Foreign,
        ..gpu(held)
    }
}

/// A device that holds a cap of litd's instead of a foreign cap.
fn overwritten(held: f64) -> DeviceView {
    let undo = UndoView {
        is_journaled: true,
        ..theirs(held).undo
    };
    DeviceView {
        owner: Owner::Overwritten,
        undo,
        ..theirs(held)
    }
}

fn faulty(held: f64, obeys_again: bool) -> DeviceView {
    DeviceView {
        owner: Owner::Faulty(FailedView {
            held: Some(Watts(held)),
            was_unread: false,
            obeys_again,
        }),
        ..gpu(held)
    }
}

fn unjudged(held: f64) -> DeviceView {
    let most = Watts(CEILING);
    let account = Account {
        most,
        counts: most,
        ..gpu(held).account
    };
    DeviceView {
        known: KnownView {
            is_judged: false,
            is_beyond_judging: true,
            range: RangeView::Untold(most),
            ..gpu(held).known
        },
        limits: Limits {
            floor: most,
            ceiling: most,
            resolution: Watts::ZERO,
        },
        planned_floor: most,
        account,
        counts_with: most,
        late: None,
        ..gpu(held)
    }
}

fn let_go(held: f64, is_held: bool) -> DeviceView {
    let unit = gpu(held);
    let left = LeftView {
        held: unit.account.held,
        goal: LeftGoal::Nothing,
    };
    DeviceView {
        owner: Owner::Released(LetGoView {
            given_up: false,
            is_closed: false,
            is_held,
            is_journaled: unit.undo.is_journaled,
            owes_undo: false,
            may_be_locked: false,
            is_back: !unit.undo.is_journaled,
            held: unit.account.held,
            left,
        }),
        ..unit
    }
}

pub(super) fn view(doing: Doing, budget: Option<f64>, devices: Vec<DeviceView>) -> View {
    let found = devices.iter().filter(|unit| unit.is_gpu);
    let found: Watts = found.map(DeviceView::came_with).sum();
    View {
        doing,
        set_budget: budget.map(Watts),
        managed_budget: budget.map_or(found, Watts),
        rises_stopped: None,
        undo_waits: true,
        sockets_lend: false,
        devices,
        demands: Vec::new(),
        jobs: Vec::new(),
    }
}

fn any_gpu() -> impl Strategy<Value = DeviceView> {
    let held = (FLOOR..=CEILING).prop_map(f64::round);
    (held, 0..12_u8).prop_map(|(held, kind)| match kind {
        11 => DeviceView {
            late: Some(Watts(CEILING)),
            ..gpu(held)
        },
        // Somebody has set more than was found, or less.
        0 => DeviceView {
            undo: UndoView {
                back: Some(Watts(FLOOR + 100.0)),
                ..theirs(held).undo
            },
            ..theirs(held)
        },
        10 => overwritten(held),
        1 => faulty(held, false),
        2 => faulty(held, true),
        3 => unjudged(held),
        4 => let_go(held, false),
        5 => DeviceView {
            known: KnownView {
                is_read: false,
                ..gpu(held).known
            },
            ..gpu(held)
        },
        _ => gpu(held),
    })
}

/// A node that moves caps: perhaps within a budget, perhaps for a job on the first of its GPUs. A second job has the
/// last GPU.
fn any_view() -> impl Strategy<Value = View> {
    let gpus = prop::collection::vec(any_gpu(), 1..9);
    let asked = prop::collection::vec(FLOOR..=CEILING, 8);
    let planned = prop::collection::vec(prop::option::of(0.0..=1.0), 8);
    let budget = prop::option::of(0.0..=1.0);
    let stopped = prop::bool::weighted(0.2);
    let deal = (gpus, asked, planned, 0..9_usize, budget, stopped);
    deal.prop_map(|(gpus, asked, planned, ranks, share, stopped)| {
        let count = gpus.len();
        let budget = share.map(|share: f64| {
            let floors = FLOOR * count as f64;
            floors + share * (CEILING - FLOOR) * count as f64
        });
        let mut view = view(Doing::Moving, budget, gpus);
        let ours =
            |&device: &usize| view.devices[device].is_ours() && view.devices[device].known.is_read;
        let devices: Vec<usize> = (0..count.min(ranks)).filter(ours).collect();
        let part = |gpus: &[usize]| match budget {
            Some(_) => view.managed_budget * (gpus.len() as f64 / count as f64),
            None => gpus.iter().map(|&gpu| view.devices[gpu].came_with()).sum(),
        };
        view.jobs = [devices.clone(), (count.min(ranks)..count).take(2).collect()]
            .into_iter()
            .enumerate()
            .map(|(owner, gpus)| JobView {
                name: "train".to_owned(),
                owner,
                most: part(&gpus),
                gpus,
            })
            .collect();
        for (unit, planned) in view.devices.iter_mut().zip(planned) {
            let most = unit.account.most - unit.limits.floor;
            let planned = unit.limits.floor + most.max(Watts::ZERO) * planned.unwrap_or(0.0);
            unit.planned_floor = unit.limits.floor.max(planned.cut_to(Watts(1.0)));
        }
        if let Some(share) = view
            .jobs
            .first()
            .map(|job| job.most)
            .filter(|_| !devices.is_empty())
        {
            let wanted: Vec<Watts> = asked
                .iter()
                .take(devices.len())
                .copied()
                .map(Watts)
                .collect();
            let limits: Vec<Limits> = devices.iter().map(|_| gpu(CEILING).limits).collect();
            let caps = project(&limits, share, &wanted).expect("there are devices");
            view.demands = vec![Demand::steered("train", devices, share, &caps)];
        }
        view.rises_stopped = stopped.then(|| "the node is short of power".to_owned());
        view
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    /// The sum of the GPUs' caps is within the budget, or no GPU that can be lowered is above its floor.
    #[test]
    fn a_plan_is_within_the_budget_or_at_the_floors(view in any_view()) {
        let plan = plan(&view);
        let Some(budget) = view.set_budget else { return Ok(()) };
        let gpus: Vec<_> = view.devices.iter().zip(&plan.aims).collect();
        let sum: Watts = gpus.iter().map(|(unit, aim)| {
            match unit.movable(&view, aim.target) {
                Some(target) => target.max(unit.late.unwrap_or(Watts::ZERO)),
                None => unit.fixed_at(aim.target),
            }
        }).sum();
        let is_low = |(unit, aim): &(&DeviceView, &Aim)| {
            let target = unit.movable(&view, aim.target);
            let is_low = |target| target <= unit.limits.floor + Watts(1.0);
            unit.late.is_some() || target.is_none_or(is_low)
        };
        prop_assert!(
            sum <= budget + Watts(1e-3) || gpus.iter().all(is_low),
            "{sum} of {budget}: {plan:?}"
        );
    }

    /// Once devices hold their targets, the same targets are planned again.
    #[test]
    fn a_plan_that_was_followed_is_planned_again(mut view in any_view()) {
        let before = plan(&view);
        for (unit, aim) in view.devices.iter_mut().zip(&before.aims) {
            if let Some(target) = aim.target {
                // Every write is in the journal before.
                unit.undo.is_journaled |= unit.account.held != Some(target);
                unit.account.held = Some(target);
                (unit.account.most, unit.account.counts) = (target, target);
                unit.counts_with = target;
                unit.planned_floor = unit.planned_floor.min(target.max(unit.limits.floor));
            }
        }
        let after = plan(&view);
        for (at, unit) in view.devices.iter().enumerate() {
            let holds = unit.account.held;
            let next = after.aims[at].target.or(holds);
            prop_assert_eq!(next, before.aims[at].target.or(holds), "device {}", at);
        }
    }

    /// Planned clocks change the targets of their own job's GPUs only, and those hold no less for them together.
    #[test]
    fn clocks_are_paid_for_by_their_own_job(view in any_view()) {
        let mut without = view.clone();
        for unit in &mut without.devices {
            unit.planned_floor = unit.limits.floor;
        }
        let (with, without) = (plan(&view), plan(&without));
        let mut others: Vec<usize> = (0..view.devices.len()).collect();
        for job in &view.jobs {
            let needs = |&device: &usize| {
                let unit = &view.devices[device];
                unit.planned_floor > unit.limits.floor
            };
            if job.gpus.iter().any(needs) {
                others.retain(|device| !job.gpus.contains(device));
                let of = |plan: &Plan| {
                    let targets = job.gpus.iter().filter_map(|&device| plan.aims[device].target);
                    targets.sum::<Watts>()
                };
                let units = Watts(job.gpus.len() as f64);
                let stays = view.rises_stopped.is_some();
                prop_assert!(stays || of(&with) >= of(&without) - units, "{with:?} {without:?}");
            }
        }
        for device in others {
            prop_assert_eq!(with.aims[device], without.aims[device], "device {}", device);
        }
    }

    /// No GPU's cap goes below its floor or above its ceiling, and no foreign cap is moved.
    #[test]
    fn a_plan_stays_within_limits_and_leaves_others_alone(view in any_view()) {
        for (unit, aim) in view.devices.iter().zip(&plan(&view).aims) {
            let Some(target) = aim.target else { continue };
            prop_assert!(!unit.is_theirs());
            prop_assert!(unit.known.is_read);
            prop_assert!((FLOOR..=CEILING).contains(&target.0), "{target}");
        }
    }

    /// The reason for every target is true, and so is the reason for leaving a device alone.
    #[test]
    fn every_reason_is_so(view in any_view()) {
        for (device, aim) in plan(&view).aims.iter().enumerate() {
            let unit = &view.devices[device];
            let wants = |job: usize| {
                let mut caps = view.demands[job].caps.iter();
                caps.find(|(of, _)| *of == device).map(|(_, cap)| *cap)
            };
            let is_so = match aim.why {
                Why::Found => aim.target.is_some() && aim.target == unit.undo.back,
                Why::ByHand => aim.target.is_some() && aim.target == unit.undo.by_hand,
                Why::Loop(job) | Why::Trial(job) => aim.target == wants(job),
                Why::Room(Some(job)) => aim.target < wants(job),
                Why::Share | Why::Room(None) => {
                    let mut own = view.jobs.iter().filter(|job| job.gpus.contains(&device));
                    let is_stuck = |gpu: &usize| view.devices[*gpu].is_stuck();
                    let of_a_stuck = own.any(|job| job.gpus.iter().any(is_stuck));
                    let is_asked = view.set_budget.is_some() || of_a_stuck;
                    aim.target < unit.undo.base() && is_asked
                }
                Why::Clocks(job) => {
                    let is_kept = aim.target <= Some(unit.planned_floor);
                    is_kept && view.jobs[job].gpus.contains(&device)
                }
                Why::HasFailed => unit.failed().is_some() && !unit.would_rise(aim.target),
                Why::Theirs => aim.target.is_none() && unit.is_theirs(),
                Why::Unread => aim.target.is_none() && !unit.known.is_read,
                Why::NothingOwed => aim.target.is_none() && !unit.is_ours(),
                Why::NoRoom => aim.target.is_none() && view.set_budget.is_some(),
                Why::RisesStopped => aim.target.is_none() && view.rises_stopped.is_some(),
                Why::LookingRound | Why::LeftBehind => false,
            };
            prop_assert!(is_so, "device {device}: {aim:?} of {unit:?}");
        }
    }

    /// While no cap may rise, only caps found are restored, and only where no job is steered.
    #[test]
    fn no_cap_rises_while_none_may(mut view in any_view()) {
        view.rises_stopped = Some("somebody else sets caps".to_owned());
        let steered = |device| view.demands.iter().any(|it| it.devices.contains(&device));
        for (device, aim) in plan(&view).aims.iter().enumerate() {
            let unit = &view.devices[device];
            if unit.is_ours() && unit.would_rise(aim.target) {
                prop_assert!(!steered(device) && aim.target == unit.undo.base());
            }
        }
    }
}

#[test]
fn what_was_found_goes_back_to_who_is_owed_it_and_to_nobody_else() {
    let devices = vec![gpu(500.0), gpu(700.0), theirs(500.0), socket(200.0)];
    let plan = plan(&view(Doing::GivingBack, None, devices));
    let targets = plan.aims.iter().map(|aim| aim.target);
    let found = [Some(Watts(700.0)), None, None, Some(Watts(350.0))];
    assert!(targets.eq(found), "{plan:?}");
}

#[test]
fn nothing_moves_while_devices_are_still_being_read() {
    let devices = vec![gpu(500.0), gpu(700.0)];
    let plan = plan(&view(Doing::LookingRound, Some(600.0), devices));
    assert!(plan.aims.iter().all(|aim| aim.target.is_none()));
}

#[test]
fn a_cap_by_hand_is_set_in_full_or_not_at_all() {
    let asks = |budget| {
        let undo = UndoView {
            by_hand: Some(Watts(650.0)),
            back: Some(Watts(500.0)),
            ..gpu(500.0).undo
        };
        let asked = DeviceView { undo, ..gpu(500.0) };
        let devices = vec![asked, theirs(700.0)];
        plan(&view(Doing::Moving, Some(budget), devices)).aims[0].target
    };
    assert_eq!(asks(1350.0), Some(Watts(650.0)));
    assert_eq!(asks(1349.0), None);
}

#[test]
fn sockets_make_room_only_where_their_watts_are_lent() {
    let devices = || vec![gpu(700.0), theirs(700.0), socket(350.0)];
    let mut lends = view(Doing::Moving, Some(1300.0), devices());
    let alone = plan(&lends).aims[2].target;
    assert_eq!(alone, Some(Watts(350.0)));
    lends.sockets_lend = true;
    lends.devices[0].account.has_failed = true;
    let lent = plan(&lends).aims[2].target;
    assert_eq!(lent, Some(Watts(250.0)));
}

#[test]
fn what_litd_leaves_behind_is_the_safe_budget() {
    let devices = vec![gpu(700.0), let_go(700.0, true), theirs(400.0)];
    let plan = plan(&view(Doing::LeavingBehind, Some(1200.0), devices));
    let targets: Vec<_> = plan.aims.iter().map(|aim| aim.target).collect();
    assert_eq!(targets, [Some(Watts(400.0)), Some(Watts(400.0)), None]);
    // The device is left as it is, whatever failed writes may still do.
    assert!(plan.aims.iter().all(|aim| aim.rises != Rises::Surely));
}

fn job(owner: usize, gpus: Vec<usize>, most: Watts) -> JobView {
    JobView {
        name: "train".to_owned(),
        owner,
        gpus,
        most,
    }
}

/// A GPU with a foreign cap above the one found, beside one of the same user's other job, and two of nobody's.
fn beside_a_foreign_cap(budget: Option<f64>) -> (View, Vec<Option<Watts>>) {
    let found = |found: f64, unit: DeviceView| DeviceView {
        undo: UndoView {
            back: Some(Watts(found)),
            ..unit.undo
        },
        ..unit
    };
    let mut devices = vec![found(500.0, theirs(700.0))];
    devices.extend([500.0; 3].map(|held| found(500.0, gpu(held))));
    let mut view = view(Doing::Moving, budget, devices);
    view.jobs = [0, 1].map(|gpu| job(7, vec![gpu], Watts(500.0))).to_vec();
    let targets = plan(&view).aims.iter().map(|aim| aim.target).collect();
    (view, targets)
}

/// A cap that litd has moved is its own affair, and its job's.
#[test]
fn a_gpu_of_litds_that_does_not_obey_costs_its_own_job_what_it_holds_too_much() {
    let stuck = DeviceView {
        undo: UndoView {
            back: Some(Watts(500.0)),
            ..faulty(600.0, false).undo
        },
        ..faulty(600.0, false)
    };
    let plain = |held: f64| DeviceView {
        undo: UndoView {
            back: Some(Watts(500.0)),
            ..gpu(held).undo
        },
        ..gpu(held)
    };
    let mut view = view(Doing::Moving, None, vec![stuck, plain(400.0), plain(500.0)]);
    view.jobs = vec![
        job(0, vec![0, 1], Watts(1000.0)),
        job(0, vec![2], Watts(500.0)),
    ];
    let with = plan(&view);
    let targets = with.aims.iter().skip(1).map(|aim| aim.target);
    assert_eq!(
        targets.collect::<Vec<_>>(),
        [400.0, 500.0].map(|cap| Some(Watts(cap)))
    );
    assert_eq!(with.budget, Watts(1500.0));
    // Once its job has ended it costs nobody anything.
    view.jobs.remove(0);
    let without = plan(&view);
    assert_eq!(without.aims[1].target, Some(Watts(500.0)));
    assert_eq!(without.budget, Watts(1600.0));
}

#[test]
fn nobody_makes_room_without_a_budget_and_with_one_whoever_has_the_gpu_does_first() {
    let watts = |each: [f64; 3]| -> Vec<Option<Watts>> {
        let each = each.into_iter().map(|cap| Some(Watts(cap)));
        [None].into_iter().chain(each).collect()
    };
    let (view, targets) = beside_a_foreign_cap(None);
    assert_eq!(targets, watts([500.0; 3]));
    // A cap that is restored does not wait for it.
    assert_eq!(plan(&view).budget, Watts(2200.0));
    assert_eq!(
        beside_a_foreign_cap(Some(2000.0)).1,
        watts([300.0, 500.0, 500.0])
    );
    assert_eq!(
        beside_a_foreign_cap(Some(1800.0)).1,
        watts([300.0, 400.0, 400.0])
    );
}

/// Two GPUs of a job, a third of somebody else, and a foreign cap for which they pay.
#[test]
fn a_job_keeps_its_clocks_out_of_what_it_has_itself() {
    let caps = |planned: [f64; 2], asks: f64| {
        let mut devices = vec![gpu(500.0), gpu(500.0), gpu(500.0), theirs(700.0)];
        for (unit, planned) in devices.iter_mut().zip(planned) {
            unit.planned_floor = Watts(planned);
        }
        let mut view = view(Doing::Moving, Some(2050.0), devices);
        let (gpus, most) = (vec![0, 1], Watts(1025.0));
        let caps = project(&[gpu(500.0).limits; 2], most, &[Watts(asks); 2]).unwrap();
        view.demands = vec![Demand::steered("train", gpus.clone(), most, &caps)];
        view.jobs = vec![job(0, gpus, most)];
        let plan = plan(&view);
        let is_kept = |aim: &&Aim| matches!(aim.why, Why::Clocks(0));
        let targets = plan.aims.iter().filter_map(|aim| Some(aim.target?.0));
        (targets.collect(), plan.aims.iter().filter(is_kept).count())
    };
    assert_eq!(caps([300.0, 300.0], 500.0), (vec![446.0, 446.0, 458.0], 0));
    assert_eq!(caps([500.0, 300.0], 500.0), (vec![500.0, 392.0, 458.0], 1));
    // Both need more than there is: each gets the same part of its need.
    assert_eq!(caps([500.0, 500.0], 500.0), (vec![446.0, 446.0, 458.0], 0));
    assert_eq!(caps([600.0, 400.0], 500.0), (vec![518.0, 374.0, 458.0], 1));
    // Its loop leaves watts of its share unused: of those it keeps what the foreign cap does not take.
    assert_eq!(caps([500.0, 300.0], 350.0), (vec![500.0, 338.0, 512.0], 1));
}
