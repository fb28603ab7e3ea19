//! Giving back the time that a plan of measured microbatches leaves over.

use litd_planner::Graph;
use litd_units::Millis;

/// Makes operations slower that nobody waits for. `chosen` is for each operation which of its choices it has;
/// `choices` has the times of all of them, ascending, each cheaper than the one before. The iteration takes no
/// longer than before, and no operation is faster than it was. Returns what the iteration takes.
///
/// One pass in the order of the graph: an operation may end when the first that waits for it must begin, if all
/// later ones keep their times; and it begins once the earlier ones, slower by now, have ended.
pub(crate) fn give_back(graph: &Graph, chosen: &mut [usize], choices: &[&[Millis]]) -> Millis {
    let nanos = |time: Millis| time.to_nanos().0.max(0).unsigned_abs();
    let durations: Vec<u64> = chosen
        .iter()
        .zip(choices)
        .map(|(&it, all)| nanos(all[it]))
        .collect();
    let end = graph.earliest(|op| durations[op])[Graph::SINK as usize];
    let mut latest = vec![end; graph.events()];
    let mut after = vec![Vec::new(); graph.events()];
    let mut before = vec![Vec::new(); graph.events()];
    for arc in &graph.arcs()[chosen.len()..] {
        after[arc.from as usize].push(arc.to as usize);
        before[arc.to as usize].push(arc.from as usize);
    }
    for op in (0..chosen.len()).rev() {
        let (start, finish) = (Graph::start(op) as usize, Graph::finish(op) as usize);
        let bounds = after[finish].iter().map(|&event| latest[event]);
        latest[finish] = bounds.min().unwrap_or(end);
        latest[start] = latest[finish] - durations[op];
    }
    let mut earliest = vec![0; graph.events()];
    for op in 0..chosen.len() {
        let (start, finish) = (Graph::start(op) as usize, Graph::finish(op) as usize);
        let begins = before[start].iter().map(|&event| earliest[event]);
        earliest[start] = begins.max().unwrap_or(0);
        let room = latest[finish] - earliest[start];
        let fits = choices[op].partition_point(|&time| nanos(time) <= room);
        chosen[op] = fits.saturating_sub(1).max(chosen[op]);
        earliest[finish] = earliest[start] + nanos(choices[op][chosen[op]]);
    }
    let ends = before[Graph::SINK as usize]
        .iter()
        .map(|&event| earliest[event]);
    Millis(ends.max().unwrap_or(0) as f64 / 1e6)
}
