"""What the driver says limits the clock, under loads that draw different powers. Reads only."""

import time, sys, threading, torch, pynvml as n

n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
N = 8192


def randn(scale_zero):
    x = torch.randn(N, N, device="cuda")
    if scale_zero:
        x *= torch.rand(N, N, device="cuda") > scale_zero
    return x.to(torch.bfloat16)


b = randn(0)
c = torch.empty(N, N, device="cuda", dtype=torch.bfloat16)


def viol():
    out = {}
    for p in range(0, 12):
        try:
            v = n.nvmlDeviceGetViolationStatus(h, p)
            out[p] = v.violationTime
        except n.NVMLError:
            pass
    for f in (74, 75, 76, 77, 78, 79, 251, 269):
        try:
            v = n.nvmlDeviceGetFieldValues(h, [f])[0]
            if v.nvmlReturn == 0:
                out[f"f{f}"] = v.value.ullVal
        except Exception:
            pass
    return out


def phase(name, work, secs=4.0):
    rows = []
    stop = False

    def sample():
        while not stop:
            rows.append(
                (
                    n.nvmlDeviceGetPowerUsage(h) / 1e3,
                    n.nvmlDeviceGetFieldValues(h, [186])[0].value.uiVal / 1e3,
                    n.nvmlDeviceGetClockInfo(h, 1),
                    n.nvmlDeviceGetClockInfo(h, 2),
                    n.nvmlDeviceGetCurrentClocksEventReasons(h),
                    n.nvmlDeviceGetTemperature(h, 0),
                )
            )
            time.sleep(0.02)

    v0 = viol()
    th = threading.Thread(target=sample)
    th.start()
    t0 = time.time()
    k = 0
    while time.time() - t0 < secs:
        work()
        k += 1
    torch.cuda.synchronize()
    took = time.time() - t0
    stop = True
    th.join()
    v1 = viol()
    r = rows[len(rows) // 2 :]
    m = lambda i: sum(x[i] for x in r) / len(r)
    d = {p: (v1[p] - v0[p]) / 1e6 for p in v1 if v1[p] != v0.get(p)}
    print(
        f"{name}: avg {m(0):.0f} W inst {m(1):.0f} clock {m(2):.0f} mem {m(3):.0f} temp {m(5):.0f} reasons { {hex(x[4]): sum(y[4] == x[4] for y in r) for x in r} } rate {k / took:.1f}/s over {took:.2f} s; counters moved {d}"
    )


def gemm(a):
    def w():
        for _ in range(4):
            torch.mm(a, b, out=c)
        torch.cuda.synchronize()

    return w


print("counters", viol())
for z in (0.0, 0.5, 0.8, 0.95):
    phase(f"gemm, {z:.0%} zeros", gemm(randn(z)), 3.0)
phase("gemm, all zeros", gemm(torch.zeros_like(b)), 3.0)
b2 = torch.zeros_like(b)
a0 = torch.zeros_like(b)


def zz():
    for _ in range(4):
        torch.mm(a0, b2, out=c)
    torch.cuda.synchronize()


phase("gemm, zeros x zeros", zz, 3.0)
x = torch.randn(1 << 30, device="cuda", dtype=torch.float16)
y = torch.empty_like(x)


def cp():
    for _ in range(4):
        y.copy_(x)
    torch.cuda.synchronize()


phase("copies", cp, 3.0)


def el():
    for _ in range(4):
        torch.tanh_(y)
    torch.cuda.synchronize()


phase("tanh", el, 3.0)
a = randn(0)


def burst(on, off):
    def w():
        t = time.time()
        while time.time() - t < on:
            torch.mm(a, b, out=c)
            torch.cuda.synchronize()
        time.sleep(off)

    return w


phase("bursts 20/30 ms", burst(0.02, 0.03), 3.0)
phase("bursts 300/100 ms", burst(0.3, 0.1), 4.0)
phase("bursts 60/10 ms", burst(0.06, 0.01), 3.0)
s = torch.randn(64, 64, device="cuda")


def small():
    for _ in range(200):
        s @ s
    torch.cuda.synchronize()


phase("tiny kernels", small, 2.0)
phase("idle", lambda: time.sleep(0.1), 3.0)
