"""The time of an all-reduce by torch's gloo, one thread a rank: `collectives.py RANKS`, beside collectives.cpp."""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank(number, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=number, world_size=ranks)
    for size in (4, 4096, 1 << 20, 25 << 20, 100 << 20):
        values, best = torch.ones(size // 4), 1e9
        for _ in range(300 if size < 100000 else 12):
            begun = time.perf_counter()
            dist.all_reduce(values)
            best = min(best, time.perf_counter() - begun)
        if number == 0:
            print(f"{ranks} ranks, {size} bytes: {best * 1e6:.1f} us, {size / best / 1e9:.2f} GB/s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(rank, args=(count,), nprocs=count)
