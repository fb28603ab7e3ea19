//! The first screen in all shapes that a verdict has: it is read in half a minute, whatever there is to say.

use litd_traces::study::{Cause, Diagnosis, Grids, Longer, Study};
use litd_traces::whatif::{Course, Link, Part, Paused, Pauses, Stage, Stall, WhatIf, Where, Why};
use litd_traces::{AlignOptions, AnalysisOptions, Report, Timeline, kineto};
use litd_units::Nanos;

use super::answer::words;
use super::summary::Summary;
use super::weighed::{Late, Weighed};

const RANKS: u32 = 6;
const ITERATIONS: u32 = 3;

/// A rank of three pairs, each of which reduces once in an iteration; that of ranks 2 and 3 takes four times as long.
fn rank(number: u32) -> Timeline {
    let mut events = Vec::new();
    let pair = number / 2;
    let takes = if pair == 1 { 800 } else { 200 };
    for iteration in 0..ITERATIONS {
        let begin = 10_000 * iteration;
        for kernel in 0..20 {
            let start = begin + 100 * kernel;
            events.push(format!(
                r#"{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{start},"dur":{},"args":{{"device":0,"stream":7}}}}"#,
                90 + number % 2
            ));
        }
        let start = begin + 2_000;
        events.push(format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":{start},"dur":{takes},"args":{{"device":0,"stream":20,"Collective name":"allreduce","In msg nelems":1000000,"Out msg nelems":1000000,"dtype":"Float","Group size":2,"Process Group Name":"{pair}"}}}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin},"dur":9999}}"#
        ));
    }
    let text = format!(
        r#"{{"distributedInfo":{{"rank":{number}}},"traceEvents":[{}]}}"#,
        events.join(",")
    );
    let mut trace = kineto::read(text.as_bytes(), "test.json", None).unwrap();
    trace.timelines.remove(0)
}

fn longer(name: &str, class: &'static str, counts: [usize; 2], more_blocks: Option<f64>) -> Longer {
    Longer {
        name: name.into(),
        class,
        beside: (class == "computation").then(|| "24".into()),
        counts,
        time_ns: Nanos(123_456_789),
        ahead_ns: Nanos(if counts[1] == 0 { 0 } else { 23_456_789 }),
        share: 0.5,
        more_blocks,
    }
}

/// Possible diagnoses of a cause.
fn told(plain: &Diagnosis, cause: Cause) -> Vec<Diagnosis> {
    let plain = Diagnosis {
        cause,
        power_helps: cause.power_helps(),
        ..plain.clone()
    };
    let longer = [
        longer(
            "void at::native::scan_kernel<float, 4>(int, float*)",
            "computation",
            [6, 6],
            None,
        ),
        longer("expert_gemm", "computation", [6, 6], Some(0.2)),
        longer("Memcpy HtoD (Pageable -> Device)", "copy", [6, 6], None),
        longer("eval_metric", "computation", [6, 0], None),
        longer("gemm", "computation", [60, 6], None),
    ];
    let mut all = vec![plain.clone()];
    all.extend(
        [Some(Grids::Equal), Some(Grids::Larger(0.2))].map(|grids| Diagnosis {
            grids,
            ..plain.clone()
        }),
    );
    for first in &longer {
        for more in [0, 2] {
            let longer = std::iter::repeat_n(first.clone(), 1 + more).collect();
            all.push(Diagnosis {
                longer,
                ..plain.clone()
            });
        }
    }
    let seen = [
        Cause::SlowClock,
        Cause::DataDependent,
        Cause::HostBound,
        Cause::Communication,
    ];
    for several in [2, 3, 4] {
        all.push(Diagnosis {
            seen: seen.iter().copied().take(several).collect(),
            ..plain.clone()
        });
    }
    all.push(Diagnosis {
        unwaited: Some((vec![1, 2, 3], 0.04)),
        ..plain.clone()
    });
    all.push(Diagnosis {
        exchanges: false,
        ..plain.clone()
    });
    for (all_idle, in_turn) in [(true, false), (true, true), (false, true)] {
        all.push(Diagnosis {
            all_idle,
            in_turn,
            excess: Some(0.034),
            ..plain.clone()
        });
    }
    all.push(Diagnosis {
        once_in_step: Some(4),
        hangs_on_one: true,
        ..plain
    });
    all
}

/// Links, stages and stalls: first the most expensive, then cheaper ones.
fn others(link: &Link) -> Vec<(Vec<Link>, Option<Stage>, Option<Stall>)> {
    let places = [
        Where::Among(vec![2, 3]),
        Where::Among((0..64).collect()),
        Where::Ranks(vec![1, 5, 9]),
        Where::From(vec![1, 5, 9]),
        Where::To(vec![4]),
        Where::OneWay([12, 13]),
        Where::Iterations(vec![1, 3, 5, 7, 8, 9]),
    ];
    let links = |saved: f64| {
        let each = places.iter().map(|place| {
            let mut link = link.clone();
            (link.place, link.saved) = (place.clone(), saved);
            link
        });
        Vec::from_iter(each)
    };
    let stage = |why, saved| Stage {
        stage: Some(3),
        ranks: (24..32).collect(),
        why,
        kernels: [120, 100],
        longer: 0.123,
        saved,
    };
    let stall = Stall {
        iterations: vec![1, 4, 6],
        times: 3.0,
        saved: 0.4,
    };
    let mut all = vec![(Vec::new(), None, None)];
    for link in links(0.3) {
        all.push((vec![link.clone()], None, None));
        let mut second = link.clone();
        second.saved = 0.2;
        all.push((
            vec![link, second.clone(), second],
            Some(stage(Why::Work, 0.1)),
            None,
        ));
    }
    for why in [Why::Work, Why::Clock, Why::Kernels] {
        all.push((links(0.1), Some(stage(why, 0.35)), None));
    }
    all.push((links(0.1), Some(stage(Why::Clock, 0.1)), Some(stall)));
    all
}

/// The screens of all shapes.
#[derive(Default)]
struct Seen {
    most: (usize, String),
    /// Screens of which a sentence had to be cut.
    cut: Vec<String>,
}

impl Seen {
    fn with(mut self, other: Self) -> Self {
        self.cut.extend(other.cut);
        match other.most.0 > self.most.0 {
            true => Self {
                most: other.most,
                ..self
            },
            false => self,
        }
    }
}

#[test]
fn every_first_screen_has_a_hundred_words_at_most() {
    let mut timelines = Vec::from_iter((0..RANKS).map(rank));
    let align = AlignOptions::default();
    let options = AnalysisOptions {
        align,
        ..AnalysisOptions::default()
    };
    let (groups, skews, report) = super::compared(&mut timelines, &options).unwrap();
    let job = WhatIf::of(&timelines, &groups);
    let waits = report.groups[0].waits.clone();
    let models = litd_traces::study::ModelOptions::default();
    let given = (&groups.all[0], waits.as_ref());
    let skew = skews[0].clone();
    let study = litd_traces::study::study_group(&timelines, given, skew, &align, &models).unwrap();
    let link = job.links().first().unwrap().clone();
    let plain = study.diagnosis.clone();
    let causes = [
        Cause::Healthy,
        Cause::SlowClock,
        Cause::HostBound,
        Cause::Communication,
        Cause::DataDependent,
        Cause::SamplingArtefact,
        Cause::Unknown,
    ];
    let stragglers = [
        vec![],
        vec![5],
        vec![0, 1, 3, 4, 5, 7, 9],
        (0..64).collect(),
    ];
    let pauses = Pauses {
        ranks: (10..20)
            .map(|rank| Paused {
                rank,
                iterations: vec![11, 13, 15, 17],
                longest_ns: Nanos(12_345_678),
            })
            .collect(),
        saved: 0.5,
        launches: false,
    };
    let others = others(&link);
    let shapes = Shapes {
        job: &job,
        study: &study,
        report: &report,
        stragglers: &stragglers,
        others: &others,
        pauses: &pauses,
    };
    let seen = std::thread::scope(|scope| {
        let each = causes.map(|cause| {
            let all = told(&plain, cause);
            let shapes = &shapes;
            scope.spawn(move || shapes.of(all))
        });
        let each = Vec::from_iter(each.map(|one| one.join().unwrap()));
        each.into_iter().reduce(Seen::with).unwrap()
    });
    let Seen { most, cut } = seen;
    println!("{} words: {}", most.0, most.1);
    let count = cut.len();
    assert!(
        count == 0,
        "{count} are cut: {:#?}",
        cut.iter().step_by(count / 8 + 1).collect::<Vec<_>>()
    );
}

/// The parts that diagnoses are combined with.
struct Shapes<'a, 'b> {
    job: &'a WhatIf<'b>,
    study: &'a Study<'b>,
    report: &'a Report,
    stragglers: &'a [Vec<u32>],
    others: &'a [(Vec<Link>, Option<Stage>, Option<Stall>)],
    pauses: &'a Pauses,
}

impl Shapes<'_, '_> {
    /// Looks at the screens of these diagnoses.
    fn of(&self, diagnoses: Vec<Diagnosis>) -> Seen {
        let mut seen = Seen::default();
        let mut weighed = Weighed::of(self.job, self.report, Some(self.study));
        let (mut study, mut report) = (self.study.clone(), self.report.clone());
        for diagnosis in diagnoses {
            for stragglers in self.stragglers {
                if stragglers.is_empty() != blames_nobody(&diagnosis) {
                    continue;
                }
                study.diagnosis = Diagnosis {
                    stragglers: stragglers.clone(),
                    ..diagnosis.clone()
                };
                for world in [None, Some(6), Some(64)] {
                    report.world_size = world;
                    for (links, stage, stall) in self.others {
                        weighed.links = links;
                        weighed.stage = stage.as_ref();
                        weighed.stall = stall.as_ref();
                        also(&mut weighed, stragglers, stage.is_some());
                        for pauses in [None, Some(self.pauses)] {
                            weighed.pauses = pauses;
                            weighed.launches = None;
                            look(&mut report, &study, &weighed, &mut seen);
                        }
                        weighed.launches = Some(0.436).filter(|_| !stragglers.is_empty());
                        if weighed.launches.is_some() {
                            look(&mut report, &study, &weighed, &mut seen);
                        }
                    }
                }
            }
        }
        seen
    }
}

/// Whether no rank is named.
fn blames_nobody(diagnosis: &Diagnosis) -> bool {
    match diagnosis.cause {
        Cause::Healthy | Cause::SamplingArtefact => true,
        _ => diagnosis.in_turn || diagnosis.nobody_waits(),
    }
}

/// Further causes that are weighed: when ranks are slow, the second one, and the latest host.
fn also(weighed: &mut Weighed<'_>, stragglers: &[u32], much: bool) {
    let share = if much { 0.25 } else { 0.01 };
    let courses = [
        (stragglers.to_vec(), Course::In(vec![1, 3, 5, 7, 9])),
        (vec![7], Course::Worse([(0, 0.01), (9, 0.2)])),
    ];
    let courses = courses.into_iter().filter(|_| much).collect();
    weighed.late = (!stragglers.is_empty()).then_some(Late {
        share,
        explained: true,
        courses,
    });
    weighed.second = much.then_some((7, Part::Host, 0.04));
    weighed.host = much.then_some((7, 0.04));
}

fn look(report: &mut Report, study: &Study<'_>, weighed: &Weighed<'_>, seen: &mut Seen) {
    // The mark of simulated traces takes words of the screen, and nothing else.
    let first = Summary::of(report, Some(study), None, weighed);
    for simulated in [false, true] {
        report.simulated = simulated;
        let taken = super::text::taken(report);
        let screen = first.screen(taken);
        let lines = screen.lines.iter();
        let shown = lines.map(|(label, told)| words(label) + words(told));
        let count = taken + shown.sum::<usize>();
        let text = || {
            let lines = screen.lines.iter();
            Vec::from_iter(lines.map(|(label, told)| format!("{label} {told}"))).join("\n")
        };
        assert!(count <= 100, "{count} words: {}", text());
        // Each answer of a real job is told by a whole sentence at least.
        let mut lines = screen.lines.iter();
        let cut = lines.any(|(_, told)| told.contains("… ") || told.ends_with('…'));
        if cut && !simulated {
            seen.cut.push(text());
        }
        if count > seen.most.0 {
            seen.most = (count, text());
        }
    }
}
