"""The loader beside torchvision's ImageFolder and DataLoader: `loader.py LOADER_BENCH TAR [SECONDS] [--photos]`.

Needs torch and torchvision. Unpacks the tar for ImageFolder; both read images that are in the page cache. Three rounds,
taking turns; prints medians of images a second and of images for each second of processor time, by workload.

With --photos the tar's images are first put together to 2,000 JPEGs of 500×375, whose sizes and bytes are about
those of photographs, and the workloads are those of ImageNet; one of them reads data.cache.
"""
import io
import json
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import torch
from PIL import Image
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
TO_224 = f"[{{ kind = 'random_resized_crop', size = 224 }}, {{ kind = 'horizontal_flip' }}, {NORMALISE}]"
AFTER_256 = f"[{{ kind = 'resize', size = 256 }}, {{ kind = 'random_crop', size = 224 }}, {{ kind = 'horizontal_flip' }}, {NORMALISE}]"
RESIZED = [transforms.Resize(256), transforms.RandomCrop(224), transforms.RandomHorizontalFlip(), *TAIL]
PHOTOS = {
    "resized crop to 224, flip": (TO_224, [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *TAIL]),
    "resize to 256, crop to 224, flip": (AFTER_256, RESIZED),
    "the same from data.cache": (AFTER_256, RESIZED),
}
BATCH = 128


def torchvision(folder, steps, workers, seconds):
    """The first batches, during which its processes start, are not counted. Processor time is measured with one process."""
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


def make_photos(tar, path):
    """Writes mosaics of the tar's small images, enlarged twofold: 500 × 375 pixels, two classes."""
    with tarfile.open(tar) as file:
        small = [Image.open(io.BytesIO(file.extractfile(m).read())).convert("RGB") for m in file if m.name.endswith((".jpg", ".jpeg", ".png"))][:5000]
    with tarfile.open(path, "w") as out:
        for number in range(2000):
            photo = Image.new("RGB", (512, 384))
            for place in range(48):
                photo.paste(small[(number * 48 + place) % len(small)].resize((64, 64), Image.BICUBIC), (place % 8 * 64, place // 8 * 64))
            data = io.BytesIO()
            photo.crop((0, 0, 500, 375)).save(data, "JPEG", quality=95)
            member = tarfile.TarInfo(f"photos/{'ab'[number % 2]}/{number:04}.jpg")
            member.size = data.tell()
            data.seek(0)
            out.addfile(member, data)


def ours(bench, tar, tables, workers, seconds, cache=()):
    return json.loads(subprocess.run([bench, tar, tables, str(workers), str(BATCH), str(seconds), *cache], check=True,
                                     capture_output=True, text=True).stdout)


def main():
    photos = "--photos" in sys.argv
    words = [word for word in sys.argv if word != "--photos"]
    bench, tar, seconds = words[1], words[2], float(words[3]) if len(words) > 3 else 5
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kept:
        if photos:
            make_photos(tar, f"{kept}/photos.tar")
            tar = f"{kept}/photos.tar"
        with tarfile.open(tar) as file:
            file.extractall(folder, filter="data")
        root = next(p for p in [pathlib.Path(folder), *pathlib.Path(folder).iterdir()] if any(c.is_dir() for c in p.iterdir()))
        print("| workload | workers | images/s | torchvision | ratio | images a core-second | torchvision | ratio |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for name, (tables, steps) in (PHOTOS if photos else WORKLOADS).items():
            for workers in (1, 2):
                cache = [f"{kept}/cache"] if name.endswith("data.cache") else []
                rounds = [(ours(bench, tar, tables, workers, seconds, cache), torchvision(root, steps, workers, seconds))
                          for _ in range(3)]
                row = f"| {name} | {workers} |"
                for key in ("images_per_s", "images_per_core_s"):
                    a, b = (statistics.median(r[side][key] for r in rounds) for side in (0, 1))
                    row += f" {a:.0f} | {b:.0f} | {a / b:.1f} |"
                print(row, flush=True)


if __name__ == "__main__":
    main()
