"""Sets a run of trun beside PyTorch's run on the same weights and batches: `compare.py RUN`.

Prints the losses side by side. Exit status 1 if the first ten losses differ by more than a relative 1e-4, or the final
validation losses by more than 1 %: over hundreds of updates rounding alone carries two trainings apart. PyTorch's own, from
weights moved by 3e-7 of themselves, differ by `spread` in expected.json: 0.2 % in the validation loss.
"""
import json
import sys
from pathlib import Path

EXPECTED = Path(__file__).resolve().parent / "expected.json"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    lines = [json.loads(line) for line in (Path(sys.argv[1]) / "metrics.jsonl").read_text().splitlines()]
    expected = json.loads(EXPECTED.read_text())
    loss = {line["step"]: line["loss"] for line in lines if "loss" in line}
    evaluation = {line["step"]: line["eval_loss"] for line in lines if "eval_loss" in line}
    steps = expected["steps"]
    print(f"{'':22}  this run   PyTorch")
    for step in sorted({1, 2, 5, 10, 50, *range(100, steps + 1, 100)}):
        print(f"loss of step {step:5}      {loss[step]:9.5f} {expected['loss'][step - 1]:9.5f}")
    for step in sorted(map(int, expected["eval_loss"])):
        if step in evaluation:
            print(f"validation at {step:5}     {evaluation[step]:9.5f} {expected['eval_loss'][str(step)]:9.5f}")
    worst = max(abs(loss[s] / expected["loss"][s - 1] - 1) for s in range(1, 11))
    final = abs(evaluation[steps] / expected["eval_loss"][str(steps)] - 1)
    print(f"largest difference in the first ten losses {worst:.1e}, in the final validation loss {final:.1e}")
    return 0 if worst <= 1e-4 and final <= 1e-2 else 1


if __name__ == "__main__":
    sys.exit(main())
