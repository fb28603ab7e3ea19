"""How this board's sensors follow a load that is known. Reads only."""

import multiprocessing as mp, sys, time, ctypes, numpy as np


def load(q, stop):
    import torch

    a = torch.randn(8192, 8192, device="cuda").to(torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda").to(torch.bfloat16)
    c = a @ b
    torch.cuda.synchronize()
    z = torch.zeros_like(a)
    q.put(("ready", time.monotonic()))
    time.sleep(8)

    def on(x, secs):
        t0 = time.monotonic()
        q.put((f"on", t0))
        n = 0
        while time.monotonic() - t0 < secs:
            for _ in range(2):
                torch.mm(x, b, out=c)
            torch.cuda.synchronize()
            n += 2
        q.put((f"off {n}", time.monotonic()))

    on(a, 10)
    time.sleep(5)
    for _ in range(15):
        on(a, 0.2)
        time.sleep(0.2)
    time.sleep(2)
    for _ in range(60):
        on(a, 0.02)
        time.sleep(0.03)
    time.sleep(2)
    on(z, 4)
    time.sleep(3)
    q.put(("end", time.monotonic()))
    stop.set()


def main():
    import pynvml as n

    ctx = mp.get_context("spawn")
    q = ctx.Queue()
    stop = ctx.Event()
    p = ctx.Process(target=load, args=(q, stop))
    p.start()
    n.nvmlInit()
    h = n.nvmlDeviceGetHandleByIndex(0)
    lib = n.nvmlLib if hasattr(n, "nvmlLib") else None
    FI = (185, 186, 83)

    def fields():
        v = n.nvmlDeviceGetFieldValues(h, list(FI))
        return [
            (x.value.ullVal if x.fieldId == 83 else x.value.uiVal) if x.nvmlReturn == 0 else -1
            for x in v
        ], [x.timestamp for x in v]

    calls = {
        "power_usage": lambda: n.nvmlDeviceGetPowerUsage(h),
        "energy": lambda: n.nvmlDeviceGetTotalEnergyConsumption(h),
        "sm_clock": lambda: n.nvmlDeviceGetClockInfo(h, 1),
        "temp": lambda: n.nvmlDeviceGetTemperature(h, 0),
        "reasons": lambda: n.nvmlDeviceGetCurrentClocksEventReasons(h),
        "limit": lambda: n.nvmlDeviceGetPowerManagementLimit(h),
        "enforced": lambda: n.nvmlDeviceGetEnforcedPowerLimit(h),
        "procs": lambda: n.nvmlDeviceGetComputeRunningProcesses(h),
    }
    lat = {k: [] for k in calls}
    rows = []
    first = []
    while not stop.is_set():
        t0 = time.monotonic()
        r = [t0]
        for k in ("power_usage", "energy", "sm_clock", "temp", "reasons"):
            a = time.perf_counter()
            r.append(calls[k]())
            lat[k].append(time.perf_counter() - a)
        f, ts = fields()
        r += f + [ts[0], ts[2], time.monotonic()]
        rows.append(r)
        if len(rows) % 100 == 0:
            for k in ("limit", "enforced", "procs"):
                a = time.perf_counter()
                calls[k]()
                lat[k].append(time.perf_counter() - a)
        d = 0.002 - (time.monotonic() - t0)
        if d > 0:
            time.sleep(d)
    ev = []
    while not q.empty():
        ev.append(q.get())
    p.join()
    A = np.array(rows, dtype=float)
    np.savez_compressed(sys.argv[1], rows=A, events=np.array([(e, str(t)) for e, t in ev]))
    for k, v in lat.items():
        v = np.array(v) * 1e6
        if len(v):
            print(
                f"call {k}: n {len(v)} median {np.median(v):.0f} us p99 {np.percentile(v, 99):.0f} max {v.max():.0f}"
            )
    t = A[:, 0]
    print("samples", len(A), "interval median ms", 1e3 * np.median(np.diff(t)))
    for i, k in (
        (1, "power_usage mW"),
        (2, "energy mJ"),
        (3, "sm clock"),
        (4, "temp"),
        (6, "avg field 185"),
        (7, "instant field 186"),
        (8, "energy field 83"),
    ):
        x = A[:, i]
        ch = np.flatnonzero(np.diff(x) != 0) + 1
        if len(ch) > 3:
            dt = np.diff(t[ch]) * 1e3
            print(
                f"{k}: min {x.min():.0f} max {x.max():.0f}; changes {len(ch)}, time between ms: p5 {np.percentile(dt, 5):.1f} median {np.median(dt):.1f} p95 {np.percentile(dt, 95):.1f}"
            )
        else:
            print(f"{k}: {x.min():.0f}..{x.max():.0f}, {len(ch)} changes")
    print("reasons seen", {hex(int(v)): int((A[:, 5] == v).sum()) for v in set(A[:, 5])})
    on = [float(t) for e, t in ev if e == "on"]
    off = [float(t) for e, t in ev if e.startswith("off")]
    o, f = on[0], off[0]
    for i, k in ((1, "power_usage"), (6, "avg185"), (7, "inst186")):
        x = A[:, i] / 1e3
        base = np.median(x[(t > o - 3) & (t < o)])
        top = np.median(x[(t > f - 4) & (t < f)])
        rise = [t[(t > o) & (x > base + s * (top - base))][0] - o for s in (0.1, 0.5, 0.9)]
        fall = [t[(t > f) & (x < top - s * (top - base))][0] - f for s in (0.1, 0.5, 0.9)]
        print(
            f"{k}: idle {base:.0f} W, load {top:.0f} W; rise 10/50/90 % {[round(1e3 * v) for v in rise]} ms; fall {[round(1e3 * v) for v in fall]} ms"
        )
    m = (t > o + 2) & (t < f)
    e = A[m, 2]
    print(
        f"energy counter over {t[m][-1] - t[m][0]:.2f} s: {(e[-1] - e[0]) / 1e3 / (t[m][-1] - t[m][0]):.1f} W; mean avg185 {A[m, 6].mean() / 1e3:.1f}, mean inst186 {A[m, 7].mean() / 1e3:.1f}, usage {A[m, 1].mean() / 1e3:.1f} W, max inst {A[m, 7].max() / 1e3:.1f}; clock median {np.median(A[m, 3])} min {A[m, 3].min()}"
    )
    sq = (t > on[1]) & (t < off[15])
    print(
        f"square 200/200 ms: usage {A[sq, 1].min() / 1e3:.0f}..{A[sq, 1].max() / 1e3:.0f} inst {A[sq, 7].min() / 1e3:.0f}..{A[sq, 7].max() / 1e3:.0f}, energy {(A[sq, 2][-1] - A[sq, 2][0]) / 1e3 / (t[sq][-1] - t[sq][0]):.0f} W mean usage {A[sq, 1].mean() / 1e3:.0f}"
    )
    z0, z1 = on[-1], off[-1]
    m = (t > z0 + 2) & (t < z1)
    print(f"zeros: {A[m, 1].mean() / 1e3:.0f} W clock {np.median(A[m, 3])}")


if __name__ == "__main__":
    main()
