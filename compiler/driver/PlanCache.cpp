//===- PlanCache.cpp - keys and entries of compiled plans -----------------===//
#include "compiler/driver/PlanCache.h"

#include "compiler/emit/ExternalPath.h"
#include "support/MappedFile.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

namespace tcc::cache {

namespace {

namespace fs = std::filesystem;

/// Resolution of file times: the system stamps files with the time of its last clock tick.
constexpr double kTickSeconds = 0.02;

/// Appends a string, preceded by its length, to a serialised list.
void append(std::string &to, std::string_view text) {
  uint64_t bytes = text.size();
  to.append(reinterpret_cast<const char *>(&bytes), sizeof bytes).append(text);
}

class Reader {
public:
  explicit Reader(std::string_view bytes) : rest(bytes) {}
  std::optional<std::string_view> next() {
    uint64_t bytes = 0;
    if (rest.size() < sizeof bytes)
      return std::nullopt;
    std::memcpy(&bytes, rest.data(), sizeof bytes);
    rest.remove_prefix(sizeof bytes);
    if (rest.size() < bytes)
      return std::nullopt;
    std::string_view text = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return text;
  }

private:
  std::string_view rest;
};

/// All options that change a plan, files excepted. Names every member, so that a new one does not compile unless it is
/// handled here.
void addOptions(KeyBuilder &key, const CompileOptions &options) {
  const auto &[modelPath, recipePath, settings, dims, buckets, shapes, dequantize, target, card, precision, maxWorkers,
               entries, embedWeights, libraryKernels, forceF64, budgetBytes, hostBytes, ladder, bounds, variants,
               sizesOnly, describeOnly, planFolder, dumpFolder, profile, ptxas, store, storesPlan] = options;
  key.add(fs::path(modelPath).filename().string());
  key.add(recipePath.empty());
  key.add(settings.size());
  for (const std::string &setting : settings)
    key.add(setting);
  key.add(buckets.size());
  for (const auto &bucket : buckets) {
    key.add(bucket.size());
    for (const auto &[name, extent] : bucket)
      key.add(name).add(uint64_t(extent));
  }
  for (const auto *lists : {&dims, &shapes}) {
    key.add(lists->size());
    for (const auto &[name, extents] : *lists) {
      key.add(name).add(extents.size());
      for (int64_t extent : extents)
        key.add(uint64_t(extent));
    }
  }
  key.add(dequantize).add(target).add(card).add(precision).add(maxWorkers);
  key.add(entries.size());
  for (const std::string &entry : entries)
    key.add(entry);
  key.add(embedWeights).add(libraryKernels).add(forceF64);
  key.add(ptxas ? ptxas->version : "");
  key.add(budgetBytes).add(hostBytes).add(ladder).add(bounds).add(variants).add(sizesOnly).add(describeOnly);
  // Not in the key: the plan's folder is part of the paths of external data; the dump folder, the profile and the store
  // change no plan.
  (void)planFolder, (void)dumpFolder, (void)profile, (void)store, (void)storesPlan;
}

Key filesKey(const Key &model) { return KeyBuilder("external files").add(codeIdentity()).add(model).finish(); }

} // namespace

PlanCache::PlanCache(ContentStore &store, const CompileOptions &options) : store(store), options(options) {
  clock_gettime(CLOCK_REALTIME, &made);
}

std::string PlanCache::modelFolder() const {
  std::string folder = fs::path(options.modelPath).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool PlanCache::changedSince(const std::string &path) const {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0)
    return true;
  // st_ctim, since programs can set st_mtim back.
  double before = double(made.tv_sec - info.st_ctim.tv_sec) + double(made.tv_nsec - info.st_ctim.tv_nsec) * 1e-9;
  return before < kTickSeconds;
}

std::optional<Key> PlanCache::keyFor(const std::vector<std::string> &externalFiles) {
  if (!model)
    return std::nullopt;
  KeyBuilder key("plan");
  key.add(codeIdentity()).add(machineIdentity());
  addOptions(key, options);
  key.add(*model);
  if (!options.recipePath.empty()) {
    // A pipe can be read only once, and the compile reads it.
    std::error_code code;
    Expected<std::string> recipe = fs::is_regular_file(options.recipePath, code)
                                             ? tcc::readFile(options.recipePath)
                                             : error("{}: not a file", options.recipePath);
    if (!recipe)
      return std::nullopt;
    key.add(*recipe);
  }
  key.add(externalFiles.size());
  for (const std::string &name : externalFiles) {
    const std::string path = (fs::path(modelFolder()) / name).string();
    auto known = contents.find(path);
    if (known == contents.end()) {
      Expected<Key> content = hashFile(path);
      if (!content)
        return std::nullopt;
      known = contents.emplace(path, *content).first;
    }
    key.add(name).add(known->second).add(emit::externalPath(path, options.planFolder));
  }
  return key.finish();
}

std::optional<CachedPlan> PlanCache::find() {
  if (Expected<Key> content = hashFile(options.modelPath))
    model = *content;
  std::optional<std::string> files = model ? store.get(filesKey(*model)) : std::nullopt;
  if (!files)
    return std::nullopt;
  std::vector<std::string> names;
  Reader list(*files);
  while (auto name = list.next())
    names.emplace_back(*name);
  std::optional<Key> key = keyFor(names);
  std::optional<std::string> entry = key ? store.get(*key) : std::nullopt;
  if (!entry)
    return std::nullopt;
  Reader reader(*entry);
  auto bytes = reader.next(), modelPath = reader.next(), recipePath = reader.next();
  if (!bytes || !modelPath || !recipePath)
    return std::nullopt;
  CachedPlan found;
  found.bytes = *bytes;
  while (auto warning = reader.next())
    found.warnings.emplace_back(*warning);
  // A kept warning that names a file is valid only while the file has that name.
  for (auto [then, now] : {std::pair(*modelPath, std::string_view(options.modelPath)),
                           std::pair(*recipePath, std::string_view(options.recipePath))})
    if (then != now && !then.empty() &&
        std::any_of(found.warnings.begin(), found.warnings.end(),
                    [&, name = then](const std::string &text) { return text.find(name) != text.npos; }))
      return std::nullopt;
  return found;
}

void PlanCache::keep(const CachedPlan &plan, const std::vector<std::string> &externalFiles) {
  std::vector<std::string> names, inputs{options.modelPath};
  if (!options.recipePath.empty())
    inputs.push_back(options.recipePath);
  for (const std::string &file : externalFiles) {
    names.push_back(fs::path(file).lexically_relative(modelFolder()).string());
    inputs.push_back(file);
  }
  if (std::any_of(inputs.begin(), inputs.end(), [&](const std::string &path) { return changedSince(path); }))
    return;
  std::optional<Key> key = keyFor(names);
  if (!key)
    return;
  std::string files, entry;
  for (const std::string &name : names)
    append(files, name);
  entry.reserve(plan.bytes.size() + 4096);
  append(entry, plan.bytes);
  append(entry, options.modelPath);
  append(entry, options.recipePath);
  for (const std::string &warning : plan.warnings)
    append(entry, warning);
  store.put(*key, entry);
  store.put(filesKey(*model), files);
}

} // namespace tcc::cache
