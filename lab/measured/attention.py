import csv, sys

sys.path[:0] = ["../../hooks/pytorch"]
import torch, torch.nn.functional as F
from litd.inference import Bench

b = Bench(torch, (0.7, 1.3), stand_in=False)
rows = []
for bs, s, h, kv, d in [
    (1, 1024, 32, 8, 128),
    (1, 4096, 32, 8, 128),
    (4, 4096, 32, 8, 128),
    (1, 8192, 64, 8, 128),
    (8, 1024, 32, 32, 128),
    (2, 2048, 16, 16, 128),
    (1, 16384, 32, 8, 128),
    (8, 512, 40, 40, 128),
    (2, 4096, 32, 32, 64),
]:
    q = b.empty(bs, h, s, d)
    k = b.empty(bs, kv, s, d)
    v = b.empty(bs, kv, s, d)
    m = b.measured(
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=h != kv)
    )
    rows.append(
        dict(
            batch_size=bs,
            isl=s,
            step=0,
            num_heads=h,
            num_key_value_heads=kv,
            head_dim=d,
            latency_ms=m.latency_ms,
            power_w=m.power_w,
            power_limit_w=b.meter.limit_w(),
        )
    )
    del q, k, v
with open(sys.argv[1], "w", newline="") as f:
    w = csv.DictWriter(f, list(rows[0]))
    w.writeheader()
    w.writerows(rows)
