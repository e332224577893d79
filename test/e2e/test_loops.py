"""Recurrences that a graph unrolls step by step become loops: a few kernels whatever their length, with the gradients of
the formula."""
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import models
from common import EndToEnd

LIMIT = 200_000         # bytes of a plan without its weights: 2,000 steps written out take more than a million
RATE = 1e4              # so that the step is larger than a weight's rounding


def infos(table):
    return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in table.items()]


class Loops(EndToEnd):
    def save_model(self, name, nodes, inputs, weights, opset=17):
        graph = helper.make_graph(nodes, "graph", infos(inputs), infos({"loss": []}),
                                  [numpy_helper.from_array(w, n) for n, w in weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), self.folder / name)
        return self.folder / name

    def gradients(self, model, data, weights, words=()):
        """The gradients, from one step of SGD, and the plan."""
        recipe = self.write("recipe.toml", f'[loss]\noutput = "loss"\n[optimizer]\nkind = "sgd"\nlr = {RATE}\n')
        plan = self.compile(model, "--recipe", recipe, *words)
        run = self.train(plan, data, steps=1, out=f"run-{len(list(self.folder.iterdir()))}")
        got = self.weights(run)
        return {n: (w - got[n].astype(np.float64)) / RATE for n, w in weights.items()}, plan

    def scan(self, steps, rows, width, backwards=False):
        """h = tanh(h·w + h v + x) from learned h0 on; the loss is the mean of all states and of the last one."""
        weights = {"h0": models.random(1, 1, width), "w": 0.5 * models.random(2, width), "v": 0.3 * models.random(3, width, width)}
        body = helper.make_graph(
            [helper.make_node("Mul", ["h", "w"], ["a"], "scale"), helper.make_node("MatMul", ["h", "v"], ["b"], "mix"),
             helper.make_node("Add", ["a", "b"], ["c"], "sum"), helper.make_node("Add", ["c", "x"], ["d"], "input"),
             helper.make_node("Tanh", ["d"], ["next"], "tanh"), helper.make_node("Identity", ["next"], ["all"], "part")],
            "body", infos({"h": [rows, width], "x": [rows, width]}), infos({"next": [rows, width], "all": [rows, width]}))
        direction = {"scan_input_directions": [1], "scan_output_directions": [1]} if backwards else {}
        nodes = [helper.make_node("Expand", ["h0", "shape"], ["first"], "first"),
                 helper.make_node("Scan", ["first", "data"], ["last", "states"], "scan", body=body, num_scan_inputs=1,
                                  scan_input_axes=[1], scan_output_axes=[1], **direction),
                 helper.make_node("ReduceMean", ["states"], ["m"], "mean", keepdims=0),
                 helper.make_node("ReduceMean", ["last"], ["n"], "mean_of_last", keepdims=0), helper.make_node("Add", ["m", "n"], ["loss"], "loss")]
        shape = {"shape": np.array([rows, width], np.int64)}
        return self.save_model(f"scan{steps}.onnx", nodes, {"data": [rows, steps, width]}, weights | shape), weights

    @staticmethod
    def scan_gradients(weights, x, backwards):
        h0, w, v = (weights[n].astype(np.float64) for n in ("h0", "w", "v"))
        rows, steps, width = x.shape
        order = range(steps - 1, -1, -1) if backwards else range(steps)
        states = [np.repeat(h0, rows, 0)]
        for t in order:
            states.append(np.tanh(states[-1] * w + states[-1] @ v + x[:, t]))
        of = {"h0": 0, "w": np.zeros_like(w), "v": np.zeros_like(v)}
        g = np.full((rows, width), 1 / (rows * width))
        for before, after in zip(states[-2::-1], states[:0:-1]):
            inner = (g + 1 / (rows * steps * width)) * (1 - after ** 2)
            of["w"] += (inner * before).sum(0)
            of["v"] += before.T @ inner
            g = inner * w + inner @ v.T
        of["h0"] = g.sum(0, keepdims=True)
        return of

    def test_a_scan_of_2000_steps(self):
        for backwards in (False, True):
            rows, steps, width = 3, 2000, 8
            model, weights = self.scan(steps, rows, width, backwards)
            x = models.random(4, rows, steps, width)
            got, plan = self.gradients(model, self.save("d.safetensors", data=x), weights)
            for name, expected in self.scan_gradients(weights, x.astype(np.float64), backwards).items():
                np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max(), err_msg=name)
            self.assertLess(plan.stat().st_size, LIMIT)
            notes = [n for n in self.report(plan)["notes"] if n["kind"] == "loop"]
            self.assertEqual(len(notes), 1, notes)
            self.assertRegex(notes[0]["text"], r"of (2000|199\d) steps of 5 ops ")

    def test_a_parameter_that_is_only_compared_gets_no_gradient(self):
        """It does not decay either, as in PyTorch, where its gradient is None."""
        rows, steps, width = 2, 40, 4
        body = helper.make_graph(
            [helper.make_node("Greater", ["h", "gate"], ["high"], "compare"), helper.make_node("Where", ["high", "x", "h"], ["a"], "choose"),
             helper.make_node("Mul", ["a", "w"], ["b"], "scale"), helper.make_node("Tanh", ["b"], ["next"], "tanh")],
            "body", infos({"h": [rows, width], "x": [rows, width]}), infos({"next": [rows, width]}))
        nodes = [helper.make_node("Scan", ["zero", "data"], ["last"], "scan", body=body, num_scan_inputs=1, scan_input_axes=[1]),
                 helper.make_node("ReduceMean", ["last"], ["loss"], "mean", keepdims=0)]
        weights = {"gate": models.random(1, width), "w": models.random(2, width)}
        model = self.save_model("gate.onnx", nodes, {"data": [rows, steps, width]}, weights | {"zero": np.zeros((rows, width), np.float32)})
        recipe = self.write("recipe.toml", '[model]\nfrozen = ["zero"]\n[loss]\noutput = "loss"\n[optimizer]\nkind = "adamw"\nlr = 0.1\nweight_decay = 0.5\n')
        plan = self.compile(model, "--recipe", recipe)
        self.assertTrue([n for n in self.report(plan)["notes"] if n["kind"] == "loop"])
        got = self.weights(self.train(plan, self.save("d.safetensors", data=models.random(3, rows, steps, width)), steps=1))
        np.testing.assert_array_equal(got.get("gate", weights["gate"]), weights["gate"])
        self.assertTrue((got["w"] != weights["w"]).any())

    def test_a_long_chain_of_movements_behind_a_recurrence(self):
        """More movements in a row than recursion could follow without a stack overflow."""
        kind, lines, value = "tensor<4x4xf32>", [], "%h"
        for i in range(20):
            lines += [f"%m{i} = train.mul {value}, %w : {kind}", f"%h{i} = train.tanh %m{i} : {kind}"]
            value = f"%h{i}"
        for i in range(200_000):
            lines.append(f"%t{i} = train.transpose {value} [1, 0] : {kind} -> {kind}")
            value = f"%t{i}"
        path = self.write("chain.mlir", "\n".join([f"func.func @f(%h: {kind}, %w: {kind}) -> {kind} {{", *lines, f"return {value} : {kind}", "}"]))
        self.assertIn("train.loop", self.succeed("tcc-opt", "--find-loops", path).out)

    def test_kernels_do_not_grow_with_the_steps(self):
        kernels = {}
        for steps in (64, 512):
            model, _ = self.scan(steps, 2, 4)
            recipe = self.write("recipe.toml", '[loss]\noutput = "loss"\n[optimizer]\nkind = "sgd"\nlr = 1.0\n')
            kernels[steps] = sum(k["count"] for k in self.report(self.compile(model, "--recipe", recipe))["kernels"])
        self.assertEqual(kernels[64], kernels[512])

    def test_linear_attention_over_4096_tokens(self):
        batch, tokens, heads, size = 2, 4096, 2, 8
        width = heads * size
        weights = {n: 0.2 * models.random(i, width, width) for i, n in enumerate(("wq", "wk", "wv"), 1)}
        read = models.random(9, width, 1)
        nodes = [helper.make_node("MatMul", ["data", "w" + n], [n], n) for n in "qkv"]
        nodes += [helper.make_node("LinearAttention", ["q", "k", "v"], ["y", "state"], "attend", update_rule="linear", q_num_heads=heads,
                                   kv_num_heads=heads),
                  helper.make_node("MatMul", ["y", "read"], ["z"], "read"), helper.make_node("ReduceMean", ["z"], ["loss"], "mean", keepdims=0)]
        model = self.save_model("attention.onnx", nodes, {"data": [batch, tokens, width]}, weights | {"read": read}, opset=27)
        x = models.random(7, batch, tokens, width)
        got, plan = self.gradients(model, self.save("d.safetensors", data=x), weights, words=("--set", 'model.frozen=["read"]'))
        self.assertLess(plan.stat().st_size, LIMIT)
        # y(t) = s q(t) S(t), S(t) = Σ k(j) v(j)ᵀ over j ≤ t, for each head.
        x, scale = x.astype(np.float64), size ** -0.5
        q, k, v = ((x @ weights["w" + n].astype(np.float64)).reshape(batch, tokens, heads, size) for n in "qkv")
        dy = scale * read.astype(np.float64).reshape(heads, size) / (batch * tokens)
        states = np.cumsum(np.einsum("bthi,bthj->bthij", k, v), 1)
        later = np.cumsum(np.einsum("bthi,hj->bthij", q, dy)[:, ::-1], 1)[:, ::-1]
        of = {"wq": np.einsum("bthij,hj->bthi", states, dy), "wk": np.einsum("bthij,bthj->bthi", later, v),
              "wv": np.einsum("bthij,bthi->bthj", later, k)}
        for name, inner in of.items():
            expected = np.einsum("bti,btj->ij", x, inner.reshape(batch, tokens, width))
            np.testing.assert_allclose(got[name], expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max(), err_msg=name)

    def test_threads_and_fusion_change_no_bit(self):
        model, weights = self.scan(300, 4, 64)
        x = models.random(4, 4, 300, 64)
        data = self.save("d.safetensors", data=x)
        recipe = self.write("recipe.toml", '[loss]\noutput = "loss"\n[optimizer]\nkind = "sgd"\nlr = 0.1\n')
        plans = {"plain": (), "alone": ("--set", "compiler.fuse=false")}
        runs = {}
        for name, words in plans.items():
            plan = self.compile(model, "--recipe", recipe, *words, plan=f"{name}.tplan")
            for threads in (1, 2, 5):
                run = self.train(plan, data, "--threads", threads, steps=2, out=f"{name}-{threads}")
                runs[name, threads] = {n: w.tobytes() for n, w in self.weights(run).items()}
        for key, found in runs.items():
            self.assertEqual(found, runs["plain", 1], key)


if __name__ == "__main__":
    unittest.main()
