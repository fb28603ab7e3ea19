#!/usr/bin/env python3
"""Zeus's own client (PyPI zeus[pfo]), unmodified, as the ranks of a job of one pipeline.

usage: zeus_client.py --check | zeus_client.py URL INSTRUCTIONS_OF_STAGE_0 INSTRUCTIONS_OF_STAGE_1 ...

A stand-in for PyTorch, which needs a real GPU, is all that is not as in a job. Each rank has the
GPU of its number, does two iterations and ends its controller. NVML is what the loader finds.
"""

import multiprocessing
import sys
import types

# As torchrun's ranks and, up to Python 3.13, Zeus's controller.
multiprocessing.set_start_method("fork")
jobs = multiprocessing.Queue()
world = len(sys.argv) - 2


def broadcast(objects, src):
    if objects[0] is not None:
        for _ in range(world - 1):
            jobs.put(objects[0])
    else:
        objects[0] = jobs.get()


def stand_in():
    torch = types.ModuleType("torch")
    torch.distributed = types.ModuleType("torch.distributed")
    torch.distributed.is_initialized = lambda: True
    torch.distributed.broadcast_object_list = broadcast
    torch.cuda = types.ModuleType("torch.cuda")
    torch.cuda.set_device = torch.cuda.synchronize = lambda *_: None
    torch.cuda.is_available = lambda: True
    sys.modules.update({"torch": torch, "torch.cuda": torch.cuda})
    sys.modules["torch.distributed"] = torch.distributed


def train(rank, url, instructions):
    from zeus.optimizer.pipeline_frequency.optimizer import PipelineFrequencyOptimizer

    optimizer = PipelineFrequencyOptimizer(
        rank=rank,
        dp_rank=0,
        pp_rank=rank,
        tp_rank=0,
        device_id=rank,
        dp_degree=1,
        pp_degree=world,
        tp_degree=1,
        world_size=world,
        server_url=url,
    )
    for _ in range(2):
        optimizer.on_step_begin()
        for instruction in instructions.split():
            optimizer.on_instruction_begin(instruction)
            optimizer.on_instruction_end(instruction)
        optimizer.on_step_end()
    optimizer.frequency_controller.end()
    optimizer.frequency_controller._proc.join()


stand_in()
if sys.argv[1] == "--check":
    import zeus.optimizer.pipeline_frequency.optimizer  # noqa: F401

    sys.exit()
ranks = [
    multiprocessing.Process(target=train, args=(rank, sys.argv[1], instructions))
    for rank, instructions in enumerate(sys.argv[2:])
]
for process in ranks:
    process.start()
for process in ranks:
    process.join(timeout=60)
failed = [rank for rank, process in enumerate(ranks) if process.exitcode != 0]
for rank in failed:
    ranks[rank].kill()
if failed:
    sys.exit(f"ranks {failed} failed, or did not end")
