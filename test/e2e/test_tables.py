"""Tables: training from CSV, JSON lines, Parquet and Arrow gives the bits of the same data in safetensors; a run keeps its categories,
values for missing cells and columns' constants; predictions are written in each format."""
import io
import json
import os
import re
import subprocess
import unittest

import numpy as np
import safetensors.numpy

import models
from common import BIN, PLUGINS, EndToEnd, metrics

ROWS, FEATURES, CLASSES = 60, 3, 3
SPECIES = ["setosa", "versicolor", "virginica"]
BATCH = ("--set", "model.dims.batch=8")
STANDARDISE = "data.transform=[{ kind = 'standardise', column = 'x' }]"

rng = np.random.default_rng(11)
LABELS = rng.integers(0, CLASSES, ROWS)
X = (rng.standard_normal((ROWS, FEATURES)) + LABELS[:, None]).astype(np.float32)


def csv(rows=range(ROWS), separator=",", x=X, species=True):
    names = [f"x.{i}" for i in range(FEATURES)] + (["species"] if species else []) + ["note"]
    lines = [separator.join(names)]
    for row in rows:
        words = [repr(float(value)) if value is not None else "" for value in x[row]]
        words += [SPECIES[LABELS[row]]] if species else []
        lines.append(separator.join([*words, '"one, or; two"']))
    return "\r\n".join(lines) + "\r\n"


class Tables(EndToEnd):
    def setUp(self):
        super().setUp()
        recipe = self.write("r.toml", models.CLASSES + models.SGD +
                            '[data]\nmap = { labels = "species" }\n[data.categories]\nspecies = "sorted"\n')
        self.plan = self.compile(models.classifier(self.folder / "m.onnx", "batch", FEATURES, CLASSES), "--recipe", recipe, *BATCH, "--entry",
                                 "train,evaluate,predict,gradients")

    def losses(self, data, *words, out):
        run = self.train(self.plan, data, *words, steps=12, out=out)
        return [line["loss"] for line in metrics(run)[0]], self.weights(run, f"{out}.safetensors")

    def same(self, wanted, data, *words, out):
        losses, weights = self.losses(data, *words, out=out)
        self.assertEqual(losses, wanted[0], out)
        for name, value in wanted[1].items():
            self.assertTrue(np.array_equal(value, weights[name]), (out, name))

    def test_every_format_gives_the_same_bits(self):
        wanted = self.plain(self.save("d.safetensors", x=X, labels=LABELS))
        self.same(wanted, self.write("d.csv", csv()), out="csv")
        self.same(wanted, self.write("d.tsv", csv(separator="\t")), out="tsv")
        objects = [json.dumps({"x": [float(v) for v in X[i]], "species": SPECIES[LABELS[i]], "note": {"any": ["thing"]}}) for i in range(ROWS)]
        self.same(wanted, self.write("d.jsonl", "\n".join(objects) + "\n"), out="jsonl")
        self.same(wanted, self.write("d.json", "[" + ",\n".join(objects) + "]"), out="json")
        # The number of threads that read ahead changes nothing.
        for workers in (0, 1, 2, 8):
            self.same(wanted, "d.csv", "--workers", workers, out=f"workers-{workers}")

    def plain(self, data):
        """The same training with integer labels."""
        recipe = self.write("plain.toml", models.CLASSES + models.SGD)
        plan = self.compile(self.folder / "m.onnx", "--recipe", recipe, *BATCH, plan="plain.tplan")
        run = self.train(plan, data, steps=12, out="plain")
        return [line["loss"] for line in metrics(run)[0]], self.weights(run, "plain.safetensors")

    def test_parquet_and_arrow(self):
        try:
            import pyarrow as pa
            import pyarrow.feather
            import pyarrow.parquet
        except ImportError:
            self.skipTest("no pyarrow")
        if not (PLUGINS / "trun-arrow.so").exists():
            self.skipTest("no trun-arrow.so")
        table = pa.table({"x": pa.array(list(X), pa.list_(pa.float32())), "species": [SPECIES[i] for i in LABELS],
                          "when": pa.array(range(ROWS), pa.timestamp("s"))})
        pyarrow.parquet.write_table(table, self.folder / "d.parquet", row_group_size=17)
        pyarrow.feather.write_feather(table, self.folder / "d.feather", chunksize=13)
        wanted = self.plain(self.save("d.safetensors", x=X, labels=LABELS))
        self.same(wanted, "d.parquet", out="parquet")
        self.same(wanted, "d.feather", out="feather")
        self.assertRegex(self.succeed("trun", "data", "d.parquet").out, r"(?s)Parquet, 60 samples.*x +f32\[60x3\].*species +text\[60\]")
        # f64, as pandas writes it, is refused until data.cast allows it.
        pyarrow.parquet.write_table(table.set_column(0, "x", pa.array([[float(v) for v in row] for row in X])), self.folder / "w.parquet")
        self.refuse(1, [r"f64 does not become f32 silently", r"data\.cast=f32"], "trun", self.plan, "--data", "w.parquet", "--out", "wide")
        self.same(wanted, "w.parquet", "--set", "data.cast=f32", out="cast")

    def test_the_run_keeps_what_categories_mean(self):
        self.train(self.plan, self.write("d.csv", csv()), steps=12)
        kept = json.loads((self.folder / "run" / "columns.json").read_text())
        self.assertEqual(kept["categories"]["species"], SPECIES)
        # Two of the three species, in another order, keep the run's numbers.
        some = [int(i) for i in np.resize(np.flatnonzero(LABELS > 0)[::-1], ROWS)]
        here = self.succeed("trun", "eval", self.plan, "--data", self.write("e.csv", csv(some)), "--from", "run").out
        plain = self.compile(self.folder / "m.onnx", "--recipe", self.write("plain.toml", models.CLASSES + models.SGD), *BATCH,
                             "--entry", "train,evaluate", plan="plain.tplan")
        self.weights("run")
        wanted = self.succeed("trun", "eval", plain, "--data", self.save("e.safetensors", x=X[some], labels=LABELS[some]),
                              "--from", "weights.safetensors").out
        self.assertEqual(here, wanted)
        unknown = self.write("u.csv", csv(some).replace("virginica", "alba", 1))
        self.refuse(1, [r"u\.csv: column 'species', sample \d+ \(line \d+\): 'alba' is none of its categories: setosa, versicolor, virginica"],
                    "trun", "eval", self.plan, "--data", unknown, "--from", "run")
        self.refuse(1, [r"data\.categories\.species", r"--from RUN"], "trun", "eval", self.plan, "--data", "e.csv")
        # A resumed run, and a new one from its weights, keep these numbers, too.
        self.succeed("trun", "--resume", "run", "--data", "e.csv", "--steps", 14)
        self.train(self.plan, "e.csv", "--init", "run", out="next")
        self.assertEqual(json.loads((self.folder / "next" / "columns.json").read_text())["categories"]["species"], SPECIES)
        self.refuse(1, [r"'alba'"], "trun", self.plan, "--data", unknown, "--init", "run", "--out", "other")
        # A damaged columns.json is refused.
        (self.folder / "run" / "columns.json").write_text(json.dumps({"categories": {"species": SPECIES[::-1]}}))
        self.refuse(1, [r"columns\.json: damaged or edited"], "trun", "eval", self.plan, "--data", "e.csv", "--from", "run")

    def test_a_confusion_matrix_names_the_texts(self):
        plan = self.compile("m.onnx", "--recipe", "r.toml", *BATCH, "--set", 'evaluate.metrics=["f1"]', plan="named.tplan")
        run = self.train(plan, self.write("d.csv", csv()), steps=12)
        self.succeed("trun", "eval", plan, "--data", "d.csv", "--from", run, "--confusion", "c.csv")
        lines = [line.split(",") for line in (self.folder / "c.csv").read_text().splitlines()]
        self.assertEqual(lines[0], ["target", *SPECIES])
        self.assertEqual([line[0] for line in lines[1:]], SPECIES)
        self.assertEqual([sum(map(int, line[1:])) for line in lines[1:]], np.bincount(LABELS).tolist())

    def test_predictions_name_the_classes(self):
        """Behind the scores is the name of the class with the largest one, by the run's numbering; without a run there is no name."""
        run = self.train(self.plan, self.write("d.csv", csv()), steps=12)
        inputs = self.write("i.csv", csv(species=False))
        self.succeed("trun", "predict", self.plan, "--inputs", inputs, "--outputs", "p.csv", "--from", run)
        self.succeed("trun", "predict", self.plan, "--inputs", inputs, "--outputs", "p.npz", "--from", run)
        lines = [line.split(",") for line in (self.folder / "p.csv").read_text().splitlines()]
        self.assertEqual(lines[0], [f"logits.{i}" for i in range(CLASSES)] + ["logits.class"])
        scores = np.load(self.folder / "p.npz")["logits"]
        np.testing.assert_array_equal(np.array([line[:-1] for line in lines[1:]], np.float32), scores)
        self.assertEqual([line[-1] for line in lines[1:]], [SPECIES[i] for i in scores.argmax(1)])
        self.assertGreater(len({line[-1] for line in lines[1:]}), 1, "more than one class is predicted")
        self.succeed("trun", "predict", self.plan, "--inputs", inputs, "--outputs", "q.csv")
        self.assertEqual((self.folder / "q.csv").read_text().splitlines()[0], ",".join(f"logits.{i}" for i in range(CLASSES)))

    def test_standardise(self):
        far = (X * [1, 100, 0.01] + [5, -300, 7]).astype(np.float64)
        data = self.write("d.csv", csv(x=far))
        run = self.train(self.plan, data, "--set", STANDARDISE, steps=12)
        kept = json.loads((run / "columns.json").read_text())["standardise"]["x"]
        np.testing.assert_allclose(kept["mean"], far.mean(0), rtol=1e-12)
        np.testing.assert_allclose(kept["std"], far.std(0), rtol=1e-12)
        # The result equals training on columns that were standardised beforehand.
        ready = self.save("d.safetensors", x=((far - kept["mean"]) / kept["std"]).astype(np.float32), labels=LABELS)
        wanted = self.plain(ready)
        losses = [line["loss"] for line in metrics(run)[0]]
        self.assertEqual(losses, wanted[0])
        for workers in (0, 1, 2, 8):
            self.same(wanted, data, "--set", STANDARDISE, "--workers", workers, out=f"workers-{workers}")
        # Other rows are standardised with the training data's constants.
        part = self.write("e.csv", csv(range(10), x=far, species=False))
        self.succeed("trun", "predict", self.plan, "--inputs", part, "--outputs", "p.safetensors", "--from", "run")
        some = safetensors.numpy.load_file(self.folder / "p.safetensors")["logits"]
        self.succeed("trun", "predict", self.plan, "--inputs", self.write("f.csv", csv(x=far)), "--outputs", "q.safetensors", "--from", "run")
        self.assertTrue(np.array_equal(some, safetensors.numpy.load_file(self.folder / "q.safetensors")["logits"][:10]))
        self.refuse(1, [r"standardise", r"'x'", r"--from RUN"], "trun", "predict", self.plan, "--inputs", part, "--outputs",
                    "o.safetensors", "--set", STANDARDISE)
        # A resumed run keeps the run's constants, whatever the data are now, and has the bits of an uninterrupted run.
        self.train(self.plan, data, "--set", STANDARDISE, steps=6, out="half")
        self.succeed("trun", "--resume", "half", "--steps", 12)
        whole, resumed = self.weights("run", "a.safetensors"), self.weights("half", "b.safetensors")
        for name, value in whole.items():
            self.assertTrue(np.array_equal(value, resumed[name]), name)

    def test_missing_values(self):
        rows = [list(map(float, row)) for row in X]
        rows[4][1] = rows[9][0] = None
        data = self.write("d.csv", csv(x=rows))
        self.refuse(1, [r"d\.csv:6: column 'x', element 1: the value is missing", r"data\.missing\.x", r"2 of 60 samples", r"data\.max_bad=2"],
                    "trun", self.plan, "--data", data, "--out", "run")
        self.train(self.plan, data, "--set", "data.max_bad=2", steps=7, out="skipped")
        self.assertEqual(metrics(self.folder / "skipped")[0][-1]["damaged_samples"], 2)
        filled = X.copy().astype(np.float64)
        filled[4, 1] = np.delete(X[:, 1].astype(np.float64), 4).sum() / (ROWS - 1)
        filled[9, 0] = np.delete(X[:, 0].astype(np.float64), 9).sum() / (ROWS - 1)
        losses, _ = self.losses(data, "--set", "data.missing.x=mean", out="mean")
        wanted = self.plain(self.save("d.safetensors", x=filled.astype(np.float32), labels=LABELS))
        np.testing.assert_allclose(losses, wanted[0], rtol=1e-6)
        # Missing cells get the run's means.
        self.succeed("trun", "predict", self.plan, "--inputs", data, "--outputs", "p.npy", "--from", "mean")
        shown = self.succeed("trun", "data", data).out
        self.assertRegex(shown, r"x +f64\[60x3\].* 2\n")

    def test_data_describes_tables(self):
        shown = self.succeed("trun", "data", self.write("d.csv", csv(separator=";"))).out
        self.assertIn("CSV separated by semicolons, 60 samples", shown)
        self.assertRegex(shown, r"species +text\[60\]")
        self.assertIn("texts of species: setosa, versicolor, virginica", shown)
        shown = self.succeed("trun", "data", "d.csv", "--plan", self.plan).out
        self.assertIn("categories of species: setosa, versicolor, virginica", shown)
        shown = self.succeed("trun", "data", self.write("e.csv", "x,na\x1bme\n1,\x1b[31mred\n")).out
        self.assertNotIn("\x1b", shown, "names and texts of a file do not reach the terminal as they are")

    def test_predictions_are_replaced_on_file_systems_without_attributes(self):
        source = self.write("no_attributes.c", "#include <errno.h>\n"
                            "int fsetxattr(int f, const char *n, const void *v, unsigned long s, int o) { errno = ENOTSUP; return -1; }\n"
                            "long fgetxattr(int f, const char *n, void *v, unsigned long s) { errno = ENOTSUP; return -1; }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.folder / "no_attributes.so", source], check=True)
        self.train(self.plan, self.write("d.csv", csv()), steps=2)
        words = ("trun", "predict", self.plan, "--inputs", "d.csv", "--from", "run", "--outputs", "p.csv")
        options = {"env": {"LD_PRELOAD": str(self.folder / "no_attributes.so")}}
        self.succeed(*words, **options)
        first = (self.folder / "p.csv").read_bytes()
        self.assertTrue((self.folder / ".p.csv.trun").read_text().startswith("trun wrote "))
        self.succeed(*words, **options)
        self.assertEqual((self.folder / "p.csv").read_bytes(), first)
        self.write("p.csv", "treasure")
        self.refuse(1, [r"p\.csv: it exists"], *words, **options)
        self.assertEqual((self.folder / "p.csv").read_text(), "treasure")

    def test_predictions_in_every_format(self):
        self.train(self.plan, self.write("d.csv", csv()), steps=3)
        words = ("trun", "predict", self.plan, "--inputs", "d.csv", "--from", "run", "--outputs")
        self.succeed(*words, "p.safetensors")
        wanted = safetensors.numpy.load_file(self.folder / "p.safetensors")["logits"]
        self.succeed(*words, "p.npz")
        with np.load(self.folder / "p.npz") as found:
            self.assertEqual(list(found), ["logits"])
            self.assertTrue(np.array_equal(found["logits"], wanted))
        first = (self.folder / "p.npz").read_bytes()
        self.succeed(*words, "p.npz")
        self.assertEqual((self.folder / "p.npz").read_bytes(), first, "the same bytes")
        self.succeed(*words, "p.npy")
        self.assertTrue(np.array_equal(np.load(self.folder / "p.npy"), wanted))
        self.succeed(*words, "p.csv")
        text = (self.folder / "p.csv").read_text()
        self.assertEqual(text.splitlines()[0], "logits.0,logits.1,logits.2,logits.class")
        scores = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1, usecols=(0, 1, 2), dtype=np.float32)
        self.assertTrue(np.array_equal(scores, wanted))
        shown = self.succeed("trun", "data", "p.csv").out
        self.assertRegex(shown, r"logits +f64\[60x3\]")
        # trun replaces an earlier output that is unchanged since, and nothing else.
        for name in ("p.npz", "p.npy", "p.csv"):
            self.succeed(*words, name)
            changed = bytearray((self.folder / name).read_bytes())
            changed[-1] ^= 1
            (self.folder / name).write_bytes(changed)
            self.refuse(1, [name.replace(".", r"\.") + ": it exists and is not an unchanged file that trun wrote here", "another name"],
                        *words, name)
            self.assertEqual((self.folder / name).read_bytes(), changed)
        # These refusals come before trun reads anything.
        early = [*words, "p.csv"]
        early[early.index("d.csv")] = "absent.csv"
        self.refuse(1, [r"p\.csv: it exists"], *early)
        self.refuse(1, ["nowhere/p.npz: cannot write: No such file or directory"], *early[:-1], "nowhere/p.npz")
        self.refuse(2, [r"p\.pickle", r"\.safetensors, \.npz, \.npy, \.csv"], *words, "p.pickle")
        self.assertFalse((self.folder / "p.pickle").exists())
        batch = self.save("b.safetensors", x=X[:8], labels=LABELS[:8])
        words = ("trun", "gradients", self.plan, "--set", "data.map.labels=labels", "--inputs", batch, "--outputs")
        self.succeed(*words, "g.npz")
        self.succeed(*words, "g.safetensors")
        with np.load(self.folder / "g.npz") as found:
            for name, value in safetensors.numpy.load_file(self.folder / "g.safetensors").items():
                self.assertTrue(np.array_equal(found[name], value), name)
        self.refuse(2, [r"g\.csv", r"\.safetensors, \.npz"], *words, "g.csv")

    def test_npy(self):
        np.save(self.folder / "any name.npy", X)
        self.succeed("trun", "predict", self.plan, "--inputs", "any name.npy", "--outputs", "p.npy")
        self.assertEqual(np.load(self.folder / "p.npy").shape, (ROWS, CLASSES))
        (self.folder / "columns").mkdir()
        np.save(self.folder / "columns" / "x.npy", X)
        np.save(self.folder / "columns" / "labels.npy", LABELS)
        plain = self.compile(self.folder / "m.onnx", "--recipe", self.write("plain.toml", models.CLASSES + models.SGD), *BATCH, plan="plain.tplan")
        self.train(plain, "columns", out="folder")
        for array, patterns in [(np.asfortranarray(X), ["Fortran", "ascontiguousarray"]), (X.astype(">f4"), ["big-endian", "newbyteorder"]),
                                (X.astype(np.float64), ["f64 does not become f32", r"data\.cast=f32"]),
                                (X > 0, ["i1 does not become f32"]),
                                (np.zeros(8, [("a", "f4"), ("b", "i4")]), ["structured", r"array\[name\]"]),
                                (np.array([None] * 8, object), ["Python objects"]), (np.array(["a"] * 8), ["texts"]),
                                (X.astype(np.complex64), ["complex"])]:
            np.save(self.folder / "d.npy", array)
            self.refuse(1, [r"d\.npy", *patterns], "trun", "predict", self.plan, "--inputs", "d.npy", "--outputs", "o.npy")
        np.save(self.folder / "d.npy", X.astype(np.float64))
        self.succeed("trun", "predict", self.plan, "--inputs", "d.npy", "--outputs", "o.npy", "--set", "data.cast=f32")
        self.assertTrue(np.array_equal(np.load(self.folder / "o.npy"), np.load(self.folder / "p.npy")))
        wide = X.astype(np.float64)
        wide[7, 1] = 1e300
        np.save(self.folder / "d.npy", wide)
        self.refuse(1, [r"value 1e\+300 of sample 7 does not fit"], "trun", "predict", self.plan, "--inputs", "d.npy", "--outputs", "o.npy",
                    "--set", "data.cast=f32")


class WithoutArrow(EndToEnd):
    def test_the_way_out(self):
        """Without the plug-in, trun's message names it and a way to convert the file."""
        alone = self.folder / "bin"
        alone.mkdir()
        (alone / "trun").write_bytes((BIN / "trun").read_bytes())
        (alone / "trun").chmod(0o755)
        for name in ("d.parquet", "d.feather", "d.arrow"):
            self.write(name, b"PAR1")
            done = subprocess.run([alone / "trun", "data", self.folder / name], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertTrue(re.search(r"trun-arrow\.so, which is missing.*pyarrow.*to_csv.*numpy\.savez", done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main()
