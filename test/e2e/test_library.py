"""libtrun from C, C++ and Python: the numbers of PyTorch and of trun, mistakes with their messages, and nothing left behind."""
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import numpy as np
import safetensors.numpy

import models
from common import BIN, PLAN_INSIDE, ROOT, ZOO, EndToEnd, fine_tuned, metrics

os.environ.setdefault("TCC_LIBRARY", str(BIN.parent / "lib" / "libtrun.so"))
os.environ.setdefault("TCC_PROGRAM", str(BIN / "tcc"))
sys.path.insert(0, str(ROOT / "python"))
import tcc                                                                      # noqa: E402

CLASSES = models.CLASSES + '[optimizer]\nkind = "sgd"\nlr = 0.1\n'


class Programs(EndToEnd):
    def plan(self, *arguments):
        return self.compile(models.classifier(self.folder / "m.onnx", 32, 16, 10), "--recipe", self.write("r.toml", CLASSES), "--entry",
                            "train,evaluate,predict", *arguments)

    def test_an_own_loop_in_c_learns_and_leaves_a_run(self):
        done = self.succeed("api-own-loop", self.plan(), "run")
        self.assertIn("after 300 updates", done.out)
        self.succeed("trun", "export", "run", "-o", "m.safetensors")
        more = self.succeed("trun", "--resume", "run", "--data", self.save("d.safetensors", **models.labelled(64, 10, 16)), "--steps", 302)
        self.assertIn("update 300", more.err)
        self.assertEqual(metrics(self.folder / "run")[0][-1]["step"], 302)

    def test_several_models_in_threads_and_a_run_that_is_stopped(self):
        done = self.succeed("api-several-models", self.plan())
        self.assertIn("stopped after", done.out)

    def test_a_program_outside_the_tree_builds_against_the_header_and_the_library(self):
        source = self.write("own.c", (ROOT / "test/api/own_loop.c").read_text())
        library = BIN.parent / "lib"
        subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", source, "-I", ROOT / "include", "-L", library, "-ltrun",
                        "-lm", f"-Wl,-rpath,{library}", "-o", self.folder / "own"], check=True)
        done = subprocess.run([self.folder / "own", self.plan(), self.folder / "run"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_program_with_a_plan_inside_fine_tunes_in_memory(self):
        """Its losses and weights are those of trun, which starts from the same weights and reads the same rows."""
        plan, library = self.plan(), BIN.parent / "lib"
        source = self.write("plan.S", PLAN_INSIDE.format(plan))
        program, part = self.folder / "own", self.folder / "own.o"
        done = subprocess.run(["cc", "-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", ROOT / "include", "-c",
                               ROOT / "test/api/from_memory.c", "-o", part], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        subprocess.run(["cc", part, source, "-L", library, "-ltrun", f"-Wl,-rpath,{library}", "-o", program], check=True)
        plan.rename(self.folder / "moved.tplan")  # the program needs no file of it
        sizes = subprocess.run(["size", part], capture_output=True, text=True, check=True).stdout
        self.assertLess(int(sizes.splitlines()[1].split()[0]), 4096)  # bytes of code and constants
        rows, start = models.labelled(160, 10, 16), {"b": models.random(2, 10), "w": models.random(3, 10, 16)}
        losses, end = fine_tuned(program, self.folder, rows, start)
        self.succeed("trun", "moved.tplan", "--data", self.save("d.safetensors", **rows), "--init",
                     self.save("start.safetensors", **start), "--no-shuffle", "--out", "run")
        self.assertEqual(losses, [line["loss"] for line in metrics(self.folder / "run")[0]])
        self.assertEqual(len(losses), 5)
        for name, value in self.weights("run").items():
            np.testing.assert_array_equal(end[name], value, name)

    def test_the_library_exports_its_functions_alone(self):
        names = subprocess.run(["nm", "-D", "--defined-only", BIN.parent / "lib" / "libtrun.so"], capture_output=True, text=True,
                               check=True).stdout
        exported = {line.split()[2].split("@")[0] for line in names.splitlines() if line.split()[1] in "TWVBDR"}
        declared = set(re.findall(r"^TRUN_API [^;(]*?(trun_\w+)\(", (ROOT / "include/trun/trun.h").read_text(), re.MULTILINE))
        self.assertEqual(exported, declared)
        self.assertGreater(len(exported), 30)


class Python(EndToEnd):
    def zoo(self, name, *entries, **options):
        folder = ZOO / name
        return tcc.compile(folder / "model.onnx", folder / "recipe.toml", entries=entries or ("train",), **options)

    def compile_within(self, budget):
        return tcc.compile(self.folder / "m.onnx", recipe={"loss.kind": "cross_entropy", "loss.target": "labels"}, memory_budget=budget)

    def classifier(self, batch=32, settings=(), entries=("train", "evaluate", "predict", "gradients")):
        model = models.classifier(self.folder / "m.onnx", batch, 16, 10)
        recipe = {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels", "optimizer.kind": "sgd", "optimizer.lr": 0.1}
        return tcc.compile(model, recipe | dict(settings), entries=entries)

    def test_an_own_loop_has_pytorchs_losses(self):
        for name in ("mlp", "small-cnn", "nano-gpt"):
            plan = self.zoo(name)
            expected = json.loads((ZOO / name / "expected.json").read_text())
            data = safetensors.numpy.load_file(next((ZOO / name).glob("data*.safetensors")))
            trainer = tcc.Trainer(plan, threads=1)
            names, rows, losses = [value.name for value in plan.inputs()], trainer.rows, []
            for step in range(len(expected["loss"])):
                count = len(data[names[0]]) // rows
                at = step % count * rows
                losses.append(trainer.step(*(data[name][at:at + rows] for name in names)).loss)
            np.testing.assert_allclose(losses, expected["loss"], rtol=max(expected["tolerance"], 1e-4), err_msg=name)

    def test_fit_over_arrays_has_the_losses_of_trun_over_a_file(self):
        plan, rows = self.classifier(), models.labelled(128, 10, 16)
        losses = []
        trainer = tcc.Trainer(plan, threads=1, seed=5)
        trainer.fit(rows, steps=6, callbacks=[lambda event: losses.append(event.update.loss) if event.kind == "update" else None])
        path = self.folder / "plan.tplan"
        self.compile(self.folder / "m.onnx", "--recipe", self.write("r.toml", CLASSES))
        self.succeed("trun", path, "--data", self.save("d.safetensors", **rows), "--steps", 6, "--seed", 5, "--out", "run", "--threads", 1)
        self.assertEqual(losses, [line["loss"] for line in metrics(self.folder / "run")[0]])
        weights = self.weights("run")
        for name, value in trainer.get_parameters().items():
            np.testing.assert_array_equal(value, weights[name], name)

    def test_strides_types_and_torchs_layout_do_not_matter(self):
        plan, rows = self.classifier(), models.labelled(32, 10, 16)
        x, labels = rows["x"], rows["labels"]
        losses = {tcc.Trainer(plan).step(*given).loss for given in (
            (x, labels), (np.asfortranarray(x), labels), (x[::-1][::-1], labels.astype(np.int32)), (np.repeat(x, 2, axis=0)[::2], labels),
            (np.concatenate([x, x], axis=1)[:, :16], labels.astype(np.uint8)), (x.astype(">f4").astype("<f4"), labels))}
        self.assertEqual(len(losses), 1)
        self.assertEqual(losses, {tcc.Trainer(plan).step(labels=labels, x=x).loss})

    def test_evaluate_predict_and_gradients_agree_with_numpy(self):
        plan, rows = self.classifier(), models.labelled(77, 10, 16)
        trainer = tcc.Trainer(plan)
        w, b = trainer.read("w"), trainer.read("b")
        logits = rows["x"] @ w.T + b
        np.testing.assert_allclose(trainer.predict(rows["x"])["logits"], logits, rtol=1e-4, atol=1e-5)
        scores = logits.astype(np.float64)
        losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(77), rows["labels"]]
        result = trainer.evaluate(rows["x"], rows["labels"])
        self.assertAlmostEqual(result["eval_loss"], losses.mean(), places=5)
        self.assertAlmostEqual(result["eval_accuracy"], (logits.argmax(1) == rows["labels"]).mean(), places=6)
        x, labels = rows["x"][:32], rows["labels"][:32]
        share = np.exp(scores[:32]) / np.exp(scores[:32]).sum(1, keepdims=True)
        share[np.arange(32), labels] -= 1
        gradients = trainer.gradients(x, labels)
        found = gradients["w"]
        np.testing.assert_allclose(found, (share / 32).T @ x, rtol=1e-3, atol=1e-5)

    def test_an_update_returns_the_outputs_of_its_batch(self):
        model, rows = models.classifier(self.folder / "m.onnx", 32, 16, 10), models.labelled(96, 10, 16)
        for accumulate, given in ((1, 32), (3, 96), (3, 80), (1, 20)):
            trainer = tcc.Trainer(tcc.compile(model, {"loss.kind": "cross_entropy", "loss.target": "labels", "optimizer.kind": "sgd",
                                                      "optimizer.lr": 0.1, "train.accumulate": accumulate}, outputs=["logits"]))
            x, labels = rows["x"][:given], rows["labels"][:given]
            for _ in range(2):
                before = trainer.predict(x)["logits"]
                step = trainer.step(x, labels)
                self.assertEqual(list(step.outputs), ["logits"])
                np.testing.assert_allclose(step.outputs["logits"], before, rtol=1e-5, atol=1e-6)
                logits = step.outputs["logits"].astype("f8")
                shifted = logits - logits.max(1, keepdims=True)
                losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(given), labels]
                self.assertAlmostEqual(step.loss, losses.mean(), places=5)
        self.assertEqual(tcc.Trainer(self.classifier()).step(rows["x"][:32], rows["labels"][:32]).outputs, {})

    def test_outputs_of_stages_and_of_virtual_ranks_are_those_of_their_rows(self):
        model, rows = models.classifier(self.folder / "m.onnx", 32, 16, 10), models.labelled(64, 10, 16)
        keys = {"loss.kind": "cross_entropy", "loss.target": "labels", "optimizer.kind": "sgd", "optimizer.lr": 0.1}
        stages = [{"until": 1, "trainable": ["b"]}, {"trainable": ["*"]}]
        for more, given in (({"stage": stages}, 32), ({"train.virtual_ranks": 2, "parallel.mode": "ddp"}, 64)):
            trainer = tcc.Trainer(tcc.compile(model, keys | more, outputs=["logits"]))
            for _ in range(3):
                before = trainer.predict(rows["x"][:given])["logits"]
                outputs = trainer.step(rows["x"][:trainer.rows], rows["labels"][:trainer.rows]).outputs
                np.testing.assert_allclose(outputs["logits"], before[:trainer.rows], rtol=1e-5, atol=1e-6)

    def test_virtual_ranks_in_a_loop_have_truns_losses(self):
        model, rows = models.classifier(self.folder / "m.onnx", 32, 16, 10), models.labelled(384, 10, 16)
        data = self.save("d.safetensors", **rows)
        keys = {"loss.kind": "cross_entropy", "loss.target": "labels", "optimizer.kind": "sgd", "optimizer.lr": 0.1, "parallel.mode": "ddp",
                "train.virtual_ranks": 2, "train.accumulate": 2}
        plan = tcc.compile(model, keys, output=self.folder / "p.tplan")
        self.succeed("trun", plan._folder.plan, "--data", data, "--no-shuffle", "--steps", 3, "--out", "run")
        trainer = tcc.Trainer(plan)
        self.assertEqual(trainer.rows, 128)
        losses = [trainer.step(rows["x"][i:i + 128], rows["labels"][i:i + 128]).loss for i in range(0, 384, 128)]
        self.assertEqual(losses, [line["loss"] for line in metrics(self.folder / "run")[0]])
        # A part of an update is whole global batches.
        trainer.step(rows["x"][:64], rows["labels"][:64])
        with self.assertRaisesRegex(tcc.DataError, "96 rows; each of 2 virtual ranks takes a batch of 32, so give 64, or a multiple of that"):
            trainer.step(rows["x"][:96], rows["labels"][:96])

    def test_outputs_of_an_update_are_refused_where_there_are_none(self):
        with self.assertRaisesRegex(tcc.CompileError, "train.outputs: the graph has no output `logit`; the nearest is `logits`"):
            tcc.compile(models.classifier(self.folder / "m.onnx", 32, 16, 10), {"loss.kind": "cross_entropy", "loss.target": "labels"},
                        outputs=["logit"])
        trainer = tcc.Trainer(self.classifier())
        with self.assertRaisesRegex(tcc.UsageError, "updates of this plan return no graph outputs; compile with tcc --set train.outputs="):
            tcc._library.trainer_outputs(trainer._handle, tcc._trainer.byref(tcc._trainer.ctypes.c_void_p()))

    def test_parameters_go_out_and_in(self):
        """A federated client: weights in, some updates, weights out."""
        plan, rows = self.classifier(), models.labelled(64, 10, 16)
        first, second = tcc.Trainer(plan), tcc.Trainer(plan)
        first.fit(rows, steps=2)
        second.set_parameters(first.get_parameters())
        a, b = (one.evaluate(rows["x"], rows["labels"])["eval_loss"] for one in (first, second))
        self.assertEqual(a, b)
        with self.assertRaisesRegex(tcc.UsageError, "no parameter 'v'"):
            second.set_parameters({"w": first.read("w"), "v": first.read("w")})
        with self.assertRaisesRegex(tcc.UsageError, r"'w' is float32\[10, 16\], the array float64\[2, 3\]"):
            second.write("w", np.zeros((2, 3)))

    def test_a_rate_of_the_callers_and_settings(self):
        plan, rows = self.classifier(), models.labelled(32, 10, 16)
        trainer = tcc.Trainer(plan, settings={"optimizer.lr": 0.05})
        self.assertEqual(trainer.step(rows["x"], rows["labels"]).learning_rate, 0.05)
        before = trainer.read("w")
        self.assertEqual(trainer.step(rows["x"], rows["labels"], lr=0.0).learning_rate, 0)
        np.testing.assert_array_equal(trainer.read("w"), before)
        trainer.set("optimizer.lr", 0.25)
        self.assertEqual(trainer.step(rows["x"], rows["labels"]).learning_rate, 0.25)
        with self.assertRaisesRegex(tcc.UsageError, "recompile with tcc --set loss.kind=mse"):
            trainer.set("loss.kind", "mse")

    def test_an_own_loop_says_where_epochs_end(self):
        schedule = {"schedule.kind": "exponential", "schedule.gamma": 0.5, "schedule.per": "epoch"}
        plan, rows = self.classifier(settings=schedule.items()), models.labelled(32, 10, 16)
        trainer, rates = tcc.Trainer(plan), []
        for _ in range(3):
            rates += [trainer.step(rows["x"], rows["labels"]).learning_rate for _ in range(2)]
            trainer.next_epoch()
        np.testing.assert_allclose(rates, [0.1, 0.1, 0.05, 0.05, 0.025, 0.025])

    def test_a_run_is_saved_resumed_and_exported(self):
        plan, rows = self.classifier(), models.labelled(64, 10, 16)
        whole, part = tcc.Trainer(plan, threads=1), tcc.Trainer(plan, threads=1)
        batches = [(rows["x"][at:at + 32], rows["labels"][at:at + 32]) for at in (0, 32)] * 3
        losses = [whole.step(*batch).loss for batch in batches]
        for batch in batches[:3]:
            part.step(*batch)
        part.save(self.folder / "run")
        resumed = tcc.Trainer.resume(self.folder / "run", threads=1)
        self.assertEqual(resumed.steps, 3)
        self.assertEqual([resumed.step(*batch).loss for batch in batches[3:]], losses[3:])
        resumed.export(self.folder / "m.safetensors")
        np.testing.assert_array_equal(safetensors.numpy.load_file(self.folder / "m.safetensors")["w"], whole.read("w"))

    def test_callbacks_stop_early_and_interrupts_keep_everything(self):
        plan, rows = self.classifier(), models.labelled(64, 10, 16)
        kinds = []
        trainer = tcc.Trainer(plan, settings={"optimizer.lr": 0.0})
        result = trainer.fit(rows, eval=rows, steps=1000, eval_every=1, out=self.folder / "run",
                             callbacks=[tcc.EarlyStopping("eval_loss", patience=3), lambda event: kinds.append(event.kind)])
        self.assertEqual(trainer.steps, 4)
        self.assertIn("eval_accuracy", result)
        self.assertEqual({"begin", "update", "evaluation", "checkpoint", "end"} - set(kinds), set())
        self.assertTrue((self.folder / "run/checkpoints/step-4").is_dir())

        def interrupt(event):
            if event.kind == "update" and event.step == trainer_steps + 5:
                raise KeyboardInterrupt
        trainer_steps = trainer.steps
        with self.assertRaises(KeyboardInterrupt):
            trainer.fit(rows, steps=1000, callbacks=[interrupt])
        self.assertLess(trainer.steps, trainer_steps + 10)
        trainer.step(rows["x"][:32], rows["labels"][:32])

    def test_a_run_over_a_loader_is_one_over_rows_in_their_order(self):
        plan, rows = self.classifier(settings=[("train.accumulate", 2)]), models.labelled(160, 10, 16)
        batches = [(rows["x"][at:at + 32], rows["labels"][at:at + 32]) for at in range(0, 160, 32)]
        losses, records = [], []
        trainer = tcc.Trainer(plan, threads=1)
        for at in range(0, 160, 64):  # the last window of an epoch is shorter
            losses.append(trainer.step(rows["x"][at:at + 64], rows["labels"][at:at + 64]).loss)
        other = tcc.Trainer(plan, threads=1)
        result = other.fit(batches, eval=[(rows["x"], rows["labels"])], eval_every=2, callbacks=[lambda e: records.append((e.kind, e.metrics))])
        self.assertEqual([metrics["loss"] for kind, metrics in records if kind == "update"], losses)
        self.assertEqual(records[1][1].keys(), {"loss", "lr", "grad_norm"})
        self.assertEqual([kind for kind, _ in records], ["begin", "update", "update", "evaluation", "update", "evaluation", "end"])
        self.assertEqual(result, other.evaluate(rows["x"], rows["labels"]))
        for name, value in trainer.get_parameters().items():
            np.testing.assert_array_equal(other.read(name), value)
        named = tcc.Trainer(plan, threads=1)
        named.fit([{"labels": y, "x": x} for x, y in batches])
        np.testing.assert_array_equal(named.read("w"), other.read("w"))

    def test_a_run_over_a_loader_is_resumed_where_it_ended(self):
        plan, rows = self.classifier(), models.labelled(160, 10, 16)
        batches = [(rows["x"][at:at + 32], rows["labels"][at:at + 32]) for at in range(0, 160, 32)]
        whole = tcc.Trainer(plan, threads=1)
        whole.fit(batches, epochs=3)
        part, run = tcc.Trainer(plan, threads=1), self.folder / "run"
        part.fit(batches, epochs=3, out=run, checkpoint_every=3, callbacks=[lambda event: "stop" if event.step == 8 else None])
        self.assertEqual(part.steps, 8)
        for reference in (f"{run}@last", f"{run}@3"):
            again, losses = tcc.Trainer.resume(reference, threads=1), []
            again.fit(batches, callbacks=[lambda e: losses.append(e.step) if e.update else None])
            self.assertEqual(again.steps, 15, reference)
            np.testing.assert_array_equal(again.read("w"), whole.read("w"), reference)

            with self.assertRaisesRegex(tcc.UsageError, "exists; go on with it by Trainer.resume"):
                again.fit(batches, out=run)

        def interrupt(event):
            if event.update and event.step == 2:
                raise KeyboardInterrupt
        cut = tcc.Trainer(plan, threads=1)
        with self.assertRaises(KeyboardInterrupt):
            cut.fit(batches, epochs=3, out=self.folder / "cut", callbacks=[interrupt])
        more = tcc.Trainer.resume(self.folder / "cut", threads=1)
        self.assertEqual(more.steps, 2)
        more.fit(batches)
        np.testing.assert_array_equal(more.read("w"), whole.read("w"))

    def test_snippets_of_the_guide_run(self):
        """In order, with the names that the page takes for granted; a snippet that returns is a function's body."""
        models.classifier(self.folder / "m.onnx", 32, 16, 10)
        train, test = models.labelled(64, 10, 16), models.labelled(50, 10, 16)
        np.savez(self.folder / "train.npz", **train)
        np.savez(self.folder / "test.npz", **test)
        self.write("recipe.toml", CLASSES)
        text = (ROOT / "docs/guide/c-and-python.md").read_text()
        names = {"batches": [(train["x"][:32], train["labels"][:32])] * 3, "rate": lambda step: 1e-3 / (1 + step), "x_test": test["x"],
                 "y_test": test["labels"], "x": train["x"], "y": train["labels"]}
        snippets = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(snippets), 4)
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            for snippet in snippets:
                if "return " in snippet:
                    snippet = "weights = trainer.get_parameters()\ndef client():\n" + "".join(f"    {line}\n" for line in snippet.splitlines()) \
                        + "found = client()\n"
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(snippet, "c-and-python.md", "exec"), names)
        finally:
            os.chdir(here)
        self.assertEqual(names["found"].keys(), {"w", "b"})

    def test_phases_in_a_loop_are_those_of_a_run(self):
        """Each phase reads some of the inputs: the losses are those over the same rows in memory."""
        files = ROOT / "test/e2e/phases"
        rows = safetensors.numpy.load_file(files / "actor-critic.safetensors")
        plan = tcc.compile(files / "actor-critic.onnx", recipe={"optimizer.kind": "adam"}, entries=("train",), phases=[
            tcc.Phase("critic", loss="critic_loss", parameters=["trunk.*", "value.*"], optimizer={"lr": 3e-3}),
            tcc.Phase("actor", loss="actor_loss", parameters=["trunk.*", "policy.*"], optimizer={"lr": 1e-3}, clip_norm=0.5)])
        loop, run = tcc.Trainer(plan, threads=1), tcc.Trainer(plan, threads=1)
        names, batch, losses = [value.name for value in plan.inputs()], loop.rows, []
        for step in range(4):
            losses.append(loop.step(**{name: rows[name][step * batch:(step + 1) * batch] for name in names}).loss)
        found = []
        run.fit({name: rows[name] for name in names}, steps=4, shuffle=False,
                callbacks=[lambda event: found.append(event.update.loss) if event.update else None])
        self.assertEqual(losses, found)
        for name, value in run.get_parameters().items():
            np.testing.assert_array_equal(loop.read(name), value, name)

    def test_the_package_needs_no_torch(self):
        """The example with an ONNX file, where importing torch fails. torch_modules.py compares its losses with torch's."""
        script = self.write("script.py", f"""
import runpy, sys
sys.modules["torch"] = None
sys.path.insert(0, {str(ROOT / "python")!r})
made = runpy.run_path({str(ROOT / "examples/python/onnx_file.py")!r})
print(made["folder"], *made["losses"])
""")
        done = subprocess.run([sys.executable, script], cwd=self.folder, check=True, capture_output=True, text=True,
                              env=os.environ | {"TMPDIR": str(self.folder)})
        folder, *losses = done.stdout.split()
        self.assertEqual([float(loss) for loss in losses], [line["loss"] for line in metrics(Path(folder) / "run")[0]])
        self.assertEqual(len(losses), 15)
        self.assertLess(float(losses[-1]), 0.5 * float(losses[0]))
        self.assertTrue((Path(folder) / "trained.onnx").is_file())

    def test_mistakes_have_a_message(self):
        plan, rows = self.classifier(), models.labelled(32, 10, 16)
        trainer = tcc.Trainer(plan)
        x, labels = rows["x"], rows["labels"]
        for pattern, call in (
                ("3 tensors for 2 inputs: x, labels", lambda: trainer.step(x, labels, labels)),
                ("no tensor for the model's input 'labels'", lambda: trainer.step(x)),
                ("'y' is no input of 'step'; the nearest|'y' is no input of 'step'", lambda: trainer.step(x=x, y=labels)),
                (r"'x' is f32\[32x15\], the model's input is f32\[32x16\]; only axis 0", lambda: trainer.step(x[:, :15], labels)),
                ("f64 does not become f32 silently", lambda: trainer.step(x.astype(np.float64), labels)),
                ("complex64 is none that a plan can read", lambda: trainer.step(x.astype(np.complex64), labels)),
                ("'labels' has 31 rows, 'x' has 32", lambda: trainer.step(x, labels[:31])),
                ("33 rows; an update takes 32", lambda: trainer.step(np.concatenate([x, x[:1]]), np.append(labels, 1))),
                ("sample 3: value 10 names no class", lambda: trainer.step(x, np.where(np.arange(32) == 3, 10, labels))),
                ("no entry 'nothing'", lambda: plan.values("nothing")),
                ("no variable 'v'", lambda: trainer.read("v")),
                ("must be a number of at least 0", lambda: trainer.step(x, labels, lr=-1.0)),
                ("no such file", lambda: trainer.fit("absent.npz")),
                ("absent", lambda: tcc.Plan("absent.tplan")),
                ("not a plan", lambda: tcc.Plan(b"0123456789" * 10)),
                ("no run|absent", lambda: trainer.load("absent")),
                ("unknown", lambda: tcc.Trainer(plan, device="tpu")),
                ("expected KEY=VALUE|unknown key", lambda: trainer.set("optimizer.speed", 3)),
        ):
            with self.assertRaisesRegex(tcc.Error, pattern):
                call()
        trainer.step(x, labels)
        for option in ("eval-", "--"):
            with self.assertRaises(tcc.Error) as caught:
                trainer.fit(rows, steps=3, eval_every=1)
            self.assertNotIn(option, str(caught.exception))
        with self.assertRaises(tcc.OverBudget) as caught:
            tcc.Trainer(plan, memory_budget=1000)
        tcc.Trainer(plan, memory_budget=caught.exception.smallest)
        with self.assertRaises(tcc.OverBudget) as caught:
            self.compile_within(1000)
        self.compile_within(caught.exception.smallest)
        for call in (lambda: trainer.step(x[:, :15], labels), lambda: trainer.step(x, np.full(32, 10)), lambda: trainer.evaluate(x, labels[:3])):
            with self.assertRaises(tcc.DataError):
                call()
        for pattern, call in (("both given", lambda: trainer.fit([(x, labels)], epochs=1, steps=1)),
                              ("resumed by Trainer.resume", lambda: trainer.fit([(x, labels)], resume="run")),
                              ("give two of one kind", lambda: trainer.fit(rows, eval=[(x, labels)])),
                              ("without optimizer=", lambda: trainer.fit([(x, labels)], scheduler=object())),
                              ("gives no batch in epoch 2", lambda: trainer.fit(iter([(x, labels)]), epochs=2)),
                              ("no .*'y'|'y' is no input", lambda: trainer.fit([{"x": x, "y": labels}]))):
            with self.assertRaisesRegex(tcc.UsageError, pattern):
                call()
        with self.assertRaisesRegex(tcc.CompileError, "absent.onnx"):
            tcc.compile("absent.onnx")

    def test_what_is_not_finite_is_found_and_refused(self):
        plan, rows = self.classifier(settings={"train.clip_norm": 1.0}.items()), models.labelled(32, 10, 16)
        trainer = tcc.Trainer(plan)
        before = trainer.read("w")
        bad = rows["x"].copy()
        bad[7, 3] = np.nan
        with self.assertRaisesRegex(tcc.NonFinite, "a tensor holds a NaN.*sample 7"):
            trainer.step(bad, rows["labels"])
        np.testing.assert_array_equal(trainer.read("w"), before)
        with self.assertRaises(tcc.NonFinite) as caught:
            trainer.step(rows["x"] * 3e38, rows["labels"])
        self.assertNotEqual(caught.exception.node, "")
        self.assertEqual(trainer.step(rows["x"], rows["labels"]).step, 1)

    def test_threads_forks_and_1000_plans(self):
        plan, rows = self.classifier(), models.labelled(32, 10, 16)
        alone = [tcc.Trainer(plan, threads=1).step(rows["x"], rows["labels"]).loss]
        losses = [None] * 2

        def work(i):
            trainer = tcc.Trainer(plan, threads=1)
            losses[i] = [trainer.step(rows["x"], rows["labels"]).loss for _ in range(50)]
        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(losses[0][:1], alone)
        trainer = tcc.Trainer(plan)
        child = os.fork()
        if child == 0:
            try:
                trainer.step(rows["x"], rows["labels"])
                os._exit(1)
            except tcc.Error as problem:
                os._exit(0 if "does not survive a fork" in str(problem) else 2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        trainer.step(rows["x"], rows["labels"])

        def open_files():
            with open("/proc/self/maps") as maps:
                return len(os.listdir("/proc/self/fd")), len(maps.readlines())
        del trainer
        for i in range(1050):
            tcc.Trainer(plan, threads=1).step(rows["x"], rows["labels"])
            if i == 49:
                before = open_files()
        self.assertLessEqual(open_files()[0], before[0])
        self.assertLess(open_files()[1] - before[1], 20)

    def test_a_plan_says_what_it_holds(self):
        plan = self.classifier()
        self.assertEqual([(v.name, v.dtype, v.shape, v.sample_axis) for v in plan.inputs()],
                         [("x", "float32", (32, 16), 0), ("labels", "int64", (32,), 0)])
        self.assertEqual({v.name for v in plan.variables if v.role == "parameter"}, {"w", "b"})
        resident, transient = plan.memory(threads=1)
        self.assertEqual(plan.memory(threads=1)[0], resident)
        self.assertGreater(transient, 0)
        self.assertTrue(plan.target.startswith("cpu:"))


if __name__ == "__main__":
    unittest.main()
