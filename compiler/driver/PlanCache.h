//===- PlanCache.h - whole plans, kept by the hash of their inputs --*- C++ -*-===//
//
// A plan follows from the model and its files of external data, the recipe, the options, the compiler's code and the
// machine's level; these make its key. The list of a model's external files is only known once the model is read, so it
// is a separate entry, keyed by the model's content: with it a second compile only hashes files.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_DRIVER_PLANCACHE_H
#define TCC_COMPILER_DRIVER_PLANCACHE_H

#include "compiler/cache/ContentStore.h"
#include "compiler/driver/CompileModel.h"

#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tcc::cache {

/// A plan file as it was written, and the warnings of its compile.
struct CachedPlan {
  std::string bytes;
  std::vector<std::string> warnings;
};

class PlanCache {
public:
  /// Reads no file yet. `store` and `options` must outlive the cache.
  PlanCache(ContentStore &store, const CompileOptions &options);

  /// The plan of an earlier compile. Empty if there is none, or if a file cannot be read: the compile then
  /// reports that.
  std::optional<CachedPlan> find();

  /// Keeps a plan; `externalFiles` are those of the model. Keeps nothing if one of the plan's input files changed since
  /// this object was made.
  void keep(const CachedPlan &plan, const std::vector<std::string> &externalFiles);

private:
  std::optional<Key> keyFor(const std::vector<std::string> &externalFiles);
  std::string modelFolder() const;
  bool changedSince(const std::string &path) const;

  ContentStore &store;
  const CompileOptions &options;
  timespec made = {};
  std::optional<Key> model;            ///< the content of the model file
  std::map<std::string, Key> contents; ///< of external files, hashed once
};

} // namespace tcc::cache

#endif // TCC_COMPILER_DRIVER_PLANCACHE_H
