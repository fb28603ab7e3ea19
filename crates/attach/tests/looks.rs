//! When the rings of a job are looked at, and which iterations become samples.

use litd_attach::Looks;
use litd_units::Nanos;

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as i64)
}

#[test]
fn a_look_lasts_four_iterations_and_neither_too_short_nor_too_long() {
    let mut looks = Looks::new(seconds(5.0));
    assert!(!looks.is_over(seconds(6.9)) && looks.is_over(seconds(7.0)));
    for (took, lasts) in [(0.1, 2.0), (0.7, 2.8), (100.0, 40.0), (-3.0, 2.0)] {
        looks.hear(seconds(9.0), seconds(took), 3);
        assert_eq!(looks.lasts(), seconds(lasts), "{took}");
    }
    looks.begin(seconds(8.0));
    assert_eq!(looks.since(), seconds(8.0));
    assert!(!looks.is_over(seconds(9.9)) && looks.is_over(seconds(10.0)));
}

#[test]
fn without_iterations_the_next_look_lasts_longer_and_that_is_told_seldom() {
    let mut looks = Looks::new(Nanos(0));
    let told = (0..20).filter(|it| looks.fails(seconds(40.0 * f64::from(*it))));
    assert_eq!(told.count(), 2, "in 760 s");
    assert_eq!(looks.lasts(), seconds(40.0));
    looks.hear(seconds(0.0), seconds(0.5), 4);
    assert_eq!(looks.lasts(), seconds(2.0));
}

#[test]
fn iterations_are_numbered_by_the_time_between_them() {
    let mut looks = Looks::new(Nanos(0));
    let mut number = |began, many| looks.hear(seconds(began), seconds(0.5), many);
    assert_eq!(number(100.0, 3), 3);
    assert_eq!(number(102.0, 4), 7);
    assert_eq!(number(110.1, 4), 23);
    // A clock that goes back makes no number come again.
    assert_eq!(number(10.0, 4), 27);
}

#[test]
fn one_iteration_of_so_many_is_a_sample() {
    let mut looks = Looks::new(Nanos(0));
    let of_ten = (1..100).step_by(4).filter(|&it| looks.samples(it, 6, 10));
    assert_eq!(of_ten.collect::<Vec<_>>(), [9, 21, 33, 45, 57, 69, 81, 93]);
    assert!(!looks.samples(1000, 0, 0), "none is wanted");
    assert!(!looks.samples(1000, 0, 1000) && looks.samples(1093, 0, 1000));
    assert!(looks.samples(u64::MAX, 0, u64::MAX), "no sum is too large");
}
