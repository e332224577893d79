"""Makes the data sets of docs/guide/recipes.md by rule, small enough for a try: every file is the same on every machine.

    python make_data.py NAME [FOLDER]

Writes the files into FOLDER (default: the current folder). It needs numpy, and Pillow for images.
"""
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SHAPES = ("circle", "cross", "ring", "square")


def stencil(shape, size, rng):
    """An array of `size` x `size` booleans: true where a pixel belongs to the shape."""
    r, (cy, cx) = rng.uniform(0.2, 0.3) * size, rng.uniform(0.35, 0.65, 2) * size
    y, x = np.mgrid[:size, :size] + 0.5
    dy, dx = np.abs(y - cy), np.abs(x - cx)
    away = np.hypot(dy, dx)
    return {"circle": away < r, "ring": (away < r) & (away > 0.55 * r), "square": np.maximum(dy, dx) < 0.85 * r,
            "cross": (np.maximum(dy, dx) < r) & (np.minimum(dy, dx) < 0.3 * r)}[shape]


def picture(where, rng):
    """RGB bytes: a colour on another one, with noise."""
    dark, bright = rng.integers(0, 110, 3), rng.integers(145, 256, 3)
    ground, shape = (dark, bright) if rng.random() < 0.5 else (bright, dark)
    return np.clip(np.where(where[..., None], shape, ground) + rng.normal(0, 12, (*where.shape, 3)), 0, 255).astype(np.uint8)


def images(folder, shapes=SHAPES, train=160, test=40):
    """Class folders of PNG files: train/circle/000.png …"""
    from PIL import Image
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("test", test)):
        for shape in shapes if count else ():
            place = folder / part / shape
            place.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                Image.fromarray(picture(stencil(shape, 36, rng), rng)).save(place / f"{i:03}.png", compress_level=1)


def finetune(folder):
    """Three of the shapes, 27 of each."""
    images(folder, SHAPES[1:], 27, 0)


def text(folder):
    """train.bin and test.bin: shakespeare.txt (of examples/char-gpt) as 16-bit tokens, one a character; the last tenth is for the test."""
    letters = (HERE / "shakespeare.txt").read_text()
    write_tokens(folder, letters, letters)


def capitals(folder):
    """The same files and numbers of characters, all in capitals: other text for a model that has learned the first."""
    letters = (HERE / "shakespeare.txt").read_text()
    write_tokens(folder, letters.upper(), letters)


def write_tokens(folder, letters, alphabet):
    number = {c: i for i, c in enumerate(sorted(set(alphabet)))}
    tokens = np.array([number[c] for c in letters], np.uint16)
    cut = len(tokens) * 9 // 10
    tokens[:cut].tofile(folder / "train.bin")
    tokens[cut:].tofile(folder / "test.bin")


def bert(folder):
    """Sentences of 8 to 24 words, padded with 0; word 1 begins each. The label: which of three topics has the most words."""
    rng = np.random.default_rng(1)
    for part, count in (("train", 2048), ("test", 512)):
        label = rng.integers(0, 3, count)
        ids = np.zeros((count, 24), np.int64)
        lengths = rng.integers(8, 25, count)
        for row, (topic, length) in enumerate(zip(label, lengths)):
            topics = np.where(rng.random(length - 1) < 0.4, topic, rng.integers(0, 4, length - 1))  # 3: words of no topic
            ids[row, 0], ids[row, 1:length] = 1, 2 + topics * 15 + rng.integers(0, 15, length - 1)
        np.savez(folder / f"{part}.npz", input_ids=ids, attention_mask=(ids > 0).astype(np.int64), label=label)


def segmentation(folder):
    """image [N, 3, 36, 36] and mask [N, 36, 36], bytes: 0 is the ground, 1 a circle, 2 a cross."""
    rng = np.random.default_rng(2)
    for part, count in (("train", 256), ("test", 64)):
        image, mask = np.empty((count, 3, 36, 36), np.uint8), np.zeros((count, 36, 36), np.uint8)
        for i in range(count):
            where, kind = stencil(SHAPES[i % 2], 36, rng), 1 + i % 2
            image[i], mask[i] = picture(where, rng).transpose(2, 0, 1), where * kind
        np.savez(folder / f"{part}.npz", image=image, mask=mask)


def series(folder):
    """Windows of three series over 40 steps: 32 to look at, and the next 8 values of the first one."""
    rng = np.random.default_rng(3)
    t = np.arange(2400)
    first = np.sin(t / 7) + 0.5 * np.sin(t / 3.1 + 1)
    values = np.stack([first, np.cos(t / 7), np.sin(t / 3.1)], 1) + rng.normal(0, 0.05, (len(t), 3))
    windows = np.lib.stride_tricks.sliding_window_view(values.astype(np.float32), 40, axis=0).swapaxes(1, 2)
    for part, rows in (("train", windows[:1900]), ("test", windows[1940:])):  # the test begins where no training window reaches
        np.savez(folder / f"{part}.npz", history=rows[:, :32], future=rows[:, 32:, 0])
    np.savez(folder / "one.npz", history=windows[-32:, :32])   # a batch to predict


def tabular(folder):
    """customers.csv: six numbers, two categories, what a customer pays, and a rare outcome."""
    rng = np.random.default_rng(4)
    n = 4000
    numbers, city, plan = rng.normal(size=(n, 6)), rng.integers(0, 12, n), rng.integers(0, 4, n)
    score = 1.5 * numbers[:, 0] - numbers[:, 1] * numbers[:, 2] + np.array([-1, 0, 0.5, 1.5])[plan] + (city % 3 == 0) - 2.6
    churned = rng.random(n) < 1 / (1 + np.exp(-2 * score))
    revenue = 5 + 10 * plan + rng.exponential(20, n)
    with open(folder / "customers.csv", "w") as out:
        print(*(f"numbers.{i}" for i in range(6)), "city", "plan", "revenue", "churned", sep=",", file=out)
        for row in range(n):
            print(*(f"{v:.4f}" for v in numbers[row]), city[row], plan[row], f"{revenue[row]:.2f}", int(churned[row]), sep=",", file=out)


DATA = {"images": images, "finetune": finetune, "text": text, "capitals": capitals, "bert": bert, "segmentation": segmentation, "series": series,
        "tabular": tabular}

if __name__ == "__main__":
    place = Path(sys.argv[2] if len(sys.argv) > 2 else ".")
    place.mkdir(parents=True, exist_ok=True)
    DATA[sys.argv[1]](place)
