#!/usr/bin/env python3
"""Train a ResNet-9 on CIFAR-10 in PyTorch by the recipe of cifar10.toml, and write the model that trun starts from.

    cifar10.py export DIR [--width 32] [--batch 256]       # DIR/model.onnx
    cifar10.py torch TRAIN.tar TEST.tar [--width 32] [--epochs 34] [--stop-after 3] -o curve.json
    cifar10.py table RUN curve.json                        # both, epoch by epoch

`--stop-after` ends after so many epochs of the schedule for `--epochs`. The images (JPEGs in class folders of a tar) are decoded once. Each line of
the curve has the epoch's mean loss, the loss and accuracy of the test set with the weights and with the averages, and seconds.
"""
import argparse, copy, io, json, tarfile, time
import numpy as np
import torch, torch.nn.functional as F
from torch_step import resnet9

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def read(path):
    """The images of a tar as u8 [samples, 3, 32, 32], and their classes in the order of the folders' names."""
    from PIL import Image
    images, names = [], []
    with tarfile.open(path) as tar:
        for member in tar:
            if not member.isfile(): continue
            images.append(np.asarray(Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")).transpose(2, 0, 1))
            names.append(member.name.split("/")[-2])
    classes = {name: i for i, name in enumerate(sorted(set(names)))}
    return torch.from_numpy(np.stack(images)), torch.tensor([classes[n] for n in names])


def normalise(images): return (images.float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


class Scaled(torch.nn.Module):
    """Scales the logits down, as in Page's networks for DAWNBench: small logits help large learning rates at the start."""
    def __init__(self, net): super().__init__(); self.net = net
    def forward(self, x): return 0.125 * self.net(x)


def augment(images, numbers):
    """Crops images padded by 4 with zeros, flips, normalises, and cuts out 8 x 8 pixels around a random centre."""
    n = len(images)
    draw = lambda high: torch.randint(high, (n, 1, 1), generator=numbers)
    padded = F.pad(images, (4, 4, 4, 4))
    rows, columns = draw(9) + torch.arange(32).view(1, 32, 1), draw(9) + torch.arange(32).view(1, 1, 32)
    columns = torch.where(draw(2) == 1, columns.flip(2), columns)
    picked = padded[torch.arange(n).view(n, 1, 1), :, rows, columns].permute(0, 3, 1, 2)
    y, x, at = draw(32), draw(32), torch.arange(32)
    hole = (at.view(1, 32, 1) >= y - 4) & (at.view(1, 32, 1) < y + 4)
    hole = hole & ((at.view(1, 1, 32) >= x - 4) & (at.view(1, 1, 32) < x + 4))
    return normalise(picked).masked_fill(hole.unsqueeze(1), 0)


@torch.no_grad()
def evaluate(net, images, labels):
    net.eval()
    out = torch.cat([net(normalise(part)) for part in images.split(500)])
    net.train()
    return {"loss": F.cross_entropy(out, labels, label_smoothing=0.1).item(), "accuracy": (out.argmax(1) == labels).float().mean().item()}


def train(o):
    images, labels = read(o.train)
    test = read(o.test)
    torch.manual_seed(o.seed)
    net = Scaled(resnet9(o.width))
    average = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = len(images) // o.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=o.epochs * steps, pct_start=0.2, div_factor=25,
                                                   final_div_factor=100, cycle_momentum=False)
    numbers = torch.Generator().manual_seed(o.seed)
    curve, updates = [], 0
    for epoch in range(o.stop_after or o.epochs):
        start, total = time.time(), 0.0
        order = torch.randperm(len(images), generator=numbers)
        for i in range(steps):
            picked = order[i * o.batch:(i + 1) * o.batch]
            loss = F.cross_entropy(net(augment(images[picked], numbers)), labels[picked], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            updates += 1
            decay = min(0.995, (1 + updates) / (10 + updates))
            with torch.no_grad():
                for e, w in zip(average.parameters(), net.parameters()): e.lerp_(w, 1 - decay)
        for e, w in zip(average.buffers(), net.buffers()): e.copy_(w)
        seconds = time.time() - start
        line = {"epoch": epoch + 1, "loss": total / steps, "seconds": round(seconds, 1),
                "eval": evaluate(net, *test), "ema": evaluate(average, *test)}
        print(json.dumps(line), flush=True)
        curve.append(line)
        with open(o.output, "w") as f:
            json.dump({"torch": torch.__version__, "width": o.width, "batch": o.batch, "epochs": o.epochs, "seed": o.seed, "curve": curve}, f,
                      indent=1)


def export(o):
    import os
    os.makedirs(o.folder, exist_ok=True)
    torch.manual_seed(o.seed)
    torch.onnx.export(Scaled(resnet9(o.width)), (torch.zeros(o.batch, 3, 32, 32),), os.path.join(o.folder, "model.onnx"), dynamo=False,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17, input_names=["image"],
                      output_names=["logits"])


def table(o):
    with open(o.curve) as file: theirs = {line["epoch"]: line for line in json.load(file)["curve"]}
    with open(o.run_folder + "/metrics.jsonl") as file: lines = [json.loads(line) for line in file]
    percent = lambda share: f"{100 * share:.2f} %"
    print("| epoch | loss | PyTorch | accuracy | PyTorch | accuracy of averages | PyTorch |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for line in lines:
        if "eval_accuracy" not in line: continue
        epoch = line["epoch"]
        losses = [update["loss"] for update in lines if "loss" in update and update["epoch"] == epoch]
        ours = [f"{sum(losses) / len(losses):.3f}", percent(line["eval_accuracy"]), percent(line["ema_eval_accuracy"])]
        peer = theirs.get(epoch)
        peer = [f"{peer['loss']:.3f}", percent(peer["eval"]["accuracy"]), percent(peer["ema"]["accuracy"])] if peer else [""] * 3
        print("|", epoch, "|", " | ".join(cell for pair in zip(ours, peer) for cell in pair), "|")


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sub = a.add_subparsers(required=True)
    e = sub.add_parser("export"); e.add_argument("folder"); e.set_defaults(run=export)
    t = sub.add_parser("torch"); t.add_argument("train"); t.add_argument("test"); t.add_argument("-o", "--output", required=True); t.set_defaults(run=train)
    t.add_argument("--epochs", type=int, default=34); t.add_argument("--stop-after", type=int, default=0)
    b = sub.add_parser("table"); b.add_argument("run_folder", metavar="RUN"); b.add_argument("curve"); b.set_defaults(run=table)
    for s in (e, t):
        s.add_argument("--width", type=int, default=32); s.add_argument("--batch", type=int, default=256); s.add_argument("--seed", type=int, default=0)
    o = a.parse_args()
    o.run(o)
