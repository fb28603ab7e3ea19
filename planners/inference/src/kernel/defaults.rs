//! The shipped constants, from
//! `cargo run --release -p litd-inference --example defaults -- a100=TABLE ... h200=TABLE ...` over the tables
//! a100_sxm_*, vidur_a100_dgx_all_reduce and h200_sxm_* of ../shared/energylens (SOURCES.md there): the halves by
//! shape group that `litctl predict evaluate --half test` leaves out. Exponents of more than 1 act as 1.

use super::constants::{
    CollectiveConstants, Constants, ContextConstants, EngineConstants, GemmConstants,
    GenerationConstants, MemoryConstants, MoeConstants, PowerConstants,
};
use crate::gpu::Architecture;

/// Power of kernels: the H200 is the only GPU whose is public.
const POWER_OF_H200: [PowerConstants; 6] = [
    PowerConstants {
        base: 0.4548,
        compute: 0.6055,
        compute_exponent: 0.5606,
        memory: 0.3773,
        memory_exponent: 0.9451,
    },
    PowerConstants {
        base: 0.2302,
        compute: 0.9189,
        compute_exponent: 0.7475,
        memory: 0.4259,
        memory_exponent: 0.9996,
    },
    PowerConstants {
        base: 0.2994,
        compute: 0.3031,
        compute_exponent: 1.0,
        memory: 0.3534,
        memory_exponent: 0.9992,
    },
    PowerConstants {
        base: 0.1323,
        compute: 2.375,
        compute_exponent: 0.8369,
        memory: 1.076,
        memory_exponent: 1.0,
    },
    PowerConstants {
        base: 0.2,
        compute: 1.0,
        compute_exponent: 0.7,
        memory: 0.6,
        memory_exponent: 0.8,
    },
    PowerConstants {
        base: 0.2,
        compute: 1.0,
        compute_exponent: 0.7,
        memory: 0.6,
        memory_exponent: 0.8,
    },
];

/// Between the two below. They are from `--example engine` on the halves of mlenergy_v2_llm_a100_h100.csv by model.
const ENGINE: EngineConstants = EngineConstants {
    step: 7.0,
    layer: 75.0,
    sharing: 225.0,
    request: 364.0,
    input: 290.0,
    waiting: 0.07,
    resting: 0.235,
    slower: 0.755,
    power: 0.83,
};

/// vLLM on an A100 with 40 GB.
const ENGINE_AMPERE: EngineConstants = EngineConstants {
    step: 6.6,
    layer: 83.0,
    sharing: 260.0,
    request: 375.0,
    input: 247.0,
    waiting: 0.072,
    resting: 0.251,
    slower: 0.75,
    power: 0.799,
};

/// vLLM on an H100.
const ENGINE_HOPPER: EngineConstants = EngineConstants {
    step: 7.5,
    layer: 68.2,
    sharing: 194.0,
    request: 352.0,
    input: 343.0,
    waiting: 0.0695,
    resting: 0.223,
    slower: 0.76,
    power: 0.857,
};

const POWER: PowerConstants = PowerConstants {
    base: 0.2,
    compute: 1.0,
    compute_exponent: 0.7,
    memory: 0.6,
    memory_exponent: 0.8,
};

/// The constants for GPUs of this generation.
pub(super) fn shipped(architecture: Architecture) -> Constants {
    match architecture {
        Architecture::Ampere => AMPERE,
        // Blackwell is nearer to Hopper than to what fits Ampere as well.
        Architecture::Hopper | Architecture::Blackwell => HOPPER,
        Architecture::Ada | Architecture::Cdna => JOINT,
    }
}

/// Guesses without any measurement: the starting point of fits of shipped constants.
pub(super) fn prior() -> Constants {
    Constants {
        gemm: GemmConstants {
            compute: 0.8,
            intensity: 4.0,
            prologue: 1.5,
            bandwidth: 0.9,
            stream: 6.0,
            launch: 3.0,
            split: 0.5,
            exposed: 0.2,
            tail: 1.0,
        },
        context: ContextConstants {
            compute: 0.7,
            dim: 20.0,
            prologue: 1.0,
            bandwidth: 0.7,
            launch: 7.0,
            exposed: 0.3,
            tail: 0.5,
            wide: 0.5,
        },
        generation: GenerationConstants {
            mha: 0.85,
            gqa: 0.8,
            saturation: 8.0,
            page: 64.0,
            block: 1.0,
            launch: 8.0,
            merge: 1.0,
            compute: 0.1,
            mha_split: 0.7,
            wide: 0.4,
        },
        moe: MoeConstants {
            compute: 0.6,
            rows: 16.0,
            bandwidth: 0.8,
            moving: 0.6,
            launch: 15.0,
            expert: 0.5,
            exposed: 0.3,
            saturation: 0.2,
        },
        collective: CollectiveConstants {
            bandwidth: 0.75,
            launch: 6.0,
            rank: 1.5,
            protocol: 512.0,
            large: 10.0,
            small: 0.3,
            custom: 4.0,
            custom_bandwidth: 0.6,
            sms: 2.0,
            between: 10.0,
            node: 30.0,
        },
        memory: MemoryConstants {
            bandwidth: 0.8,
            launch: 2.5,
        },
        engine: ENGINE,
        power: [POWER; 6],
    }
}

/// Fitted jointly: for generations without a table of their own.
const JOINT: Constants = Constants {
    gemm: GemmConstants {
        compute: 1.161,
        intensity: 4.117,
        prologue: 0.4099,
        bandwidth: 0.9694,
        stream: 6.741,
        launch: 2.857,
        split: 0.558,
        exposed: 0.1475,
        tail: 0.5921,
    },
    context: ContextConstants {
        compute: 0.7778,
        dim: 9.712,
        prologue: 0.5185,
        bandwidth: 0.4807,
        launch: 9.6,
        exposed: 0.6525,
        tail: 0.996,
        wide: 0.791,
    },
    generation: GenerationConstants {
        mha: 0.7999,
        gqa: 0.7958,
        saturation: 36.53,
        page: 64.06,
        block: 0.6146,
        launch: 7.913,
        merge: 1.004,
        compute: 0.1262,
        mha_split: 0.6879,
        wide: 0.3333,
    },
    moe: MoeConstants {
        compute: 0.7041,
        rows: 21.22,
        bandwidth: 0.8868,
        moving: 0.4071,
        launch: 8.908,
        expert: 0.4654,
        exposed: 0.4015,
        saturation: 0.6922,
    },
    collective: CollectiveConstants {
        bandwidth: 0.6472,
        launch: 4.994,
        rank: 0.837,
        protocol: 514.6,
        large: 23.91,
        small: 0.2806,
        custom: 5.07,
        custom_bandwidth: 0.5787,
        sms: 1.984,
        between: 3.636,
        node: 94.97,
    },
    memory: MemoryConstants {
        bandwidth: 0.8,
        launch: 2.5,
    },
    engine: ENGINE,
    power: POWER_OF_H200,
};

/// Fitted on an A100's tables from there.
const AMPERE: Constants = Constants {
    gemm: GemmConstants {
        compute: 1.228,
        intensity: 16.5,
        prologue: 0.4906,
        bandwidth: 0.8073,
        stream: 16.74,
        launch: 3.582,
        split: 0.4628,
        exposed: 0.1693,
        tail: 0.4461,
    },
    context: ContextConstants {
        compute: 0.7406,
        dim: 9.161,
        prologue: 2.257,
        bandwidth: 0.5423,
        launch: 8.868,
        exposed: 0.6858,
        tail: 1.005,
        wide: 0.7913,
    },
    generation: GenerationConstants {
        mha: 0.7462,
        gqa: 0.7317,
        saturation: 11.47,
        page: 32.05,
        block: 1.699,
        launch: 14.02,
        merge: 2.744,
        compute: 0.1907,
        mha_split: 1.006,
        wide: 0.2486,
    },
    moe: MoeConstants {
        compute: 0.4628,
        rows: 8.084,
        bandwidth: 0.7975,
        moving: 0.4837,
        launch: 10.44,
        expert: 0.4386,
        exposed: 0.431,
        saturation: 0.8317,
    },
    collective: CollectiveConstants {
        bandwidth: 0.571,
        launch: 8.153,
        rank: 1.428,
        protocol: 517.1,
        large: 16.71,
        small: 0.114,
        custom: 5.128,
        custom_bandwidth: 0.5798,
        sms: 1.98,
        between: 3.679,
        node: 89.32,
    },
    memory: MemoryConstants {
        bandwidth: 0.8,
        launch: 2.5,
    },
    engine: ENGINE_AMPERE,
    power: POWER_OF_H200,
};

/// Fitted on an H200's tables from there.
const HOPPER: Constants = Constants {
    gemm: GemmConstants {
        compute: 1.091,
        intensity: 2.873,
        prologue: 0.1972,
        bandwidth: 0.9673,
        stream: 10.49,
        launch: 2.586,
        split: 0.8299,
        exposed: 0.07438,
        tail: 0.2402,
    },
    context: ContextConstants {
        compute: 1.388,
        dim: 57.15,
        prologue: 0.4544,
        bandwidth: 0.6692,
        launch: 8.96,
        exposed: 1.0,
        tail: 0.6511,
        wide: 0.6227,
    },
    generation: GenerationConstants {
        mha: 0.8532,
        gqa: 0.8599,
        saturation: 42.04,
        page: 105.1,
        block: 0.4597,
        launch: 6.825,
        merge: 1.054,
        compute: 0.2297,
        mha_split: 0.6558,
        wide: 0.3004,
    },
    moe: MoeConstants {
        compute: 1.095,
        rows: 36.66,
        bandwidth: 0.9708,
        moving: 0.3986,
        launch: 18.43,
        expert: 0.4565,
        exposed: 0.5562,
        saturation: 0.3624,
    },
    collective: CollectiveConstants {
        bandwidth: 0.7008,
        launch: 5.13,
        rank: 0.8067,
        protocol: 511.6,
        large: 11.27,
        small: 0.3212,
        custom: 5.051,
        custom_bandwidth: 0.5737,
        sms: 1.997,
        between: 3.689,
        node: 95.46,
    },
    memory: MemoryConstants {
        bandwidth: 0.8,
        launch: 2.5,
    },
    engine: ENGINE_HOPPER,
    power: [
        PowerConstants {
            base: 0.6561,
            compute: 0.3848,
            compute_exponent: 0.5661,
            memory: 0.155,
            memory_exponent: 1.0,
        },
        PowerConstants {
            base: 0.2211,
            compute: 0.7089,
            compute_exponent: 0.5545,
            memory: 0.2912,
            memory_exponent: 1.0,
        },
        PowerConstants {
            base: 0.2637,
            compute: 0.1571,
            compute_exponent: 1.0,
            memory: 0.3674,
            memory_exponent: 1.0,
        },
        PowerConstants {
            base: 0.08622,
            compute: 2.801,
            compute_exponent: 0.8861,
            memory: 1.088,
            memory_exponent: 1.0,
        },
        PowerConstants {
            base: 0.2,
            compute: 1.0,
            compute_exponent: 0.7,
            memory: 0.6,
            memory_exponent: 0.8,
        },
        PowerConstants {
            base: 0.2,
            compute: 1.0,
            compute_exponent: 0.7,
            memory: 0.6,
            memory_exponent: 0.8,
        },
    ],
};
