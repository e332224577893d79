"""Without torch: an ONNX file, a recipe of keys, and a data set in a file."""
import tempfile
from pathlib import Path

import numpy as np

import tcc

folder, losses = Path(tempfile.mkdtemp()), []
x = np.random.default_rng(1).standard_normal((160, 16), np.float32)
np.savez(folder / "train.npz", x=x, labels=x[:, :4].argmax(1))
plan = tcc.compile(Path(__file__).with_name("classifier.onnx"), batch=32, recipe={
    "loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels",
    "optimizer.kind": "adamw", "optimizer.lr": 0.02, "optimizer.weight_decay": 0.01})
t = tcc.Trainer(plan)
t.fit(folder / "train.npz", epochs=3, out=folder / "run", shuffle=False,
      callbacks=[lambda event: losses.append(event.update.loss) if event.update else None])
t.export(folder / "trained.onnx")
