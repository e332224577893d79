//===- EmitVariables.cpp - write state and its first values ----------------===//
#include "compiler/emit/EmitVariables.h"

#include "compiler/dialect/FourBits.h"
#include "compiler/dialect/PlanTypes.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/emit/ExternalPath.h"
#include "passes/Common.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Int8.h"
#include "runtime/plan/Roles.h"
#include "support/RegularFile.h"

#include "mlir/IR/Threading.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstring>
#include <span>

using namespace mlir;

namespace tcc::emit {

namespace {

/// Maps an initializer's part of an external file.
Expected<std::unique_ptr<llvm::MemoryBuffer>> mapWeights(const Initializer &initializer) {
  // Refuses FIFOs and devices, on which mapping would block or not end.
  Expected<RegularFile> file = RegularFile::open(initializer.file, RegularFile::Accept::RegularFiles, "external data");
  if (!file)
    return file.status();
  auto buffer = llvm::MemoryBuffer::getOpenFileSlice(llvm::sys::fs::file_t(file->descriptor()), initializer.file,
                                                     initializer.bytes, int64_t(initializer.offset));
  if (!buffer)
    return error("{}: cannot read the weights of `{}` ({} bytes from offset {}): {}", initializer.file,
                       initializer.name, initializer.bytes, initializer.offset, buffer.getError().message());
  if ((*buffer)->getBufferSize() < initializer.bytes)
    return error("{}: ends before the weights of `{}` do ({} bytes from offset {}); copy the file again",
                       initializer.file, initializer.name, initializer.bytes, initializer.offset);
  return std::move(*buffer);
}

/// Converts stored floats to the variable's type, where an analysis runs the model in another precision.
std::string convert(const char *data, const Initializer &initializer, RankedTensorType type) {
  MLIRContext *context = type.getContext();
  Type from = initializer.type.dtype() == plan::F64    ? Type(Float64Type::get(context))
              : initializer.type.dtype() == plan::BF16 ? Type(BFloat16Type::get(context))
              : initializer.type.dtype() == plan::F16  ? Type(Float16Type::get(context))
                                                       : Type(Float32Type::get(context));
  train::HostTensor source(RankedTensorType::get(type.getShape(), from)), target(type);
  std::memcpy(source.data(), data, source.sizeBytes());
  for (int64_t i = 0; i < source.size(); ++i)
    target.setDouble(i, source.getDouble(i));
  return std::string(target.data(), target.sizeBytes());
}

/// The layout of a variable in 4 bits; nothing for other variables.
std::optional<plan::FourBits> fourBitsOf(train::VariableOp variable) {
  auto facts = variable->getAttrOfType<DictionaryAttr>(train::names::kFourBits);
  if (!facts)
    return std::nullopt;
  llvm::ArrayRef<int64_t> dims = facts.getAs<DenseI64ArrayAttr>("dims"),
                          strides = facts.getAs<DenseI64ArrayAttr>("strides");
  plan::FourBits layout = train::layoutOf(*train::symbolizeFourBitCode(facts.getAs<StringAttr>("code").getValue()),
                                          uint64_t(facts.getAs<IntegerAttr>("block").getInt()), dims, strides);
  if (variable->hasAttr(train::names::kNestedScale))
    layout.set_nested(true);
  return layout;
}

/// Rounds stored floats to 8 or 4 bits, and writes their scales.
Status emitRounded(const char *data, const Initializer &initializer, train::VariableOp scale, plan::PlanWriter &writer,
                   plan::Variable &variable, std::map<std::string, uint32_t> &scalePayloads) {
  const auto elements = std::as_bytes(std::span(data, initializer.bytes));
  variable.set_scale(scale.getSymName().str());
  auto store = [&](const auto &values, std::span<const std::byte> scales) {
    variable.set_payload(writer.addPayload(values.data(), values.size()));
    scalePayloads[variable.scale()] = writer.addPayload(scales.data(), scales.size());
    return Status();
  };
  if (variable.has_four_bits()) {
    if (auto packed = plan::roundToFourBits(elements, initializer.type.dtype(), variable.four_bits())) {
      if (!variable.nested_scale().empty())
        scalePayloads[variable.nested_scale()] =
            writer.addPayload(packed->nested.numbers.data(), packed->nested.numbers.size() * sizeof(float));
      return store(packed->bytes, packed->scaleBytes());
    }
  } else {
    plan::TensorType from = variable.type(), scaleType;
    from.set_dtype(initializer.type.dtype());
    scaleType.set_dtype(plan::F32);
    for (int64_t extent : cast<RankedTensorType>(scale.getType()).getShape())
      scaleType.add_dims(extent);
    if (auto rounded = plan::roundToInt8(elements, from, scaleType))
      return store(rounded->values, std::as_bytes(std::span(rounded->scales)));
  }
  return error(
      "adapter.base: `{}` holds a value that is infinite or NaN, which {} bits do not have; leave adapter.base out",
      initializer.name, variable.has_four_bits() ? 4 : 8);
}

} // namespace

Expected<std::map<std::string, uint32_t>> emitVariables(ModuleOp module, plan::PlanWriter &writer,
                                                              const EmitOptions &options, plan::Plan &plan) {
  std::map<std::string, uint32_t> indices;
  std::map<std::string, uint32_t> scalePayloads; // by variable with scales
  std::vector<std::pair<plan::ExternalBytes *, std::unique_ptr<llvm::MemoryBuffer>>> outside; // still to be hashed
  uint64_t total = 0, offsets[2] = {0, 0}; // on the device, and on the host
  for (const auto &[name, initializer] : options.model->initializers)
    total += initializer.bytes;
  bool inside = options.embedWeights || total <= kEmbeddedWeightsBytes;
  const SymbolTable symbols(module);
  for (auto op : module.getOps<train::VariableOp>()) {
    plan::Variable &variable = *plan.add_variables();
    auto type = cast<RankedTensorType>(op.getType()), stored = type; // of the first value, unsharded
    if (auto whole = op->getAttrOfType<TypeAttr>(train::names::kWhole))
      stored = cast<RankedTensorType>(whole.getValue());
    std::string name = op.getSymName().str();
    indices[name] = plan.variables_size() - 1;
    variable.set_name(name);
    variable.mutable_type()->set_dtype(train::toPlan(type.getElementType()));
    for (int64_t extent : type.getShape())
      variable.mutable_type()->add_dims(extent);
    variable.set_role(plan::roleFromName(op.getRole()).value_or(plan::FROZEN));
    variable.set_group(op.getGroup());
    if (op->hasAttr(train::names::kWhole))
      variable.mutable_shard()->mutable_dims()->Assign(stored.getShape().begin(), stored.getShape().end());
    const bool onHost = op->hasAttr(train::names::kOnHost);
    variable.set_arena(onHost ? plan::HOST_RESIDENT : plan::RESIDENT);
    variable.set_offset(offsets[onHost]);
    offsets[onHost] += train::residentBytes(op);
    if (options.describeOnly)
      continue;
    auto found = options.model->initializers.find(name);
    if (op.getFill()) {
      variable.set_fill(op.getFill()->convertToDouble());
    } else if (op.getValue()) {
      train::HostTensor value = train::HostTensor::fromAttribute(*op.getValue());
      variable.set_payload(writer.addPayload(value.data(), value.sizeBytes()));
    } else if (auto scales = scalePayloads.find(name); scales != scalePayloads.end()) {
      variable.set_payload(scales->second);
    } else if (found == options.model->initializers.end()) {
      return error("internal error: variable `{}` has no first value", name);
    } else {
      const Initializer &initializer = found->second;
      variable.set_node(initializer.node);
      variable.set_display(initializer.display);
      variable.set_computed(initializer.computed && variable.role() == plan::FROZEN);
      if (!initializer.torchName.empty()) {
        plan::TorchParameter &torch = *variable.mutable_torch();
        torch.set_name(initializer.torchName);
        torch.mutable_dims()->Assign(initializer.torch.dims.begin(), initializer.torch.dims.end());
        torch.set_transposed(initializer.torch.transposed);
        torch.set_by_node(initializer.namedByNode);
      }
      bool sameType = initializer.type.dtype() == variable.type().dtype();
      if (plan::dtypeBytes(variable.type().dtype()) < plan::dtypeBytes(initializer.type.dtype()))
        variable.set_model_dtype(initializer.type.dtype());
      if (std::optional<plan::FourBits> layout = fourBitsOf(op))
        *variable.mutable_four_bits() = *layout;
      if (auto nested = op->getAttrOfType<StringAttr>(train::names::kNestedScale))
        variable.set_nested_scale(nested.getValue().str());
      auto scale = op->getAttrOfType<StringAttr>(train::names::kScale);
      auto store = [&](const char *data) -> Status {
        if (scale)
          return emitRounded(data, initializer, symbols.lookup<train::VariableOp>(scale), writer, variable,
                             scalePayloads);
        variable.set_payload(writer.addPayload(convert(data, initializer, stored)));
        return Status();
      };
      if (initializer.data && !sameType) {
        if (Status status = store(initializer.data); !status.ok())
          return status;
        continue;
      }
      if (initializer.data) {
        variable.set_payload(writer.addPayloadView(initializer.data, initializer.bytes));
        continue;
      }
      Expected<std::unique_ptr<llvm::MemoryBuffer>> file = mapWeights(initializer);
      if (!file)
        return file.status();
      const char *data = (*file)->getBufferStart();
      if (!sameType) {
        if (Status status = store(data); !status.ok())
          return status;
      } else if (inside) {
        variable.set_payload(writer.addPayload(data, initializer.bytes));
      } else {
        plan::ExternalBytes &external = *variable.mutable_external();
        external.set_path(externalPath(initializer.file, options.planFolder));
        external.set_offset(initializer.offset);
        external.set_bytes(initializer.bytes);
        outside.push_back({&external, file.take()});
      }
    }
  }
  parallelFor(module.getContext(), 0, outside.size(), [&](size_t i) {
    auto &[external, file] = outside[i];
    external->set_xxh3(plan::hashBytes(file->getBufferStart(), external->bytes()));
    file.reset();
  });
  return indices;
}

} // namespace tcc::emit
