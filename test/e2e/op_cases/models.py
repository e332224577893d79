"""The two models of a case: one that computes its values, one whose scalar output has the gradients to be checked."""
import numpy as np
from onnx import GraphProto, TensorProto, ValueInfoProto, helper, numpy_helper

FLOATS = (np.float16, np.float32, np.float64)


def attributes(case, opset):
    return {key: value(opset) if callable(value) else value for key, value in case.attributes.items()}


def _prefixed(attributes, names, prefix):
    """Adds the model's prefix to the outer values that a graph attribute reads."""
    for graph in attributes.values():
        if prefix and isinstance(graph, GraphProto):
            for node in graph.node:
                node.input[:] = [prefix + n if n in names else n for n in node.input]
    return attributes


def _nodes(case, opset, prefix):
    """The case's nodes, and the names of their results."""
    def own(name):
        return prefix + name if name else ""
    inputs = [own(f"i{i}") if each is not None else "" for i, each in enumerate(case.inputs) if i not in case.outer]
    while inputs and not inputs[-1]:
        inputs.pop()
    nodes = [helper.make_node(op, [own(n) for n in ins], [own(n) for n in outs], **given)
             for op, ins, outs, given in case.before or []]
    if case.before:
        made = {n for _, _, outs, _ in case.before for n in outs}
        inputs = [own(f"b{i}") if f"b{i}" in made else n for i, n in enumerate(inputs)]
    nodes.append(helper.make_node(case.op, inputs, [own(n) for n in case.outputs], name=case.op.lower(), domain=case.domain,
                                  **_prefixed(attributes(case, opset), [f"i{i}" for i in case.outer], prefix)))
    nodes += [helper.make_node(op, [own(n) for n in ins], [own(n) for n in outs], **given)
              for op, ins, outs, given in case.then or []]
    return nodes, [own(n) for n in case.results or case.outputs if n]


def _finish(case, opset, nodes, inputs, outputs, initializers):
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(case.domain, 1)] if case.domain else [])
    ir = case.ir or max(4, helper.find_min_ir_version_for([opsets[0]]))
    if ir < 4:
        inputs = inputs + [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in initializers]
    graph = helper.make_graph(nodes, "case", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


def _value_info(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def value_model(case, opset, results=None):
    """(model, feeds by name). Outputs have the types of `results`; without results, the types known before anything has run."""
    nodes, names = _nodes(case, opset, "")
    feeds, initializers, inputs = {}, [], []
    for i, (each, array) in enumerate(zip(case.inputs, case.arrays())):
        if each is None:
            continue
        if each.node:
            nodes.insert(0, helper.make_node("Constant", [], [f"i{i}"], value=numpy_helper.from_array(array)))
        elif each.shape_like:
            initializers.append(numpy_helper.from_array(array, f"i{i}"))
        else:
            feeds[f"i{i}"] = array
            inputs.append(_value_info(f"i{i}", array))
    if results is None:
        outputs = [ValueInfoProto(name=n) for n in names]
    else:
        outputs = [_value_info(n, array) for n, array in zip(names, results)]
    return _finish(case, opset, nodes, inputs, outputs, initializers), feeds


def loss_weights(case, index, shape):
    """1, 2, 3, … if the table lists the case's gradients; otherwise numbers without a pattern."""
    count = int(np.prod(shape))
    if case.gradients is not None:
        return np.arange(1, count + 1, dtype=np.float32).reshape(shape)
    return np.random.default_rng(1234 + index).uniform(0.5, 1.5, shape).astype(np.float32) * \
        np.where(np.arange(count).reshape(shape) % 3 == 1, -1, 1).astype(np.float32)


def gradient_model(case, opset, results, prefix):
    """(model, feeds by name, names of the parameters). `results` give the outputs' shapes; names start with `prefix`."""
    nodes, names = _nodes(case, opset, prefix)
    feeds, initializers, inputs, parameters, ahead = {}, [], [], [], []
    for i, (each, array) in enumerate(zip(case.inputs, case.arrays())):
        if each is None:
            continue
        name = f"{prefix}i{i}"
        if i in case.differentiated:
            parameters.append(name)
            if each.scalar:
                parameters[-1] = name + ".one"
                array = array.reshape(1)
                ahead.append(helper.make_node("Squeeze", [name + ".one"], [name]))
            initializers.append(numpy_helper.from_array(array, parameters[-1]))
        elif each.node:
            ahead.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        elif each.shape_like:
            initializers.append(numpy_helper.from_array(array, name))
        else:
            feeds[name] = array
            inputs.append(_value_info(name, array))
    terms = []
    for index, (name, result) in enumerate(zip(names, results)):
        if result.dtype not in FLOATS or (case.read is not None and index not in case.read):
            continue
        weights = numpy_helper.from_array(loss_weights(case, index, result.shape).astype(result.dtype))
        nodes += [helper.make_node("Constant", [], [f"{name}.weights"], value=weights),
                  helper.make_node("Mul", [name, f"{name}.weights"], [f"{name}.weighted"]),
                  helper.make_node("ReduceSum", [f"{name}.weighted"], [f"{name}.sum"], keepdims=0)]
        last = f"{name}.sum"
        if result.dtype != np.float32:
            nodes.append(helper.make_node("Cast", [last], [f"{name}.f32"], to=TensorProto.FLOAT))
            last = f"{name}.f32"
        terms.append(last)
    if len(terms) > 1:
        nodes.append(helper.make_node("Sum", terms, [prefix + "loss"]))
    else:
        nodes.append(helper.make_node("Identity", terms, [prefix + "loss"]))
    loss = helper.make_tensor_value_info(prefix + "loss", TensorProto.FLOAT, [])
    return _finish(case, opset, ahead + nodes, inputs, [loss], initializers), feeds, parameters
