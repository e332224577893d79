"""The Python package on torch modules, beside PyTorch: examples/python and its twins, exports, state, optimizers,
losses, mistakes.

Run by tools/nightly.sh python, since it needs torch: .venv-nightly/bin/python test/e2e/python/torch_modules.py
"""

import contextlib
import functools
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("TCC_BIN", ROOT / "build" / "bin")).resolve()
EXAMPLES = ROOT / "examples" / "python"
os.environ["TCC_CACHE_DIR"] = ""
os.environ.setdefault("TCC_LIBRARY", str(BIN.parent / "lib" / "libtrun.so"))
os.environ.setdefault("TCC_PROGRAM", str(BIN / "tcc"))
sys.path[:0] = [str(ROOT / "python"), str(EXAMPLES)]
import tcc  # noqa: E402
from common import classifier, loader as example_loader  # noqa: E402

torch.set_num_threads(2)


def lines(path):
    """Lines of code, without the comment at the file's head and blank ones."""
    text = path.read_text().split('"""', 2)[2]
    return sum(bool(line.strip()) for line in text.splitlines())


class Examples(unittest.TestCase):
    """Each script has PyTorch's losses within the zoo's tolerance, and is no longer than its twin."""

    def pair(self, name, longer=0):
        own, twin = (runpy.run_path(str(EXAMPLES / f"{name}{suffix}.py")) for suffix in ("", "_torch"))
        self.assertGreater(len(own["losses"]), 8)
        np.testing.assert_allclose(own["losses"], twin["losses"], rtol=1e-4)
        self.assertLessEqual(lines(EXAMPLES / f"{name}.py"), lines(EXAMPLES / f"{name}_torch.py") + longer)
        return own, twin

    def same_state(self, own, twin):
        expected = twin["model"].state_dict()
        for name, value in own["model"].state_dict().items():
            torch.testing.assert_close(value, expected[name], rtol=1e-2, atol=1e-4, msg=lambda text: f"{name}: {text}")

    def test_an_own_loop(self):
        self.same_state(*self.pair("own_loop"))

    def test_a_fit_with_evaluations_and_an_early_end(self):
        own, twin = self.pair("fit")
        np.testing.assert_allclose(own["evaluations"], twin["evaluations"], rtol=1e-3)
        self.assertLess(len(own["losses"]), 100)  # it ended early
        self.same_state(own, twin)

    def test_one_call_in_place_of_forward_backward_and_step(self):
        own, twin = self.pair("compiled_step")
        self.assertAlmostEqual(own["accuracy"], twin["accuracy"], places=5)
        self.same_state(own, twin)

    def test_a_run_that_is_resumed_in_the_middle_of_an_epoch(self):
        self.same_state(*self.pair("resume"))

    def test_federated_averaging(self):
        self.pair("federated")

    def test_alternating_optimizers(self):
        self.same_state(*self.pair("gan"))

    def test_a_file_and_a_recipe(self):
        own, twin = self.pair("onnx_file")
        expected = twin["model"].state_dict()
        for name, value in own["t"].state_dict().items():
            np.testing.assert_allclose(value, expected[name].numpy(), rtol=1e-2, atol=1e-4, err_msg=name)

    def test_memory_before_the_first_update(self):
        own, twin = self.pair("memory")
        self.assertLess(own["smallest"], own["peak"])
        self.assertLessEqual(own["t"].plan.peak_bytes, own["smallest"])
        self.assertLess(abs(own["peak"] / twin["peak"] - 1), 0.2)  # the bytes that PyTorch's update allocates
        self.assertGreaterEqual(own["largest"], twin["largest"])

    def test_low_rank_adapters(self):
        own, twin = self.pair("lora")
        found, expected = (
            safetensors.numpy.load_file(one["folder"] / "adapter/adapter_model.safetensors") for one in (own, twin)
        )
        self.assertEqual(found.keys(), expected.keys())
        self.assertEqual(len(found), 4)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-2, atol=1e-4, err_msg=name)
        config = json.loads((own["folder"] / "adapter/adapter_config.json").read_text())
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 8, 16))

    def test_a_logger_gets_each_number(self):
        own, twin = self.pair("logger")
        self.assertEqual(len(own["logger"].records), len(twin["logger"].records))
        for (step, found), (other, expected) in zip(own["logger"].records, twin["logger"].records):
            self.assertEqual((step, found.keys()), (other, expected.keys()))
            np.testing.assert_allclose([*found.values()], [*expected.values()], rtol=1e-3, err_msg=f"update {step}")

    def test_the_file_is_the_module(self):
        """The weights of classifier.onnx are those of common.py."""
        plan = tcc.compile(EXAMPLES / "classifier.onnx", batch=8, recipe={"loss.kind": "mse", "loss.target": "y"})
        expected = classifier().state_dict()
        for name, value in tcc.Trainer(plan).state_dict().items():
            np.testing.assert_array_equal(value, expected[name].numpy(), name)


class Guide(unittest.TestCase):
    def test_the_tutorial_of_other_trainers_runs(self):
        """Its snippets compare weights and losses with Lightning's and with those of Transformers' Trainer."""
        text = (ROOT / "docs" / "tutorials" / "from-trainers.md").read_text()
        snippets = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(sum("assert_close" in snippet for snippet in snippets), 2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
            environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
            done = subprocess.run(
                [sys.executable, "-c", "\n".join(snippets)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
            )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_model_of_several_shapes_is_exported_as_its_page_says(self):
        text = (ROOT / "docs" / "guide" / "shapes.md").read_text()
        export = re.search(r"^```python\n(import torch\n.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
        recipe = re.search(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            os.chdir(folder)
            try:
                exec(compile(export, "shapes.md", "exec"), {})
                Path("sentences.toml").write_text(recipe)
                plan = tcc.compile("sentences.onnx", "sentences.toml")
            finally:
                os.chdir(here)
        shapes = {entry: [value.shape for value in plan.inputs(entry)] for entry in ("step", "step@2", "predict@1")}
        self.assertEqual(
            shapes,
            {
                "step": [(32, 16), (32, 16), (32,)],
                "step@2": [(8, 64), (8, 64), (8,)],
                "predict@1": [(1, 32), (1, 32)],
            },
        )

    def test_every_snippet_runs(self):
        """In order, with the names that the page takes for granted."""
        text = (ROOT / "docs" / "guide" / "pytorch.md").read_text()
        snippets = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(snippets), 7)
        logged = []
        model = classifier()
        loader = example_loader()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        names = {
            "model": model,
            "loader": loader,
            "val": example_loader(96, seed=2),
            "batch": next(iter(loader)),
            "optimizer": optimizer,
            "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10),
            "logger": types.SimpleNamespace(log=logged.append),
            "x": next(iter(loader))[0],
        }
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
            os.chdir(folder)
            try:
                for snippet in snippets:
                    exec(compile(snippet, "pytorch.md", "exec"), names)
                self.assertTrue(Path("adapter/adapter_model.safetensors").is_file())
            finally:
                os.chdir(here)
        self.assertGreater(len(printed.getvalue().splitlines()), 5)
        self.assertIn("grad_norm", {name for metrics in logged for name in metrics})


class Types(unittest.TestCase):
    """The package has types (py.typed), by which editors and type checkers of its users work."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.cache = holder.name  # torch is read once

    def checked(self, *words):
        environment = os.environ | {"MYPYPATH": str(ROOT / "python"), "MYPY_CACHE_DIR": self.cache}
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", *words], capture_output=True, text=True, env=environment
        )
        return done.stdout.splitlines()

    def test_the_package_and_its_users_are_typed(self):
        for path in (ROOT / "python/tcc", ROOT / "test/e2e/python/typed_consumer.py"):
            self.assertRegex(self.checked(str(path))[-1], "^Success")

    def test_a_wrong_use_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "wrong.py"
            program.write_text(
                "import tcc\n"
                "trainer = tcc.Trainer('m.tplan')\n"
                "print(trainer.step(1).los)\n"
                "trainer.fit('d.npz', epoch=3)\n"
                "tcc.compile('m.onnx', batch='32')\n"
            )
            errors = [line.split(":")[1] for line in self.checked(str(program)) if ": error:" in line]
        self.assertEqual(errors, ["3", "4", "5"])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head, self.unused = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False), nn.Linear(3, 3)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.full((8,), 0.5))
        self.register_buffer("seen", torch.arange(3))
        self.gate = nn.Parameter(torch.tensor(1.5))

    def forward(self, ids):
        x = self.embedding(ids).mean(1) * self.scale * self.gate
        return self.head(torch.tanh(x) + x.detach())


class Returns(nn.Module):
    """Returns its loss, as models of transformers do."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x=None, labels=None, scale=1.0):
        logits = self.fc(x) * scale
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def eager(model, batches, optimizer, loss_of):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Modules(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def beside(self, make, batches, loss, optimizer_of, loss_of=None, **options):
        """Losses of an own loop, compared with PyTorch's; returns the trainer, the compiled module, and PyTorch's."""
        model, twin = make(), make()
        twin.load_state_dict(model.state_dict())
        plan = tcc.compile(model, batches[0], loss=loss, optimizer=optimizer_of(model), **options)
        trainer = tcc.Trainer(plan)
        losses = [trainer.step(batch).loss for batch in batches]
        expected = eager(
            twin, batches, optimizer_of(twin), loss_of or (lambda m, batch: loss(m(*batch[:-1]), batch[-1]))
        )
        np.testing.assert_allclose(losses, expected, rtol=1e-4)
        return trainer, model, twin

    def same(self, state, twin):
        expected = twin.state_dict()
        self.assertEqual(list(state), list(expected))
        for name, value in expected.items():
            self.assertEqual(tuple(state[name].shape), tuple(value.shape), name)
            np.testing.assert_allclose(state[name], value.numpy(), rtol=1e-2, atol=1e-4, err_msg=name)

    def test_tied_weights_scalars_buffers_and_unused_parameters_come_back(self):
        batches = [(torch.randint(12, (4, 5)), torch.randint(12, (4,))) for _ in range(6)]
        trainer, model, twin = self.beside(
            Tied, batches, nn.CrossEntropyLoss(), lambda m: torch.optim.Adam(m.parameters(), 0.05)
        )
        state = trainer.state_dict()
        self.same(state, twin)
        np.testing.assert_array_equal(state["embedding.weight"], state["head.weight"])
        self.assertGreater(np.abs(state["gate"] - 1.5), 0.01)
        trainer.load_into(model)
        self.assertIs(model.head.weight, model.embedding.weight)
        torch.testing.assert_close(model.gate, twin.gate, rtol=1e-3, atol=1e-5)
        half = Tied().half()
        trainer.load_into(half)
        torch.testing.assert_close(half.gate.float(), twin.gate, rtol=1e-2, atol=1e-3)
        with self.assertRaisesRegex(tcc.UsageError, "the module has no 'gate'|the module has no '"):
            trainer.load_into(nn.Linear(2, 2))

    def test_norms_count_their_batches(self):
        def make():
            return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

        batches = [(torch.randn(10, 6), torch.randn(10, 1)) for _ in range(5)]
        trainer, _, twin = self.beside(make, batches, nn.MSELoss(), lambda m: torch.optim.SGD(m.parameters(), 0.05))
        state = trainer.state_dict()
        self.same(state, twin)
        self.assertEqual(int(state["1.num_batches_tracked"]), 5)

    def test_a_module_that_returns_its_loss_from_a_dict(self):
        batches = [{"x": torch.randn(8, 6), "labels": torch.randint(3, (8,)), "scale": 2.0} for _ in range(5)]
        trainer, _, twin = self.beside(
            Returns,
            batches,
            None,
            lambda m: torch.optim.AdamW(m.parameters(), 0.05),
            loss_of=lambda m, batch: m(**batch)["loss"],
        )
        x = batches[0]["x"]
        np.testing.assert_allclose(
            trainer.predict(batches[0])["logits"], twin(**batches[0])["logits"].detach(), rtol=1e-3, atol=1e-4
        )
        with self.assertRaisesRegex(tcc.DataError, r"batch\['scale'\] is 3.0, and 2.0 was compiled in"):
            trainer.step({"x": x, "labels": batches[0]["labels"], "scale": 3.0})

    def test_a_loss_of_the_callers_is_a_part_of_the_graph(self):
        def loss(output, target):
            return (output.softmax(-1) - F.one_hot(target, 4)).abs().pow(1.5).sum(-1).mean()

        batches = [(torch.randn(8, 6), torch.randint(4, (8,))) for _ in range(5)]
        trainer, _, twin = self.beside(
            lambda: nn.Linear(6, 4), batches, loss, lambda m: torch.optim.SGD(m.parameters(), 0.1)
        )
        x = batches[0][0]
        found = trainer.predict(x)  # without the target, which the loss alone reads
        self.assertEqual(list(found), ["output"])
        np.testing.assert_allclose(found["output"], twin(x).detach(), rtol=1e-3, atol=1e-4)

    def test_losses_that_a_recipe_has(self):
        x = torch.randn(8, 6)
        classes, numbers = torch.randint(4, (8,)), torch.rand(8, 4)
        cases = [
            (
                nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0]), ignore_index=3, label_smoothing=0.1),
                classes,
            ),
            (functools.partial(F.cross_entropy, reduction="sum"), classes),
            (F.mse_loss, numbers),
            (nn.L1Loss(), numbers),
            (nn.HuberLoss(delta=0.7), numbers),
            (nn.SmoothL1Loss(beta=0.3), numbers),
            (nn.BCEWithLogitsLoss(), numbers),
            (nn.PoissonNLLLoss(full=True), numbers),
            (nn.KLDivLoss(reduction="batchmean"), numbers),
        ]
        for loss, target in cases:
            with self.subTest(loss=str(loss)):
                trainer, *_ = self.beside(
                    lambda: nn.Linear(6, 4), [(x, target)] * 3, loss, lambda m: torch.optim.SGD(m.parameters(), 0.02)
                )
                self.assertNotIn("loss", [value.name for value in trainer.plan.values("predict")])
        for loss, target in (
            (nn.CrossEntropyLoss(), numbers),
            (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0])), numbers),
        ):
            with self.subTest(loss=str(loss)):  # in the graph
                trainer, *_ = self.beside(
                    lambda: nn.Linear(6, 4), [(x, target)] * 3, loss, lambda m: torch.optim.SGD(m.parameters(), 0.02)
                )
                self.assertIn("loss", [value.name for value in trainer.plan.values("predict")])

    def test_optimizers_and_their_groups(self):
        def make():
            return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))

        def groups(m):
            return [
                {"params": [m[0].weight, m[2].weight], "weight_decay": 0.1},
                {"params": [m[0].bias, m[2].bias], "lr": 0.003},
                {"params": [m[4].weight]},
            ]  # m[4].bias is frozen

        batches = [(torch.randn(8, 6), torch.randn(8, 2)) for _ in range(8)]
        for optimizer in (
            functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
            functools.partial(torch.optim.Adam, lr=0.01),
            functools.partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.99), amsgrad=True),
            functools.partial(torch.optim.RMSprop, lr=0.01, momentum=0.5, centered=True),
            functools.partial(torch.optim.Adagrad, lr=0.02, lr_decay=0.01),
        ):
            with self.subTest(optimizer=optimizer.func.__name__):
                trainer, model, twin = self.beside(make, batches, nn.MSELoss(), lambda m: optimizer(groups(m)))
                self.same(trainer.state_dict(), twin)
                np.testing.assert_array_equal(trainer.state_dict()["4.bias"], model[4].bias.detach())

    def test_schedulers_that_a_recipe_has(self):
        lr = torch.optim.lr_scheduler
        batches = [(torch.randn(8, 6), torch.randn(8, 2)) for _ in range(12)]
        for make in (
            lambda o: lr.StepLR(o, 3, 0.5),
            lambda o: lr.MultiStepLR(o, [2, 5], 0.3),
            lambda o: lr.ExponentialLR(o, 0.9),
            lambda o: lr.CosineAnnealingLR(o, 12, eta_min=0.01),
            lambda o: lr.CosineAnnealingWarmRestarts(o, 4, 2),
            lambda o: lr.PolynomialLR(o, 12, 2.0),
            lambda o: lr.LinearLR(o, 1.0, 0.1, 12),
        ):
            model, twin = nn.Linear(6, 2), nn.Linear(6, 2)
            optimizer, other = (torch.optim.SGD(m.parameters(), 0.1) for m in (model, twin))
            scheduler, expected = make(other), []
            own = make(optimizer)
            with self.subTest(scheduler=type(scheduler).__name__):
                trainer = tcc.Trainer(
                    tcc.compile(model, batches[0], loss=nn.MSELoss(), optimizer=optimizer, scheduler=own)
                )
                for _ in batches:
                    expected.append(other.param_groups[0]["lr"])
                    other.step()
                    scheduler.step()
                np.testing.assert_allclose(
                    [trainer.step(batch).learning_rate for batch in batches], expected, rtol=1e-6
                )

    def test_any_scheduler_moves_the_rates_of_a_fit(self):
        batches = [(torch.randn(8, 6), torch.randn(8, 2)) for _ in range(10)]
        model = nn.Linear(6, 2)
        optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.01}], 0.1)
        trainer = tcc.Trainer(tcc.compile(model, batches[0], loss=nn.MSELoss(), optimizer=optimizer))
        rates = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trainer.fit(
                batches,
                scheduler=torch.optim.lr_scheduler.OneCycleLR(
                    optimizer, [0.1, 0.01], total_steps=10, cycle_momentum=False
                ),
                callbacks=[lambda event: rates.append(event.update.learning_rate) if event.update else None],
            )
        twin = torch.optim.SGD(model.parameters(), 0.1)
        scheduler, expected = torch.optim.lr_scheduler.OneCycleLR(twin, 0.1, total_steps=10, cycle_momentum=False), []
        for _ in batches:
            expected.append(twin.param_groups[0]["lr"])
            twin.step()
            scheduler.step()
        np.testing.assert_allclose(rates, expected, rtol=1e-6)

    def test_accumulation_divides_by_what_the_loss_counts(self):
        """Micro-batches with different numbers of counted targets."""
        loss = nn.CrossEntropyLoss(ignore_index=-1)
        model, twin = nn.Linear(6, 4), nn.Linear(6, 4)
        twin.load_state_dict(model.state_dict())
        x, y = torch.randn(32, 6), torch.randint(4, (32,))
        y[torch.rand(32) < torch.arange(32) / 40] = -1
        plan = tcc.compile(
            model,
            (x[:4], y[:4]),
            loss=loss,
            optimizer=torch.optim.SGD(model.parameters(), 0.1),
            recipe={"train.accumulate": 4},
        )
        trainer = tcc.Trainer(plan)
        losses = []
        trainer.fit(
            [(x[at : at + 4], y[at : at + 4]) for at in range(0, 32, 4)],
            callbacks=[lambda event: losses.append(event.update.loss) if event.update else None],
        )
        expected = eager(
            twin,
            [(x[:16], y[:16]), (x[16:], y[16:])],
            torch.optim.SGD(twin.parameters(), 0.1),
            lambda m, b: loss(m(b[0]), b[1]),
        )
        np.testing.assert_allclose(losses, expected, rtol=1e-4)

    def test_a_shorter_last_batch(self):
        x, y = torch.randn(20, 6), torch.randint(4, (20,))
        batches = [(x[at : at + 8], y[at : at + 8]) for at in range(0, 20, 8)]
        self.beside(
            lambda: nn.Linear(6, 4), batches, nn.CrossEntropyLoss(), lambda m: torch.optim.SGD(m.parameters(), 0.1)
        )

    def test_dropout_is_compared_without_it_and_trains_with_it(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 4))
        batch = torch.randn(8, 6), torch.randint(4, (8,))
        trainer = tcc.Trainer(
            tcc.compile(model, batch, loss=nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), 0.0))
        )
        losses = {round(trainer.step(batch).loss, 6) for _ in range(4)}
        self.assertEqual(len(losses), 4)
        model.eval()
        self.assertAlmostEqual(
            trainer.evaluate(*batch)["eval_loss"], F.cross_entropy(model(batch[0]), batch[1]).item(), places=4
        )

    def test_an_export_that_lost_something_is_found(self):
        """The file is changed behind torch's exporter: a detach is lost, a weight is scaled."""
        import onnx

        class Detaches(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

            def forward(self, x):
                h = torch.tanh(self.first(x))
                return self.last(torch.sigmoid(self.second(h.detach()) * 2.0 + h))

        batch = torch.randn(8, 6), torch.randint(4, (8,))
        written = torch.onnx.export

        def compile_with(change):
            def exported(program, arguments, path, **options):
                result = written(program, arguments, path, **options)
                model = onnx.load(path)
                change(model)
                onnx.save(model, path)
                return result

            torch.onnx.export = exported
            try:
                model = Detaches()
                return tcc.compile(
                    model, batch, loss=nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), 0.1)
                )
            finally:
                torch.onnx.export = written

        def forget(model):
            for node in model.graph.node:
                del node.metadata_props[:]

        def other_op(model):
            next(node for node in model.graph.node if node.op_type == "Sigmoid").op_type = "Tanh"

        compile_with(lambda model: None)
        with self.assertRaisesRegex(
            tcc.CompileError, "the gradient of 'first.(weight|bias)' is .* away from autograd's"
        ):
            compile_with(forget)
        with self.assertRaisesRegex(
            tcc.CompileError, r"the loss of the example is .*, torch's is .*, first at the value 'sigmoid'"
        ):
            compile_with(other_op)

    def test_a_changed_module_goes_into_the_plan_and_back(self):
        model, twin = nn.Linear(6, 4), nn.Linear(6, 4)
        batch = torch.randn(8, 6), torch.randint(4, (8,))
        step = tcc.compile_step(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1), example=batch)
        step(*batch)
        model.load_state_dict(twin.state_dict())
        loss = step(*batch)
        self.assertAlmostEqual(loss.item(), F.cross_entropy(twin(batch[0]), batch[1]).item(), places=5)
        self.assertFalse(loss.requires_grad)
        before = twin.weight.detach().clone()
        self.assertFalse(torch.equal(model.state_dict()["weight"], before))
        self.assertEqual(step.last.step, 2)

    def test_memory_is_known_before_anything_is_allocated(self):
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
        batch = torch.randn(8, 64), torch.randint(4, (8,))
        optimizer = torch.optim.AdamW(model.parameters())
        plan = tcc.compile(
            model, batch, loss=nn.CrossEntropyLoss(), optimizer=optimizer, fit="batch", memory_budget="4MiB"
        )
        self.assertLessEqual(plan.peak_bytes, 4 << 20)
        self.assertGreater(plan.inputs()[0].shape[0], 64)
        with self.assertRaises(tcc.OverBudget) as caught:
            tcc.compile(model, batch, loss=nn.CrossEntropyLoss(), optimizer=optimizer, memory_budget="10KiB")
        self.assertGreater(caught.exception.smallest, 64 * 256 * 4 * 3)

    def test_another_batch_than_the_examples(self):
        """A forward whose shapes follow the batch trains with any; one that says its batch is refused, and one sample."""

        class Heads(nn.Module):
            def __init__(self, batch=None):
                super().__init__()
                self.fc, self.batch = nn.Linear(6, 8), batch

            def forward(self, x):
                return self.fc(x).view(self.batch or x.shape[0], 2, 4).sum(1)

        x, y = torch.randn(16, 6), torch.randint(4, (16,))
        loss = nn.CrossEntropyLoss()
        model = Heads()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for options in ({"batch": 16}, {"fit": "batch", "memory_budget": "64KiB"}):
            for of in (loss, lambda output, target: F.cross_entropy(output, target)):
                plan = tcc.compile(model, (x[:4], y[:4]), loss=of, optimizer=optimizer, **options)
                rows = plan.inputs()[0].shape[0]
                self.assertGreaterEqual(rows, 16)
                repeats = -(-rows // 16)
                batch = (torch.cat([x] * repeats)[:rows], torch.cat([y] * repeats)[:rows])
                expected = loss(model(batch[0]), batch[1]).item()
                self.assertAlmostEqual(tcc.Trainer(plan).step(batch).loss, expected, places=5)
        for pattern, module, rows in (
            ("at least 2 samples, and this one has 1", Heads(), 1),
            ("for other batches than the example's 4 samples", Heads(4), 4),
        ):
            with self.assertRaisesRegex(tcc.CompileError, pattern) as caught:
                tcc.compile(module, (x[:rows], y[:rows]), loss=loss, batch=16)
            self.assertNotIn("\n", str(caught.exception))

    def test_a_tensor_that_a_batch_holds_twice(self):
        """The ids of a language model are often its labels, too; later batches may hold others."""

        class Language(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

            def forward(self, input_ids, labels):
                logits = self.head(self.words(input_ids))
                return {"loss": F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), "logits": logits}

        model, ids = Language(), torch.randint(20, (4, 6))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = tcc.Trainer(tcc.compile(model, {"input_ids": ids, "labels": ids}, optimizer=optimizer))
        for labels in (ids, torch.randint(20, (4, 6))):
            optimizer.zero_grad()
            expected = model(ids, labels)["loss"]
            expected.backward()
            optimizer.step()
            self.assertAlmostEqual(trainer.step({"input_ids": ids, "labels": labels}).loss, expected.item(), places=5)

    def test_batches_of_any_length(self):
        """A step takes batches padded to their longest sample, as loaders give them, in the next shape."""

        class Sentences(nn.Module):
            def __init__(self, by_word):
                super().__init__()
                self.words, self.head, self.by_word = nn.Embedding(30, 8), nn.Linear(8, 3), by_word

            def forward(self, ids, mask):
                found = self.words(ids) * mask[..., None]
                return self.head(found if self.by_word else found.sum(1) / mask.sum(1, keepdim=True))

        def batch(samples, length, by_word):
            lengths = torch.randint(2, length + 1, (samples,))
            lengths[0] = length
            mask = (torch.arange(length) < lengths[:, None]).float()
            labels = torch.randint(3, (samples, length)) if by_word else torch.randint(3, (samples,))
            return {"ids": torch.randint(30, (samples, length)), "mask": mask,
                    "labels": torch.where(mask == 1, labels, -100) if by_word else labels}

        def by_word_loss(logits, labels):
            return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

        for by_word, loss in ((False, nn.CrossEntropyLoss()), (True, by_word_loss)):
            with self.subTest(by_word=by_word):
                torch.manual_seed(3)
                model = Sentences(by_word)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
                plan = tcc.compile(model, batch(4, 6, by_word), loss=loss, optimizer=optimizer, lengths=[8, 16], batch=[4, 2])
                shapes = [plan.inputs(entry)[0].shape for entry in plan.entries if entry.startswith("step")]
                self.assertEqual([tuple(shape) for shape in shapes], [(4, 8), (2, 16)])
                trainer = tcc.Trainer(plan)
                for samples, length in ((4, 8), (4, 5), (2, 16), (4, 3), (2, 11)):
                    given = batch(samples, length, by_word)
                    optimizer.zero_grad()
                    expected = loss(model(given["ids"], given["mask"]), given["labels"])
                    expected.backward()
                    optimizer.step()
                    self.assertAlmostEqual(trainer.step(given).loss, expected.item(), delta=2e-6)
                with self.assertRaisesRegex(tcc.Error, "axis 1 may be shorter"):
                    trainer.step(batch(2, 17, by_word))
                loader = [batch(samples, length, by_word) for samples, length in ((4, 8), (2, 16), (4, 5))]
                trainer.fit(loader, epochs=2)
                for given in loader * 2:
                    optimizer.zero_grad()
                    expected = loss(model(given["ids"], given["mask"]), given["labels"])
                    expected.backward()
                    optimizer.step()
                self.assertEqual(trainer.steps, 11)
                self.assertAlmostEqual(trainer.history.losses[-1], expected.item(), delta=5e-6)
        with self.assertRaisesRegex(tcc.Error, "batch: 3 numbers for 2 lengths"):
            tcc.compile(model, batch(4, 6, True), loss=by_word_loss, optimizer=optimizer, lengths=[8, 16], batch=[4, 2, 1])

    def test_workers_of_a_loader_are_forked_beside_a_trainer(self):
        """They copy neither its memory nor its threads, and the losses are those of a loader without workers."""
        model, losses = classifier(), []
        batch = next(iter(example_loader()))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        plan = tcc.compile(model, batch, loss=nn.CrossEntropyLoss(), optimizer=optimizer)
        for workers in (0, 2):
            trainer = tcc.Trainer(plan, threads=2)
            trainer.step(batch)  # its threads run
            trainer.fit(example_loader(num_workers=workers, persistent_workers=bool(workers)), epochs=2)
            losses.append(list(trainer.history.losses))
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(len(losses[0]), 11)

    def test_a_resumed_run_gives_its_state_to_loaders_that_have_one(self):
        class Loader:
            """Shuffles, and says where it is, as torchdata's StatefulDataLoader does."""

            def __init__(self, batches):
                self.batches, self.at, self.order, self.seen = batches, 0, None, []

            def __iter__(self):
                if self.order is None:
                    self.order, self.at = torch.randperm(len(self.batches)).tolist(), 0
                while self.at < len(self.order):
                    self.at += 1
                    self.seen.append(self.order[self.at - 1])
                    yield self.batches[self.order[self.at - 1]]
                self.order = None

            def state_dict(self):
                return {"at": self.at, "order": self.order}

            def load_state_dict(self, state):
                self.at, self.order = state["at"], state["order"]

        batches = [(torch.randn(8, 6), torch.randint(4, (8,))) for _ in range(10)]
        model = nn.Linear(6, 4)
        loader = Loader(batches)
        with tempfile.TemporaryDirectory() as folder:
            plan = tcc.compile(
                model, batches[0], loss=nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), 0.1)
            )
            tcc.Trainer(plan).fit(
                loader, epochs=1, out=f"{folder}/run", callbacks=[lambda event: "stop" if event.step == 4 else None]
            )
            again = Loader(batches)
            trainer = tcc.Trainer.resume(f"{folder}/run@last")
            trainer.fit(again)
            self.assertEqual(trainer.steps, 10)
            self.assertEqual(sorted(loader.seen[:4] + again.seen), list(range(10)))

    def test_mistakes_have_a_message_with_a_way_out(self):
        batch = torch.randn(8, 6), torch.randint(4, (8,))
        model, loss = nn.Linear(6, 4), nn.CrossEntropyLoss()

        def sgd(m=model, **options):
            return torch.optim.SGD(m.parameters(), lr=0.1, **options)

        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 4)

            def forward(self, x):
                return self.fc(x) if x.sum() > 0 else -self.fc(x)

        class Counts(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 4)
                self.register_buffer("mean", torch.zeros(6))

            def forward(self, x):
                self.mean.mul_(0.9).add_(0.1 * x.mean(0))
                return self.fc(x - self.mean)

        used = sgd()
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        used = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
        used.step()
        stepped = torch.optim.lr_scheduler.StepLR(sgd(), 3)
        frozen = nn.Linear(6, 4).requires_grad_(False)
        moved = sgd()
        cases = [
            ("compiled for an example batch", lambda: tcc.compile(model, loss=loss)),
            (
                "CrossEntropyLoss is a class; give an object of it",
                lambda: tcc.compile(model, batch, loss=nn.CrossEntropyLoss),
            ),
            (
                r"the loss is a float32 of shape \[8\].*reduction='mean'",
                lambda: tcc.compile(model, batch, loss=nn.CrossEntropyLoss(reduction="none")),
            ),
            (r"the loss is a float32 of shape \[8, 4\].*give loss=", lambda: tcc.compile(model, batch[:1])),
            (
                "a plan has no LBFGS; it has SGD",
                lambda: tcc.compile(model, batch, loss=loss, optimizer=torch.optim.LBFGS(model.parameters())),
            ),
            ("str is none of torch's", lambda: tcc.compile(model, batch, loss=loss, optimizer="adam")),
            ("has made updates.*make a new one", lambda: tcc.compile(model, batch, loss=loss, optimizer=used)),
            (
                "group 1 has momentum = 0.5, group 0 has 0.9",
                lambda: tcc.compile(
                    model,
                    batch,
                    loss=loss,
                    optimizer=torch.optim.SGD(
                        [{"params": [model.weight]}, {"params": [model.bias], "momentum": 0.5}], lr=0.1, momentum=0.9
                    ),
                ),
            ),
            (
                "a recipe has no LambdaLR",
                lambda: tcc.compile(
                    model,
                    batch,
                    loss=loss,
                    optimizer=moved,
                    scheduler=torch.optim.lr_scheduler.LambdaLR(moved, lambda t: 1.0),
                ),
            ),
            (
                "belongs to another optimizer",
                lambda: tcc.compile(model, batch, loss=loss, optimizer=sgd(), scheduler=stepped),
            ),
            ("it needs the optimizer", lambda: tcc.compile(model, batch, loss=loss, scheduler=stepped)),
            (
                "on several devices: the module's 'weight' on cpu, the loss's 'weight' on meta",
                lambda: tcc.compile(model, batch, loss=nn.CrossEntropyLoss(weight=torch.ones(4, device="meta"))),
            ),
            (
                "on the device meta",
                lambda: tcc.compile(nn.Linear(6, 4, device="meta"), tuple(one.to("meta") for one in batch), loss=loss),
            ),
            ("no parameters that require gradients", lambda: tcc.compile(frozen, batch, loss=loss)),
            (
                "the optimizer has no parameters that",
                lambda: tcc.compile(model, batch, loss=loss, optimizer=sgd(nn.Linear(2, 2))),
            ),
            (
                "torch cannot export its forward.*torch.where or torch.cond",
                lambda: tcc.compile(Branches(), batch, loss=loss),
            ),
            ("forward changes the buffer 'mean'", lambda: tcc.compile(Counts(), batch, loss=loss)),
            (
                "the example batch cannot be computed: .*shapes cannot be multiplied",
                lambda: tcc.compile(model, (batch[0][:, :3], batch[1]), loss=loss),
            ),
            (
                "say which one the loss compares with",
                lambda: tcc.compile(model, {"a": batch[0], "b": batch[1]}, loss=loss),
            ),
            ("the batch has no such item", lambda: tcc.compile(model, batch, loss=loss, labels=2)),
            ("the batch is one tensor", lambda: tcc.compile(model, batch[0], loss=loss)),
            ("which is no tensor, number or text", lambda: tcc.compile(model, (object(), *batch), loss=loss)),
            ("int is neither the path", lambda: tcc.compile(3, batch)),
            ("scripted by torch.jit", lambda: tcc.compile(torch.jit.script(nn.Linear(6, 4)), batch, loss=loss)),
            ("loss: that of an .onnx file is given in the recipe", lambda: tcc.compile("m.onnx", loss=loss)),
            ("unknown key|nearest", lambda: tcc.compile(model, batch, loss=loss, recipe={"optimizer.speed": 3})),
        ]
        for pattern, call in cases:
            with self.subTest(pattern=pattern), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with self.assertRaisesRegex(tcc.CompileError, pattern) as caught:
                    call()
                self.assertNotIn("\n", str(caught.exception))

        trainer = tcc.Trainer(tcc.compile(model, batch, loss=loss, optimizer=moved))
        x, y = batch
        for pattern, call in (
            (r"the batch lacks batch\[1\]", lambda: trainer.step(x)),
            (r"batch\[2\] was not in the example", lambda: trainer.step(x, y, y)),
            (r"'input' is f32\[8x5\], the model's input is f32\[8x6\]", lambda: trainer.step(x[:, :5], y)),
            ("f64 does not become f32 silently", lambda: trainer.step(x.double(), y)),
            ("sample 2: value 9 names no class", lambda: trainer.step(x, torch.where(torch.arange(8) == 2, 9, y))),
            ("16 rows; an update takes 8", lambda: trainer.step(torch.cat([x, x]), torch.cat([y, y]))),
            ("gives no batch in epoch 2.*give a list or a DataLoader", lambda: trainer.fit(iter([batch]), epochs=2)),
            ("gives no batch", lambda: trainer.evaluate(iter([]))),
            (r"batch\[0\] is str, and was a tensor", lambda: trainer.step("x", y)),
        ):
            with self.subTest(pattern=pattern), self.assertRaisesRegex(tcc.DataError, pattern):
                call()
        with self.assertRaisesRegex(tcc.UsageError, "both given"):
            trainer.fit([batch], epochs=1, steps=1)

        two = nn.Linear(6, 4)
        grouped = torch.optim.SGD([{"params": [two.weight]}, {"params": [two.bias], "lr": 0.01}], lr=0.1)
        step = tcc.compile_step(two, loss, grouped, example=batch)
        grouped.param_groups[1]["lr"] = 0.05
        with self.assertRaisesRegex(
            tcc.UsageError, "group 1 of the optimizer has the learning rate 0.05.*move all groups by one factor"
        ):
            step(*batch)

    def test_eval_mode_is_said(self):
        model = nn.Linear(6, 4).eval()
        with self.assertWarnsRegex(UserWarning, "is in eval.. mode.*call train"):
            tcc.compile(model, (torch.randn(8, 6), torch.randint(4, (8,))), loss=nn.CrossEntropyLoss())


if __name__ == "__main__":
    unittest.main()
