"""tcc predict-scale: memory equals a real plan's, numbers rise or fall as they must, and refusals name their place."""
import json
import re
import shutil
import unittest

import numpy as np
import onnx

import test_phases
from test_shapes import RECIPE as SENTENCES, sentence_model
from common import ROOT, ZOO, EndToEnd

CLUSTERS = ROOT / "examples" / "clusters"
CLUSTER = """name = "a test"
target = "cpu:v3"
ranks_per_node = {ranks}
[device]
memory = "{memory}"
f32 = 1e12
memory_bandwidth = 1e11
[within]
bandwidth = {within}
latency = 2e-6
[between]
bandwidth = {between}
latency = 2e-5
"""


class PredictScale(EndToEnd):
    def cluster(self, name="c.toml", ranks=4, memory="64GiB", within=2e10, between=5e9):
        (self.folder / name).write_text(CLUSTER.format(ranks=ranks, memory=memory, within=within, between=between))
        return name

    def predict(self, case, *more, cluster="c.toml", model=None):
        folder = ZOO / case
        result = self.succeed("tcc", "predict-scale", model or folder / "model.onnx", "--recipe", folder / "recipe.toml",
                              "--cluster", cluster, "--json", *more)
        document = json.loads(result.out)
        return document, {(point["mode"], point["devices"]): point for point in document["points"]}

    def test_ddp_takes_what_its_plan_takes(self):
        self.cluster()
        for case, more in (("mlp", []), ("nano-gpt", ["--set", "train.accumulate=3"]), ("cnn-bn", [])):
            with self.subTest(case):
                _, points = self.predict(case, *more)
                self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--entry", "train", "--target",
                             "cpu:v3", "--set", "parallel.mode=ddp", *more)
                memory = json.loads(self.succeed("tcc", "report", "plan.tplan", "--json").out)["memory"]
                for devices in (2, 64, 4096):
                    self.assertEqual(points["ddp", devices]["state_bytes"], memory["resident_bytes"])
                    self.assertEqual(points["ddp", devices]["arena_bytes"], memory["arena_bytes"])

    def test_shards_of_state_are_those_of_sharded_plans(self):
        self.cluster()
        for case, more in (("mlp", []), ("nano-gpt", ["--set", "optimizer.kind=adamw"]),
                           ("mlp", ["--set", "train.ema.decay=0.9", "--set", "train.ema.on=device"])):
            _, points = self.predict(case, *more)
            for mode, place, devices in (("grad_op", "parallel.ranks=4", 4), ("full", "parallel.ranks=4", 4),
                                         ("hybrid", "parallel.shard_within_node=4", 8)):
                words = [*more, "--set", f"parallel.mode={mode}", "--set", place]
                with self.subTest(f"{case} {mode}"):
                    self.compile(ZOO / case / "model.onnx", "--recipe", ZOO / case / "recipe.toml", "--entry", "train", "--target",
                                 "cpu:v3", *words)
                    memory = json.loads(self.succeed("tcc", "report", "plan.tplan", "--json").out)["memory"]
                    self.assertEqual(points[mode, devices]["state_bytes"], memory["resident_bytes"])
                    # A recipe that sets this mode itself gets the same prediction.
                    self.assertEqual(self.predict(case, *words)[1], points)

    def memory_of(self, model, recipe, target, *words):
        self.compile(model, "--recipe", recipe, "--entry", "train", "--target", target, *words)
        return json.loads(self.succeed("tcc", "report", "plan.tplan", "--json").out)

    SHARDED = (("grad_op", ["--set", "parallel.mode=grad_op", "--set", "parallel.ranks=4"], 4),
               ("full", ["--set", "parallel.mode=full", "--set", "parallel.ranks=8"], 8),
               ("hybrid", ["--set", "parallel.mode=hybrid", "--set", "parallel.shard_within_node=4"], 8))

    def test_shards_of_accumulators_and_moments_in_8_bits(self):
        """Beside --set, a recipe of any mode, and one without a mode, may have these keys."""
        self.cluster()
        model, recipe = ZOO / "nano-gpt" / "model.onnx", ZOO / "nano-gpt" / "recipe.toml"
        words = ["--set", "train.accumulate=3", "--set", "optimizer.kind=adamw", "--set", 'optimizer.moments="8bit"', "--set",
                 "parallel.bucket_bytes=4000"]
        shards = ["--set", "parallel.accumulators=shards"]
        document, whole = self.predict("nano-gpt", *words)
        _, points = self.predict("nano-gpt", *words, *shards)
        gradients = document["gradient_bytes"]
        full = ("full", ["--set", "parallel.mode=full", "--set", "parallel.ranks=4"], 4)
        for mode, place, devices in (self.SHARDED[0], full, self.SHARDED[2]):
            with self.subTest(mode):
                memory = self.memory_of(model, recipe, "cpu:v3", *words, *shards, *place)["memory"]
                point = points[mode, devices]
                self.assertEqual(point["state_bytes"], memory["resident_bytes"])
                self.assertLess(abs(point["memory_bytes"] / (memory["resident_bytes"] + memory["arena_bytes"]) - 1), 0.5)
                self.assertEqual((point["accumulators"], whole[mode, devices]["accumulators"]), ("shards", "whole"))
                self.assertEqual(whole[mode, devices]["state_bytes"],
                                 self.memory_of(model, recipe, "cpu:v3", *words, *place)["memory"]["resident_bytes"])
                # Each micro-batch sends its gradients, in place of one sum at the end.
                share = 3 / 4 if mode == "hybrid" else (devices - 1) / devices
                self.assertAlmostEqual(point["sent_bytes"] - whole[mode, devices]["sent_bytes"], 2 * share * gradients, delta=1)
                self.assertGreaterEqual(point["step_seconds"], whole[mode, devices]["step_seconds"])
                self.assertEqual(self.predict("nano-gpt", *words, *shards, *place)[1], points)
        self.assertEqual(points["ddp", 4], whole["ddp", 4])

    def tower(self, layers=4, width=256, batch=64):
        helper = onnx.helper
        nodes, weights = [], []
        for i in range(layers):
            out = "prediction" if i + 1 == layers else f"h{i}"
            nodes += [helper.make_node("MatMul", [f"h{i - 1}" if i else "x", f"w{i}"], [f"s{i}"], f"layer{i}"),
                      helper.make_node("Tanh", [f"s{i}"], [out], f"tanh{i}")]
            weights.append(onnx.numpy_helper.from_array(np.full((width, width), 0.01 * (i + 1), np.float32), f"w{i}"))
        value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [batch, width])
        graph = helper.make_graph(nodes, "tower", [value("x")], [value("prediction")], weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.folder / "tower.onnx")
        return self.folder / "tower.onnx", self.write("tower.toml", '[loss]\nkind = "mse"\nof = "prediction"\ntarget = "y"\n'
                                                      '[optimizer]\nkind = "adamw"\nlr = 0.01\n')

    def points_on_card(self, model, recipe, *words):
        document = json.loads(self.succeed("tcc", "predict-scale", model, "--recipe", recipe, "--cluster", "c.toml", "--target", "cuda:sm_90",
                                           "--json", *words).out)
        return {(point["mode"], point["devices"]): point for point in document["points"]}

    def test_state_on_the_host_is_that_of_plans(self):
        """Shards of less than 64 KiB stay on the card."""
        self.cluster()
        model, recipe = self.tower()
        link = ["--set", "offload.bytes_per_second=1e8"]
        for more, shards, moving in (([], [], {"ddp", "grad_op", "hybrid"}),
                                     (["--set", "train.accumulate=2"], ["--set", "parallel.accumulators=shards"], {"ddp", "grad_op", "hybrid"}),
                                     (["--set", 'optimizer.moments="8bit"'], [], {"ddp"})):
            moved = ["--set", "offload.what=state", *link, *more]
            points = self.points_on_card(model, recipe, *moved, *shards)
            kept = self.points_on_card(model, recipe, "--set", "offload.what=none", *more, *shards)
            for mode, place, devices in (("ddp", ["--set", "parallel.mode=ddp"], 4), *self.SHARDED):
                with self.subTest(f"{mode} {more}"):
                    report = self.memory_of(model, recipe, "cuda:sm_90", *moved, *(shards if mode != "ddp" else []), *place)
                    point = points[mode, devices]
                    self.assertEqual(point["state_bytes"], report["memory"]["resident_bytes"])
                    self.assertEqual(point["host_bytes"], report["memory"]["host"]["kept_for_card"])
                    self.assertEqual(point["host_bytes"] > 0, mode in moving)
                    if mode == "ddp":
                        self.assertEqual(point["arena_bytes"], report["memory"]["arena_bytes"])
                    if point["host_bytes"]:
                        self.assertGreater(point["transfer_wait_seconds"], 0)
                        self.assertGreater(point["step_seconds"], kept[mode, devices]["step_seconds"])
            self.assertEqual({point["host_bytes"] for point in kept.values()}, {0})
        text = self.succeed("tcc", "predict-scale", model, "--recipe", recipe, "--cluster", "c.toml", "--target", "cuda:sm_90",
                            "--set", "offload.what=state").out
        self.assertRegex(text, "memory +on the host +its transfers +sent")

    def test_a_budget_is_met_as_by_a_compile(self):
        """With ddp to the byte in both memories; shards fit where ddp does not."""
        self.cluster()
        model, recipe = self.tower(batch=16)
        apart = ["--set", "compiler.overlap=false"]  # updates that share a launch need all of their state at once
        whole = self.points_on_card(model, recipe, *apart)["ddp", 4]["memory_bytes"]
        words = ["--memory-budget", whole - 500000, "--host-memory", "1MiB", *apart]
        points = self.points_on_card(model, recipe, *words)
        report = self.memory_of(model, recipe, "cuda:sm_90", "--set", "parallel.mode=ddp", *words)
        point = points["ddp", 4]
        self.assertEqual((point["state_bytes"], point["arena_bytes"], point["host_bytes"]),
                         (report["memory"]["resident_bytes"], report["memory"]["arena_bytes"], report["memory"]["host"]["kept_for_card"]))
        self.assertGreater(point["host_bytes"], 0)
        self.assertTrue(point["fits"])
        self.assertEqual(points["full", 4]["host_bytes"], 0)
        small = ["--memory-budget", whole // 2, "--set", "offload.what=none", "--set", "parallel.bucket_bytes=100000", *apart]
        self.refuse(3, ["no plan fits"], "tcc", model, "--recipe", recipe, "--entry", "train", "--target", "cuda:sm_90", "--set",
                    "parallel.mode=ddp", *small, "-o", "p")
        points = self.points_on_card(model, recipe, *small)
        self.assertEqual((points["ddp", 4]["fits"], points["full", 8]["fits"]), (False, True))
        self.memory_of(model, recipe, "cuda:sm_90", *self.SHARDED[1][1], *small)
        self.refuse(2, ["--host-memory 1GiB: cpu:v3 has no memory of its own"], "tcc", "predict-scale", model, "--recipe", recipe,
                    "--cluster", "c.toml", "--host-memory", "1GiB")

    def test_a_budget_decides_about_accumulators_as_a_compile_does(self):
        self.cluster()
        model, recipe = ZOO / "nano-gpt" / "model.onnx", ZOO / "nano-gpt" / "recipe.toml"
        words = ["--set", "train.accumulate=3", "--set", "parallel.bucket_bytes=4000"]
        mode, place, devices = self.SHARDED[1]
        least = {}
        for accumulators in ("whole", "shards"):
            _, err = self.refuse(3, ["no plan fits"], "tcc", model, "--recipe", recipe, "--entry", "train", "--target", "cpu:v3", *words, *place,
                                 "--set", f"parallel.accumulators={accumulators}", "--memory-budget", "50KiB", "-o", "p"), None
            least[accumulators] = int(re.search(r"smallest budget that does is .*?\((\d+) bytes\)", _.err)[1])
        for budget, taken in (((least["whole"] + least["shards"]) // 2, "shards"), (least["whole"] * 4, "whole")):
            point = self.predict("nano-gpt", *words, "--memory-budget", budget)[1][mode, devices]
            memory = self.memory_of(model, recipe, "cpu:v3", *words, *place, "--memory-budget", budget)["memory"]
            self.assertEqual((point["accumulators"], point["state_bytes"]), (taken, memory["resident_bytes"]))

    def test_numbers_go_the_way_they_must(self):
        self.cluster()
        document, points = self.predict("nano-gpt")
        counts = [2**i for i in range(13)]
        self.assertEqual({devices for _, devices in points}, set(counts))
        self.assertEqual([mode for mode, devices in points if devices == 1], ["none"])
        gradients = document["gradient_bytes"]
        self.assertEqual(gradients, 4 * document["parameters"])
        before = None
        for devices in counts[1:]:
            ddp, part, full = (points[mode, devices] for mode in ("ddp", "grad_op", "full"))
            share = (devices - 1) / devices
            self.assertAlmostEqual(ddp["sent_bytes"], 2 * share * (gradients + 8), delta=1)
            self.assertAlmostEqual(part["sent_bytes"], 2 * share * (gradients + 8), delta=1)
            # Parameters are sent twice (once if only the forward pass reads them), and gradients once.
            self.assertGreater(full["sent_bytes"], 2.5 * share * gradients)
            self.assertLess(full["sent_bytes"], 3 * share * (gradients + 8) + 1)
            self.assertLess(full["state_bytes"], part["state_bytes"])
            self.assertLess(part["state_bytes"], ddp["state_bytes"])
            self.assertLess(ddp["efficiency"], 1)
            for point in (ddp, part, full):
                self.assertLessEqual(point["exposed_seconds"], point["message_seconds"] * (1 + 1e-9))
                if before:
                    old = before[point["mode"]]
                    self.assertLessEqual(point["state_bytes"], old["state_bytes"])
                    self.assertGreaterEqual(point["sent_bytes"], old["sent_bytes"])
                    self.assertGreaterEqual(point["message_seconds"], old["message_seconds"])
            before = {"ddp": ddp, "grad_op": part, "full": full}
        # A hybrid job shards within each node: state as with `full` on one node, and less time for messages.
        for devices in counts[3:]:
            self.assertEqual(points["hybrid", devices]["state_bytes"], points["full", 4]["state_bytes"])
            self.assertLess(points["hybrid", devices]["message_seconds"], points["full", devices]["message_seconds"])
        self.assertNotIn(("hybrid", 4), points)

    def test_phases_send_what_they_update_when_they_run(self):
        self.cluster()
        model, recipe = test_phases.FILES / "gan.onnx", self.write("gan.toml", test_phases.RECIPES["gan"])
        sizes = {name: 0 for name in ("discriminator", "generator")}
        for value in onnx.load(model).graph.initializer:
            for name in sizes:
                if value.name.startswith(name) and "running" not in value.name:
                    sizes[name] += 4 * int(np.prod(value.dims))
        document = json.loads(self.succeed("tcc", "predict-scale", model, "--recipe", recipe, "--cluster", "c.toml", "--json").out)
        points = {(point["mode"], point["devices"]): point for point in document["points"]}
        # Every other step updates the generator.
        for mode in ("ddp", "grad_op"):
            self.assertAlmostEqual(points[mode, 4]["sent_bytes"], 2 * 3 / 4 * (sizes["discriminator"] + sizes["generator"] / 2 + 8), delta=1)
        self.compile(model, "--recipe", recipe, "--entry", "train", "--target", "cpu:v3", "--set", "parallel.mode=ddp")
        memory = json.loads(self.succeed("tcc", "report", "plan.tplan", "--json").out)["memory"]
        self.assertEqual(points["ddp", 4]["state_bytes"], memory["resident_bytes"])
        self.assertEqual(points["ddp", 4]["arena_bytes"], memory["arena_bytes"])

    def test_faster_links_never_cost_time(self):
        found = []
        for between in (1e9, 1e10, 1e11):
            self.cluster(between=between, within=1e11)
            found.append(self.predict("nano-gpt")[1])
        for slow, fast in zip(found, found[1:]):
            for key, point in slow.items():
                self.assertLessEqual(fast[key]["step_seconds"], point["step_seconds"])
                self.assertEqual(fast[key]["memory_bytes"], point["memory_bytes"])
            self.assertLess(fast["ddp", 64]["step_seconds"], slow["ddp", 64]["step_seconds"])

    def test_messages_beside_computation_cost_less(self):
        self.cluster()
        text = (self.folder / "c.toml").read_text()
        (self.folder / "waits.toml").write_text("overlap = false\n" + text)
        beside = self.predict("nano-gpt", "--set", "parallel.bucket_bytes=20000")[1]
        waits = self.predict("nano-gpt", "--set", "parallel.bucket_bytes=20000", cluster="waits.toml")[1]
        for mode in ("ddp", "full"):
            self.assertLess(beside[mode, 2]["step_seconds"], waits[mode, 2]["step_seconds"])
        point = waits["ddp", 2]
        self.assertAlmostEqual(point["exposed_seconds"], point["message_seconds"], delta=1e-9)

    def test_the_least_number_that_fits_is_named(self):
        self.cluster()
        _, points = self.predict("nano-gpt", "--set", "parallel.bucket_bytes=1000")
        limit = (points["full", 8]["memory_bytes"] + points["full", 4]["memory_bytes"]) // 2
        self.assertLess(limit, points["grad_op", 4096]["memory_bytes"])
        self.cluster(memory=str(limit))
        document, points = self.predict("nano-gpt", "--set", "parallel.bucket_bytes=1000")
        self.assertEqual((document["smallest"]["devices"], document["smallest"]["mode"]), (8, "full"))
        self.assertFalse(points["ddp", 4096]["fits"])
        self.assertEqual(document["best"][0], {"devices": 8, "mode": "full"})
        words = ["predict-scale", ZOO / "nano-gpt" / "model.onnx", "--recipe", ZOO / "nano-gpt" / "recipe.toml", "--cluster", "c.toml",
                 "--set", "parallel.bucket_bytes=1000"]
        self.assertIn("least number that fits: 8 devices, full", self.succeed("tcc", *words).out)
        self.cluster(memory="1MiB" if limit > 1 << 20 else "4KiB")
        self.assertIn("nothing fits", self.succeed("tcc", *words).out)

    def test_weights_may_be_absent_here_alone(self):
        self.cluster()
        model = onnx.load(ZOO / "nano-gpt" / "model.onnx")
        onnx.save_model(model, self.folder / "there.onnx", save_as_external_data=True, location="weights.bin", size_threshold=256)
        (self.folder / "absent").mkdir()
        shutil.copy(self.folder / "there.onnx", self.folder / "absent" / "there.onnx")
        there, _ = self.predict("nano-gpt", model="there.onnx")
        absent, _ = self.predict("nano-gpt", model="absent/there.onnx")
        self.assertEqual(absent, there)
        self.refuse(1, ["weights.bin is missing"], "tcc", "absent/there.onnx", "--recipe", ZOO / "nano-gpt" / "recipe.toml")

    def test_each_shape_has_a_prediction(self):
        self.cluster()
        words = ["predict-scale", sentence_model(self.folder / "m.onnx"), "--recipe", self.write("r.toml", SENTENCES), "--cluster", "c.toml", "--devices", 2]
        shapes = [(8, 8), (2, 32)]
        buckets = "model.buckets=[" + ", ".join(f"{{ batch = {b}, seq = {s} }}" for b, s in shapes) + "]"
        whole = json.loads(self.succeed("tcc", *words, "--json", "--set", buckets).out)
        for (batch, seq), found in zip(shapes, whole["shapes"]):
            self.assertEqual(found.pop("dims"), {"batch": batch, "seq": seq})
            alone = json.loads(self.succeed("tcc", *words, "--json", "--dim", f"batch={batch}", "--dim", f"seq={seq}").out)
            self.assertEqual(found, {key: alone[key] for key in found})
        text = self.succeed("tcc", *words, "--set", buckets).out
        for line in ("batch = 8, seq = 8", "batch = 2, seq = 32", "all 2 shapes fit on 1 device"):
            self.assertIn(line + "\n", text)
        self.succeed("tcc", *words, "--set", buckets, "--html", "scale.html")
        self.assertEqual((self.folder / "scale.html").read_text().count("<svg"), 4)

    def test_a_page_with_curves(self):
        self.cluster()
        self.succeed("tcc", "predict-scale", ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--cluster", "c.toml",
                     "--html", "scale.html")
        page = (self.folder / "scale.html").read_text()
        self.assertEqual(page.count("<svg"), 2)
        self.assertEqual(page.count("<polyline"), 2 * 5)
        self.assertNotIn("http", page)
        # Every plot has numbers on its axis, also where all its values are between two round ones.
        self.succeed("tcc", "predict-scale", ZOO / "mlp" / "model.onnx", "--recipe", ZOO / "mlp" / "recipe.toml", "--cluster", "c.toml",
                     "--devices", 1, "--html", "one.html")
        for plot in (page + (self.folder / "one.html").read_text()).split("<svg")[1:]:
            self.assertGreaterEqual(plot.count('text-anchor="end"'), 2)

    def test_examples_of_clusters(self):
        for file in sorted(CLUSTERS.glob("*.toml")):
            with self.subTest(file.name):
                _, points = self.predict("nano-gpt", cluster=file)
                self.assertIn(("ddp", 4096), points)

    def test_bad_clusters_are_refused_where_they_are_wrong(self):
        good = CLUSTER.format(ranks=4, memory="1GiB", within=1e10, between=1e9)
        for line, message in (
                ('ranks_per_nod = 4', r"c\.toml:1:1: unknown key 'ranks_per_nod', did you mean 'ranks_per_node'"),
                ('ranks_per_node = 0', r"c\.toml:1:1: ranks_per_node: expected a whole number above 0"),
                ('overlap = 1', r"c\.toml:1:1: overlap: expected true or false"),
                ('name = 4', r"c\.toml:1:1: name: expected a string"),
                ('within.latency = -1', r"c\.toml:1:\d+: within\.latency: expected a time in seconds"),
                ('device.efficiency = 1.5', r"c\.toml:1:\d+: device\.efficiency: expected a number above 0, up to 1"),
                ('device.memory = "80GB"', r"c\.toml:1:\d+: device\.memory 80GB: units are KiB, MiB and GiB"),
                ('device.card = "h1000"', r"c\.toml:1:\d+: device\.card 'h1000' is not known.*h200"),
                ('name = ', r"c\.toml:1:\d+")):
            (self.folder / "c.toml").write_text(line + "\n")
            self.refuse(1, [message], "tcc", "predict-scale", ZOO / "mlp" / "model.onnx", "--cluster", "c.toml")
        for key, message in (("f32", r"c\.toml: device\.f32 is missing"), ("memory =", r"c\.toml: device\.memory is missing")):
            (self.folder / "c.toml").write_text("\n".join(row for row in good.splitlines() if not row.startswith(key)))
            self.refuse(1, [message], "tcc", "predict-scale", ZOO / "mlp" / "model.onnx", "--cluster", "c.toml")
        self.refuse(2, ["--cluster"], "tcc", "predict-scale", ZOO / "mlp" / "model.onnx")
        self.refuse(1, ["none.toml"], "tcc", "predict-scale", ZOO / "mlp" / "model.onnx", "--cluster", "none.toml")


if __name__ == "__main__":
    unittest.main(verbosity=2)
