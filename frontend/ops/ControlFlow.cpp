//===- ControlFlow.cpp - If, Loop and Scan --------------------------------===//
//
// A plan has no branches and no loops around ops. If a condition or a trip count is known at compile time, the taken
// branch is imported in place, and a body once for each iteration; constants fold iteration by iteration, so that a
// condition computed from the iteration's number is known when it is needed. If a condition depends on data, both
// branches are computed and one is selected; a loop with a maximum trip count runs that often, and keeps its state once
// the condition fails. Gradients flow only through the selected branch: zero times infinity in the other does not
// escape.
//
//===----------------------------------------------------------------------===//
#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {
namespace control { // named, since files share a translation unit
namespace {

using Slots = llvm::SmallVector<Slot>;

/// A loop with more iterations is refused: unrolled, it would have more than kMostNodes nodes.
constexpr int64_t kMostIterations = 100'000;

/// One number (or truth value) of a tensor that must be known at compile time.
Expected<int64_t> known(NodeImport &n, const Slot &slot, const char *what, const char *help) {
  if (!slot.tensor)
    return error("its {} is no tensor", what);
  DenseElementsAttr value = n.constantOf(slot.tensor);
  if (!value)
    return error("its {} must be known at compile time, but depends on {}; {}", what, n.origin(slot.tensor),
                       help);
  if (value.getNumElements() != 1 || !isa<IntegerType>(value.getElementType()))
    return error("its {} must be one integer or truth value, not {}", what, typeText(slot.tensor));
  return train::HostTensor::fromAttribute(value).getInt(0);
}

const onnx::GraphProto *graphOf(NodeImport &n, std::string_view name) {
  const onnx::AttributeProto *found = n.attribute(name);
  return found && found->has_g() ? &found->g() : nullptr;
}

/// Tensors of one shape, one after another along a new axis. Without any, an empty tensor of the type that the body's
/// output declares.
Expected<Value> stack(NodeImport &n, llvm::ArrayRef<Value> parts, int64_t axis, const onnx::ValueInfoProto &declared) {
  if (parts.empty()) {
    const onnx::TypeProto_Tensor &type = declared.type().tensor_type();
    Type element = n.elementType(type.elem_type());
    Shape shape;
    for (const auto &dim : type.shape().dim()) {
      if (!dim.has_dim_value())
        return error("it has no iterations, and the shape of \"{}\" is not declared", declared.name());
      shape.push_back(dim.dim_value());
    }
    if (!element || !type.has_shape())
      return error("it has no iterations, and the type of \"{}\" is not declared", declared.name());
    TCC_TRY(dim, n.axis(axis, int64_t(shape.size()) + 1));
    shape.insert(shape.begin() + dim, 0);
    return n.splat(shape, element, 0);
  }
  Shape shape(train::shapeOf(parts[0]));
  TCC_TRY(dim, n.axis(axis, int64_t(shape.size()) + 1));
  shape.insert(shape.begin() + dim, 1);
  llvm::SmallVector<Value> unsqueezed;
  for (Value part : parts) {
    if (part.getType() != parts[0].getType())
      return error("\"{}\" is {} in one iteration and {} in another; its iterations cannot be stacked",
                         declared.name(), typeText(parts[0]), typeText(part));
    unsqueezed.push_back(n.reshape(part, shape));
  }
  if (parts.size() == 1)
    return unsqueezed[0];
  shape[size_t(dim)] = int64_t(parts.size());
  return train::ConcatOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(parts[0])), unsqueezed, dim)
      .getResult();
}

//===----------------------------------------------------------------------===//
// Conditions on data
//===----------------------------------------------------------------------===//

/// The boolean of a one-element tensor, as a scalar. Error: it is none.
Expected<Value> truth(NodeImport &n, const Slot &slot) {
  if (!slot.tensor)
    return error("its condition is no tensor");
  if (countOf(train::shapeOf(slot.tensor)) != 1 || !train::elementTypeOf(slot.tensor).isInteger(1))
    return error("its condition must be one truth value, not {}", typeText(slot.tensor));
  return n.reshape(slot.tensor, {});
}

Value bothHold(NodeImport &n, Value x, Value y) { return n.expr(x).select(n.expr(y), n.expr(n.splat({}, n.i1(), 0))); }

/// x where the condition holds, else y. Error: they are no tensors of one shape and type.
Expected<Slot> chosen(NodeImport &n, Value condition, const Slot &x, const Slot &y, const std::string &name,
                      const char *first, const char *second) {
  if (!x.tensor || !y.tensor)
    return error("\"{}\" is no tensor; a condition on data can choose between tensors only", name);
  if (x.tensor == y.tensor)
    return x;
  if (x.tensor.getType() != y.tensor.getType())
    return error("\"{}\" is {} {} and {} {}; a plan's shapes do not depend on data", name, typeText(x.tensor),
                       first, typeText(y.tensor), second);
  return Slot{n.expr(condition).broadcast(train::shapeOf(x.tensor)).select(n.expr(x.tensor), n.expr(y.tensor)),
              std::nullopt};
}

/// Floating-point operations of the ops built since `before`.
double flopsSince(NodeImport &n, Operation *before) {
  Block *block = n.builder.getInsertionBlock();
  double flops = 0;
  for (Operation *op = before ? before->getNextNode() : &block->front(); op; op = op->getNextNode())
    if (auto cost = dyn_cast<train::Cost>(op))
      flops += cost.getFlops();
  return flops;
}

Operation *lastOp(NodeImport &n) {
  Block *block = n.builder.getInsertionBlock();
  return block->empty() ? nullptr : &block->back();
}

std::string withAdvice(const std::string &advice) { return advice.empty() ? advice : "; " + advice; }

//===----------------------------------------------------------------------===//
// If
//===----------------------------------------------------------------------===//

/// Imports both branches, and selects each output by the condition.
Status bothBranches(NodeImport &n, const onnx::GraphProto &thenBranch, const onnx::GraphProto &elseBranch) {
  const std::string advice = n.fixAdvice(n.inputs[0].tensor);
  TCC_TRY(condition, truth(n, n.inputs[0]));
  Value otherwise = train::NotOp::create(n.builder, n.loc, condition);
  auto refused = [&](const std::string &problem) {
    return error("its condition depends on {}, so that both branches are computed, but {}{}",
                       n.origin(n.inputs[0].tensor), problem, withAdvice(advice));
  };
  double flops[2] = {};
  Slots outputs[2];
  for (int branch : {0, 1}) {
    Operation *begin = lastOp(n);
    auto computed = n.importGatedGraph(branch ? elseBranch : thenBranch, {}, "", branch ? otherwise : condition);
    if (!computed)
      return refused(computed.message().empty() ? fmt::format("{} cannot be", branch ? "else_branch" : "then_branch")
                                                : computed.message());
    outputs[branch] = computed.take();
    flops[branch] = flopsSince(n, begin);
  }
  for (size_t i = 0; i < outputs[0].size() && i < outputs[1].size(); ++i) {
    auto output =
        chosen(n, condition, outputs[0][i], outputs[1][i], n.node.output_size() > int(i) ? n.node.output(int(i)) : "",
               "in then_branch", "in else_branch");
    if (!output)
      return refused(output.message());
    n.outputs.push_back(output.take());
  }
  n.warn(
      fmt::format("its condition depends on {}: every step computes both branches, of {:.3g} and {:.3g} floating-point "
                  "operations, and selects{}",
                  n.origin(n.inputs[0].tensor), flops[0], flops[1], withAdvice(advice)));
  return Status::success();
}

Status ifOp(NodeImport &n) {
  const onnx::GraphProto *thenBranch = graphOf(n, "then_branch"), *elseBranch = graphOf(n, "else_branch");
  if (!thenBranch || !elseBranch)
    return error("it has no then_branch or no else_branch");
  if (n.inputs[0].tensor && !n.constantOf(n.inputs[0].tensor))
    return bothBranches(n, *thenBranch, *elseBranch);
  TCC_TRY(taken, known(n, n.inputs[0], "condition", ""));
  TCC_TRY(outputs, n.importGraph(taken ? *thenBranch : *elseBranch, {}, ""));
  n.outputs = outputs;
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Loop
//===----------------------------------------------------------------------===//

class LoopImport {
public:
  LoopImport(NodeImport &n, const onnx::GraphProto &body) : n(n), body(body) {}

  Status run() {
    carried = n.inputs.size() < 2 ? 0 : n.inputs.size() - 2;
    if (size_t(body.input_size()) != carried + 2 || size_t(body.output_size()) < carried + 1)
      return error("its body has {} inputs and {} outputs, which do not match {} carried values",
                         body.input_size(), body.output_size(), carried);
    if (n.has(0)) {
      TCC_TRY(given, known(n, n.inputs[0], "trip count", help(n.inputs[0]).c_str()));
      trips = given;
    }
    state.assign(n.inputs.begin() + long(std::min<size_t>(2, n.inputs.size())), n.inputs.end());
    scanned.resize(size_t(body.output_size()) - 1 - carried);
    if (n.has(1))
      if (Status status = hear(n.inputs[1]); !status.ok())
        return status;
    for (int64_t i = 0; i < trips && goes; ++i)
      if (Status status = iterate(i); !status.ok())
        return status;
    n.outputs = state;
    for (auto [k, parts] : llvm::enumerate(scanned)) {
      if (!n.wants(unsigned(carried + k))) {
        n.outputs.push_back({});
        continue;
      }
      if (running)
        return error("\"{}\" has one part for each iteration, and their number depends on {}; a plan's shapes do not "
                     "depend on data{}",
                           n.node.output(int(carried + k)), n.origin(running), withAdvice(n.fixAdvice(running)));
      TCC_TRY(stacked, stack(n, parts, 0, body.output(int(1 + carried + k))));
      n.outputs.push_back(Slot{stacked, std::nullopt});
    }
    if (running)
      n.warn(fmt::format("the number of iterations depends on {}: every step runs all {} iterations and keeps the "
                         "state of the last one that counts{}",
                         n.origin(running), trips, withAdvice(n.fixAdvice(running))));
    return Status::success();
  }

private:
  std::string help(const Slot &slot) const {
    const std::string fix = slot.tensor ? n.fixAdvice(slot.tensor) : "";
    return fmt::format("a loop is unrolled into the plan: {}{}export the model with a fixed number of iterations", fix,
                       fix.empty() ? "" : ", or ");
  }

  /// Updates `goes` or `running` by the condition of the next iteration.
  Status hear(const Slot &condition) {
    if (!condition.tensor || n.constantOf(condition.tensor)) {
      TCC_TRY(given, known(n, condition, "condition", ""));
      goes = given != 0;
      return Status::success();
    }
    if (trips > kMostIterations)
      return known(n, condition, "condition", help(condition).c_str()).status();
    TCC_TRY(holds, truth(n, condition));
    running = running ? bothHold(n, running, holds) : holds;
    return Status::success();
  }

  Status iterate(int64_t i) {
    if (i == kMostIterations)
      return error("it has more than {} iterations; {}", kMostIterations, help({}));
    Slots inputs = {Slot{train::splatInt(n.builder, n.loc, n.type({}, n.i64()), i), std::nullopt},
                    Slot{n.splat({}, n.i1(), 1), std::nullopt}};
    inputs.append(state);
    const Value gate = running;
    if (gate)
      for (Slot &slot : llvm::drop_begin(inputs, 2))
        slot.tensor = n.gated(slot.tensor, gate);
    TCC_TRY(outputs, n.importGatedGraph(body, inputs, fmt::format("[{}]", i), gate));
    // The body's condition is ignored if the loop has no condition input, or if the trip count ends the loop anyway.
    if (n.has(1) && i + 1 < trips)
      if (Status status = hear(outputs[0]); !status.ok())
        return status;
    for (size_t k = 0; k < carried; ++k) {
      Slot next = outputs[1 + k];
      if (gate) {
        TCC_TRY(kept,
                chosen(n, gate, next, state[k], body.output(int(1 + k)).name(), "in one iteration", "in another"));
        next = kept;
      }
      state[k] = next;
    }
    for (size_t k = 0; k < scanned.size(); ++k) {
      const Slot &part = outputs[1 + carried + k];
      if (!part.tensor)
        return error("\"{}\" is no tensor and cannot be stacked", body.output(int(1 + carried + k)).name());
      scanned[k].push_back(part.tensor);
    }
    return Status::success();
  }

  NodeImport &n;
  const onnx::GraphProto &body;
  size_t carried = 0;
  int64_t trips = kMostIterations + 1;
  bool goes = true; ///< false once a condition known at compile time fails
  Value running;    ///< if conditions depend on data: whether all held so far
  Slots state;
  std::vector<llvm::SmallVector<Value>> scanned;
};

Status loop(NodeImport &n) {
  const onnx::GraphProto *body = graphOf(n, "body");
  return body ? LoopImport(n, *body).run() : error("it has no body");
}

//===----------------------------------------------------------------------===//
// Scan
//===----------------------------------------------------------------------===//

/// x[.., i, ..] along `dim`, without that dimension.
Value elementOf(NodeImport &n, Value x, int64_t dim, int64_t i) { return n.dropDims(n.slice(x, dim, i, 1), {dim}); }

/// One run of a body over its scanned inputs, `steps` of them: final states, and the parts of each scanned output.
struct ScanRun {
  Slots state;
  std::vector<llvm::SmallVector<Value>> parts;
};
Expected<ScanRun> scanOver(NodeImport &n, const onnx::GraphProto &body, Slots state, llvm::ArrayRef<Value> inputs,
                           llvm::ArrayRef<int64_t> axes, llvm::ArrayRef<int64_t> reversed, int64_t steps,
                           const std::string &suffix) {
  const size_t states = state.size();
  ScanRun run{state, std::vector<llvm::SmallVector<Value>>(size_t(body.output_size()) - states)};
  for (int64_t i = 0; i < steps; ++i) {
    Slots arguments = run.state;
    for (auto [k, input] : llvm::enumerate(inputs)) {
      int64_t extent = train::shapeOf(input)[size_t(axes[k])];
      arguments.push_back(Slot{elementOf(n, input, axes[k], reversed[k] ? extent - 1 - i : i), std::nullopt});
    }
    TCC_TRY(outputs, n.importGraph(body, arguments, fmt::format("{}[{}]", suffix, i)));
    run.state.assign(outputs.begin(), outputs.begin() + long(states));
    for (size_t k = 0; k < run.parts.size(); ++k) {
      if (!outputs[states + k].tensor)
        return error("\"{}\" is no tensor and cannot be stacked", body.output(int(states + k)).name());
      run.parts[k].push_back(outputs[states + k].tensor);
    }
  }
  return run;
}

/// The `count` numbers of an attribute; zeros if it is absent.
Expected<Shape> numbers(NodeImport &n, std::string_view name, size_t count) {
  Shape given = n.intsAttr(name).value_or(Shape(count, 0));
  if (given.size() != count)
    return error("{} has {} entries, not {}", name, given.size(), count);
  return given;
}

Status checkBody(const onnx::GraphProto *body, size_t inputs, int64_t scanned) {
  if (!body)
    return error("it has no body");
  if (scanned < 1 || size_t(scanned) > inputs)
    return error("num_scan_inputs is {}, but there are {} inputs", scanned, inputs);
  if (size_t(body->input_size()) != inputs || size_t(body->output_size()) < inputs - size_t(scanned))
    return error("its body has {} inputs and {} outputs, which do not match {} states and {} scanned inputs",
                       body->input_size(), body->output_size(), inputs - size_t(scanned), scanned);
  return Status::success();
}

/// Since version 9: along any axes, without a batch.
Status scan(NodeImport &n) {
  const onnx::GraphProto *body = graphOf(n, "body");
  const int64_t count = n.intAttr("num_scan_inputs", 0);
  if (Status status = checkBody(body, n.inputs.size(), count); !status.ok())
    return status;
  const size_t states = n.inputs.size() - size_t(count), outputs = size_t(body->output_size()) - states;
  TCC_TRY(axes, numbers(n, "scan_input_axes", size_t(count)));
  TCC_TRY(reversed, numbers(n, "scan_input_directions", size_t(count)));
  TCC_TRY(outputAxes, numbers(n, "scan_output_axes", outputs));
  TCC_TRY(outputReversed, numbers(n, "scan_output_directions", outputs));
  llvm::SmallVector<Value> inputs;
  int64_t steps = -1;
  for (size_t k = 0; k < size_t(count); ++k) {
    Value input = n.inputs[states + k].tensor;
    if (!input)
      return error("its scanned input \"{}\" is no tensor", n.node.input(int(states + k)));
    TCC_TRY(axis, n.axis(axes[k], int64_t(train::shapeOf(input).size())));
    axes[k] = axis;
    int64_t extent = train::shapeOf(input)[size_t(axis)];
    if (steps >= 0 && extent != steps)
      return error("its scanned inputs have different numbers of steps, {} and {}", steps, extent);
    steps = extent;
    inputs.push_back(input);
  }
  Slots state(n.inputs.begin(), n.inputs.begin() + long(states));
  TCC_TRY(run, scanOver(n, *body, state, inputs, axes, reversed, steps, ""));
  n.outputs = run.state;
  for (auto [k, parts] : llvm::enumerate(run.parts)) {
    if (outputReversed[k])
      std::reverse(parts.begin(), parts.end());
    TCC_TRY(stacked, stack(n, parts, outputAxes[k], body->output(int(states + k))));
    n.outputs.push_back(Slot{stacked, std::nullopt});
  }
  return Status::success();
}

/// Version 8: every value has a batch dimension before its steps, and samples may have different lengths.
Status scan8(NodeImport &n) {
  const onnx::GraphProto *body = graphOf(n, "body");
  const int64_t count = n.intAttr("num_scan_inputs", 0);
  if (Status status = checkBody(body, n.inputs.size() - 1, count); !status.ok())
    return status;
  const size_t states = n.inputs.size() - 1 - size_t(count);
  TCC_TRY(reversed, numbers(n, "directions", size_t(count)));
  for (size_t k = 1; k < n.inputs.size(); ++k)
    if (!n.in(unsigned(k)) || n.rank(unsigned(k)) < (k > states ? 2 : 1))
      return error("its input \"{}\" has no batch{}", n.node.input(int(k)), k > states ? ", or no steps" : "");
  const int64_t batch = n.shape(unsigned(states + 1))[0], steps = n.shape(unsigned(states + 1))[1];
  for (size_t k = 1; k < n.inputs.size(); ++k)
    if (n.shape(unsigned(k))[0] != batch || (k > states && n.shape(unsigned(k))[1] != steps))
      return error("its inputs differ in batch or number of steps");
  if (batch > kMostNodes)
    return error("it is unrolled over {} samples; at most {} are supported", batch, kMostNodes);
  Shape lengths(size_t(batch), steps);
  if (n.has(0)) {
    TCC_TRY(given, n.ints(0));
    if (given.size() != size_t(batch) || llvm::any_of(given, [&](int64_t l) { return l < 0 || l > steps; }))
      return error("its sequence_lens {} should be {} numbers, one for each sample, from 0 to {}", shapeText(given),
                   batch, steps);
    lengths = given;
  }
  std::vector<llvm::SmallVector<Value>> finals(states), outputs(size_t(body->output_size()) - states);
  for (int64_t sample = 0; sample < batch; ++sample) {
    const int64_t length = lengths[size_t(sample)];
    Slots state;
    llvm::SmallVector<Value> inputs;
    for (size_t k = 1; k < n.inputs.size(); ++k) {
      Value own = elementOf(n, n.in(unsigned(k)), 0, sample);
      if (k <= states)
        state.push_back(Slot{own, std::nullopt});
      else
        inputs.push_back(n.slice(own, 0, 0, length));
    }
    TCC_TRY(run,
            scanOver(n, *body, state, inputs, Shape(inputs.size(), 0), reversed, length, fmt::format("[{}]", sample)));
    for (size_t k = 0; k < states; ++k)
      finals[k].push_back(run.state[k].tensor);
    for (size_t k = 0; k < outputs.size(); ++k) {
      TCC_TRY(stacked, stack(n, run.parts[k], 0, body->output(int(states + k))));
      if (length < steps) { // zeros after the end
        Shape rest(train::shapeOf(stacked));
        rest[0] = steps;
        auto type = n.type(rest, train::elementTypeOf(stacked));
        stacked = train::PadOp::create(n.builder, n.loc, type, stacked, Shape(rest.size(), 0), Shape(rest.size(), 1),
                                       llvm::APFloat(0.0));
      }
      outputs[k].push_back(stacked);
    }
  }
  n.outputs.clear();
  for (size_t k = 0; k < states + outputs.size(); ++k) {
    TCC_TRY(stacked, stack(n, k < states ? finals[k] : outputs[k - states], 0, body->output(int(k))));
    n.outputs.push_back(Slot{stacked, std::nullopt});
  }
  return Status::success();
}

constexpr OpEntry kTable[] = {
    {"If", 1, ifOp, 1, 28, "", true},
    {"Loop", 0, loop, 1, 28, "", true},
    {"Scan", 0, scan8, 8, 8, "", true},
    {"Scan", 1, scan, 9, 28, "", true},
};

} // namespace
} // namespace control

std::span<const OpEntry> controlFlowOps() { return control::kTable; }

} // namespace tcc::frontend
