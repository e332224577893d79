//===- RunCompiled.h - functions through generated kernels ------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_RUNCOMPILED_H
#define TCC_TEST_SUPPORT_RUNCOMPILED_H

#include "compiler/codegen/KernelSet.h"
#include "compiler/dialect/TrainDialect.h"
#include "test/support/Cases.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"

#include <map>
#include <memory>
#include <vector>

namespace tcc::test {

/// Where the operands of kernels lie. In all three, pages beside them cannot be touched.
enum class Placement {
  Aligned,     ///< at a multiple of 64 bytes, as in a plan
  BeforeFence, ///< the last byte is the last that may be read: aligned to elements alone
  AfterFence,  ///< the first byte is the first that may be read
  InPlace      ///< aligned, and results lie where operands lay wherever the kernel allows it
};

/// Machine levels whose kernels differ. The higher ones differ in calls, and in attention on bf16 where
/// machineMultipliesPairs().
std::vector<std::string> testedLevels();
/// True where this machine runs a level's kernels as tcc makes them.
bool hasInstructionsOf(const std::string &level);
/// True where kernels for cpu:v4-bf16 run.
bool machineMultipliesPairs();

/// What kernels of a level are made of. A machine without a level's instructions gets AVX2's always.
enum class Instructions {
  OfLevel,
  Avx2, ///< a level's vectors in more registers, in the same bits: not for levels that multiply pairs of bf16
};

/// Functions whose ops become generated kernels, compiled together for one machine level.
class CompiledFunctions {
public:
  /// For `level` ("cpu:v3"); empty: the best one of this machine.
  explicit CompiledFunctions(std::string level = "", Instructions instructions = Instructions::OfLevel);
  ~CompiledFunctions();

  /// Makes kernels of @f of `module`: each op becomes one, and so does a `train.fused` as it stands. Composites are
  /// decomposed first. The module is changed, and must live as long as this.
  void add(mlir::ModuleOp module);

  /// Compiles what was added; false with a failed expectation where that is not possible.
  bool compile();

  /// What @f of `module` returns; nothing, with failed expectations, where its kernels cannot be run.
  std::vector<train::HostTensor> run(mlir::ModuleOp module, llvm::ArrayRef<train::HostTensor> arguments,
                                     Placement placement = Placement::Aligned);

private:
  struct Kernel {
    mlir::Operation *op;
    train::FusedOp fused;
    std::string symbol;
    int64_t tiles;
  };
  bool runKernel(Kernel &kernel, llvm::DenseMap<mlir::Value, train::HostTensor> &values, Placement placement);

  std::unique_ptr<codegen::KernelSet> set;
  std::map<mlir::Operation *, std::vector<Kernel>> kernels; ///< by module, in the order of its ops
  void *library = nullptr;
};

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_RUNCOMPILED_H
