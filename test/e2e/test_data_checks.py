"""trun's checks of data and their messages: indices, NaN, damaged samples."""
import os
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import models
from common import EndToEnd, metrics

ROWS, LENGTH, BATCH = 40, 6, 4


def language_model(path):
    """input_ids, position_ids [batch, length] → logits [batch, length, rows]; position_ids through Cast, Slice and Add."""
    def ints(name):
        return helper.make_tensor_value_info(name, TensorProto.INT64, [BATCH, LENGTH])
    nodes = [helper.make_node("Gather", ["wte.weight", "input_ids"], ["tokens"], "wte"),
             helper.make_node("Cast", ["position_ids"], ["narrow"], "narrow", to=TensorProto.INT32),
             helper.make_node("Add", ["narrow", "two"], ["shifted"], "shift"),
             helper.make_node("Gather", ["wpe.weight", "shifted"], ["places"], "wpe"),
             helper.make_node("Add", ["tokens", "places"], ["sum"], "sum"),
             helper.make_node("MatMul", ["sum", "head"], ["logits"], "head")]
    weights = {"wte.weight": models.random(1, ROWS, 8), "wpe.weight": models.random(2, LENGTH + 2, 8),
               "head": models.random(3, 8, ROWS), "two": np.array(2, np.int32)}
    graph = helper.make_graph(nodes, "graph", [ints("input_ids"), ints("position_ids")],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [BATCH, LENGTH, ROWS])],
                              [numpy_helper.from_array(v, n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


class Indices(EndToEnd):
    def setUp(self):
        super().setUp()
        recipe = self.write("r.toml", '[loss]\nkind = "cross_entropy"\nof = "logits"\ntarget = "labels"\nclass_axis = -1\n' + models.SGD)
        self.plan = self.compile(language_model(self.folder / "lm.onnx"), "--recipe", recipe, "--entry", "train,evaluate,predict,gradients")
        ids = np.random.default_rng(0).integers(0, ROWS, (20, LENGTH))
        self.good = {"input_ids": ids, "labels": ids, "position_ids": np.tile(np.arange(LENGTH), (20, 1))}

    def damaged(self, column, sample, position, value):
        columns = {k: v.copy() for k, v in self.good.items()}
        columns[column][sample, position] = value
        return columns

    def test_good_data_trains(self):
        self.train(self.plan, self.save("d.safetensors", **self.good))
        negative = self.save("e.safetensors", **self.damaged("input_ids", 3, 3, -ROWS))
        self.train(self.plan, negative, "--set", "data.negative_indices=true", out="negative")

    def test_every_command_refuses(self):
        data = self.save("d.safetensors", **self.damaged("input_ids", 17, 3, ROWS))
        says = [r"d\.safetensors: column 'input_ids', sample 17, position 3: value 40 is no index of wte\.weight's 40 rows",
                "from 0 to 39"]
        self.refuse(1, says, "trun", self.plan, "--data", data, "--out", "run")
        self.refuse(1, says, "trun", "eval", self.plan, "--data", data)
        one = self.save("one.safetensors", **{k: v[16:20] for k, v in self.damaged("input_ids", 17, 3, ROWS).items()})
        for verb in ("predict", "gradients"):
            self.refuse(1, [r"'input_ids', sample 1, position 3: value 40"], "trun", verb, self.plan, "--inputs", one,
                        "--outputs", "o.safetensors")

    def test_through_what_the_graph_adds(self):
        data = self.save("d.safetensors", **self.damaged("position_ids", 2, 5, LENGTH))
        self.refuse(1, [r"'position_ids', sample 2, position 5: value 6 is no index of wpe\.weight's 8 rows", "from -2 to 5"],
                    "trun", self.plan, "--data", data, "--out", "run")

    def test_left_out_by_max_bad(self):
        columns = self.damaged("input_ids", 17, 3, ROWS)
        columns["labels"][5, 0] = ROWS
        data = self.save("d.safetensors", **columns)
        self.succeed("trun", self.plan, "--data", data, "--set", "data.max_bad=2", "--steps", 10, "--out", "run", "--checkpoint-every", 3)
        updates, _ = metrics(self.folder / "run")
        self.assertEqual(updates[-1]["damaged_samples"], 2)
        log = (self.folder / "run" / "log.txt").read_text()
        self.assertIn("damaged sample 17", log)
        self.assertIn("damaged sample 5", log)
        self.refuse(1, ["1 damaged sample was left out before", r"data\.max_bad"], "trun", self.plan, "--data", data, "--set",
                    "data.max_bad=1", "--steps", 10, "--out", "one")
        # Stopped and resumed: the same weights, bit for bit, and the same count.
        self.succeed("trun", self.plan, "--data", data, "--set", "data.max_bad=2", "--steps", 4, "--out", "part")
        self.succeed("trun", self.plan, "--data", data, "--steps", 10, "--resume", "part")
        whole, part = self.weights("run", "a.safetensors"), self.weights("part", "b.safetensors")
        for name, value in whole.items():
            self.assertTrue(np.array_equal(value, part[name]), name)
        self.assertEqual(metrics(self.folder / "part")[0][-1]["damaged_samples"], 2)

    def test_data_command(self):
        columns = self.damaged("input_ids", 17, 3, ROWS)
        columns["labels"][5, 0] = ROWS
        data = self.save("d.safetensors", **columns)
        self.assertIn("input_ids", self.succeed("trun", "data", data).out)
        result = self.refuse(1, [r"2 of 20 samples are damaged", r"data\.max_bad=2"], "trun", "data", data, "--plan", self.plan)
        self.assertRegex(result.out, r"damaged sample 5: .*names no class")
        self.assertRegex(result.out, r"damaged sample 17: .*no index of wte\.weight")
        self.succeed("trun", "data", self.save("good.safetensors", **self.good), "--plan", self.plan)


class OtherOps(EndToEnd):
    """Other ops that address a table: the least and the greatest legal index are accepted, those beyond are refused."""

    def check(self, node, inputs, output, weights, column, legal, illegal, others=None):
        infos = [helper.make_tensor_value_info(*info) for info in inputs]
        graph = helper.make_graph([node], "graph", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
                                  [numpy_helper.from_array(v, n) for n, v in weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), self.folder / "m.onnx")
        plan = self.compile(self.folder / "m.onnx", "--entry", "predict")
        for value, status in [(value, 0) for value in legal] + [(value, 1) for value in illegal]:
            indices = np.full([int(n) for n in inputs[0][2]], 0)
            indices.flat[-1] = value
            data = self.save("d.safetensors", **{column: indices}, **(others or {}))
            words = ("trun", "predict", plan, "--inputs", data, "--outputs", "o.safetensors", "--set",
                     "data.negative_indices=true")
            with self.subTest(op=node.op_type, value=value):
                if status:
                    self.refuse(1, [rf"column '{column}', sample .*value {value} is no index of"], *words)
                else:
                    self.succeed(*words)

    def test_gather_nd(self):
        self.check(helper.make_node("GatherND", ["w", "i"], ["y"], "look"), [("i", TensorProto.INT64, [4, 2])], [4],
                   {"w": models.random(1, 6, 3)}, "i", [2, -3], [3, -4])

    def test_gather_elements(self):
        self.check(helper.make_node("GatherElements", ["w", "i"], ["y"], "look", axis=1), [("i", TensorProto.INT64, [6, 2])],
                   [6, 2], {"w": models.random(1, 6, 3)}, "i", [2, -3], [3, -4])

    def test_scatter_elements(self):
        self.check(helper.make_node("ScatterElements", ["w", "i", "u"], ["y"], "put", axis=0),
                   [("i", TensorProto.INT64, [2, 3]), ("u", TensorProto.FLOAT, [2, 3])], [6, 3], {"w": models.random(1, 6, 3)},
                   "i", [5, -6], [6, -7], {"u": models.random(2, 2, 3)})

    def test_labels_of_a_loss_in_the_graph(self):
        self.check(helper.make_node("SoftmaxCrossEntropyLoss", ["x", "l", "weights"], ["y"], "loss", ignore_index=-100,
                                    reduction="none"),
                   [("l", TensorProto.INT64, [4]), ("x", TensorProto.FLOAT, [4, 3])], [4], {"weights": np.ones(3, np.float32)},
                   "l", [2, -100], [3, -1], {"x": models.random(2, 4, 3)})


class NotANumber(EndToEnd):
    def setUp(self):
        super().setUp()
        self.plan = self.compile(models.mlp(self.folder / "mlp.onnx"), "--recipe", self.write("r.toml", models.SQUARES + models.SGD))
        self.columns = models.mlp_data(32)

    def test_data_is_blamed_for_its_nan(self):
        for column, position in (("x", 2), ("y", 0)):
            columns = {k: v.copy() for k, v in self.columns.items()}
            columns[column][17, position] = np.nan
            data = self.save("nan.safetensors", **columns)
            result = self.refuse(4, [rf"nan\.safetensors: column '{column}', sample 17, position {position}: NaN"], "trun",
                                 self.plan, "--data", data, "--no-shuffle", "--steps", 4, "--out", f"run-{column}")
            self.assertNotIn("node", result.err)
            self.refuse(1, ["1 of 32 samples is damaged"], "trun", "data", data)
            self.succeed("trun", self.plan, "--data", data, "--set", "data.max_bad=1", "--steps", 8, "--out", f"skip-{column}")

    def test_infinity_is_named_beside_the_node(self):
        self.columns["x"][9, 1] = np.inf
        data = self.save("inf.safetensors", **self.columns)
        self.refuse(4, ["node", r"column 'x', sample 9, position 1: inf"], "trun", self.plan, "--data", data, "--no-shuffle",
                    "--steps", 4, "--out", "run")

    def test_empty_data(self):
        data = self.save("empty.safetensors", **{k: v[:0] for k, v in self.columns.items()})
        for words in (("trun", self.plan, "--data", data, "--out", "run"), ("trun", "eval", self.plan, "--data", data),
                      ("trun", "data", data)):
            result = self.refuse(1, [r"empty\.safetensors: the data set is empty"], *words)
            self.assertNotIn("smaller batch", result.err)


class Places(EndToEnd):
    def test_fifos_are_refused(self):
        plan = self.compile(models.mlp(self.folder / "mlp.onnx"), "--recipe", self.write("r.toml", models.SQUARES + models.SGD))
        data = self.save("d.safetensors", **models.mlp_data(8))
        for name in ("f.safetensors", "f.npz", "f.csv", "f.tar", "f.tplan"):
            os.mkfifo(self.folder / name)
        for words in (("f.tplan", "--data", data), (plan, "--data", "f.safetensors"), (plan, "--data", "f.npz"),
                      (plan, "--data", "f.csv"), (plan, "--data", "f.tar"), (plan, "--data", data, "--init", "f.safetensors"),
                      ("eval", plan, "--data", data, "--from", "f.safetensors"), ("verify", "f.tplan"), ("data", "f.tar"),
                      ("predict", plan, "--inputs", "f.safetensors", "--outputs", "o.safetensors")):
            with self.subTest(words=words):
                self.refuse(1, [r"f\.\w+: cannot read: it is not a regular file but a FIFO"], "trun", *words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
