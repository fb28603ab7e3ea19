//! A GPU that is let go of while a budget leaves no room for the cap that was found.

use std::time::{Duration, Instant};

use crate::stand::{Stand, quick, wait_for};

/// Eight GPUs of 700 W and floors of 300 W: without the seven others' floors 350 W are left for the eighth.
const BUDGET: f64 = 2450.0;

const RELEASE: &str = r#"{"command":"release","device":"gpu1"}"#;

/// A node that stayed within the budget when a GPU was let go of.
fn released(config: &str) -> Stand {
    let stand = Stand::real(&format!("{}{config}", quick("gpu-realloc")));
    wait_for("the budget", || stand.sum().0 <= BUDGET);
    stand.ask("POST", "/v1/command", RELEASE);
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert!(stand.sum().0 <= BUDGET, "{:?}", stand.held());
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = stand.said();
    assert!(
        said.contains("leave no room for it below the budget"),
        "{said}"
    );
    stand
}

#[test]
fn a_released_gpu_does_not_rise_above_a_budget() {
    released("caps.budget = 2450.0\n").terminate();
}

#[test]
fn a_released_gpu_does_not_rise_above_a_safe_budget_nor_at_the_stop() {
    let hold = "caps.safe_budget = 2450.0\ncaps.on_exit = \"hold\"\n";
    let mut stand = released(hold);
    stand.terminate();
    assert!(stand.sum().0 <= BUDGET, "{:?}", stand.held());
}
