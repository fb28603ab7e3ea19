//! The operators of a layer: computing, collectives, and both overlapped in stages.

use litd_units::Millis;

use super::{Configuration, Deployment, PredictError, Share, idle};
use crate::interpret::Operator;
use crate::kernel::{Collective, Estimate, Kernel, Routing, Setting, energy};
use crate::spec::{Overlap, Symbols};

/// GPUs of a node.
const NODE: f64 = 8.0;

impl Deployment<'_> {
    /// Adds a layer's operators, `times` over. Returns the symbols of the fullest GPU, which were checked.
    pub(super) fn layer(
        &self,
        configuration: &Configuration,
        new: f64,
        seen: f64,
        times: f64,
        shares: &mut [Share],
    ) -> Result<Symbols, PredictError> {
        let degrees = configuration.degrees;
        let fullest = self.symbols(configuration, new, seen, true);
        let fullest = self.program.symbols(&fullest, degrees)?;
        let uneven = self.shares.is_some() || matches!(self.routing, Routing::PowerLaw(_));
        let average = match self.model.experts {
            Some(_) if uneven => {
                let average = self.symbols(configuration, new, seen, false);
                self.program.symbols(&average, degrees)?
            }
            // All GPUs are alike.
            _ => fullest,
        };
        for (at, operator) in self.program.operators.iter().enumerate() {
            let once = self.operator(operator, at, configuration, &fullest, &average);
            // Attention's cache grows: `decode` asks for it step by step.
            shares[at].add(once, times);
        }
        Ok(fullest)
    }

    /// An operator of one layer: equation 1, with the collectives around it. Energy of all GPUs.
    pub(super) fn operator(
        &self,
        operator: &Operator,
        at: usize,
        configuration: &Configuration,
        fullest: &Symbols,
        average: &Symbols,
    ) -> Share {
        let degrees = configuration.degrees;
        let gpus = f64::from(degrees.gpus());
        let setting = &configuration.setting;
        let mut share = match (operator.overlap, operator.reduced(fullest, degrees)) {
            (Some(overlap), Some((ranks, bytes))) => {
                self.overlapped(operator, configuration, fullest, overlap, (ranks, bytes))
            }
            (_, reduced) => {
                let mut share = self.computed(operator, configuration, fullest, average);
                if let Some((ranks, bytes)) = reduced {
                    let reduce = self.collective(Collective::AllReduce, ranks, bytes, setting);
                    share.communication += reduce.latency.0;
                    share.communication_energy += reduce.energy().0;
                }
                share
            }
        };
        if operator.exchanges && degrees.cp > 1 {
            let operators = &self.program.operators;
            let before = &operators[(at + operators.len() - 1) % operators.len()];
            let bytes = before.sent(fullest, degrees);
            // NCCL wants contiguous tensors: a transpose before and one after (Algorithm 2).
            let transpose = Kernel::Memory {
                read: bytes,
                written: bytes,
            };
            let transpose = self.kernels.predict(&transpose, setting);
            let exchange = self.collective(Collective::AllToAll, degrees.cp, bytes, setting);
            share.communication += 2.0 * transpose.latency.0 + exchange.latency.0;
            share.communication_energy += 2.0 * transpose.energy().0 + exchange.energy().0;
        }
        share.compute_energy *= gpus;
        share.communication_energy *= gpus;
        share
    }

    /// Latency of the fullest GPU, energy of the average one with its waiting for the fullest.
    fn computed(
        &self,
        operator: &Operator,
        configuration: &Configuration,
        fullest: &Symbols,
        average: &Symbols,
    ) -> Share {
        let on = |symbols: &Symbols| {
            let precision = self.precision_of(operator);
            let kernel = operator.kernel(symbols, configuration.degrees, precision, self.causal);
            self.kernels.predict(&kernel, &configuration.setting)
        };
        let full = on(fullest);
        let (latency, energy) = match operator.is_routed() && fullest != average {
            true => {
                let average = on(average);
                let waiting = (full.latency - average.latency).max(Millis::ZERO);
                (
                    full.latency,
                    average.energy() + energy(idle(self.kernels), waiting),
                )
            }
            false => (full.latency, full.energy()),
        };
        Share {
            compute: latency.0,
            compute_energy: energy.0,
            ..Share::default()
        }
    }

    fn precision_of(&self, operator: &Operator) -> crate::kernel::Precision {
        match operator.is_attention() {
            true => crate::kernel::Precision {
                weights: self.cache_bits,
                activations: 16.min(self.cache_bits.max(8)),
            },
            false => self.precision,
        }
    }

    pub(super) fn collective(
        &self,
        collective: Collective,
        ranks: u32,
        bytes: f64,
        setting: &Setting,
    ) -> Estimate {
        let gpus = f64::from(ranks);
        let kernel = Kernel::Collective {
            collective,
            library: self.library,
            gpus,
            per_node: gpus.min(NODE),
            bytes,
        };
        self.kernels.predict(&kernel, setting)
    }

    /// Equation 2: a first product with all multiprocessors, stages in which a product and a reduce-scatter
    /// run side by side, an exposed reduce-scatter, and the exposed all-gather that completes the all-reduce.
    /// The partitioned sizes are asked of the models anew.
    fn overlapped(
        &self,
        operator: &Operator,
        configuration: &Configuration,
        symbols: &Symbols,
        overlap: Overlap,
        (ranks, bytes): (u32, f64),
    ) -> Share {
        let setting = &configuration.setting;
        let stages = f64::from(overlap.stages);
        let all = self.kernels.gpu().sms;
        let communicating = overlap.sms.min(all.saturating_sub(1).max(1));
        let computing = Setting {
            sms: Some(all.saturating_sub(communicating).max(1)),
            ..*setting
        };
        let sending = Setting {
            sms: Some(communicating),
            ..*setting
        };
        let shape = operator.stage(symbols, configuration.degrees, overlap);
        let product = shape.kernel(self.precision);
        let first = self.kernels.predict(&product, setting);
        let beside = self.kernels.predict(&product, &computing);
        let part = bytes / stages;
        let scatter = self.collective(Collective::ReduceScatter, ranks, part, &sending);
        let last = self.collective(Collective::ReduceScatter, ranks, part, setting);
        let gather = self.collective(Collective::AllGather, ranks, bytes, setting);
        let stage = beside.latency.max(scatter.latency);
        // Power of the product counts for the overlapped stages and for the exposed one: clocks and voltages
        // do not follow within so short a time.
        let during = beside.power;
        let hidden = stage * (stages - 1.0);
        Share {
            compute: first.latency.0 + hidden.0,
            communication: last.latency.0 + gather.latency.0,
            compute_energy: first.energy().0 + energy(during, hidden).0,
            communication_energy: energy(during, last.latency).0 + gather.energy().0,
        }
    }
}
