"""Find differences between ONNX's reference and onnxruntime: `compare_judges.py` runs both on every case of op_cases/, at each opset.

It prints the cases whose results differ. docs/guide/ops-differences.md says which of the two tcc follows, and why.
"""
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from op_cases import every_case, judges, models  # noqa: E402

RELATIVE, ABSOLUTE = 1e-3, 1e-4


def agree(one, other):
    """Compares types, shapes and values. Differences by rounding in 16-bit types or by the order of sums are ignored."""
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(one, other, strict=True)]
    return all(x.shape == y.shape and x.dtype == y.dtype and np.allclose(x, y, RELATIVE, ABSOLUTE, equal_nan=True) for x, y in pairs)


def differing():
    """(case, opset) of all cases that both can run and for which they give different results."""
    from onnx.reference import ReferenceEvaluator
    found = []
    for case in every_case():
        if case.random or case.domain:
            continue
        for opset in case.opsets:
            try:
                model, feeds = models.value_model(case, opset, judges.expected(case, opset))
                results = ReferenceEvaluator(model).run(None, feeds), judges._onnxruntime(model, feeds)
            except Exception:  # noqa: BLE001 - one of them does not know the op at this opset
                continue
            if not agree(*results):
                found.append((case, opset))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for case, opset in differing():
        print(f"{case.op}: {case.name} @{opset}, judged by {'its own formula' if case.values else case.judge}")
