"""tcc's messages and exit status for models and recipes that cannot be compiled."""
import unittest

import onnx
from onnx import TensorProto, helper

import models
from common import EndToEnd


def plain_body(graph, node):
    """The body of a loop that negates."""
    return graph("negate", [node("Identity", ["c"], ["d"]), node("Neg", ["v"], ["w"])], ["i", "c", "v"], ["d", "w"])


class BadModels(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "mlp.onnx")
        self.recipe = self.write("recipe.toml", models.SQUARES + models.SGD)

    def rejected(self, model, *patterns, arguments=()):
        result = self.refuse(1, patterns, "tcc", model, "--recipe", self.recipe, "-o", "out.tplan", *arguments)
        self.assertFalse((self.folder / "out.tplan").exists(), "a refused model left a plan behind")
        return result

    def external(self, location):
        """The model with w1 in a file of its own."""
        model = onnx.load(self.model)
        tensor = next(i for i in model.graph.initializer if i.name == "w1")
        data = tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", str(len(data)))):
            tensor.external_data.add(key=key, value=value)
        onnx.save(model, self.folder / "external.onnx")
        return data

    def test_no_such_file(self):
        self.rejected("nowhere.onnx", r"nowhere\.onnx", "no such file")

    def test_a_folder(self):
        (self.folder / "folder.onnx").mkdir()
        self.rejected("folder.onnx", r"folder\.onnx")

    def test_not_protobuf(self):
        self.write("text.onnx", "this is no model\n" * 20)
        self.rejected("text.onnx", r"text\.onnx", "onnx|protobuf")

    def test_empty(self):
        self.write("empty.onnx", b"")
        self.rejected("empty.onnx", r"empty\.onnx")

    def test_truncated_at_any_point(self):
        whole = self.model.read_bytes()
        for length in (1, 7, len(whole) // 3, len(whole) // 2, len(whole) - 40, len(whole) - 1):
            with self.subTest(length=length):
                self.write("cut.onnx", whole[:length])
                self.rejected("cut.onnx", r"cut\.onnx")

    def test_external_data_is_read(self):
        """The control for the three tests below: with the file present the model compiles."""
        self.write("w1.bin", self.external("w1.bin"))
        self.compile("external.onnx", "--recipe", self.recipe)

    def test_external_data_missing(self):
        self.external("w1.bin")
        self.rejected("external.onnx", r"w1\.bin", r"\bw1\b")

    def test_external_data_truncated(self):
        self.write("w1.bin", self.external("w1.bin")[:-1])
        self.rejected("external.onnx", r"w1\.bin")

    def test_external_data_outside_the_folder(self):
        inner = self.folder / "inner"
        inner.mkdir()
        self.write("secret.bin", self.external("../secret.bin"))
        (self.folder / "external.onnx").rename(inner / "external.onnx")
        self.rejected(inner / "external.onnx", r"\.\./secret\.bin", "outside|folder")

    def test_external_data_at_an_absolute_path(self):
        path = str(self.folder / "secret.bin")
        self.write("secret.bin", self.external(path))
        self.rejected("external.onnx", r"secret\.bin", "outside|folder|absolute")

    def test_external_data_through_a_link_out_of_the_folder(self):
        inner = self.folder / "inner"
        inner.mkdir()
        self.write("secret.bin", self.external("link.bin"))
        (inner / "link.bin").symlink_to("../secret.bin")
        (self.folder / "external.onnx").rename(inner / "external.onnx")
        self.rejected(inner / "external.onnx", r"link\.bin", "outside|folder|link")

    def test_all_unsupported_ops_at_once(self):
        nodes = [helper.make_node("Frobnicate", ["x"], ["a"], "first_frob", domain="com.example"),
                 helper.make_node("Gemm", ["a", "w", "b"], ["g"], "fine", transB=1),
                 helper.make_node("Twiddle", ["g"], ["t"], "one_twiddle", domain="com.example"),
                 helper.make_node("Unique", ["t"], ["unused"], "distinct"),
                 helper.make_node("Identity", ["t"], ["prediction"], "last")]
        models.save(self.folder / "odd.onnx", nodes, {"x": [8, 5]}, {"prediction": [8, 1]},
                    {"w": models.random(1, 1, 5), "b": models.random(2, 1)}, opset=20, extra_opsets=["com.example"])
        self.rejected("odd.onnx", "first_frob", "Frobnicate", "one_twiddle", "Twiddle", "distinct", "Unique")

    def test_ten_problems_in_one_report(self):
        """Unknown ops, shapes that depend on data, and problems inside subgraphs are all reported at once, by node."""
        def graph(name, nodes, inputs, outputs):
            infos = {"i": (TensorProto.INT64, []), "c": (TensorProto.BOOL, []), "d": (TensorProto.BOOL, [])}
            make = lambda n: helper.make_tensor_value_info(n, *infos.get(n, (TensorProto.FLOAT, [8, 5])))  # noqa: E731
            return helper.make_graph(nodes, name, [make(n) for n in inputs], [make(n) for n in outputs])
        node = helper.make_node
        plain = graph("plain", [node("Neg", ["x"], ["p"])], [], ["p"])
        strange = graph("strange", [node("Sparkle", ["x"], ["q"], "in_a_branch", domain="com.example")], [], ["q"])
        body = graph("body", [node("Identity", ["c"], ["d"]), node("Twiddle", ["v"], ["w"], "in_the_loop", domain="com.example")],
                     ["i", "c", "v"], ["d", "w"])
        nodes = [node("Frobnicate", ["x"], ["a"], "custom", domain="com.example"),
                 node("NonZero", ["x"], ["b"], "positions"),
                 node("Reshape", ["x", "shape"], ["e"], "to_a_shape_of_the_data"),
                 node("If", ["flag"], ["f"], "a_choice", then_branch=plain, else_branch=strange),
                 node("Loop", ["three", "", "x"], ["g"], "three_times", body=body),
                 node("Loop", ["count", "", "x"], ["h"], "as_often_as_the_data_says", body=plain_body(graph, node)),
                 node("MatMulInteger", ["bytes", "bytes"], ["k"], "quantised"),
                 node("TopK", ["x", "shape"], ["l", "m"], "best"),
                 node("Range", ["zero", "count", "three"], ["n"], "numbers"),
                 node("Twiddle", ["a"], ["o"], "behind_another", domain="com.example"),
                 node("Add", ["a", "x"], ["prediction"], "fine")]
        made = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 5]),
                                              helper.make_tensor_value_info("shape", TensorProto.INT64, [1]),
                                              helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
                                              helper.make_tensor_value_info("count", TensorProto.INT64, []),
                                              helper.make_tensor_value_info("bytes", TensorProto.UINT8, [4, 4])],
                                 [helper.make_tensor_value_info("prediction", TensorProto.FLOAT, None)],
                                 [helper.make_tensor("three", TensorProto.INT64, [], [3]), helper.make_tensor("zero", TensorProto.INT64, [], [0])])
        onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)], ir_version=9),
                  self.folder / "ten.onnx")
        names = ["custom", "positions", "to_a_shape_of_the_data", "a_choice", "in_a_branch", r"in_the_loop\[0\]",
                 "as_often_as_the_data_says", "quantised", "best", "numbers", "behind_another"]
        message = self.rejected("ten.onnx", "11 of its nodes", *(rf"\n  {name}: " for name in names))
        self.assertNotIn("  fine", message.err)
        shown = self.succeed("tcc", "inspect", "ten.onnx").out
        for name in names:
            self.assertRegex(shown, rf"(?m)^  {name}: ")

    def test_unbound_dimension(self):
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["prediction"], "only", transB=1)]
        models.save(self.folder / "free.onnx", nodes, {"x": ["rows", 5]}, {"prediction": ["rows", 1]},
                    {"w": models.random(1, 1, 5), "b": models.random(2, 1)})
        self.rejected("free.onnx", r"\brows\b", r"\bx\b", "--dim")
        self.compile("free.onnx", "--recipe", self.recipe, "--dim", "rows=8")
        self.rejected("free.onnx", r"rows is 0", arguments=["--dim", "rows=0"])
        self.rejected("free.onnx", "lines", "rows", arguments=["--dim", "rows=8", "--dim", "lines=8"])

    def test_shapes_that_do_not_fit(self):
        nodes = [helper.make_node("MatMul", ["x", "w"], ["prediction"], "wrong_product")]
        models.save(self.folder / "bad.onnx", nodes, {"x": [8, 5]}, {"prediction": [8, 1]}, {"w": models.random(1, 4, 1)})
        self.rejected("bad.onnx", "wrong_product")

    def test_a_value_used_before_it_is_made(self):
        nodes = [helper.make_node("Tanh", ["nothing"], ["prediction"], "orphan")]
        models.save(self.folder / "bad.onnx", nodes, {"x": [8, 1]}, {"prediction": [8, 1]}, {})
        self.rejected("bad.onnx", "nothing")


class BadRecipes(EndToEnd):
    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "mlp.onnx")

    def rejected(self, text, *patterns, arguments=()):
        self.write("recipe.toml", text)
        self.refuse(1, patterns, "tcc", self.model, "--recipe", "recipe.toml", "-o", "out.tplan", *arguments)

    def test_unknown_keys_name_the_nearest(self):
        self.rejected(models.SQUARES + "[optimizer]\nkind = 'sgd'\nmomentun = 0.9\n",
                      r"recipe\.toml:7", "momentun", r"momentum")
        self.rejected(models.SQUARES + "[optimiser]\nlr = 1\n", r"recipe\.toml:5", "optimiser", "optimizer")
        self.rejected(models.SQUARES, "optimizer.lrr", r"optimizer\.lr\b", arguments=["--set", "optimizer.lrr=1"])

    def test_wrong_type_and_range(self):
        self.rejected(models.SQUARES + "[optimizer]\nlr = 'fast'\n", r"recipe\.toml:6", "lr")
        self.rejected(models.SQUARES + "[train]\naccumulate = 0\n", r"recipe\.toml:6", "accumulate")

    def test_not_toml(self):
        self.rejected("[loss\nkind = ", r"recipe\.toml:1")

    def test_a_glob_that_matches_nothing(self):
        self.rejected(models.SQUARES + "[model]\nfrozen = ['encoder.*']\n", r"encoder\.\*", r"recipe\.toml:6")

    def test_an_output_that_is_not_there(self):
        self.rejected(models.SQUARES.replace("prediction", "forecast"), "forecast", "prediction", r"recipe\.toml:3")

    def test_no_loss_lists_the_outputs(self):
        self.rejected(models.SGD, "loss", "prediction")

    def test_unknown_kinds_are_listed(self):
        self.rejected(models.SQUARES.replace("mse", "msee"), "msee", r"\bmse\b")
        self.rejected(models.SQUARES + "[optimizer]\nkind = 'adamx'\n", "adamx", r"\badamw?\b")

    def test_no_such_recipe(self):
        self.refuse(1, [r"nowhere\.toml"], "tcc", self.model, "--recipe", "nowhere.toml")


class WrongUsage(EndToEnd):
    def test_tcc(self):
        for words in ([], ["--nonsense"], ["m.onnx", "--threads", "many"], ["m.onnx", "--dim", "N"], ["report"],
                      ["m.onnx", "--target", "gpu:9"]):
            with self.subTest(words=words):
                self.refuse(2, ["--[a-z]+"], "tcc", *words)

    def test_several_models(self):
        """A model that fails does not prevent the others from being compiled, and no plan overwrites another."""
        models.mlp(self.folder / "a.onnx")
        models.mlp(self.folder / "c.onnx")
        self.write("b.onnx", b"no model")
        self.refuse(1, ["b.onnx"], "tcc", "a.onnx", "b.onnx", "c.onnx", "--entry", "predict")
        self.assertTrue((self.folder / "a.tplan").exists() and (self.folder / "c.tplan").exists())
        (self.folder / "sub").mkdir()
        models.mlp(self.folder / "sub" / "a.onnx")
        self.refuse(2, ["a.onnx and sub/a.onnx would both be compiled to"], "tcc", "a.onnx", "sub/a.onnx", "-o", "sub")
        self.refuse(2, ["must be a folder that exists"], "tcc", "a.onnx", "c.onnx", "-o", "both.tplan")

    def test_trun(self):
        for words in ([], ["--nonsense"], ["p.tplan"], ["p.tplan", "--data", "d", "--steps", "1", "--epochs", "1"],
                      ["p.tplan", "--data", "d", "--steps", "-1"], ["predict", "p.tplan"], ["export"], ["verify"]):
            with self.subTest(words=words):
                self.refuse(2, ["--help"], "trun", *words)

    def test_help_and_version(self):
        for program, words in (("tcc", ["report"]), ("trun", ["predict", "eval", "gradients", "export", "verify"])):
            self.assertRegex(self.succeed(program, "--version").out, r"\d+\.\d+\.\d+")
            self.assertIn("--recipe" if program == "tcc" else "--data", self.succeed(program, "--help").out)
            for word in words:
                self.assertIn(word, self.succeed(program, word, "--help").out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
