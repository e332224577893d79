//===- ModelValues.cpp - a model's values after training, as exports write them -===//
#include "runtime/state/ModelValues.h"
#include "runtime/plan/FourBits.h"
#include "runtime/plan/Int8.h"
#include "support/Advice.h"
#include "support/NearestName.h"

#include <algorithm>
#include <cstring>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

std::optional<std::string> tcc::runtime::insideRoot(const std::string &name, const std::string &root) {
  if (root.empty())
    return name;
  const std::string prefix = root + ".";
  return name.starts_with(prefix) && name.size() > prefix.size() ? std::optional(name.substr(prefix.size()))
                                                                 : std::nullopt;
}

Status tcc::runtime::noNameInside(const plan::Plan &plan, const std::string &root) {
  std::set<std::string> roots;
  for (const plan::Variable &variable : plan.variables())
    if (isModelValue(variable))
      if (const std::string &name = torchName(variable); name.find('.') != name.npos)
        roots.insert(name.substr(0, name.find('.')));
  return Status(fmt::format("{}: no weight's name begins with '{}.'; {}", advice::option("root", root), root,
                            nearestOrSome(root, std::vector<std::string>(roots.begin(), roots.end()))),
                StatusCode::Usage);
}

ModelValues::ModelValues(const plan::PlanReader &reader, const TrainedValues &trained, const std::string &folder)
    : plan(reader.plan()), trained(trained), initial(reader, folder) {
  for (const plan::Variable &variable : plan.variables())
    byName[variable.name()] = &variable;
  for (const plan::Adapter &adapter : plan.adapters().list()) {
    adapters[adapter.of()] = &adapter;
    partsOfAdapters.insert({adapter.a(), adapter.b()});
  }
}

bool ModelValues::isChanged(const plan::Variable &variable) const {
  return trained.has(variable) || adapters.count(variable.name()) || variable.model_dtype() != plan::DTYPE_NONE;
}

plan::TensorType ModelValues::typeOf(const plan::Variable &variable) const { return plan::valueType(variable); }

Expected<std::vector<std::byte>> ModelValues::bytesOf(const plan::Variable &variable) {
  std::vector<std::byte> bytes;
  bytes.reserve(plan::tensorBytes(variable.type()).value_or(0));
  auto take = [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status();
  };
  Status status = trained.has(variable) ? trained.stream(variable, take) : initial.stream(variable, take);
  if (!status.ok())
    return status;
  return bytes;
}

Expected<std::vector<std::byte>> ModelValues::scalesOf(const plan::Variable &variable) {
  auto scales = bytesOf(this->variable(variable.scale()));
  if (!scales || variable.nested_scale().empty())
    return scales;
  auto numbers = bytesOf(this->variable(variable.nested_scale()));
  if (!numbers)
    return numbers.status();
  const std::vector<float> wide = plan::widenScales(*scales, *numbers);
  const auto bytes = std::as_bytes(std::span(wide));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

Expected<std::vector<std::byte>> ModelValues::held(const plan::Variable &variable) {
  auto bytes = bytesOf(variable);
  if (!bytes || variable.scale().empty())
    return bytes;
  auto scales = scalesOf(variable);
  if (!scales)
    return scales.status();
  if (!variable.has_four_bits())
    return plan::widenInt8(*bytes, variable.type(), *scales, this->variable(variable.scale()).type(), plan::F32);
  plan::FourBits layout = variable.four_bits();
  layout.clear_nested();
  return plan::widenFourBits(*bytes, *scales, layout, plan::F32);
}

Status ModelValues::streamRows(const plan::Variable &variable, const RowSink &sink) {
  const auto rows = static_cast<uint64_t>(typeOf(variable).dims_size() ? typeOf(variable).dims(0) : 1);
  if (!variable.has_four_bits()) {
    auto all = held(variable);
    return all ? sink(0, rows, *all) : all.status();
  }
  auto codes = bytesOf(variable), scales = scalesOf(variable);
  for (const auto *part : {&codes, &scales})
    if (!*part)
      return part->status();
  // As many rows as a block has codes begin with a block, whatever their distance.
  plan::FourBits layout = variable.four_bits();
  layout.clear_nested();
  const auto block = static_cast<uint64_t>(layout.block()), stride = static_cast<uint64_t>(layout.strides(0));
  for (uint64_t begin = 0; begin < rows; begin += block) {
    const uint64_t count = std::min(block, rows - begin), first = begin * stride;
    layout.set_dims(0, static_cast<int64_t>(count));
    auto part = [](std::span<const std::byte> all, uint64_t at, const plan::TensorType &type) {
      return all.subspan(at, plan::tensorBytes(type).value_or(0));
    };
    const std::vector<std::byte> piece =
        plan::widenFourBits(part(*codes, first / 2, plan::bytesType(layout)),
                            part(*scales, first / block * sizeof(float), plan::scalesType(layout)), layout, plan::F32);
    if (Status status = sink(begin, count, piece); !status.ok())
      return status;
  }
  return Status();
}

/// W + scale · B·A in the model's type; a filter counts as a matrix [channels of the result, all other axes]. Sums are
/// in f64, and the result is rounded once.
Status ModelValues::streamMerged(const plan::Variable &variable, const plan::Adapter &adapter, const ByteSink &sink) {
  const plan::Variable &first = this->variable(adapter.a()), &second = this->variable(adapter.b());
  auto a = held(first), b = held(second);
  for (const auto *part : {&a, &b})
    if (!*part)
      return part->status();
  const plan::DType from = variable.scale().empty() ? variable.type().dtype() : plan::F32,
                    to = typeOf(variable).dtype();
  const uint64_t rows = static_cast<uint64_t>(typeOf(variable).dims(0)),
                 columns = plan::elementCount(typeOf(variable)).value_or(0) / std::max<uint64_t>(rows, 1);
  const uint64_t rank = static_cast<uint64_t>(first.type().dims(0)),
                 inputs = plan::elementCount(first.type()).value_or(0) / std::max<uint64_t>(rank, 1);
  std::vector<double> down(rank * inputs), up(static_cast<uint64_t>(second.type().dims(0)) * rank);
  for (size_t i = 0; i < down.size(); ++i)
    down[i] = plan::floatElement(a->data(), first.type().dtype(), i);
  for (size_t i = 0; i < up.size(); ++i)
    up[i] = plan::floatElement(b->data(), second.type().dtype(), i);
  const uint64_t size = plan::dtypeBytes(to);
  return streamRows(variable, [&](uint64_t begin, uint64_t count, std::span<const std::byte> base) {
    std::vector<std::byte> result(count * columns * size);
    for (uint64_t i = begin; i < begin + count; ++i)
      for (uint64_t j = 0; j < columns; ++j) {
        const uint64_t in = adapter.input_first() ? i : j, out = adapter.input_first() ? j : i;
        double sum = 0;
        for (uint64_t r = 0; r < rank; ++r)
          sum += up[out * rank + r] * down[r * inputs + in];
        const uint64_t at = (i - begin) * columns + j;
        plan::fillElements(result.data() + at * size, to, 1,
                           plan::floatElement(base.data(), from, at) + plan.adapters().scale() * sum);
      }
    return sink(result);
  });
}

Status ModelValues::stream(const plan::Variable &variable, const ByteSink &sink) {
  if (auto adapter = adapters.find(variable.name()); adapter != adapters.end())
    return streamMerged(variable, *adapter->second, sink);
  const plan::DType from = variable.scale().empty() ? variable.type().dtype() : plan::F32,
                    to = typeOf(variable).dtype();
  if (from == to && variable.scale().empty())
    return trained.has(variable) ? trained.stream(variable, sink) : initial.stream(variable, sink);
  return streamRows(variable, [&](uint64_t, uint64_t, std::span<const std::byte> values) {
    const uint64_t count = values.size() / plan::dtypeBytes(from), size = plan::dtypeBytes(to);
    std::vector<std::byte> wide(count * size);
    for (uint64_t i = 0; i < count; ++i)
      plan::fillElements(wide.data() + i * size, to, 1, plan::floatElement(values.data(), from, i));
    return sink(wide);
  });
}

Status ModelValues::streamTorch(const plan::Variable &variable, const ByteSink &sink) {
  if (!variable.torch().transposed())
    return stream(variable, sink);
  std::vector<std::byte> bytes;
  Status status = stream(variable, [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status();
  });
  return status.ok() ? sink(transposedMatrix(bytes, static_cast<uint64_t>(typeOf(variable).dims(0)),
                                             static_cast<uint64_t>(typeOf(variable).dims(1))))
                     : status;
}

Expected<std::vector<std::byte>> ModelValues::ofTie(const plan::Tie &tie) {
  auto found = byName.find(tie.of());
  if (found == byName.end())
    return error("the plan's '{}' copies '{}', which it does not have; compile the model again", tie.name(), tie.of());
  std::vector<std::byte> bytes;
  Status status = stream(*found->second, [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status();
  });
  if (!status.ok())
    return status;
  plan::Variable original;
  *original.mutable_type() = typeOf(*found->second);
  return tiedBytes(tie, original, bytes);
}
