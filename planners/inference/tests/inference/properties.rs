//! Properties of every model, GPU and configuration.

use litd_inference::gpu::Gpu;
use litd_inference::interpret::{Degrees, Program};
use litd_inference::kernel::{
    Analytic, Collective, Heads, Kernel, KernelModel, Library, Precision, Routing, Setting,
};
use litd_inference::model::Model;
use litd_inference::predict::{Configuration, Deployment, Metrics};
use litd_inference::spec::{Spec, listings};
use litd_units::Watts;
use proptest::prelude::*;

fn any_gpu() -> impl Strategy<Value = Gpu> {
    let names: Vec<&str> = Gpu::names().collect();
    (0..names.len()).prop_map(move |at| Gpu::named(names[at]).unwrap())
}

/// Models of both listings, with the degrees that divide them.
fn any_model() -> impl Strategy<Value = (Model, Degrees)> {
    let dense = prop_oneof![Just("llama-3-8b"), Just("llama-3-70b"), Just("gemma-2-9b")];
    let dense = (dense, 0..3_u32).prop_map(|(name, power)| {
        let tp = 1 << power;
        (Model::named(name).unwrap(), Degrees { tp, ep: 1, cp: 1 })
    });
    let routed = prop_oneof![Just("qwen3-30b-a3b"), Just("mixtral-8x7b")];
    let routed = (routed, 0..3_u32).prop_map(|(name, power)| {
        let tp = 1 << power;
        (Model::named(name).unwrap(), Degrees { tp, ep: tp, cp: 1 })
    });
    prop_oneof![dense, routed]
}

fn program(model: &Model) -> Program {
    let listing = match model.experts {
        Some(_) => listings::FUSED_MOE,
        None => listings::FUSED_DENSE,
    };
    Program::new(&Spec::parse(listing).unwrap()).unwrap()
}

fn configuration(batch: u32, input: u32, degrees: Degrees) -> Configuration {
    Configuration {
        batch,
        input,
        output: 128,
        degrees,
        speculated: 0,
        accepted: 0.0,
        setting: Setting::default(),
    }
}

/// Kernels of all families, sizes within and beyond reason.
fn any_kernel() -> impl Strategy<Value = Kernel> {
    let size = || prop_oneof![0.0..4.0_f64, 1.0..70_000.0_f64, Just(1e18), Just(0.0)];
    let precision = prop_oneof![
        Just(Precision::BF16),
        Just(Precision::both(8)),
        Just(Precision {
            weights: 4,
            activations: 16
        })
    ];
    let gemm =
        (size(), size(), size(), size(), precision).prop_map(|(groups, m, n, k, precision)| {
            Kernel::Gemm {
                groups,
                m,
                n,
                k,
                precision,
            }
        });
    let heads = (size(), size(), size()).prop_map(|(query, kv, dim)| Heads { query, kv, dim });
    let context = (size(), size(), size(), heads.clone(), any::<bool>()).prop_map(
        |(batch, length, prefix, heads, causal)| Kernel::ContextAttention {
            batch,
            length,
            prefix,
            heads,
            causal,
            precision: Precision::BF16,
        },
    );
    let generation =
        (size(), size(), heads).prop_map(|(batch, length, heads)| Kernel::GenerationAttention {
            batch,
            length,
            heads,
            precision: Precision::BF16,
        });
    let routing = prop_oneof![
        Just(Routing::Balanced),
        Just(Routing::Uniform),
        (0.1..3.0_f64).prop_map(Routing::PowerLaw)
    ];
    let moe = (
        (size(), size(), size()),
        (size(), size(), size(), size()),
        routing,
    )
        .prop_map(
            |((tokens, hidden, inter), (top_k, experts, tp, ep), routing)| Kernel::Moe {
                tokens,
                hidden,
                inter,
                top_k,
                experts,
                tp,
                ep,
                routing,
                precision: Precision::BF16,
            },
        );
    let library = prop_oneof![Just(Library::Nccl), Just(Library::Custom)];
    let collective =
        (size(), size(), size(), library).prop_map(|(gpus, per_node, bytes, library)| {
            Kernel::Collective {
                collective: Collective::AllReduce,
                library,
                gpus,
                per_node,
                bytes,
            }
        });
    let memory = (size(), size()).prop_map(|(read, written)| Kernel::Memory { read, written });
    prop_oneof![gemm, context, generation, moe, collective, memory]
}

proptest! {
    /// For every shape, latency and power are positive numbers, and power is within the limit.
    #[test]
    fn predictions_are_finite_and_within_the_limit(gpu in any_gpu(), kernel in any_kernel(), cap in 0.0..2000.0_f64, sms in 0..400_u32) {
        let model = Analytic::uncalibrated(gpu.clone());
        let setting = Setting { power_limit: Some(Watts(cap)), sms: Some(sms), clock: None };
        let it = model.predict(&kernel, &setting);
        prop_assert!(it.latency.0 > 0.0 && it.latency.is_finite(), "{it:?}");
        prop_assert!(it.power.0 > 0.0 && it.power.0 <= cap.max(gpu.idle.0 * 1.06), "{it:?}");
    }

    /// A lower cap never makes a kernel faster, nor lets it draw more.
    #[test]
    fn a_lower_cap_is_slower_and_draws_less(gpu in any_gpu(), kernel in any_kernel(), share in 0.3..1.0_f64) {
        let model = Analytic::uncalibrated(gpu.clone());
        let capped = Setting { power_limit: Some(gpu.power_limit * share), ..Setting::default() };
        let (free, capped) = (model.predict(&kernel, &Setting::default()), model.predict(&kernel, &capped));
        prop_assert!(capped.latency >= free.latency && capped.power <= free.power);
    }

    /// Sharing a layer's products among GPUs conserves their operations.
    #[test]
    fn sharding_conserves_operations((model, degrees) in any_model(), batch in 1..64_u32) {
        let program = program(&model);
        let mut base = litd_inference::spec::Symbols::default();
        let ffn = model.ffn;
        for (letter, value) in [('b', f64::from(batch)), ('s', 128.0), ('z', 128.0), ('h', model.head_dim), ('H', model.heads),
            ('K', model.kv_heads), ('r', model.ratio()), ('m', model.hidden), ('f', ffn), ('F', 2.0 * ffn), ('i', 2.0 + model.ratio()),
            ('A', 2.0), ('E', 8.0), ('T', 16.0)] {
            base.set(letter, value);
        }
        let whole = program.symbols(&base, Degrees::ONE).unwrap();
        let shared = program.symbols(&base, degrees).unwrap();
        for operator in program.operators.iter().filter(|it| !it.is_routed()) {
            let flops = |symbols, degrees| operator.shape(symbols, degrees).flops();
            let gpus = if operator.shape(&whole, Degrees::ONE) == operator.shape(&shared, degrees) { 1.0 } else { f64::from(degrees.tp) };
            prop_assert_eq!(flops(&whole, Degrees::ONE), gpus * flops(&shared, degrees), "{}", &operator.label);
        }
    }

    /// A longer prompt never takes less time or energy, in prefill or in decode.
    #[test]
    fn a_longer_prompt_never_costs_less((model, degrees) in any_model(), gpu in any_gpu(), batch in 1..64_u32, input in 1..8192_u32, more in 1..2048_u32) {
        let program = program(&model);
        let kernels = Analytic::uncalibrated(gpu);
        let deployment = Deployment::of_the_paper(&model, &program, &kernels);
        let (short, long) = (configuration(batch, input, degrees), configuration(batch, input + more, degrees));
        let (a, b) = (deployment.prefill(&short).unwrap(), deployment.prefill(&long).unwrap());
        prop_assert!(b.latency().0 >= a.latency().0 * (1.0 - 1e-9), "prefill {:?} {:?}", a.latency(), b.latency());
        prop_assert!(b.energy().0 >= a.energy().0 * (1.0 - 1e-9), "prefill {:?} {:?}", a.energy(), b.energy());
        let (a, b) = (deployment.decode(&short).unwrap(), deployment.decode(&long).unwrap());
        prop_assert!(b.latency().0 >= a.latency().0 * (1.0 - 1e-9), "decode {:?} {:?}", a.latency(), b.latency());
        prop_assert!(b.energy().0 >= a.energy().0 * (1.0 - 1e-9), "decode {:?} {:?}", a.energy(), b.energy());
    }

    /// The sum over operators is the whole, and metrics agree with the request.
    #[test]
    fn breakdowns_add_up((model, degrees) in any_model(), gpu in any_gpu(), batch in 1..64_u32) {
        let program = program(&model);
        let kernels = Analytic::uncalibrated(gpu);
        let deployment = Deployment::of_the_paper(&model, &program, &kernels);
        let configuration = configuration(batch, 512, degrees);
        let (prefill, decode) = (deployment.prefill(&configuration).unwrap(), deployment.decode(&configuration).unwrap());
        for phase in [&prefill, &decode] {
            let sum: f64 = phase.shares.iter().map(|it| it.compute + it.communication).sum();
            prop_assert!((sum / phase.latency().0 - 1.0).abs() < 1e-12);
            prop_assert!(phase.shares.iter().all(|it| it.energy() >= 0.0 && it.latency() >= 0.0));
        }
        let metrics = Metrics::of(&configuration, &prefill, &decode);
        let request = metrics.etft_j + 128.0 * metrics.epot_j;
        prop_assert!((request / metrics.request_j - 1.0).abs() < 1e-9);
    }
}

/// Pieces that specifications are made of, in any order, with what does not belong there.
fn any_text() -> impl Strategy<Value = String> {
    let pieces = [
        "op(",
        "\"bsm,mf->bsf\"",
        "\"attention\"",
        "attn_eqs",
        "=",
        "[",
        "]",
        ")",
        ",",
        "parallel",
        "\"f\"",
        "CP_dim",
        "overlap_stage",
        "4",
        "i",
        "(",
        "2",
        "+",
        "*",
        "/",
        "r",
        "\n",
        "#",
        "\"",
        "é",
        "->",
        "[[op]]\n",
        "eq = \"bsm->bsmA\"\n",
        "[symbols]\n",
        "1 ",
        "'",
        "\u{0}",
        " ",
    ];
    proptest::collection::vec(0..pieces.len(), 0..40)
        .prop_map(move |chosen| chosen.into_iter().map(|it| pieces[it]).collect())
}

proptest! {
    /// Every text is a specification or an error, never a panic, and the error's place is in the text.
    #[test]
    fn any_text_is_a_specification_or_refused(text in prop_oneof![any_text(), any::<String>()]) {
        if let Err(error) = Spec::parse(&text) {
            prop_assert!(error.place.line <= text.lines().count().max(1) + 1, "{error}");
        }
    }

    /// Every file is a table or an error. Heads are real ones, so that rows are looked at.
    #[test]
    fn any_bytes_are_a_table_or_refused(head in 0..4_usize, rows in prop_oneof![".*", "([0-9.,eE+-]*\n)*", "(([0-9]{1,6},){6}[0-9.]+\n)*"]) {
        let heads = ["m,n,k,latency_ms", "batch_size,isl,step,num_heads,num_key_value_heads,head_dim,latency_ms",
            "num_tokens,hidden_size,inter_size,topk,num_experts,distribution,latency_ms", "op_name,num_gpus,bytes,latency_ms"];
        let text = format!("{}\n{rows}", heads[head]);
        let gpu = Gpu::named("h200").unwrap();
        if let Ok(table) = litd_inference::table::read(text.as_bytes(), "context.csv", None, &gpu) {
            let errors = litd_inference::evaluate::evaluate(&Analytic::uncalibrated(gpu), &table).unwrap();
            prop_assert!(errors.latency_mape >= 0.0 && errors.rows == table.rows.len());
        }
    }
}
