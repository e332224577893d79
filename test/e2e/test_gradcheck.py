"""tcc gradcheck: derived gradients agree with finite differences, in f64, on whole models."""
import re
import unittest

import models
import numpy as np
import onnx
from common import EndToEnd, case
from onnx import helper, numpy_helper


class Gradcheck(EndToEnd):
    def check(self, *arguments):
        """name → relative error, and the whole output."""
        out = self.succeed("tcc", "gradcheck", *arguments).out
        rows = re.findall(r"^(\S+) +(\S+) +(\d+) +([\d.e+-]+) +(\d+) +([\d.e+-]+)  ", out, re.MULTILINE)
        return {row[0]: float(row[5]) for row in rows}, out

    def test_zoo(self):
        for name in ("mlp", "small-cnn", "nano-gpt", "in-graph-loss", "hf-gpt2-tiny"):
            with self.subTest(case=name):
                model, recipe, _, expected = case(name)
                errors, out = self.check(model, "--recipe", recipe)
                self.assertEqual(set(errors), set(expected["parameters"]))
                self.assertLess(max(errors.values()), 1e-6)
                self.assertRegex(out, f"{len(errors)} of {len(errors)} gradients agree")

    def test_data_of_the_case(self):
        model, recipe, data, _ = case("nano-gpt")
        errors, out = self.check(model, "--recipe", recipe, "--data", data, "--parameter", "wte.*", "--parameter", "ln_f.*")
        self.assertEqual(set(errors), {"wte.weight", "ln_f.weight", "ln_f.bias"})
        self.assertIn(str(data), out)

    def test_options_repeat(self):
        """All of several --set and --dim apply."""
        model, recipe, _, _ = case("mlp")
        self.succeed("tcc", model, "--recipe", recipe, "--set", "optimizer.lr=0.5", "--set", "train.seed=7", "-o", "p.tplan")
        self.refuse(1, ["--set.*train.sed"], "tcc", model, "--recipe", recipe, "--set", "optimizer.lr=0.5", "--set", "train.sed=7")

    def test_the_seed_decides(self):
        model, recipe, _, _ = case("mlp")
        outputs = [self.check(model, "--recipe", recipe, "--seed", seed)[1] for seed in (1, 1, 2)]
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0], outputs[2])
        self.assertIn("seed 2", outputs[2])

    def test_unused_parameters_are_listed(self):
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["prediction"], "live", transB=1),
                 helper.make_node("Gemm", ["x", "v", "c"], ["other"], "dead_branch", transB=1)]
        models.save(self.folder / "m.onnx", nodes, {"x": [8, 5]}, {"prediction": [8, 1], "other": [8, 1]},
                    {"w": models.random(1, 1, 5), "b": models.random(2, 1), "v": models.random(3, 1, 5), "c": models.random(4, 1)})
        recipe = self.write("r.toml", models.SQUARES + models.SGD)
        errors, out = self.check("m.onnx", "--recipe", recipe)
        self.assertEqual(set(errors), {"w", "b"})
        self.assertRegex(out, r"no gradient: v \(node dead_branch\)")

    def test_logarithms_get_positive_inputs(self):
        """ln(x) of normal numbers has no loss: the inputs are drawn again, and the output says so."""
        nodes = [helper.make_node("Log", ["x"], ["l"], "log"),
                 helper.make_node("Gemm", ["l", "w", "b"], ["prediction"], "linear", transB=1)]
        models.save(self.folder / "m.onnx", nodes, {"x": [8, 5]}, {"prediction": [8, 1]},
                    {"w": models.random(1, 1, 5), "b": models.random(2, 1)})
        errors, out = self.check("m.onnx", "--recipe", self.write("r.toml", models.SQUARES + models.SGD))
        self.assertEqual(set(errors), {"w", "b"})
        self.assertIn("[0.05, 0.95)", out)

    def test_an_index_with_an_offset(self):
        """A length n picks column n − 1 of 8: 8 is legal, 9 is not; and drawn lengths use that range."""
        nodes = [helper.make_node("Sub", ["n", "one"], ["i"]), helper.make_node("Unsqueeze", ["i", "axis"], ["at"]),
                 helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("GatherElements", ["h", "at"], ["z"], "pick", axis=1),
                 helper.make_node("ReduceMean", ["z"], ["loss"], keepdims=0)]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [4, 3]), helper.make_tensor_value_info("n", 7, [4])],
                                  [helper.make_tensor_value_info("loss", 1, [])],
                                  [numpy_helper.from_array(models.random(1, 3, 8), "w"), numpy_helper.from_array(np.array(1), "one"),
                                   numpy_helper.from_array(np.array([1]), "axis")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), self.folder / "m.onnx")
        x = models.random(2, 4, 3)
        for lengths, fits in (([8, 7, 1, 2], True), ([9, 1, 1, 1], False)):
            data = self.save("d.safetensors", x=x, n=np.array(lengths))
            if fits:
                self.assertEqual(set(self.check("m.onnx", "--data", data)[0]), {"w"})
            else:
                self.refuse(1, ["value 9 is outside of its legal range, -7 to 8"], "tcc", "gradcheck", "m.onnx", "--data", data)
        self.assertEqual(set(self.check("m.onnx")[0]), {"w"})

    def test_what_does_not_fit_is_refused(self):
        model, recipe, _, _ = case("mlp")
        self.refuse(1, [r"nothing\.safetensors"], "tcc", "gradcheck", model, "--recipe", recipe, "--data", "nothing.safetensors")
        data = self.save("d.safetensors", other=np.zeros(3, np.float32))
        self.refuse(1, [r"^error: .*d\.safetensors: '.*' is missing"], "tcc", "gradcheck", model, "--recipe", recipe, "--data", data)
        self.refuse(2, ["--parameter nothing.*: no trained parameter"], "tcc", "gradcheck", model, "--recipe", recipe,
                    "--parameter", "nothing*")


class Commands(EndToEnd):
    def test_unknown_options_name_the_nearest(self):
        self.refuse(2, [r"^error: unknown option '--recipee', did you mean '--recipe'\?"], "tcc", "m.onnx", "--recipee", "r.toml")
        self.refuse(2, [r"unknown option '--jsn', did you mean '--json'\?; see tcc report --help"], "tcc", "report", "p.tplan", "--jsn")
        # For options of other trainers the message names the option or key with the same meaning.
        self.refuse(2, [r"unknown option '--batch-size': give --batch N; see tcc --help"], "tcc", "m.onnx", "--batch-size", 4)
        self.refuse(2, [r"'--epochs': it belongs to the run: give trun --epochs"], "tcc", "m.onnx", "--epochs", 4)
        self.refuse(2, [r"'--batch': the batch is compiled into the plan: give tcc --batch N"], "trun", "p.tplan", "--batch", 4)
        self.refuse(2, [r"'--lr=0\.1': give --set optimizer\.lr=RATE"], "trun", "p.tplan", "--lr=0.1")
        self.refuse(2, [r"unknown command 'reprot', did you mean 'report'\?"], "tcc", "reprot", "p.tplan")

    def test_what_is_not_there_yet_says_so(self):
        model, recipe, _, _ = case("mlp")
        self.refuse(2, ["^error: .*--target cuda: cuda needs an architecture.*cuda:sm_90"], "tcc", model, "--recipe", recipe, "--target", "cuda")
        self.refuse(2, ["--precision"], "tcc", model, "--recipe", recipe, "--precision", "fp8")

    def test_a_report_of_what_is_no_plan(self):
        self.refuse(1, ["^error: .*cannot open the plan"], "tcc", "report", "nothing.tplan")
        self.refuse(1, ["^error: .*not a plan"], "tcc", "report", self.write("p.tplan", b"no plan at all, though long enough"))
        plan = self.compile(*self.mlp())
        plan.write_bytes(plan.read_bytes()[:-1])
        self.refuse(1, [r"^error: plan\.tplan"], "tcc", "report", "plan.tplan")

    def mlp(self):
        model, recipe, _, _ = case("mlp")
        return model, "--recipe", recipe


if __name__ == "__main__":
    unittest.main(verbosity=2)
