"""Alternating optimizers ([[phase]]): fifty steps compared with PyTorch (phases/make.py), resumes, accumulation, reports, mistakes."""
import json
import re
import unittest
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy
from onnx import numpy_helper

from common import EndToEnd, metrics

FILES = Path(__file__).resolve().parent / "phases"
RECIPES = {
    "gan": """
[optimizer]
kind = "adam"
betas = [0.5, 0.999]
[[phase]]
name = "d"
loss = "d_loss"
parameters = ["discriminator.*"]
optimizer = { lr = 1e-3 }
[[phase]]
name = "g"
loss = "g_loss"
parameters = ["generator.*"]
optimizer = { lr = 2e-3 }
schedule = { kind = "exponential", gamma = 0.98 }
every = 2
""",
    "actor-critic": """
[[phase]]
name = "critic"
loss = "critic_loss"
parameters = ["trunk.*", "value.*"]
optimizer = { kind = "adam", lr = 3e-3 }
[[phase]]
name = "actor"
loss = "actor_loss"
parameters = ["trunk.*", "policy.*"]
optimizer = { kind = "adamw", lr = 1e-3, weight_decay = 0.1 }
clip_norm = 0.5
""",
    "factors": """
[optimizer]
kind = "sgd"
[[phase]]
name = "users"
loss = "loss"
parameters = ["users.*"]
optimizer = { lr = 0.2, momentum = 0.9 }
[[phase]]
name = "items"
loss = "loss"
parameters = ["items.*"]
optimizer = { lr = 0.1 }
"""}


class Phases(EndToEnd):
    def plan(self, name, *arguments, recipe=None, plan="plan.tplan"):
        return self.compile(FILES / f"{name}.onnx", "--recipe", self.write(f"{name}.toml", recipe or RECIPES[name]), *arguments, plan=plan)

    def state(self, run, step):
        return safetensors.numpy.load_file(self.folder / run / "checkpoints" / f"step-{step}" / "state.safetensors")

    def follows(self, name):
        """Every loss of 50 steps within 1e-6 of PyTorch's, and every weight and running statistic within 1e-5."""
        run = self.train(self.plan(name), FILES / f"{name}.safetensors", steps=50)
        lines, _ = metrics(run)
        expected = json.loads((FILES / "expected.json").read_text())[name]
        for phase, losses in expected.items():
            found = [v[f"loss.{phase}"] for v in lines if f"loss.{phase}" in v]
            self.assertEqual(len(found), len(losses))
            np.testing.assert_allclose(found, losses, rtol=1e-6, atol=1e-6, err_msg=f"{name}: loss.{phase}")
        after = safetensors.numpy.load_file(FILES / f"{name}-after.safetensors")
        state = self.state("run", 50)
        for key, value in after.items():
            np.testing.assert_allclose(state[key].reshape(value.shape), value, rtol=1e-5, atol=1e-5, err_msg=f"{name}: {key}")
        return lines, state

    def test_gan(self):
        lines, state = self.follows("gan")
        self.assertEqual([("loss.g" in v) for v in lines[:4]], [False, True, False, True])
        self.assertEqual([v["loss"] for v in lines], [v["loss.d"] for v in lines])
        self.assertAlmostEqual(lines[3]["lr.g"] / (2e-3 * 0.98), 1, 9, "its second update")
        self.assertIn("generator.0.weight/g/exp_avg", state)
        self.assertNotIn("generator.0.weight/d/exp_avg", state)

    def test_actor_critic(self):
        lines, state = self.follows("actor-critic")
        for phase in ("critic", "actor"):
            self.assertIn(f"trunk.0.weight/{phase}/exp_avg", state, "both train the trunk, each with moments of its own")
        self.assertNotIn("value.weight/actor/exp_avg", state)

    def test_factors(self):
        self.follows("factors")

    def test_resume_evaluation_and_report(self):
        plan, data = self.plan("gan"), FILES / "gan.safetensors"
        report = self.report(plan)
        text = self.succeed("tcc", "report", plan).out
        for entry in ("step.d", "step.g"):
            self.assertRegex(text, rf"train +{entry} +16 ")
        groups = {g["name"]: g["parameters"] for g in report["parameters"]["groups"]}
        self.assertTrue(all(p.startswith("discriminator.") for p in groups["d: default"]))
        self.assertTrue(all(p.startswith("generator.") for p in groups["g: default"]))
        self.assertEqual(report["parameters"]["unused"], [])
        words = ("--eval-data", data, "--eval-every", 7)
        self.train(plan, data, *words, steps=15, out="whole")
        self.train(plan, data, *words, steps=7, out="half")
        self.succeed("trun", "--resume", "half", "--steps", 15)
        whole, half = self.state("whole", 15), self.state("half", 15)
        self.assertEqual(set(whole), set(half))
        for key in whole:
            np.testing.assert_array_equal(whole[key], half[key], key)
        self.assertEqual([{k: v for k, v in line.items() if k.startswith("loss")} for line in metrics(self.folder / "whole")[0]],
                         [{k: v for k, v in line.items() if k.startswith("loss")} for line in metrics(self.folder / "half")[0]])
        line = metrics(self.folder / "whole")[1][-1]
        self.assertGreater(line["eval_g_loss"], 0)
        self.assertGreater(line["eval_loss"], line["eval_g_loss"], "of the discriminator: two terms")
        self.succeed("trun", "export", "whole", "-o", "trained.onnx")
        trained = {t.name: numpy_helper.to_array(t) for t in onnx.load(self.folder / "trained.onnx").graph.initializer}
        np.testing.assert_array_equal(trained["generator.0.weight"], whole["generator.0.weight"])

    def test_accumulation(self):
        """The first step's loss is the mean over its micro-batches; later phases see the first phase's update."""
        plan, data = self.plan("actor-critic", "--set", "train.accumulate=2"), FILES / "actor-critic.safetensors"
        self.train(plan, data, steps=6, out="two")
        state = self.state("two", 6)
        first = metrics(self.folder / "two")[0][0]
        alone = []
        columns = safetensors.numpy.load_file(data)
        single = self.plan("actor-critic", plan="single.tplan")
        for half in (0, 1):
            part = self.save(f"part{half}.safetensors", **{k: v[16 * half:16 * half + 16] for k, v in columns.items()})
            alone.append(metrics(self.train(single, part, steps=1, out=f"alone{half}"))[0][0]["loss.critic"])
        self.assertAlmostEqual(first["loss.critic"], np.mean(alone), 6)
        self.plan("actor-critic", "--set", "train.accumulate=2", "--dump-phases-to", "phases", plan="again.tplan")
        groups = dict(re.findall(r'train\.variable @"?([\w./]+)"? :.*?{(.*?)}', next((self.folder / "phases").glob("*-memory.mlir")).read_text()))
        self.assertIn("group = 1", groups["policy.bias"])
        self.assertIn("group = 1", groups["policy.bias/actor/gradient"])
        for name in ("critic", "actor"):
            self.assertNotIn("group", groups[f"loss/{name}/sum"], "it belongs to no parameter")
        self.assertTrue(all(np.isfinite(v).all() for v in state.values() if v.dtype.kind == "f"))

    def test_adapters_of_both_networks(self):
        """Each optimizer trains the adapters of its network; losses, adapters and statistics equal peft's (phases/make_scaled.py)."""
        layers = ["generator.0", "generator.3", "discriminator.0", "discriminator.2"]
        recipe = RECIPES["gan"].replace("lr = 1e-3", "lr = 1e-2").replace("lr = 2e-3", "lr = 2e-2").replace(
            'schedule = { kind = "exponential", gamma = 0.98 }\n', "")
        recipe += f"[adapter]\ntargets = {json.dumps(layers)}\nrank = 1\nalpha = 4\n"
        plan, data = self.plan("gan", recipe=recipe), FILES / "gan.safetensors"
        init = ("--init", FILES / "gan-adapter" / "initial" / "adapter_model.safetensors", "--init-partial")
        run = self.train(plan, data, *init, steps=30)
        lines, expected = metrics(run)[0], json.loads((FILES / "scaled.json").read_text())["adapters"]
        for phase in ("d", "g"):
            np.testing.assert_allclose([v[f"loss.{phase}"] for v in lines if f"loss.{phase}" in v], expected[phase], rtol=1e-6, atol=1e-6)
        self.succeed("trun", "export", run, "-o", "a.safetensors", "--adapter")
        written = safetensors.numpy.load_file(self.folder / "a.safetensors")
        wanted = safetensors.numpy.load_file(FILES / "gan-adapter" / "final" / "adapter_model.safetensors")
        self.assertEqual(written.keys(), wanted.keys())
        for name, value in wanted.items():
            np.testing.assert_allclose(written[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        state = self.state("run", 30)
        self.assertIn("generator.0.lora_A.weight/g/exp_avg", state)
        self.assertNotIn("generator.0.weight", state, "the base is frozen")
        report = self.report(plan)
        self.assertEqual(len(report["adapters"]["list"]), 4)
        self.assertEqual(len(report["parameters"]["trainable"]), 8)

    def scaled(self, *arguments, scale='kind = "dynamic"\ngrowth_interval = 2', plan="plan.tplan"):
        recipe = RECIPES["actor-critic"] + f"[train.loss_scale]\ninit_scale = 1024\n{scale}\n"
        return self.plan("scaled", *arguments, recipe=recipe, plan=plan), FILES / "scaled.safetensors"

    def test_one_loss_scale_for_all_phases(self):
        """As with one GradScaler for several optimizers: which phase skips, the factor, and every loss."""
        plan, data = self.scaled()
        run = self.train(plan, data, "--checkpoint-every", 7, steps=32)
        lines, expected = metrics(run)[0], json.loads((FILES / "scaled.json").read_text())["scaled"]
        self.assertEqual([v["loss_scale"] for v in lines], expected["scale"])
        for phase in ("critic", "actor"):
            self.assertEqual([v[f"skipped_updates.{phase}"] for v in lines], expected[f"skipped.{phase}"])
            np.testing.assert_allclose([v[f"loss.{phase}"] for v in lines], expected[f"loss.{phase}"], rtol=1e-6, atol=1e-6)
        self.assertEqual(lines[-1]["skipped_updates"], expected["skipped.critic"][-1] + expected["skipped.actor"][-1])
        self.assertIsNone(lines[2]["grad_norm.critic"])
        self.assertGreater(lines[2]["grad_norm.actor"], 0, "its own update was applied")
        # A resumed run goes on with the factor and with each phase's count of applied updates.
        self.train(plan, data, steps=9, out="part")
        self.succeed("trun", "--resume", "part", "--steps", 32)
        whole, part = self.state("run", 32), self.state("part", 32)
        for key in whole:
            np.testing.assert_array_equal(whole[key], part[key], key)
        manifest = json.loads((self.folder / "part" / "checkpoints" / "step-32" / "manifest.json").read_text())
        self.assertEqual(manifest["position"]["loss_scale"]["phases"], {"critic": 8, "actor": 8})
        self.assertEqual(manifest["position"]["loss_scale"]["skipped_updates"], 4, "steps in which nothing changed")
        # Averages stand still at step 8, which both phases skipped, and not at step 3, which one skipped.
        plan, data = self.scaled("--set", "train.ema.decay=0.5", plan="ema.tplan")
        averages = {}
        for steps in (2, 3, 7, 8):
            run = self.train(plan, data, steps=steps, out=f"ema-{steps}")
            self.succeed("trun", "export", run, "-o", "ema.safetensors", "--ema")
            averages[steps] = (self.folder / "ema.safetensors").read_bytes()
        self.assertEqual(averages[7], averages[8])
        self.assertNotEqual(averages[2], averages[3])
        # With accumulation, one bad micro-batch spoils its window: 1 and 3 for the critic, 2 and 3 for the actor.
        plan, data = self.scaled("--set", "train.accumulate=2", plan="two.tplan")
        lines = metrics(self.train(plan, data, steps=4, out="two"))[0]
        self.assertEqual([(v["skipped_updates.critic"], v["skipped_updates.actor"]) for v in lines], [(0, 0), (1, 0), (1, 1), (2, 2)])
        self.assertEqual([v["loss_scale"] for v in lines], [1024, 1024, 512, 256])

    def test_phases_in_f16_and_hopeless_scales(self):
        data = FILES / "gan.safetensors"
        f32 = [v["loss.d"] for v in metrics(self.train(self.plan("gan"), data, steps=20, out="f32"))[0]]
        plan = self.plan("gan", "--precision", "f16", plan="f16.tplan")
        lines = metrics(self.train(plan, data, steps=20, out="f16"))[0]
        np.testing.assert_allclose([v["loss.d"] for v in lines], f32, rtol=5e-3)
        self.assertNotEqual([v["loss.d"] for v in lines], f32)
        self.assertEqual({v["loss_scale"] for v in lines}, {65536})
        # A fixed factor that is too large: after ten rounds in which one phase was skipped the run ends.
        plan, data = self.scaled(scale='kind = "fixed"', plan="fixed.tplan")
        columns = safetensors.numpy.load_file(data)
        columns["critic"][:] = 0
        bad = self.save("bad.safetensors", **columns)
        self.refuse(4, ["step 10", "loss scale of 1024", "9 such updates"], "trun", plan, "--data", bad, "--no-shuffle", "--steps", 40,
                    "--out", "hopeless")
        self.assertEqual(metrics(self.folder / "hopeless")[0][-1]["skipped_updates.critic"], 9)

    def test_a_parameter_of_no_phase_is_frozen(self):
        plan = self.plan("gan", recipe=RECIPES["gan"].replace('["generator.*"]', '["generator.3.*"]'))
        self.assertIn("generator.0.weight", json.dumps(self.report(plan)["parameters"]["frozen"]))
        run = self.train(plan, FILES / "gan.safetensors", steps=4)
        initial = {t.name: numpy_helper.to_array(t) for t in onnx.load(FILES / "gan.onnx").graph.initializer}
        weights = self.weights(run)
        np.testing.assert_array_equal(weights["generator.0.weight"], initial["generator.0.weight"])
        self.assertGreater(np.abs(weights["generator.3.weight"] - initial["generator.3.weight"]).max(), 0)

    def test_mistakes(self):
        gan = RECIPES["gan"]
        for recipe, patterns in (
                (gan.replace("every = 2", "every = 0"), [r"gan.toml:\d+", "every", "from 1 to"]),
                (gan.replace('name = "g"', 'name = "d"'), [r"gan.toml:10", "two phases", '"d"']),
                (gan + '[loss]\noutput = "d_loss"\n', ["exclude each other"]),
                (gan.replace('loss = "g_loss"', 'loss = "d_loss"'), ['phase "g"', "reaches none of its parameters"]),
                (gan.replace('["generator.*"]', '["generatr.*"]'), [r"gan.toml:\d+", "generatr", "matches no parameter"]),
                (gan.replace("every = 2", "evry = 2"), ["unknown key evry", "every"]),
                (gan.replace('loss = "g_loss"\n', ""), ["phase 2", "no `loss`"]),
                (gan.replace('loss = "g_loss"', 'loss = "gloss"'), ["gloss", "g_loss"]),
                (gan + '[adapter]\nrank = 1\ntargets = ["generator.0"]\n', ["discriminator", "matches no parameter"]),
                (gan + '[train]\nema = { decay = 0.9, on = "device" }\n', ["train.ema.on", "host"])):
            self.refuse(1, patterns, "tcc", FILES / "gan.onnx", "--recipe", self.write("gan.toml", recipe), "-o", "x.tplan")
        plan, data = self.plan("gan"), FILES / "gan.safetensors"
        self.refuse(2, ["several optimizers", "recompile"], "trun", plan, "--data", data, "--set", "optimizer.lr=1", "--out", "x")
        self.refuse(2, ["--entry", r"step\.g"], "trun", "profile", plan, "--data", data)
        self.succeed("trun", "profile", plan, "--data", data, "--entry", "step.g", "--no-roofline", "--steps", 1)
        self.succeed("trun", "data", data, "--plan", plan)


if __name__ == "__main__":
    unittest.main(verbosity=2)
