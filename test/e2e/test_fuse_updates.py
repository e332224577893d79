"""Gradients made row by row where the parameter is updated: the same bits as stored ones, on any number of threads, in less memory."""
import json
import unittest

import numpy as np
import onnx.helper as oh

import models
from common import EndToEnd, metrics

OPTIMIZERS = {"adamw": '[optimizer]\nkind = "adamw"\nlr = 0.01\n',
              "momentum": '[optimizer]\nkind = "sgd"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.01\n',
              "sgd": '[optimizer]\nkind = "sgd"\nlr = 0.1\n'}
WIDE = open("/proc/cpuinfo").read().count("avx512dq") > 0  # else products have no panels, and every gradient is stored


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
        """The plan, and how many gradients it makes row by row."""
        plan = self.compile(model, "--threads", threads, *words, "--dump-phases-to", f"ir-{name}", plan=f"{name}.tplan")
        return plan, next((self.folder / f"ir-{name}").glob("*-memory.mlir")).read_text().count("train.rowwise")

    def check(self, model, data, name, *words):
        bits = {}
        for fused in ("true", "false"):
            plan, count = self.compiled(model, f"{name}-{fused}", "--set", f"compiler.fuse_updates={fused}", *words)
            self.assertEqual(count > 0, fused == "true" and WIDE)
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
        """Rows of 784 have a tail; a batch of 5 a short sum; weights lie either way."""
        for batch, sizes, trans in ((5, (784, 256, 300, 10), 1), (64, (320, 512, 10), 0)):
            model = self.model(batch, sizes, trans)
            data = self.save(f"d{batch}.safetensors", **models.labelled(batch, 10, sizes[0]))
            for kind, text in OPTIMIZERS.items():
                recipe = self.write(f"{kind}.toml", models.CLASSES + text)
                words = "--recipe", recipe, "--entry", "train"
                self.check(model, data, f"{batch}-{kind}", *words)
                if WIDE:
                    self.assertLess(self.arena(model, "true", *words), self.arena(model, "false", *words), (batch, kind))

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
        """Clipping by norm waits for all gradients, an accumulator keeps them, `gradients` hands them out."""
        model = self.model(64, (320, 512, 10))
        for name, text in (("clip", "[train]\nclip_norm = 1.0\n"), ("accumulate", "[train]\naccumulate = 2\n")):
            recipe = self.write(f"{name}.toml", models.CLASSES + OPTIMIZERS["adamw"] + text)
            self.assertEqual(self.compiled(model, name, "--recipe", recipe, "--entry", "train")[1], 0, name)
        recipe = self.write("plain.toml", models.CLASSES + OPTIMIZERS["adamw"])
        self.assertEqual(self.compiled(model, "gradients", "--recipe", recipe, "--entry", "gradients")[1], 0)

    @unittest.skipUnless(WIDE, "no panels on this machine")
    def test_a_profile_names_both(self):
        plan, _ = self.compiled(self.model(64, (320, 512, 10)), "profile", "--recipe", self.write("r.toml", models.CLASSES + OPTIMIZERS["adamw"]))
        data = self.save("d.safetensors", **models.labelled(64, 10, 320))
        kernels = json.loads(self.succeed("trun", "profile", plan, "--data", data, "--threads", 2, "--json").out)["kernels"]
        self.assertRegex(self.succeed("tcc", "report", plan).out, r"matmul packed:avx512 by rows to k[0-9a-f]{12} ")
        self.assertTrue([k for k in kernels if "matmul 512x320x64 TN by rows to kernel" in k["what"] and "optimizer" in k["writes"]])


if __name__ == "__main__":
    unittest.main(verbosity=2)
