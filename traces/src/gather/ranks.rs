//! Decides which ranks the kernels of one file belong to, and makes a timeline of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use litd_units::Nanos;

use super::kept::Kept;
use super::{
    Choice, Correlation, Extreme, Fault, Gathered, Group, Launch, Mark, Trace, copies, shortened,
};
use crate::natural::natural;
use crate::timeline::{
    CollectiveId, Iteration, Kernel, KernelClass, Moment, NameId, NonMax, StreamId, Timeline,
};

/// The kernels of one rank's GPU, still in the file's terms.
struct Share {
    rank: u32,
    group: Group,
}

impl Share {
    /// How long its kernels took; copies are none.
    fn time(&self) -> i128 {
        let kernels = self.group.kernels.iter();
        let kernels = kernels.filter(|kernel| kernel.class != KernelClass::Copy);
        let spans = kernels.map(|kernel| i128::from(kernel.end.0) - i128::from(kernel.start.0));
        spans.sum()
    }
}

/// A device whose kernels take less than one part in so many of what the busiest one's take does
/// next to nothing.
const BUSY: i128 = 20;

/// The timelines of a file. `file` is how the user named it, `choice` what he wants of it.
pub(crate) fn timelines(mut all: Gathered, file: &str, choice: Choice<'_>) -> Result<Trace, Fault> {
    let mut notes = Vec::new();
    check_base(&all)?;
    all.groups = chosen(&all.kept, std::mem::take(&mut all.groups), choice.devices)?;
    notes.extend(absent(&all, file, choice.devices));
    all.groups = copies::settled(&all.kept, std::mem::take(&mut all.groups), file, &mut notes)?;
    let (shares, rank_known) = shares(&mut all, file, choice.ranks, &mut notes)?;
    all.launches.sort_unstable();
    // Of a file of several processes the numbers of calls are each process's own.
    let one_process = shares.iter().all(|share| share.group.rank.is_none());
    let operators = std::mem::take(&mut all.operators);
    let operators = match one_process {
        true => operators.of_kernels(),
        false => HashMap::new(),
    };
    let shares_names = shares.len() > 1;
    let mut timelines = Vec::new();
    for share in shares {
        timelines.push(timeline(&mut all, share, file, shares_names, &operators));
    }
    Ok(Trace {
        timelines,
        rank_known,
        notes,
    })
}

/// Whether all times fit with the file's base: those that are furthest apart tell.
fn check_base(all: &Gathered) -> Result<(), Fault> {
    for Extreme { time, event, name } in all.extremes.into_iter().flatten() {
        if time.checked_add(all.base.0).is_none() {
            return Err(Fault::Kernel {
                event,
                name: shortened(all.kept.names.get(name)),
                what: "a kernel's time plus baseTimeNanoseconds is not a time that fits".into(),
            });
        }
    }
    Ok(())
}

/// The kernels on the devices that the user wants, and copies on devices that nothing tells.
fn chosen(kept: &Kept, groups: Vec<Group>, wanted: &[String]) -> Result<Vec<Group>, Fault> {
    if wanted.is_empty() {
        return Ok(groups);
    }
    let label = |group: &Group| kept.devices.get(group.device.id());
    let is_wanted = |group: &Group| wanted.iter().any(|wanted| *wanted == label(group));
    if !groups.iter().any(is_wanted) {
        let mut there = Vec::from_iter(groups.iter().map(|group| shortened(label(group))));
        there.sort_by(|a, b| natural(a, b));
        there.dedup();
        return Err(Fault::Devices {
            wanted: shortened(&wanted.join(", ")),
            there: there.join(", "),
        });
    }
    let groups = groups.into_iter();
    Ok(groups
        .filter(|group| is_wanted(group) || label(group).is_empty())
        .collect())
}

/// The devices that the user wants and the file has not, beside others that it has.
fn absent(all: &Gathered, file: &str, wanted: &[String]) -> Option<String> {
    let there = |label: &&String| {
        let mut groups = all.groups.iter();
        groups.any(|group| all.kept.devices.get(group.device.id()) == label.as_str())
    };
    let absent = wanted.iter().filter(|label| !there(label));
    let absent = Vec::from_iter(absent.map(String::as_str)).join(", ");
    (!absent.is_empty())
        .then(|| format!("{file}: has no device {} (--devices)", shortened(&absent)))
}

/// Splits the kernels by rank; `false` if the rank is a guess.
fn shares(
    all: &mut Gathered,
    file: &str,
    given: &[u32],
    notes: &mut Vec<String>,
) -> Result<(Vec<Share>, bool), Fault> {
    let mut groups = std::mem::take(&mut all.groups);
    groups.sort_by_key(|group| (group.rank, group.device));
    let by_event = groups.iter().any(|group| group.rank.is_some());
    let told = all.rank.or(all.comms_rank);
    let known = all.rank.or_else(|| rank_in_file_name(file)).or(told);
    let of_devices = match given {
        [] => known.is_none(),
        // A process that tells its rank may use several devices; it may be given another.
        [_] => told.is_none(),
        _ => true,
    };
    let mut rank_known = true;
    let mut shares = if of_devices && !by_event && groups.len() > 1 {
        // The world that the file tells of, if any, counts processes and not devices.
        all.world_size = None;
        in_device_order(all, groups)
    } else {
        let known = given.first().copied().or(known);
        rank_known = by_event || known.is_some();
        if !rank_known {
            notes.push(format!("{file}: does not name its rank; 0 is assumed"));
        }
        of_ranks(all, groups, known.or((!by_event).then_some(0)), file, notes)
    };
    if !given.is_empty() {
        rename(all, &mut shares, given, file, notes)?;
    } else if of_devices && shares.len() > 1 && !by_event {
        notes.push(format!(
            "{file}: names no ranks; its devices {} are taken for ranks 0 to {}",
            in_words(all, &shares),
            shares.len() - 1
        ));
    }
    Ok((shares, rank_known))
}

/// The kernels of each rank that their events name, or of the one that is known. Of several devices
/// of one rank the busiest is its GPU.
fn of_ranks(
    all: &Gathered,
    groups: Vec<Group>,
    known: Option<u32>,
    file: &str,
    notes: &mut Vec<String>,
) -> Vec<Share> {
    let mut shares = BTreeMap::<u32, Vec<Share>>::new();
    for group in groups {
        match group.rank.map(NonMax::get).or(known) {
            Some(rank) => shares.entry(rank).or_default().push(Share { rank, group }),
            None => notes.push(format!(
                "{file}: {} kernels that name no rank were left out",
                group.kernels.len()
            )),
        }
    }
    let shares = shares.into_values();
    let shares = shares.filter_map(|share| busiest(all, share, file, notes));
    shares.collect()
}

/// Gives GPUs the ranks that the user gave them. Where he gave fewer, those that did next to nothing
/// are left out.
fn rename(
    all: &Gathered,
    shares: &mut Vec<Share>,
    given: &[u32],
    file: &str,
    notes: &mut Vec<String>,
) -> Result<(), Fault> {
    let most = shares.iter().map(Share::time).max().unwrap_or(0);
    let busy = |share: &Share| share.time() * BUSY >= most;
    let count = shares.iter().filter(|share| busy(share)).count();
    if shares.len() > given.len() && count == given.len() {
        for share in shares.iter().filter(|share| !busy(share)) {
            notes.push(format!(
                "{file}: {} kernels on its device {} were left out: next to nothing ran there",
                share.group.kernels.len(),
                shortened(all.kept.devices.get(share.group.device.id())),
            ));
        }
        shares.retain(busy);
    }
    if shares.len() != given.len() {
        return Err(Fault::Ranks {
            gpus: shares.len(),
            devices: in_words(all, shares),
            given: given.len(),
        });
    }
    for (share, &rank) in shares.iter_mut().zip(given) {
        share.rank = rank;
    }
    if shares.len() > 1 {
        let each = shares.iter().map(|share| {
            let device = all.kept.devices.get(share.group.device.id());
            format!("device {} is rank {}", shortened(device), share.rank)
        });
        let each = Vec::from_iter(each);
        notes.push(format!("{file}: as given, {}", each.join(", ")));
    }
    shares.sort_by_key(|share| share.rank);
    Ok(())
}

/// The labels of devices.
fn in_words(all: &Gathered, shares: &[Share]) -> String {
    let labels = shares
        .iter()
        .map(|share| shortened(all.kept.devices.get(share.group.device.id())));
    labels.collect::<Vec<_>>().join(", ")
}

/// Of a rank's devices, the one with most kernel time.
fn busiest(
    all: &Gathered,
    mut shares: Vec<Share>,
    file: &str,
    notes: &mut Vec<String>,
) -> Option<Share> {
    shares.sort_by_cached_key(|share| std::cmp::Reverse(share.time()));
    let mut shares = shares.into_iter();
    let kept = shares.next()?;
    for left_out in shares {
        notes.push(format!(
            "{file}: rank {} ran on device {}; {} kernels on its device {} were left out",
            kept.rank,
            shortened(all.kept.devices.get(kept.group.device.id())),
            left_out.group.kernels.len(),
            shortened(all.kept.devices.get(left_out.group.device.id())),
        ));
    }
    Some(kept)
}

/// Each device is a rank, in the order of their numbers.
fn in_device_order(all: &Gathered, mut groups: Vec<Group>) -> Vec<Share> {
    let label = |group: &Group| all.kept.devices.get(group.device.id());
    groups.sort_by(|a, b| natural(label(a), label(b)));
    let numbered = (0..).zip(groups);
    numbered
        .map(|(rank, group)| Share { rank, group })
        .collect()
}

fn timeline(
    all: &mut Gathered,
    share: Share,
    file: &str,
    shares_names: bool,
    operators: &HashMap<NameId, Arc<str>>,
) -> Timeline {
    let mut timeline = Timeline::new(share.rank, file);
    timeline.world_size = all.world_size;
    timeline.simulated = all.simulated;
    timeline.shares_clock = !all.several_machines;
    let marks = Marks::of(all, &share);
    let mut streams = vec![None; all.kept.streams.len()];
    let mut adopted = match shares_names {
        true => vec![None; all.kept.names.len()],
        false => Vec::new(),
    };
    let Group {
        rank,
        mut kernels,
        correlations,
        ..
    } = share.group;
    for (at, kernel) in kernels.iter_mut().enumerate() {
        let correlation = correlations.get(at).copied().flatten();
        let launch = marks.launch(rank, correlation);
        kernel.iteration = marks
            .iteration(kernel, launch.map(|launch| launch.at))
            .and_then(NonMax::new);
        if let Some(launch) = launch {
            let there = Nanos(launch.there(kernel)) + all.base;
            timeline.launches.resize(at, None);
            timeline.launches.push(Moment::new(there));
        }
        kernel.start += all.base;
        kernel.end += all.base;
        if let Some(known) = streams.get_mut(usize::from(kernel.stream.0)) {
            kernel.stream = *known.get_or_insert_with(|| {
                let label = all.kept.streams.get(NameId(kernel.stream.0.into()));
                timeline.streams.push(label.into());
                StreamId(u16::try_from(timeline.streams.len() - 1).unwrap_or(u16::MAX))
            });
        }
        if let Some(known) = adopted.get_mut(kernel.name.0 as usize) {
            let adopt = || timeline.names.adopt(&all.kept.names, kernel.name);
            kernel.name = *known.get_or_insert_with(adopt);
        }
    }
    timeline.iterations = marks.iterations(all.base);
    timeline.operators = match shares_names {
        true => {
            let own = |(id, operator): (&NameId, &Arc<str>)| {
                let id = adopted.get(id.0 as usize).copied().flatten()?;
                Some((id, operator.clone()))
            };
            operators.iter().filter_map(own).collect()
        }
        false => operators.clone(),
    };
    if shares_names {
        for kernel in &mut kernels {
            // Each kernel has its own, which nobody else will ask for.
            let told = kernel
                .collective
                .and_then(|id| all.collectives.get_mut(id.0.get() as usize));
            kernel.collective = told.and_then(|told| {
                timeline.collectives.push(std::mem::take(told));
                let last = u32::try_from(timeline.collectives.len() - 1).ok()?;
                NonMax::new(last).map(CollectiveId)
            });
        }
    } else {
        timeline.names = std::mem::take(&mut all.kept.names);
        timeline.blocks = std::mem::take(&mut all.blocks);
        timeline.collectives = std::mem::take(&mut all.collectives);
    }
    kernels.shrink_to_fit();
    timeline.kernels = kernels;
    timeline.sort();
    timeline
}

/// The marks of iterations that concern one rank's GPU.
struct Marks<'a> {
    host: Vec<Mark>,
    device: Vec<Mark>,
    /// Those on the device of each stream, by its number.
    streams: Vec<Vec<Mark>>,
    launches: &'a [Launch],
}

impl<'a> Marks<'a> {
    fn of(all: &'a Gathered, share: &Share) -> Self {
        let mine = |mark: &&Mark| {
            mark.rank.is_none_or(|rank| rank == share.rank)
                && mark
                    .device
                    .is_none_or(|device| device == share.group.device.id())
        };
        let (mut device, mut host): (Vec<Mark>, Vec<Mark>) = all
            .marks
            .iter()
            .filter(mine)
            .partition(|mark| mark.device.is_some());
        device.sort_by_key(|mark| (mark.start, mark.end));
        host.sort_by_key(|mark| (mark.start, mark.end));
        let mut streams = vec![Vec::new(); all.kept.streams.len()];
        for mark in &device {
            let stream = mark.stream.map(|stream| usize::from(stream.number()));
            if let Some(own) = stream.and_then(|stream| streams.get_mut(stream)) {
                own.push(*mark);
            }
        }
        Self {
            host,
            device,
            streams,
            launches: &all.launches,
        }
    }

    /// The call that launched the kernel with this correlation: the first of several that have it.
    fn launch(&self, rank: Option<NonMax>, correlation: Option<Correlation>) -> Option<&'a Launch> {
        let key = (rank.map(NonMax::get), correlation?.number());
        let key_of = |launch: &Launch| (launch.rank, launch.correlation);
        let first = self.launches.partition_point(|launch| key_of(launch) < key);
        let launch = self.launches.get(first)?;
        (key_of(launch) == key).then_some(launch)
    }

    /// A kernel belongs to the step in which the host launched it, however late it ran. Where
    /// the launch is not known, the profiler's mark on the device has to do: that of the kernel's own stream, because each
    /// stream begins and ends a step at a time of its own, else that of any stream. The kernel's times and its stream
    /// are the file's.
    fn iteration(&self, kernel: &Kernel, launched: Option<i64>) -> Option<u32> {
        let start = kernel.start.0;
        match launched {
            Some(launch) if !self.host.is_empty() => containing(&self.host, launch),
            _ if !self.device.is_empty() => {
                let own = self.streams.get(usize::from(kernel.stream.0));
                let own = own.and_then(|own| containing(own, start));
                own.or_else(|| containing(&self.device, start))
            }
            _ if self.launches.is_empty() => containing(&self.host, start),
            _ => None,
        }
    }

    /// Each iteration once, from the first start to the last end of its marks.
    fn iterations(&self, base: Nanos) -> Vec<Iteration> {
        let marks = if self.host.is_empty() {
            &self.device
        } else {
            &self.host
        };
        let mut iterations = BTreeMap::<u32, Iteration>::new();
        for mark in marks {
            let (start, end) = (Nanos(mark.start) + base, Nanos(mark.end) + base);
            let number = mark.number;
            let known = iterations
                .entry(number)
                .or_insert(Iteration { number, start, end });
            known.start = known.start.min(start);
            known.end = known.end.max(end);
        }
        iterations.into_values().collect()
    }
}

/// The number of the last mark that starts at or before `at`, if it has not ended.
fn containing(marks: &[Mark], at: i64) -> Option<u32> {
    let next = marks.partition_point(|mark| mark.start <= at);
    let mark = marks.get(next.checked_sub(1)?)?;
    (at <= mark.end).then_some(mark.number)
}

/// The rank in a file's name: the word `rank` or `worker`, perhaps a separator, and digits, as in
/// `worker0_step_12.json`, `rank-34.json` or `inference_rank_1.json`.
fn rank_in_file_name(file: &str) -> Option<u32> {
    let name = file.rsplit(['/', '\\']).next()?.to_ascii_lowercase();
    ["rank", "worker"].iter().find_map(|word| {
        name.match_indices(word).find_map(|(at, _)| {
            // `frank7` is no rank.
            if name.get(..at)?.ends_with(char::is_alphabetic) {
                return None;
            }
            let behind = name.get(at + word.len()..)?;
            let digits = behind.strip_prefix(['-', '_', '=']).unwrap_or(behind);
            let end = digits
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(digits.len());
            digits.get(..end)?.parse().ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_tell_ranks() {
        for (name, rank) in [
            ("a/worker0_step_12.1694128201545.pt.trace.json.gz", Some(0)),
            ("rank-34.Jul_15.json", Some(34)),
            ("sampled_rank-0.json.gz", Some(0)),
            ("inference_rank_1.json", Some(1)),
            ("host_worker7_rank=3.json", Some(3)),
            ("rank5/trace.json", None),
            ("rank_not_found.json", None),
            ("step_12.json", None),
            ("frank7.json", None),
            ("frankfurt5.json", None),
            ("crank2_rank4.json", Some(4)),
        ] {
            assert_eq!(rank_in_file_name(name), rank, "{name}");
        }
    }
}
