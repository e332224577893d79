//===- ContentHash.h - 128-bit hashes of files and of the compiler --*- C++ -*-===//
//
// A key is the XXH3-128 of all inputs of a result. Each part goes in with its length, so that no two lists of
// parts run together to the same bytes. XXH3 is no cryptographic hash: a cache is as trusted as whoever may write to
// it.
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

/// The content of a file, hashed in pieces of 64 MiB by as many threads as there are: the piece is fixed, so the key is
/// the same on every machine. Errors: the file is missing, a folder, or unreadable.
Expected<Key> hashFile(const std::string &path);

/// The code that runs: the build ids of the program and of each shared library it has loaded (those without one by
/// their bytes). Another build of the compiler, of LLVM or of the library of kernels is another identity.
const Key &codeIdentity();

/// Everything that the library of kernels may choose a kernel by: the processor's model, features and caches, and the
/// library's own environment variables.
const Key &machineIdentity();

} // namespace tcc::cache

#endif // TCC_COMPILER_CACHE_CONTENTHASH_H
