"""Makes the exports beside it, and what torch's optimizers do to their module: make.py (torch 2.15, onnx, safetensors).

The module has an example of each way in which an exporter stores a parameter differently from torch: linear layers, wide, tall and
square; a matrix multiplied as it is and one transposed; vectors that are stored with extents of 1; a layer of two directions.
The script removes notes with paths in them; the exporters' other notes stay.
"""
import json
import warnings
from pathlib import Path

import onnx
import torch
from safetensors.torch import save_file
from torch import nn

warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent
BATCH, STEPS, LR, DECAY = 4, 12, 0.02, 0.1
KEPT = ("pkg.torch.onnx.name_scopes", "folded_from", "InputSpec.kind")


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.square = nn.Linear(6, 24), nn.Linear(24, 6), nn.Linear(5, 5)
        self.plain, self.turned = nn.Parameter(torch.randn(6, 10) * 0.3), nn.Parameter(torch.randn(5, 10) * 0.3)
        self.scale, self.act = nn.Parameter(torch.randn(5)), nn.PReLU(5)
        self.rnn = nn.LSTM(5, 4, batch_first=True, bidirectional=True)
        self.out = nn.Linear(8, 3, bias=False)

    def forward(self, x):
        x = x + self.down(torch.tanh(self.up(x)))
        x = x @ self.plain @ self.turned.t()
        x = self.act(x.transpose(1, 2) * self.scale[:, None]).transpose(1, 2)
        return self.out(self.rnn(self.square(x))[0])


class Lamb(torch.optim.Optimizer):
    """arXiv:1904.00962, algorithm 2, with the identity for phi."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": LR, "weight_decay": DECAY})
        self.updates = 0

    @torch.no_grad()
    def step(self):
        self.updates += 1
        for p in self.param_groups[0]["params"]:
            state = self.state.setdefault(p, {"m": torch.zeros_like(p), "v": torch.zeros_like(p)})
            state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
            state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            r = (state["m"] / (1 - 0.9**self.updates)) / ((state["v"] / (1 - 0.999**self.updates)).sqrt() + 1e-6) + DECAY * p
            ratio = p.norm() / r.norm() if p.norm() > 0 and r.norm() > 0 else 1.0
            p.sub_(LR * ratio * r)


def optimizers(model, kind):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    if kind == "lamb":
        return [Lamb(model.parameters())]
    return [torch.optim.Muon(matrices, lr=LR, weight_decay=DECAY, adjust_lr_fn=kind),
            torch.optim.AdamW(others, lr=LR, weight_decay=DECAY)]


def export(name, model, x, **options):
    path = HERE / f"{name}.onnx"
    torch.onnx.export(model, (x,), path, input_names=["x"], output_names=["y"], **options)
    proto = onnx.load(path)
    for item in [*proto.graph.node, *proto.graph.value_info]:
        item.ClearField("doc_string")
        kept = [p for p in item.metadata_props if p.key.endswith(KEPT) or
                p.key.endswith("fx_node") and item.op_type in ("MatMul", "Gemm")]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
    del proto.graph.metadata_props[:], proto.metadata_props[:]
    onnx.save(proto, path)


if __name__ == "__main__":
    torch.manual_seed(0)
    module = Module().train()
    start = {k: v.clone() for k, v in module.state_dict().items()}
    x, target = torch.randn(STEPS * BATCH, 3, 6), torch.randn(STEPS * BATCH, 3, 3)
    save_file({"x": x, "target": target}, HERE / "data.safetensors")
    training = torch.onnx.TrainingMode.TRAINING
    export("dynamo", module, x[:BATCH], dynamo=True, external_data=False, verbose=False)
    export("dynamo-unoptimized", module, x[:BATCH], dynamo=True, optimize=False, external_data=False, verbose=False)
    export("torchscript-folded", module, x[:BATCH], dynamo=False, training=training, do_constant_folding=True)
    losses = {}
    for kind in ("original", "match_rms_adamw", "lamb"):
        module.load_state_dict(start)
        steppers, losses[kind] = optimizers(module, kind), []
        for i in range(0, STEPS * BATCH, BATCH):
            module.zero_grad()
            loss = nn.functional.mse_loss(module(x[i:i + BATCH]), target[i:i + BATCH])
            loss.backward()
            losses[kind].append(loss.item())
            for stepper in steppers:
                stepper.step()
    (HERE / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")
