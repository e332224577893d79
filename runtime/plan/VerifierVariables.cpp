//===- VerifierVariables.cpp - state and its copies -----------------------===//
#include "runtime/plan/FourBits.h"
#include "runtime/plan/Int8.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VerifierImpl.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace tcc::plan::verifier {

namespace {
/// A control character would cut a file name short or garble it on a terminal.
bool hasControlCharacters(const std::string &name) {
  return std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

void verifyVariableSource(const Plan &plan, const Variable &variable, uint64_t bytes, Reporter &report) {
  switch (variable.init_case()) {
  case Variable::kPayload:
    if (variable.payload() >= static_cast<uint32_t>(plan.payloads_size()))
      report("variable '{}': payload {} does not exist, the plan has {}", variable.name(), variable.payload(),
             plan.payloads_size());
    else if (plan.payloads(static_cast<int>(variable.payload())).bytes() != bytes)
      report("variable '{}': payload {} has {} bytes, {} needs {}", variable.name(), variable.payload(),
             plan.payloads(static_cast<int>(variable.payload())).bytes(), typeName(variable.type()), bytes);
    break;
  case Variable::kExternal:
    if (variable.external().path().empty() || hasControlCharacters(variable.external().path()))
      report("variable '{}': '{}' is no name of an external file", variable.name(), variable.external().path());
    if (variable.external().offset() > uint64_t(1) << 62)
      report("variable '{}': its external file has no offset {}", variable.name(), variable.external().offset());
    if (variable.external().bytes() != bytes)
      report("variable '{}': {} bytes of '{}' are named, {} needs {}", variable.name(), variable.external().bytes(),
             variable.external().path(), typeName(variable.type()), bytes);
    break;
  case Variable::kFill:
    break;
  case Variable::INIT_NOT_SET:
    report("variable '{}': it has no initial value", variable.name());
  }
}

/// A shard must have the size that follows from the whole variable.
void verifyShard(const Plan &plan, const Variable &variable, Reporter &report) {
  const uint64_t ranks = plan.training().parallel().ranks();
  const std::optional<uint64_t> elements = elementCount(wholeType(variable));
  if (ranks == 0)
    report("variable '{}': a shard in a plan that is for any number of ranks", variable.name());
  else if (!elements || variable.type().dims_size() != 1 ||
           uint64_t(variable.type().dims(0)) != shardElements(*elements, ranks))
    report("variable '{}': {} is no shard of {} over {} ranks", variable.name(), typeName(variable.type()),
           typeName(wholeType(variable)), ranks);
}

void verifyArena(const Plan &plan, Reporter &report) {
  struct Range {
    Arena arena;
    uint64_t offset, bytes;
    const Variable *variable;
  };
  std::vector<Range> ranges;
  std::set<std::string> names;
  for (const Variable &variable : plan.variables()) {
    if (!names.insert(variable.name()).second)
      report("variable '{}': the name is used twice", variable.name());
    if (!VariableRole_IsValid(variable.role()))
      report("variable '{}': there is no role {}", variable.name(), static_cast<int>(variable.role()));
    std::optional<uint64_t> bytes = tensorBytes(variable.type());
    if (!bytes || dtypeBytes(variable.type().dtype()) == 0) {
      report("variable '{}': {} is no valid type", variable.name(), typeName(variable.type()));
      continue;
    }
    verifyVariableSource(plan, variable, tensorBytes(wholeType(variable)).value_or(0), report);
    if (variable.has_shard())
      verifyShard(plan, variable, report);
    const Arena arena = variable.arena();
    if (!holdsState(arena) || arena >= plan.spaces_size()) {
      report("variable '{}': there is no memory space {} of state", variable.name(), static_cast<int>(arena));
      continue;
    }
    if (const uint64_t alignment = plan.spaces(arena).alignment(); !alignment || variable.offset() % alignment != 0)
      report("variable '{}': offset {} is not a multiple of {}", variable.name(), variable.offset(), alignment);
    if (Wide(variable.offset()) + *bytes > spaceBytes(plan, arena))
      report("variable '{}': {} bytes at offset {} are not inside the {} arena of {} bytes", variable.name(), *bytes,
             variable.offset(), spaceName(plan, arena), spaceBytes(plan, arena));
    else if (*bytes > 0)
      ranges.push_back({arena, variable.offset(), *bytes, &variable});
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) {
    return std::pair(a.arena, a.offset) < std::pair(b.arena, b.offset);
  });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i - 1].arena == ranges[i].arena && ranges[i - 1].offset + ranges[i - 1].bytes > ranges[i].offset)
      report("variables '{}' and '{}' overlap in the {} arena: [{}, {}) and [{}, {})", ranges[i - 1].variable->name(),
             ranges[i].variable->name(), spaceName(plan, ranges[i].arena), ranges[i - 1].offset,
             ranges[i - 1].offset + ranges[i - 1].bytes, ranges[i].offset, ranges[i].offset + ranges[i].bytes);
}

/// The type, shape and name under which exports write a variable.
void verifyExports(const Plan &plan, Reporter &report) {
  std::set<std::string_view> names;
  for (const Variable &variable : plan.variables())
    names.insert(variable.name());
  for (const Variable &variable : plan.variables()) {
    const bool holdsFloats = isFloatingPoint(variable.type().dtype()) || !variable.scale().empty();
    if (variable.model_dtype() != DTYPE_NONE && !(isFloatingPoint(variable.model_dtype()) && holdsFloats))
      report("variable '{}': {} holds no values of type {}", variable.name(), typeName(variable.type()),
             int(variable.model_dtype()));
    const TensorType type = valueType(variable);
    if (!variable.has_torch())
      continue;
    const TorchParameter &torch = variable.torch();
    TensorType shape = type;
    *shape.mutable_dims() = torch.dims();
    const bool turned = torch.dims_size() == 2 && type.dims_size() == 2 && torch.dims(0) == type.dims(1) &&
                        torch.dims(1) == type.dims(0);
    if ((torch.transposed() && !turned) || elementCount(shape) != elementCount(type))
      report("variable '{}': {} does not hold the parameter '{}', {}", variable.name(), typeName(type), torch.name(),
             typeName(shape));
    if (torch.name().empty() || hasControlCharacters(torch.name()) || !names.insert(torch.name()).second)
      report("variable '{}': it cannot be exported as '{}'", variable.name(), torch.name());
  }
}

/// True if a variable's bytes and scales are those of its layout in 4 bits.
bool fitsFourBits(const Variable &variable, const TensorType &scales) {
  const FourBits &layout = variable.four_bits();
  return isWellFormed(layout) && !layout.has_grid() && typeName(variable.type()) == typeName(bytesType(layout)) &&
         typeName(scales) == typeName(scalesType(layout));
}

/// Variables with values in 8 or 4 bits are frozen, and no two of them share a scale, or the numbers of nested ones.
void verifyScales(const Plan &plan, Reporter &report) {
  std::map<std::string_view, const Variable *> variables;
  for (const Variable &variable : plan.variables())
    variables.emplace(variable.name(), &variable);
  std::set<std::string_view> used;
  for (const Variable &variable : plan.variables()) {
    if (const std::string &name = variable.nested_scale(); !name.empty() || variable.four_bits().nested()) {
      auto nested = variables.find(name);
      if (!variable.four_bits().nested() || variable.scale().empty())
        report("variable '{}': '{}' belongs to nested scales, which it does not have", variable.name(), name);
      else if (nested == variables.end() || !used.insert(name).second)
        report("variable '{}': '{}', which its nested scales need, is no variable, or another's", variable.name(),
               name);
      else if (nested->second->role() != CONSTANT || !isWellFormed(variable.four_bits()) ||
               typeName(nested->second->type()) != typeName(nestedType(variable.four_bits())))
        report("variable '{}': {} does not hold the numbers of its nested scales", variable.name(),
               typeName(nested->second->type()));
    }
    if (variable.scale().empty()) {
      if (variable.has_four_bits())
        report("variable '{}': 4 bits without a scale", variable.name());
      continue;
    }
    if (variable.type().dtype() != (variable.has_four_bits() ? U8 : I8) || variable.role() != FROZEN ||
        !isFloatingPoint(variable.model_dtype()))
      report("variable '{}': {} of role {} has no scale", variable.name(), typeName(variable.type()),
             int(variable.role()));
    auto scale = variables.find(variable.scale());
    if (scale == variables.end() || !used.insert(variable.scale()).second)
      report("variable '{}': its scale '{}' is no variable, or another's", variable.name(), variable.scale());
    else if (scale->second->role() != CONSTANT ||
             !(variable.has_four_bits() ? fitsFourBits(variable, scale->second->type())
                                        : scale->second->type().dtype() == F32 &&
                                              scaleStrides(variable.type(), scale->second->type()).has_value()))
      report("variable '{}': {} is no scale of {}", variable.name(), typeName(scale->second->type()),
             typeName(variable.type()));
  }
}

/// The product of an adapter's matrices must have the shape of the matrix that it is added to.
void verifyAdapters(const Plan &plan, Reporter &report) {
  if (!plan.has_adapters())
    return;
  const Adapters &adapters = plan.adapters();
  if (adapters.rank() < 1 || !std::isfinite(adapters.scale()) || !std::isfinite(adapters.alpha()) ||
      !(adapters.dropout() >= 0 && adapters.dropout() < 1))
    report("adapters: rank {}, alpha {}, scale {}, dropout {}", adapters.rank(), adapters.alpha(), adapters.scale(),
           adapters.dropout());
  std::map<std::string_view, const Variable *> variables;
  for (const Variable &variable : plan.variables())
    variables.emplace(variable.name(), &variable);
  std::set<std::string_view> used;
  for (const Adapter &adapter : adapters.list()) {
    const Variable *parts[3] = {};
    const bool stored = adapter.dims_size() != 0; // in 4 bits, by the model's file
    for (auto [part, name] : {std::pair(0, &adapter.of()), std::pair(1, &adapter.a()), std::pair(2, &adapter.b())}) {
      auto found = variables.find(*name);
      if (found == variables.end() || !used.insert(*name).second)
        report("adapter of '{}': '{}' is no variable, or another adapter has it", adapter.of(), *name);
      else if (part == 0 && stored) {
        if (found->second->type().dtype() != U8 || found->second->role() != FROZEN || !found->second->scale().empty() ||
            adapter.dims_size() != 2)
          report("adapter of '{}': {} does not hold a matrix in 4 bits", *name, typeName(found->second->type()));
        else
          parts[part] = found->second;
      } else if (valueType(*found->second).dims_size() < 2 ||
                 !(isFloatingPoint(found->second->type().dtype()) || (part == 0 && !found->second->scale().empty())))
        report("adapter of '{}': '{}' is {}, no matrix", adapter.of(), *name, typeName(found->second->type()));
      else
        parts[part] = found->second;
    }
    if (!parts[0] || !parts[1] || !parts[2])
      continue;
    TensorType whole = valueType(*parts[0]);
    if (stored)
      *whole.mutable_dims() = adapter.dims();
    const TensorType &first = parts[1]->type(), &second = parts[2]->type();
    const bool filter = whole.dims_size() > 2;
    bool fits = first.dims_size() == whole.dims_size() && second.dims_size() == whole.dims_size() &&
                first.dims(0) == adapters.rank() && second.dims(1) == adapters.rank() &&
                second.dims(0) == whole.dims(adapter.input_first() ? 1 : 0) && !(filter && adapter.input_first());
    if (fits && !filter)
      fits = first.dims(1) == whole.dims(adapter.input_first() ? 0 : 1);
    for (int d = 1; fits && filter && d < whole.dims_size(); ++d)
      fits = first.dims(d) == whole.dims(d) && (d == 1 || second.dims(d) == 1);
    if (!fits)
      report("adapter of '{}': {} and {} do not make {}", adapter.of(), typeName(parts[2]->type()),
             typeName(parts[1]->type()), typeName(parts[0]->type()));
  }
}

/// A tie has its variable's elements, the axes permuted.
bool isCopy(const Tie &tie, const Variable &of) {
  const TensorType from = valueType(of), &to = tie.type();
  if (from.dtype() != to.dtype() || !tensorBytes(to) || tensorBytes(to) != tensorBytes(from))
    return false;
  int rank = tie.permutation_size();
  if (rank == 0)
    return true; // the same elements, perhaps in another shape
  if (from.dims_size() != rank || to.dims_size() != rank)
    return false;
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int d = 0; d < rank; ++d) {
    int64_t axis = tie.permutation(d);
    if (axis < 0 || axis >= rank || seen[static_cast<size_t>(axis)] || to.dims(d) != from.dims(static_cast<int>(axis)))
      return false;
    seen[static_cast<size_t>(axis)] = true;
  }
  return true;
}

void verifyTies(const Plan &plan, Reporter &report) {
  std::map<std::string_view, const Variable *> variables;
  for (const Variable &variable : plan.variables())
    variables.emplace(variable.name(), &variable);
  for (const Tie &tie : plan.ties()) {
    auto of = variables.find(tie.of());
    if (of == variables.end())
      report("initializer '{}': it copies '{}', which is no variable", tie.name(), tie.of());
    else if (!isCopy(tie, *of->second))
      report("initializer '{}': {} is no copy of variable '{}', {}", tie.name(), typeName(tie.type()), tie.of(),
             typeName(of->second->type()));
  }
}

bool isQuantizedType(DType type) { return type == I8 || type == U8 || type == I16 || type == U16 || type == I32; }

/// The inputs of a quantised export: variables in f32, as many scales as the axis needs, ranges whose ends are scalars.
void verifyQuantized(const Plan &plan, Reporter &report) {
  std::map<std::string_view, const Variable *> variables;
  for (const Variable &variable : plan.variables())
    variables.emplace(variable.name(), &variable);
  for (const Quantized &one : plan.quantized()) {
    auto of = variables.find(one.name());
    if (of == variables.end())
      continue; // the plan does not hold it: an export keeps the integers of the model
    TensorType held = one.type();
    held.set_dtype(F32);
    if (typeName(of->second->type()) != typeName(held) ||
        !(isQuantizedType(one.type().dtype()) || (one.observed() && one.type().dtype() == F32)))
      report("initializer '{}': {} is no quantised form of its variable, {}", one.name(), typeName(one.type()),
             typeName(of->second->type()));
    const bool inside = one.axis() >= 0 && one.axis() < std::max(1, one.type().dims_size());
    if (!inside || one.scale_size() == 0 || one.zero_point_size() != one.scale_size() ||
        (one.scale_size() > 1 && one.scale_size() != one.type().dims(int(one.axis()))))
      report("initializer '{}': {} scales and {} zero points do not fit axis {} of {}", one.name(), one.scale_size(),
             one.zero_point_size(), one.axis(), typeName(one.type()));
    for (float scale : one.scale())
      if (!(scale > 0 && std::isfinite(scale)))
        report("initializer '{}': {} is no scale", one.name(), scale);
    if (one.observed() && one.scale_of().empty() && !isQuantizedType(one.integers()))
      report("initializer '{}': {} is no type of quantised values", one.name(), int(one.integers()));
    if (one.level() < 0 || one.level() > std::numeric_limits<uint16_t>::max())
      report("initializer '{}': {} steps are none", one.name(), one.level());
  }
  for (const QuantizedRange &range : plan.quantized_ranges()) {
    if (!isQuantizedType(range.type()))
      report("scale '{}': {} is no type of quantised values", range.scale_name(), int(range.type()));
    for (const std::string &end : {range.low(), range.high()})
      if (auto of = variables.find(end); !end.empty() && (of == variables.end() || of->second->type().dtype() != F32 ||
                                                          of->second->type().dims_size() != 0))
        report("scale '{}': '{}' is no scalar variable", range.scale_name(), end);
  }
}
} // namespace

void verifyVariables(const Context &context) {
  verifyArena(context.plan, context.report);
  // Exports write whole variables, not shards.
  const std::optional<Plan> joined =
      hasShards(context.plan) ? std::optional(withoutShards(context.plan)) : std::nullopt;
  const Plan &whole = joined ? *joined : context.plan;
  verifyTies(whole, context.report);
  verifyExports(whole, context.report);
  verifyScales(whole, context.report);
  verifyAdapters(whole, context.report);
  verifyQuantized(whole, context.report);
}

} // namespace tcc::plan::verifier
