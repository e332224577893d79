//===- ContentStore.h - a bounded folder of results by key ------*- C++ -*-===//
//
// DIR/v1/ab/cdef….entry: a header with the key, the size and the XXH3-128 of what follows, then the bytes. An entry is
// written to a temporary file and renamed, so a reader sees all of it or nothing, also with several compilers at once;
// it is checked whenever it is read, and a damaged entry counts as missing. Reading an entry renews its
// time; `trim` removes the least recently used ones until the rest fits.
//
// The store never fails a compile: an entry that cannot be read counts as missing, one that cannot be written is not
// kept, and the first problem is reported once.
//
// Entries are machine code. A folder or entry that other users could have written is not used (TrustedFolder.h), and
// the store only removes files that it created: entries by their name and header, temporary files by their name once
// their process is gone.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_CACHE_CONTENTSTORE_H
#define TCC_COMPILER_CACHE_CONTENTSTORE_H

#include "compiler/cache/ContentHash.h"
#include "compiler/cache/TrustedFolder.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

namespace tcc::cache {

/// $TCC_CACHE_DIR, else $XDG_CACHE_HOME/tcc, else ~/.cache/tcc. Empty, for no cache, if none of these is set or
/// TCC_CACHE_DIR is empty.
std::string defaultFolder();

class ContentStore {
public:
  static constexpr uint64_t kDefaultCapacityBytes = uint64_t(2) << 30;

  explicit ContentStore(std::string folder, uint64_t capacityBytes = kDefaultCapacityBytes)
      : folder(std::move(folder)), capacityBytes(capacityBytes) {}

  /// The bytes of an entry. Thread-safe.
  std::optional<std::string> get(const Key &key);

  /// Stores bytes under a key, replacing an existing entry; ignores entries larger than half of the store. Thread-safe.
  void put(const Key &key, std::string_view bytes);

  /// Shrinks the store to its capacity, if put() stored an entry. Entries that other compilers remove count as removed.
  void trim();

  /// The reason why the cache is not used or keeps nothing, as the predicate of a sentence about the cache; empty after
  /// the first call.
  std::string takeProblem();

private:
  const Descriptor &openRoot(bool make);
  Descriptor openFolder(const Key &key, bool make);
  void note(const std::string &reason);

  const std::string folder;
  const uint64_t capacityBytes;
  std::atomic<bool> written = false;
  std::mutex mutex;
  Descriptor root;        ///< DIR/v1, once opened
  bool untrusted = false; ///< other users may write to the folder
  std::string problem;
  bool told = false;
};

} // namespace tcc::cache

#endif // TCC_COMPILER_CACHE_CONTENTSTORE_H
