//===- Weights.cpp - values of a plan's variables, from files and to the device -===//
#include "runtime/state/Weights.h"
#include "runtime/plan/FourBits.h"
#include "runtime/plan/Int8.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/StateWrites.h"
#include "runtime/state/Checkpoint.h"
#include "support/Advice.h"
#include "support/NearestName.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <tuple>

using namespace tcc;
using namespace tcc::runtime;

std::vector<bool> tcc::runtime::writtenVariables(const plan::Plan &plan) {
  std::vector<bool> written(static_cast<size_t>(plan.variables_size()), false);
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &instruction : entry.instructions())
      for (uint32_t variable : plan::changedVariables(entry, instruction))
        written[variable] = true;
  return written;
}

std::set<std::string> tcc::runtime::scaleNames(const plan::Plan &plan) {
  std::set<std::string> names;
  for (const plan::Variable &variable : plan.variables())
    for (const std::string *name : {&variable.scale(), &variable.nested_scale()})
      if (!name->empty())
        names.insert(*name);
  return names;
}

static Status otherBytes(const MappedFile &file, const plan::Variable &variable) {
  return error("{}: the bytes of '{}' are not those the plan was compiled with; bring the file back", file.path(),
               variable.name());
}

Expected<std::pair<const MappedFile *, std::span<const std::byte>>>
InitialWeights::external(const plan::Variable &variable) {
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
  const uint64_t offset = variable.external().offset(), size = plan::tensorBytes(variable.type()).value_or(0);
  if (offset > whole.size() || size > whole.size() - offset)
    return error("{}: truncated: '{}' takes {} bytes at offset {}, the file holds {}", path, variable.name(), size,
                 offset, whole.size());
  return std::pair(static_cast<const MappedFile *>(file.get()), whole.subspan(offset, size));
}

Status InitialWeights::stream(const plan::Variable &variable, const ByteSink &sink) {
  constexpr size_t kPiece = size_t(1) << 19;
  const MappedFile *file = nullptr;
  std::span<const std::byte> rest;
  if (variable.has_external()) {
    auto found = external(variable);
    if (!found)
      return found.status();
    std::tie(file, rest) = *found;
  } else {
    auto found = bytes(variable);
    if (!found)
      return found.status();
    rest = *found;
  }
  plan::ByteHash hash;
  while (!rest.empty()) {
    std::span<const std::byte> piece = rest.first(std::min(rest.size(), kPiece));
    if (file)
      hash.add(piece.data(), piece.size());
    if (Status status = sink(piece); !status.ok())
      return status;
    rest = rest.subspan(piece.size());
    if (file)
      file->releasePages();
    else if (variable.has_payload())
      reader.releasePages();
  }
  filled.erase(variable.name());
  return file && hash.value() != variable.external().xxh3() ? otherBytes(*file, variable) : Status();
}

Expected<std::span<const std::byte>> InitialWeights::bytes(const plan::Variable &variable) {
  uint64_t size = plan::tensorBytes(variable.type()).value_or(0);
  if (variable.has_payload())
    return reader.payload(variable.payload());
  if (variable.has_external()) {
    auto found = external(variable);
    if (!found)
      return found.status();
    auto [file, part] = *found;
    if (plan::hashBytes(part.data(), part.size()) != variable.external().xxh3())
      return otherBytes(*file, variable);
    return part;
  }
  std::vector<std::byte> &values = filled[variable.name()];
  values.resize(size);
  plan::fillElements(values.data(), variable.type().dtype(), plan::elementCount(variable.type()).value_or(0),
                     variable.fill());
  return std::span<const std::byte>(values);
}

/// The identity of a value that consists of several tensors: integers of 8 or 4 bits, and their scales.
static uint64_t identityWith(const std::vector<uint64_t> &parts) {
  return parts.size() == 1 ? parts.front() : plan::hashBytes(parts.data(), parts.size() * sizeof(uint64_t));
}

static uint64_t identityAlone(const plan::Plan &plan, const plan::Variable &variable) {
  if (variable.has_external())
    return variable.external().xxh3();
  if (variable.has_payload() && variable.payload() < static_cast<uint32_t>(plan.payloads_size()))
    return plan.payloads(static_cast<int>(variable.payload())).xxh3();
  std::string value = fmt::format("fill {}", variable.fill());
  return plan::hashBytes(value.data(), value.size());
}

uint64_t tcc::runtime::initialIdentity(const plan::Plan &plan, const plan::Variable &variable) {
  std::vector<uint64_t> parts = {identityAlone(plan, variable)};
  for (const plan::Variable *scales : {plan::scaleOf(plan, variable), plan::nestedScaleOf(plan, variable)})
    if (scales)
      parts.push_back(identityAlone(plan, *scales));
  return identityWith(parts);
}

namespace {
struct GivenWeights {
  std::optional<SafetensorsFile> file;
  std::optional<Checkpoint> checkpoint;
  std::vector<Tensor> tensors;
  bool averages = false;
  bool ofRun() const { return checkpoint.has_value(); }
};

/// torch's own files contain code (pickle), so they are never read.
Status refusePickles(const std::string &path) {
  for (const char *suffix : {".pt", ".pth", ".ckpt", ".bin", ".pkl"})
    if (path.ends_with(suffix)) {
      const std::string to = path.substr(0, path.size() - std::strlen(suffix)) + ".safetensors";
      return error("{}: weights are read from safetensors files; two lines of Python write one:\n"
                   "  import torch, safetensors.torch\n"
                   "  safetensors.torch.save_file({{k: v.clone() for k, v in torch.load(\"{}\", map_location=\"cpu\", "
                   "weights_only=True).items()}}, \"{}\")",
                   path, path, to);
    }
  return Status();
}

Expected<GivenWeights> openWeights(const std::string &from) {
  GivenWeights given;
  std::error_code code;
  if (!std::filesystem::is_directory(parseRunReference(from).run, code)) {
    if (Status status = refusePickles(from); !status.ok())
      return status;
    auto file = SafetensorsFile::open(from);
    if (!file)
      return file.status();
    given.tensors = file->tensors();
    given.file = file.take();
    return given;
  }
  auto folder = findCheckpoint(parseRunReference(from));
  if (!folder)
    return folder.status();
  auto checkpoint = Checkpoint::open(*folder);
  if (!checkpoint)
    return checkpoint.status();
  given.checkpoint = checkpoint.take();
  auto set = weightSetOf(parseRunReference(from));
  if (!set)
    return set.status();
  given.averages = *set == WeightSet::Averages;
  if (given.averages)
    if (Status status = requireAverages(*given.checkpoint); !status.ok())
      return status;
  for (const ManifestTensor &tensor : given.checkpoint->manifest().tensors)
    if (!tensor.role || *tensor.role == TensorRole::Parameter || *tensor.role == TensorRole::Buffer)
      given.tensors.push_back(
          {tensor.name, tensor.type, given.checkpoint->bytes(*findValue(*given.checkpoint, tensor.name, *set))});
  return given;
}
} // namespace

std::string WeightsFit::text() const {
  std::string text;
  auto add = [&](const NameList &names, const char *what) {
    if (!names.empty())
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", what, names.text());
  };
  add(missing, "missing are");
  add(unexpected, "the model has no");
  add(different, "different are");
  add(kept, "frozen values that keep the model's own are");
  return text;
}

namespace {
/// Finds the variable for a tensor of a file, by its name in the graph, in torch or in peft.
class Destinations {
public:
  /// `rounds`: weights in 16 bits fit where the model's are in 32.
  explicit Destinations(const plan::Plan &plan, bool rounds = false) : plan(plan), rounds(rounds) {
    for (int i = 0; i < plan.variables_size(); ++i)
      byAnyName[plan.variables(i).name()] = i;
    for (int i = 0; i < plan.variables_size(); ++i) {
      const plan::Variable &variable = plan.variables(i);
      if (!isModelValue(variable))
        continue;
      for (int scales : scalesOf(variable))
        byName[plan.variables(scales).name()] = scales;
      byName[variable.name()] = i;
      names.push_back(variable.name());
      if (variable.has_torch()) {
        byTorch[variable.torch().name()] = i;
        names.push_back(variable.torch().name());
      }
    }
  }

  /// An index into Plan.variables; -1: none.
  int find(std::string_view name) const {
    if (auto found = byName.find(name); found != byName.end())
      return found->second;
    if (auto found = byTorch.find(name); found != byTorch.end())
      return found->second;
    return name.starts_with(kPeftPrefix) ? findBehind(name.substr(kPeftPrefix.size())) : -1;
  }

  /// The variables with the scales of one in 8 or 4 bits, and those with the numbers of nested scales; else none.
  std::vector<int> scalesOf(const plan::Variable &variable) const {
    std::vector<int> indices;
    for (const std::string *name : {&variable.scale(), &variable.nested_scale()})
      if (auto found = name->empty() ? byAnyName.end() : byAnyName.find(*name); found != byAnyName.end())
        indices.push_back(found->second);
    return indices;
  }

  /// True if a tensor of the file has the variable's shape in the convention of its name (graph or torch).
  bool fits(const Tensor &tensor, const plan::Variable &variable) const {
    const bool named = byName.count(tensor.name) != 0;
    if (named && plan::typeName(tensor.type) == plan::typeName(variable.type()))
      return true;
    plan::TensorType type = plan::valueType(variable);
    if (!named)
      type = torchType(variable, type);
    if (plan::typeName(tensor.type) == plan::typeName(type))
      return true;
    if (const plan::DType from = tensor.type.dtype();
        rounds && type.dtype() == plan::F32 && (from == plan::BF16 || from == plan::F16)) {
      type.set_dtype(from);
      return plan::typeName(tensor.type) == plan::typeName(type);
    }
    type.set_dtype(variable.type().dtype());
    return !variable.has_four_bits() && plan::typeName(tensor.type) == plan::typeName(type);
  }

  /// The tensor's bytes in the variable's layout, not yet rounded to 8 or 4 bits; `room` owns them if they had to be
  /// converted.
  std::span<const std::byte> bytesFor(const Tensor &tensor, const plan::Variable &variable,
                                      std::vector<std::byte> &room) const {
    std::span<const std::byte> bytes = tensor.bytes;
    if (!byName.count(tensor.name) && variable.torch().transposed()) {
      const plan::TensorType type = plan::valueType(variable);
      room = transposedMatrix(bytes, static_cast<uint64_t>(type.dims(1)), static_cast<uint64_t>(type.dims(0)));
      bytes = room;
    }
    if (const plan::DType from = tensor.type.dtype(), to = variable.type().dtype();
        from != to && variable.scale().empty()) {
      const uint64_t count = plan::elementCount(variable.type()).value_or(0), size = plan::dtypeBytes(to);
      std::vector<std::byte> rounded(count * size);
      for (uint64_t i = 0; i < count; ++i)
        plan::fillElements(rounded.data() + i * size, to, 1, plan::floatElement(bytes.data(), from, i));
      room = std::move(rounded);
      bytes = room;
    }
    return bytes;
  }

  const std::vector<std::string> &known() const { return names; }

private:
  /// peft's module may be a submodule of the exported one.
  int findBehind(std::string_view name) const {
    // peft wraps an adapted module in a module of its own, and may store its weight, too.
    constexpr std::string_view kBase = ".base_layer.";
    if (const size_t at = name.rfind(kBase); at != name.npos)
      return findBehind(std::string(name.substr(0, at + 1)).append(name.substr(at + kBase.size())));
    if (int index = find(name); index >= 0)
      return index;
    const std::string end = "." + std::string(name);
    int found = -1;
    for (const auto *list : {&byName, &byTorch})
      for (const auto &[known, index] : *list)
        if (known.ends_with(end))
          found = found == -1 || found == index ? index : -2;
    return std::max(found, -1);
  }

  const plan::Plan &plan;
  bool rounds;
  std::map<std::string, int, std::less<>> byName, byTorch, byAnyName;
  std::vector<std::string> names;
};
} // namespace

/// True for torch's num_batches_tracked, a counter next to running statistics that no forward pass reads.
static bool countsBatches(const Tensor &tensor, const Destinations &destinations) {
  constexpr std::string_view kCounter = ".num_batches_tracked";
  return tensor.name.ends_with(kCounter) && tensor.type.dtype() == plan::I64 && tensor.type.dims_size() == 0 &&
         destinations.find(tensor.name.substr(0, tensor.name.size() - kCounter.size()) + ".running_mean") >= 0;
}

const std::string &tcc::runtime::torchName(const plan::Variable &variable) {
  return variable.has_torch() ? variable.torch().name() : variable.name();
}

plan::TensorType tcc::runtime::torchType(const plan::Variable &variable, const plan::TensorType &type) {
  plan::TensorType torch = type;
  if (variable.has_torch())
    *torch.mutable_dims() = variable.torch().dims();
  return torch;
}

namespace {
/// A variable in 8 or 4 bits: its integers, then those of Destinations::scalesOf, as views of a file or of `eight` or
/// `four`.
struct Rounded {
  std::vector<std::span<const std::byte>> parts;
  std::optional<plan::RoundedTensor> eight;
  std::optional<plan::PackedTensor> four;
};

/// `bytes` are integers, with tensors of the file for `scales`, or numbers of `dtype` in the variable's layout, which
/// are rounded.
Expected<std::unique_ptr<Rounded>> roundedFor(const plan::Plan &plan, int index, const std::vector<int> &scales,
                                              std::span<const std::byte> bytes, plan::DType dtype,
                                              const std::map<int, const Tensor *> &found) {
  const plan::Variable &variable = plan.variables(index);
  auto made = std::make_unique<Rounded>();
  if (found.count(scales.front())) {
    made->parts.push_back(bytes);
    for (int one : scales)
      made->parts.push_back(found.at(one)->bytes);
  } else if (variable.has_four_bits()) {
    if ((made->four = plan::roundToFourBits(bytes, dtype, variable.four_bits()))) {
      made->parts = {std::as_bytes(std::span(made->four->bytes)), made->four->scaleBytes()};
      if (scales.size() > 1)
        made->parts.push_back(std::as_bytes(std::span(made->four->nested.numbers)));
    }
  } else {
    plan::TensorType type = variable.type();
    type.set_dtype(dtype);
    if ((made->eight = plan::roundToInt8(bytes, type, plan.variables(scales.front()).type())))
      made->parts = {std::as_bytes(std::span(made->eight->values)), std::as_bytes(std::span(made->eight->scales))};
  }
  if (made->parts.empty())
    return error("'{}' holds a value that is infinite or NaN, which {} bits cannot hold; compile without adapter.base",
                 variable.name(), variable.has_four_bits() ? 4 : 8);
  return made;
}

/// Writes a variable in 8 or 4 bits and its scales. True if they differ from the plan's initial values.
Expected<bool> writeRounded(const plan::Plan &plan, Device &device, int index, const std::vector<int> &scales,
                            const Rounded &rounded) {
  std::vector<int> indices = {index};
  indices.insert(indices.end(), scales.begin(), scales.end());
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::span<const std::byte> part = rounded.parts[i];
    if (Status status = device.write(Place::variable(static_cast<uint32_t>(indices[i])), 0, part); !status.ok())
      return status;
    hashes.push_back(plan::hashBytes(part.data(), part.size()));
  }
  return identityWith(hashes) != initialIdentity(plan, plan.variables(index));
}

/// The tensors of a file or a run, by the index of the variable that each is for.
struct MatchedWeights {
  GivenWeights given;
  WeightsFit fit;
  std::map<int, const Tensor *> found;
};

Expected<std::unique_ptr<MatchedWeights>> matchWeights(const plan::Plan &plan, const Destinations &destinations,
                                                       const std::vector<bool> &written, const std::string &from,
                                                       WeightsRule rule) {
  auto opened = openWeights(from);
  if (!opened)
    return opened.status();
  auto matched = std::make_unique<MatchedWeights>();
  matched->given = opened.take();
  const GivenWeights *given = &matched->given;
  WeightsFit &fit = matched->fit;
  std::map<int, const Tensor *> &found = matched->found;
  std::set<std::string> present, copies; // variables that the weights name; ties, which are optional
  for (const Tensor &tensor : given->tensors)
    if (int index = destinations.find(tensor.name); index >= 0)
      present.insert(plan.variables(index).name());
  for (const plan::Tie &tie : plan.ties())
    if (present.count(tie.of()))
      copies.insert(tie.name());
  fit.averages = given->averages;
  for (const Tensor &tensor : given->tensors) {
    const int index = destinations.find(tensor.name);
    if (index < 0) {
      // Checkpoints of version 1 do not distinguish the optimizer's state from the model's values.
      if (copies.count(tensor.name) || countsBatches(tensor, destinations) ||
          (given->ofRun() && given->checkpoint->manifest().version == 1))
        continue;
      std::string nearest = fit.unexpected.room() ? nearestName(tensor.name, destinations.known()) : "";
      fit.unexpected.add(tensor.name, nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest));
      continue;
    }
    const plan::Variable &variable = plan.variables(index);
    if (!destinations.fits(tensor, variable))
      fit.different.add(tensor.name, fmt::format("{}, the model's is {}", plan::typeName(tensor.type),
                                                 plan::typeName(variable.has_four_bits() ? plan::valueType(variable)
                                                                                         : variable.type())));
    else if (!found.emplace(index, &tensor).second)
      fit.different.add(tensor.name, fmt::format("the weights hold '{}' under another name, too", variable.name()));
  }
  // Integers are meaningless without their scales.
  for (auto one = found.begin(); one != found.end();) {
    const bool integers = one->second->type.dtype() == plan.variables(one->first).type().dtype();
    const std::vector<int> scales = destinations.scalesOf(plan.variables(one->first));
    const auto apart =
        std::find_if(scales.begin(), scales.end(), [&](int scale) { return integers != (found.count(scale) != 0); });
    if (apart == scales.end()) {
      ++one;
      continue;
    }
    fit.different.add(one->second->name,
                      fmt::format("integers and '{}' belong together", plan.variables(*apart).name()));
    for (int scale : scales)
      found.erase(scale);
    one = found.erase(one);
  }
  // A file with only the base leaves the adapter at its initial value.
  std::set<std::string> adapters;
  bool holdsAdapter = given->ofRun();
  for (const plan::Adapter &adapter : plan.adapters().list())
    for (const std::string &part : {adapter.a(), adapter.b()}) {
      adapters.insert(part);
      holdsAdapter |= present.count(part) != 0;
    }
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    bool expected =
        variable.role() == plan::PARAMETER || (variable.role() == plan::FROZEN && written[static_cast<size_t>(i)]);
    if (present.count(variable.name()))
      continue;
    if (!holdsAdapter && adapters.count(variable.name())) {
      fit.kept.add(variable.name());
    } else if (given->ofRun() && given->checkpoint->manifest().run.frozen.count(variable.name())) {
      // Values that the run had frozen are in none of its checkpoints. A plan that trains them starts from the same
      // value.
      if (!wasFrozenAs(given->checkpoint->manifest(), variable.name(), initialIdentity(plan, variable)))
        fit.different.add(variable.name(), "its frozen value is another than the run's");
    } else if (expected) {
      fit.missing.add(variable.name());
    } else if (!given->ofRun() && variable.role() == plan::FROZEN && plan::valueType(variable).dims_size() != 0 &&
               (plan::isFloatingPoint(variable.type().dtype()) || !variable.scale().empty())) {
      fit.kept.add(variable.name());
    }
  }
  fit.loaded = found.size();
  bool foreign = !fit.unexpected.empty() || !fit.different.empty();
  if ((rule == WeightsRule::Strict && !fit.complete()) || (rule == WeightsRule::MayBeMissing && foreign))
    return error("{}: the weights are not those of the model '{}': {}{}", from, plan.model(), fit.text(),
                 rule == WeightsRule::Strict
                     ? fmt::format("; {} takes the weights that fit", advice::flag("init-partial"))
                     : "");
  if (found.empty() && !destinations.known().empty())
    return error("{}: it holds no weights of the model '{}'{}", from, plan.model(),
                 fit.complete() ? "" : ": " + fit.text());
  return matched;
}
} // namespace

Expected<WeightsFit> tcc::runtime::loadWeights(const plan::Plan &held, Device &device, const std::string &from,
                                               WeightsRule rule, uint32_t rank) {
  const std::optional<plan::Plan> joined =
      plan::hasShards(held) ? std::optional(plan::withoutShards(held)) : std::nullopt;
  const plan::Plan &plan = joined ? *joined : held;
  const std::vector<bool> written = writtenVariables(plan);
  const Destinations destinations(plan);
  auto matched = matchWeights(plan, destinations, written, from, rule);
  if (!matched)
    return matched.status();
  WeightsFit &fit = (*matched)->fit;
  const std::map<int, const Tensor *> &found = (*matched)->found;
  for (auto [index, tensor] : found) {
    const plan::Variable &variable = plan.variables(index);
    std::vector<std::byte> room;
    std::span<const std::byte> bytes = destinations.bytesFor(*tensor, variable, room);
    if (const std::vector<int> scales = destinations.scalesOf(variable); !scales.empty()) {
      auto rounded = roundedFor(plan, index, scales, bytes, tensor->type.dtype(), found);
      if (!rounded)
        return rounded.status().withContext(from);
      auto changed = writeRounded(plan, device, index, scales, **rounded);
      if (!changed)
        return changed.status().withContext(from);
      if (*changed) {
        fit.replaced.push_back(index);
        fit.replaced.insert(fit.replaced.end(), scales.begin(), scales.end());
      }
      continue;
    }
    if (variable.role() == plan::CONSTANT)
      continue; // scales are written with their integers
    if (variable.role() == plan::FROZEN && !written[static_cast<size_t>(index)] &&
        plan::hashBytes(bytes.data(), bytes.size()) != initialIdentity(plan, variable))
      fit.replaced.push_back(index);
    if (held.variables(index).has_shard()) {
      const uint64_t width = plan::dtypeBytes(variable.type().dtype());
      auto [begin, count] = plan::shardOf(bytes.size() / width, held.training().parallel().ranks(), rank);
      bytes = bytes.subspan(begin * width, count * width);
    }
    if (Status status = device.write(Place::variable(static_cast<uint32_t>(index)), 0, bytes); !status.ok())
      return status;
  }
  return std::move(fit);
}

Expected<QuantizedWeights> tcc::runtime::quantizeWeights(const plan::Plan &held, const std::string &from,
                                                         const std::string &to) {
  const plan::Plan plan = plan::withoutShards(held);
  if (scaleNames(plan).empty())
    return error(
        "the plan of '{}' keeps no weights in 8 or 4 bits; compile it with adapter.base = \"nf4\", \"int4\" or "
        "\"int8\"",
        plan.model());
  const Destinations destinations(plan, /*rounds=*/true);
  auto matched = matchWeights(plan, destinations, writtenVariables(plan), from, WeightsRule::MayBeMissing);
  if (!matched)
    return matched.status();
  const std::map<int, const Tensor *> &found = (*matched)->found;
  // One variable at a time is in memory. The file has all scales before all integers, so that a matrix is rounded
  // twice.
  struct {
    int index = -1;
    std::vector<std::byte> room;
    std::unique_ptr<Rounded> rounded;
  } last;
  auto made = [&](int index) -> Expected<const Rounded *> {
    if (last.index == index)
      return last.rounded.get();
    const plan::Variable &variable = plan.variables(index);
    const Tensor &tensor = *found.at(index);
    last.index = index;
    last.rounded = std::make_unique<Rounded>();
    last.rounded->parts = {destinations.bytesFor(tensor, variable, last.room)};
    if (const std::vector<int> scales = destinations.scalesOf(variable); !scales.empty()) {
      auto rounded = roundedFor(plan, index, scales, last.rounded->parts.front(), tensor.type.dtype(), found);
      if (!rounded)
        return rounded.status().withContext(from);
      last.rounded = rounded.take();
    }
    return last.rounded.get();
  };
  QuantizedWeights done;
  std::vector<StreamedValue> values;
  auto add = [&](int of, int index, size_t part) {
    const plan::Variable &variable = plan.variables(index);
    values.push_back({variable.name(), variable.type(), [&made, of, part](const ByteSink &sink) -> Status {
                        auto value = made(of);
                        return value ? sink((*value)->parts[part]) : value.status();
                      }});
    done.bytes += plan::tensorBytes(variable.type()).value_or(0);
  };
  for (auto [index, tensor] : found) {
    const plan::Variable &variable = plan.variables(index);
    if (variable.role() == plan::CONSTANT)
      continue; // scales are written with their integers
    add(index, index, 0);
    ++done.tensors;
    const std::vector<int> scales = destinations.scalesOf(variable);
    for (size_t i = 0; i < scales.size(); ++i)
      add(index, scales[i], i + 1);
    done.rounded += !scales.empty() && found.count(scales.front()) == 0;
  }
  auto written = writeSafetensors(to, std::move(values));
  if (!written)
    return written.status();
  return done;
}

std::vector<std::byte> tcc::runtime::transposedMatrix(std::span<const std::byte> elements, uint64_t rows,
                                                      uint64_t columns) {
  std::vector<std::byte> out(elements.size());
  const size_t size = rows != 0 && columns != 0 ? elements.size() / (rows * columns) : 0;
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < columns; ++j)
      std::memcpy(&out[(j * rows + i) * size], &elements[(i * columns + j) * size], size);
  return out;
}

Expected<std::vector<std::byte>> tcc::runtime::tiedBytes(const plan::Tie &tie, const plan::Variable &of,
                                                         std::span<const std::byte> elements) {
  std::vector<std::byte> out(elements.begin(), elements.end());
  const size_t rank = static_cast<size_t>(tie.permutation_size());
  const uint64_t count = plan::elementCount(tie.type()).value_or(0);
  std::vector<bool> seen(rank, false);
  bool sound = plan::tensorBytes(tie.type()).value_or(0) == elements.size() &&
               tie.type().dtype() == of.type().dtype() &&
               (rank == 0 ||
                (static_cast<int>(rank) == of.type().dims_size() && static_cast<int>(rank) == tie.type().dims_size()));
  for (int64_t axis : tie.permutation()) {
    sound = sound && axis >= 0 && axis < static_cast<int64_t>(rank) && !seen[static_cast<size_t>(axis)];
    if (sound)
      seen[static_cast<size_t>(axis)] = true;
  }
  for (size_t d = 0; sound && d < rank; ++d)
    sound =
        tie.type().dims(static_cast<int>(d)) == of.type().dims(static_cast<int>(tie.permutation(static_cast<int>(d))));
  if (!sound)
    return error("the plan's '{}' is no copy of '{}'; compile the model again", tie.name(), of.name());
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
