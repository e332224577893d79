"""Files that were not exported for training: weights in Constant nodes, branches and functions, inputs that are settings,
conditions on data. `trun export` must write trained weights back to their place, and the export must have the loss that `trun` reports."""
import unittest

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

from common import EndToEnd, metrics


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name, array):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array), name))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


class OtherExports(EndToEnd):
    def model(self, nodes, inputs, outputs, initializers=(), functions=(), opsets=(("", 17),)):
        graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets],
                                  functions=list(functions), ir_version=8)
        onnx.save(model, self.folder / "m.onnx")
        return self.folder / "m.onnx"

    def outputs(self, path, **inputs):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))

    def train_and_export(self, model, *arguments, out="trained.onnx", **columns):
        """Trains on mse against the column t; the exported model must score in onnxruntime what `trun eval` says."""
        plan = self.compile(model, "--set", "loss.kind=mse", "--set", "loss.of=y", "--set", "loss.target=t", "--set",
                            "optimizer.lr=0.03", *arguments)
        data = self.save("data.safetensors", **columns)
        run = self.train(plan, data, steps=8, out=f"run-{out}")
        losses = [line["loss"] for line in metrics(run)[0]]
        self.assertLess(losses[-1], losses[0])
        first = np.mean((self.outputs(model, **{k: v for k, v in columns.items() if k != "t"} | self.fixed)["y"] - columns["t"])**2)
        self.assertAlmostEqual(losses[0], first, delta=1e-5 * first)
        self.succeed("trun", "export", run, "-o", out)
        exported = onnx.load(self.folder / out)
        onnx.checker.check_model(exported)
        inputs = {k: v for k, v in columns.items() if k != "t"}
        after = np.mean((self.outputs(self.folder / out, **inputs)["y"] - columns["t"])**2)
        self.assertLess(after, losses[-1])
        return exported

    fixed = {}

    def test_constants_are_written_back_where_they_stood(self):
        model = self.model([constant("conv.w", numbers(4, 2, 3, 3)), constant("conv.b", numbers(4)),
                            helper.make_node("Conv", ["x", "conv.w", "conv.b"], ["c"]),
                            helper.make_node("GlobalAveragePool", ["c"], ["p"]), helper.make_node("Flatten", ["p"], ["f"]),
                            constant("fc", numbers(4, 3, seed=1)), helper.make_node("MatMul", ["f", "fc"], ["y"])],
                           [value("x", ["batch", 2, 6, 6])], [value("y", ["batch", 3])])
        exported = self.train_and_export(model, "--dim", "batch=4", x=numbers(4, 2, 6, 6), t=numbers(4, 3, seed=3))
        before = onnx.load(model)
        self.assertEqual(len(exported.graph.initializer), 0)
        self.assertEqual([n.op_type for n in exported.graph.node], [n.op_type for n in before.graph.node])
        for old, new in zip(before.graph.node, exported.graph.node):
            if old.op_type == "Constant":
                was, now = (numpy_helper.to_array(n.attribute[0].t) for n in (old, new))
                self.assertEqual(was.shape, now.shape)
                self.assertGreater(np.abs(was - now).max(), 0)
                self.assertEqual(len(new.attribute[0].t.metadata_props), 0)
        # A plan's report, globs and released weights use the same names.
        weights = safetensors.numpy.load_file(self.release("run-trained.onnx"))
        self.assertEqual(sorted(weights), ["conv.b", "conv.w", "fc"])
        frozen = self.report(self.compile(model, "--dim", "batch=4", "--set", "loss.kind=mse", "--set", "loss.target=t", "--set",
                                          "model.frozen=['conv.*']", plan="frozen.tplan"))
        self.assertEqual(frozen["parameters"]["trainable"], ["fc"])

    def release(self, run):
        self.succeed("trun", "export", run, "-o", "weights.safetensors")
        return self.folder / "weights.safetensors"

    def test_large_models_keep_constants_inside(self):
        # Above this many bytes an export's initializers go to a file beside it; a Constant's bytes cannot.
        model = self.model([constant("w", numbers(40, 40)), helper.make_node("MatMul", ["x", "w"], ["h"]),
                            helper.make_node("MatMul", ["h", "v"], ["y"])],
                           [value("x", [4, 40])], [value("y", [4, 40])], [numpy_helper.from_array(numbers(40, 40, seed=1), "v")])
        self.train_and_export(model, x=numbers(4, 40), t=numbers(4, 40, seed=3))

    def test_a_setting_decides_the_branch_and_stays_an_input_with_a_default(self):
        def branch(name, scale):
            return helper.make_graph([constant("w", scale * numbers(3, 3)), helper.make_node("MatMul", ["x", "w"], [name])],
                                     name, [], [value(name, [4, 3])])
        model = self.model([constant("wide", np.int64(16000)), helper.make_node("Equal", ["rate", "wide"], ["c"]),
                            helper.make_node("If", ["c"], ["y"], name="choose", then_branch=branch("p", 1),
                                             else_branch=branch("q", 2))],
                           [value("x", [4, 3]), value("rate", [], TensorProto.INT64)], [value("y", [4, 3])])
        columns = {"x": numbers(4, 3), "t": numbers(4, 3, seed=3)}
        for rate, trained, left in ((16000, "then_branch", "else_branch"), (8000, "else_branch", "then_branch")):
            self.fixed = {"rate": np.array(rate)}
            exported = self.train_and_export(model, "--fix", f"rate={rate}", out=f"{rate}.onnx", **columns)
            attributes = {a.name: a.g for n in exported.graph.node for a in n.attribute if a.HasField("g")}
            before = {a.name: a.g for n in onnx.load(model).graph.node for a in n.attribute if a.HasField("g")}
            array = lambda graph: numpy_helper.to_array(graph.node[0].attribute[0].t)
            self.assertGreater(np.abs(array(attributes[trained]) - array(before[trained])).max(), 0)
            np.testing.assert_array_equal(array(attributes[left]), array(before[left]))
            self.assertEqual([i.name for i in exported.graph.input], ["x", "rate"])

    def test_a_functions_weight_is_one_parameter(self):
        linear = helper.make_function("own", "Linear", ["a"], ["b"],
                                      [constant("w", numbers(3, 3)), helper.make_node("MatMul", ["a", "w"], ["b"])],
                                      [helper.make_opsetid("", 17)])
        model = self.model([helper.make_node("Linear", ["x"], ["h"], domain="own"),
                            helper.make_node("Linear", ["h"], ["y"], domain="own")],
                           [value("x", [4, 3])], [value("y", [4, 3])], functions=[linear], opsets=(("", 17), ("own", 1)))
        exported = self.train_and_export(model, x=numbers(4, 3), t=numbers(4, 3, seed=3))
        self.assertEqual(len(exported.functions), 1)
        weight = numpy_helper.to_array(exported.functions[0].node[0].attribute[0].t)
        self.assertGreater(np.abs(weight - numbers(3, 3)).max(), 0)

    def gradients(self, model, *arguments, **inputs):
        plan = self.compile(model, "--entry", "gradients", "--set", "loss.output=y", *arguments, plan="g.tplan")
        self.succeed("trun", "gradients", plan, "--inputs", self.save("in.safetensors", **inputs), "--outputs", "g.safetensors")
        return safetensors.numpy.load_file(self.folder / "g.safetensors")

    def chosen(self):
        """y = Σ (c ? √w : w·v), which has no finite derivative at w = 0 in the branch that is not taken."""
        then = helper.make_graph([helper.make_node("Sqrt", ["w"], ["p"])], "then", [], [value("p", [3])])
        other = helper.make_graph([helper.make_node("Mul", ["w", "v"], ["q"])], "else", [], [value("q", [3])])
        return self.model([helper.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other),
                           helper.make_node("Add", ["z", "x"], ["s"]),
                           helper.make_node("ReduceSum", ["s"], ["y"], keepdims=0)],
                          [value("x", [3]), value("c", [], TensorProto.BOOL)], [value("y", [])],
                          [numpy_helper.from_array(np.float32([0, 1, 4]), "w"), numpy_helper.from_array(np.float32([2, 3, 5]), "v")])

    def test_only_the_branch_that_is_taken_has_gradients(self):
        model, x = self.chosen(), numbers(3)
        taken = self.gradients(model, x=x, c=np.bool_(False))
        self.assertAlmostEqual(float(taken["y"]), float(x.sum() + 0 + 3 + 20), places=4)
        np.testing.assert_array_equal(taken["w"], [2, 3, 5])
        np.testing.assert_array_equal(taken["v"], [0, 1, 4])
        other = self.gradients(model, x=x, c=np.bool_(True))
        self.assertAlmostEqual(float(other["y"]), float(x.sum() + 0 + 1 + 2), places=4)
        np.testing.assert_array_equal(other["v"], [0, 0, 0])
        np.testing.assert_allclose(other["w"], [np.inf, 0.5, 0.25])

    def test_iterations_that_do_not_count_have_no_gradients(self):
        # v ← √(v − w) while go: the second iteration would be √ of a number below 0.
        body = helper.make_graph([helper.make_node("Sub", ["v", "w"], ["d"]), helper.make_node("Sqrt", ["d"], ["r"]),
                                  helper.make_node("ReduceMin", ["r"], ["m"], keepdims=0),
                                  helper.make_node("Greater", ["m", "limit"], ["more"])],
                                 "body", [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v", [2])],
                                 [value("more", [], TensorProto.BOOL), value("r", [2])])
        model = self.model([helper.make_node("Loop", ["n", "true", "x"], ["z"], body=body),
                            helper.make_node("ReduceSum", ["z"], ["y"], keepdims=0)],
                           [value("x", [2]), value("limit", [])], [value("y", [])],
                           [numpy_helper.from_array(np.int64(3), "n"), numpy_helper.from_array(np.bool_(True), "true"),
                            numpy_helper.from_array(np.float32([1, 2]), "w")])
        x = np.float32([5, 18])
        got = self.gradients(model, x=x, limit=np.float32(9))
        self.assertAlmostEqual(float(got["y"]), 2 + 4, places=5)
        np.testing.assert_allclose(got["w"], [-1 / 4, -1 / 8], rtol=1e-6)
        twice = self.gradients(model, x=np.float32([17, 38]), limit=np.float32(3.5))
        expected = [np.sqrt(4 - 1), np.sqrt(6 - 2)]
        self.assertAlmostEqual(float(twice["y"]), sum(expected), places=5)
        np.testing.assert_allclose(twice["w"], [-(1 / 8 + 1) / (2 * expected[0]), -(1 / 12 + 1) / (2 * expected[1])], rtol=1e-5)

    def suggested(self, model):
        self.succeed("tcc", model, "--suggest-recipe", "s.toml")
        text = (self.folder / "s.toml").read_text()
        self.assertIn(text[:text.index("# Suggested by tcc")].strip(), self.succeed("tcc", "inspect", model).out)
        return [line.split("  #")[0] for line in text.splitlines()]

    def test_suggested_losses(self):
        """Suggestions follow from the last ops before the outputs; each suggested command compiles."""
        x, w = value("x", ["N", 6]), numpy_helper.from_array(numbers(6, 4), "w")
        product = helper.make_node("MatMul", ["x", "w"], ["logits"])
        cases = {"Softmax": ['kind = "cross_entropy"', 'of = "logits"'], "LogSoftmax": ['kind = "nll"', 'of = "y"'],
                 "Sigmoid": ['kind = "bce_with_logits"', 'of = "logits"'], "Exp": ['kind = "mse"', 'of = "y"']}
        for op, lines in cases.items():
            with self.subTest(op):
                model = self.model([product, helper.make_node(op, ["logits"], ["y"])], [x], [value("y", ["N", 4])], [w])
                self.assertLessEqual(set(lines + ['dims = { "N" = 8 }']), set(self.suggested(model)))
        model = self.model([product, helper.make_node("ReduceMax", ["logits"], ["m"], axes=[1]),
                            helper.make_node("Sub", ["logits", "m"], ["d"]), helper.make_node("Exp", ["d"], ["e"]),
                            constant("axis", np.int64([1])), helper.make_node("ReduceSum", ["e", "axis"], ["s"]),
                            helper.make_node("Div", ["e", "s"], ["y"])], [x], [value("y", ["N", 4])], [w])
        self.assertLessEqual({'kind = "cross_entropy"', 'of = "d"'}, set(self.suggested(model)))
        model = self.model([product, helper.make_node("ArgMax", ["logits"], ["y"], axis=1, keepdims=0)], [x],
                           [value("y", ["N"], TensorProto.INT64)], [w])
        self.assertLessEqual({'kind = "cross_entropy"', 'of = "logits"'}, set(self.suggested(model)))

    def test_one_suggestion_at_a_time(self):
        self.refuse(2, ["--suggest-recipe is for one model at a time"], "tcc", "a.onnx", "b.onnx", "--suggest-recipe", "r.toml")

    def test_a_detector_is_trained_before_it_chooses_boxes(self):
        nodes = [helper.make_node("MatMul", ["x", "w"], ["logits"]), helper.make_node("Sigmoid", ["logits"], ["scores"]),
                 helper.make_node("MatMul", ["x", "v"], ["boxes"]),
                 helper.make_node("Transpose", ["scores"], ["by_class"], perm=[0, 2, 1]),
                 helper.make_node("NonMaxSuppression", ["boxes", "by_class", "most"], ["chosen"], name="nms")]
        model = self.model(nodes, [value("x", ["N", 5, 6])], [value("chosen", ["K", 3], TensorProto.INT64)],
                           [numpy_helper.from_array(numbers(6, 3), "w"), numpy_helper.from_array(numbers(6, 4), "v"),
                            numpy_helper.from_array(np.int64([2]), "most")])
        self.assertLessEqual({'kind = "bce_with_logits"', 'of = "logits"'}, set(self.suggested(model)))

    def test_settings_from_the_recipe_and_from_files(self):
        model = self.model([helper.make_node("Mul", ["x", "window"], ["s"]), helper.make_node("MatMul", ["s", "w"], ["y"])],
                           [value("x", [4, 3]), value("window", [3])], [value("y", [4, 2])],
                           [numpy_helper.from_array(numbers(3, 2), "w")])
        columns = {"x": numbers(4, 3), "t": numbers(4, 2, seed=3)}
        self.save("window.safetensors", hann=np.float32([0.5, 1, 0.25]))
        self.fixed = {"window": np.float32([0.5, 1, 0.25])}
        self.write("r.toml", "[model]\nfix = { window = [0.5, 1, 0.25] }\n")
        self.train_and_export(model, "--recipe", "r.toml", out="a.onnx", **columns)
        self.train_and_export(model, "--fix", "window=window.safetensors:hann", out="b.onnx", **columns)
        self.refuse(1, [r"window.safetensors has no tensor window", "hann"], "tcc", model, "--fix", "window=window.safetensors")
        self.refuse(1, [r"r2.toml:2:.*model.fix.window: its value has the shape \[2\], the input \[3\]"], "tcc", model, "--recipe",
                    self.write("r2.toml", "[model]\nfix = { window = [0.5, 1] }\n"))
        self.refuse(1, ["model.fix.windw: the model has no such input", "window"], "tcc", model, "--fix", "windw=1")


if __name__ == "__main__":
    unittest.main()
