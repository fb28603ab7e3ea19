//! Arms, quads and their order.

use litd_units::Nanos;
use serde::{Deserialize, Serialize};

/// The arm of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// A: the caps that litd found.
    Found,
    /// B: the caps that litd balanced. In an A/A trial those found as well.
    Balanced,
}

impl Arm {
    /// The arm's letter.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Found => 'A',
            Self::Balanced => 'B',
        }
    }
}

/// How a trial is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    /// Quads of four blocks each.
    pub quads: u32,
    /// How long a block is measured, at least.
    pub block: Nanos,
    /// The time after a change of caps before a block is measured.
    pub settle: Nanos,
    /// Iterations that a block needs, at least.
    pub iterations: u32,
    /// The seed of the orders.
    pub seed: u64,
    /// Whether both arms hold the caps found: such a trial must show zero.
    pub same: bool,
}

impl Design {
    /// Blocks of the whole trial.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.quads.saturating_mul(4)
    }

    /// The arm of a block, counted from 0.
    #[must_use]
    pub fn arm(&self, block: u32) -> Arm {
        order(self.seed, block / 4)[(block % 4) as usize]
    }

    /// How long the trial takes if nothing holds it up.
    #[must_use]
    pub fn length(&self) -> Nanos {
        Nanos((self.block.0.saturating_add(self.settle.0)).saturating_mul(i64::from(self.blocks())))
    }
}

/// The order of a quad's blocks: ABBA or BAAB, each as likely, drawn for each quad by itself.
#[must_use]
pub fn order(seed: u64, quad: u32) -> [Arm; 4] {
    use Arm::{Balanced, Found};
    match mixed(seed ^ mixed(u64::from(quad).wrapping_add(1))) & 1 {
        0 => [Found, Balanced, Balanced, Found],
        _ => [Balanced, Found, Found, Balanced],
    }
}

/// A number from which no pattern of the argument's can be seen (SplitMix64's finish; Steele, Lea
/// and Flood 2014).
#[must_use]
pub fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_come_and_each_is_balanced() {
        let orders: Vec<[Arm; 4]> = (0..1000).map(|quad| order(7, quad)).collect();
        let first = orders.iter().filter(|order| order[0] == Arm::Found).count();
        assert!((430..570).contains(&first), "{first}");
        for order in &orders {
            assert_eq!((order[0], order[1]), (order[3], order[2]));
            assert_ne!(order[0], order[1]);
        }
        // Different for different seeds, and for neighbours.
        let changes = orders.windows(2).filter(|two| two[0] != two[1]).count();
        assert!((430..570).contains(&changes), "{changes}");
        assert!((0..64).any(|quad| order(1, quad) != order(2, quad)));
    }
}
