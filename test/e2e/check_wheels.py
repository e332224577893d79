"""Wheels in an environment of their own: `check_wheels.py DIST` installs the runtime's, and the compiler's if it is there, and trains.

`check_wheels.py SOURCE` does it with `pip install SOURCE`, a source tree. Plans come from the compiler's wheel, else from build/bin/tcc.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import models
from common import BIN

TRAINING = """
import sys
import tcc
import numpy as np
plan = tcc.compile(sys.argv[1], {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels", "optimizer.lr": 0.01})
trainer = tcc.Trainer(plan)
rng = np.random.default_rng(0)
x, labels = rng.standard_normal((32, 16)).astype(np.float32), rng.integers(0, 10, 32)
losses = [trainer.step(x, labels).loss for _ in range(50)]
assert losses[-1] < losses[0], losses
print("trained", tcc.__file__)
"""


def main():
    place = Path(sys.argv[1]).resolve()
    if (place / "pyproject.toml").exists():
        wheels = [place]
    else:
        wheels = sorted(place.glob("tcc_train-*.whl")) + sorted(place.glob("tcc_train_compiler-*.whl"))
    assert wheels, f"no wheels in {place}"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        subprocess.run(["/usr/bin/python3", "-m", "venv", folder / "env"], check=True)
        # Beside build/, so that the compiler cache knows the objects of a source tree.
        options = [f"--config-settings=build-dir={place}/build-source"] if wheels == [place] else []
        subprocess.run([folder / "env/bin/pip", "install", "--quiet", *options, *wheels], check=True, stdin=subprocess.DEVNULL)
        model = models.classifier(folder / "m.onnx", 32, 16, 10)
        bare = {"PATH": "/usr/bin:/bin", "TCC_CACHE_DIR": ""} | ({} if len(wheels) > 1 else {"TCC_PROGRAM": str(BIN / "tcc")})
        done = subprocess.run([folder / "env/bin/python", "-c", TRAINING, model], cwd="/", env=bare, check=True, capture_output=True, text=True)
        assert str(folder) in done.stdout, done.stdout
        for command in ("trun", "tcc", "tcc-plan")[:len(wheels) * 2 - 1]:
            text = subprocess.run([folder / "env/bin" / command, "--version"], env=bare, check=True, capture_output=True, text=True).stdout
            assert text.startswith(command + " "), text
    print("the source tree works" if wheels == [place] else f"{len(wheels)} wheels work")


if __name__ == "__main__":
    main()
