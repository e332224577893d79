"""Plans changed at random, with valid checksums: the verifier refuses them, or they run without touching memory outside their buffers.

TCC_MUTATION_ROUNDS=N changes each plan N times instead of a few, and adds the models that take longer to compile;
TCC_MUTATION_SEED=N makes other changes. A failure names its plan, seed and round; the same variables reproduce it."""
import os
import unittest

import common
import onnx
from common import EndToEnd, case
from onnxruntime.quantization.quant_utils import QuantFormat
from test_stored_four_bits import base_model, quantised

ROUNDS = int(os.environ.get("TCC_MUTATION_ROUNDS", "0"))
SEED = os.environ.get("TCC_MUTATION_SEED", "1")

# Name → case of the zoo, and further words for tcc. Together they have dense layers, convolutions, batch norm, an embedding,
# a recurrent layer, attention; accumulation and clipping, variants, bf16, several ranks; SGD, momentum, Adam, AdamW, Adagrad.
QUICK = {"mlp-accumulate": ("mlp", ["--set", "train.accumulate=2", "--set", "train.clip_norm=1.0"]),
         "cnn-bn-ranks": ("cnn-bn", ["--set", "parallel.mode=ddp", "--set", "parallel.bucket_bytes=3000"]),
         "lstm-lm": ("lstm-lm", []),
         "adapters-nested": ("mlp", ["--set", "adapter.targets=[\"*\"]", "--set", "adapter.rank=1", "--set", "adapter.base=\"nf4\"", "--set",
                                     "adapter.nested=true"])}
MORE = {"mlp": ("mlp", []),
        "mlp-variants": ("mlp", ["--variants", "3"]),
        "cnn-bn": ("cnn-bn", []),
        "small-cnn": ("small-cnn", []),
        "attention": ("mha-need-weights", []),
        "nano-gpt": ("nano-gpt", []),
        "nano-gpt-bf16": ("nano-gpt", ["--set", "train.precision=bf16"]),
        "dlrm": ("dlrm", []),
        "adapters": ("small-cnn", ["--set", "adapter.targets=[\"*\"]", "--set", "adapter.rank=1", "--set", "adapter.base=\"int8\""]),
        "adapters-nf4": ("mlp", ["--set", "adapter.targets=[\"*\"]", "--set", "adapter.rank=1", "--set", "adapter.base=\"nf4\""]),
        "lamb": ("small-cnn", ["--set", "optimizer.kind=lamb"]),
        "muon": ("mlp", ["--set", "optimizer.kind=muon"])}


class PlanMutations(EndToEnd):
    def test_accepted_plans_stay_inside_their_buffers(self):
        plans = []
        for name, (model, words) in (QUICK | (MORE if ROUNDS else {})).items():
            path, recipe, _, _ = case(model)
            plans.append(self.compile(path, "--recipe", recipe, *words, plan=f"{name}.tplan"))
        for form in QuantFormat:  # weights of 4 bits, with zero points
            onnx.save(quantised(base_model(), form, False, 32), self.folder / f"{form.name}.onnx")
            plans.append(self.compile(f"{form.name}.onnx", "--set", 'loss.kind="cross_entropy"', "--set", 'loss.target="labels"', "--set",
                                      "loss.class_axis=-1", "--set", 'adapter.targets=["up", "down"]', "--set", "adapter.rank=2",
                                      plan=f"{form.name}.tplan"))
        common.SECONDS = max(common.SECONDS, ROUNDS * len(plans))
        keep = os.environ.get("TCC_MUTATION_KEEP")
        result = self.command("plan-mutations", "--rounds", ROUNDS or 150, "--seed", SEED, *(["--keep", keep] if keep else []),
                              *(["--accepted"] if ROUNDS else []), *plans)
        print(result.out)
        self.assertEqual(result.status, 0, str(result))


if __name__ == "__main__":
    unittest.main()
