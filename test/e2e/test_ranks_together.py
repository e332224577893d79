"""What ranks do together besides summing gradients: statistics of their batches, and evaluations; and what these cost."""
import json
import unittest

import numpy as np
import safetensors.numpy

import models
from common import ZOO
from test_ranks import RANKS, Jobs, losses


class SyncBatchNorm(Jobs):
    """Fixtures: ranks/make_sync_batch_norm.py."""

    def check(self, name, ranks, *settings):
        folder = RANKS / "batch-norm"
        words = [word for setting in ("parallel.average=exact", "parallel.batch_norm=sync", *settings) for word in ("--set", setting)]
        self.compile(folder / "model.onnx", "--recipe", folder / "recipe.toml", *words)
        expected = json.loads((RANKS / "sync-batch-norm" / "expected.json").read_text())[name]
        self.train("plan.tplan", folder / "data.safetensors", "run", "--steps", len(expected), nproc=ranks)
        np.testing.assert_allclose(losses(self.folder / "run"), expected, rtol=1e-5)
        self.succeed("trun", "export", "run", "-o", "w.safetensors")
        weights, compared = safetensors.numpy.load_file(self.folder / "w.safetensors"), 0
        for key, value in safetensors.numpy.load_file(RANKS / "sync-batch-norm" / "state.safetensors").items():
            case, variable = key.split(": ")
            if case == name:
                np.testing.assert_allclose(weights[variable], value, rtol=1e-4, atol=1e-5, err_msg=variable)
                compared += 1
        self.assertGreater(compared, 8)

    def test_two_ranks_are_pytorch_with_twice_the_batch(self):
        self.check("2 ranks", 2)

    def test_four_ranks(self):
        self.check("4 ranks", 4, "parallel.bucket_bytes=1000")

    def test_windows_of_two_micro_batches(self):
        self.check("2 ranks, 2 micro-batches", 2, "train.accumulate=2")

    def test_two_ranks_are_one_rank_with_the_global_batch(self):
        """The model has strided channels-last convolutions, and fusion around the statistics."""
        words = ["--recipe", ZOO / "cnn-bn" / "recipe.toml"]
        model, data = ZOO / "cnn-bn" / "model.onnx", ZOO / "cnn-bn" / "data.safetensors"
        self.compile(model, *words, "--entry", "train", "--set", "parallel.mode=ddp", "--set", "parallel.batch_norm=sync")
        self.train("plan.tplan", data, "ranks", "--steps", 4, nproc=2)
        self.compile(model, *words, "--entry", "train", "--shape", "image=32x3x16x16", plan="whole.tplan")
        self.train("whole.tplan", data, "whole", "--steps", 4)
        np.testing.assert_allclose(losses(self.folder / "ranks"), losses(self.folder / "whole"), rtol=1e-5)

    def test_one_rank_and_gradients_of_one_batch(self):
        """A single rank uses the statistics of its own batch, and the entry `gradients` does not depend on ranks."""
        folder = RANKS / "batch-norm"
        for setting, plan in (("local", "local.tplan"), ("sync", "sync.tplan")):
            self.compile(folder / "model.onnx", "--recipe", folder / "recipe.toml", "--set", "parallel.average=exact", "--set",
                         f"parallel.batch_norm={setting}", "--entry", "train,gradients", plan=plan)
            self.train(plan, folder / "data.safetensors", f"{setting}-run", "--steps", 4)
            data = safetensors.numpy.load_file(folder / "data.safetensors")
            safetensors.numpy.save_file({key: np.ascontiguousarray(value[:4]) for key, value in data.items()}, self.folder / "b.safetensors")
            self.succeed("trun", "gradients", plan, "--inputs", "b.safetensors", "--outputs", f"{setting}.safetensors")
        np.testing.assert_allclose(losses(self.folder / "sync-run"), losses(self.folder / "local-run"), rtol=1e-5)
        own, other = (safetensors.numpy.load_file(self.folder / f"{name}.safetensors") for name in ("sync", "local"))
        for name, value in other.items():
            np.testing.assert_array_equal(own[name], value, err_msg=name)

    def test_what_does_not_go_together_says_so(self):
        folder = RANKS / "batch-norm"
        self.refuse(1, ["parallel.batch_norm", "leave parallel.average out"], "tcc", folder / "model.onnx", "--recipe",
                    folder / "recipe.toml", "--set", "parallel.batch_norm=sync")
        self.refuse(1, ["no BatchNormalization that trains"], "tcc", ZOO / "mlp" / "model.onnx", "--recipe",
                    ZOO / "mlp" / "recipe.toml", "--set", "parallel.mode=ddp", "--set", "parallel.batch_norm=sync")


class Evaluations(Jobs):
    def test_any_number_of_ranks_has_the_numbers_of_one(self):
        """21 samples in batches of 4; some of their targets do not count; a rate of 0 keeps the weights equal."""
        columns = models.labelled(21, 7, 5)
        columns["labels"][[3, 20]] = -100
        safetensors.numpy.save_file({key: np.ascontiguousarray(value) for key, value in columns.items()}, self.folder / "d.safetensors")
        recipe = models.CLASSES + ('[optimizer]\nkind = "sgd"\nlr = 0.0\n[parallel]\nmode = "ddp"\n'
                                   '[evaluate]\nmetrics = ["accuracy", "top5", "perplexity", "f1", "auroc"]\n')
        (self.folder / "r.toml").write_text(recipe)
        self.compile(models.classifier(self.folder / "m.onnx", 4, 5, 7), "--recipe", "r.toml")
        found = []
        for ranks in (1, 2, 3):
            self.train("plan.tplan", "d.safetensors", f"run{ranks}", "--steps", 2, "--eval-data", "d.safetensors", "--eval-every", 1,
                       nproc=ranks)
            lines = [json.loads(line) for line in (self.folder / f"run{ranks}" / "metrics.jsonl").read_text().splitlines()]
            found.append([{key: value for key, value in line.items() if key.startswith("eval_") and key != "eval_seconds"}
                          for line in lines if "eval_loss" in line])
            self.assertEqual(len(found[-1]), 2)
            self.assertIn("eval_auroc", found[-1][0])
            self.assertEqual(found[-1], found[0], f"{ranks} ranks")
        expected = json.loads(self.succeed("trun", "eval", "plan.tplan", "--data", "d.safetensors").out)
        for key, value in found[0][0].items():
            self.assertEqual(expected[key], value, key)

    def test_each_rank_has_a_part(self):
        """The rank that meets a damaged sample reports it, and the sample counts for all ranks."""
        columns = models.labelled(21, 7, 5)
        columns["labels"][[6, 11]] = 99
        safetensors.numpy.save_file({key: np.ascontiguousarray(value) for key, value in columns.items()}, self.folder / "bad.safetensors")
        safetensors.numpy.save_file({key: np.ascontiguousarray(value) for key, value in models.labelled(21, 7, 5).items()},
                                    self.folder / "d.safetensors")
        (self.folder / "r.toml").write_text(models.CLASSES + '[optimizer]\nkind = "sgd"\nlr = 0.1\n[parallel]\nmode = "ddp"\n')
        self.compile(models.classifier(self.folder / "m.onnx", 4, 5, 7), "--recipe", "r.toml")
        words = ["trun", "plan.tplan", "--data", "d.safetensors", "--steps", 2, "--eval-data", "bad.safetensors", "--eval-every", 1,
                 "--nproc", 2]
        self.refuse(1, ["the ranks found 2 damaged samples in the evaluation data, data.max_bad allows 1"], *words, "--out", "run",
                    "--set", "data.max_bad=1")
        self.succeed(*words, "--out", "good", "--set", "data.max_bad=2")


class Times(Jobs):
    def test_metrics_and_profile_tell_what_communication_takes(self):
        self.zoo("resnet-tiny", "parallel.bucket_bytes=20000", plan="plan.tplan")
        data = ZOO / "resnet-tiny" / "data.safetensors"
        for ranks in (1, 2):
            self.train("plan.tplan", data, f"run{ranks}", "--steps", 3, nproc=ranks)
            lines = [json.loads(line) for line in (self.folder / f"run{ranks}" / "metrics.jsonl").read_text().splitlines()]
            for line in lines:
                if "loss" in line:
                    self.assertEqual("communication_seconds" in line, ranks == 2)
                    self.assertEqual("exposed_seconds" in line, ranks == 2)
                    if ranks == 2:
                        self.assertTrue(0 < line["exposed_seconds"] < line["seconds"] and 0 < line["communication_seconds"], line)
        words = ["trun", "profile", "plan.tplan", "--data", data, "--no-roofline", "--steps", 2, "--warmup", 1, "--nproc", 2]
        profile = json.loads(self.succeed(*words, "--json").out)
        collectives = profile["collectives"]
        self.assertGreater(len(collectives), 3)
        for one in collectives:
            self.assertEqual(one["calls"], 1)
            self.assertGreater(one["seconds"], 0)
            self.assertGreaterEqual(one["exposed_seconds"], 0)
            self.assertGreaterEqual(one["beside_seconds"], 0)
            if one["beside_instructions"] == 0:
                self.assertEqual(one["beside_seconds"], 0)
        self.assertTrue(any(one["beside_seconds"] > 0 for one in collectives), collectives)
        self.assertGreaterEqual(sum(one["bytes"] for one in collectives), 4 * profile["trained_elements"])
        text = self.succeed(*words, "--all").out
        self.assertRegex(text, r"collectives of rank 0 of 2: [\d.]+ ms a step, [\d.]+ ms of them exposed")
        self.assertRegex(text, r"step \d+: all-reduce of \d+ tensors of f32")
        self.assertNotIn("collectives", self.succeed(*words[:-2]).out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
