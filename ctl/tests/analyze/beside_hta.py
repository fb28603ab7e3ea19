"""Puts Holistic Trace Analysis' breakdown of time beside litctl's, rank by rank.

    pip install HolisticTraceAnalysis==0.5.0
    cargo build --release -p litctl
    python3 ctl/tests/analyze/beside_hta.py target/release/litctl FOLDER...

Each folder holds Kineto traces, a file per rank. Times are in microseconds, to which HTA rounds. It leaves the last
iteration out unless asked for it, and always kernels whose launch was not recorded; where there are none of these both
have the same figures. "non-compute" is what litctl calls exposed communication and exposed copies together.
"""

import contextlib
import io
import json
import logging
import subprocess
import sys

logging.disable(logging.CRITICAL)


def of_hta(folder):
    from hta.trace_analysis import TraceAnalysis

    with contextlib.redirect_stdout(io.StringIO()):
        analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
        table = analysis.get_temporal_breakdown(visualize=False)
    columns = ["idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)"]
    return {int(row["rank"]): [float(row[column]) for column in columns] for _, row in table.iterrows()}


def of_litctl(litctl, folder):
    command = [litctl, "--json", "analyze", "--min-matched", "0", folder]
    report = json.loads(subprocess.check_output(command))
    ranks = {}
    for rank in report["ranks"]:
        time = {key: value / 1000 for key, value in rank["time_ns"].items()}
        idle = time["idle_launch"] + time["idle_stream"] + time["idle_other"]
        other = time["exposed_communication"] + time["exposed_copies"]
        ranks[rank["rank"]] = [idle, time["computation"], other, rank["window_ns"] / 1000]
    return ranks


def main():
    litctl, *folders = sys.argv[1:]
    print(f"{'':40} {'':>4}  {'idle':>23}  {'computation':>23}  {'non-compute':>23}  {'all':>23}")
    print(f"{'folder':40} {'rank':>4}" + 4 * f"  {'litctl':>11} {'HTA':>11}")
    for folder in folders:
        theirs, ours = of_hta(folder), of_litctl(litctl, folder)
        for rank, own in sorted(ours.items()):
            other = theirs.get(rank, [float("nan")] * 4)
            both = "".join(f"  {one:>11.1f} {two:>11.1f}" for one, two in zip(own, other))
            print(f"{folder[-40:]:40} {rank:>4}{both}")


main()
