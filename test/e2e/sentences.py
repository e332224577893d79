"""Sentences of 2 to 32 words, and a model that averages their words' embeddings, for plans of several shapes."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import models

WORDS, WIDTH, CLASSES, SAMPLES = 50, 16, 3, 101
BUCKETS = [(8, 8), (4, 16), (2, 32)]  # batch, words
SHAPES = "[model]\nbuckets = [" + ", ".join(f"{{ batch = {batch}, seq = {seq} }}" for batch, seq in BUCKETS) + "]\n"


def sentence_model(path):
    """ids [batch, seq], mask [batch, seq] → logits [batch, 3]."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["found"], "look-up"),
             helper.make_node("Unsqueeze", ["mask", "last"], ["wide"], "widen"),
             helper.make_node("Mul", ["found", "wide"], ["masked"], "masked"),
             helper.make_node("ReduceSum", ["masked", "rows"], ["sum"], "sum", keepdims=0),
             helper.make_node("ReduceSum", ["mask", "rows"], ["count"], "count", keepdims=1),
             helper.make_node("Div", ["sum", "count"], ["mean"], "mean"),
             helper.make_node("Gemm", ["mean", "w", "b"], ["logits"], "head", transB=1)]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"]),
              helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "seq"])]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
                              [numpy_helper.from_array(value, name) for name, value in weights().items()] +
                              [numpy_helper.from_array(np.array([axis]), name) for name, axis in (("last", 2), ("rows", 1))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def weights():
    return {"table": models.random(1, WORDS, WIDTH) * 4, "w": models.random(2, CLASSES, WIDTH) * 4, "b": models.random(3, CLASSES)}


class Sentences:
    """Sentences of 2 to 32 words."""

    def __init__(self, samples=SAMPLES, longest=32):
        rng = np.random.default_rng(7)
        self.lengths = rng.integers(2, longest + 1, samples)
        self.lengths[:2] = 2, longest
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.words = rng.integers(0, WORDS, self.offsets[-1])
        self.labels = np.array([self.of(i).sum() % CLASSES for i in range(samples)])

    def of(self, i):
        return self.words[self.offsets[i]:self.offsets[i + 1]]

    def columns(self):
        """Ragged: rows of all samples, and offsets."""
        return {"ids": self.words, "ids.offsets": self.offsets, "mask": np.ones(len(self.words), np.float32),
                "mask.offsets": self.offsets, "labels": self.labels}

    def padded(self, samples, length):
        """The inputs of a batch in one shape."""
        ids, mask = np.zeros((len(samples), length), np.int64), np.zeros((len(samples), length), np.float32)
        for row, i in enumerate(samples):
            kept = self.of(i)[:length]
            ids[row, :len(kept)], mask[row, :len(kept)] = kept, 1
        return {"ids": ids, "mask": mask, "labels": self.labels[list(samples)]}

    def batches(self, ranks=1, pad=False):
        """An epoch without shuffling: samples gather by the shortest shape that holds them."""
        open_, made = [[] for _ in BUCKETS], []
        for i, length in enumerate(self.lengths):
            shape = next(s for s, (_, longest) in enumerate(BUCKETS) if length <= longest)
            open_[shape].append(i)
            if len(open_[shape]) == BUCKETS[shape][0] * ranks:
                made.append(open_[shape])
                open_[shape] = []
        return made + ([rest for rest in open_ if len(rest) >= ranks] if pad else [])
