#!/usr/bin/env python3
"""The public solver, lowtime 0.3.0, on a graph and costs in the formats that litctl reads.

usage: public_solver.py DAG.csv SPEC.json

Prints CPU seconds of its solving alone, the number of points and the cost of the last.
"""

import csv
import json
import math
import sys
import time

import networkx as nx
from lowtime.cost_model import CostModel
from lowtime.operation import (
    CandidateExecutionOptions,
    DummyOperation,
    ExecutionOption,
    Operation,
    OperationSpec,
)
from lowtime.solver import PhillipsDessouky


class Exponential(CostModel):
    """The fit that is given, so that both solvers price alike."""

    def __init__(self, a, b, c):
        self.parameters = a, b, c
        self.known = {}

    def __call__(self, quant_time):
        if quant_time not in self.known:
            a, b, c = self.parameters
            self.known[quant_time] = a * math.exp(b * quant_time) + c
        return self.known[quant_time]


def operation_spec(entry):
    # Only the longest and the shortest time count: they bound what the solver chooses.
    options = [
        ExecutionOption(real_time=t + 0.5, unit_time=1.0, cost=-t, knob=-t)
        for t in range(entry["tmin"], entry["tmax"] + 1)
    ]
    cost = Exponential(entry["a"], entry["b"], entry["c"])
    return OperationSpec(options=CandidateExecutionOptions(options=options), cost_model=cost)


def main():
    with open(sys.argv[2]) as file:
        specs = {key: operation_spec(entry) for key, entry in json.load(file).items()}
    dag = nx.DiGraph()
    with open(sys.argv[1], newline="") as file:
        rows = list(csv.reader(file))
    for kind, a, b, c, *_ in rows:
        if kind == "node":
            dag.add_node(int(a), op=Operation(spec=specs[f"{c},{b}"]))
        elif kind == "edge":
            dag.add_edge(int(a), int(b))
    first = [node for node in dag if dag.in_degree(node) == 0]
    last = [node for node in dag if dag.out_degree(node) == 0]
    for end in (0, 1):
        dag.add_node(end, op=DummyOperation())
    dag.add_edges_from((0, node) for node in first)
    dag.add_edges_from((node, 1) for node in last)
    dag.graph.update(source_node=0, sink_node=1)
    solver = PhillipsDessouky(dag)
    start = time.process_time()
    points, cost = 0, math.nan
    for result in solver.run():
        points, cost = points + 1, result.cost
    print(time.process_time() - start, points, cost)


main()
