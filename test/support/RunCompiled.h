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

/// Machine levels whose kernels differ and that this machine has. The higher ones differ in the library, and in
/// attention on bf16 where machineMultipliesPairs().
std::vector<std::string> machineLevels();
/// True where kernels for cpu:v4-bf16 run.
bool machineMultipliesPairs();

/// Functions whose ops become generated kernels, compiled together for one machine level.
class CompiledFunctions {
public:
  /// For `level` ("cpu:v3"), which this machine must have; empty: the best one of this machine.
  explicit CompiledFunctions(std::string level = "");
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

  std::string level;
  std::unique_ptr<codegen::KernelSet> set;
  std::map<mlir::Operation *, std::vector<Kernel>> kernels; ///< by module, in the order of its ops
  void *library = nullptr;
};

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_RUNCOMPILED_H
