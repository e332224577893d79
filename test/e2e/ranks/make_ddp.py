"""Makes the cases of test_ranks.py and test_shards.py that PyTorch computes: `make_ddp.py FOLDER [CASE…]` with torch, onnx,
onnxscript and safetensors installed.

Each case trains a small model for 8 updates on two ranks of torch's DistributedDataParallel over gloo, in f32, or of FSDP
(`fully_shard`), which shards parameters, gradients and optimizer state: rank r takes the r-th batch of each pair. The folder of a case gets the exported model, the batches, the recipe, the losses (the mean of
both ranks') and the state that PyTorch ends with.
"""
import json
import os
import sys
from pathlib import Path

import onnx
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS = 2, 8


class BatchNormNet(nn.Module):
    """Convolutions with BatchNorm, whose statistics are each rank's own; the buffers are rank 0's."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
                                  nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        return self.head(self.body(image).mean(dim=(2, 3)))


class UnusedParts(nn.Module):
    """A classifier with a layer that nothing reads, an embedding of which few rows are, and targets that do not count."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 12)
        self.unused = nn.Linear(12, 12)
        self.first = nn.Linear(12, 24)
        self.second = nn.Linear(24, 7)

    def forward(self, ids):
        return self.second(torch.tanh(self.first(self.embedding(ids)))).transpose(1, 2)


class Attention(nn.Module):
    """One block of a transformer, trained with AdamW and clipping."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48, bias=False)  # the gradient of a bias of keys is only rounding error
        self.out = nn.Linear(16, 30)

    def forward(self, ids):
        x = self.embedding(ids)
        q, k, v = (part.view(*ids.shape, 2, 8).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + mixed.transpose(1, 2).flatten(2)).transpose(1, 2)


class Tied(nn.Module):
    """Two blocks of a transformer, whose output layer is the table of tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(29, 16)  # no multiple of the ranks
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(16)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(self.norm(x), self.embedding.weight).transpose(1, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 40), nn.Linear(40, 16)

    def forward(self, x):
        shape = (*x.shape[:2], 2, 8)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GroupNormNet(nn.Module):
    """Convolutions whose channels are no multiple of the ranks."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 9, 3, padding=1), nn.GroupNorm(3, 9), nn.SiLU(), nn.Conv2d(9, 7, 3, stride=2))
        self.head = nn.Linear(7, 5)

    def forward(self, image):
        return self.head(torch.relu(self.body(image)).mean(dim=(2, 3)))


def images(generator):
    return {"image": torch.randn(4, 2, 8, 8, generator=generator), "target": torch.randint(0, 5, (4,), generator=generator)}


def tokens(vocabulary, classes, ignored):
    def make(generator):
        target = torch.randint(0, classes, (4, 6), generator=generator)
        target[torch.rand(4, 6, generator=generator) < ignored] = -100  # ranks count different numbers of targets
        return {"ids": torch.randint(0, vocabulary, (4, 6), generator=generator), "target": target}
    return make


CASES = {
    "batch-norm": (BatchNormNet, "image", images, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
                   'kind = "sgd"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.01', '[model]\nbatch_norm = "train"\n', None),
    "unused": (UnusedParts, "ids", tokens(40, 7, 0.4), lambda p: torch.optim.SGD(p, lr=0.5), 'kind = "sgd"\nlr = 0.5', "", None),
    "attention": (Attention, "ids", tokens(30, 30, 0.0), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
                  'kind = "adamw"\nlr = 0.01\nweight_decay = 0.1', "[train]\nclip_norm = 0.5\n", 0.5),
    "sharded-tied": (Tied, "ids", tokens(29, 29, 0.3), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
                     'kind = "adamw"\nlr = 0.01\nweight_decay = 0.1', "[train]\nclip_norm = 0.5\n", 0.5),
    "sharded-convolutions": (GroupNormNet, "image", images, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
                             'kind = "sgd"\nlr = 0.1\nmomentum = 0.9', "", None),
}


def is_sharded(name):
    return name.startswith("sharded-")


def strip_traces(path):
    """Removes the notes that name files of this machine."""
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [note for note in node.metadata_props if "trace" not in note.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def batches_of(make):
    generator = torch.Generator().manual_seed(7)
    return [make(generator) for _ in range(RANKS * STEPS)]


def train(rank, name, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    model_class, column, make, optimizer_of, _, _, clip = CASES[name]
    torch.manual_seed(3)
    model = model_class().train()
    if is_sharded(name):
        for block in model.modules():
            if isinstance(block, Block):
                fully_shard(block)
        wrapped = fully_shard(model)
    else:
        wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = optimizer_of(model.parameters())
    losses = []
    for step in range(STEPS):
        batch = batches_of(make)[RANKS * step + rank]
        loss = nn.functional.cross_entropy(wrapped(batch[column]), batch["target"])
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)) if is_sharded(name) else model.state_dict()
    if rank == 0:
        (folder / "expected.json").write_text(json.dumps({"torch": torch.__version__, "loss": losses}) + "\n")
        save_file({key: value for key, value in state.items() if value.is_floating_point()},
                  str(folder / "state.safetensors"))
    dist.barrier()
    dist.destroy_process_group()


def main(root, names):
    for name in names or CASES:
        model_class, column, make, _, optimizer, more, _ = CASES[name]
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        batches = batches_of(make)
        torch.manual_seed(3)
        model = model_class().eval()
        torch.onnx.export(model, (batches[0][column],), str(folder / "model.onnx"), input_names=[column],
                          output_names=["logits"], dynamo=True, optimize=False, external_data=False)
        strip_traces(folder / "model.onnx")
        save_file({key: torch.cat([batch[key] for batch in batches]).contiguous() for key in batches[0]},
                  str(folder / "data.safetensors"))
        (folder / "recipe.toml").write_text(
            f'{more}[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "target"\n\n[optimizer]\n{optimizer}\n\n'
            + ('[parallel]\nmode = "full"\nranks = 2\naverage = "ranks"\n' if is_sharded(name) else
               '[parallel]\nmode = "ddp"\naverage = "ranks"\n'))
        mp.spawn(train, args=(name, folder), nprocs=RANKS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
