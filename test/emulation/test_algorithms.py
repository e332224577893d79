"""The algorithms that trun takes from cuBLASLt: the run records them, a resume takes them again, and --tune times them. The
stand-in lists several algorithms of different bits and times, a slow one first: `test_algorithms.py STANDIN`."""
import json
import unittest

from standin import stand_in  # first: it takes its argument, and makes common importable
import models
import numpy as np
from common import EndToEnd, metrics

# h = x·w1 sums 2048 products: the list begins with sums in 4 parts, sums in 2 parts are the fastest.
WIDTH, BATCH = 2048, 4
NODES = [models.helper.make_node("MatMul", ["x", "w1"], ["h"], "long"),
         models.helper.make_node("MatMul", ["h", "w2"], ["prediction"], "short")]


class Algorithms(EndToEnd):
    def setUp(self):
        super().setUp()
        model = models.save(self.folder / "model.onnx", NODES, {"x": [BATCH, WIDTH]}, {"prediction": [BATCH, 1]},
                            {"w1": models.random(1, WIDTH, 8) / 16, "w2": models.random(2, 8, 1)})
        recipe = self.write("recipe.toml", models.SQUARES + '[optimizer]\nkind = "sgd"\nlr = 1e-4\n')
        self.plan = self.compile(model, "--recipe", recipe, "--target", "cuda:sm_90", "--entry", "train")
        rng = np.random.default_rng(3)
        self.data = self.save("data.safetensors", x=rng.standard_normal((2 * BATCH, WIDTH), np.float32),
                              y=rng.standard_normal((2 * BATCH, 1), np.float32))

    def run_on_card(self, *arguments, out="run", steps=2, **settings):
        return self.train(self.plan, self.data, "--device", "cuda", "--no-release", *arguments, out=out, steps=steps,
                          env=stand_in(**settings))

    def resume(self, run, *arguments, steps=4, **settings):
        return self.succeed("trun", "--resume", run, "--steps", steps, *arguments, env=stand_in(**settings))

    def refuse_resume(self, run, patterns, **settings):
        return self.refuse(1, patterns, "trun", "--resume", run, "--steps", 4, env=stand_in(**settings))

    def record(self, run):
        """The record's entry for the long product."""
        calls = json.loads((run / "algorithms.json").read_text())["calls"]
        [found] = [call for call in calls if f" x {WIDTH}, F32" in call["call"]]
        return found

    def losses(self, run):
        return [update["loss"] for update in metrics(run)[0]]

    def test_a_run_records_the_first_algorithm(self):
        run = self.run_on_card()
        self.assertRegex(self.record(run)["about"], "K in 4 parts")
        self.assertNotIn("seconds", self.record(run))
        self.assertEqual(json.loads((run / "algorithms.json").read_text())["library"], "cuBLASLt 13.1.0")
        self.assertFalse(any("cuBLASLt" in path.read_text() for path in run.glob("checkpoints/*/manifest.json")))

    def test_tuning_takes_the_fastest_and_a_resume_takes_it_again(self):
        untuned, tuned = self.run_on_card(out="untuned", steps=4), self.run_on_card("--tune", out="tuned", steps=4)
        self.assertRegex(self.record(tuned)["about"], "K in 2 parts")
        self.assertLess(self.record(tuned)["seconds"], 24e-6)
        self.assertGreaterEqual(self.record(tuned)["seconds"], 20e-6)
        self.assertNotEqual(self.losses(untuned), self.losses(tuned), "another algorithm, other bits")
        parts = self.run_on_card("--tune", out="parts")
        before = (parts / "algorithms.json").read_text()
        self.resume(parts)
        self.assertEqual((parts / "algorithms.json").read_text(), before)
        self.assertEqual(self.losses(parts), self.losses(tuned))

    def test_timing_changes_no_value(self):
        """trun times algorithms in the plan's memory, before that memory gets its values."""
        whole = self.run_on_card("--tune", out="whole", mode="checked", seed=5)
        self.assertEqual(self.losses(whole), self.losses(self.run_on_card("--tune", out="again", mode="fast")))

    def test_another_library_is_refused_with_two_ways_out(self):
        whole, run = self.run_on_card(out="whole", steps=4), self.run_on_card()
        said = self.refuse_resume(run, [r"algorithms.json: .*13\.1\.0.*13\.2\.0.*install cuBLASLt 13\.1\.0.*--tune"], blas=130200)
        self.assertEqual(said.err.count("error:"), 1)
        self.assertNotIn("instruction", said.err, "it concerns no single instruction")
        # The first way out: cuBLASLt 13.1.0 again.
        self.resume(run)
        self.assertEqual(self.losses(run), self.losses(whole))
        # The second way out: --tune.
        said = self.resume(run, "--tune", steps=6, blas=130200)
        self.assertRegex(said.err, "note: [0-9]+ of [0-9]+ library calls take another algorithm than .*run/algorithms.json has")
        self.assertRegex((run / "algorithms.json").read_text(), r"cuBLASLt 13\.2\.0")
        self.resume(run, steps=8, blas=130200)

    def test_an_algorithm_that_the_card_does_not_run(self):
        run = self.run_on_card()
        self.refuse_resume(run, [r"instruction \d+ \(node '\w+'\): .*algorithms.json: .*Emulated sm_100.*ARCH_MISMATCH.*--tune"],
                           device="sm_100")
        said = self.resume(run, "--tune", device="sm_100")
        self.assertRegex(said.err, "the machine differs from the one in .*algorithms.json: Emulated sm_90")

    def test_a_damaged_record(self):
        run = self.run_on_card()
        path = run / "algorithms.json"
        path.write_text(path.read_text().replace("K in 4 parts", "K in 5 parts"))
        self.refuse_resume(run, ["algorithms.json.*(checksum|damaged)"])
        path.unlink()  # an earlier version wrote none
        self.resume(run)
        self.assertTrue(path.exists())

    def test_a_resume_with_another_plan_names_products_without_a_record(self):
        run = self.run_on_card()
        other = self.compile(self.folder / "model.onnx", "--recipe", self.folder / "recipe.toml", "--target", "cuda:sm_90", "--precision",
                             "tf32", plan="other.tplan")
        said = self.succeed("trun", other, "--data", self.data, "--resume", run, "--steps", 4, env=stand_in())
        self.assertRegex(said.err, r"note: .*run/algorithms.json has no algorithm for \d+ of \d+ library calls")

    def test_a_plan_without_products_has_nothing_to_tune(self):
        nodes = [models.helper.make_node("Mul", ["x", "w"], ["prediction"], "scale")]
        model = models.save(self.folder / "scale.onnx", nodes, {"x": [BATCH, 1]}, {"prediction": [BATCH, 1]}, {"w": models.random(1, 1)})
        plan = self.compile(model, "--recipe", self.folder / "recipe.toml", "--target", "cuda:sm_90", "--entry", "train", plan="scale.tplan")
        data = self.save("scale.safetensors", x=np.ones((BATCH, 1), np.float32), y=np.ones((BATCH, 1), np.float32))
        said = self.succeed("trun", plan, "--data", data, "--device", "cuda", "--steps", 1, "--tune", "--out", "scaled", env=stand_in())
        self.assertRegex(said.err, "note: --tune: the plan has no products or convolutions")
        self.assertFalse((self.folder / "scaled/algorithms.json").exists())

    def test_a_cpu_has_nothing_to_tune(self):
        plan = self.compile(self.folder / "model.onnx", "--recipe", self.folder / "recipe.toml", "--entry", "train", plan="cpu.tplan")
        self.refuse(2, ["--tune: device cpu .*leave --tune out"], "trun", plan, "--data", self.data, "--steps", 1, "--tune")
        run = self.train(plan, self.data, out="cpu-run", steps=1)
        self.assertFalse((run / "algorithms.json").exists())

    def test_recorded_answers(self):
        """Given a file of `probes --products` or a gpu-check.json, the stand-in lists what that card's library listed."""
        product = {"m": 8, "n": BATCH, "k": WIDTH, "batch": 1, "ta": 0, "tb": 0, "type": 0, "result": 0, "compute": 68, "epilogue": 1}
        algorithm = {"id": 77, "tile": 21, "parts": 3, "scheme": 2, "workspace": 384, "waves": 0.5}
        line = {"product": product, "workspace": 1 << 20, "status": 0, "algorithms": [algorithm | {"workspace": 1 << 40}, algorithm]}
        found = []
        for name, content in [("products.jsonl", '{"cublaslt": 130100}\n' + json.dumps(line) + "\n"),
                              ("gpu-check.json", json.dumps({"checks": [{"check": "cuBLASLt heuristics", "answers": [line]}]}))]:
            run = self.run_on_card(out=f"run-{name}", mode="checked", products=self.write(name, content))
            found.append(self.record(run))
        self.assertEqual(found[0], found[1])
        self.assertIn("algorithm 77, tile 21, K in 3 parts", str(found[0]))
        none = self.write("none.jsonl", json.dumps(line | {"status": 15, "algorithms": []}))
        self.refuse(1, [r"no algorithm for 1 products of .* x .* x 2048 in F32 .*NOT_SUPPORTED"], "trun", self.plan, "--data", self.data,
                    "--device", "cuda", "--steps", 1, env=stand_in(products=none))
        self.refuse(86, ["TCC_EMULATION_PRODUCTS"], "trun", self.plan, "--data", self.data, "--device", "cuda", "--steps", 1,
                    "--out", "bad", env=stand_in(products=self.write("bad.jsonl", "no record")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
