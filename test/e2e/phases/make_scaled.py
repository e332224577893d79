"""Makes scaled.*, and gan-adapter/: phases with one GradScaler, and with peft's LoRA.

    python make_scaled.py          (torch 2.15, peft 0.21, onnx, onnxscript, safetensors)

One GradScaler serves both optimizers of an actor and critic: each steps unless its own gradients are infinite or NaN, and the factor is
updated once a round. In some batches the derivative of a square root at 0 makes the gradients of one phase NaN, or those of both.
The GAN's four linear layers get adapters; each optimizer has those of its network. scaled.json holds the losses of both.
"""
import json
import shutil
from pathlib import Path

import onnx
import safetensors.torch
import torch
from onnx import numpy_helper
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F

import make

HERE = Path(__file__).resolve().parent
STEPS, BATCHES, SCALER = 32, 8, {"init_scale": 1024.0, "growth_interval": 2}
BAD = {"critic": (2, 7), "actor": (5, 7)}  # batches


class Overflowing(make.ActorCritic):
    def forward(self, observation, action, reward, critic, actor):
        x = self.trunk(observation)
        value = self.value(x)[:, 0]
        chosen = F.log_softmax(self.policy(x), 1).gather(1, action[:, None])[:, 0]
        return (F.mse_loss(value, reward) + (value * critic).square().sum().sqrt(),
                -(chosen * (reward - value.detach())).mean() + (chosen * actor).square().sum().sqrt())


def exported(name, model):
    weights = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in onnx.load(HERE / f"{name}.onnx").graph.initializer}
    model.load_state_dict({k: weights[k] if k in weights else v for k, v in model.state_dict().items()})
    return model.train()


def scaled():
    torch.manual_seed(4)
    model, n = Overflowing().train(), 16 * BATCHES
    data = {"observation": torch.randn(n, 6), "action": torch.randint(3, (n,)), "reward": torch.randn(n)}
    for name, batches in BAD.items():
        data[name] = torch.full((n,), 0.01)
        for batch in batches:
            data[name][16 * batch:16 * batch + 16] = 0
    safetensors.torch.save_file(data, HERE / "scaled.safetensors")
    path = HERE / "scaled.onnx"
    torch.onnx.export(model, tuple(c[:16] for c in data.values()), str(path), dynamo=True, optimize=False, external_data=False,
                      verbose=False, opset_version=20, input_names=list(data), output_names=["critic_loss", "actor_loss"])
    onnx.save(make.without_traces(onnx.load(path)), path)
    scaler = torch.amp.GradScaler("cpu", **SCALER)
    own = {"critic": (0, ("trunk.", "value."), lambda p: torch.optim.Adam(p, 3e-3), None),
           "actor": (1, ("trunk.", "policy."), lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1), 0.5)}
    parts = {name: ([p for n, p in model.named_parameters() if n.startswith(prefix)], make) for name, (_, prefix, make, _) in own.items()}
    optimizers = {name: make(parameters) for name, (parameters, make) in parts.items()}
    result = {"scale": [], **{f"{what}.{name}": [] for name in own for what in ("loss", "skipped")}}
    skipped = dict.fromkeys(own, 0)
    for step in range(STEPS):
        begin = step % BATCHES * 16
        batch = [column[begin:begin + 16] for column in data.values()]
        result["scale"].append(scaler.get_scale())
        for name, (output, _, _, clip) in own.items():
            loss, optimizer = model(*batch)[output], optimizers[name]
            optimizer.zero_grad()
            for parameter, gradient in zip(parts[name][0], torch.autograd.grad(scaler.scale(loss), parts[name][0])):
                parameter.grad = gradient
            scaler.unscale_(optimizer)
            skipped[name] += not all(p.grad.isfinite().all() for p in parts[name][0])
            if clip:
                nn.utils.clip_grad_norm_(parts[name][0], clip)
            scaler.step(optimizer)
            result[f"loss.{name}"].append(loss.item())
            result[f"skipped.{name}"].append(skipped[name])
        scaler.update()
    return result


def adapters():
    torch.manual_seed(3)
    make.STEPS = 30
    layers = ["generator.0", "generator.3", "discriminator.0", "discriminator.2"]
    model = get_peft_model(exported("gan", make.Gan()), LoraConfig(r=1, lora_alpha=4, target_modules=layers))
    data = safetensors.torch.load_file(HERE / "gan.safetensors")
    for folder in ("initial", "final"):
        shutil.rmtree(HERE / "gan-adapter" / folder, ignore_errors=True)
    model.save_pretrained(HERE / "gan-adapter" / "initial")
    # In f64: where a gradient nearly vanishes, Adam's direction is rounding, and f32 results of PyTorch itself differ by 8e-6.
    model.double()
    prefix = "base_model.model."
    phases = {"d": (0, prefix + "discriminator.", 1, lambda p: torch.optim.Adam(p, 1e-2, (0.5, 0.999)), None, None),
              "g": (1, prefix + "generator.", 2, lambda p: torch.optim.Adam(p, 2e-2, (0.5, 0.999)), None, None)}
    original = model.named_parameters
    model.named_parameters = lambda: ((n, p) for n, p in original() if p.requires_grad)
    losses = make.train(model, {key: data[key].double() for key in ("real", "z")}, phases)
    del model.named_parameters
    model.float()
    model.save_pretrained(HERE / "gan-adapter" / "final")
    for folder in ("initial", "final"):
        (HERE / "gan-adapter" / folder / "README.md").unlink(missing_ok=True)
    return losses


if __name__ == "__main__":
    torch.set_num_threads(1)
    expected = {"scaler": SCALER, "scaled": scaled(), "adapters": adapters()}
    (HERE / "scaled.json").write_text(json.dumps(expected, indent=0) + "\n")
