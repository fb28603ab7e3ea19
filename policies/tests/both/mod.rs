//! Behaviour of the loop under either law: compiled once for each.

use litd_policies::Policy;

use crate::toy::Toy;

mod anew;
mod controller;

fn under_test(policy: Policy) -> Toy {
    Toy::under(crate::LAW, policy)
}
