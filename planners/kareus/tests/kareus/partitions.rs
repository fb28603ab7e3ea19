//! From a model description to partitions and candidates, against the paper's and the artifact's numbers.

use crate::common::{job, llama_3b, training};
use litd_kareus::patterns::{Piece, Slot, overlaps, pieces};
use litd_kareus::{
    A100, Collective, CollectiveKind, Gpu, GpuError, Job, Model, Operation, Part, Space, Step,
    Training, Work, Workload, partitions, repeating,
};
use litd_units::Hertz;

fn names(job: &Job) -> Vec<(&str, Vec<&str>)> {
    let all = job.partitions.iter();
    all.map(|it| {
        let computations = it.computations.iter().map(|one| one.name.as_str());
        (it.name.as_str(), computations.collect())
    })
    .collect()
}

fn counts(list: &[(usize, u32)]) -> Vec<u32> {
    list.iter().map(|(_, count)| *count).collect()
}

#[test]
fn tensor_parallel_blocks_are_attention_and_mlp() {
    let job = job(8, 1, true);
    let attention = vec!["norm_0", "linear_0", "rope_0", "attn_0", "linear_1"];
    let mlp = vec!["norm_0", "linear_0", "activation_0", "linear_1"];
    let backward = vec!["norm_0", "linear_0", "attn_0", "rope_0", "linear_1"];
    assert_eq!(
        names(&job),
        [
            ("forward/attention", attention),
            ("forward/mlp", mlp.clone()),
            ("backward/attention", backward),
            ("backward/mlp", mlp),
        ]
    );
    // Two nanobatches in each of 14 blocks; the backward pass computes the forward's once more.
    let [forward, backward, ..] = job.microbatches.as_slice() else {
        panic!("{job:?}")
    };
    assert_eq!(forward.overlapped, [(0, 28), (1, 28)]);
    assert_eq!(backward.overlapped, [(0, 28), (1, 28), (2, 28), (3, 28)]);
    assert_eq!(backward.sequential, [(0, 14), (1, 14)]);
    let without = self::job(8, 1, false);
    assert_eq!(without.microbatches[1].overlapped, [(2, 28), (3, 28)]);
}

/// The artifact's tokens: five partitions forward, seven backward, the MLP's twice in each block.
#[test]
fn context_parallel_blocks_have_the_artifacts_partitions() {
    let job = job(4, 2, true);
    let all: Vec<&str> = names(&job).iter().map(|it| it.0).collect();
    let mut forward = all[..5].to_vec();
    let mut backward = all[5..].to_vec();
    forward.sort_unstable();
    backward.sort_unstable();
    let wanted = ["ao_ag", "ao_ar", "mlp", "qkv_ag", "qkv_ar"].map(|it| format!("forward/{it}"));
    assert_eq!(forward, wanted);
    let wanted = ["a_ag", "a_rs", "mlp", "o_ag", "o_ar", "qkv_ar", "qkv_rs"];
    assert_eq!(backward, wanted.map(|it| format!("backward/{it}")));
    let place = job.places()["forward/mlp"];
    let count = |&(at, count): &(usize, u32)| (at == place).then_some(count);
    let forward = &job.microbatches[0].overlapped;
    assert_eq!(forward.iter().find_map(count), Some(28));
    assert_eq!(counts(forward).iter().sum::<u32>(), 14 * 6);
    // Keys' and values' collectives are one communication.
    let gather = &job.partitions[job.places()["forward/ao_ag"]].communication;
    assert_eq!(gather.collectives.len(), 2);
    assert!(
        gather
            .collectives
            .iter()
            .all(|it| it.kind == CollectiveKind::AllGather && it.group == 2)
    );
}

/// Half the work is in each nanobatch, and none is lost on the way from a sequence to partitions.
#[test]
fn partitions_do_the_work_of_the_sequential_block() {
    for (tensor, context) in [(8, 1), (4, 2), (1, 4), (2, 8)] {
        let job = job(tensor, context, false);
        for (direction, microbatch) in [0, 1].map(|it| (it, &job.microbatches[it])) {
            let of = |&(at, count): &(usize, u32)| {
                let partition = &job.partitions[at];
                let work = partition.computations.iter().map(|it| it.work.matrix);
                let bytes = partition
                    .communication
                    .collectives
                    .iter()
                    .map(|it| it.bytes);
                let count = f64::from(count);
                [work.sum::<f64>() * count, bytes.sum::<f64>() * count]
            };
            let overlapped = microbatch.overlapped.iter().map(of);
            let [matrix, bytes] = overlapped.fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
            let block = &job.sequences[direction];
            let (mut whole, mut moved) = (0.0, 0.0);
            for step in &block.steps {
                match step {
                    Step::Computation(it) => whole += it.work.matrix,
                    Step::Communication(it) => {
                        moved += it.collectives.iter().map(|it| it.bytes).sum::<f64>();
                    }
                }
            }
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
            assert!(
                near(matrix, 14.0 * whole),
                "{tensor} {context}: {matrix} {whole}"
            );
            assert!(
                near(bytes, 14.0 * moved),
                "{tensor} {context}: {bytes} {moved}"
            );
        }
    }
}

/// 6 x parameters x tokens without attention's products (Kaplan et al. 2020): an independent count.
#[test]
fn the_work_of_a_block_is_that_of_its_parameters() {
    let job = job(8, 1, false);
    let model = llama_3b();
    let (hidden, query, key) = (3072.0, 24.0 * 128.0, 8.0 * 128.0);
    let parameters = hidden * (query + 2.0 * key) + query * hidden + 3.0 * hidden * 8192.0;
    let tokens = 8.0 * 4096.0;
    let linear: f64 = job.sequences[..2]
        .iter()
        .flat_map(|it| &it.steps)
        .filter_map(|step| match step {
            Step::Computation(it) if it.name == "linear" => Some(it.work.matrix),
            _ => None,
        })
        .sum();
    assert!((8.0 * linear / (6.0 * parameters * tokens) - 1.0).abs() < 1e-12);
    assert_eq!(model.num_hidden_layers, job.microbatches.len() as u32 * 7);
}

/// A microbatch as a trace shows it: embedding, 12 blocks, output layer.
#[test]
fn a_sequence_says_what_its_block_is() {
    let compute = |name: &str, matrix: f64| Operation::Computation {
        name: name.to_owned(),
        part: Part::None,
        work: Work {
            matrix,
            ..Work::default()
        },
    };
    let collective = |kind| {
        Operation::Collective(Collective {
            kind,
            bytes: 1e8,
            group: 8,
        })
    };
    let sum = || collective(CollectiveKind::AllReduce);
    let mut block = vec![
        compute("add", 0.0),
        compute("norm", 0.0),
        compute("qkv", 1.0),
    ];
    block.extend([
        compute("flash", 1.0),
        compute("proj", 1.0),
        sum(),
        compute("add", 0.0),
    ]);
    block.extend([
        compute("norm", 0.0),
        compute("up", 1.0),
        compute("silu", 0.0),
    ]);
    block.extend([compute("down", 1.0), sum()]);
    let mut sequence = vec![compute("embedding", 0.0), sum()];
    for _ in 0..12 {
        sequence.extend(block.clone());
    }
    sequence.extend([
        compute("add", 0.0),
        compute("norm", 0.0),
        compute("head", 1.0),
    ]);
    let found = repeating(&sequence).unwrap();
    assert_eq!((found.length, found.repetitions), (12, 12));
    let own = &sequence[found.start..found.start + found.length];
    let parts = partitions("forward", own).unwrap();
    let mut names: Vec<Vec<&str>> = parts
        .iter()
        .map(|it| {
            it.partition
                .computations
                .iter()
                .map(|one| one.name.as_str())
                .collect()
        })
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            vec!["add_0", "qkv_0", "flash_0", "proj_0"],
            vec!["add_0", "up_0", "silu_0", "down_0"],
        ]
    );
    assert!(parts.iter().all(|it| it.count == 2));
    assert_eq!(repeating(&sequence[..20]), None);
    assert_eq!(repeating(&vec![sum(); 30]), None);
    assert_eq!(repeating(&[]), None);
    let error = partitions("forward", &[compute("norm", 0.0)])
        .unwrap_err()
        .to_string();
    assert!(error.contains("no communication"), "{error}");
    assert!(partitions("forward", &[sum()]).is_err() && partitions("forward", &[]).is_err());
}

#[test]
fn appendix_b_counts_81_patterns_and_85050_candidates() {
    let mut block = vec![Slot::Computation; 9];
    block.push(Slot::Communication);
    let all = pieces(&block, 9);
    assert_eq!((overlaps(&all), all.len()), (81, 91));
    assert_eq!(A100.clocks(1).len(), 35);
    assert_eq!(A100.global(overlaps(&all)), 85_050);
    // A second communication in the block has patterns of its own; none can be longer than is allowed.
    block.insert(5, Slot::Communication);
    assert_eq!(overlaps(&pieces(&block, 9)), 2 * 81);
    let short = pieces(&block, 4);
    assert_eq!(overlaps(&short), 2 * 9 * 4);
    let length = |it: &Piece| match it {
        Piece::Overlap { length, .. } => *length,
        Piece::Alone(_) => 0,
    };
    assert_eq!(short.iter().map(length).max(), Some(4));
    assert!(pieces(&[], 9).is_empty());
    assert_eq!(overlaps(&pieces(&[Slot::Communication], 9)), 0);
}

#[test]
fn appendix_c_searches_fewer() {
    let job = job(8, 1, false);
    let attention = Space::searched(&A100, &job.partitions[job.places()["forward/attention"]]);
    let megahertz: Vec<f64> = attention.clocks().iter().map(|it| it.0 / 1e6).collect();
    assert_eq!(
        (megahertz.len(), megahertz[0], megahertz[17]),
        (18, 900.0, 1410.0)
    );
    assert_eq!(attention.sms(), [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]);
    // The launches are all but the last linear (figure 3a), as in the artifact.
    assert_eq!(attention.launches(), [0, 1, 2, 3]);
    assert_eq!(attention.len(), 720);
    assert_eq!(attention.candidates().count(), 720);

    let job = self::job(4, 2, false);
    let gather = &job.partitions[job.places()["forward/qkv_ag"]];
    let space = Space::searched(&A100, gather);
    assert_eq!(space.sms(), Vec::from_iter(1..=20));
    let single = &job.partitions[job.places()["backward/a_rs"]];
    assert_eq!(Space::searched(&A100, single).launches(), [0]);
}

/// H100 SXM: 132 SMs, 210 to 1980 MHz by 15.
#[test]
fn another_gpu_has_another_space() {
    let clocks = [Hertz(210e6), Hertz(1980e6)];
    let h100 = Gpu::like_a100(132, clocks, Hertz(15e6), 989e12, 450e9).unwrap();
    assert_eq!((h100.least_clock, h100.most_sms), (Hertz(1275e6), 36));
    let job = job(8, 1, false);
    let space = Space::searched(&h100, &job.partitions[0]);
    assert_eq!(space.sms().last(), Some(&36));
    assert_eq!(space.clocks().last(), Some(&Hertz(1980e6)));
    assert_eq!(space.clocks().len(), 24);
    let like = Gpu::like_a100(108, A100.clocks, A100.stride, 312e12, 300e9);
    assert_eq!(like, Ok(A100));
    let backwards = [clocks[1], clocks[0]];
    let error = Gpu::like_a100(132, backwards, Hertz(15e6), 1.0, 1.0).unwrap_err();
    assert!(matches!(error, GpuError::Clocks { .. }), "{error}");
    assert!(Gpu::like_a100(0, clocks, Hertz(15e6), 1.0, 1.0).is_err());
    assert!(Gpu::like_a100(132, clocks, Hertz(f64::NAN), 1.0, 1.0).is_err());
}

#[test]
fn a_description_that_fits_no_job_is_refused() {
    let error = |change: &dyn Fn(&mut Model, &mut Training)| {
        let (mut model, mut training) = (llama_3b(), training(8, 1, 2, true));
        change(&mut model, &mut training);
        Workload::new(model, training).unwrap_err().to_string()
    };
    let odd = error(&|_, training| training.microbatch = 7);
    assert!(odd.contains("two equal nanobatches"), "{odd}");
    let alone = error(&|_, training| training.tensor_parallel = 1);
    assert!(alone.contains("nothing to overlap"), "{alone}");
    let heads = error(&|model, _| model.num_attention_heads = 20);
    assert_eq!(
        heads,
        "model.num_attention_heads (20) is no multiple of training.tensor_parallel (8)"
    );
    let zero = error(&|model, _| model.num_attention_heads = 0);
    assert!(zero.starts_with("model.num_attention_heads is 0"), "{zero}");
    let stages = error(&|_, training| training.pipeline_parallel = 29);
    assert!(stages.contains("each stage has at least one"), "{stages}");
    let layers = error(&|_, training| training.layers = Some(vec![28, 1]));
    assert!(layers.contains("2 stages that make 29"), "{layers}");
    let keys = error(&|model, _| model.num_key_value_heads = Some(6));
    assert!(keys.contains("model.num_key_value_heads (6)"), "{keys}");
    let blocks = error(&|model, _| model.num_hidden_layers = u32::MAX);
    assert!(blocks.ends_with("1 to 65536 is possible"), "{blocks}");
    let few = |model: &mut Model| model.num_key_value_heads = Some(2);
    let mut model = llama_3b();
    few(&mut model);
    assert!(Workload::new(model, training(8, 1, 2, true)).is_ok());
}

#[test]
fn blocks_are_dealt_out_evenly() {
    let layers = |stages| {
        let training = training(8, 1, stages, true);
        Workload::new(llama_3b(), training)
            .unwrap()
            .layers()
            .to_vec()
    };
    assert_eq!(layers(3), [10, 9, 9]);
    assert_eq!(layers(28), [1; 28]);
}
