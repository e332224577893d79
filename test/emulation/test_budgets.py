"""Budgets of plans for CUDA are obeyed, monotone, and change no bit, as on a CPU: `test_budgets.py STANDIN [--all]`."""
import unittest
import unittest.mock

from standin import stand_in  # first: it takes its argument, and makes common importable
import sys

import models
import test_fuse_updates
from test_budget import ALL, CASES, BudgetChecks

sys.argv = [word for word in sys.argv if word != "--all"]


class BudgetsOfCards(BudgetChecks):
    target, device, env = ["--target", "cuda:sm_90"], ["--device", "cuda"], stand_in(mode="fast")

    def check_seconds(self, *_):
        """No check: times on the stand-in say nothing about a card."""

    def test_budgets_from_least_to_most(self):
        self.check_models(CASES if ALL else ("nano-gpt", "cnn-bn"), 6 if ALL else 2)


class BudgetsOfSlices(BudgetsOfCards):
    """Budgets hold, too, where weight gradients are computed in slices of rows."""
    target = [*BudgetsOfCards.target, "--set", "compiler.slice_bytes=65536"]

    def report(self, plan):
        report = super().report(plan)
        self.assertGreater(report["card"]["sliced_gradients"], 0)
        return report

    def test_budgets_from_least_to_most(self):
        model = test_fuse_updates.FuseUpdates.model(self, 256, (320, 512, 512, 512, 10))
        recipe = self.write("r.toml", models.CLASSES + test_fuse_updates.OPTIMIZERS["adamw"])
        data = self.save("d.safetensors", **models.labelled(256, 10, 320))
        with unittest.mock.patch("test_budget.case", lambda _: (model, recipe, data, None)):
            self.check_models(["layers"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
