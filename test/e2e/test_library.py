"""libtrun from C, C++ and Python: the numbers of PyTorch and of trun, mistakes with their messages, and nothing left behind."""
import contextlib
import gc
import inspect
import io
import json
import os
import pydoc
import re
import signal
import subprocess
import sys
import threading
import types
import unittest
import unittest.mock
import xml.etree.ElementTree
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
        # As the guide says.
        commands = re.search(r"^```sh\n(cc .*?)^```", (ROOT / "docs/guide/c-and-python.md").read_text(), re.M | re.S)[1]
        (self.folder / "build").mkdir()
        for link, target in (("build/lib", library), ("include", ROOT / "include"), ("test", ROOT / "test")):
            (self.folder / link).symlink_to(target)
        (self.folder / "plan.tplan").rename(self.folder / "m.tplan")
        done = subprocess.run(["bash", "-ec", commands], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("after 300 updates", done.stdout)

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

    def classifier(self, batch=32, settings=(), entries=("train", "evaluate", "predict", "gradients"), **options):
        model = models.classifier(self.folder / "m.onnx", batch, 16, 10)
        recipe = {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels", "optimizer.kind": "sgd", "optimizer.lr": 0.1}
        return tcc.compile(model, recipe | dict(settings), entries=entries, **options)

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

    def test_a_recipe_in_a_file_takes_more_keys(self):
        model, recipe = models.classifier(self.folder / "m.onnx", 32, 16, 10), self.write("r.toml", CLASSES)
        plan = tcc.compile(model, recipe, adapter={"targets": ["w"], "rank": 2}, outputs=["logits"])
        self.assertEqual(sorted(value.name for value in plan.variables if value.role == "parameter"), ["w.lora_A.weight", "w.lora_B.weight"])
        rows = models.labelled(32, 10, 16)
        self.assertEqual(tcc.Trainer(plan).step(**rows).outputs["logits"].shape, (32, 10))

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
        with self.assertRaisesRegex(tcc.UsageError, "exists"):  # which does not lose the place in the epoch
            more.fit(batches, out=run)
        more.fit(batches)
        np.testing.assert_array_equal(more.read("w"), whole.read("w"))

    def test_fit_shows_its_arguments(self):
        """They are declared by another class (_fit.py)."""
        parameters = inspect.signature(tcc.Trainer.fit).parameters
        self.assertEqual(list(parameters)[:4], ["self", "data", "eval", "epochs"])
        self.assertEqual((parameters["epochs"].kind, parameters["shuffle"].default), (inspect.Parameter.KEYWORD_ONLY, True))
        self.assertIn("callbacks: 'Callable[[Event], Any] | Iterable[Callable[[Event], Any]]' = ()", pydoc.plain(pydoc.render_doc(tcc.Trainer.fit)))
        trainer = tcc.Trainer(self.classifier(), threads=1)
        for words, arguments, named in (("unexpected keyword argument 'epoch'", ["d.npz"], {"epoch": 3}),
                                        ("missing 1 required positional argument: 'data'", [], {"epochs": 3})):
            with self.assertRaisesRegex(TypeError, rf"^Trainer\.fit\(\).*{words}"):
                trainer.fit(*arguments, **named)

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

    def refused(self, cases):
        """Each case: the exception's class, a pattern of its message, and the call. Messages are one line."""
        for kind, pattern, call in cases:
            with self.subTest(pattern=pattern):
                with self.assertRaisesRegex(tcc.Error, pattern) as caught:
                    call()
                self.assertIs(type(caught.exception), kind)
                self.assertNotIn("\n", str(caught.exception))
                self.assertNotRegex(str(caught.exception), "--(help|entry|batch|fit|eval)")  # options of programs

    def test_mistakes_in_compile_have_a_message(self):
        recipe = {"loss.kind": "cross_entropy", "loss.of": "logits", "loss.target": "labels"}
        model = models.classifier(self.folder / "m.onnx", 32, 16, 10)
        bad = self.write("bad.toml", "[loss")

        def compiled(own=None, **options):
            return tcc.compile(model, recipe | (own or {}), **options)
        refused, usage = tcc.CompileError, tcc.UsageError
        self.refused([
            (refused, "absent.onnx: cannot open the model", lambda: tcc.compile("absent.onnx", recipe)),
            (refused, "int is neither the path of an .onnx file nor", lambda: tcc.compile(3)),
            (refused, "bad.toml: not an ONNX model", lambda: tcc.compile(bad)),
            (refused, "absent.toml: cannot open", lambda: tcc.compile(model, "absent.toml")),
            (refused, "absent.toml: cannot open", lambda: tcc.compile(model, "absent.toml", adapter={"rank": 2})),
            (refused, "bad.toml:1:6: Error while parsing", lambda: tcc.compile(model, bad, adapter={"rank": 2})),
            (refused, 'recipe: optimizer.kind: "adan" is unknown; the nearest is "adam"',
             lambda: compiled({"optimizer.kind": "adan"})),
            (refused, "recipe: optimizer.lr: nan is out of range", lambda: compiled({"optimizer.lr": float("nan")})),
            (refused, "recipe: unknown key optimizer.lrr; the nearest known one is optimizer.lr",
             lambda: compiled({"optimizer.lrr": 1})),
            (refused, "the graph has no output `scores`.*the outputs are logits",
             lambda: compiled({"loss.of": "scores"})),
            (usage, "optimizer.lr: object is no value of a recipe", lambda: compiled({"optimizer.lr": object()})),
            (usage, "recipe: it is given twice", lambda: tcc.compile(model, recipe, recipe=recipe)),
            (usage, "recipe: int is neither a path nor a dict", lambda: tcc.compile(model, 3)),
            (usage, "batch = 0: it must be an integer from 1", lambda: compiled(batch=0)),
            (refused, "entries trian: expected train, evaluate, predict", lambda: compiled(entries="trian")),
            (refused, "memory_budget lots: expected a size such as", lambda: compiled(memory_budget="lots")),
            (refused, "host_memory 1GiB: .* has no memory of its own", lambda: compiled(host_memory="1GiB")),
            (refused, "precision: f8 not in {f32", lambda: compiled(precision="f8")),
            (refused, 'fit="batch": it needs a budget; give one with memory_budget', lambda: compiled(fit="batch")),
            (refused, "target tpu: this version compiles for cpu", lambda: compiled(target="tpu")),
            (refused, "no/p.tplan: cannot write", lambda: compiled(output="no/p.tplan")),
            (refused, '"q_proj" matches no matrix.*there is w', lambda: compiled(adapter={"targets": ["q_proj"]})),
            (refused, "unknown key adapter.lora_alpha; the nearest known one is adapter.alpha",
             lambda: compiled(adapter={"targets": ["w"], "lora_alpha": 4})),
            (usage, "adapter: list is no dict; give {'targets'", lambda: compiled(adapter=["w"])),
            (usage, r"phases: dict is no tcc.Phase; give a list of tcc.Phase\(…\)",
             lambda: compiled(phases=[{"name": "a"}])),
            (refused, "exclude each other: each phase names its loss", lambda: compiled(phases=[
                tcc.Phase("a", loss={"kind": "mse"}, parameters=["w"])])),
            (refused, "^m.onnx: recipe: phase.parameters: `v` matches no parameter; there are b, w",
             lambda: tcc.compile(model, phases=[
                tcc.Phase("a", loss={"kind": "cross_entropy", "of": "logits", "target": "labels"}, parameters="v"),
                tcc.Phase("b", loss={"kind": "cross_entropy", "of": "logits", "target": "labels"}, parameters="b")])),
        ])
        with self.assertRaisesRegex(tcc.OverBudget, r'batch=, or fit="batch"\), fewer threads') as caught:
            compiled(memory_budget=1000)
        compiled(memory_budget=caught.exception.smallest)
        # A plan for fewer threads has less scratch, where the machine's kernels have any at the peak.
        self.assertTrue(any(sum(self.zoo(name, threads=1).memory(1)) < sum(self.zoo(name, threads=8).memory(8))
                            for name in ("small-cnn", "nano-gpt")))

    def test_mistakes_with_plans_and_trainers_have_a_message(self):
        plan = self.classifier(output=self.folder)
        raw = (self.folder / "m.tplan").read_bytes()
        damaged = bytearray(raw)
        damaged[len(raw) // 2] ^= 1
        newer = bytearray(raw)
        newer[8] += 1
        run = self.folder / "a@b"
        tcc.Trainer(plan).save(run)
        self.assertEqual(tcc.Trainer.resume(run).steps, 0)  # the name is no reference to a step
        closed = tcc.Trainer(plan)
        closed.close()
        self.assertIn("closed", repr(closed))
        with tcc.Trainer(plan) as trainer:
            trainer.read("w")
        usage = tcc.UsageError
        self.refused([
            (tcc.Error, "absent.tplan: cannot open the plan", lambda: tcc.Plan("absent.tplan")),
            (tcc.Error, "not a plan: its first bytes", lambda: tcc.Plan(b"0123456789" * 10)),
            (tcc.Error, "the plan is cut short.*compile again", lambda: tcc.Plan(raw[:len(raw) // 2])),
            (tcc.Error, "checksum does not match.*compile again", lambda: tcc.Plan(damaged)),
            (tcc.Error, "version", lambda: tcc.Plan(newer)),
            (usage, "NoneType is neither a Plan, nor the path or the bytes", lambda: tcc.Trainer(None)),
            (usage, "no entry 'nothing'; it has evaluate", lambda: plan.values("nothing")),
            (usage, "threads = -1: it must be an integer from 0", lambda: plan.memory(-1)),
            (usage, "threads = -1: it must be an integer from 0", lambda: tcc.Trainer(plan, threads=-1)),
            (usage, "threads = 'two'", lambda: tcc.Trainer(plan, threads="two")),
            (usage, r"memory_budget \(bytes\) = '2GiB': it must be an integer",
             lambda: tcc.Trainer(plan, memory_budget="2GiB")),
            (usage, "seed = -3", lambda: tcc.Trainer(plan, seed=-3)),
            (usage, "target = cuda:sm_90: .* is for cpu", lambda: tcc.Trainer(plan, target="cuda:sm_90")),
            (usage, "device = tpu: unknown; use one of cpu, cuda, null", lambda: tcc.Trainer(plan, device="tpu")),
            (tcc.Error, "the plan is for cpu.*compile the model with", lambda: tcc.Trainer(plan, device="cuda")),
            (usage, "settings: list is no dict; give {'optimizer.lr'", lambda: tcc.Trainer(plan, settings=["a=1"])),
            (usage, "unknown key optimizer.lrr; the nearest known one is optimizer.lr",
             lambda: tcc.Trainer(plan, settings={"optimizer.lrr": 1})),
            (usage, "train.accumulate is compiled into the plan; recompile with",
             lambda: tcc.Trainer(plan, settings={"train.accumulate": 2})),
            (usage, "the trainer is closed; make another", lambda: closed.read("w")),
            (usage, "the trainer is closed", lambda: trainer.steps),
            (usage, "absent: no such run folder; give the one that", lambda: tcc.Trainer.resume("absent@last")),
            (usage, "no plan.tplan; give one that out= named", lambda: tcc.Trainer.resume(self.folder)),
            (tcc.Error, "no checkpoint of step 99; there are 0", lambda: tcc.Trainer.resume(f"{run}@99")),
        ])
        with self.assertRaises(tcc.OverBudget) as caught:
            tcc.Trainer(plan, memory_budget=1000)
        tcc.Trainer(plan, memory_budget=caught.exception.smallest)

    def test_mistakes_in_a_loop_have_a_message(self):
        plan, rows = self.classifier(), models.labelled(32, 10, 16)
        trainer, training = tcc.Trainer(plan), tcc.Trainer(self.classifier(entries="train"))
        x, labels = rows["x"], rows["labels"]
        data, usage = tcc.DataError, tcc.UsageError
        before = trainer.read("w")
        self.refused([
            (data, "3 tensors for 2 inputs: x, labels", lambda: trainer.step(x, labels, labels)),
            (data, "no tensor for the model's input 'labels'", lambda: trainer.step(x)),
            (data, "'y' is no input of 'step'; there are x, labels", lambda: trainer.step(x=x, y=labels)),
            (data, "'x' is given twice", lambda: trainer.step(x, labels, x=x)),
            (data, "'x' is NoneType; give a NumPy array", lambda: trainer.step(None, labels)),
            (data, "'x' is str; give a NumPy array", lambda: trainer.step("train.npz", labels)),
            (data, "'x' is no array", lambda: trainer.step([[1.0], [1.0, 2.0]], labels)),
            (data, r"'x' is f32\[32x15\], the model's input is f32\[32x16\]; only axis 0",
             lambda: trainer.step(x[:, :15], labels)),
            (data, r"'x' is f32\[16\], the model's input is f32\[32x16\]", lambda: trainer.step(x[0], labels)),
            (data, "f64 does not become f32 silently", lambda: trainer.step(x.astype(np.float64), labels)),
            (data, "f32 does not become i64 silently", lambda: trainer.step(x, labels.astype(np.float32))),
            (data, "complex64 is none that a plan can read", lambda: trainer.step(x.astype(np.complex64), labels)),
            (data, "dtype object is none that a plan can read", lambda: trainer.step(x.astype(object), labels)),
            (data, "'labels' has 31 rows, 'x' has 32", lambda: trainer.step(x, labels[:31])),
            (data, "64 rows; an update takes 32", lambda: trainer.step(np.tile(x, (2, 1)), np.tile(labels, 2))),
            (data, "the data set is empty", lambda: trainer.step(x[:0], labels[:0])),
            (data, "sample 3: value 10 names no class.*0 to 9",
             lambda: trainer.step(x, np.where(np.arange(32) == 3, 10, labels))),
            (usage, "lr = -1.0: it must be a number of at least 0", lambda: trainer.step(x, labels, lr=-1.0)),
            (usage, "lr = 'fast': it must be a number", lambda: trainer.step(x, labels, lr="fast")),
            (data, "'labels' has 3 rows, 'x' has 32", lambda: trainer.evaluate(x, labels[:3])),
            (data, "the loader of evaluation gives no batch", lambda: trainer.evaluate([])),
            (tcc.Error, "no averaged weights; compile with.*train.ema.decay",
             lambda: trainer.evaluate(x, labels, averages=True)),
            (usage, r"no entry 'evaluate'; it has step; compile with entries=\('train', 'evaluate'\)",
             lambda: training.evaluate(x, labels)),
            (data, "'z' is no input of 'predict'; there is x", lambda: trainer.predict(z=x)),
            (data, "2 tensors for 1 inputs: x", lambda: trainer.predict(x, labels)),
            (data, "only one batch of 32 samples can be given, not 3", lambda: trainer.gradients(x[:3], labels[:3])),
            (usage, "unknown key optimizer.speed", lambda: trainer.set("optimizer.speed", 3)),
            (usage, "loss.kind is compiled into the plan; recompile with", lambda: trainer.set("loss.kind", "mse")),
            (usage, "optimizer.lr=fast: expected a number", lambda: trainer.set("optimizer.lr", "fast")),
            (usage, "optimizer.lr: NoneType is no value", lambda: trainer.set("optimizer.lr", None)),
        ])
        np.testing.assert_array_equal(trainer.read("w"), before)
        # The ways out: a batch as loaders give it, the other byte order, a rounded type.
        expected = tcc.Trainer(plan).step(x, labels).loss
        for given in (((x, labels),), ({"x": x, "labels": labels},), (x.astype(">f4"), labels.astype(">i4"))):
            self.assertEqual(tcc.Trainer(plan).step(*given).loss, expected)
        rounding = tcc.Trainer(plan, settings={"data.cast": "f32"})
        self.assertEqual(rounding.step(x.astype(np.float64), labels).loss, expected)
        trainer.set("data.cast", "f32")
        self.assertEqual(trainer.step(x.astype(np.float64), labels).loss, expected)
        self.assertEqual(trainer.evaluate([(x, labels)]), trainer.evaluate(x, labels))

    def test_mistakes_in_fit_have_a_message(self):
        plan, rows = self.classifier(), models.labelled(32, 10, 16)
        trainer = tcc.Trainer(plan)
        x, labels = rows["x"], rows["labels"]
        np.savez(self.folder / "wrong.npz", x=x[:, :5], labels=labels)
        data, usage = tcc.DataError, tcc.UsageError
        self.refused([
            (data, "absent.npz: no such file", lambda: trainer.fit("absent.npz")),
            (data, r"wrong.npz: column 'x' is f32\[32x5\], but a sample .* is f32\[16\]",
             lambda: trainer.fit(self.folder / "wrong.npz")),
            (data, "absent.npz: no such file", lambda: trainer.fit(rows, eval="absent.npz")),
            (data, "no column 'labels' for the model's input", lambda: trainer.fit({"x": x})),
            (data, "column 'x' has 128 samples, 'labels' has 64",
             lambda: trainer.fit({"x": np.tile(x, (4, 1)), "labels": np.tile(labels, 2)})),
            (data, "too few samples: 5, but a batch takes 32", lambda: trainer.fit({"x": x[:5], "labels": labels[:5]})),
            (data, "'x' is NoneType; give", lambda: trainer.fit({"x": None, "labels": labels})),
            (usage, "data is int; give a path, a dict of arrays, or an iterable", lambda: trainer.fit(3)),
            (usage, "data is tuple; give whole arrays as {'x': …, 'labels': …}, or a list",
             lambda: trainer.fit((x, labels))),
            (usage, "steps = -1: it must be an integer of at least 0", lambda: trainer.fit(rows, steps=-1)),
            (usage, "epochs = 1.5: it must be an integer", lambda: trainer.fit([(x, labels)], epochs=1.5)),
            (usage, "both given", lambda: trainer.fit(rows, epochs=1, steps=1)),
            (usage, "both given", lambda: trainer.fit([(x, labels)], epochs=1, steps=1)),
            (usage, "eval_every = 1: there is no evaluation data; give eval=", lambda: trainer.fit(rows, eval_every=1)),
            (usage, "eval_every = 1: there is no evaluation data; give eval=",
             lambda: trainer.fit([(x, labels)], eval_every=1)),
            (usage, "checkpoint_every = 1: there is no run folder; give out=",
             lambda: trainer.fit(rows, checkpoint_every=1)),
            (tcc.Error, "exists already; give another out, or", lambda: trainer.fit(rows, out=self.folder)),
            (tcc.Error, "absent: no such run folder", lambda: trainer.fit(rows, resume="absent")),
            (usage, "resumed by Trainer.resume", lambda: trainer.fit([(x, labels)], resume="run")),
            (usage, "callbacks: int cannot be called", lambda: trainer.fit(rows, callbacks=[3])),
            (usage, "give two of one kind", lambda: trainer.fit(rows, eval=[(x, labels)])),
            (usage, "without optimizer=", lambda: trainer.fit([(x, labels)], scheduler=object())),
            (usage, "has no 'eval_f1'; it has eval_loss",
             lambda: trainer.fit(rows, eval=rows, callbacks=tcc.EarlyStopping("eval_f1"))),
            (usage, 'mode = \'most\': it must be "min" or "max"', lambda: tcc.EarlyStopping("eval_loss", mode="most")),
            (usage, "patience = 0: it must be an integer of at least 1", lambda: tcc.EarlyStopping(patience=0)),
            (data, "gives no batch in epoch 2.*give a list", lambda: trainer.fit(iter([(x, labels)]), epochs=2)),
            (data, "'y' is no input of 'step'", lambda: trainer.fit([{"x": x, "y": labels}])),
            (data, "cannot be joined", lambda: trainer.fit([1, 2])),
            (data, "'x' is NoneType; give", lambda: trainer.fit([None])),
        ])

    def test_mistakes_with_state_have_a_message(self):
        plan, rows = self.classifier(), models.labelled(32, 10, 16)
        trainer = tcc.Trainer(plan)
        w = trainer.read("w")
        model = models.mlp(self.folder / "other.onnx")
        other = tcc.Trainer(tcc.compile(model, {"loss.kind": "mse", "loss.target": "y"}))
        theirs, run = self.folder / "theirs", self.folder / "run"
        other.save(theirs)
        usage = tcc.UsageError
        self.refused([
            (usage, "no variable 'ww'; the nearest is 'w'", lambda: trainer.read("ww")),
            (usage, r"'w' is float32\[10, 16\], the array float32\[2, 3\]",
             lambda: trainer.write("w", np.zeros((2, 3), np.float32))),
            (usage, r"'w' is float32\[10, 16\], the array float64\[10, 16\]",
             lambda: trainer.write("w", np.zeros((10, 16)))),
            (usage, "no parameter 'v'; there is b, w", lambda: trainer.set_parameters({"b": w[:, 0], "v": w})),
            (usage, r"the array float32\[3\]", lambda: trainer.set_parameters({"b": w[:, 0], "w": w[0, :3]})),
            (usage, "set_parameters: list is no dict", lambda: trainer.set_parameters([w])),
            (usage, "run: NoneType is no path", lambda: trainer.save(None)),
            (usage, "theirs/checkpoints/step-0: its state is not the plan's: .*'w1'.*give another folder",
             lambda: trainer.save(theirs)),
            (tcc.Error, "its state is not the plan's: .*resume with the plan", lambda: trainer.load(theirs)),
            (tcc.Error, "absent: no such run folder", lambda: trainer.load("absent")),
            (tcc.Error, "it is no run folder", lambda: trainer.load(self.folder)),
            (usage, "x.pt: unknown release format; use .onnx or .safetensors", lambda: trainer.export("x.pt")),
            (tcc.Error, "no/x.onnx: cannot write", lambda: trainer.export("no/x.onnx")),
            (usage, "trained no adapter", lambda: trainer.export_adapter(self.folder / "adapter")),
            (usage, "load_into: int is no torch module", lambda: trainer.load_into(3)),
        ])
        np.testing.assert_array_equal(trainer.read("b"), tcc.Trainer(plan).read("b"))  # nothing was set
        other.load(theirs)  # and the run is as it was
        for _ in range(2):
            trainer.save(run)
            trainer.step(rows["x"], rows["labels"])
        tcc.Trainer(plan).save(run)

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

    def test_a_trainer_allocates_what_the_plan_says(self):
        """Arenas are the mappings that a fork does not copy ("dc" in smaps), in whole pages."""
        def arenas():
            found, size = 0, 0
            with open("/proc/self/smaps") as lines:
                for line in lines:
                    size = int(line.split()[1]) if line.startswith("Size:") else size
                    found += size if line.startswith("VmFlags:") and " dc " in line else 0
            return found * 1024

        def whole(count):
            return -(-count // os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PAGE_SIZE")
        gc.collect()  # of trainers of other tests
        self.assertEqual(arenas(), 0)
        sizes = set()
        for name in ("mlp", "small-cnn", "nano-gpt"):
            plan = self.zoo(name, "train", "evaluate")
            for threads in (1, 2, 4):
                resident, transient = plan.memory(threads)
                with tcc.Trainer(plan, threads=threads):
                    self.assertEqual(arenas(), whole(resident) + whole(transient), (name, threads))
                self.assertEqual(arenas(), 0)
                sizes.add((name, transient))
        self.assertGreater(len(sizes), 3)  # threads change some of them
        self.assertEqual(sum(plan.memory()), plan.peak_bytes)

        rows = models.labelled(32, 10, 16)

        def loop():
            """Ends in the middle: the trainer is dropped with its frame."""
            trainer = tcc.Trainer(self.classifier())
            for step in range(10):
                trainer.step(rows["x"], rows["labels"])
                self.assertGreater(arenas(), 0)
                if step == 3:
                    raise LookupError
        for _ in range(2):
            with self.assertRaises(LookupError):
                loop()
            self.assertEqual(arenas(), 0)

    def test_a_signal_ends_a_fit_after_its_update(self):
        """SIGINT, as Ctrl-C sends it, without callbacks: over rows, and over a loader."""
        plan, rows = self.classifier(), models.labelled(64, 10, 16)
        batches = [(rows["x"][at:at + 32], rows["labels"][at:at + 32]) for at in (0, 32)]
        for name, data in (("rows", rows), ("batches", batches)):
            trainer, run = tcc.Trainer(plan, threads=1), self.folder / name
            begun = threading.Event()

            def interrupt():
                begun.wait()
                os.kill(os.getpid(), signal.SIGINT)
            sender = threading.Thread(target=interrupt)
            sender.start()
            with self.assertRaises(KeyboardInterrupt):
                trainer.fit(data, steps=100_000, out=run,
                            callbacks=lambda event: begun.set() if event.step == 5 else None)
            sender.join()
            self.assertGreaterEqual(trainer.steps, 5)
            again = tcc.Trainer.resume(f"{run}@last", threads=1)
            self.assertEqual(again.steps, trainer.steps)
            np.testing.assert_array_equal(again.read("w"), trainer.read("w"))
            trainer.step(*batches[0])

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

    def test_plans_and_histories_draw_themselves(self):
        """For notebooks: well-formed, of one colour with the page's text, without anything from elsewhere."""
        plan, rows = self.classifier(output=self.folder), models.labelled(64, 10, 16)
        memory = plan.report()["memory"]
        shown = plan._repr_html_()
        polygons = re.findall(r'<polygon points="([^"]*)"', shown)
        self.assertEqual(len(polygons), 2)  # values and state; two corners for each instruction, and two ends
        self.assertEqual(len(polygons[0].split()), 2 * len(memory["timeline"]) + 2)
        highest = min(float(corner.split(",")[1]) for corner in polygons[0].split())
        self.assertEqual(highest, 14.0)  # the peak is the top of the axes
        self.assertIn(f"at most {memory['peak_bytes'] / 1024:.1f} KiB", shown)
        in_memory = tcc.Plan((self.folder / "m.tplan").read_bytes())
        self.assertNotIn("<svg", in_memory._repr_html_())
        self.assertIn("x float32[32, 16]", in_memory._repr_html_())
        with self.assertRaisesRegex(tcc.UsageError, "open it by its path"):
            in_memory.report()

        trainer = tcc.Trainer(plan)
        self.assertIn("no updates yet", trainer.history._repr_html_())
        losses = [trainer.step(rows["x"][:32], rows["labels"][:32]).loss for _ in range(2)]
        trainer.fit(rows, eval=rows, steps=4, eval_every=2,
                    callbacks=lambda event: losses.append(event.update.loss) if event.update else None)
        trainer.fit([(rows["x"][:32], rows["labels"][:32])],
                    callbacks=lambda event: losses.append(event.metrics["loss"]) if event.update else None)
        self.assertEqual((list(trainer.history.steps), list(trainer.history.losses)), (list(range(1, 8)), losses))
        self.assertEqual([one.step for one in trainer.history.evaluations], [4, 6])
        curves = trainer.history._repr_html_()
        self.assertEqual(len(re.findall("<svg", curves)), 2)  # losses, and accuracies
        points = re.search(r'<polyline points="([^"]*)"[^>]*><title>loss<', curves)[1].split()
        self.assertEqual(len(points), 7)
        heights = [-float(point.split(",")[1]) for point in points]
        self.assertEqual(np.argsort(heights).tolist(), np.argsort(losses).tolist())
        for html in (shown, curves):
            xml.etree.ElementTree.fromstring(f"<div>{html.replace('<br>', '<br/>')}</div>")
            self.assertNotRegex(html.replace("http://www.w3.org/2000/svg", ""), "http|<script|url")
            self.assertIn("currentColor", html)

    def test_a_fit_tells_its_progress_where_it_is_asked_to(self):
        plan, rows = self.classifier(), models.labelled(64, 10, 16)
        batches = [(rows["x"][at:at + 32], rows["labels"][at:at + 32]) for at in (0, 32)]

        class Terminal(io.StringIO):
            def isatty(self):
                return True

        class Bar:
            """What tqdm is asked to do."""
            made = []

            def __init__(self, initial, total, **options):
                self.n, self.total, self.options, self.closed = initial, total, options, False
                Bar.made.append(self)

            def update(self, count):
                self.n += count

            def set_postfix(self, numbers, refresh):
                self.numbers = numbers

            def close(self):
                self.closed = True

        def said(stream, modules, **options):
            with unittest.mock.patch.dict(sys.modules, modules), contextlib.redirect_stderr(stream), \
                    unittest.mock.patch.dict(os.environ, {"COLUMNS": "40"}):
                tcc.Trainer(plan).fit(batches, eval=rows, eval_every=2, epochs=3, **options)
            return stream.getvalue().splitlines()
        without = {"tqdm": None, "tqdm.auto": None}
        fake = {"tqdm": types.ModuleType("tqdm"), "tqdm.auto": types.SimpleNamespace(tqdm=Bar)}
        self.assertEqual(said(Terminal(), without), [])
        self.assertEqual(said(io.StringIO(), without, progress=None), [])
        lines = said(io.StringIO(), without, progress=True)
        self.assertEqual([line.split(",")[0] for line in lines], [f"update {step}/6" for step in (1, 2, 4, 6)])
        self.assertRegex(lines[-1], r"loss [\d.]+, eval_loss [\d.]+, eval_accuracy [\d.]+, lr 0.1$")
        narrow = said(Terminal(), without, progress=None)
        self.assertEqual(len(narrow), 4)
        self.assertLess(max(map(len, narrow)), 40)
        self.assertEqual(said(Terminal(), fake, progress=None), [])
        self.assertEqual((Bar.made[0].n, Bar.made[0].total, Bar.made[0].closed), (6, 6, True))
        self.assertEqual(list(Bar.made[0].numbers), ["loss", "eval_loss", "eval_accuracy"])

        # The total of a run over a loader: by its length, and by an epoch's updates if that was another number.
        totals = []
        tcc.Trainer(plan).fit([(x[:16], y[:16]) for x, y in batches], epochs=3,
                              callbacks=lambda event: totals.append(event.total) if event.update else None)
        self.assertEqual(totals[-1], 3)

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
