"""Resident bytes of each rank while GPT-2 with 124M parameters trains in f32 with AdamW, state and parameters sharded.

    sharded_memory.py torch [RANKS]           torch's fully_shard over gloo, each block a unit of its own
    sharded_memory.py ours PLAN DATA [RANKS]  trun --nproc RANKS (build/bin/trun, or $TCC_BIN)

Both take batches of 4 × 64 tokens (SAMPLES=4 SEQ=64), two updates, one thread a rank. The figure is the peak of RssAnon, which excludes
mapped files and shared memory, sampled every millisecond. For torch it is also given relative to the moment before a rank built the
model, since an interpreter with torch takes some hundred MiB by itself. docs/measurements/ranks.md has numbers.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

STEPS = 2


def anonymous(process="self"):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


class Peak(threading.Thread):
    """The most that a process holds until `end`."""

    def __init__(self, process="self"):
        super().__init__(daemon=True)
        self.process, self.most, self.ends = process, 0, False

    def run(self):
        while not self.ends:
            try:
                self.most = max(self.most, anonymous(self.process))
            except OSError:
                return
            time.sleep(0.001)

    def end(self):
        self.ends = True
        self.join()
        return self.most


def mib(count):
    return f"{count / 2**20:.0f} MiB"


def torch_rank(number, ranks):
    import torch
    import torch.distributed as dist
    import torch_step
    from torch.distributed.fsdp import fully_shard
    from torch.nn import functional as F
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29579")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=number, world_size=ranks)
    mesh = torch.distributed.init_device_mesh("cpu", (ranks,))
    before = anonymous()
    with torch.device("meta"):
        model, _, vocabulary = torch_step.build("gpt2-124m")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ctypes.CDLL(None).malloc_trim(0)  # returns the memory that was used to make the model
    peak = Peak()
    peak.start()
    batch, length = int(os.environ.get("SAMPLES", 4)), int(os.environ.get("SEQ", 64))
    for _ in range(STEPS):
        tokens = torch.randint(vocabulary, (batch, length + 1))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    most, after = peak.end(), anonymous()
    for turn in range(ranks):
        if turn == number:
            print(f"torch {torch.__version__} rank {number}: before the model {mib(before)}, most {mib(most)}, "
                  f"above it {mib(most - before)}, between steps {mib(after - before)}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


def ours(plan, data, ranks):
    binaries = Path(os.environ.get("TCC_BIN", Path(__file__).resolve().parents[2] / "build" / "bin"))
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.Popen([binaries / "trun", plan, "--data", data, "--out", f"{folder}/run", "--steps", str(STEPS), "--nproc",
                                str(ranks), "--threads", "1", "--checkpoint-every", "0", "--no-release"], stderr=subprocess.DEVNULL)
        watched = {}
        while job.poll() is None:
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
            for child in children.read_text().split() if children.exists() else ():
                if child not in watched:
                    watched[child] = Peak(child)
                    watched[child].start()
            time.sleep(0.01)
        if job.returncode != 0:
            raise SystemExit(f"trun ended with {job.returncode}")
    for number, peak in enumerate(watched.values()):
        print(f"trun rank {number}: most {mib(peak.end())}", flush=True)


def main():
    if sys.argv[1:2] == ["ours"] and len(sys.argv) > 3:
        return ours(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 4)
    if sys.argv[1:2] == ["torch"]:
        import torch.multiprocessing as mp
        ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 4
        return mp.spawn(torch_rank, args=(ranks,), nprocs=ranks)
    raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
