//! What is given is not all of a job, or more than one: ranks are missing, recordings follow each other, or jobs stand side
//! by side. That the first screen says so, and blames or clears nobody for it.

use serde_json::Value;
use tempfile::TempDir;

use super::{document, kernel, refusal, report, write};

/// The ranks of a job in which all meet.
const ALL: std::ops::Range<u32> = 0..8;

/// A job whose ranks run ten kernels in an iteration and then meet.
struct Job {
    /// The ranks that meet with each other.
    groups: Vec<std::ops::Range<u32>>,
    iterations: u32,
    /// When the recording begins, in µs.
    begins: f64,
    /// Whether collectives tell who takes part.
    told: bool,
}

impl Job {
    /// The events of all ranks. `own` has what a rank runs before its kernels in an iteration, `length` how long each of
    /// these takes, in µs.
    fn events(
        &self,
        own: impl Fn(u32, u32) -> Vec<(String, f64)>,
        length: impl Fn(u32) -> f64,
    ) -> Vec<Vec<String>> {
        let ranks = self.groups.iter().map(|group| group.end).max().unwrap();
        let mut times = vec![self.begins; ranks as usize];
        let mut events = vec![Vec::new(); ranks as usize];
        for iteration in 0..self.iterations {
            let begins = times.clone();
            for (rank, (time, events)) in (0..).zip(times.iter_mut().zip(&mut events)) {
                let gemms = (0..10).map(|k| (format!("gemm_{}", k % 5), length(rank)));
                for (name, length) in own(rank, iteration).into_iter().chain(gemms) {
                    events.push(kernel(&name, *time, length));
                    *time += length;
                }
            }
            for group in &self.groups {
                let members = || group.clone().map(|rank| rank as usize);
                let end = members().map(|at| times[at]).fold(0.0, f64::max) + 40.0;
                for at in members() {
                    events[at].push(self.meeting(group, times[at], end));
                    times[at] = end;
                }
            }
            for ((begin, time), events) in begins.iter().zip(&times).zip(&mut events) {
                events.push(format!(
                    r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin:.3},"dur":{:.3}}}"#,
                    time - begin - 0.001
                ));
            }
        }
        events
    }

    fn meeting(&self, group: &std::ops::Range<u32>, start: f64, end: f64) -> String {
        let told = match self.told {
            true => format!(
                r#","Collective name":"allreduce","Process Group Name":"0","Group size":{},"Process Group Ranks":"{:?}""#,
                group.len(),
                Vec::from_iter(group.clone())
            ),
            false => String::new(),
        };
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":{start:.3},"dur":{:.3},"args":{{"device":0,"stream":20{told}}}}}"#,
            end - start
        )
    }
}

fn one_group(told: bool) -> Job {
    Job {
        groups: vec![ALL],
        iterations: 6,
        begins: 0.0,
        told,
    }
}

fn nothing(_: u32, _: u32) -> Vec<(String, f64)> {
    Vec::new()
}

/// As long as noise makes kernels, and longer on one rank.
fn slow(rank: u32, slow: u32) -> f64 {
    40.0 + 0.02 * f64::from(rank * 5 % 7) + if rank == slow { 2.0 } else { 0.0 }
}

/// Writes the ranks of these numbers, whose files tell nothing else of the job.
fn given(events: &[Vec<String>], ranks: &[u32]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for rank in ranks {
        let info = format!(r#""distributedInfo":{{"rank":{rank}}},"#);
        let text = document(&info, &events[*rank as usize]);
        write(&folder, &format!("rank{rank}.json"), text);
    }
    folder
}

fn said<'a>(report: &'a Value, key: &str) -> &'a str {
    report["verdict"][key].as_str().unwrap()
}

#[test]
fn ranks_that_collectives_alone_name_are_missing() {
    let events = one_group(true).events(nothing, |rank| slow(rank, 5));
    // All wait for one that is not given.
    let report = super::report(&[], &[given(&events, &[0, 1, 2]).path()]);
    assert_eq!(report["verdict"]["kind"], "ranks-missing");
    let text = said(&report, "text");
    assert!(
        text.starts_with("Not known: all may wait for a rank that is missing. None of the 3 ranks given, of 8, holds"),
        "{text}"
    );
    assert!(!text.contains("Healthy"), "{text}");
    let next = said(&report, "next");
    assert!(
        next.starts_with("give the traces of ranks 3, 4, 5, 6 and 7"),
        "{next}"
    );
    // With all of them the verdict is of the job.
    let all = super::report(&[], &[given(&events, &[0, 1, 2, 3, 4, 5, 6, 7]).path()]);
    assert_eq!(all["straggler_rank"], 5);
    assert!(!all["verdict"].to_string().contains("missing"));
}

#[test]
fn recordings_that_follow_each_other_are_told_as_such() {
    let events = |begins: f64| {
        let job = Job {
            begins,
            ..one_group(false)
        };
        job.events(nothing, |_| 40.0)
    };
    let (first, second) = (events(0.0), events(5_000.0));
    let folder = given(&first, &[0, 1]);
    for (rank, events) in second.iter().enumerate().take(2) {
        let info = format!(r#""distributedInfo":{{"rank":{rank}}},"#);
        let text = document(&info, events);
        write(&folder, &format!("again{rank}.json"), text);
    }
    let error = refusal(&[], &[folder.path()]);
    for part in ["both hold rank 0, one after the other", "one of each rank"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    // Of the same time they are copies, or their ranks are wrong.
    let folder = given(&first, &[0, 1]);
    let info = r#""distributedInfo":{"rank":0},"#;
    write(&folder, "other.json", document(info, &first[1]));
    let error = refusal(&[], &[folder.path()]);
    assert!(
        error.contains("leave one out, or name the ranks"),
        "{error}"
    );
}

#[test]
fn work_before_the_first_collective_is_not_taken_for_a_recording_that_began_late() {
    // Rank 0 tries kernels out, as a compiler does, before all meet for the first time.
    let own = |rank, iteration| match (rank, iteration) {
        (0, 0) => Vec::from_iter((0..40).map(|k| (format!("triton_{k}"), 10.0))),
        _ => Vec::new(),
    };
    let events = one_group(false).events(own, |rank| slow(rank, 9));
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    let report = report(&[], &[given(&events, &all).path()]);
    assert_eq!(report["straggler_rank"], 0, "{}", report["verdict"]);
    assert!(said(&report, "text").contains("the others wait for rank 0"));
    // That they waited once is no certainty.
    assert!(said(&report, "text").contains("likely, no more"));
}

#[test]
fn jobs_side_by_side_are_doubted_to_be_one() {
    let job = |groups: Vec<std::ops::Range<u32>>| {
        let job = Job {
            groups,
            ..one_group(false)
        };
        let events = job.events(nothing, |rank| slow(rank, 6));
        super::report(&[], &[given(&events, &[0, 1, 2, 3, 4, 5, 6, 7]).path()])
    };
    let told = "the trace does not tell which ranks take part in ncclDevKernel_AllReduce; it is taken for one of all 8 ranks";
    let two = job(vec![0..4, 4..8]);
    assert!(two["verdict"]["doubts"].to_string().contains(told), "{two}");
    let cost = said(&two, "cost");
    assert!(cost.contains("of some of these ranks only"), "{cost}");
    assert!(!said(&two, "how_sure").starts_with("very sure"));
    let one = job(vec![ALL]);
    assert!(!one["verdict"].to_string().contains("some of these ranks"));
    assert_eq!(one["straggler_rank"], 6);
}

#[test]
fn ranks_that_exchange_nothing_are_told_what_takes_their_time() {
    let folder = TempDir::new().unwrap();
    for rank in 0..2 {
        // 5 µs of work each 100 µs, for which nothing tells why.
        let events =
            (0..40).map(|k| kernel("gemm", 100.0 * f64::from(k) + 60.0 * f64::from(rank), 5.0));
        let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":2}},"#);
        let text = document(&info, &Vec::from_iter(events));
        write(&folder, &format!("rank{rank}.json"), text);
    }
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["verdict"]["kind"], "nobody-waits");
    let cost = said(&report, "cost");
    assert!(
        cost.starts_with("Of the time recorded gaps between kernels"),
        "{cost}"
    );
    let next = said(&report, "next");
    assert!(
        next.starts_with("record the host's calls as well"),
        "{next}"
    );
    assert!(next.contains("If the ranks exchange anything"), "{next}");
}
