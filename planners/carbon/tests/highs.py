#!/usr/bin/env python3
"""Optima of schedules by a solver of mixed-integer programmes that is not ours (HiGHS, in scipy).

usage: highs.py < problems.json > optima.json

A problem is {"grams": [[...]], "shares": [...], "switch", "deadline", "may_wait"}: by window and configuration
what is emitted, by configuration what a window trains of all, times in windows. Prints for each the least carbon
that was found and what none is below: they differ where HiGHS had not enough time.
"""

import json
import sys

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

SECONDS = 60


class Programme:
    """x[t][c] is 1 where c runs in window t, y[t] where t has another one than before, z[t] where the job begins."""

    def __init__(self, problem):
        self.problem = problem
        self.windows, self.configurations = len(problem["grams"]), len(problem["shares"])
        self.rows, self.low, self.high = [], [], []

    def x(self, window, configuration):
        return window * self.configurations + configuration

    def y(self, window):
        return self.windows * self.configurations + window

    def z(self, window):
        return self.y(self.windows) + window

    def keep(self, row, low=-np.inf, high=np.inf):
        self.rows.append(row)
        self.low.append(low)
        self.high.append(high)

    def active(self, window, factor=1.0):
        return {self.x(window, it): factor for it in range(self.configurations)}

    def constrain(self):
        windows, configurations = range(self.windows), range(self.configurations)
        shares, switch = self.problem["shares"], self.problem["switch"]
        # Equation 2, in shares of all tokens.
        self.keep({self.x(t, c): shares[c] for t in windows for c in configurations}, low=1.0)
        switches = {self.y(t): switch for t in windows}
        for t in windows:
            self.keep(self.active(t), high=1.0)
            # Equation 3, in windows.
            self.keep(self.active(t, t + 1.0) | switches, high=self.problem["deadline"] + 1e-9)
            # It begins once, and does not pause.
            before = self.active(t - 1, -1.0) if t else {}
            self.keep(self.active(t) | before | {self.z(t): -1.0}, high=0.0)
            for c in configurations if t else []:
                self.keep({self.x(t, c): 1.0, self.x(t - 1, c): -1.0, self.y(t): -1.0, self.z(t): -1.0}, high=0.0)
        self.keep({self.z(t): 1.0 for t in windows}, high=1.0)

    def solve(self):
        self.constrain()
        count = self.z(self.windows)
        costs = np.zeros(count)
        costs[: self.y(0)] = np.array(self.problem["grams"]).ravel()
        matrix = lil_matrix((len(self.rows), count))
        for number, row in enumerate(self.rows):
            for column, value in row.items():
                matrix[number, column] = value
        most = np.ones(count)
        if not self.problem["may_wait"]:
            most[self.z(1) :] = 0.0
        found = milp(
            costs,
            constraints=LinearConstraint(matrix.tocsr(), self.low, self.high),
            integrality=np.ones(count),
            bounds=Bounds(0.0, most),
            options={"mip_rel_gap": 1e-9, "time_limit": SECONDS},
        )
        if found.x is None:
            sys.exit(f"HiGHS finds nothing: {found.message}")
        return [found.fun, found.mip_dual_bound]


if __name__ == "__main__":
    json.dump([Programme(problem).solve() for problem in json.load(sys.stdin)], sys.stdout)
