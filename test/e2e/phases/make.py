"""Makes the files in this folder: three models that are trained by alternating optimizers, their data, and PyTorch's results of 50 steps.

    python make.py          (torch 2.15, onnx, onnxscript, safetensors)

Each step is one round of the recipe's phases on one batch: a phase runs the whole module, takes the gradient of its loss with
respect to its parameters alone, and lets its own optimizer step. Batches are read in order, again and again.
"""
import json
import warnings
from pathlib import Path

import onnx
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
STEPS, BATCHES = 50, 4


class Gan(nn.Module):
    """Points on a ring. The generator has a batch norm, whose statistics each phase updates, and no bias before it, whose
    gradient would be only rounding error."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, real, z):
        fake = self.generator(z)
        true, false = self.discriminator(real), self.discriminator(fake.detach())
        d_loss = F.softplus(-true).mean() + F.softplus(false).mean()
        return d_loss, F.softplus(-self.discriminator(fake)).mean()


class ActorCritic(nn.Module):
    """One trunk under a policy and a value; both phases train it, each with moments of its own."""

    def __init__(self):
        super().__init__()
        self.trunk, self.policy, self.value = nn.Sequential(nn.Linear(6, 12), nn.Tanh()), nn.Linear(12, 3), nn.Linear(12, 1)

    def forward(self, observation, action, reward):
        x = self.trunk(observation)
        value = self.value(x)[:, 0]
        chosen = F.log_softmax(self.policy(x), 1).gather(1, action[:, None])[:, 0]
        return F.mse_loss(value, reward), -(chosen * (reward - value.detach())).mean()


class Factors(nn.Module):
    """Alternating minimisation: one loss, two phases."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(20, 3), nn.Embedding(15, 3)

    def forward(self, user, item, rating):
        return F.mse_loss((self.users(user) * self.items(item)).sum(1), rating)


def ring(count):
    angle = torch.rand(count) * 6.28
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def cases():
    n = 16 * BATCHES
    yield ("gan", Gan(), {"real": ring(n), "z": torch.randn(n, 4)}, ["d_loss", "g_loss"],
           {"d": (0, "discriminator.", 1, lambda p: torch.optim.Adam(p, 1e-3, (0.5, 0.999)), None, None),
            "g": (1, "generator.", 2, lambda p: torch.optim.Adam(p, 2e-3, (0.5, 0.999)), lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.98), None)})
    yield ("actor-critic", ActorCritic(),
           {"observation": torch.randn(n, 6), "action": torch.randint(3, (n,)), "reward": torch.randn(n)}, ["critic_loss", "actor_loss"],
           {"critic": (0, ("trunk.", "value."), 1, lambda p: torch.optim.Adam(p, 3e-3), None, None),
            "actor": (1, ("trunk.", "policy."), 1, lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1), None, 0.5)})
    yield ("factors", Factors(), {"user": torch.randint(20, (n,)), "item": torch.randint(15, (n,)), "rating": torch.randn(n)}, ["loss"],
           {"users": (0, "users.", 1, lambda p: torch.optim.SGD(p, 0.2, momentum=0.9), None, None),
            "items": (0, "items.", 1, lambda p: torch.optim.SGD(p, 0.1), None, None)})


def train(model, data, phases):
    parts = {}
    for name, (output, prefix, every, optimizer, schedule, clip) in phases.items():
        parameters = [p for n, p in model.named_parameters() if n.startswith(prefix)]
        made = optimizer(parameters)
        parts[name] = (output, parameters, every, made, schedule(made) if schedule else None, clip)
    losses = {name: [] for name in phases}
    for step in range(1, STEPS + 1):
        begin = (step - 1) % BATCHES * 16
        batch = [column[begin:begin + 16] for column in data.values()]
        for name, (output, parameters, every, optimizer, schedule, clip) in parts.items():
            if step % every:
                continue
            outputs = model(*batch)
            loss = outputs[output] if isinstance(outputs, tuple) else outputs
            optimizer.zero_grad()
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
                parameter.grad = gradient
            if clip:
                nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
            if schedule:
                schedule.step()
            losses[name].append(loss.item())
    return losses


def without_traces(model):
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
    torch.set_num_threads(1)
    torch.manual_seed(0)
    expected = {}
    for name, model, data, outputs, phases in cases():
        model.train()
        path = HERE / f"{name}.onnx"
        torch.onnx.export(model, tuple(c[:16] for c in data.values()), str(path), dynamo=True, optimize=False, external_data=False,
                          verbose=False, opset_version=20, input_names=list(data), output_names=outputs)
        onnx.save(without_traces(onnx.load(path)), path)
        losses = train(model, data, phases)
        safetensors.torch.save_file({k: v.contiguous() for k, v in data.items()}, HERE / f"{name}.safetensors")
        safetensors.torch.save_file({k: v.contiguous() for k, v in model.state_dict().items() if v.is_floating_point()}, HERE / f"{name}-after.safetensors")
        expected[name] = losses
    (HERE / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
