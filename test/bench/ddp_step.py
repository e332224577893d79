"""A step of torch's DistributedDataParallel (gloo) with one thread a rank: `ddp_step.py RANKS`, beside trun --nproc.

The model is gpt-14m of scale_models.py, with AdamW and clipping; docs/measurements/ranks.md has numbers.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from scale_models import SIZES, Gpt
from torch.nn import functional as F


def rank(number, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29578")
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[number::ranks] or processors)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers, heads, width, vocabulary, context, batch = SIZES["gpt-14m"]
    model = Gpt(layers, heads, width, vocabulary, context)
    if ranks > 1:
        dist.init_process_group("gloo", rank=number, world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    seconds = []
    for _ in range(14):
        tokens = torch.randint(vocabulary, (batch, context))
        begun = time.perf_counter()
        logits = model(tokens)
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begun)
    if number == 0:
        print(f"{ranks} ranks: least {min(seconds[2:]):.3f} s, median {statistics.median(seconds[2:]):.3f} s", flush=True)
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(rank, args=(count,), nprocs=count)
