//===- Checkpoint.cpp - read and write the checkpoints of a run -----------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/plan/Shards.h"
#include "runtime/state/CheckpointFolder.h"
#include "runtime/state/Manifest.h"
#include "runtime/state/RunLock.h"
#include "runtime/state/SealedJson.h"
#include "runtime/state/Weights.h"
#include "support/Advice.h"
#include "support/AtomicFile.h"
#include "support/BytesText.h"
#include "support/Json.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/ranges.h>
#include <set>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {
constexpr const char *kManifest = "manifest.json", *kState = "state.safetensors";

std::string folderOf(const std::string &run) { return run + "/checkpoints"; }
std::string bestFileOf(const std::string &run) { return folderOf(run) + "/best.json"; }
std::string placeOf(const std::string &run, uint64_t step) { return fmt::format("{}/step-{}", folderOf(run), step); }
/// In the folder of the checkpoints, so that a rename stays on one file system; the process number makes it unique.
std::string hiddenPlaceOf(const std::string &run, uint64_t step, const char *ending) {
  return fmt::format("{}/.step-{}.{}.{}", folderOf(run), step, ::getpid(), ending);
}

bool parseNumber(std::string_view text, uint64_t &value) {
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && !text.empty();
}

/// The step that a checkpoint's folder is named after.
bool stepOf(const std::string &name, uint64_t &step) {
  return name.starts_with("step-") && parseNumber(std::string_view(name).substr(5), step) &&
         name == fmt::format("step-{}", step);
}

} // namespace

RunReference tcc::runtime::parseRunReference(const std::string &text) {
  RunReference reference{text, "last"};
  size_t at = text.rfind('@');
  if (at == std::string::npos || at + 1 == text.size())
    return reference;
  std::string selector = text.substr(at + 1);
  uint64_t step = 0;
  if (selector == "last" || selector == "best" || parseNumber(selector, step))
    reference = {text.substr(0, at), selector};
  return reference;
}

std::vector<uint64_t> tcc::runtime::checkpointSteps(const std::string &run) {
  std::vector<uint64_t> steps;
  std::error_code code;
  for (fs::directory_iterator entry(folderOf(run), code), end; !code && entry != end; entry.increment(code))
    // A checkpoint gets its name when it is complete, so a folder without a manifest was not written by the run.
    if (uint64_t step = 0; stepOf(entry->path().filename().string(), step))
      if (std::error_code none; fs::exists(fs::symlink_status(entry->path() / kManifest, none)))
        steps.push_back(step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

Expected<std::string> tcc::runtime::findCheckpoint(const RunReference &reference) {
  std::vector<uint64_t> steps = checkpointSteps(reference.run);
  if (steps.empty() && !isRunFolder(reference.run))
    return noRunFolder(reference.run);
  if (steps.empty() && RunLock::isHeld(reference.run))
    return error("{}: a process is training in this run and has no checkpoint yet; wait for it, or send it SIGUSR1",
                 reference.run);
  if (steps.empty())
    return error(
        "{}: the run has no checkpoint: it broke off before its first; the command that began it, with {}, starts "
        "it over",
        reference.run, advice::option("out", reference.run));
  uint64_t step = steps.back();
  std::error_code code;
  if (reference.selector == "best") {
    if (!fs::exists(bestFileOf(reference.run), code))
      return error("{}: the run has no best checkpoint: it was never evaluated; use @last, or train with {}",
                   reference.run, advice::option("eval-data"));
    auto best = readBest(reference.run);
    if (!best)
      return best.status();
    step = best->step;
  } else if (reference.selector != "last") {
    parseNumber(reference.selector, step);
  }
  if (std::find(steps.begin(), steps.end(), step) == steps.end())
    return error("{}: no checkpoint of step {}; there are {}", reference.run, step, fmt::join(steps, ", "));
  return placeOf(reference.run, step);
}

Expected<Manifest> tcc::runtime::readManifest(const std::string &folder) {
  std::string path = folder + "/" + kManifest;
  auto text = readJsonText(path);
  if (!text)
    return text.status();
  auto manifest = parseManifest(*text, path);
  if (!manifest)
    return manifest.status();
  uint64_t step = 0;
  if (stepOf(fs::path(folder).filename().string(), step) && step != manifest->position.step)
    return error("{}: damaged: it is of step {}, its folder of step {}; give the folder its old name back", path,
                 manifest->position.step, step);
  return manifest;
}

Expected<Checkpoint> tcc::runtime::Checkpoint::open(const std::string &folder) {
  Checkpoint checkpoint;
  checkpoint.place = folder;
  std::string path = folder + "/" + kManifest;
  auto text = readJsonText(path);
  auto read = [&]() -> Status {
    auto manifest = readManifest(folder);
    if (!manifest)
      return manifest.status();
    checkpoint.contents = manifest.take();
    return checkpoint.openShards();
  };
  Status status = read();
  if (status.ok())
    return checkpoint;
  // Another process may have written or removed the checkpoint meanwhile: then it is not damaged.
  auto again = readJsonText(path);
  if (text.ok() != again.ok() || (text.ok() && *text != *again))
    return error("{}: another process {} it while it was read; {}", folder, again ? "replaced" : "removed",
                 again ? "try again" : "choose another checkpoint");
  return status;
}

Status tcc::runtime::Checkpoint::openShards() {
  for (const ManifestShard &shard : contents.shards) {
    std::string path = place + "/" + shard.file;
    auto file = SafetensorsFile::open(path);
    if (!file)
      return file.status();
    std::span<const std::byte> bytes = file->file()->bytes();
    if (contents.version > 1 && bytes.size() != shard.bytes)
      return error("{}: damaged: it holds {} bytes, the manifest says {}; use an earlier checkpoint", path,
                   bytes.size(), shard.bytes);
    if (plan::hashBytes(bytes.data(), bytes.size()) != shard.hash)
      return error("{}: damaged: its checksum is not the manifest's; use an earlier checkpoint", path);
    shards.push_back(file.take());
  }
  Status status = contents.version == 1 ? takeTensorsOfHeader() : checkSlices();
  for (size_t i = 0; i < contents.tensors.size(); ++i)
    byName[contents.tensors[i].name] = i;
  return status;
}

Status tcc::runtime::Checkpoint::takeTensorsOfHeader() {
  for (const Tensor &tensor : shards.front().tensors()) {
    std::vector<uint64_t> shape(tensor.type.dims().begin(), tensor.type.dims().end());
    std::vector<uint64_t> start(shape.size(), 0);
    contents.tensors.push_back({tensor.name, tensor.type, std::nullopt, {{0, tensor.name, start, shape}}});
  }
  return Status();
}

Status tcc::runtime::Checkpoint::checkSlices() {
  for (const ManifestTensor &tensor : contents.tensors)
    for (const TensorSlice &slice : tensor.slices) {
      std::string path = place + "/" + contents.shards[slice.shard].file;
      const Tensor *stored = shards[slice.shard].find(slice.key);
      if (!stored)
        return error("{}: damaged: it has no '{}', which the manifest says", path, slice.key);
      if (std::string wanted = plan::typeName(sliceType(tensor.type, slice)); plan::typeName(stored->type) != wanted)
        return error("{}: damaged: '{}' is {}, the manifest says {}", path, slice.key, plan::typeName(stored->type),
                     wanted);
    }
  return Status();
}

const ManifestTensor *tcc::runtime::Checkpoint::find(std::string_view name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : &contents.tensors[found->second];
}

std::span<const std::byte> tcc::runtime::Checkpoint::bytes(const ManifestTensor &tensor) {
  if (tensor.slices.size() == 1)
    return shards[tensor.slices[0].shard].find(tensor.slices[0].key)->bytes;
  std::vector<std::byte> &whole = assembled[tensor.name];
  if (whole.empty()) {
    whole.resize(plan::tensorBytes(tensor.type).value_or(0));
    copyTo(tensor, whole.data());
  }
  return whole;
}

void tcc::runtime::Checkpoint::copyTo(const ManifestTensor &tensor, std::byte *destination) const {
  std::vector<uint64_t> shape(tensor.type.dims().begin(), tensor.type.dims().end());
  for (const TensorSlice &slice : tensor.slices)
    copySlice(slice, shards[slice.shard].find(slice.key)->bytes, shape, plan::dtypeBytes(tensor.type.dtype()),
              destination);
}

/// True if all slices are ranges of elements in row-major order, also if that is a box of the only axis.
static bool areRanges(const ManifestTensor &tensor) {
  return std::all_of(tensor.slices.begin(), tensor.slices.end(),
                     [](const TensorSlice &slice) { return slice.start.size() == 1; });
}

void tcc::runtime::Checkpoint::copyTo(const ManifestTensor &tensor, uint64_t begin, uint64_t count,
                                      std::byte *destination) {
  const uint64_t width = plan::dtypeBytes(tensor.type.dtype());
  if (!areRanges(tensor)) {
    std::memcpy(destination, bytes(tensor).data() + begin * width, count * width);
    return;
  }
  for (const TensorSlice &slice : tensor.slices) {
    const uint64_t from = std::max(begin, slice.start[0]),
                   to = std::min(begin + count, slice.start[0] + slice.shape[0]);
    if (from < to)
      std::memcpy(destination + (from - begin) * width,
                  shards[slice.shard].find(slice.key)->bytes.data() + (from - slice.start[0]) * width,
                  (to - from) * width);
  }
}

Status tcc::runtime::Checkpoint::stream(const ManifestTensor &tensor, const ByteSink &sink) {
  if (tensor.slices.size() < 2 || !areRanges(tensor))
    return sink(bytes(tensor));
  std::vector<const TensorSlice *> slices;
  for (const TensorSlice &slice : tensor.slices)
    slices.push_back(&slice);
  std::sort(slices.begin(), slices.end(), [](auto *a, auto *b) { return a->start[0] < b->start[0]; });
  for (const TensorSlice *slice : slices)
    if (Status status = sink(shards[slice->shard].find(slice->key)->bytes); !status.ok())
      return status;
  return Status();
}

/// The manifest's entry of a tensor: one slice in the first shard file, or a slice in each rank's file.
static ManifestTensor manifestTensor(const CheckpointTensor &tensor) {
  const plan::TensorType &type = tensor.whole ? *tensor.whole : tensor.type;
  ManifestTensor result{tensor.name, type, tensor.role, {}};
  if (!tensor.whole) {
    std::vector<uint64_t> shape(type.dims().begin(), type.dims().end());
    result.slices.push_back({0, tensor.name, std::vector<uint64_t>(shape.size(), 0), shape});
    return result;
  }
  for (uint64_t rank = 0; rank < tensor.shards; ++rank)
    if (auto [begin, count] = plan::shardOf(plan::elementCount(type).value_or(0), tensor.shards, rank); count != 0)
      result.slices.push_back({rank, tensor.name, {begin}, {count}});
  return result;
}

/// A stream that fails at its end if its bytes are not those that ranks have compared: otherwise damage to this rank's
/// state or to its copy in the meantime would be written with a correct checksum.
static std::function<Status(const ByteSink &)> checked(const CheckpointTensor &tensor) {
  return [stream = tensor.stream, hash = *tensor.hash, name = tensor.name](const ByteSink &sink) -> Status {
    plan::ByteHash found;
    Status status = stream([&](std::span<const std::byte> piece) {
      found.add(piece.data(), piece.size());
      return sink(piece);
    });
    if (status.ok() && found.value() != hash)
      return error("'{}' has changed since the ranks compared it: this machine's memory is at fault", name);
    return status;
  };
}

/// Renames a finished checkpoint to its final place.
static Status putInPlace(const std::string &run, uint64_t step, const std::string &temporary) {
  std::string place = placeOf(run, step);
  std::error_code code;
  // The new checkpoint replaces one of the same step (of a resumed run), atomically if the system can. Files that the
  // run did not write are kept under another name.
  if (exchangeNames(temporary, place)) {
    Status status =
        isOwnCheckpoint(temporary, step) ? removeCheckpointFolder(temporary, step) : moveAside(temporary, place);
    if (!status.ok())
      return status;
  } else {
    if (fs::exists(fs::symlink_status(place, code)))
      if (Status status = isOwnCheckpoint(place, step) ? removeCheckpoint(run, step) : moveAside(place, place);
          !status.ok())
        return status;
    if (Status status = renameNew(temporary, place); !status.ok())
      return status;
  }
  syncFolder(folderOf(run));
  return Status();
}

/// The code that another rank sent as a number.
static StatusCode codeOf(int number) {
  return number > static_cast<int>(StatusCode::Ok) && number <= static_cast<int>(StatusCode::NonFinite)
             ? static_cast<StatusCode>(number)
             : StatusCode::Fault;
}

/// Exchanges each rank's result, a text, among all ranks; if one has an error, all return the first error.
static Expected<std::vector<std::string>> tellRanks(Communicator *ranks, const Status &own, const std::string &text) {
  if (!ranks)
    return own.ok() ? Expected(std::vector<std::string>{text}) : own;
  auto texts =
      ranks->gatherTexts(own.ok() ? "=" + text : fmt::format("{}!{}", static_cast<int>(own.code()), own.message()));
  if (!texts)
    return texts.status();
  for (uint32_t rank = 0; rank < texts->size(); ++rank) {
    std::string &one = (*texts)[rank];
    if (size_t at = one.find('!'); !one.starts_with("=") && at != std::string::npos)
      return Status(rank == ranks->rank() ? own.message() : fmt::format("rank {}: {}", rank, one.substr(at + 1)),
                    codeOf(std::atoi(one.c_str())));
    one.erase(0, 1);
  }
  return texts;
}

Expected<uint64_t> tcc::runtime::writeCheckpoint(const std::string &run, const RunRecord &record,
                                                 const TrainingPosition &position, std::vector<CheckpointTensor> given,
                                                 Communicator *ranks) {
  const uint32_t rank = ranks ? ranks->rank() : 0;
  Manifest manifest;
  manifest.run = record;
  manifest.position = position;
  std::vector<StreamedValue> tensors;
  for (CheckpointTensor &tensor : given) {
    manifest.tensors.push_back(manifestTensor(tensor));
    if (tensor.hash)
      tensor.stream = checked(tensor);
    tensors.push_back(std::move(tensor));
  }
  uint64_t bytes = 0;
  std::error_code code;
  std::string temporary = hiddenPlaceOf(run, position.step, "tmp");
  auto finish = [&]() -> Status {
    Status made;
    if (rank == 0) {
      (void)removeOwnFolder(temporary, kindInUnfinished); // left by an earlier process of the same number
      made = makeFolders(fs::path(temporary).parent_path().string());
      auto fresh = made.ok() ? makeNewFolder(temporary) : Expected<bool>(made);
      made = !fresh ? fresh.status() : *fresh ? Status() : error("{}: it exists already; move it elsewhere", temporary);
    }
    auto folder = tellRanks(ranks, made, temporary);
    if (!folder)
      return folder.status();
    const std::string file = rank == 0 ? kState : fmt::format("state.rank-{}.safetensors", rank);
    // A rank without tensors of its own writes no file.
    const bool writes = rank == 0 || !tensors.empty();
    Expected<uint64_t> hash =
        writes ? writeSafetensors(folder->front() + "/" + file, tensors, kShardMetadata) : Expected<uint64_t>(0);
    // Every file is durable before the manifest that names it.
    json own;
    if (writes)
      own = {file, hash ? fs::file_size(folder->front() + "/" + file, code) : 0, hash ? *hash : 0};
    auto files = tellRanks(ranks, hash.status(), jsonText(own));
    if (!files)
      return files.status();
    for (const std::string &one : *files) {
      const json shard = parseJsonOrNull(one);
      if (!shard.is_array() || shard.size() != 3)
        continue;
      manifest.shards.push_back({shard[0], shard[1], shard[2]});
      bytes += manifest.shards.back().bytes;
    }
    Status written;
    if (rank == 0) {
      std::string text = manifestText(manifest);
      bytes += text.size();
      written = writeFileAtomically(temporary + "/" + kManifest, text, OwnFile::Sealed);
      if (written.ok())
        written = putInPlace(run, position.step, temporary);
    }
    return tellRanks(ranks, written, "").status();
  };
  Status status = finish();
  if (!status.ok() && rank == 0)
    (void)removeOwnFolder(temporary, kindInUnfinished);
  if (!status.ok())
    return status.code() == StatusCode::Fault ? status.withContext(fmt::format("checkpoint of step {}", position.step))
                                           : status;
  return bytes;
}

Status tcc::runtime::markBest(const std::string &run, const BestCheckpoint &best) {
  return writeFileAtomically(bestFileOf(run), sealObject({{"step", best.step}, {best.metric, best.value}}),
                             OwnFile::OfRun);
}

Expected<BestCheckpoint> tcc::runtime::readBest(const std::string &run) {
  std::string path = bestFileOf(run);
  auto best = readSealed(path, /*allowUnsealed=*/true);
  if (!best)
    return best.status();
  auto step = best->find("step");
  for (const auto &[key, value] : best->items())
    if (step != best->end() && step->is_number_unsigned() && key.find("eval_") != std::string::npos &&
        value.is_number())
      return BestCheckpoint{step->get<uint64_t>(), value.get<double>(), key};
  return error("{}: damaged: it names no step and metric; use @last, or @STEP", path);
}

Status tcc::runtime::removeCheckpoint(const std::string &run, uint64_t step) {
  std::string place = placeOf(run, step), hidden = hiddenPlaceOf(run, step, "removed");
  std::error_code code;
  if (!fs::exists(fs::symlink_status(place, code)))
    return Status();
  if (!isOwnCheckpoint(place, step))
    return error("{}: it holds files that the run did not write, so it is not removed", place);
  (void)removeOwnFolder(hidden, kindInUnfinished);
  if (Status status = renameNew(place, hidden); !status.ok())
    return status;
  return removeCheckpointFolder(hidden, step);
}

void tcc::runtime::removeUnfinished(const std::string &run) {
  std::error_code code;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(folderOf(run), code), end; !code && entry != end; entry.increment(code)) {
    if (isHiddenName(entry->path().filename().string()))
      left.push_back(entry->path());
  }
  // A folder that also contains other files is kept.
  for (const fs::path &path : left)
    (void)removeOwnFolder(path.string(), kindInUnfinished);
}

Expected<WeightSet> tcc::runtime::weightSetOf(const RunReference &reference) {
  if (reference.selector != "best")
    return WeightSet::Last;
  auto best = readBest(reference.run);
  if (!best)
    return best.status();
  return best->metric.starts_with("ema_") ? WeightSet::Averages : WeightSet::Last;
}

const ManifestTensor *tcc::runtime::findValue(const Checkpoint &checkpoint, const std::string &name, WeightSet set) {
  if (set == WeightSet::Averages)
    if (const ManifestTensor *average = checkpoint.find(name + std::string(states::kEmaSuffix));
        average && average->role == TensorRole::Ema)
      return average;
  return checkpoint.find(name);
}

Status tcc::runtime::requireAverages(const Checkpoint &checkpoint) {
  for (const ManifestTensor &tensor : checkpoint.manifest().tensors)
    if (tensor.role == TensorRole::Ema)
      return Status();
  return error("{}: the run keeps no averaged weights; leave {} out, or train with {}", checkpoint.folder(),
               advice::flag("ema"), advice::set("train.ema.decay", "0.999"));
}

/// True if an average of type `from` can be rounded to a value of type `to`: the shapes are equal, the elements of
/// `from` may be wider.
static bool isRoundedTo(const ManifestTensor &from, const plan::TensorType &to) {
  plan::TensorType widened = to;
  widened.set_dtype(from.type.dtype());
  return from.role == TensorRole::Ema && from.type.dtype() == plan::F32 && plan::isFloatingPoint(to.dtype()) &&
         plan::typeName(widened) == plan::typeName(from.type);
}

std::vector<std::byte> tcc::runtime::roundedBytes(const Checkpoint &checkpoint, const ManifestTensor &tensor,
                                                  plan::DType dtype) {
  std::vector<std::byte> wide(plan::tensorBytes(tensor.type).value_or(0));
  checkpoint.copyTo(tensor, wide.data());
  if (dtype == tensor.type.dtype())
    return wide;
  const uint64_t count = plan::elementCount(tensor.type).value_or(0), size = plan::dtypeBytes(dtype);
  std::vector<std::byte> narrow(count * size);
  for (uint64_t i = 0; i < count; ++i)
    plan::fillElements(narrow.data() + i * size, dtype, 1, plan::floatElement(wide.data(), tensor.type.dtype(), i));
  return narrow;
}

/// Copies the checkpoint's tensors into variables, by index.
static Status copyToDevice(Checkpoint &checkpoint, const plan::Plan &plan,
                           const std::vector<std::pair<int, const ManifestTensor *>> &tensors, Device &device,
                           uint32_t rank = 0) {
  for (const auto &[variable, tensor] : tensors) {
    if (plan::DType dtype = plan.variables(variable).type().dtype(); dtype != tensor->type.dtype()) {
      Status status =
          device.write(Place::variable(static_cast<uint32_t>(variable)), 0, roundedBytes(checkpoint, *tensor, dtype));
      if (!status.ok())
        return status;
      continue;
    }
    Expected<Staging> staging = device.stage(Place::variable(static_cast<uint32_t>(variable)));
    if (!staging)
      return staging.status();
    if (staging->bytes.empty())
      continue;
    if (plan.variables(variable).has_shard()) {
      auto [begin, count] =
          plan::shardOf(plan::elementCount(tensor->type).value_or(0), plan.training().parallel().ranks(), rank);
      std::memset(staging->bytes.data(), 0, staging->bytes.size());
      checkpoint.copyTo(*tensor, begin, count, staging->bytes.data());
    } else {
      checkpoint.copyTo(*tensor, staging->bytes.data());
    }
    if (Status status = device.commit(*staging); !status.ok())
      return status;
  }
  return Status();
}

/// Frozen values that training does not change, but that the checkpoint holds because the run began with values that
/// differ from the plan's.
static std::vector<CheckpointedVariable> replacedVariables(const Checkpoint &checkpoint, const plan::Plan &plan) {
  std::vector<bool> written = writtenVariables(plan);
  const std::set<std::string> scales = scaleNames(plan);
  std::vector<CheckpointedVariable> result;
  for (int i = 0; i < plan.variables_size(); ++i)
    if ((plan.variables(i).role() == plan::FROZEN || scales.count(plan.variables(i).name())) &&
        !written[static_cast<size_t>(i)])
      if (const ManifestTensor *tensor = checkpoint.find(plan.variables(i).name());
          tensor && tensor->role == TensorRole::Buffer)
        result.push_back({i, TensorRole::Buffer});
  return result;
}

/// The plan's state in a checkpoint, as variables and their tensors. `problems` gets what differs, or nothing.
static std::vector<std::pair<int, const ManifestTensor *>>
matchState(const Checkpoint &checkpoint, const plan::Plan &plan, std::vector<int> *replaced, std::string &problems) {
  NameList missing, unexpected, different;
  std::vector<std::pair<int, const ManifestTensor *>> found;
  std::map<std::string, TensorRole> wanted;
  std::vector<CheckpointedVariable> variables = checkpointedVariables(plan);
  for (auto [index, role] : replacedVariables(checkpoint, plan)) {
    variables.push_back({index, role});
    if (replaced)
      replaced->push_back(index);
  }
  for (auto [index, role] : variables) {
    if (role == TensorRole::Ema)
      continue;
    const plan::Variable &variable = plan.variables(index);
    wanted[variable.name()] = role;
    const ManifestTensor *tensor = checkpoint.find(variable.name());
    std::string type = plan::typeName(plan::wholeType(variable));
    if (!tensor)
      missing.add(variable.name());
    else if (plan::typeName(tensor->type) != type)
      different.add(variable.name(), fmt::format("{} there, {} in the plan", plan::typeName(tensor->type), type));
    else if (tensor->role && *tensor->role != role)
      different.add(variable.name(),
                    fmt::format("role {} there, {} in the plan", roleName(*tensor->role), roleName(role)));
    found.emplace_back(index, tensor);
  }
  for (const ManifestTensor &tensor : checkpoint.manifest().tensors)
    if (tensor.role != TensorRole::Ema && !wanted.count(tensor.name))
      unexpected.add(tensor.name);
  for (auto [list, text] : {std::pair(&missing, "the checkpoint lacks"), std::pair(&unexpected, "the plan lacks"),
                            std::pair(&different, "these differ:")})
    if (!list->empty())
      problems += fmt::format("{}{} {}", problems.empty() ? "" : "; ", text, list->text());
  return found;
}

Status tcc::runtime::checkState(const Checkpoint &checkpoint, const plan::Plan &plan) {
  std::string problems;
  matchState(checkpoint, plan, nullptr, problems);
  if (!problems.empty())
    return error("{}: its state is not the plan's: {}", checkpoint.folder(), problems);
  return Status();
}

Status tcc::runtime::loadState(Checkpoint &checkpoint, const plan::Plan &plan, Device &device,
                               std::vector<int> *replaced, uint32_t rank) {
  std::string problems;
  const auto found = matchState(checkpoint, plan, replaced, problems);
  if (!problems.empty())
    return error("{}: its state is not the plan's: {}; resume with the plan that the run was made with, or start a "
                 "new run from its weights with {}",
                 checkpoint.folder(), problems, advice::option("init"));
  return copyToDevice(checkpoint, plan, found, device, rank);
}

Status tcc::runtime::loadModelValues(Checkpoint &checkpoint, const plan::Plan &plan, Device &device, NameList &unused,
                                     WeightSet set) {
  if (set == WeightSet::Averages)
    if (Status status = requireAverages(checkpoint); !status.ok())
      return status;
  std::vector<bool> written = writtenVariables(plan);
  const std::set<std::string> scales = scaleNames(plan);
  NameList missing;
  std::vector<std::pair<int, const ManifestTensor *>> found;
  std::set<std::string> known;
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    known.insert(variable.name());
    if (!isModelValue(variable) && !scales.count(variable.name()))
      continue;
    const ManifestTensor *tensor = findValue(checkpoint, variable.name(), set);
    // Values that the run did not train (all, in a plan without training entries) keep their initial values.
    if (!tensor && (variable.role() == plan::PARAMETER || written[static_cast<size_t>(i)]) &&
        !wasFrozenAs(checkpoint.manifest(), variable.name(), initialIdentity(plan, variable)))
      missing.add(variable.name());
    if (!tensor)
      continue;
    if (plan::typeName(tensor->type) != plan::typeName(variable.type()) && !isRoundedTo(*tensor, variable.type()))
      return error("{}: '{}' is {}, the plan's is {}; use the plan that the run was made with", checkpoint.folder(),
                   variable.name(), plan::typeName(tensor->type), plan::typeName(variable.type()));
    found.emplace_back(i, tensor);
  }
  bool hasModelValues = false;
  for (const ManifestTensor &tensor : checkpoint.manifest().tensors) {
    bool model = !tensor.role || tensor.role == TensorRole::Parameter || tensor.role == TensorRole::Buffer;
    hasModelValues |= model;
    if (model && tensor.role && !known.count(tensor.name))
      unused.add(tensor.name);
  }
  if (found.empty() && hasModelValues)
    return error("{}: none of its values belongs to the plan's model '{}'", checkpoint.folder(), plan.model());
  if (!missing.empty())
    return error("{}: it lacks values of the plan's model '{}': {}; use the plan that the run was made with",
                 checkpoint.folder(), plan.model(), missing.text());
  return copyToDevice(checkpoint, plan, found, device);
}

std::vector<CheckpointedVariable> tcc::runtime::checkpointedVariables(const plan::Plan &plan) {
  std::vector<bool> written = writtenVariables(plan);
  std::vector<CheckpointedVariable> result;
  for (int i = 0; i < plan.variables_size(); ++i) {
    plan::VariableRole role = plan.variables(i).role();
    if (role == plan::PARAMETER)
      result.push_back({i, TensorRole::Parameter});
    else if (role == plan::OPTIMIZER)
      result.push_back({i, TensorRole::Optimizer});
    else if (role == plan::EMA)
      result.push_back({i, TensorRole::Ema});
    else if (role != plan::ACCUMULATOR && written[static_cast<size_t>(i)])
      result.push_back({i, TensorRole::Buffer});
  }
  return result;
}

/// The first `bytes` of a stream.
static std::function<Status(const ByteSink &)> clipped(std::function<Status(const ByteSink &)> stream, uint64_t bytes) {
  return [stream = std::move(stream), bytes](const ByteSink &sink) {
    uint64_t left = bytes;
    return stream([&](std::span<const std::byte> piece) {
      piece = piece.first(std::min<uint64_t>(piece.size(), left));
      left -= piece.size();
      return piece.empty() ? Status() : sink(piece);
    });
  };
}

std::vector<CheckpointTensor> tcc::runtime::checkpointTensors(const plan::Plan &plan, Device &device,
                                                              std::span<const HostState> hostState,
                                                              std::span<const int> replaced, uint32_t rank) {
  std::vector<CheckpointTensor> tensors;
  const uint64_t ranks = plan.training().parallel().ranks();
  // Padding of shards is not written. If each node has all shards, only the first node writes.
  auto add = [&](CheckpointTensor tensor) {
    if (tensor.whole) {
      const uint64_t count = plan::shardOf(plan::elementCount(*tensor.whole).value_or(0), ranks, rank).count;
      if (count == 0 || rank >= ranks)
        return;
      tensor.shards = ranks;
      tensor.type.set_dims(0, static_cast<int64_t>(count));
      tensor.stream = clipped(std::move(tensor.stream), plan::tensorBytes(tensor.type).value_or(0));
    } else if (rank != 0) {
      return;
    }
    tensors.push_back(std::move(tensor));
  };
  std::vector<CheckpointedVariable> variables = checkpointedVariables(plan);
  for (int index : replaced)
    variables.push_back({index, TensorRole::Buffer});
  for (auto [index, role] : variables) {
    const plan::Variable &variable = plan.variables(index);
    Place place = Place::variable(static_cast<uint32_t>(index));
    CheckpointTensor tensor{{variable.name(), variable.type(),
                             [&device, place](const ByteSink &sink) { return device.readPieces(place, sink); }},
                            role};
    tensor.variable = static_cast<uint32_t>(index);
    if (variable.has_shard())
      tensor.whole = plan::wholeType(variable);
    add(std::move(tensor));
  }
  for (const HostState &one : hostState)
    add({{one.name, one.type, [bytes = one.bytes](const ByteSink &sink) { return sink(bytes); }}, one.role, one.whole});
  std::sort(tensors.begin(), tensors.end(), comesBefore);
  return tensors;
}
