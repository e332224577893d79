//===- FunctionKernels.h - the ops of functions as kernels -----*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_FUNCTIONKERNELS_H
#define TCC_TEST_SUPPORT_FUNCTIONKERNELS_H

#include "compiler/codegen/KernelSet.h"
#include "compiler/dialect/TrainDialect.h"
#include "test/support/Cases.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"

#include <map>
#include <memory>
#include <vector>

namespace tcc::test {

/// The placement of the kernels' operands in memory. Kernels must not access anything around them.
enum class Placement {
  Aligned,     ///< at a multiple of 64 bytes, as in a plan
  BeforeFence, ///< ends at an inaccessible page, and is therefore aligned to elements only
  AfterFence,  ///< begins after an inaccessible page
  InPlace      ///< aligned, and results overwrite operands in place wherever the kernel allows it
};

/// Functions whose ops become generated kernels, compiled together; a subclass runs them.
class FunctionKernels {
public:
  explicit FunctionKernels(const target::CodeModel &model);
  virtual ~FunctionKernels();

  /// Makes kernels of @f of `module`: each op becomes one, and so does a `train.fused` or `train.joined` as it stands.
  /// Composites are decomposed first. The module is changed, and must live as long as this.
  void add(mlir::ModuleOp module);

  /// Gives alike kernels one body (KernelSet::shareAlike). Call before `compile`.
  void shareAlike() { set->shareAlike(); }

  /// Compiles all added kernels; false, with a failed expectation, if that fails.
  bool compile();
  /// Bytes of the compiled code.
  size_t codeBytes() const { return compiledBytes; }

  /// Runs @f of `module` and returns its results; empty, with failed expectations, if its kernels cannot be run.
  std::vector<train::HostTensor> run(mlir::ModuleOp module, llvm::ArrayRef<train::HostTensor> arguments,
                                     Placement placement = Placement::Aligned);

protected:
  struct Kernel {
    mlir::Operation *op;
    mlir::Operation *region; ///< train.fused or train.joined
    std::string symbol;
    codegen::KernelWork work;
    train::FusedOp fused() const { return llvm::dyn_cast<train::FusedOp>(region); }
  };
  virtual bool load(std::string code) = 0;
  /// Fills `results`, whose types are set; false, with a failed expectation, if that fails.
  virtual bool runKernel(Kernel &kernel, llvm::ArrayRef<const train::HostTensor *> inputs,
                         std::vector<train::HostTensor> &results, Placement placement) = 0;

  /// For each result that overwrites an input in place, the index of the input.
  static llvm::SmallDenseMap<unsigned, unsigned> sharedPlaces(Kernel &kernel, Placement placement);

private:
  std::unique_ptr<codegen::KernelSet> set;
  size_t compiledBytes = 0;
  std::map<mlir::Operation *, std::vector<Kernel>> kernels; ///< by module, in the order of its ops
};

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_FUNCTIONKERNELS_H
