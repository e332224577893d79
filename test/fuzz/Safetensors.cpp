//===- Safetensors.cpp - fuzz target: tensor files -----------------------===//
#include "runtime/tensors/Safetensors.h"
#include "test/fuzz/InputFolder.h"

#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tcc::fuzz::InputFolder folder;
  auto file = tcc::runtime::SafetensorsFile::open(folder.write("tensors.safetensors", {data, size}));
  if (!file)
    return 0;
  // Every byte of an accepted file must be readable.
  unsigned sum = 0;
  for (const tcc::runtime::Tensor &tensor : file->tensors()) {
    if (file->find(tensor.name) != &tensor)
      __builtin_trap();
    for (std::byte byte : tensor.bytes)
      sum += unsigned(byte);
  }
  static volatile unsigned sink;
  sink = sum;
  return 0;
}
