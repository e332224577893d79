"""Stopped gradients: marks in exports, nodes of our own domain, and the recipe's globs train the same model; the report lists the stops.

The zoo's cases detach-weights, straight-through, vq-vae and gan-detached compare the gradients with PyTorch's.
"""
import json
import unittest

import models
import numpy as np
import onnx
import onnxruntime
from common import EndToEnd, case, metrics
from onnx import helper

STOPPED = ("detach-weights", "straight-through", "vq-vae", "gan-detached")


def without_marks(path, out):
    """The same model from an exporter that drops detach: its Identity nodes stay, without the note of what they were."""
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
    onnx.save(model, out)
    return out


def with_stop_nodes(path, out, function):
    """The model with tcc::StopGradient in place of marked Identity nodes; with or without the function that lets other tools run it."""
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "Identity" and any("aten.detach.default" in note.value for note in node.metadata_props):
            node.op_type, node.domain = "StopGradient", "tcc"
        del node.metadata_props[:]
    model.opset_import.append(helper.make_opsetid("tcc", 1))
    if function:
        standard = helper.make_opsetid("", model.opset_import[0].version)
        model.functions.append(helper.make_function("tcc", "StopGradient", ["value"], ["result"],
                                                    [helper.make_node("Identity", ["value"], ["result"])], [standard]))
    onnx.save(model, out)
    return out


class Marks(EndToEnd):
    def losses(self, model, recipe, data, name, *arguments):
        plan = self.compile(model, "--recipe", recipe, *arguments, plan=f"{name}.tplan")
        return [line["loss"] for line in metrics(self.train(plan, data, out=name, steps=6))[0]], self.report(plan)

    def test_every_way_to_mark_trains_the_same(self):
        model, recipe, data, _ = case("straight-through")
        marked, report = self.losses(model, recipe, data, "marked")
        evaluation = report["memory"]["entries"]["evaluate"]
        nodes = ["node_detach"] + [f"node_detach_{i}" for i in range(1, 5)]
        self.assertEqual(report["stop_gradient"], [{"node": n, "source": "aten.detach"} for n in nodes])
        for function in (False, True):
            stops = with_stop_nodes(model, self.folder / f"s{function}.onnx", function)
            losses, report = self.losses(stops, recipe, data, f"stops{function}")
            self.assertEqual(losses, marked)
            self.assertEqual(report["stop_gradient"], [{"node": n, "source": "tcc::StopGradient"} for n in nodes])
        plain = without_marks(model, self.folder / "plain.onnx")
        for globs in ('["node_detach*"]', '["detach", "detach_[1-4]"]'):
            losses, report = self.losses(plain, recipe, data, "globs" + str(len(globs)), "--set", f"model.stop_gradient={globs}")
            self.assertEqual(losses, marked)
            self.assertEqual([stop["node"] for stop in report["stop_gradient"]], nodes)
        erased, report = self.losses(plain, recipe, data, "erased")
        self.assertEqual(report["stop_gradient"], [])
        # In an entry without gradients a stop costs nothing.
        self.assertEqual(report["memory"]["entries"]["evaluate"], evaluation)
        self.assertNotEqual(erased, marked)

    def test_values_are_those_of_identity(self):
        """Prediction and other tools compute the same values as with Identity; onnxruntime runs the released model with its marks."""
        model, recipe, data, _ = case("straight-through")
        stops = with_stop_nodes(model, self.folder / "s.onnx", function=True)
        x = np.random.default_rng(3).standard_normal(models_input(model)).astype(np.float32)
        inputs = self.save("in.safetensors", x=x)
        results = []
        for name, path in (("m", model), ("s", stops)):
            plan = self.compile(path, "--recipe", recipe, plan=f"{name}.tplan")
            self.succeed("trun", "predict", plan, "--inputs", inputs, "--outputs", f"{name}.safetensors")
            results.append((self.folder / f"{name}.safetensors").read_bytes())
        self.assertEqual(*results)
        self.train(self.folder / "s.tplan", data, out="run")
        released = onnxruntime.InferenceSession(self.folder / "run" / "model.onnx", providers=["CPUExecutionProvider"])
        self.assertTrue(np.isfinite(released.run(None, {"x": x})[0]).all())

    def test_gradcheck_holds_stopped_values(self):
        for name in STOPPED:
            with self.subTest(case=name):
                model, recipe, data, _ = case(name)
                out = self.succeed("tcc", "gradcheck", model, "--recipe", recipe, "--data", data).out
                self.assertRegex(out, r"(\d+) of \1 gradients agree")
                self.assertRegex(out, r"note: (\d+ stopped values are|1 stopped value is) held fixed in the differences")

    def test_precision_and_accumulation_keep_stops(self):
        """Losses in bf16 stay near those in f32, and micro-batches do not change where gradients stop."""
        model, recipe, data, expected = case("vq-vae")
        for name, arguments in (("bf16", ("--precision", "bf16")), ("once", ("--set", "train.accumulate=1"))):
            losses, report = self.losses(model, recipe, data, name, *arguments)
            self.assertEqual({stop["source"] for stop in report["stop_gradient"]}, {"aten.detach"})
            if name == "bf16":
                np.testing.assert_allclose(losses, expected["loss"][:6], rtol=0.03)

    def test_recomputation_keeps_stops(self):
        model, recipe, data, _ = case("straight-through")
        frontier = json.loads(self.succeed("tcc", "frontier", model, "--recipe", recipe, "--entry", "train", "--json").out)
        points = frontier["programs"]["step"]["points"]
        self.assertGreater(len(points), 1)
        arguments = ("--entry", "train")
        whole, _ = self.losses(model, recipe, data, "whole", *arguments)
        least, report = self.losses(model, recipe, data, "least", *arguments, "--memory-budget", points[-1]["total_bytes"])
        self.assertTrue(report["recompute"]["tensors"])
        self.assertEqual(least, whole)


class WhatIsSaid(EndToEnd):
    def model(self, *between, target="t"):
        """x·w → h → the nodes of `between` → t → mean squared difference from x·v."""
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "online"), helper.make_node("MatMul", ["x", "v"], ["g"], "target"),
                 *between, helper.make_node("Sub", ["h", target], ["d"], "difference"),
                 helper.make_node("Mul", ["d", "d"], ["q"], "square"), helper.make_node("ReduceMean", ["q"], ["loss"], "mean", keepdims=0)]
        return models.save(self.folder / "m.onnx", nodes, {"x": [8, 5]}, {"loss": []},
                           {"w": models.random(1, 5, 3), "v": models.random(2, 5, 3)}, extra_opsets=("tcc",))

    def unused(self, model, *arguments):
        result = self.succeed("tcc", model, *arguments, "-o", "p.tplan")
        return self.report("p.tplan")["parameters"]["unused"], result.err

    def test_what_is_behind_a_stop_alone_is_named(self):
        model = self.model(helper.make_node("StopGradient", ["g"], ["t"], "stop", domain="tcc"))
        unused, messages = self.unused(model)
        self.assertEqual(unused, [{"name": "v", "reason": "detached: no gradient passes through stop_gradient", "node": "stop"}])
        self.assertNotIn("not trained", messages)    # the recipe asked for it
        text = self.succeed("tcc", "report", "p.tplan").out
        self.assertRegex(text, r"stopped gradients: 1 node\n.*\n *stop +tcc::StopGradient\n")
        self.succeed("tcc", "report", "p.tplan", "--html", "p.html")
        self.assertIn("tcc::StopGradient", (self.folder / "p.html").read_text())

    def test_a_stopped_initializer_is_not_trained(self):
        model = self.model(target="g")
        unused, _ = self.unused(model, "--set", 'model.stop_gradient=["v"]')
        self.assertEqual([(u["name"], u["node"]) for u in unused], [("v", "target")])

    def test_ops_without_a_gradient_are_named(self):
        for op in ("Round", "Floor", "Ceil", "Sign"):
            with self.subTest(op=op):
                unused, messages = self.unused(self.model(helper.make_node(op, ["g"], ["t"], "quantise")))
                self.assertEqual(unused, [{"name": "v", "reason": f"detached: no gradient passes through {op.lower()}", "node": "quantise"}])
                self.assertRegex(messages, rf"warning: m\.onnx: v: not trained: .* {op.lower()} \(node quantise\).*\.detach\(\)")
        compared = self.model(helper.make_node("Greater", ["g", "h"], ["c"], "above"),
                              helper.make_node("Cast", ["c"], ["t"], "as_float", to=1))
        unused, messages = self.unused(compared)
        self.assertEqual([(u["name"], u["node"]) for u in unused], [("v", "above")])
        self.assertIn("compare (node above)", messages)

    def test_a_loss_that_reaches_nothing_says_where_it_ends(self):
        model = self.model(helper.make_node("Round", ["g"], ["t"], "quantise"))
        self.refuse(1, [r"nothing to train.*v: detached: no gradient passes through round, node quantise"],
                    "tcc", model, "--set", 'model.frozen=["w"]')

    def test_globs_that_match_nothing(self):
        recipe = self.write("r.toml", '[model]\nstop_gradient = ["targett"]\n')
        self.refuse(1, [r'r\.toml:2:\d+: model\.stop_gradient: "targett" matches no node or value of m\.onnx; the nearest is target'],
                    "tcc", self.model(target="g"), "--recipe", recipe)

    def test_inspect_tells_which_exports_carry_marks(self):
        model, _, _, _ = case("straight-through")
        out = self.succeed("tcc", "inspect", model).out
        self.assertRegex(out, r"stopped gradients: 5 \(torch\.no_grad\(\) leaves no mark[^\n]*\n  node_detach +aten\.detach\n")
        script, _, _, _ = case("lstm-lm")
        out = self.succeed("tcc", "inspect", script).out
        self.assertRegex(out, r"stopped gradients: none: .*dynamo=False.*removes \.detach\(\).*optimize=False")
        optimised, _, _, _ = case("small-cnn")
        out = self.succeed("tcc", "inspect", optimised).out
        self.assertRegex(out, r"stopped gradients: none: no node of the file is marked, .* removes \.detach\(\) unless optimize=False")


def models_input(path):
    return [d.dim_value for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]


if __name__ == "__main__":
    unittest.main(verbosity=2)
