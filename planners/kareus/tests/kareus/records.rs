//! Recorded results: what is read, what is refused, and where.

use crate::common::{STATIC, Sketch, exhaustive, job};
use litd_kareus::{Candidate, Profiler, ProfilerError, Records, Results};
use litd_units::{Hertz, Joules, Millis, Watts};
use proptest::prelude::*;

const HEADER: &str = "name,frequency,sms,launch,time,energy\n";

fn read(rows: &str) -> Result<Results, String> {
    let records: Records = rows.parse().map_err(|error| format!("{error}"))?;
    let results = records.results(&job(8, 1, true), STATIC);
    results.map_err(|error| error.to_string())
}

fn error(rows: &str) -> String {
    read(&format!("{HEADER}{rows}")).unwrap_err()
}

#[test]
fn what_is_written_reads_back_the_same() {
    let job = job(4, 2, true);
    let mut results = exhaustive(&job, &mut Sketch { asked: 0 });
    let text = Records::write(&results, &job, true);
    let records: Records = text.parse().unwrap();
    assert!(records.simulated());
    let mut back = records.results(&job, STATIC).unwrap();
    for partition in &job.partitions {
        assert!(!results.of_partition(&partition.name).is_empty());
        for &(candidate, _) in results.clone().of_partition(&partition.name) {
            let there = Profiler::partition(&mut results, partition, candidate).unwrap();
            let here = Profiler::partition(&mut back, partition, candidate).unwrap();
            assert!(
                (there.time.0 / here.time.0 - 1.0).abs() < 1e-15,
                "{there:?} {here:?}"
            );
            assert_eq!((there.energy, there.clock), (here.energy, here.clock));
        }
    }
    for sequence in &job.sequences {
        let count = |it: &Results| it.of_sequence(&sequence.name).len();
        assert_eq!((count(&back), count(&results)), (18, 18));
    }
    assert!(!Records::write(&results, &job, false).contains("SIMULATED"));
}

/// As the artifact's search logs it, one file for each partition.
#[test]
fn the_artifacts_log_is_read_under_the_name_of_its_partition() {
    let text = r#"{"freq": 1410, "overlap_start": "rope_0", "overlap_end": null, "sm": 12, "block": 1024, "time_s": 0.0011, "energy_j": 0.31, "selected_real": true, "pred_time_s": 0.001}
{"freq": 1380, "overlap_start": "norm_0", "overlap_end": "linear_1", "sm": 3, "block": 1024, "time_s": 0.0012, "energy_j": 0.29}"#;
    let job = job(8, 1, true);
    let records = Records::read(text, Some("forward/attention")).unwrap();
    let mut results = records.results(&job, STATIC).unwrap();
    let candidate = Candidate {
        clock: Hertz(1410e6),
        sms: 12,
        launch: 2,
    };
    let partition = &job.partitions[0];
    let found = Profiler::partition(&mut results, partition, candidate).unwrap();
    assert_eq!((found.time, found.energy), (Millis(1.1), Joules(0.31)));
    let other = Candidate {
        sms: 15,
        ..candidate
    };
    let missing = Profiler::partition(&mut results, partition, other).unwrap_err();
    assert!(matches!(missing, ProfilerError::Missing { .. }));
    assert_eq!(
        missing.to_string(),
        "forward/attention: there is no result for 1410 MHz, 15 SMs, launch at 2"
    );
    let unnamed = Records::read(text, None).unwrap_err().to_string();
    assert!(unnamed.starts_with("line 1: name is missing"), "{unnamed}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let unknown = error("forward/gelu,1410,3,norm_0,0.001,0.3\n");
    assert!(
        unknown.starts_with("line 2: \"forward/gelu\" is no partition or sequence"),
        "{unknown}"
    );
    assert!(unknown.contains("forward/mlp"), "{unknown}");
    let token = error("\n# a comment\nforward/mlp,1410,3,rope_0,0.001,0.3\n");
    assert_eq!(
        token,
        "line 4: \"rope_0\" is no computation of forward/mlp, which has norm_0, linear_0, activation_0, linear_1"
    );
    let partition = error("forward/mlp,1410,,,0.001,0.3\n");
    assert!(
        partition.contains("sms and launch are needed"),
        "{partition}"
    );
    let sequence = error("forward/block,1410,3,norm_0,0.001,0.3\n");
    assert!(sequence.contains("neither sms nor launch"), "{sequence}");
    for (row, wanted) in [
        ("forward/mlp,1410,0,norm_0,0.001,0.3", "at least one SM"),
        (
            "forward/mlp,1410,-3,norm_0,0.001,0.3",
            "sms \"-3\" is no number of SMs",
        ),
        (
            "forward/mlp,1410,3,norm_0,0,0.3",
            "time 0 is no number that is more than 0",
        ),
        ("forward/mlp,inf,3,norm_0,0.001,0.3", "frequency inf"),
        ("forward/mlp,1410,3,norm_0,0.001,NaN", "energy NaN"),
        ("forward/mlp,1410,3,norm_0,0.001,", "energy is missing"),
        (
            "forward/mlp,1410,3,norm_0,fast,0.3",
            "time \"fast\" is no number",
        ),
        (
            "forward/mlp,1410,3,norm_0,0.01,0.3",
            "less than the static power of 80 W",
        ),
    ] {
        let message = error(row);
        assert!(
            message.starts_with("line 2: ") && message.contains(wanted),
            "{row}: {message}"
        );
    }
    let json = read("{\"name\": \"forward/mlp\", \"frequency\": 1410}").unwrap_err();
    assert!(json.starts_with("line 1: missing field"), "{json}");
    assert_eq!(read(HEADER).unwrap_err(), "there is no result in it");
    let column = read("name,frequency,sms,time,energy\n").unwrap_err();
    assert!(column.contains("\"launch\""), "{column}");
    let records: Records = format!("{HEADER}forward/mlp,1410,3,norm_0,0.001,0.3\n")
        .parse()
        .unwrap();
    let power = records
        .results(&job(8, 1, true), Watts(f64::NAN))
        .unwrap_err();
    assert!(power.to_string().contains("static power"), "{power}");
}

#[test]
fn repeated_results_count_with_their_mean_unless_they_contradict() {
    let rows = "forward/mlp,1410,3,norm_0,0.0010,0.30\nforward/mlp,1410,3,norm_0,0.00105,0.32\n";
    let results = read(&format!("{HEADER}{rows}")).unwrap();
    let [(_, mean)] = results.of_partition("forward/mlp") else {
        panic!("{results:?}")
    };
    assert!((mean.time.0 - 1.025).abs() < 1e-12 && (mean.energy.0 - 0.31).abs() < 1e-12);
    let records: Records = format!("{HEADER}{rows}").parse().unwrap();
    let twice = records.add_to(&mut results.clone(), &job(8, 1, true));
    let twice = twice.unwrap_err().to_string();
    assert!(twice.contains("another file has a result"), "{twice}");
    let apart = rows.replace("0.00105,0.32", "0.0013,0.30");
    assert_eq!(
        error(&apart),
        "line 3: contradicting results: +30 % time than line 2 says of the same"
    );
}

proptest! {
    /// Every file is read or refused, without a panic.
    #[test]
    fn no_text_makes_the_reader_panic(text in "(name,frequency,sms,launch,time,energy\n)?[ -~\n\u{feff}\u{e9}]{0,200}") {
        let _ = read(&text);
    }

    /// A good file in which something was overwritten.
    #[test]
    fn no_damage_makes_the_reader_panic(at in 0_usize..120, with in "[ -~]{0,6}") {
        let good = format!("{HEADER}forward/mlp,1410,3,norm_0,0.001,0.3\nforward/block,1410,,,0.01,3\n");
        let at = at.min(good.len());
        let until = (at + with.len()).min(good.len());
        let _ = read(&format!("{}{with}{}", &good[..at], &good[until..]));
    }
}
