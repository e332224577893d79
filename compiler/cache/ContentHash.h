//===- ContentHash.h - 128-bit hashes of files and of the compiler --*- C++ -*-===//
//
// A key is the XXH3-128 of all inputs of a result. Each part is preceded by its length, so that different lists of
// parts never concatenate to the same bytes. XXH3 is not cryptographic: trust in a cache rests on who may write to it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_CACHE_CONTENTHASH_H
#define TCC_COMPILER_CACHE_CONTENTHASH_H

#include "support/Status.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tcc::cache {

/// 128 bits, the higher half first.
struct Key {
  uint64_t high = 0, low = 0;
  bool operator==(const Key &) const = default;
  /// 32 hexadecimal digits.
  std::string text() const;
};

/// The XXH3-128 of some bytes.
Key hashOf(const void *data, size_t bytes);

class KeyBuilder {
public:
  /// `kind`: what the key is for ("kernels", "plan"), so that two kinds never share one.
  explicit KeyBuilder(std::string_view kind);
  ~KeyBuilder();
  KeyBuilder &add(std::string_view text);
  KeyBuilder &add(uint64_t number);
  KeyBuilder &add(const Key &key) { return add(key.high).add(key.low); }
  Key finish() const;

private:
  struct State;
  std::unique_ptr<State> state;
};

/// The hash of a file's content, computed in parallel. Pieces are always 64 MiB, so the key is the same on every
/// machine. Errors: the file is missing, a folder, or unreadable.
Expected<Key> hashFile(const std::string &path);

/// Identifies the running code: the build ids of the program and of each loaded shared library (the hash of its file if
/// it has none). Another build of the compiler, of LLVM or of the kernel library gives another identity.
const Key &codeIdentity();

/// Identifies everything that the library's choice of a kernel may depend on: the processor's model, features and
/// caches, and the library's own environment variables.
const Key &machineIdentity();

} // namespace tcc::cache

#endif // TCC_COMPILER_CACHE_CONTENTHASH_H
