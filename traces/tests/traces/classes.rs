//! The class of kernels by their names: names of real profiles.

use litd_traces::KernelClass::{self, Communication, Computation, Copy, Fused};
use litd_traces::{
    AlignOptions, AnalysisOptions, Classes, Kernel, Suspect, Suspicion, Timeline, analyse,
    class_of, suspects,
};
use litd_units::Nanos;

/// Names as profilers report them.
#[rustfmt::skip]
const NAMES: &[(&str, KernelClass)] = &[
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Communication),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", Communication),
    ("ncclSymkDevKernel_AllGather_LL", Communication),
    ("void mscclKernel_Sum_half_Simple(ncclDevComm*, mscclAlgo*, mscclWork*)", Communication),
    ("mscclKernel_Sum_bf16_LL", Communication),
    ("void mscclpp::collective::allreduceNvls<half>", Communication),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", Communication),
    ("_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataE", Communication),
    ("void aiter::local_device_load_rmsnorm<bf16, 256>", Computation),
    ("void c10d::symmetric_memory::multimem_all_reduce_kernel<__nv_bfloat16, 16>", Communication),
    ("void two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)", Communication),
    ("void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>", Communication),
    ("void one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, true>", Communication),
    ("one_shot_all_reduce_kernel_optimized", Communication),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, true>", Communication),
    ("void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>", Communication),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>(flashinfer::trtllm_allreduce_fusion::AllReduceFusionParams<__nv_bfloat16>)", Fused),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)0, half, 4, true>", Communication),
    ("moefinalize_allreduce_fusion_kernel_oneshot_lamport", Fused),
    ("void aiter::allreduce_fusion_kernel_1stage<__hip_bfloat16, 8>", Fused),
    ("lamport_style_one_shot_all_reduce_norm_kernel<half, 8>", Fused),
    ("void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half>>", Communication),
    ("userbuffers_fp16_sum_inplace_gpu_mc_rs_oop", Communication),
    ("kuserbuffers_pushrecv(int, int, int*)", Communication),
    ("userbuffers_fp16_sum_inplace_gpu_mc_rmsnorm_quant", Fused),
    ("void deep_ep::intranode::dispatch<8, 768>", Communication),
    ("void deep_ep::internode_ll::combine<7168, 10>", Communication),
    ("void deep_ep::layout::get_dispatch_layout<256>", Computation),
    ("void dpsk::ep::internode::combine<8, __nv_bfloat16>", Communication),
    ("void dpsk::ep::cuda::get_dispatch_layout<256, 8>", Computation),
    ("void cdpsk::ep::CUB_200200_900_NS::DeviceScanKernel<int>", Computation),
    ("void dpsk::gemm::fp8_gemm_kernel<7168>", Computation),
    ("void hybrid_ep::device_sync_kernel()", Communication),
    ("EpDispatchIntraNodeKernel_bf16", Communication),
    ("EpCombineIntraNodeKernel_bf16_nop2p", Communication),
    ("void moeA2ADispatchKernel<8, false>", Communication),
    ("void pplx::a2a_combine_recv<bf16>", Communication),
    ("void a2a_dispatch_send_kernel<true, 16, 8>", Communication),
    ("void nvshmemi_proxy_quiet_kernel()", Communication),
    ("nvshmem_quiet_on_stream_kernel", Communication),
    ("void stream_executor::gpu::AllReduceKernelImpl<float>", Communication),
    ("helion_matmul_w_progress_all_gather_matmul_kernel", Fused),
    ("gemm_one_shot_all_reduce_kernel", Fused),
    ("c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**, int, int, int, unsigned long)", Communication),
    ("exchangeSplitAndOffset(long*, int, int)", Communication),
    ("allToAllV(void*, void*, long*, unsigned long, int, int)", Communication),
    ("__amd_rocclr_streamOpsWait", Communication),
    ("__amd_rocclr_streamOpsWrite.kd", Communication),
    ("__amd_rocclr_batchMemOp", Communication),
    ("__amd_rocclr_initHeap", Computation),
    ("__amd_rocclr_copyBuffer.kd", Copy),
    ("__amd_rocclr_fillBufferAligned", Copy),
    ("MEMORY_COPY_DEVICE_TO_HOST", Copy),
    ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1", Computation),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", Computation),
    ("void cub::DeviceReduceKernel<cub::Policy600, float*>", Computation),
    ("void cutlass::device_kernel<cutlass::gemm::collective::CollectiveMma<int>>", Computation),
    ("triton_poi_fused_add_native_layer_norm_0", Computation),
    ("void at::native::vectorized_gather_kernel<16, long>", Computation),
    ("nvjet_tst_128x64_64x8_2x1_v_bz_bias_TNN", Computation),
];

#[test]
fn names_of_real_profiles_have_the_right_class() {
    for (name, class) in NAMES {
        assert_eq!(class_of(name), *class, "{name}");
    }
}

/// A rank whose kernels of these names start `late` ns late; each row is a name, a class, and the
/// kernel's length.
fn rank(number: u32, late: i64, kernels: &[(&str, i64)]) -> Timeline {
    let mut timeline = Timeline::new(number, format!("rank{number}"));
    let stream = timeline.stream("7");
    for k in 0..12 {
        for (at, (name, length)) in (0..).zip(kernels) {
            let start = Nanos(1_000_000 * k + 200_000 * at + late);
            timeline.kernels.push(Kernel {
                name: timeline.names.intern(name),
                stream,
                class: class_of(name),
                start,
                end: start + Nanos(*length),
                collective: None,
                iteration: None,
            });
        }
    }
    timeline
}

#[test]
fn computation_that_looks_like_communication_is_listed() {
    let kernels = [
        ("my_ring_all_reduce", 5_000),
        ("gemm", 9_000),
        ("warpAllReduce", 1),
    ];
    let mut timelines = [rank(0, 0, &kernels), rank(1, 3, &kernels)];
    let listed = suspects(&timelines);
    let [one] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(
        (one.name.as_str(), one.executions),
        ("my_ring_all_reduce", 24)
    );
    assert_eq!((one.time, one.why), (Nanos(24 * 5_000), Suspicion::Name));
    let note = Suspect::note(&listed).unwrap();
    assert!(
        note.contains("24 × my_ring_all_reduce") && note.contains("--classes"),
        "{note}"
    );
    // Once the user has said what it is, nothing is left to be said.
    let rows = r#"{"kernel":[{"name":"my_ring","class":"communication"}]}"#;
    let classes: Classes = serde_json::from_str(rows).unwrap();
    for timeline in &mut timelines {
        assert_eq!(classes.apply(timeline), 12);
    }
    assert_eq!(suspects(&timelines), []);
    assert_eq!(
        analyse(&timelines, &AnalysisOptions::default())
            .unwrap()
            .ranks[0]
            .communication,
        12
    );
}

#[test]
fn computation_that_behaves_like_communication_is_listed() {
    // The third rank comes late to everything; what waits ends with the others' all the same.
    let lates = [0, 10_000, 40_000];
    let ranks = (0..).zip(lates).map(|(number, late)| {
        rank(
            number,
            late,
            &[("gemm", 20_000), ("exchange_halo", 90_000 - late)],
        )
    });
    let timelines = Vec::from_iter(ranks);
    let report = analyse(&timelines, &AnalysisOptions::default()).unwrap();
    let [note] = &report.notes[..] else {
        panic!("{:?}", report.notes);
    };
    assert!(
        note.contains("end together on all ranks") && note.contains("exchange_halo"),
        "{note}"
    );
    assert!(!note.contains("gemm"), "{note}");
}

#[test]
fn what_is_fused_counts_as_communication_and_not_for_the_pace() {
    // Rank 1 waits in the fused kernel, which is the longer there; its computation is as fast.
    let kernels = |wait: i64| {
        [
            ("gemm", 20_000),
            ("aiter::allreduce_fusion_kernel_1stage", 50_000 + wait),
        ]
    };
    let timelines = [rank(0, 30_000, &kernels(0)), rank(1, 0, &kernels(30_000))];
    let mut options = AnalysisOptions {
        align: AlignOptions::default(),
        ..AnalysisOptions::default()
    };
    for selection in [
        litd_traces::Selection::Computation,
        litd_traces::Selection::All,
    ] {
        options.align.selection = selection;
        let report = analyse(&timelines, &options).unwrap();
        for rank in &report.ranks {
            assert_eq!((rank.computation, rank.communication), (12, 12));
            assert!(
                rank.pace.is_none_or(|pace| (pace - 1.0).abs() < 1e-9),
                "{rank:?}"
            );
        }
    }
}
