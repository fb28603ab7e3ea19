//! The constants of the analytic models. Each is positive; a fit moves their logarithms.

use serde::{Deserialize, Serialize};

use super::Family;
use crate::gpu::Architecture;

/// A struct of numbers that a fit can see as an array.
macro_rules! constants {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: f64,)+
        }

        impl $name {
            /// The constants in the order in which they are declared.
            #[must_use]
            pub fn to_vec(self) -> Vec<f64> {
                vec![$(self.$field,)+]
            }

            /// The constants from as many numbers in that order; what is missing stays.
            #[must_use]
            pub fn with(self, values: &[f64]) -> Self {
                let mut values = values.iter().copied();
                Self { $($field: values.next().unwrap_or(self.$field),)+ }
            }
        }
    };
}

constants!(
    /// Of matrix products.
    GemmConstants {
        /// Share of the peak that large tiles reach.
        compute,
        /// Tile intensity (m n / (m + n)) at which half of that is reached.
        intensity,
        /// The time to fill and drain a block, us.
        prologue,
        /// Share of the memory bandwidth that enough blocks reach.
        bandwidth,
        /// Share of the board's bandwidth that a multiprocessor reads at, times their number.
        stream,
        /// Launch, us.
        launch,
        /// The time for each further part of a split sum, us.
        split,
        /// Share of the shorter of computing and moving that does not hide behind the longer.
        exposed,
        /// Cost of the last wave's empty places, from 0 (others fill them) to 1 (a whole wave).
        tail,
    }
);

constants!(
    /// Of prefill attention.
    ContextConstants {
        /// Share of the peak at long sequences and heads of 128.
        compute,
        /// Head dimension at which half of it is reached.
        dim,
        /// The additional time for a block of queries, us.
        prologue,
        /// Share of the memory bandwidth.
        bandwidth,
        /// Launch, us.
        launch,
        /// Share of the shorter of computing and moving that does not hide behind the longer.
        exposed,
        /// Cost of the last wave's empty places.
        tail,
        /// Share of all that remains for heads wider than 256, which the fast kernels do not take.
        wide,
    }
);

constants!(
    /// Of decode attention.
    GenerationConstants {
        /// Share of the memory bandwidth with one query head per KV head.
        mha,
        /// The same with several.
        gqa,
        /// Bytes in flight per multiprocessor, KiB, at which half of it is reached.
        saturation,
        /// Tokens per page: lengths are rounded up to it.
        page,
        /// The time for a pair of request and KV head, us on one multiprocessor.
        block,
        /// Launch, us.
        launch,
        /// The time to merge the parts of a split sequence, us.
        merge,
        /// Share of the peak that products with few rows reach.
        compute,
        /// How far sequences are split with one query head per KV head: the exponent of the splits that
        /// would fill the board, 1 for all and near 0 for none.
        mha_split,
        /// Share of all that remains for heads wider than 256.
        wide,
    }
);

constants!(
    /// Of experts.
    MoeConstants {
        /// Share of the peak that grouped products reach.
        compute,
        /// Rows of a tile at which half of it is reached.
        rows,
        /// Share of the memory bandwidth for weights.
        bandwidth,
        /// Share of it for sorting, activation and reducing.
        moving,
        /// Launches, us.
        launch,
        /// The time for an active expert, us on one multiprocessor.
        expert,
        /// Share of the shorter of computing and moving that does not hide behind the longer.
        exposed,
        /// Blocks per multiprocessor at which half of the bandwidth is reached.
        saturation,
    }
);

constants!(
    /// Of collectives.
    CollectiveConstants {
        /// Share of the link that large messages reach.
        bandwidth,
        /// Launch and the first exchange, us.
        launch,
        /// Each further rank, us.
        rank,
        /// Message per rank at which the protocol for large ones takes over, KiB.
        protocol,
        /// The additional time of that protocol, us.
        large,
        /// Share of the link that the protocol for small messages reaches.
        small,
        /// Launch of an engine's own all-reduce in a graph, us.
        custom,
        /// The protocol's share of the link.
        custom_bandwidth,
        /// Multiprocessors with which half of the link is filled.
        sms,
        /// Bytes/s and GPU between nodes, GB/s.
        between,
        /// Each message between nodes, us.
        node,
    }
);

constants!(
    /// Of what only moves memory.
    MemoryConstants {
        /// Share of the memory bandwidth.
        bandwidth,
        /// Launch, us.
        launch,
    }
);

constants!(
    /// Of power: idle + span (base + compute uc^a + memory um^b), clipped at the limit, where span is
    /// the limit less idle and uc, um are the shares of both peaks that are used.
    PowerConstants {
        /// Share of the span that a busy board draws whatever it does.
        base,
        /// Share that computing at the peak adds.
        compute,
        /// The exponent of its utilisation.
        compute_exponent,
        /// Share that memory at the peak adds.
        memory,
        /// The exponent of its utilisation.
        memory_exponent,
    }
);

constants!(
    /// Of an engine that serves requests side by side: what whole requests take besides kernels.
    EngineConstants {
        /// Host time of each step, ms.
        step,
        /// Host time of each layer in a step, us.
        layer,
        /// Host time of each layer in a step for each doubling of the GPUs, us.
        sharing,
        /// Host time of each request in a step, us.
        request,
        /// Input tokens of a request, where a table does not tell.
        input,
        /// Share of the power above idle that GPUs draw while the host works on layers: it launches kernels.
        waiting,
        /// The same while it works on requests and the step.
        resting,
        /// How much longer kernels take in an engine than alone.
        slower,
        /// Share of each GPU's power above idle that is drawn when kernels run in an engine.
        power,
    }
);

/// All constants of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// Matrix products.
    pub gemm: GemmConstants,
    /// Prefill attention.
    pub context: ContextConstants,
    /// Decode attention.
    pub generation: GenerationConstants,
    /// Experts.
    pub moe: MoeConstants,
    /// Collectives.
    pub collective: CollectiveConstants,
    /// Constants of kernels that only move memory.
    pub memory: MemoryConstants,
    /// Engines.
    pub engine: EngineConstants,
    /// Power, in the order of [`Family::ALL`].
    pub power: [PowerConstants; 6],
}

impl Constants {
    /// The shipped constants.
    #[must_use]
    pub fn shipped(architecture: Architecture) -> Self {
        super::defaults::shipped(architecture)
    }

    /// Guesses without any measurement.
    #[must_use]
    pub fn prior() -> Self {
        super::defaults::prior()
    }

    /// The constants of a family's power.
    #[must_use]
    pub fn power_of(&self, family: Family) -> &PowerConstants {
        &self.power[family as usize]
    }

    /// The family's constants of latency, for a fit.
    #[must_use]
    pub fn latency_vec(&self, family: Family) -> Vec<f64> {
        match family {
            Family::Gemm => self.gemm.to_vec(),
            Family::ContextAttention => self.context.to_vec(),
            Family::GenerationAttention => self.generation.to_vec(),
            Family::Moe => self.moe.to_vec(),
            Family::Collective => self.collective.to_vec(),
            Family::Memory => self.memory.to_vec(),
        }
    }

    /// The same constants but for the family's of latency.
    #[must_use]
    pub fn with_latency(mut self, family: Family, values: &[f64]) -> Self {
        match family {
            Family::Gemm => self.gemm = self.gemm.with(values),
            Family::ContextAttention => self.context = self.context.with(values),
            Family::GenerationAttention => self.generation = self.generation.with(values),
            Family::Moe => self.moe = self.moe.with(values),
            Family::Collective => self.collective = self.collective.with(values),
            Family::Memory => self.memory = self.memory.with(values),
        }
        self
    }

    /// The same constants but for the family's of power.
    #[must_use]
    pub fn with_power(mut self, family: Family, values: &[f64]) -> Self {
        let power = &mut self.power[family as usize];
        *power = power.with(values);
        self
    }

    /// Whether each is a positive number: only then do models stay finite.
    #[must_use]
    pub fn are_sane(&self) -> bool {
        let sane = |values: Vec<f64>| values.iter().all(|it| it.is_finite() && *it > 0.0);
        let latency = Family::ALL.iter().all(|&it| sane(self.latency_vec(it)));
        latency && sane(self.engine.to_vec()) && self.power.iter().all(|it| sane(it.to_vec()))
    }
}
