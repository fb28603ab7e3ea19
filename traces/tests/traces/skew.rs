//! How far clocks are apart, of ranks that did not record the same collectives.

use std::ops::Range;

use litd_traces::study::{Skew, remove_skew};
use litd_traces::{join, kineto};
use litd_units::Nanos;

const SECOND: u64 = 1_000_000;

/// A rank whose clock is ahead by so many microseconds: one all-reduce in each iteration of a millisecond.
struct Rank {
    number: u32,
    ahead: u64,
    iterations: Range<u64>,
    sequence: bool,
    marks: bool,
    group: &'static str,
}

impl Rank {
    fn of(number: u32) -> Self {
        Self {
            number,
            ahead: 0,
            iterations: 0..8,
            sequence: true,
            marks: true,
            group: "[0, 1, 2]",
        }
    }

    fn document(&self) -> String {
        let mut events = Vec::new();
        for n in self.iterations.clone() {
            let start = SECOND + 1_000 * n + self.ahead;
            if self.marks {
                events.push(format!(
                    r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{n}","pid":1,"tid":1,"ts":{start},"dur":1000}}"#
                ));
            }
            let sequence = match self.sequence {
                true => format!(r#","Seq":{n}"#),
                false => String::new(),
            };
            let at = start + 500 + n % 3;
            let length = 400 - n % 3;
            events.push(format!(
                r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":{at},"dur":{length},"args":{{"device":0,"stream":20,"Collective name":"allreduce","Process Group Name":"tp","Process Group Ranks":"{}"{sequence}}}}}"#,
                self.group
            ));
        }
        format!(
            r#"{{"distributedInfo":{{"rank":{}}},"traceEvents":[{}]}}"#,
            self.number,
            events.join(",")
        )
    }
}

fn skew(ranks: &[Rank]) -> Skew {
    let read = |rank: &Rank| {
        let name = format!("rank{}.json", rank.number);
        kineto::read(rank.document().as_bytes(), &name, None).unwrap()
    };
    let (mut timelines, _) = join(Vec::from_iter(ranks.iter().map(read))).unwrap();
    remove_skew(&mut timelines)
}

#[test]
fn a_rank_that_recorded_less_does_not_hide_that_clocks_are_apart() {
    for [sequence, marks] in [[true, true], [true, false], [false, true]] {
        let rank = |number| Rank {
            sequence,
            marks,
            ..Rank::of(number)
        };
        let late = Rank {
            iterations: 2..8,
            ..rank(1)
        };
        let ahead = Rank {
            ahead: 400,
            ..rank(2)
        };
        let skew = skew(&[rank(0), late, ahead]);
        assert!(skew.estimated, "{sequence} {marks}");
        assert_eq!(skew.collectives, 6);
        assert_eq!(skew.ahead_ns, [0, 0, 400_000].map(Nanos));
    }
}

#[test]
fn as_many_collectives_need_not_be_the_same_ones() {
    let rank = |number, iterations| Rank {
        iterations,
        marks: false,
        ..Rank::of(number)
    };
    let skew = skew(&[rank(0, 0..8), rank(1, 1..9), rank(2, 0..8)]);
    assert_eq!(skew.collectives, 7);
    assert_eq!(skew.ahead_ns, [Nanos::ZERO; 3]);
}

#[test]
fn where_nothing_tells_which_are_missing_skew_is_not_known() {
    let rank = |number| Rank {
        sequence: false,
        marks: false,
        ..Rank::of(number)
    };
    let late = Rank {
        iterations: 2..8,
        ..rank(1)
    };
    assert!(!skew(&[rank(0), late, rank(2)]).estimated);
}

#[test]
fn groups_of_one_name_and_other_ranks_tell_nothing_of_each_other() {
    let rank = |number, group, ahead| Rank {
        group,
        ahead,
        ..Rank::of(number)
    };
    // The second pair comes later because one of them is slow.
    let skew = skew(&[
        rank(0, "[0, 1]", 0),
        rank(1, "[0, 1]", 0),
        rank(2, "[2, 3]", 400),
        rank(3, "[2, 3]", 400),
    ]);
    assert!(!skew.estimated);
    assert_eq!(skew.removed, [false; 0]);
}

/// A rank of a job of two tensor-parallel ranks by `data` replicas: in each of twenty iterations its pair reduces
/// something, and in so many of them its replicas do then. Its clock is ahead by so many microseconds.
fn two_by(data: u32, reduces: u64, number: u32, ahead: u64) -> String {
    let pair = [number / 2 * 2, number / 2 * 2 + 1];
    let replicas = Vec::from_iter((0..data).map(|replica| 2 * replica + number % 2));
    let mut events = Vec::new();
    for n in 0..20 {
        let replicas = (n < reduces).then_some(("dp", &replicas[..], 700));
        for (group, ranks, at) in [("tp", &pair[..], 300)].into_iter().chain(replicas) {
            let start = SECOND + 1_000 * n + at + ahead + n % 3;
            let length = 200 - n % 3;
            events.push(format!(
                r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":{start},"dur":{length},"args":{{"device":0,"stream":20,"Collective name":"allreduce","Process Group Name":"{group}","Process Group Ranks":"{ranks:?}","Seq":{n}}}}}"#
            ));
        }
    }
    let events = events.join(",");
    format!(r#"{{"distributedInfo":{{"rank":{number}}},"traceEvents":[{events}]}}"#)
}

#[test]
fn process_groups_that_share_ranks_tell_together_how_far_clocks_are_apart() {
    // Most jobs reduce gradients seldom.
    for (data, reduces) in [(2, 20), (4, 20), (4, 2)] {
        let ahead = |number: u32| if number == 2 { 400 } else { 0 };
        let read = |number: u32| {
            let name = format!("rank{number}.json");
            let text = two_by(data, reduces, number, ahead(number));
            kineto::read(text.as_bytes(), &name, None).unwrap()
        };
        let (mut timelines, _) = join(Vec::from_iter((0..2 * data).map(read))).unwrap();
        let skew = remove_skew(&mut timelines);
        assert!(skew.estimated, "{data}: {skew:?}");
        let known = Vec::from_iter((0..2 * data).map(|number| Nanos(1_000 * ahead(number) as i64)));
        assert_eq!(skew.ahead_ns, known, "{data}");
        let removed = Vec::from_iter((0..2 * data).map(|number| number == 2));
        assert_eq!(skew.removed, removed, "{data}: {skew:?}");
        // All kernels are where they were.
        let starts = timelines.iter().map(|timeline| timeline.kernels[0].start);
        let starts = Vec::from_iter(starts);
        assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
    }
}

#[test]
fn ranks_that_no_process_group_links_stay_unknown() {
    // The replicas reduce once: that agrees with itself whatever it says.
    let read = |number: u32| {
        let text = two_by(2, 1, number, 0);
        kineto::read(text.as_bytes(), &format!("rank{number}.json"), None).unwrap()
    };
    let (mut timelines, _) = join(Vec::from_iter((0..4).map(read))).unwrap();
    assert!(!remove_skew(&mut timelines).estimated);
}
