"""What marks and kernels of one iteration look like on this GPU."""

import gzip, json, statistics as st, sys, time

sys.path[:0] = ["../../hooks/pytorch", "hooks/pytorch/benchmarks"]
import importlib, torch

sys.path[:0] = ["../../hooks/pytorch"]
import overhead
from litd.gpu import TorchClock
from litd.kernels import NameTable
from litd.modules import ModuleMeasure
from litd.profiler import ProfilerMeasure

out = sys.argv[1]
raw = {}


def gaps(c):
    per = {}
    for s, a, d in zip(c.stream, c.start_ns, c.duration_ns):
        per.setdefault(s, []).append((a, a + d))
    g = []
    for v in per.values():
        v.sort()
        g += [b[0] - a[1] for a, b in zip(v, v[1:])]
    return sorted(g)


for graphed in (False, True):
    for big in (False, True):
        if graphed and big:
            continue
        torch.manual_seed(0)
        if big:
            ex = importlib.import_module("examples.llama_fsdp2")
            shape = ex.Shape(dim=4096, layers=4, heads=32, vocabulary=8192, context=2048)
            model = ex.Llama(shape).cuda().to(torch.bfloat16)
            opt = torch.optim.AdamW(model.parameters())
            tokens = torch.randint(0, 8192, (4, 2048), device="cuda")

            def step():
                opt.zero_grad(set_to_none=False)
                torch.nn.functional.cross_entropy(
                    model(tokens).flatten(0, 1).float(), tokens.flatten()
                ).backward()
                opt.step()
        else:
            step = overhead.loop(torch, 4, graphed=graphed)
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        for name, m in (
            ("modules", ModuleMeasure(torch, TorchClock(torch, 0))),
            ("profiler", ProfilerMeasure(torch, 0)),
        ):
            names = NameTable()
            cols = []
            walls = []
            why = []
            for i in range(25):
                t = time.perf_counter()
                ok = m.begin()
                step()
                p = m.end(i)
                for _ in range(2):
                    step()
                torch.cuda.synchronize()
                walls.append(time.perf_counter() - t)
                c = p.collect(names, lambda: True) if p is not None else None
                if c is None:
                    why.append(
                        repr(getattr(p, "why", None) or getattr(p, "reason", None) or p)[:200]
                    )
                else:
                    cols.append(c)
            m.close()
            label = f"{name} {'graph' if graphed else 'eager'} {'big' if big else 'small'}"
            if not cols:
                print(label, "NO SAMPLES", why[:2])
                continue
            g = gaps(cols[-1])
            n = len(g)
            within = sum(x <= 100 for x in g) / max(1, n)
            lens = {len(c) for c in cols}
            print(
                label,
                f"{len(cols)} samples of 25, lengths {sorted(lens)[:5]}, streams {sorted(set(cols[-1].stream))}",
            )
            if n:
                print(
                    f"   gaps ns: min {g[0]} p1 {g[n // 100]} p10 {g[n // 10]} median {g[n // 2]} p90 {g[9 * n // 10]} max {g[-1]}; within 100 ns {within:.4f}, negative {sum(x < 0 for x in g)}"
                )
            # noise: spread of each kernel's duration over iterations of the same length
            L = st.mode(len(c) for c in cols)
            same = [c for c in cols if len(c) == L][2:]
            if len(same) > 4:
                rel, startj = [], []
                for k in range(L):
                    d = [c.duration_ns[k] for c in same]
                    med = st.median(d)
                    if med > 20000:
                        rel.append(st.median(abs(x - med) for x in d) / med * 1.4826)
                    s = [c.start_ns[k] - c.start_ns[0] for c in same]
                    startj.append(st.pstdev(s))
                rel.sort()
                startj.sort()
                if rel:
                    print(
                        f"   duration noise of {len(rel)} over 20 us (robust sd): median {100 * rel[len(rel) // 2]:.3f} % p90 {100 * rel[9 * len(rel) // 10]:.3f} %; start sd median {startj[L // 2] / 1e3:.1f} us, last {startj[-1] / 1e3:.1f} us; iteration sum sd {100 * st.pstdev([sum(c.duration_ns) for c in same]) / st.mean([sum(c.duration_ns) for c in same]):.3f} %"
                    )
            raw[label] = [
                dict(
                    name=c.name,
                    stream=c.stream,
                    cls=c.kernel_class,
                    start=[s - c.start_ns[0] for s in c.start_ns],
                    dur=c.duration_ns,
                )
                for c in cols[-6:]
            ]
            raw[label + " names"] = [
                str(x) for x in getattr(names, "names", getattr(names, "_names", []))
            ][:400]
        del step
        if big:
            del model, opt
        torch.cuda.empty_cache()
with gzip.open(out, "wt") as f:
    json.dump(raw, f)
