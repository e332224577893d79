"""Messages and exit statuses for data that does not fit the plan, damaged plans, and places that cannot be written."""
import resource
import signal
import struct
import unittest

import numpy as np

import models
from common import EndToEnd, metrics


class Trained(EndToEnd):
    """A compiled two-layer network, batch 8, and good data for it."""

    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "mlp.onnx")
        self.recipe = self.write("recipe.toml", models.SQUARES + models.SGD)
        self.plan = self.compile(self.model, "--recipe", self.recipe, "--entry", "train,evaluate,predict,gradients")
        self.good = models.mlp_data(32)
        self.data = self.save("good.safetensors", **self.good)

    def rejected(self, data, *patterns, status=1, arguments=(), **options):
        return self.refuse(status, patterns, "trun", self.plan, "--data", data, "--no-shuffle", "--steps", 5, "--out", "run",
                           *arguments, **options)


class BadData(Trained):
    def test_good_data_trains(self):
        """The control for all other tests."""
        updates, _ = metrics(self.train(self.plan, self.data, steps=5))
        self.assertEqual([u["step"] for u in updates], [1, 2, 3, 4, 5])

    def test_no_such_file(self):
        self.rejected("nowhere.safetensors", r"nowhere\.safetensors")

    def test_wrong_column(self):
        self.rejected(self.save("d.safetensors", picture=self.good["x"], y=self.good["y"]), r"\bx\b", "picture")

    def test_wrong_type(self):
        self.rejected(self.save("d.safetensors", x=self.good["x"].astype(np.float64), y=self.good["y"]),
                      r"\bx\b", "f64", "f32")

    def test_wrong_shape(self):
        self.rejected(self.save("d.safetensors", x=self.good["x"][:, :4], y=self.good["y"]), r"\bx\b", "4", "5")

    def test_columns_of_different_length(self):
        self.rejected(self.save("d.safetensors", x=self.good["x"], y=self.good["y"][:16]), "32", "16")

    def test_too_few_samples(self):
        self.rejected(self.save("d.safetensors", **models.mlp_data(7)), "7", "8")

    def test_truncated(self):
        whole = self.data.read_bytes()
        for length in (0, 4, 20, len(whole) // 2, len(whole) - 1):
            with self.subTest(length=length):
                self.rejected(self.write("cut.safetensors", whole[:length]), r"cut\.safetensors")

    def test_not_what_its_name_says(self):
        for name in ("d.safetensors", "d.npz", "d.npy", "d.tar", "d.xyz"):
            with self.subTest(name=name):
                self.rejected(self.write(name, b"no data at all, and odd\n" * 9), name.replace(".", r"\."))

    def test_labels_outside_the_classes(self):
        model = models.classifier(self.folder / "c.onnx", 8, 5, 3)
        plan = self.compile(model, "--recipe", self.write("c.toml", models.CLASSES + models.SGD), plan="c.tplan")
        columns = models.labelled(16, 3, 5)
        columns["labels"][10] = 3
        data = self.save("d.safetensors", **columns)
        self.refuse(1, ["labels", "3"], "trun", plan, "--data", data, "--no-shuffle", "--steps", 2, "--out", "run")

    def test_run_folder_that_exists(self):
        """An existing folder is refused and left unchanged, even if it is empty."""
        (self.folder / "run").mkdir()
        self.rejected(self.data, r"run: exists already, and is empty: remove it \(rmdir\)")
        self.assertEqual(list((self.folder / "run").iterdir()), [])
        (self.folder / "run" / "checkpoints").mkdir()
        self.rejected(self.data, "run: exists already; give another --out, or go on with it by --resume run")
        (self.folder / "run" / "checkpoints").rmdir()
        (self.folder / "run" / "notes.txt").write_text("mine")
        self.rejected(self.data, r"\brun\b", "--resume")
        self.assertEqual((self.folder / "run" / "notes.txt").read_text(), "mine")

    def test_inputs_of_predict_and_gradients(self):
        wrong = self.save("wrong.safetensors", z=self.good["x"][:8])
        for verb in ("predict", "gradients"):
            with self.subTest(verb=verb):
                self.refuse(1, [r"\bx\b", r"\bz\b"], "trun", verb, self.plan, "--inputs", wrong, "--outputs", "o.safetensors")

    def test_wrong_weights(self):
        wrong = self.save("w.safetensors", w1=np.zeros((3, 3), np.float32))
        self.rejected(self.data, "w1|b1|w2|b2", arguments=["--init", wrong])


class BadSettings(Trained):
    def test_unknown_device(self):
        self.rejected(self.data, "tpu", r"\bcpu\b", status=2, arguments=["--device", "tpu"])

    def test_settings_that_need_compilation(self):
        self.rejected(self.data, "loss.kind", r"recompile with tcc --set loss\.kind=l1", status=2,
                      arguments=["--set", "loss.kind=l1"])
        self.rejected(self.data, r"compiler\.fuse_updates is compiled into the plan",
                      r"recompile with tcc --set compiler\.fuse_updates=false", status=2,
                      arguments=["--set", "compiler.fuse_updates=false"])

    def test_unknown_setting_names_the_nearest(self):
        self.rejected(self.data, r"optimizer\.lrr", r"optimizer\.lr\b", status=2, arguments=["--set", "optimizer.lrr=1"])


class NotFinite(Trained):
    def test_stops_before_the_update(self):
        """A NaN in the third batch: exit status 4, and the weights are those after two updates."""
        x = self.good["x"].copy()
        x[17, 2] = np.nan
        bad = self.save("nan.safetensors", x=x, y=self.good["y"])
        before = self.weights(self.train(self.plan, bad, out="two", steps=2), "two.safetensors")
        result = self.rejected(bad, "step 3|update 3", "finite|nan", status=4, arguments=["--checkpoint-every", 1])
        self.assertNotIn("Traceback", result.err)
        after = self.weights("run", "run.safetensors")
        for name, value in before.items():
            self.assertTrue(np.array_equal(value, after[name]), f"{name} was changed by the update that had to be skipped")

    def test_a_rate_that_explodes(self):
        self.rejected(self.data, "finite|inf|nan", status=4, arguments=["--set", "optimizer.lr=1e30"])


class BadPlans(Trained):
    def test_verify_accepts_the_plan(self):
        self.succeed("trun", "verify", self.plan)

    def every_reader_refuses(self, *patterns):
        self.refuse(1, patterns, "trun", "verify", "bad.tplan")
        self.refuse(1, patterns, "trun", "bad.tplan", "--data", self.data, "--steps", 1, "--out", "run")
        self.refuse(1, patterns, "tcc", "report", "bad.tplan")

    def test_no_plan(self):
        self.write("bad.tplan", b"hello " * 100)
        self.every_reader_refuses(r"bad\.tplan")

    def test_truncated(self):
        whole = self.plan.read_bytes()
        for length in (0, 5, 15, 16, 100, len(whole) // 2, len(whole) - 1):
            with self.subTest(length=length):
                self.write("bad.tplan", whole[:length])
                self.refuse(1, [r"bad\.tplan"], "trun", "verify", "bad.tplan")
        self.every_reader_refuses(r"bad\.tplan")

    def test_newer_version(self):
        whole = bytearray(self.plan.read_bytes())
        version = struct.unpack_from("<I", whole, 8)[0]
        struct.pack_into("<I", whole, 8, version + 41)
        self.write("bad.tplan", bytes(whole))
        self.every_reader_refuses(r"bad\.tplan", rf"\b{version + 41}\b", rf"\b{version}\b")

    def test_flipped_byte(self):
        whole = self.plan.read_bytes()
        places = [*range(0, 24), *map(int, np.random.default_rng(0).integers(24, len(whole), 60)), len(whole) - 1]
        for place in places:
            with self.subTest(place=place, of=len(whole)):
                bad = bytearray(whole)
                bad[place] ^= 0x10
                self.write("bad.tplan", bytes(bad))
                self.refuse(1, [r"bad\.tplan"], "trun", "verify", "bad.tplan")
        self.refuse(1, [r"bad\.tplan"], "trun", "bad.tplan", "--data", self.data, "--steps", 1, "--out", "run")


def limit_files(size):
    """Simulates a full disk for one process: writing beyond `size` bytes of a file is an error."""
    def prepare():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return prepare


class Unwritable(Trained):
    """A disk with room for kernels, but not for the weights of this model (450 KB)."""

    ROOM = 200_000

    def setUp(self):
        super().setUp()
        self.model = models.mlp(self.folder / "mlp.onnx", width=16384)
        self.plan = self.compile(self.model, "--recipe", self.recipe, "--entry", "train,evaluate,predict,gradients")

    def nothing_left(self, *names):
        for name in names:
            self.assertEqual(list(self.folder.glob(name)), [], f"{name}: half a file was left behind")

    def test_plan_into_a_folder_that_is_none(self):
        self.refuse(1, [r"nowhere"], "tcc", self.model, "--recipe", self.recipe, "-o", "nowhere/p.tplan")
        self.refuse(1, [r"mlp\.onnx/p\.tplan"], "tcc", self.model, "--recipe", self.recipe, "-o", "mlp.onnx/p.tplan")
        self.refuse(1, [r"/proc/p\.tplan"], "tcc", self.model, "--recipe", self.recipe, "-o", "/proc/p.tplan")

    def test_plan_onto_a_full_disk(self):
        self.refuse(1, [r"full\.tplan"], "tcc", self.model, "--recipe", self.recipe, "-o", "full.tplan", prepare=limit_files(self.ROOM))
        self.nothing_left("full*")

    def test_a_failed_compilation_keeps_the_old_plan(self):
        before = self.plan.read_bytes()
        self.refuse(1, [r"plan\.tplan"], "tcc", self.model, "--recipe", self.recipe, "-o", "plan.tplan", prepare=limit_files(self.ROOM))
        self.assertTrue(self.plan.read_bytes() == before)

    def test_run_folder(self):
        self.refuse(1, ["/proc/run"], "trun", self.plan, "--data", self.data, "--steps", 1, "--out", "/proc/run")
        self.refuse(1, [r"mlp\.onnx/run"], "trun", self.plan, "--data", self.data, "--steps", 1, "--out", "mlp.onnx/run")

    def test_run_onto_a_full_disk(self):
        self.rejected(self.data, r"\brun/", prepare=limit_files(self.ROOM))

    def test_export_onto_a_full_disk(self):
        self.train(self.plan, self.data)
        for name in ("full.onnx", "full.safetensors"):
            with self.subTest(name=name):
                self.refuse(1, [name.replace(".", r"\.")], "trun", "export", "run", "-o", name, prepare=limit_files(self.ROOM))
                self.nothing_left("full*")

    def test_outputs_of_predict_and_gradients(self):
        inputs = self.save("in.safetensors", **models.mlp_data(8))
        for verb in ("predict", "gradients"):
            with self.subTest(verb=verb):
                self.refuse(1, ["nowhere"], "trun", verb, self.plan, "--inputs", inputs, "--outputs", "nowhere/o.safetensors")


if __name__ == "__main__":
    unittest.main(verbosity=2)
