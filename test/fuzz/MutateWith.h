//===- MutateWith.h - libFuzzer's mutator for protobuf inputs ------------===//
//
// Most inputs are changed as messages, by reflection, so that nearly all of them parse; every eighth is changed byte by
// byte, so that the parser's own checks are reached as well.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_FUZZ_MUTATEWITH_H
#define TCC_TEST_FUZZ_MUTATEWITH_H

#include "test/support/mutate/MutateMessage.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace tcc::fuzz {

template <typename Message> size_t mutateAs(uint8_t *data, size_t size, size_t most, unsigned seed) {
  std::mt19937_64 random(seed);
  Message message;
  if (random() % 8 == 0 || !message.ParseFromArray(data, int(size)))
    return LLVMFuzzerMutate(data, size, most);
  for (uint64_t left = 1 + random() % 4; left; --left)
    test::mutateMessage(message, random);
  std::string bytes = message.SerializePartialAsString();
  if (bytes.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

} // namespace tcc::fuzz

#endif // TCC_TEST_FUZZ_MUTATEWITH_H
