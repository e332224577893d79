"""optimizer.moments = "8bit": codes and magnitudes as bitsandbytes makes them of the same f32 moments, in every setting.

test/unit/runtime/dynamic_map.txt has bitsandbytes' numbers and thresholds (dynamic_map.py wrote it).
"""
import re
import unittest

import numpy as np
import onnx
import safetensors.numpy
from onnx import helper, numpy_helper

from common import ROOT, EndToEnd, case, metrics

BLOCK = 256
LOSS = ("--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--entry", "train", "--set", "optimizer.lr=0.01")
#: Kind, settings, and by state whether its codes have a sign.
OPTIMIZERS = [("adam", [], {"exp_avg": True, "exp_avg_sq": False}),
              ("adamw", ["optimizer.amsgrad=true", "optimizer.weight_decay=0.1"],
               {"exp_avg": True, "exp_avg_sq": False, "max_exp_avg_sq": False}),
              ("lamb", [], {"exp_avg": True, "exp_avg_sq": False}),
              ("sgd", ["optimizer.momentum=0.9", "optimizer.weight_decay=0.1"], {"momentum_buffer": True}),
              ("lion", [], {"exp_avg": True}),
              ("muon", [], {"momentum_buffer": True}),
              ("rmsprop", ["optimizer.momentum=0.9", "optimizer.centered=true"],
               {"square_avg": False, "grad_avg": True, "momentum_buffer": True}),
              ("adagrad", ["optimizer.initial_accumulator_value=0.1"], {"sum": False})]


def maps():
    numbers = {}
    for line in (ROOT / "test/unit/runtime/dynamic_map.txt").read_text().splitlines():
        name, what, *words = line.split()
        if what == "numbers":
            numbers[name == "signed"] = np.array([int(word, 16) for word in words], np.uint32).view(np.float32)
    return numbers


NUMBERS = maps()


def quantized(values, signed):
    """Codes and magnitudes; behind the last element are zeros."""
    blocks = -(-values.size // BLOCK)
    flat = np.zeros(blocks * BLOCK, np.float32)
    flat[:values.size] = values.ravel()
    flat = flat.reshape(blocks, BLOCK)
    absmax = np.abs(flat).max(axis=1)
    scaled = flat * (np.float32(1) / np.maximum(absmax, np.float32(1e-38)))[:, None]
    thresholds = (NUMBERS[signed][:-1] + NUMBERS[signed][1:]) / np.float32(2)
    return np.searchsorted(thresholds, scaled.ravel(), side="left").astype(np.uint8), absmax


class Moments(EndToEnd):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        # 24 blocks; stored transposed, 26.25 blocks; fewer than 4096 elements.
        self.values = {"a.weight": rng.standard_normal((96, 64)), "b.weight": rng.standard_normal((96, 70)),
                       "c.weight": rng.standard_normal((10, 70))}
        self.values = {name: (value / 8).astype(np.float32) for name, value in self.values.items()}
        nodes = [helper.make_node("Gemm", ["x", "a.weight"], ["h"], "a", transB=1), helper.make_node("Relu", ["h"], ["r"]),
                 helper.make_node("MatMul", ["r", "b.weight"], ["g"], "b"), helper.make_node("Tanh", ["g"], ["t"]),
                 helper.make_node("Gemm", ["t", "c.weight"], ["y"], "c", transB=1)]
        graph = helper.make_graph(nodes, "three", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [16, 64])],
                                  [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [16, 10])],
                                  [numpy_helper.from_array(value, name) for name, value in self.values.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.folder / "three.onnx")
        # Columns of very different size, so that blocks hold numbers from all decades of the map.
        x = rng.standard_normal((192, 64)) * np.exp(rng.standard_normal(64) * 2)
        self.data = self.save("data.safetensors", x=x.astype(np.float32), labels=np.arange(192) % 10)

    def plan(self, *settings, moments="8bit", name="plan"):
        sets = [word for setting in settings for word in ("--set", setting)]
        return self.compile("three.onnx", *LOSS, "--set", f'optimizer.moments="{moments}"', *sets, plan=f"{name}.tplan")

    def state(self, run, step):
        state = {}
        parts = (self.folder / run / f"checkpoints/step-{step}").glob("*.safetensors")
        for part in sorted(parts, key=lambda path: (len(path.name), path.name)):  # rank 0 has no number
            for name, value in safetensors.numpy.load_file(part).items():
                state[name] = np.concatenate([state[name], value]) if name in state else value
        return state

    def losses(self, run):
        return [line["loss"] for line in metrics(self.folder / run)[0]]

    def test_the_first_update_of_every_optimizer(self):
        """From zeros, the moments before they are rounded are those of a run in f32, and so is the changed weight."""
        for kind, settings, states in OPTIMIZERS:
            with self.subTest(kind):
                found = {}
                for moments in ("f32", "8bit"):
                    self.plan(f'optimizer.kind="{kind}"', *settings, moments=moments, name=f"{kind}-{moments}")
                    run = self.train(f"{kind}-{moments}.tplan", self.data, out=f"{kind}-{moments}", steps=1)
                    found[moments] = self.state(run, 1)
                exact, rounded = found["f32"], found["8bit"]
                for name, value in self.values.items():
                    if kind != "lamb":  # its norms are summed in another order
                        np.testing.assert_array_equal(rounded[name], exact[name], name)
                for state, signed in states.items():
                    for name in ("a.weight", "b.weight"):
                        if f"{name}/{state}" not in exact:
                            continue
                        moment = exact[f"{name}/{state}"]
                        codes, absmax = quantized(moment, signed)
                        if moment.size % BLOCK and state == "sum":  # zeros behind the end have the initial value
                            codes, absmax = codes[:moment.size // BLOCK * BLOCK], absmax[:-1]
                        got = rounded[f"{name}/{state}"]
                        self.assertEqual(got.dtype, np.uint8)
                        np.testing.assert_array_equal(got.ravel()[:codes.size], codes, f"{name}/{state}")
                        np.testing.assert_array_equal(rounded[f"{name}/{state}_absmax"].ravel()[:absmax.size], absmax, f"{name}/{state}")
                        self.assertGreater(len(set(codes)), 8, "the data fill few codes")
                wide = [name for name in exact if name.startswith("c.weight/")]
                self.assertTrue(wide)
                for name in wide:
                    np.testing.assert_array_equal(rounded[name], exact[name], f"{name}: fewer than 4096 elements")

    def test_later_updates_read_the_codes(self):
        """A second update of Adam, from the codes of the first and the gradient, which follows from an f32 run's first moment."""
        self.plan('optimizer.kind="adam"', "optimizer.betas=[0.5, 0.5]")
        first = self.state(self.train("plan.tplan", self.data, out="run", steps=2, *("--checkpoint-every", 1)), 1)
        second = self.state("run", 2)
        self.plan('optimizer.kind="adam"', "optimizer.betas=[0.5, 0.5]", moments="f32", name="wide")
        wide = self.state(self.train("wide.tplan", self.data, out="wide", steps=2), 2)
        name = "a.weight"
        old = (NUMBERS[True][first[f"{name}/exp_avg"].ravel()].reshape(-1, BLOCK) * first[f"{name}/exp_avg_absmax"])
        new = (NUMBERS[True][second[f"{name}/exp_avg"].ravel()].reshape(-1, BLOCK) * second[f"{name}/exp_avg_absmax"])
        exact = wide[f"{name}/exp_avg"].reshape(-1, BLOCK)
        bound = np.abs(exact).max(axis=1, keepdims=True)
        self.assertLess((np.abs(new - exact) / bound).max(), 0.02)
        self.assertGreater((np.abs(old - exact) / bound).max(), 0.1, "the second update changes the moments")

    def test_memory(self):
        sizes = {}
        for moments in ("f32", "bf16", "8bit"):
            report = self.report(self.plan('optimizer.kind="adam"', moments=moments, name=moments))
            sizes[moments] = report["memory"]["resident"]["optimizer"]
            arena = report["memory"]["arena_bytes"]
            if moments == "f32":
                exact = arena
        codes, blocks = 96 * 64 + 27 * BLOCK, 24 + 27
        self.assertEqual(sizes["f32"], 2 * 4 * (96 * 64 + 96 * 70 + 700))
        self.assertEqual(sizes["8bit"], 2 * (codes + 4 * blocks + 4 * 700))
        self.assertLess(arena - exact, 96 * 70 * 4 * 2 + 8192, "no copy but those of the matrix of 26.25 blocks")
        text = self.succeed("tcc", "report", "8bit.tplan").out
        self.assertIn("8 bits for 12864 elements of parameters, f32 for 700", text)
        self.assertIn(f"{(sizes['f32'] - sizes['8bit']) / 1024:.1f} KiB less than in f32, and moments within 0.70 % of the largest", text)

    def test_settings_change_no_more_than_they_should(self):
        """Resumes and numbers of threads change no bit, with accumulation, clipping and averages, too."""
        for number, more in enumerate(([], ["train.accumulate=2"], ["train.clip_norm=0.1", "train.ema.decay=0.9"],
                                       ["train.ema.decay=0.9", 'train.ema.on="device"', "optimizer.weight_decay=0.1"],
                                       ['train.precision="f16"'])):
            with self.subTest(more):
                plan = self.plan(*more, name=f"p{number}")
                whole, half = f"whole{number}", f"half{number}"
                self.train(plan, self.data, "--threads", 3, out=whole, steps=6)
                self.train(plan, self.data, "--threads", 1, out=half, steps=3)
                self.succeed("trun", "--resume", half, "--steps", 6)
                self.assertEqual(self.losses(whole), self.losses(half))
                left, right = self.state(whole, 6), self.state(half, 6)
                self.assertEqual(sorted(left), sorted(right))
                for name, value in left.items():
                    np.testing.assert_array_equal(right[name], value, name)

    def test_phases_have_codes_of_their_own(self):
        """Two phases train the same matrix; each has its codes and magnitudes, and a resume is exact."""
        recipe = self.write("phases.toml", "".join(
            f'[[phase]]\nname = "{name}"\nparameters = ["a.*", "{other}.*"]\n'
            'loss = { kind = "cross_entropy", target = "labels" }\noptimizer = { kind = "adam", moments = "8bit", lr = 0.01 }\n'
            for name, other in (("one", "b"), ("two", "c"))))
        self.compile("three.onnx", "--recipe", recipe, "--entry", "train", plan="phases.tplan")
        self.train("phases.tplan", self.data, out="whole", steps=4)
        self.train("phases.tplan", self.data, out="half", steps=2)
        self.succeed("trun", "--resume", "half", "--steps", 4)
        whole, half = self.state("whole", 4), self.state("half", 4)
        for name in ("a.weight/one/exp_avg_absmax", "a.weight/two/exp_avg_absmax", "b.weight/one/exp_avg"):
            self.assertIn(name, whole)
        for name, value in whole.items():
            np.testing.assert_array_equal(half[name], value, name)

    def test_budgets_change_no_bit(self):
        self.plan('optimizer.kind="adam"')
        least = self.command("tcc", "three.onnx", "-o", "x.tplan", *LOSS, "--set", 'optimizer.kind="adam"', "--set",
                             'optimizer.moments="8bit"', "--memory-budget", "1KiB")
        self.assertEqual(least.status, 3, least)
        budget = re.search(r"smallest budget that does is .*?(\d+) bytes", least.err)[1]
        self.compile("three.onnx", *LOSS, "--set", 'optimizer.kind="adam"', "--set", 'optimizer.moments="8bit"', "--memory-budget", budget,
                     plan="tight.tplan")
        for name in ("plan", "tight"):
            self.train(f"{name}.tplan", self.data, out=name, steps=3)
        self.assertEqual(self.losses("plan"), self.losses("tight"))

    def test_losses_stay_near(self):
        """Fifty updates of a small GPT, as near to those in f32 as moments in bf16 are."""
        model, recipe, data, _ = case("nano-gpt")
        runs = {}
        for moments in ("f32", "bf16", "8bit"):
            plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--set", f'optimizer.moments="{moments}"',
                                plan=f"{moments}.tplan")
            self.train(plan, data, out=moments, steps=50)
            runs[moments] = np.array(self.losses(moments))
        apart = {moments: np.abs(runs[moments] / runs["f32"] - 1).max() for moments in ("bf16", "8bit")}
        self.assertLess(apart["8bit"], max(2 * apart["bf16"], 1e-2))

    def test_parameters_that_keep_f32(self):
        self.plan('optimizer.moments_exempt=["a.*"]')
        state = self.state(self.train("plan.tplan", self.data, steps=1), 1)
        types = {name: str(value.dtype) for name, value in state.items() if "/exp_avg" in name}
        self.assertEqual(types["a.weight/exp_avg"], "float32")
        self.assertEqual(types["b.weight/exp_avg"], "uint8")
        self.assertNotIn("a.weight/exp_avg_absmax", types)
        sets = ("--set", 'optimizer.moments_exempt=["a.*"]')
        self.refuse(1, ["optimizer.moments_exempt needs optimizer.moments = \"8bit\""], "tcc", "three.onnx", "-o", "x.tplan", *LOSS, *sets)
        self.refuse(1, ["optimizer.moments_exempt", "nothing.*"], "tcc", "three.onnx", "-o", "x.tplan", *LOSS, "--set",
                    'optimizer.moments="8bit"', "--set", 'optimizer.moments_exempt=["nothing.*"]')

    def test_shards_hold_whole_blocks_or_f32(self):
        """On 2 and 4 ranks a shard of a.weight has 12 and 6 blocks, and the bits are those of ranks with all of them. 26.25 blocks of
        b.weight are not cut: its moments stay in f32."""
        for count in (2, 4):
            for mode in ("ddp", "grad_op", "full"):
                ranks = [] if mode == "ddp" else [f"parallel.ranks={count}"]
                self.plan(f'parallel.mode="{mode}"', *ranks, 'optimizer.moments_exempt=["b.*"]', name=mode)
                self.succeed("trun", f"{mode}.tplan", "--data", self.data, "--no-shuffle", "--steps", 3, "--out", f"{mode}{count}",
                             "--nproc", count)
            whole = self.state(f"ddp{count}", 3)
            for mode in ("grad_op", "full"):
                self.assertEqual(self.losses(f"{mode}{count}"), self.losses(f"ddp{count}"))
                for name in ("a.weight/exp_avg", "a.weight/exp_avg_sq", "a.weight/exp_avg_absmax"):
                    np.testing.assert_array_equal(self.state(f"{mode}{count}", 3)[name], whole[name].ravel(), name)
        self.plan('parallel.mode="grad_op"', "parallel.ranks=2", name="cut")
        self.assertIn("shards of b.weight would cut blocks of 256 elements", self.succeed("tcc", "report", "cut.tplan").out)
        self.refuse(1, ["train.virtual_ranks: optimizer.moments \"8bit\""], "tcc", "three.onnx", "-o", "x.tplan", *LOSS, "--set",
                    'optimizer.moments="8bit"', "--set", 'parallel.mode="grad_op"', "--set", "parallel.ranks=2", "--set",
                    "train.virtual_ranks=4")


if __name__ == "__main__":
    unittest.main()
