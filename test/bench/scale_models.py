"""Graphs of language models for `tcc predict-scale`, without their weights: `scale_models.py [--weights] FOLDER [NAME]...`

A small GPT to be measured (`--weights`, which also writes its data), GPT-2 124M, and the 125M, 1B and 7B models of llm-foundry's benchmark tables (learned positions, biases, tied embeddings). The
weights are named as external data that is never written, so a 7B model takes no memory: torch traces fake tensors.
Needs torch, onnx and onnxscript.
"""
import argparse
import contextlib
from pathlib import Path

import onnx_ir as ir
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

SIZES = {  # layers, heads, width, vocabulary, context, batch
    "gpt-14m": (6, 6, 384, 8192, 128, 4),
    "gpt2-124m": (12, 12, 768, 50257, 1024, 8),
    "gpt-125m": (12, 12, 768, 50368, 2048, 26),
    "gpt-1b": (24, 16, 2048, 50368, 2048, 10),
    "gpt-7b": (32, 32, 4096, 50368, 2048, 18),
}


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def write(name, path, weights, batch):
    layers, heads, width, vocabulary, context, usual = SIZES[name]
    batch = batch or usual
    with contextlib.nullcontext() if weights else FakeTensorMode(allow_non_fake_inputs=True):
        model = Gpt(layers, heads, width, vocabulary, context)
        ids = torch.zeros((batch, context), dtype=torch.int64)
        program = torch.onnx.export(model, (ids,), dynamo=True, optimize=False, input_names=["ids"], output_names=["logits"],
                                    verbose=False)
    if weights:
        program.save(path)
        from safetensors.torch import save_file
        tokens = torch.randint(vocabulary, (64 * batch, context))
        save_file({"ids": tokens, "labels": tokens.clone()}, path.with_suffix(".safetensors"))
        return
    offset = 0
    for value in program.model.graph.initializers.values():
        shape = list(value.shape)
        if value.dtype == ir.DataType.FLOAT and shape:
            length = 4 * torch.Size(int(extent) for extent in shape).numel()
            value.const_value = ir.ExternalTensor("absent.bin", offset, length, value.dtype, shape=value.shape, name=value.name)
            offset += length
    ir.save(program.model, path)
    print(f"{path}: {offset // 4:,} parameters")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", action="store_true")
    parser.add_argument("--batch", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(SIZES)[1:])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for each in given.names:
        write(each, given.folder / f"{each}.onnx", given.weights, given.batch)
