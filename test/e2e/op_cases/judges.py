"""The expected outputs of cases."""
import os

import numpy as np

from . import models


def expected(case, opset):
    """The outputs of a case, by the judge that it names."""
    model, feeds = models.value_model(case, min(opset, case.judge_at))
    if case.values is not None:
        results = case.values([a for a in case.arrays()], {**models.attributes(case, opset)}, opset)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
    elif case.judge == "onnxruntime":
        results = _onnxruntime(model, feeds)
    else:
        from onnx.reference import ReferenceEvaluator
        results = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(result) for result in results]


def run(op, arrays, opset=21, **attributes):
    """Runs one op with the reference evaluator, for another spelling that should give the same result."""
    from onnx import ValueInfoProto, helper
    from onnx.reference import ReferenceEvaluator
    names = [f"x{i}" for i in range(len(arrays))]
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "spelling",
                              [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                               for n, a in zip(names, arrays)], [ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))[0]


def _onnxruntime(model, feeds):
    os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)
