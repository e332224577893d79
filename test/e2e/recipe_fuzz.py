"""Compare training by random recipes and data sets with an equivalent loop in PyTorch: `recipe_fuzz.py --bin build/bin --count 40`.

A draw is a small model, a loss or two, weights of samples, an optimizer with its settings, a schedule, accumulation, clipping,
averages, frozen weights and exempt ones, stages, and a data set whose number of samples is no multiple of the batch, in one of
the formats. The losses of ten
updates and each weight's change are compared with a loop in PyTorch, in f64, or, if PyTorch is not installed, with the
numbers that `--expect FILE` stored in `graphs/recipes.json`. Prints a line for each disagreement, with its seed.
"""
import argparse
import fnmatch
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent / "graphs"
STEPS = 10
LOSS_TOLERANCE = 2e-4       # of the loss, in f32
CHANGE_TOLERANCE = 1e-2     # of a weight's change in ten updates: Adam's first step is a sign, wherever a gradient is small
os.environ["TCC_CACHE_DIR"] = ""

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None


class Draw:
    """Everything that a seed decides: model, recipe, data, and PyTorch's loop."""

    def __init__(self, seed):
        self.seed, self.pick, self.values = seed, random.Random(seed), np.random.default_rng(seed)
        self.kind = self.pick.choice(("classes", "classes", "tokens", "regression", "labels", "column"))
        self.batch = self.pick.choice((2, 4, 8))
        self.samples = self.batch * self.pick.randint(2, 4) + self.pick.randint(0, self.batch - 1)
        self.recipe, self.nodes, self.weights = {}, [], {}
        self.make_model()
        self.make_loss()
        self.make_optimizer()
        self.make_stages()
        self.make_schedule()
        self.make_loop()

    def one_of(self, count):
        return self.pick.randrange(count) == 0

    def normal(self, *shape, scale=1.0):
        return (self.values.standard_normal(shape) * scale).astype(np.float32)

    # Model: a list of layers, which is written in ONNX and evaluated in PyTorch.
    def linear(self, name, x, width, features):
        self.weights[f"{name}.weight"] = self.normal(features, width, scale=width ** -0.5)
        self.weights[f"{name}.bias"] = self.normal(features, scale=0.3)
        turned, product = f"{name}.turned", f"{name}.product"
        self.nodes += [helper.make_node("Transpose", [f"{name}.weight"], [turned], turned, perm=[1, 0]),
                       helper.make_node("MatMul", [x, turned], [product], product),
                       helper.make_node("Add", [product, f"{name}.bias"], [name], name)]
        return name

    def make_model(self):
        self.width, self.features, self.classes = self.pick.choice((3, 6)), self.pick.choice((5, 8)), self.pick.choice((3, 4, 7))
        self.length = self.pick.choice((4, 6))
        if self.kind == "tokens":
            self.weights["embed.weight"] = self.normal(self.classes, self.width)
            self.nodes.append(helper.make_node("Gather", ["embed.weight", "x"], ["found"], "look-up"))
            h = "found"
        else:
            h = "x"
        h = self.linear("first", h, self.width, self.features)
        self.act = self.pick.choice(("Tanh", "Gelu", "Sigmoid", "Softplus"))
        self.nodes.append(helper.make_node(self.act, [h], ["act"], "act"))
        h = "act"
        self.norm = self.one_of(2)
        if self.norm:
            self.weights["norm.weight"], self.weights["norm.bias"] = 1 + self.normal(self.features, scale=0.1), self.normal(self.features, scale=0.1)
            self.nodes.append(helper.make_node("LayerNormalization", [h, "norm.weight", "norm.bias"], ["normed"], "norm", axis=-1, epsilon=1e-5))
            h = "normed"
        self.outputs = 1 if self.kind == "column" else self.classes
        self.nodes.append(helper.make_node("Identity", [self.linear("head", h, self.features, self.outputs)], ["out"], "out"))

    def write_model(self, path):
        tokens = self.kind == "tokens"
        shape = [self.batch, self.length] if tokens else [self.batch, self.width]
        out = [*shape[:-1], self.length, self.outputs] if tokens else [self.batch, self.outputs]
        graph = helper.make_graph(self.nodes, "model", [helper.make_tensor_value_info("x", TensorProto.INT64 if tokens else TensorProto.FLOAT, shape)],
                                  [helper.make_tensor_value_info("out", TensorProto.FLOAT, out)], [numpy_helper.from_array(w, n) for n, w in self.weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)

    def forward(self, w, x):
        h = w["embed.weight"][x] if self.kind == "tokens" else x
        h = F.linear(h, w["first.weight"], w["first.bias"])
        h = act = {"Tanh": torch.tanh, "Gelu": F.gelu, "Sigmoid": torch.sigmoid, "Softplus": F.softplus}[self.act](h)
        if self.norm:
            h = F.layer_norm(h, h.shape[-1:], w["norm.weight"], w["norm.bias"], 1e-5)
        return {"act": act, "out": F.linear(h, w["head.weight"], w["head.bias"])}

    # Loss: the recipe's table, the data columns, and the numerator and denominator of a micro-batch.
    def make_loss(self):
        n, loss = self.samples, {}
        if self.kind == "tokens":
            x = self.values.integers(0, self.classes, (n, self.length))
        else:
            x = self.normal(n, self.width)
        self.columns = {"x": x}
        if self.kind in ("classes", "tokens"):
            loss = {"kind": "cross_entropy"}
            y = self.values.integers(0, self.classes, (n, self.length) if self.kind == "tokens" else (n,))
            if self.kind == "tokens":
                loss["class_axis"] = -1
                loss |= {"shift": True} if self.one_of(2) else {}
            if self.one_of(2):
                ignored = self.pick.choice((-100, -1, 0))
                loss |= {"ignore_index": ignored} if ignored != -100 else {}
                y = np.where(self.values.random(y.shape) < 0.25, ignored, y)
                counted = y[::2, -1] if self.kind == "tokens" else y[::2]     # every batch has targets that count
                counted[counted == ignored] = 1
            if self.one_of(3):
                loss["label_smoothing"] = 0.1
            if self.one_of(3):
                loss["weight"] = [round(0.5 + i / 4, 2) for i in range(self.classes)]
            self.columns["y"] = y.astype(self.pick.choice((np.int64, np.int32)))
        elif self.kind == "labels":
            loss = {"kind": self.pick.choice(("bce_with_logits", "focal"))}
            if loss["kind"] == "bce_with_logits" and self.one_of(2):
                loss["pos_weight"] = [round(0.5 + i / 4, 2) for i in range(self.classes)]
            self.columns["y"] = (self.values.random((n, self.classes)) < 0.4).astype(np.float32)
        else:
            loss = {"kind": self.pick.choice(("mse", "l1", "huber", "smooth_l1"))}
            if loss["kind"] in ("huber", "smooth_l1") and self.one_of(2):
                loss["delta" if loss["kind"] == "huber" else "beta"] = 0.5
            y = self.normal(n, self.outputs)
            self.columns["y"] = y
        self.losses = [loss | {"of": "out", "target": "y"}]
        if self.one_of(3):
            self.add_weights(self.losses[0], "w")
        self.several = self.one_of(4)
        if self.several:
            other = {"kind": self.pick.choice(("mse", "l1", "huber")), "of": "act", "target": "z", "scale": self.pick.choice((0.3, 2.0))}
            if self.one_of(2) or other["kind"] == loss["kind"]:
                other["name"] = "features"
            self.columns["z"] = self.normal(*x.shape[:1 + (self.kind == "tokens")], self.features)
            if self.one_of(3):
                self.add_weights(other, self.pick.choice(("w", "v")))
            if self.one_of(2):
                self.losses[0]["scale"] = 0.5
            self.losses.insert(self.pick.randrange(2), other)
        self.recipe["loss"] = self.losses if self.several else self.losses[0]

    def add_weights(self, loss, column):
        """Adds sample weights. The first sample of every batch has a weight above 0."""
        if column not in self.columns:
            w = self.values.integers(0, 9, self.samples) / 4
            w[::self.batch] += 0.25
            self.columns[column] = w.astype(np.float32)
        loss["sample_weight"] = column

    def parts(self, loss, values, batch):
        """(numerator, denominator) of a micro-batch: the weighted sum of the samples' losses, and the sum of their weights."""
        out, y, w = values[loss["of"]], batch[loss["target"]], batch.get(loss.get("sample_weight"))
        elements, counts = self.elements(loss, out, y)
        if w is not None:
            w = w.reshape(-1, *[1] * (elements.dim() - 1))
            elements, counts = elements * w, counts * w
        return elements.sum(), float(counts.sum())

    def elements(self, loss, out, y):
        """The losses of all samples, [samples, …], and what each adds to the denominator."""
        k = loss["kind"]
        if k == "cross_entropy":
            if loss.get("shift"):
                out, y = out[:, :-1], y[:, 1:]
            ignored = loss.get("ignore_index", -100)
            w = torch.tensor(loss.get("weight", [1.0] * self.classes), dtype=out.dtype)
            found = F.cross_entropy(out.movedim(-1, 1), y, w, ignore_index=ignored, label_smoothing=loss.get("label_smoothing", 0.0), reduction="none")
            return found, torch.where(y == ignored, 0.0, w[torch.where(y == ignored, 0, y)])
        if k == "bce_with_logits":
            p = torch.tensor(loss["pos_weight"], dtype=out.dtype) if "pos_weight" in loss else None
            return F.binary_cross_entropy_with_logits(out, y, pos_weight=p, reduction="none"), torch.ones_like(y)
        if k == "focal":
            p, ce = out.sigmoid(), F.binary_cross_entropy_with_logits(out, y, reduction="none")
            pt = p * y + (1 - p) * (1 - y)
            return (0.25 * y + 0.75 * (1 - y)) * (1 - pt) ** 2 * ce, torch.ones_like(y)
        f = {"mse": F.mse_loss, "l1": F.l1_loss, "huber": lambda *a, **s: F.huber_loss(*a, delta=loss.get("delta", 1.0), **s),
             "smooth_l1": lambda *a, **s: F.smooth_l1_loss(*a, beta=loss.get("beta", 1.0), **s)}[k]
        return f(out, y, reduction="none"), torch.ones_like(y)

    # Optimizer.
    def make_optimizer(self):
        k = self.pick.choice(("sgd", "sgd", "adam", "adamw", "rmsprop", "adagrad"))
        o = {"kind": k, "lr": {"sgd": 0.1, "adam": 0.01, "adamw": 0.01, "rmsprop": 0.005, "adagrad": 0.05}[k]}
        if k == "sgd" and self.one_of(2):
            o["momentum"] = 0.9
            o |= self.pick.choice(({}, {"nesterov": True}, {"dampening": 0.3}))
        if k in ("adam", "adamw") and self.one_of(2):
            o |= self.pick.choice(({"betas": [0.8, 0.95]}, {"eps": 1e-3}, {"amsgrad": True}))
        if k == "rmsprop" and self.one_of(2):
            o |= self.pick.choice(({"alpha": 0.9}, {"momentum": 0.5}, {"centered": True, "eps": 1e-3}))
        if k == "adagrad" and self.one_of(2):
            o |= self.pick.choice(({"lr_decay": 0.1}, {"initial_accumulator_value": 0.2}))
        if k != "sgd":
            o.setdefault("eps", 1e-4)       # large enough that a step does not amplify rounding errors to a full sign
        if self.one_of(2):
            o["weight_decay"] = 0.1
            if self.one_of(2):
                o["decay_exempt"] = self.pick.choice((["@bias"], ["*.bias", "@norm"], ["@1d"]))
        self.groups = []
        if self.one_of(3):
            self.groups = [{"match": ["head.*"], "lr_scale": 0.5}] + ([{"match": ["*.weight"], "weight_decay": 0.02}] if self.one_of(2) else [])
        self.optimizer = o
        self.recipe["optimizer"] = o | ({"group": self.groups} if self.groups else {})
        self.frozen = []
        if self.one_of(3):
            glob, self.frozen = self.pick.choice((("first.*", ["first.weight", "first.bias"]), ("*.bias", [n for n in self.weights if n.endswith(".bias")]),
                                                  ("head.weight", ["head.weight"])))
            self.recipe["model"] = {"frozen": [glob]} if self.one_of(2) else {"trainable": [n for n in self.weights if n not in self.frozen]}

    def group_of(self, name):
        """(lr_scale, weight_decay): from the first group that matches, and then from the exemptions."""
        scale, decay = 1.0, self.optimizer.get("weight_decay", {"adamw": 0.01}.get(self.optimizer["kind"], 0.0))
        exempt = {"@bias": name.endswith(".bias"), "*.bias": name.endswith(".bias"), "@norm": name.startswith("norm."),
                  "@1d": self.weights[name].ndim == 1}
        if any(exempt[g] for g in self.optimizer.get("decay_exempt", [])):
            decay = 0.0
        for g in self.groups:
            if (g["match"] == ["head.*"] and name.startswith("head.")) or (g["match"] == ["*.weight"] and name.endswith(".weight")):
                return g.get("lr_scale", 1.0), g.get("weight_decay", decay)
        return scale, decay

    def make_stages(self):
        """Stages that each train some weights; some weights may stay frozen after the last one."""
        self.stages = []
        if not self.one_of(4):
            return
        trained = [n for n in self.weights if n not in self.frozen]
        globs = [g for g in ("head.*", "first.*", "*.weight", "*.bias", "*") if any(fnmatch.fnmatchcase(n, g) for n in trained)]
        until = 0
        for last in (False,) * self.pick.choice((1, 1, 2)) + (True,):
            stage = {"trainable": self.pick.sample(globs, min(len(globs), self.pick.choice((1, 1, 2))))}
            until += self.pick.choice((2, 3))
            stage |= {} if last else {"until": until}
            stage |= {"lr_scale": self.pick.choice((0.3, 2.0))} if self.one_of(2) else {}
            self.stages.append(stage)
        self.recipe["stage"] = self.stages

    def stage_of(self, t):
        """(names of the weights that update `t` trains, counted from 0; the factor of its rate)."""
        trained = [n for n in self.weights if n not in self.frozen]
        stage = next((s for s in self.stages if t < s.get("until", STEPS)), {"trainable": ["*"]})
        return [n for n in trained if any(fnmatch.fnmatchcase(n, g) for g in stage["trainable"])], stage.get("lr_scale", 1.0)

    def make_schedule(self):
        s = {"kind": self.pick.choice(("constant", "linear", "cosine", "step", "multi_step", "exponential", "polynomial", "inverse_sqrt"))}
        if self.one_of(2):
            s["warmup_steps"] = self.pick.choice((2, 3))
            s |= {"warmup_from": "zero"} if self.one_of(3) else {}
        if s["kind"] in ("linear", "cosine", "polynomial"):
            s |= {"min_lr_scale": 0.1} if self.one_of(2) else {}
            s |= {"total_steps": 8} if self.one_of(3) else {}
        s |= {"step": {"step_size": 3}, "multi_step": {"milestones": [2, 5], "gamma": 0.5}, "exponential": {"gamma": 0.9}, "polynomial": {"power": 2}}.get(s["kind"], {})
        self.schedule = s
        if s["kind"] != "constant" or len(s) > 1:
            self.recipe["schedule"] = s

    def factor(self, t):
        s = self.schedule
        k, w, m = s["kind"], s.get("warmup_steps", 0), s.get("min_lr_scale", 0.0)
        if t < w:
            return t / w if s.get("warmup_from") == "zero" else (t + 1) / w
        u, total = t - w, s.get("total_steps", STEPS) - w
        d = 1.0 if total <= 0 else min(u, total) / total
        return {"constant": lambda: 1.0, "linear": lambda: 1 + (m - 1) * d, "cosine": lambda: m + (1 - m) * (1 + math.cos(math.pi * d)) / 2,
                "polynomial": lambda: m + (1 - m) * (1 - d) ** s.get("power", 1), "step": lambda: s.get("gamma", 0.1) ** (u // s["step_size"]),
                "multi_step": lambda: s["gamma"] ** sum(x <= u for x in s["milestones"]), "exponential": lambda: s["gamma"] ** u,
                "inverse_sqrt": lambda: math.sqrt(max(1, w) / (max(1, w) + u))}[k]()

    def make_loop(self):
        train, data = {}, {}
        # With several losses, a denominator that depends on the data is needed before the backward pass, which excludes accumulation.
        self.pads = self.one_of(2)
        counts = self.several and (self.pads or any(v["kind"] == "cross_entropy" or "sample_weight" in v for v in self.losses))
        self.accumulate = 1 if counts else self.pick.choice((1, 1, 2, 3))
        if self.accumulate > 1:
            train["accumulate"] = self.accumulate
        self.clip = self.pick.choice((None, None, ("clip_norm", 0.1), ("clip_value", 0.02)))
        if self.clip:
            train[self.clip[0]] = self.clip[1]
        if self.pads:
            data["last"] = "pad"
        self.ema = 0.9 if self.one_of(4) else None
        if self.ema:
            train["ema"] = {"decay": self.ema}
        if train:
            self.recipe["train"] = train
        if data:
            self.recipe["data"] = data
        self.format = self.pick.choice(("safetensors", "npz", "folder"))

    def write_data(self, folder):
        if self.format == "safetensors":
            safetensors.numpy.save_file(self.columns, folder / "data.safetensors")
            return folder / "data.safetensors"
        if self.format == "npz":
            np.savez(folder / "data.npz", **self.columns)
            return folder / "data.npz"
        (folder / "columns").mkdir()
        for name, column in self.columns.items():
            np.save(folder / "columns" / f"{name}.npy", column)
        return folder / "columns"

    def write_recipe(self, path):
        def value(v):
            if isinstance(v, dict):
                return "{ " + ", ".join(f"{k} = {value(x)}" for k, x in v.items()) + " }"
            if isinstance(v, list):
                return "[" + ", ".join(value(x) for x in v) + "]"
            return json.dumps(v)
        path.write_text("".join(f"{table} = {value(keys)}\n" if isinstance(keys, list) else "".join(f"{table}.{key} = {value(v)}\n" for key, v in keys.items())
                                for table, keys in self.recipe.items()))

    # PyTorch's loop.
    def windows(self):
        """For each update its micro-batches of samples, in order and again from the start at the end; windows do not cross epochs."""
        updates = []
        while len(updates) < STEPS:
            batches = [range(i, min(i + self.batch, self.samples)) for i in range(0, self.samples, self.batch)]
            if not self.pads:
                batches = [b for b in batches if len(b) == self.batch]
            updates += [batches[i:i + self.accumulate] for i in range(0, len(batches), self.accumulate)]
        return updates[:STEPS]

    def train_in_torch(self):
        w = {n: torch.tensor(v, dtype=torch.float64, requires_grad=n not in self.frozen) for n, v in self.weights.items()}
        trained = [n for n in w if n not in self.frozen]
        average = {n: w[n].detach().clone() for n in trained}
        o = self.optimizer
        groups = []
        for n in trained:
            scale, decay = self.group_of(n)
            groups.append({"params": [w[n]], "lr": o["lr"] * scale, "base": o["lr"] * scale, "weight_decay": decay})
        keys = {k: (tuple(v) if isinstance(v, list) else v) for k, v in o.items() if k not in ("kind", "lr", "weight_decay", "decay_exempt")}
        optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop,
                     "adagrad": torch.optim.Adagrad}[o["kind"]](groups, lr=o["lr"], **keys)
        losses = []
        for t, window in enumerate(self.windows()):
            optimizer.zero_grad()
            unfrozen, scale = self.stage_of(t)
            for n in trained:
                w[n].requires_grad_(n in unfrozen)
            top, bottom = [0.0] * len(self.losses), [0.0] * len(self.losses)
            for rows in window:
                batch = {n: torch.tensor(v[list(rows)]) for n, v in self.columns.items()}
                batch = {n: v.double() if v.is_floating_point() else v.long() for n, v in batch.items()}
                values = self.forward(w, batch["x"])
                for i, loss in enumerate(self.losses):
                    numerator, denominator = self.parts(loss, values, batch)
                    top[i], bottom[i] = top[i] + numerator, bottom[i] + denominator
            total = sum(loss.get("scale", 1.0) * a / b for loss, a, b in zip(self.losses, top, bottom))
            total.backward()
            losses.append(float(total.detach()))
            if self.clip and self.clip[0] == "clip_norm":
                torch.nn.utils.clip_grad_norm_([w[n] for n in unfrozen], self.clip[1])
            elif self.clip:
                torch.nn.utils.clip_grad_value_([w[n] for n in unfrozen], self.clip[1])
            for g in optimizer.param_groups:
                g["lr"] = g["base"] * self.factor(t) * scale
            optimizer.step()
            for n in trained:
                average[n] += (1 - (self.ema or 0)) * (w[n].detach() - average[n])
        final = {n: v.detach().numpy() for n, v in w.items()}
        return {"losses": losses, "changes": self.changes(final), "averages": self.changes(final | {n: v.numpy() for n, v in average.items()}) if self.ema else None}

    def changes(self, final):
        """The norm of each weight's change, and its product with one direction."""
        found = {}
        for n, before in self.weights.items():
            d = (np.asarray(final[n], np.float64) - before).ravel()
            found[n] = [float(f"{np.linalg.norm(d):.7g}"), float(f"{d @ np.cos(0.37 * np.arange(d.size)):.7g}")]
        return found


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr.strip()


def differ(found, wanted, before):
    for n, (norm, along) in wanted.items():
        got, direction = found[n]
        floor = 3e-7 * float(np.linalg.norm(before[n])) * STEPS + 1e-9
        if abs(got - norm) > CHANGE_TOLERANCE * norm + floor or abs(direction - along) > CHANGE_TOLERANCE * norm * before[n].size ** 0.5 + floor:
            return f"{n} changed by {got:.5g} (direction {direction:.5g}), not {norm:.5g} ({along:.5g})"
    return ""


def check(options, seed, expected):
    """"" or what is wrong."""
    draw = Draw(seed)
    wanted = draw.train_in_torch() if torch else expected[str(seed)]
    with tempfile.TemporaryDirectory(prefix="recipes-") as folder:
        folder = pathlib.Path(folder)
        draw.write_model(folder / "m.onnx")
        draw.write_recipe(folder / "r.toml")
        data = draw.write_data(folder)
        status, text = run(options.bin / "tcc", folder / "m.onnx", "--recipe", folder / "r.toml", "-o", folder / "m.tplan", "--quiet")
        if not status:
            status, text = run(options.bin / "trun", folder / "m.tplan", "--data", data, "--no-shuffle", "--steps", STEPS, "--out", folder / "run", "--no-release")
        exports = [("changes", []), *([("averages", ["--ema"])] if draw.ema else [])]
        for name, words in exports:
            if not status:
                status, text = run(options.bin / "trun", "export", folder / "run", "-o", folder / f"{name}.safetensors", *words)
        recipe = (folder / "r.toml").read_text().replace("\n", "; ")
        if options.keep:
            shutil.copytree(folder, pathlib.Path(options.keep) / str(seed), dirs_exist_ok=True)
        if status:
            return f"exit status {status}: {text[-400:]} [{recipe}]"
        losses = [v["loss"] for v in map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines()) if "loss" in v]
        for step, (got, want) in enumerate(zip(losses, wanted["losses"]), 1):
            if not abs(got - want) <= LOSS_TOLERANCE * max(abs(want), 1e-3):
                return f"loss of update {step}: {got:.7g}, not {want:.7g} [{recipe}]"
        for name, _ in exports:
            final = safetensors.numpy.load_file(folder / f"{name}.safetensors")
            if problem := differ(draw.changes(draw.weights | final), wanted[name], draw.weights):
                return f"{name}: {problem} [{recipe}]"
    return "" if len(losses) == STEPS else f"{len(losses)} losses"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--keep", metavar="FOLDER", help="leave models, recipes, data and runs there")
    parser.add_argument("--expect", metavar="FILE", help="write PyTorch's numbers of these seeds there, and end")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    if options.expect:
        pathlib.Path(options.expect).write_text("{\n" + ",\n".join(f'"{s}": {json.dumps(Draw(s).train_in_torch())}' for s in seeds) + "\n}\n")
        return 0
    expected = {} if torch else json.loads((HERE / "recipes.json").read_text())
    wrong = 0
    for seed in seeds:
        if problem := check(options, seed, expected):
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
    print(f"{len(seeds)} draws from seed {options.first} trained as PyTorch trains them, {wrong} disagree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
