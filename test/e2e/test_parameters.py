"""Which initializers are trained, by comparison with PyTorch's losses: scalars, equal weights, functions of weights, buffers
(parameters/make.py). Also the four lists of floating-point initializers that `tcc inspect` and the report print."""
import json
import re

import onnx

from common import ROOT, ZOO, EndToEnd, metrics

HERE = ROOT / "test" / "e2e" / "parameters"
EXPECTED = json.loads((HERE / "expected.json").read_text())
FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
LISTS = {"trained", "frozen", "buffer", "constant"}
RECIPE = """[loss]
output = "loss"
[optimizer]
kind = "sgd"
lr = 0.1
"""


class Parameters(EndToEnd):
    def losses(self, name, *settings):
        """tcc's losses over as many steps as PyTorch took, and tcc's messages."""
        result = self.succeed("tcc", HERE / f"{name}.onnx", "--recipe", self.write("r.toml", RECIPE), "-o", "p.tplan",
                              *(word for setting in settings for word in ("--set", setting)))
        self.runs = getattr(self, "runs", 0) + 1
        run = self.train("p.tplan", HERE / "data.safetensors", steps=5, out=f"run{self.runs}")
        return [line["loss"] for line in metrics(run)[0]], result.err

    def check(self, name, *settings, of="losses"):
        got, said = self.losses(name, *settings)
        expected = EXPECTED[name.rsplit("-", 1)[0]][of]
        self.assertEqual(len(got), len(expected))
        for step, (a, b) in enumerate(zip(got, expected), 1):
            self.assertLess(abs(a - b), 2e-5 * abs(b), f"{name}: loss of step {step}: {got} instead of {expected}\n{said}")
        return said

    def test_the_losses_are_pytorchs(self):
        """Scalars, moved elements, equal weights, constants of the code that equal a weight, tied weights; with every exporter."""
        for name in ("scalars", "moved", "equal", "literal", "tied"):
            for how in ("dynamo", "raw", "script"):
                with self.subTest(f"{name}-{how}"):
                    # The older exporter's file does not say that the mask is a buffer.
                    settings = ['model.frozen=["ones"]'] if (name, how) == ("literal", "script") else []
                    self.check(f"{name}-{how}", *settings)
        for name in ("functions", "zero-bias", "zero-weights", "hidden", "repeated", "weight-norm", "buffers"):
            with self.subTest(f"{name}-raw"):
                self.check(f"{name}-raw")
        for name in ("scalars-plain", "functions-plain", "buffers-dynamo"):
            with self.subTest(name):
                self.check(name)

    def test_globs_choose_what_pytorch_trains(self):
        """Random globs (make.py has the seed): the losses equal those of PyTorch's loop over the same parameters."""
        for number, draw in enumerate(EXPECTED["draws"]):
            how = ("dynamo", "raw")[number % 2]
            with self.subTest(number=number, globs=draw["globs"], model=f"{draw['case']}-{how}"):
                got, said = self.losses(f"{draw['case']}-{how}", *(f"model.{key}={json.dumps(globs)}" for key, globs in draw["globs"].items()))
                for a, b in zip(got, draw["losses"], strict=True):
                    self.assertLess(abs(a - b), 2e-5 * abs(b), f"{got} instead of {draw['losses']}\n{said}")

    def test_a_function_of_a_weight_is_refused(self):
        """Training the function's value would train another model. The way of exporting that the message names does train (test above)."""
        found = {"functions": [r"exp \(read by node_mul\): exp of a_log", "sigmoid of gate", "neg of w", "add.* of scale", "mul.* of small"],
                 "weight-norm": [r"linalg_vector_norm.* of f\.parametrizations\.weight\.original0, f\.parametrizations\.weight\.original1"],
                 "repeated": [r"repeated elements of token"],
                 "hidden": [r"computed \(exp\) and stored as scale.*gate"],
                 "zero-weights": [r"b\.weight is gone"]}
        recipe = self.write("r.toml", RECIPE)
        for name, patterns in found.items():
            with self.subTest(name):
                self.refuse(1, [*patterns, "dynamo=True, optimize=False"], "tcc", HERE / f"{name}-dynamo.onnx", "--recipe", recipe)
                self.succeed("tcc", HERE / f"{name}-dynamo.onnx", "--entry", "predict", "-o", "p.tplan")
                self.assertIn("refused for training: ", self.succeed("tcc", "inspect", HERE / f"{name}-dynamo.onnx").out)

    def test_a_function_of_a_weight_may_be_left_as_it_is(self):
        """model.frozen may give its own name or its parameter's; its exact name in model.trainable trains it all the same."""
        recipe = self.write("r.toml", RECIPE)
        model = HERE / "functions-dynamo.onnx"
        names = 'a_log", "gate", "w", "scale'
        self.refuse(1, ["of small"], "tcc", model, "--recipe", recipe, "--set", f'model.frozen=["{names}"]')
        plan = self.compile(model, "--recipe", recipe, "--set", f'model.frozen=["{names}", "small"]',
                            "--set", 'model.trainable=["*"]', "--entry", "predict")
        self.assertEqual(self.report(plan)["parameters"]["trainable"], [])
        exact = [d["name"] for d in self.lists(model) if "of small" in d["reason"]]
        plan = self.compile(model, "--recipe", recipe, "--set", f"model.trainable={json.dumps(exact)}")
        self.assertEqual(self.report(plan)["parameters"]["trainable"], exact)

    def test_zero_biases_that_are_gone_are_named(self):
        said = self.check("zero-bias-dynamo", of="without biases")
        self.assertRegex(said, r"biases of zeros that the exporter dropped are not trained: f\.0\.bias, f\.1\.bias; .*optimize=False")
        self.assertNotIn("dropped", self.check("zero-bias-raw"))

    def test_buffers_of_the_older_exporter(self):
        """One buffer is recognised by its name; the other is doubtful, and the message names it and the keys that decide."""
        _, said = self.losses("buffers-script")
        self.assertRegex(said, r"nothing says whether they are weights, buffers or constants: levels \(read by /Mul_1\).*model\.frozen")
        self.assertNotIn("inv_freq", said)
        self.check("buffers-script", 'model.frozen=["levels"]')

    def test_what_the_older_exporter_computed_is_doubtful(self):
        said = self.command("tcc", HERE / "functions-script.onnx", "--recipe", self.write("r.toml", RECIPE)).err
        self.assertRegex(said, r"onnx::\w+ \(read by [^)]*\).*do_constant_folding=False")

    def test_what_a_file_cannot_say_is_asked_once(self):
        """requires_grad_(False) and torch.no_grad() leave no mark in the file: one note says so, unless the recipe decides."""
        pattern = r"note: scalars-raw\.onnx: .*requires_grad_\(False\).*model\.frozen.*model\.stop_gradient"
        self.assertRegex(self.losses("scalars-raw")[1], pattern)
        for setting in ('model.frozen=["gate"]', 'model.trainable=["*"]', 'model.stop_gradient=["node_tanh"]'):
            self.assertNotIn("requires_grad_", self.losses("scalars-raw", setting)[1])
        self.assertNotIn("requires_grad_", self.succeed("tcc", HERE / "scalars-raw.onnx", "--entry", "predict", "-o", "p.tplan").err)
        self.assertIn("requires_grad_", self.succeed("tcc", "inspect", HERE / "scalars-raw.onnx").out)

    def test_frozen_weights_need_no_advice(self):
        """No note says that copies are trained apart, or as one, where none of them is trained."""
        model = ROOT / "test" / "e2e" / "exports" / "tied-dynamo.onnx"
        (of,) = onnx.load(model).graph.output
        recipe = self.write("c.toml", f'[loss]\nkind = "cross_entropy"\nof = "{of.name}"\ntarget = "labels"\nclass_axis = -1\n')
        self.assertIn("trained apart", self.succeed("tcc", model, "--recipe", recipe, "-o", "p.tplan").err)
        said = self.succeed("tcc", model, "--recipe", recipe, "-o", "p.tplan", "--set", 'model.frozen=["head.weight"]').err
        self.assertNotIn("trained apart", said)

    # The lists

    def lists(self, model, *arguments):
        return json.loads(self.succeed("tcc", "inspect", model, "--json", *arguments).out)["initializers"]

    def check_lists(self, model, rows, key, reason):
        """Each floating-point initializer is in exactly one list, with a reason; a row that the file does not have was split off."""
        names = [row["name"] for row in rows]
        self.assertEqual(len(names), len(set(names)), "no name is in two lists")
        self.assertLessEqual({row[key] for row in rows}, LISTS)
        self.assertEqual([row["name"] for row in rows if not row[reason]], [])
        floats = {t.name for t in onnx.load(model, load_external_data=False).graph.initializer if t.data_type in FLOATS}
        self.assertEqual(floats - set(names), set())
        return set(names) - floats

    def test_every_initializer_is_in_one_list(self):
        models = [*ZOO.glob("*/model.onnx"), *HERE.glob("*.onnx"), *(ROOT / "test" / "e2e" / "exports").glob("*.onnx"),
                  *(ROOT / "test" / "e2e" / "torch_shapes").glob("*.onnx")]
        self.assertGreater(len(models), 60)
        for model in models:
            with self.subTest(model.relative_to(ROOT)):
                rows = self.lists(model)
                more = self.check_lists(model, rows, "list", "reason")
                text = self.succeed("tcc", "inspect", model).out
                for row in rows:
                    self.assertRegex(text, rf"(?m)^  {re.escape(row['name'])} +{row['type']} ")
                found = json.loads(self.succeed("tcc", "inspect", model, "--json").out)
                split = any("each is its own again" in line for line in found["warnings"])
                for row in rows:    # not an initializer of the file: split off, or a tensor of an inner graph or Constant node
                    if row["name"] in more:
                        self.assertTrue(split or row["list"] != "trained" or "stored in" in row["reason"], str(row))

    def test_the_report_has_the_same_lists(self):
        for case in ("scalars-raw", "buffers-dynamo", "literal-dynamo", "tied-script"):
            with self.subTest(case):
                model = HERE / f"{case}.onnx"
                plan = self.compile(model, "--recipe", self.write("r.toml", RECIPE))
                decisions = self.report(plan)["parameters"]["decisions"]
                self.check_lists(model, decisions, "decision", "sign")
                self.assertEqual({d["name"]: (d["decision"], d["sign"]) for d in decisions},
                                 {row["name"]: (row["list"], row["reason"]) for row in self.lists(model)})
                text, page = self.succeed("tcc", "report", plan).out, self.folder / "page.html"
                self.succeed("tcc", "report", plan, "--html", page)
                for decision in decisions:
                    self.assertRegex(text, rf"(?s)    {decision['decision']}: .*{re.escape(decision['name'])}")
                    self.assertIn(f'"name":"{decision["name"]}","decision":"{decision["decision"]}"', page.read_text())

    def test_lists_say_what_each_is(self):
        lists = {row["name"]: row["list"] for row in self.lists(HERE / "literal-dynamo.onnx")}
        self.assertEqual({name: lists[name] for name in ("blocks.0.gate", "blocks.1.gate", "blocks.0.gate/constant", "scale", "ones")},
                         {"blocks.0.gate": "trained", "blocks.1.gate": "trained", "blocks.0.gate/constant": "constant",
                          "scale": "trained", "ones": "buffer"})
        lists = {row["name"]: row["list"] for row in self.lists(HERE / "buffers-script.onnx")}
        self.assertEqual((lists["inv_freq"], lists["shift"]), ("buffer", "trained"))


if __name__ == "__main__":
    import unittest
    unittest.main()
