"""Writes model.onnx: a character GPT of about a million parameters with random weights, as torch's exporter gives it.

    python export.py [model.onnx]

Needs torch, onnx and onnxscript. The result lies beside this script, so that nobody needs torch to run the example.
"""
import sys
import warnings
from pathlib import Path

import onnx
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 65, 144, 4, 4, 128, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.c_proj(y)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class CharGPT(nn.Module):
    """GPT-2's architecture: learned positions, layer norm first, the token embedding also reads out the logits."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


@torch.no_grad()
def initialise(model):
    """Normal weights, smaller where a block adds to the residual stream, as GPT-2 does; wider than GPT-2's, since the model
    is narrower. Then a little noise on everything: an exporter merges tensors that are equal (all the ones and zeros of the
    layer norms), and merged weights would be trained as one."""
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            p.zero_()
        elif "ln_" not in name:
            residual = "c_proj" in name or "c_out" in name
            nn.init.normal_(p, std=0.1 if name.startswith("w") else 0.05 / (2 * LAYERS) ** 0.5 if residual else 0.05)
        p += 1e-4 * torch.randn_like(p)


def without_traces(model):
    """Drops what shows the exporting machine (stack traces, doc strings)."""
    graph = model.graph
    for holder in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        holder.ClearField("doc_string")
        kept = [(p.key, p.value) for p in holder.metadata_props if "stack_trace" not in p.key]
        holder.ClearField("metadata_props")
        for key, value in kept:
            holder.metadata_props.add(key=key, value=value)
    return model


def main():
    warnings.filterwarnings("ignore")
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "model.onnx"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = CharGPT().train()
    initialise(model)
    ids = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    torch.onnx.export(model, (ids,), str(path), dynamo=True, optimize=False, external_data=False, verbose=False,
                      opset_version=20, input_names=["ids"], output_names=["logits"])
    onnx.save(without_traces(onnx.load(path)), path)
    count = sum(p.numel() for p in model.parameters())
    print(f"{path.name}: {count:,} parameters, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
