//===- RegressionPlan.h - a hand-made plan that trains -------------------===//
//
// Linear regression with SGD and momentum: w [3] starts at 0, batches of 4, lr 0.1, momentum 0.9; `frozen` [2] is not
// trained. Kernels are those of RegressionKernels.c; the ONNX model inside is MatMul(x, w).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_TRAIN_REGRESSIONPLAN_H
#define TCC_TEST_UNIT_TRAIN_REGRESSIONPLAN_H

#include "runtime/cpu/Library.h"
#include "test/support/MachineLevel.h"
#include "support/MappedFile.h"
#include "test/support/HandMadeCode.h"
#include "test/unit/data/DataFixture.h"

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Spaces.h"

#include <onnx/onnx-ml.pb.h>

namespace tcc::test {

enum RegressionVariable { kWeight, kMomentum, kSums, kFrozen };

/// Builds an entry with one kernel. Operands are the buffers that value() and state() return.
class EntryBuilder {
public:
  EntryBuilder(plan::Plan &plan, const std::string &name) : plan(plan), entry(*plan.add_entries()) {
    entry.set_name(name);
    entry.set_scalars(-1);
    entry.set_batch(1);
  }

  uint32_t value(const std::string &name, std::vector<int64_t> dims, plan::Buffer::Kind kind) {
    plan::Buffer &buffer = add(name, dims, kind);
    buffer.set_arena(plan::TRANSIENT);
    buffer.set_offset(entry.transient_bytes());
    buffer.set_variable(-1);
    bool output = kind == plan::Buffer::OUTPUT;
    buffer.set_first(output ? 0 : -1);
    buffer.set_last(output ? 1 : 0);
    entry.set_transient_bytes(entry.transient_bytes() + 64);
    auto index = static_cast<uint32_t>(entry.buffers_size() - 1);
    if (kind == plan::Buffer::INPUT)
      entry.set_batch(4);
    if (kind == plan::Buffer::SCALARS)
      entry.set_scalars(static_cast<int32_t>(index));
    if (kind == plan::Buffer::INPUT || output) {
      plan::Port *port = output ? entry.add_outputs() : entry.add_inputs();
      port->set_name(name);
      port->set_buffer(index);
      port->set_sample_axis(!dims.empty() && dims[0] == 4 ? 0 : -1);
    }
    return index;
  }
  uint32_t state(int variable) {
    const plan::Variable &source = plan.variables(variable);
    plan::Buffer &buffer = add(source.name(), {source.type().dims(0)}, plan::Buffer::STATE);
    buffer.set_arena(plan::RESIDENT);
    buffer.set_offset(source.offset());
    buffer.set_variable(variable);
    buffer.set_first(-1);
    buffer.set_last(1);
    return static_cast<uint32_t>(entry.buffers_size() - 1);
  }

  /// Adds the only instruction. A buffer that is both read and written is updated in place.
  void kernel(const std::string &symbol, std::vector<uint32_t> reads, std::vector<uint32_t> writes) {
    plan::Instruction &call = *entry.add_instructions();
    call.mutable_kernel()->set_symbol(symbol);
    call.mutable_kernel()->set_tiles(1);
    call.set_node("node_" + symbol);
    for (uint32_t buffer : reads) {
      plan::Operand *operand = call.add_operands();
      operand->set_buffer(buffer);
      operand->set_read(true);
    }
    for (uint32_t buffer : writes) {
      plan::Operand *operand = call.add_operands();
      operand->set_buffer(buffer);
      operand->set_write(true);
      operand->set_version_written(1);
      for (uint32_t i = 0; i < reads.size(); ++i)
        if (reads[i] == buffer) {
          plan::InPlace *pair = call.add_in_place();
          pair->set_source(i);
          pair->set_destination(static_cast<uint32_t>(call.operands_size() - 1));
        }
    }
    plan::setSpaceBytes(plan, plan::TRANSIENT, std::max(plan::spaceBytes(plan, plan::TRANSIENT), entry.transient_bytes()));
  }

private:
  plan::Buffer &add(const std::string &name, const std::vector<int64_t> &dims, plan::Buffer::Kind kind) {
    plan::Buffer &buffer = *entry.add_buffers();
    buffer.set_name(name);
    *buffer.mutable_type() = typeOf(plan::F32, dims);
    buffer.set_bytes(plan::tensorBytes(buffer.type()).value_or(0));
    buffer.set_kind(kind);
    return buffer;
  }
  plan::Plan &plan;
  plan::Entry &entry;
};

inline void addRegressionEntries(plan::Plan &plan, int64_t accumulate) {
  using Kind = plan::Buffer;
  auto inputs = [](EntryBuilder &entry) {
    uint32_t x = entry.value("x", {4, 3}, Kind::INPUT);
    return std::pair(x, entry.value("y", {4}, Kind::INPUT));
  };
  auto losses = [](EntryBuilder &entry) {
    uint32_t sum = entry.value("loss_sum", {}, Kind::OUTPUT);
    return std::pair(sum, entry.value("loss_weight", {}, Kind::OUTPUT));
  };
  if (accumulate == 1) {
    EntryBuilder entry(plan, "step");
    auto [x, y] = inputs(entry);
    uint32_t scalars = entry.value("scalars", {3}, Kind::SCALARS), w = entry.state(kWeight), m = entry.state(kMomentum);
    auto [sum, weight] = losses(entry);
    entry.kernel("step", {x, y, scalars, w, m}, {w, m, sum, weight, entry.value("grad_norm", {}, Kind::OUTPUT)});
  } else {
    for (const char *name : {"accumulate_first", "accumulate_next"}) {
      EntryBuilder entry(plan, name);
      auto [x, y] = inputs(entry);
      uint32_t w = entry.state(kWeight), sums = entry.state(kSums);
      auto [sum, weight] = losses(entry);
      std::vector<uint32_t> reads = {x, y, w};
      if (name == std::string("accumulate_next"))
        reads.push_back(sums);
      entry.kernel(name, reads, {sums, sum, weight});
    }
    EntryBuilder entry(plan, "update");
    uint32_t scalars = entry.value("scalars", {3}, Kind::SCALARS), sums = entry.state(kSums), w = entry.state(kWeight),
             m = entry.state(kMomentum);
    entry.kernel("update", {scalars, sums, w, m}, {w, m, entry.value("grad_norm", {}, Kind::OUTPUT)});
  }
  {
    EntryBuilder entry(plan, "evaluate");
    auto [x, y] = inputs(entry);
    uint32_t w = entry.state(kWeight);
    auto [sum, weight] = losses(entry);
    entry.kernel("evaluate", {x, y, w}, {sum, weight});
  }
  {
    EntryBuilder entry(plan, "predict");
    uint32_t x = entry.value("x", {4, 3}, Kind::INPUT), w = entry.state(kWeight);
    entry.kernel("predict", {x, w}, {entry.value("prediction", {4}, Kind::OUTPUT)});
  }
  EntryBuilder entry(plan, "gradients");
  auto [x, y] = inputs(entry);
  uint32_t w = entry.state(kWeight), loss = entry.value("loss", {}, Kind::OUTPUT);
  entry.kernel("loss_gradients", {x, y, w}, {loss, entry.value("gradient:w", {3}, Kind::OUTPUT)});
}

/// The ONNX model without the trained weight's bytes.
inline std::string regressionModel(int64_t frozen) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto &graph = *model.mutable_graph();
  graph.set_name("regression");
  for (auto [name, size] : {std::pair("w", int64_t(3)), std::pair("frozen", frozen)}) {
    onnx::TensorProto &tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.add_dims(size);
  }
  onnx::NodeProto &node = *graph.add_node();
  node.set_op_type("MatMul");
  node.add_input("x");
  node.add_input("w");
  node.add_output("prediction");
  graph.add_input()->set_name("x");
  graph.add_output()->set_name("prediction");
  return model.SerializeAsString();
}

/// Writes the plan after applying `change`. `frozen` is the size of the frozen weight.
inline std::string writeRegressionPlan(const std::string &path, int64_t accumulate = 1,
                                       const std::function<void(plan::Plan &)> &change = nullptr, int64_t frozen = 2) {
  plan::Plan plan;
  plan.set_producer("test");
  plan.set_model("regression.onnx");
  plan.set_target(test::machineLevel());
  plan.set_max_workers(2);
  plan.set_library(runtime::libraryName());
  auto variable = [&](const char *name, int64_t size, plan::VariableRole role, double fill) {
    plan::Variable &made = *plan.add_variables();
    made.set_name(name);
    *made.mutable_type() = typeOf(plan::F32, {size});
    made.set_role(role);
    made.set_fill(fill);
    made.set_offset(static_cast<uint64_t>(plan.variables_size() - 1) * 64);
    made.set_group(role == plan::PARAMETER ? 0 : -1);
  };
  variable("w", 3, plan::PARAMETER, 0);
  variable("w/momentum_buffer", 3, plan::OPTIMIZER, 0);
  variable("w/sums", 5, plan::ACCUMULATOR, 0);
  variable("frozen", frozen, plan::FROZEN, 5);
  plan::setSpaceBytes(plan, plan::RESIDENT, 3 * 64 + 4 * static_cast<uint64_t>(frozen));
  addRegressionEntries(plan, accumulate);
  plan::Training &training = *plan.mutable_training();
  training.mutable_optimizer()->set_kind("sgd");
  for (auto [name, value] : {std::pair("lr", 0.1), std::pair("momentum", 0.9), std::pair("weight_decay", 0.0)})
    (*training.mutable_optimizer()->mutable_numbers())[name] = value;
  training.mutable_optimizer()->add_groups()->set_name("default");
  training.mutable_optimizer()->mutable_groups(0)->set_lr_scale(1);
  training.set_accumulate(accumulate);
  training.set_loss_kind("mse");
  training.set_target("y");
  for (const char *name : {"g0.lr", "momentum", "first_update"})
    training.add_scalars(name);
  plan::PlanWriter writer;
  auto code = tcc::readFile(REGRESSION_KERNELS);
  EXPECT_TRUE(code.ok()) << code.message();
  plan::CodeObject &object = *plan.add_code_objects();
  object.set_payload(writer.addPayload(*code));
  object.set_abi(plan::kKernelAbiVersion);
  describeKernels(plan);
  bindCode(object, *code);
  plan.set_model_payload(static_cast<int32_t>(writer.addPayload(regressionModel(frozen))));
  if (change)
    change(plan);
  Status status = writer.write(plan, path);
  EXPECT_TRUE(status.ok()) << status.message();
  return path;
}

/// Writes `samples` samples of y = x · (1, -2, 3) with fixed x.
inline std::string writeRegressionData(const std::string &path, int64_t samples) {
  std::vector<float> x, y;
  for (int64_t i = 0; i < samples; ++i) {
    float row[3] = {static_cast<float>(i % 5) / 4 - 0.5f, static_cast<float>(i % 3) - 1,
                    static_cast<float>(i % 7) / 6 - 0.4f};
    x.insert(x.end(), row, row + 3);
    y.push_back(row[0] - 2 * row[1] + 3 * row[2]);
  }
  auto hash = runtime::writeSafetensors(
      path, {tensorOf("x", plan::F32, {samples, 3}, x), tensorOf("y", plan::F32, {samples}, y)});
  EXPECT_TRUE(hash.ok()) << hash.message();
  return path;
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_TRAIN_REGRESSIONPLAN_H
