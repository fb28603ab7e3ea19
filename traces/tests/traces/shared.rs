//! Real traces: those in ../shared/traces, which are not part of the project.

use std::path::PathBuf;

use litd_traces::{Aggregation, Timeline, join};
use litd_traces::{AlignError, AlignOptions, KernelClass, ReadError, Selection, kineto, leads};
use litd_units::Nanos;

/// The folder of real traces, where it is there.
fn shared() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces"));
    let there = folder.is_dir();
    if !there {
        // Not println: the harness would keep that to itself in a test that passes.
        let note = "skipped: ../shared/traces is absent\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes());
    }
    there.then_some(folder)
}

/// File; computation, communication, copies; sum of all durations; first start (both in ns).
/// Counted by another program, with another JSON parser and decimal arithmetic.
type Facts = (&'static str, [usize; 3], i64, i64);
#[rustfmt::skip]
const READABLE: &[Facts] = &[
    ("aorta/smci350-zts-gtu-c6-25_200691.1758927066581847260.pt.trace.json", [18, 0, 2], 265_540, 1_758_927_066_579_286_904),
    ("hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz", [14, 0, 2], 149_042, 1_739_836_029_603_454_206),
    ("hta/critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz", [3, 0, 3], 372_000, 1_712_867_402_348_667_000),
    ("hta/nccl_parser_config/nccl_data.json.gz", [2679, 21, 1074], 165_185_838, 1_716_423_322_422_880_181),
    ("hta/negative_queue_length_values_check/rank0.json.gz", [6000, 80, 1667], 449_763_000, 1_683_564_901_549_715_000),
    ("hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", [4350, 0, 1745], 472_454_441, 1_712_195_495_505_582_988),
    ("hta/trace_compare/base/base.json.gz", [6, 0, 12], 1_694_000, 1_661_938_466_265_125_000),
    ("hta/trace_compare/test/test.json.gz", [5, 0, 12], 1_690_000, 1_661_938_466_265_125_000),
    ("hta/trace_file_list/inference_rank_1.json.gz", [4, 0, 0], 30_000, 1_665_536_373_729_077_000),
    ("hta/trace_filter/sampled_rank-0.json.gz", [1144, 10, 50], 607_844_000, 1_682_725_898_082_228_000),
    ("hta/trace_filter/sampled_rank-1.json.gz", [1094, 10, 50], 667_530_000, 1_682_725_898_082_381_000),
    ("hta/triton_example/triton_example.json.gz", [1, 0, 0], 1_760, 1_730_156_791_097_444_592),
    ("kineto_tb/worker0.1623143566756.pt.trace.json.gz", [8772, 0, 324], 602_145_000, 1_623_143_093_549_984_000),
    ("param_dlrm_v100x8/worker0_step_12.1694128201545.pt.trace.json.gz", [237, 8, 16], 6_851_000, 1_694_128_201_428_006_000),
    ("param_dlrm_v100x8/worker1_step_12.1694128201556.pt.trace.json.gz", [302, 8, 16], 12_601_000, 1_694_128_201_422_243_000),
    ("param_dlrm_v100x8/worker2_step_12.1694128201554.pt.trace.json.gz", [238, 8, 16], 4_579_000, 1_694_128_201_429_646_000),
    ("param_dlrm_v100x8/worker3_step_12.1694128201557.pt.trace.json.gz", [307, 8, 22], 11_042_000, 1_694_128_201_422_243_000),
    ("param_dlrm_v100x8/worker4_step_12.1694128201547.pt.trace.json.gz", [243, 8, 22], 7_739_000, 1_694_128_201_425_339_000),
    ("param_dlrm_v100x8/worker5_step_12.1694128201549.pt.trace.json.gz", [237, 8, 16], 7_311_000, 1_694_128_201_425_499_000),
    ("param_dlrm_v100x8/worker6_step_12.1694128201553.pt.trace.json.gz", [238, 8, 16], 4_628_000, 1_694_128_201_429_650_000),
    ("param_dlrm_v100x8/worker7_step_12.1694128201553.pt.trace.json.gz", [238, 8, 16], 2_825_000, 1_694_128_201_430_147_000),
    ("param_single/resnet_kineto.json.gz", [9628, 0, 485], 4_733_822_000, 1_689_179_597_343_666_000),
    ("tracelens/traces/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", [1465, 0, 242], 45_647_300, 1_752_839_461_731_622_250),
    ("tracelens/traces/inference/vllm_decode_full/graph_execution.json.gz", [425, 0, 9], 10_717_708, 1_773_709_930_861_858_561),
    ("tracelens/traces/mi210/gpu_only_trace/gpu_only_trace.json.gz", [562, 0, 0], 5_343_422, 1_766_169_255_218_039_954),
    ("tracelens/traces/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz", [4255, 0, 85], 331_819_224, 1_753_622_550_295_487_460),
    ("tracelens/traces/mi300/resnet_act_checkpoint.json.gz", [2978, 17, 658], 100_230_072, 1_770_932_723_222_894_405),
    ("tracelens/traces/torch_compile_triton/trace.json.gz", [12, 0, 0], 12_549_021, 1_778_681_579_046_460_717),
];

const WITHOUT_KERNELS: [&str; 4] = [
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "hta/distributed_info_unavailable/distributed_info_not_found.json.gz",
    "hta/rank_non_gpu/rank_non_gpu.json.gz",
    "hta/rank_unavailable/rank_not_found.json.gz",
];

#[test]
fn every_kernel_of_every_real_trace_is_read() {
    let Some(folder) = shared() else { return };
    for &(file, classes, time, first) in READABLE {
        let trace = kineto::read_file(&folder.join(file), None).unwrap();
        let [timeline] = &trace.timelines[..] else {
            panic!("{file} holds {} ranks", trace.timelines.len());
        };
        let count = |class| timeline.kernels.iter().filter(|k| k.class == class).count();
        let counts = [
            KernelClass::Computation,
            KernelClass::Communication,
            KernelClass::Copy,
        ];
        assert_eq!(counts.map(count), classes, "{file}");
        let sum: Nanos = timeline
            .kernels
            .iter()
            .map(|kernel| kernel.duration())
            .sum();
        assert_eq!(sum, Nanos(time), "{file}");
        assert_eq!(timeline.kernels[0].start, Nanos(first), "{file}");
        assert!(
            timeline
                .kernels
                .is_sorted_by_key(|kernel| (kernel.start, kernel.end)),
            "{file}"
        );
    }
}

#[test]
fn traces_of_the_host_alone_say_so_in_one_sentence() {
    let Some(folder) = shared() else { return };
    for file in WITHOUT_KERNELS {
        let error = kineto::read_file(&folder.join(file), None).unwrap_err();
        assert!(
            matches!(error, ReadError::NoKernels { .. }),
            "{file}: {error}"
        );
        assert!(
            error.to_string().contains("holds no GPU kernels"),
            "{error}"
        );
    }
}

#[test]
fn json_of_other_tools_is_told_apart() {
    let Some(folder) = shared() else { return };
    let file = folder.join("tracelens/rocprof/908_results.json.gz");
    let error = kineto::read_file(&file, None).unwrap_err();
    assert!(matches!(error, ReadError::NotKineto { .. }), "{error}");
}

#[test]
fn ranks_come_from_the_file_or_its_name() {
    let Some(folder) = shared() else { return };
    for (file, rank, known) in [
        ("hta/trace_compare/base/base.json.gz", 1, true),
        ("kineto_tb/worker0.1623143566756.pt.trace.json.gz", 0, true),
        (
            "param_dlrm_v100x8/worker5_step_12.1694128201549.pt.trace.json.gz",
            5,
            true,
        ),
        ("hta/triton_example/triton_example.json.gz", 0, false),
    ] {
        let trace = kineto::read_file(&folder.join(file), None).unwrap();
        assert_eq!(
            (trace.timelines[0].rank, trace.rank_known),
            (rank, known),
            "{file}"
        );
    }
}

#[test]
fn iterations_come_from_launches_in_old_and_new_traces() {
    let Some(folder) = shared() else { return };
    // All steps of these trainings run the same number of kernels.
    for (file, first, steps, kernels) in [
        (
            "kineto_tb/worker0.1623143566756.pt.trace.json.gz",
            16,
            6,
            1516,
        ),
        ("hta/nccl_parser_config/nccl_data.json.gz", 4, 3, 1258),
        (
            "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
            101,
            5,
            1219,
        ),
        (
            "tracelens/traces/mi300/resnet_act_checkpoint.json.gz",
            15,
            3,
            895,
        ),
    ] {
        let trace = kineto::read_file(&folder.join(file), None).unwrap();
        let timeline = &trace.timelines[0];
        assert_eq!(
            timeline.iteration_numbers(),
            Vec::from_iter(first..first + steps),
            "{file}"
        );
        for piece in timeline.pieces() {
            assert_eq!(piece.kernels.len(), kernels, "{file}");
        }
    }
}

#[test]
fn collectives_keep_their_metadata() {
    let Some(folder) = shared() else { return };
    let file = folder.join("tracelens/traces/mi300/resnet_act_checkpoint.json.gz");
    let trace = kineto::read_file(&file, None).unwrap();
    let timeline = &trace.timelines[0];
    let told = timeline
        .kernels
        .iter()
        .filter_map(|kernel| kernel.collective);
    let told = Vec::from_iter(told.map(|id| &timeline.collectives[id.0.get() as usize]));
    assert_eq!(told.len(), 12);
    let names = Vec::from_iter(told.iter().filter_map(|one| one.name.as_deref()));
    assert_eq!(
        names,
        ["broadcast", "broadcast", "allreduce", "allreduce"].repeat(3)
    );
    assert!(
        told.iter()
            .all(|one| *one.ranks == [0, 1, 2, 3, 4, 5, 6, 7])
    );
    assert!(
        told.iter()
            .all(|one| one.group_size == Some(8) && one.in_elements == one.out_elements)
    );
}

fn timelines(folder: &str) -> Option<Vec<Timeline>> {
    let mut files = Vec::from_iter(
        std::fs::read_dir(shared()?.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path()),
    );
    files.sort();
    let read = files
        .iter()
        .map(|file| kineto::read_file(file, None).unwrap());
    Some(join(read.collect()).unwrap().0)
}

#[test]
fn the_leads_of_eight_real_ranks_are_the_known_ones() {
    let Some(timelines) = timelines("param_dlrm_v100x8") else {
        return;
    };
    let options = AlignOptions {
        selection: Selection::All,
        ..AlignOptions::default()
    };
    let leads = leads(&timelines, &options).unwrap();
    assert_eq!(leads.alignment.matched().len(), 244);
    for (how, known) in [
        (
            Aggregation::Sum,
            [205.0, 373.0, 130.0, 327.0, 195.0, 189.0, 130.0, 76.5],
        ),
        (
            Aggregation::Max,
            [2.1, 7.6, 0.93, 6.4, 4.9, 4.7, 0.88, 0.82],
        ),
    ] {
        for (lead, known) in leads.values(how).into_iter().zip(known) {
            let ratio = lead.to_millis().0 / known;
            assert!(
                (0.98..1.03).contains(&ratio),
                "{how:?}: {lead} instead of {known} ms"
            );
        }
    }
    assert_eq!(leads.straggler(Aggregation::Sum), Some(7));
    // Every kernel has a rank that starts it last.
    assert!(leads.last_in().iter().sum::<usize>() >= 244);
}

#[test]
fn sampled_traces_are_refused() {
    let Some(timelines) = timelines("hta/trace_filter") else {
        return;
    };
    for selection in [Selection::Computation, Selection::All] {
        let options = AlignOptions {
            selection,
            ..AlignOptions::default()
        };
        let error = leads(&timelines, &options).unwrap_err();
        assert!(matches!(error, AlignError::TooFewMatched { .. }), "{error}");
    }
}
