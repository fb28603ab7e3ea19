//! Rules that hold a minute after the last event, and after an orderly stop then.

use litd_api::{DeviceState, Mode, Status};
use litd_core::config::OnExit;

use crate::anything::History;
use crate::node::EPSILON;
use crate::seeds::ensure;

/// So many resets within ten minutes look like somebody else's hand.
const RESETS_LIKE_A_HAND: u32 = 3;

pub fn check(history: &mut History) -> Result<(), String> {
    let status = history.node.status();
    let status_text = format!("{:?}", status.devices);
    history.node.note(&format!(
        "budget {}, GPUs {}, {}: {status_text}",
        status.gpus.budget, status.gpus.caps, status.node.summary
    ));
    budget_is_kept(history, &status)?;
    nobody_is_foreign_without_a_hand(history, &status)?;
    what_was_found_is_no_cap_of_litds(history, &status)?;
    nothing_is_kept_without_a_budget(history, &status)?;
    stop_leaves_what_it_should(history, &status)
}

/// litd has a budget to keep.
fn has_budget(history: &History, status: &Status) -> bool {
    let caps = &history.node.config.caps;
    let configured = caps.budget.is_some() || caps.safe_budget.is_some();
    configured || status.node.lease.is_some() || history.by_command
}

fn is_off(status: &Status) -> bool {
    status.node.mode == Mode::Off
}

/// The budget is kept as far as litd may, and where it is not kept status says so.
fn budget_is_kept(history: &History, status: &Status) -> Result<(), String> {
    if is_off(status) || !has_budget(history, status) {
        return Ok(());
    }
    let sum = history.node.sum();
    let (budget, told) = (status.gpus.budget.0, status.gpus.caps.0);
    let least = history.node.least(status);
    ensure(sum <= budget.max(least) + EPSILON, || {
        format!("GPUs hold {sum} of {budget} W, and could hold {least} W")
    })?;
    let released = |it: &litd_api::DeviceStatus| {
        matches!(it.state, DeviceState::Released | DeviceState::Closed)
    };
    let says_so = told > budget + EPSILON || status.devices.iter().any(released);
    ensure(sum <= budget + EPSILON || says_so, || {
        format!("GPUs hold {sum} of {budget} W, and status says {told} W")
    })
}

fn nobody_is_foreign_without_a_hand(history: &History, status: &Status) -> Result<(), String> {
    for (past, it) in history.pasts.iter().zip(&status.devices) {
        let touched = past.hands > 0 || past.resets >= RESETS_LIKE_A_HAND;
        ensure(touched || it.state != DeviceState::Foreign, || {
            format!("{} is foreign, and nobody else set its cap", it.name)
        })?;
    }
    Ok(())
}

fn what_was_found_is_no_cap_of_litds(history: &History, status: &Status) -> Result<(), String> {
    for (past, it) in history.pasts.iter().zip(&status.devices) {
        let natural = it.found.is_none_or(|cap| past.natural.contains(&cap.0));
        ensure(natural, || {
            format!(
                "{} counts as found at {:?}, and nobody but litd ever set that: {:?}",
                it.name, it.found, past.natural
            )
        })?;
    }
    Ok(())
}

/// With nothing to keep a GPU that is litd's holds what was found.
fn nothing_is_kept_without_a_budget(history: &History, status: &Status) -> Result<(), String> {
    if is_off(status) || has_budget(history, status) {
        return Ok(());
    }
    let gpus = history.node.gpus.iter().zip(&history.pasts);
    for ((gpu, past), it) in gpus.zip(&status.devices) {
        let back = it.found == Some(gpu.cap) || past.natural.contains(&gpu.cap.0);
        ensure(back || it.state != DeviceState::Ours, || {
            let found = it.found;
            format!("{} holds {}, found at {found:?}", it.name, gpu.cap)
        })?;
    }
    Ok(())
}

fn stop_leaves_what_it_should(history: &mut History, before: &Status) -> Result<(), String> {
    let least = history.node.least(before);
    let stopped = history.node.stop();
    history.node.pass(2.0);
    ensure(stopped, || "the stop does not come to an end".to_owned())?;
    match history.node.config.caps.on_exit {
        OnExit::Hold => safe_budget_is_left(history, before, least),
        OnExit::Restore => caps_are_back(history),
    }
}

fn safe_budget_is_left(history: &History, before: &Status, least: f64) -> Result<(), String> {
    let safe = history.node.config.caps.safe_budget.unwrap().0;
    let all_ours = before
        .devices
        .iter()
        .all(|it| it.state == DeviceState::Ours);
    let sum = history.node.sum();
    ensure(!all_ours || sum <= safe.max(least) + EPSILON, || {
        format!("a stop leaves {sum} W, and {safe} W is safe")
    })
}

/// Or the undo journal keeps what is to go back.
fn caps_are_back(history: &History) -> Result<(), String> {
    let kept = history.node.disk.journal_keeps();
    for (gpu, past) in history.node.gpus.iter().zip(&history.pasts) {
        let back = past.natural.contains(&gpu.cap.0);
        let address = &gpu.identity.address;
        ensure(back || kept.contains(address), || {
            let (cap, natural) = (gpu.cap, &past.natural);
            format!("{address} holds {cap} after the stop, and had {natural:?}")
        })?;
    }
    Ok(())
}
