"""`trun report` on a run that has finished, still trains, broke off or was resumed; and the page in a browser."""
import json
import re
import signal
import subprocess
import time
import unittest

import numpy as np

import models
import test_phases
from browser import PROGRAM, Browser
from common import BIN, EndToEnd, case, checkpoints, metrics
from test_report_html import HOSTILE, Tags, data_of


class Runs(EndToEnd):
    kept = {}                            # the plan, compiled once for all tests

    def plan(self):
        model, recipe, self.data, _ = case("mlp")
        if "plan" not in self.kept:
            self.kept["plan"] = self.compile(model, "--recipe", recipe).read_bytes()
        return self.write("plan.tplan", self.kept["plan"])

    def finished(self, *more, out="run", steps=40):
        plan = self.plan()
        self.succeed("trun", plan, "--data", self.data, "--eval-data", self.data, "--eval-every", 10, "--steps", steps, "--checkpoint-every", 7,
                     "--set", "train.ema.decay=0.9", "--out", out, *more)
        return self.folder / out

    def told(self, run):
        return json.loads(self.succeed("trun", "report", run, "--json").out)

    def show(self, run, width=1280):
        self.page(run)
        browser = Browser(width, 900)
        browser.__enter__()
        self.addCleanup(browser.__exit__)
        browser.open(self.folder / "run.html")
        self.assertEqual(browser.errors, [])
        return browser

    def page(self, run, name="run.html"):
        self.succeed("trun", "report", run, "--html", name)
        return (self.folder / name).read_text()


class Told(Runs):
    def test_a_finished_run(self):
        run = self.finished()
        told, (updates, evaluations) = self.told(run), metrics(run)
        self.assertEqual((told["state"], told["end"], told["steps"], told["unreadable_lines"]), ("finished", "finished", 40, 0))
        for key in ("loss", "lr", "seconds", "data_seconds"):
            self.assertEqual(told["updates"][key], [line[key] for line in updates], key)
        self.assertEqual([(row["step"], row["eval_loss"], row["ema_eval_loss"]) for row in told["evaluations"]],
                         [(line["step"], line["eval_loss"], line["ema_eval_loss"]) for line in evaluations])
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        written = [line for line in lines if "checkpoint_bytes" in line]
        self.assertEqual([row["step"] for row in told["checkpoints"]], [line["step"] for line in written])
        self.assertEqual([row["step"] for row in told["checkpoints"] if row["kept"]], checkpoints(run))
        for line in written:
            if line["step"] in checkpoints(run):
                folder = run / "checkpoints" / f"step-{line['step']}"
                self.assertEqual(line["checkpoint_bytes"], sum(p.stat().st_size for p in folder.iterdir()))
            self.assertGreater(line["checkpoint_waited_seconds"], 0)
            self.assertGreaterEqual(line["checkpoint_seconds"], line["checkpoint_waited_seconds"] * 0.99)
        times = told["times"]
        self.assertAlmostEqual(times["compute"] + times["data"], sum(line["seconds"] for line in updates))
        self.assertAlmostEqual(times["data"], sum(line["data_seconds"] for line in updates))
        self.assertAlmostEqual(times["checkpoints"], sum(line["checkpoint_waited_seconds"] for line in written))
        self.assertAlmostEqual(times["evaluations"], sum(line["seconds"] for line in evaluations))
        best = json.loads((run / "checkpoints" / "best.json").read_text())
        self.assertEqual((told["best"]["step"], told["best"]["value"]), (best["step"], best["eval_loss"]))
        self.assertIn("--eval-every 10", told["facts"]["options"])
        text = self.succeed("trun", "report", run).out
        for part in ("finished after update 40", "waiting for data", "waiting for checkpoints", f"{updates[-1]['loss']:.6g}"):
            self.assertIn(part, text)
        first, curve, last = re.search(r"^loss (\S+) ([▁-█]+) (\S+)$", text, re.MULTILINE).groups()
        losses = [line["loss"] for line in updates]
        self.assertEqual((first, last), (f"{losses[0]:.4g}", f"{losses[-1]:.4g}"))
        least, greatest = min(losses), max(losses)
        self.assertEqual(curve, "".join(chr(0x2581 + int((loss - least) / (greatest - least) * 7 + 0.5)) for loss in losses))

    def test_tables_fit_into_60_columns(self):
        run = self.finished()
        # The widest numbers and units that occur.
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            if "checkpoint_bytes" in line:
                line.update(checkpoint_bytes=1023 * 1024 + 900, checkpoint_waited_seconds=0.0987654, checkpoint_seconds=59.94)
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        rows = [re.sub(" +$", "", line) for line in self.succeed("trun", "report", run, env={"COLUMNS": ""}).out.splitlines() if line.startswith("  ")]
        self.assertTrue(any(row.endswith("best") for row in rows), rows)
        self.assertLessEqual(max(map(len, rows)), 60, rows)
        self.assertEqual([line for line in self.succeed("trun", "report", run, env={"COLUMNS": "60"}).out.splitlines() if line.startswith("  ")][-len(rows):], rows)

    def test_long_runs_are_put_together_without_loss(self):
        run, (updates, _) = self.finished(), metrics(self.folder / "run")
        lines = (run / "metrics.jsonl").read_text().splitlines()
        first = [line for line in lines if '"loss"' in line and '"step":1,' in line][0]
        many = [first.replace('"step":1,', f'"step":{i},') for i in range(1, 4002)]
        (run / "metrics.jsonl").write_text("\n".join(many) + "\n")
        told = self.told(run)["updates"]
        self.assertLessEqual(len(told["step"]), 1500)
        self.assertEqual((told["first"][0], told["step"][-1]), (1, 4001))
        self.assertEqual(told["first"][1:], [step + 1 for step in told["step"][:-1]])
        self.assertAlmostEqual(sum(told["seconds"]), 4001 * updates[0]["seconds"], places=6)

    def test_running_broken_off_torn_and_resumed(self):
        plan = self.plan()
        with open(self.folder / "output", "w") as output:
            process = subprocess.Popen([str(BIN / "trun"), str(plan), "--data", str(self.data), "--steps", str(10**9), "--out",
                                        str(self.folder / "run"), "--checkpoint-every", "200"], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.addCleanup(process.kill)
        run = self.folder / "run"
        while max(checkpoints(run), default=0) < 400:
            self.assertIsNone(process.poll(), (self.folder / "output").read_text())
            time.sleep(0.002)
        told = self.told(run)
        self.assertEqual((told["state"], told["end"], told["unreadable_lines"]), ("running", None, 0))
        self.assertGreaterEqual(told["steps"], 200)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step":99999999,"epoch":1,"lo')
        told = self.told(run)
        self.assertEqual((told["state"], told["end"], told["unreadable_lines"]), ("broken off", None, 1))
        self.assertIn(f"trun --resume {run} goes on after update {max(checkpoints(run))}", told["state_text"])
        last = max(checkpoints(run))
        self.succeed("trun", "--resume", run, "--steps", last + 20)
        told = self.told(run)
        self.assertEqual((told["state"], told["steps"], told["resumed_after"], told["superseded"], told["unreadable_lines"]), ("finished", last + 20, [last], 1, 0))
        self.assertEqual(told["updates"]["step"][-1], last + 20)

    def test_how_it_ended(self):
        plan = self.plan()
        self.succeed("trun", plan, "--data", self.data, "--steps", 10**9, "--max-time", "0.2s", "--out", "stopped")
        told = self.told("stopped")
        self.assertEqual((told["state"], told["end"]), ("stopped", "--max-time"))
        self.refuse(4, ["loss"], "trun", plan, "--data", self.data, "--steps", 400, "--set", "optimizer.lr=1e30", "--out", "failed")
        told = self.told("failed")
        self.assertEqual(told["state"], "failed")
        self.assertIn("training stopped", told["end"])

    def test_waiting_for_data_is_a_part_of_the_update(self):
        run = self.finished()
        for line in metrics(run)[0]:
            self.assertGreater(line["data_seconds"], 0)
            self.assertLess(line["data_seconds"], line["seconds"])

    def test_runs_of_other_kinds(self):
        self.refuse(1, ["no folder of a run"], "trun", "report", "nowhere")
        (self.folder / "empty").mkdir()
        self.refuse(1, ["neither metrics.jsonl nor checkpoints"], "trun", "report", "empty")
        run = self.finished()
        self.refuse(2, ["html"], "trun", "report", run, "--html", "x.html", "--json")
        # Earlier versions recorded neither waits nor ends; a plan and a checkpoint may be damaged.
        lines = [re.sub(',"data_seconds":[^,}]*', "", line) for line in (run / "metrics.jsonl").read_text().splitlines() if '"end"' not in line and "checkpoint_bytes" not in line]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (run / "plan.tplan").write_bytes(b"nonsense")
        (run / "checkpoints" / "step-40" / "manifest.json").write_text("{")
        told = self.told(run)
        self.assertEqual((told["state"], told["checkpoints"], told["updates"]["data_seconds"]), ("broken off", [], [None] * 40))
        self.assertTrue(any("plan.tplan" in text for text in told["problems"]) and any("step-40" in text for text in told["problems"]), told["problems"])

    def test_the_page_needs_nothing_else(self):
        run = self.finished()
        page = self.page(run)
        shell = re.sub(r'(<script type="application/json" id="report">).*?(</script>)', r"\1\2", page, flags=re.DOTALL)
        for sign in ("http:", "https:", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", "WebSocket", "innerHTML", "eval("):
            self.assertNotIn(sign, shell)
        for tag, attributes in Tags(page).tags:
            self.assertNotIn("src", attributes, tag)
        told, held = self.told(run), data_of(page)
        self.assertEqual({key: held[key] for key in told}, told)


class Phased(Runs):
    """A run of two optimizers, one at every step and one at every second step."""

    def phased(self, steps=30):
        files = test_phases.FILES
        recipe = self.write("gan.toml", test_phases.RECIPES["gan"] + """
[train.loss_scale]
kind = "dynamic"
""")
        plan = self.compile(files / "gan.onnx", "--recipe", recipe)
        return self.train(plan, files / "gan.safetensors", "--eval-data", files / "gan.safetensors", "--eval-every", 10, steps=steps)

    def test_each_phase_has_its_numbers(self):
        run = self.phased()
        told, lines = self.told(run), metrics(run)[0]
        self.assertEqual(told["phases"], ["d", "g"])
        for phase in ("d", "g"):
            for key in (f"loss.{phase}", f"lr.{phase}", f"grad_norm.{phase}"):
                self.assertEqual(told["updates"][key], [line.get(key) for line in lines], key)
        self.assertEqual([value is None for value in told["updates"]["loss.g"][:4]], [True, False, True, False])
        text = self.succeed("trun", "report", run).out
        for phase in ("d", "g"):
            self.assertRegex(text, rf"phase {phase}: loss {[v for v in told['updates'][f'loss.{phase}'] if v][-1]:.6g}".replace(".", r"\."))
        # Updates that the loss scale skipped, by optimizer.
        with open(run / "metrics.jsonl", "a") as file:
            file.write(json.dumps(lines[-1] | {"step": 31, "loss_scale": 512, "skipped_updates": 3, "skipped_updates.d": 1, "skipped_updates.g": 2}) + "\n")
        told = self.told(run)
        self.assertEqual((told["skipped_updates"], told["skipped_by_phase"]), (3, {"d": 1, "g": 2}))
        self.assertIn("2 skipped", self.succeed("trun", "report", run).out)

    @unittest.skipUnless(PROGRAM, "no Chromium on the PATH: tools/setup.sh installs one")
    def test_the_page_draws_a_curve_for_each_phase(self):
        run = self.phased(steps=80)
        lines = metrics(run)[0]
        browser = self.show(run)
        series = "charts.find(c => c.canvas.id === %r).series.filter(s => !s.hidden).map(s => [s.name, s.points.length])"
        for chart in ("rate", "norm"):
            self.assertEqual(browser.run(series % chart), [["d", 80], ["g", 40]])
        self.assertEqual(browser.run(series % "loss-curve"), [["d", 80], ["g", 40], ["evaluation", 8]])
        self.assertEqual(browser.run("new Set(charts.find(c => c.canvas.id === 'norm').series.map(s => s.color)).size"), 2)
        text = browser.run("document.body.innerText")
        for part in ("last loss of d", "last loss of g"):
            self.assertIn(part, text.lower())
        # At an update in which both optimizers ran, the tip shows both.
        spot = "(() => { const c = charts.find(c => c.canvas.id === 'norm'), b = c.canvas.getBoundingClientRect(); return [b.x + c.px(40), b.y + c.height / 2]; })()"
        browser.run("document.getElementById('norm').scrollIntoView({block: 'center'})")
        browser.move(*browser.run(spot))
        tip = browser.run("document.getElementById('tip').innerText")
        self.assertIn("update 40", tip)
        for phase in ("d", "g"):
            self.assertIn(f"{lines[39][f'grad_norm.{phase}']:.5g}".rstrip("0"), tip)


class Parted(Runs):
    """A run of several losses, in stages."""
    RECIPE = (models.SQUARES.replace("[loss]", "[[loss]]") + '\n[[loss]]\nname = "far"\nkind = "l1"\nof = "prediction"\ntarget = "y"\nscale = 0.25\n' + models.SGD +
              '[[stage]]\nuntil = 30\ntrainable = ["w2", "b2"]\n[[stage]]\ntrainable = ["*"]\nlr_scale = 0.5\n')
    STAGES = [{"name": "stage1", "first": 1, "last": 30, "lr_scale": 1, "parameters": ["b2", "w2"]},
              {"name": "stage2", "first": 31, "last": None, "lr_scale": 0.5, "parameters": ["b1", "b2", "w1", "w2"]}]

    def parted(self):
        model = models.mlp(self.folder / "m.onnx")
        recipe = self.write("r.toml", self.RECIPE)
        data = self.save("d.safetensors", **models.mlp_data(64))
        return self.train(self.compile(model, "--recipe", recipe), data, "--eval-data", data, "--eval-every", 20, steps=80)

    def test_losses_and_stages_are_told(self):
        run = self.parted()
        told, (updates, evaluations) = self.told(run), metrics(run)
        self.assertEqual(told["losses"], [{"name": "far", "scale": 0.25}, {"name": "mse", "scale": 1}])
        self.assertEqual([one | {"parameters": sorted(one["parameters"])} for one in told["stages"]], self.STAGES)
        for key in ("loss", "loss/far", "loss/mse"):
            self.assertEqual(told["updates"][key], [line[key] for line in updates], key)
        for line in updates:
            self.assertAlmostEqual(line["loss"], line["loss/mse"] + 0.25 * line["loss/far"], 5)
        text = self.succeed("trun", "report", run).out
        for part in (f"loss/far: {updates[-1]['loss/far']:.6g}, × 0.25", f"loss/mse: {updates[-1]['loss/mse']:.6g}, × 1",
                     "stage1, updates 1 to 30, lr × 1, trains", "stage2, updates 31 to the run's end, lr × 0.5, trains"):
            self.assertIn(part, text)
        report = json.loads(self.succeed("tcc", "report", run / "plan.tplan", "--json").out)
        self.assertEqual(report["losses"], [{"name": "mse", "scale": 1, "sample_weight": None}, {"name": "far", "scale": 0.25, "sample_weight": None}])
        self.assertEqual(report["parameters"]["stages"], told["stages"])
        # With an unreadable plan the report still has the curves.
        (run / "plan.tplan").write_bytes(b"nonsense")
        told = self.told(run)
        self.assertEqual(told["losses"], [{"name": "far", "scale": None}, {"name": "mse", "scale": None}])
        self.assertEqual(told["updates"]["loss/far"], [line["loss/far"] for line in updates])

    def test_inspect_lists_the_stages(self):
        for batch in (8, "batch"):                       # a dimension with a name in place of a size changes nothing
            model = models.mlp(self.folder / "m.onnx", batch=batch)
            recipe = self.write("r.toml", self.RECIPE)
            told = json.loads(self.succeed("tcc", "inspect", model, "--recipe", recipe, "--json").out)
            self.assertEqual([one | {"parameters": sorted(one["parameters"])} for one in told["stages"]], self.STAGES)
        text = self.succeed("tcc", "inspect", model, "--recipe", recipe).out
        self.assertRegex(text, r"stage1, updates 1 to 30, lr × 1, trains 2 tensors: (w2, b2|b2, w2)\n  stage2, updates 31 to the run's end, lr × 0\.5, trains 4 tensors: ")
        self.assertEqual(json.loads(self.succeed("tcc", "inspect", model, "--json").out)["stages"], [])
        self.write("r.toml", self.RECIPE.replace('"w2"', '"w3"'))
        self.refuse(1, [r"r\.toml:\d+:1: stage\.trainable: `w3` matches no parameter"], "tcc", "inspect", model, "--recipe", "r.toml")

    @unittest.skipUnless(PROGRAM, "no Chromium on the PATH: tools/setup.sh installs one")
    def test_the_page_draws_a_curve_for_each_loss(self):
        run = self.parted()
        browser = self.show(run)
        series = "charts.find(c => c.canvas.id === %r).series.filter(s => !s.hidden).map(s => [s.name, s.points.length])"
        for chart in ("loss-curve", "part-0", "part-1"):
            self.assertEqual(browser.run(series % chart), [["training", 80], ["evaluation", 4]], chart)
        self.assertFalse(browser.run("charts.some(c => c.canvas.id.startsWith('metric-') && c.canvas.getAttribute('aria-label').includes('loss/'))"))
        self.assertEqual(browser.run("charts.find(c => c.canvas.id === 'part-0').series[0].points"), [[line["step"], line["loss/far"]] for line in metrics(run)[0]])
        self.assertEqual(browser.run("[...document.querySelectorAll('#stages tbody tr')].map(row => [...row.children].slice(0, 5).map(cell => cell.innerText))"),
                         [["stage1", "1", "30", "1", "2"], ["stage2", "31", "the run's end", "0.5", "4"]])
        browser.resize(400, 900)
        browser.frames()
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 400)


@unittest.skipUnless(PROGRAM, "no Chromium on the PATH: tools/setup.sh installs one")
class InABrowser(Runs):
    def test_it_shows_and_answers(self):
        run = self.finished(steps=40)
        picture = np.zeros((4, 4, 3), np.uint8)
        from PIL import Image
        Image.fromarray(picture).save(run / "samples.png")
        browser = self.show(run)
        updates, evaluations = metrics(run)
        text = browser.run("document.body.innerText")
        for part in ("finished", "Waiting for data".lower(), "Checkpoints", "Throughput", "--eval-every 10"):
            self.assertIn(part, text)
        self.assertEqual(browser.run("[document.querySelector('img.samples').naturalWidth, document.querySelectorAll('canvas').length > 3]"), [4, True])
        # The bar of times fills the page's width, however short the run was.
        self.assertAlmostEqual(browser.run("(() => { const bar = document.querySelector('.stack'); return [...bar.children].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0) / bar.clientWidth; })()"), 1, delta=0.02)
        # At an update the loss curve shows the log's value.
        spot = "(() => { const c = charts.find(c => c.canvas.id === 'loss-curve'), b = c.canvas.getBoundingClientRect(); return [b.x + c.px(20), b.y + c.py(%r)]; })()"
        browser.run("document.getElementById('loss-curve').scrollIntoView({block: 'center'})")
        browser.move(*browser.run(spot % updates[19]["loss"]))
        tip = browser.run("document.getElementById('tip').innerText")
        self.assertIn("update 20", tip)
        at_20 = next(line for line in evaluations if line["step"] == 20)
        for value in (updates[19]["loss"], at_20["eval_loss"], at_20["ema_eval_loss"]):
            self.assertIn(f"{value:.5g}".rstrip("0"), tip)
        # A drag zooms every chart; a double click shows the whole run again.
        (left, y), (right, _) = (browser.run(spot.replace("px(20)", f"px({step})") % updates[19]["loss"]) for step in (10, 30))
        browser.drag(left, y, right, y)
        self.assertEqual([round(v) for v in browser.run("[range.from, range.to]")], [10, 30])
        browser.run("showAll()")
        self.assertEqual(browser.run("[range.from, range.to]"), [0, 40])

    def test_it_fits_its_window_in_light_and_dark(self):
        browser = self.show(self.finished())
        for width in (1280, 800, 400):
            browser.resize(width, 900)
            browser.frames()
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
        background = "getComputedStyle(document.body).backgroundColor"
        browser.scheme("light")
        light = browser.run(background)
        browser.scheme("dark")
        self.assertNotEqual(browser.run(background), light)
        self.assertTrue(browser.pdf().startswith(b"%PDF"))

    def test_text_of_any_kind_does_nothing(self):
        run = self.finished()
        with open(run / "log.txt", "a") as log, open(run / "metrics.jsonl", "a") as lines:
            for text in HOSTILE[:4]:
                log.write(text + "\n")
                lines.write(json.dumps({"step": 40, "epoch": 1, "eval_loss": 1.0, "eval_" + text: 0.5}) + "\n")
            lines.write(json.dumps({"step": 40, "end": HOSTILE[1]}) + "\n")
        browser = self.show(run, 800)
        self.assertEqual((browser.dialogs, browser.run("window.broken"), browser.run("document.querySelectorAll('main img, main script').length")), ([], None, 0))
        self.assertIn(HOSTILE[0], browser.run("document.body.textContent"))
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 800)
        self.assertEqual(len(browser.requests), 1, browser.requests)


if __name__ == "__main__":
    unittest.main(verbosity=2)
