"""Attention is recognised in every spelling and computed by one op, with the results of the unfused graph and of the formulas."""
import unittest
from collections import defaultdict

import numpy as np
import onnx
import safetensors.numpy

import attention_graph as graphs
from attention_spellings import BROKEN, H, SPELLINGS
from common import EndToEnd, case

TOLERANCE = 1e-5


def scale_of(value):
    return max(float(np.abs(value).max()), 1e-30)


class Attention(EndToEnd):
    def compute(self, plan, verb, data):
        out = f"{plan.stem}-{verb}.safetensors"
        self.succeed("trun", verb, plan, "--inputs", data, "--outputs", out)
        return safetensors.numpy.load_file(self.folder / out)

    def close(self, found, expected, what, tolerance=TOLERANCE):
        self.assertEqual(found.shape, expected.shape, what)
        error = float(np.abs(found.astype(np.float64) - expected).max()) / scale_of(expected)
        self.assertLessEqual(error, tolerance, f"{what}: {error:.2e} of its largest element")

    def check(self, opset, chosen):
        model, weights = graphs.model(chosen, opset, {entry["domain"] for entry in chosen} - {""})
        onnx.save(model, self.folder / "model.onnx")
        read = {value.name for value in model.graph.input}
        data = self.save("data.safetensors", **{k: v for k, v in graphs.columns().items() if k in read})
        plans = {how: self.compile("model.onnx", "--set", "loss.output=loss", "--set", f"compiler.attention={how}",
                                   "--entry", "gradients,predict", plan=f"{how}.tplan") for how in ("fused", "unfused")}
        said = self.report(plans["fused"])["attention"]
        self.assertEqual(said["near_misses"], [])
        self.assertEqual({row["softmax"].split("/")[0] for row in said["fused"]}, {entry["name"] for entry in chosen})
        self.assertEqual(len(said["weights_elided"]), len(said["fused"]))
        self.assertEqual(self.report(plans["unfused"])["attention"], {"fused": [], "near_misses": [], "weights_elided": []})
        values = {how: self.compute(plan, "predict", data) for how, plan in plans.items()}
        gradients = {how: self.compute(plan, "gradients", data) for how, plan in plans.items()}
        for entry in chosen:
            name = entry["name"]
            row = next(row for row in said["fused"] if row["softmax"].startswith(f"{name}/"))
            with self.subTest(name):
                self.assertEqual({key: row[key] for key in entry["said"]}, entry["said"])
            y, expected = graphs.reference(entry, weights)
            with self.subTest(name):
                self.close(values["fused"][f"{name}.y"], values["unfused"][f"{name}.y"], f"{name}: forward")
                self.close(values["fused"][f"{name}.y"], y, f"{name}: forward against the formula")
                for parameter, gradient in expected.items():
                    key = next(key for key in gradients["fused"] if key.endswith(f"{name}.{parameter}"))
                    if not entry["math"].get("undefined"):
                        self.close(gradients["fused"][key], gradients["unfused"][key], f"{name}: gradient of {parameter}")
                    self.close(gradients["fused"][key], gradient, f"{name}: gradient of {parameter} against the formula")

    def test_spellings(self):
        self.assertGreaterEqual(len(SPELLINGS), 20)
        by_opset = defaultdict(list)
        for entry in SPELLINGS:
            by_opset[entry["opset"]].append(entry)
        for opset, chosen in by_opset.items():
            with self.subTest(opset=opset):
                self.check(opset, chosen)

    def test_near_misses_name_the_node_that_breaks_them(self):
        chosen = [dict(name=build.__name__, build=build, heads=H, parameters={}) for build in BROKEN]
        model, _ = graphs.model(chosen, 18)
        onnx.save(model, self.folder / "model.onnx")
        plan = self.compile("model.onnx", "--set", "loss.output=loss")
        said = self.report(plan)["attention"]
        self.assertEqual((said["fused"], said["weights_elided"]), ([], []))
        reasons = {row["node"]: row["reason"] for row in said["near_misses"]}
        text = self.succeed("tcc", "report", plan).out
        for build, words in BROKEN.items():
            self.assertIn(words, reasons[f"{build.__name__}/breaks"])
            self.assertIn(f"{build.__name__}/breaks", text)
        self.refuse(1, [r"broken_relu/breaks.*compiler\.attention = .fused.*relu of the scores"], "tcc", "model.onnx", "--set",
                    "loss.output=loss", "--set", "compiler.attention=fused", "-o", "never.tplan")

    def test_weights_that_an_output_reads_are_kept(self):
        model, recipe, _, _ = case("mha-need-weights")
        said = self.report(self.compile(model, "--recipe", recipe))["attention"]
        kept = [row for row in said["near_misses"] if "attention weights kept: read by" in row["reason"]]
        self.assertEqual([row["in"] for row in kept], [["prediction"]])
        self.assertEqual(sum("training" in row["in"] for row in said["fused"]), 2)

    def test_the_zoo(self):
        """All attentions of the zoo are found; losses and gradients are those of the unfused graph."""
        counts = {"vit-tiny": 3, "nano-gpt": 2, "hf-gpt2-tiny": 2, "hf-bert-tiny": 2, "hf-llama-tiny": 2, "olmo2": 2,
                  "mha-need-weights": 2}
        for name, count in counts.items():
            with self.subTest(name):
                model, recipe, path, _ = case(name)
                plans = {how: self.compile(model, "--recipe", recipe, "--set", f"compiler.attention={how}", "--entry", "gradients",
                                           plan=f"{name}-{how}.tplan") for how in ("auto", "unfused")}
                report = self.report(plans["auto"])
                missed = [row for row in report["attention"]["near_misses"] if "training" in row["in"]]
                self.assertEqual((len(report["attention"]["fused"]), missed), (count, []))
                batch = report["memory"]["entries"]["gradients"]["programs"]["gradients"]["batch"]
                data = self.save("zoo.safetensors", **{key: value[:batch] for key, value in safetensors.numpy.load_file(path).items()})
                fused, apart = (self.compute(plan, "gradients", data) for plan in plans.values())
                self.assertEqual(fused.keys(), apart.keys())
                # A parameter that only shifts all scores of a row has the gradient 0 plus rounding: compare with the model's largest gradient.
                largest = max(scale_of(value) for key, value in apart.items() if key != "loss")
                for key, value in apart.items():
                    error = float(np.abs(fused[key].astype(np.float64) - value).max())
                    self.assertLessEqual(error, TOLERANCE * max(scale_of(value), 1e-3 * largest), f"{name}: {key}")

    def test_memory_is_linear_in_the_sequence(self):
        arena = {}
        for length in (1024, 2048, 8192):
            g = graphs.Graph()
            g.begin("long")
            shape = [1, 2, length, 16]
            q = g("Mul", "x", g.parameter("q", np.ones(shape[-1:])))
            step = g("Range", g.constant(0, np.int64), g.constant(length, np.int64), g.constant(1, np.int64))
            above = g("Greater", g("Unsqueeze", step, g.ints(0)), g("Unsqueeze", step, g.ints(1)))
            y = g.plain(q, q, q, lambda g, s: g("Where", above, g.constant(-np.inf), s))
            g.nodes.append(onnx.helper.make_node("ReduceMean", [y], ["loss"], "loss", keepdims=0))
            graph = onnx.helper.make_graph(
                g.nodes, "long", [onnx.helper.make_tensor_value_info("x", 1, shape)],
                [onnx.helper.make_tensor_value_info("loss", 1, [])],
                [onnx.numpy_helper.from_array(value, name) for name, value in g.weights.items()])
            onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9),
                      self.folder / "long.onnx")
            plan = self.compile("long.onnx", "--set", "loss.output=loss", "--entry", "gradients")
            arena[length] = self.report(plan)["memory"]["arena_bytes"]
        self.assertLess(arena[2048], 2.1 * arena[1024])
        self.assertLess(arena[8192], 4.1 * arena[2048])


if __name__ == "__main__":
    unittest.main()
