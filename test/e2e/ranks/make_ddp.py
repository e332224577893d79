"""Makes the cases of test_ranks.py: `make_ddp.py FOLDER` with torch, onnx, onnxscript and safetensors installed.

Each case trains a small model for 8 updates on two ranks of torch's DistributedDataParallel over gloo, in f32: rank r takes
the r-th batch of each pair. The folder of a case gets the exported model, the batches, the recipe, the losses (the mean of
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
        self.qkv = nn.Linear(16, 48, bias=False)  # the gradient of a bias of keys is rounding alone
        self.out = nn.Linear(16, 30)

    def forward(self, ids):
        x = self.embedding(ids)
        q, k, v = (part.view(*ids.shape, 2, 8).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + mixed.transpose(1, 2).flatten(2)).transpose(1, 2)


def images(generator):
    return {"image": torch.randn(4, 2, 8, 8, generator=generator), "target": torch.randint(0, 5, (4,), generator=generator)}


def tokens(vocabulary, classes, ignored):
    def make(generator):
        target = torch.randint(0, classes, (4, 6), generator=generator)
        target[torch.rand(4, 6, generator=generator) < ignored] = -100  # ranks count differently many targets
        return {"ids": torch.randint(0, vocabulary, (4, 6), generator=generator), "target": target}
    return make


CASES = {
    "batch-norm": (BatchNormNet, "image", images, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
                   'kind = "sgd"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.01', '[model]\nbatch_norm = "train"\n', None),
    "unused": (UnusedParts, "ids", tokens(40, 7, 0.4), lambda p: torch.optim.SGD(p, lr=0.5), 'kind = "sgd"\nlr = 0.5', "", None),
    "attention": (Attention, "ids", tokens(30, 30, 0.0), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
                  'kind = "adamw"\nlr = 0.01\nweight_decay = 0.1', "[train]\nclip_norm = 0.5\n", 0.5),
}


def strip_traces(path):
    """Without the notes that name files of this machine."""
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
    if rank == 0:
        (folder / "expected.json").write_text(json.dumps({"torch": torch.__version__, "loss": losses}) + "\n")
        save_file({key: value for key, value in model.state_dict().items() if value.is_floating_point()},
                  str(folder / "state.safetensors"))
    dist.barrier()
    dist.destroy_process_group()


def main(root):
    for name, (model_class, column, make, _, optimizer, more, _) in CASES.items():
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
            '[parallel]\nmode = "ddp"\naverage = "ranks"\n')
        mp.spawn(train, args=(name, folder), nprocs=RANKS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
