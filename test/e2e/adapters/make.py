"""Makes the exports in this folder, and the results of peft for their module: make.py (torch 2.15, peft 0.21, onnx, onnxscript, numpy).

The module is a small transformer that reads matrices in each way in which exporters store them: linear layers, with and
without a bias, and the transposed ones of transformers' Conv1D. expected.json holds 50 losses of each way of training;
initial/ and final/ are the adapter as peft writes it, before and after; state.json has the hash of every tensor of the
module's state_dict. `make.py check WEIGHTS.safetensors ADAPTER_FOLDER` loads files that trun exported strictly into the
module, and into peft. Notes that hold paths are removed from the exports; the exporters' other notes stay.
"""
import copy
import hashlib
import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent
BATCH, LENGTH, WIDTH, WORDS, STEPS, LR = 4, 12, 24, 40, 50, 5e-3
RANK, ALPHA = 4, 8
TARGETS, SAVED = ["c_attn", "c_proj", "up", "down"], ["ln_f"]
KEPT = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node", "folded_from", "InputSpec.kind", "InputSpec.persistent")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = Conv1D(3 * WIDTH, WIDTH), Conv1D(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (t.view(BATCH, LENGTH, 2, WIDTH // 2).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + self.c_proj(y)
        return x + self.down(functional.silu(self.up(self.ln_2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.empty(LENGTH, WIDTH))
        self.h = nn.ModuleList(Block() for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def make_model():
    torch.manual_seed(0)
    model = Model()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.25 + (p.ndim == 1) * (p == 1))
    return model


def make_data():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, WORDS, (4 * BATCH, LENGTH + 1))
    ids[:, 1::2] = (ids[:, 0:-1:2] * 7 + 3) % WORDS  # something to learn
    return {"ids": torch.from_numpy(ids[:, :-1].copy()), "labels": torch.from_numpy(ids[:, 1:].copy())}


def adapted(model):
    torch.manual_seed(1)
    return get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, modules_to_save=SAVED))


def train(model, data):
    """50 updates of AdamW, and the loss before each of them."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        batch = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
        loss = functional.cross_entropy(model(data["ids"][batch]).flatten(0, 1), data["labels"][batch].flatten())
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def checksum(t):
    return float((t.double() * torch.cos(0.37 * torch.arange(t.numel(), dtype=torch.double)).view(t.shape)).sum())


def export(model, ids, name, **options):
    path = HERE / f"{name}.onnx"
    torch.onnx.export(model, (ids[:BATCH],), str(path), input_names=["ids"], output_names=["logits"], **options)
    strip(path)


def strip(path):
    """Removes notes that hold paths, and stores external data in the model file."""
    graph = onnx.load(path)
    for holder in (graph, graph.graph, *graph.graph.node, *graph.graph.value_info, *graph.graph.input, *graph.graph.output,
                   *graph.graph.initializer):
        if hasattr(holder, "doc_string"):
            holder.doc_string = ""
        kept = [p for p in holder.metadata_props if any(p.key.endswith(k) for k in KEPT)]
        del holder.metadata_props[:]
        holder.metadata_props.extend(kept)
    path.with_name(path.name + ".data").unlink(missing_ok=True)
    onnx.save(graph, path)


def keep_adapter(model, folder):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)


def round_to_int8(model):
    """Rounds each matrix and table to 8 bits with a scale for each output channel or row. Positions, which are added, are kept."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Linear, nn.Embedding, Conv1D)):
                w = module.weight
                scale = w.abs().amax(0 if isinstance(module, Conv1D) else 1, keepdim=True) / 127
                w.copy_(torch.round(w / scale).clamp(-127, 127) * scale)
    return model


def main():
    torch.set_num_threads(1)
    model, data = make_model(), make_data()
    save_file(data, HERE / "data.safetensors")
    (HERE / "state.json").write_text(json.dumps({
        name: {"shape": list(t.shape), "sha256": hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest()}
        for name, t in model.state_dict().items()}, indent=1) + "\n")
    export(model.eval(), data["ids"], "dynamo", dynamo=True)
    export(model.eval(), data["ids"], "torchscript", dynamo=False)
    model.train()
    peft = adapted(copy.deepcopy(model))
    keep_adapter(peft, HERE / "initial")
    expected = {"f32": train(peft, data)}
    keep_adapter(peft, HERE / "final")
    merged = copy.deepcopy(peft).merge_and_unload().state_dict()
    expected["merged"] = {name: checksum(t) for name, t in merged.items()}
    # PyTorch's own spread: the same training in f64, and with other block sizes of products.
    double = adapted(copy.deepcopy(model)).double()
    expected["f64"] = train(double, data)
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for p in rounded.parameters():
            if p.ndim > 1:
                p.copy_(p.bfloat16())
    expected["bf16"] = train(adapted(rounded), data)
    expected["int8"] = train(adapted(round_to_int8(copy.deepcopy(model))), data)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def check(weights, adapter):
    model = make_model()
    print(model.load_state_dict(load_file(weights), strict=True))
    loaded = PeftModel.from_pretrained(make_model(), adapter)
    names = {n for n, _ in loaded.named_parameters()}
    given = load_file(Path(adapter) / "adapter_model.safetensors")
    for name, tensor in given.items():
        kept = name.replace("lora_A.weight", "lora_A.default.weight").replace("lora_B.weight", "lora_B.default.weight")
        kept = kept if kept in names else kept.replace("ln_f.", "ln_f.modules_to_save.default.")
        assert torch.equal(loaded.get_parameter(kept), tensor), name
    print(f"peft took {len(given)} tensors")
    ids = make_data()["ids"][:BATCH]
    print("merged weights and the adapter agree to", float((loaded.eval()(ids) - model.eval()(ids)).abs().max()))


if __name__ == "__main__":
    check(*sys.argv[2:]) if sys.argv[1:2] == ["check"] else main()
