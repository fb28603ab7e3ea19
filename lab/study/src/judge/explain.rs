//! Why a draw ended badly: each dimension in turn goes to the middle of its range, and the node is
//! judged again. What ends the harm is what it hinged on.

use litd_plants::{Dimension, Draw};
use litd_policies::Policy;

use super::nodes::{Field, Named, judge_draw};
use super::{Hand, Settings};
use crate::{StudyError, parallel};

/// A dimension, and what the node would be like without its value.
#[derive(Debug, Clone, Copy)]
pub struct Cause {
    /// The dimension.
    pub dimension: Dimension,
    /// Its value in the draw.
    pub value: f64,
    /// How badly the node ends with the middle of its range instead, in units of what is called
    /// worse off.
    pub without: f64,
}

/// How badly a draw ends ([`super::Row::badness`]), and the dimensions that make most of that.
///
/// # Errors
/// The node makes no sense.
pub fn explain(
    draw: &Draw,
    policy: Policy,
    hand: Hand<'_>,
    settings: &Settings,
) -> Result<(f64, Vec<Cause>), StudyError> {
    let field = Field {
        hands: vec![hand],
        policies: vec![policy],
    };
    let badness = |draw: &Draw| -> Result<f64, StudyError> {
        let node = Named::Draw(draw.seed);
        let verdicts = judge_draw(node, String::new(), draw, &field, settings)?;
        Ok(verdicts.rows.first().map_or(0.0, super::Row::badness))
    };
    let begin = badness(draw)?;
    let work = |&dimension: &Dimension| {
        let middle = draw.clone().with(dimension, dimension.spec().at(0.5));
        badness(&middle)
    };
    let without = parallel::map(Dimension::ALL, work, |_| {});
    let mut causes = Vec::new();
    for (&dimension, without) in Dimension::ALL.iter().zip(without) {
        causes.push(Cause {
            dimension,
            value: draw.value(dimension),
            without: without?,
        });
    }
    causes.retain(|it| begin - it.without > 0.2 * begin.abs());
    causes.sort_by(|a, b| a.without.total_cmp(&b.without));
    Ok((begin, causes))
}
