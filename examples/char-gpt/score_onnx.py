"""Scores a trained model with onnxruntime on the held-out text: `score_onnx.py TRAINED.onnx`.

Prints the mean cross-entropy. With `--expect LOSS` the exit status is 1 unless the two agree within a relative 1e-4.
"""
import argparse
import sys

import onnxruntime

from windows import mean_cross_entropy, samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--expect", type=float, help="the loss that the trainer reports for the same windows")
    options = parser.parse_args()
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(options.model, settings, providers=["CPUExecutionProvider"])
    _, _, ids, labels = samples()
    loss = mean_cross_entropy(lambda batch: session.run(["logits"], {"ids": batch})[0], ids, labels)
    print(f"onnxruntime: validation loss {loss:.6f} over {labels.size:,} characters")
    if options.expect is not None and not abs(loss - options.expect) <= 1e-4 * options.expect:
        print(f"score_onnx: error: trun reports {options.expect:.6f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
