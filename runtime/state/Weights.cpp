//===- Weights.cpp - values of a plan's variables, from files and to the device -===//
#include "runtime/state/Weights.h"

#include <algorithm>
#include <cstring>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

std::vector<bool> tcc::runtime::writtenVariables(const plan::Plan &plan) {
  std::vector<bool> written(static_cast<size_t>(plan.variables_size()), false);
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &instruction : entry.instructions())
      for (const plan::Operand &operand : instruction.operands()) {
        int variable = entry.buffers(static_cast<int>(operand.buffer())).variable();
        if (operand.write() && variable >= 0)
          written[static_cast<size_t>(variable)] = true;
      }
  return written;
}

plan::Expected<std::span<const std::byte>> InitialWeights::bytes(const plan::Variable &variable) {
  uint64_t size = plan::tensorBytes(variable.type()).value_or(0);
  if (variable.has_payload())
    return reader.payload(variable.payload());
  if (variable.has_external()) {
    std::string path = variable.external().path();
    if (!path.starts_with('/'))
      path = folder + "/" + path;
    auto &file = files[path];
    if (!file) {
      auto opened = MappedFile::open(path);
      if (!opened)
        return opened.status().withContext(fmt::format("weights of '{}'", variable.name()));
      file = opened.take();
    }
    std::span<const std::byte> whole = file->bytes();
    uint64_t offset = variable.external().offset();
    if (offset > whole.size() || size > whole.size() - offset)
      return plan::error("{}: truncated: '{}' takes {} bytes at offset {}, the file holds {}", path, variable.name(),
                         size, offset, whole.size());
    std::span<const std::byte> part = whole.subspan(offset, size);
    if (plan::hashBytes(part.data(), part.size()) != variable.external().xxh3())
      return plan::error("{}: the bytes of '{}' are not those the plan was compiled with; bring the file back", path,
                         variable.name());
    return part;
  }
  std::vector<std::byte> &values = filled[variable.name()];
  values.resize(size);
  plan::fillElements(values.data(), variable.type().dtype(), plan::elementCount(variable.type()).value_or(0),
                     variable.fill());
  return std::span<const std::byte>(values);
}

plan::Expected<size_t> tcc::runtime::loadWeights(const plan::Plan &plan, Device &device, const std::string &path) {
  auto file = SafetensorsFile::open(path);
  if (!file)
    return file.status();
  std::map<std::string, int> byName;
  std::vector<std::string> names;
  for (int i = 0; i < plan.variables_size(); ++i)
    if (isModelValue(plan.variables(i))) {
      byName[plan.variables(i).name()] = i;
      names.push_back(plan.variables(i).name());
    }
  std::set<std::string> copies; // of a variable that the file holds too
  for (const plan::Tie &tie : plan.ties())
    if (std::any_of(file->tensors().begin(), file->tensors().end(), [&](auto &t) { return t.name == tie.of(); }))
      copies.insert(tie.name());
  for (const Tensor &tensor : file->tensors()) {
    auto found = byName.find(tensor.name);
    if (copies.count(tensor.name))
      continue;
    if (found == byName.end()) {
      std::string nearest = nearestName(tensor.name, names);
      return plan::error("{}: the model has no initializer '{}'{}", path, tensor.name,
                         nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
    }
    const plan::Variable &variable = plan.variables(found->second);
    if (plan::typeName(tensor.type) != plan::typeName(variable.type()))
      return plan::error("{}: '{}' is {}, the model's is {}", path, tensor.name, plan::typeName(tensor.type),
                         plan::typeName(variable.type()));
  }
  if (file->tensors().empty() && !names.empty())
    return plan::error("{}: it holds no weights", path);
  for (const Tensor &tensor : file->tensors())
    if (copies.count(tensor.name))
      continue;
    else if (void *destination = device.variableData(static_cast<uint32_t>(byName[tensor.name])))
      std::memcpy(destination, tensor.bytes.data(), tensor.bytes.size());
  return file->tensors().size();
}

plan::Expected<std::vector<std::byte>> tcc::runtime::tiedBytes(const plan::Tie &tie, const plan::Variable &of,
                                                               std::span<const std::byte> elements) {
  std::vector<std::byte> out(elements.begin(), elements.end());
  const size_t rank = static_cast<size_t>(tie.permutation_size());
  const uint64_t count = plan::elementCount(tie.type()).value_or(0);
  std::vector<bool> seen(rank, false);
  bool sound = plan::tensorBytes(tie.type()).value_or(0) == elements.size() && tie.type().dtype() == of.type().dtype() &&
               (rank == 0 || static_cast<int>(rank) == of.type().dims_size());
  for (int64_t axis : tie.permutation()) {
    sound = sound && axis >= 0 && axis < static_cast<int64_t>(rank) && !seen[static_cast<size_t>(axis)];
    if (sound)
      seen[static_cast<size_t>(axis)] = true;
  }
  for (size_t d = 0; sound && d < rank; ++d)
    sound = tie.type().dims(static_cast<int>(d)) ==
            of.type().dims(static_cast<int>(tie.permutation(static_cast<int>(d))));
  if (!sound)
    return plan::error("the plan's '{}' is no copy of '{}'; compile the model again", tie.name(), of.name());
  if (rank == 0 || count == 0)
    return out;
  const size_t size = elements.size() / count;
  std::vector<uint64_t> strides(rank, 1), index(rank, 0);
  for (size_t d = rank - 1; d-- > 0;)
    strides[d] = strides[d + 1] * static_cast<uint64_t>(of.type().dims(static_cast<int>(d + 1)));
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t source = 0;
    for (size_t d = 0; d < rank; ++d)
      source += index[d] * strides[static_cast<size_t>(tie.permutation(static_cast<int>(d)))];
    std::memcpy(&out[i * size], &elements[source * size], size);
    for (size_t d = rank; d-- > 0 && ++index[d] == static_cast<uint64_t>(tie.type().dims(static_cast<int>(d)));)
      index[d] = 0;
  }
  return out;
}

std::string tcc::runtime::nearestName(const std::string &name, const std::vector<std::string> &candidates) {
  size_t best = name.size() / 3 + 2;
  std::string nearest;
  for (const std::string &candidate : candidates) {
    if (candidate.size() > name.size() + best || name.size() > candidate.size() + best)
      continue;
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j <= candidate.size(); ++j)
      row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        size_t replaced = diagonal + (name[i - 1] != candidate[j - 1]);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best) {
      best = row.back();
      nearest = candidate;
    }
  }
  return nearest;
}
