//===- ContentStore.h - a bounded folder of results by key ------*- C++ -*-===//
//
// DIR/v1/ab/cdef….entry: a header with the key, the size and the XXH3-128 of what follows, then the bytes. An entry is
// written to a temporary file and renamed, so a reader sees all of it or nothing, also with several compilers at once;
// it is checked whenever it is read, and what does not check is as if it were not there. Reading an entry renews its
// time; `trim` removes the ones that were not asked for longest until the rest fits.
//
// Nothing here can fail a compile: what cannot be read is missing, what cannot be written is not kept, and the first
// reason is told once.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_CACHE_CONTENTSTORE_H
#define TCC_COMPILER_CACHE_CONTENTSTORE_H

#include "compiler/cache/ContentHash.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

namespace tcc::cache {

/// $TCC_CACHE_DIR, else $XDG_CACHE_HOME/tcc, else ~/.cache/tcc; empty where none of them is set, or TCC_CACHE_DIR is
/// set to nothing: then there is no cache.
std::string defaultFolder();

class ContentStore {
public:
  static constexpr uint64_t kDefaultCapacityBytes = uint64_t(2) << 30;

  explicit ContentStore(std::string folder, uint64_t capacityBytes = kDefaultCapacityBytes)
      : folder(std::move(folder)), capacityBytes(capacityBytes) {}

  /// The bytes of an entry. From any thread.
  std::optional<std::string> get(const Key &key);

  /// Keeps bytes under a key, replacing what is there; not those that would fill more than half of the store. From any
  /// thread.
  void put(const Key &key, std::string_view bytes);

  /// Brings the store back to its capacity, if something was put. Entries that other compilers remove meanwhile count
  /// as removed.
  void trim();

  /// Why entries cannot be kept, if they cannot; told once, then empty.
  std::string takeProblem();

private:
  std::string pathOf(const Key &key) const;
  void notePath(const std::string &path, int error);

  const std::string folder;
  const uint64_t capacityBytes;
  std::atomic<bool> written = false;
  std::mutex mutex;
  std::string problem;
  bool told = false;
};

} // namespace tcc::cache

#endif // TCC_COMPILER_CACHE_CONTENTSTORE_H
