"""Two processes that train on CPUs, attached to litd on a simulated node.

    litlab demo --stay --accept-any   # in another terminal; prints LITD_SOCKET and the addresses
    python3 examples/on_cpus.py 0000:c5:00.0 0000:e5:00.0

Needs PyTorch and no GPU. The script starts one process for each address, as torchrun would, and
each process says which simulated GPU is to stand for its own. `litctl top` shows the job and how
long its iterations take. litd gets no leads, because CPUs have no kernels to compare.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError:
    sys.exit(f"{sys.executable} has no PyTorch: pip install torch (Debian: python3-torch)")

import litd


def start_all(count: int) -> int:
    """Starts this script for each rank and waits. Returns the first failure's status, or 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={
                **os.environ,
                **{name: str(value) for name, value in job.items()},
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            },
        )
        for rank in range(count)
    ]
    return next((code for code in [rank.wait() for rank in ranks] if code), 0)


def main() -> int:
    """Trains a few layers on random numbers until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="+", help="of the simulated GPU of each process")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long [default: 600]")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        print(
            "training on CPUs; `litctl top` shows the job as on-cpus. Ctrl-C ends it.", flush=True
        )
        return start_all(len(arguments.address))

    dist.init_process_group("gloo")
    if len(arguments.address) != dist.get_world_size():
        parser.error(f"{dist.get_world_size()} processes need as many addresses")
    torch.manual_seed(dist.get_rank())
    layers = [torch.nn.Linear(512, 512) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    # With a GPU, `litd.attach(optimizer)` finds its address.
    hook = litd.attach(optimizer, job="on-cpus", gpu=arguments.address[dist.get_rank()])

    last = torch.tensor(0)
    began = time.monotonic()
    while not last:
        model(torch.randn(256, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        # All processes end after the same iteration.
        last = torch.tensor(int(time.monotonic() - began > arguments.seconds))
        dist.all_reduce(last)
    hook.close()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
