"""Two processes that train on CPUs, attached to litd on a simulated node.

    litlab demo --stay --accept-any   # in another terminal; prints LITD_SOCKET and the addresses
    torchrun --nproc_per_node 2 examples/on_cpus.py 0000:c5:00.0 0000:e5:00.0

Needs no GPU: each process says which simulated GPU is to stand for its own. `litctl top` shows the
job and how long its iterations take. litd gets no leads, because CPUs have no kernels to compare.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import litd


def main() -> None:
    """Trains a few layers on random numbers until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="+", help="of the simulated GPU of each process")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long [default: 600]")
    arguments = parser.parse_args()

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


if __name__ == "__main__":
    main()
