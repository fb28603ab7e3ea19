#!/usr/bin/env python3
"""Optima of random graphs by a linear-programming solver that is not ours (HiGHS, in scipy).

usage: highs.py SEED COUNT > optima.json

Prints a list of {"dag", "spec", "optima": [[deadline, least cost], ...]}: graph and costs in the
formats that litctl reads. A deadline lies on a whole unit of time or half-way between two.
"""

import json
import math
import random
import sys

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import lil_matrix


def random_case(rng):
    kinds = [(stage, name) for stage in range(rng.randint(1, 4)) for name in ("f", "g", "h")]
    spec = {}
    for stage, name in kinds:
        shortest = rng.randint(0, 12)
        longest = shortest + rng.choice([0, 1, rng.randint(2, 25)])
        spec[f"{stage},{name}"] = {
            "a": 10 ** rng.uniform(-1, 3),
            "b": -(10 ** rng.uniform(-2.5, 0)),
            "c": rng.uniform(0, 10),
            "tmin": shortest,
            "tmax": longest,
        }
    count = rng.randint(1, 18)
    ids = list(range(2, 2 + count))
    rng.shuffle(ids)
    density = rng.uniform(0.05, 0.5)
    nodes = [(node, *rng.choice(kinds)[::-1], rng.randint(0, 3)) for node in ids]
    edges = [
        (ids[i], ids[j]) for i in range(count) for j in range(i + 1, count) if rng.random() < density
    ]
    rng.shuffle(nodes)
    lines = ["kind,a,b,c,d"]
    lines += [f"node,{node},{name},{stage},{batch}" for node, name, stage, batch in nodes]
    lines += [f"edge,{u},{v},," for u, v in edges]
    return nodes, edges, spec, "\n".join(lines) + "\n"


def longest_path(nodes, edges, time):
    end = {}

    def finish(node):
        if node not in end:
            end[node] = max((finish(u) for u, v in edges if v == node), default=0) + time[node]
        return end[node]

    return max(finish(node[0]) for node in nodes)


def least_cost(nodes, edges, entry, deadline):
    """Variables: when each operation begins, and how much of each of its units is taken back."""
    start = {node[0]: place for place, node in enumerate(nodes)}
    cost, slots, fixed = [0.0] * len(nodes), {}, 0.0
    for node in nodes:
        e = entry[node[0]]
        value = [e["a"] * math.exp(e["b"] * t) + e["c"] for t in range(e["tmin"], e["tmax"] + 1)]
        fixed += value[-1]
        slots[node[0]] = range(len(cost), len(cost) + len(value) - 1)
        # Taking back the last unit is the cheapest; convexity keeps the order.
        cost += [value[k] - value[k + 1] for k in reversed(range(len(value) - 1))]
    rows = [(u, start[v]) for u, v in edges] + [(node[0], None) for node in nodes]
    matrix = lil_matrix((len(rows), len(cost)))
    bound = np.zeros(len(rows))
    for row, (u, next_start) in enumerate(rows):
        matrix[row, start[u]] = 1.0
        for slot in slots[u]:
            matrix[row, slot] = -1.0
        bound[row] = -entry[u]["tmax"]
        if next_start is None:
            bound[row] += deadline
        else:
            matrix[row, next_start] = -1.0
    bounds = [(0, None)] * len(nodes) + [(0, 1)] * (len(cost) - len(nodes))
    answer = linprog(cost, A_ub=matrix.tocsr(), b_ub=bound, bounds=bounds, method="highs")
    assert answer.status == 0, answer.message
    return fixed + answer.fun


def main():
    rng = random.Random(int(sys.argv[1]))
    cases = []
    for _ in range(int(sys.argv[2])):
        nodes, edges, spec, dag = random_case(rng)
        entry = {node[0]: spec[f"{node[2]},{node[1]}"] for node in nodes}
        ends = [
            longest_path(nodes, edges, {node: e[end] for node, e in entry.items()})
            for end in ("tmin", "tmax")
        ]
        halves = {2 * ends[0], 2 * ends[1]}
        halves |= {rng.randint(2 * ends[0], 2 * ends[1]) for _ in range(6)}
        optima = [[half / 2, least_cost(nodes, edges, entry, half / 2)] for half in sorted(halves)]
        cases.append({"dag": dag, "spec": spec, "optima": optima})
    json.dump(cases, sys.stdout, indent=1)
    print()


main()
