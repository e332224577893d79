"""Quantised models for the end-to-end tests, made by onnxruntime's quantiser when a test asks for them."""
import contextlib
import io
import logging

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import models

BATCH, CLASSES = 16, 4


def cnn_weights():
    return {"conv1.weight": models.random(1, 8, 1, 3, 3), "conv1.bias": models.random(2, 8),
            "conv2.weight": models.random(3, 8, 8, 3, 3) * 0.5, "conv2.bias": models.random(4, 8),
            "fc.weight": models.random(5, CLASSES, 8), "fc.bias": models.random(6, CLASSES)}


def cnn(path, weights=None, residual=True):
    """x [16, 1, 8, 8] → logits [16, 4], with every kind of node that the quantiser treats specially."""
    node = helper.make_node
    nodes = [node("Conv", ["x", "conv1.weight", "conv1.bias"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
             node("Relu", ["c1"], ["r1"], "relu1"),
             node("MaxPool", ["r1"], ["p1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", ["p1", "conv2.weight", "conv2.bias"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
             node("Relu", ["c2"], ["r2"], "relu2"),
             *([node("Add", ["r2", "p1"], ["a"], "add")] if residual else []),
             node("GlobalAveragePool", ["a" if residual else "r2"], ["g"], "average"),
             node("Flatten", ["g"], ["f"], "flatten"),
             node("Gemm", ["f", "fc.weight", "fc.bias"], ["logits"], "fc", transB=1)]
    return models.save(path, nodes, {"x": [BATCH, 1, 8, 8]}, {"logits": [BATCH, CLASSES]}, weights or cnn_weights())


def images(batches, seed=7):
    """Noisy images of four classes, each with another bright quadrant."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, batches * BATCH)
    x = rng.standard_normal((batches * BATCH, 1, 8, 8)).astype(np.float32) * 0.7
    for i, label in enumerate(y):
        row, column = 4 * (label // 2), 4 * (label % 2)
        x[i, 0, row:row + 4, column:column + 4] += 0.6 + 0.6 * label
    return {"x": x, "labels": y.astype(np.int64)}


def recurrent(path):
    """ids [16, 6] → logits [16, 4]: a table, an LSTM, a product."""
    node = helper.make_node
    nodes = [node("Gather", ["table", "ids"], ["e"], "look-up"),
             node("Transpose", ["e"], ["t"], "turn", perm=[1, 0, 2]),
             node("LSTM", ["t", "W", "R", "B"], ["", "h"], "lstm", hidden_size=8),
             node("Squeeze", ["h", "zero"], ["s"], "squeeze"),
             node("MatMul", ["s", "head"], ["m"], "head"),
             node("Add", ["m", "bias"], ["logits"], "add")]
    weights = {"table": models.random(1, 10, 6), "W": models.random(2, 1, 32, 6), "R": models.random(3, 1, 32, 8),
               "B": models.random(4, 1, 64), "head": models.random(5, 8, CLASSES), "bias": models.random(6, CLASSES),
               "zero": np.array([0], np.int64)}
    models.save(path, nodes, {}, {"logits": [BATCH, CLASSES]}, weights)
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [BATCH, 6]))
    onnx.save(model, path)
    return path


def transformer(path):
    """ids [16, 6] → logits [16, 4] by onnxruntime's fused ops, as its optimiser of transformers writes them."""
    node = helper.make_node
    nodes = [node("EmbedLayerNormalization", ["ids", "", "words", "places", "", "gamma", "beta"], ["e", "mask"], "embed",
                  domain="com.microsoft"),
             node("Attention", ["e", "w", "b"], ["a"], "attend", domain="com.microsoft", num_heads=2),
             node("ReduceMean", ["a"], ["m"], "mean", axes=[1], keepdims=0),
             node("MatMul", ["m", "head"], ["logits"], "head")]
    weights = {"words": models.random(1, 10, 8), "places": models.random(2, 6, 8), "gamma": np.ones(8, np.float32),
               "beta": models.random(3, 8), "w": models.random(4, 8, 24), "b": models.random(5, 24),
               "head": models.random(6, 8, CLASSES)}
    models.save(path, nodes, {}, {"logits": [BATCH, CLASSES]}, weights, extra_opsets=["com.microsoft"])
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT32, [BATCH, 6]))
    onnx.save(model, path)
    return path


def sentences(batches, seed=7):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 10, (batches * BATCH, 6))
    return {"ids": ids, "labels": (ids[:, -1] + ids[:, -2]) % CLASSES}


class Reader(CalibrationDataReader):
    def __init__(self, data):
        inputs = {name: value for name, value in data.items() if name != "labels"}
        count = len(next(iter(inputs.values()))) // BATCH
        self.batches = iter([{n: v[i * BATCH:(i + 1) * BATCH] for n, v in inputs.items()} for i in range(count)])

    def get_next(self):
        return next(self.batches, None)


@contextlib.contextmanager
def silence():
    """Suppresses the quantiser's advice to optimise models first."""
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()):
        yield
    logging.disable(logging.NOTSET)


def static(source, path, data, form, **options):
    with silence():
        quantize_static(source, path, Reader(data), quant_format=getattr(QuantFormat, form), **options)
    return path


def dynamic(source, path, **options):
    with silence():
        quantize_dynamic(source, path, **options)
    return path


def predictions(path, data, optimise=True):
    """The model's first output for all batches, concatenated. Without optimisation onnxruntime computes QuantizeLinear and
    DequantizeLinear literally; with it, it multiplies integers."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    if not optimise:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    reader, outputs = Reader(data), []
    while (batch := reader.get_next()) is not None:
        outputs.append(session.run(None, batch)[0])
    return np.concatenate(outputs)


def cross_entropy(logits, labels):
    logits = logits.astype(np.float64)
    rows = logits - logits.max(-1, keepdims=True)
    return float(np.mean(np.log(np.exp(rows).sum(-1)) - rows[np.arange(len(labels)), labels]))


def accuracy(logits, labels):
    return float(np.mean(logits.argmax(-1) == labels))
