#!/usr/bin/env python3
"""Zeus's own client (PyPI zeus[pfo]), unmodified, as the ranks of a job of one pipeline.

usage: zeus_client.py --check | zeus_client.py URL INSTRUCTIONS_OF_STAGE_0 INSTRUCTIONS_OF_STAGE_1 ...

PyTorch and the driver are stand-ins: there is no GPU. Each rank does two iterations. Prints a
JSON list of the clocks that each rank's controller locked, in order, resets as 0.
"""

import json
import multiprocessing
import sys
import types

context = multiprocessing.get_context("fork")
jobs = context.Queue()
locked = context.Queue()
rank = 0


class Gpus:
    """What the client wants of zeus.device, for one GPU."""

    def get_supported_memory_clocks(self, _):
        return [1215, 1593]

    def get_supported_graphics_clocks(self, _, __):
        return list(range(210, 1411, 15))

    def set_gpu_locked_clocks(self, _, low, high):
        assert low == high
        locked.put((rank, high))

    def reset_gpu_locked_clocks(self, _):
        locked.put((rank, 0))

    def __getattr__(self, name):
        return lambda *_: None


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
    import zeus.device

    zeus.device.get_gpus = Gpus


def train(number, url, instructions):
    global rank
    rank = number
    from zeus.optimizer.pipeline_frequency.optimizer import PipelineFrequencyOptimizer

    optimizer = PipelineFrequencyOptimizer(
        rank=number,
        dp_rank=0,
        pp_rank=number,
        tp_rank=0,
        device_id=0,
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
    import zeus.optimizer.pipeline_frequency.optimizer

    sys.exit()
world = len(sys.argv) - 2
ranks = [
    context.Process(target=train, args=(number, sys.argv[1], instructions))
    for number, instructions in enumerate(sys.argv[2:])
]
for process in ranks:
    process.start()
clocks = [[] for _ in ranks]
# A controller's last word is its reset.
while not all(known and known[-1] == 0 for known in clocks):
    number, clock = locked.get(timeout=60)
    clocks[number].append(clock)
for process in ranks:
    process.join()
    assert process.exitcode == 0
print(json.dumps(clocks))
