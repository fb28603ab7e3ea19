//! Searches held against trying everything.

use crate::common::{STATIC, Sketch, exhaustive, job};
use litd_kareus::judge;
use litd_kareus::search::Settings;

#[test]
fn a_search_is_judged_by_what_everything_would_have_found() {
    let job = job(4, 2, false);
    let results = exhaustive(&job, &mut Sketch { asked: 0 });
    for name in ["forward/mlp", "backward/a_rs", "forward/qkv_ag"] {
        let partition = &job.partitions[job.places()[name]];
        let known = results.of_partition(name);
        let settings = Settings::for_computations(partition.computations.len());
        let judged = judge(known, STATIC, &settings, &[1, 2, 3]).unwrap();
        eprintln!(
            "{name}: {:?} {:?} {:?}",
            judged.parts, judged.strict, judged.shares
        );
        assert_eq!(judged.candidates, known.len());
        assert!(
            judged
                .parts
                .iter()
                .chain(&judged.strict)
                .all(|it| (0.9..=1.0).contains(it)),
            "{judged:?}"
        );
        assert!((judged.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(judged.without.iter().all(|it| it.len() == 3));
        // With a budget for everything, nothing is missed.
        let unlimited = Settings {
            initial: known.len(),
            ..settings
        };
        let all = judge(known, STATIC, &unlimited, &[1]).unwrap();
        assert_eq!(
            (all.parts, all.strict, all.shares[0]),
            (vec![1.0], vec![1.0], 1.0)
        );
    }
    let settings = Settings::for_computations(1);
    assert_eq!(judge(&[], STATIC, &settings, &[1]), None);
}
