//! Exact hypervolumes in two dimensions: a frontier is a staircase.

/// A time and an energy, of both of which less is better.
pub type Point = [f64; 2];

/// The places of the points that no other beats: by rising time and falling energy. Of equal points the first
/// stays. A point beats another if it is no worse in both and better in one. Points that are no numbers are
/// left out.
#[must_use]
pub fn frontier(points: &[Point]) -> Vec<usize> {
    let finite = |&place: &usize| points[place].iter().all(|it| it.is_finite());
    let mut order: Vec<usize> = (0..points.len()).filter(finite).collect();
    let key = |place: &usize| points[*place];
    order.sort_by(|a, b| {
        let ([t, e], [u, f]) = (key(a), key(b));
        t.total_cmp(&u).then(e.total_cmp(&f)).then(a.cmp(b))
    });
    let mut least = f64::INFINITY;
    order.retain(|&place| {
        let stays = points[place][1] < least;
        least = least.min(points[place][1]);
        stays
    });
    order
}

/// A frontier below a reference point.
#[derive(Debug, Clone, PartialEq)]
pub struct Staircase {
    /// By rising time and falling energy; all better than the reference in both.
    steps: Vec<Point>,
    reference: Point,
    /// The area that each step and all after it dominate, up to the reference.
    areas: Vec<f64>,
}

impl Staircase {
    /// The staircase of these points: those that none beats, and that are better than the reference.
    #[must_use]
    pub fn new(points: &[Point], reference: Point) -> Self {
        let below = |it: &Point| it[0] < reference[0] && it[1] < reference[1];
        let places = frontier(points);
        let steps: Vec<Point> = places.iter().map(|&it| points[it]).filter(below).collect();
        let mut areas = vec![0.0; steps.len() + 1];
        for step in (0..steps.len()).rev() {
            let end = steps.get(step + 1).map_or(reference[0], |it| it[0]);
            areas[step] =
                areas[step + 1] + (end - steps[step][0]) * (reference[1] - steps[step][1]);
        }
        Self {
            steps,
            reference,
            areas,
        }
    }

    /// The area that the frontier dominates up to the reference.
    #[must_use]
    pub fn hypervolume(&self) -> f64 {
        self.areas[0]
    }

    /// The area that a point would add: 0 for one that is dominated, or not better than the reference.
    #[must_use]
    pub fn improvement(&self, [time, energy]: Point) -> f64 {
        let [latest, highest] = self.reference;
        if !(time < latest && energy < highest) {
            return 0.0;
        }
        // Steps before are faster; the last of them bounds the new area from above.
        let first = self.steps.partition_point(|it| it[0] <= time);
        let roof = match first {
            0 => highest,
            _ => self.steps[first - 1][1],
        };
        if !(energy < roof) {
            return 0.0;
        }
        // The points that this one beats are those from `first` to `end`.
        let beaten = self.steps[first..].partition_point(|it| it[1] >= energy);
        let end = first + beaten;
        let until = self.steps.get(end).map_or(latest, |it| it[0]);
        let whole = (until - time) * (highest - energy);
        let above = match beaten {
            0 => (until - time) * (highest - roof),
            _ => {
                let start = self.steps[first][0];
                (start - time) * (highest - roof) + self.areas[first] - self.areas[end]
            }
        };
        whole - above
    }
}
