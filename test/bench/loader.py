"""The loader beside torchvision's ImageFolder and DataLoader: `loader.py LOADER_BENCH TAR [SECONDS]`.

Needs torch and torchvision. Unpacks the tar for ImageFolder; both read images that are in the page cache. Three rounds,
taking turns; prints medians of images a second and of images for each second of processor time, by workload.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import torch
from torchvision import datasets, transforms

MEAN, STD = [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]
NORMALISE = f"{{ kind = 'normalise', mean = {MEAN}, std = {STD} }}"
TAIL = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
WORKLOADS = {
    "decode": (f"[{NORMALISE}]", TAIL),
    "crop and flip": (f"[{{ kind = 'random_crop', size = 32, padding = 4 }}, {{ kind = 'horizontal_flip' }}, {NORMALISE}]",
                      [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), *TAIL]),
    "resized crop to 64, jitter": (f"[{{ kind = 'random_resized_crop', size = 64 }}, {{ kind = 'color_jitter', brightness = 0.4, "
                                   f"contrast = 0.4, saturation = 0.4 }}, {NORMALISE}]",
                                   [transforms.RandomResizedCrop(64), transforms.ColorJitter(0.4, 0.4, 0.4), *TAIL]),
    "rand_augment": (f"[{{ kind = 'rand_augment' }}, {NORMALISE}]", [transforms.RandAugment(), *TAIL]),
}
BATCH = 128


def torchvision(folder, steps, workers, seconds):
    """The first batches, in which its processes start, are not counted; processor time is that of one process alone."""
    def measure(count, clock):
        loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder, transforms.Compose(steps)), BATCH, shuffle=True,
                                             num_workers=count)
        begin, images = None, 0
        for number, (batch, _) in enumerate(loader):
            if number == 2 * max(count, 1):
                begin, started = clock(), time.monotonic()
            elif begin is not None:
                images += len(batch)
                if time.monotonic() - started > seconds:
                    break
        return images / (clock() - begin)
    return {"images_per_s": measure(workers, time.monotonic), "images_per_core_s": measure(0, time.process_time)}


def ours(bench, tar, tables, workers, seconds):
    return json.loads(subprocess.run([bench, tar, tables, str(workers), str(BATCH), str(seconds)], check=True,
                                     capture_output=True, text=True).stdout)


def main():
    bench, tar, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 5
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(tar) as file:
            file.extractall(folder, filter="data")
        root = next(p for p in [pathlib.Path(folder), *pathlib.Path(folder).iterdir()] if any(c.is_dir() for c in p.iterdir()))
        print("| workload | workers | images/s | torchvision | ratio | images a core-second | torchvision | ratio |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for name, (tables, steps) in WORKLOADS.items():
            for workers in (1, 2):
                rounds = [(ours(bench, tar, tables, workers, seconds), torchvision(root, steps, workers, seconds))
                          for _ in range(3)]
                row = f"| {name} | {workers} |"
                for key in ("images_per_s", "images_per_core_s"):
                    a, b = (statistics.median(r[side][key] for r in rounds) for side in (0, 1))
                    row += f" {a:.0f} | {b:.0f} | {a / b:.1f} |"
                print(row, flush=True)


if __name__ == "__main__":
    main()
