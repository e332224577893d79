//===- LighterForms.cpp - kernels with less scratch -------------*- C++ -*-===//
//
// A kernel with less scratch (LoopKernel::shrinkScratch) has the same tiles and the same bits as the usual one, in
// every type. Memory planning relies on this: the number of workers that a plan is made for never changes a result.
//
//===----------------------------------------------------------------------===//
#include "test/kernels/Compare.h"
#include "test/support/RunCompiled.h"

#include <cstring>

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

struct Made {
  int64_t scratchBytes = 0, tiles = 0;
  HostTensor result;
};

/// A convolution by Winograd's method, its scratch limited to `bytes` a tile (0: its own choice).
Made convolve(const std::string &type, bool transposed, int64_t bytes) {
  std::string x = "tensor<5x7x7x256x" + type + ">", y = "tensor<5x7x7x48x" + type + ">",
              w = "tensor<" + std::string(transposed ? "256x48" : "48x256") + "x3x3x" + type + ">";
  test::Case c{"winograd", "(%x: " + x + ", %w: " + w + ") -> " + y,
               "%r = train.winograd_conv %x, %w {padsBegin = array<i64: 1, 1>, transposed = " +
                   std::string(transposed ? "true" : "false") + "} : (" + x + ", " + w + ") -> " + y,
               test::Types::None};
  OwningOpRef<ModuleOp> module = test::parseCase(c, type);
  EXPECT_TRUE(module);
  std::vector<HostTensor> arguments;
  uint64_t state = 5;
  for (Type argument : (*module->getOps<func::FuncOp>().begin()).getArgumentTypes()) {
    arguments.emplace_back(cast<RankedTensorType>(argument));
    for (int64_t i = 0; i < arguments.back().size(); ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      arguments.back().setDouble(i, double(state >> 11) * 0x1p-52 - 1);
    }
  }
  Made made;
  module->walk([&](train::LoopKernel kernel) {
    if (bytes)
      kernel.shrinkScratch(bytes);
    made.scratchBytes = kernel.getScratchBytes();
    made.tiles = kernel.getTileCount();
  });
  test::CompiledFunctions compiled;
  compiled.add(*module);
  EXPECT_TRUE(compiled.compile());
  std::vector<HostTensor> results = compiled.run(*module, arguments);
  EXPECT_EQ(results.size(), 1u);
  if (!results.empty())
    made.result = results[0];
  return made;
}

TEST(LighterForms, HaveTheBitsOfTheUsualOnes) {
  for (std::string type : {"f64", "f32", "bf16", "f16"})
    for (bool transposed : {false, true}) {
      SCOPED_TRACE(type + (transposed ? " transposed" : ""));
      Made usual = convolve(type, transposed, 0), lighter = convolve(type, transposed, 64);
      EXPECT_LT(lighter.scratchBytes, usual.scratchBytes * 3 / 4);
      EXPECT_EQ(lighter.tiles, usual.tiles);
      ASSERT_EQ(lighter.result.sizeBytes(), usual.result.sizeBytes());
      ASSERT_GT(usual.result.sizeBytes(), 0);
      EXPECT_EQ(std::memcmp(lighter.result.data(), usual.result.data(), size_t(usual.result.sizeBytes())), 0);
    }
}

TEST(LighterForms, AreNoLighterThanTheyHaveToBe) {
  Made usual = convolve("f32", false, 0), enough = convolve("f32", false, usual.scratchBytes);
  EXPECT_EQ(enough.scratchBytes, usual.scratchBytes);
}

} // namespace
