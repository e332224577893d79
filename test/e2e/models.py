"""Small ONNX models for the end-to-end tests, with weights and data from fixed seeds."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES = '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\n'
SQUARES = '[loss]\nkind = "mse"\nof = "prediction"\ntarget = "y"\n'
SGD = '[optimizer]\nkind = "sgd"\nlr = 0.05\n'


def random(seed, *shape):
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(max(shape[-1:] or (1,)))).astype(np.float32)


def save(path, nodes, inputs, outputs, weights, opset=17, extra_opsets=()):
    """`inputs`, `outputs`: name → shape (f32; entries may be dimension names). `weights`: name → array."""
    def infos(table):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in table.items()]
    graph = helper.make_graph(nodes, "graph", infos(inputs), infos(outputs),
                              [numpy_helper.from_array(v, n) for n, v in weights.items()])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in extra_opsets)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


# x → mean((exp(scale)·x·w)²)
SCALED = [helper.make_node("Exp", ["scale"], ["factor"], "exp"), helper.make_node("MatMul", ["x", "w"], ["y"], "product"),
          helper.make_node("Mul", ["y", "factor"], ["z"], "scaled"), helper.make_node("Mul", ["z", "z"], ["squares"], "square"),
          helper.make_node("ReduceMean", ["squares"], ["loss"], "mean", keepdims=0)]


def mlp(path, batch=8, width=16, loss=False):
    """x [batch, 5] → prediction [batch, 1]; with `loss` the mean squared distance from y, the only output."""
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "first", transB=1),
             helper.make_node("Tanh", ["h"], ["a"], "tanh"),
             helper.make_node("Gemm", ["a", "w2", "b2"], ["prediction"], "second", transB=1)]
    if loss:
        nodes += [helper.make_node("Sub", ["prediction", "y"], ["distance"], "distance"),
                  helper.make_node("Mul", ["distance", "distance"], ["square"], "square"),
                  helper.make_node("ReduceMean", ["square"], ["loss"], "mean", keepdims=0)]
    y = {"y": [batch, 1]} if loss else {}
    return save(path, nodes, {"x": [batch, 5]} | y, {"loss": []} if loss else {"prediction": [batch, 1]},
                {"w1": random(1, width, 5), "b1": random(2, width), "w2": random(3, 1, width), "b2": random(4, 1)})


def mlp_data(rows):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((rows, 5)).astype(np.float32)
    return {"x": x, "y": np.sin(x.sum(1, keepdims=True)).astype(np.float32)}


def table(path, batch, tied):
    """x [batch, 1] of row numbers → rows of w, or their products with all rows of w: prediction [batch, 3 or 6]."""
    nodes = [helper.make_node("Cast", ["x"], ["rows"], "cast", to=TensorProto.INT64),
             helper.make_node("GatherND", ["w", "rows"], ["found" if tied else "prediction"], "look-up")]
    if tied:
        nodes.append(helper.make_node("Gemm", ["found", "w"], ["prediction"], "product", transB=1))
    return save(path, nodes, {"x": [batch, 1]}, {"prediction": [batch, 6 if tied else 3]}, {"w": random(1, 6, 3)})


def embedding(path, batch, length, rows, width, tied):
    """x [batch, length] of row numbers → logits [batch, length, rows or 10]: the looked-up rows times the table (`tied`) or a weight."""
    nodes = [helper.make_node("Cast", ["x"], ["numbers"], "cast", to=TensorProto.INT64),
             helper.make_node("Gather", ["table", "numbers"], ["found"], "look-up"),
             helper.make_node("Transpose", ["table"], ["turned"], "turn", perm=[1, 0]),
             helper.make_node("MatMul", ["found", "turned" if tied else "w"], ["logits"], "product")]
    weights = {"table": random(1, rows, width)} | ({} if tied else {"w": random(2, width, 10)})
    return save(path, [n for n in nodes if tied or n.name != "turn"], {"x": [batch, length]}, {"logits": [batch, length, rows if tied else 10]},
                weights)


def gpt(path, batch, length, layers, width, heads, vocabulary):
    """x [batch, length] of token numbers → logits [batch, length, vocabulary]: blocks of attention and two products, each after a norm."""
    weights = {"tokens": random(1, vocabulary, width), "places": random(2, length, width), "head": random(3, width, vocabulary),
               "split": np.full(3, width, np.int64), "rows": np.array([batch, length, heads, width // heads], np.int64),
               "whole": np.array([batch, length, width], np.int64), "mask": np.triu(np.full((length, length), -1e9, np.float32), 1),
               "scale": np.float32((width // heads) ** -0.5)}
    nodes = [helper.make_node("Cast", ["x"], ["numbers"], "cast", to=TensorProto.INT64),
             helper.make_node("Gather", ["tokens", "numbers"], ["found"], "look-up"),
             helper.make_node("Add", ["found", "places"], ["h0"], "place")]

    def norm(source, name):
        weights.update({f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)})
        nodes.append(helper.make_node("LayerNormalization", [source, f"{name}.weight", f"{name}.bias"], [name], name))
        return name

    def product(source, name, *shape):
        weights[f"{name}.weight"] = random(10 + len(weights), *shape)
        nodes.append(helper.make_node("MatMul", [source, f"{name}.weight"], [name], name))
        return name

    for i in range(layers):
        step = lambda kind, sources, name, **more: nodes.append(helper.make_node(kind, sources, [f"{name}{i}"], f"{name}{i}", **more)) or f"{name}{i}"
        all_heads = product(norm(f"h{i}", f"first{i}"), f"qkv{i}", width, 3 * width)
        nodes.append(helper.make_node("Split", [all_heads, "split"], [f"q{i}", f"k{i}", f"v{i}"], f"split{i}", axis=-1))
        turned = {}
        for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            turned[part] = step("Transpose", [step("Reshape", [f"{part}{i}", "rows"], f"rows_{part}")], f"heads_{part}", perm=perm)
        scores = step("Add", [step("Mul", [step("MatMul", [turned["q"], turned["k"]], "scores"), "scale"], "scaled"), "mask"], "masked")
        mixed = step("MatMul", [step("Softmax", [scores], "weights", axis=-1), turned["v"]], "mixed")
        joined = step("Reshape", [step("Transpose", [mixed], "turned", perm=[0, 2, 1, 3]), "whole"], "joined")
        middle = step("Add", [f"h{i}", product(joined, f"out{i}", width, width)], "middle")
        wide = step("Tanh", [product(norm(middle, f"second{i}"), f"up{i}", width, 4 * width)], "tanh")
        nodes.append(helper.make_node("Add", [middle, product(wide, f"down{i}", 4 * width, width)], [f"h{i + 1}"], f"block{i}"))
    nodes.append(helper.make_node("MatMul", [norm(f"h{layers}", "last"), "head"], ["logits"], "logits"))
    return save(path, nodes, {"x": [batch, length]}, {"logits": [batch, length, vocabulary]}, weights)


def classifier(path, batch, features, classes):
    """One linear layer: its weight gradient is classes × batch × features."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["logits"], "head", transB=1)]
    return save(path, nodes, {"x": [batch, features]}, {"logits": [batch, classes]},
                {"w": random(1, classes, features), "b": random(2, classes)})


def convolution(path, batch, channels, size):
    """One 3 × 3 convolution, channels → channels, then the mean over the image as logits."""
    axes = np.array([2, 3], np.int64)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
             helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("ReduceMean", ["r", "axes"], ["logits"], "mean", keepdims=0)]
    return save(path, nodes, {"x": [batch, channels, size, size]}, {"logits": [batch, channels]},
                {"w": random(1, channels, channels, 3, 3), "b": random(2, channels), "axes": axes}, opset=18)


def swish_tower(path, batch, channels, size, layers):
    """`layers` 3 × 3 convolutions, each times its own sigmoid, then the mean over the image as logits."""
    nodes, weights, last = [], {"axes": np.array([2, 3], np.int64)}, "x"
    for i in range(layers):
        nodes += [helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
                  helper.make_node("Sigmoid", [f"c{i}"], [f"s{i}"], f"sigmoid{i}"),
                  helper.make_node("Mul", [f"c{i}", f"s{i}"], [f"a{i}"], f"swish{i}")]
        weights[f"w{i}"], last = random(i, channels, channels, 9).reshape(channels, channels, 3, 3) / np.float32(channels ** 0.5), f"a{i}"
    nodes.append(helper.make_node("ReduceMean", [last, "axes"], ["logits"], "mean", keepdims=0))
    return save(path, nodes, {"x": [batch, channels, size, size]}, {"logits": [batch, channels]}, weights, opset=18)


def labelled(rows, classes, *shape):
    rng = np.random.default_rng(6)
    return {"x": rng.standard_normal((rows, *shape)).astype(np.float32), "labels": rng.integers(0, classes, rows)}


def normalised(path, batch=4, width=8):
    """x [batch, 5] → prediction [batch, 1], with a BatchNormalization that trains: forward passes change its statistics."""
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w1"], ["h"], "first", transB=1),
             helper.make_node("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["n", "mean_out", "variance_out"],
                              "norm", training_mode=1),
             helper.make_node("Tanh", ["n"], ["a"], "tanh"),
             helper.make_node("Gemm", ["a", "w2"], ["prediction"], "second", transB=1)]
    return save(path, nodes, {"x": [batch, 5]}, {"prediction": [batch, 1]},
                {"w1": random(1, width, 5), "w2": random(2, 1, width), "scale": ones, "shift": zeros, "mean": zeros, "variance": ones})
