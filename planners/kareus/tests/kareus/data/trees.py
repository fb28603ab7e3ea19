"""Writes trees.csv: made-up rows like a search's samples, and what XGBoost predicts for each.

Run with xgboost 3.2.0 (pip install xgboost-cpu numpy): python trees.py >trees.csv
Columns: split (0: every row once; 1: a resample, weights are how often a row was drawn), clock in MHz, SMs,
launch, weight, target, prediction.
"""

import numpy as np
import xgboost

OPTIONS = {"max_depth": 6, "eta": 0.3, "tree_method": "exact", "objective": "reg:squarederror", "nthread": 1}

draw = np.random.default_rng(26)
count = 200
clock = draw.integers(0, 18, count) * 30 + 900
sms = draw.integers(1, 11, count) * 3
launch = draw.integers(0, 4, count)
rows = np.stack([clock, sms, launch], axis=1).astype(float)
exposed = np.maximum(0, 0.6 / sms * 3 + 0.1 * launch - 0.3)
target = 1410 / clock * (0.4 + 0.004 * sms) + exposed + draw.normal(0, 0.01, count)
target = (target / target.max()).astype(np.float32).astype(float)
print("split,clock,sms,launch,weight,target,prediction")
for split in range(2):
    weight = np.ones(count) if split == 0 else np.bincount(draw.integers(0, count, 160), minlength=count)
    drawn = weight > 0
    data = xgboost.DMatrix(rows[drawn], label=target[drawn], weight=weight[drawn])
    base = float((weight * target).sum() / weight.sum())
    model = xgboost.train({**OPTIONS, "base_score": base}, data, num_boost_round=100)
    for row, w, t, p in zip(rows, weight, target, model.predict(xgboost.DMatrix(rows))):
        print(f"{split},{row[0]:.0f},{row[1]:.0f},{row[2]:.0f},{w:.0f},{float(t)!r},{float(p)!r}")
