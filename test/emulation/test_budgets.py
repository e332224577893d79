"""Budgets of plans for CUDA are obeyed, monotone, and change no bit, as on a CPU: `test_budgets.py STANDIN [--all]`."""
import unittest

from standin import stand_in  # first: it takes its argument, and makes common importable
import sys

from test_budget import ALL, CASES, BudgetChecks

sys.argv = [word for word in sys.argv if word != "--all"]


class BudgetsOfCards(BudgetChecks):
    target, device, env = ["--target", "cuda:sm_90"], ["--device", "cuda"], stand_in(mode="fast")

    def check_seconds(self, *_):
        """The stand-in's seconds say nothing of a card's."""

    def test_budgets_from_least_to_most(self):
        self.check_models(CASES if ALL else ("nano-gpt", "cnn-bn"), 6 if ALL else 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
