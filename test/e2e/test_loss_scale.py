"""f16 with a loss scale, and moments in bf16: losses, scales and skipped updates of torch.amp.GradScaler; exact resumes.

f16/gradscaler.json (f16/make.py) has 50 updates of two models of the zoo with GradScaler: under torch.autocast("cpu", torch.float16);
with weight gradients in f32, as tcc has them, from a scale that overflows; and both in f32 with the same updates skipped.
"""
import json
import sys
import unittest

import numpy as np
import onnx
import safetensors.numpy

from common import ROOT, ZOO, EndToEnd, case, checkpoints, metrics

TORCH = json.loads((ROOT / "test/e2e/f16/gradscaler.json").read_text())
SCALER = [word for key, value in TORCH["scaler"].items() for word in ("--set", f"train.loss_scale.{key}={value:.0f}" if value >= 1 else
                                                                      f"train.loss_scale.{key}={value}")]

SOME = ["resnet-tiny", "lstm-lm", "dlrm"]
CASES = sorted(p.parent.name for p in ZOO.glob("*/expected.json")) if "--all" in sys.argv else SOME
sys.argv = [word for word in sys.argv if word != "--all"]


def raw_tensors(path):
    """The tensors of a safetensors file; numpy has no bf16, so those are given as their 16 bits."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    types = {"F32": np.float32, "BF16": np.uint16, "I64": np.int64, "F16": np.float16}
    return {name: np.frombuffer(content, types[entry["dtype"]], count=int(np.prod(entry["shape"], dtype=np.int64)),
                                offset=8 + size + entry["data_offsets"][0]).reshape(entry["shape"])
            for name, entry in json.loads(content[8:8 + size]).items() if name != "__metadata__"}


def apart(left, right):
    return max(abs(a - b) / abs(b) for a, b in zip(left, right, strict=True))


class LossScale(EndToEnd):
    def lines(self, plan, data, *arguments, out="run", steps=20):
        return metrics(self.train(plan, data, *arguments, out=out, steps=steps))[0]

    def half(self, name, *arguments, plan="f16.tplan"):
        model, recipe, data, _ = case(name)
        return self.compile(model, "--recipe", recipe, "--entry", "train", "--precision", "f16", *arguments, plan=plan), data

    def test_fifty_updates_are_those_of_gradscaler(self):
        """Every scale and every skipped update; losses within twice the distance of PyTorch's f16 from its f32."""
        for name in ("nano-gpt", "cnn-bn"):
            with self.subTest(name):
                plan, data = self.half(name, *SCALER, "--set", "compiler.attention=unfused")
                lines, theirs = self.lines(plan, data, out=name, steps=50), TORCH[name]["wide"]
                self.assertEqual([line["loss_scale"] for line in lines], theirs["loss_scale"])
                skipped = [line["step"] for line in lines if line["grad_norm"] is None]
                self.assertEqual(skipped, theirs["skipped"])
                self.assertEqual([line["skipped_updates"] for line in lines], [sum(s <= i for s in skipped) for i in range(1, 51)])
                self.near([line["loss"] for line in lines], theirs)

    def near(self, losses, theirs):
        self.assertLessEqual(apart(losses, theirs["loss"]), 2 * apart(theirs["loss"], theirs["f32"]) + 2e-4)
        self.assertGreater(apart(losses, theirs["f32"]), 1e-6, "nothing was rounded")

    def test_fifty_updates_are_those_of_autocast(self):
        for name in ("nano-gpt", "cnn-bn"):
            with self.subTest(name):
                plan, data = self.half(name, "--set", f"train.loss_scale.init_scale={TORCH['quiet']}")
                lines = self.lines(plan, data, out=name, steps=50)
                self.assertEqual(lines[-1]["skipped_updates"], 0)
                self.near([line["loss"] for line in lines], TORCH[name]["autocast"])

    def test_the_zoo_in_f16(self):
        """As close to PyTorch's f32 losses as ten bits allow; the scale is too small for skipped updates. --all: every case."""
        for name in CASES:
            with self.subTest(name):
                plan, data = self.half(name, "--set", "train.loss_scale.init_scale=256", plan=f"{name}.tplan")
                lines = self.lines(plan, data, "--no-release", out=name)
                self.assertEqual(lines[-1]["skipped_updates"], 0)
                distance = apart([line["loss"] for line in lines], case(name)[3]["loss"])
                if len(CASES) > len(SOME):
                    print(f"| {name} | {distance:.1e} |")
                self.assertLessEqual(distance, 2e-2)
                self.assertGreater(distance, 1e-6, "nothing was rounded")

    def test_powers_of_two_change_no_bit(self):
        """In f32 nothing overflows, and the scale is removed without rounding, also with clipping and accumulation."""
        for name, more in (("nano-gpt", []), ("cnn-bn", ["--set", "train.accumulate=2"]), ("mlp", ["--set", "train.clip_value=0.01"])):
            with self.subTest(name):
                model, recipe, data, _ = case(name)
                runs = []
                for kind in ("none", "dynamic"):
                    grows = ["--set", "train.loss_scale.growth_interval=3"] if kind == "dynamic" else []
                    scale = ["--set", f"train.loss_scale.kind={kind}", *grows]
                    plan = self.compile(model, "--recipe", recipe, "--entry", "train", *more, *scale, plan=f"{name}-{kind}.tplan")
                    lines = self.lines(plan, data, out=f"{name}-{kind}", steps=8)
                    runs.append(([(line["loss"], line["grad_norm"]) for line in lines],
                                 (self.folder / f"{name}-{kind}/model.onnx").read_bytes()))
                self.assertEqual([line["loss_scale"] for line in lines], [65536.0 * 2 ** (i // 3) for i in range(8)])
                self.assertEqual(*runs)

    def test_a_skipped_update_leaves_weights_alone(self):
        """It only moves running statistics, also with accumulation. Averages count applied updates only."""
        for more in ([], ["--set", "train.accumulate=2"]):
            plan, data = self.half("cnn-bn", *more, "--set",
                                   "train.ema={decay=0.5,on=\"device\"}", "--set", "train.loss_scale.init_scale=1e15")
            run = self.train(plan, data, "--checkpoint-every", 1, "--set", "checkpoint.keep=0", out=f"run{len(more)}", steps=3)
            self.assertEqual([line["skipped_updates"] for line in metrics(run)[0]], [1, 2, 3])
            first, last = (safetensors.numpy.load_file(next((run / f"checkpoints/step-{i}").glob("*.safetensors"))) for i in (1, 3))
            moved = {key for key in first if not np.array_equal(first[key], last[key])}
            self.assertEqual({key.rpartition(".")[2] for key in moved if not key.endswith("/gradient") and not key.startswith("loss/")},
                             {"running_mean", "running_var"})
            self.assertEqual(np.abs(last["5.weight/momentum_buffer"]).max(), 0)
            np.testing.assert_array_equal(last["5.weight/ema"], last["5.weight"])

    def test_the_count_of_updates_is_that_of_applied_ones(self):
        """A run whose first update is skipped continues like one that starts after it: bias corrections and averages do not count it."""
        plan, data = self.half("mlp", "--set", "optimizer.kind=adam", "--set", "train.ema.decay=0.9", "--set",
                               f"train.loss_scale.init_scale={2**50}", "--set", f"train.loss_scale.backoff_factor={2**-34}")
        late = self.lines(plan, data, out="late", steps=9)
        self.assertEqual([line["skipped_updates"] for line in late], [1] * 9)
        columns = safetensors.numpy.load_file(data)
        shifted = self.save("shifted.safetensors", **{k: np.roll(v, -32, axis=0) for k, v in columns.items()})
        early = self.lines(plan, shifted, "--set", "train.loss_scale.init_scale=65536", out="early", steps=8)
        self.assertEqual([line["loss"] for line in late[1:]], [line["loss"] for line in early])
        for what in ([], ["--ema"]):
            for run in ("late", "early"):
                self.succeed("trun", "export", run, "-o", f"{run}.safetensors", *what)
            self.assertEqual(*((self.folder / f"{run}.safetensors").read_bytes() for run in ("late", "early")))

    def test_a_resume_is_exact(self):
        """Also amid skips and growth of the factor, and in the middle of a window."""
        for more in ([], ["--set", "train.accumulate=2"]):
            plan, data = self.half("cnn-bn", *SCALER, *more)
            whole = self.lines(plan, data, out=f"whole{len(more)}", steps=24)
            self.train(plan, data, out=f"half{len(more)}", steps=11)
            self.succeed("trun", "--resume", f"half{len(more)}", "--steps", 24)
            again = metrics(self.folder / f"half{len(more)}")[0]
            for key in ("loss", "loss_scale", "skipped_updates", "grad_norm"):
                self.assertEqual([line[key] for line in again], [line[key] for line in whole], key)
            self.assertGreater(whole[-1]["skipped_updates"], 5)

    def test_threads_change_no_bit(self):
        plan, data = self.half("cnn-bn")
        runs = [[line["loss"] for line in self.lines(plan, data, "--threads", n, out=f"threads-{n}", steps=3)] for n in (1, 3)]
        self.assertEqual(*runs)

    def test_a_run_that_skips_for_ever_ends(self):
        """A fixed factor that is too large: a warning, then exit status 4 with a checkpoint."""
        plan, data = self.half("mlp", "--set", "train.loss_scale.kind=fixed", "--set", "train.loss_scale.init_scale=1e15")
        done = self.refuse(4, ["warning: step 1: a gradient is not finite at a loss scale of 1e\\+15, which is fixed",
                               "step 10: the gradient's norm is .* at a loss scale of 1e\\+15, after 9 such updates in a row", "bf16"],
                           "trun", plan, "--data", data, "--no-shuffle", "--steps", 30, "--out", "fixed")
        self.assertEqual(done.err.count("warning: step"), 1)
        self.assertEqual(checkpoints(self.folder / "fixed")[-1], 9)
        self.assertEqual(metrics(self.folder / "fixed")[0][-1]["skipped_updates"], 9)
        self.refuse(2, ["the plan's loss scale is fixed"], "trun", plan, "--data", data, "--set", "train.loss_scale.growth_factor=4")

    def test_what_has_no_meaning_is_refused(self):
        model, recipe, data, _ = case("mlp")
        self.refuse(1, ["train.loss_scale.growth_interval has no meaning with train.loss_scale.kind = \"fixed\""], "tcc", model, "--recipe",
                    recipe, "--set", "train.loss_scale.kind=fixed", "--set", "train.loss_scale.growth_interval=4")
        self.refuse(1, ["growth_factor"], "tcc", model, "--recipe", recipe, "--set", "train.loss_scale.growth_factor=1")
        self.refuse(1, ["nearest known one is train.loss_scale"], "tcc", model, "--recipe", recipe, "--set",
                    "train.loss_scale.growthfactor=2")
        plan = self.compile(model, "--recipe", recipe)
        self.refuse(2, ["compiled without loss scaling", "recompile with tcc"], "trun", plan, "--data", data, "--set",
                    "train.loss_scale.init_scale=8")

    def test_reports_tell_it(self):
        plan, data = self.half("cnn-bn", *SCALER)
        report = self.report(plan)
        self.assertEqual(report["precision"], "f16")
        self.assertRegex(next(note["text"] for note in report["notes"] if note["kind"] == "gradients"),
                         "loss scaling waits for the norm of all gradients, .* KiB")
        run = self.train(plan, data, steps=10)
        self.assertRegex(self.succeed("trun", "report", run).out, "6 of 10 updates skipped, .* last loss scale is 1048576")
        page = self.folder / "run.html"
        self.succeed("trun", "report", run, "--html", page)
        self.assertIn('"skipped_updates":6', page.read_text().replace(" ", ""))
        self.assertIn("skipped, loss scale", (run / "log.txt").read_text())

    def test_gradients_are_unscaled(self):
        """`trun gradients` in f16 gives the gradients of f32 within rounding."""
        model, recipe, data, _ = case("nano-gpt")
        columns = {key: value[:4] for key, value in safetensors.numpy.load_file(data).items()}
        inputs = self.save("inputs.safetensors", **columns)
        found = []
        for precision in ("f32", "f16"):
            plan = self.compile(model, "--recipe", recipe, "--entry", "gradients", "--precision", precision, plan=f"{precision}.tplan")
            self.succeed("trun", "gradients", plan, "--inputs", inputs, "--outputs", f"{precision}.safetensors")
            found.append(safetensors.numpy.load_file(self.folder / f"{precision}.safetensors"))
        for name, exact in found[0].items():
            self.assertLess(np.linalg.norm(found[1][name] - exact), 5e-3 * np.linalg.norm(exact), name)


class MomentsInBf16(EndToEnd):
    def bf16(self, name):
        model, recipe, data, _ = case(name)
        return [self.compile(model, "--recipe", recipe, "--entry", "train", "--set", f"optimizer.moments={kind}", plan=f"{kind}.tplan")
                for kind in ("f32", "bf16")], data

    def state(self, run, step):
        return raw_tensors(next((run / f"checkpoints/step-{step}").glob("*.safetensors")))

    def test_fifty_updates_are_as_near_as_pytorchs(self):
        """Random rounding gives other losses for each seed. The bound is how much PyTorch's runs differ from each other and from f32."""
        (_, plan), data = self.bf16("nano-gpt")
        losses = [line["loss"] for line in metrics(self.train(plan, data, steps=50))[0]]
        exact, theirs = TORCH["moments"]["f32"], TORCH["moments"]["bf16"]
        spread = max(apart(a, b) for a in [exact, *theirs] for b in theirs)
        self.assertLessEqual(max(apart(losses, one) for one in [exact, *theirs]), 1.5 * spread)
        self.assertGreater(apart(losses, exact), 1e-6, "nothing was rounded")

    def test_memory_is_half(self):
        plans, _ = self.bf16("nano-gpt")
        wide, narrow = (self.report(plan)["memory"]["resident"]["optimizer"] for plan in plans)
        self.assertEqual(2 * narrow, wide)
        self.assertIn("optimizer", self.succeed("tcc", "report", plans[1]).out)

    def test_each_moment_is_a_neighbour_and_right_in_the_mean(self):
        """The first update's moments are those of f32, rounded to one of the two neighbours, more often to the nearer one."""
        plans, data = self.bf16("nano-gpt")
        wide, narrow = (self.state(self.train(plan, data, "--checkpoint-every", 1, out=plan.stem, steps=1), 1) for plan in plans)
        errors = []
        for name, exact in wide.items():
            if not name.endswith(("/exp_avg", "/exp_avg_sq")):
                continue
            bits = exact.view(np.uint32)
            low, fraction = bits >> 16, (bits & 0xFFFF) / 65536
            up = narrow[name].astype(np.int64) - low
            self.assertTrue(((up == 0) | (up == 1)).all(), f"{name}: not a neighbour")
            errors.append((up - fraction).ravel())
        errors = np.concatenate(errors)
        self.assertGreater(np.abs(errors).max(), 0.6, "always to the nearest")
        self.assertLess(abs(errors.mean()), 4 * errors.std() / len(errors) ** 0.5)

    def test_a_second_moment_decays(self):
        """After one gradient, all others are 0: on average the moment falls by a thousandth in each update, which rounding to nearest
        would never do."""
        model, recipe, data, _ = case("mlp")
        plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--set", "optimizer.kind=adam", "--set", "optimizer.moments=bf16")
        columns = safetensors.numpy.load_file(data)
        batch = onnx.load(model).graph.input[0].type.tensor_type.shape.dim[0].dim_value
        width = columns["x"].shape[1]
        columns = {key: np.concatenate([value[:batch], *[np.zeros_like(value[:batch])] * 60]) for key, value in columns.items()}
        data = self.save("zeros.safetensors", **columns)
        run = self.train(plan, data, "--set", "checkpoint.keep=0", "--checkpoint-every", 60, steps=60)
        last = self.state(run, 60)
        run = self.train(plan, data, "--checkpoint-every", 1, out="first", steps=1)
        first = self.state(run, 1)
        name = next(key for key, value in first.items() if key.endswith("/exp_avg_sq") and width in value.shape)
        wide = [(state[name].astype(np.uint32) << 16).view(np.float32).astype(np.float64) for state in (first, last)]
        self.assertAlmostEqual(wide[1].sum() / wide[0].sum(), 0.999**59, delta=4e-3)

    def test_a_resume_and_threads_change_no_bit(self):
        for more in ([], ["--set", "train.accumulate=2"]):
            model, recipe, data, _ = case("mlp")
            plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--set", "optimizer.kind=adam", "--set",
                                "optimizer.moments=bf16", *more)
            whole = self.train(plan, data, "--threads", 3, out=f"whole{len(more)}", steps=10)
            self.train(plan, data, "--threads", 1, out=f"half{len(more)}", steps=5)
            self.succeed("trun", "--resume", f"half{len(more)}", "--steps", 10)
            self.assertEqual(*((self.folder / f"{run}{len(more)}/model.onnx").read_bytes() for run in ("whole", "half")))
            self.assertEqual(len(metrics(whole)[0]), 10)


if __name__ == "__main__":
    unittest.main()
