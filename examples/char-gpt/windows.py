"""The samples of a text, as trun cuts them: consecutive windows, the target one character later, the tail held out."""
import itertools
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
BATCH, CONTEXT, EVAL_SPLIT = 16, 128, 0.1
WORD, GOLDEN = (1 << 64) - 1, 0x9E3779B97F4A7C15


def samples():
    """(training ids, training labels, evaluation ids, evaluation labels), each [windows, CONTEXT] int64."""
    text = (FOLDER / "shakespeare.txt").read_bytes().decode()
    place = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = np.array([place[c] for c in text], np.int64)
    boundary = int(len(tokens) * (1 - EVAL_SPLIT))
    return *cut(tokens[:boundary]), *cut(tokens[boundary:])


def cut(tokens):
    count = (len(tokens) - 1) // CONTEXT
    return tokens[:count * CONTEXT].reshape(count, CONTEXT), tokens[1:count * CONTEXT + 1].reshape(count, CONTEXT)


def mix(value):
    """SplitMix64's finaliser."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & WORD
    return value ^ value >> 31


def order(count, seed, epoch):
    """trun's permutation of [0, count): six Feistel rounds over the bits of count - 1, again until the image is smaller."""
    key = mix(mix(seed + GOLDEN & WORD) + (epoch + 1) * GOLDEN & WORD)
    half = ((count - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    for index in range(count):
        while True:
            left, right = index >> half, index & mask
            for turn in range(1, 7):
                left, right = right, left ^ mix(key + turn * GOLDEN + mix(right) & WORD) & mask
            index = left << half | right
            if index < count:
                break
        yield index


def batches(count, seed):
    """Rows of one batch after the other, without end; an epoch's last, shorter batch is dropped."""
    for epoch in itertools.count():
        rows = np.fromiter(order(count, seed, epoch), np.int64)
        for first in range(0, count - BATCH + 1, BATCH):
            yield rows[first:first + BATCH]


def mean_cross_entropy(logits, ids, labels):
    """Mean loss over every window; `logits` maps one batch of ids to [BATCH, CONTEXT, classes]. The last batch is filled up
    with its first window, which does not count."""
    total = 0.0
    for first in range(0, len(ids), BATCH):
        batch, target = ids[first:first + BATCH], labels[first:first + BATCH]
        real = len(batch)
        if real < BATCH:
            batch = np.concatenate([batch, np.repeat(batch[:1], BATCH - real, 0)])
        value = np.asarray(logits(batch), np.float64)[:real]
        value -= value.max(-1, keepdims=True)
        chosen = np.take_along_axis(value, target[..., None], -1)[..., 0]
        total += float((np.log(np.exp(value).sum(-1)) - chosen).sum())
    return total / labels.size
