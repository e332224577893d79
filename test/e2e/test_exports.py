"""Exports of new models (exports/) by torch's exporters, called as a newcomer calls them; and the report on a model with ten
different problems."""
import re

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper
import safetensors.numpy

from common import ROOT, EndToEnd

EXPORTS = ROOT / "test" / "e2e" / "exports"
LOSS = """[loss]
kind = "cross_entropy"
of = "{of}"
target = "labels"
class_axis = -1
[optimizer]
kind = "sgd"
lr = 0.1
"""


def warnings(result):
    return [line for line in result.err.splitlines() if line.startswith("warning: ")]


class Exports(EndToEnd):
    def train_tied(self, name, *settings):
        model = EXPORTS / f"tied-{name}.onnx"
        proto = onnx.load(model)
        (ids,), (of,) = proto.graph.input, proto.graph.output
        recipe = self.write("recipe.toml", LOSS.format(of=of.name))
        data = self.save("data.safetensors", **{ids.name: np.arange(24).reshape(4, 6) % 17,
                                                "labels": (np.arange(24).reshape(4, 6) * 5 + 1) % 17})
        plan = self.compile(model, "--recipe", recipe, *settings)
        run = self.train(plan, data, steps=4)
        self.succeed("trun", "export", run, "-o", "trained.onnx")
        trained = onnx.load(self.folder / "trained.onnx")
        onnx.checker.check_model(trained)
        return proto, plan, {t.name: onnx.numpy_helper.to_array(t) for t in trained.graph.initializer}, self.weights(run)

    def test_merged_norms_are_trained_and_exported_each_by_itself(self):
        for name in ("dynamo", "torchscript"):
            with self.subTest(name):
                self.setUp()
                _, _, trained, weights = self.train_tied(name)
                for part in ("weight", "bias"):
                    self.assertFalse(np.allclose(trained[f"norm.{part}"], trained[f"norm2.{part}"], atol=1e-6))
                    np.testing.assert_array_equal(trained[f"norm2.{part}"], weights[f"norm2.{part}"])

    def test_merged_norms_stay_one_on_request(self):
        _, _, trained, _ = self.train_tied("torchscript", "--set", "model.merged=keep")
        self.assertNotIn("norm2.weight", trained)

    def test_a_torn_head_is_tied_again(self):
        for name, head, embedding in (("dynamo", "val_8", "head.weight"), ("torchscript", "onnx::MatMul_23", "emb.weight")):
            with self.subTest(name):
                self.setUp()
                _, _, apart, _ = self.train_tied(name)
                self.assertFalse(np.allclose(apart[head], apart[embedding].T, atol=1e-6))
                self.setUp()
                start, plan, tied, weights = self.train_tied(name, "--set", "model.tie=true")
                first = {t.name: onnx.numpy_helper.to_array(t) for t in start.graph.initializer}
                self.assertFalse(np.array_equal(tied[embedding], first[embedding]))
                np.testing.assert_array_equal(tied[head], tied[embedding].T)
                np.testing.assert_array_equal(weights[head], weights[embedding].T)
                self.assertEqual(self.report(plan)["parameters"]["ties"],
                                 [{"name": head, "of": embedding, "permutation": [1, 0]}])

    def test_one_warning_with_the_call_that_would_have_been_right(self):
        calls = {"dynamo": r'dynamic_shapes=\(\{0: "batch"\},\), optimize=False',
                 "torchscript": r"dynamic_axes=.*TrainingMode.TRAINING, do_constant_folding=False"}
        for name, call in calls.items():
            for model in ("tied", "pooled", "viewed", "cls"):
                with self.subTest(f"{model}-{name}"):
                    said = warnings(self.succeed("tcc", EXPORTS / f"{model}-{name}.onnx", "--entry", "predict", "-o", "p.tplan"))
                    self.assertEqual(len(said), 1, said)
                    # Only a dropout tells that the exported model was in training mode.
                    drops = any(node.op_type == "Dropout" for node in onnx.load(EXPORTS / f"{model}-{name}.onnx").graph.node)
                    self.assertIn(": a plain export: " if drops else ": a plain export, made for inference: ", said[0])
                    self.assertRegex(said[0], call)
                    self.assertEqual("BatchNormalization is folded" in said[0], model in ("pooled", "viewed"))

    def test_another_batch_is_offered_where_it_can_be_had(self):
        """Tries the warning's advice: the command with --batch compiles; if a constant fixes the batch, the warning says so."""
        for name in ("tied", "pooled", "viewed", "cls"):
            for exporter in ("dynamo", "torchscript"):
                with self.subTest(f"{name}-{exporter}"):
                    model = EXPORTS / f"{name}-{exporter}.onnx"
                    (said,) = warnings(self.succeed("tcc", model, "--entry", "predict", "-o", "p.tplan"))
                    if name in ("viewed", "cls") and exporter == "dynamo":
                        self.assertRegex(said, r"a sample at a time; --shape cannot change that: node node_view \(Reshape\)")
                    elif offered := re.search(r"a sample at a time; (--shape \S+) gives it batches of 32", said):
                        self.compile(model, "--entry", "predict", *offered[1].split())
                    else:
                        self.assertIn("--shape cannot change that: ", said)

    def test_an_export_for_training_is_not_called_one_for_inference(self):
        model = onnx.load(EXPORTS / "pooled-torchscript.onnx")
        graph = model.graph
        graph.node.add(op_type="Dropout", name="drop", input=[graph.output[0].name, "", "training"], output=["dropped"])
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "training"))
        graph.output.add().CopyFrom(oh.make_tensor_value_info("dropped", onnx.TensorProto.FLOAT, None))
        path = self.folder / "training.onnx"
        onnx.save(model, path)
        (said,) = warnings(self.succeed("tcc", path, "--entry", "predict", "-o", "p.tplan"))
        self.assertIn("training.onnx: a plain export: its batch is fixed at 1", said)
        self.assertNotIn("made for inference", said)
        self.assertNotIn("dropout, if the model has it, is gone", said)

    def test_another_batch_where_no_constant_holds_the_old_one(self):
        model = EXPORTS / "pooled-torchscript.onnx"
        (image,) = onnx.load(model).graph.input
        recipe = self.write("recipe.toml", LOSS.format(of=onnx.load(model).graph.output[0].name))
        plan = self.compile(model, "--recipe", recipe, "--shape", f"{image.name}=8x1x8x8")
        rng = np.random.default_rng(0)
        data = self.save("data.safetensors", **{image.name: rng.normal(size=(16, 1, 8, 8)).astype(np.float32),
                                                "labels": rng.integers(0, 3, 16)})
        self.train(plan, data)
        self.assertEqual(self.report(plan)["memory"]["entries"]["predict"]["programs"]["predict"]["batch"], 8)

    def test_constants_that_hold_the_batch_are_named(self):
        self.refuse(1, [r"node node_view \(Reshape\): val_\d+ = \[1, -1\] holds the batch of 1"], "tcc",
                    EXPORTS / "viewed-dynamo.onnx", "--shape", "x=8x1x8x8")
        self.refuse(1, [r"node_view", r"node node_cat \(Concat\): expand = \[1, 1, 8\] is for a batch of 1"], "tcc",
                    EXPORTS / "cls-dynamo.onnx", "--shape", "x=8x1x8x8")

    def test_decisions_are_reported_with_their_sign(self):
        plan = self.compile(EXPORTS / "tied-dynamo.onnx", "--entry", "predict")
        decisions = {d["name"]: d for d in self.report(plan)["parameters"]["decisions"]}
        self.assertEqual(decisions["val_2"]["decision"], "trained")
        self.assertEqual(decisions["val_2"]["folded_from"], "lin.weight")
        self.assertIn("PARAMETER", decisions["norm.weight"]["sign"])
        self.assertIn("folded from the parameter in brackets", self.succeed("tcc", "report", plan).out)


class Inspection(EndToEnd):
    def ten_problems(self):
        f, i = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
        x = oh.make_tensor_value_info("x", f, ["batch", 4])
        nodes = [oh.make_node("NonZero", ["x"], ["n"], "p_nonzero"),
                 oh.make_node("Unique", ["x"], ["u"], "p_unique"),
                 oh.make_node("Compress", ["x", "c"], ["z"], "p_compress"),
                 oh.make_node("NonMaxSuppression", ["boxes", "scores"], ["s"], "p_suppress"),
                 oh.make_node("MatMulInteger", ["bytes", "bytes"], ["q"], "p_quantize"),
                 oh.make_node("StringNormalizer", ["words"], ["t"], "p_strings"),
                 oh.make_node("ImageDecoder", ["jpeg"], ["picture"], "p_decode"),
                 oh.make_node("Frobnicate", ["x"], ["w"], "p_foreign", domain="my.domain"),
                 oh.make_node("Relu", ["x"], ["y"], "fine")]
        inputs = [x, oh.make_tensor_value_info("c", onnx.TensorProto.BOOL, [4]),
                  oh.make_tensor_value_info("bytes", onnx.TensorProto.UINT8, [4, 4]),
                  oh.make_tensor_value_info("boxes", f, [1, 3, 4]), oh.make_tensor_value_info("scores", f, [1, 1, 3]),
                  oh.make_tensor_value_info("words", onnx.TensorProto.STRING, [2]),
                  oh.make_tensor_value_info("jpeg", onnx.TensorProto.UINT8, [None])]
        outputs = [oh.make_tensor_value_info(n, t, None) for n, t in
                   (("n", i), ("u", f), ("z", f), ("s", i), ("q", onnx.TensorProto.INT32), ("picture", onnx.TensorProto.UINT8),
                    ("t", onnx.TensorProto.STRING), ("w", f), ("y", f))]
        graph = oh.make_graph(nodes, "g", inputs, outputs)
        model = oh.make_model(graph, ir_version=10,
                              opset_imports=[oh.make_opsetid("", 20), oh.make_opsetid("my.domain", 1)])
        path = self.folder / "ten.onnx"
        onnx.save(model, path)
        return path

    def test_one_report_names_all(self):
        path = self.ten_problems()
        out = self.succeed("tcc", "inspect", path).out
        for name in ("p_nonzero", "p_unique", "p_compress", "p_suppress", "p_quantize", "p_strings", "p_decode", "p_foreign",
                     "input x, axis 0: batch", "input jpeg, axis 0", "input words"):
            self.assertIn(name, out)
        self.assertNotRegex(out, r"(?m)^  fine")
        result = self.command("tcc", path)
        self.assertEqual(result.status, 1)
        for name in ("p_quantize", "p_strings", "p_decode", "p_foreign", "input x, axis 0: batch", "input jpeg, axis 0"):
            self.assertIn(name, result.err)

    def test_parameters_with_sizes_and_signs(self):
        out = self.succeed("tcc", "inspect", EXPORTS / "tied-dynamo.onnx").out
        self.assertRegex(out, r"(?m)^  head\.weight +FLOAT +\[17, 8\] +544 B +the exporter notes it as PARAMETER")
        self.assertRegex(out, r"(?m)^  val_2 .*folded from lin\.weight")
        self.assertRegex(out, r"(?m)^  LayerNormalization +2$")
        self.assertRegex(out, r"val_8 is head\.weight transposed")
        self.assertIn("everything is supported", out)


if __name__ == "__main__":
    import unittest
    unittest.main()
