//===- FoldedStrides.h - kernels with folded movements, beside those without -*- C++ -*-===//
#ifndef TCC_TEST_KERNELS_FOLDEDSTRIDES_H
#define TCC_TEST_KERNELS_FOLDEDSTRIDES_H

#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"
#include "test/support/RunCompiled.h"

#include "passes/Common.h"
#include "passes/Lowering.h"

#include "mlir/Pass/PassManager.h"

namespace tcc::test {

/// Runs fold-strides over all functions.
inline mlir::LogicalResult foldStrides(mlir::ModuleOp module) {
  for (auto function : module.getOps<mlir::func::FuncOp>())
    function->setAttr(train::names::kEntry, mlir::StringAttr::get(module.getContext(), "predict"));
  mlir::PassManager passes(module.getContext());
  passes.addNestedPass<mlir::func::FuncOp>(train::createFoldStridesPass());
  return passes.run(module);
}

/// Runs the case as fold-strides left it (`folded`) and as it was written (`apart`), which moves every operand first.
/// The results of `folded` agree with the naive evaluators and have the bits of `apart`, with a guard page before or
/// behind each operand.
inline void expectFoldedResults(CompiledFunctions &compiled, const Case &c, mlir::ModuleOp apart,
                                mlir::ModuleOp folded) {
  mlir::OwningOpRef<mlir::ModuleOp> asWritten = parseCase(c, "");
  mlir::func::FuncOp function = *asWritten->getOps<mlir::func::FuncOp>().begin();
  auto arguments = argumentsOf(c, function);
  std::vector<train::HostTensor> expected = evaluate(function, arguments), moved = compiled.run(apart, arguments);
  for (Placement placement : {Placement::AfterFence, Placement::BeforeFence}) {
    std::vector<train::HostTensor> actual = compiled.run(folded, arguments, placement);
    ASSERT_EQ(actual.size(), expected.size());
    for (auto [got, wanted, same] : llvm::zip_equal(actual, expected, moved)) {
      expectEqual(got, wanted, c);
      expectSameBits(got, same);
    }
  }
}

} // namespace tcc::test

#endif // TCC_TEST_KERNELS_FOLDEDSTRIDES_H
