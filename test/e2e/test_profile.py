"""The profile times, counts and names every instruction of an update, and the trace holds them all."""
import json
import unittest

from common import BIN, EndToEnd, case


def tracks(path):
    """Name of a thread → its spans, as (begin, end, name, arguments) in microseconds; fails where spans of a thread do not
    nest."""
    trace, names, spans = json.loads(path.read_text()), {}, {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["tid"]] = event["args"]["name"]
            spans[names[event["tid"]]] = []
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            spans[names[event["tid"]]].append((event["ts"], event["ts"] + event["dur"], event["name"], event.get("args", {})))
    for name, own in spans.items():
        own.sort(key=lambda span: (span[0], -span[1]))
        around = []
        for span in own:
            assert span[0] <= span[1], (name, span)
            while around and around[-1][1] <= span[0] + 2e-3:      # microseconds are written with three decimals
                around.pop()
            if around and span[1] > around[-1][1] + 2e-3:
                raise AssertionError(f"{name}: {span} begins inside {around[-1]} and ends outside")
            around.append(span)
    return spans


class Profile(EndToEnd):
    def setUp(self):
        super().setUp()
        model, recipe, self.data, _ = case("nano-gpt")
        self.plan = self.compile(model, "--recipe", recipe)

    def profile(self, *arguments):
        return json.loads(self.succeed("trun", "profile", self.plan, "--data", self.data, "--threads", 2, "--json", *arguments).out)

    def test_counts_and_times(self):
        profile, report = self.profile("--trace", "trace.json", "--steps", 5), self.report(self.plan)
        self.assertEqual(profile["entries"], ["step"])
        kernels = profile["kernels"]
        # Calls, arithmetic and traffic equal those that tcc reports for an update.
        for key, name in (("calls", "count"), ("bytes", "bytes"), ("flops", "flops")):
            self.assertAlmostEqual(sum(k[key] for k in kernels), sum(k[name] for k in report["kernels"]), msg=key)
        self.assertEqual(sum(k["calls"] for k in kernels), len(profile["instructions"]))
        self.assertEqual(sum(k["flops"] for k in kernels), report["flops_per_step"])
        # Instructions make up the step: the rest is reading a batch and the clock. Medians of single instructions leave out whatever
        # disturbs a step now and then.
        self.assertAlmostEqual(sum(i["seconds"] * i["calls"] for i in profile["instructions"]), profile["instruction_seconds"], places=9)
        self.assertGreater(profile["instruction_seconds"], 0.4 * profile["step_seconds"])
        self.assertLess(profile["instruction_seconds"], 1.1 * profile["step_seconds"])
        for kernel in kernels:
            self.assertEqual(len(kernel["nodes"]), kernel["calls"], kernel["what"])
            self.assertIn(kernel["limit"], ("memory", "arithmetic", ""))
            self.assertAlmostEqual(kernel["roofline_share"] * kernel["seconds"], kernel["roofline_seconds"], places=9)
        self.assertTrue(any(k["what"].startswith("matmul ") and k["kind"] == "library" for k in kernels))
        machine = profile["roofline"]
        self.assertGreater(machine["matmul"][0]["flops_per_s"], 1e8)
        self.assertGreater(machine["copy_bytes_per_s"], 1e8)
        self.assertGreater(profile["roofline_seconds"], 0)
        self.assertLessEqual(profile["roofline_seconds"], profile["instruction_seconds"] * 1.0001)

        events = [e for e in json.loads((self.folder / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
        calls = [e for e in events if e["cat"] in ("library", "generated", "copy")]
        self.assertEqual([e["args"]["instruction"] for e in calls], list(range(len(profile["instructions"]))))
        self.assertEqual([e["args"]["node"] for e in calls], [i["node"] for i in profile["instructions"]])
        for before, after in zip(calls, calls[1:]):
            self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-3)
        self.assertEqual(list(tracks(self.folder / "trace.json")), ["compute"])
        step = next(e for e in events if e["cat"] == "step")
        self.assertLessEqual(calls[-1]["ts"] + calls[-1]["dur"], step["dur"] + 1e-3)

    def test_a_run_traces_training_loader_and_checkpoints(self):
        self.succeed("trun", self.plan, "--data", self.data, "--eval-data", self.data, "--steps", 30, "--eval-every", 15, "--checkpoint-every", 6,
                     "--set", "data.workers=2", "--set", 'checkpoint.staging_bytes="all"', "--trace", "trace.json", "--out", "run")
        spans = tracks(self.folder / "trace.json")
        self.assertEqual(set(spans), {"training", "checkpoint", "loader 1", "loader 2"})
        training = spans["training"]
        named = lambda name, own=training: [span for span in own if span[2] == name]  # noqa: E731
        updates, waits = named("update"), named("wait for data")
        self.assertEqual([span[3]["update"] for span in updates], list(range(1, 31)))
        self.assertEqual([span[3]["update"] for span in named("step")], list(range(1, 31)))
        self.assertEqual([span[3]["update"] for span in named("evaluation")], [15, 30])
        self.assertEqual(len(waits), 30)
        for update, wait, step in zip(updates, waits, named("step")):
            self.assertTrue(update[0] <= wait[0] <= wait[1] <= step[0] <= step[1] <= update[1] + 2e-3, (update, wait, step))
        # The waits in the trace agree with the log's, and the trace's checkpoints are those that the log records.
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        logged = sum(line["data_seconds"] for line in lines if "loss" in line)
        self.assertGreaterEqual(sum(end - begin for begin, end, *_ in waits) / 1e6, logged * 0.999)
        written = [span[3]["update"] for span in named("write checkpoint", spans["checkpoint"])]
        self.assertEqual(written, [line["step"] for line in lines if "checkpoint_bytes" in line])
        self.assertEqual(len(named("copy state", spans["checkpoint"])), len(written))
        read = named("finish batch", spans["loader 1"] + spans["loader 2"])
        self.assertGreaterEqual(len(read), 30)
        # Each batch was finished before training took it.
        finished = sorted(span[1] for span in read)
        self.assertTrue(all(end <= wait[1] + 2e-3 for end, wait in zip(finished, waits)))

    def ranges(self, *words, **variables):
        """Ranges of a run of 4 updates as an attached profiler sees them: thread → [(depth, text)]; fails where begins and ends do not
        pair."""
        record = self.folder / "ranges.txt"
        record.unlink(missing_ok=True)
        self.succeed("trun", self.plan, "--data", self.data, "--eval-data", self.data, "--steps", 4, "--eval-every", 2,
                     *(words or ("--out", "run")), "--set", "data.workers=1", env={"NVTX_INJECTION64_PATH": str(BIN / "nvtx-recorder.so"), "NVTX_RECORD": str(record)} | variables)
        threads, depth = {}, {}
        for line in record.read_text().splitlines() if record.exists() else ():
            word, thread, *text = line.split(" ", 2)
            depth.setdefault(thread, 0)
            if word == "push":
                threads.setdefault(thread, []).append((depth[thread], text[0]))
            depth[thread] += 1 if word == "push" else -1
            self.assertGreaterEqual(depth[thread], 0)
        self.assertFalse(any(depth.values()), depth)
        return list(threads.values())

    def test_a_profiler_gets_the_spans_as_ranges(self):
        training, loader = sorted(self.ranges(), key=lambda own: (0, "update: update 1") not in own)
        updates = [text for depth, text in training if depth == 0 and text.startswith("update: ")]
        self.assertEqual(updates, [f"update: update {step}" for step in range(1, 5)])
        for text in ("evaluation: update 2", "evaluation: update 4"):
            self.assertIn(text, [text for _, text in training])
        at = training.index((0, "update: update 3"))
        self.assertEqual([text.split(":")[0] for depth, text in training[at + 1:at + 3] if depth == 1], ["wait for data", "step"])
        self.assertIn((0, "read samples: batch 0"), loader)

    def test_without_a_profiler_that_takes_them_there_are_no_ranges(self):
        for number, variables in enumerate(({"NVTX_INJECTION64_PATH": "/no/such.so"}, {"NVTX_INJECTION64_PATH": ""}, {"NVTX_WITHOUT_POP": "1"},
                                            {"NVTX_INJECTION64_PATH": str(self.write("text.so", "no library"))},
                                            {"NVTX_RECORD": "/no/such/file"})):
            self.assertEqual(self.ranges("--out", f"run{number}", **variables), [], variables)

    def test_a_trace_that_cannot_be_written_is_told_before_training(self):
        self.refuse(1, ["--trace", "no/such"], "trun", self.plan, "--data", self.data, "--steps", 1, "--trace", "no/such/t.json", "--out", "run")
        self.assertFalse((self.folder / "run").exists())

    def test_every_type_has_its_own_roofline(self):
        """Products in bf16 are compared with the rate of bf16 products where the library has them."""
        model, recipe, _, _ = case("nano-gpt")
        self.plan = self.compile(model, "--recipe", recipe, "--precision", "bf16", "--entry", "train")
        profile = self.profile("--steps", 1)
        # Attention multiplies pairs of bf16 where the machine has such instructions.
        products = [k for k in profile["kernels"] if k["what"].startswith("matmul bf16 ") or
                    k["what"].startswith("attention") and k["dtype"] == "bf16"]
        self.assertTrue(products)
        rates = {peak["dtype"]: peak["flops_per_s"] for peak in profile["roofline"]["matmul"]}
        self.assertIn("f32", rates)
        for kernel in profile["kernels"]:
            self.assertEqual(kernel["dtype"] == "bf16", kernel in products, kernel["what"])
            least = kernel["flops"] / rates.get(kernel["dtype"], rates["f32"])
            self.assertGreaterEqual(kernel["roofline_seconds"], 0.999 * least, kernel["what"])

    def test_table_and_entries(self):
        text = self.succeed("trun", "profile", self.plan, "--data", self.data, "--all", "--threads", 1).out
        for words in ("limited by", "GFLOP/s", "a step takes", "roofline, measured now: matmul", "library", "generated"):
            self.assertIn(words, text)
        self.assertEqual(self.profile("--entry", "evaluate", "--no-roofline")["entries"], ["evaluate"])
        # tcc calls the entry "train".
        self.assertEqual(self.profile("--entry", "train", "--no-roofline")["entries"], ["step"])
        self.refuse(2, ["--entry rain", "step"], "trun", "profile", self.plan, "--data", self.data, "--entry", "rain")
        self.refuse(1, ["nowhere"], "trun", "profile", self.plan, "--data", "nowhere.safetensors", "--no-roofline")
        self.refuse(2, ["--steps"], "trun", "profile", self.plan, "--data", self.data, "--steps", 0)


if __name__ == "__main__":
    unittest.main()
