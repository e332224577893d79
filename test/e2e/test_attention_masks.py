"""Attention with masks of every fill value that exporters write, which exclude rows, columns and whole samples.

If a finite fill value excludes a whole row, the row still has weights: its scores are rounded to multiples of that value's last
place, and the weights follow from the rounded scores. The fused op agrees with the unfused graph (compiler.attention =
"unfused"), forward and backward, and with onnxruntime's forward values.
"""
import itertools

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

from common import EndToEnd

B, H, T, D = 2, 2, 70, 8
NUMBERS = {"-1e4": -1e4, "f16": -65504.0, "-1e9": -1e9, "-1e30": -1e30, "bf16": -3.3895313892515355e38,
           "f32": float(np.finfo(np.float32).min), "inf": -np.inf}


def excluded():
    """[B, 1, T, T], True for excluded keys: a padded sample, a whole sample, rows, columns."""
    none = np.zeros((B, 1, T, T), bool)
    masks = {}
    for name, part in (("rows", np.s_[0, :, 3:40]), ("row_block", np.s_[:, :, 64:]), ("columns", np.s_[1, :, :, 50:]),
                       ("sample", np.s_[1])):
        masks[name] = none.copy()
        masks[name][part] = True
    masks["rows_and_columns"] = masks["rows"] | masks["columns"]
    return masks


class Graph:
    def __init__(self):
        self.nodes, self.weights, self.outputs, self.losses = [], [], [], []

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], f"n{len(self.nodes)}", **attributes))
        return name

    def constant(self, value, dtype=np.float32):
        return self.node("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def attention(self, name, change):
        random = np.random.default_rng(len(self.outputs))
        q, k, v = (self.node("Mul", f"x{part}", self.weight(f"{name}.{part}", random)) for part in "qkv")
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = change(self.node("Mul", scores, self.constant(D**-0.5)))
        y = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        self.nodes.append(helper.make_node("Identity", [y], [f"{name}.y"], name))
        self.outputs.append(f"{name}.y")
        self.losses.append(self.node("ReduceMean", self.node("Mul", y, f"{'target'}"), keepdims=0))

    def weight(self, name, random):
        self.weights.append(numpy_helper.from_array((1 + 0.3 * random.standard_normal((H, T, D))).astype(np.float32), name))
        return name

    def model(self, inputs):
        self.nodes.append(helper.make_node("Sum", self.losses, ["loss"], "total"))
        info = lambda name, shape, kind=TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, shape)
        graph = helper.make_graph(self.nodes, "masks",
                                  [info(name, value.shape, helper.np_dtype_to_tensor_dtype(value.dtype)) for name, value in inputs.items()],
                                  [info("loss", []), *(info(name, [B, H, T, D]) for name in self.outputs)], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


class Masks(EndToEnd):
    def compute(self, plan, verb):
        self.succeed("trun", verb, plan, "--inputs", "data.safetensors", "--outputs", f"{verb}.safetensors")
        return safetensors.numpy.load_file(self.folder / f"{verb}.safetensors")

    def check(self, spellings, inputs, tolerance=2e-5, *settings, against_onnxruntime=True):
        random = np.random.default_rng(7)
        data = {"target": random.standard_normal((B, H, T, D)).astype(np.float32), **inputs}
        for part in "qkv":
            data[f"x{part}"] = random.standard_normal((B, H, T, D)).astype(np.float32)
        graph = Graph()
        for name, change in spellings.items():
            graph.attention(name, lambda scores, change=change: change(graph, scores))
        model = graph.model(data)
        onnx.save(model, self.folder / "model.onnx")
        self.save("data.safetensors", **data)
        results = {}
        for how in ("auto", "unfused"):
            plan = self.compile("model.onnx", "--set", "loss.output=loss", "--set", f"compiler.attention={how}", "--entry",
                                "gradients,predict", *settings, plan=f"{how}.tplan")
            if how == "auto":
                self.assertEqual(len(self.report(plan)["attention"]["fused"]), len(spellings), self.report(plan)["attention"])
            results[how] = self.compute(plan, "predict") | self.compute(plan, "gradients")
        if against_onnxruntime:
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            results["onnxruntime"] = dict(zip([o.name for o in session.get_outputs()], session.run(None, data)))
        for how in set(results) - {"auto"}:
            for name, expected in results[how].items():
                if name == "loss":
                    continue
                found = results["auto"][name]
                # A row that −∞ excludes everywhere is undefined in the graph, and zeros in the op.
                defined = np.isfinite(expected)
                error = np.abs(np.where(defined, found - expected, 0)).max() / max(np.abs(np.where(defined, expected, 0)).max(), 1e-30)
                with self.subTest(name, against=how):
                    self.assertLessEqual(error, tolerance)

    def added(self, number):
        return lambda graph, scores, mask: graph.node(
            "Add", scores, graph.node("Where", mask, graph.constant(number), graph.constant(0)))

    def selected(self, number):
        return lambda graph, scores, mask: graph.node("Where", mask, graph.constant(number), scores)

    def test_numbers_in_a_mask_that_is_added(self):
        """The mask is a floating-point input that is added to the scores."""
        masks, inputs, spellings = excluded(), {}, {}
        for (mask, where), (name, number) in itertools.product(masks.items(), NUMBERS.items()):
            if np.isinf(number) and mask != "columns":
                continue
            inputs[f"{mask}_{name}"] = np.where(where, np.float32(number), np.float32(0))
            spellings[f"{mask}.{name}"] = lambda g, s, key=f"{mask}_{name}": g.node("Add", s, key)
        self.check(spellings, inputs)

    def test_numbers_that_a_boolean_mask_puts(self):
        masks, spellings = excluded(), {}
        for (mask, _), (name, number), (how, put) in itertools.product(
                masks.items(), NUMBERS.items(), (("added", self.added), ("selected", self.selected))):
            if (np.isinf(number) and mask != "columns") or mask == "row_block":
                continue
            spellings[f"{mask}.{name}.{how}"] = lambda g, s, put=put(number), key=mask: put(g, s, key)
        self.check(spellings, {name: where for name, where in masks.items() if name != "row_block"})

    def test_two_masks_and_a_diagonal(self):
        """All keys of a sample are padding, in addition to a causal mask with the same fill value or −∞."""
        masks, spellings = excluded(), {}
        diagonal = ~np.tril(np.ones((T, T), bool))
        for (name, number), outer in itertools.product(NUMBERS.items(), ("same", "inf")):
            if np.isinf(number):
                continue
            other = number if outer == "same" else -np.inf
            spellings[f"sample.{name}.{outer}"] = lambda g, s, n=number, o=other: g.node(
                "Add", self.selected(o)(g, s, g.constant(diagonal, bool)), g.node("Where", "sample", g.constant(n), g.constant(0)))
            spellings[f"added.{name}.{outer}"] = lambda g, s, n=number, o=other: g.node(
                "Add", g.node("Add", s, g.constant(np.where(diagonal, np.float32(o), np.float32(0)))),
                g.node("Where", "columns", g.constant(n), g.constant(0)))
        self.check(spellings, {name: masks[name] for name in ("sample", "columns")})

    def test_left_padding_and_a_diagonal(self):
        """In a sample with left padding, a causal mask leaves only padding to the first rows."""
        diagonal = ~np.tril(np.ones((T, T), bool))
        left = np.zeros((B, 1, 1, T), bool)
        left[0, ..., :9] = True
        lowest = NUMBERS["f32"]
        given = np.where(left, np.float32(lowest), np.float32(0))
        spellings = {}
        for (name, number), (how, put) in itertools.product(NUMBERS.items(), (("selected", self.selected), ("added", self.added))):
            if np.isinf(number):
                continue
            causal = lambda g, s, put=put, n=number: put(n)(g, s, g.constant(diagonal, bool))
            padding = lambda g, n: g.node("Where", "left", g.constant(n), g.constant(0))
            spellings[f"{name}.{how}.made"] = lambda g, s, c=causal, n=number, p=padding: g.node("Add", c(g, s), p(g, n))
            spellings[f"{name}.{how}.given"] = lambda g, s, c=causal: g.node("Add", c(g, s), "given")
        self.check(spellings, {"left": left, "given": given})

    def test_padding_at_the_end(self):
        """Kernels stop at the last key that is shown: of one sample, of both, of none; in every spelling, with and without a diagonal."""
        diagonal, masks, spellings = ~np.tril(np.ones((T, T), bool)), {}, {}
        for first in (0, 1, 33, 64, 69):
            masks[f"end{first}"] = np.zeros((B, 1, 1, T), bool)
            masks[f"end{first}"][0, ..., first:] = True
        masks["both"] = masks["end33"].copy()
        masks["both"][1, ..., 65:] = True
        for (mask, where), (name, number), (how, put) in itertools.product(
                masks.items(), NUMBERS.items(), (("added", self.added), ("selected", self.selected))):
            if np.isinf(number) and mask == "end0":
                continue
            spellings[f"{mask}.{name}.{how}"] = lambda g, s, put=put(number), key=mask: put(g, s, key)
            if how == "added" and not np.isinf(number):
                spellings[f"{mask}.{name}.causal"] = lambda g, s, put=put(number), key=mask, n=number: put(
                    g, self.selected(n)(g, s, g.constant(diagonal, bool)), key)
        self.check(spellings, masks)

    def test_padding_before_a_select_is_not_fused(self):
        """The select would override padding that was added before it: the graph stays unfused, and the report says why."""
        graph = Graph()
        diagonal = ~np.tril(np.ones((T, T), bool))
        graph.attention("a", lambda s: self.selected(-1e4)(graph, graph.node(
            "Add", s, graph.node("Where", "left", graph.constant(-1e4), graph.constant(0))), graph.constant(diagonal, bool)))
        data = {name: np.zeros((B, H, T, D), np.float32) for name in ("target", "xq", "xk", "xv")}
        onnx.save(graph.model(data | {"left": np.zeros((B, 1, 1, T), bool)}), self.folder / "model.onnx")
        report = self.report(self.compile("model.onnx", "--set", "loss.output=loss", "--entry", "predict"))["attention"]
        self.assertEqual(report["fused"], [])
        self.assertRegex(report["near_misses"][0]["reason"], "excluded by padding and a mask together")

    def test_bf16(self):
        masks, spellings = excluded(), {}
        for (mask, _), (name, number) in itertools.product(masks.items(), NUMBERS.items()):
            if not np.isinf(number) and mask in ("rows", "sample"):
                spellings[f"{mask}.{name}"] = lambda g, s, put=self.added(number), key=mask: put(g, s, key)
        self.check(spellings, {name: masks[name] for name in ("rows", "sample")}, 2e-2, "--set", 'train.precision="bf16"',
                   against_onnxruntime=False)


if __name__ == "__main__":
    import unittest
    unittest.main()
