//! Which ranks do equal work, and may be compared with each other: those of one stage of a pipeline
//! that run the same kernels. docs/analyze-definitions.md has the definitions.

mod chains;
mod communicators;
mod replicas;
mod seen;

use std::collections::BTreeMap;
use std::ops::Range;

use litd_units::Nanos;
use serde::Serialize;

use crate::align::{AlignError, AlignOptions, Alignment, LeftOut, align};
use crate::timeline::Timeline;
pub use communicators::Communicator;
pub(crate) use communicators::{COALESCED, is_point_to_point, is_seen, of_kernel};

/// What ranks exchange with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exchange {
    /// Parts of tensors.
    Tp,
    /// Gradients and parameters of replicas.
    Dp,
    /// Parts of sequences.
    Cp,
    /// Tokens for experts.
    Ep,
    /// What one stage of a pipeline hands to the next.
    Pp,
    /// Something that the trace does not tell.
    Unknown,
}

/// Ranks that do equal work.
#[derive(Debug, Clone)]
pub struct Group {
    /// Where their timelines stand.
    pub range: Range<usize>,
    /// What they exchange.
    pub kind: Exchange,
    /// Their stage of the pipeline, from 0.
    pub stage: Option<u32>,
    /// Whether they are the stages of one pipeline instead, a rank each, that run the same kernels: these may be
    /// compared, but who waits for whom is the schedule.
    pub pipeline: bool,
    /// Which of their kernels match; none for a single rank.
    pub(crate) alignment: Option<Alignment>,
}

/// All ranks, in groups of equal work.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    /// The groups: each rank is in one, and each is a run of timelines.
    pub all: Vec<Group>,
    /// The process groups that collectives name.
    pub communicators: Vec<Communicator>,
    /// How ranks were compared.
    options: AlignOptions,
}

/// Groups ranks by equal work, and puts the timelines of a group next to each other, groups in the
/// order of their least ranks.
///
/// # Errors
/// When ranks match no others, and no pipeline says why; see [`AlignError`].
pub fn partition(timelines: &mut [Timeline], options: &AlignOptions) -> Result<Groups, AlignError> {
    if timelines.len() < 2 {
        return Ok(Groups::one(timelines, None).named(timelines, options));
    }
    let mut communicators = communicators::find(timelines, options);
    if communicators.is_empty() && seen::name_stages(timelines) {
        communicators = communicators::find(timelines, options);
    }
    let unnamed = communicators.is_empty() && communicators::unnamed_stages(timelines);
    let each = match unnamed {
        true => Vec::from_iter((0..timelines.len()).map(|at| u32::try_from(at).ok())),
        false => communicators::stages(&communicators, timelines),
    };
    let mut stages = BTreeMap::<Option<u32>, Vec<usize>>::new();
    for (at, stage) in each.into_iter().enumerate() {
        stages.entry(stage).or_default().push(at);
    }
    let alone = stages.len() > 1 && stages.values().all(|members| members.len() == 1);
    if alone && communicators::alike(timelines) {
        let mut groups = whole(timelines, options)?;
        for group in &mut groups.all {
            (group.pipeline, group.stage) = (true, None);
        }
        return Ok(groups);
    }
    let mut parts = Vec::new();
    for (stage, members) in stages {
        match split(timelines, members, stage, options) {
            Ok(split) => parts.extend(split),
            // What the pipeline tells does not help: the refusal is about all ranks.
            Err(error) => return whole(timelines, options).map_err(|_| error),
        }
    }
    if let [part] = &mut parts[..] {
        let alignment = part.alignment.take();
        return Ok(Groups::one(timelines, alignment).with(communicators, timelines, options));
    }
    parts.sort_by_key(|part| part.members.first().copied());
    let order = Vec::from_iter(parts.iter().flat_map(|part| part.members.iter().copied()));
    arrange(timelines, &order);
    let mut groups = Groups::default();
    let mut next = 0;
    for part in parts {
        let range = next..next + part.members.len();
        next = range.end;
        groups.all.push(Group {
            range,
            kind: Exchange::Unknown,
            stage: part.stage,
            pipeline: false,
            alignment: part.alignment,
        });
    }
    let mut groups = groups.named(timelines, options);
    if unnamed {
        for group in &mut groups.all {
            group.stage = u32::try_from(group.range.start).ok();
        }
    }
    Ok(groups)
}

/// All ranks as one group, or why they are none.
fn whole(timelines: &[Timeline], options: &AlignOptions) -> Result<Groups, AlignError> {
    let alignment = align(timelines, options)?;
    Ok(Groups::one(timelines, Some(alignment)).named(timelines, options))
}

/// Ranks of one stage that match, by their positions.
struct Part {
    members: Vec<usize>,
    stage: Option<u32>,
    alignment: Option<Alignment>,
}

/// The ranks of one stage as one group if all of them match, else as several.
fn split(
    timelines: &[Timeline],
    members: Vec<usize>,
    stage: Option<u32>,
    options: &AlignOptions,
) -> Result<Vec<Part>, AlignError> {
    let part = |members, alignment| Part {
        members,
        stage,
        alignment,
    };
    if members.len() == 1 && stage.is_some() {
        return Ok(vec![part(members, None)]);
    }
    let refused = match aligned(timelines, &members, options) {
        Ok(alignment) => return Ok(vec![part(members, Some(alignment))]),
        Err(refused @ (AlignError::NothingSelected { .. } | AlignError::OneRank)) => {
            return Err(refused);
        }
        Err(refused) => refused,
    };
    let mut parts = Vec::new();
    let mut left = members;
    while let Some(&first) = left.first() {
        let is_home = |member: &usize| {
            let both = [first, *member];
            *member == first || aligned(timelines, &both, options).is_ok()
        };
        let (own, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_home);
        left = others;
        let alignment = match own.len() {
            // To look at the others as well would take ranks times ranks.
            1 if stage.is_none() => return Err(refused),
            1 => None,
            _ => Some(aligned(timelines, &own, options).map_err(|_| refused.clone())?),
        };
        parts.push(part(own, alignment));
    }
    Ok(parts)
}

/// Aligns some of the timelines.
fn aligned(
    timelines: &[Timeline],
    members: &[usize],
    options: &AlignOptions,
) -> Result<Alignment, AlignError> {
    let chosen = members.iter().filter_map(|&at| timelines.get(at));
    align(&Vec::from_iter(chosen), options)
}

/// What two ranks leave out of what both run; see [`Alignment::left_out`].
fn aligned_pair(
    one: &Timeline,
    other: &Timeline,
    options: &AlignOptions,
) -> Result<Vec<Vec<LeftOut>>, AlignError> {
    let pair = [one, other];
    Ok(align(&pair, options)?.left_out(&pair))
}

/// Puts timelines into another order.
fn arrange(timelines: &mut [Timeline], order: &[usize]) {
    let taken = order.iter().map(|&at| std::mem::take(&mut timelines[at]));
    let taken = Vec::from_iter(taken);
    for (place, timeline) in timelines.iter_mut().zip(taken) {
        *place = timeline;
    }
}

impl Groups {
    /// All timelines as one group.
    pub(crate) fn one(timelines: &[Timeline], alignment: Option<Alignment>) -> Self {
        Self {
            all: vec![Group {
                range: 0..timelines.len(),
                kind: Exchange::Unknown,
                stage: None,
                pipeline: false,
                alignment,
            }],
            communicators: Vec::new(),
            options: AlignOptions::default(),
        }
    }

    /// With communicators, what each group exchanges, and its stage.
    pub(crate) fn named(self, timelines: &[Timeline], options: &AlignOptions) -> Self {
        let communicators = communicators::find(timelines, options);
        self.with(communicators, timelines, options)
    }

    /// With communicators whose members stand where these timelines do.
    fn with(
        mut self,
        communicators: Vec<Communicator>,
        timelines: &[Timeline],
        options: &AlignOptions,
    ) -> Self {
        self.communicators = communicators;
        self.options = *options;
        let stages = communicators::stages(&self.communicators, timelines);
        for group in &mut self.all {
            group.kind = kind(&group.range, &self.communicators);
            group.stage = stages.get(group.range.start).copied().flatten();
        }
        self
    }

    /// A group as if its timelines were all.
    pub(crate) fn alone(&self, group: &Group, timelines: &[Timeline]) -> Self {
        let groups = Self::one(timelines, group.alignment.clone());
        let mut groups = groups.named(timelines, &self.options);
        for one in &mut groups.all {
            one.pipeline = group.pipeline;
        }
        groups
    }

    /// The group of the timeline at this place.
    pub(crate) fn of(&self, at: usize) -> usize {
        let group = self.all.iter().position(|group| group.range.contains(&at));
        group.unwrap_or(0)
    }

    /// Whether the stages of a pipeline are told by times alone, because the traces name no process groups.
    #[must_use]
    pub fn stages_are_seen(&self) -> bool {
        let mut descriptions = self.communicators.iter().map(|one| &one.description);
        descriptions.any(|text| text.as_deref() == Some(seen::DESCRIPTION))
    }

    /// Puts matched kernels in the order of their last starts, after times have changed.
    pub fn sort(&mut self, timelines: &[Timeline]) {
        for group in &mut self.all {
            let own = timelines.get(group.range.clone()).unwrap_or_default();
            if let Some(alignment) = &mut group.alignment {
                alignment.sort(own);
            }
        }
    }
}

/// What the ranks of a group spend most time to exchange with each other.
fn kind(group: &Range<usize>, communicators: &[Communicator]) -> Exchange {
    let mut times = BTreeMap::<Exchange, Nanos>::new();
    for communicator in communicators {
        // Members come in order.
        let ends = [communicator.members.first(), communicator.members.last()];
        let inside = ends.into_iter().flatten().all(|at| group.contains(at));
        if inside && communicator.members.len() > 1 {
            *times.entry(communicator.kind).or_default() += communicator.time;
        }
    }
    let most = times.values().copied().max();
    let kind = times.into_iter().find(|(_, time)| Some(*time) == most);
    kind.map_or(Exchange::Unknown, |(kind, _)| match kind {
        Exchange::Pp => Exchange::Unknown,
        kind => kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Collective, Kernel, KernelClass};

    /// A rank that computes kernels of these names, and then hands something on.
    fn rank(rank: u32, names: [&str; 5]) -> Timeline {
        let mut timeline = Timeline::new(rank, "test");
        let stream = timeline.stream("7");
        let computed = names.map(|name| (name, KernelClass::Computation));
        let all = computed.into_iter();
        let all = all.chain([("ncclDevKernel_SendRecv", KernelClass::Communication)]);
        for (start, (name, class)) in (0..).map(|at| Nanos(10 * at)).zip(all) {
            let name = timeline.names.intern(name);
            timeline.kernels.push(Kernel {
                name,
                stream,
                class,
                start,
                end: start + Nanos(5),
                collective: None,
                iteration: None,
            });
        }
        timeline.tell_collective(names.len(), |told| Collective {
            name: Some(COALESCED.into()),
            process_group: Some("0".into()),
            ..told
        });
        timeline
    }

    #[test]
    fn a_group_by_itself_is_compared_as_all_ranks_were() {
        let names = [["a", "b", "c", "d", "e"], ["a", "b", "x", "y", "z"]];
        let mut timelines = Vec::from_iter((0..).zip(names).map(|(at, names)| rank(at, names)));
        let few = AlignOptions {
            min_matched: 0.3,
            ..AlignOptions::default()
        };
        // With the share that counts if none is given these are stages of a pipeline.
        for (options, kind) in [(few, Exchange::Cp), (AlignOptions::default(), Exchange::Pp)] {
            let groups = partition(&mut timelines, &options).unwrap();
            let kinds =
                |groups: &Groups| Vec::from_iter(groups.communicators.iter().map(|one| one.kind));
            assert_eq!(kinds(&groups), [kind]);
            let whole = Groups::one(&timelines, None).named(&timelines, &options);
            let alone = groups.alone(&whole.all[0], &timelines);
            assert_eq!(kinds(&alone), [kind]);
        }
    }
}
