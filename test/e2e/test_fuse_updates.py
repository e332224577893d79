"""Gradients that are computed row by row inside the update: the same bits as stored gradients, on any number of threads, in less memory."""
import json
import unittest

import numpy as np
import onnx.helper as oh
import safetensors.numpy

import models
from common import EndToEnd, metrics

OPTIMIZERS = {"adamw": '[optimizer]\nkind = "adamw"\nlr = 0.01\n',
              "eighths": '[optimizer]\nkind = "adamw"\nlr = 0.01\nmoments = "8bit"\n',
              "momentum": '[optimizer]\nkind = "sgd"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.01\n',
              "sgd": '[optimizer]\nkind = "sgd"\nlr = 0.1\n'}


class FuseUpdates(EndToEnd):
    def model(self, batch, sizes, trans=1):
        nodes, weights, value = [], {}, "x"
        for i, (n, m) in enumerate(zip(sizes, sizes[1:])):
            shape = (m, n) if trans else (n, m)
            weights[f"w{i}"] = models.random(i, *shape) / np.float32(np.sqrt(n))
            weights[f"b{i}"] = models.random(50 + i, m)
            last = i == len(sizes) - 2
            nodes.append(oh.make_node("Gemm", [value, f"w{i}", f"b{i}"], ["logits" if last else f"h{i}"], f"layer{i}", transB=trans))
            value = f"h{i}"
            if not last:
                nodes.append(oh.make_node("Relu", [value], [f"a{i}"], f"relu{i}"))
                value = f"a{i}"
        return models.save(self.folder / f"mlp{batch}-{trans}.onnx", nodes, {"x": [batch, sizes[0]]}, {"logits": [batch, sizes[-1]]}, weights)

    def compiled(self, model, name, *words, threads=8):
        """The plan, and the number of gradients that it computes row by row."""
        plan = self.compile(model, "--threads", threads, "--set", "compiler.fuse=true", *words, "--dump-phases-to", f"ir-{name}", plan=f"{name}.tplan")
        return plan, next((self.folder / f"ir-{name}").glob("*-memory.mlir")).read_text().count("train.rowwise")

    def check(self, model, data, name, *words):
        bits = {}
        for fused in ("true", "false"):
            plan, count = self.compiled(model, f"{name}-{fused}", "--set", f"compiler.fuse_updates={fused}", *words)
            self.assertEqual(count > 0, fused == "true")
            for threads in (1, 2, 3, 8):
                out = f"{name}-{fused}-{threads}"
                run = self.train(plan, data, "--threads", threads, out=out)
                updates = tuple((line["loss"], line["grad_norm"]) for line in metrics(run)[0])
                self.weights(run, f"{out}.safetensors")
                bits[(fused, threads)] = (self.folder / f"{out}.safetensors").read_bytes(), updates
        self.assertEqual(len(set(bits.values())), 1, name)

    def arena(self, model, fused, *words):
        plan, _ = self.compiled(model, f"arena-{fused}", "--set", f"compiler.fuse_updates={fused}", *words, threads=2)
        return self.report(plan)["memory"]["arena_bytes"]

    def test_same_bits_in_less_memory(self):
        """Rows of 784 have a tail, a batch of 5 has short sums, and weights are stored in either orientation."""
        for batch, sizes, trans in ((5, (784, 256, 300, 10), 1), (64, (320, 512, 10), 0)):
            model = self.model(batch, sizes, trans)
            data = self.save(f"d{batch}.safetensors", **models.labelled(batch, 10, sizes[0]))
            for kind, text in OPTIMIZERS.items():
                recipe = self.write(f"{kind}.toml", models.CLASSES + text)
                words = "--recipe", recipe, "--entry", "train"
                self.check(model, data, f"{batch}-{kind}", *words)
                # Rows of 784 elements end inside blocks of 256, so the largest gradient is stored.
                smaller = self.assertLessEqual if kind == "eighths" and batch == 5 else self.assertLess
                smaller(self.arena(model, "true", *words), self.arena(model, "false", *words), (batch, kind))

    def test_bf16(self):
        model = self.model(64, (512, 512, 10))
        data = self.save("d.safetensors", **models.labelled(64, 10, 512))
        recipe = self.write("r.toml", models.CLASSES + OPTIMIZERS["adamw"])
        bits = set()
        for fused in ("true", "false"):
            plan, _ = self.compiled(model, f"bf16-{fused}", "--recipe", recipe, "--precision", "bf16", "--set", f"compiler.fuse_updates={fused}")
            for threads in (1, 2, 3):
                out = f"bf16-{fused}-{threads}"
                self.weights(self.train(plan, data, "--threads", threads, out=out), f"{out}.safetensors")
                bits.add((self.folder / f"{out}.safetensors").read_bytes())
        self.assertEqual(len(bits), 1)

    def test_gradients_that_somebody_reads_are_stored(self):
        """Clipping by norm needs all gradients, an accumulator keeps them, and `gradients` returns them."""
        model = self.model(64, (320, 512, 10))
        for name, text in (("clip", "[train]\nclip_norm = 1.0\n"), ("accumulate", "[train]\naccumulate = 2\n")):
            recipe = self.write(f"{name}.toml", models.CLASSES + OPTIMIZERS["adamw"] + text)
            self.assertEqual(self.compiled(model, name, "--recipe", recipe, "--entry", "train")[1], 0, name)
        recipe = self.write("plain.toml", models.CLASSES + OPTIMIZERS["adamw"])
        self.assertEqual(self.compiled(model, "gradients", "--recipe", recipe, "--entry", "gradients")[1], 0)

    def test_a_profile_names_both(self):
        plan, _ = self.compiled(self.model(64, (320, 512, 10)), "profile", "--recipe", self.write("r.toml", models.CLASSES + OPTIMIZERS["adamw"]))
        data = self.save("d.safetensors", **models.labelled(64, 10, 320))
        kernels = json.loads(self.succeed("trun", "profile", plan, "--data", data, "--threads", 2, "--json").out)["kernels"]
        self.assertRegex(self.succeed("tcc", "report", plan).out, r"matmul rows to kernel k[0-9a-f]{12} ")
        self.assertTrue([k for k in kernels if "matmul 512x320x64 TN by rows to kernel" in k["what"] and "optimizer" in k["writes"]])


class Tables(EndToEnd):
    """If indices name few rows of a table, its gradient is never written out with zeros."""
    ROWS, WIDTH, BATCH, LENGTH = 2048, 64, 4, 8

    def case(self, tied):
        model = models.embedding(self.folder / f"table-{tied}.onnx", self.BATCH, self.LENGTH, self.ROWS, self.WIDTH, tied)
        rng = np.random.default_rng(3)
        x = rng.integers(0, 12, (2 * self.BATCH, self.LENGTH)).astype(np.float32)          # most rows several times
        x[:, 0], x[:, 1] = -1, self.ROWS - 1                                                # the same row by two indices
        labels = rng.integers(0, self.ROWS if tied else 10, x.shape)
        return model, x, labels

    def wanted(self, tied, x, labels):
        """The table's gradient of the mean cross-entropy, in f64."""
        table, w = (models.random(1, self.ROWS, self.WIDTH).astype(np.float64), models.random(2, self.WIDTH, 10).astype(np.float64))
        numbers = x.astype(np.int64).ravel()
        found = table[numbers]
        logits = found @ (table.T if tied else w)
        probabilities = np.exp(logits - logits.max(-1, keepdims=True))
        probabilities /= probabilities.sum(-1, keepdims=True)
        probabilities[np.arange(len(numbers)), labels.ravel()] -= 1
        probabilities /= len(numbers)
        gradient = probabilities.T @ found if tied else np.zeros_like(table)
        np.add.at(gradient, numbers, probabilities @ (table if tied else w.T))
        return gradient

    def test_gradients_are_those_of_numpy(self):
        for tied in (True, False):
            model, x, labels = self.case(tied)
            x, labels = x[:self.BATCH], labels[:self.BATCH]
            plan = self.compile(model, "--recipe", self.write("r.toml", models.CLASSES + "class_axis = -1\n" + OPTIMIZERS["adamw"]), "--entry", "gradients")
            self.succeed("trun", "gradients", plan, "--inputs", self.save("in.safetensors", x=x, labels=labels), "--outputs", "g.safetensors")
            got = safetensors.numpy.load_file(self.folder / "g.safetensors")["table"]
            want = self.wanted(tied, x, labels)
            self.assertLess(np.abs(got - want).max(), 1e-6 * np.abs(want).max(), tied)
            report = self.report(plan)["zero_fill"]
            self.assertEqual(report["kept"], [])
            self.assertIn({"parameter": "table", "bytes": 4 * self.ROWS * self.WIDTH,
                           "reason": "at most 32 of its 2048 rows are summed, apart from it"}, report["elided"])

    def test_same_bits_wherever_the_sums_are_read(self):
        """The sums are read with a product's rows, by a kernel that reads a stored product, alone, and without fusion."""
        for tied in (True, False):
            model, x, labels = self.case(tied)
            data = self.save(f"d-{tied}.safetensors", x=x, labels=labels)
            for kind, more in (("plain", ""), ("clip", "[train]\nclip_norm = 0.01\n"), ("accumulate", "[train]\naccumulate = 2\n")):
                recipe = self.write(f"{kind}.toml", models.CLASSES + "class_axis = -1\n" + OPTIMIZERS["adamw"] + more)
                bits = set()
                for name, words in (("rows", []), ("stored", ["--set", "compiler.fuse_updates=false"]), ("apart", ["--set", "compiler.fuse=false"])):
                    plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--threads", 8, *words, plan=f"{kind}-{name}.tplan")
                    for threads in (1, 2, 3, 8) if name == "rows" else (2,):
                        out = f"{tied}-{kind}-{name}-{threads}"
                        run = self.train(plan, data, "--threads", threads, out=out, steps=2)
                        self.weights(run, f"{out}.safetensors")
                        bits.add((self.folder / f"{out}.safetensors").read_bytes())
                self.assertEqual(len(bits), 1, (tied, kind))

    def test_operands_larger_than_the_gradient_do_not_wait(self):
        """A tied table's update waits for the look-up's gradient, so that fusing its product would keep the operands alive until then."""
        recipe = self.write("r.toml", models.CLASSES + "class_axis = -1\n" + OPTIMIZERS["adamw"])
        for batch, by_rows in ((4, True), (32, False)):        # logits of 256 KiB and 2 MiB, a gradient of 512 KiB
            model = models.embedding(self.folder / f"{batch}.onnx", batch, self.LENGTH, self.ROWS, self.WIDTH, True)
            self.compile(model, "--recipe", recipe, "--entry", "train", "--set", "compiler.fuse=true", "--dump-phases-to", f"ir-{batch}")
            ir = next((self.folder / f"ir-{batch}").glob("*-memory.mlir")).read_text()
            self.assertEqual("train.rowwise" in ir, by_rows, batch)

    def test_no_gradient_of_the_tables_size_is_stored(self):
        bytes_of_table = 4 * self.ROWS * self.WIDTH
        for tied in (True, False):
            model, _, _ = self.case(tied)
            recipe = self.write("r.toml", models.CLASSES + "class_axis = -1\n" + OPTIMIZERS["adamw"])
            plan = self.compile(model, "--recipe", recipe, "--entry", "train", "--set", "compiler.fuse=true")
            buffers = self.report(plan)["memory"]["entries"]["train"]["programs"]["step"]["buffers"]
            self.assertFalse([b for b in buffers if b["bytes"] >= bytes_of_table and b["purpose"] not in ("state", "scratch")], tied)


if __name__ == "__main__":
    unittest.main(verbosity=2)
