"""However training ends, the last whole update is kept, and the message's command continues from it, bit for bit."""
import os
import re
import signal
import stat
import struct
import subprocess
import time
import unittest
import zlib
from pathlib import Path

import numpy as np

import models
from common import BIN, EndToEnd, metrics

ENDLESS = 10**9


def png(pixels):
    """[height, width, 3] bytes as a PNG file."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Stops(EndToEnd):
    def plan(self):
        return self.compile(models.mlp(self.folder / "m.onnx"), "--recipe", self.write("r.toml", models.SQUARES + models.SGD))

    def start(self, plan, data, *more, out="run", prepare=None):
        process = subprocess.Popen([str(BIN / "trun"), str(plan), "--data", str(data), "--out", out, *map(str, more)], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=prepare)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, condition, process):
        for _ in range(12000):
            if condition():
                return
            self.assertIsNone(process.poll(), "the run ended by itself")
            time.sleep(0.005)
        self.fail("waited in vain")

    def begun(self, process, run="run"):
        path = self.folder / run / "metrics.jsonl"
        self.wait_for(lambda: path.exists() and path.stat().st_size, process)

    def follow(self, message, **replaced):
        """Runs the command that the message gives, with the values of `replaced` for these options."""
        command = re.search(r"go on with: (\S*trun .*)", message)
        self.assertTrue(command, message)
        text = command[1]
        for option, value in replaced.items():
            text += f" --{option} {value}"
        done = subprocess.run(text, shell=True, cwd=self.folder, capture_output=True, text=True, timeout=240,
                              env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stderr}")

    def state(self, run, step):
        return (self.folder / run / "checkpoints" / f"step-{step}" / "state.safetensors").read_bytes()

    def same(self, plan, data, step, *more):
        """The run agrees with an undisturbed one."""
        self.succeed("trun", plan, "--data", data, "--steps", step, "--out", "whole", *more)
        self.assertTrue(self.state("run", step) == self.state("whole", step), "the weights differ")
        self.assertEqual([u["loss"] for u in metrics(self.folder / "run")[0]], [u["loss"] for u in metrics(self.folder / "whole")[0]])

    def test_each_signal_leaves_a_checkpoint(self):
        plan, data = self.plan(), self.save("d.safetensors", **models.mlp_data(32))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):
            with self.subTest(signal=number.name):
                process = self.start(plan, data, "--steps", ENDLESS, "--seed", 4, out=number.name)
                self.begun(process, number.name)
                process.send_signal(number)
                _, message = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, message)
                done = metrics(self.folder / number.name)[0][-1]["step"]
                self.assertIn(f"stopped by {number.name} after update {done}", message)
                self.state(number.name, done)
                self.follow(message, steps=done + 3)
                self.state(number.name, done + 3)

    def test_nohup_stays_in_force(self):
        plan, data = self.plan(), self.save("d.safetensors", **models.mlp_data(32))
        process = self.start(plan, data, "--steps", ENDLESS, prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.begun(process)
        process.send_signal(signal.SIGHUP)
        before = (self.folder / "run" / "metrics.jsonl").stat().st_size
        self.wait_for(lambda: (self.folder / "run" / "metrics.jsonl").stat().st_size > before + 10000, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)

    def test_a_signal_on_request_writes_and_goes_on(self):
        plan, data = self.plan(), self.save("d.safetensors", **models.mlp_data(32))
        process = self.start(plan, data, "--steps", ENDLESS)
        self.begun(process)
        checkpoints = self.folder / "run" / "checkpoints"
        self.assertEqual(list(checkpoints.iterdir()), [])
        process.send_signal(signal.SIGUSR1)
        self.wait_for(lambda: any(p.name.startswith("step-") for p in checkpoints.iterdir()), process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)

    def test_a_broken_pipe_stops_printing_alone(self):
        plan, data = self.plan(), self.save("d.safetensors", **models.mlp_data(32))
        done = subprocess.run(f"{BIN}/trun {plan} --data {data} --steps 400 --log-every 1 --out run 2>&1 | head -n 3", shell=True,
                              cwd=self.folder, capture_output=True, text=True, timeout=240)
        self.assertEqual(len(done.stdout.splitlines()), 3)
        run = self.folder / "run"
        self.wait_for_end(run / "model.onnx")
        self.assertEqual(len(metrics(run)[0]), 400)

    def wait_for_end(self, path):
        for _ in range(12000):
            if path.exists():
                return
            time.sleep(0.005)
        self.fail(f"{path} never came")

    def test_a_signal_ends_the_last_evaluation(self):
        plan, data = self.plan(), self.save("d.safetensors", **models.mlp_data(32))
        large = self.save("e.safetensors", **models.mlp_data(2_000_000))
        process = self.start(plan, data, "--eval-data", large, "--steps", 5, "--seed", 2)
        self.begun(process)
        self.wait_for(lambda: (self.folder / "run" / "checkpoints" / "step-5").is_dir(), process)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, message)
        self.assertIn("stopped by SIGINT after update 5", message)
        self.assertEqual(metrics(self.folder / "run")[1], [], "the evaluation had ended before the signal came")
        self.save("e.safetensors", **models.mlp_data(16))
        self.follow(message)
        self.assertEqual(len(metrics(self.folder / "run")[1]), 1)
        self.assertTrue((self.folder / "run" / "model.onnx").exists())

    def test_a_damaged_image_costs_nothing_that_was_done(self):
        """The 4th update finds the damage; once the image is repaired, the message's command continues."""
        model = models.convolution(self.folder / "m.onnx", batch=4, channels=3, size=8)
        plan = self.compile(model, "--recipe", self.write("r.toml", models.CLASSES + models.SGD), "--set", "data.map.x=image",
                            "--set", "data.map.labels=label")
        rng = np.random.default_rng(3)
        for index in range(24):
            path = self.folder / "images" / "abc"[index % 3] / f"{index:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(rng.integers(0, 255, (8, 8, 3), np.uint8)))
        files = sorted((self.folder / "images").rglob("*.png"))
        bad, content = files[13], files[13].read_bytes()
        bad.write_bytes(content[:60])
        more = ["--steps", 6, "--no-shuffle"]
        result = self.refuse(1, [re.escape(bad.name), "training stopped", "step-3 holds the state after update 3"], "trun", plan,
                             "--data", "images", "--out", "run", *more)
        bad.write_bytes(content)
        self.follow(result.err)
        self.same(plan, "images", 6, *more[2:])

    def test_results_that_do_not_arrive_are_an_error(self):
        plan, data = self.plan(), self.save("d.safetensors", **models.mlp_data(32))
        for words in (["eval", plan, "--data", data], ["verify", plan], ["memory", plan], ["--help"], ["--version"], ["eval", "--help"],
                      ["profile", plan, "--data", data, "--no-roofline", "--json"]):
            for target in (">/dev/full", ">&-"):
                with self.subTest(command=words[0], target=target):
                    done = subprocess.run(f"{BIN}/trun {' '.join(map(str, words))} {target}", shell=True, capture_output=True, text=True,
                                          timeout=240)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertRegex(done.stderr, "(?m)^trun: error: standard output: cannot be written")
        samples = self.save("x.safetensors", x=np.ones((8, 5), np.float32))
        self.refuse(1, ["full", "space"], "trun", "predict", plan, "--inputs", samples, "--outputs", self.full_device())

    def full_device(self):
        """/dev/full; for root a copy of it, since a faulty program could replace the real one."""
        if os.geteuid() != 0:
            return Path("/dev/full")
        path = self.folder / "full"
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        return path

    def test_closed_standard_streams_do_not_become_files_of_the_run(self):
        plan, data = self.plan(), self.save("d.safetensors", **models.mlp_data(32))
        done = subprocess.run(f"{BIN}/trun {plan} --data {data} --steps 20 --log-every 1 --out run <&- >&- 2>&-", shell=True,
                              cwd=self.folder, timeout=240)
        self.assertEqual(done.returncode, 0)
        self.assertEqual([u["step"] for u in metrics(self.folder / "run")[0]], list(range(1, 21)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
